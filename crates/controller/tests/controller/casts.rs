//! Casts: whom the controller tells, in which order a group comes to be, and what happens to those that are late or silent. `endings`: casts
//! that are stopped, receivers that are gone, and controllers that restart.

mod endings;

use std::collections::BTreeMap;

use headwater_controller::{ControllerCommand, ControllerConfig, GroupRange};
use headwater_units::{Bytes, FlowId, NodeId, PathId, Symbols};
use headwater_wire::{
    Cast, CastNews, CastRoute, CastWish, Class, Control, Delivery, FetchEnd, Fetched, FlowGrant, FlowRole,
    GroupQuestion, Invitation, MemberStanding, NodeInfo, Push, Refusal, Request, SYMBOL_OVERHEAD,
    ToController, ToNode, ToReceiver, ToSource, WhyUnicast,
};

use crate::harness::{Bench, assert_trees, by_stripe, in_rack, info, ms, node, request};

/// The asker is no node.
const ASKER: PathId = PathId(1000);
/// Has object 1.
const SOURCE: u8 = 1;

fn wanted(number: u64) -> Cast {
    Cast {
        cast: number,
        name: "object-1".to_owned(),
        to: Vec::new(),
        first: 0,
        of: 0,
        class: Class::Bulk,
        wish: CastWish::Best,
    }
}

/// Nodes that keep objects, beside the source.
fn keepers(nodes: impl IntoIterator<Item = u8>) -> Bench {
    keepers_with(ControllerConfig::default(), nodes)
}

fn keepers_with(config: ControllerConfig, nodes: impl IntoIterator<Item = u8>) -> Bench {
    let mut bench = Bench::with(config).holders([SOURCE]);
    for n in nodes {
        bench.join(n);
        bench.say(n, ToController::Keeps);
    }
    bench
}

impl Bench {
    /// Somebody asks for cast 1 to all.
    fn cast(&mut self) {
        self.say_at(ASKER, Control::Controller(ToController::Cast(wanted(1))));
    }

    /// Invitation of a node.
    fn invited(&mut self, n: u8) -> Option<Invitation> {
        let invitation = |control| {
            if let Control::Node(ToNode::Fetch(invitation)) = control { Some(*invitation) } else { None }
        };
        self.heard(n).into_iter().filter_map(invitation).next_back()
    }

    /// A node does as it is invited.
    fn follow(&mut self, n: u8) -> Invitation {
        let invitation = self.invited(n).expect("it is invited");
        self.say(n, ToController::Request(request(n, invitation.request, &invitation.name)));
        invitation
    }

    fn question(&mut self) -> Option<GroupQuestion> {
        let question = |control| {
            if let Control::Node(ToNode::ProbeGroup(question)) = control { Some(*question) } else { None }
        };
        self.heard(SOURCE).into_iter().find_map(question)
    }

    /// All of these are invited and ask, and these are heard; the group's order.
    fn opened(&mut self, asking: &[u8], hearing: &[u8]) -> Push {
        let own: Vec<(u8, FlowId)> =
            asking.iter().map(|n| (*n, self.follow(*n).group.expect("a group").own.flow)).collect();
        let question = self.question().expect("the source is to ask");
        let heard = own.iter().filter(|(n, _)| hearing.contains(n)).map(|(_, flow)| *flow).collect();
        self.say(SOURCE, ToController::GroupProbed { asked: question.asked.flow, heard });
        self.pushes(SOURCE).pop().expect("the source is to open the group")
    }

    /// Grant of a node, and its transport.
    fn granted(&mut self, n: u8) -> Option<(Delivery, Vec<FlowGrant>)> {
        self.heard(n).into_iter().find_map(|control| match control {
            Control::Receiver(ToReceiver::Accepted { delivery, flows, .. }) => Some((delivery, flows)),
            _ => None,
        })
    }

    fn end(&mut self, n: u8, request: u64, end: FetchEnd) {
        let (by_group, by_unicast) = (Bytes::mib(9), Bytes::mib(1));
        let (relayed, from, files) = (Bytes::ZERO, vec![(node(SOURCE), by_unicast)], Bytes::ZERO);
        self.say(
            n,
            ToController::Fetched(Fetched { request, end, by_group, by_unicast, relayed, from, files }),
        );
    }

