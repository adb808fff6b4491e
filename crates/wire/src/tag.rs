//! The header tag: 8 bytes by which the receiver of a datagram knows that the other end of the flow made it.
//!
//! SipHash-2-4 under a key derived from the flow key; far cheaper than sealing the payload, whose bytes are verified
//! per block by the object's hash anyway. It covers the immutable fields only, so a switch may trim and mark.

use std::hash::Hasher as _;

use headwater_units::FlowKey;
use siphasher::sip::SipHasher24;

use crate::datagram::{FLAG_TRIMMED, HEADER, PRELUDE};

/// Makes and checks the header tags of one flow.
#[derive(Clone)]
pub struct HeaderKey(SipHasher24);

impl std::fmt::Debug for HeaderKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("HeaderKey(secret)")
    }
}

impl HeaderKey {
    /// Takes the first half of the flow key; the second is kept for sealing payloads.
    pub fn new(key: &FlowKey) -> Self {
        let mut half = [0; 16];
        half.copy_from_slice(&key.0[..16]);
        HeaderKey(SipHasher24::new_with_key(&half))
    }

    /// The tag of a datagram whose header (and, unless it is a symbol, whole body) is `covered`.
    fn tag(&self, datagram: &[u8], covered: usize) -> [u8; 8] {
        let mut hasher = self.0;
        let mut prelude = [0; PRELUDE];
        prelude.copy_from_slice(&datagram[..PRELUDE]);
        prelude[1] &= !FLAG_TRIMMED;
        hasher.write(&prelude);
        hasher.write(&datagram[HEADER..covered]);
        hasher.finish().to_be_bytes()
    }

    pub(crate) fn write(&self, datagram: &mut [u8], covered: usize) {
        let tag = self.tag(datagram, covered);
        datagram[PRELUDE..HEADER].copy_from_slice(&tag);
    }

    pub(crate) fn matches(&self, datagram: &[u8], covered: usize) -> bool {
        let (tag, found) = (self.tag(datagram, covered), &datagram[PRELUDE..HEADER]);
        // No early exit: the time must not tell how many bytes were right.
        tag.iter().zip(found).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
    }
}
