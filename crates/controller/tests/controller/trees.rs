//! Casts by trees: who is told to ask whom, when receivers begin, and what follows from neighbours that fall silent.

use core::net::SocketAddr;

use headwater_controller::{ControllerConfig, HostAddresses, NetworkSpec, SignallingMode};
use headwater_fabric::trees::Switches;
use headwater_fabric::{BCubeSpec, BigSwitchSpec, FabricSpec, LinkDelay};
use headwater_units::{BitRate, Bytes, Duration, FlowId, Symbols, Time};
use headwater_wire::{
    Body, Cast, CastNews, CastRoute, CastWish, Class, Control, Delivery, FetchEnd, Fetched, FlowGrant,
    FlowRole, HeaderKey, MemberStanding, Push, Refusal, Signal, Signalled, ToController, ToNode, ToReceiver,
    ToSource, TreeOrder, TreeUpdate, parse,
};

use crate::harness::{Bench, ms, node, request};

/// The asker is no node.
const ASKER: headwater_units::PathId = headwater_units::PathId(1000);
/// Has object 1; host 0 of the network. Host h is node h + 1.
const SOURCE: u8 = 1;

fn address(n: u8) -> SocketAddr {
    ([10, 0, 0, n], 7000).into()
}

/// Nodes from 1 on, all of which keep objects, around a plain switch.
fn around_a_switch(hosts: u8) -> Bench {
    let rate = BitRate::new(1_000_000_000).into();
    let fabric = BigSwitchSpec {
        hosts: hosts.into(),
        rate,
        delay: LinkDelay::ZERO,
        uplinks: Default::default(),
        downlinks: Default::default(),
    };
    let addresses = (1..=hosts).map(|n| HostAddresses::One(address(n).ip())).collect();
    known(FabricSpec::BigSwitch(fabric), addresses, Switches::Plain, hosts)
}

/// BCube(2,1) with stores: hosts 0 to 3 have two cables each; by cable c host h has the address 10.c+1.0.h+1.
fn bcube() -> Bench {
    bcube_told(SignallingMode::Direct)
}

fn bcube_told(signalling: SignallingMode) -> Bench {
    let rate = BitRate::new(1_000_000_000).into();
    let fabric = FabricSpec::BCube(BCubeSpec { n: 2, levels: 1, rate, delay: LinkDelay::ZERO });
    let of =
        |n: u8| HostAddresses::Several(vec![[10, 1, 0, n].into(), [10, 2, 0, n].into(), address(n).ip()]);
    signalled(fabric, (1..=4).map(of).collect(), Switches::Stores, 4, signalling)
}

fn known(fabric: FabricSpec, hosts: Vec<HostAddresses>, switches: Switches, nodes: u8) -> Bench {
    signalled(fabric, hosts, switches, nodes, SignallingMode::Direct)
}

fn signalled(
    fabric: FabricSpec,
    hosts: Vec<HostAddresses>,
    switches: Switches,
    nodes: u8,
    signalling: SignallingMode,
) -> Bench {
    let (trees, framing, computes_rates) = (None, None, false);
    let tolerated_queue = LinkDelay::ZERO;
    let network =
        NetworkSpec { fabric, hosts, switches, trees, framing, signalling, computes_rates, tolerated_queue };
    let network = Some(network);
    let mut bench =
        Bench::with(ControllerConfig { network, ..ControllerConfig::default() }).holders([SOURCE]);
    for n in 2..=nodes {
        bench.join(n);
        bench.say(n, ToController::Keeps);
    }
    bench
}

/// Orders to nodes, by node.
type Orders = Vec<(u8, Vec<TreeOrder>)>;

impl Bench {
    /// Messages of one kind to a node, leaving the rest.
    fn take<T>(&mut self, n: u8, of: impl Fn(&Control) -> Option<T>) -> Vec<T> {
        let mut taken = Vec::new();
        self.sent.retain(|(path, control)| match of(control).filter(|_| *path == crate::harness::path(n)) {
            Some(it) => {
                taken.push(it);
                false
            }
            None => true,
        });
        taken
    }

