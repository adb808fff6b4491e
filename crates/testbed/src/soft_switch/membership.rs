//! Which hosts want which multicast groups: learnt from what their kernels say when a program joins or leaves one.
//!
//! Reads reports of IGMP (RFC 1112, 2236, 3376) and MLD (RFC 2710, 3810), as switches do that snoop (RFC 4541). Behind each
//! port is one host, whose kernel reports joins and leaves by itself, so nobody needs to ask and nothing runs out. Sources
//! that a program wants, or does not, are not kept apart: it gets all of the group, and its kernel sorts them.
//!
//! Groups of one link (224.0.0.0/24 and IPv6's scopes below admin-local) are not learnt: hosts join some of them by
//! themselves, and what they say to them, reports among it, goes nowhere here. Nor are groups whose members were named by
//! hand.
//!
//! Not here: along which paths a group's frames are copied.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::checksum;

/// Members of a group that nobody has named the members of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Groups {
    /// The hosts that have joined it.
    #[default]
    Learnt,
    /// All hosts but the one that sends: for programs whose joins do not show.
    Flooded,
    /// Nobody.
    Named,
}

/// Learnt groups are at most these many; what is beyond goes nowhere and is counted.
pub const MAX_GROUPS: usize = 1024;
/// Numbers of learnt groups begin here.
const FIRST_NUMBER: u32 = 1 << 31;

/// Memberships that hosts have announced so far.
#[derive(Debug)]
pub(super) struct Membership {
    rule: Groups,
    hosts: u32,
    groups: BTreeMap<IpAddr, Learnt>,
    named: BTreeSet<IpAddr>,
    next: u32,
    refused: u64,
}

/// A group, and the hosts that are its members now; without any it is forgotten.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Learnt {
    pub(super) number: u32,
    pub(super) members: BTreeSet<u32>,
}

impl Membership {
    pub(super) fn new(rule: Groups, hosts: usize) -> Self {
        let (groups, named) = Default::default();
        Membership { rule, hosts: hosts as u32, groups, named, next: FIRST_NUMBER, refused: 0 }
    }

    /// Takes note of a host's IP packet, and says which groups are others now; none if it is no report. One that is goes to
    /// nobody else: hosts that heard it would keep silent about their own membership (RFC 2236 §3, RFC 4541 §2.1.1).
    pub(super) fn hear(&mut self, host: u32, packet: &[u8]) -> Option<Vec<(IpAddr, Learnt)>> {
        if self.rule != Groups::Learnt || !is_report(packet) {
            return None;
        }
        let mut changed: BTreeMap<IpAddr, Learnt> = BTreeMap::new();
        reports(packet, |group, joins| {
            if let Some(learnt) = self.member(host, group, joins) {
                changed.insert(group, learnt);
            }
        });
        Some(changed.into_iter().collect())
    }

    /// The group that all hosts are in, if one is needed for a frame to this address that leads nowhere.
    pub(super) fn flood(&mut self, to: IpAddr) -> Option<Learnt> {
        let is_new = self.rule == Groups::Flooded && is_learnable(to) && !self.groups.contains_key(&to);
        if !is_new || self.named.contains(&to) {
            return None;
        }
        let everybody = (0..self.hosts).collect();
        let learnt = self.learn(to)?;
        learnt.members = everybody;
        Some(learnt.clone())
    }

    /// The members of this group are named from now on. Its number, if it had been learnt.
    pub(super) fn name(&mut self, group: IpAddr) -> Option<u32> {
        self.named.insert(group);
        self.groups.remove(&group).map(|learnt| learnt.number)
    }

    /// All learnt groups, with their members.
    pub(super) fn all(&self) -> impl Iterator<Item = &Learnt> {
        self.groups.values()
    }

    /// How many groups could not be learnt, being too many.
    pub(super) fn refused(&self) -> u64 {
        self.refused
    }

    /// The group as it is now, if that is another than before.
    fn member(&mut self, host: u32, group: IpAddr, joins: bool) -> Option<Learnt> {
        if !is_learnable(group) || self.named.contains(&group) {
            return None;
        }
        if !joins {
            let learnt = self.groups.get_mut(&group).filter(|it| it.members.contains(&host))?;
            learnt.members.remove(&host);
            let learnt = learnt.clone();
            if learnt.members.is_empty() {
                self.groups.remove(&group);
            }
            return Some(learnt);
        }
        let learnt = self.learn(group)?;
        learnt.members.insert(host).then(|| learnt.clone())
    }

