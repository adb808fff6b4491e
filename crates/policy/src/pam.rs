//! The rank of a transfer whose rate switches compute (PAM's desired priority p, Table I).
//!
//! A source asks for each packet, so an answer takes a few instructions and depends on no other transfer. Switches put the transfers in
//! line by it (PAM Alg. 2). A rank has 24 bits; sizes and times that differ by less than one part in 2^18 can be equal, and then
//! the transfer that a switch favours stays favoured.
//!
//! Differs from the paper:
//! * Row 3 says "radix complement of the transfer's started time", which would put the newest first; here the oldest goes first.
//! * A deadline that cannot be met puts a transfer last under row 2, where the remaining time would put it first. The paper ends
//!   such transfers (§III-A), which is [`Late::Dropped`] here.

use headwater_units::{BitRate, Bytes, Duration, Rank, Time};
use serde::{Deserialize, Serialize};

/// Order of transfers (PAM Table I).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    /// Row 1, SRSF: smallest remaining size times number of receivers, for short completion times on average.
    #[default]
    SmallestRemaining,
    /// Row 2, EDF: shortest time to the deadline, for few missed deadlines. Transfers without a deadline rank last.
    EarliestDeadline,
    /// Row 3, FIFO: oldest, for a small maximum lateness.
    FirstCome,
    /// Row 4, FS: none before another. All have the last rank, which switches never favour.
    Fair,
    /// Row 5: by a number that somebody has stated.
    Stated(Rank),
}

/// Treatment of a transfer whose deadline cannot be met, even if it sends at its link's rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Late {
    /// It ranks last under [`Order::EarliestDeadline`]; the other orders take no notice.
    #[default]
    RanksLast,
    /// It ends, under any order (PAM §III-A).
    Dropped,
}

/// How a source ranks its transfers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ranking {
    /// Order of transfers; smallest remaining size unless stated.
    pub order: Order,
    /// Treatment of late ones; they rank last unless stated.
    pub late: Late,
}

/// Quantities that make a rank besides the remaining size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// When it started, since an epoch that all sources share. Starts are told apart to a 2^18th of it, at best to 1 us.
    pub started: Duration,
    /// When it is late, by the source's own clock; none: never.
    pub deadline: Option<Time>,
    /// Number of receivers that are served together.
    pub receivers: u32,
    /// Rate at which the source's link carries what remains, without headers.
    pub link: BitRate,
}

/// Where a transfer stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It goes on, with this rank.
    Ranked(Rank),
    /// It is late, and ends.
    Dropped,
}

impl Ranking {
    /// The standing of a transfer that has `remaining` to send.
    #[inline]
    pub fn standing(&self, now: Time, transfer: &Transfer, remaining: Bytes) -> Standing {
        let late = transfer.is_late(now, remaining);
        if late && self.late == Late::Dropped {
            return Standing::Dropped;
        }
        Standing::Ranked(match (self.order, transfer.deadline) {
            (Order::SmallestRemaining, _) => Rank::of((remaining * u64::from(transfer.receivers)).get()),
            (Order::EarliestDeadline, Some(deadline)) if !late => Rank::of(deadline.since(now).as_nanos()),
            (Order::EarliestDeadline, _) | (Order::Fair, _) => Rank::LAST,
            (Order::FirstCome, _) => Rank::of(transfer.started.as_micros()),
            (Order::Stated(rank), _) => rank,
        })
    }
}

impl Transfer {
    /// Whether the deadline passes even if all that remains is sent at the link's rate from now on.
    #[inline]
    pub fn is_late(&self, now: Time, remaining: Bytes) -> bool {
        self.last_moment(remaining).is_some_and(|at| now > at)
    }

