//! Scheduling header: fields of a scheduled datagram for the switches on its way, and of these for its receivers (PAM
//! §II-C and Fig. 5).
//!
//! ```text
//! offset  32                33       36       39      42
//!         +-----------------+--------+--------+-------+
//!         | kind 3 | unit 5 |  rank  |  rate  | offer |     rates in units of 2^unit bit/s
//!         +-----------------+--------+--------+-------+
//! ```
//! These ten bytes stand at the same place in every scheduled datagram, behind what else it says. A switch reads them without a key
//! ([`peek_scheduling`]) and lowers the offer in place ([`lower_offer`]). The header tag covers the other seven bytes, and the
//! offer only where no switch has to do with it: in feedback and NACKs.
//!
//! The source chooses the unit, the finest in which its link's rate has 24 bits ([`RateUnit::finest`]). Rates are rounded down to it:
//! by less than one part in 2^23 of the link's rate. A share of less than one unit is no share.

use headwater_units::{BitRate, Duration, FlowId, Rank};
use serde::{Deserialize, Serialize};

use crate::WireError;
use crate::header::{HEADER, KIND_SCHEDULED, KIND_SYMBOL, VERSION};

/// Bytes of the scheduling header (PAM §IV-A).
pub const SCHEDULING: usize = 10;
/// Bytes between the header tag and the scheduling header: each kind's own.
pub(crate) const OWN: usize = 8;
/// Where it stands in a scheduled datagram.
pub const SCHEDULING_AT: usize = HEADER + OWN;
/// Where it ends.
pub(crate) const SCHEDULING_END: usize = SCHEDULING_AT + SCHEDULING;
/// Where the offer begins: what the tag of a datagram covers whose offer switches lower.
pub(crate) const OFFER_AT: usize = SCHEDULING_END - 3;

/// A symbol's flag: it has a scheduling header.
pub(crate) const FLAG_SCHEDULED: u8 = 0b1_0000;

/// Rates have 24 bits.
const RATE_LIMIT: u64 = 1 << 24;

/// Kind of a scheduled datagram (PAM §IV-A, footnote 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SchedulingKind {
    /// A symbol (MULTICAST_DATA).
    Data = 0,
    /// A symbol of a transfer that has given its share back, since it is about to end (FIN_STAGE).
    Last = 1,
    /// Asks for an offer, and gives the share back (PROBE).
    Probe = 2,
    /// Gives the share back (FIN).
    Fin = 3,
    /// A receiver's answer (ACK): nothing to a switch.
    Feedback = 4,
    /// An answer that names missing symbols: nothing to a switch.
    Nack = 5,
}

impl SchedulingKind {
    const ALL: [SchedulingKind; 6] = [
        SchedulingKind::Data,
        SchedulingKind::Last,
        SchedulingKind::Probe,
        SchedulingKind::Fin,
        SchedulingKind::Feedback,
        SchedulingKind::Nack,
    ];

    /// Whether switches lower the offer of such a datagram: of those that go from a source to its receivers.
    #[inline]
    pub fn is_negotiated(self) -> bool {
        !matches!(self, SchedulingKind::Feedback | SchedulingKind::Nack)
    }

    #[inline]
    pub(crate) fn from_first(byte: u8) -> Option<Self> {
        Self::ALL.get(usize::from(byte >> 5)).copied()
    }
}

/// The unit of a header's rates: 2^n bit/s, n in 0..32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RateUnit(u8);

impl RateUnit {
    /// The finest unit in which a rate has 24 bits; 1 bit/s up to 16 Mbit/s, 8,192 bit/s at 100 Gbit/s.
    pub fn finest(rate: BitRate) -> Self {
        let excess = (u64::BITS - rate.get().leading_zeros()).saturating_sub(RATE_LIMIT.ilog2());
        RateUnit(excess.min(31) as u8)
    }

    /// n.
    pub fn exponent(self) -> u8 {
        self.0
    }