    fn learn(&mut self, group: IpAddr) -> Option<&mut Learnt> {
        if self.groups.len() >= MAX_GROUPS && !self.groups.contains_key(&group) {
            self.refused += 1;
            return None;
        }
        let next = &mut self.next;
        Some(self.groups.entry(group).or_insert_with(|| {
            let number = *next;
            // Two thousand million groups later those of the beginning are long gone.
            *next = next.checked_add(1).unwrap_or(FIRST_NUMBER);
            Learnt { number, members: BTreeSet::new() }
        }))
    }
}

/// Whether it is a group that goes beyond one link.
fn is_learnable(group: IpAddr) -> bool {
    match group {
        IpAddr::V4(ip) => ip.is_multicast() && ip.octets()[..3] != [224, 0, 0],
        IpAddr::V6(ip) => ip.is_multicast() && ip.segments()[0] & 0xf >= 4,
    }
}

const IGMP: u8 = 2;
const ICMPV6: u8 = 58;
const HOP_BY_HOP: u8 = 0;
const IPV6_HEADER: usize = 40;

/// Whether hosts say something of groups in it, or a router asks.
fn is_report(packet: &[u8]) -> bool {
    match packet.first().map(|first| first >> 4) {
        Some(4) => packet.get(9) == Some(&IGMP),
        Some(6) => packet.get(6) == Some(&HOP_BY_HOP) && packet.get(IPV6_HEADER) == Some(&ICMPV6),
        _ => false,
    }
}

/// Calls `say` with every group of a report, in its order, and whether it is joined; reports that are cut off, or whose
/// checksum is wrong, or that have come over a router, say nothing.
fn reports(packet: &[u8], say: impl FnMut(IpAddr, bool)) {
    // A report that is malformed half way through has said its first half; so do kernels read it.
    let _ = match packet.first().map(|first| first >> 4) {
        Some(4) => igmp(packet, say),
        Some(6) => mld(packet, say),
        _ => None,
    };
}

fn igmp(packet: &[u8], mut say: impl FnMut(IpAddr, bool)) -> Option<()> {
    let message = packet.get(usize::from(packet[0] & 15) * 4..)?;
    if packet.get(8) != Some(&1) || !checksum::is_right(message) {
        return None;
    }
    let group = |bytes: &[u8; 4]| IpAddr::from(Ipv4Addr::from(*bytes));
    match message.first()? {
        // Of versions 1 and 2, and a leave.
        0x12 | 0x16 => say(group(message.get(4..)?.first_chunk()?), true),
        0x17 => say(group(message.get(4..)?.first_chunk()?), false),
        0x22 => records::<4>(message, |(bytes, joins)| say(group(bytes), joins))?,
        _ => {}
    }
    Some(())
}

fn mld(packet: &[u8], mut say: impl FnMut(IpAddr, bool)) -> Option<()> {
    let options = packet.get(IPV6_HEADER..)?;
    let message = options.get((usize::from(*options.get(1)?) + 1) * 8..)?;
    if options[0] != ICMPV6 || packet[7] != 1 {
        return None;
    }
    // RFC 8200 §8.1: addresses, length and protocol are summed too.
    let sums = [checksum::sum(&packet[8..IPV6_HEADER]), message.len() as u16, ICMPV6.into()];
    let rest = sums.into_iter().fold(0xffff, |rest, sum| checksum::updated(rest, 0, sum));
    if checksum::updated(rest, 0, checksum::sum(message)) != 0 {
        return None;
    }
    let group = |bytes: &[u8; 16]| IpAddr::from(Ipv6Addr::from(*bytes));
    match message.first()? {
        131 => say(group(message.get(8..)?.first_chunk()?), true),
        132 => say(group(message.get(8..)?.first_chunk()?), false),
        143 => records::<16>(message, |(bytes, joins)| say(group(bytes), joins))?,
        _ => {}
    }
    Some(())
}

