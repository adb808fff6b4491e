//! Emitting and then parsing gives back what was meant; whatever is changed on the way is noticed.

use std::hash::Hasher as _;
use std::num::NonZeroU16;

use headwater_units::{
    BitRate, BlockIndex, Bytes, Duration, Esi, FlowId, FlowKey, NodeId, ObjectId, PacketNumber, SymbolId,
    Symbols, TaskId, Theta,
};
use headwater_wire::*;
use proptest::collection::{btree_map, btree_set, vec};
use proptest::prelude::*;
use siphasher::sip::SipHasher24;

fn key() -> HeaderKey {
    HeaderKey::new(&FlowKey([7; 32]))
}

fn symbol() -> impl Strategy<Value = SymbolHeader> {
    (any::<u32>(), any::<u32>(), 0u32..1 << 24, 1u8.., any::<bool>(), any::<u8>(), any::<bool>()).prop_map(
        |(number, block, esi, ack_interval, ack_now, assignment, trimmed)| SymbolHeader {
            number: PacketNumber(number.into()),
            symbol: SymbolId { block: BlockIndex(block), esi: Esi(esi) },
            ack_interval,
            ack_now,
            assignment,
            starved: !ack_now,
            syn: ack_now != trimmed,
            trimmed,
        },
    )
}

fn ack() -> impl Strategy<Value = Ack> {
    let ranges = vec((1u16..2000, 1u16..2000), 0..=MAX_ACK_RANGES);
    let owed = vec((any::<u32>(), any::<u32>()), 0..=MAX_OWED);
    let counts = (any::<u32>(), any::<u32>(), any::<u32>(), any::<u32>(), any::<u32>());
    ((1u64 << 20)..1 << 60, 1u16..2000, ranges, owed, counts).prop_map(
        |(largest, first_run, ranges, owed, c)| Ack {
            largest: PacketNumber(largest),
            delay: Duration::from_micros(c.0.into()),
            first_run,
            ranges: ranges.into_iter().map(|(gap, run)| AckRange { gap, run }).collect(),
            ect0: c.1,
            ce: c.2,
            not_ect: c.3,
            first_undecoded: BlockIndex(c.4),
            owed: owed
                .into_iter()
                .map(|(b, s)| Owed { block: BlockIndex(b), symbols: Symbols::new(s.into()) })
                .collect(),
        },
    )
}

fn assign() -> impl Strategy<Value = Assign> {
    let work = prop_oneof![
        (0u32..1 << 31, 1u16.., any::<u8>()).prop_map(|(b, count, attempt)| Work::Blocks {
            first: BlockIndex(b),
            count,
            attempt
        }),
        (any::<u32>(), 0u32..(1 << 24) - 65536, 1u16.., any::<u8>()).prop_map(|(b, esi, count, attempt)| {
            Work::Symbols { block: BlockIndex(b), first: Esi(esi), count, attempt }
        }),
    ];
    let assignment = prop_oneof![
        (0u8..4, 4u8..).prop_map(|(index, of)| Assignment::Residue { index, of }),
        (0u8..4, 4u8..).prop_map(|(index, of)| Assignment::Equal { index, of }),
        vec(work, 0..=MAX_WORK).prop_map(|w| Assignment::Listed(w.into_iter().collect())),
    ];
    (any::<u32>(), any::<Option<u64>>(), any::<u32>(), any::<u32>(), assignment, any::<bool>()).prop_map(
        |(version, nonce, receive_window, first, assignment, padded)| Assign {
            version,
            nonce,
            receive_window,
            first_undecoded: BlockIndex(first),
            assignment,
            padded,
        },
    )
}

