//! A scheduled transfer as a flow of its source: to one receiver, or to a group whose members answer by flows of their own.
//!
//! ```text
//!   one receiver:     Sends ---- probes, symbols, FIN ---->        answered by the same flow
//!   a group's flow:   Sends ---- probes, symbols, FIN ---->        answered by each member's flow
//!   a member's flow:  Attached --silent while others speak--> Detached: told so until it has understood; what it misses is sent to it alone
//! ```
//! A receiver that was left behind answers datagrams of its own flow from then on. These are numbered far beyond what the group's were, so
//! an answer shows which it means.

use headwater_machine::{Output, Packet};
use headwater_units::{BlockIndex, Bytes, Duration, FlowId, Geometry, Packets, PathId, Symbols, Time};
use headwater_wire::{
    Body, Class, Delivery, FlowRole, Missing, Push, RateFeedback, RateTerms, SCHEDULED_OVERHEAD, TransferEnd,
    TransferReport,
};

use super::members::Members;
use super::reach::Reach;
use super::supply::Supply;
use super::transfer::{Plan, Transfer};
use super::{OPENING_HELD, RateSourceConfig};
use headwater_flow::in_flight::AckOutcome;
use headwater_flow::{FlowCounters, FlowStats, Shared, SourceFlow, WhyFallback};

/// Numbers between the last packet of a group that a member has answered, and the first of its own.
const OWN_NUMBERS: u64 = 1 << 20;
/// A detached member is told so at most this many times longer after the last time, as a power of two.
const MOST_DOUBLINGS: u32 = 5;

/// One flow.
#[derive(Debug)]
pub(crate) struct RateFlow {
    config: RateSourceConfig,
    push: Push,
    geometry: Geometry,
    opened: Time,
    reach: Reach,
    role: Role,
    /// When its receiver said something last, or it was told where that is.
    heard: Option<Time>,
    /// Its turn among the flows has come or will; no timer is needed for it.
    stirs: bool,
    paused: bool,
}

/// Role of the flow among others.
#[derive(Debug)]
enum Role {
    Sends(Box<Transfer>),
    /// Its receiver gets what the group gets.
    Attached {
        group: FlowId,
        /// The newest packet of the group that it has answered.
        answered: u32,
    },
    /// No longer.
    Detached {
        group: FlowId,
        telling: Option<Telling>,
        first_number: u64,
        transfer: Box<Transfer>,
    },
}

/// A detached member is told so until it has understood.
#[derive(Clone, Copy, Debug)]
struct Telling {
    next: Time,
    times: u32,
}

/// State that the scheduled flows of a host share.
#[derive(Debug, Default)]
pub(crate) struct Common {
    /// The group whose member has just answered.
    pub(crate) answered: Option<FlowId>,
    /// Its path has been measured.
    distance: Option<Duration>,
    /// A transfer that its network does not schedule.
    pub(crate) fell_back: Option<(FlowId, WhyFallback)>,
}

impl RateFlow {
    pub(crate) fn new(
        now: Time,
        config: RateSourceConfig,
        push: Push,
        geometry: Geometry,
        shared: &mut Shared,
    ) -> Self {
        let config = config.under(terms_of(&push));
        let reach = Reach::new(config.validates_paths, config.retell);
        let role = match &push.role {
            &FlowRole::Member { group } => Role::Attached { group, answered: 0 },
            FlowRole::Group { members } => {
                Role::Sends(Box::new(transfer_of_all(now, config, &push, members, geometry, shared)))
            }
            FlowRole::Single | FlowRole::Tree { .. } | FlowRole::Relay => {
                Role::Sends(Box::new(transfer_of_all(now, config, &push, &[push.flow], geometry, shared)))
            }
        };
        RateFlow {
            config,
            geometry,
            opened: now,
            reach,
            role,
            heard: None,
            stirs: false,
            paused: false,
            push,
        }
    }

    fn is_group(&self) -> bool {
        matches!(self.push.role, FlowRole::Group { .. })
    }

