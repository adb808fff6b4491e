//! Algorithm 2 (PAM Alg. 2) in floating point, with exact tables of active transfers (PAM §III-C).
//!
//! Active transfers stand in two tables, as in the paper's Fig. 6. Every claim goes to both, the active one counts. At each swap the other one
//! becomes active, and the one that was is emptied. So a transfer that went without a FIN counts for one to two idle timeouts.
//!
//! Nearly always a transfer is in both tables or in none. So the two are one list here, in which each transfer has a mark for each table.

use headwater_units::{BitRate, Bytes, FlowId, Rank, Time};
use headwater_wire::SchedulingKind;

use super::claim::Claim;
use super::config::RateAllocatorConfig;
use super::control::{DataPlane, Loads, is_stale, rate};
use super::reservation::Reservation;

/// The data plane.
#[derive(Clone, Debug)]
pub(super) struct Simple {
    /// In bit/s.
    line: f64,
    available: f64,
    loads: Loads,
    members: Members,
    critical: Option<Critical>,
    reservation: Reservation,
}

/// The transfer that is favoured (PAM k, p_k, r_k).
#[derive(Clone, Copy, Debug)]
struct Critical {
    transfer: FlowId,
    rank: Rank,
    rate: BitRate,
    heard: Time,
}

impl Simple {
    pub(super) fn new(config: &RateAllocatorConfig, line: BitRate) -> Self {
        let line = line.get() as f64;
        let members = Members::new(config.max_transfers as usize);
        Simple {
            line,
            available: line,
            loads: Loads::default(),
            members,
            critical: None,
            reservation: Reservation::new(config.settling),
        }
    }

    /// Algorithm 2, but for lines 1-8; `counts` is whether the transfer itself counts as active.
    #[inline(always)]
    fn share(&mut self, now: Time, claim: &Claim, counts: bool) -> f64 {
        let Claim { transfer, rank, rate, .. } = *claim;
        let probe = claim.kind == SchedulingKind::Probe;
        let critical = self.critical.as_ref();
        let ahead = critical.is_none_or(|it| rank < it.rank || it.transfer == transfer);
        let reserved = if probe { self.reservation.before(now, transfer, rank) } else { None };
        if ahead && rank < Rank::LAST && reserved.is_none() {
            if probe {
                let offer = claim.offer.min(super::control::rate(self.available.min(self.line)));
                self.reservation.offered(now, transfer, rank, offer);
            } else {
                self.critical = Some(Critical { transfer, rank, rate, heard: now });
            }
            return self.available;
        }
        let taken = critical.map_or(BitRate::ZERO, |it| it.rate).max(reserved.unwrap_or_default());
        let left = self.available - taken.get() as f64;
        let critical_counts = critical.is_some_and(|it| self.members.contains(it.transfer));
        let sharing = self.members.count() - usize::from(critical_counts);
        let divisor = sharing + 1 - usize::from(counts);
        left.max(0.0) / divisor.max(1) as f64
    }
}

impl DataPlane for Simple {
    #[inline(always)]
    fn packet(&mut self, now: Time, len: Bytes, claim: Option<&Claim>) -> Option<BitRate> {
        self.loads.count(len, claim.is_some());
        let claim = claim?;
        let Claim { transfer, kind, rank, offer, .. } = *claim;
        let counts = match kind {
            SchedulingKind::Data => {
                self.reservation.settled(transfer);
                self.members.insert(transfer)
            }
            SchedulingKind::Probe | SchedulingKind::Fin => {
                self.members.remove(transfer);
                false
            }
            SchedulingKind::Last | SchedulingKind::Feedback | SchedulingKind::Nack => {
                return Some(offer.min(rate(self.line)));
            }
        };
        if (kind != SchedulingKind::Data || rank == Rank::LAST)
            && self.critical.as_ref().is_some_and(|it| it.transfer == transfer)
        {
            self.critical = None;
        }
        if kind == SchedulingKind::Fin {
            self.reservation.settled(transfer);
            return Some(offer.min(rate(self.line)));
        }
        let share = self.share(now, claim, counts);
        Some(offer.min(rate(share.min(self.line))))
    }

    fn decay(&mut self, share: f64) {
        self.loads.decay(share);
    }

    fn loads(&self) -> [f64; 2] {
        self.loads.bytes()
    }

    fn active(&self) -> u64 {
        self.members.count() as u64
    }

    fn critical(&self) -> Option<FlowId> {
        self.critical.map(|it| it.transfer)
    }

    fn untracked(&self) -> u64 {
        self.members.untracked
    }

    fn set_available(&mut self, available: f64) {
        self.available = available;
    }

