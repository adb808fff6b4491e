//! Ethernet frames of every kind that a switch may meet, right and wrong ones, as somebody's choices will have them: those
//! of a fuzzer, or of a random generator.
//!
//! Hosts have the addresses of emulated networks: 10.99.0.1 and fd00:99::1 is host 0. Ports are below [`PORTS`].

use std::ops::Range;

/// Fault or peculiarity of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Nothing, nor is it the longest.
    Valid,
    /// Up to [`Network::longest`].
    Long,
    /// Its sender is its destination.
    ToItself,
    /// Time to live 0 or 1.
    Expired,
    /// Bytes behind the IP packet.
    Padded,
    /// It ends anywhere.
    Truncated,
    /// The IP length is another than that of its packet.
    WrongLength,
    BadHeaderChecksum,
    BadUdpChecksum,
    FirstFragment,
    LaterFragment,
    /// IPv4 with options, or with a length of its header that is none.
    Options,
    /// IPv6 with hop-by-hop, routing, fragment and destination headers in any order.
    Extensions,
    /// The same, and they run over the end of the packet.
    CutExtensions,
    UnknownType,
    /// IPv4 that calls itself IPv6, or the other way round.
    OtherVersion,
    Arp,
    /// One or two tags.
    Tagged,
    Broadcast,
    /// To a group that may have members.
    Group,
    /// To one that nobody has heard of.
    NoGroup,
    /// To a host that is not there.
    Nobody,
    /// Any bytes.
    Noise,
}

impl Kind {
    pub(crate) const ALL: [Kind; 23] = [
        Kind::Valid,
        Kind::Long,
        Kind::ToItself,
        Kind::Expired,
        Kind::Padded,
        Kind::Truncated,
        Kind::WrongLength,
        Kind::BadHeaderChecksum,
        Kind::BadUdpChecksum,
        Kind::FirstFragment,
        Kind::LaterFragment,
        Kind::Options,
        Kind::Extensions,
        Kind::CutExtensions,
        Kind::UnknownType,
        Kind::OtherVersion,
        Kind::Arp,
        Kind::Tagged,
        Kind::Broadcast,
        Kind::Group,
        Kind::NoGroup,
        Kind::Nobody,
        Kind::Noise,
    ];
}

/// Ports of UDP and TCP are below this, and not zero.
pub(crate) const PORTS: u32 = 1024;
const ETHERNET: usize = 14;
const UDP: u8 = 17;

/// Where frames are sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Network {
    pub(crate) hosts: u32,
    /// 239.1.1.n and ff05::n.
    pub(crate) groups: u32,
    /// Bytes of the longest frame without a tag.
    pub(crate) longest: usize,
}

/// An address in both families.
struct Address {
    v4: [u8; 4],
    v6: [u8; 16],
}

impl Address {
    fn host(host: u32) -> Address {
        let [high, low] = (host as u16 + 1).to_be_bytes();
        let mut v6 = [0; 16];
        v6[..4].copy_from_slice(&[0xfd, 0, 0, 0x99]);
        v6[14..].copy_from_slice(&[high, low]);
        Address { v4: [10, 99, high, low], v6 }
    }

    fn group(group: u32) -> Address {
        let mut v6 = [0; 16];
        (v6[0], v6[1], v6[15]) = (0xff, 5, group as u8);
        Address { v4: [239, 1, 1, group as u8], v6 }
    }
}

/// A frame that host `from` sends. `pick(n)` is somebody's choice below n.
pub(crate) fn frame(kind: Kind, net: Network, from: u32, pick: &mut dyn FnMut(u32) -> u32) -> Vec<u8> {
    let to = match kind {
        Kind::ToItself => Address::host(from),
        Kind::Group => Address::group(pick(net.groups)),
        Kind::NoGroup => Address::group(200),
        Kind::Nobody => Address::host(net.hosts + pick(1000)),
        Kind::Broadcast => Address { v4: [255; 4], v6: Address::group(1).v6 },
        _ => Address::host(pick(net.hosts)),
    };
    if kind == Kind::Noise {
        return noise(pick, 0..net.longest);
    }
    let only_v6 = matches!(kind, Kind::Extensions | Kind::CutExtensions);
    let only_v4 = matches!(kind, Kind::Options | Kind::BadHeaderChecksum);
    let is_v4 = !only_v6 && (only_v4 || pick(2) == 0);
    // Room for all headers there may be.
    let lengths = if kind == Kind::Long { 1000..net.longest - 200 } else { 0..700 };
    let class = pick(256) as u8;
    let ttl = if kind == Kind::Expired { pick(2) as u8 } else { 64 };
    let ip = match is_v4 {
        true => ipv4(kind, class, ttl, &Address::host(from), &to, pick, lengths),
        false => ipv6(kind, class, ttl, &Address::host(from), &to, pick, lengths),
    };

    let source = [2, 0x48, 0x57, 0, 0, from as u8 + 1];
    let destination = match kind {
        Kind::Broadcast => [0xff; 6],
        Kind::Group | Kind::NoGroup => [1, 0, 0x5e, 1, 1, to.v4[3]],
        _ => source,
    };
    let mut frame = [destination, source].concat();
    if kind == Kind::Tagged {
        for _ in 0..=pick(2) {
            frame.extend(if pick(4) == 0 { [0x88, 0xa8] } else { [0x81, 0] });
            frame.extend([pick(256) as u8, pick(256) as u8]);
        }
    }
    frame.extend(match kind {
        Kind::UnknownType => [pick(256) as u8, pick(256) as u8],
        Kind::Arp => [8, 6],
        _ if is_v4 != (kind == Kind::OtherVersion) => [8, 0],
        _ => [0x86, 0xdd],
    });
    frame.extend(ip);
    match kind {
        Kind::Padded => frame.extend(noise(pick, 1..60)),
        Kind::Truncated => frame.truncate(ETHERNET + pick(frame.len() as u32 - 14) as usize),
        _ => {}
    }
    frame
}