    fn transfer(&self) -> Option<&Transfer> {
        match &self.role {
            Role::Sends(transfer) | Role::Detached { transfer, .. } => Some(transfer),
            Role::Attached { .. } => None,
        }
    }

    fn transfer_mut(&mut self) -> Option<&mut Transfer> {
        match &mut self.role {
            Role::Sends(transfer) | Role::Detached { transfer, .. } => Some(transfer),
            Role::Attached { .. } => None,
        }
    }

    /// How its transfer does, for a controller that knows the network; nothing is sent by the flow of one that gets what its group gets.
    pub(crate) fn report(&self, now: Time) -> Option<TransferReport> {
        terms_of(&self.push)?;
        self.transfer().map(|transfer| transfer.report(now, self.push.flow))
    }

    // ---- what receivers say

    fn on_answer(
        &mut self,
        now: Time,
        path: PathId,
        (feedback, missing): (&RateFeedback, &[Missing]),
        shared: &mut Shared,
        common: &mut Common,
    ) {
        // Nobody answers by a group's flow, which all of it share.
        if self.is_group() {
            return;
        }
        self.heard = Some(now);
        self.reach.hear(now, path, None, self.push.flow, shared);
        match &mut self.role {
            Role::Attached { group, answered } => {
                if feedback.held < OPENING_HELD {
                    *answered = feedback.number;
                }
                common.answered = Some(*group);
            }
            Role::Sends(transfer) => {
                let flow = self.push.flow;
                let why = transfer.on_answer(now, flow, feedback, missing, &mut shared.out);
                self.fall_back(now, why, common);
            }
            Role::Detached { telling, first_number, transfer, .. } => {
                let flow = self.push.flow;
                if transfer.answers(feedback.number).is_some_and(|number| number >= *first_number) {
                    *telling = None;
                    let why = transfer.on_answer(now, flow, feedback, missing, &mut shared.out);
                    return self.fall_back(now, why, common);
                }
                // It has not heard of it, or this is an old answer.
                transfer.on_word(now, flow);
                if let Some(telling) = telling {
                    telling.times = 0;
                    telling.next = telling.next.min(now + self.config.retell);
                    self.tell_detached(now, shared);
                }
            }
        }
    }

    /// A member of this group answers.
    pub(crate) fn on_member(
        &mut self,
        now: Time,
        member: FlowId,
        body: &Body,
        shared: &mut Shared,
        common: &mut Common,
    ) {
        let Role::Sends(transfer) = &mut self.role else { return };
        if let Some(distance) = common.distance.take() {
            transfer.on_distance(now, member, distance);
        }
        let Some((feedback, missing)) = answer(body) else { return };
        let why = transfer.on_answer(now, member, feedback, missing, &mut shared.out);
        self.fall_back(now, why, common);
    }

    /// The network does not do what a scheduled transfer relies on: nothing more is sent.
    fn fall_back(&mut self, now: Time, why: Option<WhyFallback>, common: &mut Common) {
        if let (Some(why), flow) = (why, self.push.flow)
            && let Some(transfer) = self.transfer_mut()
        {
            transfer.end(now, TransferEnd::Cancelled);
            common.fell_back = Some((flow, why));
        }
    }

    // ---- groups

    fn tell_detached(&mut self, now: Time, shared: &mut Shared) {
        let Role::Detached { telling: Some(telling), .. } = &mut self.role else { return };
        if now < telling.next {
            return;
        }
        telling.next = now + self.config.retell * (1 << telling.times.min(MOST_DOUBLINGS));
        telling.times += 1;
        if let Some(path) = self.reach.path() {
            let packet = Packet::of_flow(path, self.push.flow, Class::Control, Body::Detached);
            shared.out.push_back(Output::Transmit(packet));
        }
    }

    /// When the flow is over unless its receiver says something before. A group's goes with its last member.
    fn release_at(&self) -> Option<Time> {
        Some(self.heard.filter(|_| !self.is_group())? + self.config.silent_release)
    }