    /// Somebody asks for cast 1 to all, and these follow.
    fn installed(&mut self, receivers: impl IntoIterator<Item = u8>) -> Vec<Push> {
        let cast = Cast {
            cast: 1,
            name: "object-1".to_owned(),
            to: Vec::new(),
            first: 0,
            of: 0,
            class: Class::Bulk,
            wish: self.wish,
        };
        self.say_at(ASKER, Control::Controller(ToController::Cast(cast)));
        for n in receivers {
            let fetch = |control: &Control| {
                if let Control::Node(ToNode::Fetch(it)) = control { Some(it.clone()) } else { None }
            };
            let invitation = self.take(n, fetch).pop().expect("it is invited");
            assert_eq!(invitation.group, None, "no group is joined");
            // The number by which it asks is its own.
            assert_eq!(invitation.name, "object-1");
            self.say(n, ToController::Request(request(n, invitation.request, &invitation.name)));
            self.requests.push((n, invitation.request));
        }
        self.take(SOURCE, |control| {
            if let Control::Source(ToSource::Push(push)) = control { Some(push.clone()) } else { None }
        })
    }

    /// The newest orders of a node.
    fn orders(&mut self, n: u8) -> Vec<TreeOrder> {
        self.take(n, |control| {
            if let Control::Node(ToNode::InstallTree(it)) = control { Some((**it).clone()) } else { None }
        })
    }

    /// Confirms an order.
    fn ready(&mut self, n: u8, order: &TreeOrder) {
        self.say(n, ToController::TreeReady { tree: order.tree.flow, version: order.version });
    }

    fn accepted(&mut self, n: u8) -> Option<(Delivery, Vec<FlowGrant>)> {
        let accepted = |control: &Control| match control {
            Control::Receiver(ToReceiver::Accepted { delivery, flows, .. }) => {
                Some((*delivery, flows.clone()))
            }
            _ => None,
        };
        self.take(n, accepted).pop()
    }

    fn news_of_cast(&mut self) -> CastNews {
        self.pass(ms(200));
        let all = std::mem::take(&mut self.sent);
        let (mine, rest): (Vec<_>, Vec<_>) = all.into_iter().partition(|(path, _)| *path == ASKER);
        self.sent = rest;
        let news = |(_, control)| {
            if let Control::Node(ToNode::Casting(news)) = control { Some(*news) } else { None }
        };
        mine.into_iter().filter_map(news).next_back().expect("news every 200 ms")
    }

    /// Everybody on the trees confirms what he was told; the orders, by node.
    fn all_ready(&mut self, nodes: impl IntoIterator<Item = u8>) -> Orders {
        let orders: Orders = nodes.into_iter().map(|n| (n, self.orders(n))).collect();
        for (n, orders) in &orders {
            orders.iter().for_each(|order| self.ready(*n, order));
        }
        orders
    }
}