    /// Last news for the asker.
    fn news(&mut self) -> Option<CastNews> {
        let all = std::mem::take(&mut self.sent);
        let (mine, rest) = all.into_iter().partition(|(path, _)| *path == ASKER);
        self.sent = rest;
        let mine: Vec<(PathId, Control)> = mine;
        let news = |(_, control)| {
            if let Control::Node(ToNode::Casting(news)) = control { Some(*news) } else { None }
        };
        mine.into_iter().filter_map(news).next_back()
    }

    fn route(&mut self) -> CastRoute {
        self.pass(ms(200));
        self.news().expect("news every 200 ms").route
    }
}

fn granted_flows(control: Control) -> Option<Vec<FlowGrant>> {
    match control {
        Control::Receiver(ToReceiver::Accepted { flows, .. } | ToReceiver::Flows { flows, .. }) => {
            Some(flows)
        }
        _ => None,
    }
}

fn standing(news: &CastNews, n: u8) -> &MemberStanding {
    &news.members.iter().find(|member| member.node == node(n)).expect("it is a receiver").standing
}

#[test]
fn all_are_told_at_once_probed_and_given_flows_of_one_group() {
    let mut bench = keepers([2, 3, 4]);
    bench.cast();
    let group = bench.opened(&[2, 3, 4], &[2, 3, 4]);
    assert_eq!(bench.now, headwater_units::Time::ZERO, "nobody is waited for who has answered");
    let FlowRole::Group { members } = &group.role else { panic!("{:?}", group.role) };
    assert_eq!((members.len(), group.delivery), (3, Delivery::Pull { initial_window: 64 }));
    assert_eq!(group.at[1..], info(2).data, "the interface that leads to a member");
    assert_eq!(
        bench.granted(2),
        None,
        "before the source has opened the group its members have nobody to ask"
    );

    bench.say(SOURCE, ToController::Pushing { flow: group.flow });
    let own = bench.pushes(SOURCE);
    let role = FlowRole::Member { group: group.flow };
    assert!(
        own.len() == 3 && own.iter().all(|push| push.role == role && push.symbol_size == group.symbol_size)
    );
    for n in [2, 3, 4] {
        let (delivery, grants) = bench.granted(n).unwrap();
        assert_eq!((delivery, grants.len()), (group.delivery, 2));
        assert_eq!((grants[0].group, grants[0].of), (Some(group.flow), 1));
        assert!(members.contains(&grants[0].flow) && own.iter().any(|push| push.key == grants[0].key));
        assert_eq!(
            (grants[1].flow, grants[1].key, &grants[1].at[..]),
            (group.flow, group.key, &group.at[..1])
        );
    }
    let of_members = CastRoute::Multicast { at: group.at[0], members: 3, of: 3 };
    assert_eq!(bench.route(), of_members);
}

#[test]
fn the_probe_is_as_long_as_the_symbols_that_follow_in_the_least_room() {
    let mut bench = keepers([2, 3]);
    bench.cast();
    let invitations: Vec<Invitation> = [2, 3].map(|n| bench.invited(n).unwrap()).into();
    for (n, room) in [(2, 1424), (3, 1000)] {
        let asked = request(n, invitations[usize::from(n) - 2].request, "object-1");
        bench.say(n, ToController::Request(Request { room, ..asked }));
    }
    let question = bench.question().unwrap();
    assert!((900..=1000 + SYMBOL_OVERHEAD as u16).contains(&question.bytes), "{}", question.bytes);
    let owns: Vec<FlowId> = invitations.iter().map(|it| it.group.clone().unwrap().own.flow).collect();
    assert_eq!(question.members.iter().map(|it| it.flow).collect::<Vec<_>>(), owns);
    assert_eq!(question.asked, invitations[0].group.clone().unwrap().asked);
    bench.say(SOURCE, ToController::GroupProbed { asked: question.asked.flow, heard: owns });
    let group = bench.pushes(SOURCE).pop().unwrap();
    assert_eq!(group.symbol_size + SYMBOL_OVERHEAD as u16, question.bytes);
}

