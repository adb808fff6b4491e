//! Multicast groups that this node receives, and probes of groups, as [`GroupProbes`] says.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use headwater_node::{GroupAction, GroupProbes, GroupProbesConfig, ProbeId};
use headwater_udp::{GroupAddr, MAX_FURTHER, PathAddr, SocketStats, UdpPort};
use headwater_units::{FlowId, PathId, Time};
use headwater_wire::{Body, GroupQuestion};
use tokio::sync::oneshot;

use super::Engine;

/// A node is in no more groups: each has a socket to wait for, beside those for trimmed packets.
pub(crate) const MAX_JOINED: usize = MAX_FURTHER - 2;

/// The groups of a node.
pub(super) struct Groups {
    joined: Vec<Joined>,
    /// What those have counted that are joined no more.
    left: SocketStats,
    pub(super) probes: GroupProbes<PathId, PathAddr>,
    /// Who wants to know which members have answered.
    askers: BTreeMap<ProbeId, oneshot::Sender<Vec<FlowId>>>,
}

struct Joined {
    group: GroupAddr,
    port: UdpPort,
}

impl Default for Groups {
    fn default() -> Self {
        Groups {
            joined: Vec::new(),
            left: SocketStats::default(),
            probes: GroupProbes::new(GroupProbesConfig::default()),
            askers: BTreeMap::new(),
        }
    }
}

impl Groups {
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

    /// What all their sockets have counted.
    pub(super) fn stats(&self) -> SocketStats {
        self.joined.iter().fold(self.left, |sum, joined| sum + *joined.port.stats())
    }
}

impl Engine {
    pub(super) fn join(&mut self, group: GroupAddr, port: UdpPort) {
        self.groups.joined.push(Joined { group, port });
        self.look_for_trimmed();
    }

    pub(super) fn leave(&mut self, group: &GroupAddr) {
        let joined = &mut self.groups.joined;
        let Some(place) = joined.iter().position(|it| it.group == *group) else { return };
        let gone = joined.remove(place);
        self.groups.left = self.groups.left + *gone.port.stats();
        self.look_for_trimmed();
    }

    pub(super) fn probe_group(
        &mut self,
        now: Time,
        group: &GroupAddr,
        question: &GroupQuestion,
        asker: oneshot::Sender<Vec<FlowId>>,
    ) {
        let path = self.paths.of(group.path());
        let id = self.groups.probes.probe(now, path, question);
        self.groups.askers.insert(id, asker);
        self.do_as_probes_say();
    }

    /// Sends what is to be sent, and says who has answered.
    pub(super) fn do_as_probes_say(&mut self) {
        while let Some(action) = self.groups.probes.poll() {
            match action {
                GroupAction::Probe { group, flow, key, probe } => {
                    if let Some(&to) = self.paths.addresses(group).first() {
                        self.send_alone(to, flow, Body::Probe(probe), &key);
                    }
                }
                GroupAction::Answer { to, flow, key, ack } => {
                    self.send_alone(to, flow, Body::ProbeAck(ack), &key);
                }
                GroupAction::Heard { id, members } => {
                    if let Some(asker) = self.groups.askers.remove(&id) {
                        // Who asked may be gone.
                        let _ = asker.send(members);
                    }
                }
            }
        }
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

    /// Whether it was a probe that is answered here, or an answer that is waited for.
    pub(super) fn on_probe(&mut self, now: Time, flow: FlowId, bytes: &[u8], from: PathAddr) -> bool {
        let is_probe = self.groups.probes.on_datagram(now, flow, bytes, from);
        self.do_as_probes_say();
        is_probe
    }
}
