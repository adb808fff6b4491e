//! One flow as its receiver sees it.

use core::net::SocketAddr;

use headwater_units::{BitRate, Bytes, Duration, FlowId, NodeId, PathId, Time};
use headwater_wire::{FlowGrant, FlowView};

use super::numbers::{Lost, Numbers, Seen};
use super::{SessionConfig, SessionFlow};
use crate::flow::rtt::Rtt;
use crate::task::close_handshake::CloseHandshake;

/// A window that has shrunk grows by one after so many packets: seldom enough that those which are lost by that are few.
const UNHARMED: u32 = 256;
/// A silent flow's next question waits at most so many times longer than its first, as a power of two.
const MOST_DOUBLINGS: u32 = 8;
/// A member of a group waits at most so many times longer: whatever it waits for, the others wait for too.
const GROUP_DOUBLINGS: u32 = 2;
/// A member of a group says its last pull again so often before it asks for one more: the others may be slow.
const GROUP_REPEATS: u32 = 2;

/// The pull that opens a flow may be there before the order to send: until something comes of it, it is said again after this long,
/// and after twice and four times as long. At first it asks for nothing that was not asked for; then for one more each time, but by a
/// group's flow: where all that the source has pushed is lost, the answer tells so long before the first timeout, which knows of no
/// round trip and waits for long.
const OPENS_AGAIN: Duration = Duration::from_millis(20);
const OPENINGS: u32 = 3;

/// A receiver that has left its group has so many times fewer symbols coming while the group goes on: it is one, the others are many,
/// and all of it may leave by one uplink.
const YIELDS: u32 = 8;
/// A group that nothing was heard of for so long does not go on.
const GROUP_LIVES: Duration = Duration::from_millis(50);
/// A silent flow is asked at least this often: a source keeps a flow for 10 s after what may have been its last pull
/// ([`release_after`](crate::pull::PullFlowConfig::release_after)).
const LONGEST_PATIENCE: Duration = Duration::from_secs(4);
/// A flow that is asked for a block alone keeps it for so many timeouts in a row: with another one it begins anew.
const LONG_SILENCE: u32 = 4;

/// State of one flow.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) id: FlowId,
    pub(super) node: NodeId,
    pub(super) at: Vec<SocketAddr>,
    pub(super) index: u8,
    pub(super) of: u8,
    /// Its source is a receiver itself.
    pub(super) relays: bool,
    /// What it brings is what this receiver passes on.
    pub(super) passed_on: bool,
    pub(super) group: Option<Group>,
    pub(super) path: Option<PathId>,
    /// What the source pushes is counted as coming, or the flow was opened.
    pub(super) begun: bool,
    /// The pull that opens it stands in the host's queue.
    pub(super) opening: bool,
    /// Such pulls that may yet be said again, while nothing has come.
    openings: u32,
    numbers: Numbers,
    /// Packets that were pushed or asked for.
    expected: u64,
    /// Those that were asked for; its low half is the sequence number of the newest pull.
    asked: u64,
    /// Of those that were expected, what may still come.
    pub(super) coming: u32,
    /// Pulls that stand in the host's queue.
    pub(super) waiting: u32,
    /// Those that have left it, and are said by the next one.
    pub(super) gathered: u32,
    /// Maximum number of symbols asked for or coming at a time.
    window: u32,
    /// The first window.
    first_window: u32,
    /// Packets that came since one was lost, or since the window grew.
    unharmed: u32,
    /// Nothing has come for so long that nobody waits for it.
    pub(super) silent: bool,
    /// Packets that were given up when it was silent, and are waited for since its answer.
    restored: u32,
    doublings: u32,
    /// When it was heard or asked last.
    pub(super) stirred: Time,
    /// When it was heard last, or began.
    pub(super) heard: Time,
    /// The packet by which the round-trip time is measured, and when it was asked for.
    timed: Option<(u64, Time)>,
    pub(super) rtt: Rtt,
    pub(super) stand: Stand,
    pub(super) symbols: u64,
    pub(super) useful: u64,
    pub(super) by_group: u64,
    trimmed: u64,
    lost: u64,
    /// Useful symbols, and when they were counted, as said to the controller last.
    viewed: (u64, Time),
    rate: BitRate,
}

