//! Packets that another library built are read, marked and trimmed, and that library judges what comes out.

use etherparse::{
    IpFragOffset, IpHeaders, IpNumber, Ipv4Extensions, Ipv4Header, Ipv4Options, Ipv4Slice, Ipv6Extensions,
    Ipv6FlowLabel, Ipv6FragmentHeader, Ipv6Header, Ipv6RawExtHeader, Ipv6RoutingExtensions, Ipv6Slice,
    PacketBuilder, SlicedPacket, TransportSlice, VlanId,
};
use headwater_switch::{Destination, Frame as _};
use headwater_wire::{Class, DSCP_TRIMMED, Ecn, class_of};
use proptest::prelude::*;

use super::super::{AddressBook, TRIM_PAYLOAD, TRIM_SIZE, TrimRule, TrimmedUdp, laws};
use super::{FramePool, RawFrame};

const ESP: u8 = 50;

/// Where a packet stands in a fragmented one: offset in 8 bytes, and whether more follow.
type Fragment = Option<(u16, bool)>;

#[derive(Clone, Debug)]
struct Packet {
    is_ipv4: bool,
    tagged: bool,
    class: u8,
    addresses: ([u8; 16], [u8; 16]),
    fragment: Fragment,
    /// Words of IPv4 options, or sizes of IPv6's extension headers.
    options: usize,
    hop_by_hop: Option<usize>,
    destination: Option<usize>,
    routing: Option<usize>,
    last_destination: Option<usize>,
    protocol: u8,
    ports: (u16, u16),
    payload: Vec<u8>,
    padding: usize,
}

fn packet() -> impl Strategy<Value = Packet> {
    let extension = || prop::option::weighted(0.3, 0_usize..4);
    let offset = prop::sample::select(vec![0_u16, 1, 185, 8000]);
    let fragment = prop::option::weighted(0.3, (offset, any::<bool>()));
    (
        (any::<bool>(), any::<bool>(), any::<u8>(), any::<([u8; 16], [u8; 16])>(), fragment, 0_usize..=10),
        (extension(), extension(), extension(), extension()),
        prop::sample::select(vec![17_u8, 17, 6, ESP]),
        any::<(u16, u16)>(),
        prop::collection::vec(any::<u8>(), 0..1800),
        0_usize..30,
    )
        .prop_map(
            |(
                (is_ipv4, tagged, class, mut addresses, fragment, options),
                (hop_by_hop, destination, routing, last_destination),
                protocol,
                ports,
                payload,
                padding,
            )| {
                // A multicast address has its own test.
                for address in [&mut addresses.0, &mut addresses.1] {
                    address[0] &= 0x7f;
                }
                Packet {
                    is_ipv4,
                    tagged,
                    class,
                    addresses,
                    fragment,
                    options,
                    hop_by_hop,
                    destination,
                    routing,
                    last_destination,
                    protocol,
                    ports,
                    payload,
                    padding,
                }
            },
        )
}

impl Packet {
    fn ip(&self) -> IpHeaders {
        let (from, to) = &self.addresses;
        if self.is_ipv4 {
            let short = |address: &[u8; 16]| <[u8; 4]>::try_from(&address[..4]).unwrap();
            let mut header = Ipv4Header::new(0, 64, IpNumber(0), short(from), short(to)).unwrap();
            (header.dscp, header.ecn) =
                ((self.class >> 2).try_into().unwrap(), (self.class & 3).try_into().unwrap());
            // One-byte options that mean nothing (RFC 791 §3.1).
            header.options = Ipv4Options::try_from(&vec![1; self.options * 4][..]).unwrap();
            if let Some((offset, more)) = self.fragment {
                (header.fragment_offset, header.more_fragments, header.dont_fragment) =
                    (IpFragOffset::try_new(offset).unwrap(), more, false);
            }
            IpHeaders::Ipv4(header, Ipv4Extensions::default())
        } else {
            let header = Ipv6Header {
                traffic_class: self.class,
                flow_label: Ipv6FlowLabel::try_new(0xabcde).unwrap(),
                source: *from,
                destination: *to,
                hop_limit: 64,
                ..Ipv6Header::default()
            };
            let raw =
                |eights: usize| Ipv6RawExtHeader::new_raw(IpNumber(0), &vec![0; 6 + eights * 8]).unwrap();
            let extensions = Ipv6Extensions {
                hop_by_hop_options: self.hop_by_hop.map(raw),
                destination_options: self.destination.map(raw),
                routing: self.routing.map(|it| Ipv6RoutingExtensions {
                    routing: raw(it),
                    final_destination_options: self.last_destination.map(raw),
                }),
                fragment: self.fragment.map(|(offset, more)| {
                    Ipv6FragmentHeader::new(IpNumber(0), IpFragOffset::try_new(offset).unwrap(), more, 77)
                }),
                auth: None,
            };
            IpHeaders::Ipv6(header, extensions)
        }
    }

    fn build(&self) -> Vec<u8> {
        let ethernet = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        let ip = match self.tagged {
            true => ethernet.single_vlan(VlanId::try_new(42).unwrap()).ip(self.ip()),
            false => ethernet.ip(self.ip()),
        };
        let mut frame = Vec::new();
        let (from, to) = self.ports;
        match self.protocol {
            17 => ip.udp(from, to).write(&mut frame, &self.payload),
            6 => ip.tcp(from, to, 1, 2).write(&mut frame, &self.payload),
            other => ip.write(&mut frame, IpNumber(other), &self.payload),
        }
        .unwrap();
        frame
    }

