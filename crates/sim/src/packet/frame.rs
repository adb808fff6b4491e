//! A frame of the simulated network: small, by value, with the number of the message that it carries.
//!
//! Queues, links and switches see a [`SimFrame`], which is copied from event to event; the message waits in [`Bodies`]
//! and is touched twice, when it is sent and when it is delivered. Symbols are named, never carried.

use std::num::NonZeroU64;

use headwater_machine::Packet;
use headwater_switch::{Claim, ClassMap, Destination, Frame};
use headwater_units::{BitRate, Bytes};
use headwater_wire::{Body, Class, Ecn};

/// Bytes that remain of a symbol's frame when a switch cuts the payload off.
const TRIMMED: u32 = 64;

/// A frame on a link. Two registers, whatever it has, and whether there is one or not: it is copied twice on every hop.
#[derive(Clone, Copy, Debug)]
pub(super) struct SimFrame {
    /// The number of its message's place, counted from one, and above it the destination.
    ends: NonZeroU64,
    /// Its hash, and above it length in [`LEN_BITS`], whether it can be cut, class and ECN field. The class is one of the wire's, or,
    /// above [`ORDERED`], one of eight for data that only simulated networks have.
    rest: u64,
}

const LEN_AT: u32 = 32;
const LEN_BITS: u32 = 25;
const WHOLE: u64 = 1 << (LEN_AT + LEN_BITS);
const CLASS_AT: u32 = LEN_AT + LEN_BITS + 1;
const ECN_AT: u32 = CLASS_AT + 4;
/// Of a class that is none of the wire's; the three bits below say which.
const ORDERED: u64 = 8 << CLASS_AT;
const HASH: u64 = u32::MAX as u64;

impl SimFrame {
    /// A frame of `len` bytes on the line, all headers included, that no switch can cut; its message is kept at `body`.
    #[inline]
    pub(super) fn new(body: u32, to: u32, len: u32, class: Class, ecn: Ecn) -> Self {
        assert!(len < 1 << LEN_BITS, "a frame has less than 32 MiB, not {len} bytes");
        let rest = u64::from(len) << LEN_AT | (class as u64) << CLASS_AT | (ecn as u64) << ECN_AT;
        SimFrame { ends: ends(body, to), rest }
    }
    /// Where its message is kept.
    #[inline]
    pub(super) fn body(&self) -> u32 {
        self.ends.get() as u32 - 1
    }
    /// The same frame with its message at another place.
    #[inline]
    pub(super) fn carrying(self, body: u32) -> Self {
        SimFrame { ends: ends(body, self.to()), ..self }
    }
    /// The host it is for, or the subset of a group.
    #[inline]
    pub(super) fn to(&self) -> u32 {
        (self.ends.get() >> 32) as u32
    }
    /// The same frame for another one.
    #[inline]
    pub(super) fn redirected(self, to: u32) -> Self {
        SimFrame { ends: ends(self.body(), to), ..self }
    }
    /// The same frame with this hash.
    #[inline]
    pub(super) fn with_hash(self, hash: u32) -> Self {
        SimFrame { rest: self.rest & !HASH | u64::from(hash), ..self }
    }
    /// The same frame in one of eight classes of data, 0 first, behind control: see [`SimFrame::queue`].
    #[inline]
    pub(super) fn ordered(self, class: u8) -> Self {
        let cleared = self.rest & !(15 << CLASS_AT);
        SimFrame { rest: cleared | ORDERED | u64::from(class & 7) << CLASS_AT, ..self }
    }
    /// The same frame if it carries a symbol, which a switch may cut off.
    #[inline]
    pub(super) fn whole(self) -> Self {
        SimFrame { rest: self.rest | WHOLE, ..self }
    }
    /// Whether it carries a symbol that a switch has not cut off.
    #[inline]
    pub(super) fn is_whole(&self) -> bool {
        self.rest & WHOLE != 0
    }
}