/// State of a flow.
#[derive(Debug)]
pub(super) enum Stand {
    Live,
    /// Its source is told that it is over.
    Ending(CloseHandshake),
    Over,
}

/// The group's flow that brings its symbols.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) flow: FlowId,
    /// It brings those that this receiver asks for; else it brings what others ask for.
    pub(super) attached: bool,
    /// When it was heard last, or joined.
    heard: Time,
    numbers: Numbers,
}

/// What the arrival of a packet means to its flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Came {
    pub(super) seen: Seen,
    /// It was coming.
    pub(super) counted: bool,
    pub(super) lost: Lost,
    /// Symbols that were given up and may come after all.
    pub(super) restored: u32,
    /// Expected symbols that will never come: the source has sent all that it was asked for.
    pub(super) vain: u32,
}

/// What to say to a flow that has been silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Overdue {
    /// The pull that opened it again.
    Reopen,
    /// The same, and one more.
    ReopenWider,
    /// The newest pull again.
    Repeat,
    /// Everything is given up; one more.
    GiveUp,
}

impl Flow {
    pub(super) fn new(now: Time, grant: FlowGrant, window: u32, config: &SessionConfig) -> Self {
        let group =
            |flow| Group { flow, attached: true, heard: now, numbers: Numbers::new(config.reordering) };
        Flow {
            id: grant.flow,
            node: grant.node,
            at: grant.at,
            index: grant.index,
            of: grant.of,
            relays: grant.relays,
            passed_on: grant.passed_on,
            group: grant.group.map(group),
            path: None,
            begun: false,
            opening: false,
            openings: 0,
            numbers: Numbers::new(config.reordering),
            expected: 0,
            asked: 0,
            coming: 0,
            waiting: 0,
            gathered: 0,
            window,
            first_window: window,
            unharmed: 0,
            silent: false,
            restored: 0,
            doublings: 0,
            stirred: now,
            heard: now,
            timed: None,
            rtt: Rtt::new(config.rtt),
            stand: Stand::Live,
            symbols: 0,
            useful: 0,
            by_group: 0,
            trimmed: 0,
            lost: 0,
            viewed: (0, now),
            rate: BitRate::default(),
        }
    }

    /// Whether symbols may be asked of it.
    pub(super) fn is_live(&self) -> bool {
        matches!(self.stand, Stand::Live)
    }