fn ipv4(
    kind: Kind,
    class: u8,
    ttl: u8,
    from: &Address,
    to: &Address,
    pick: &mut dyn FnMut(u32) -> u32,
    lengths: Range<usize>,
) -> Vec<u8> {
    let words = if kind == Kind::Options { pick(16) as u8 } else { 5 };
    let fragment = match kind {
        Kind::FirstFragment => [0x20, 0],
        Kind::LaterFragment => [pick(64) as u8, 1 + pick(255) as u8],
        _ => [0x40, 0],
    };
    let (protocol, payload) = payload(kind, &[&from.v4[..], &to.v4].concat(), pick, lengths);
    let mut packet = vec![0x40 | words, class, 0, 0, pick(256) as u8, 0, fragment[0], fragment[1]];
    packet.extend([ttl, protocol, 0, 0]);
    packet.extend([from.v4, to.v4].concat());
    // Options that are none: the end of the list.
    packet.resize(20.max(usize::from(words) * 4), 0);
    let header = packet.len();
    packet.extend(payload);
    let len = wrong(kind, packet.len(), pick);
    packet[2..4].copy_from_slice(&len.to_be_bytes());
    let sum = !sum(&packet[..header]) ^ u16::from(kind == Kind::BadHeaderChecksum);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet
}

fn ipv6(
    kind: Kind,
    class: u8,
    hops: u8,
    from: &Address,
    to: &Address,
    pick: &mut dyn FnMut(u32) -> u32,
    lengths: Range<usize>,
) -> Vec<u8> {
    let (last, payload) = payload(kind, &[&from.v6[..], &to.v6].concat(), pick, lengths);
    const FRAGMENT: u8 = 44;
    let mut chain: Vec<(u8, Vec<u8>)> = match kind {
        // Offset and "more" in the third and fourth byte.
        Kind::FirstFragment => vec![(FRAGMENT, vec![0, 0, 0, 1, 0, 0, 0, 7])],
        Kind::LaterFragment => vec![(FRAGMENT, vec![0, 0, 1 + pick(255) as u8, 0, 0, 0, 0, 7])],
        _ => Vec::new(),
    };
    if matches!(kind, Kind::Extensions | Kind::CutExtensions) {
        for _ in 0..=pick(6) {
            let header = [0, 43, FRAGMENT, 60][pick(4) as usize];
            let units = if header == FRAGMENT { 0 } else { pick(4) as u8 };
            let mut bytes = vec![0; 8 * (1 + usize::from(units))];
            (bytes[1], bytes[3]) = (units, pick(2) as u8);
            chain.push((header, bytes));
        }
    }
    let mut next = last;
    let mut rest = payload;
    for (header, mut bytes) in chain.into_iter().rev() {
        bytes[0] = std::mem::replace(&mut next, header);
        rest.splice(0..0, bytes);
    }
    if kind == Kind::CutExtensions {
        rest.truncate(pick(24) as usize);
    }
    let len = wrong(kind, rest.len(), pick);
    let mut packet = vec![0x60 | class >> 4, class << 4, 0, pick(256) as u8];
    packet.extend(len.to_be_bytes());
    packet.extend([next, hops]);
    packet.extend([from.v6, to.v6].concat());
    packet.extend(rest);
    packet
}

/// A protocol and what it carries; `addresses` are part of what its checksum covers.
fn payload(
    kind: Kind,
    addresses: &[u8],
    pick: &mut dyn FnMut(u32) -> u32,
    lengths: Range<usize>,
) -> (u8, Vec<u8>) {
    let body = noise(pick, lengths);
    let protocol = match kind {
        Kind::BadUdpChecksum => UDP,
        _ => [UDP, UDP, UDP, 6, 1, 58, 50, 132][pick(8) as usize],
    };
    if protocol != UDP {
        return (protocol, body);
    }
    let ports = [pick(PORTS - 1) as u16 + 1, pick(PORTS - 1) as u16 + 1];
    let len = (body.len() + 8) as u16;
    let mut packet = [ports[0], ports[1], len, 0].map(u16::to_be_bytes).concat();
    packet.extend(body);
    let pseudo = [addresses, &[0, UDP], &len.to_be_bytes(), &packet].concat();
    let sum = !sum(&pseudo) ^ u16::from(kind == Kind::BadUdpChecksum);
    packet[6..8].copy_from_slice(&sum.to_be_bytes());
    (UDP, packet)
}

/// The length, or any other.
fn wrong(kind: Kind, len: usize, pick: &mut dyn FnMut(u32) -> u32) -> u16 {
    if kind == Kind::WrongLength { pick(1 << 16) as u16 } else { len as u16 }
}

/// Bytes that follow from one choice, as many as another says.
fn noise(pick: &mut dyn FnMut(u32) -> u32, lengths: Range<usize>) -> Vec<u8> {
    let len = lengths.start + pick((lengths.end - lengths.start) as u32) as usize;
    let mut state = pick(1 << 16);
    let byte = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    (0..len).map(byte).collect()
}

/// RFC 1071, over whole words; an odd byte at the end counts as if a zero followed.
fn sum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}