    /// One unit.
    pub fn rate(self) -> BitRate {
        BitRate::new(1 << self.0)
    }

    /// Number of whole units in `rate`, rounded down, at most what 24 bits hold.
    pub fn count(self, rate: BitRate) -> u32 {
        (rate.get() >> self.0).min(RATE_LIMIT - 1) as u32
    }

    /// The rate of `count` units.
    pub fn times(self, count: u32) -> BitRate {
        BitRate::new(u64::from(count) << self.0)
    }
}

/// The values of a scheduling header (PAM's p, r, b).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scheduling {
    /// Counts of `unit`, below 2^24.
    rate: u32,
    offer: u32,
    /// Three bytes, so that a symbol's body does not grow by four.
    rank: [u8; 3],
    unit: RateUnit,
}

impl Scheduling {
    /// Rates are rounded down to the unit; the largest is 2^24 - 1 units.
    pub fn new(unit: RateUnit, rank: Rank, rate: BitRate, offer: BitRate) -> Self {
        let [_, high, middle, low] = rank.get().to_be_bytes();
        Scheduling { rate: unit.count(rate), offer: unit.count(offer), rank: [high, middle, low], unit }
    }

    /// The unit of its rates.
    pub fn unit(&self) -> RateUnit {
        self.unit
    }

    /// Desired priority of the transfer (PAM p).
    pub fn rank(&self) -> Rank {
        let [high, middle, low] = self.rank;
        Rank::new(u32::from_be_bytes([0, high, middle, low]))
    }

    /// Rate at which the source sends (PAM r).
    pub fn rate(&self) -> BitRate {
        self.unit.times(self.rate)
    }

    /// The most that the path so far would grant (PAM b).
    pub fn offer(&self) -> BitRate {
        self.unit.times(self.offer)
    }

    /// Lowers the offer to `most`, rounded down to the unit; a lower offer stays.
    pub fn lower_offer(&mut self, most: BitRate) {
        self.offer = self.offer.min(self.unit.count(most));
    }

    #[inline]
    pub(crate) fn emit(&self, kind: SchedulingKind, out: &mut [u8]) {
        out[0] = (kind as u8) << 5 | self.unit.0;
        out[1..4].copy_from_slice(&self.rank);
        out[4..7].copy_from_slice(&self.rate.to_be_bytes()[1..]);
        out[7..10].copy_from_slice(&self.offer.to_be_bytes()[1..]);
    }

    /// # Errors
    /// [`WireError::Field`]: an unknown kind.
    #[inline]
    pub(crate) fn parse(bytes: &[u8; SCHEDULING]) -> Result<(SchedulingKind, Self), WireError> {
        let [first, rank @ .., r0, r1, r2, o0, o1, o2] = *bytes;
        let kind = SchedulingKind::from_first(first).ok_or(WireError::Field { what: "scheduling kind" })?;
        let scheduling = Scheduling {
            rate: u32::from_be_bytes([0, r0, r1, r2]),
            offer: u32::from_be_bytes([0, o0, o1, o2]),
            rank,
            unit: RateUnit(first & 31),
        };
        Ok((kind, scheduling))
    }
}

/// A path's round-trip time as a source tells it to its receivers, which spread their feedback over it (PAM §III-B): one byte,
/// rounded down by less than an eighth, at most 16 s.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoundTrip(pub(crate) u8);

impl RoundTrip {
    /// The nearest one that is not longer.
    pub fn of(span: Duration) -> Self {
        let nanos = span.as_nanos();
        let shift = (u64::BITS - nanos.leading_zeros()).saturating_sub(4);
        match shift {
            31.. => RoundTrip(u8::MAX),
            // As of ranks: the leading one of the mantissa adds one to the exponent.
            _ => RoundTrip(((shift << 3) + (nanos >> shift) as u32) as u8),
        }
    }

    /// How long it is.
    pub fn duration(self) -> Duration {
        let (exponent, mantissa) = (self.0 >> 3, u64::from(self.0 & 7));
        Duration::from_nanos(match exponent {
            0 => mantissa,
            _ => (mantissa | 8) << (exponent - 1),
        })
    }
}

