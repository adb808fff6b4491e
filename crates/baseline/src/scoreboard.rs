//! A sender's knowledge of its packets by selective acknowledgments, and the packets of them that are lost (RFC 2018,
//! RFC 6675).
//!
//! ```text
//!       acked                    edge of loss              highest here      highest
//!   ------|--x--x--o--o--x--x--o------|------x--o--x--o--o------|------x--x--x--|      o: here (SACKed), x: not
//!            lost: three packets      |   not yet: fewer than   |
//!            above are here           |   three above are here  |
//! ```
//! A packet is lost when three packets above it are here (`IsLost`; the RFC's other rule, by bytes, is the same where all packets are of
//! one size). *pipe* is what is in the network: what is neither here nor lost, and what was sent again.

use super::bits::BitRing;

/// Packets here above one that is missing, which stand for its loss (DupThresh).
const DUPLICATES: usize = 3;

/// Packets between the oldest one that is not acknowledged and the newest one sent.
#[derive(Clone, Debug)]
pub(super) struct Scoreboard {
    here: BitRing,
    /// Number of packets that `here` holds.
    held: u64,
    /// The largest that are here, descending; their lowest is the edge of loss.
    largest: [u64; DUPLICATES],
    /// Packets below were sent again in this recovery (HighRxt).
    resent: u64,
}

impl Scoreboard {
    /// For a window of `limit` packets.
    pub(super) fn new(limit: u64) -> Self {
        Scoreboard { here: BitRing::new(limit + 1), held: 0, largest: [0; DUPLICATES], resent: 0 }
    }

    /// `from..to` are here, of which nothing below `acked` is of interest. The caller has seen to it that they were sent.
    pub(super) fn on_block(&mut self, acked: u64, from: u64, to: u64) {
        for number in from.max(acked)..to {
            if !self.here.set(number) {
                continue;
            }
            self.held += 1;
            // Insertion into three; the largest is usually the newest.
            let mut number = number;
            for place in &mut self.largest {
                if number > *place {
                    std::mem::swap(&mut number, place);
                }
            }
        }
    }

    /// All below `next` is acknowledged; before, all below `acked` was.
    pub(super) fn on_cumulative(&mut self, acked: u64, next: u64) {
        if self.held > 0 {
            for number in acked..next {
                self.held -= u64::from(self.here.take(number));
            }
        }
    }

    /// Whether this one is here.
    pub(super) fn is_here(&self, number: u64) -> bool {
        self.held > 0 && self.here.get(number)
    }

    /// Packets below this number that are not here are lost.
    fn edge(&self) -> u64 {
        self.largest[DUPLICATES - 1]
    }

    /// Whether the oldest packet is lost.
    pub(super) fn has_lost(&self, acked: u64) -> bool {
        acked < self.edge() && self.held > 0
    }

    /// A recovery begins: nothing was sent again in it.
    pub(super) fn begin(&mut self, acked: u64) {
        self.resent = acked;
    }

    /// Packets in the network, of those from `acked` up to `highest` (RFC 6675 §4, SetPipe).
    pub(super) fn pipe(&self, acked: u64, highest: u64) -> u64 {
        let missing = |from: u64, to: u64| self.here.clear_bits(from, to.max(from));
        let lost_to = self.edge().clamp(acked, highest);
        // Packets beyond the edge are not lost; those that were sent again count once more.
        missing(lost_to, highest) + missing(acked, self.resent.min(highest))
    }

    /// Packet to send next of those that were sent before: first a lost one, and, if nothing else can be sent
    /// (`at_last`), one that is missing below the largest that is here (RFC 6675 §4, NextSeg rules 1 and 3).
    pub(super) fn next(&mut self, acked: u64, at_last: bool) -> Option<u64> {
        let to = if at_last { self.largest[0] } else { self.edge() };
        let number = (self.resent.max(acked)..to).find(|number| !self.here.get(*number))?;
        self.resent = number + 1;
        Some(number)
    }

    /// The timer has fired: what a receiver has said may not be true any more (RFC 2018 §8).
    pub(super) fn forget(&mut self, acked: u64, highest: u64) {
        self.here.clear(acked, highest);
        (self.held, self.largest, self.resent) = (0, [0; DUPLICATES], acked);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_packets_above_stand_for_a_loss() {
        let mut board = Scoreboard::new(64);
        board.on_block(0, 3, 5);
        assert!(!board.has_lost(0));
        assert_eq!(board.pipe(0, 8), 6, "nothing is lost yet");
        board.on_block(0, 6, 7);
        assert!(board.has_lost(0));
        assert_eq!(board.pipe(0, 8), 2, "5 and 7; 0 to 2 are lost");
        board.begin(0);
        assert_eq!([board.next(0, false), board.next(0, false)], [Some(0), Some(1)]);
        assert_eq!(board.pipe(0, 8), 4, "and what was sent again");
        assert_eq!([board.next(0, false), board.next(0, false)], [Some(2), None]);
        assert_eq!([board.next(0, true), board.next(0, true)], [Some(5), None], "below the largest");
        assert_eq!(board.pipe(0, 8), 6, "5 counts twice, as in the RFC");
    }

    #[test]
    fn what_is_acknowledged_is_forgotten_and_after_a_timeout_all_is() {
        let mut board = Scoreboard::new(64);
        board.on_block(0, 1, 4);
        board.on_cumulative(0, 4);
        assert!(!board.has_lost(4) && !board.is_here(3));
        assert_eq!(board.pipe(4, 6), 2);
        board.on_block(4, 2, 6);
        assert!(board.is_here(5) && !board.is_here(3), "what is acknowledged is of no interest");
        board.forget(4, 8);
        assert!(!board.is_here(5));
        assert_eq!(board.pipe(4, 8), 4);
    }
}