#[test]
fn around_a_plain_switch_each_node_asks_the_one_before_and_begins_when_all_know() {
    let mut bench = around_a_switch(4);
    let pushes = bench.installed([2, 3, 4]);
    let [push] = &pushes[..] else { panic!("{pushes:?}") };
    // Symbols that a host hands on and its own interests share its cable: 1531 and 98 bytes with all that Ethernet
    // adds.
    let most = Some(BitRate::new(990_000_000 * 1465 / 1629));
    assert_eq!((push.symbol_size, push.index, push.of), (1417, 0, 1));
    assert_eq!(push.role, FlowRole::Tree { group: push.flow, most });
    assert!(matches!(push.delivery, Delivery::Trees { .. }));
    let orders: Vec<Vec<TreeOrder>> = (1..=4).map(|n| bench.orders(n)).collect();
    for (n, orders) in (1..=4).zip(&orders) {
        let [order] = &orders[..] else { panic!("{orders:?}") };
        assert_eq!(order.parent, (n > 1).then(|| address(n - 1)));
        assert_eq!(order.branches, if n < 4 { vec![vec![address(n + 1)]] } else { vec![] });
        assert_eq!((order.receives, &order.tree.key), (n > 1, &push.key));
    }
    bench.say(SOURCE, ToController::Pushing { flow: push.flow });
    (1..=3).zip(&orders).for_each(|(n, orders)| bench.ready(n, &orders[0]));
    assert_eq!(bench.accepted(2), None, "4 does not know yet whom to ask");
    bench.ready(4, &orders[3][0]);
    for n in 2..=4 {
        let (delivery, grants) = bench.accepted(n).unwrap();
        assert_eq!((delivery, grants.len(), grants[0].flow), (push.delivery, 1, push.flow));
    }
    let news = bench.news_of_cast();
    assert_eq!(news.route, CastRoute::Trees { trees: 1, members: 3, of: 3, hops: 3 });
}

#[test]
fn where_switches_keep_nodes_ask_by_the_cable_that_their_tree_comes_by() {
    let mut bench = bcube();
    let pushes = bench.installed([2, 3, 4]);
    assert_eq!(pushes.iter().map(|push| (push.index, push.of)).collect::<Vec<_>>(), [(0, 2), (1, 2)]);
    let orders = bench.all_ready(1..=4);
    let parents = |n: usize| orders[n - 1].1.iter().map(|order| order.parent).collect::<Vec<_>>();
    assert_eq!(parents(1), [None, None]);
    // Node 4 is two hops away, and has another neighbour in each tree; by another cable.
    let of_four: Vec<SocketAddr> = parents(4).into_iter().flatten().collect();
    assert_eq!(of_four.len(), 2);
    assert_ne!(of_four[0].ip().to_string()[..5], of_four[1].ip().to_string()[..5], "{of_four:?}");
}

#[test]
fn orders_are_said_again_until_they_are_confirmed() {
    let mut bench = around_a_switch(4);
    let pushes = bench.installed([2, 3, 4]);
    assert_eq!(bench.orders(3).len(), 1);
    bench.pass(ms(400));
    assert_eq!(bench.orders(3).len(), 0);
    bench.pass(ms(200));
    let again = bench.orders(3);
    assert_eq!(again.len(), 1);
    bench.ready(3, &again[0]);
    bench.pass(ms(900));
    assert_eq!(bench.orders(3).len(), 0);
    assert!(!pushes.is_empty());
}

#[test]
fn a_source_that_says_nothing_leaves_receivers_to_pass_on_to_each_other() {
    let mut bench = around_a_switch(4);
    let pushes = bench.installed([2, 3, 4]);
    bench.all_ready(1..=4);
    bench.pass(ms(1600));
    assert!(matches!(bench.accepted(2), Some((Delivery::Overlay { .. }, _))));
    let stops = |control: &Control| matches!(control, Control::Source(ToSource::Stop { flow }) if *flow == pushes[0].flow);
    assert!(bench.heard(SOURCE).iter().any(stops));
    assert!(bench.heard(3).iter().any(|control| matches!(control, Control::Node(ToNode::RemoveTree { .. }))));
}

/// Trees of a running cast among four nodes of a BCube, and what each was told.
fn running() -> (Bench, Vec<Push>, Orders) {
    running_on(bcube())
}

fn running_on(mut bench: Bench) -> (Bench, Vec<Push>, Orders) {
    let pushes = bench.installed([2, 3, 4]);
    let orders = bench.all_ready(1..=4);
    for push in &pushes {
        bench.say(SOURCE, ToController::Pushing { flow: push.flow });
    }
    assert!((2..=4).all(|n| bench.accepted(n).is_some()));
    (bench, pushes, orders)
}

