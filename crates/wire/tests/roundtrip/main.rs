//! Emitting and then parsing gives back what was meant; whatever is changed on the way is noticed.

mod any_control;
mod any_datagram;
mod refused;
mod scheduled;

use std::hash::Hasher as _;

use headwater_units::{
    BitRate, BlockIndex, Bytes, Duration, Esi, FlowId, FlowKey, NodeId, ObjectId, PacketNumber, Rank,
    SymbolId, Symbols, TaskId, Theta,
};
use headwater_wire::*;
use proptest::collection::{btree_map, btree_set, vec};
use proptest::prelude::*;
use siphasher::sip::SipHasher24;

use any_datagram::datagram;

fn key() -> HeaderKey {
    HeaderKey::new(&FlowKey([7; 32]))
}

proptest! {
    #[test]
    fn emit_then_parse_is_identity(datagram in datagram(), payload in vec(any::<u8>(), 8..1424)) {
        let payload = &payload[..payload.len() & !7];
        let mut bytes = vec![0xaa; datagram.len(payload.len() as u16)];
        let room = emit(&datagram, payload.len() as u16, &key(), &mut bytes);
        let carries = !room.is_empty();
        if carries {
            room.copy_from_slice(payload);
        }
        prop_assert_eq!(peek_flow(&bytes), Some(datagram.flow));
        let parsed = parse(&bytes, &key()).unwrap();
        prop_assert_eq!(&parsed.datagram, &datagram);
        prop_assert_eq!(parsed.payload, if carries { payload } else { &[] });
    }

    #[test]
    fn a_changed_header_is_refused(datagram in datagram(), at in any::<prop::sample::Index>(), flip in 1u8..) {
        let mut bytes = vec![0; datagram.len(64)];
        emit(&datagram, 64, &key(), &mut bytes);
        let covered = match datagram.body {
            Body::Symbol(_) => 32,
            // All but what switches lower.
            Body::ScheduledSymbol(_) | Body::RateProbe(_) | Body::ScheduledFin(_) => 39,
            _ => bytes.len(),
        };
        let at = at.index(covered);
        bytes[at] ^= flip;
        // A switch may change one bit of a symbol, that it was trimmed; a node of a tree counts an interest's hops.
        let mutable = match datagram.body {
            Body::Symbol(_) | Body::ScheduledSymbol(_) => at == 1 && flip == 1,
            Body::Interest(_) => at == 3,
            _ => false,
        };
        prop_assert!(mutable || parse(&bytes, &key()).is_err());
        bytes[at] ^= flip;
        prop_assert!(parse(&bytes, &HeaderKey::new(&FlowKey([8; 32]))).is_err());
    }

    #[test]
    fn any_bytes_parse_or_are_refused(bytes in vec(any::<u8>(), 0..2000)) {
        let _ = parse(&bytes, &key());
        let _ = Control::parse(&bytes);
        let _ = peek_flow(&bytes);
    }

    #[test]
    fn a_cut_datagram_is_refused(datagram in datagram(), cut in any::<prop::sample::Index>()) {
        let mut bytes = vec![0; datagram.len(64)];
        emit(&datagram, 64, &key(), &mut bytes);
        let cut = cut.index(bytes.len());
        // A symbol's payload may be shorter than T: the receiver of the payload compares lengths.
        if let Ok(parsed) = parse(&bytes[..cut], &key()) {
            let payload_alone_is_cut = match parsed.datagram.body {
                Body::Symbol(_) => cut > 32,
                Body::ScheduledSymbol(_) => cut > 42,
                _ => false,
            };
            prop_assert!(payload_alone_is_cut);
        }
    }

    #[test]
    fn packet_numbers_are_restored_from_32_bits(largest in 0u64..1 << 62, ahead in -1_000_000i64..1_000_000) {
        let number = largest.saturating_add_signed(ahead);
        let header = SymbolHeader::new(PacketNumber(number & 0xffff_ffff), SymbolId::default());
        prop_assert_eq!(header.expand(Some(PacketNumber(largest))), PacketNumber(number));
    }
}

#[test]
fn a_symbol_costs_48_bytes_beside_its_payload() {
    assert_eq!(SYMBOL_OVERHEAD, 48);
}

