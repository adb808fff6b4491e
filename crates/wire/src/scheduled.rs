//! Datagrams of scheduled flows: symbols and probes down a tree whose switches compute the rate, and their receivers' answers (PAM §III).
//!
//! ```text
//! symbol:    block (4) | ESI (3) | 0 (1)           | scheduling (10) | T bytes of symbol | 16 reserved for sealing
//! probe:     0 (8)                                 | scheduling (10)
//! FIN:       end (1) | 0 (7)                       | scheduling (10)
//! feedback:  packet number (4) | held for, ns (4)  | scheduling (10)
//! NACK:      packet number (4) | held for, ns (4)  | scheduling (10) | missing x [block (4) | ESI (3) | count (2)]
//! ```
//! A scheduled symbol is a symbol with a flag; the rest share a kind, and the [scheduling header](crate::Scheduling) tells which they
//! are. The prelude's fourth byte holds the round-trip time in symbols and probes. Symbols, probes and FINs of a flow are numbered
//! together, in the prelude; in answers that number is how many of them the receiver has found lost so far.

use core::num::NonZeroU16;

use arrayvec::ArrayVec;
use headwater_units::{BlockIndex, Duration, ESI_LIMIT, Esi, PacketNumber, SymbolId};
use serde::{Deserialize, Serialize};

use crate::header::{WireError, expand};
use crate::scheduling::{FLAG_SCHEDULED, OWN, SCHEDULING, SCHEDULING_END};
use crate::symbol::{FLAG_TRIMMED, SEAL};
use crate::{RoundTrip, Scheduling, SchedulingKind};

/// Bytes of a scheduled symbol beside its payload.
pub const SCHEDULED_OVERHEAD: usize = SCHEDULING_END + SEAL;
/// Maximum number of runs of missing symbols in a NACK.
pub const MAX_MISSING: usize = 64;

/// The header of a symbol of a scheduled flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduledSymbol {
    /// Position in the flow, its low 32 bits ([`ScheduledSymbol::expand`]).
    pub number: u32,
    /// Which symbol follows.
    pub symbol: SymbolId,
    /// For the switches.
    pub scheduling: Scheduling,
    /// The longest round-trip time to any receiver of the flow.
    pub round_trip: RoundTrip,
    /// The transfer has sent its FIN early, and takes no share any more (PAM footnote 3).
    pub last: bool,
    /// A switch cut the payload off.
    pub trimmed: bool,
}

impl ScheduledSymbol {
    /// The whole packet number, given the largest one seen so far.
    pub fn expand(&self, largest: Option<PacketNumber>) -> PacketNumber {
        expand(self.number, largest)
    }

    pub(crate) fn kind(&self) -> SchedulingKind {
        if self.last { SchedulingKind::Last } else { SchedulingKind::Data }
    }

    /// Its bits in the second byte of the prelude.
    pub(crate) fn flags(&self) -> u8 {
        FLAG_SCHEDULED | if self.trimmed { FLAG_TRIMMED } else { 0 }
    }

    /// Bytes behind the header tag.
    pub(crate) fn len(&self, symbol_size: u16) -> usize {
        let payload = if self.trimmed { 0 } else { usize::from(symbol_size) + SEAL };
        OWN + SCHEDULING + payload
    }

    /// Writes what stands between the header tag and the payload.
    #[inline]
    pub(crate) fn emit(&self, out: &mut [u8]) {
        debug_assert!(self.symbol.esi.0 < ESI_LIMIT, "an ESI has 24 bits");
        let symbol =
            u64::from(self.symbol.block.0) << 32 | u64::from(self.symbol.esi.0 & (ESI_LIMIT - 1)) << 8;
        out[..OWN].copy_from_slice(&symbol.to_be_bytes());
        self.scheduling.emit(self.kind(), &mut out[OWN..]);
    }

    /// Reads what stands between the header tag and the payload; the rest is of the prelude.
    #[inline]
    pub(crate) fn parse(body: &Fields, flags: u8, round_trip: u8, number: u32) -> Result<Self, WireError> {
        if flags & !(FLAG_SCHEDULED | FLAG_TRIMMED) != 0 {
            return Err(WireError::Field { what: "flags" });
        }
        let Fields { own: [b0, b1, b2, b3, e0, e1, e2, zero], kind, scheduling } = *body;
        let last = match kind {
            SchedulingKind::Data => false,
            SchedulingKind::Last => true,
            _ => return Err(WireError::Field { what: "scheduling kind" }),
        };
        if zero != 0 {
            return Err(WireError::Field { what: "reserved bits" });
        }
        let block = BlockIndex(u32::from_be_bytes([b0, b1, b2, b3]));
        let symbol = SymbolId { block, esi: Esi(u32::from_be_bytes([0, e0, e1, e2])) };
        let (round_trip, trimmed) = (RoundTrip(round_trip), flags & FLAG_TRIMMED != 0);
        Ok(ScheduledSymbol { number, symbol, scheduling, round_trip, last, trimmed })
    }
}

