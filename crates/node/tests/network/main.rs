//! Nodes that send to each other, pass on what comes, and stand in trees.

mod net;

use headwater_node::{Arrived, NodeAction, Room, To};
use headwater_transport::{ReceiverCommand, ReceiverFailure, SourceCommand};
use headwater_units::{BlockIndex, Bytes, Duration, Esi, FlowId, FlowKey, PathId, SymbolId, Time};
use headwater_wire::{
    Body, Class, Control, Datagram, Delivery, Ecn, FinReason, FlowRole, FlowSecret, GroupQuestion, HeaderKey,
    ToController, ToNode, TreeOrder,
};
use net::{Leg, Net, OBJECT, T, address, key, written};

const PULL: Delivery = Delivery::Pull { initial_window: 8 };
const OVERLAY: Delivery = Delivery::Overlay { window: 64 };
const FIRST: FlowId = FlowId(5);
const SECOND: FlowId = FlowId(6);
const THIRD: FlowId = FlowId(7);

/// Host 0 sends all to host 1, which passes on to host 2; half of it, if host 0 sends the other half.
fn relaying(written: bool, half: bool) -> Net {
    let first = Leg { flow: FIRST, from: 0, to: 1, role: FlowRole::Single };
    let second = Leg { flow: SECOND, from: 1, to: 2, role: FlowRole::Relay };
    let third = Leg { flow: THIRD, from: 0, to: 2, role: FlowRole::Single };
    let mut net = Net::new(3, Bytes::mib(8), written, OVERLAY, vec![first, second]);
    net.legs.extend(half.then_some(third));
    net.fetch(1);
    net.run_until(|net| net.hosts[1].coming);
    net.fetch(2);
    net
}

#[test]
fn a_block_is_passed_on_as_soon_as_it_is_whole() {
    for written in [true, false] {
        let mut net = relaying(written, true);
        net.run_until(|net| net.hosts[1].got.done().is_some() && net.hosts[2].got.done().is_some());
        let symbols = net.symbols();
        let [source, relay, last] = &net.hosts[..] else { unreachable!() };
        assert!(source.sent + relay.sent < symbols * 2 + 50 && last.sent == 0, "each has it once");
        assert!(
            relay.sent_early * 5 > symbols,
            "{} of {symbols} left before all blocks were whole",
            relay.sent_early
        );
        let strays = net.hosts.iter().map(|host| host.node.stats().strays).sum::<u64>();
        assert_eq!((strays, last.node.stats().pulls), (0, false));
    }
}

#[test]
fn who_is_served_by_a_fetch_that_is_cancelled_is_told() {
    let mut net = relaying(true, false);
    net.run_until(|net| net.hosts[2].got.blocks() > 1);
    assert!(net.hosts[1].coming && net.hosts[1].node.source().flow(SECOND).is_some());
    net.tell_fetch(1, ReceiverCommand::Cancel);
    net.run_until(|net| net.hosts[1].node.source().flow(SECOND).is_none());
    let relay = &net.hosts[1];
    assert!(!relay.coming && matches!(relay.got.finished, Some((_, Err(ReceiverFailure::Cancelled)))));
    let ended = |control: &Control| matches!(control, Control::Controller(ToController::Stopped { flow }) | Control::Controller(ToController::PushRefused { flow, .. }) if *flow == SECOND);
    assert!(relay.told.iter().any(ended), "the controller hears that the flow is over");
}

#[test]
fn a_node_that_hands_over_serves_on_what_it_holds_alone() {
    for holds in [false, true] {
        let mut net = relaying(true, false);
        net.run_until(|net| net.hosts[1].got.done().is_some());
        if holds {
            let bytes = net.object.bytes;
            net.tell_source(1, SourceCommand::Hold { object: OBJECT, bytes });
        }
        assert!(net.hosts[2].got.done().is_none());
        let now = net.now();
        net.hosts[1].node.hand_over(now);
        net.drain(1, Room::Free, &[]);
        match holds {
            true => net.run_until(|net| net.hosts[2].got.done().is_some()),
            false => assert!(!net.hosts[1].coming && net.hosts[1].node.source().flow(SECOND).is_none()),
        }
    }
}

#[test]
fn a_block_that_cannot_be_read_any_more_is_told_of_and_the_object_withdrawn() {
    let first = Leg { flow: FIRST, from: 0, to: 1, role: FlowRole::Single };
    let mut net = Net::new(2, Bytes::mib(2), true, PULL, vec![first]);
    net.hosts[0].got.whole.pop_last();
    let blocks = net.hosts[0].got.whole.len();
    net.fetch(1);
    let ended = |control: &Control| matches!(control, Control::Controller(ToController::PushRefused { flow, .. }) if *flow == FIRST);
    net.run_until(|net| net.hosts[0].told.iter().any(ended));
    assert_eq!(net.hosts[0].got.whole.len(), blocks - 1, "the driver was told once");
    assert!(net.hosts[1].node.stats().pulls);
}

fn tree_order(parent: Option<usize>, below: &[usize], receives: bool, host: u8) -> Control {
    Control::Node(ToNode::InstallTree(Box::new(TreeOrder {
        tree: FlowSecret { flow: FIRST, key: key(FIRST) },
        version: 1,
        symbol_size: T,
        parent: parent.map(address),
        branches: below.iter().map(|host| vec![address(*host)]).collect(),
        receives,
        store: Bytes::mib(1),
        heartbeat: Duration::from_millis(100),
        signals: FlowSecret { flow: FlowId(100 + u64::from(host)), key: FlowKey([host; 32]) },
    })))
}