#[test]
fn who_is_late_is_not_waited_for_and_served_alone() {
    let mut bench = keepers([2, 3, 4]);
    bench.cast();
    let own: Vec<FlowId> = [2, 3].map(|n| bench.follow(n).group.unwrap().own.flow).into();
    bench.pass(ms(299));
    assert_eq!(bench.question(), None);
    bench.pass(ms(1));
    let question = bench.question().expect("the others do not wait any longer");
    bench.say(SOURCE, ToController::GroupProbed { asked: question.asked.flow, heard: own });
    let group = bench.pushes(SOURCE).pop().unwrap();
    // It comes while the group is being opened, or any time later.
    bench.follow(4);
    assert_eq!(bench.granted(4), None);
    bench.say(SOURCE, ToController::Pushing { flow: group.flow });
    let (delivery, grants) = bench.granted(4).unwrap();
    assert_eq!((delivery, grants.len(), grants[0].group), (Delivery::Push, 1, None));
    assert!(bench.granted(2).is_some_and(|(_, grants)| grants[0].group == Some(group.flow)));
}

/// An invitation may have to be sent again, which takes some round trips.
#[test]
fn who_is_far_away_has_some_round_trips_to_answer() {
    let mut bench = keepers([2, 3]);
    bench.say(4, ToController::Hello(NodeInfo { rtt: Some(ms(250)), ..info(4) }));
    bench.say(4, ToController::Keeps);
    bench.cast();
    [2, 3].into_iter().for_each(|n| drop(bench.follow(n)));
    bench.pass(ms(999));
    assert_eq!(bench.question(), None);
    bench.follow(4);
    assert_eq!(bench.question().map(|question| question.members.len()), Some(3));
}

#[test]
fn who_cannot_fetch_is_not_waited_for() {
    let mut bench = keepers([2, 3, 4]);
    bench.cast();
    let refused = bench.invited(4).unwrap();
    [2, 3].into_iter().for_each(|n| drop(bench.follow(n)));
    assert_eq!(bench.question(), None);
    bench.end(4, refused.request, FetchEnd::Failed("the disk is full".to_owned()));
    assert_eq!(bench.question().map(|question| question.members.len()), Some(2));
    bench.pass(ms(200));
    let failed = MemberStanding::Failed("the disk is full".to_owned());
    assert_eq!(standing(&bench.news().unwrap(), 4), &failed);
}

#[test]
fn who_does_not_hear_the_group_is_served_alone() {
    let mut bench = keepers([2, 3, 4]);
    bench.cast();
    let group = bench.opened(&[2, 3, 4], &[2, 4]);
    bench.say(SOURCE, ToController::Pushing { flow: group.flow });
    assert!(bench.granted(3).is_some_and(|(delivery, _)| delivery == Delivery::Push));
    assert_eq!(bench.route(), CastRoute::Multicast { at: group.at[0], members: 2, of: 3 });
}

#[test]
fn where_multicast_does_not_work_and_is_wished_for_everybody_is_served_alone() {
    // One answer, none at all, no word of the source, a source that cannot.
    let whys = (0..4).map(|case| {
        let mut bench = keepers([2, 3, 4]);
        bench.say_at(
            ASKER,
            Control::Controller(ToController::Cast(Cast { wish: CastWish::Multicast, ..wanted(1) })),
        );
        let own = [2, 3, 4].map(|n| bench.follow(n).group.unwrap().own.flow);
        let asked = bench.question().unwrap().asked.flow;
        match case {
            0 => bench.say(SOURCE, ToController::GroupProbed { asked, heard: vec![own[0]] }),
            1 => bench.say(SOURCE, ToController::GroupProbed { asked, heard: Vec::new() }),
            2 => bench.pass(ms(1500)),
            _ => {
                bench.say(SOURCE, ToController::GroupProbed { asked, heard: own.to_vec() });
                let flow = bench.pushes(SOURCE)[0].flow;
                bench.say(SOURCE, ToController::PushRefused { flow, reason: Refusal::Full });
            }
        }
        for n in [2, 3, 4] {
            assert!(
                bench
                    .granted(n)
                    .is_some_and(|(delivery, flows)| delivery == Delivery::Push && flows.len() == 1)
            );
        }
        bench.route()
    });
    let unheard = CastRoute::Unicast(WhyUnicast::Unheard { of: 3 });
    let source = CastRoute::Unicast(WhyUnicast::Source);
    assert_eq!(whys.collect::<Vec<_>>(), [unheard, unheard, source, source]);
}

