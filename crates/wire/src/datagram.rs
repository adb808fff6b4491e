//! Datagrams as a whole, of every kind of message: parse and emit.

use headwater_units::{FlowId, MAX_SYMBOL_SIZE, SymbolId};
use serde::{Deserialize, Serialize};

use crate::header::{
    HEADER, KIND_ACK, KIND_ACK_VECTOR, KIND_ASSIGN, KIND_CHALLENGE, KIND_CONTROL, KIND_CUMULATIVE, KIND_FIN,
    KIND_FIN_ACK, KIND_NOTICE, KIND_PROBE, KIND_PROBE_ACK, KIND_PULL, KIND_RECEIPT, KIND_SCHEDULED,
    KIND_SYMBOL, KIND_TREE, PRELUDE, VERSION,
};
use crate::scheduled::{Fields, ScheduledBody};
use crate::scheduling::{FLAG_SCHEDULED, OFFER_AT, SCHEDULING_AT, SCHEDULING_END};
use crate::symbol::{FLAG_TRIMMED, SEAL, SYMBOL_COVERED, SYMBOL_HEADER};
use crate::tree::{Interest, TreeBody};
use crate::{
    Ack, AckVector, Announcement, Assign, Class, Control, Cumulative, FlowSecret, HeaderKey, Nack, Probe,
    ProbeAck, Pull, RateFeedback, RateProbe, Receipt, ScheduledFin, ScheduledSymbol, Scheduling,
    SchedulingKind, Signal, SymbolHeader, ToNode, WireError,
};

/// Why a flow ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FinReason {
    /// The receiver has the object.
    Done = 0,
    /// The receiver gave up.
    Cancelled = 1,
    /// The receiver no longer trusts this source.
    Distrusted = 2,
}

/// Content of a datagram, by its kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Body {
    /// A symbol; its payload follows the header.
    Symbol(SymbolHeader),
    /// Receiver to source: what came.
    Ack(Box<Ack>),
    /// Receiver to source: what to send. Opens the flow.
    Assign(Box<Assign>),
    /// Source to receiver: send this nonce back from where you are. A receiver that pulls sends back the same body.
    Challenge {
        /// Any number but zero.
        nonce: u64,
    },
    /// Receiver to source: the flow is over. Source to a receiver that pulls: nothing comes of it any more; that is not answered.
    Fin(FinReason),
    /// Source to receiver: understood.
    FinAck,
    /// A control message that travels as a datagram (simulation; on real hosts they ride QUIC streams).
    Control(Box<Control>),
    /// Receiver to source, of a flow that runs TCP: what came, without a gap.
    Cumulative(Cumulative),
    /// Receiver to source, of a flow that runs DCCP: which of the newest packets came.
    AckVector(AckVector),
    /// Source to receiver: does a datagram of this length arrive?
    Probe(Probe),
    /// Receiver to source: it did.
    ProbeAck(ProbeAck),
    /// Receiver to source, of a flow whose receiver pulls: send more.
    Pull(Pull),
    /// Receiver to source, of a flow whose receiver pulls: what came of one packet.
    Receipt(Receipt),
    /// Source to a receiver that pulls as one of a group: it has held the group up, and gets nothing by it any more; its pulls
    /// are answered to it alone from now on.
    Detached,
    /// Source to receiver, of a flow of an overlay: the source is there, and what it is to send next has not come to it yet.
    Heartbeat {
        /// The newest assignment that it knows, as in [`SymbolHeader::assignment`].
        assignment: u8,
    },
    /// Receiver towards source, up a tree: a symbol is wanted (Datacast §V-A).
    Interest(Interest),
    /// Source to receivers, down a tree: which block comes after another one.
    Announcement(Announcement),
    /// A symbol of a flow whose rate switches compute; its payload follows the header.
    ScheduledSymbol(ScheduledSymbol),
    /// Source to receivers, of a scheduled flow: what would the path grant?
    RateProbe(RateProbe),
    /// Source to receivers, of a scheduled flow: its share is free.
    ScheduledFin(ScheduledFin),
    /// Receiver to source, of a scheduled flow: what the path grants.
    RateFeedback(Box<RateFeedback>),
    /// Receiver to source, of a scheduled flow: what the path grants, and what has not come.
    Nack(Box<Nack>),
}

impl Body {
    /// Whether it is the header of a symbol whose payload a switch has cut off.
    pub fn is_trimmed(&self) -> bool {
        match self {
            Body::Symbol(header) => header.trimmed,
            Body::ScheduledSymbol(header) => header.trimmed,
            _ => false,
        }
    }

