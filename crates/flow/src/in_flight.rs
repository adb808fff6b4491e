//! The packets of one flow in flight, by number, and the fate of each (PPUSH §III-A and -B).
//!
//! ```text
//!             acknowledged
//!  InFlight ----------------> gone
//!     |                        ^
//!     | 3 later-sent ones      | late acknowledgment: the loss was spurious, a resend not yet made is cancelled
//!     v acknowledged, or RTO   |
//!   Lost: to be resent --> resent as a later packet --> forgotten when the table of lost ones is full
//! ```
//!
//! A packet is lost after three packets *sent after it* have been acknowledged (DUPACKNUM, §III-B): they are counted,
//! so a hole in the numbers alone proves nothing. A packet whose symbol has arrived by a later copy (a probe) is given up
//! at once. Packet numbers never repeat (RFC 9000 §12.3), so an ACK always says
//! which copy of a symbol came, and every sample of the round-trip time is true.
//!
//! Every packet enters and leaves once; nothing is allocated once the tables have grown to the window. An ACK costs the
//! packets that are new in it, and its runs if others than the newest have changed, whatever it repeats.

use std::collections::VecDeque;

use headwater_units::{Duration, PacketNumber, SymbolId, Time};
use headwater_wire::{Ack, AckRange};

/// DUPACKNUM of PPUSH §III-B: later-sent packets acknowledged before a packet is taken for lost.
pub const LATER_ACKS: usize = 3;

/// A packet that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Its number.
    pub number: PacketNumber,
    /// The symbol that it carries.
    pub symbol: SymbolId,
    /// Under which attempt the symbol was asked for.
    pub attempt: u8,
    /// When it was sent.
    pub sent_at: Time,
}

/// Changes that an ACK made. Keep one and hand it in again, so that its lists are allocated once.
#[derive(Clone, Debug, Default)]
pub struct AckOutcome {
    /// Packets acknowledged that were in flight.
    pub acked: Vec<Sent>,
    /// Packets acknowledged that had been declared lost.
    pub late: Vec<Sent>,
    /// Packets declared lost now.
    pub lost: Vec<Lost>,
    /// Lost packets whose resend is not needed any more: another copy of the symbol came after all.
    pub cancelled: Vec<Sent>,
    /// From the sending of the largest packet newly acknowledged to now, if that is the ACK's largest (RFC 9002 §5.1).
    pub rtt: Option<Duration>,
    /// The largest packet newly acknowledged.
    pub largest: Option<PacketNumber>,
}

/// A packet declared lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost {
    /// The packet.
    pub sent: Sent,
    /// Its symbol should go out again: no other copy of it is in flight or has arrived.
    pub resend: bool,
}

/// Why an ACK was ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckError {
    /// It acknowledges a packet that was never sent.
    NeverSent(PacketNumber),
}

/// Sent packets of one flow.
#[derive(Clone, Debug)]
pub struct InFlight {
    /// Packets from `base` on, without a hole; the first one is in flight.
    ring: VecDeque<Record>,
    base: u64,
    flying: usize,
    /// The largest numbers acknowledged, downwards: what is below the last of them has [`LATER_ACKS`] later ones. Zero
    /// until that many are acknowledged: no packet is below it.
    top: [u64; LATER_ACKS],
    /// Every packet below has been judged by `top`.
    judged: u64,
    /// Where the newest run of the ACK before began, and the runs below it.
    told: (u64, Vec<AckRange>),
    /// Lost packets by ascending number.
    lost: VecDeque<LostRecord>,
    lost_memory: usize,
    /// Numbers of lost packets to be resent, in order; entries may be stale.
    resend: VecDeque<u64>,
    to_resend: usize,
}

#[derive(Clone, Copy, Debug)]
struct Record {
    symbol: SymbolId,
    sent_at: Time,
    /// A later packet that carries the same symbol.
    heir: Option<u64>,
    /// An earlier one that does, and was in flight when this one left.
    origin: Option<u64>,
    attempt: u8,
    /// Out of flight: acknowledged, or lost and now in the other table.
    gone: bool,
    /// Another copy of the symbol has arrived.
    settled: bool,
}