#[test]
fn where_multicast_does_not_work_receivers_pass_on_to_each_other() {
    let mut bench = keepers([2, 3, 4]);
    bench.cast();
    [2, 3, 4].into_iter().for_each(|n| _ = bench.follow(n));
    let asked = bench.question().unwrap().asked.flow;
    bench.say(SOURCE, ToController::GroupProbed { asked, heard: Vec::new() });
    let pushes: Vec<Push> = bench.pushes(SOURCE);
    let mut own: Vec<(NodeId, u8)> = pushes.iter().map(|push| (push.receiver, push.index)).collect();
    own.sort();
    assert_eq!(own, [(node(2), 0), (node(3), 1), (node(4), 2)], "another stripe to each");
    assert!(pushes.iter().all(|push| push.role == FlowRole::Single && push.of == 3));
    for (stripe, n) in (0..3).zip([2, 3, 4]) {
        let (mut on, mut granted) = (Vec::new(), None);
        for control in bench.heard(n) {
            match control {
                Control::Source(ToSource::Push(push)) => on.push(push),
                Control::Receiver(ToReceiver::Accepted { delivery, flows, .. }) => {
                    granted = Some((delivery, flows))
                }
                _ => {}
            }
        }
        assert!(on.iter().all(|push| push.role == FlowRole::Relay && (push.index, push.of) == (stripe, 3)));
        assert_eq!(on.len(), 2, "to both others");
        let (delivery, flows) = granted.unwrap();
        assert_eq!((delivery, flows.len()), (Delivery::Overlay { window: 16 }, 3));
        assert!(flows.iter().all(|flow| flow.relays == (flow.node != node(SOURCE))));
    }
    assert_eq!(
        bench.route(),
        CastRoute::Overlay { members: 3, why: WhyUnicast::Unheard { of: 3 }, racks: 0 }
    );
}

/// Receivers 2 and 3 stand in one rack, 4 and 5 in another, and pass it on to each other.
fn two_racks() -> Bench {
    let config = ControllerConfig { groups: Vec::new(), ..ControllerConfig::default() };
    let mut bench = Bench::with(config).holders([SOURCE]);
    for (n, rack) in [(2, "a"), (3, "a"), (4, "b"), (5, "b")] {
        bench.say(n, ToController::Hello(in_rack(n, rack)));
        bench.say(n, ToController::Keeps);
    }
    bench.cast();
    for n in 2..=5 {
        let number = bench.follow(n).request;
        bench.requests.push((n, number));
    }
    bench
}

#[test]
fn each_stripe_enters_each_rack_once_and_is_handed_on_there() {
    let mut bench = two_racks();
    let parents: BTreeMap<u8, Vec<u8>> =
        (2..=5).map(|n| (n, by_stripe(&bench.granted(n).unwrap().1))).collect();
    assert_trees(SOURCE, &parents);
    for rack in [[2, 3], [4, 5]] {
        let enters = |stripe: usize| rack.iter().filter(|n| !rack.contains(&parents[*n][stripe])).count();
        assert_eq!([0, 1, 2, 3].map(enters), [1; 4], "into {rack:?}");
    }
    assert_eq!(bench.route(), CastRoute::Overlay { members: 4, why: WhyUnicast::NoGroups, racks: 2 });

    // A receiver that comes late to a rack is served from within.
    bench.say(6, ToController::Hello(in_rack(6, "b")));
    bench.say(6, ToController::Request(Request { delivery: None, ..request(6, 77, "object-1") }));
    let parents = by_stripe(&bench.granted(6).unwrap().1);
    assert!(parents.len() == 4 && parents.iter().all(|n| [4, 5].contains(n)), "{parents:?}");
}

