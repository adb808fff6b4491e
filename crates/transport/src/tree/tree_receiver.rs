//! A receiver's end of one tree (Datacast §V-B): which symbols it asks for, and when it asks again.
//!
//! ```text
//!   begin(block) -> asks for NEXT of it, and for its symbols in order, w of them at most
//!                   a symbol comes: one more is asked for
//!                   the oldest has waited for a timeout since the one before it was answered: it is asked for again
//!   all asked for, and NEXT is known: goes on to the next block, while symbols of this one are still on their way
//! ```
//! The timer is TCP's (RFC 6298): restarted by each answer in order, doubled when it fires, once per flight, and kept so until an
//! interest that was not repeated is answered (Karn). Interests wait at the source when its rate is low; a timer that ran for each
//! of them alone would repeat them all, and some just after their symbol was sent, which the source takes for congestion.
//!
//! The missing symbols of a block are not known here: the owner of the blocks names them ([`Asks`]).

use std::collections::VecDeque;

use headwater_machine::Packet;
use headwater_units::{BlockIndex, Duration, Esi, FlowId, Geometry, PathId, SymbolId, Time};
use headwater_wire::{Announcement, Body, Class, FlowGrant, NEXT};

use super::TreeReceiverConfig;
use headwater_flow::rtt::Rtt;
use headwater_flow::task::Asks;
use headwater_flow::task::asking::{Asker, AskerCounts, Lacks};

/// Counts of one tree at a receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeReceiverStats {
    /// Interests for symbols, the repeated ones too.
    pub interests: u64,
    /// Interests that were repeated after a timeout.
    pub repeated: u64,
    /// Symbols that answered an interest.
    pub answers: u64,
    /// Symbols and announcements that nobody had asked for, or that had come already.
    pub strays: u64,
}

/// An interest that is out.
#[derive(Clone, Copy, Debug)]
struct Out {
    name: SymbolId,
    at: Time,
    again: bool,
}

/// Knowledge of the block after the current one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Follows {
    /// Nothing yet; asked for.
    Unknown,
    Block(BlockIndex),
    Nothing,
}

/// One tree at a receiver.
#[derive(Debug)]
pub struct TreeReceiver {
    config: TreeReceiverConfig,
    flow: FlowId,
    path: PathId,
    /// The block whose symbols are asked for, and the first ESI of it that was not asked for.
    at: Option<(BlockIndex, u32)>,
    follows: Follows,
    /// The name to ask for at once, beside the symbols.
    asks_next: bool,
    /// Blocks that must come again.
    again: VecDeque<(BlockIndex, u32)>,
    out: VecDeque<Out>,
    /// Of `out`, those that took credit.
    owed: u32,
    /// When the oldest interest was answered last.
    progress: Time,
    /// When the timeout was made longer last.
    backed_off: Time,
    rtt: Rtt,
    stats: TreeReceiverStats,
}

impl TreeReceiver {
    /// One that begins with this block; `path` leads to the next device towards the source.
    pub fn new(config: TreeReceiverConfig, flow: FlowId, path: PathId, first: BlockIndex) -> Self {
        TreeReceiver {
            config,
            flow,
            path,
            at: Some((first, 0)),
            follows: Follows::Unknown,
            asks_next: true,
            again: VecDeque::new(),
            out: VecDeque::new(),
            owed: 0,
            progress: Time::ZERO,
            backed_off: Time::ZERO,
            rtt: Rtt::new(config.rtt),
            stats: TreeReceiverStats::default(),
        }
    }

    /// The tree.
    pub fn flow(&self) -> FlowId {
        self.flow
    }

    /// Its counters.
    pub fn stats(&self) -> TreeReceiverStats {
        self.stats
    }

    /// The smoothed round trip of an interest and its answer, waiting at the source included.
    pub fn rtt(&self) -> &Rtt {
        &self.rtt
    }

    /// Interests that are out and took credit.
    pub fn outstanding(&self) -> u32 {
        self.owed
    }

