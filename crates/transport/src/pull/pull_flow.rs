//! One pulled flow at its source: what its receiver has asked for, and what is sent in answer (SCDP §III-D to §III-F).
//!
//! ```text
//!             FlowPath, or the first pull                      pull: more than all pulls before it
//!   Opened ------------------------------> Pushing (syn) ---------------------------------------------> Serving
//!                                              |                  fin answered, and `release_after` later  |
//!                                              +--- silent for `silent_release` ---> over <----------------+
//!   a group's flow: served when all of its members have asked ([`super::group`])
//!   a member's flow: Attached --held the group up, or a pull says `detached`--> served by itself; told until it says `detached`
//! ```
//! No window, no pace, no timer for what was sent: the receiver counts, and asks again. A pull may come twice, late or not at all:
//! it says how many were asked for in all, and how far of which runs.
//!
//! A receiver is where its pulls come from. Until that address has echoed a nonce ([`headwater_flow::paths`];
//! docs/decisions/0030), it gets no more than the first window, whatever it asks for; a new one is served only then.

use headwater_machine::{Output, Packet};
use headwater_units::{BlockIndex, Bytes, FlowId, Geometry, PacketNumber, Packets, PathId, Symbols, Time};
use headwater_wire::{Body, Class, FlowRole, Pull, Push, SymbolHeader, Want};

use super::group::{MemberPull, MemberSays, Members};
use super::runs::Runs;
use crate::pull::PullFlowConfig;
use crate::pull::queue::Served;
use headwater_flow::in_flight::AckOutcome;
use headwater_flow::paths::{PathNews, Paths, Unanswered};
use headwater_flow::{FlowCounters, FlowStats, Shared, SourceFlow};

/// Number of first windows that a receiver may have asked for and that were not sent: more than its window, since it
/// asks again for what it takes for lost.
const MOST_WINDOWS: u32 = 4;
/// A detached member is told so at most this many times longer after the last time, as a power of two.
const MOST_DOUBLINGS: u32 = 5;

/// One pulled flow.
#[derive(Debug)]
pub(crate) struct PullFlow {
    config: PullFlowConfig,
    push: Push,
    window: u32,
    role: Role,
    path: Option<PathId>,
    /// Which addresses have answered, where that is asked.
    paths: Option<Paths>,
    challenged_at: Option<Time>,
    runs: Runs,
    /// Symbols that may leave unasked.
    pushes: u32,
    served: Served,
    /// Symbols that were asked for and have not left.
    asked: u64,
    most_asked: u64,
    /// The newest pull asks for the last one.
    fin: bool,
    /// When the receiver said something last, or when it was told where it is.
    heard: Option<Time>,
    next_number: u64,
    level: Level,
    paused: bool,
    counters: FlowCounters,
}

/// State that the pulled flows of a host share.
#[derive(Debug, Default)]
pub(crate) struct Common {
    /// The last pull's message for its flow's group.
    pub(crate) says: Option<(FlowId, MemberSays)>,
}

/// Role of the flow among others.
#[derive(Debug)]
enum Role {
    Single,
    /// Its pulls count for the group.
    Attached {
        group: FlowId,
    },
    /// No longer.
    Detached {
        group: FlowId,
        telling: Option<Telling>,
    },
    Group(Members),
}

/// A detached member is told so until it has understood.
#[derive(Clone, Copy, Debug)]
struct Telling {
    next: Time,
    last: Option<Time>,
    times: u32,
}

/// The class of the flow's next symbol.
#[derive(Clone, Copy, Debug)]
enum Level {
    /// Always the same.
    Fixed(Class),
    /// By what was sent before it.
    Demoted { thresholds: [Bytes; 4], at: usize, sent: u64 },
}

