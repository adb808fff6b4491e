//! One flow as its receiver sees it.
//!
//! ```text
//!   Closed --where symbols go is known--> Queued --the pull leaves--> Said --a symbol, or said often enough--> Open
//!      `----- the source pushes by itself ------------------------------------------------------------------->'
//!   whichever it is:  Live --the task is over, or goes on without it--> Ending --answered, or said often enough--> Over
//! ```

use headwater_units::{Duration, FlowId, PathId, Time};
use headwater_wire::{FlowGrant, FlowView};

use super::expected::{Came, Expected};
use super::numbers::{Lost, Numbers, Seen};
use super::{SessionConfig, SessionFlow};
use headwater_flow::rtt::Rtt;
use headwater_flow::task::brought::Brought;
use headwater_flow::task::close_handshake::Stand;

/// Most doublings of the wait between questions to a silent flow.
const MOST_DOUBLINGS: u32 = 8;
/// The same for a member of a group: whatever it waits for, the others wait for too.
const GROUP_DOUBLINGS: u32 = 2;
/// Number of times that a member of a group repeats its last pull before it asks for one more: the others may be slow.
const GROUP_REPEATS: u32 = 2;

/// Interval after which the pull that opens a flow is repeated until something comes of it, then twice and four times
/// that: it may be there before the order to send. At first it asks for nothing that was not asked for; then for one
/// more each time, but by a group's flow: where all that the source has pushed is lost, the answer tells so long before
/// the first timeout, which knows of no round trip and waits for long.
const OPENS_AGAIN: Duration = Duration::from_millis(20);
const OPENINGS: u32 = 3;

/// Factor by which a receiver that has left its group has fewer symbols coming while the group goes on: it is one, the
/// others are many, and all of it may leave by one uplink.
const YIELDS: u32 = 8;
/// Silence after which a group does not go on.
const GROUP_LIVES: Duration = Duration::from_millis(50);
/// Longest interval between questions to a silent flow: a source keeps a flow for 10 s after what may have been its
/// last pull ([`release_after`](crate::pull::PullFlowConfig::release_after)).
const LONGEST_PATIENCE: Duration = Duration::from_secs(4);
/// Number of timeouts in a row for which a flow that is asked for a block alone keeps it: with another one it begins
/// anew.
const LONG_SILENCE: u32 = 4;

/// State of one flow.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) grant: FlowGrant,
    pub(super) path: Option<PathId>,
    opening: Opening,
    pub(super) stand: Stand,
    pub(super) group: Option<Group>,
    numbers: Numbers,
    pub(super) expected: Expected,
    /// Pulls that stand in the host's queue.
    pub(super) waiting: u32,
    /// Most packets that are coming or asked for at a time.
    window: u32,
    patience: Patience,
    /// The packet by which the round-trip time is measured, and when it was asked for.
    timed: Option<(u64, Time)>,
    pub(super) rtt: Rtt,
    pub(super) brought: Brought,
    pub(super) by_group: u64,
    pub(super) trimmed: u64,
    lost: u64,
}

/// Whether its source knows that it is to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Opening {
    /// Nothing is expected yet.
    Closed,
    /// The pull that opens it stands in the host's queue.
    Queued,
    /// It has left. Number of times that it may yet be repeated, while nothing has come.
    Said { left: u32 },
    /// Packets are handled as those of any flow.
    Open,
}

/// The group's flow that brings its symbols.
#[derive(Debug)]
pub(super) struct Group {
    pub(super) flow: FlowId,
    /// It brings those that this receiver asks for; else it brings what others ask for.
    attached: bool,
    /// When it was heard last, or joined.
    heard: Time,
    numbers: Numbers,
}

/// For how long an answer is waited for.
#[derive(Debug)]
struct Patience {
    /// When it was heard or asked last.
    stirred: Time,
    /// When it was heard last, or began.
    heard: Time,
    doublings: u32,
}