    /// The symbol that it carries, or carried before it was trimmed.
    #[inline]
    pub fn symbol(&self) -> Option<SymbolId> {
        match self {
            Body::Symbol(header) => Some(header.symbol),
            Body::ScheduledSymbol(header) => Some(header.symbol),
            _ => None,
        }
    }

    /// Scheduling fields that switches change, if the datagram goes down the tree of a scheduled flow.
    pub fn negotiated(&self) -> Option<(SchedulingKind, &Scheduling)> {
        match self {
            Body::ScheduledSymbol(it) => Some((it.kind(), &it.scheduling)),
            Body::RateProbe(it) => Some((SchedulingKind::Probe, &it.scheduling)),
            Body::ScheduledFin(it) => Some((SchedulingKind::Fin, &it.scheduling)),
            _ => None,
        }
    }

    /// As [`Body::negotiated`], to lower the offer.
    pub fn negotiated_mut(&mut self) -> Option<&mut Scheduling> {
        match self {
            Body::ScheduledSymbol(it) => Some(&mut it.scheduling),
            Body::RateProbe(it) => Some(&mut it.scheduling),
            Body::ScheduledFin(it) => Some(&mut it.scheduling),
            _ => None,
        }
    }
}

/// A datagram's meaning, without payload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Datagram {
    /// Queue class.
    pub class: Class,
    /// Generation of the flow key.
    pub key_epoch: u8,
    /// The flow.
    pub flow: FlowId,
    /// The rest.
    pub body: Body,
}

/// A datagram and the part of the input that is its payload.
#[derive(Clone, Debug, PartialEq)]
pub struct Parsed<'a> {
    /// The meaning.
    pub datagram: Datagram,
    /// A symbol's T bytes; empty for everything else and for a trimmed symbol.
    pub payload: &'a [u8],
}

/// Reads a datagram and checks that the holder of `key` made it.
///
/// # Errors
/// [`WireError`]; the bytes are hostile until this returns `Ok`.
pub fn parse<'a>(bytes: &'a [u8], key: &HeaderKey) -> Result<Parsed<'a>, WireError> {
    read(bytes, Some(key))
}

/// Reads a datagram of a tree, as a device on the path must, which holds no key: nothing of it is proven. `None` for
/// all that is neither a symbol nor [`Body::Interest`] nor [`Body::Announcement`].
pub fn peek_tree(bytes: &[u8]) -> Option<Datagram> {
    matches!(bytes.first()? & 15, KIND_SYMBOL | KIND_TREE)
        .then(|| read(bytes, None).ok())?
        .map(|it| it.datagram)
}