impl PullFlow {
    pub(crate) fn new(
        config: &PullFlowConfig,
        push: Push,
        initial_window: u16,
        geometry: Geometry,
        shared: &mut Shared,
    ) -> Self {
        let window = super::window(initial_window);
        let most_asked = u64::from(MOST_WINDOWS * window);
        let role = match &push.role {
            FlowRole::Single | FlowRole::Tree { .. } | FlowRole::Relay => Role::Single,
            &FlowRole::Member { group } => Role::Attached { group },
            FlowRole::Group { members } => {
                Role::Group(Members::new(members, most_asked, !config.validates_paths))
            }
        };
        let mut runs = Runs::new(push.flow, geometry, config.open_blocks, config.prepare_ahead);
        let mut pushes = 0;
        if !matches!(role, Role::Attached { .. }) {
            let (index, of) = (push.index, push.of);
            for (block, count) in super::first_window(geometry, window, index, of) {
                if let Some(want) = want(block, super::class_of(block.0, index, of), of, count) {
                    runs.want(&want, false, &mut shared.out);
                    pushes += count;
                }
            }
        }
        PullFlow {
            config: config.clone(),
            window,
            role,
            path: None,
            paths: config.validates_paths.then(Paths::default),
            challenged_at: None,
            runs,
            pushes,
            served: Served::default(),
            asked: 0,
            most_asked,
            fin: false,
            heard: None,
            next_number: 0,
            level: Level::new(push.class, config.demotion),
            paused: false,
            counters: FlowCounters::default(),
            push,
        }
    }

    // ---- what the receiver says

    /// A pull came. Returns what it says to the flow's group, if it is attached to one.
    #[inline]
    pub(crate) fn on_pull(
        &mut self,
        now: Time,
        path: PathId,
        pull: &Pull,
        shared: &mut Shared,
    ) -> Option<(FlowId, MemberSays)> {
        // Nobody pulls a group's flow.
        if matches!(self.role, Role::Group(_)) {
            return None;
        }
        self.heard = Some(now);
        if self.path != Some(path) || self.paths.is_some() {
            let begins = self.path.is_none();
            self.hear(Some(now), path, None, shared);
            if begins && matches!(self.role, Role::Single) {
                self.push_what_is_wanted(pull, shared);
            }
        }
        match &self.role {
            Role::Single | Role::Group(_) => {
                self.ask(pull, shared);
                None
            }
            Role::Attached { .. } | Role::Detached { .. } => self.on_pull_of_member(now, pull, shared),
        }
    }

    /// The receiver opens the flow, and knows better what it lacks.
    fn push_what_is_wanted(&mut self, pull: &Pull, shared: &mut Shared) {
        if pull.wants[0].is_none() {
            return;
        }
        self.runs.clear(&mut shared.out);
        // Symbols asked for by this pull and those that were lost before it are not pushed too.
        let wanted = pull.wants.iter().flatten().map(|want| u32::from(want.count.get())).sum::<u32>();
        self.pushes = wanted.saturating_sub(pull.sequence).min(self.window);
    }

    fn on_pull_of_member(
        &mut self,
        now: Time,
        pull: &Pull,
        shared: &mut Shared,
    ) -> Option<(FlowId, MemberSays)> {
        match &mut self.role {
            &mut Role::Attached { group } if !pull.detached => {
                let more = self.newer(pull)?;
                let says = MemberPull { more, fin: pull.fin, wants: pull.wants };
                Some((group, MemberSays::Asks(says)))
            }
            // It leaves by itself.
            &mut Role::Attached { group } => {
                self.begin_detached(group, None);
                self.ask(pull, shared);
                Some((group, MemberSays::Leaves))
            }
            Role::Detached { telling, .. } if !pull.detached => {
                // It has not heard of it; if it has, this pull is an old one.
                if let Some(telling) = telling {
                    let again = telling.last.map_or(now, |last| last + self.config.retell);
                    (telling.next, telling.times) = (telling.next.min(again), 0);
                    self.tell_detached(now, shared);
                }
                None
            }
            Role::Detached { group, telling } => {
                if telling.is_some() {
                    let group = *group;
                    self.begin_detached(group, None);
                }
                self.ask(pull, shared);
                None
            }
            Role::Single | Role::Group(_) => None,
        }
    }

