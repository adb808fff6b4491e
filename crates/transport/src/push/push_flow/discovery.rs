//! A flow's part in the discovery of its path's MTU ([`crate::flow::path_mtu`]): when to doubt, what follows.
//!
//! ```text
//!   first symbols unanswered although the address has answered, or a retransmission timeout
//!        |                                      the host refuses packets of this length
//!        v                                            v
//!   PathMtu: Probe ... ProbeAck ... the longest that passes ---> said to the receiver (Probe with `fits`) until the flow
//!                                                                ends, and remembered for later flows to it
//! ```
//!
//! What is too long for its path cannot be helped here: T belongs to the task. The receiver hears what passes, leaves the
//! task and asks for the object anew, with less room; its controller makes a task with smaller symbols of it. A flow to a
//! receiver whose path is known to be narrow says so with the first answer to an assignment, and sends no symbol.

use headwater_machine::{Output, Packet};
use headwater_units::{Duration, Time};
use headwater_wire::{Body, Class, Ecn, ProbeAck};

use super::PushFlow;
use crate::flow::Shared;
use crate::flow::SourceFlow;
use crate::flow::path_mtu::PathMtu;

/// The ACK of the first symbols may take so much longer than the answer to a challenge: an ACK delay and a host that is
/// busy.
const GRACE: Duration = Duration::from_millis(25);

impl PushFlow {
    /// Begins to look after the path, with what is remembered of it.
    pub(super) fn begin_mtu(&mut self, shared: &Shared) {
        let bytes = u16::try_from(self.packet_bytes()).unwrap_or(u16::MAX);
        let known = shared.memory.mtu(self.receiver());
        self.mtu = self.config.path_mtu.map(|config| PathMtu::new(config, bytes, known));
        (self.echo_rtt, self.doubted) = (None, false);
    }

    /// The flow takes another path now.
    pub(super) fn forget_mtu(&mut self, now: Time, shared: &mut Shared) {
        if self.mtu.is_some() {
            shared.memory.set_mtu(now, self.receiver(), None);
            self.begin_mtu(shared);
        }
    }

    /// Whether its symbols are known not to arrive.
    pub(super) fn is_too_long(&self) -> bool {
        self.mtu.as_ref().is_some_and(|mtu| mtu.too_long().is_some())
    }

    /// Long packets vanish, or all do.
    pub(super) fn doubt_mtu(&mut self, now: Time, shared: &mut Shared) {
        let rtt = self.smoothed_rtt().or(self.echo_rtt);
        if let Some(mtu) = &mut self.mtu {
            mtu.suspect(rtt);
            self.doubted = true;
            self.look_for_mtu(now, shared);
        }
    }

    /// The host refuses datagrams that are longer than `fits`.
    pub(crate) fn on_too_long(&mut self, now: Time, fits: u16, shared: &mut Shared) {
        let rtt = self.smoothed_rtt().or(self.echo_rtt);
        if let Some(mtu) = &mut self.mtu {
            mtu.on_too_long(now, fits, rtt);
            self.look_for_mtu(now, shared);
        }
    }

    /// A probe has arrived.
    pub(crate) fn on_probe_ack(&mut self, now: Time, ack: ProbeAck, shared: &mut Shared) {
        self.heard(now);
        if let Some(mtu) = &mut self.mtu {
            mtu.on_probe_ack(now, ack.number, ack.bytes);
            self.look_for_mtu(now, shared);
        }
    }

    /// Sends the probe that is due, and remembers what was found.
    pub(super) fn look_for_mtu(&mut self, now: Time, shared: &mut Shared) {
        if self.doubt_at().is_some_and(|at| now >= at) {
            return self.doubt_mtu(now, shared);
        }
        let (path, may_probe, receiver) = (self.open_path(), self.may_probe(), self.receiver());
        let (Some(mtu), Some(path)) = (&mut self.mtu, path) else { return };
        let probe = mtu.poll(now, may_probe);
        if mtu.take_change() {
            shared.memory.set_mtu(now, receiver, mtu.known());
        }
        if let Some(probe) = probe {
            self.count_path_probe();
            let datagram = self.datagram(Class::Control, Body::Probe(probe));
            shared.out.push_back(Output::Transmit(Packet { path, ecn: Ecn::NotEct, datagram }));
        }
    }

    /// Probes are long: an address that has not answered gets none, as it gets few symbols.
    fn may_probe(&self) -> bool {
        self.open_path().is_some() && self.is_path_validated()
    }

    /// When something of the very first symbols should have been acknowledged: their first timeout is a second away.
    fn doubt_at(&self) -> Option<Time> {
        let doubtful = self.mtu.is_some() && !self.doubted && self.awaits_first_ack() && self.may_probe();
        self.echo_rtt.filter(|_| doubtful).map(|rtt| self.flight_since() + rtt * 2 + GRACE)
    }

    /// When there is something to do for the path's MTU.
    pub(super) fn mtu_deadline(&self) -> Option<Time> {
        let mtu = self.mtu.as_ref()?;
        self.open_path()?;
        let probing = mtu.deadline(self.may_probe());
        self.doubt_at().into_iter().chain(probing).min()
    }
}
