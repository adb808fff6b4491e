//! Properties of every frame, whatever its bytes: shared by the tests here and the fuzz target `raw_frame`.

use std::net::IpAddr;

use headwater_switch::{Destination, Frame as _};
use headwater_wire::{Class, DSCP_TRIMMED, Ecn};

use super::address::AddressBook;
use super::buffer::{FramePool, RawBuffer};
use super::checksum;
use super::frame::{RawFrame, TrimRule, TrimmedUdp};
use super::layout::NotForwarded;

/// Tries bytes as a frame, and once more with what a sender gets right and chance does not: type, version, lengths and
/// the IPv4 checksum.
pub(super) fn run(bytes: &[u8]) {
    let pool = FramePool::new(8);
    let Some(buffer) = pool.gather(&[bytes]) else { return };
    let mut book = AddressBook::new();
    if let Ok(frame) = RawFrame::parse(buffer.clone(), &book) {
        judge(frame, &buffer, &book);
    }
    let mut repaired = buffer.clone();
    if let Some(to) = repair(repaired.bytes_mut()) {
        book.insert_host(to, 7).or_else(|_| book.insert_group(to, 7)).expect("an address is of either kind");
        match RawFrame::parse(repaired.clone(), &book) {
            Ok(frame) => {
                assert_ne!(frame.destination(), AddressBook::NOWHERE);
                judge(frame, &repaired, &book);
            }
            Err(reason) => assert_eq!(reason, NotForwarded::BeyondPacket, "the rest was repaired"),
        }
    }
}

/// `arrived` is what `frame` was parsed from.
pub(super) fn judge(mut frame: RawFrame, arrived: &RawBuffer, book: &AddressBook) {
    assert!(arrived.bytes().starts_with(frame.bytes()), "parsing cuts padding off and changes nothing");
    assert_eq!(frame.len().get(), frame.bytes().len() as u64);
    agrees_with_its_bytes(&frame, book);

    let before = frame.clone();
    frame.set_destination_mac([2, 2, 3, 4, 5, 6]);
    let stays = before.bytes()[0] & 1 != 0 && matches!(before.destination(), Destination::Group(_));
    let mac = if stays { &before.bytes()[..6] } else { &[2, 2, 3, 4, 5, 6] };
    assert_eq!((&frame.bytes()[..6], &frame.bytes()[6..]), (mac, &before.bytes()[6..]));

    let before = frame.clone();
    frame.mark();
    assert_eq!(frame.ecn(), Ecn::Ce);
    assert_eq!((frame.dscp(), frame.len()), (before.dscp(), before.len()));
    assert!(differs_only_in_header(&frame, &before));
    agrees_with_its_bytes(&frame, book);

    let before = frame.clone();
    let mut repaired = frame.clone();
    repaired.set_trim(TrimRule { udp: TrimmedUdp::Repaired, ..TrimRule::default() });
    if frame.trim() {
        assert!(repaired.trim() && differs_only_in_udp(&repaired, &frame));
        assert!(frame.len() < before.len());
        assert_eq!((frame.dscp(), frame.class(), frame.ecn()), (DSCP_TRIMMED, Class::Control, before.ecn()));
        assert!(differs_only_in_header(&frame, &before));
        assert!(!frame.clone().trim(), "what was trimmed is not trimmed again");
    } else {
        assert_eq!(frame.bytes(), before.bytes());
    }
    assert_eq!((frame.flow_hash(), frame.destination()), (before.flow_hash(), before.destination()));
    agrees_with_its_bytes(&frame, book);
}

