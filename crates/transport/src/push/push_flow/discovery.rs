//! A flow's part in the discovery of its path's MTU ([`headwater_flow::path_mtu`]): when to doubt, what follows.
//!
//! ```text
//!   first symbols unanswered although the address has answered, or a retransmission timeout
//!        |                                      the host refuses packets of this length
//!        v                                            v
//!   PathMtu: Probe ... ProbeAck ... the longest that passes ---> said to the receiver (Probe with `fits`) until the flow
//!                                                                ends, and remembered for later flows to it
//! ```
//!
//! A symbol that is too long for its path cannot be helped here: T belongs to the task. The receiver hears what passes,
//! leaves the task and asks for the object anew, with less room; its controller makes a task with smaller symbols of
//! it. A flow to a receiver whose path is known to be narrow says so with the first answer to an assignment, and sends
//! no symbol.

use headwater_units::{Duration, Time};
use headwater_wire::{Body, ProbeAck};

use super::PushFlow;
use headwater_flow::path_mtu::PathMtu;
use headwater_flow::{Shared, SourceFlow};

/// Extra time for the ACK of the first symbols, compared with the answer to a challenge: an ACK delay and a host that
/// is busy.
const GRACE: Duration = Duration::from_millis(25);

/// The search on the flow's path.
#[derive(Debug)]
pub(super) struct Discovery {
    mtu: PathMtu,
    /// It was asked already why nothing of the very first symbols is acknowledged.
    doubted: bool,
}

impl Discovery {
    /// Symbols are.
    pub(super) fn on_acknowledged(&mut self) {
        self.mtu.on_full_size_acknowledged();
    }
}

impl PushFlow {
    /// Begins to look after the path, with what is remembered of it.
    pub(super) fn begin_discovery(&mut self, shared: &Shared) {
        let bytes = u16::try_from(self.packet_bytes()).unwrap_or(u16::MAX);
        let known = shared.memory.mtu(self.push.receiver);
        let begin = |config| Discovery { mtu: PathMtu::new(config, bytes, known), doubted: false };
        self.discovery = self.config.path_mtu.map(begin);
    }

    /// The flow takes another path now.
    pub(super) fn forget_mtu(&mut self, now: Time, shared: &mut Shared) {
        if self.discovery.is_some() {
            shared.memory.set_mtu(now, self.push.receiver, None);
            self.begin_discovery(shared);
        }
    }

    /// The longest datagram that passes, if symbols are known not to.
    pub(super) fn too_long(&self) -> Option<u16> {
        self.discovery.as_ref()?.mtu.too_long()
    }

    /// Long packets vanish, or all do.
    pub(super) fn doubt_mtu(&mut self, now: Time, shared: &mut Shared) {
        let rtt = self.known_rtt();
        if let Some(Discovery { mtu, doubted }) = &mut self.discovery {
            mtu.suspect(rtt);
            *doubted = true;
            self.look_for_mtu(now, shared);
        }
    }

    /// The host refuses datagrams that are longer than `fits`.
    pub(crate) fn on_too_long(&mut self, now: Time, fits: u16, shared: &mut Shared) {
        let rtt = self.known_rtt();
        if let Some(discovery) = &mut self.discovery {
            discovery.mtu.on_too_long(now, fits, rtt);
            self.look_for_mtu(now, shared);
        }
    }

    fn known_rtt(&self) -> Option<Duration> {
        self.rtt.smoothed().or(self.challenge.rtt)
    }

    /// A probe has arrived.
    pub(super) fn on_probe_ack(&mut self, now: Time, ack: ProbeAck, shared: &mut Shared) {
        self.heard(now);
        if let Some(discovery) = &mut self.discovery {
            discovery.mtu.on_probe_ack(now, ack.number, ack.bytes);
            self.look_for_mtu(now, shared);
        }
    }

    /// Sends the probe that is due, and remembers what was found.
    pub(super) fn look_for_mtu(&mut self, now: Time, shared: &mut Shared) {
        if self.doubt_at().is_some_and(|at| now >= at) {
            return self.doubt_mtu(now, shared);
        }
        let (path, may_probe) = (self.open_path(), self.may_probe());
        let (Some(Discovery { mtu, .. }), Some(path)) = (&mut self.discovery, path) else { return };
        let probe = mtu.poll(now, may_probe);
        if mtu.take_change() {
            shared.memory.set_mtu(now, self.push.receiver, mtu.known());
        }
        if let Some(probe) = probe {
            self.counters.path_probes += 1;
            self.say(path, Body::Probe(probe), shared);
        }
    }

    /// Probes are long: an address that has not answered gets none, as it gets few symbols.
    fn may_probe(&self) -> bool {
        self.open_path().is_some() && self.paths.unanswered().is_none()
    }

    /// When something of the very first symbols should have been acknowledged: their first timeout is a second away.
    fn doubt_at(&self) -> Option<Time> {
        let may_doubt = self.discovery.as_ref().is_some_and(|it| !it.doubted) && self.may_probe();
        let awaits_first_ack = self.largest_acked.is_none() && self.packets.in_flight() > 0;
        let rtt = self.challenge.rtt.filter(|_| may_doubt && awaits_first_ack)?;
        Some(self.timers.armed_at + rtt * 2 + GRACE)
    }

    /// When there is something to do for the path's MTU.
    #[inline]
    pub(super) fn mtu_deadline(&self) -> Option<Time> {
        let discovery = self.discovery.as_ref()?;
        self.open_path()?;
        let probing = discovery.mtu.deadline(self.may_probe());
        self.doubt_at().into_iter().chain(probing).min()
    }
}