#[derive(Clone, Copy, Debug)]
struct LostRecord {
    sent: Sent,
    state: LostState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LostState {
    ToResend,
    ResentAs(u64),
    Dropped,
}

impl InFlight {
    /// Nothing sent yet. At most `lost_memory` lost packets that need no resend are remembered.
    pub fn new(lost_memory: usize) -> Self {
        InFlight {
            ring: VecDeque::new(),
            base: 0,
            flying: 0,
            top: [0; LATER_ACKS],
            judged: 0,
            told: (0, Vec::new()),
            lost: VecDeque::new(),
            lost_memory,
            resend: VecDeque::new(),
            to_resend: 0,
        }
    }

    /// Packets sent and neither acknowledged nor lost (PPUSH footnote 2).
    pub fn in_flight(&self) -> usize {
        self.flying
    }
    /// Lost packets whose symbols wait to go out again.
    pub fn to_resend(&self) -> usize {
        self.to_resend
    }
    /// The number of the next packet, which is also how many were sent.
    pub fn next_number(&self) -> PacketNumber {
        PacketNumber(self.base + self.ring.len() as u64)
    }

    /// A packet leaves; `copy_of` is an earlier packet with the same symbol.
    pub fn send(
        &mut self,
        now: Time,
        symbol: SymbolId,
        attempt: u8,
        copy_of: Option<PacketNumber>,
    ) -> PacketNumber {
        let number = self.next_number();
        let origin = copy_of.map(|origin| origin.0).filter(|origin| self.set_heir(*origin, number.0));
        self.ring.push_back(Record {
            symbol,
            sent_at: now,
            heir: None,
            origin,
            attempt,
            gone: false,
            settled: false,
        });
        self.flying += 1;
        number
    }

    /// Applies an ACK and writes what changed into `outcome`, whose earlier content is dropped.
    ///
    /// # Errors
    /// [`AckError::NeverSent`]: the whole ACK is made up (RFC 9000 §13.1), and nothing changed.
    pub fn on_ack(&mut self, now: Time, ack: &Ack, outcome: &mut AckOutcome) -> Result<(), AckError> {
        outcome.acked.clear();
        outcome.late.clear();
        outcome.lost.clear();
        outcome.cancelled.clear();
        (outcome.rtt, outcome.largest) = (None, None);
        if ack.largest >= self.next_number() {
            return Err(AckError::NeverSent(ack.largest));
        }
        let mut runs = ack.runs();
        if let Some((first, last)) = runs.next() {
            self.acknowledge_run(first, last, outcome);
            // An ACK repeats old runs for as long as they fit; there is no news in them.
            if first != self.told.0 || ack.ranges[..] != self.told.1[..] {
                runs.for_each(|(first, last)| self.acknowledge_run(first, last, outcome));
                self.told.0 = first;
                self.told.1.clear();
                self.told.1.extend_from_slice(&ack.ranges);
            }
        }
        let news = outcome.acked.iter().chain(&outcome.late).max_by_key(|s| s.number);
        outcome.largest = news.map(|s| s.number);
        outcome.rtt = news.filter(|s| s.number == ack.largest).map(|s| now.since(s.sent_at));
        self.judge(outcome);
        self.retire();
        Ok(())
    }

    /// Declares everything in flight lost (RTO) and writes it into `outcome`, whose earlier content is dropped.
    pub fn lose_all(&mut self, outcome: &mut AckOutcome) {
        outcome.lost.clear();
        for i in 0..self.ring.len() {
            self.lose(i, outcome);
        }
        self.judged = self.next_number().0;
        self.retire();
    }

    /// The first lost packet whose symbol should go out again. Follow with [`InFlight::send`] as its copy, or with
    /// [`InFlight::drop_resend`].
    pub fn next_resend(&mut self) -> Option<Sent> {
        while let Some(&number) = self.resend.front() {
            match self.find_lost(number) {
                Some(i) if self.lost[i].state == LostState::ToResend => return Some(self.lost[i].sent),
                _ => self.resend.pop_front(),
            };
        }
        None
    }