/// Source to receivers: what would the path grant? (PAM §III-A) The first datagram of every scheduled flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RateProbe {
    /// As [`ScheduledSymbol::number`].
    pub number: u32,
    /// As [`ScheduledSymbol::round_trip`].
    pub round_trip: RoundTrip,
    /// For the switches.
    pub scheduling: Scheduling,
}

/// Why a scheduled flow gives its share back for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TransferEnd {
    /// Everything has been sent, and no receiver misses anything.
    Done = 0,
    /// Everything will have been sent within a round trip (PAM footnote 3, Early Start): symbols may still follow.
    Early = 1,
    /// The deadline cannot be met any more (PAM §III-A).
    Late = 2,
    /// The source gives up.
    Cancelled = 3,
}

/// Source to receivers: the transfer's share is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScheduledFin {
    /// As [`ScheduledSymbol::number`].
    pub number: u32,
    /// The reason.
    pub end: TransferEnd,
    /// For the switches.
    pub scheduling: Scheduling,
}

/// Receiver to source: what the path grants (PAM Alg. 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RateFeedback {
    /// The packet that brought the offer, as [`ScheduledSymbol::number`].
    pub number: u32,
    /// From that packet's arrival to this answer. 4.29 s at most travel.
    pub held: Duration,
    /// Packets of the flow found lost so far, as their numbers tell; modulo 2^32.
    pub lost: u32,
    /// The scheduling of that packet, with the receiver's own limit on the offer.
    pub scheduling: Scheduling,
}

impl RateFeedback {
    /// The whole number of the packet that it answers, given the largest one sent so far.
    pub fn expand(&self, largest: Option<PacketNumber>) -> PacketNumber {
        expand(self.number, largest)
    }

    fn own(&self) -> [u8; 8] {
        let held = u32::try_from(self.held.as_nanos()).unwrap_or(u32::MAX);
        (u64::from(self.number) << 32 | u64::from(held)).to_be_bytes()
    }

    fn of(fields: &Fields, lost: u32) -> Self {
        let [n0, n1, n2, n3, held @ ..] = fields.own;
        RateFeedback {
            number: u32::from_be_bytes([n0, n1, n2, n3]),
            held: Duration::from_nanos(u32::from_be_bytes(held).into()),
            lost,
            scheduling: fields.scheduling,
        }
    }
}

/// A run of symbols that a receiver misses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// Of this block.
    pub block: BlockIndex,
    /// From this one on; the last one is below 2^24 too.
    pub first: Esi,
    /// This many.
    pub count: NonZeroU16,
}

impl Missing {
    const LEN: usize = 9;

    fn emit(&self, out: &mut [u8]) {
        out[..4].copy_from_slice(&self.block.0.to_be_bytes());
        out[4..7].copy_from_slice(&self.first.0.to_be_bytes()[1..]);
        out[7..].copy_from_slice(&self.count.get().to_be_bytes());
    }

    fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        let [b0, b1, b2, b3, e0, e1, e2, c0, c1] =
            *<&[u8; Self::LEN]>::try_from(bytes).expect("cut to length");
        let (first, count) = (u32::from_be_bytes([0, e0, e1, e2]), u16::from_be_bytes([c0, c1]));
        match NonZeroU16::new(count) {
            Some(count) if first + u32::from(count.get()) <= ESI_LIMIT => Ok(Missing {
                block: BlockIndex(u32::from_be_bytes([b0, b1, b2, b3])),
                first: Esi(first),
                count,
            }),
            _ => Err(WireError::Field { what: "run of missing symbols" }),
        }
    }
}

/// Receiver to source: what the path grants, and what has not come (PAM Alg. 1, lines 2-4).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Nack {
    /// As without missing symbols.
    pub feedback: RateFeedback,
    /// In the order in which the receiver wants them; at least one run.
    pub missing: ArrayVec<Missing, MAX_MISSING>,
}

/// Those bodies that share a kind.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ScheduledBody {
    Probe(RateProbe),
    Fin(ScheduledFin),
    Feedback(RateFeedback),
    Nack(Box<Nack>),
}