#[test]
fn a_symbol_that_comes_down_a_tree_is_for_the_node_and_for_those_below() {
    for written in [true, false] {
        let role = FlowRole::Tree { group: FIRST, most: None };
        let leg = |to| Leg { flow: FIRST, from: 0, to, role: role.clone() };
        let delivery = Delivery::Trees { credit: 16 };
        let mut net = Net::new(3, Bytes::mib(1), written, delivery, vec![leg(1), leg(2)]);
        net.order(0, tree_order(None, &[1], false, 0));
        net.order(1, tree_order(Some(0), &[2], true, 1));
        net.order(2, tree_order(Some(1), &[], true, 2));
        net.fetch(1);
        net.fetch(2);
        net.run_until(|net| net.hosts[1].got.done().is_some() && net.hosts[2].got.done().is_some());
        let sent: Vec<u64> = net.hosts.iter().map(|host| host.sent).collect();
        assert!(
            sent[0] < net.symbols() * 5 / 4 && sent[1..] == [0, 0],
            "{sent:?}: one copy, which nodes pass on"
        );
        assert!(net.hosts.iter().all(|host| host.node.has_trees() && host.node.stats().strays == 0));
    }
}

#[test]
fn an_interest_ends_where_nodes_were_told_of_a_tree_that_is_a_circle() {
    let mut net = Net::new(2, Bytes::mib(1), true, PULL, Vec::new());
    net.order(0, tree_order(Some(1), &[1], false, 0));
    net.order(1, tree_order(Some(0), &[0], false, 1));
    let name = SymbolId { block: BlockIndex(0), esi: Esi(5) };
    let interest =
        Datagram { class: Class::Control, key_epoch: 0, flow: FIRST, body: Body::Interest(name.into()) };
    let mut bytes = written(&interest, &HeaderKey::new(&key(FIRST)));
    // Each node hands it on to the other, as it must: it knows of nothing but its neighbours.
    for hops in 0..=255 {
        let (host, other) = (hops % 2, (hops + 1) % 2);
        let forwarded = net.hand_on(host, other, &bytes);
        assert_eq!(forwarded.is_some(), hops < 255, "after {hops} hops");
        bytes = forwarded.unwrap_or_default();
    }
    assert_eq!(net.hosts[1].node.stats().strays, 1);
}

#[test]
fn a_source_speaks_when_there_is_room_and_no_more_datagrams_are_at_hand() {
    let first = Leg { flow: FIRST, from: 0, to: 1, role: FlowRole::Single };
    let mut net = Net::new(2, Bytes::mib(1), true, PULL, vec![first]);
    net.fetch(1);
    net.run_until(|net| net.hosts[0].node.source().flow(FIRST).is_some());
    let now = net.now();
    let fin = Datagram { class: Class::Control, key_epoch: 0, flow: FIRST, body: Body::Fin(FinReason::Done) };
    let hear = |net: &mut Net, bytes: &[u8]| {
        let arrived = Arrived { bytes, from: address(1), ecn: Ecn::NotEct, trimmed: false };
        let node = &mut net.hosts[0].node;
        node.on_datagram(now, arrived, || PathId(1), |_| panic!("it is no tree's")).is_some()
    };
    let forged = written(&fin, &HeaderKey::new(&key(SECOND)));
    assert!(!hear(&mut net, &forged) && net.hosts[0].node.stats().strays == 1);
    assert!(!hear(&mut net, &written(&fin, &HeaderKey::new(&key(FIRST)))), "the receivers are told nothing");
    let node = &mut net.hosts[0].node;
    assert!(node.poll(now, Room::Gathering).is_none() && node.poll(now, Room::Full).is_none());
    assert!(node.wake(Room::Full).is_none_or(|at| at > now) && node.wake(Room::Free) == Some(now));
    assert!(node.poll(now, Room::Free).is_some());
    while node.poll(now, Room::Free).is_some() {}
    assert!(node.wake(Room::Free).is_none_or(|at| at > now));
    assert!(Time::ZERO < now);
}

#[test]
fn a_probe_of_a_group_is_answered_and_the_answer_is_heard_and_a_stranger_is_counted() {
    let secret = |flow: u64| FlowSecret { flow: FlowId(flow), key: key(FlowId(flow)) };
    let (mut asker, mut member) = (net::machine(1), net::machine(2));
    member.answer_probes(&secret(100), &secret(1));
    let at = address(9);
    let question =
        GroupQuestion { at, towards: at, asked: secret(100), members: vec![secret(1)], bytes: 200 };
    let id = asker.probe_group(Time::ZERO, PathId(7), &question);
    let said = |from: &mut net::Machine| match from.poll(Time::ZERO, Room::Free) {
        Some(NodeAction::Send(alone)) => {
            let datagram =
                Datagram { class: Class::Control, key_epoch: 0, flow: alone.flow, body: alone.body };
            Some((alone.to, written(&datagram, &alone.key)))
        }
        _ => None,
    };
    let hear = |to: &mut net::Machine, bytes: &[u8], from| {
        let arrived = Arrived { bytes, from: address(from), ecn: Ecn::NotEct, trimmed: false };
        to.on_datagram(Time::ZERO, arrived, || panic!("of no transfer"), |_| panic!("of no tree")).is_some()
    };
    let (to, probe) = said(&mut asker).expect("the group is asked");
    assert!(to == To::Group(PathId(7)) && hear(&mut member, &probe, 1));
    let (to, answer) = said(&mut member).expect("it is answered");
    assert!(to == To::Node(address(1)) && !hear(&mut member, &answer, 1) && member.stats().strays == 1);
    assert!(hear(&mut asker, &answer, 2));
    let heard = asker.poll(Time::ZERO, Room::Free);
    assert!(
        matches!(heard, Some(NodeAction::Heard { id: its, members }) if its == id && members == [FlowId(1)])
    );
    assert_eq!(asker.wake(Room::Free), None);
}