fn control() -> impl Strategy<Value = Control> {
    let grant =
        (any::<u64>(), any::<[u8; 32]>(), 0u8..3, any::<u16>()).prop_map(|(flow, bytes, index, port)| {
            FlowGrant {
                flow: FlowId(flow),
                node: NodeId(bytes),
                at: vec![([10, 0, 0, index], port).into()],
                key: FlowKey(bytes),
                index,
                of: 3,
                group: (port % 2 == 0).then_some(FlowId(!flow)),
                relays: port % 3 == 0,
                passed_on: port % 5 == 0,
            }
        });
    prop_oneof![
        (any::<u64>(), "[a-z0-9/.]{0,64}", any::<[u8; 32]>(), any::<u16>(), any::<Option<u8>>()).prop_map(
            |(request, name, node, room, max_sources)| Control::Controller(ToController::Request(Request {
                request,
                name,
                receiver: NodeId(node),
                room,
                class: Class::Gentle,
                spread: SpreadRule::Residue,
                max_sources,
                delivery: (room % 2 == 0).then_some(Delivery::Pull { initial_window: room }),
                trims: room % 3 == 0,
                passes_on: room % 5 == 0,
            }))
        ),
        (any::<u64>(), any::<[u8; 32]>(), vec(grant, 0..5)).prop_map(|(n, object, flows)| {
            Control::Receiver(ToReceiver::Accepted {
                request: n,
                task: TaskId(!n),
                object: ObjectId(object),
                bytes: Bytes::new(n),
                symbol_size: 1424,
                feedback_every: Duration::from_millis(10),
                version: n as u32,
                flows,
                delivery: if n % 2 == 0 { Delivery::Push } else { Delivery::Pull { initial_window: 12 } },
            })
        }),
        (any::<u64>(), any::<[u8; 32]>(), role(), any::<u16>())
            .prop_map(|(n, bytes, role, window)| {
                Control::Source(ToSource::Push(Push {
                    task: TaskId(n),
                    flow: FlowId(!n),
                    object: ObjectId(bytes),
                    bytes: Bytes::new(n),
                    symbol_size: 1424,
                    key: FlowKey(bytes),
                    theta: Theta::ONE,
                    class: Class::Bulk,
                    receiver: NodeId(bytes),
                    delivery: Delivery::Pull { initial_window: window },
                    index: bytes[0],
                    of: u8::MAX,
                    at: vec![([239, 1, 2, bytes[1]], window).into()],
                    start: (bytes[1] & 1 == 1)
                        .then_some(Start { rate: BitRate::new(n), rtt: Duration::from_nanos(n) }),
                    role,
                }))
            })
            .prop_filter("an index below the number", |push| match push {
                Control::Source(ToSource::Push(push)) => push.index < push.of,
                _ => true,
            }),
        (any::<u64>(), 0.5f64..100.0)
            .prop_map(|(f, t)| Control::Source(ToSource::SetTheta { flow: FlowId(f), theta: Theta::new(t) })),
        (any::<u64>(), any::<u64>()).prop_map(|(t, r)| Control::Controller(ToController::Feedback {
            task: TaskId(t),
            first_undecoded: BlockIndex(3),
            needed: Symbols::new(r),
            flows_version: 1,
            held_up: t % 2 == 0,
            flows: vec![FlowView {
                flow: FlowId(r),
                bytes: Bytes::new(t),
                rate: BitRate::new(t),
                silent: Duration::ZERO
            }],
        })),
        cast(),
        (any::<[u8; 32]>(), btree_map("[a-z]{1,128}", "[a-z0-9.]{0,128}", 0..=MAX_LABELS), any::<u64>())
            .prop_map(|(bytes, labels, n)| Control::Controller(ToController::Hello(NodeInfo {
                node: NodeId(bytes),
                name: "worker-7".to_owned(),
                listen: Some(([10, 0, 0, bytes[0]], 7001).into()),
                data: vec![([10, 0, 0, bytes[0]], n as u16).into()],
                uplink: Some(BitRate::new(n)),
                downlink: None,
                rack: (n % 2 == 0).then(|| ("r1".to_owned(), Some(BitRate::new(n)))),
                room: n as u16,
                incarnation: n,
                rtt: Some(Duration::from_nanos(n)),
                seen: None,
                labels,
            }))),
    ]
}