#[test]
fn a_tree_whose_cable_is_cut_is_rerouted_or_shares_that_of_another() {
    let (mut bench, pushes, orders) = running();
    // Node 4 does not hear its parent in tree 0.
    let order = &orders[3].1[0];
    let parent = order.parent.unwrap();
    let since = ms(310);
    let silent =
        |at| Control::Controller(ToController::Silent { tree: order.tree.flow, neighbours: vec![at], since });
    bench.say(4, silent(parent));
    assert_eq!(bench.orders(4).len(), 0, "the others have a heartbeat to say what they miss");
    bench.pass(ms(100));
    let new = bench.all_ready(1..=4);
    let changed: Vec<&TreeOrder> = new.iter().flat_map(|(_, orders)| orders).collect();
    assert!(changed.iter().all(|order| pushes.iter().any(|push| push.flow == order.tree.flow)), "flows stay");
    let other = new[3].1.iter().find(|it| it.tree.flow == order.tree.flow).expect("4 asks somebody else");
    assert_ne!(other.parent.unwrap(), parent);
    assert!(other.version > order.version);
    let news = bench.news_of_cast();
    let [repair] = &news.repairs[..] else { panic!("{:?}", news.repairs) };
    // Both cables of the hop: nobody else is heard over either.
    assert_eq!((repair.silent, repair.decided, repair.cut), (since, ms(100), 2));
    assert_eq!(repair.told, Some(Duration::ZERO));
    assert!(repair.rebuilt >= 1);
    assert!(news.members.iter().all(|member| member.standing == MemberStanding::Receiving));
    // A report from before the new order came is of nobody's neighbour any more.
    bench.say(4, silent(parent));
    bench.pass(ms(200));
    assert_eq!(bench.orders(4).len(), 0);
    assert_eq!(bench.news_of_cast().repairs.len(), 1, "nothing more is repaired");
}

/// Four nodes of a BCube, where node 4 has just lost its parent in tree 0: what the source is sent for all who are told of it, and the
/// first orders of all.
fn cut_and_signalled() -> (Bench, Signal, Orders) {
    let (mut bench, _, orders) = running_on(bcube_told(SignallingMode::Tree));
    let order = orders[3].1[0].clone();
    let (tree, neighbours) = (order.tree.flow, vec![order.parent.unwrap()]);
    bench.say(4, ToController::Silent { tree, neighbours, since: ms(310) });
    bench.pass(ms(100));
    let signals = |control: &Control| {
        if let Control::Node(ToNode::Signal(it)) = control { Some((**it).clone()) } else { None }
    };
    let mut signals = bench.take(SOURCE, signals);
    assert_eq!(signals.len(), 1, "all are told by one message");
    assert!((1..=4).all(|n| bench.orders(n).is_empty()), "and by none beside");
    (bench, signals.remove(0), orders)
}

/// Nodes that a signal tells, in the order of answers, and their updates.
fn told(signal: &Signal, orders: &Orders) -> Vec<(u8, Vec<TreeUpdate>)> {
    let secret = |flow| orders.iter().find(|(_, its)| its[0].signals.flow == flow).unwrap();
    let mut all = vec![(secret(signal.flow).0, signal.updates.clone())];
    for branch in &signal.below {
        let (_, its) = secret(branch.flow);
        let parsed = parse(&branch.datagram, &HeaderKey::new(&its[0].signals.key)).expect("it is its node's");
        let Body::Control(control) = parsed.datagram.body else { panic!("no control message") };
        let Control::Node(ToNode::Signal(inside)) = *control else { panic!("no signal") };
        all.extend(told(&inside, orders));
    }
    all
}