    /// Whether the tree has nothing more to bring.
    pub fn is_over(&self) -> bool {
        self.at.is_none() && self.again.is_empty() && self.out.is_empty()
    }

    /// Begins with another block, as after a repair of the tree; what is out is asked for again.
    pub fn begin_again(&mut self, path: PathId, block: BlockIndex) {
        self.path = path;
        self.at = Some((block, 0));
        self.follows = Follows::Unknown;
        self.asks_next = true;
        self.again.clear();
        self.out.clear();
        self.owed = 0;
    }

    /// A block failed its check: all of it is asked for once more, before anything else.
    pub fn ask_again(&mut self, block: BlockIndex) {
        self.again.push_back((block, 0));
    }

    /// A symbol has come down the tree. `false`: nobody was waiting for it.
    pub fn on_symbol(&mut self, now: Time, name: SymbolId) -> bool {
        let known = self.answered(now, name);
        self.owed -= u32::from(known);
        match known {
            true => self.stats.answers += 1,
            false => self.stats.strays += 1,
        }
        known
    }

    /// Which block comes next.
    pub fn on_announcement(&mut self, now: Time, announcement: Announcement) {
        let current = self.at.is_some_and(|(block, _)| block == announcement.block);
        if !self.answered(now, announcement.name()) || !current || self.follows != Follows::Unknown {
            self.stats.strays += 1;
            return;
        }
        self.follows = announcement.next.map_or(Follows::Nothing, Follows::Block);
    }

    /// The next interest that may leave now.
    pub fn next(&mut self, now: Time, missing: &impl Asks) -> Option<Packet> {
        if let Some(name) = self.overdue(now, missing) {
            return Some(self.ask(name));
        }
        let block = self.at.map(|(block, _)| block);
        if let Some(block) = block.filter(|_| std::mem::take(&mut self.asks_next)) {
            let name = SymbolId { block, esi: NEXT };
            self.send_out(now, name, false);
            return Some(self.ask(name));
        }
        while let Some((block, from)) = self.again.front().copied().filter(|_| self.has_credit()) {
            let Some(esi) = missing.first_missing(block, from) else {
                self.again.pop_front();
                continue;
            };
            self.again[0].1 = esi + 1;
            return Some(self.ask_for(now, SymbolId { block, esi: Esi(esi) }));
        }
        while let Some((block, from)) = self.at.filter(|_| self.has_credit()) {
            if !missing.has_room(block) {
                return None;
            }
            let Some(esi) = missing.first_missing(block, from) else {
                match self.follows {
                    Follows::Unknown => return None,
                    Follows::Nothing => self.at = None,
                    Follows::Block(next) => {
                        self.at = Some((next, 0));
                        self.follows = Follows::Unknown;
                        let name = SymbolId { block: next, esi: NEXT };
                        self.send_out(now, name, false);
                        return Some(self.ask(name));
                    }
                }
                continue;
            };
            self.at = Some((block, esi + 1));
            return Some(self.ask_for(now, SymbolId { block, esi: Esi(esi) }));
        }
        None
    }

    fn has_credit(&self) -> bool {
        self.owed < self.config.credit
    }

    fn ask_for(&mut self, now: Time, name: SymbolId) -> Packet {
        self.owed += 1;
        self.stats.interests += 1;
        self.send_out(now, name, false);
        self.ask(name)
    }

    /// When an interest is overdue next, if nothing comes before.
    pub fn deadline(&self) -> Option<Time> {
        self.out.front().map(|oldest| oldest.at.max(self.progress) + self.rtt.rto())
    }

    fn send_out(&mut self, now: Time, name: SymbolId, again: bool) {
        self.out.push_back(Out { name, at: now, again });
    }