/// What is said about casts.
fn cast() -> impl Strategy<Value = Control> {
    let secret = |n: u64, bytes: [u8; 32]| FlowSecret { flow: FlowId(n), key: FlowKey(bytes) };
    let bytes = any::<[u8; 32]>;
    let standing = prop_oneof![
        Just(MemberStanding::Away),
        Just(MemberStanding::Receiving),
        Just(MemberStanding::Kept),
        "[a-z ]{0,512}".prop_map(MemberStanding::Failed),
    ];
    let member = (bytes(), standing, any::<u64>()).prop_map(|(node, standing, n)| MemberNews {
        node: NodeId(node),
        standing,
        grouped: n % 2 == 0,
        bytes: Bytes::new(n),
        by_group: Bytes::new(n / 2),
        alone: Bytes::new(n / 3),
        relayed: Bytes::new(n / 4),
        passed_on: Bytes::new(n / 5),
        after: Duration::from_nanos(n),
    });
    let way = prop_oneof![
        Just(CastWay::Open),
        any::<u16>().prop_map(|of| CastWay::Unicast(WhyUnicast::Unheard { of })),
        any::<u16>().prop_map(|members| CastWay::Overlay {
            members,
            why: WhyUnicast::NoGroups,
            racks: members / 3
        }),
        any::<u16>().prop_map(|port| CastWay::Multicast {
            at: ([239, 1, 2, 3], port).into(),
            members: port / 2,
            of: port
        }),
        any::<u16>().prop_map(|of| CastWay::Trees { trees: of / 3, members: of / 2, of, hops: of / 5 }),
    ];
    let repair = any::<u64>().prop_map(|n| TreeRepair {
        after: Duration::from_nanos(n),
        silent: Duration::from_nanos(n / 2),
        decided: Duration::from_nanos(n / 3),
        told: (n % 2 == 0).then_some(Duration::from_nanos(n / 4)),
        cut: n as u16,
        rebuilt: 1,
        shared: 0,
        signalled: (n / 5) as u16,
        unanswered: (n / 7) as u16,
    });
    prop_oneof![
        (any::<u64>(), "[a-z0-9/.]{0,64}", vec(bytes().prop_map(NodeId), 0..=MAX_FLOWS)).prop_map(
            |(cast, name, to)| Control::Controller(ToController::Cast(Cast {
                cast,
                name,
                to,
                class: Class::Bulk,
                wish: if cast % 2 == 0 { CastWish::Overlay } else { CastWish::Trees }
            }))
        ),
        (any::<u64>(), any::<bool>()).prop_map(|(cast, known)| Control::Node(ToNode::CastRefused {
            cast,
            reason: if known { Refusal::OffNetwork } else { Refusal::NoNetwork },
        })),
        (any::<u64>(), bytes(), 0..3u8).prop_map(|(request, bytes, how)| {
            let how = [Spoiled::Changed, Spoiled::Unreadable, Spoiled::Wrong][usize::from(how)];
            match request % 2 {
                0 => Control::Controller(ToController::Spoiled { object: ObjectId(bytes), how }),
                _ => Control::Receiver(ToReceiver::Refused {
                    request,
                    reason: Refusal::Spoiled { node: NodeId(bytes), how },
                }),
            }
        }),
        (any::<u64>(), bytes(), any::<u16>(), any::<bool>()).prop_map(move |(n, bytes, port, grouped)| {
            let group = GroupInvitation {
                at: ([239, 1, 2, 3], port).into(),
                source: ([10, 0, 0, 1], port).into(),
                asked: secret(n, bytes),
                own: secret(!n, bytes),
            };
            Control::Node(ToNode::Fetch(Box::new(Invitation {
                request: n,
                name: "model".to_owned(),
                object: ObjectId(bytes),
                class: Class::Gentle,
                group: grouped.then_some(group),
            })))
        }),
        (any::<u64>(), bytes(), any::<u16>(), 0..=MAX_FLOWS).prop_map(move |(n, bytes, port, members)| {
            Control::Node(ToNode::ProbeGroup(Box::new(GroupQuestion {
                at: ([239, 1, 2, 3], port).into(),
                towards: ([10, 0, 0, 1], port).into(),
                asked: secret(n, bytes),
                members: (0..members as u64).map(|n| secret(n, bytes)).collect(),
                bytes: port,
            })))
        }),
        (any::<u64>(), vec(any::<u64>().prop_map(FlowId), 0..=MAX_FLOWS)).prop_map(|(asked, heard)| {
            Control::Controller(ToController::GroupProbed { asked: FlowId(asked), heard })
        }),
        (any::<u64>(), "[a-z ]{0,512}").prop_map(|(request, reason)| Control::Controller(
            ToController::Fetched(Fetched {
                request,
                end: FetchEnd::Failed(reason),
                by_group: Bytes::new(request),
                alone: Bytes::new(!request),
                relayed: Bytes::new(request / 2),
                from: vec![(NodeId([request as u8; 32]), Bytes::new(request)); usize::from(request as u8)],
                files: Bytes::new(request / 3),
            })
        )),
        (any::<u64>(), bytes(), vec(1usize..4, 0..20), any::<u16>()).prop_map(
            move |(n, bytes, branches, port)| {
                let address = |n: usize| ([10, 0, 0, n as u8], port).into();
                Control::Node(ToNode::PlantTree(Box::new(TreeOrder {
                    tree: secret(n, bytes),
                    version: port.into(),
                    symbol_size: port,
                    parent: (n % 2 == 0).then(|| address(9)),
                    branches: branches.into_iter().map(|len| (0..len).map(address).collect()).collect(),
                    receives: n % 3 == 0,
                    store: Bytes::new(n),
                    beat: Duration::from_nanos(n),
                    signals: secret(!n, bytes),
                })))
            }
        ),
        signal().prop_map(|signal| Control::Node(ToNode::Signal(Box::new(signal)))),
        ("[a-z0-9/.]{1,64}", bytes(), 1u64.., any::<u64>()).prop_map(|(name, bytes, generation, number)| {
            let object = ObjectId(bytes);
            let naming = Naming { name: name.clone(), object, generation, owner: NodeId(bytes) };
            match number % 4 {
                0 => Control::Controller(ToController::Named(naming)),
                1 => Control::Controller(ToController::Claim(Claim {
                    number,
                    name,
                    object,
                    at_least: generation,
                    rule: ClaimRule::Replace,
                })),
                2 => Control::Controller(ToController::Unname { object, name }),
                _ => Control::Node(ToNode::NameStands(Box::new(NameStands {
                    claim: (number % 3 == 0).then_some(number),
                    naming,
                    owner_is: "host (10.0.0.1:7000)".to_owned(),
                    owner_is_here: number % 5 == 0,
                }))),
            }
        }),
        (any::<u64>(), any::<u32>(), btree_set(any::<u16>(), 0..100)).prop_map(|(flow, number, untold)| {
            Control::Controller(ToController::Signalled(Signalled {
                flow: FlowId(flow),
                number,
                open: untold.is_empty(),
                untold: untold.into_iter().collect(),
            }))
        }),
        (any::<u64>(), 1..=MAX_FLOWS, any::<u16>()).prop_map(|(n, count, port)| Control::Controller(
            ToController::Silent {
                tree: FlowId(n),
                neighbours: (0..count).map(|_| ([10, 0, 0, 1], port).into()).collect(),
                since: Duration::from_nanos(n),
            }
        )),
        (any::<u64>(), any::<u32>()).prop_map(|(tree, version)| Control::Controller(
            ToController::TreeReady { tree: FlowId(tree), version }
        )),
        any::<u64>().prop_map(|tree| Control::Node(ToNode::FellTree { tree: FlowId(tree) })),
        Just(Control::Controller(ToController::Leaving)),
        (any::<u64>(), bytes(), way, vec(member, 0..=MAX_NEWS), vec(repair, 0..3)).prop_map(
            |(n, bytes, way, members, repairs)| {
                Control::Node(ToNode::Casting(Box::new(CastNews {
                    cast: n,
                    object: ObjectId(bytes),
                    bytes: Bytes::new(n),
                    files: Bytes::new(n / 2),
                    source: NodeId(bytes),
                    way,
                    to_group: Bytes::new(n),
                    given: vec![(NodeId(bytes), Bytes::new(n)); n as usize % MAX_NEWS],
                    between_racks: (n % 3 == 0).then_some(Bytes::new(n)),
                    members,
                    of: 200,
                    repairs,
                    over: n % 2 == 0,
                })))
            }
        ),
    ]
}

