//! The transports that there are: what each is at a source. A new one is listed here, and is otherwise a module of its own.

mod config;

use headwater_machine::Packet;
use headwater_units::{BlockIndex, Duration, Geometry, ObjectId, PathId, Symbols, Theta, Time};
use headwater_wire::{Body, Delivery, Push};

use crate::flow::in_flight::AckOutcome;
use crate::flow::{FlowStats, Shared, SourceFlow};
use crate::pull::{self, PullFlow};
use crate::push::PushFlow;
use crate::tree::{Deals, TreeFlow};
pub use config::SourceConfig;

/// One flow of a source. Boxed, because the table of flows moves them.
#[derive(Debug)]
pub(crate) enum Flow {
    /// PPUSH.
    Push(Box<PushFlow>),
    /// SCDP.
    Pull(Box<PullFlow>),
    /// Datacast.
    Tree(Box<TreeFlow>),
}

/// What the flows of a source have in common: all of them, and those of one transport.
#[derive(Debug)]
pub(crate) struct Common {
    pub(crate) config: SourceConfig,
    pub(crate) shared: Shared,
    pub(crate) pull: pull::Common,
    pub(crate) deals: Deals,
    /// Of transports whose flows have nothing in common.
    pub(crate) none: (),
}

/// Does the same with a flow of whichever transport; or calls a method that wants what its transport's flows have in common last.
macro_rules! each_flow {
    ($it:expr, $flow:ident => $do:expr) => {
        match $it {
            Flow::Push($flow) => $do,
            Flow::Pull($flow) => $do,
            Flow::Tree($flow) => $do,
        }
    };
    ($it:expr, $common:expr, $name:ident($($argument:expr),*)) => {
        match $it {
            Flow::Push(flow) => flow.$name($($argument,)* &mut $common.none),
            Flow::Pull(flow) => flow.$name($($argument,)* &mut $common.pull),
            Flow::Tree(flow) => flow.$name($($argument,)* &mut $common.deals),
        }
    };
}

impl Flow {
    pub(crate) fn new(now: Time, push: Push, geometry: Geometry, common: &mut Common) -> Self {
        let Common { config, shared, pull, deals, .. } = common;
        match push.delivery {
            Delivery::Push => Flow::Push(Box::new(PushFlow::new(now, config.push, push, geometry, shared))),
            Delivery::Pull { initial_window } => Flow::Pull(Box::new(PullFlow::new(
                &config.pull,
                push,
                initial_window,
                geometry,
                shared,
                &pull.relays,
            ))),
            Delivery::Trees { .. } => {
                Flow::Tree(Box::new(TreeFlow::new(now, config.trees, push, geometry, shared, deals)))
            }
        }
    }

    #[inline]
    pub(crate) fn look_again(&mut self) {
        each_flow!(self, flow => flow.look_again());
    }

    pub(crate) fn object(&self) -> ObjectId {
        each_flow!(self, flow => flow.object())
    }

    pub(crate) fn is(&self, push: &Push) -> bool {
        each_flow!(self, flow => flow.is(push))
    }

    pub(crate) fn order_again(&mut self, now: Time, push: &Push) {
        each_flow!(self, flow => flow.order_again(now, push));
    }

    pub(crate) fn sent_to_group(&self) -> Option<Symbols> {
        each_flow!(self, flow => flow.sent_to_group())
    }

    #[inline]
    pub(crate) fn quantum(&self) -> u64 {
        each_flow!(self, flow => flow.quantum())
    }

    pub(crate) fn slack(&self) -> Option<Duration> {
        each_flow!(self, flow => flow.slack())
    }

    #[inline]
    pub(crate) fn is_flight_new(&self) -> bool {
        each_flow!(self, flow => flow.is_flight_new())
    }

    pub(crate) fn open_path(&self) -> Option<PathId> {
        each_flow!(self, flow => flow.open_path())
    }

    pub(crate) fn packet_bytes(&self) -> u64 {
        each_flow!(self, flow => flow.packet_bytes())
    }

    pub(crate) fn set_theta(&mut self, theta: Theta) {
        each_flow!(self, flow => flow.set_theta(theta));
    }

    pub(crate) fn pause(&mut self, now: Time) {
        each_flow!(self, flow => flow.pause(now));
    }

    pub(crate) fn resume(&mut self, now: Time) {
        each_flow!(self, flow => flow.resume(now));
    }

    pub(crate) fn stats(&self) -> FlowStats {
        each_flow!(self, flow => flow.stats())
    }

    pub(crate) fn on_flow_path(&mut self, now: Time, path: PathId, common: &mut Common) {
        each_flow!(self, flow => flow.on_flow_path(now, path, &mut common.shared));
    }

    pub(crate) fn on_block_ready(&mut self, block: BlockIndex, repair: bool) {
        each_flow!(self, flow => flow.on_block_ready(block, repair));
    }

    #[inline]
    pub(crate) fn hear(
        &mut self,
        now: Time,
        path: PathId,
        body: &Body,
        common: &mut Common,
        outcome: &mut AckOutcome,
    ) -> bool {
        each_flow!(self, common, hear(now, path, body, &mut common.shared, outcome))
    }

    #[inline]
    pub(crate) fn next(&mut self, now: Time, common: &mut Common) -> Option<Packet> {
        each_flow!(self, common, next(now, &mut common.shared))
    }

    #[inline]
    pub(crate) fn deadline(&self) -> Option<Time> {
        each_flow!(self, flow => flow.deadline())
    }

    pub(crate) fn on_timer(&mut self, now: Time, outcome: &mut AckOutcome, shared: &mut Shared) -> bool {
        each_flow!(self, flow => flow.on_timer(now, outcome, shared))
    }

    pub(crate) fn leave(&self, common: &mut Common) {
        each_flow!(self, common, leave());
    }
}
