//! An Ethernet frame as a switch sees it: its bytes, read once and edited in place.
//!
//! Marking sets the two ECN bits (RFC 3168 §5), trimming cuts a UDP packet's payload as switches of the SAI do and leaves a
//! header packet (SCDP §III-B), and both keep the IPv4 header's checksum right by RFC 1624; IPv6 has none. A port that grants rates lowers
//! the offer of a scheduled datagram (PAM §III-C), and UDP's checksum follows. Nothing else of a packet changes on its way, save
//! the destination's MAC address, which a routed network would rewrite too.
//!
//! Knows nothing of symbols: whether a trimmed packet means anything is for its receiver to say.

use std::hash::Hasher as _;
use std::net::{IpAddr, SocketAddr};

use headwater_switch::{Claim, Destination, Frame, TreeWord};
use headwater_units::{BitRate, Bytes, FlowId};
use headwater_wire::{
    Class, DSCP_TRIMMED, Ecn, SCHEDULING, SCHEDULING_AT, class_of, peek_scheduling, peek_tree,
};
use siphasher::sip::SipHasher13;

use super::address::AddressBook;
use super::buffer::RawBuffer;
use super::checksum;
use super::layout::{self, IPV6_HEADER, Layout, NotForwarded, UDP_HEADER, Version};

/// Bytes that a trimmed frame keeps unless told otherwise, from the destination MAC address on: the usual size of
/// switches that trim.
pub const TRIM_SIZE: u16 = 128;
/// A trimmed packet keeps at least this much of its UDP payload, in bytes, however long the headers before it.
pub const TRIM_PAYLOAD: usize = 56;

/// An Ethernet address.
pub type MacAddress = [u8; 6];

/// Rule of trimming a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrimRule {
    /// Bytes from the destination MAC address on; see [`TRIM_SIZE`].
    pub size: u16,
    /// State of the UDP header then.
    pub udp: TrimmedUdp,
}

impl Default for TrimRule {
    fn default() -> Self {
        TrimRule { size: TRIM_SIZE, udp: TrimmedUdp::default() }
    }
}

/// UDP's length and checksum in a trimmed packet. IP's are always right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TrimmedUdp {
    /// Those of the whole packet, as real switches leave them: an ordinary socket will not see it.
    #[default]
    Stale,
    /// Those of what is left: an ordinary socket sees a short datagram. A checksum that was left out stays so.
    Repaired,
}

/// A frame on its way through the switch.
///
/// Invariant: `layout` describes the bytes of `buffer`, which ends where the IP packet ends.
#[derive(Clone, Debug)]
pub struct RawFrame {
    buffer: RawBuffer,
    layout: Layout,
    destination: Destination,
    flow_hash: u32,
    trim: TrimRule,
}

impl RawFrame {
    /// Reads a frame that has arrived, and looks up where it goes. Padding behind the IP packet is cut off.
    ///
    /// # Errors
    /// [`NotForwarded`] for what this switch does not carry; the buffer is back in its pool then.
    pub fn parse(mut buffer: RawBuffer, book: &AddressBook) -> Result<RawFrame, NotForwarded> {
        let layout = Layout::find(buffer.bytes())?;
        buffer.truncate(layout.end);
        let bytes = buffer.bytes();
        let destination = book.destination(layout.addresses(bytes).1);
        let flow_hash = flow_hash(&layout, bytes);
        Ok(RawFrame { buffer, layout, destination, flow_hash, trim: TrimRule::default() })
    }

    /// From now on leaves this of it when it is trimmed.
    pub fn set_trim(&mut self, rule: TrimRule) {
        self.trim = rule;
    }

    /// Addresses the frame to the machine that it is delivered to, whose kernel would ignore it otherwise. One that is
    /// addressed to a group stays so (RFC 1112 §6.4, RFC 2464 §7): members take it in.
    pub fn set_destination_mac(&mut self, mac: MacAddress) {
        let is_group = matches!(self.destination, Destination::Group(_)) && self.bytes()[0] & 1 != 0;
        if !is_group {
            self.buffer.bytes_mut()[..6].copy_from_slice(&mac);
        }
    }

    /// Its meaning on a tree of Datacast, as far as a device can see that holds no key.
    pub(super) fn in_tree(&self) -> Option<(FlowId, TreeWord)> {
        let payload = self.layout.udp_payload().filter(|_| self.dscp() != DSCP_TRIMMED)?;
        let datagram = peek_tree(self.bytes().get(payload..)?)?;
        Some((datagram.flow, TreeWord::of(&datagram.body)?))
    }

