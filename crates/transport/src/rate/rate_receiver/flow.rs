//! One flow as the receiver of a scheduled transfer sees it.
//!
//! ```text
//!   of a group:  answers the group's datagrams --left behind--> answers its own; what the group brings is a gift
//!                          ^------- its own are silent for long, the group is not ------/
//! ```

use headwater_units::{BitRate, Duration, FlowId, PathId, Rank, Time};
use headwater_wire::{FlowGrant, FlowView, RateFeedback, RateUnit, Scheduling};

use super::super::arrivals::Arrivals;
use super::super::feedback::Feedback;
use super::super::{OPENING_HELD, RateReceiverConfig};
use headwater_flow::task::SessionFlow;
use headwater_flow::task::brought::Brought;
use headwater_flow::task::close_handshake::Stand;

/// Interval after which the word that opens a flow is repeated, doubled each time up to [`LONGEST_PATIENCE`].
const OPENS_AGAIN: Duration = Duration::from_millis(20);
/// Silence after which a source is spoken to; doubled each time too.
const PATIENCE: Duration = Duration::from_millis(200);
const LONGEST_PATIENCE: Duration = Duration::from_secs(4);
/// Silence after which a group does not go on, for a receiver that has left it and missed its end: five times the longest that a source
/// is silent while it waits for a rate. What such a receiver asks for alone although the group will bring it is sent twice.
pub(super) const GROUP_LIVES: Duration = Duration::from_millis(500);
/// Silence of its own flow after which a receiver that has left a group which goes on was not left behind by its source: whoever said so.
const NOT_LEFT: Duration = Duration::from_secs(2);
/// Interval at which it looks.
pub(super) const LOOKS_AGAIN: Duration = Duration::from_millis(100);

/// State of one flow.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) grant: FlowGrant,
    pub(super) path: Option<PathId>,
    group: Option<Group>,
    pub(super) stand: Stand,
    /// Packets of the flow whose datagrams it answers.
    pub(super) arrivals: Arrivals,
    pub(super) feedback: Feedback,
    pub(super) brought: Brought,
    pub(super) by_group: u64,
    pub(super) trimmed: u64,
    heard: Time,
    /// When it speaks unasked, once it has begun.
    speaks_at: Option<Time>,
    doublings: u32,
    /// Answers so far.
    pub(super) said: u64,
}

/// The group's flow.
#[derive(Debug)]
struct Group {
    flow: FlowId,
    /// This receiver is served with the others.
    attached: bool,
    heard: Time,
    /// The newest block that it has brought something of.
    at: u32,
    /// Its source has nothing more to send.
    over: bool,
}

impl Flow {
    pub(super) fn new(
        now: Time,
        grant: FlowGrant,
        group: Option<FlowId>,
        config: RateReceiverConfig,
        receivers: u16,
    ) -> Self {
        Flow {
            grant,
            path: None,
            group: group.map(|flow| Group { flow, attached: true, heard: now, at: 0, over: false }),
            stand: Stand::Live,
            arrivals: Arrivals::new(config.reordering),
            feedback: Feedback::new(config, receivers),
            brought: Brought::new(now),
            by_group: 0,
            trimmed: 0,
            heard: now,
            speaks_at: None,
            doublings: 0,
            said: 0,
        }
    }

    pub(super) fn id(&self) -> FlowId {
        self.grant.flow
    }

    pub(super) fn is_live(&self) -> bool {
        self.stand.is_live()
    }

    /// Whether datagrams of this flow are its own, or its group's (`true`); `None`: neither, or it is over.
    pub(super) fn brings(&self, flow: FlowId) -> Option<bool> {
        match &self.group {
            _ if self.stand.is_over() => None,
            _ if self.grant.flow == flow => Some(false),
            Some(group) if group.flow == flow => Some(true),
            _ => None,
        }
    }

    /// Symbols can be taken in from now on.
    pub(super) fn begin(&mut self, now: Time) {
        self.speaks_at.get_or_insert(now);
    }

    /// A datagram has come by its own flow or the group's. Whether it is one to answer.
    pub(super) fn answers_to(&mut self, now: Time, by_group: bool) -> bool {
        if let Some(group) = self.group.as_mut().filter(|_| by_group) {
            group.heard = now;
        }
        let answers = by_group == self.group.as_ref().is_some_and(|group| group.attached);
        if answers {
            (self.heard, self.doublings) = (now, 0);
            self.speaks_at = Some(now + PATIENCE);
        }
        answers
    }

    /// From now on it answers its own datagrams. False if it did before.
    pub(super) fn leave_group(&mut self, now: Time, config: RateReceiverConfig, receivers: u16) -> bool {
        let Some(group) = self.group.as_mut().filter(|group| group.attached) else { return false };
        // Whoever was frozen until now has heard nothing, whether or not the group goes on.
        (group.attached, group.heard) = (false, now);
        self.heard = now;
        self.begin_anew(now, config, receivers);
        true
    }

