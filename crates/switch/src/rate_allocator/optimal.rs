//! All active transfers in the exact order of their ranks: what PAM's figures compare with (§V-A, after PDQ).
//!
//! A transfer is offered what those before it leave, by the rates that their headers state. Among equal ranks the one that came first goes
//! first. Those of the last rank share what is left in equal parts. It walks over all transfers for each packet, which no switch does.

use headwater_units::{BitRate, Bytes, FlowId, Rank, Time};
use headwater_wire::SchedulingKind;

use super::claim::Claim;
use super::config::RateAllocatorConfig;
use super::control::{DataPlane, Loads, is_stale, rate};
use super::reservation::Reservation;

/// The data plane.
#[derive(Clone, Debug)]
pub(super) struct Optimal {
    /// In bit/s.
    line: f64,
    available: f64,
    loads: Loads,
    /// In the order in which they became active.
    active: Vec<Active>,
    most: usize,
    untracked: u64,
    reservation: Reservation,
}

#[derive(Clone, Copy, Debug)]
struct Active {
    transfer: FlowId,
    rank: Rank,
    rate: BitRate,
    heard: Time,
}

impl Optimal {
    pub(super) fn new(config: &RateAllocatorConfig, line: BitRate) -> Self {
        let line = line.get() as f64;
        Optimal {
            line,
            available: line,
            loads: Loads::default(),
            active: Vec::new(),
            most: config.max_transfers as usize,
            untracked: 0,
            reservation: Reservation::new(config.settling),
        }
    }

    fn note(&mut self, now: Time, claim: &Claim) {
        let Claim { transfer, rank, rate, .. } = *claim;
        let it = Active { transfer, rank, rate, heard: now };
        match self.active.iter().position(|known| known.transfer == transfer) {
            Some(at) => self.active[at] = it,
            None if self.active.len() < self.most => self.active.push(it),
            None => self.untracked += 1,
        }
    }

    /// Offer to a probe: a share of what is kept for no other one. The offer is then reserved for a while.
    fn probed(&mut self, now: Time, claim: &Claim) -> f64 {
        let Claim { transfer, rank, .. } = *claim;
        let share = self.share(claim);
        if let Some(reserved) = self.reservation.before(now, transfer, rank) {
            return (share - reserved.get() as f64).max(0.0);
        }
        let offer = claim.offer.min(rate(share.min(self.line)));
        if rank < Rank::LAST && offer > BitRate::ZERO {
            self.reservation.offered(now, transfer, rank, offer);
        }
        share
    }

    fn share(&self, claim: &Claim) -> f64 {
        let own = self.active.iter().position(|it| it.transfer == claim.transfer);
        let place = own.unwrap_or(self.active.len());
        if claim.rank == Rank::LAST {
            let (sharing, before): (Vec<&Active>, Vec<&Active>) =
                self.active.iter().partition(|it| it.rank == Rank::LAST);
            let taken: f64 = before.iter().map(|it| it.rate.get() as f64).sum();
            let divisor = sharing.len() + usize::from(own.is_none());
            return (self.available - taken).max(0.0) / divisor.max(1) as f64;
        }
        let before = |(at, it): &(usize, &Active)| (it.rank, *at) < (claim.rank, place);
        let taken: f64 =
            self.active.iter().enumerate().filter(before).map(|(_, it)| it.rate.get() as f64).sum();
        (self.available - taken).max(0.0)
    }
}

impl DataPlane for Optimal {
    fn packet(&mut self, now: Time, len: Bytes, claim: Option<&Claim>) -> Option<BitRate> {
        self.loads.count(len, claim.is_some());
        let claim = claim?;
        let share = match claim.kind {
            SchedulingKind::Fin | SchedulingKind::Probe => {
                self.active.retain(|it| it.transfer != claim.transfer);
                if claim.kind == SchedulingKind::Fin {
                    self.reservation.settled(claim.transfer);
                    self.line
                } else {
                    self.probed(now, claim)
                }
            }
            SchedulingKind::Data => {
                self.note(now, claim);
                self.reservation.settled(claim.transfer);
                self.share(claim)
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
        self.active.len() as u64
    }

    fn critical(&self) -> Option<FlowId> {
        let ranked = self.active.iter().filter(|it| it.rank < Rank::LAST);
        ranked.min_by_key(|it| it.rank).map(|it| it.transfer)
    }

    fn untracked(&self) -> u64 {
        self.untracked
    }

    fn set_available(&mut self, available: f64) {
        self.available = available;
    }

    fn set_line(&mut self, line: BitRate) {
        self.line = line.get() as f64;
    }

    /// Nothing to do: each transfer's time is known.
    fn swap(&mut self) {}

    fn expire(&mut self, heard_before: Time) {
        self.active.retain(|it| !is_stale(it.heard, heard_before));
    }

    fn is_at_rest(&self) -> bool {
        self.loads.are_zero() && self.active.is_empty()
    }
}
