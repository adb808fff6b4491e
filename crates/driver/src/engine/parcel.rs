//! Packets of trees, as they travel.

use std::sync::Arc;

use headwater_node::Parcel;
use headwater_wire::{Datagram, HeaderKey, parse};

/// A datagram as it came, or as it is sent.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Copy {
    pub(super) tos: u8,
    pub(super) bytes: Arc<[u8]>,
    /// So many of them, the last ones, are payload.
    payload: usize,
}

impl Copy {
    pub(super) fn new(tos: u8, bytes: Arc<[u8]>, payload: usize) -> Self {
        Copy { tos, bytes, payload }
    }

    /// Its symbol.
    pub(super) fn payload(&self) -> &[u8] {
        &self.bytes[self.bytes.len() - self.payload..]
    }
}

impl Parcel for Copy {
    fn open(&self, key: &HeaderKey) -> Option<(Datagram, usize)> {
        parse(&self.bytes, key).ok().map(|parsed| (parsed.datagram, parsed.payload.len()))
    }
}