    /// When the sending of all that remains has to begin, at the link's rate, if the deadline is to be met; none: there is no deadline.
    #[inline]
    pub fn last_moment(&self, remaining: Bytes) -> Option<Time> {
        let deadline = self.deadline?.since(Time::ZERO);
        Some(Time::ZERO + deadline.saturating_sub(remaining / self.link))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    fn at(ms: u64) -> Time {
        Time::from_nanos(ms * MS)
    }

    /// 8 Mbit/s: a byte takes 1 us.
    fn transfer(started: u64, deadline: Option<u64>, receivers: u32) -> Transfer {
        let started = Duration::from_millis(started);
        Transfer { started, deadline: deadline.map(at), receivers, link: BitRate::new(8_000_000) }
    }

    fn rank(order: Order, now: u64, transfer: Transfer, remaining: u64) -> Rank {
        let ranking = Ranking { order, ..Ranking::default() };
        match ranking.standing(at(now), &transfer, Bytes::new(remaining)) {
            Standing::Ranked(rank) => rank,
            Standing::Dropped => panic!("nothing is dropped unless that is asked for"),
        }
    }

    /// Table I on the three transfers of PAM §IV-C: A starts at 1 s, B at 0, C at 2 s; they are late at 4, 6 and 5 s.
    #[test]
    fn the_toy_of_the_paper_is_put_in_the_order_of_each_row() {
        let toy = [(1_000, 4_000, 120_000), (0, 6_000, 200_000), (2_000, 5_000, 50_000)];
        let order = |order: Order| {
            let mut by_rank: Vec<(Rank, char)> = toy
                .iter()
                .zip("ABC".chars())
                .map(|(&(start, late, size), name)| {
                    (rank(order, 2_000, transfer(start, Some(late), 2), size), name)
                })
                .collect();
            by_rank.sort();
            by_rank.into_iter().map(|it| it.1).collect::<String>()
        };
        assert_eq!(order(Order::SmallestRemaining), "CAB");
        assert_eq!(order(Order::EarliestDeadline), "ACB");
        assert_eq!(order(Order::FirstCome), "BAC");
        let fair = |size| rank(Order::Fair, 0, transfer(0, None, 1), size);
        assert_eq!([fair(1), fair(1 << 40)], [Rank::LAST; 2]);
        assert_eq!(rank(Order::Stated(Rank::new(7)), 0, transfer(0, Some(1), 9), 1 << 40), Rank::new(7));
    }

    #[test]
    fn receivers_weigh_as_much_as_bytes() {
        let srsf = |receivers, size| rank(Order::SmallestRemaining, 0, transfer(0, None, receivers), size);
        assert!(srsf(3, 10_000) > srsf(2, 14_000));
        assert_eq!(srsf(3, 14_000), srsf(2, 21_000));
        assert!(srsf(u32::MAX, u64::MAX) < Rank::LAST, "the product saturates");
    }

    #[test]
    fn a_deadline_that_cannot_be_met_ranks_last_or_ends_the_transfer() {
        let it = transfer(0, Some(100), 3);
        // 60,000 bytes take 60 ms.
        assert!(rank(Order::EarliestDeadline, 40, it, 60_000) < Rank::LAST);
        assert_eq!(rank(Order::EarliestDeadline, 41, it, 60_000), Rank::LAST);
        assert_eq!(rank(Order::EarliestDeadline, 0, transfer(0, None, 3), 60_000), Rank::LAST);
        assert!(rank(Order::SmallestRemaining, 41, it, 60_000) < Rank::LAST, "other orders take no notice");
        for order in [Order::EarliestDeadline, Order::Fair, Order::SmallestRemaining] {
            let ranking = Ranking { order, late: Late::Dropped };
            let standing = |now| ranking.standing(at(now), &it, Bytes::new(60_000));
            assert_eq!(standing(41), Standing::Dropped);
            assert_ne!(standing(40), Standing::Dropped);
        }
    }

    proptest! {
        /// Transfers that are smaller, sooner or older never rank behind, whatever the numbers are.
        #[test]
        fn ranks_keep_the_order_of_their_keys(
            mine in any::<(u64, u64, u64)>(), other in any::<(u64, u64, u64)>(), receivers in any::<u32>(), now in any::<u64>(),
        ) {
            let both = [mine, other].map(|(size, deadline, started)| {
                let (started, deadline) = (Duration::from_nanos(started), Some(Time::from_nanos(deadline)));
                let it = Transfer { started, deadline, receivers, link: BitRate::new(1 << 30) };
                (it, Bytes::new(size))
            });
            let now = Time::from_nanos(now);
            let ranks = |order| both.map(|(it, size)| Ranking { order, late: Late::RanksLast }.standing(now, &it, size));
            let rank_of = |standing| match standing { Standing::Ranked(rank) => rank, Standing::Dropped => Rank::FIRST };
            let keeps = |order, keys: [u64; 2]| {
                let [a, b] = ranks(order).map(rank_of);
                (keys[0] > keys[1] || a <= b) && (keys[0] < keys[1] || a >= b)
            };
            prop_assert!(keeps(Order::SmallestRemaining, [mine.0, other.0]));
            prop_assert!(keeps(Order::FirstCome, [mine.2, other.2]));
            if !both.iter().any(|(it, size)| it.is_late(now, *size)) {
                prop_assert!(keeps(Order::EarliestDeadline, [mine.1, other.1]));
            }
        }
    }
}
