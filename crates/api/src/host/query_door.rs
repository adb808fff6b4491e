//! The door for questions: from where a question is answered (docs/decisions/0043).
//!
//! Messages pass the door of `headwater_node`. Questions come in requests of their own, from nodes and from commands, whose keys nobody
//! knows. Most tell what anybody may know and change nothing; one changes what the controller knows, and is answered to operators.

use std::net::IpAddr;

use headwater_control::Link;
use headwater_controller::Origin;

use super::Host;
use crate::query::Query;

/// Who may ask something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asker {
    /// Anybody who can reach this process.
    Anybody,
    /// Whoever runs commands on this machine, or on that of a node that is connected.
    Operator,
}

/// Who may ask this. A new question does not compile without a rule.
pub(super) fn asker(query: &Query) -> Asker {
    match query {
        Query::Holdings
        | Query::Hashes { .. }
        | Query::View
        | Query::Addresses { .. }
        | Query::DataPath
        | Query::Status
        | Query::Role
        // A complaint in it counts only from whoever was sent there.
        | Query::HashesOrWhere { .. } => Asker::Anybody,
        Query::Forget { .. } => Asker::Operator,
    }
}

impl Host {
    /// Where a link comes from.
    pub(super) fn origin(&self, link: &Link) -> Origin {
        origin(link.remote_addr().ip(), self.own_ip(Some(link)))
    }
}

fn origin(remote: IpAddr, own: IpAddr) -> Origin {
    let remote = remote.to_canonical();
    if remote.is_loopback() || remote == own.to_canonical() {
        Origin::Here
    } else {
        Origin::Elsewhere(remote)
    }
}

#[cfg(test)]
mod tests {
    use headwater_units::NodeId;

    use super::*;

    #[test]
    fn only_operators_have_nodes_forgotten() {
        assert_eq!(asker(&Query::Forget { node: NodeId([1; 32]) }), Asker::Operator);
        assert_eq!(asker(&Query::Status), Asker::Anybody);
    }

    #[test]
    fn this_machine_is_loopback_and_the_address_that_was_dialled() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let own = ip("10.0.0.1");
        for here in ["127.0.0.1", "::1", "::ffff:127.0.0.1", "10.0.0.1", "::ffff:10.0.0.1"] {
            assert_eq!(origin(ip(here), own), Origin::Here, "{here}");
        }
        assert_eq!(origin(ip("::ffff:10.0.0.2"), own), Origin::Elsewhere(ip("10.0.0.2")));
    }
}