#[test]
fn a_running_cast_can_be_looked_at_and_its_news_say_who_gave_how_much() {
    let mut bench = two_racks();
    bench.pass(ms(700));
    let (first, second) = (bench.requests[0], bench.requests[1]);
    let (relayed, by_group) = (Bytes::mib(8), Bytes::ZERO);
    let from = vec![
        (node(SOURCE), Bytes::mib(2)),
        (node(3), Bytes::mib(5)),
        (node(4), Bytes::mib(3)),
        (node(99), relayed),
    ];
    let (by_unicast, files) = (Bytes::mib(10), Bytes::mib(70));
    let kept = Fetched { request: first.1, end: FetchEnd::Kept, by_group, by_unicast, relayed, from, files };
    bench.say(2, ToController::Fetched(kept.clone()));
    bench.say(2, ToController::Fetched(kept));
    bench.end(3, second.1, FetchEnd::Failed("the disk is full".to_owned()));
    bench.pass(ms(200));
    let news = bench.news().unwrap();
    assert_eq!(news.given, [(node(SOURCE), Bytes::mib(3))], "and a stranger nothing");
    let whole = news.members.iter().find(|it| it.node == node(2)).unwrap().bytes;
    assert_eq!(
        (news.bytes, news.files, whole),
        (Bytes::mib(10), files, Bytes::mib(80)),
        "a folder's files count"
    );
    assert_eq!(news.between_racks, Some(Bytes::mib(6)));
    let passed_on = |n: u8| news.members.iter().find(|it| it.node == node(n)).unwrap().passed_on;
    assert_eq!([2, 3, 4, 5].map(passed_on), [0, 5, 3, 0].map(Bytes::mib));

    let view = bench.view();
    let [cast] = &view.casts[..] else { panic!("one is running: {:?}", view.casts) };
    assert_eq!((cast.cast, cast.name.as_str(), cast.bytes), (1, "object-1", Bytes::mib(10)));
    assert_eq!((cast.of, cast.done, cast.failed, cast.source), (4, 1, 1, node(SOURCE)));
    assert!(matches!(cast.route, CastRoute::Overlay { racks: 2, .. }) && cast.age == ms(900));
}

#[test]
fn who_asks_while_others_pass_it_on_is_served_by_them() {
    let mut bench =
        keepers_with(ControllerConfig { groups: Vec::new(), ..ControllerConfig::default() }, [2, 3, 4]);
    bench.cast();
    [2, 3].into_iter().for_each(|n| _ = bench.follow(n));
    // All have places at once. The third takes too long to answer, and loses its own.
    assert_eq!(by_stripe(&bench.granted(2).unwrap().1), [1, 3, 4]);
    let task = bench.view().tasks.into_iter().find(|task| task.receiver == node(2)).unwrap().task;
    bench.pass(ms(299));
    assert_eq!(bench.sources(task), [1, 3, 4]);
    bench.pass(ms(101));
    assert_eq!(bench.sources(task), [1, 3, 3]);
    assert_eq!(bench.route(), CastRoute::Overlay { members: 3, why: WhyUnicast::NoGroups, racks: 0 });
    bench.follow(4);
    bench.join(5);
    bench.say(5, ToController::Request(Request { delivery: None, ..request(5, 77, "object-1") }));
    // The one that came before sends nothing yet, and passes it on; those before it send as much as they receive already.
    for (n, parents) in [(4, [2, 3, 2]), (5, [4, 4, 4])] {
        let (delivery, flows) = bench.granted(n).unwrap();
        assert_eq!((delivery, by_stripe(&flows)), (Delivery::Overlay { window: 16 }, parents.to_vec()));
    }
}

#[test]
fn who_is_asked_for_by_overlay_is_not_probed_and_one_alone_passes_nothing_on() {
    let mut bench = keepers([2, 3]);
    bench.say_at(
        ASKER,
        Control::Controller(ToController::Cast(Cast { wish: CastWish::Overlay, ..wanted(1) })),
    );
    assert_eq!(bench.follow(2).group, None);
    bench.pass(ms(400));
    assert!(bench.question().is_none());
    let task = bench.view().tasks[0].task;
    assert_eq!(bench.sources(task), [SOURCE; 4], "the other one never asks");
    assert_eq!(bench.route(), CastRoute::Overlay { members: 2, why: WhyUnicast::Wished, racks: 0 });

    let mut bench = keepers([2]);
    bench.say_at(
        ASKER,
        Control::Controller(ToController::Cast(Cast { wish: CastWish::Overlay, ..wanted(1) })),
    );
    assert_eq!(bench.follow(2).group, None);
    assert!(bench.granted(2).is_some_and(|(_, flows)| flows.len() == 1 && !flows[0].relays));
    assert_eq!(bench.route(), CastRoute::Unicast(WhyUnicast::TooFew));
}

