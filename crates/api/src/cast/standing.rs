//! Standing casts: nodes that join later are sent the object too.

use std::collections::BTreeMap;

use headwater_wire::{Refusal, StandingCast, ToController, ToNode};
use serde::Serialize;

use crate::host::{Host, HostConfig};
use crate::{AppError, QueryOptions};

/// A standing cast that was begun or ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Standing {
    /// Name or id of the object that nodes are sent.
    pub name: String,
    /// The labels that they must carry, all of them.
    pub labels: BTreeMap<String, String>,
    /// Whether it goes on now.
    pub stands: bool,
}

/// Begins a standing cast of an object, or ends it: nodes that join later and carry these labels, all nodes that keep objects if there are
/// none, are sent what the name stands for then. The same again changes nothing.
///
/// # Errors
/// The controller cannot be reached, has too many, or the cast is another user's.
pub async fn standing_cast(
    query: QueryOptions,
    name: &str,
    labels: BTreeMap<String, String>,
    stands: bool,
) -> Result<Standing, AppError> {
    let Some(controller) = &query.controller else {
        return Err(AppError::Usage("a standing cast needs a controller: give --controller ADDR".to_owned()));
    };
    let config =
        HostConfig { common: &query.common, listen: None, controller: None, node: None, passes_on: false };
    let host = Host::start(config)?;
    let path = host.new_path();
    host.keep_dialled(path, controller, false).await?;
    let mut heard = host.hear_casts();
    let number = rand::random();
    let cast = StandingCast { name: name.to_owned(), labels };
    host.say(path, ToController::StandingCast { number, cast: cast.clone(), stands });
    let answer = async {
        while let Some((_, word)) = heard.recv().await {
            match word {
                ToNode::StandingCastChanged { number: its } if its == number => return Ok(()),
                ToNode::CastRefused { cast, reason } if cast == number => return Err(refused(reason, name)),
                _ => {}
            }
        }
        Err(AppError::Failed("the connection's task has ended".to_owned()))
    };
    let answer = tokio::time::timeout(query.timeout.into(), answer).await.unwrap_or_else(|_| {
        Err(AppError::Unreachable {
            who: format!("the controller {controller}"),
            reason: format!("no answer within {}", query.timeout),
        })
    });
    host.close().await;
    answer.map(|()| Standing { name: cast.name, labels: cast.labels, stands })
}

fn refused(reason: Refusal, name: &str) -> AppError {
    match reason {
        Refusal::NotYours => AppError::Failed(format!(
            "the standing cast of '{name}' was begun with another key: end it from the state folder that began it"
        )),
        _ => AppError::Failed(
            "the controller has as many standing casts as it can keep: end one with `headwater cast NAME --to-new=off`".to_owned(),
        ),
    }
}