#[inline]
fn ends(body: u32, to: u32) -> NonZeroU64 {
    NonZeroU64::MIN.saturating_add(u64::from(body)) | u64::from(to) << 32
}

impl Frame for SimFrame {
    #[inline]
    fn len(&self) -> Bytes {
        Bytes::new(self.rest >> LEN_AT & ((1 << LEN_BITS) - 1))
    }
    #[inline]
    fn class(&self) -> Class {
        match self.rest >> CLASS_AT & 15 {
            0 => Class::Control,
            1 => Class::Bulk,
            2 => Class::Gentle,
            3 => Class::First,
            4 => Class::Second,
            5 => Class::Third,
            _ => Class::Bulk,
        }
    }
    /// A frame of one of the eight classes of data goes to the queue of its number, behind that of control.
    #[inline]
    fn queue(&self, classes: &ClassMap) -> usize {
        match self.rest & ORDERED {
            0 => classes.queue(self.class()),
            _ => 1 + (self.rest >> CLASS_AT & 7) as usize,
        }
    }
    #[inline]
    fn ecn(&self) -> Ecn {
        match self.rest >> ECN_AT {
            0 => Ecn::NotEct,
            1 => Ecn::Ect1,
            2 => Ecn::Ect0,
            _ => Ecn::Ce,
        }
    }
    #[inline]
    fn mark(&mut self) {
        self.rest |= (Ecn::Ce as u64) << ECN_AT;
    }
    fn trim(&mut self) -> bool {
        let whole = self.is_whole();
        if whole {
            let hash = self.flow_hash();
            *self =
                SimFrame::new(self.body(), self.to(), TRIMMED, Class::Control, self.ecn()).with_hash(hash);
        }
        whole
    }
    #[inline]
    fn flow_hash(&self) -> u32 {
        self.rest as u32
    }
    #[inline]
    fn destination(&self) -> Destination {
        Destination::Host(self.to())
    }
}

/// How long frames are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameSizes {
    /// A frame with a symbol, where the experiment states it (PPUSH §IV-B: 1210 B); else what `wire` says.
    pub data: Option<Bytes>,
    /// Every other frame between the ends, likewise.
    pub ack: Option<Bytes>,
    /// Ethernet, IP and UDP around a datagram of our own: 14 + 20 + 8 and 24 for preamble, gap and checksum.
    pub around: Bytes,
    /// T, where the experiment does not state `data`.
    pub symbol: u16,
}

impl FrameSizes {
    /// The length of a frame that carries this message.
    pub(super) fn of(&self, packet: &Packet) -> u32 {
        self.frame(packet, 0).len().get() as u32
    }

    /// The frame of this message to a host, a group or a segment; the message has no place yet.
    #[inline(always)]
    pub(super) fn frame(&self, packet: &Packet, to: u32) -> SimFrame {
        let datagram = &packet.datagram;
        let (stated, whole) = match datagram.body {
            Body::Symbol(_) | Body::ScheduledSymbol(_) => (self.data, WHOLE),
            Body::Control(_) => (None, 0),
            _ => (self.ack, 0),
        };
        let len = match stated {
            Some(bytes) => bytes.get() as u32,
            None => (datagram.len(self.symbol) as u64 + self.around.get()) as u32,
        };
        let frame = SimFrame::new(0, to, len, datagram.class, packet.ecn);
        SimFrame { rest: frame.rest | whole, ..frame }
    }
}

/// A message in flight.
#[derive(Clone, Debug)]
pub(super) struct Carried {
    /// Its path is where it comes from.
    pub(super) packet: Packet,
    /// The endpoint that it is for.
    pub(super) to: u32,
    /// Copies of the frame that are still in flight: a switch or a fault may have made more than one.
    copies: u32,
}

