//! One flow of a source, of whichever transport. Whatever the source asks of a flow is asked here.

use headwater_machine::Packet;
use headwater_units::{BlockIndex, Duration, FlowId, Geometry, ObjectId, PathId, Symbols, Theta, Time};
use headwater_wire::{Delivery, Push};

use super::Common;
use crate::flow::in_flight::AckOutcome;
use crate::flow::pacer::slack_of;
use crate::flow::{FlowStats, Shared};
use crate::pull::PullFlow;
use crate::push::PushFlow;
use crate::tree::TreeFlow;

/// Boxed, because the table of flows moves them.
#[derive(Debug)]
pub(super) enum Flow {
    /// PPUSH.
    Push(Box<PushFlow>),
    /// SCDP.
    Pull(Box<PullFlow>),
    /// Datacast.
    Tree(Box<TreeFlow>),
}

/// Calls the method of the same name, whichever flow it is.
macro_rules! either {
    ($flow:expr, $name:ident($($argument:expr),*)) => {
        match $flow {
            Flow::Push(flow) => flow.$name($($argument),*),
            Flow::Pull(flow) => flow.$name($($argument),*),
            Flow::Tree(flow) => flow.$name($($argument),*),
        }
    };
}

impl Flow {
    pub(super) fn new(now: Time, push: Push, geometry: Geometry, common: &mut Common) -> Self {
        let Common { config, shared, relays, deals } = common;
        match push.delivery {
            Delivery::Push => Flow::Push(Box::new(PushFlow::new(now, config.push, push, geometry, shared))),
            Delivery::Pull { initial_window } => Flow::Pull(Box::new(PullFlow::new(
                &config.pull,
                push,
                initial_window,
                geometry,
                shared,
                relays,
            ))),
            Delivery::Trees { .. } => {
                Flow::Tree(Box::new(TreeFlow::new(now, config.trees, push, geometry, shared, deals)))
            }
        }
    }

    /// Something is about to change: what comes next is to be found anew.
    #[inline]
    pub(super) fn look_again(&mut self) {
        match self {
            Flow::Push(flow) => flow.look_again(),
            Flow::Pull(_) | Flow::Tree(_) => {}
        }
    }

    /// The object that it sends.
    pub(super) fn object(&self) -> ObjectId {
        either!(self, object())
    }

    /// Whether this order means this flow.
    pub(super) fn is(&self, push: &Push) -> bool {
        either!(self, is(push))
    }

    /// The order is said again.
    pub(super) fn order_again(&mut self, now: Time, push: &Push) {
        match self {
            Flow::Tree(flow) => flow.order_again(now, push),
            Flow::Push(_) | Flow::Pull(_) => {}
        }
    }

    /// The group's flow that its pulls count for.
    pub(super) fn group(&self) -> Option<FlowId> {
        match self {
            Flow::Push(_) | Flow::Tree(_) => None,
            Flow::Pull(flow) => flow.group(),
        }
    }

    /// If it is a group's flow or one of its trees, how many symbols have left on it.
    pub(super) fn sent_to_group(&self) -> Option<Symbols> {
        match self {
            Flow::Push(_) => None,
            Flow::Tree(flow) => Some(flow.sent()),
            Flow::Pull(flow) => flow.sent_to_group(),
        }
    }

    /// Packets that may leave in one turn among the ready flows.
    #[inline]
    pub(super) fn quantum(&self) -> u64 {
        either!(self, quantum())
    }

    /// See [`super::Source::slack`].
    pub(super) fn slack(&self) -> Option<Duration> {
        match self {
            Flow::Push(flow) => flow.smoothed_rtt().map(slack_of),
            Flow::Pull(_) | Flow::Tree(_) => Some(Duration::ZERO),
        }
    }

    /// Whether the timers begin to run with the packet sent last.
    #[inline]
    pub(super) fn is_flight_new(&self) -> bool {
        match self {
            Flow::Push(flow) => flow.is_flight_new(),
            Flow::Pull(_) | Flow::Tree(_) => false,
        }
    }

    /// Where it sends to, while it may.
    pub(super) fn open_path(&self) -> Option<PathId> {
        either!(self, open_path())
    }

    /// Bytes of one symbol's datagram above UDP.
    pub(super) fn packet_bytes(&self) -> u64 {
        either!(self, packet_bytes())
    }

    pub(super) fn set_theta(&mut self, theta: Theta) {
        match self {
            Flow::Push(flow) => flow.set_theta(theta),
            // What its receivers ask for is its rate.
            Flow::Pull(_) | Flow::Tree(_) => {}
        }
    }

    pub(super) fn pause(&mut self, now: Time) {
        match self {
            Flow::Push(flow) => flow.pause(now),
            Flow::Pull(flow) => flow.pause(),
            Flow::Tree(flow) => flow.pause(),
        }
    }

    pub(super) fn resume(&mut self, now: Time) {
        match self {
            Flow::Push(flow) => flow.resume(now),
            Flow::Pull(flow) => flow.resume(),
            Flow::Tree(flow) => flow.resume(),
        }
    }

    pub(super) fn stats(&self) -> FlowStats {
        either!(self, stats())
    }

    pub(super) fn on_block_ready(&mut self, block: BlockIndex, repair: bool) {
        match self {
            Flow::Push(flow) => {
                flow.on_block_ready(block, repair);
            }
            Flow::Pull(flow) => flow.on_block_ready(block, repair),
            Flow::Tree(flow) => flow.on_block_ready(block),
        }
    }

    /// The next packet that may leave now. `None`: not before the deadline, the next input or the next block.
    #[inline]
    pub(super) fn next(&mut self, now: Time, common: &mut Common) -> Option<Packet> {
        match self {
            Flow::Push(flow) => flow.next(now, &mut common.shared),
            Flow::Pull(flow) => flow.next(now, &mut common.shared, &common.relays),
            Flow::Tree(flow) => flow.next(now),
        }
    }

    /// When [`Flow::on_timer`] has something to do next.
    #[inline]
    pub(super) fn deadline(&self) -> Option<Time> {
        match self {
            Flow::Push(flow) => flow.deadline(),
            Flow::Pull(flow) => flow.deadline(),
            Flow::Tree(flow) => flow.deadline(),
        }
    }

    /// Does what is due; true if the flow is over by itself.
    pub(super) fn on_timer(&mut self, now: Time, outcome: &mut AckOutcome, shared: &mut Shared) -> bool {
        match self {
            Flow::Push(flow) => {
                flow.on_timer(now, outcome, shared);
                flow.wait_no_more();
                false
            }
            Flow::Pull(flow) => flow.on_timer(now, shared),
            Flow::Tree(flow) => {
                flow.on_timer();
                false
            }
        }
    }
}