    /// Its receiver does not know yet that the flow is its own: it is told, and sent nothing else.
    fn is_held(&self) -> bool {
        self.paused || !self.reach.may_send(self.config.unanswered)
    }
}

impl SourceFlow for RateFlow {
    type Common = Common;

    fn order(&self) -> &Push {
        &self.push
    }

    fn packet_bytes(&self) -> u64 {
        packet_of(&self.push).get()
    }

    fn sent_to_group(&self) -> Option<Symbols> {
        let transfer = self.transfer().filter(|_| self.is_group())?;
        Some(Symbols::new(transfer.counts().symbols))
    }

    fn open_path(&self) -> Option<PathId> {
        self.reach.path().filter(|_| !self.paused)
    }

    fn pause(&mut self, _now: Time) {
        self.paused = true;
    }

    fn resume(&mut self, now: Time) {
        if std::mem::take(&mut self.paused)
            && let Some(transfer) = self.transfer_mut()
        {
            transfer.resume(now);
        }
    }

    fn stats(&self) -> FlowStats {
        let unmeasured = FlowStats { paused: self.paused, ..FlowStats::unmeasured(&self.push) };
        let Some(transfer) = self.transfer() else { return unmeasured };
        let (rtt, min_rtt) = (transfer.members.round_trip(), transfer.members.min_round_trip());
        let counts = transfer.counts();
        let in_flight = (transfer.rate() * rtt.unwrap_or_default()).get() as f64;
        FlowStats {
            window: Packets::new(in_flight / self.packet_bytes() as f64),
            rtt,
            min_rtt,
            starved: transfer.is_starved(),
            counters: FlowCounters {
                sent: Symbols::new(counts.symbols),
                path_probes: counts.probes,
                bad_acks: counts.bad_answers,
                bad_work: transfer.supply.refused(),
                ..FlowCounters::default()
            },
            ..unmeasured
        }
    }

    fn on_flow_path(&mut self, now: Time, path: PathId, shared: &mut Shared) {
        if self.is_group() {
            self.reach.fix(path);
        } else if self.reach.path().is_none() {
            self.heard = Some(now);
            self.reach.hear(now, path, None, self.push.flow, shared);
        }
    }

    fn on_block_ready(&mut self, block: BlockIndex, repair: bool) {
        if let Some(transfer) = self.transfer_mut() {
            transfer.on_block_ready(block, repair);
        }
    }

    fn hear(
        &mut self,
        now: Time,
        path: PathId,
        body: &Body,
        shared: &mut Shared,
        _: &mut AckOutcome,
        common: &mut Common,
    ) -> bool {
        match (body, answer(body)) {
            (_, Some(said)) => self.on_answer(now, path, said, shared, common),
            (Body::Challenge { nonce }, _) if !self.is_group() => {
                let flow = self.push.flow;
                let distance = self.reach.hear(now, path, Some(*nonce), flow, shared);
                match (&mut self.role, distance) {
                    (_, None) => {}
                    (Role::Attached { group, .. }, Some(_)) => {
                        (common.answered, common.distance) = (Some(*group), distance);
                    }
                    (Role::Sends(transfer) | Role::Detached { transfer, .. }, Some(distance)) => {
                        transfer.on_distance(now, flow, distance);
                    }
                }
            }
            _ => return false,
        }
        true
    }

    fn next(&mut self, now: Time, shared: &mut Shared, _: &mut Common) -> Option<Packet> {
        self.stirs = false;
        let path = self.reach.path().filter(|_| !self.is_held())?;
        // All in one queue: a probe or a FIN that overtakes symbols would give back a share that they then take again, and show losses
        // that are none.
        let (flow, class) = (self.push.flow, self.push.class);
        let body = self.transfer_mut()?.next(now, &mut shared.out)?;
        self.stirs = true;
        self.reach.on_sent();
        Some(Packet::of_flow(path, flow, class, body))
    }