    /// Its group has been heard, which it has left: it goes back if its own flow has brought nothing for long.
    pub(super) fn return_to_group(&mut self, now: Time, config: RateReceiverConfig, receivers: u16) {
        let is_silent = now.since(self.heard) >= NOT_LEFT;
        let Some(group) = self.group.as_mut().filter(|group| !group.attached && is_silent) else { return };
        group.attached = true;
        self.begin_anew(now, config, receivers);
    }

    fn begin_anew(&mut self, now: Time, config: RateReceiverConfig, receivers: u16) {
        self.arrivals = Arrivals::new(config.reordering);
        self.feedback = Feedback::new(config, receivers);
        (self.speaks_at, self.doublings) = (Some(now), 0);
    }

    /// Whether it has left its group: what the others are sent may not come to it any more.
    pub(super) fn is_detached(&self) -> bool {
        self.group.as_ref().is_some_and(|group| !group.attached)
    }

    /// Blocks below this one are asked for, of those that the source has `begun` and of `all`. A group brings what is left of its newest
    /// block and all that follows, also to those who have left it, until it is over.
    pub(super) fn asks_below(&self, now: Time, begun: u32, all: u32) -> u32 {
        match self.group.as_ref().filter(|group| !group.attached) {
            None => begun,
            Some(group) if group.over || now.since(group.heard) >= GROUP_LIVES => all,
            Some(group) => group.at,
        }
    }

    /// Something of this block has come by the group.
    pub(super) fn on_block_of_group(&mut self, block: u32) {
        self.group.as_mut().into_iter().for_each(|group| group.at = group.at.max(block));
    }

    /// Its group's source has sent everything, or gives up.
    pub(super) fn on_end_of_group(&mut self) {
        self.group.as_mut().into_iter().for_each(|group| group.over = true);
    }

    /// The source is to hear from this receiver.
    pub(super) fn speak_soon(&mut self, now: Time) {
        self.speaks_at = Some(now + PATIENCE / 10);
    }

    /// When it speaks unasked, if it can.
    pub(super) fn speaks_at(&self) -> Option<Time> {
        self.speaks_at.filter(|_| self.is_live() && self.path.is_some())
    }

    /// It has spoken unasked.
    pub(super) fn on_spoken(&mut self, now: Time) {
        let first = if self.feedback.has_offer() { PATIENCE } else { OPENS_AGAIN };
        self.speaks_at = Some(now + (first * (1 << self.doublings)).min(LONGEST_PATIENCE));
        self.doublings = (self.doublings + 1).min(8);
    }

    /// Feedback about the newest datagram; an opening if none has come.
    pub(super) fn say(&mut self, now: Time) -> RateFeedback {
        self.said += 1;
        let lost = self.arrivals.lost();
        self.feedback.say(now, lost).unwrap_or_else(|| {
            let unit = RateUnit::finest(BitRate::ZERO);
            let scheduling = Scheduling::new(unit, Rank::LAST, BitRate::ZERO, BitRate::ZERO);
            RateFeedback { number: 0, held: OPENING_HELD, lost: 0, scheduling }
        })
    }

    /// It is over. Returns what is to be unbound.
    pub(super) fn end(&mut self) -> impl Iterator<Item = FlowId> + use<> {
        let was_over = self.stand.is_over();
        self.stand = Stand::Over;
        let flows = [Some(self.grant.flow), self.group.as_ref().map(|group| group.flow)];
        flows.into_iter().flatten().filter(move |_| !was_over)
    }

    /// Flows that are bound.
    pub(super) fn bound(&self) -> impl Iterator<Item = FlowId> + use<> {
        let is_over = self.stand.is_over();
        let flows = [Some(self.grant.flow), self.group.as_ref().map(|group| group.flow)];
        flows.into_iter().flatten().filter(move |_| !is_over)
    }

    pub(super) fn view(&mut self, now: Time, symbol: u64) -> FlowView {
        let silent = if self.speaks_at.is_some() { now.since(self.heard) } else { Duration::ZERO };
        self.brought.view(now, self.grant.flow, symbol, silent)
    }

    pub(super) fn stats(&self) -> SessionFlow {
        SessionFlow {
            flow: self.grant.flow,
            node: self.grant.node,
            symbols: self.brought.symbols,
            useful: self.brought.useful,
            by_group: self.by_group,
            trimmed: self.trimmed,
            lost: self.arrivals.lost(),
            asked: self.said,
            coming: 0,
            rate: self.brought.rate(),
            rtt: None,
            silent: false,
            ended: !self.is_live(),
        }
    }
}
