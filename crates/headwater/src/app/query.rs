//! Questions over a control link that are no part of the protocol's machines: block hashes, listings, views.

use headwater_units::{Bytes, ObjectId};
use headwater_wire::{Holding, Naming, NodeInfo};
use serde::{Deserialize, Serialize};

use crate::control::{ControlError, Link};

/// No answer is longer: the hashes of an object of 2 TiB.
const LONGEST_ANSWER: Bytes = Bytes::mib(64);
/// No question waits longer.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(20);

/// A question.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Query {
    /// Who are you, and what do you hold?
    Holdings,
    /// The block hashes of an object.
    Hashes { object: ObjectId },
    /// To a controller: what is going on?
    View,
    /// How does your data socket do?
    DataPath,
    /// To a controller: as [`Query::View`], with what every node answers to [`Query::DataPath`].
    Status,
}

/// An answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    Holdings {
        info: Box<NodeInfo>,
        holdings: Vec<Holding>,
        names: Vec<Naming>,
    },
    Hashes {
        bytes: Bytes,
        hashes: Vec<[u8; 32]>,
    },
    /// A JSON text, so that a newer peer may say more.
    View {
        json: String,
    },
    /// Not here.
    Unknown,
}

impl Answer {
    /// As JSON, if there is something to say.
    pub(crate) fn view(what: Option<&impl Serialize>) -> Self {
        what.map_or(Answer::Unknown, |what| Answer::View {
            json: serde_json::to_string(what).expect("a report can be written"),
        })
    }
}

/// Asks the peer of a link.
///
/// # Errors
/// As [`Link::request`]; also when the answer makes no sense or does not come.
pub(crate) async fn ask(link: &Link, query: &Query) -> Result<Answer, ControlError> {
    let bytes = postcard::to_stdvec(query).expect("a question can be written");
    let reply = tokio::time::timeout(PATIENCE, link.request(&bytes, LONGEST_ANSWER))
        .await
        .map_err(|_| ControlError::Refused)??;
    postcard::from_bytes(&reply).map_err(|_| ControlError::Refused)
}