/// The scheduling header of a datagram, as a switch reads it, which holds no key: nothing of it is proven. `None` for all that is
/// not scheduled.
pub fn peek_scheduling(bytes: &[u8]) -> Option<(FlowId, SchedulingKind, Scheduling)> {
    let head: &[u8; SCHEDULING_END] = bytes.first_chunk()?;
    let scheduled = match head[0] {
        first if first == (VERSION << 4) | KIND_SYMBOL => head[1] & FLAG_SCHEDULED != 0,
        first => first == (VERSION << 4) | KIND_SCHEDULED,
    };
    let flow = FlowId(u64::from_be_bytes(head[4..12].try_into().expect("8 bytes")));
    let (kind, scheduling) = Scheduling::parse(head.last_chunk().expect("it has more than ten")).ok()?;
    scheduled.then_some((flow, kind, scheduling))
}

/// Lowers the offer of a scheduled datagram in place, as a switch does, and returns it as it now is; `None` if the bytes are no datagram
/// whose offer switches lower. The header tag stays valid: it does not cover the offer. UDP's checksum does.
pub fn lower_offer(bytes: &mut [u8], most: BitRate) -> Option<BitRate> {
    let (_, kind, mut scheduling) = peek_scheduling(bytes)?;
    if !kind.is_negotiated() {
        return None;
    }
    scheduling.lower_offer(most);
    bytes[OFFER_AT..SCHEDULING_END].copy_from_slice(&scheduling.offer.to_be_bytes()[1..]);
    Some(scheduling.offer())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_finest_unit_holds_the_rate_in_24_bits() {
        let unit = |rate| RateUnit::finest(BitRate::new(rate)).rate().get();
        assert_eq!([500_000, (1 << 24) - 1, 1 << 24].map(unit), [1, 1, 2]);
        assert_eq!([2_000_000_000, 100_000_000_000].map(unit), [128, 8192]);
        for rate in [0, 1, 500_000, 16_777_216, 100_000_000_000, 1 << 54] {
            let (unit, rate) = (RateUnit::finest(BitRate::new(rate)), BitRate::new(rate));
            let kept = unit.times(unit.count(rate));
            assert!(rate.get() - kept.get() <= rate.get() >> 23, "{rate} as {kept}");
        }
        // Beyond what 24 bits and the coarsest unit hold, a rate is the largest there is.
        let most = RateUnit::finest(BitRate::new(u64::MAX));
        assert_eq!(most.times(most.count(BitRate::new(u64::MAX))), BitRate::new(((1 << 24) - 1) << 31));
    }

    #[test]
    fn an_offer_is_only_lowered() {
        let rate = BitRate::new(300_000_000);
        let mut it = Scheduling::new(RateUnit::finest(rate), Rank::new(9), rate, rate);
        it.lower_offer(BitRate::new(100_000_000));
        let lowered = it.offer();
        assert!(lowered <= BitRate::new(100_000_000) && lowered > BitRate::new(99_999_900));
        it.lower_offer(rate);
        assert_eq!((it.offer(), it.rate(), it.rank()), (lowered, rate, Rank::new(9)));
    }

    #[test]
    fn a_round_trip_is_kept_within_an_eighth() {
        for nanos in [0, 1, 7, 8, 15, 16, 17, 20_000, 999_999, 1_000_000_000, (15 << 30) + 5] {
            let kept = RoundTrip::of(Duration::from_nanos(nanos)).duration().as_nanos();
            assert!(kept <= nanos && (nanos - kept) * 8 <= nanos, "{nanos} ns as {kept}");
        }
        for byte in 0..=u8::MAX {
            assert_eq!(RoundTrip::of(RoundTrip(byte).duration()), RoundTrip(byte));
        }
        assert_eq!(RoundTrip::of(Duration::MAX), RoundTrip(u8::MAX));
    }
}