#[test]
fn the_source_splits_one_message_for_all_whose_trees_were_rerouted() {
    let (mut bench, signal, orders) = cut_and_signalled();
    let told = told(&signal, &orders);
    let four = told.iter().find(|(n, _)| *n == 4).expect("4 asks somebody else");
    let before = orders[3].1.iter().find(|order| order.tree.flow == four.1[0].tree).unwrap();
    assert!(four.1[0].version > before.version && four.1[0].parent != before.parent);
    assert_eq!(bench.news_of_cast().repairs[0].told, None);

    let answer = Signalled { flow: signal.flow, number: signal.number, open: true, untold: Vec::new() };
    bench.say(SOURCE, ToController::Signalled(answer.clone()));
    bench.say(2, ToController::Signalled(Signalled { open: false, ..answer.clone() }));
    assert_eq!(bench.news_of_cast().repairs[0].told, None, "not yet; and another node cannot say it");
    bench.say(SOURCE, ToController::Signalled(Signalled { open: false, ..answer }));
    let repair = bench.news_of_cast().repairs[0];
    let changed = told.iter().filter(|(_, updates)| !updates.is_empty()).count();
    assert!(repair.told.is_some());
    assert_eq!((usize::from(repair.signalled), repair.unanswered), (changed, 0));
    bench.pass(ms(2000));
    assert!((1..=4).all(|n| bench.orders(n).is_empty()), "nobody is told twice");
}

#[test]
fn who_did_not_answer_a_signal_is_told_at_once_by_its_own_connection() {
    let (mut bench, signal, orders) = cut_and_signalled();
    let told = told(&signal, &orders);
    let place = told.iter().position(|(n, _)| *n == 4).unwrap() as u16;
    let (flow, number) = (signal.flow, signal.number);
    bench.say(SOURCE, ToController::Signalled(Signalled { flow, number, open: false, untold: vec![place] }));
    assert!((1..=3).all(|n| bench.orders(n).is_empty()));
    let again = bench.orders(4);
    assert_eq!(again.iter().map(TreeOrder::update).collect::<Vec<_>>(), told[usize::from(place)].1);
    again.iter().for_each(|order| bench.ready(4, order));
    let repair = bench.news_of_cast().repairs[0];
    assert!(repair.told.is_some() && repair.unanswered == 1, "{repair:?}");
}

#[test]
fn where_the_source_does_not_answer_all_are_told_by_their_own_connections() {
    let (mut bench, signal, orders) = cut_and_signalled();
    bench.pass(ms(500));
    for (n, updates) in told(&signal, &orders) {
        let again: Vec<TreeUpdate> = bench.orders(n).iter().map(TreeOrder::update).collect();
        assert_eq!(again, updates, "node {n}");
    }
}

/// The nodes above node 4 on each tree do not hear of it any more.
fn nobody_hears_four(bench: &mut Bench, orders: &Orders) {
    let of = |n: u8, tree: FlowId| orders[n as usize - 1].1.iter().find(|it| it.tree.flow == tree).cloned();
    for (tree, parent) in orders[3].1.iter().map(|order| (order.tree.flow, order.parent.unwrap())) {
        let above = (1..=4).find(|n| parent.ip().to_string().ends_with(&format!(".{n}"))).unwrap();
        let its = of(above, tree).unwrap();
        let four = its.branches.concat().into_iter().find(|at| at.ip().to_string().ends_with(".4")).unwrap();
        bench.say(above, ToController::Silent { tree, neighbours: vec![four], since: ms(300) });
    }
    bench.pass(ms(100));
}

/// That a receiver is told to fetch under another number than before, and asks.
fn fetches_anew(bench: &mut Bench, n: u8) -> u64 {
    let old = bench.requests.iter().find(|(its, _)| *its == n).unwrap().1;
    let stopped = |control: &Control| matches!(control, Control::Node(ToNode::StopFetch { request }) if *request == old);
    let fetch = |control: &Control| {
        if let Control::Node(ToNode::Fetch(it)) = control { Some(it.request) } else { None }
    };
    assert!(bench.sent.iter().any(|(path, control)| *path == crate::harness::path(n) && stopped(control)));
    let new = bench.take(n, fetch).pop().expect("it is told to fetch");
    assert_ne!(new, old);
    bench.say(n, ToController::Request(request(n, new, "object-1")));
    new
}

