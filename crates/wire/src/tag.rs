//! The header tag: 8 bytes by which the receiver of a datagram knows that the other end of the flow made it.
//!
//! SipHash-2-4 under a key derived from the flow key; far cheaper than sealing the payload, whose bytes are verified
//! per block by the object's hash anyway. It covers the immutable fields only, so a switch may trim and mark, and nodes on a tree
//! count hops.

use std::hash::Hasher as _;

use headwater_units::FlowKey;
use siphasher::sip::SipHasher24;

use crate::header::{HEADER, KIND_TREE, PRELUDE};
use crate::symbol::{FLAG_TRIMMED, SYMBOL_COVERED};

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
        // Every symbol pays for this, and at once is faster than piece by piece. Whole words, because emitting has just
        // stored such: a processor waits when a load spans several stores.
        if covered == SYMBOL_COVERED {
            let word = |at: usize| u64::from_le_bytes(datagram[at..at + 8].try_into().expect("8 bytes"));
            let first = word(0) & !u64::from_le_bytes(changing(datagram[0]));
            let words = [first, word(8), word(HEADER)];
            let mut input = [0; 24];
            for (bytes, word) in input.chunks_exact_mut(8).zip(words) {
                bytes.copy_from_slice(&word.to_le_bytes());
            }
            return self.0.hash(&input).to_be_bytes();
        }
        let mut hasher = self.0;
        let mut prelude = [0; PRELUDE];
        prelude.copy_from_slice(&datagram[..PRELUDE]);
        prelude.iter_mut().zip(changing(datagram[0])).for_each(|(byte, changing)| *byte &= !changing);
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

/// The bits of a datagram's first word that change on its way: whether a switch has trimmed it, and on trees the hops that it has made.
#[inline]
fn changing(first: u8) -> [u8; 8] {
    let hops = if first & 15 == KIND_TREE { 0xff } else { 0 };
    [0, FLAG_TRIMMED, 0, hops, 0, 0, 0, 0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_short_way_gives_the_tag_of_the_long_one() {
        let key = HeaderKey::new(&FlowKey([7; 32]));
        let mut datagram: Vec<u8> = (0..SYMBOL_COVERED as u8 + 9).map(|i| i.wrapping_mul(37)).collect();
        for (kind, flags) in [(1, 0), (1, FLAG_TRIMMED), (1, 0xff), (KIND_TREE, 0)] {
            (datagram[0], datagram[1]) = (kind, flags);
            let detail = if kind == KIND_TREE { 0 } else { datagram[3] };
            let mut hasher = key.0;
            let head = [datagram[0], flags & !FLAG_TRIMMED, datagram[2], detail];
            hasher.write(&[&head[..], &datagram[4..PRELUDE]].concat());
            hasher.write(&datagram[HEADER..SYMBOL_COVERED]);
            assert_eq!(key.tag(&datagram, SYMBOL_COVERED), hasher.finish().to_be_bytes());
        }
    }
}
