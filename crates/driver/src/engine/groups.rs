//! Multicast groups: their sockets, their paths, and pending probes of their members.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use headwater_udp::{GroupAddr, MAX_FURTHER, SocketStats, UdpPort};
use headwater_units::{FlowId, PathId, Time};
use headwater_wire::GroupQuestion;
use tokio::sync::oneshot;

use super::Engine;

/// A node is in no more groups: each has a socket to wait for, beside those for trimmed packets.
pub(crate) const MAX_JOINED: usize = MAX_FURTHER - 2;

/// The sockets by which this node receives what is sent to groups.
#[derive(Default)]
pub(super) struct Groups {
    joined: Vec<Joined>,
    /// Counters of the sockets that have left.
    left: SocketStats,
}

struct Joined {
    group: GroupAddr,
    port: UdpPort,
}

impl Groups {
    pub(super) fn join(&mut self, group: GroupAddr, port: UdpPort) {
        self.joined.push(Joined { group, port });
    }

    /// Whether it was joined.
    pub(super) fn leave(&mut self, group: &GroupAddr) -> bool {
        let Some(place) = self.joined.iter().position(|it| it.group == *group) else { return false };
        let gone = self.joined.remove(place);
        self.left = self.left + *gone.port.stats();
        true
    }

    pub(super) fn len(&self) -> usize {
        self.joined.len()
    }

    pub(super) fn port(&mut self, place: usize) -> Option<&mut UdpPort> {
        self.joined.get_mut(place).map(|joined| &mut joined.port)
    }

    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.joined.iter().map(|joined| joined.port.as_fd())
    }

    /// Where groups are received.
    pub(super) fn ports(&self) -> impl Iterator<Item = u16> {
        self.joined.iter().map(|joined| joined.group.at().port())
    }

    /// Counters of all their sockets.
    pub(super) fn stats(&self) -> SocketStats {
        self.joined.iter().fold(self.left, |sum, joined| sum + *joined.port.stats())
    }
}

impl Engine {
    pub(super) fn probe_group(
        &mut self,
        now: Time,
        group: &GroupAddr,
        question: &GroupQuestion,
        asker: oneshot::Sender<Vec<FlowId>>,
    ) {
        let path = self.paths.of(group.path());
        let id = self.node.probe_group(now, path, question);
        self.askers.insert(id, asker);
    }

    /// The path to a group, if that is where an order to push leads ([`headwater_wire::Push::at`]).
    pub(super) fn group_path(&mut self, at: &[SocketAddr]) -> Option<PathId> {
        let (&group, members) = at.split_first().filter(|(group, _)| group.ip().is_multicast())?;
        let group = match members.first() {
            Some(&member) => GroupAddr::towards(group, member),
            None => GroupAddr::new(group, None),
        };
        match group {
            Ok(group) => Some(self.paths.of(group.path())),
            Err(error) => {
                tracing::warn!(%error, "a group cannot be sent to");
                None
            }
        }
    }
}
