//! A frame for tests, and ports for it.
#![allow(dead_code, reason = "each test uses a part of it")]

use headwater_switch::{Claim, Destination, Frame, PortConfig};
use headwater_units::{BitRate, Bytes, Time};
use headwater_wire::{Class, Ecn};

/// Bytes that a trimmed frame keeps.
pub(crate) const HEADER: u64 = 64;

/// A frame that remembers what was done to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TestFrame {
    pub(crate) id: u64,
    pub(crate) len: u64,
    pub(crate) class: Class,
    pub(crate) ecn: Ecn,
    pub(crate) to: Destination,
    pub(crate) hash: u32,
    /// How often a port marked it.
    pub(crate) marked: u32,
    /// Bytes that a port cut off.
    pub(crate) cut: u64,
    /// The port of the last switch it came in by.
    pub(crate) ingress: u16,
    /// Its claim on rate allocators.
    pub(crate) claim: Option<Claim>,
}

impl TestFrame {
    /// An ECN-capable symbol for host 0.
    pub(crate) fn symbol(id: u64, len: u64) -> Self {
        TestFrame {
            id,
            len,
            class: Class::Bulk,
            ecn: Ecn::Ect0,
            to: Destination::Host(0),
            hash: 0,
            marked: 0,
            cut: 0,
            ingress: 0,
            claim: None,
        }
    }
    pub(crate) fn control(id: u64, len: u64) -> Self {
        TestFrame { class: Class::Control, ..Self::symbol(id, len) }
    }
}

impl Frame for TestFrame {
    fn len(&self) -> Bytes {
        Bytes::new(self.len)
    }
    fn class(&self) -> Class {
        self.class
    }
    fn ecn(&self) -> Ecn {
        self.ecn
    }
    fn mark(&mut self) {
        assert_ne!(self.ecn, Ecn::NotEct, "only ECN-capable frames are marked");
        self.ecn = Ecn::Ce;
        self.marked += 1;
    }
    fn trim(&mut self) -> bool {
        if self.class == Class::Control || self.len <= HEADER {
            return false;
        }
        self.cut = self.len - HEADER;
        (self.len, self.class) = (HEADER, Class::Control);
        true
    }
    fn flow_hash(&self) -> u32 {
        self.hash
    }
    fn destination(&self) -> Destination {
        self.to
    }
    fn claim(&self) -> Option<Claim> {
        self.claim
    }
    fn lower_offer(&mut self, most: BitRate) {
        let claim = self.claim.as_mut().expect("only claims have offers");
        claim.offer = claim.offer.min(most);
    }
}

/// A microsecond per byte.
pub(crate) const SLOW: BitRate = BitRate::new(8_000_000);

/// A plain port at [`SLOW`] without limits.
pub(crate) fn slow_fifo() -> PortConfig {
    PortConfig::fifo(SLOW, None, None)
}

pub(crate) fn at(nanos: u64) -> Time {
    Time::from_nanos(nanos)
}