#[test]
fn a_switch_trims_in_place_and_the_header_still_verifies() {
    let symbol = SymbolId { block: BlockIndex(2), esi: Esi(5) };
    let header = SymbolHeader { assignment: 1, ..SymbolHeader::new(PacketNumber(9), symbol) };
    let datagram = Datagram { class: Class::Bulk, key_epoch: 0, flow: FlowId(1), body: Body::Symbol(header) };
    let mut bytes = vec![0; datagram.len(1424)];
    emit(&datagram, 1424, &key(), &mut bytes);
    let left = mark_trimmed(&mut bytes).unwrap();
    assert!(left <= 56, "what every trimming switch keeps");
    // Whether the switch keeps more than the header or not.
    for keep in [left, 56, 80] {
        let parsed = parse(&bytes[..keep], &key()).unwrap();
        assert_eq!(parsed.datagram.body, Body::Symbol(SymbolHeader { trimmed: true, ..header }));
        assert!(parsed.payload.is_empty());
    }
    assert_eq!(mark_trimmed(&mut bytes), None, "a trimmed symbol cannot be trimmed again");
}

#[test]
fn what_any_switch_leaves_of_a_symbol_is_read_as_its_header() {
    let symbol = SymbolId { block: BlockIndex(2), esi: Esi(5) };
    let header = SymbolHeader { assignment: 1, syn: true, ..SymbolHeader::new(PacketNumber(9), symbol) };
    let datagram =
        Datagram { class: Class::First, key_epoch: 0, flow: FlowId(1), body: Body::Symbol(header) };
    let mut bytes = vec![0; datagram.len(1424)];
    emit(&datagram, 1424, &key(), &mut bytes);
    let left = SymbolHeader { trimmed: true, ..header };
    for keep in [32, 56, 60, 100, bytes.len()] {
        // To the ordinary parser it is a short symbol, or none.
        assert!(parse(&bytes[..keep], &key()).map_or(true, |it| it.datagram.body == Body::Symbol(header)));
        let read = parse_trimmed(&bytes[..keep], &key()).unwrap();
        assert_eq!(read, Datagram { body: Body::Symbol(left), ..datagram.clone() });
    }
    assert_eq!(parse_trimmed(&bytes[..31], &key()), Err(WireError::Short { have: 31, need: 32 }));
    let other = HeaderKey::new(&FlowKey([9; 32]));
    assert_eq!(parse_trimmed(&bytes, &other), Err(WireError::Tag));
    bytes[12] ^= 1;
    assert_eq!(parse_trimmed(&bytes, &key()), Err(WireError::Tag));

    let ack = Datagram { body: Body::FinAck, ..datagram };
    let mut bytes = vec![0; ack.len(0)];
    emit(&ack, 0, &key(), &mut bytes);
    bytes.resize(60, 0);
    assert_eq!(parse_trimmed(&bytes, &key()), Err(WireError::Kind(6)), "what has no payload cannot lose it");
}

#[test]
fn runs_of_an_ack_go_downwards() {
    let ack = Ack {
        largest: PacketNumber(100),
        delay: Duration::ZERO,
        first_run: 3,
        ranges: [AckRange { gap: 2, run: 1 }, AckRange { gap: 1, run: 4 }].into_iter().collect(),
        ect0: 0,
        ce: 0,
        not_ect: 0,
        first_undecoded: BlockIndex(0),
        owed: Default::default(),
    };
    assert_eq!(ack.runs().collect::<Vec<_>>(), [(98, 100), (95, 95), (90, 93)]);
}

/// Writes the tag that the holder of the key would write.
fn retag(bytes: &mut [u8]) {
    let mut hasher = SipHasher24::new_with_key(&[7; 16]);
    hasher.write(&bytes[..PRELUDE]);
    hasher.write(&bytes[HEADER..]);
    bytes[PRELUDE..HEADER].copy_from_slice(&hasher.finish().to_be_bytes());
}

#[test]
fn what_a_simulation_moves_for_every_packet_is_small() {
    // The largest is a pull, with two wants.
    assert!(size_of::<Body>() <= 32, "{}", size_of::<Body>());
    assert!(size_of::<Datagram>() <= 48, "{}", size_of::<Datagram>());
}