/// Action for a flow that has been silent.
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
        let numbers = || Numbers::new(config.reordering);
        let group = |flow| Group { flow, attached: true, heard: now, numbers: numbers() };
        Flow {
            path: None,
            opening: Opening::Closed,
            stand: Stand::Live,
            group: grant.group.map(group),
            numbers: numbers(),
            expected: Expected::default(),
            waiting: 0,
            window,
            patience: Patience { stirred: now, heard: now, doublings: 0 },
            timed: None,
            rtt: Rtt::new(config.rtt),
            brought: Brought::new(now),
            by_group: 0,
            trimmed: 0,
            lost: 0,
            grant,
        }
    }

    pub(super) fn id(&self) -> FlowId {
        self.grant.flow
    }

    /// Whether symbols may be asked of it.
    pub(super) fn is_live(&self) -> bool {
        self.stand.is_live()
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
        let is_open = matches!(self.opening, Opening::Said { .. } | Opening::Open);
        let may = self.path.is_some() && is_open && !self.expected.is_silent() && self.is_live();
        if may { window.saturating_sub(self.expected.coming + self.waiting) } else { 0 }
    }

    pub(super) fn has_begun(&self) -> bool {
        self.opening != Opening::Closed
    }

    /// From now on something may be expected of it, after a pull if it has to be opened.
    pub(super) fn begin(&mut self, now: Time, by_pull: bool) {
        self.opening = if by_pull { Opening::Queued } else { Opening::Open };
        (self.patience.stirred, self.patience.heard) = (now, now);
    }

    /// The pull that opens it has left, and asks for `pushed` packets; or for none, and is not to be repeated.
    pub(super) fn open(&mut self, now: Time, pushed: Option<u32>) {
        self.opening = Opening::Open;
        if let Some(pushed) = pushed {
            self.opening = Opening::Said { left: OPENINGS };
            self.patience.stirred = now;
            self.expected.push(pushed);
        }
    }

    /// One more is asked for, of which it is `counted` that it comes.
    #[inline]
    pub(super) fn ask(&mut self, now: Time, counted: bool) {
        self.patience.stirred = now;
        if self.timed.is_none() && counted {
            self.timed = Some((self.expected.packets(), now));
        }
        self.expected.ask(counted);
    }

    /// Repeats the newest pull.
    pub(super) fn repeat(&mut self, now: Time) {
        self.patience.stirred = now;
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
        let mut came = Came { seen, counted: false, lost, restored: 0, vain: 0 };
        // Symbols of a group's flow for others are a gift; symbols of this flow to a member that has not left the group
        // are a mistake.
        if by_group != attached || seen == Seen::Absurd {
            came.lost = Lost::default();
            return came;
        }
        let next = numbers.next();
        self.patience = Patience { stirred: now, heard: now, doublings: 0 };
        if let Opening::Said { .. } = self.opening {
            self.opening = Opening::Open;
        }
        let answered = answered.filter(|_| number + 1 == next);
        self.expected.on_arrival(&mut came, next, answered, by_group, self.window);
        self.lost += u64::from(came.lost.packets);
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

    /// When it has been silent for too long, if something is to be expected of it.
    pub(super) fn overdue_at(&self) -> Option<Time> {
        let waits = self.expected.is_awaited() && self.path.is_some() && self.waiting == 0 && self.is_live();
        let most = if self.is_attached() { GROUP_DOUBLINGS } else { MOST_DOUBLINGS };
        let patience = match self.opening {
            Opening::Said { left } => OPENS_AGAIN.min(self.rtt.rto()) * (1 << (OPENINGS - left)),
            _ => (self.rtt.rto() * (1 << self.patience.doublings.min(most))).min(LONGEST_PATIENCE),
        };
        waits.then(|| self.patience.stirred + patience)
    }

    /// The flow has been silent for too long.
    pub(super) fn on_overdue(&mut self, now: Time) -> Overdue {
        self.patience.stirred = now;
        if let Opening::Said { left } = self.opening {
            self.opening = if left > 1 { Opening::Said { left: left - 1 } } else { Opening::Open };
            let again = left == OPENINGS || self.group.is_some();
            return if again { Overdue::Reopen } else { Overdue::ReopenWider };
        }
        self.patience.doublings = self.patience.doublings.saturating_add(1);
        self.timed = None;
        if self.is_attached() && self.patience.doublings <= GROUP_REPEATS {
            return Overdue::Repeat;
        }
        let numbers = match &mut self.group {
            Some(group) if group.attached => &mut group.numbers,
            _ => &mut self.numbers,
        };
        numbers.give_up_all();
        self.lost += u64::from(self.expected.give_up(numbers.next()));
        Overdue::GiveUp
    }

    /// Whether it has been silent for long.
    pub(super) fn is_gone(&self) -> bool {
        self.patience.doublings >= LONG_SILENCE
    }

    /// For how long nothing has come.
    pub(super) fn silence(&self, now: Time) -> Duration {
        now.since(self.patience.heard)
    }

    /// It leaves its group, and counts from zero.
    pub(super) fn leave_group(&mut self, now: Time) {
        if let Some(group) = &mut self.group {
            group.attached = false;
            group.numbers.give_up_all();
        }
        (self.expected, self.timed) = (Expected::default(), None);
        (self.patience.stirred, self.patience.doublings) = (now, 0);
        if let Opening::Said { .. } = self.opening {
            self.opening = Opening::Open;
        }
    }

    pub(super) fn view(&mut self, now: Time, symbol: u64) -> FlowView {
        let silent = if self.expected.is_awaited() { self.silence(now) } else { Duration::ZERO };
        self.brought.view(now, self.grant.flow, symbol, silent)
    }

    pub(super) fn stats(&self) -> SessionFlow {
        SessionFlow {
            rate: self.brought.rate(),
            flow: self.grant.flow,
            node: self.grant.node,
            symbols: self.brought.symbols,
            useful: self.brought.useful,
            by_group: self.by_group,
            trimmed: self.trimmed,
            lost: self.lost,
            asked: self.expected.asked(),
            coming: u64::from(self.expected.coming),
            rtt: self.rtt.smoothed(),
            silent: self.expected.is_silent(),
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
            node: headwater_units::NodeId([1; 32]),
            at: Vec::new(),
            key: headwater_units::FlowKey([0; 32]),
            index: 0,
            of: 1,
            group: None,
            relays: false,
        }
    }

    #[test]
    fn the_pull_that_opens_a_flow_is_said_again_soon_and_then_as_any_other() {
        let (at, ms) = (Time::ZERO, Duration::from_millis);
        let config = SessionConfig::default();
        let mut flow = Flow::new(at, grant(), 10, &config);
        flow.path = Some(PathId(1));
        flow.begin(at, true);
        flow.open(at, Some(10));
        let mut now = at;
        for (patience, again) in
            [(20, Overdue::Reopen), (40, Overdue::ReopenWider), (80, Overdue::ReopenWider)]
        {
            assert_eq!(flow.overdue_at(), Some(now + ms(patience)));
            now += ms(patience);
            assert_eq!(flow.on_overdue(now), again);
        }
        assert_eq!(flow.expected.coming, 10, "nothing is given up");
        assert_eq!(flow.overdue_at(), Some(now + config.rtt.initial_rto));
        flow.open(now, Some(0));
        flow.on_packet(now, 0, 0, false, false, None);
        assert_eq!(flow.overdue_at(), Some(now + config.rtt.initial_rto), "the source knows it");
    }

    /// Goal: what a source will never send is waited for once, not after each timeout.
    #[test]
    fn what_was_asked_for_in_vain_is_not_counted_on_for_ever() {
        let (ms, mut now) = (Duration::from_millis, Time::ZERO);
        let mut flow = Flow::new(now, grant(), 10, &SessionConfig::data_centre());
        flow.path = Some(PathId(1));
        flow.begin(now, false);
        flow.expected.push(10);
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
        flow.begin(Time::ZERO, false);
        flow.expected.push(10);
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
