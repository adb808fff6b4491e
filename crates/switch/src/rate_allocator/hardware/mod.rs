//! Algorithm 2 by the means of a programmable switch (PAM §IV-A).
//!
//! ```text
//!  loads -> filter A, count A -> filter B, count B -> (k, p_k) -> r_k -> last heard -> C(t) -> reservation -> C(t) - r_k -> division -> min
//! ```
//! Each array of registers is touched once per packet, numbers are [`Word`]s, which only add, subtract, shift and
//! compare, and divisions are lookups. The methods beside [`DataPlane::packet`] are the paper's control program; they
//! may read and write all registers, and compute.
//!
//! *Unit of rates.* 2^n bit/s, the finest in which eight times the line's rate has 24 bits: 1 bit/s before 500 kbit/s,
//! 65,536 bit/s before 100 Gbit/s. Eight more bits are below it while a division adds, so 32 bits are enough for each
//! number. Over these lines an equal share of the line is too small by 8 % at most, and never too large: 6.1 % by four
//! shifts, another 1.6 % beyond 1,024 transfers, and the rest by rounding to the unit. The available rate saturates at
//! eight times the line's rate.
//!
//! The rank and the identity of the critical transfer are one cell of two values, as stateful ALUs have, since each decides whether the
//! other is written. Removal of an idle critical transfer is the control program's, for a packet learns when that one was last heard
//! only after it has passed this cell. The reservation is one cell too, of four values.

pub mod accuracy;
mod division;
mod filter;
mod register;
mod state;
mod word;

use headwater_units::{BitRate, Bytes, FlowId, Rank, Time};
use headwater_wire::{RateUnit, SchedulingKind};

use super::claim::Claim;
use super::config::RateAllocatorConfig;
use super::control::{DataPlane, is_stale};
use super::reservation::Reservation;

use division::Division;
use filter::{Filter, HashUnit, Place};
use register::{Pass, Registers};
pub use state::{HardwareState, HardwareTables};
use word::Word;

/// The data plane.
#[derive(Clone, Debug)]
pub(super) struct Hardware {
    pass: Pass,
    /// Bytes that are not scheduled, and bytes that are.
    loads: Registers<[Word; 2]>,
    filters: [Filter; 2],
    /// Which filter's count counts. The control program writes it.
    active: usize,
    critical: Registers<[Critical; 1]>,
    critical_rate: Registers<[Word; 1]>,
    critical_heard: Registers<[Time; 1]>,
    /// Reservation for the transfer that was offered to go first; see `reservation.rs`.
    reservation: Registers<[Reservation; 1]>,
    /// The control program writes it (PAM C(t)).
    available: Registers<[Word; 1]>,
    hash: HashUnit,
    /// The transfer that was hashed last, and its place: packets of one transfer mostly follow each other.
    recent: (FlowId, Place),
    division: Division,
    unit: RateUnit,
    line: Word,
}

/// Identity and rank of the critical transfer; of the last rank if there is none.
#[derive(Clone, Copy, Debug)]
struct Critical {
    transfer: FlowId,
    rank: Rank,
}

impl Critical {
    const NONE: Critical = Critical { transfer: FlowId(0), rank: Rank::LAST };

    fn is(&self, transfer: FlowId) -> bool {
        self.rank < Rank::LAST && self.transfer == transfer
    }
}

/// How a claim stands to the critical transfer, once it has passed its cell: whether there is one, and whether the claim's own transfer was that
/// until now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// It is that transfer now.
    Critical,
    /// It would be, if it were active.
    Ahead { critical: bool, cleared: bool },
    /// It shares with others.
    Behind { critical: bool, cleared: bool },
}

