//! Content of the tables and registers of a data plane, for those who run the same pipeline on other devices.

use headwater_units::{BitRate, Duration, FlowId, Rank, Time};

use super::Hardware;
use super::filter::HASHES;
use crate::rate_allocator::reservation::Held;

/// Tables that do not change while packets pass: the control program writes them when the port is set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HardwareTables {
    /// Keys of the hash unit (SipHash-1-3 of 128 bits, of which three parts of 32 bits are places).
    pub hash_key: [u64; 2],
    /// Cells of each of a filter's three arrays.
    pub filter_cells: u32,
    /// Right shifts by divisor, from 0 to 1,024; 32 where there are fewer than eight.
    pub division: Vec<[u8; 8]>,
    /// The same of larger divisors, by their leading seven bits: 64 entries for each power of two.
    pub division_log: Vec<[u8; 8]>,
    /// Time for which a probe's offer is kept.
    pub settling: Duration,
    /// Rates are counts of 2^n bit/s.
    pub unit: u8,
    /// The line's rate.
    pub line: u32,
}

/// Content of the registers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HardwareState {
    /// Bytes that are not scheduled, and bytes that are.
    pub loads: [u32; 2],
    /// Three arrays of each filter, 64 cells a word.
    pub filters: [[Vec<u64>; HASHES]; 2],
    /// Transfers in each filter.
    pub counts: [u32; 2],
    /// Which filter counts. The control program writes it.
    pub active: u32,
    /// The critical transfer and its rank.
    pub critical: Option<(FlowId, Rank)>,
    /// Its rate.
    pub critical_rate: u32,
    /// When it was last heard of.
    pub critical_heard: Time,
    /// Kept offer: its transfer, that one's rank, the offer, and until when.
    pub reservation: Option<(FlowId, Rank, BitRate, Time)>,
    /// Capacity that transfers may use together. The control program writes it.
    pub available: u32,
}

impl Hardware {
    pub(in crate::rate_allocator) fn tables(&self) -> HardwareTables {
        let (division, division_log) = self.division.entries();
        HardwareTables {
            hash_key: self.hash.key(),
            filter_cells: self.hash.cells(),
            division,
            division_log,
            settling: self.reservation.cells()[0].settling(),
            unit: self.unit.exponent(),
            line: self.line.get(),
        }
    }

    pub(in crate::rate_allocator) fn state(&self) -> HardwareState {
        let of_loads = self.loads.cells();
        let critical = self.critical.cells()[0];
        let held = |held: Held| (held.transfer, held.rank, held.rate, held.until);
        HardwareState {
            loads: [of_loads[0].get(), of_loads[1].get()],
            filters: self.filters.each_ref().map(|filter| filter.words().map(<[u64]>::to_vec)),
            counts: self.filters.each_ref().map(|filter| filter.active().get()),
            active: self.active as u32,
            critical: (critical.rank < Rank::LAST).then_some((critical.transfer, critical.rank)),
            critical_rate: self.critical_rate.cells()[0].get(),
            critical_heard: self.critical_heard.cells()[0],
            reservation: self.reservation.cells()[0].held().map(held),
            available: self.available.cells()[0].get(),
        }
    }
}