    /// Whether nothing is left to say to it.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.stand, Stand::Over)
    }

    /// Whether it gets its symbols by its group's flow.
    pub(super) fn is_attached(&self) -> bool {
        self.group.as_ref().is_some_and(|group| group.attached)
    }

    /// Whether it has left its group.
    pub(super) fn is_detached(&self) -> bool {
        self.group.as_ref().is_some_and(|group| !group.attached)
    }

    /// Whether one more may be asked for.
    #[inline]
    pub(super) fn has_room(&self, now: Time) -> bool {
        self.room(now) > 0
    }

    /// Number of symbols that may still be asked for.
    #[inline]
    pub(super) fn room(&self, now: Time) -> u32 {
        let window = match &self.group {
            Some(group) if !group.attached && now.since(group.heard) < GROUP_LIVES => {
                (self.window / YIELDS).max(1)
            }
            _ => self.window,
        };
        let may = self.path.is_some() && self.begun && !self.opening && !self.silent && self.is_live();
        if may { window.saturating_sub(self.coming + self.waiting) } else { 0 }
    }

    /// The sequence number of the newest pull.
    pub(super) fn sequence(&self) -> u32 {
        self.asked as u32
    }

    /// From now on something may be expected of it.
    pub(super) fn begin(&mut self, now: Time) {
        self.begun = true;
        (self.stirred, self.heard) = (now, now);
    }

    /// The source pushes so many.
    pub(super) fn expect(&mut self, pushed: u32) {
        self.expected += u64::from(pushed);
        self.coming += pushed;
    }

    /// One more is asked for, of which it is `counted` that it comes.
    #[inline]
    pub(super) fn ask(&mut self, now: Time, counted: bool) {
        self.stirred = now;
        if self.timed.is_none() && counted {
            self.timed = Some((self.expected, now));
        }
        self.asked += 1;
        self.expected += 1;
        self.coming += u32::from(counted);
    }

    /// A packet of this flow, or of its group's (`by_group`), has come, or its header (`trimmed`). `answered`: with it the source has sent all that it was asked
    /// for, by the pull with these low bits and those before.
    #[inline]
    pub(super) fn on_packet(
        &mut self,
        now: Time,
        number: u32,
        block: u32,
        trimmed: bool,
        by_group: bool,
        answered: Option<u8>,
    ) -> Came {
        let attached = self.is_attached();
        let numbers = match &mut self.group {
            Some(group) if by_group => {
                group.heard = now;
                &mut group.numbers
            }
            _ => &mut self.numbers,
        };
        let number = expand(number, numbers.next());
        let is_new = number >= numbers.next();
        let (seen, lost) = numbers.arrive(number, block, trimmed);
        let mut came = Came { seen, counted: false, lost: Lost::default(), restored: 0, vain: 0 };
        // What a group's flow brings to others is a gift; what this one brings to a member that has not left it, a mistake.
        if by_group != attached || seen == Seen::Absurd {
            return came;
        }
        let next = numbers.next();
        // More may have left than this end counts.
        self.expected = self.expected.max(next);
        (self.stirred, self.heard, self.doublings, self.openings) = (now, now, 0, 0);
        came.lost = Lost { packets: lost.packets.min(self.coming), ..lost };
        self.coming -= came.lost.packets;
        self.lost += u64::from(came.lost.packets);
        let vain = answered
            .filter(|_| number + 1 == next)
            .map_or(0, |pull| self.asked_in_vain(next, pull, by_group));
        self.expected -= u64::from(vain);
        if std::mem::take(&mut self.silent) {
            let above =
                u32::try_from(self.expected.saturating_sub(next)).unwrap_or(u32::MAX).min(self.window);
            came.restored = above.saturating_sub(self.coming);
            self.coming += came.restored;
            self.restored = came.restored;
        } else if seen == Seen::Awaited && self.coming > 0 {
            self.coming -= 1;
            self.restored = self.restored.saturating_sub(1);
            came.counted = true;
            came.vain = vain.min(self.coming);
            self.coming -= came.vain;
            self.restored = self.restored.saturating_sub(came.vain);
        }
        if is_new
            && let Some((timed, at)) = self.timed
            && number >= timed
        {
            self.timed = None;
            if number == timed || by_group {
                self.rtt.on_sample(now, now.since(at), Duration::ZERO);
            }
        }
        came
    }

    /// Of those that are expected from `next` on after a silence, how many nobody will send: all but those that were asked for since
    /// the source heard the pull with these low bits. What was lost on the way to it, or was more than it may owe, would be counted on
    /// for ever, and take of the window. A group does not say whose pulls it has heard.
    fn asked_in_vain(&self, next: u64, pull: u8, by_group: bool) -> u32 {
        let open = u32::try_from(self.expected - next).unwrap_or(u32::MAX);
        let may_be = if self.silent { open } else { self.restored.min(open) };
        let unheard = (self.asked as u8).wrapping_sub(pull);
        match (open as u8).wrapping_sub(unheard) {
            _ if by_group => may_be,
            // Fewer than none: it was asked for more than this end counts.
            128.. => 0,
            vain => u32::from(vain).min(may_be),
        }
    }

    pub(super) fn on_trimmed(&mut self) {
        self.trimmed += 1;
    }

    /// The pull that opens it has left, and asks for so many.
    pub(super) fn open(&mut self, now: Time, pushed: u32) {
        (self.stirred, self.opening, self.openings) = (now, false, OPENINGS);
        self.expect(pushed);
    }

    /// Asks for less at a time where packets are lost, down to half, and slowly for as much as at first again: where many send to
    /// one and each to many, the queues before them may be too short for all.
    pub(super) fn fit_window(&mut self, lost: bool) {
        let least = (self.first_window / 2).max(2).min(self.first_window);
        self.unharmed = if lost { 0 } else { self.unharmed + 1 };
        if lost && self.window > least {
            self.window = (self.window * 3 / 4).max(least);
        } else if self.unharmed >= UNHARMED && self.window < self.first_window {
            (self.window, self.unharmed) = (self.window + 1, 0);
        }
    }

    /// When it has been silent for too long, if something is to be expected of it.
    pub(super) fn overdue_at(&self) -> Option<Time> {
        let waits = self.coming > 0 || self.silent;
        let most = if self.is_attached() { GROUP_DOUBLINGS } else { MOST_DOUBLINGS };
        let patience = match self.openings {
            0 => (self.rtt.rto() * (1 << self.doublings.min(most))).min(LONGEST_PATIENCE),
            left => OPENS_AGAIN.min(self.rtt.rto()) * (1 << (OPENINGS - left)),
        };
        (waits && self.path.is_some() && self.waiting == 0 && self.is_live()).then(|| self.stirred + patience)
    }

    /// The flow has been silent for too long.
    pub(super) fn on_overdue(&mut self, now: Time) -> Overdue {
        self.stirred = now;
        if self.openings > 0 {
            let first = self.openings == OPENINGS;
            self.openings -= 1;
            return if first || self.group.is_some() { Overdue::Reopen } else { Overdue::ReopenWider };
        }
        self.doublings = self.doublings.saturating_add(1);
        self.timed = None;
        if self.is_attached() && self.doublings <= GROUP_REPEATS {
            return Overdue::Repeat;
        }
        self.give_up();
        Overdue::GiveUp
    }

    /// Whether it has been silent for long.
    pub(super) fn is_gone(&self) -> bool {
        self.doublings >= LONG_SILENCE
    }

    fn give_up(&mut self) {
        self.lost += u64::from(self.coming);
        (self.coming, self.silent) = (0, true);
        let numbers = match &mut self.group {
            Some(group) if group.attached => &mut group.numbers,
            _ => &mut self.numbers,
        };
        numbers.give_up_all();
        // Pulls that were lost are not what it has been waiting for this time: the last answer was to a newer one. A source bounds what
        // it owes, so some were asked for in vain. To count on them for ever would leave room for one packet in each timeout.
        if std::mem::take(&mut self.restored) > 0 {
            self.expected = numbers.next();
        }
    }

    /// It leaves its group, and counts from zero.
    pub(super) fn leave_group(&mut self, now: Time) {
        if let Some(group) = &mut self.group {
            group.attached = false;
            group.numbers.give_up_all();
        }
        (self.expected, self.asked, self.coming, self.silent) = (0, 0, 0, false);
        (self.timed, self.stirred, self.doublings, self.openings) = (None, now, 0, 0);
        self.restored = 0;
    }

    pub(super) fn view(&mut self, now: Time, symbol: u64) -> FlowView {
        let (useful, since) = std::mem::replace(&mut self.viewed, (self.useful, now));
        let bytes = Bytes::new((self.useful - useful) * symbol);
        let span = now.since(since);
        self.rate = if span > Duration::ZERO { bytes / span } else { self.rate };
        let waits = self.coming > 0 || self.silent;
        FlowView {
            flow: self.id,
            bytes: Bytes::new(self.useful * symbol),
            rate: self.rate,
            silent: if waits { now.since(self.heard) } else { Duration::ZERO },
        }
    }

    pub(super) fn stats(&self) -> SessionFlow {
        SessionFlow {
            rate: self.rate,
            flow: self.id,
            node: self.node,
            symbols: self.symbols,
            useful: self.useful,
            by_group: self.by_group,
            relays: self.relays,
            trimmed: self.trimmed,
            lost: self.lost,
            asked: self.asked,
            coming: u64::from(self.coming),
            rtt: self.rtt.smoothed(),
            silent: self.silent,
            ended: !self.is_live(),
        }
    }
}