    #[inline]
    fn ask(&mut self, pull: &Pull, shared: &mut Shared) {
        let Some(more) = self.newer(pull) else { return };
        self.asked = (self.asked + u64::from(more)).min(self.most_asked);
        self.fin = pull.fin;
        if let Some(oldest) = &pull.wants[0] {
            self.runs.settle_below(oldest.block, &mut shared.out);
        }
        for want in pull.wants.iter().flatten() {
            self.runs.want(want, false, &mut shared.out);
        }
    }

    /// Number of symbols that a pull asks for beyond all pulls before it; `None` if it is older than one of them.
    #[inline]
    fn newer(&mut self, pull: &Pull) -> Option<u32> {
        let more = self.served.on_pull(pull.sequence);
        (more > 0 || pull.sequence == self.served.sequence()).then_some(more)
    }

    /// From now on the receiver counts from zero, and is served by this flow.
    fn begin_detached(&mut self, group: FlowId, telling: Option<Telling>) {
        self.role = Role::Detached { group, telling };
        self.served = Served::default();
        (self.asked, self.fin) = (0, false);
    }

    /// A receiver is, or says that it is, at this path, perhaps with the nonce of a challenge.
    fn hear(&mut self, now: Option<Time>, path: PathId, nonce: Option<u64>, shared: &mut Shared) {
        let Some(paths) = &mut self.paths else {
            self.path = Some(path);
            return;
        };
        // A group's address answers nobody.
        if matches!(self.role, Role::Group(_)) {
            self.path = Some(path);
            self.paths = None;
            return;
        }
        let known = paths.current() == Some(path);
        let news = paths.on_opening(path, nonce, 0, &mut shared.rng);
        self.path = paths.current();
        let PathNews::Challenge(nonce) = news else { return };
        let due = self.challenged_at.zip(now).is_none_or(|(at, now)| now >= at + self.config.retell);
        if !known || due {
            self.challenged_at = now;
            self.say(path, Body::Challenge { nonce }, shared);
        }
    }

    /// The receiver sends back a nonce from this path.
    pub(crate) fn on_echo(&mut self, path: PathId, nonce: u64, shared: &mut Shared) {
        if self.paths.is_some() && !matches!(self.role, Role::Group(_)) {
            self.hear(None, path, Some(nonce), shared);
        }
    }

    // ---- groups

    /// A member of this group has said something.
    pub(crate) fn on_member(&mut self, member: FlowId, says: &MemberSays, shared: &mut Shared) {
        let Role::Group(members) = &mut self.role else { return };
        let pull = match says {
            MemberSays::Leaves => return members.detach(member),
            MemberSays::Asks(pull) => pull,
        };
        if !members.on_pull(member, pull) {
            return;
        }
        if let Some(oldest) = members.oldest() {
            self.runs.settle_below(oldest, &mut shared.out);
        }
        for want in pull.wants.iter().flatten() {
            self.runs.want(want, true, &mut shared.out);
        }
    }

    fn tell_detached(&mut self, now: Time, shared: &mut Shared) {
        let Role::Detached { telling: Some(telling), .. } = &mut self.role else { return };
        if now < telling.next {
            return;
        }
        telling.next = now + self.config.retell * (1 << telling.times.min(MOST_DOUBLINGS));
        (telling.last, telling.times) = (Some(now), telling.times + 1);
        if let Some(path) = self.path {
            self.say(path, Body::Detached, shared);
        }
    }

    // ---- sending

    /// Whether all are there who are to get the first window.
    fn is_assembled(&mut self, now: Time) -> bool {
        let Role::Group(members) = &mut self.role else { return true };
        let are_here = members.are_here();
        if !are_here {
            members.on_held(now);
        }
        are_here
    }

    /// Whether a symbol was asked for, by all who have to.
    #[inline]
    fn is_asked(&mut self, now: Time) -> bool {
        match &mut self.role {
            Role::Group(members) => {
                if !self.runs.has_next() {
                    return false;
                }
                let all_ask = members.all_ask();
                if !all_ask {
                    members.on_held(now);
                }
                all_ask
            }
            _ => self.asked > 0,
        }
    }