/// Checks the tag if there is a key.
#[expect(clippy::too_many_lines, reason = "one flat match")]
fn read<'a>(bytes: &'a [u8], key: Option<&HeaderKey>) -> Result<Parsed<'a>, WireError> {
    let header: &[u8; HEADER] =
        bytes.first_chunk().ok_or(WireError::Short { have: bytes.len(), need: HEADER })?;
    if header[0] >> 4 != VERSION {
        return Err(WireError::Version(header[0] >> 4));
    }
    let kind = header[0] & 15;
    let class = Class::from_number(header[1] >> 5).ok_or(WireError::Field { what: "class" })?;
    let flags = header[1] & 0x1f;
    let flow = FlowId(u64::from_be_bytes(header[4..12].try_into().expect("8 bytes")));
    let number = u32::from_be_bytes(header[12..16].try_into().expect("4 bytes"));
    if key.is_some_and(|key| !key.matches(bytes, covered(bytes, kind, flags))) {
        return Err(WireError::Tag);
    }
    let free = match kind {
        KIND_SYMBOL => true,
        KIND_SCHEDULED => flags == 0,
        KIND_TREE => (flags, number) == (0, 0),
        _ => (flags, header[3], number) == (0, 0, 0),
    };
    if !free {
        return Err(WireError::Field { what: "reserved bits" });
    }
    let rest = &bytes[HEADER..];
    let exactly = |need: usize| match rest.len() == need {
        true => Ok(()),
        false => Err(WireError::Length { have: rest.len(), need }),
    };
    let mut payload = &[][..];
    let body = match kind {
        KIND_SYMBOL if flags & FLAG_SCHEDULED == 0 => {
            let (symbol, after) =
                rest.split_first_chunk().ok_or(WireError::Short { have: rest.len(), need: SYMBOL_HEADER })?;
            payload = payload_of(after, flags)?;
            Body::Symbol(SymbolHeader::parse(symbol, flags, header[3], number)?)
        }
        KIND_SYMBOL => {
            let (fields, after) =
                rest.split_first_chunk().ok_or(WireError::Short { have: rest.len(), need: Fields::LEN })?;
            payload = payload_of(after, flags)?;
            Body::ScheduledSymbol(ScheduledSymbol::parse(&Fields::parse(fields)?, flags, header[3], number)?)
        }
        KIND_ACK => Body::Ack(Box::new(Ack::parse(rest)?)),
        KIND_ASSIGN => Body::Assign(Box::new(Assign::parse(rest)?)),
        KIND_CHALLENGE => {
            exactly(8)?;
            match u64::from_be_bytes(rest.try_into().expect("8 bytes")) {
                0 => return Err(WireError::Field { what: "nonce" }),
                nonce => Body::Challenge { nonce },
            }
        }
        KIND_FIN => {
            exactly(1)?;
            Body::Fin(match rest[0] {
                0 => FinReason::Done,
                1 => FinReason::Cancelled,
                2 => FinReason::Distrusted,
                _ => return Err(WireError::Field { what: "reason" }),
            })
        }
        KIND_FIN_ACK => {
            exactly(0)?;
            Body::FinAck
        }
        KIND_CONTROL => Body::Control(Box::new(
            Control::parse(rest).map_err(|_| WireError::Field { what: "control message" })?,
        )),
        KIND_CUMULATIVE => Body::Cumulative(Cumulative::parse(rest)?),
        KIND_ACK_VECTOR => Body::AckVector(AckVector::parse(rest)?),
        KIND_PROBE => Body::Probe(Probe::parse(rest)?),
        KIND_PROBE_ACK => Body::ProbeAck(ProbeAck::parse(rest)?),
        KIND_PULL => Body::Pull(Pull::parse(rest)?),
        KIND_RECEIPT => Body::Receipt(Receipt::parse(rest)?),
        KIND_NOTICE => match *rest {
            [] => Body::Detached,
            [assignment] => Body::Heartbeat { assignment },
            _ => return Err(WireError::Length { have: rest.len(), need: 1 }),
        },
        KIND_TREE => match TreeBody::parse(rest)? {
            TreeBody::Interest(name) => Body::Interest(Interest { name, hops: header[3] }),
            TreeBody::Announcement(announcement) if header[3] == 0 => Body::Announcement(announcement),
            TreeBody::Announcement(_) => return Err(WireError::Field { what: "reserved bits" }),
        },
        KIND_SCHEDULED => match ScheduledBody::parse(rest, header[3], number)? {
            ScheduledBody::Probe(it) => Body::RateProbe(it),
            ScheduledBody::Fin(it) => Body::ScheduledFin(it),
            ScheduledBody::Feedback(it) => Body::RateFeedback(Box::new(it)),
            ScheduledBody::Nack(it) => Body::Nack(it),
        },
        other => return Err(WireError::Kind(other)),
    };
    Ok(Parsed { datagram: Datagram { class, key_epoch: header[2], flow, body }, payload })
}

/// How many bytes the tag of a datagram covers, its own place among them: all but a symbol's payload, and an offer that switches lower.
#[inline]
fn covered(bytes: &[u8], kind: u8, flags: u8) -> usize {
    let negotiated =
        |first: &u8| SchedulingKind::from_first(*first).is_some_and(SchedulingKind::is_negotiated);
    let covered = match kind {
        KIND_SYMBOL if flags & FLAG_SCHEDULED == 0 => SYMBOL_COVERED,
        KIND_SYMBOL => OFFER_AT,
        KIND_SCHEDULED if bytes.get(SCHEDULING_AT).is_some_and(negotiated) => OFFER_AT,
        _ => bytes.len(),
    };
    covered.min(bytes.len())
}

/// Bytes between a symbol's header and its seal: none if a switch has cut them off.
#[inline]
fn payload_of(after: &[u8], flags: u8) -> Result<&[u8], WireError> {
    if flags & FLAG_TRIMMED != 0 {
        return Ok(&[]);
    }
    let size = after.len().checked_sub(SEAL).ok_or(WireError::Short { have: after.len(), need: SEAL })?;
    if size == 0 || size > usize::from(MAX_SYMBOL_SIZE) {
        return Err(WireError::Field { what: "symbol size" });
    }
    Ok(&after[..size])
}

