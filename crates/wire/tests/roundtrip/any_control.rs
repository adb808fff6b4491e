//! Any control message.

use super::any_datagram::{role, signal};
use super::*;

#[expect(clippy::too_many_lines, reason = "one flat list")]
pub(super) fn control() -> impl Strategy<Value = Control> {
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
            }
        });
    prop_oneof![
        (any::<u64>(), "[a-z0-9/.]{0,64}", any::<[u8; 32]>(), any::<u16>(), any::<Option<u8>>()).prop_map(
            |(number, name, node, room, max_sources)| {
                let request = Request {
                    request: number,
                    name,
                    receiver: NodeId(node),
                    room,
                    class: Class::Gentle,
                    spread: SpreadRule::Residue,
                    max_sources,
                    delivery: (room % 2 == 0).then_some(Delivery::Pull { initial_window: room }),
                    trims: room % 3 == 0,
                    passes_on: room % 5 == 0,
                };
                Control::Controller(match number % 4 {
                    0 => ToController::UrgentRequest(request, urgency(number)),
                    _ => ToController::Request(request),
                })
            }
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
                silent: Duration::ZERO,
                behind: Duration::from_nanos(t % 3),
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

/// How much something matters.
fn urgency(n: u64) -> Urgency {
    let order = match n % 5 {
        0 => TransferOrder::SmallestRemaining,
        1 => TransferOrder::EarliestDeadline,
        2 => TransferOrder::FirstCome,
        3 => TransferOrder::Fair,
        _ => TransferOrder::Stated(Rank::of(n)),
    };
    let deadline = (n.is_multiple_of(5)).then_some(Duration::from_nanos(n));
    Urgency { precedence: Precedence { order, drops_late: n.is_multiple_of(2) }, deadline }
}

/// Messages about casts.
#[expect(clippy::too_many_lines, reason = "one flat list")]
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
        by_unicast: Bytes::new(n / 3),
        relayed: Bytes::new(n / 4),
        passed_on: Bytes::new(n / 5),
        after: Duration::from_nanos(n),
    });
    let route = prop_oneof![
        Just(CastRoute::Open),
        any::<u16>().prop_map(|of| CastRoute::Unicast(WhyUnicast::Unheard { of })),
        any::<u16>().prop_map(|members| CastRoute::Overlay {
            members,
            why: WhyUnicast::NoGroups,
            racks: members / 3
        }),
        any::<u16>().prop_map(|port| CastRoute::Multicast {
            at: ([239, 1, 2, 3], port).into(),
            members: port / 2,
            of: port
        }),
        any::<u16>().prop_map(|port| CastRoute::Rates {
            at: ([239, 1, 2, 3], port).into(),
            members: port / 2,
            of: port
        }),
        any::<u16>().prop_map(|of| CastRoute::Trees { trees: of / 3, members: of / 2, of, hops: of / 5 }),
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
        (any::<u64>(), "[a-z0-9/.]{0,64}", vec(bytes().prop_map(NodeId), 0..=MAX_NAMED), 0..9_u32).prop_map(
            |(number, name, to, first)| {
                let cast = Cast {
                    cast: number,
                    name,
                    first: if to.is_empty() { 0 } else { first },
                    of: if to.is_empty() { 0 } else { to.len() as u32 + 2 * first },
                    to,
                    class: Class::Bulk,
                    wish: if number % 2 == 0 { CastWish::Overlay } else { CastWish::Rates },
                };
                Control::Controller(match number % 3 {
                    0 => ToController::Cast(cast),
                    _ => ToController::UrgentCast(cast, urgency(number)),
                })
            }
        ),
        (any::<u64>(), bytes()).prop_map(|(n, bytes)| {
            let news = RateNews {
                rate: BitRate::new(n),
                least: (n % 3 == 0).then_some((NodeId(bytes), BitRate::new(n / 2))),
                paused: (n % 5 == 0).then_some(Duration::from_nanos(n)),
                behind: (n % 7 == 0).then_some(!n),
                finish: (n % 11 == 0).then_some(Duration::from_nanos(n / 3)),
            };
            let how = match n % 13 {
                0 => AtRates::Left(WhyUnscheduled::StandingQueue),
                _ => AtRates::Goes(news),
            };
            Control::Node(ToNode::CastAtRates { cast: n, how })
        }),
        (any::<u64>(), any::<bool>()).prop_map(|(cast, known)| Control::Node(ToNode::CastRefused {
            cast,
            reason: if known { Refusal::OffNetwork } else { Refusal::Unscheduled(WhyUnscheduled::NotStated) },
        })),
        (any::<u64>(), "[a-z0-9/.]{0,64}", any::<bool>()).prop_map(|(number, name, stands)| {
            let labels = [("zone".to_owned(), name.clone())].into_iter().take(usize::from(stands)).collect();
            let cast = StandingCast { name, labels };
            Control::Controller(ToController::StandingCast { number, cast, stands })
        }),
        any::<u64>().prop_map(|number| Control::Node(ToNode::StandingCastChanged { number })),
        (any::<u64>(), any::<bool>()).prop_map(|(claim, full)| Control::Node(ToNode::NameRefused {
            claim,
            why: if full { WhyUnnamed::Full } else { WhyUnnamed::TooMany },
        })),
        (any::<u64>(), "[a-z0-9_]{0,64}", 0..9_usize, any::<bool>()).prop_map(
            |(number, text, count, answers)| {
                let name = CoflowName { application: text.clone(), number };
                if answers {
                    let rank = CoflowRank { name, rank: Rank::new(count as u32) };
                    return Control::Node(ToNode::CoflowRanks(vec![rank; count]));
                }
                let left = (count > 3).then_some(Bytes::new(number));
                let pairs = vec![PairTotal { from: text.clone(), left }; count];
                let coflows = vec![CoflowTotal { name, here: Bytes::new(number), pairs }; count];
                Control::Controller(ToController::Coflows(CoflowTotals { host: text, coflows }))
            }
        ),
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
                by_unicast: Bytes::new(!request),
                relayed: Bytes::new(request / 2),
                from: vec![(NodeId([request as u8; 32]), Bytes::new(request)); usize::from(request as u8)],
                files: Bytes::new(request / 3),
            })
        )),
        (any::<u64>(), bytes(), vec(1usize..4, 0..20), any::<u16>()).prop_map(
            move |(n, bytes, branches, port)| {
                let address = |n: usize| ([10, 0, 0, n as u8], port).into();
                Control::Node(ToNode::InstallTree(Box::new(TreeOrder {
                    tree: secret(n, bytes),
                    version: port.into(),
                    symbol_size: port,
                    parent: (n % 2 == 0).then(|| address(9)),
                    branches: branches.into_iter().map(|len| (0..len).map(address).collect()).collect(),
                    receives: n % 3 == 0,
                    store: Bytes::new(n),
                    heartbeat: Duration::from_nanos(n),
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
        any::<u64>().prop_map(|tree| Control::Node(ToNode::RemoveTree { tree: FlowId(tree) })),
        Just(Control::Controller(ToController::Leaving)),
        vec(any::<u64>(), 0..=MAX_FLOWS).prop_map(|flows| {
            let report = |n: u64| TransferReport {
                flow: FlowId(n),
                rate: BitRate::new(n / 2),
                rank: Rank::of(n),
                left: Bytes::new(n / 3),
                paused: (n.is_multiple_of(2)).then_some(Duration::from_nanos(n)),
                least: (n.is_multiple_of(3)).then_some((FlowId(!n), BitRate::new(n / 5))),
            };
            let transfers = flows.into_iter().map(report).collect();
            Control::Controller(ToController::Transfers { transfers })
        }),
        (any::<u64>(), bytes(), route, vec(member, 0..=MAX_NEWS), vec(repair, 0..3)).prop_map(
            |(n, bytes, route, members, repairs)| {
                Control::Node(ToNode::Casting(Box::new(CastNews {
                    cast: n,
                    object: ObjectId(bytes),
                    bytes: Bytes::new(n),
                    files: Bytes::new(n / 2),
                    source: NodeId(bytes),
                    route,
                    to_group: Bytes::new(n),
                    given: vec![(NodeId(bytes), Bytes::new(n)); n as usize % MAX_NEWS],
                    between_racks: (n % 3 == 0).then_some(Bytes::new(n)),
                    members,
                    of: 200,
                    done: n as u32,
                    failed: 3,
                    behind: Bytes::new(n / 3),
                    repairs,
                    over: n % 2 == 0,
                })))
            }
        ),
    ]
}