    fn say(&self, path: PathId, body: Body, shared: &mut Shared) {
        let packet = Packet::of_flow(path, self.push.flow, Class::Control, body);
        shared.out.push_back(Output::Transmit(packet));
    }

    // ---- timers

    /// When the flow is over unless its receiver says something before. A group's goes with its last member.
    #[inline]
    fn release_at(&self) -> Option<Time> {
        let heard = self.heard.filter(|_| !matches!(self.role, Role::Group(_)))?;
        let config = &self.config;
        Some(heard + if self.fin { config.release_after } else { config.silent_release })
    }
}

impl SourceFlow for PullFlow {
    type Common = Common;

    fn order(&self) -> &Push {
        &self.push
    }

    fn sent_to_group(&self) -> Option<Symbols> {
        matches!(self.role, Role::Group(_)).then_some(self.counters.sent)
    }

    fn open_path(&self) -> Option<PathId> {
        self.path.filter(|_| !self.paused)
    }

    fn pause(&mut self, _now: Time) {
        self.paused = true;
    }

    fn resume(&mut self, _now: Time) {
        self.paused = false;
    }

    fn stats(&self) -> FlowStats {
        FlowStats {
            window: Packets::new(f64::from(self.window)),
            starved: self.runs.is_starved(),
            paused: self.paused,
            counters: FlowCounters { bad_work: self.runs.refused(), ..self.counters },
            ..FlowStats::unmeasured(&self.push)
        }
    }

    fn on_flow_path(&mut self, now: Time, path: PathId, shared: &mut Shared) {
        if self.path.is_none() {
            self.heard = Some(now);
            self.hear(None, path, None, shared);
        }
    }

    fn on_block_ready(&mut self, block: BlockIndex, repair: bool) {
        self.runs.on_ready(block, repair);
    }

    #[inline]
    fn hear(
        &mut self,
        now: Time,
        path: PathId,
        body: &Body,
        shared: &mut Shared,
        _: &mut AckOutcome,
        common: &mut Common,
    ) -> bool {
        match body {
            Body::Pull(pull) => common.says = self.on_pull(now, path, pull, shared),
            Body::Challenge { nonce } => self.on_echo(path, *nonce, shared),
            _ => return false,
        }
        true
    }

    #[inline]
    fn next(&mut self, now: Time, _: &mut Shared, _: &mut Common) -> Option<Packet> {
        let path = self.path.filter(|_| !self.paused)?;
        let syn = self.pushes > 0;
        if !(if syn { self.is_assembled(now) } else { self.is_asked(now) }) {
            return None;
        }
        let window = Unanswered::Packets(u64::from(self.window));
        if let Some(paths) = &mut self.paths
            && paths.allowance(self.config.unanswered.unwrap_or(window)) == 0
        {
            return None;
        }
        let Some(symbol) = self.runs.next() else {
            if syn && !self.runs.is_starved() {
                // The receiver has come to want less than it would have been pushed.
                self.pushes = 0;
            }
            return None;
        };
        let last = match &mut self.role {
            Role::Group(members) if !syn => {
                let last = members.is_last();
                members.on_sent();
                last
            }
            _ => self.fin && self.asked == 1,
        };
        if syn {
            self.pushes -= 1;
        } else {
            self.asked = self.asked.saturating_sub(1);
        }
        if let Some(paths) = &mut self.paths {
            paths.on_sent();
        }
        let owes = match &self.role {
            Role::Group(members) => members.are_owed(),
            _ => self.asked > 0,
        };
        let starved = self.pushes == 0 && (!owes || !self.runs.wants_more());
        let class = self.level.class_of_next(syn || last, self.push.symbol_size);
        let header = SymbolHeader {
            assignment: self.served.sequence() as u8,
            starved,
            syn,
            ..SymbolHeader::new(PacketNumber(self.next_number), symbol)
        };
        self.next_number += 1;
        self.counters.sent += Symbols::new(1);
        Some(Packet::of_flow(path, self.push.flow, class, Body::Symbol(header)))
    }