/// Reads what a switch has left of a symbol: the header, whatever else is still there or is not.
///
/// The caller must know that it was trimmed, by the packet's code point ([`CodePoints`](crate::CodePoints)): a switch
/// knows nothing of our flags, and anybody on the path could set them, since the tag does not cover the one in
/// question.
///
/// # Errors
/// [`WireError`]: too short for a symbol's header, no symbol, or as [`parse`].
pub fn parse_trimmed(bytes: &[u8], key: &HeaderKey) -> Result<Datagram, WireError> {
    let short = |need| WireError::Short { have: bytes.len(), need };
    let need = match *bytes.first_chunk::<2>().ok_or(short(SYMBOL_COVERED))? {
        [first, ..] if first & 15 != KIND_SYMBOL => return Err(WireError::Kind(first & 15)),
        [_, flags] if flags & FLAG_SCHEDULED != 0 => SCHEDULING_END,
        [_, _] => SYMBOL_COVERED,
    };
    let mut header = [0; SCHEDULING_END];
    let header = &mut header[..need];
    header.copy_from_slice(bytes.get(..need).ok_or(short(need))?);
    header[1] |= FLAG_TRIMMED;
    parse(header, key).map(|parsed| parsed.datagram)
}

impl Datagram {
    /// Bytes on the wire, above UDP; `symbol_size` counts only for an untrimmed symbol.
    pub fn len(&self, symbol_size: u16) -> usize {
        HEADER
            + match &self.body {
                Body::Symbol(s) if s.trimmed => SYMBOL_HEADER,
                Body::Symbol(_) => SYMBOL_HEADER + usize::from(symbol_size) + SEAL,
                Body::Ack(ack) => ack.len(),
                Body::Assign(assign) => assign.len(),
                Body::Challenge { .. } => 8,
                Body::Fin(_) | Body::Heartbeat { .. } => 1,
                Body::FinAck | Body::Detached => 0,
                Body::Control(control) => control.encoded_len(),
                Body::Cumulative(ack) => ack.len(),
                Body::AckVector(_) => AckVector::LEN,
                Body::Probe(probe) => probe.len(),
                Body::ProbeAck(_) => ProbeAck::LEN,
                Body::Pull(pull) => pull.len(),
                Body::Receipt(_) => Receipt::LEN,
                Body::Interest(interest) => TreeBody::Interest(interest.name).len(),
                &Body::Announcement(announcement) => TreeBody::Announcement(announcement).len(),
                Body::ScheduledSymbol(it) => it.len(symbol_size),
                Body::RateProbe(_) | Body::ScheduledFin(_) | Body::RateFeedback(_) => Fields::LEN,
                Body::Nack(nack) => nack.len(),
            }
    }
}