    fn deadline(&self) -> Option<Time> {
        let mut at = self.release_at();
        let mut earlier = |other: Option<Time>| at = at.into_iter().chain(other).min();
        if let Role::Detached { telling, .. } = &self.role {
            earlier(telling.map(|telling| telling.next));
        }
        if let Some(transfer) = self.transfer()
            && !self.paused
        {
            earlier(Some(transfer.look_at()));
            if !self.stirs && !self.is_held() {
                earlier(transfer.due());
            }
        }
        at
    }

    fn on_timer(&mut self, now: Time, _: &mut AckOutcome, shared: &mut Shared) -> bool {
        self.stirs = true;
        self.tell_detached(now, shared);
        let is_group = self.is_group();
        let mut is_over = self.release_at().is_some_and(|at| now >= at);
        if let Some(transfer) = self.transfer_mut() {
            transfer.look(now, is_group, &mut shared.detached);
            is_over |= transfer.is_over(now);
        }
        is_over
    }

    fn last_word(&mut self) -> Option<Packet> {
        let path = self.reach.path()?;
        let (flow, class) = (self.push.flow, self.push.class);
        let body = self.transfer_mut()?.last_word()?;
        Some(Packet::of_flow(path, flow, class, body))
    }

    fn group(&self) -> Option<FlowId> {
        match self.role {
            Role::Attached { group, .. } | Role::Detached { group, .. } => Some(group),
            Role::Sends(_) => None,
        }
    }

    fn on_leave(&mut self, now: Time, member: FlowId) -> bool {
        let Role::Sends(transfer) = &mut self.role else { return false };
        let is_empty = transfer.members.on_leave(member);
        if !is_empty {
            transfer.reckon(now);
            if transfer.members.len() == 0 {
                transfer.end(now, TransferEnd::Done);
            }
        }
        is_empty
    }

    fn detach(&mut self, now: Time, shared: &mut Shared) {
        let Role::Attached { group, answered } = self.role else { return };
        let first_number = u64::from(answered) + OWN_NUMBERS;
        let plan = Plan { first_number, ..plan_of(&self.push, self.opened) };
        let supply = Supply::of_repairs(
            self.push.flow,
            self.geometry,
            (self.config.prepare_ahead, self.config.keep_ready),
        );
        let members = Members::new(&[self.push.flow], self.config.detach_after);
        let transfer = Box::new(Transfer::new(now, self.config, &plan, members, supply));
        let telling = Some(Telling { next: now, times: 0 });
        self.role = Role::Detached { group, telling, first_number, transfer };
        self.tell_detached(now, shared);
    }
}

/// A receiver's feedback, and its missing symbols.
fn answer(body: &Body) -> Option<(&RateFeedback, &[Missing])> {
    match body {
        Body::RateFeedback(feedback) => Some((feedback, &[])),
        Body::Nack(nack) => Some((&nack.feedback, &nack.missing)),
        _ => None,
    }
}

fn packet_of(push: &Push) -> Bytes {
    Bytes::new(u64::from(push.symbol_size) + SCHEDULED_OVERHEAD as u64)
}

/// The controller's terms of it.
fn terms_of(push: &Push) -> Option<RateTerms> {
    match push.delivery {
        Delivery::Rate { terms, .. } => terms,
        _ => None,
    }
}

fn plan_of(push: &Push, opened: Time) -> Plan {
    let deadline = match push.delivery {
        Delivery::Rate { deadline, .. } => deadline,
        _ => None,
    };
    Plan {
        symbol_size: push.symbol_size,
        packet: packet_of(push) + Bytes::new(terms_of(push).map_or(0, |terms| terms.around).into()),
        deadline: deadline.map(|within| opened + within),
        round_trip: push.start.map(|start| start.rtt),
        first_number: 0,
    }
}

/// All of the object to these receivers.
fn transfer_of_all(
    now: Time,
    config: RateSourceConfig,
    push: &Push,
    members: &[FlowId],
    geometry: Geometry,
    shared: &mut Shared,
) -> Transfer {
    let supply = Supply::new(push.flow, geometry, (config.prepare_ahead, config.keep_ready), &mut shared.out);
    Transfer::new(now, config, &plan_of(push, now), Members::new(members, config.detach_after), supply)
}