#[test]
fn what_needs_no_group_is_begun_at_once() {
    let mut bench = keepers([2, 3]);
    bench.say_at(
        ASKER,
        Control::Controller(ToController::Cast(Cast { wish: CastWish::Unicast, ..wanted(1) })),
    );
    assert_eq!(bench.follow(2).group, None);
    assert!(bench.granted(2).is_some_and(|(delivery, _)| delivery == Delivery::Push));
    assert_eq!(bench.route(), CastRoute::Unicast(WhyUnicast::Wished));

    let mut bench = keepers([2]);
    bench.cast();
    assert_eq!(bench.follow(2).group, None);
    assert_eq!(bench.route(), CastRoute::Unicast(WhyUnicast::TooFew));
}

#[test]
fn two_casts_never_share_a_group() {
    let range = GroupRange { first: [239, 1, 1, 1].into(), count: 2, port: 9 };
    let config = ControllerConfig { groups: vec![range], ..ControllerConfig::default() };
    let mut bench = keepers_with(config, [2, 3]);
    let mut at = Vec::new();
    for number in 1..=3 {
        bench.say_at(ASKER, Control::Controller(ToController::Cast(wanted(number))));
        at.extend(bench.invited(2).unwrap().group.map(|group| group.at.to_string()));
    }
    at.sort();
    assert_eq!(at, ["239.1.1.1:9", "239.1.1.2:9"]);
    let without = CastRoute::Overlay { members: 2, why: WhyUnicast::NoGroups, racks: 0 };
    assert_eq!(bench.route(), without, "its receivers can do without");
    bench.say_at(ASKER, Control::Controller(ToController::StopCast { cast: 2 }));
    bench.say_at(ASKER, Control::Controller(ToController::Cast(wanted(4))));
    assert!(bench.invited(2).unwrap().group.is_some(), "an address is free again");
}

#[test]
fn a_cast_is_over_when_all_are_and_the_source_has_said_what_it_sent() {
    let mut bench = keepers([2, 3, 4]);
    bench.say(4, ToController::Hold(crate::harness::holding(1)));
    bench.cast();
    assert_eq!(bench.invited(4), None, "it has the object");
    let numbers: Vec<u64> = [2, 3]
        .map(|n| {
            let invitation = bench.follow(n);
            invitation.request
        })
        .into();
    let question = bench.question().unwrap();
    let heard = question.members.iter().map(|it| it.flow).collect();
    bench.say(SOURCE, ToController::GroupProbed { asked: question.asked.flow, heard });
    let group = bench.pushes(SOURCE).pop().unwrap();
    bench.say(SOURCE, ToController::Pushing { flow: group.flow });
    bench.end(2, numbers[0], FetchEnd::Kept);
    bench.pass(ms(250));
    bench.end(3, numbers[1], FetchEnd::Kept);
    let news = bench.news().unwrap();
    assert!(!news.over);
    bench.say(SOURCE, ToController::GroupSent { flow: group.flow, sent: Symbols::new(100) });
    bench.say(SOURCE, ToController::Stopped { flow: group.flow });
    let news = bench.news().unwrap();
    assert!(news.over);
    assert_eq!(news.to_group, Bytes::new(100 * u64::from(group.symbol_size)));
    use MemberStanding::{Had, Kept};
    assert_eq!([2, 3, 4].map(|n| standing(&news, n).clone()), [Kept, Kept, Had]);
    assert_eq!(news.members[1].after, ms(250));
    assert_eq!((news.members[1].by_group, news.members[1].by_unicast), (Bytes::mib(9), Bytes::mib(1)));
    bench.pass(ms(5000));
    assert_eq!(bench.news(), None);
}

#[test]
fn a_group_that_its_source_does_not_open_is_stopped_when_its_receivers_join_others() {
    let mut bench = keepers([2, 3, 4, 5]);
    let to = |nodes: [u8; 2]| nodes.map(node).to_vec();
    bench.say_at(
        ASKER,
        Control::Controller(ToController::Cast(Cast {
            to: to([2, 3]),
            wish: CastWish::Overlay,
            ..wanted(1)
        })),
    );
    [2, 3].iter().for_each(|n| drop(bench.follow(*n)));
    bench.say_at(ASKER, Control::Controller(ToController::Cast(Cast { to: to([4, 5]), ..wanted(2) })));
    let group = bench.opened(&[4, 5], &[4, 5]);
    bench.pass(ms(1500));
    assert_eq!(bench.stops(SOURCE), [group.flow]);
    for n in [4, 5] {
        let (_, grants) = bench.granted(n).unwrap();
        assert!(grants.iter().any(|grant| grant.relays), "{grants:?}");
    }
}

