//! The receiving end of one fetch, by the transport that brings it. Whatever a host needs of it is called here.

use headwater_machine::{Output, Packet};
use headwater_units::{Duration, FetchId, FlowId, PathId, SymbolId, Time};
use headwater_wire::{Control, Delivery};

use super::pulling::PullingReceiver;
use crate::pull::Ask;
use crate::pull::queue::PullQueue;
use crate::push::receiver::Receiver;
use crate::task::session::TaskSession;
use crate::task::{ReceiverConfig, ReceiverStats};
use crate::{FromFetch, ReceiverCommand};

/// One fetch.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "it is behind a box")]
pub(super) enum Session {
    /// Its sources push (PPUSH), or nobody knows yet whether they will.
    Push(Receiver),
    /// It asks for each symbol (SCDP, Datacast).
    Pull(PullingReceiver),
}

impl Session {
    /// Begins at the first poll.
    pub(super) fn new(fetch: FetchId, config: ReceiverConfig) -> Self {
        Session::Push(Receiver::new(fetch, config))
    }

    fn task_session(&self) -> &TaskSession {
        match self {
            Session::Push(receiver) => receiver.task_session(),
            Session::Pull(receiver) => receiver.task_session(),
        }
    }

    /// Whether it is meant by something that came by this path.
    pub(super) fn is_concerned(&self, path: PathId, control: &Control) -> bool {
        self.task_session().concerns(path, control)
    }

    /// Hears what concerns it. The controller's first answer says which transport it is, and a later one may say that a fetch whose
    /// sources have pushed goes on by pulls, with the blocks that are here; `turn` is the fetch's number in the host's pull queue.
    pub(super) fn on_control(&mut self, now: Time, control: Control, turn: u32, pulls: &mut PullQueue<Ask>) {
        if let Control::Accepted { delivery, .. } = control
            && delivery != Delivery::Push
            && let Session::Push(receiver) = &mut *self
            && (!receiver.task_session().has_begun() || receiver.task_session().begins_anew(&control))
        {
            let before = receiver.hand_on(now);
            *self = Session::Pull(PullingReceiver::new(before, turn, delivery));
        }
        match self {
            Session::Push(receiver) => receiver.on_control(now, control),
            Session::Pull(receiver) => receiver.on_control(now, control, pulls),
        }
    }

    /// Takes a packet of one of its flows.
    #[inline(always)]
    pub(super) fn on_packet(&mut self, now: Time, packet: Packet, pulls: &mut PullQueue<Ask>) {
        match self {
            Session::Push(receiver) => receiver.on_packet(now, packet),
            Session::Pull(receiver) => receiver.on_packet(now, packet, pulls),
        }
    }

    pub(super) fn on_command(&mut self, now: Time, command: ReceiverCommand, pulls: &mut PullQueue<Ask>) {
        match self {
            Session::Push(receiver) => receiver.on_command(now, command),
            Session::Pull(receiver) => receiver.on_command(now, command, pulls),
        }
    }

    /// A pull of this fetch is due.
    #[inline]
    pub(super) fn pull(&mut self, now: Time, ask: Ask) -> Option<Packet> {
        match self {
            Session::Push(_) => None,
            Session::Pull(receiver) => receiver.pull(now, ask),
        }
    }

    /// The symbol to keep, if that is the next output and the session has it at hand.
    #[inline]
    pub(super) fn take_kept(&mut self) -> Option<(FlowId, SymbolId)> {
        match self {
            Session::Push(receiver) => receiver.take_kept(),
            Session::Pull(receiver) => receiver.take_kept(),
        }
    }

    /// Until when there is certainly nothing to say, if the session knows without looking: it is not over either.
    #[inline]
    pub(super) fn quiet_until(&self, now: Time) -> Option<Time> {
        match self {
            Session::Push(receiver) => receiver.quiet_until(now),
            Session::Pull(_) => None,
        }
    }

    /// The next output; [`Output::Wake`] when there is nothing more to do now.
    pub(super) fn poll(&mut self, now: Time, pulls: &mut PullQueue<Ask>) -> Output<FromFetch> {
        match self {
            Session::Push(receiver) => receiver.poll(now),
            Session::Pull(receiver) => receiver.poll(now, pulls),
        }
    }

    /// Whether nothing is left to do or to say.
    pub(super) fn has_ended(&self) -> bool {
        self.task_session().has_ended()
    }

    pub(super) fn stats(&mut self, now: Time) -> ReceiverStats {
        match self {
            Session::Push(receiver) => receiver.stats(now),
            Session::Pull(receiver) => receiver.stats(),
        }
    }

    /// See [`super::Receivers::slack`].
    pub(super) fn slack(&self) -> Option<Duration> {
        match self {
            Session::Push(receiver) => receiver.slack(),
            Session::Pull(_) => Some(Duration::ZERO),
        }
    }

    pub(super) fn useful(&self) -> impl Iterator<Item = (FlowId, u64)> + '_ {
        let (push, pull) = match self {
            Session::Push(receiver) => (Some(receiver.useful()), None),
            Session::Pull(receiver) => (None, Some(receiver.useful())),
        };
        push.into_iter().flatten().chain(pull.into_iter().flatten())
    }

    pub(super) fn useful_of_ended(&self, flow: FlowId) -> Option<u64> {
        match self {
            Session::Push(receiver) => receiver.useful_of_ended(flow),
            Session::Pull(receiver) => receiver.useful_of_ended(flow),
        }
    }
}