/// Writes a datagram into `out`, which must be exactly [`Datagram::len`] bytes long, and returns the room for the
/// symbol's payload (empty for everything else). The tag does not cover the payload, so fill it before or after.
///
/// # Panics
/// If `out` has another length: the caller asked for it a line above.
#[expect(clippy::too_many_lines, reason = "one flat match")]
pub fn emit<'a>(datagram: &Datagram, symbol_size: u16, key: &HeaderKey, out: &'a mut [u8]) -> &'a mut [u8] {
    assert_eq!(out.len(), datagram.len(symbol_size), "a datagram is emitted into a buffer of its own length");
    let (mut flags, mut detail, mut number) = (0, 0, 0);
    let kind = match &datagram.body {
        Body::Symbol(s) => {
            (flags, detail, number) = (s.flags(), s.ack_interval.max(1), s.number.0 as u32);
            s.emit(&mut out[HEADER..SYMBOL_COVERED]);
            KIND_SYMBOL
        }
        Body::Ack(ack) => {
            ack.emit(&mut out[HEADER..]);
            KIND_ACK
        }
        Body::Assign(assign) => {
            assign.emit(&mut out[HEADER..]);
            KIND_ASSIGN
        }
        Body::Challenge { nonce } => {
            out[HEADER..].copy_from_slice(&nonce.to_be_bytes());
            KIND_CHALLENGE
        }
        Body::Fin(reason) => {
            out[HEADER] = *reason as u8;
            KIND_FIN
        }
        Body::FinAck => KIND_FIN_ACK,
        Body::Control(control) => {
            control.emit_into(&mut out[HEADER..]);
            KIND_CONTROL
        }
        Body::Cumulative(ack) => {
            ack.emit(&mut out[HEADER..]);
            KIND_CUMULATIVE
        }
        Body::AckVector(vector) => {
            vector.emit(&mut out[HEADER..]);
            KIND_ACK_VECTOR
        }
        Body::Probe(probe) => {
            probe.emit(&mut out[HEADER..]);
            KIND_PROBE
        }
        Body::ProbeAck(ack) => {
            ack.emit(&mut out[HEADER..]);
            KIND_PROBE_ACK
        }
        Body::Pull(pull) => {
            pull.emit(&mut out[HEADER..]);
            KIND_PULL
        }
        Body::Receipt(receipt) => {
            receipt.emit(&mut out[HEADER..]);
            KIND_RECEIPT
        }
        Body::Detached => KIND_NOTICE,
        &Body::Heartbeat { assignment } => {
            out[HEADER] = assignment;
            KIND_NOTICE
        }
        Body::Interest(interest) => {
            detail = interest.hops;
            TreeBody::Interest(interest.name).emit(&mut out[HEADER..]);
            KIND_TREE
        }
        &Body::Announcement(announcement) => {
            TreeBody::Announcement(announcement).emit(&mut out[HEADER..]);
            KIND_TREE
        }
        Body::ScheduledSymbol(it) => {
            (flags, detail, number) = (it.flags(), it.round_trip.0, it.number);
            it.emit(&mut out[HEADER..SCHEDULING_END]);
            KIND_SYMBOL
        }
        Body::RateProbe(probe) => {
            (detail, number) = (probe.round_trip.0, probe.number);
            probe.emit(&mut out[HEADER..]);
            KIND_SCHEDULED
        }
        Body::ScheduledFin(fin) => {
            number = fin.number;
            fin.emit(&mut out[HEADER..]);
            KIND_SCHEDULED
        }
        Body::RateFeedback(feedback) => {
            number = feedback.lost;
            feedback.emit(&mut out[HEADER..]);
            KIND_SCHEDULED
        }
        Body::Nack(nack) => {
            number = nack.feedback.lost;
            nack.emit(&mut out[HEADER..]);
            KIND_SCHEDULED
        }
    };
    let first = [(VERSION << 4) | kind, ((datagram.class as u8) << 5) | flags, datagram.key_epoch, detail];
    let prelude =
        u128::from(u32::from_be_bytes(first)) << 96 | u128::from(datagram.flow.0) << 32 | u128::from(number);
    out[..PRELUDE].copy_from_slice(&prelude.to_be_bytes());
    key.write(out, covered(out, kind, flags));
    let header = match datagram.body {
        Body::Symbol(SymbolHeader { trimmed: false, .. }) => SYMBOL_COVERED,
        Body::ScheduledSymbol(ScheduledSymbol { trimmed: false, .. }) => SCHEDULING_END,
        _ => return &mut [],
    };
    let end = out.len() - SEAL;
    out[end..].fill(0);
    &mut out[header..end]
}

impl Signal {
    /// The datagram that brings it to the node with this flow.
    pub fn into_datagram(self, secret: &FlowSecret) -> Vec<u8> {
        let body = Body::Control(Box::new(Control::Node(ToNode::Signal(Box::new(self)))));
        let datagram = Datagram { class: Class::Control, key_epoch: 0, flow: secret.flow, body };
        let mut bytes = vec![0; datagram.len(0)];
        emit(&datagram, 0, &HeaderKey::new(&secret.key), &mut bytes);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use headwater_units::FlowKey;

    use super::*;
    use crate::{answer_key, answer_tags};

    #[test]
    fn a_signal_is_believed_by_its_node_and_its_answer_by_the_node_above() {
        let secret = FlowSecret { flow: FlowId(7), key: FlowKey(core::array::from_fn(|n| n as u8)) };
        let signal = Signal { flow: FlowId(7), number: 3, updates: Vec::new(), below: Vec::new() };
        let bytes = signal.clone().into_datagram(&secret);
        let parsed = parse(&bytes, &HeaderKey::new(&secret.key)).unwrap().datagram;
        assert_eq!(parsed.body, Body::Control(Box::new(Control::Node(ToNode::Signal(Box::new(signal))))));
        let lent = answer_tags(answer_key(&secret.key));
        assert!(parse(&bytes, &lent).is_err(), "who is lent the key of answers cannot signal");
    }
}