fn signal() -> impl Strategy<Value = Signal> {
    let address = |n: u8, port| ([10, 0, 0, n], port).into();
    let way = (any::<u64>(), any::<u32>(), vec(1..4u8, 0..5), any::<u16>()).prop_map(
        move |(tree, version, branches, port)| TreeWay {
            tree: FlowId(tree),
            version,
            parent: (port % 2 == 0).then(|| address(9, port)),
            branches: branches.into_iter().map(|len| (0..len).map(|n| address(n, port)).collect()).collect(),
            receives: port % 3 == 0,
        },
    );
    let branch = (any::<u64>(), any::<[u8; 16]>(), any::<u16>(), vec(any::<u8>(), 0..1500)).prop_map(
        move |(flow, answers, n, datagram)| SignalBranch {
            to: if n % 2 == 0 { address(1, n) } else { ([0xfd00, 0, 0, 0, 0, 0, 0, 1], n).into() },
            flow: FlowId(flow),
            number: n.into(),
            answers,
            members: 1 + n % 50,
            levels: 1 + (n % 5) as u8,
            datagram,
        },
    );
    (any::<u64>(), any::<u32>(), vec(way, 0..4), vec(branch, 0..20))
        .prop_map(|(flow, number, ways, below)| Signal { flow: FlowId(flow), number, ways, below })
}