/// The records of IGMPv3 and MLDv2, which differ in the length of addresses only: what each says of its group.
fn records<const N: usize>(message: &[u8], mut say: impl FnMut((&[u8; N], bool))) -> Option<()> {
    let count = u16::from_be_bytes(*message.get(6..)?.first_chunk()?);
    let mut rest = message.get(8..)?;
    for _ in 0..count {
        let (&[kind, more, high, low], behind) = rest.split_first_chunk()?;
        let (group, behind) = behind.split_first_chunk()?;
        let sources = usize::from(u16::from_be_bytes([high, low]));
        rest = behind.get(sources * N + usize::from(more) * 4..)?;
        match kind {
            // Everything but some sources.
            2 | 4 => say((group, true)),
            // These sources only, or these too.
            1 | 3 | 5 if sources > 0 => say((group, true)),
            1 | 3 => say((group, false)),
            // Without some sources that it had: still a member.
            _ => {}
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GROUP: &str = "239.1.2.3";
    const GROUP6: &str = "ff05::77";

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// As a kernel sends it: with the router alert option (RFC 2113).
    fn igmp_packet(message: &[u8]) -> Vec<u8> {
        let mut packet =
            vec![0x46, 0xc0, 0, (24 + message.len()) as u8, 0, 0, 0x40, 0, 1, 2, 0, 0, 10, 99, 0, 1];
        packet.extend([224, 0, 0, 22, 0x94, 4, 0, 0]);
        let mut message = message.to_vec();
        let sum = !checksum::sum(&message);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        [packet, message].concat()
    }

    fn mld_packet(message: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x60, 0, 0, 0];
        packet.extend((8 + message.len() as u16).to_be_bytes());
        packet.extend([HOP_BY_HOP, 1]);
        packet.extend(Ipv6Addr::UNSPECIFIED.octets());
        packet.extend("ff02::16".parse::<Ipv6Addr>().unwrap().octets());
        packet.extend([ICMPV6, 0, 5, 2, 0, 0, 1, 0]);
        let mut message = message.to_vec();
        let pseudo =
            [&packet[8..40], &(message.len() as u32).to_be_bytes(), &[0, 0, 0, ICMPV6], &message].concat();
        let sum = !checksum::sum(&pseudo);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        [packet, message].concat()
    }

    fn v3(kind: u8, sources: u8) -> Vec<u8> {
        let mut message = vec![0x22, 0, 0, 0, 0, 0, 0, 1, kind, 0, 0, sources, 239, 1, 2, 3];
        message.extend((0..sources).flat_map(|n| [10, 0, 0, n]));
        igmp_packet(&message)
    }

    fn mld2(kind: u8) -> Vec<u8> {
        let mut message = vec![143, 0, 0, 0, 0, 0, 0, 1, kind, 0, 0, 0];
        message.extend(GROUP6.parse::<Ipv6Addr>().unwrap().octets());
        mld_packet(&message)
    }

    fn heard(packet: &[u8]) -> Vec<(IpAddr, bool)> {
        let mut said = Vec::new();
        reports(packet, |group, joins| said.push((group, joins)));
        said
    }

    fn members(of: &Membership, group: &str) -> Vec<u32> {
        of.groups.get(&ip(group)).map_or(Vec::new(), |it| it.members.iter().copied().collect())
    }

    #[test]
    fn reports_of_every_version_say_who_joins_and_who_leaves() {
        let old = |kind: u8| igmp_packet(&[kind, 0, 0, 0, 239, 1, 2, 3]);
        for (packet, joins) in [
            (old(0x12), true),
            (old(0x16), true),
            (old(0x17), false),
            (v3(4, 0), true),
            (v3(2, 0), true),
            (v3(3, 0), false),
            (v3(3, 2), true),
            (v3(5, 1), true),
        ] {
            assert_eq!(heard(&packet), [(ip(GROUP), joins)], "{packet:?}");
        }
        assert_eq!((heard(&v3(6, 1)), heard(&old(0x11))), (vec![], vec![]), "blocked sources, and a query");

        let one = |kind: u8| {
            let group = GROUP6.parse::<Ipv6Addr>().unwrap().octets();
            mld_packet(&[&[kind, 0, 0, 0, 0, 0, 0, 0], &group[..]].concat())
        };
        for (packet, joins) in [(one(131), true), (one(132), false), (mld2(4), true), (mld2(3), false)] {
            assert_eq!(heard(&packet), [(ip(GROUP6), joins)], "{packet:?}");
        }
    }

    #[test]
    fn a_report_with_many_records_says_all_of_them() {
        let mut message = vec![0x22, 0, 0, 0, 0, 0, 0, 3];
        message.extend([4, 0, 0, 0, 239, 0, 0, 1]);
        // With a source and a word of something that nobody defined.
        message.extend([3, 1, 0, 1, 239, 0, 0, 2, 10, 0, 0, 1, 7, 7, 7, 7]);
        message.extend([3, 0, 0, 0, 239, 0, 0, 3]);
        let all = [(ip("239.0.0.1"), true), (ip("239.0.0.2"), true), (ip("239.0.0.3"), false)];
        assert_eq!(heard(&igmp_packet(&message)), all);
        // More are announced than there are.
        message[7] = 9;
        assert_eq!(heard(&igmp_packet(&message)), all);
    }

    #[test]
    fn forwarded_and_damaged_reports_say_nothing() {
        for good in [v3(4, 0), mld2(4)] {
            let hops = if good[0] >> 4 == 4 { 8 } else { 7 };
            let last = good.len() - 1;
            for at in [hops, last] {
                let mut bad = good.clone();
                bad[at] ^= 3;
                assert_eq!(heard(&bad), [], "byte {at}");
            }
            for len in 0..good.len() {
                assert_eq!(heard(&good[..len]), [], "{len} bytes");
            }
        }
    }

    #[test]
    fn a_group_has_the_hosts_that_have_joined_and_not_left() {
        let mut membership = Membership::new(Groups::Learnt, 4);
        let first = membership.hear(1, &v3(4, 0)).unwrap();
        assert_eq!(first.len(), 1);
        assert_eq!(membership.hear(1, &v3(4, 0)).unwrap(), [], "it said so already");
        membership.hear(3, &v3(4, 0));
        assert_eq!(members(&membership, GROUP), [1, 3]);
        assert_eq!(membership.hear(2, &v3(3, 0)).unwrap(), [], "it was none");
        let changed = membership.hear(1, &v3(3, 0)).unwrap();
        assert_eq!((changed[0].1.number, members(&membership, GROUP)), (first[0].1.number, vec![3]));
        let last = membership.hear(3, &v3(3, 0)).unwrap();
        assert!(last[0].1.members.is_empty() && membership.all().count() == 0);
    }

    #[test]
    fn groups_of_a_link_and_those_named_by_hand_are_not_learnt() {
        let mut membership = Membership::new(Groups::Learnt, 4);
        let all_routers = igmp_packet(&[0x16, 0, 0, 0, 224, 0, 0, 251]);
        assert_eq!(membership.hear(0, &all_routers).unwrap(), []);
        assert!(
            !is_learnable(ip("ff02::1:ff00:1")) && is_learnable(ip(GROUP6)) && !is_learnable(ip("10.0.0.1"))
        );
        let number = membership.hear(0, &v3(4, 0)).unwrap()[0].1.number;
        assert_eq!(membership.name(ip(GROUP)), Some(number));
        assert_eq!((membership.hear(1, &v3(4, 0)), membership.all().count()), (Some(vec![]), 0));
    }

    #[test]
    fn too_many_groups_are_counted_and_the_others_work_on() {
        let mut membership = Membership::new(Groups::Learnt, 4);
        let report = |n: u16| {
            let [high, low] = n.to_be_bytes();
            igmp_packet(&[0x16, 0, 0, 0, 239, 7, high, low])
        };
        (0..MAX_GROUPS as u16 + 5).for_each(|n| _ = membership.hear(0, &report(n)));
        assert_eq!((membership.all().count(), membership.refused()), (MAX_GROUPS, 5));
        assert_eq!(membership.hear(1, &report(0)).unwrap().len(), 1);
    }

    #[test]
    fn a_flooded_group_has_everybody_and_needs_no_report() {
        let mut membership = Membership::new(Groups::Flooded, 3);
        assert_eq!(membership.hear(0, &v3(4, 0)), None);
        assert_eq!(membership.flood(ip(GROUP)).unwrap().members, BTreeSet::from([0, 1, 2]));
        assert_eq!((membership.flood(ip(GROUP)), membership.flood(ip("224.0.0.1"))), (None, None));
        assert_eq!(Membership::new(Groups::Named, 3).flood(ip(GROUP)), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..120), v6 in any::<bool>()) {
            let mut bytes = bytes;
            if let Some(first) = bytes.first_mut() {
                *first = if v6 { 0x60 } else { 0x45 };
            }
            for at in if v6 { [6, 7, 40] } else { [8, 9, 9] } {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = match (v6, at) { (true, 6) => 0, (true, 40) => 58, (false, 9) => 2, _ => 1 };
                }
            }
            heard(&bytes);
            // Past the checksum too.
            if v6 { heard(&mld_packet(&[&[143, 0, 0, 0, 0, 0], &bytes[..]].concat())); }
            else { heard(&igmp_packet(&[&[0x22, 0, 0, 0, 0, 0], &bytes[..]].concat())); }
        }
    }
}