    /// Where an answer to it goes; none of a fragment, nor of what has no ports.
    pub(super) fn source(&self) -> Option<SocketAddr> {
        let ports = self.layout.ports(self.bytes())?;
        let port = u16::from_be_bytes([ports[0], ports[1]]);
        Some(SocketAddr::new(self.layout.addresses(self.bytes()).0, port))
    }

    /// Makes it a packet for somebody else, if it is UDP to an address of the same kind.
    pub(super) fn readdress(&mut self, to: SocketAddr, book: &AddressBook) {
        let Some(udp) = self.layout.udp_payload().map(|at| at - UDP_HEADER) else { return };
        let ip = self.layout.ip;
        match (to.ip(), self.layout.version) {
            (IpAddr::V4(address), Version::V4) => {
                // Both halves of the address, and the header's checksum with them (RFC 1624).
                for (at, half) in [16, 18].into_iter().zip(address.octets().chunks_exact(2)) {
                    self.set_word(at, u16::from_be_bytes([half[0], half[1]]));
                }
            }
            (IpAddr::V6(address), Version::V6) => {
                self.buffer.bytes_mut()[ip + 24..ip + 40].copy_from_slice(&address.octets());
            }
            _ => return,
        }
        self.buffer.bytes_mut()[udp + 2..udp + 4].copy_from_slice(&to.port().to_be_bytes());
        self.repair_udp(udp);
        self.flow_hash = flow_hash(&self.layout, self.buffer.bytes());
        self.look_up(book);
    }

    /// Where its IP header says that it goes.
    pub(super) fn destination_address(&self) -> IpAddr {
        self.layout.addresses(self.bytes()).1
    }

    /// Looks up anew where it goes.
    pub(super) fn look_up(&mut self, book: &AddressBook) {
        self.destination = book.destination(self.destination_address());
    }

    /// It is for nobody: what it had to say is known.
    pub(super) fn lead_nowhere(&mut self) {
        self.destination = AddressBook::NOWHERE;
    }

    /// The IP packet.
    pub(super) fn packet(&self) -> &[u8] {
        &self.bytes()[self.layout.ip..]
    }

    /// The bytes from the destination's MAC address to the end of the IP packet.
    pub fn bytes(&self) -> &[u8] {
        self.buffer.bytes()
    }

    /// The differentiated services code point, 0..=63.
    pub fn dscp(&self) -> u8 {
        self.traffic_class() >> 2
    }

    /// TOS of IPv4, traffic class of IPv6: DSCP and ECN.
    fn traffic_class(&self) -> u8 {
        let [first, second] = self.word(0).to_be_bytes();
        match self.layout.version {
            Version::V4 => second,
            Version::V6 => first << 4 | second >> 4,
        }
    }

    fn set_traffic_class(&mut self, class: u8) {
        let old = self.word(0);
        let class = u16::from(class);
        let new = match self.layout.version {
            Version::V4 => old & 0xff00 | class,
            Version::V6 => old & 0xf00f | class << 4,
        };
        self.set_word(0, new);
    }

    /// Makes length and checksum of the UDP header at `udp` those of what is there (RFC 768, RFC 8200 §8.1).
    fn repair_udp(&mut self, udp: usize) {
        let addresses = self.layout.address_bytes();
        let bytes = self.buffer.bytes_mut();
        let len = (bytes.len() - udp) as u16;
        bytes[udp + 4..udp + 6].copy_from_slice(&len.to_be_bytes());
        if bytes[udp + 6..udp + 8] == [0, 0] {
            return;
        }
        bytes[udp + 6..udp + 8].fill(0);
        let sums =
            [checksum::sum(&bytes[addresses]), u16::from(layout::UDP), len, checksum::sum(&bytes[udp..])];
        let sum = sums.into_iter().fold(0xffff, |checksum, sum| checksum::updated(checksum, 0, sum));
        // Zero would say that there is none.
        bytes[udp + 6..udp + 8].copy_from_slice(&if sum == 0 { 0xffff } else { sum }.to_be_bytes());
    }

    /// The big-endian word at this offset in the IP header.
    fn word(&self, at: usize) -> u16 {
        let bytes = &self.buffer.bytes()[self.layout.ip + at..];
        u16::from_be_bytes([bytes[0], bytes[1]])
    }

    /// Changes a word of the IP header, and the IPv4 checksum with it.
    fn set_word(&mut self, at: usize, new: u16) {
        const CHECKSUM: usize = 10;
        let (old, sum) = (self.word(at), self.word(CHECKSUM));
        let header = &mut self.buffer.bytes_mut()[self.layout.ip..];
        header[at..at + 2].copy_from_slice(&new.to_be_bytes());
        if self.layout.version == Version::V4 {
            header[CHECKSUM..CHECKSUM + 2].copy_from_slice(&checksum::updated(sum, old, new).to_be_bytes());
        }
    }
}