fn role() -> impl Strategy<Value = FlowRole> {
    prop_oneof![
        Just(FlowRole::Single),
        Just(FlowRole::Relay),
        any::<u64>().prop_map(|group| FlowRole::Member { group: FlowId(group) }),
        any::<(u64, Option<u64>)>()
            .prop_map(|(group, most)| FlowRole::Tree { group: FlowId(group), most: most.map(BitRate::new) }),
        vec(any::<u64>().prop_map(FlowId), 1..5).prop_map(|members| FlowRole::Group { members }),
    ]
}

fn want() -> impl Strategy<Value = Want> {
    let run = (0u32..1 << 24, 1u8.., 1u16..).prop_filter("24 bits", |&(start, stride, count)| {
        start + u32::from(stride) * u32::from(count - 1) < 1 << 24
    });
    (any::<u32>(), run).prop_map(|(block, (start, stride, count))| Want {
        block: BlockIndex(block),
        start,
        stride,
        count: NonZeroU16::new(count).unwrap(),
    })
}

fn pull() -> impl Strategy<Value = Pull> {
    let wants = vec(want(), 0..=2);
    (any::<u32>(), any::<bool>(), any::<bool>(), wants).prop_map(|(sequence, fin, alone, wants)| Pull {
        sequence,
        fin,
        alone,
        wants: [wants.first().copied(), wants.get(1).copied()],
    })
}

fn cumulative() -> impl Strategy<Value = Cumulative> {
    (any::<u64>(), any::<bool>()).prop_map(|(next, echo)| Cumulative { next: PacketNumber(next), echo })
}

fn ack_vector() -> impl Strategy<Value = AckVector> {
    let largest = prop_oneof![0u64..40, any::<u64>()];
    (largest, any::<u32>(), any::<u32>()).prop_map(|(largest, received, marked)| {
        let largest = PacketNumber(largest);
        let received = (received | 1 << 31) & AckVector::possible(largest);
        AckVector { largest, received, marked: marked & received }
    })
}

fn probe() -> impl Strategy<Value = Probe> {
    (any::<u32>(), Probe::SHORTEST..10_000, any::<u16>()).prop_map(|(number, bytes, fits)| Probe {
        number,
        bytes,
        fits: (fits > 0).then_some(fits),
    })
}