/// The whole number of a packet of which 32 bits travelled: the one that is nearest to what is expected.
#[inline]
fn expand(number: u32, next: u64) -> u64 {
    let ahead = number.wrapping_sub(next as u32) as i32;
    next.saturating_add_signed(i64::from(ahead))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant() -> FlowGrant {
        FlowGrant {
            flow: FlowId(1),
            node: NodeId([1; 32]),
            at: Vec::new(),
            key: headwater_units::FlowKey([0; 32]),
            index: 0,
            of: 1,
            group: None,
            relays: false,
            passed_on: true,
        }
    }

    #[test]
    fn the_pull_that_opens_a_flow_is_said_again_soon_and_then_as_any_other() {
        let (at, ms) = (Time::ZERO, Duration::from_millis);
        let config = SessionConfig::default();
        let mut flow = Flow::new(at, grant(), 10, &config);
        flow.path = Some(PathId(1));
        flow.begin(at);
        flow.open(at, 10);
        let mut now = at;
        for (patience, again) in
            [(20, Overdue::Reopen), (40, Overdue::ReopenWider), (80, Overdue::ReopenWider)]
        {
            assert_eq!(flow.overdue_at(), Some(now + ms(patience)));
            now += ms(patience);
            assert_eq!(flow.on_overdue(now), again);
        }
        assert_eq!(flow.coming, 10, "nothing is given up");
        assert_eq!(flow.overdue_at(), Some(now + config.rtt.initial_rto));
        flow.open(now, 0);
        flow.on_packet(now, 0, 0, false, false, None);
        assert_eq!(flow.overdue_at(), Some(now + config.rtt.initial_rto), "the source knows it");
    }

    /// Goal: what a source will never send is waited for once, not after each timeout.
    #[test]
    fn what_was_asked_for_in_vain_is_not_counted_on_for_ever() {
        let (ms, mut now) = (Duration::from_millis, Time::ZERO);
        let mut flow = Flow::new(now, grant(), 10, &SessionConfig::data_centre());
        flow.path = Some(PathId(1));
        flow.begin(now);
        flow.expect(10);
        (0..100).for_each(|_| flow.ask(now, false));
        flow.on_packet(now, 0, 0, false, false, None);
        let mut answered = |flow: &mut Flow, number| {
            now += ms(1000);
            assert_eq!(flow.on_overdue(now), Overdue::GiveUp);
            flow.ask(now, false);
            flow.on_packet(now, number, 0, false, false, None);
            flow.room(now)
        };
        assert_eq!(answered(&mut flow, 1), 0, "the pulls before it may have been lost");
        assert_eq!(answered(&mut flow, 2), 10, "they were not");
        assert_eq!(answered(&mut flow, 3), 10);
    }

    /// Goal: a source that is silent for long does not take its receiver for gone.
    #[test]
    fn a_silent_source_is_asked_before_it_lets_go_of_the_flow() {
        let mut flow = Flow::new(Time::ZERO, grant(), 10, &SessionConfig::default());
        flow.path = Some(PathId(1));
        flow.begin(Time::ZERO);
        flow.expect(10);
        let mut now = Time::ZERO;
        for _ in 0..20 {
            let next = flow.overdue_at().expect("it waits");
            assert!(next.since(now) * 2 < crate::pull::PullFlowConfig::default().release_after);
            now = next;
            flow.on_overdue(now);
        }
    }

    #[test]
    fn numbers_are_restored_around_what_is_expected() {
        assert_eq!(expand(5, 3), 5);
        assert_eq!(expand(u32::MAX, 3), 0, "nothing is before the first");
        assert_eq!(expand(2, (1 << 32) - 1), (1 << 32) + 2);
        assert_eq!(expand(u32::MAX, (1 << 32) + 2), (1 << 32) - 1);
    }
}