fn failed(request: u64, reason: &str) -> Control {
    let end = FetchEnd::Failed(reason.to_owned());
    let none = Bytes::ZERO;
    let (by_group, by_unicast, relayed, files) = (none, none, none, none);
    Control::Controller(ToController::Fetched(Fetched {
        request,
        end,
        by_group,
        by_unicast,
        relayed,
        from: Vec::new(),
        files,
    }))
}

#[test]
fn a_receiver_that_nobody_hears_any_more_is_served_by_itself_once_and_the_others_go_on() {
    let (mut bench, _, orders) = running();
    nobody_hears_four(&mut bench, &orders);
    let new = fetches_anew(&mut bench, 4);
    let (delivery, grants) = bench.accepted(4).expect("it is served");
    assert_eq!((delivery, grants.len(), grants[0].node), (Delivery::Push, 1, node(SOURCE)));
    let standing = |news: &CastNews, n: u8| {
        let member = news.members.iter().find(|it| it.node == node(n)).unwrap();
        (member.standing.clone(), member.grouped)
    };
    let news = bench.news_of_cast();
    for n in 2..=4 {
        assert_eq!(standing(&news, n), (MemberStanding::Receiving, n < 4), "{n}");
    }
    bench.say(4, failed(new, "the disk is full"));
    let news = bench.news_of_cast();
    assert_eq!(standing(&news, 4).0, MemberStanding::Failed("the disk is full".to_owned()));
    assert_eq!(standing(&news, 3).0, MemberStanding::Receiving);
    assert_eq!(bench.controller.stats().receivers_off_trees, 1);
}

#[test]
fn a_receiver_whose_fetch_by_trees_fails_has_one_more() {
    let (mut bench, pushes, _) = running();
    let old = bench.requests.iter().find(|(n, _)| *n == 3).unwrap().1;
    bench.say(3, failed(old, "nothing came"));
    fetches_anew(&mut bench, 3);
    let (delivery, grants) = bench.accepted(3).expect("it is served");
    assert_eq!((delivery, grants.len()), (Delivery::Push, 1));
    bench.say(3, failed(old, "nothing came"));
    assert!(
        bench.news_of_cast().members.iter().all(|it| it.standing == MemberStanding::Receiving),
        "old news"
    );
    // And so has each when the source ends the trees.
    for push in &pushes {
        bench.say(SOURCE, ToController::Stopped { flow: push.flow });
    }
    fetches_anew(&mut bench, 2);
    assert_eq!(bench.accepted(2).expect("it is served").0, Delivery::Push);
}

#[test]
fn whoever_insists_on_trees_has_them_or_is_told_why_not() {
    let wish = |to: &[u8]| Cast {
        cast: 1,
        name: "object-1".to_owned(),
        to: to.iter().map(|n| node(*n)).collect(),
        first: 0,
        of: 0,
        class: Class::Bulk,
        wish: CastWish::Trees,
    };
    let refused = |bench: &mut Bench, cast| {
        bench.say_at(ASKER, Control::Controller(ToController::Cast(cast)));
        bench.sent.iter().find_map(|(path, control)| match control {
            Control::Node(ToNode::CastRefused { reason, .. }) if *path == ASKER => Some(reason.clone()),
            _ => None,
        })
    };
    let mut unknown = Bench::new().holders([SOURCE]);
    unknown.join(2);
    assert_eq!(refused(&mut unknown, wish(&[2])), Some(Refusal::NoNetwork));
    let mut elsewhere = around_a_switch(2);
    (3..=4).for_each(|n| {
        elsewhere.join(n);
        elsewhere.say(n, ToController::Keeps);
    });
    assert_eq!(refused(&mut elsewhere, wish(&[3, 4])), Some(Refusal::OffNetwork));

    let mut bench = bcube();
    bench.wish = CastWish::Trees;
    let pushes = bench.installed([2, 3, 4]);
    let orders = bench.all_ready(1..=4);
    pushes.iter().for_each(|push| bench.say(SOURCE, ToController::Pushing { flow: push.flow }));
    assert!((2..=4).all(|n| bench.accepted(n).is_some()));
    nobody_hears_four(&mut bench, &orders);
    let failed = |news: &CastNews| {
        let of = |it: &headwater_wire::MemberNews| matches!(&it.standing, MemberStanding::Failed(why) if why.contains("not cut"));
        news.members.iter().filter(|it| of(it)).map(|it| it.node).collect::<Vec<_>>()
    };
    assert_eq!(failed(&bench.news_of_cast()), [node(4)]);
}