fn datagram() -> impl Strategy<Value = Datagram> {
    let body = prop_oneof![
        symbol().prop_map(Body::Symbol),
        ack().prop_map(|a| Body::Ack(Box::new(a))),
        assign().prop_map(|a| Body::Assign(Box::new(a))),
        (1u64..).prop_map(|nonce| Body::Challenge { nonce }),
        Just(Body::Fin(FinReason::Distrusted)),
        Just(Body::FinAck),
        control().prop_map(|c| Body::Control(Box::new(c))),
        cumulative().prop_map(Body::Cumulative),
        ack_vector().prop_map(Body::AckVector),
        probe().prop_map(Body::Probe),
        (any::<u32>(), any::<u16>()).prop_map(|(number, bytes)| Body::ProbeAck(ProbeAck { number, bytes })),
        pull().prop_map(Body::Pull),
        Just(Body::Detached),
        (any::<u32>(), 0u32..1 << 24, any::<u8>()).prop_map(|(block, esi, hops)| {
            let name = SymbolId { block: BlockIndex(block), esi: Esi(esi) };
            Body::Interest(Interest { name, hops })
        }),
        (any::<u32>(), any::<Option<u32>>()).prop_map(|(block, next)| {
            Body::Announcement(Announcement { block: BlockIndex(block), next: next.map(BlockIndex) })
        }),
        (any::<u64>(), any::<u32>(), any::<bool>()).prop_map(|(number, sequence, trimmed)| {
            Body::Receipt(Receipt { number: PacketNumber(number), sequence, trimmed })
        }),
    ];
    let class = prop::sample::select(&Class::ALL[..]);
    (class, any::<u8>(), any::<u64>(), body).prop_map(|(class, key_epoch, flow, body)| Datagram {
        class,
        key_epoch,
        flow: FlowId(flow),
        body,
    })
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
        let covered = if matches!(datagram.body, Body::Symbol(_)) { 32 } else { bytes.len() };
        let at = at.index(covered);
        bytes[at] ^= flip;
        // A switch may change one bit of a symbol, that it was trimmed; a node of a tree counts an interest's hops.
        let mutable = match datagram.body {
            Body::Symbol(_) => at == 1 && flip == 1,
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
            prop_assert!(matches!(parsed.datagram.body, Body::Symbol(_)) && cut > 32);
        }
    }

    #[test]
    fn packet_numbers_are_restored_from_32_bits(largest in 0u64..1 << 62, ahead in -1_000_000i64..1_000_000) {
        let number = largest.saturating_add_signed(ahead);
        let header = SymbolHeader {
            number: PacketNumber(number & 0xffff_ffff),
            symbol: SymbolId::default(),
            ack_interval: 1,
            ack_now: false,
            assignment: 0,
            starved: false,
            syn: false,
            trimmed: false,
        };
        prop_assert_eq!(header.expand(Some(PacketNumber(largest))), PacketNumber(number));
    }
}

#[test]
fn a_symbol_costs_48_bytes_beside_its_payload() {
    assert_eq!(SYMBOL_OVERHEAD, 48);
}

