//! What happens, and lines on which packets wait.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use headwater_controller::ControllerCommand;
use headwater_machine::Packet;
use headwater_transport::{ReceiverCommand, SourceCommand};
use headwater_units::{BitRate, Bytes, Time};
use headwater_wire::Control;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Act {
    Kill(usize),
    Join(usize),
    /// It says goodbye and goes.
    Leave(usize),
}

/// What a machine of a host is told, or the controller.
pub(crate) enum Command {
    Controller(ControllerCommand),
    Receiver(ReceiverCommand),
    Source(SourceCommand),
}

pub(crate) enum Happening {
    /// It has come to the end of a rack that it crosses, to leave it.
    LeaveRack {
        to: usize,
        from: usize,
        packet: Packet,
    },
    /// The same, to enter it.
    EnterRack {
        to: usize,
        from: usize,
        packet: Packet,
    },
    /// It has come to the last line on its way.
    Downlink {
        to: usize,
        from: usize,
        packet: Packet,
    },
    Arrive {
        to: usize,
        from: usize,
        packet: Packet,
    },
    Control {
        from: usize,
        control: Control,
    },
    Hear {
        to: usize,
        control: Control,
    },
    Tell {
        to: usize,
        command: Command,
    },
    Wake {
        to: usize,
    },
    WakeController,
    Do(Act),
}

#[derive(Default)]
pub(crate) struct Line {
    pub(crate) rate: BitRate,
    busy_until: Time,
    waiting: BinaryHeap<Reverse<Time>>,
}

impl Line {
    pub(crate) fn new(rate: BitRate) -> Self {
        Line { rate, ..Line::default() }
    }

    /// When a packet has left, if there is room for it.
    pub(crate) fn send(&mut self, now: Time, bytes: u64, queue: usize) -> Option<Time> {
        while self.waiting.peek().is_some_and(|Reverse(left)| *left <= now) {
            self.waiting.pop();
        }
        if self.waiting.len() >= queue {
            return None;
        }
        let leaves = self.busy_until.max(now) + Bytes::new(bytes) / self.rate;
        self.busy_until = leaves;
        self.waiting.push(Reverse(leaves));
        Some(leaves)
    }
}
