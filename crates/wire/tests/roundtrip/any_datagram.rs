//! Any datagram.

use std::num::NonZeroU16;

use super::any_control::control;
use super::scheduled;
use super::*;

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

pub(super) fn signal() -> impl Strategy<Value = Signal> {
    let address = |n: u8, port| ([10, 0, 0, n], port).into();
    let update = (any::<u64>(), any::<u32>(), vec(1..4u8, 0..5), any::<u16>()).prop_map(
        move |(tree, version, branches, port)| TreeUpdate {
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
    (any::<u64>(), any::<u32>(), vec(update, 0..4), vec(branch, 0..20))
        .prop_map(|(flow, number, updates, below)| Signal { flow: FlowId(flow), number, updates, below })
}

pub(super) fn role() -> impl Strategy<Value = FlowRole> {
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
    (any::<u32>(), any::<bool>(), any::<bool>(), wants).prop_map(|(sequence, fin, detached, wants)| Pull {
        sequence,
        fin,
        detached,
        wants: [wants.first().copied(), wants.get(1).copied()],
    })
}

fn cumulative() -> impl Strategy<Value = Cumulative> {
    let block = (1u32.., any::<u32>()).prop_filter_map("a block ends behind its beginning", |(from, len)| {
        Some(AheadBlock { from, to: from.checked_add(len)? }).filter(|_| len > 0)
    });
    (any::<u64>(), any::<bool>(), proptest::option::of(block)).prop_map(|(next, echo, block)| Cumulative {
        next: PacketNumber(next),
        echo,
        block,
    })
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

pub(super) fn datagram() -> impl Strategy<Value = Datagram> {
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
        any::<u8>().prop_map(|assignment| Body::Heartbeat { assignment }),
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
        scheduled::body(),
    ];
    let class = prop::sample::select(&Class::ALL[..]);
    (class, any::<u8>(), any::<u64>(), body).prop_map(|(class, key_epoch, flow, body)| Datagram {
        class,
        key_epoch,
        flow: FlowId(flow),
        body,
    })
}
