//! What travels through the simulated network: a small frame by value, and the message that it names.
//!
//! Queues, links and switches see a [`SimFrame`], which is copied from event to event; the message waits in [`Bodies`]
//! and is touched twice, when it is sent and when it is delivered. Symbols are named, never carried.

use headwater_switch::{Destination, Frame};
use headwater_transport::Packet;
use headwater_units::Bytes;
use headwater_wire::{Body, Class, Ecn};

/// A frame on a link.
#[derive(Clone, Copy, Debug)]
pub(super) struct SimFrame {
    /// Where its message is kept.
    pub(super) body: u32,
    /// Bytes on the line, all headers included.
    pub(super) len: u32,
    /// Bytes that remain when a switch cuts the payload off; zero if it cannot be cut.
    pub(super) trimmed_len: u16,
    pub(super) class: Class,
    pub(super) ecn: Ecn,
    /// The host it is for, or the subset of a group.
    pub(super) to: u32,
    /// Packets of one flow have one, and so one way.
    pub(super) hash: u32,
}

impl SimFrame {
    /// Whether a frame with a symbol has lost it; nothing of other frames.
    pub(super) fn is_cut(&self) -> bool {
        self.trimmed_len == 0
    }
}

impl Frame for SimFrame {
    #[inline]
    fn len(&self) -> Bytes {
        Bytes::new(u64::from(self.len))
    }
    #[inline]
    fn class(&self) -> Class {
        self.class
    }
    #[inline]
    fn ecn(&self) -> Ecn {
        self.ecn
    }
    #[inline]
    fn mark(&mut self) {
        self.ecn = Ecn::Ce;
    }
    fn trim(&mut self) -> bool {
        if self.trimmed_len == 0 {
            return false;
        }
        (self.len, self.trimmed_len, self.class) = (u32::from(self.trimmed_len), 0, Class::Control);
        true
    }
    #[inline]
    fn flow_hash(&self) -> u32 {
        self.hash
    }
    #[inline]
    fn destination(&self) -> Destination {
        Destination::Host(self.to)
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
    #[inline]
    pub(super) fn of(&self, body: &Packet) -> u32 {
        let stated = match body.datagram.body {
            Body::Symbol(_) => self.data,
            Body::Control(_) => None,
            _ => self.ack,
        };
        match stated {
            Some(bytes) => bytes.get() as u32,
            None => (body.datagram.len(self.symbol) as u64 + self.around.get()) as u32,
        }
    }
}

/// A message under way.
#[derive(Clone, Debug)]
pub(super) struct Carried {
    /// Its path is where it comes from.
    pub(super) packet: Packet,
    /// The endpoint that it is for.
    pub(super) to: u32,
    /// Copies of the frame that are still under way: a switch or a fault may have made more than one.
    copies: u32,
}

impl Carried {
    #[inline]
    fn arrives(&mut self, ecn: Ecn, cut: bool) {
        self.packet.ecn = ecn;
        if cut && let Body::Symbol(header) = &mut self.packet.datagram.body {
            header.trimmed = true;
        }
    }
}

/// The messages under way; places are used again, so that a steady state allocates nothing.
#[derive(Default)]
pub(super) struct Bodies {
    places: Vec<Option<Carried>>,
    free: Vec<u32>,
}

impl Bodies {
    // Once for every packet; a call would copy the message once more.
    #[inline(always)]
    pub(super) fn put(&mut self, packet: Packet, to: u32) -> u32 {
        let carried = Some(Carried { packet, to, copies: 1 });
        match self.free.pop() {
            Some(at) => {
                self.places[at as usize] = carried;
                at
            }
            None => {
                self.places.push(carried);
                (self.places.len() - 1) as u32
            }
        }
    }

    /// One copy has arrived, perhaps marked or cut; the message comes out with the last one, else as a copy.
    #[inline]
    pub(super) fn take(&mut self, at: u32, ecn: Ecn, cut: bool) -> (u32, Packet) {
        let place = &mut self.places[at as usize];
        let carried = place.as_mut().expect("a frame names a message that is kept");
        if carried.copies > 1 {
            carried.copies -= 1;
            let mut copy = carried.clone();
            copy.arrives(ecn, cut);
            return (copy.to, copy.packet);
        }
        carried.arrives(ecn, cut);
        self.free.push(at);
        let Carried { packet, to, .. } = place.take().expect("just seen");
        (to, packet)
    }

    /// The frame was dropped.
    #[inline]
    pub(super) fn forget(&mut self, at: u32) {
        let place = &mut self.places[at as usize];
        let carried = place.as_mut().expect("a frame names a message that is kept");
        carried.copies -= 1;
        if carried.copies == 0 {
            *place = None;
            self.free.push(at);
        }
    }

    /// The frame was copied.
    pub(super) fn copied(&mut self, at: u32) {
        self.places[at as usize].as_mut().expect("a frame names a message that is kept").copies += 1;
    }

    pub(super) fn get(&self, at: u32) -> &Carried {
        self.places[at as usize].as_ref().expect("a frame names a message that is kept")
    }

    /// Messages under way.
    pub(super) fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }
}
