//! Multicast groups: which of them this node receives, and whether one works.
//!
//! A probe of a group is a datagram of a flow that all members know the key of, as long as those that are to follow. Each
//! member that hears it answers by unicast on a flow of its own, so that whoever asked knows who does, and nobody else can
//! have members answer him.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use headwater_machine::SortedMap;
use headwater_units::{Duration, FlowId, PathId, Time};
use headwater_wire::{Body, Class, Datagram, Ecn, HeaderKey, Probe, ProbeAck, emit, parse};
use tokio::sync::oneshot;

use super::Engine;
use crate::node::{FlowSecret, GroupProbe};
use crate::socket::{GroupAddr, MAX_FURTHER, PathAddr, SocketStats, UdpPort};

/// A node is in no more groups: each has a socket to wait for, beside those for trimmed packets.
pub(in crate::node) const MAX_JOINED: usize = MAX_FURTHER - 2;
/// Flows whose probes are answered; more are those of a controller that forgets to say when they are over.
const MAX_ANSWERED: usize = 1024;

/// The groups of a node.
#[derive(Default)]
pub(super) struct Groups {
    joined: Vec<Joined>,
    /// What those have counted that are joined no more.
    left: SocketStats,
    /// By the flow on which a group is probed: the one on which to answer.
    answers: SortedMap<FlowId, Box<Answer>>,
    probings: Vec<Probing>,
    /// So that no answer to one is taken for that to another.
    next_probe: u32,
}

struct Joined {
    group: GroupAddr,
    port: UdpPort,
}

struct Answer {
    asked: HeaderKey,
    flow: FlowId,
    key: HeaderKey,
}

/// Somebody waits for members to answer.
struct Probing {
    path: PathId,
    flow: FlowId,
    key: HeaderKey,
    probe: Probe,
    silent: Vec<(FlowId, HeaderKey)>,
    heard: Vec<FlowId>,
    next: Time,
    left: u32,
    every: Duration,
    done: oneshot::Sender<Vec<FlowId>>,
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

    /// When a probe is to be sent, or given up.
    pub(super) fn wake(&self) -> Option<Time> {
        self.probings.iter().map(|probing| probing.next).min()
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

    pub(super) fn answer_probes(&mut self, asked: &FlowSecret, own: &FlowSecret) {
        if self.groups.answers.len() < MAX_ANSWERED {
            let answer =
                Answer { asked: HeaderKey::new(&asked.key), flow: own.flow, key: HeaderKey::new(&own.key) };
            self.groups.answers.insert(asked.flow, Box::new(answer));
        }
    }

    pub(super) fn ignore_probes(&mut self, asked: FlowId) {
        self.groups.answers.remove(&asked);
    }

    pub(super) fn probe_group(&mut self, now: Time, probe: GroupProbe, done: oneshot::Sender<Vec<FlowId>>) {
        let GroupProbe { group, asked, members, bytes, tries, every } = probe;
        self.groups.next_probe = self.groups.next_probe.wrapping_add(1);
        let probe = Probe { number: self.groups.next_probe, bytes: bytes.max(Probe::SHORTEST), fits: None };
        self.groups.probings.push(Probing {
            path: self.paths.of(group.path()),
            flow: asked.flow,
            key: HeaderKey::new(&asked.key),
            probe,
            silent: members.iter().map(|it| (it.flow, HeaderKey::new(&it.key))).collect(),
            heard: Vec::new(),
            next: now,
            left: tries,
            every,
            done,
        });
        self.drive_probes(now);
    }

    /// Sends probes that are due, and says who has answered those that are over.
    pub(super) fn drive_probes(&mut self, now: Time) {
        let mut probings = std::mem::take(&mut self.groups.probings);
        for probing in probings.extract_if(.., |it| it.silent.is_empty() || (it.next <= now && it.left == 0))
        {
            // Who asked may be gone.
            let _ = probing.done.send(probing.heard);
        }
        for probing in probings.iter_mut().filter(|probing| probing.next <= now) {
            (probing.next, probing.left) = (now + probing.every, probing.left - 1);
            let Some(&to) = self.paths.addresses(probing.path).first() else { continue };
            self.send_alone(to, probing.flow, Body::Probe(probing.probe), &probing.key);
        }
        self.groups.probings = probings;
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
    pub(super) fn on_probe(&mut self, now: Time, flow: Option<FlowId>, bytes: &[u8], from: PathAddr) -> bool {
        let Some(flow) = flow else { return false };
        if let Some(answer) = self.groups.answers.get(&flow) {
            let Ok(parsed) = parse(bytes, &answer.asked) else { return false };
            let Body::Probe(Probe { number, bytes, .. }) = parsed.datagram.body else { return false };
            let (flow, key) = (answer.flow, answer.key.clone());
            self.send_alone(from, flow, Body::ProbeAck(ProbeAck { number, bytes }), &key);
            return true;
        }
        for probing in &mut self.groups.probings {
            let Some(place) = probing.silent.iter().position(|it| it.0 == flow) else { continue };
            let parsed = parse(bytes, &probing.silent[place].1);
            let expected = ProbeAck { number: probing.probe.number, bytes: probing.probe.bytes };
            if parsed.is_ok_and(|parsed| parsed.datagram.body == Body::ProbeAck(expected)) {
                probing.heard.push(flow);
                probing.silent.remove(place);
                if probing.silent.is_empty() {
                    self.drive_probes(now);
                }
                return true;
            }
        }
        false
    }

    /// A datagram of no flow that a machine knows.
    pub(super) fn send_alone(&mut self, to: PathAddr, flow: FlowId, body: Body, key: &HeaderKey) {
        let datagram = Datagram { class: Class::Control, key_epoch: 0, flow, body };
        let tos = self.dscp.of(datagram.class) << 2 | Ecn::NotEct as u8;
        let len = datagram.len(0);
        if !self.out.has_room(&to, tos, len) {
            self.flush();
        }
        match self.out.push(to, tos, len) {
            Some(out) => _ = emit(&datagram, 0, key, out),
            None => self.unsendable += 1,
        }
    }
}