#[test]
fn a_receiver_that_is_forgotten_while_it_waits_passes_nothing_on() {
    let mut bench = keepers([2, 3, 4]);
    bench.say_at(
        ASKER,
        Control::Controller(ToController::Cast(Cast { wish: CastWish::Overlay, ..wanted(1) })),
    );
    [2, 3].iter().for_each(|n| drop(bench.follow(*n)));
    bench.lose_path(3);
    bench.command(ControllerCommand::ForgetNode { node: node(3) });
    bench.pass(ms(300));
    let grants: Vec<Vec<FlowGrant>> = bench.heard(2).into_iter().filter_map(granted_flows).collect();
    let grants = grants.last().expect("it is told whom to turn to");
    assert!(grants.iter().all(|grant| grant.node == node(SOURCE) && !grant.relays), "{grants:?}");
    let task = bench.view().tasks.into_iter().find(|task| task.receiver == node(2)).unwrap().task;
    assert_eq!(bench.sources(task), [SOURCE; 3], "all stripes come from the source");
}

#[test]
fn an_invitation_is_said_until_it_is_answered() {
    let mut bench = keepers([2, 3]);
    bench.cast();
    let said = |bench: &mut Bench| {
        bench.heard(2).iter().filter(|it| matches!(it, Control::Node(ToNode::Fetch(_)))).count()
    };
    assert_eq!(said(&mut bench), 1);
    bench.pass(ms(2000));
    assert_eq!(said(&mut bench), 2, "after 500 and 1500 ms");
    bench.pass(ms(2000));
    let number = bench.follow(2).request;
    bench.pass(ms(20_000));
    assert_eq!(said(&mut bench), 0);
    // The same question again finds the same cast.
    bench.open_as(PathId(1001), ASKER.0 as u8);
    bench.say_at(PathId(1001), Control::Controller(ToController::Cast(wanted(1))));
    assert!(
        bench
            .sent
            .iter()
            .any(|(path, it)| *path == PathId(1001) && matches!(it, Control::Node(ToNode::Casting(_))))
    );
    bench.end(2, number, FetchEnd::Kept);
    assert_eq!(said(&mut bench), 0);
}

#[test]
fn a_cast_to_nobody_of_nothing_or_to_strangers_is_refused_or_says_so() {
    let refusal = |bench: &mut Bench, cast: Cast| {
        bench.say_at(ASKER, Control::Controller(ToController::Cast(cast)));
        std::mem::take(&mut bench.sent).into_iter().find_map(|(_, control)| match control {
            Control::Node(ToNode::CastRefused { reason, .. }) => Some(reason),
            _ => None,
        })
    };
    assert_eq!(refusal(&mut keepers([]), wanted(1)), Some(Refusal::Nobody));
    let unknown = Cast { name: "nothing".to_owned(), ..wanted(1) };
    assert_eq!(refusal(&mut keepers([2]), unknown), Some(Refusal::UnknownObject));
    let mut bench = keepers([2]);
    bench.lose_path(SOURCE);
    assert_eq!(refusal(&mut bench, wanted(1)), Some(Refusal::NoSource));

    let mut bench = keepers([2]);
    bench.join(3);
    bench.say_at(
        ASKER,
        Control::Controller(ToController::Cast(Cast { to: vec![node(2), node(3), node(77)], ..wanted(1) })),
    );
    bench.pass(ms(200));
    let news = bench.news().unwrap();
    assert!(matches!(standing(&news, 3), MemberStanding::Failed(why) if why.contains("keeps no objects")));
    assert_eq!(standing(&news, 77), &MemberStanding::Away);
}

