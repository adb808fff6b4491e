//! Questions over a control link that are no part of the protocol's machines: block hashes, listings, views.

use std::net::SocketAddr;

use headwater_control::{ControlError, Link};
use headwater_controller::NotForgotten;
use headwater_units::{Bytes, Duration, NodeId, ObjectId};
use headwater_wire::{Holding, Naming, NodeInfo, Spoiled};
use serde::{Deserialize, Serialize};

/// No answer is longer: the hashes of an object of 2 TiB.
const LONGEST_ANSWER: Bytes = Bytes::mib(64);
/// No question waits longer: a peer that is gone ends its link much sooner.
const PATIENCE: Duration = Duration::from_secs(60);

/// Nodes in one question for addresses: it has to fit into a request.
pub(crate) const MOST_ADDRESSES: usize = 64;

/// A question.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Query {
    /// Question: who are you, and what do you hold?
    Holdings,
    /// The block hashes of an object, from a node that has them or will.
    Hashes { object: ObjectId },
    /// To a controller: what is going on?
    View,
    /// To a controller: where are these nodes reached? At most [`MOST_ADDRESSES`].
    Addresses { of: Vec<NodeId> },
    /// How does your data socket do?
    DataPath,
    /// To a controller: as [`Query::View`], with what every node answers to [`Query::DataPath`].
    Status,
    /// Question: what are you?
    Role,
    /// To a controller: drop this node, which is away. For operators ([`super::host`], `query_door`).
    Forget { node: NodeId },
    /// To a controller: the block hashes of an object, or who tells them. `in_vain`: this one was named, and did not.
    HashesOrWhere { object: ObjectId, in_vain: Option<NodeId> },
}

/// Role of a process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Role {
    /// It runs a controller.
    pub(crate) controls: bool,
    /// It sends objects.
    pub(crate) sends: bool,
    /// Where its controller is, as it was told, if that is elsewhere.
    pub(crate) controller: Option<String>,
}

/// An answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    Holdings {
        info: Box<NodeInfo>,
        holdings: Vec<Holding>,
        names: Vec<Naming>,
        /// Objects that it held until their copies turned out not to be them any more.
        spoiled: Vec<(Holding, Spoiled)>,
    },
    Hashes {
        bytes: Bytes,
        hashes: Vec<[u8; 32]>,
    },
    /// A JSON text, so that a newer peer may say more.
    View {
        json: String,
    },
    /// Of those that are known.
    Addresses(Vec<(NodeId, String)>),
    /// Not here.
    Unknown,
    Role(Role),
    Forgetting(Result<(), NotForgotten>),
    /// This node has the hashes, or gets them first, and listens there.
    HashesAt {
        node: NodeId,
        at: SocketAddr,
    },
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
    let reply = tokio::time::timeout(PATIENCE.into(), link.request(&bytes, LONGEST_ANSWER))
        .await
        .map_err(|_| ControlError::NoReply { within: PATIENCE })??;
    postcard::from_bytes(&reply).map_err(|_| ControlError::Refused)
}