#[test]
fn whoever_insists_on_trees_gets_nothing_from_a_source_that_opens_none() {
    let mut bench = around_a_switch(4);
    bench.wish = CastWish::Trees;
    bench.installed([2, 3, 4]);
    bench.all_ready(1..=4);
    bench.pass(ms(1600));
    assert_eq!(bench.accepted(2), None);
    let says =
        |it: &MemberStanding| matches!(it, MemberStanding::Failed(why) if why.contains("open the trees"));
    assert!(bench.news_of_cast().members.iter().all(|member| says(&member.standing)));
}

#[test]
fn a_tree_that_is_rerouted_may_carry_less_and_its_source_is_told() {
    let (mut bench, pushes, orders) = running();
    let most = |push: &Push| match push.role {
        FlowRole::Tree { most, .. } => most.expect("rates are stated"),
        _ => panic!("{push:?}"),
    };
    assert_eq!(most(&pushes[0]), most(&pushes[1]));
    let order = &orders[3].1[0];
    let neighbours = vec![order.parent.unwrap()];
    bench.say(4, ToController::Silent { tree: order.tree.flow, neighbours, since: ms(310) });
    bench.pass(ms(100));
    let again = bench.take(SOURCE, |control| {
        if let Control::Source(ToSource::Push(push)) = control { Some(push.clone()) } else { None }
    });
    // With a cable less both lead over the same ones, somewhere.
    assert!(!again.is_empty());
    for push in again {
        let known = pushes.iter().find(|it| it.flow == push.flow).expect("flows stay");
        assert!(most(&push) < most(known), "{push:?}");
        let role = known.role.clone();
        assert_eq!(Push { role, ..push }, *known, "the same order but for the rate");
    }
}

#[test]
fn when_all_have_it_the_trees_are_removed_and_what_the_source_sent_is_counted() {
    let (mut bench, pushes, _) = running();
    for push in &pushes {
        bench.say(SOURCE, ToController::GroupSent { flow: push.flow, sent: Symbols::new(100) });
    }
    assert_eq!(bench.news_of_cast().to_group, Bytes::new(200 * u64::from(pushes[0].symbol_size)));
    let requests = bench.requests.clone();
    for (n, request) in requests {
        let fetched = Fetched {
            request,
            end: FetchEnd::Kept,
            by_group: Bytes::mib(10),
            by_unicast: Bytes::ZERO,
            relayed: Bytes::ZERO,
            from: Vec::new(),
            files: Bytes::ZERO,
        };
        bench.say(n, ToController::Fetched(fetched));
    }
    let said = bench.heard(SOURCE);
    for push in &pushes {
        assert!(
            said.iter()
                .any(|it| matches!(it, Control::Source(ToSource::Stop { flow }) if *flow == push.flow))
        );
        bench.say(SOURCE, ToController::Stopped { flow: push.flow });
    }
    assert!(
        bench.heard(3).iter().filter(|it| matches!(it, Control::Node(ToNode::RemoveTree { .. }))).count()
            == 2
    );
    assert!(bench.now > Time::ZERO);
}