/// Fields of every scheduled datagram behind its header tag.
pub(crate) struct Fields {
    own: [u8; OWN],
    pub(crate) kind: SchedulingKind,
    scheduling: Scheduling,
}

impl Fields {
    pub(crate) const LEN: usize = OWN + SCHEDULING;

    #[inline]
    pub(crate) fn parse(bytes: &[u8; Self::LEN]) -> Result<Self, WireError> {
        let (own, scheduling) =
            (bytes.first_chunk().expect("8 of 18"), bytes.last_chunk().expect("10 of 18"));
        let (kind, scheduling) = Scheduling::parse(scheduling)?;
        Ok(Fields { own: *own, kind, scheduling })
    }

    fn emit(own: [u8; OWN], kind: SchedulingKind, scheduling: &Scheduling, out: &mut [u8]) {
        out[..OWN].copy_from_slice(&own);
        scheduling.emit(kind, &mut out[OWN..]);
    }
}

impl RateProbe {
    pub(crate) fn emit(&self, out: &mut [u8]) {
        Fields::emit([0; 8], SchedulingKind::Probe, &self.scheduling, out);
    }
}

impl ScheduledFin {
    pub(crate) fn emit(&self, out: &mut [u8]) {
        Fields::emit([self.end as u8, 0, 0, 0, 0, 0, 0, 0], SchedulingKind::Fin, &self.scheduling, out);
    }
}

impl RateFeedback {
    pub(crate) fn emit(&self, out: &mut [u8]) {
        Fields::emit(self.own(), SchedulingKind::Feedback, &self.scheduling, out);
    }
}

impl Nack {
    pub(crate) fn len(&self) -> usize {
        Fields::LEN + Missing::LEN * self.missing.len()
    }

    pub(crate) fn emit(&self, out: &mut [u8]) {
        Fields::emit(self.feedback.own(), SchedulingKind::Nack, &self.feedback.scheduling, out);
        let rooms = out[Fields::LEN..].chunks_exact_mut(Missing::LEN);
        self.missing.iter().zip(rooms).for_each(|(missing, out)| missing.emit(out));
    }
}

impl ScheduledBody {
    /// `detail` and `number` are the prelude's: only what goes down the tree has the first.
    pub(crate) fn parse(body: &[u8], detail: u8, number: u32) -> Result<Self, WireError> {
        let (fields, rest): (&[u8; Fields::LEN], _) =
            body.split_first_chunk().ok_or(WireError::Short { have: body.len(), need: Fields::LEN })?;
        let fields = Fields::parse(fields)?;
        let scheduling = fields.scheduling;
        let reserved = WireError::Field { what: "reserved bits" };
        if fields.kind != SchedulingKind::Nack && !rest.is_empty() {
            return Err(WireError::Length { have: body.len(), need: Fields::LEN });
        }
        match fields.kind {
            SchedulingKind::Data | SchedulingKind::Last => Err(WireError::Field { what: "scheduling kind" }),
            SchedulingKind::Probe if fields.own == [0; 8] => {
                Ok(ScheduledBody::Probe(RateProbe { number, round_trip: RoundTrip(detail), scheduling }))
            }
            SchedulingKind::Fin if fields.own[1..] == [0; 7] && detail == 0 => {
                let end = match fields.own[0] {
                    0 => TransferEnd::Done,
                    1 => TransferEnd::Early,
                    2 => TransferEnd::Late,
                    3 => TransferEnd::Cancelled,
                    _ => return Err(WireError::Field { what: "end of a transfer" }),
                };
                Ok(ScheduledBody::Fin(ScheduledFin { number, end, scheduling }))
            }
            SchedulingKind::Feedback if detail == 0 => {
                Ok(ScheduledBody::Feedback(RateFeedback::of(&fields, number)))
            }
            SchedulingKind::Nack if detail == 0 => {
                let runs = rest.chunks_exact(Missing::LEN);
                if !runs.remainder().is_empty() || rest.is_empty() {
                    return Err(WireError::Length { have: body.len(), need: Fields::LEN + Missing::LEN });
                }
                if runs.len() > MAX_MISSING {
                    return Err(WireError::TooMany { what: "runs of missing symbols", have: runs.len() });
                }
                let missing = runs.map(Missing::parse).collect::<Result<_, _>>()?;
                Ok(ScheduledBody::Nack(Box::new(Nack {
                    feedback: RateFeedback::of(&fields, number),
                    missing,
                })))
            }
            _ => Err(reserved),
        }
    }
}
