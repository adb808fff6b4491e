//! Algorithm 2 (PAM Alg. 2) in floating point, with exact tables of active transfers (PAM §III-C).
//!
//! Active transfers stand in two tables, as in the paper's Fig. 6. Every claim goes to both, the active one counts. At each swap the other one
//! becomes active, and the one that was is emptied. So a transfer that went without a FIN counts for one to two idle timeouts.

use std::collections::BTreeSet;

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

    /// Algorithm 2, but for lines 1-8.
    fn share(&mut self, now: Time, claim: &Claim) -> f64 {
        let Claim { transfer, rank, rate, .. } = *claim;
        let probe = claim.kind == SchedulingKind::Probe;
        let ahead = self.critical.is_none_or(|it| rank < it.rank || it.transfer == transfer);
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
        let taken = self.critical.map_or(BitRate::ZERO, |it| it.rate).max(reserved.unwrap_or_default());
        let left = self.available - taken.get() as f64;
        let counts = |transfer| usize::from(self.members.contains(transfer));
        let sharing = self.members.count() - self.critical.map_or(0, |it| counts(it.transfer));
        let divisor = sharing + 1 - counts(transfer);
        left.max(0.0) / divisor.max(1) as f64
    }
}

impl DataPlane for Simple {
    fn packet(&mut self, now: Time, len: Bytes, claim: Option<&Claim>) -> Option<BitRate> {
        self.loads.count(len, claim.is_some());
        let claim = claim?;
        let is_critical = self.critical.is_some_and(|it| it.transfer == claim.transfer);
        let share = match claim.kind {
            SchedulingKind::Fin | SchedulingKind::Probe => {
                self.members.remove(claim.transfer);
                if claim.kind == SchedulingKind::Fin {
                    self.reservation.settled(claim.transfer);
                }
                if is_critical {
                    self.critical = None;
                }
                if claim.kind == SchedulingKind::Fin { self.line } else { self.share(now, claim) }
            }
            SchedulingKind::Data => {
                self.members.insert(claim.transfer);
                self.reservation.settled(claim.transfer);
                if is_critical && claim.rank == Rank::LAST {
                    self.critical = None;
                }
                self.share(now, claim)
            }
            SchedulingKind::Last | SchedulingKind::Feedback | SchedulingKind::Nack => self.line,
        };
        Some(claim.offer.min(rate(share.min(self.line))))
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
        self.critical = self.critical.filter(|it| !is_stale(it.heard, heard_before));
    }

    fn is_at_rest(&self) -> bool {
        self.loads.are_zero() && self.critical.is_none() && self.members.are_empty()
    }
}

/// Two tables of active transfers.
#[derive(Clone, Debug)]
struct Members {
    /// The active one first.
    tables: [BTreeSet<FlowId>; 2],
    most: usize,
    untracked: u64,
}

impl Members {
    fn new(most: usize) -> Self {
        Members { tables: Default::default(), most, untracked: 0 }
    }

    fn insert(&mut self, transfer: FlowId) {
        let Members { tables, most, untracked } = self;
        for (n, table) in tables.iter_mut().enumerate() {
            if table.len() < *most {
                table.insert(transfer);
            } else if n == 0 && !table.contains(&transfer) {
                *untracked += 1;
            }
        }
    }

    fn remove(&mut self, transfer: FlowId) {
        for table in &mut self.tables {
            table.remove(&transfer);
        }
    }

    fn contains(&self, transfer: FlowId) -> bool {
        self.tables[0].contains(&transfer)
    }

    fn count(&self) -> usize {
        self.tables[0].len()
    }

    fn swap(&mut self) {
        self.tables.swap(0, 1);
        self.tables[1].clear();
    }

    fn are_empty(&self) -> bool {
        self.tables.iter().all(BTreeSet::is_empty)
    }
}