    /// The symbol of this lost packet is not wanted any more.
    pub fn drop_resend(&mut self, number: PacketNumber) {
        if let Some(i) = self.find_lost(number.0)
            && self.lost[i].state == LostState::ToResend
        {
            self.lost[i].state = LostState::Dropped;
            self.to_resend -= 1;
            self.forget_lost();
        }
    }

    /// Packets in flight whose symbol has no later copy in flight, oldest first: what a probe may repeat.
    pub fn uncopied(&self) -> impl Iterator<Item = Sent> + '_ {
        self.ring
            .iter()
            .enumerate()
            .filter(|(_, r)| !r.gone && r.heir.is_none() && !r.settled)
            .map(|(i, r)| r.sent(self.base + i as u64))
    }

    fn acknowledge_run(&mut self, first: u64, last: u64, outcome: &mut AckOutcome) {
        for number in first.max(self.base)..last + 1 {
            self.acknowledge(number, outcome);
        }
        if self.lost.back().is_some_and(|l| l.sent.number.0 >= first) {
            self.acknowledge_lost(first, last, outcome);
        }
    }

    fn acknowledge(&mut self, number: u64, outcome: &mut AckOutcome) {
        let record = &mut self.ring[(number - self.base) as usize];
        if record.gone {
            return;
        }
        record.gone = true;
        let (sent, heir, mut origin) = (record.sent(number), record.heir, record.origin);
        self.flying -= 1;
        self.count(number);
        outcome.acked.push(sent);
        // A probe came and what it repeats did not: nothing is gained by waiting for that one.
        while let Some(i) = origin.and_then(|o| o.checked_sub(self.base)) {
            origin = self.ring[i as usize].origin;
            self.lose(i as usize, outcome);
        }
        if let Some(heir) = heir {
            self.settle(heir, outcome);
        }
    }

    fn acknowledge_lost(&mut self, first: u64, last: u64, outcome: &mut AckOutcome) {
        let from = self.lost.partition_point(|l| l.sent.number.0 < first);
        let until = from + self.lost.range(from..).take_while(|l| l.sent.number.0 <= last).count();
        if from == until {
            return;
        }
        for i in from..until {
            let LostRecord { sent, state } = self.lost[i];
            self.count(sent.number.0);
            outcome.late.push(sent);
            match state {
                LostState::ToResend => {
                    self.to_resend -= 1;
                    outcome.cancelled.push(sent);
                }
                LostState::ResentAs(heir) => self.settle(heir, outcome),
                LostState::Dropped => {}
            }
        }
        self.lost.drain(from..until);
    }

    /// The symbol of this packet has arrived by an earlier copy: neither it nor its own copies need a resend.
    fn settle(&mut self, number: u64, outcome: &mut AckOutcome) {
        let mut next = Some(number);
        // Each copy has a larger number than its origin, so this ends.
        while let Some(number) = next {
            next = None;
            if let Some(record) = number.checked_sub(self.base).and_then(|i| self.ring.get_mut(i as usize)) {
                record.settled = true;
                next = record.heir;
            } else if let Some(i) = self.find_lost(number) {
                match self.lost[i].state {
                    LostState::ResentAs(heir) => next = Some(heir),
                    LostState::ToResend => {
                        self.lost[i].state = LostState::Dropped;
                        self.to_resend -= 1;
                        outcome.cancelled.push(self.lost[i].sent);
                    }
                    LostState::Dropped => {}
                }
            }
        }
    }

    /// True if the origin is in flight.
    fn set_heir(&mut self, origin: u64, heir: u64) -> bool {
        if let Some(record) = origin.checked_sub(self.base).and_then(|i| self.ring.get_mut(i as usize))
            && !record.gone
        {
            record.heir = Some(heir);
            return true;
        }
        if let Some(i) = self.find_lost(origin) {
            if self.lost[i].state == LostState::ToResend {
                self.to_resend -= 1;
            }
            self.lost[i].state = LostState::ResentAs(heir);
            self.forget_lost();
        }
        false
    }

    /// Keeps the largest acknowledged numbers.
    fn count(&mut self, number: u64) {
        let mut entering = number;
        for place in &mut self.top {
            if entering > *place {
                std::mem::swap(&mut entering, place);
            }
        }
    }