impl Carried {
    /// Its frame has arrived, perhaps marked or cut.
    #[inline(always)]
    fn arrive(&mut self, ecn: Ecn, cut: bool) {
        self.packet.ecn = ecn;
        if cut {
            match &mut self.packet.datagram.body {
                Body::Symbol(header) => header.trimmed = true,
                Body::ScheduledSymbol(header) => header.trimmed = true,
                _ => {}
            }
        }
    }
}

/// Room for a message.
enum Place {
    Kept(Carried),
    /// The place that was freed before this one, if any.
    Free(u32),
}

/// No place.
const NONE: u32 = u32::MAX;

impl Place {
    /// The message that a frame names.
    #[inline(always)]
    fn kept(&mut self) -> &mut Carried {
        match self {
            Place::Kept(carried) => carried,
            Place::Free(_) => unreachable!("a frame names a message that is kept"),
        }
    }
}

/// The messages in flight; places are used again, so that a steady state allocates nothing.
pub(super) struct Bodies {
    places: Vec<Place>,
    /// The place that was freed last; [`NONE`] if all are in use.
    free: u32,
    /// Messages in flight.
    len: usize,
    /// Messages that were copied to a place of their own since somebody last asked: from where, and to where. Kept if somebody asks.
    forks: Option<Vec<(u32, u32)>>,
}

impl Default for Bodies {
    fn default() -> Self {
        Bodies { places: Vec::new(), free: NONE, len: 0, forks: None }
    }
}

impl Bodies {
    // Once for every packet; a call would copy the message once more.
    #[inline(always)]
    pub(super) fn put(&mut self, packet: Packet, to: u32) -> u32 {
        self.len += 1;
        let carried = Carried { packet, to, copies: 1 };
        let at = self.free;
        match self.places.get_mut(at as usize) {
            Some(place @ &mut Place::Free(next)) => {
                self.free = next;
                *place = Place::Kept(carried);
                at
            }
            _ => self.grow(carried),
        }
    }

    #[cold]
    fn grow(&mut self, carried: Carried) -> u32 {
        self.places.push(Place::Kept(carried));
        (self.places.len() - 1) as u32
    }

    /// One copy has arrived, perhaps marked or cut; the message comes out with the last one, else as a copy.
    // Once for every packet; a call would copy the message once more.
    #[inline(always)]
    pub(super) fn take(&mut self, at: u32, ecn: Ecn, cut: bool) -> Packet {
        let carried = self.places[at as usize].kept();
        if carried.copies > 1 {
            return self.take_copy(at, ecn, cut);
        }
        carried.arrive(ecn, cut);
        self.free(at).packet
    }

    #[cold]
    fn take_copy(&mut self, at: u32, ecn: Ecn, cut: bool) -> Packet {
        let carried = self.places[at as usize].kept();
        carried.copies -= 1;
        let mut copy = carried.clone();
        copy.arrive(ecn, cut);
        copy.packet
    }

    /// Frees a place; the message that was there.
    #[inline(always)]
    fn free(&mut self, at: u32) -> Carried {
        let before = std::mem::replace(&mut self.free, at);
        self.len -= 1;
        match std::mem::replace(&mut self.places[at as usize], Place::Free(before)) {
            Place::Kept(carried) => carried,
            Place::Free(_) => unreachable!("a frame names a message that is kept"),
        }
    }

    /// The frame was dropped.
    #[inline]
    pub(super) fn forget(&mut self, at: u32) {
        let carried = self.places[at as usize].kept();
        carried.copies -= 1;
        if carried.copies == 0 {
            self.free(at);
        }
    }

    /// The frame was copied. Says where the copy's message is: at the same place, unless switches negotiate by it, each copy's offer apart.
    pub(super) fn copied(&mut self, at: u32) -> u32 {
        let carried = self.places[at as usize].kept();
        if carried.packet.datagram.body.negotiated().is_none() {
            carried.copies += 1;
            return at;
        }
        let (packet, to) = (carried.packet.clone(), carried.to);
        let fork = self.put(packet, to);
        if let Some(forks) = &mut self.forks {
            forks.push((at, fork));
        }
        fork
    }