/// A source beside its controller says no address of its own: its receivers decide which family the group is of.
#[test]
fn a_source_beside_its_controller_has_a_group_of_its_receivers_family() {
    let beside = |n: u8| NodeInfo { data: vec!["[::]:7000".parse().unwrap()], ..info(n) };
    let by_six = |n: u8| NodeInfo { data: vec![format!("[fd00::{n}]:7000").parse().unwrap()], ..info(n) };
    for (receivers, ipv4) in [(info as fn(u8) -> NodeInfo, true), (by_six, false)] {
        let mut bench = Bench::new().holders([SOURCE]);
        bench.say(SOURCE, ToController::Hello(beside(SOURCE)));
        for n in [2, 3] {
            bench.say(n, ToController::Hello(receivers(n)));
            bench.say(n, ToController::Keeps);
        }
        bench.cast();
        let group = bench.invited(2).and_then(|invitation| invitation.group).expect("a group");
        assert_eq!((group.at.is_ipv4(), group.source), (ipv4, "[::]:7000".parse().unwrap()));
    }
}

#[test]
fn more_receivers_than_one_message_names_come_in_parts_and_begin_together() {
    let mut bench = keepers([2, 3, 4]);
    let part = |first: u32, nodes: &[u8]| {
        let to = nodes.iter().map(|n| node(*n)).collect();
        ToController::Cast(Cast { to, first, of: 3, wish: CastWish::Unicast, ..wanted(1) })
    };
    bench.say_at(ASKER, part(0, &[2, 3]));
    assert_eq!((bench.controller.running_casts(), bench.invited(2)), (0, None));
    bench.say_at(ASKER, part(0, &[2]));
    bench.say_at(ASKER, part(2, &[4]));
    assert_eq!(bench.controller.running_casts(), 0, "the third is not the second");
    bench.say_at(ASKER, part(1, &[3, 4]));
    assert!([2, 3, 4].iter().all(|n| bench.invited(*n).is_some()));
    // Said again, it is the same cast.
    bench.say_at(ASKER, part(0, &[2]));
    bench.say_at(ASKER, part(1, &[3, 4]));
    assert_eq!((bench.controller.running_casts(), bench.controller.stats().casts_accepted), (1, 1));
}

#[test]
fn whoever_asked_hears_at_once_of_whom_there_is_something_new_and_of_all_in_the_end() {
    let nodes: Vec<u8> = (2..=201).collect();
    let mut bench = keepers(nodes.clone());
    bench.say_at(
        ASKER,
        Control::Controller(ToController::Cast(Cast { wish: CastWish::Overlay, ..wanted(1) })),
    );
    let requests: Vec<u64> = nodes.iter().map(|n| bench.follow(*n).request).collect();
    let told = |bench: &mut Bench| -> Vec<CastNews> {
        let news = |(path, control)| match control {
            Control::Node(ToNode::Casting(news)) if path == ASKER => Some(*news),
            _ => None,
        };
        std::mem::take(&mut bench.sent).into_iter().filter_map(news).collect()
    };
    bench.pass(ms(200));
    let first = told(&mut bench);
    assert_eq!(first.iter().map(|news| news.members.len()).sum::<usize>(), 200, "all are new");
    bench.pass(ms(200));
    assert_eq!(told(&mut bench).len(), 1, "nothing is new");
    bench.end(150, requests[148], FetchEnd::Kept);
    bench.end(60, requests[58], FetchEnd::Failed("the disk is full".to_owned()));
    bench.pass(ms(200));
    let [news] = &told(&mut bench)[..] else { panic!("one message has room for it") };
    assert_eq!((news.members.len(), news.of, news.done, news.failed), (64, 200, 1, 1));
    assert_eq!((standing(news, 150), news.behind), (&MemberStanding::Kept, Bytes::ZERO));
    // Of all others too, in turn.
    let mut heard = std::collections::BTreeSet::new();
    for _ in 0..4 {
        bench.pass(ms(200));
        heard.extend(told(&mut bench).iter().flat_map(|news| &news.members).map(|member| member.node));
    }
    assert_eq!(heard.len(), 200);
    let open = |n: &u8| ![60, 150].contains(n);
    for (n, request) in nodes.iter().zip(&requests).filter(|(n, _)| open(n)) {
        bench.end(*n, *request, FetchEnd::Kept);
    }
    bench.pass(ms(600));
    let last = told(&mut bench);
    let over: Vec<bool> = last.iter().map(|news| news.over).collect();
    assert_eq!(over.iter().filter(|over| **over).count(), 1);
    let all = last.iter().rev().take(4).flat_map(|news| &news.members);
    assert_eq!((all.count(), over.last()), (200, Some(&true)), "the last word is of all");
}
