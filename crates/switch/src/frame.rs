//! The switch's view of a frame, whatever its protocol.
//!
//! The trait has no notion of protocols: a switch never asks "whose packet is this", only how long it is, which class it
//! is in, whether it may be marked or trimmed, and where it goes.

use headwater_units::{BitRate, Bytes};
use headwater_wire::{Class, Ecn};

use crate::{Claim, ClassMap};

/// Where a frame goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Destination {
    /// One host, by its number in the forwarding table.
    Host(u32),
    /// Everybody in a group: one copy per port that leads to a member.
    Group(u32),
}

/// One frame on its way: a simulator's packet, or raw bytes.
///
/// While a port holds a frame its answers do not change, save through [`Frame::mark`] and [`Frame::trim`].
#[expect(clippy::len_without_is_empty, reason = "a frame has headers, so it is never empty")]
pub trait Frame: Clone {
    /// Bytes that it occupies on the line, all headers included.
    fn len(&self) -> Bytes;
    /// The class that chooses its queue.
    fn class(&self) -> Class;
    /// Which queue takes it, by the port's map of classes. Frames that know more than the classes of the wire may choose themselves.
    #[inline]
    fn queue(&self, classes: &ClassMap) -> usize {
        classes.queue(self.class())
    }
    /// The ECN field of its IP header.
    fn ecn(&self) -> Ecn;
    /// Sets CE. A port calls it only on ECN-capable frames (any [`Frame::ecn`] but [`Ecn::NotEct`]).
    fn mark(&mut self);
    /// Cuts the payload off, so that the header alone travels on (SCDP §III-B); false, and nothing changed, if this frame
    /// cannot be trimmed. [`Frame::len`] and [`Frame::class`] change accordingly, and `len` never grows.
    fn trim(&mut self) -> bool;
    /// The same for all frames of one flow: keeps a flow on one path where paths are chosen by hash (RFC 2992). Where sources
    /// choose ([`Choice::Path`](crate::Choice::Path)): the number of this frame's path.
    fn flow_hash(&self) -> u32;
    /// Where it goes.
    fn destination(&self) -> Destination;
    /// Its claim on rate allocators; most frames have none.
    fn claim(&self) -> Option<Claim> {
        None
    }
    /// Lowers the offer of its claim. A port calls it only on frames that have one.
    fn lower_offer(&mut self, most: BitRate) {
        let _ = most;
    }
}