    #[inline]
    fn deadline(&self) -> Option<Time> {
        let telling = match &self.role {
            Role::Single | Role::Attached { .. } => None,
            Role::Detached { telling, .. } => telling.map(|telling| telling.next),
            Role::Group(members) => return detach_at(members, &self.config),
        };
        [self.release_at(), telling].into_iter().flatten().min()
    }

    fn on_timer(&mut self, now: Time, _: &mut AckOutcome, shared: &mut Shared) -> bool {
        self.tell_detached(now, shared);
        if let Role::Group(members) = &mut self.role
            && detach_at(members, &self.config).is_some_and(|at| now >= at)
        {
            members.detach_stragglers(&mut shared.detached);
        }
        self.release_at().is_some_and(|at| now >= at)
    }

    fn group(&self) -> Option<FlowId> {
        match self.role {
            Role::Attached { group } | Role::Detached { group, .. } => Some(group),
            Role::Single | Role::Group(_) => None,
        }
    }

    fn on_leave(&mut self, _now: Time, member: FlowId) -> bool {
        match &mut self.role {
            Role::Group(members) => members.on_leave(member),
            _ => false,
        }
    }

    fn detach(&mut self, now: Time, shared: &mut Shared) {
        if let Role::Attached { group } = self.role {
            self.begin_detached(group, Some(Telling { next: now, last: None, times: 0 }));
            self.tell_detached(now, shared);
        }
    }
}

/// When those who hold a group up are to be detached.
#[inline]
fn detach_at(members: &Members, config: &PullFlowConfig) -> Option<Time> {
    let patience = if members.are_here() { config.detach_after } else { config.assemble_for };
    members.held_since().map(|since| since + patience)
}

impl Level {
    fn new(class: Class, demotion: Option<[Bytes; 4]>) -> Self {
        match demotion {
            Some(thresholds) if class == Class::Bulk => Level::Demoted { thresholds, at: 0, sent: 0 },
            _ => Level::Fixed(class),
        }
    }

    /// The class of a symbol of `bytes` bytes that leaves now; `first`: whatever was sent before it.
    #[inline]
    fn class_of_next(&mut self, first: bool, bytes: u16) -> Class {
        match self {
            Level::Fixed(class) => *class,
            Level::Demoted { thresholds, at, sent } => {
                let class = Class::LEVELS[if first { 0 } else { *at }];
                *sent += u64::from(bytes);
                while thresholds.get(*at).is_some_and(|threshold| *sent >= threshold.get()) {
                    *at += 1;
                }
                class
            }
        }
    }
}

/// The run of a source's part of a block.
fn want(block: BlockIndex, start: u32, stride: u8, count: u32) -> Option<Want> {
    let count = core::num::NonZeroU16::new(u16::try_from(count).ok()?)?;
    Some(Want { block, start, stride, count })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SCDP §IV: 10 KB, 100 KB, 1 MB and 10 MB.
    #[test]
    fn a_flow_drops_a_level_with_each_threshold_and_its_last_symbol_goes_first() {
        let demotion = crate::pull::PullFlowConfig::default().demotion;
        let mut level = Level::new(Class::Bulk, demotion);
        let classes: Vec<Class> = (0..12_000).map(|_| level.class_of_next(false, 1000)).collect();
        let first_of = |class: Class| classes.iter().position(|it| *it == class);
        let begins = Class::LEVELS.map(first_of);
        assert_eq!(begins, [0, 10, 100, 1000, 10_000].map(Some));
        assert_eq!(level.class_of_next(true, 1000), Class::First);
        let mut gentle = Level::new(Class::Gentle, demotion);
        assert_eq!(gentle.class_of_next(true, 1000), Class::Gentle, "a task that yields does so to the end");
        assert_eq!(Level::new(Class::Bulk, None).class_of_next(true, 1000), Class::Bulk);
    }
}
