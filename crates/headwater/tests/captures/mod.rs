//! A reader of capture files, for tests.

use std::path::Path;

/// A record: nanoseconds since 1970, bytes that there were, and those that were kept.
pub(crate) struct Packet {
    pub(crate) at: u64,
    pub(crate) len: usize,
    pub(crate) kept: Vec<u8>,
}

/// Reads a file as draft-ietf-opsawg-pcap has it: nanoseconds, Ethernet, and at most `snap` bytes of each packet.
pub(crate) fn read(file: &Path, snap: usize) -> Vec<Packet> {
    let bytes = std::fs::read(file).unwrap();
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    assert_eq!([0, 4, 16, 20].map(word), [0xa1b2_3c4d, 0x0004_0002, snap as u32, 1], "{}", file.display());
    let (mut at, mut packets) = (24, Vec::new());
    while at < bytes.len() {
        let [seconds, nanos, kept, len] = [0, 4, 8, 12].map(|field| word(at + field));
        assert!(nanos < 1_000_000_000 && kept == len.min(snap as u32));
        let kept = bytes[at + 16..][..kept as usize].to_vec();
        at += 16 + kept.len();
        packets.push(Packet {
            at: u64::from(seconds) * 1_000_000_000 + u64::from(nanos),
            len: len as usize,
            kept,
        });
    }
    packets
}
