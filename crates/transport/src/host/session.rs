//! The receiving end of one fetch, by the transport that brings it. Whatever a host needs of it is called here.

use headwater_units::{FetchId, FlowId, PathId, SymbolId, Time};
use headwater_wire::Control;

use super::dialogue::Dialogue;
use crate::ppush::receiver::{Receiver, ReceiverConfig, ReceiverStats};
use crate::{Output, Packet, ReceiverCommand};

/// One fetch.
#[derive(Debug)]
pub(super) enum Session {
    /// Its sources push (PPUSH).
    Push(Receiver),
}

impl Session {
    /// Begins at the first poll.
    pub(super) fn new(fetch: FetchId, config: ReceiverConfig) -> Self {
        Session::Push(Receiver::new(fetch, config))
    }

    fn dialogue(&self) -> &Dialogue {
        match self {
            Session::Push(receiver) => receiver.dialogue(),
        }
    }

    /// Whether it is meant by something that came by this path.
    pub(super) fn is_concerned(&self, path: PathId, control: &Control) -> bool {
        self.dialogue().concerns(path, control)
    }

    /// Hears what concerns it.
    pub(super) fn on_control(&mut self, now: Time, control: Control) {
        match self {
            Session::Push(receiver) => receiver.on_control(now, control),
        }
    }

    /// Takes a packet of one of its flows.
    #[inline(always)]
    pub(super) fn on_packet(&mut self, now: Time, packet: Packet) {
        match self {
            Session::Push(receiver) => receiver.on_packet(now, packet),
        }
    }

    pub(super) fn on_command(&mut self, now: Time, command: ReceiverCommand) {
        match self {
            Session::Push(receiver) => receiver.on_command(now, command),
        }
    }

    /// The symbol to keep, if that is the next output and the session has it at hand.
    #[inline]
    pub(super) fn take_kept(&mut self) -> Option<(FlowId, SymbolId)> {
        match self {
            Session::Push(receiver) => receiver.take_kept(),
        }
    }

    /// Until when there is certainly nothing to say, if the session knows without looking: it is not over either.
    #[inline]
    pub(super) fn quiet_until(&self, now: Time) -> Option<Time> {
        match self {
            Session::Push(receiver) => receiver.quiet_until(now),
        }
    }

    /// The next output; [`Output::Wake`] when there is nothing more to do now.
    pub(super) fn poll(&mut self, now: Time) -> Output {
        match self {
            Session::Push(receiver) => receiver.poll(now),
        }
    }

    /// Whether nothing is left to do or to say.
    pub(super) fn has_ended(&self) -> bool {
        self.dialogue().has_ended()
    }

    pub(super) fn stats(&mut self, now: Time) -> ReceiverStats {
        match self {
            Session::Push(receiver) => receiver.stats(now),
        }
    }

    pub(super) fn useful(&self) -> impl Iterator<Item = (FlowId, u64)> + '_ {
        match self {
            Session::Push(receiver) => receiver.useful(),
        }
    }

    pub(super) fn useful_of_ended(&self, flow: FlowId) -> Option<u64> {
        match self {
            Session::Push(receiver) => receiver.useful_of_ended(flow),
        }
    }
}