impl Frame for RawFrame {
    /// The Ethernet frame without preamble, FCS and gap: IP packet and 14 bytes, with a tag 18. The line's rate must
    /// account for the bytes that a line adds to each frame.
    #[inline]
    fn len(&self) -> Bytes {
        Bytes::new(self.buffer.bytes().len() as u64)
    }

    /// See [`headwater_wire::class_of`].
    #[inline]
    fn class(&self) -> Class {
        class_of(self.dscp())
    }

    #[inline]
    fn ecn(&self) -> Ecn {
        Ecn::from_tos(self.traffic_class())
    }

    fn mark(&mut self) {
        self.set_traffic_class(self.traffic_class() | Ecn::Ce as u8);
    }

    /// Cuts a UDP packet down to the trim size, though never into the first [`TRIM_PAYLOAD`] bytes of its payload, and
    /// gives it [`DSCP_TRIMMED`].
    ///
    /// The IP header is right afterwards: its length, its checksum. For UDP's see [`TrimmedUdp`]. A fragment is not trimmed,
    /// since no receiver could put it together with the others.
    fn trim(&mut self) -> bool {
        let Some(payload) = self.layout.udp_payload() else { return false };
        let end = usize::from(self.trim.size).max(payload + TRIM_PAYLOAD);
        if end >= self.layout.end {
            return false;
        }
        // IPv4 counts its header (RFC 791 §3.1), IPv6 what follows the fixed one (RFC 8200 §3).
        let (field, counted_from) = match self.layout.version {
            Version::V4 => (2, self.layout.ip),
            Version::V6 => (4, self.layout.ip + IPV6_HEADER),
        };
        self.set_word(field, (end - counted_from) as u16);
        self.set_traffic_class(DSCP_TRIMMED << 2 | self.ecn() as u8);
        self.layout.end = end;
        self.buffer.truncate(end);
        if self.trim.udp == TrimmedUdp::Repaired {
            self.repair_udp(payload - UDP_HEADER);
        }
        true
    }

    /// From addresses, protocol and ports; of fragments, and where there are no ports, from addresses and protocol, so that
    /// all fragments of a packet go one way. The same in every run.
    #[inline]
    fn flow_hash(&self) -> u32 {
        self.flow_hash
    }

    /// By the destination's IP address; [`AddressBook::NOWHERE`] if nobody is known to have it.
    #[inline]
    fn destination(&self) -> Destination {
        self.destination
    }

    /// The claim of a scheduled datagram, if its source may have made it: any UDP payload can look like one.
    fn claim(&self) -> Option<Claim> {
        let payload = self.layout.udp_payload()?;
        let (flow, kind, scheduling) = peek_scheduling(self.bytes().get(payload..)?)?;
        kind.is_negotiated().then(|| Claim::new(flow, kind, &scheduling))
    }

    fn lower_offer(&mut self, most: BitRate) {
        let Some(payload) = self.layout.udp_payload() else { return };
        // The offer's three bytes are in the last two words of the scheduling header.
        let words = [4, 2].map(|before_end| payload + SCHEDULING_AT + SCHEDULING - before_end);
        let bytes = self.buffer.bytes_mut();
        if payload + SCHEDULING_AT + SCHEDULING > bytes.len() {
            return;
        }
        let word = |bytes: &[u8], at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let old = words.map(|at| word(bytes, at));
        headwater_wire::lower_offer(&mut bytes[payload..], most);
        let checksum = payload - UDP_HEADER + 6;
        let sum = word(bytes, checksum);
        if sum == 0 {
            return;
        }
        let pairs = words.iter().zip(old);
        let sum = pairs.fold(sum, |sum, (at, old)| checksum::updated(sum, old, word(bytes, *at)));
        // Zero would say that there is none.
        bytes[checksum..checksum + 2].copy_from_slice(&if sum == 0 { 0xffff } else { sum }.to_be_bytes());
    }
}

impl AsRef<[u8]> for RawFrame {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}

fn flow_hash(layout: &Layout, frame: &[u8]) -> u32 {
    let mut hasher = SipHasher13::new();
    hasher.write(&frame[layout.address_bytes()]);
    hasher.write(&[layout.protocol]);
    hasher.write(layout.ports(frame).unwrap_or_default());
    hasher.finish() as u32
}

