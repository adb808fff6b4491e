//! Datagrams that are well formed and make no sense are refused.

use std::num::NonZeroU16;

use super::*;

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
    let ack = Cumulative { next: PacketNumber(u64::MAX), echo: true, block: None };
    let datagram =
        Datagram { class: Class::Control, key_epoch: 0, flow: FlowId(1), body: Body::Cumulative(ack) };
    let mut bytes = vec![0; datagram.len(0)];
    emit(&datagram, 0, &key(), &mut bytes);
    assert_eq!(bytes.len(), 33);
    assert_eq!(bytes[32], 1);
    for flags in [0b100, 0b1000_0001, 0xff] {
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
fn a_block_of_a_cumulative_ack_is_there_if_its_flag_says_so_and_is_no_empty_one() {
    let block = Some(AheadBlock { from: 2, to: 5 });
    let ack = Cumulative { next: PacketNumber(9), echo: false, block };
    let datagram =
        Datagram { class: Class::Control, key_epoch: 0, flow: FlowId(1), body: Body::Cumulative(ack) };
    let mut bytes = vec![0; datagram.len(0)];
    emit(&datagram, 0, &key(), &mut bytes);
    assert_eq!((bytes.len(), &bytes[32..]), (41, &[2, 0, 0, 0, 2, 0, 0, 0, 5][..]));
    for (at, byte, why) in [
        (36, 0, WireError::Field { what: "block of a cumulative ACK" }),
        (40, 2, WireError::Field { what: "block of a cumulative ACK" }),
        (32, 0, WireError::Length { have: 17, need: 9 }),
    ] {
        let mut bytes = bytes.clone();
        bytes[at] = byte;
        retag(&mut bytes);
        assert_eq!(parse(&bytes, &key()), Err(why));
    }
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
    let pull = Pull { detached: true, wants: [Some(want); 2], ..Pull::any(9) };
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
            labels: labels.into_iter().collect(),
            ..NodeInfo::new(NodeId([1; 32]), "", 1424)
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