#[test]
fn a_switch_trims_in_place_and_the_header_still_verifies() {
    let header = SymbolHeader {
        number: PacketNumber(9),
        symbol: SymbolId { block: BlockIndex(2), esi: Esi(5) },
        ack_interval: 1,
        ack_now: false,
        assignment: 1,
        starved: false,
        syn: false,
        trimmed: false,
    };
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
    let header = SymbolHeader {
        number: PacketNumber(9),
        symbol: SymbolId { block: BlockIndex(2), esi: Esi(5) },
        ack_interval: 1,
        ack_now: false,
        assignment: 1,
        starved: false,
        syn: true,
        trimmed: false,
    };
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

/// Emits `body` after `change` has had its way with it, under a tag that matches: what a peer with the key could say.
fn said(body: Body, change: impl FnOnce(&mut AckVector)) -> Result<(), WireError> {
    let Body::AckVector(mut vector) = body else { unreachable!("only vectors are changed here") };
    change(&mut vector);
    let datagram =
        Datagram { class: Class::Control, key_epoch: 0, flow: FlowId(1), body: Body::AckVector(vector) };
    let mut bytes = vec![0; datagram.len(0)];
    emit(&datagram, 0, &key(), &mut bytes);
    parse(&bytes, &key()).map(|_| ())
}

#[test]
fn an_ack_vector_that_contradicts_itself_is_refused() {
    let honest = || {
        Body::AckVector(AckVector { largest: PacketNumber(4), received: 0b1011 << 28, marked: 0b10 << 28 })
    };
    let refused = Err(WireError::Field { what: "ACK vector" });
    assert_eq!(said(honest(), |_| ()), Ok(()));
    assert_eq!(
        said(honest(), |v| v.received &= !(1 << 31)),
        refused,
        "the largest one is here by definition"
    );
    assert_eq!(said(honest(), |v| v.marked |= 1 << 30), refused, "a packet that did not come has no mark");
    assert_eq!(said(honest(), |v| v.received |= 1 << 27), Ok(()), "packet 0");
    assert_eq!(said(honest(), |v| v.received |= 1 << 26), refused, "there is no packet before packet 0");
    assert_eq!(said(honest(), |v| v.largest = PacketNumber(0)), refused);
}

#[test]
fn unknown_flags_of_a_cumulative_ack_are_refused() {
    let ack = Cumulative { next: PacketNumber(u64::MAX), echo: true };
    let datagram =
        Datagram { class: Class::Control, key_epoch: 0, flow: FlowId(1), body: Body::Cumulative(ack) };
    let mut bytes = vec![0; datagram.len(0)];
    emit(&datagram, 0, &key(), &mut bytes);
    assert_eq!(bytes.len(), 33);
    assert_eq!(bytes[32], 1);
    for flags in [0b10, 0b1000_0001, 0xff] {
        bytes[32] = flags;
        retag(&mut bytes);
        assert_eq!(parse(&bytes, &key()), Err(WireError::Field { what: "flags of a cumulative ACK" }));
    }
    bytes[32] = 0;
    retag(&mut bytes);
    let quiet = Body::Cumulative(Cumulative { echo: false, ..ack });
    assert_eq!(parse(&bytes, &key()).unwrap().datagram.body, quiet);
}

#[test]
fn a_probe_that_is_not_as_long_as_it_says_or_carries_anything_is_refused() {
    let probe = Probe { number: 7, bytes: 1200, fits: None };
    let datagram =
        Datagram { class: Class::Control, key_epoch: 0, flow: FlowId(1), body: Body::Probe(probe) };
    let mut bytes = vec![0xaa; datagram.len(0)];
    emit(&datagram, 0, &key(), &mut bytes);
    assert_eq!(bytes.len(), 1200);
    assert_eq!(parse(&bytes, &key()).unwrap().datagram, datagram);

    let mut cut = bytes[..1199].to_vec();
    retag(&mut cut);
    assert_eq!(parse(&cut, &key()), Err(WireError::Length { have: 1199, need: 1200 }));
    bytes[1199] = 1;
    retag(&mut bytes);
    assert_eq!(parse(&bytes, &key()), Err(WireError::Field { what: "padding of a probe" }));
}

#[test]
fn unknown_flags_of_pulls_and_receipts_are_refused() {
    let pull = Body::Pull(Pull { fin: true, ..Pull::any(u32::MAX) });
    let receipt = Body::Receipt(Receipt { number: PacketNumber(u64::MAX), sequence: 7, trimmed: true });
    for (body, len, what) in [(pull, 29, "flags of a pull"), (receipt, 37, "flags of a receipt")] {
        let datagram = Datagram { class: Class::Control, key_epoch: 0, flow: FlowId(1), body };
        let mut bytes = vec![0; datagram.len(0)];
        emit(&datagram, 0, &key(), &mut bytes);
        assert_eq!((bytes.len(), bytes[len - 1]), (len, 1));
        for flags in [0b1100, 0b1000_0001, 0xff] {
            bytes[len - 1] = flags;
            retag(&mut bytes);
            assert_eq!(parse(&bytes, &key()), Err(WireError::Field { what }));
        }
        bytes[len - 1] = 1;
        bytes.push(0);
        retag(&mut bytes);
        assert!(matches!(parse(&bytes, &key()), Err(WireError::Length { .. })));
    }
}

#[test]
fn wants_that_are_no_run_of_symbols_are_refused() {
    let want = Want { block: BlockIndex(7), start: 2, stride: 3, count: NonZeroU16::new(17).unwrap() };
    assert_eq!(want.last(), 50);
    let pull = Pull { alone: true, wants: [Some(want); 2], ..Pull::any(9) };
    let datagram = Datagram { class: Class::Control, key_epoch: 0, flow: FlowId(1), body: Body::Pull(pull) };
    let mut bytes = vec![0; datagram.len(0)];
    emit(&datagram, 0, &key(), &mut bytes);
    assert_eq!((bytes.len(), bytes[28]), (HEADER + 25, 0b1010));
    let second = HEADER + 15;
    for (at, change, what) in [
        (second + 7, &[0][..], "run of a want"),
        (second + 8, &[0, 0], "count of a want"),
        (second + 4, &[0xff, 0xff, 0xf0], "run of a want"),
    ] {
        let mut bytes = bytes.clone();
        bytes[at..at + change.len()].copy_from_slice(change);
        retag(&mut bytes);
        assert_eq!(parse(&bytes, &key()), Err(WireError::Field { what }));
    }
    bytes[28] = 0b0110;
    retag(&mut bytes);
    assert_eq!(parse(&bytes, &key()), Err(WireError::Length { have: 25, need: 15 }));
}

#[test]
fn labels_have_bounds() {
    let hello = |labels: Vec<(String, String)>| {
        Control::Controller(ToController::Hello(NodeInfo {
            node: NodeId([1; 32]),
            name: String::new(),
            listen: None,
            data: Vec::new(),
            uplink: None,
            downlink: None,
            rack: None,
            room: 1424,
            incarnation: 1,
            rtt: None,
            seen: None,
            labels: labels.into_iter().collect(),
        }))
    };
    let parsed = |control: Control| Control::parse(&control.to_bytes()).err();
    let many = |count| (0..count).map(|n| (n.to_string(), String::new())).collect::<Vec<_>>();
    assert_eq!(parsed(hello(many(MAX_LABELS))), None);
    assert_eq!(parsed(hello(many(MAX_LABELS + 1))), Some(ControlError::Bound("too many labels")));
    let long = "x".repeat(MAX_LABEL + 1);
    for label in [(long.clone(), String::new()), ("zone".to_owned(), long)] {
        assert_eq!(parsed(hello(vec![label])), Some(ControlError::Bound("too long a label")));
    }
}

#[test]
fn an_order_for_a_group_without_members_is_refused() {
    let push = |role| Push {
        task: TaskId(1),
        flow: FlowId(2),
        object: ObjectId([3; 32]),
        bytes: Bytes::new(4),
        symbol_size: 1424,
        key: FlowKey([5; 32]),
        theta: Theta::ONE,
        class: Class::Bulk,
        receiver: NodeId([6; 32]),
        delivery: Delivery::Pull { initial_window: 12 },
        index: 0,
        of: 1,
        at: Vec::new(),
        start: None,
        role,
    };
    let said = |push: Push| Control::parse(&Control::Source(ToSource::Push(push)).to_bytes());
    let members = |count| FlowRole::Group { members: vec![FlowId(9); count] };
    assert!(said(push(members(MAX_FLOWS))).is_ok() && said(push(FlowRole::Single)).is_ok());
    for count in [0, MAX_FLOWS + 1] {
        assert_eq!(said(push(members(count))), Err(ControlError::Bound("too many flows, or none")));
    }
    let outside = Push { index: 1, ..push(FlowRole::Single) };
    assert_eq!(said(outside), Err(ControlError::Bound("a malformed flow")));
}

#[test]
fn the_two_class_numbers_without_a_class_are_refused() {
    let datagram = Datagram { class: Class::Third, key_epoch: 0, flow: FlowId(1), body: Body::FinAck };
    let mut bytes = vec![0; datagram.len(0)];
    emit(&datagram, 0, &key(), &mut bytes);
    assert_eq!(bytes[1] >> 5, 5);
    for number in [6, 7] {
        bytes[1] = number << 5;
        retag(&mut bytes);
        assert_eq!(parse(&bytes, &key()), Err(WireError::Field { what: "class" }));
    }
    let mut levels = Class::LEVELS.to_vec();
    levels.push(Class::Control);
    levels.sort_by_key(|class| *class as u8);
    assert_eq!(levels, Class::ALL, "each class is a level or the top class");
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
        passed_on: false,
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