impl Hardware {
    pub(super) fn new(config: &RateAllocatorConfig, shifts: u8, filter_cells: u32, line: BitRate) -> Self {
        let unit = unit_before(line);
        let line = Word::saturating(unit.count(line).into());
        let hash = HashUnit::new(config.port, filter_cells);
        Hardware {
            pass: Pass::NONE,
            loads: Registers::new([Word::ZERO; 2]),
            filters: [Filter::new(filter_cells), Filter::new(filter_cells)],
            active: 0,
            critical: Registers::new([Critical::NONE]),
            critical_rate: Registers::new([Word::ZERO]),
            critical_heard: Registers::new([Time::ZERO]),
            reservation: Registers::new([Reservation::new(config.settling)]),
            available: Registers::new([line]),
            hash,
            recent: (FlowId(0), hash.place(FlowId(0))),
            division: Division::new(shifts),
            unit,
            line,
        }
    }

    /// Lines 1-8 of Algorithm 2, on both filters. Returns the number of active transfers.
    fn count(&mut self, claim: &Claim) -> Word {
        if self.recent.0 != claim.transfer {
            self.recent = (claim.transfer, self.hash.place(claim.transfer));
        }
        let (pass, place) = (self.pass, &self.recent.1);
        let [first, second] = &mut self.filters;
        let counts = match claim.kind {
            SchedulingKind::Data => [first.insert(pass, place), second.insert(pass, place)],
            _ => [first.remove(pass, place), second.remove(pass, place)],
        };
        counts[self.active]
    }

    /// Lines 4-5, 10 and 13: the one access to the critical transfer's cell.
    fn stand(&mut self, claim: &Claim) -> Standing {
        let Claim { transfer, kind, rank, .. } = *claim;
        self.critical.touch(self.pass, 0, |cell| {
            let own = cell.is(transfer);
            let cleared = own && (kind != SchedulingKind::Data || rank == Rank::LAST);
            if cleared {
                *cell = Critical::NONE;
            }
            // Where there is none, its rank is the last, and every other one is ahead of it.
            let ahead = own && !cleared || rank < cell.rank;
            match kind {
                SchedulingKind::Data if ahead => {
                    *cell = Critical { transfer, rank };
                    Standing::Critical
                }
                _ if ahead => Standing::Ahead { critical: cell.rank < Rank::LAST, cleared },
                _ => Standing::Behind { critical: cell.rank < Rank::LAST, cleared },
            }
        })
    }

    /// The rate of the critical transfer, which a packet of its own brings, and which is dropped when the transfer is
    /// cleared.
    fn critical_rate(&mut self, now: Time, standing: Standing, claim: &Claim) -> Word {
        let pass = self.pass;
        if standing == Standing::Critical {
            self.critical_heard.touch(pass, 0, |heard| *heard = now);
        }
        let own = Word::saturating(self.unit.count(claim.rate).into());
        self.critical_rate.touch(pass, 0, |rate| {
            match standing {
                Standing::Critical => *rate = own,
                Standing::Ahead { cleared, .. } | Standing::Behind { cleared, .. } if cleared => {
                    *rate = Word::ZERO
                }
                Standing::Ahead { .. } | Standing::Behind { .. } => {}
            }
            *rate
        })
    }

    /// Lines 9-17.
    fn share(&mut self, now: Time, claim: &Claim) -> Word {
        let active = self.count(claim);
        let standing = self.stand(claim);
        let critical_rate = self.critical_rate(now, standing, claim);
        let available = self.available.touch(self.pass, 0, |available| *available);
        let reserved = self.reserved(now, standing, claim, available);
        let critical = match standing {
            _ if claim.kind == SchedulingKind::Fin => return self.line,
            Standing::Critical => return available,
            Standing::Ahead { .. } if reserved.is_none() => return available,
            Standing::Ahead { critical, .. } | Standing::Behind { critical, .. } => critical,
        };
        let taken = critical_rate.max(reserved.unwrap_or_default());
        let sharing = active - if critical { Word::ONE } else { Word::ZERO };
        let own = if claim.kind == SchedulingKind::Data { Word::ZERO } else { Word::ONE };
        self.division.divide(available - taken, sharing + own)
    }