    /// An interest whose time is up, asked for again. Interests that are of no use any more are given up.
    fn overdue(&mut self, now: Time, missing: &impl Asks) -> Option<SymbolId> {
        while self.deadline().is_some_and(|due| now >= due) {
            let out = self.out.pop_front()?;
            let is_next = out.name.esi == NEXT;
            if !is_next && missing.first_missing(out.name.block, out.name.esi.0) != Some(out.name.esi.0) {
                self.owed -= 1;
                continue;
            }
            // Requests that left together are lost together: the timeout grows once for all of them. Interests that are
            // still out wait no longer.
            if out.at >= self.backed_off {
                self.backed_off = now;
                self.rtt.back_off();
            }
            self.stats.interests += u64::from(!is_next);
            self.stats.repeated += u64::from(!is_next);
            self.send_out(now, out.name, true);
            return Some(out.name);
        }
        None
    }

    /// The interest for this name is answered; `false` if there was none.
    fn answered(&mut self, now: Time, name: SymbolId) -> bool {
        let Some(at) = self.out.iter().position(|out| out.name == name) else { return false };
        let Some(out) = self.out.remove(at) else { return false };
        if at == 0 {
            self.progress = now;
        }
        // Karn's rule: whose answer it is nobody knows where it was asked for twice.
        if !out.again {
            self.rtt.on_progress();
            self.rtt.on_sample(now, now.since(out.at), Duration::ZERO);
        }
        true
    }

    fn ask(&self, name: SymbolId) -> Packet {
        Packet::of_flow(self.path, self.flow, Class::Control, Body::Interest(name.into()))
    }
}

impl Asker for TreeReceiver {
    type Config = TreeReceiverConfig;

    const IS_GROUPS: bool = true;

    fn new(config: &TreeReceiverConfig, grant: &FlowGrant, path: PathId, geometry: Geometry) -> Option<Self> {
        let first = BlockIndex(grant.index.into());
        let is_there = first.0 < geometry.layout().block_count();
        is_there.then(|| TreeReceiver::new(*config, grant.flow, path, first))
    }

    fn on_symbol(&mut self, now: Time, name: SymbolId) {
        self.on_symbol(now, name);
    }

    fn hear(&mut self, now: Time, _path: PathId, body: &Body) -> bool {
        let Body::Announcement(announcement) = body else { return false };
        self.on_announcement(now, *announcement);
        true
    }

    fn ask_again(&mut self, block: BlockIndex) {
        self.ask_again(block);
    }

    fn next(&mut self, now: Time, lacks: &Lacks<'_>) -> Option<Packet> {
        self.next(now, lacks)
    }

    fn deadline(&self) -> Option<Time> {
        self.deadline()
    }

