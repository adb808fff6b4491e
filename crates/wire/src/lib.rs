//! One header for every protocol: parse, emit, edit in place.
//!
//! Every datagram begins with the same 16-byte prelude and an 8-byte header tag, so a switch never asks "whose packet
//! is this". A symbol adds 8 bytes and reserves 16 behind its payload: 48 bytes in all ([`SYMBOL_OVERHEAD`]). Datagrams
//! of a flow whose rate switches compute have ten bytes more, at the same place in each ([`Scheduling`]).
//!
//! ```text
//!  0        1        2        3        4                 12              16         24
//! +--------+--------+--------+--------+-----------------+---------------+----------+--- - -
//! |ver|kind|cls|flag| epoch  | detail |     flow id     | packet number |header tag| body
//! +--------+--------+--------+--------+-----------------+---------------+----------+--- - -
//! symbol body:  block (4) | ESI (3) | assignment version (1) | T bytes of symbol | 16 reserved for sealing
//! probe body:   number (4) | length (2) | what passes (2, 0: not known) | zeros up to the length
//! probe ACK:    number (4) | length (2)
//! ```
//!
//! Numbers are big-endian. Symbols, the compact ACKs ([`Cumulative`], [`AckVector`]), pulls and receipts are parsed and emitted without
//! allocation, an [`Ack`] with one; the rarer [`Assign`] and [`Control`] messages own bounded lists. Nothing here touches a socket: bytes in, values out, and back.

mod ack;
mod assign;
mod code_point;
mod control;
mod cumulative;
mod datagram;
mod header;
mod probe;
mod pull;
mod scheduled;
mod scheduling;
mod symbol;
mod tag;
mod tree;

pub use ack::{Ack, AckRange, MAX_ACK_RANGES, MAX_OWED, Owed};
pub use assign::{Assign, Assignment, MAX_WORK, OPENING, Work};
pub use code_point::{
    CodePointError, CodePoints, DSCP_CONTROL, DSCP_FIRST, DSCP_LOWER_EFFORT, DSCP_NETWORK_CONTROL,
    DSCP_SECOND, DSCP_THIRD, DSCP_TRIMMED, class_of,
};
pub use control::{
    AtRates, Cast, CastNews, CastRoute, CastWish, Claim, ClaimRule, CoflowName, CoflowRank, CoflowTotal,
    CoflowTotals, Control, ControlError, Delivery, FetchEnd, Fetched, FlowGrant, FlowReport, FlowRole,
    FlowSecret, FlowView, GroupInvitation, GroupQuestion, Holding, Invitation, MAX_COFLOWS, MAX_CONTROL,
    MAX_FLOWS, MAX_LABEL, MAX_LABELS, MAX_NAME, MAX_NAMED, MAX_NAMES, MAX_NEWS, MAX_PAIRS, MAX_REASON,
    MAX_SIGNALLED, MarkSignal, MemberNews, MemberStanding, NameStands, Naming, NodeInfo, Outcome, PairTotal,
    Precedence, Push, RateNews, RateTerms, Refusal, Request, Signal, SignalBranch, Signalled, Spoiled,
    SpreadRule, StandingCast, Start, ToController, ToNode, ToReceiver, ToSource, TransferOrder,
    TransferReport, TreeOrder, TreeRepair, TreeUpdate, Urgency, WhyUnicast, WhyUnnamed, WhyUnscheduled,
    answer_key, answer_tags, network_of, resolve_address,
};
pub use cumulative::{AckVector, AheadBlock, Cumulative};
pub use datagram::{Body, Datagram, FinReason, Parsed, emit, parse, parse_trimmed, peek_tree};
pub use header::{Class, Ecn, HEADER, HEADER_TAG, PRELUDE, WireError, peek_flow};
pub use probe::{Probe, ProbeAck};
pub use pull::{Pull, Receipt, Want};
pub use scheduled::{
    MAX_MISSING, Missing, Nack, RateFeedback, RateProbe, SCHEDULED_OVERHEAD, ScheduledFin, ScheduledSymbol,
    TransferEnd,
};
pub use scheduling::{
    RateUnit, RoundTrip, SCHEDULING, SCHEDULING_AT, Scheduling, SchedulingKind, lower_offer, peek_scheduling,
};
pub use symbol::{SEAL, SYMBOL_OVERHEAD, SymbolHeader, mark_trimmed, on_the_wire};
pub use tag::HeaderKey;
pub use tree::{Announcement, Interest, NEXT, count_hop};
