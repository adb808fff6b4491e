//! The list of transports: the flow of each at a source, and its side of a fetch. A new transport is listed here, and is
//! otherwise a module of its own.

mod config;

use headwater_machine::{Output, Packet};
use headwater_units::{
    BlockIndex, Duration, Esi, FetchId, FlowId, Geometry, NodeId, ObjectId, PathId, SymbolId, Symbols, Theta,
    Time,
};
use headwater_wire::{Body, Delivery, FlowGrant, Push};

use crate::pull::queue::PullQueue;
use crate::pull::{self, Ask, PullFlow};
use crate::push::PushFlow;
use crate::push::receiver::Receiver;
use crate::rate::{self, RateFlow, RateReceiver};
use crate::tree::{Deals, TreeFlow, TreeReceiver, TreeReceiverConfig};
use crate::{FromFetch, ReceiverCommand, ReceiverFailure};
pub use config::SourceConfig;
use headwater_flow::in_flight::AckOutcome;
use headwater_flow::task::asking::Asking;
use headwater_flow::task::blame::Trust;
use headwater_flow::task::ledger::Ledger;
use headwater_flow::task::session::Progress;
use headwater_flow::task::side::{FetchSide, HandedOn};
use headwater_flow::task::{ReceiverConfig, ReceiverStats};
use headwater_flow::{FlowStats, Shared, SourceFlow};

/// One flow of a source. Boxed, because the table of flows moves them.
#[derive(Debug)]
pub(crate) enum Flow {
    /// PPUSH.
    Push(Box<PushFlow>),
    /// SCDP.
    Pull(Box<PullFlow>),
    /// Datacast.
    Tree(Box<TreeFlow>),
    /// PAM.
    Rate(Box<RateFlow>),
}

/// The transport's side of a fetch.
#[derive(Debug, Default)]
pub(crate) enum Side {
    /// The transport is not known yet.
    #[default]
    Awaited,
    /// Its sources push (PPUSH).
    Push(Receiver),
    /// The receiver asks for each symbol (SCDP).
    Pull(pull::Session),
    /// The receiver asks for each symbol up trees (Datacast).
    Tree(Asking<TreeReceiver>),
    /// The source sends at the rate that switches compute (PAM).
    Rate(RateReceiver),
}

/// State that the flows of a source share: all of them, and those of one transport.
#[derive(Debug)]
pub(crate) struct Common {
    pub(crate) config: SourceConfig,
    pub(crate) shared: Shared,
    pub(crate) pull: pull::Common,
    pub(crate) deals: Deals,
    pub(crate) rate: rate::Common,
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
            Flow::Rate($flow) => $do,
        }
    };
    ($it:expr, $common:expr, $name:ident($($argument:expr),*)) => {
        match $it {
            Flow::Push(flow) => flow.$name($($argument,)* &mut $common.none),
            Flow::Pull(flow) => flow.$name($($argument,)* &mut $common.pull),
            Flow::Tree(flow) => flow.$name($($argument,)* &mut $common.deals),
            Flow::Rate(flow) => flow.$name($($argument,)* &mut $common.rate),
        }
    };
}

/// Does the same with a side, whichever it is, or else what is to be done while nobody knows; or calls a method that wants what the
/// host's fetches by its transport have in common last.
macro_rules! each_side {
    ($it:expr, $awaited:expr, $side:ident => $do:expr) => {
        match $it {
            Side::Awaited => $awaited,
            Side::Push($side) => $do,
            Side::Pull($side) => $do,
            Side::Tree($side) => $do,
            Side::Rate($side) => $do,
        }
    };
    ($it:expr, $awaited:expr, $pulls:expr, $name:ident($($argument:expr),*)) => {
        match $it {
            Side::Awaited => $awaited,
            Side::Push(side) => FetchSide::$name(side, $($argument,)* &mut ()),
            Side::Pull(side) => FetchSide::$name(side, $($argument,)* $pulls),
            Side::Tree(side) => FetchSide::$name(side, $($argument,)* &mut ()),
            Side::Rate(side) => FetchSide::$name(side, $($argument,)* &mut ()),
        }
    };
}

