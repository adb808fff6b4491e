//! `headwater forget`: a controller drops a node that is away.

use headwater_controller::NotForgotten;
use headwater_units::PathId;

use super::host::{Host, HostConfig};
use super::named_nodes::named_nodes;
use super::query::{Answer, Query};
use super::{AppError, ForgetOptions, ForgetResult, NodeLine};

/// Has the controller drop a node that is not connected: what only that node held is no longer listed either. One that comes back is
/// known again.
///
/// # Errors
/// The controller cannot be reached; there is no such node, or several; it is connected.
pub async fn forget(options: ForgetOptions) -> Result<ForgetResult, AppError> {
    let ForgetOptions { common, controller, what, timeout } = &options;
    let asking = async {
        let host =
            Host::start(HostConfig { common, listen: None, controller: None, node: None, passes_on: false })?;
        let path = host.new_path();
        host.keep_dialled(path, controller, false).await?;
        let result = forget_at(&host, path, what).await;
        host.close().await;
        result
    };
    let reason = || format!("no answer within {timeout}");
    let answered = tokio::time::timeout((*timeout).into(), asking).await;
    answered.unwrap_or_else(|_| Err(AppError::Unreachable { who: controller.clone(), reason: reason() }))
}

async fn forget_at(host: &Host, path: PathId, what: &str) -> Result<ForgetResult, AppError> {
    let report = host.report(path).await?;
    let node = chosen(what, &report.nodes)?;
    match host.query(path, &Query::Forget { node: node.id }).await? {
        Answer::Forgetting(Ok(())) => {
            Ok(ForgetResult { name: node.name.clone(), id: node.id, address: node.listen.clone() })
        }
        Answer::Forgetting(Err(NotForgotten::Connected)) => Err(connected(node)),
        Answer::Forgetting(Err(NotForgotten::Unknown)) => Err(AppError::NotFound(format!(
            "the controller no longer knows {}: somebody else had it forgotten",
            node.name
        ))),
        Answer::Forgetting(Err(NotForgotten::NotFromThere)) => Err(AppError::Failed(
            "the controller forgets nodes for commands on its own machine, and on machines of nodes that are connected to it: run this \
             there"
                .to_owned(),
        )),
        Answer::Forgetting(Err(NotForgotten::TooSoon { wait })) => Err(AppError::Failed(format!(
            "{} may be restarting, and names that only it holds would be lost: run this again in {} s, or now on the controller's machine",
            node.name,
            wait.as_nanos().div_ceil(1_000_000_000)
        ))),
        _ => Err(AppError::Failed(
            "the controller cannot forget nodes: it is of an older version; restart it with this one"
                .to_owned(),
        )),
    }
}

/// The node that is meant: of several with one name the one that is away.
fn chosen<'a>(what: &str, nodes: &'a [NodeLine]) -> Result<&'a NodeLine, AppError> {
    match named_nodes(what, nodes, false)[..] {
        [] => Err(AppError::NotFound(format!(
            "the controller knows no node '{what}'; `headwater status` lists names, addresses and fingerprints (8 digits or more \
             name one)"
        ))),
        [node, ..] if node.up => Err(connected(node)),
        [node] => Ok(node),
        ref several => {
            let ids: Vec<String> = several.iter().map(|node| node.id.short()).collect();
            Err(AppError::Usage(format!(
                "'{what}' is more than one node that is away ({}): name one by its fingerprint",
                ids.join(", ")
            )))
        }
    }
}

fn connected(node: &NodeLine) -> AppError {
    AppError::Usage(format!(
        "{} ({}) is connected: stop `headwater node` there first, else it would be known again at once",
        node.name, node.listen
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(n: u8, name: &str, up: bool) -> NodeLine {
        NodeLine { up, ..NodeLine::example(n, name) }
    }

    #[test]
    fn only_a_node_that_is_away_is_forgotten() {
        let nodes = [line(0xa1, "red", true), line(0xa2, "red", false), line(0xa3, "blue", true)];
        let id =
            |what: &str| chosen(what, &nodes).map(|node| node.id.0[0]).map_err(|error| error.to_string());
        assert_eq!(id("red"), Ok(0xa2), "the one that is away");
        assert_eq!(id("a2a2a2a2"), Ok(0xa2));
        assert!(id("blue").unwrap_err().contains("is connected"), "{:?}", id("blue"));
        assert!(id("a1a1a1a1").unwrap_err().contains("is connected"));
        assert!(id("a2a2a2").unwrap_err().contains("knows no node"), "too short to be told apart");
        let twice = [line(0xa1, "red", false), line(0xa2, "red", false)];
        assert!(chosen("red", &twice).unwrap_err().to_string().contains("more than one node"));
    }
}