    /// Declares lost what has enough later acknowledged packets.
    fn judge(&mut self, outcome: &mut AckOutcome) {
        let until = self.top[LATER_ACKS - 1];
        for number in self.judged.max(self.base)..until {
            self.lose((number - self.base) as usize, outcome);
        }
        self.judged = self.judged.max(until);
    }

    fn lose(&mut self, i: usize, outcome: &mut AckOutcome) {
        let record = &mut self.ring[i];
        if record.gone {
            return;
        }
        record.gone = true;
        self.flying -= 1;
        let record = *record;
        let sent = record.sent(self.base + i as u64);
        let (resend, state) = match (record.settled, record.heir) {
            (false, None) => (true, LostState::ToResend),
            (_, Some(heir)) => (false, LostState::ResentAs(heir)),
            (true, None) => (false, LostState::Dropped),
        };
        if resend {
            self.to_resend += 1;
            self.resend.push_back(sent.number.0);
        }
        // Nearly always the last one; only what a probe has outlived may lie ahead.
        let place = self.lost.iter().rposition(|l| l.sent.number < sent.number).map_or(0, |i| i + 1);
        self.lost.insert(place, LostRecord { sent, state });
        outcome.lost.push(Lost { sent, resend });
        self.forget_lost();
    }

    /// Drops what is out of flight at the front.
    fn retire(&mut self) {
        while self.ring.front().is_some_and(|r| r.gone) {
            self.ring.pop_front();
            self.base += 1;
        }
    }

    fn forget_lost(&mut self) {
        while self.lost.len() > self.lost_memory
            && self.lost.front().is_some_and(|l| l.state != LostState::ToResend)
        {
            self.lost.pop_front();
        }
    }

    fn find_lost(&self, number: u64) -> Option<usize> {
        self.lost.binary_search_by_key(&number, |l| l.sent.number.0).ok()
    }
}