    fn counts(&self) -> AskerCounts {
        AskerCounts {
            asked: self.stats.interests,
            repeated: self.stats.repeated,
            outstanding: u64::from(self.owed),
            rtt: self.rtt.smoothed(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Blocks of five symbols, and what is here of them.
    #[derive(Default)]
    struct Here(BTreeSet<(u32, u32)>);

    impl Asks for Here {
        fn first_missing(&self, block: BlockIndex, from: u32) -> Option<u32> {
            (from..5).find(|esi| !self.0.contains(&(block.0, *esi)))
        }
    }

    fn at(us: u64) -> Time {
        Time::ZERO + Duration::from_micros(us)
    }

    fn name(block: u32, esi: u32) -> SymbolId {
        SymbolId { block: BlockIndex(block), esi: Esi(esi) }
    }

    fn receiver(credit: u32) -> TreeReceiver {
        let config = TreeReceiverConfig { credit, ..TreeReceiverConfig::default() };
        TreeReceiver::new(config, FlowId(1), PathId(1), BlockIndex(0))
    }

    fn asks(receiver: &mut TreeReceiver, here: &Here, now: Time) -> Vec<SymbolId> {
        let next = || receiver.next(now, here);
        let name = |packet: Packet| match packet.datagram.body {
            Body::Interest(interest) => interest.name,
            other => panic!("{other:?}"),
        };
        std::iter::from_fn(next).map(name).collect()
    }

    fn announce(block: u32, next: Option<u32>) -> Announcement {
        Announcement { block: BlockIndex(block), next: next.map(BlockIndex) }
    }

    #[test]
    fn it_asks_for_as_many_symbols_as_it_has_credit_and_for_what_comes_next() {
        let (mut receiver, mut here) = (receiver(2), Here::default());
        assert_eq!(asks(&mut receiver, &here, at(0)), [name(0, NEXT.0), name(0, 0), name(0, 1)]);
        assert!(receiver.on_symbol(at(10), name(0, 0)));
        here.0.insert((0, 0));
        assert_eq!(asks(&mut receiver, &here, at(10)), [name(0, 2)]);
        assert!(!receiver.on_symbol(at(11), name(0, 0)), "twice");
    }

    #[test]
    fn it_goes_on_to_the_announced_block_without_waiting_for_the_last_symbols() {
        let (mut receiver, here) = (receiver(8), Here::default());
        assert_eq!(asks(&mut receiver, &here, at(0)).len(), 6);
        receiver.on_announcement(at(10), announce(0, Some(7)));
        assert_eq!(asks(&mut receiver, &here, at(10)), [name(7, NEXT.0), name(7, 0), name(7, 1), name(7, 2)]);
        assert!(receiver.on_symbol(at(11), name(0, 4)), "of the block before");
    }

    #[test]
    fn it_asks_only_for_what_is_missing_and_ends_with_the_last_block() {
        let (mut receiver, mut here) = (receiver(8), Here::default());
        here.0.extend([(0, 0), (0, 1), (0, 3), (0, 4)]);
        assert_eq!(asks(&mut receiver, &here, at(0)), [name(0, NEXT.0), name(0, 2)]);
        receiver.on_announcement(at(10), announce(0, None));
        receiver.on_symbol(at(10), name(0, 2));
        here.0.insert((0, 2));
        assert_eq!(asks(&mut receiver, &here, at(10)), []);
        assert!(receiver.is_over());
    }

    #[test]
    fn what_does_not_come_in_time_is_asked_for_again_and_later_each_time() {
        let (mut receiver, here) = (receiver(1), Here::default());
        asks(&mut receiver, &here, at(0));
        receiver.on_announcement(at(1000), announce(0, None));
        // One sample of 1 ms: SRTT + 4 RTTVAR, from the answer on.
        assert_eq!(receiver.deadline(), Some(at(4000)));
        assert_eq!(asks(&mut receiver, &here, at(3999)), []);
        assert_eq!(asks(&mut receiver, &here, at(4000)), [name(0, 0)]);
        assert_eq!(receiver.deadline(), Some(at(10_000)));
        assert_eq!(asks(&mut receiver, &here, at(10_000)), [name(0, 0)]);
        assert_eq!(receiver.deadline(), Some(at(22_000)));
        assert_eq!((receiver.stats().repeated, receiver.outstanding()), (2, 1));
    }

    #[test]
    fn answers_in_order_keep_the_timer_from_firing_for_those_that_wait_behind() {
        let (mut receiver, mut here) = (receiver(3), Here::default());
        asks(&mut receiver, &here, at(0));
        receiver.on_announcement(at(1000), announce(0, None));
        for (n, us) in [(0, 3500), (1, 7000)] {
            receiver.on_symbol(at(us), name(0, n));
            here.0.insert((0, n));
            assert_eq!(asks(&mut receiver, &here, at(us)), [name(0, n + 3)]);
        }
        assert_eq!(receiver.stats().repeated, 0);
        // 2 is lost: those behind it do not hold its timer up.
        let due = receiver.deadline().unwrap();
        receiver.on_symbol(at(7500), name(0, 3));
        assert!(receiver.deadline().unwrap() <= due + Duration::from_millis(4));
    }

    #[test]
    fn an_interest_for_what_came_another_way_is_given_up_when_its_time_is_up() {
        let (mut receiver, mut here) = (receiver(1), Here::default());
        asks(&mut receiver, &here, at(0));
        here.0.extend((0..5).map(|esi| (0, esi)));
        receiver.on_announcement(at(10), announce(0, None));
        assert_eq!(asks(&mut receiver, &here, at(200_000)), []);
        assert!(receiver.is_over());
    }
}