    fn set_line(&mut self, line: BitRate) {
        self.line = line.get() as f64;
    }

    fn swap(&mut self) {
        self.members.swap();
    }

    fn expire(&mut self, heard_before: Time) {
        if self.critical.as_ref().is_some_and(|it| is_stale(it.heard, heard_before)) {
            self.critical = None;
        }
    }

    fn is_at_rest(&self) -> bool {
        self.loads.are_zero() && self.critical.is_none() && self.members.are_empty()
    }
}

/// Two tables of active transfers.
#[derive(Clone, Debug)]
struct Members {
    /// Those that are in a table, in ascending order.
    list: Vec<Member>,
    /// How many are in each table; the active one first, as everywhere.
    counts: [usize; 2],
    /// Where the last one was that claimed something. Packets of one transfer mostly follow each other.
    recent: usize,
    most: usize,
    untracked: u64,
}

/// A transfer, and which tables it is in.
#[derive(Clone, Copy, Debug)]
struct Member {
    transfer: FlowId,
    within: [bool; 2],
}

impl Members {
    fn new(most: usize) -> Self {
        Members { list: Vec::new(), counts: [0; 2], recent: 0, most, untracked: 0 }
    }

    /// Puts a transfer into both tables, where there is room. Whether it is in the active one then.
    #[inline]
    fn insert(&mut self, transfer: FlowId) -> bool {
        match self.list.get(self.recent) {
            Some(recent) if recent.transfer == transfer && recent.within == [true; 2] => true,
            _ => self.insert_further(transfer),
        }
    }

    #[inline(never)]
    fn insert_further(&mut self, transfer: FlowId) -> bool {
        match self.find(transfer) {
            Ok(at) => self.recent = at,
            Err(at) if self.counts.iter().any(|count| *count < self.most) => {
                self.list.insert(at, Member { transfer, within: [false; 2] });
                self.recent = at;
            }
            Err(_) => {
                self.untracked += 1;
                return false;
            }
        }
        let within = &mut self.list[self.recent].within;
        if *within != [true; 2] {
            for (within, count) in within.iter_mut().zip(&mut self.counts) {
                if !*within && *count < self.most {
                    (*within, *count) = (true, *count + 1);
                }
            }
            self.untracked += u64::from(!within[0]);
        }
        within[0]
    }

    fn remove(&mut self, transfer: FlowId) {
        if let Ok(at) = self.find(transfer) {
            let Member { within, .. } = self.list.remove(at);
            for (count, within) in self.counts.iter_mut().zip(within) {
                *count -= usize::from(within);
            }
        }
    }

    fn contains(&self, transfer: FlowId) -> bool {
        self.find(transfer).is_ok_and(|at| self.list[at].within[0])
    }

    /// Where a transfer is, or else where it belongs.
    #[inline]
    fn find(&self, transfer: FlowId) -> Result<usize, usize> {
        match self.list.get(self.recent) {
            Some(recent) if recent.transfer == transfer => Ok(self.recent),
            _ => self.list.binary_search_by_key(&transfer, |it| it.transfer),
        }
    }

    fn count(&self) -> usize {
        self.counts[0]
    }

    fn swap(&mut self) {
        self.list.retain_mut(|it| {
            it.within = [it.within[1], false];
            it.within[0]
        });
        self.counts = [self.counts[1], 0];
    }

    fn are_empty(&self) -> bool {
        self.list.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_list_with_marks_is_two_tables(most in 0usize..6, steps in prop::collection::vec((0u8..16, 0u64..9), 1..200)) {
            let (mut members, mut untracked) = (Members::new(most), 0);
            let mut tables: [BTreeSet<FlowId>; 2] = Default::default();
            for (what, transfer) in steps {
                let transfer = FlowId(transfer);
                match what {
                    0 => {
                        members.swap();
                        tables.swap(0, 1);
                        tables[1].clear();
                    }
                    1..5 => {
                        members.remove(transfer);
                        for table in &mut tables {
                            table.remove(&transfer);
                        }
                    }
                    _ => {
                        let counts = members.insert(transfer);
                        for table in &mut tables {
                            if table.len() < most {
                                table.insert(transfer);
                            }
                        }
                        prop_assert_eq!(counts, tables[0].contains(&transfer));
                        untracked += u64::from(!counts);
                    }
                }
                prop_assert_eq!((members.count(), members.untracked), (tables[0].len(), untracked));
                prop_assert_eq!(members.are_empty(), tables.iter().all(BTreeSet::is_empty));
                for transfer in (0..9).map(FlowId) {
                    prop_assert_eq!(members.contains(transfer), tables[0].contains(&transfer));
                }
            }
        }
    }
}