impl Record {
    fn sent(&self, number: u64) -> Sent {
        Sent {
            number: PacketNumber(number),
            symbol: self.symbol,
            attempt: self.attempt,
            sent_at: self.sent_at,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use headwater_units::{BlockIndex, Esi};
    use headwater_wire::AckRange;
    use proptest::prelude::*;

    use super::*;

    fn symbol(esi: u64) -> SymbolId {
        SymbolId { block: BlockIndex(0), esi: Esi(esi as u32) }
    }

    fn table(sent: u64) -> InFlight {
        let mut t = InFlight::new(64);
        for n in 0..sent {
            assert_eq!(t.send(Time::from_nanos(n), symbol(n), 0, None), PacketNumber(n));
        }
        t
    }

    /// An ACK of exactly these numbers.
    fn ack(numbers: &[u64]) -> Ack {
        let mut numbers: Vec<u64> = numbers.to_vec();
        numbers.sort_unstable();
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for &n in numbers.iter().rev() {
            match runs.last_mut() {
                Some((first, _)) if *first == n + 1 => *first = n,
                _ => runs.push((n, n)),
            }
        }
        let ranges = runs
            .windows(2)
            .take(31)
            .map(|w| AckRange { gap: (w[0].0 - w[1].1) as u16 - 1, run: (w[1].1 - w[1].0) as u16 + 1 })
            .collect();
        Ack {
            largest: PacketNumber(runs[0].1),
            delay: Duration::ZERO,
            first_run: (runs[0].1 - runs[0].0 + 1) as u16,
            ranges,
            ect0: 0,
            ce: 0,
            not_ect: 0,
            first_undecoded: BlockIndex(0),
            owed: Default::default(),
        }
    }

    fn numbers(sent: &[Sent]) -> Vec<u64> {
        sent.iter().map(|s| s.number.0).collect()
    }

    fn lost(outcome: &AckOutcome) -> Vec<u64> {
        outcome.lost.iter().map(|l| l.sent.number.0).collect()
    }

    #[test]
    fn a_packet_is_lost_after_three_later_sent_ones_were_acknowledged() {
        let (mut t, mut o) = (table(20), AckOutcome::default());
        t.on_ack(Time::ZERO, &ack(&[9]), &mut o).unwrap();
        assert_eq!((numbers(&o.acked), lost(&o)), (vec![9], vec![]));
        t.on_ack(Time::ZERO, &ack(&[9, 5]), &mut o).unwrap();
        assert!(o.lost.is_empty(), "two acknowledged packets prove nothing, however large the gap");
        t.on_ack(Time::ZERO, &ack(&[9, 7, 5]), &mut o).unwrap();
        assert_eq!(lost(&o), [0, 1, 2, 3, 4]);
        assert_eq!(t.in_flight(), 12);
        t.on_ack(Time::ZERO, &ack(&[10, 9, 7, 5]), &mut o).unwrap();
        assert_eq!(lost(&o), [6]);
    }

    #[test]
    fn a_late_acknowledgment_cancels_a_resend_that_was_not_made() {
        let (mut t, mut o) = (table(4), AckOutcome::default());
        t.on_ack(Time::ZERO, &ack(&[1, 2, 3]), &mut o).unwrap();
        assert_eq!((lost(&o), t.to_resend()), (vec![0], 1));
        t.on_ack(Time::ZERO, &ack(&[0, 1, 2, 3]), &mut o).unwrap();
        assert_eq!((numbers(&o.late), numbers(&o.cancelled)), (vec![0], vec![0]));
        assert_eq!((t.to_resend(), t.next_resend()), (0, None));
    }

    #[test]
    fn a_symbol_that_came_late_is_not_resent_when_its_copy_is_lost() {
        let (mut t, mut o) = (table(4), AckOutcome::default());
        t.on_ack(Time::ZERO, &ack(&[1, 2, 3]), &mut o).unwrap();
        let again = t.next_resend().unwrap();
        t.send(Time::ZERO, again.symbol, 0, Some(again.number));
        for n in 5..9 {
            t.send(Time::ZERO, symbol(n), 0, None);
        }
        t.on_ack(Time::ZERO, &ack(&[0, 1, 2, 3]), &mut o).unwrap();
        t.on_ack(Time::ZERO, &ack(&[5, 6, 7]), &mut o).unwrap();
        assert_eq!(o.lost.len(), 1);
        assert!(!o.lost[0].resend && o.lost[0].sent.number == PacketNumber(4));
        // And when the copy is lost first, its resend is cancelled.
        let (mut t, mut o) = (table(4), AckOutcome::default());
        t.on_ack(Time::ZERO, &ack(&[1, 2, 3]), &mut o).unwrap();
        t.send(Time::ZERO, symbol(0), 0, Some(PacketNumber(0)));
        for n in 5..9 {
            t.send(Time::ZERO, symbol(n), 0, None);
        }
        t.on_ack(Time::ZERO, &ack(&[5, 6, 7]), &mut o).unwrap();
        assert_eq!(t.to_resend(), 1);
        t.on_ack(Time::ZERO, &ack(&[0]), &mut o).unwrap();
        assert_eq!((numbers(&o.cancelled), t.to_resend()), (vec![4], 0));
    }

    #[test]
    fn a_probe_makes_no_third_copy_and_its_arrival_ends_the_wait_for_the_original() {
        let (mut t, mut o) = (table(2), AckOutcome::default());
        t.send(Time::ZERO, symbol(0), 0, Some(PacketNumber(0)));
        assert_eq!(t.uncopied().map(|s| s.number.0).collect::<Vec<_>>(), [1, 2]);
        t.send(Time::ZERO, symbol(0), 0, Some(PacketNumber(2)));
        t.on_ack(Time::ZERO, &ack(&[3]), &mut o).unwrap();
        assert_eq!(lost(&o), [2, 0]);
        assert!(o.lost.iter().all(|l| !l.resend));
        assert_eq!((t.in_flight(), t.to_resend()), (1, 0));
        t.on_ack(Time::ZERO, &ack(&[0, 3]), &mut o).unwrap();
        assert_eq!((numbers(&o.late), t.in_flight()), (vec![0], 1));
        // The original came, the probe is lost.
        let (mut t, mut o) = (table(1), AckOutcome::default());
        t.send(Time::ZERO, symbol(0), 0, Some(PacketNumber(0)));
        for n in 2..6 {
            t.send(Time::ZERO, symbol(n), 0, None);
        }
        t.on_ack(Time::ZERO, &ack(&[0, 2, 3, 4]), &mut o).unwrap();
        assert_eq!((lost(&o), t.to_resend()), (vec![1], 0));
    }

    #[test]
    fn an_ack_of_a_packet_that_was_never_sent_is_ignored_whole() {
        let (mut t, mut o) = (table(3), AckOutcome::default());
        assert_eq!(t.on_ack(Time::ZERO, &ack(&[1, 3]), &mut o), Err(AckError::NeverSent(PacketNumber(3))));
        assert_eq!((t.in_flight(), o.acked.len()), (3, 0));
    }

    #[test]
    fn the_round_trip_time_comes_from_the_largest_packet_only_if_it_is_new() {
        let (mut t, mut o) = (table(3), AckOutcome::default());
        t.on_ack(Time::from_nanos(100), &ack(&[2]), &mut o).unwrap();
        assert_eq!(o.rtt, Some(Duration::from_nanos(98)));
        t.on_ack(Time::from_nanos(200), &ack(&[1, 2]), &mut o).unwrap();
        assert_eq!((o.rtt, o.largest), (None, Some(PacketNumber(1))));
    }

    #[test]
    fn news_below_an_unchanged_newest_run_is_heard() {
        let (mut t, mut o) = (table(10), AckOutcome::default());
        t.on_ack(Time::ZERO, &ack(&[1, 3, 8, 9]), &mut o).unwrap();
        t.on_ack(Time::ZERO, &ack(&[1, 3, 8, 9]), &mut o).unwrap();
        assert_eq!((o.acked.len(), o.late.len()), (0, 0));
        t.on_ack(Time::ZERO, &ack(&[0, 1, 3, 5, 8, 9]), &mut o).unwrap();
        assert_eq!((numbers(&o.acked), numbers(&o.late)), (vec![5], vec![0]));
    }

    #[test]
    fn lost_packets_are_remembered_up_to_a_bound() {
        let (mut t, mut o) = (table(500), AckOutcome::default());
        t.lose_all(&mut o);
        assert_eq!((t.in_flight(), t.to_resend(), t.lost.len()), (0, 500, 500));
        while let Some(again) = t.next_resend() {
            t.drop_resend(again.number);
        }
        assert_eq!((t.to_resend(), t.lost.len()), (0, 64));
    }

    proptest! {
        /// Against a plain model: sets of numbers, and the rule of §III-B word for word.
        #[test]
        fn the_table_agrees_with_the_rule_word_for_word(
            steps in proptest::collection::vec((0usize..4, proptest::collection::vec(0u64..24, 1..6)), 1..60)
        ) {
            let mut t = InFlight::new(1 << 20);
            let mut o = AckOutcome::default();
            let (mut acked, mut gone) = (BTreeSet::new(), BTreeSet::new());
            for (sends, back) in steps {
                for _ in 0..sends {
                    t.send(Time::ZERO, symbol(t.next_number().0), 0, None);
                }
                let next = t.next_number().0;
                let news: Vec<u64> = back.iter().filter_map(|b| next.checked_sub(1 + b)).collect();
                if news.is_empty() { continue; }
                t.on_ack(Time::ZERO, &ack(&BTreeSet::from_iter(news.clone()).into_iter().collect::<Vec<_>>()), &mut o).unwrap();
                let late: BTreeSet<u64> = news.iter().copied().filter(|n| gone.contains(n)).collect();
                prop_assert_eq!(&late, &o.late.iter().map(|s| s.number.0).collect());
                acked.extend(news);
                for n in &late { gone.remove(n); }
                let now_lost: Vec<u64> = (0..next)
                    .filter(|n| !acked.contains(n) && !gone.contains(n))
                    .filter(|n| acked.range(n + 1..).count() >= LATER_ACKS)
                    .collect();
                prop_assert_eq!(&now_lost, &lost(&o));
                gone.extend(now_lost);
                prop_assert_eq!(t.in_flight() as u64, next - acked.len() as u64 - gone.len() as u64);
            }
        }
    }
}