    /// From now on, forks are noted for [`Bodies::take_forks`].
    pub(super) fn note_forks(&mut self) {
        self.forks = Some(Vec::new());
    }

    /// Whatever else is kept by place has to follow these, in this order, before another message is put anywhere.
    pub(super) fn take_forks(&mut self) -> Vec<(u32, u32)> {
        self.forks.as_mut().map_or_else(Vec::new, std::mem::take)
    }

    /// Claim of the message on rate allocators.
    pub(super) fn claim(&self, at: u32) -> Option<Claim> {
        let datagram = &self.get(at).packet.datagram;
        let (kind, scheduling) = datagram.body.negotiated()?;
        Some(Claim::new(datagram.flow, kind, scheduling))
    }

    /// A port grants this much to the message, which claims something.
    pub(super) fn lower_offer(&mut self, at: u32, most: BitRate) {
        let carried = self.places[at as usize].kept();
        carried.packet.datagram.body.negotiated_mut().expect("it claims something").lower_offer(most);
    }

    #[inline]
    pub(super) fn get(&self, at: u32) -> &Carried {
        match &self.places[at as usize] {
            Place::Kept(carried) => carried,
            Place::Free(_) => unreachable!("a frame names a message that is kept"),
        }
    }

    /// Messages in flight.
    pub(super) fn len(&self) -> usize {
        self.len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_has_what_it_was_made_with_and_keeps_it_when_cut_or_marked() {
        let ecns = [Ecn::NotEct, Ecn::Ect1, Ecn::Ect0, Ecn::Ce];
        for (class, ecn) in Class::ALL.into_iter().flat_map(|class| ecns.map(|ecn| (class, ecn))) {
            let frame = SimFrame::new(3, 0, (1 << LEN_BITS) - 1, class, ecn);
            let mut frame = frame.with_hash(u32::MAX).with_hash(5).redirected(4);
            let all = |it: &SimFrame| (it.len().get(), it.class(), it.ecn(), it.is_whole());
            assert_eq!(all(&frame), ((1 << LEN_BITS) - 1, class, ecn, false));
            assert!(!frame.trim(), "only a symbol can be cut off");
            frame = frame.whole();
            assert_eq!(all(&frame), ((1 << LEN_BITS) - 1, class, ecn, true));
            assert!(frame.trim() && !frame.trim(), "once");
            assert_eq!(all(&frame), (64, Class::Control, ecn, false));
            frame.mark();
            assert_eq!(all(&frame), (64, Class::Control, Ecn::Ce, false));
            assert_eq!((frame.body(), frame.to(), frame.flow_hash()), (3, 4, 5));
        }
    }

    #[test]
    fn a_frame_of_an_ordered_class_keeps_all_else_and_goes_to_its_own_queue() {
        let ecns = [Ecn::NotEct, Ecn::Ect1, Ecn::Ect0, Ecn::Ce];
        for (class, ecn) in (0..8).flat_map(|class| ecns.map(|ecn| (class, ecn))) {
            let plain =
                SimFrame::new(3, 4, (1 << LEN_BITS) - 1, Class::Third, ecn).with_hash(u32::MAX).whole();
            let frame = plain.ordered(7 - class).ordered(class);
            let all = |it: &SimFrame| (it.len(), it.ecn(), it.is_whole(), it.flow_hash(), it.body(), it.to());
            assert_eq!(all(&frame), all(&plain));
            assert_eq!(frame.queue(&ClassMap::levels()), 1 + usize::from(class));
            assert_eq!((plain.queue(&ClassMap::levels()), plain.class()), (3, Class::Third));
        }
    }

    #[test]
    #[should_panic(expected = "less than 32 MiB")]
    fn a_frame_that_is_too_long_for_its_bits_is_refused() {
        SimFrame::new(0, 0, 1 << LEN_BITS, Class::Bulk, Ecn::NotEct);
    }
}