/// "Where you reach me" becomes an address at its hearer, in whatever carries one; what was stated stays.
#[test]
fn an_unspecified_address_becomes_that_of_the_link() {
    let at = |text: &str| text.parse::<std::net::SocketAddr>().unwrap();
    let (any, stated) =
        (vec![at("[::]:7000"), at("0.0.0.0:7001"), at("10.9.9.9:7002")], at("[::ffff:10.0.0.1]:50000"));
    let here = vec![at("10.0.0.1:7000"), at("10.0.0.1:7001"), at("10.9.9.9:7002")];
    let grant = |at: &[std::net::SocketAddr]| FlowGrant {
        flow: FlowId(1),
        node: NodeId([1; 32]),
        at: at.to_vec(),
        key: FlowKey([2; 32]),
        index: 0,
        of: 1,
        group: None,
        relays: false,
    };
    let flows = |at: &[std::net::SocketAddr]| {
        Control::Receiver(ToReceiver::Flows { task: TaskId(1), version: 1, flows: vec![grant(at)] })
    };
    let secret = || FlowSecret { flow: FlowId(3), key: FlowKey([4; 32]) };
    let question = |towards| {
        let question =
            GroupQuestion { at: at("239.1.1.1:9"), towards, asked: secret(), members: vec![], bytes: 1 };
        Control::Node(ToNode::ProbeGroup(Box::new(question)))
    };
    let fetch = |source| {
        let group = GroupInvitation { at: at("239.1.1.1:9"), source, asked: secret(), own: secret() };
        let (request, name, object) = (1, "model".to_owned(), ObjectId([5; 32]));
        Control::Node(ToNode::Fetch(Box::new(Invitation {
            request,
            name,
            object,
            class: Class::Bulk,
            group: Some(group),
        })))
    };
    for (mut said, heard) in [
        (flows(&any), flows(&here)),
        (question(any[0]), question(here[0])),
        (fetch(any[1]), fetch(here[1])),
        (fetch(any[2]), fetch(any[2])),
    ] {
        said.resolve(stated);
        assert_eq!(said, heard);
    }
    // A link-local address is one of its interface.
    assert_eq!(resolve_address(any[0], at("[fe80::1%3]:50000")), at("[fe80::1%3]:7000"));
}

#[test]
fn the_longest_lists_of_casts_fit_one_message_each() {
    let to: Vec<NodeId> = (0..2_500_u32).map(|n| NodeId([n.to_be_bytes()[3]; 32])).collect();
    let name = "n".repeat(MAX_NAME);
    let (class, wish) = (Class::Bulk, CastWish::Best);
    let cast = Cast { cast: u64::MAX, name, to: to.clone(), first: 0, of: 0, class, wish };
    let parts = cast.clone().into_parts();
    assert_eq!(
        parts.iter().map(|part| (part.first, part.of)).collect::<Vec<_>>(),
        [(0, 2500), (1024, 2500), (2048, 2500)]
    );
    assert_eq!(parts.iter().flat_map(|part| part.to.clone()).collect::<Vec<_>>(), to);
    for part in parts {
        let said = Control::Controller(ToController::Cast(part));
        assert_eq!(Control::parse(&said.to_bytes()), Ok(said));
    }
    assert_eq!(Cast { to: Vec::new(), ..cast }.into_parts().len(), 1);
    let (node, most) = (NodeId([9; 32]), Bytes::new(u64::MAX));
    let member = MemberNews {
        node,
        standing: MemberStanding::Failed("r".repeat(MAX_REASON)),
        grouped: true,
        bytes: most,
        by_group: most,
        by_unicast: most,
        relayed: most,
        passed_on: most,
        after: Duration::from_nanos(u64::MAX),
    };
    let (after, cut) = (Duration::from_nanos(u64::MAX), u16::MAX);
    let repair = TreeRepair {
        after,
        silent: after,
        decided: after,
        told: Some(after),
        cut,
        rebuilt: cut,
        shared: cut,
        signalled: cut,
        unanswered: cut,
    };
    let news = CastNews {
        cast: u64::MAX,
        object: ObjectId([9; 32]),
        bytes: most,
        files: most,
        source: node,
        route: CastRoute::Open,
        to_group: most,
        given: vec![(node, most); MAX_NEWS],
        between_racks: Some(most),
        members: vec![member; MAX_NEWS],
        of: u32::MAX,
        done: u32::MAX,
        failed: u32::MAX,
        behind: most,
        repairs: vec![repair; MAX_NEWS],
        over: true,
    };
    let said = Control::Node(ToNode::Casting(Box::new(news)));
    assert_eq!(Control::parse(&said.to_bytes()), Ok(said));
}
