//! Frames by their bytes: what is refused and why, what any bytes may lead to, and where buffers go.

use headwater_switch::{Destination, Frame as _};
use headwater_wire::{
    Class, DSCP_CONTROL, DSCP_FIRST, DSCP_LOWER_EFFORT, DSCP_NETWORK_CONTROL, DSCP_SECOND, DSCP_THIRD,
    DSCP_TRIMMED, Ecn,
};
use proptest::prelude::*;

use super::super::{AddressBook, AddressError, FramePool, MAX_FRAME, NotForwarded, RawBuffer, laws};
use super::parse;

/// UDP from 10.0.0.1:1 to 10.0.0.2:2 with four bytes of payload; 46 bytes.
const UDP4: [u8; 46] = [
    2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x08, 0x00, // Ethernet
    0x45, 0x02, 0, 32, 0, 0, 0x40, 0, 64, 17, 0x26, 0xc9, 10, 0, 0, 1, 10, 0, 0, 2, // IPv4, ECT(0)
    0, 1, 0, 2, 0, 12, 0, 0, 1, 2, 3, 4, // UDP
];

/// The same with other bytes at some places and the IPv4 checksum made right again, or left alone.
fn with(changes: &[(usize, u8)], mend: bool) -> Vec<u8> {
    let mut frame = UDP4.to_vec();
    for (at, value) in changes {
        frame[*at] = *value;
    }
    if mend {
        frame[24..26].fill(0);
        let sum = !super::super::checksum::sum(&frame[14..34]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
    }
    frame
}

/// IPv6 with these extension headers and whatever else.
fn ipv6(next: u8, rest: &[u8]) -> Vec<u8> {
    let mut frame = [&UDP4[..12], &[0x86, 0xdd, 0x60, 0, 0, 0]].concat();
    frame.extend((rest.len() as u16).to_be_bytes());
    frame.extend([next, 64]);
    frame.extend([[0xfd; 16], [0xfe; 16]].concat());
    frame.extend(rest);
    frame
}

fn refused(frame: &[u8]) -> Option<NotForwarded> {
    parse(frame, &AddressBook::new()).err()
}

#[test]
fn frame_says_where_it_goes_and_how() {
    let mut book = AddressBook::new();
    book.insert_host("10.0.0.2".parse().unwrap(), 5).unwrap();
    let frame = parse(&UDP4, &book).unwrap();
    assert_eq!(frame.len().get(), 46);
    assert_eq!((frame.class(), frame.ecn(), frame.dscp()), (Class::Bulk, Ecn::Ect0, 0));
    assert_eq!(frame.destination(), Destination::Host(5));
    assert_eq!(parse(&UDP4, &AddressBook::new()).unwrap().destination(), AddressBook::NOWHERE);
}

#[test]
fn padding_is_cut_off() {
    let padded = [&UDP4[..], &[0xaa; 18]].concat();
    let frame = parse(&padded, &AddressBook::new()).unwrap();
    assert_eq!(frame.bytes(), UDP4);
}

#[test]
fn each_reason_has_its_frame() {
    assert_eq!(refused(&[]), Some(NotForwarded::TooShort));
    assert_eq!(refused(&UDP4[..13]), Some(NotForwarded::TooShort));
    assert_eq!(refused(&UDP4[..33]), Some(NotForwarded::TooShort));
    assert_eq!(refused(&with(&[(12, 0x08), (13, 0x06)], false)), Some(NotForwarded::Arp));
    assert_eq!(refused(&with(&[(12, 0x88), (13, 0xcc)], false)), Some(NotForwarded::NotIp));
    // An 802.3 length, and two tags.
    assert_eq!(refused(&with(&[(12, 0x00), (13, 0x20)], false)), Some(NotForwarded::NotIp));
    let tag = [0x81, 0, 0, 1];
    let twice = [&UDP4[..12], &tag, &tag, &UDP4[12..]].concat();
    assert_eq!(refused(&twice), Some(NotForwarded::NotIp));
    assert_eq!(refused(&[&UDP4[..12], &tag, &UDP4[12..]].concat()), None);
    assert_eq!(refused(&with(&[(14, 0x65)], true)), Some(NotForwarded::BadVersion));
    assert_eq!(refused(&with(&[(14, 0x44)], true)), Some(NotForwarded::BadHeaderLength));
    assert_eq!(refused(&with(&[(14, 0x4f)], true)), Some(NotForwarded::TooShort));
    assert_eq!(refused(&with(&[(17, 33)], true)), Some(NotForwarded::BeyondFrame));
    assert_eq!(refused(&UDP4[..45]), Some(NotForwarded::BeyondFrame));
    assert_eq!(refused(&with(&[(17, 19)], true)), Some(NotForwarded::BeyondPacket));
    assert_eq!(refused(&with(&[(22, 63)], false)), Some(NotForwarded::BadChecksum));

    assert_eq!(refused(&ipv6(59, &[])), None);
    assert_eq!(refused(&ipv6(59, &[])[..53]), Some(NotForwarded::TooShort));
    let mut wrong = ipv6(59, &[]);
    wrong[14] = 0x40;
    assert_eq!(refused(&wrong), Some(NotForwarded::BadVersion));
    assert_eq!(refused(&ipv6(17, &[0; 20])[..70]), Some(NotForwarded::BeyondFrame));
    // A hop-by-hop header of 16 bytes in 8, and a jumbogram's that is not counted.
    assert_eq!(refused(&ipv6(0, &[17, 1, 0, 0, 0, 0, 0, 0])), Some(NotForwarded::BeyondPacket));
    assert_eq!(refused(&ipv6(0, &[])), Some(NotForwarded::BeyondPacket));
}

#[test]
fn only_known_code_points_leave_the_bulk_class() {
    for dscp in 0..64 {
        let expected = match dscp {
            DSCP_CONTROL | DSCP_NETWORK_CONTROL | DSCP_TRIMMED => Class::Control,
            DSCP_FIRST => Class::First,
            DSCP_SECOND => Class::Second,
            DSCP_THIRD => Class::Third,
            DSCP_LOWER_EFFORT => Class::Gentle,
            _ => Class::Bulk,
        };
        let v4 = parse(&with(&[(15, dscp << 2 | 1)], true), &AddressBook::new()).unwrap();
        let mut v6 = ipv6(59, &[]);
        (v6[14], v6[15]) = (0x60 | dscp >> 2, dscp << 6 | 1 << 4 | 0x0f);
        let v6 = parse(&v6, &AddressBook::new()).unwrap();
        for frame in [v4, v6] {
            assert_eq!((frame.dscp(), frame.class(), frame.ecn()), (dscp, expected, Ecn::Ect1));
        }
    }
}

#[test]
fn fragments_of_a_packet_go_one_way_and_its_neighbours_their_own() {
    let hash = |frame: &[u8]| parse(frame, &AddressBook::new()).unwrap().flow_hash();
    // First, middle and last: "more" and offset are bytes 20 and 21. Bytes in the place of ports are none.
    let fragments = [(0x20, 0), (0x20, 5), (0x00, 9)]
        .map(|(more, offset)| hash(&with(&[(20, more), (21, offset), (35, offset), (37, offset + 1)], true)));
    assert_eq!(fragments, [fragments[0]; 3]);
    assert_ne!(fragments[0], hash(&UDP4));
    assert_ne!(hash(&with(&[(35, 9)], false)), hash(&UDP4), "another source port");
    assert_eq!(hash(&with(&[(45, 9)], false)), hash(&UDP4), "another payload");
    assert_ne!(hash(&with(&[(23, 6)], true)), hash(&UDP4), "another protocol");
    assert_ne!(hash(&with(&[(29, 9)], true)), hash(&UDP4), "another source");
    assert_ne!(hash(&with(&[(33, 9)], true)), hash(&UDP4), "another destination");
    // ESP has no ports.
    let esp = |port| hash(&with(&[(23, 50), (35, port)], true));
    assert_eq!(esp(1), esp(2));

    // IPv6: the first fragment alone shows the destination options behind the fragment header.
    let rest = [17, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 2, 0, 8, 0, 0];
    let fragment = |head: [u8; 4]| hash(&ipv6(44, &[&head[..], &[0; 4], &rest].concat()));
    assert_eq!(fragment([60, 0, 0, 1]), fragment([60, 0, 0, 8]));
    // Neither more nor offset: whole, so its ports count.
    assert_ne!(fragment([60, 0, 0, 0]), fragment([60, 0, 0, 1]));
    assert_eq!(fragment([60, 0, 0, 0]), hash(&ipv6(60, &rest)));
}

#[test]
fn address_book_knows_hosts_by_many_addresses_and_groups_apart() {
    let mut book = AddressBook::new();
    let ip = |text: &str| text.parse().unwrap();
    book.insert_host(ip("10.0.0.1"), 1).unwrap();
    book.insert_host(ip("fd00::1"), 1).unwrap();
    book.insert_host(ip("10.0.0.1"), 1).unwrap();
    book.insert_group(ip("ff05::7"), 1).unwrap();
    assert_eq!(book.destination(ip("fd00::1")), Destination::Host(1));
    assert_eq!(book.destination(ip("ff05::7")), Destination::Group(1));
    assert_eq!(book.destination(ip("239.0.0.1")), AddressBook::NOWHERE);
    let taken = AddressError::Taken { address: ip("10.0.0.1"), known: Destination::Host(1) };
    assert_eq!(book.insert_host(ip("10.0.0.1"), 2), Err(taken));
    assert!(matches!(book.insert_host(ip("239.0.0.1"), 2), Err(AddressError::Kind { .. })));
    assert!(matches!(book.insert_group(ip("10.0.0.9"), 2), Err(AddressError::Kind { .. })));
}

#[test]
fn steady_state_allocates_nothing() {
    let pool = FramePool::new(100);
    let round = || {
        let held: Vec<RawBuffer> = (0..50).map(|n| pool.gather(&[&[n; 1400]]).unwrap()).collect();
        let jumbo = pool.gather(&[&[7; 9000], &[8; 216]]).unwrap();
        let copy = held[3].clone();
        assert_eq!((copy.bytes(), jumbo.bytes().len()), (&[3; 1400][..], MAX_FRAME));
        assert_eq!(jumbo.bytes()[8999..9001], [7, 8]);
    };
    round();
    assert_eq!(pool.allocated(), 52);
    (0..100).for_each(|_| round());
    assert_eq!(pool.allocated(), 52);
    assert!(pool.gather(&[&[0; MAX_FRAME], &[0]]).is_none());
}

#[test]
fn pool_keeps_no_more_than_it_was_told() {
    let pool = FramePool::new(2);
    let held: Vec<RawBuffer> = (0..5).map(|_| pool.gather(&[&[1]]).unwrap()).collect();
    drop(held);
    let _held: Vec<RawBuffer> = (0..5).map(|_| pool.gather(&[&[1]]).unwrap()).collect();
    assert_eq!(pool.allocated(), 5 + 3);
}

#[test]
fn refused_frame_gives_its_buffer_back() {
    let pool = FramePool::new(4);
    for _ in 0..10 {
        let buffer = pool.gather(&[&UDP4[..20]]).unwrap();
        assert!(super::RawFrame::parse(buffer, &AddressBook::new()).is_err());
    }
    assert_eq!(pool.allocated(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn any_bytes_break_no_law(
        mut bytes in prop::collection::vec(any::<u8>(), 0..400),
        more in 0_usize..2000,
        // Protocols that the parser looks into, where an IPv4 or IPv6 header names what follows.
        next in prop::sample::select(vec![0_u8, 6, 17, 17, 43, 44, 50, 60]),
    ) {
        for at in [20, 23, 24, 27] {
            if let Some(byte) = bytes.get_mut(at) {
                *byte = next;
            }
        }
        laws::run(&bytes);
        bytes.resize(bytes.len() + more, next);
        laws::run(&bytes);
    }
}