#[cfg(test)]
mod tests {
    use headwater_units::{FlowKey, Rank};
    use headwater_wire::{
        Body, Datagram, HeaderKey, RateProbe, RateUnit, RoundTrip, Scheduling, SchedulingKind, emit, parse,
    };

    use super::super::buffer::FramePool;
    use super::*;

    const LINE: BitRate = BitRate::new(1_000_000_000);

    fn key() -> HeaderKey {
        HeaderKey::new(&FlowKey([7; 32]))
    }

    /// A probe in UDP in IPv4 in Ethernet; the header of UDP without its checksum.
    fn probe(number: u32) -> Vec<u8> {
        let scheduling = Scheduling::new(RateUnit::finest(LINE), Rank::new(9), BitRate::ZERO, LINE);
        let round_trip = RoundTrip::of(headwater_units::Duration::from_micros(40));
        let body = Body::RateProbe(RateProbe { number, round_trip, scheduling });
        let datagram = Datagram { class: Class::Bulk, key_epoch: 0, flow: FlowId(77), body };
        let mut payload = vec![0; datagram.len(0)];
        emit(&datagram, 0, &key(), &mut payload);
        let len = (28 + payload.len()) as u16;
        let mut packet = vec![0x45, 0, 0, 0, 0, 1, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 239, 1, 1, 1];
        packet[2..4].copy_from_slice(&len.to_be_bytes());
        let sum = !checksum::sum(&packet);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        packet.extend([0x1b, 0x58, 0x1b, 0x58]);
        packet.extend((len - 20).to_be_bytes());
        packet.extend([0, 0]);
        packet.extend(payload);
        [&[1, 0, 0x5e, 1, 1, 1, 2, 0, 0, 0, 0, 1, 8, 0][..], &packet].concat()
    }

    fn parsed(bytes: &[u8]) -> RawFrame {
        let buffer = FramePool::new(4).gather(&[bytes]).unwrap();
        RawFrame::parse(buffer, &AddressBook::new()).unwrap()
    }

    fn udp_is_right(frame: &RawFrame) -> bool {
        let udp = &frame.bytes()[34..];
        let sums = [checksum::sum(&frame.bytes()[26..34]), 17, udp.len() as u16, checksum::sum(udp)];
        sums.into_iter().fold(0xffff, |it, sum| checksum::updated(it, 0, sum)) == 0
    }

    #[test]
    fn a_lowered_offer_leaves_checksum_and_tag_right() {
        for number in 0..300 {
            let mut frame = parsed(&probe(number));
            // As a sender that fills the checksum in.
            frame.buffer.bytes_mut()[40] = 1;
            frame.repair_udp(34);
            assert!(udp_is_right(&frame));
            let claim = frame.claim().unwrap();
            assert_eq!(
                (claim.transfer, claim.kind, claim.rank),
                (FlowId(77), SchedulingKind::Probe, Rank::new(9))
            );
            assert_eq!(claim.offer, LINE);
            let whole = frame.clone();
            let most = BitRate::new(64 * 5_000_011 * u64::from(number % 4));
            frame.lower_offer(most);
            assert_eq!(frame.claim().unwrap().offer, most.min(LINE));
            assert!(udp_is_right(&frame), "{number}");
            assert!(parse(&frame.bytes()[42..], &key()).is_ok());
            assert_eq!(whole.claim().unwrap().offer, LINE, "another copy is as it was");
        }
    }

    #[test]
    fn a_checksum_that_was_left_out_stays_so() {
        let mut frame = parsed(&probe(1));
        frame.lower_offer(BitRate::new(640));
        assert_eq!((frame.bytes()[40], frame.bytes()[41]), (0, 0));
        assert_eq!(frame.claim().unwrap().offer, BitRate::new(640));
    }

    #[test]
    fn what_is_too_short_or_no_datagram_of_ours_claims_nothing() {
        let whole = probe(1);
        let mut foreign = whole.clone();
        foreign[42] = 0x20;
        assert_eq!(parsed(&foreign).claim(), None);
        for payload in 0..42 {
            let mut short = whole[..42 + payload].to_vec();
            let len = (28 + payload) as u16;
            short[16..18].copy_from_slice(&len.to_be_bytes());
            short[24..26].fill(0);
            let sum = !checksum::sum(&short[14..34]);
            short[24..26].copy_from_slice(&sum.to_be_bytes());
            let mut frame = parsed(&short);
            assert_eq!(frame.claim(), None, "{payload}");
            frame.lower_offer(BitRate::ZERO);
            assert_eq!(frame.bytes(), short);
        }
    }
}