impl Flow {
    pub(crate) fn new(now: Time, push: Push, geometry: Geometry, common: &mut Common) -> Self {
        let Common { config, shared, deals, .. } = common;
        match push.delivery {
            Delivery::Push | Delivery::Overlay { .. } => {
                Flow::Push(Box::new(PushFlow::new(now, config.push, push, geometry, shared)))
            }
            Delivery::Pull { initial_window } => {
                Flow::Pull(Box::new(PullFlow::new(&config.pull, push, initial_window, geometry, shared)))
            }
            Delivery::Trees { .. } => {
                Flow::Tree(Box::new(TreeFlow::new(now, config.trees, push, geometry, shared, deals)))
            }
            Delivery::Rate { .. } => {
                Flow::Rate(Box::new(RateFlow::new(now, config.rate, push, geometry, shared)))
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

    /// A block that a flow of an overlay waits for is here up to this symbol.
    pub(crate) fn on_partly_here(&mut self, block: BlockIndex, below: Esi) {
        if let Flow::Push(flow) = self {
            flow.on_partly_here(block, below);
        }
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

    pub(crate) fn last_word(&mut self) -> Option<Packet> {
        each_flow!(self, flow => flow.last_word())
    }

    pub(crate) fn group(&self) -> Option<FlowId> {
        each_flow!(self, flow => flow.group())
    }

    pub(crate) fn on_leave(&mut self, now: Time, member: FlowId) -> bool {
        each_flow!(self, flow => flow.on_leave(now, member))
    }

    pub(crate) fn detach(&mut self, now: Time, shared: &mut Shared) {
        each_flow!(self, flow => flow.detach(now, shared));
    }
}

impl Side {
    /// Of an object that is cut like this. `turn` is the fetch's number in the host's pull queue.
    pub(crate) fn new(
        fetch: FetchId,
        config: &ReceiverConfig,
        geometry: Geometry,
        delivery: Delivery,
        turn: u32,
    ) -> Self {
        let session = config.session(geometry.layout().block_bytes());
        match delivery {
            Delivery::Push => Side::Push(Receiver::new(fetch, config.clone(), geometry, None)),
            Delivery::Overlay { window } => {
                Side::Push(Receiver::new(fetch, config.clone(), geometry, Some(window)))
            }
            Delivery::Pull { initial_window } => {
                Side::Pull(pull::Session::new(fetch, session, geometry, initial_window, turn))
            }
            Delivery::Trees { credit } => {
                let trees = TreeReceiverConfig { credit: credit.max(1).into(), ..config.trees };
                Side::Tree(Asking::new(fetch, delivery, trees, session, geometry))
            }
            Delivery::Rate { .. } => {
                Side::Rate(RateReceiver::new(fetch, config, session, geometry, delivery))
            }
        }
    }

    pub(crate) fn set_flows(&mut self, now: Time, grants: Vec<FlowGrant>, pulls: &mut PullQueue<Ask>) {
        each_side!(self, (), pulls, set_flows(now, grants));
    }

    /// False if nobody takes it yet.
    // Once for every symbol; a call would copy the packet.
    #[inline(always)]
    pub(crate) fn on_packet(&mut self, now: Time, packet: Packet, pulls: &mut PullQueue<Ask>) -> bool {
        each_side!(self, return false, pulls, on_packet(now, packet));
        true
    }

    /// False if nobody takes it yet.
    pub(crate) fn on_command(
        &mut self,
        now: Time,
        command: ReceiverCommand,
        is_running: bool,
        pulls: &mut PullQueue<Ask>,
    ) -> bool {
        each_side!(self, return false, pulls, on_command(now, command, is_running));
        true
    }

    pub(crate) fn resume(&mut self, now: Time, ledger: Ledger<()>, pulls: &mut PullQueue<Ask>) {
        each_side!(self, (), pulls, resume(now, ledger));
    }

    pub(crate) fn go_on(&mut self, now: Time) {
        each_side!(self, (), side => side.go_on(now));
    }

    pub(crate) fn fail(&mut self, now: Time, failure: ReceiverFailure, pulls: &mut PullQueue<Ask>) {
        each_side!(self, (), pulls, fail(now, failure));
    }

    #[inline]
    pub(crate) fn take_kept(&mut self) -> Option<(FlowId, SymbolId)> {
        each_side!(self, None, side => side.take_kept())
    }

    #[inline]
    pub(crate) fn take_packet(&mut self) -> Option<Packet> {
        each_side!(self, None, side => side.take_packet())
    }

    pub(crate) fn poll(
        &mut self,
        now: Time,
        is_running: bool,
        pulls: &mut PullQueue<Ask>,
    ) -> Output<FromFetch> {
        each_side!(self, Output::Wake(None), pulls, poll(now, is_running))
    }

    #[inline]
    pub(crate) fn quiet_until(&self, now: Time) -> Option<Time> {
        each_side!(self, None, side => side.quiet_until(now))
    }

    pub(crate) fn take_alarm(&mut self) -> bool {
        each_side!(self, false, side => side.take_alarm())
    }

    pub(crate) fn stir(&mut self) {
        each_side!(self, (), side => FetchSide::stir(side));
    }

    pub(crate) fn hand_on(self) -> HandedOn {
        each_side!(self, HandedOn::default(), side => side.hand_on())
    }

    pub(crate) fn trust(&mut self, trust: Trust) {
        each_side!(self, (), side => side.trust(trust));
    }

    pub(crate) fn is_distrusted(&self, node: NodeId) -> bool {
        each_side!(self, false, side => side.is_distrusted(node))
    }

    pub(crate) fn has_begun(&self) -> bool {
        each_side!(self, false, side => side.has_begun())
    }

    pub(crate) fn has_ended(&self) -> bool {
        each_side!(self, true, side => side.has_ended())
    }

    pub(crate) fn progress(&mut self, now: Time) -> Option<Progress> {
        each_side!(self, None, side => Some(side.progress(now)))
    }

    pub(crate) fn stats(&mut self, now: Time) -> ReceiverStats {
        each_side!(self, ReceiverStats::default(), side => FetchSide::stats(side, now))
    }

    pub(crate) fn slack(&self) -> Option<Duration> {
        each_side!(self, None, side => side.slack())
    }

    pub(crate) fn useful(&self) -> Box<dyn Iterator<Item = (FlowId, u64)> + '_> {
        each_side!(self, Box::new(std::iter::empty()), side => side.useful())
    }

    pub(crate) fn useful_of_ended(&self, flow: FlowId) -> Option<u64> {
        each_side!(self, None, side => side.useful_of_ended(flow))
    }
}