    /// The offer that is left for a probe beside another transfer that was offered to go first; one that goes first
    /// keeps its own offer.
    fn reserved(&mut self, now: Time, standing: Standing, claim: &Claim, available: Word) -> Option<Word> {
        let Claim { transfer, kind, rank, offer, .. } = *claim;
        let (unit, line) = (self.unit, self.line);
        self.reservation.touch(self.pass, 0, |reservation| {
            if kind != SchedulingKind::Probe {
                reservation.settled(transfer);
                return None;
            }
            let before = reservation.before(now, transfer, rank);
            if before.is_none() && matches!(standing, Standing::Ahead { .. }) {
                let own = offer.min(unit.times(available.min(line).get()));
                reservation.offered(now, transfer, rank, own);
            }
            before.map(|rate| Word::saturating(unit.count(rate).into()))
        })
    }
}

/// The unit of rates before a line of this rate: what is available can exceed the line's rate eight times.
fn unit_before(line: BitRate) -> RateUnit {
    RateUnit::finest(BitRate::new(line.get().saturating_mul(8)))
}

impl DataPlane for Hardware {
    #[inline(always)]
    fn packet(&mut self, now: Time, len: Bytes, claim: Option<&Claim>) -> Option<BitRate> {
        self.pass = self.pass.next();
        let len = Word::saturating(len.get());
        self.loads.touch(self.pass, usize::from(claim.is_some()), |load| *load = *load + len);
        let claim = claim?;
        let share = match claim.kind {
            SchedulingKind::Data | SchedulingKind::Probe | SchedulingKind::Fin => self.share(now, claim),
            SchedulingKind::Last | SchedulingKind::Feedback | SchedulingKind::Nack => self.line,
        };
        Some(claim.offer.min(self.unit.times(share.min(self.line).get())))
    }

    fn decay(&mut self, share: f64) {
        for load in self.loads.cells_mut() {
            // As `ceil`, which is a call on processors that are not known to have it.
            let lost = f64::from(load.get()) * share;
            let whole = lost as u32;
            let up = u64::from(f64::from(whole) < lost);
            *load = *load - Word::saturating(u64::from(whole) + up);
        }
    }

    fn loads(&self) -> [f64; 2] {
        self.loads.cells().map(|load| f64::from(load.get()))
    }

    fn active(&self) -> u64 {
        self.filters[self.active].active().get().into()
    }

    fn critical(&self) -> Option<FlowId> {
        let cell = self.critical.cells()[0];
        (cell.rank < Rank::LAST).then_some(cell.transfer)
    }

    /// A filter takes in everybody.
    fn untracked(&self) -> u64 {
        0
    }

    fn set_available(&mut self, available: f64) {
        let available = self.unit.count(BitRate::new(available as u64));
        *self.available.cells_mut() = [Word::saturating(available.into())];
    }

    fn set_line(&mut self, line: BitRate) {
        let unit = unit_before(line);
        // The registers hold values in the old unit.
        for [cell] in [self.available.cells_mut(), self.critical_rate.cells_mut()] {
            *cell = Word::saturating(unit.count(self.unit.times(cell.get())).into());
        }
        (self.unit, self.line) = (unit, Word::saturating(unit.count(line).into()));
    }

    fn swap(&mut self) {
        self.filters[self.active].clear();
        self.active ^= 1;
    }

    fn expire(&mut self, heard_before: Time) {
        if self.critical().is_some() && is_stale(self.critical_heard.cells()[0], heard_before) {
            *self.critical.cells_mut() = [Critical::NONE];
            *self.critical_rate.cells_mut() = [Word::ZERO];
        }
    }

    fn is_at_rest(&self) -> bool {
        *self.loads.cells() == [Word::ZERO; 2]
            && self.critical().is_none()
            && self.filters.iter().all(Filter::is_empty)
    }
}