/// A frame's parsed fields are those that the next switch reads in its bytes.
pub(super) fn agrees_with_its_bytes(frame: &RawFrame, book: &AddressBook) {
    let bytes = FramePool::new(0).gather(&[frame.bytes()]).expect("a frame fits a buffer");
    let again = RawFrame::parse(bytes, book).expect("a frame stays a frame");
    assert_eq!(again.len(), frame.len());
    assert_eq!((again.dscp(), again.class(), again.ecn()), (frame.dscp(), frame.class(), frame.ecn()));
    assert_eq!((again.flow_hash(), again.destination()), (frame.flow_hash(), frame.destination()));
    let (ip, is_ipv4) = ip_header(frame.bytes());
    let header = &frame.bytes()[ip..];
    if is_ipv4 {
        assert!(checksum::is_right(&header[..usize::from(header[0] & 15) * 4]));
        assert_eq!(usize::from(u16::from_be_bytes([header[2], header[3]])), header.len());
    } else {
        assert_eq!(usize::from(u16::from_be_bytes([header[4], header[5]])) + 40, header.len());
    }
}

/// The traffic class, the length and the IPv4 checksum may differ, and the end.
fn differs_only_in_header(after: &RawFrame, before: &RawFrame) -> bool {
    let (ip, is_ipv4) = ip_header(before.bytes());
    let may = |at: usize| match at.checked_sub(ip) {
        None => false,
        Some(at) if is_ipv4 => matches!(at, 1 | 2 | 3 | 10 | 11),
        Some(at) => matches!(at, 0 | 1 | 4 | 5),
    };

    let fixed = |bytes: &[u8]| (bytes[ip] >> 4, if is_ipv4 { bytes[ip] & 15 } else { bytes[ip + 1] & 15 });

    fixed(after.bytes()) == fixed(before.bytes())
        && (after.bytes().iter().zip(before.bytes()).enumerate()).all(|(at, (a, b))| a == b || may(at))
}

/// The length and the checksum of UDP, which is right in the first: four bytes in a row somewhere behind the addresses.
fn differs_only_in_udp(repaired: &RawFrame, stale: &RawFrame) -> bool {
    let (ip, is_ipv4) = ip_header(stale.bytes());
    let header = if is_ipv4 { 20 } else { 40 };
    let differ = |at: &usize| repaired.bytes()[*at] != stale.bytes()[*at];
    let mut places = (0..repaired.bytes().len()).filter(differ);
    let (first, last) = (places.next(), places.next_back());
    repaired.len() == stale.len()
        && first.is_none_or(|first| first >= ip + header + 4 && last.unwrap_or(first) < first + 4)
}

/// Where the IP header begins, and whether it is IPv4.
fn ip_header(frame: &[u8]) -> (usize, bool) {
    let ip = if frame[12..14] == [0x81, 0] { 18 } else { 14 };
    (ip, frame[ip - 2..ip] == [8, 0])
}

/// Makes an IP packet of any bytes that are long enough; its destination.
fn repair(frame: &mut [u8]) -> Option<IpAddr> {
    let tagged = *frame.first()? & 1 != 0;
    let is_ipv4 = frame[0] & 2 != 0;
    let ip = if tagged { 18 } else { 14 };
    if frame.len() < ip + if is_ipv4 { 60 } else { 40 } {
        return None;
    }
    if tagged {
        frame[12..14].copy_from_slice(&[0x81, 0]);
    }
    let (headers, packet) = frame.split_at_mut(ip);
    headers[ip - 2..].copy_from_slice(if is_ipv4 { &[0x08, 0x00] } else { &[0x86, 0xdd] });
    // The first byte's upper bits say how much padding there is.
    let total = packet.len() - usize::from(headers[0] >> 2).min(packet.len() - if is_ipv4 { 60 } else { 40 });
    if is_ipv4 {
        let words = 5.max(packet[0] & 15);
        packet[0] = 0x40 | words;
        packet[2..4].copy_from_slice(&(total as u16).to_be_bytes());
        packet[10..12].fill(0);
        let sum = !checksum::sum(&packet[..usize::from(words) * 4]);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        Some(IpAddr::from([packet[16], packet[17], packet[18], packet[19]]))
    } else {
        packet[0] = 0x60 | packet[0] & 15;
        packet[4..6].copy_from_slice(&((total - 40) as u16).to_be_bytes());
        Some(IpAddr::from(<[u8; 16]>::try_from(&packet[24..40]).expect("16 bytes")))
    }
}