    fn is_fragment(&self) -> bool {
        self.fragment.is_some_and(|(offset, more)| offset > 0 || more)
    }

    fn destination(&self) -> std::net::IpAddr {
        let to = self.addresses.1;
        if self.is_ipv4 { [to[0], to[1], to[2], to[3]].into() } else { to.into() }
    }

    fn ip_at(&self) -> usize {
        if self.tagged { 18 } else { 14 }
    }
}

/// The IP header as the library reads it: strictly, with all that belongs to it in the frame and nothing behind.
fn read(packet: &Packet, frame: &RawFrame) -> (IpHeaders, Vec<u8>) {
    let bytes = &frame.bytes()[packet.ip_at()..];
    if packet.is_ipv4 {
        let slice = Ipv4Slice::from_slice(bytes).unwrap();
        let header = slice.header().to_header();
        assert_eq!(header.calc_header_checksum(), header.header_checksum);
        assert_eq!(usize::from(header.total_len), bytes.len());
        (IpHeaders::Ipv4(header, Ipv4Extensions::default()), slice.payload().payload.to_vec())
    } else {
        let slice = Ipv6Slice::from_slice(bytes).unwrap();
        let header = slice.header().to_header();
        assert_eq!(usize::from(header.payload_length) + 40, bytes.len());
        let (extensions, _, rest) = Ipv6Extensions::from_slice(header.next_header, &bytes[40..]).unwrap();
        assert_eq!(rest, slice.payload().payload);
        (IpHeaders::Ipv6(header, extensions), rest.to_vec())
    }
}

/// With another traffic class, and the length and checksum that go with it and `payload`.
fn changed(headers: &IpHeaders, class: u8, payload: usize) -> IpHeaders {
    let mut headers = headers.clone();
    headers.set_payload_len(payload).unwrap();
    match &mut headers {
        IpHeaders::Ipv4(header, _) => {
            (header.dscp, header.ecn) = ((class >> 2).try_into().unwrap(), (class & 3).try_into().unwrap());
            header.header_checksum = header.calc_header_checksum();
        }
        IpHeaders::Ipv6(header, _) => header.traffic_class = class,
    }
    headers
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5_000))]

    #[test]
    fn marked_and_trimmed_packets_are_what_the_other_library_expects(packet in packet()) {
        let built = packet.build();
        let arrived = [&built[..], &vec![0xee; packet.padding]].concat();
        let buffer = FramePool::new(4).gather(&[&arrived]).unwrap();
        let mut book = AddressBook::new();
        book.insert_host(packet.destination(), 3).unwrap();
        let mut frame = RawFrame::parse(buffer.clone(), &book).unwrap();
        prop_assert_eq!(frame.bytes(), &built[..]);
        prop_assert_eq!(frame.destination(), Destination::Host(3));
        prop_assert_eq!((frame.dscp(), frame.ecn()), (packet.class >> 2, Ecn::from_tos(packet.class)));
        prop_assert_eq!(frame.class(), class_of(packet.class >> 2));
        laws::judge(frame.clone(), &buffer, &book);

        let (headers, payload) = read(&packet, &frame);
        frame.mark();
        let (marked, same) = read(&packet, &frame);
        prop_assert_eq!(&marked, &changed(&headers, packet.class | 3, payload.len()));
        prop_assert_eq!(&same, &payload);
        if !packet.is_fragment() {
            let read = SlicedPacket::from_ethernet(frame.bytes()).unwrap();
            let ports = match read.transport {
                Some(TransportSlice::Udp(udp)) => Some((udp.source_port(), udp.destination_port())),
                Some(TransportSlice::Tcp(tcp)) => Some((tcp.source_port(), tcp.destination_port())),
                _ => None,
            };
            prop_assert_eq!(ports, (packet.protocol != ESP).then_some(packet.ports));
        }

        let before = frame.clone();
        let headers_end = built.len() - packet.payload.len();
        let keep = usize::from(TRIM_SIZE).max(headers_end + TRIM_PAYLOAD);
        let trimmable = packet.protocol == 17 && !packet.is_fragment() && keep < built.len();
        let mut repaired = frame.clone();
        repaired.set_trim(TrimRule { udp: TrimmedUdp::Repaired, ..TrimRule::default() });
        prop_assert_eq!((frame.trim(), repaired.trim()), (trimmable, trimmable));
        if trimmable {
            let whole = SlicedPacket::from_ethernet(repaired.bytes()).unwrap();
            let Some(TransportSlice::Udp(udp)) = whole.transport else { panic!("only UDP is trimmed") };
            prop_assert_eq!(usize::from(udp.length()), repaired.bytes().len() - headers_end + 8);
            let (udp, rest) = (udp.to_header(), udp.payload());
            let expected = match read(&packet, &repaired).0 {
                IpHeaders::Ipv4(header, _) => udp.calc_checksum_ipv4(&header, rest),
                IpHeaders::Ipv6(header, _) => udp.calc_checksum_ipv6(&header, rest),
            };
            prop_assert_eq!(udp.checksum, expected.unwrap());
            let (trimmed, rest) = read(&packet, &frame);
            prop_assert_eq!(frame.bytes().len(), keep);
            prop_assert_eq!(&rest[..], &payload[..rest.len()]);
            prop_assert_eq!(&trimmed, &changed(&headers, DSCP_TRIMMED << 2 | 3, rest.len()));
            prop_assert_eq!(frame.class(), Class::Control);
        } else {
            prop_assert_eq!(frame.bytes(), before.bytes());
        }
    }
}
