//! Casts at the rate that switches compute: where the controller chooses that, what the source is told, and what becomes of it where the
//! network does not keep its operator's word.

use headwater_controller::{ControllerConfig, HostAddresses, NetworkSpec};
use headwater_fabric::{BigSwitchSpec, FabricSpec, LinkDelay};
use headwater_units::{BitRate, Bytes, Duration, FlowId, PathId, Rank};
use headwater_wire::{
    AtRates, Cast, CastNews, CastRoute, CastWish, Class, Control, Delivery, FetchEnd, Fetched, FlowGrant,
    FlowRole, MemberStanding, Precedence, Push, Refusal, SCHEDULED_OVERHEAD, ToController, ToNode,
    ToReceiver, TransferOrder, TransferReport, Urgency, WhyUnscheduled,
};

use crate::harness::{Bench, info, ms, node, request};

/// The asker is no node.
const ASKER: PathId = PathId(1000);
/// Has object 1.
const SOURCE: u8 = 1;
const LINE: BitRate = BitRate::new(200_000_000);

fn wanted(number: u64, wish: CastWish) -> Cast {
    Cast {
        cast: number,
        name: "object-1".to_owned(),
        to: Vec::new(),
        first: 0,
        of: 0,
        class: Class::Bulk,
        wish,
    }
}

/// Nodes 1 to `hosts` on one switch, of which all but the source keep objects; the operator says what its ports do.
fn on_a_switch(hosts: u8, computes_rates: bool) -> Bench {
    let rate = LINE.into();
    let fabric = BigSwitchSpec {
        hosts: hosts.into(),
        rate,
        delay: LinkDelay::ZERO,
        uplinks: Default::default(),
        downlinks: Default::default(),
    };
    let address = |n: u8| HostAddresses::One(info(n).data[0].ip());
    let network = NetworkSpec {
        fabric: FabricSpec::BigSwitch(fabric),
        hosts: (1..=hosts).map(address).collect(),
        switches: Default::default(),
        trees: None,
        framing: Some(Bytes::new(14)),
        signalling: Default::default(),
        computes_rates,
        tolerated_queue: LinkDelay::ZERO,
    };
    let config = ControllerConfig { network: Some(network), ..ControllerConfig::default() };
    let mut bench = Bench::with(config).holders([SOURCE]);
    for n in 2..=hosts {
        bench.join(n);
        bench.say(n, ToController::Keeps);
    }
    bench
}

/// A cast that is being sent.
struct Running {
    bench: Bench,
    group: Push,
    /// The member's flow of each receiver.
    own: Vec<(u8, FlowId)>,
}

fn asked(bench: &mut Bench, cast: Cast) {
    bench.say_at(ASKER, Control::Controller(ToController::Cast(cast)));
}

/// A cast that matters like this.
fn asked_urgently(
    bench: &mut Bench,
    order: TransferOrder,
    deadline: Option<Duration>,
    drops_late: bool,
) -> Urgency {
    let urgency = Urgency { precedence: Precedence { order, drops_late }, deadline };
    let cast = wanted(1, CastWish::Rates);
    bench.say_at(ASKER, Control::Controller(ToController::UrgentCast(cast, urgency)));
    urgency
}

/// These follow the invitation and hear the group; the order to open it.
fn opened(bench: &mut Bench, receivers: &[u8]) -> Push {
    let mut heard = Vec::new();
    for n in receivers {
        let invited = bench.heard(*n).into_iter().find_map(|control| match control {
            Control::Node(ToNode::Fetch(invitation)) => Some(*invitation),
            _ => None,
        });
        let invitation = invited.expect("it is invited");
        heard.push(invitation.group.expect("there is a group").own.flow);
        bench.say(*n, ToController::Request(request(*n, invitation.request, &invitation.name)));
    }
    let asked = bench.heard(SOURCE).into_iter().find_map(|control| match control {
        Control::Node(ToNode::ProbeGroup(question)) => Some(question.asked.flow),
        _ => None,
    });
    let asked = asked.expect("the source is to ask who hears the group");
    bench.say(SOURCE, ToController::GroupProbed { asked, heard });
    bench.pushes(SOURCE).pop().expect("the source is to open the group")
}

fn granted(bench: &mut Bench, n: u8) -> Option<(u32, Delivery, Vec<FlowGrant>)> {
    bench.heard(n).into_iter().rev().find_map(|control| match control {
        Control::Receiver(ToReceiver::Accepted { version, delivery, flows, .. }) => {
            Some((version, delivery, flows))
        }
        _ => None,
    })
}

fn running(bench: Bench, cast: Cast, receivers: &[u8]) -> Running {
    let mut bench = bench;
    asked(&mut bench, cast);
    set_out(bench, receivers)
}

/// A cast that was asked for is sent.
fn set_out(mut bench: Bench, receivers: &[u8]) -> Running {
    let group = opened(&mut bench, receivers);
    bench.say(SOURCE, ToController::Pushing { flow: group.flow });
    bench.pushes(SOURCE);
    let own = receivers.iter().map(|n| {
        let (_, delivery, flows) = granted(&mut bench, *n).expect("it is granted its flows");
        assert_eq!(delivery, group.delivery);
        (*n, flows[0].flow)
    });
    let own = own.collect();
    bench.confirm();
    Running { bench, group, own }
}

fn news(bench: &mut Bench) -> CastNews {
    bench.pass(ms(200));
    let all = std::mem::take(&mut bench.sent);
    let mut said =
        all.into_iter().filter(|(path, _)| *path == ASKER).filter_map(|(_, control)| match control {
            Control::Node(ToNode::Casting(news)) => Some(*news),
            _ => None,
        });
    said.next_back().expect("news every 200 ms")
}

fn at_rates(bench: &mut Bench) -> AtRates {
    bench.pass(ms(200));
    let said = bench.sent.iter().rev().find_map(|(path, control)| match control {
        Control::Node(ToNode::CastAtRates { how, .. }) if *path == ASKER => Some(*how),
        _ => None,
    });
    said.expect("whoever asks is told")
}

fn refusal(bench: &Bench) -> Option<Refusal> {
    bench.sent.iter().find_map(|(_, control)| match control {
        Control::Node(ToNode::CastRefused { reason, .. }) => Some(reason.clone()),
        _ => None,
    })
}

fn report(flow: FlowId, mbps: u64) -> TransferReport {
    TransferReport {
        flow,
        rate: BitRate::new(mbps * 1_000_000),
        rank: Rank::of(7),
        left: Bytes::new(1_000_000),
        paused: None,
        least: None,
    }
}

#[test]
fn a_cast_goes_at_computed_rates_where_the_network_has_such_switches_and_nowhere_else() {
    let run = running(on_a_switch(4, true), wanted(1, CastWish::Best), &[2, 3, 4]);
    let Delivery::Rate { receivers: 3, deadline: None, terms: Some(terms) } = run.group.delivery else {
        panic!("{:?}", run.group.delivery);
    };
    assert_eq!((terms.link, terms.around), (Some(LINE), 14 + 28));
    assert!(matches!(&run.group.role, FlowRole::Group { members } if members.len() == 3));
    assert!(
        usize::from(run.group.symbol_size) + SCHEDULED_OVERHEAD <= 1424 + 48,
        "a datagram has more headers"
    );
    let mut bench = run.bench;
    assert_eq!(news(&mut bench).route, CastRoute::Rates { at: run.group.at[0], members: 3, of: 3 });

    // Nobody has said what the switches do: an asker that insists is told so, one that does not is served otherwise.
    let mut bench = on_a_switch(4, false);
    asked(&mut bench, wanted(1, CastWish::Rates));
    assert_eq!(refusal(&bench), Some(Refusal::Unscheduled(WhyUnscheduled::NotStated)));
    let mut bench = on_a_switch(4, false);
    asked(&mut bench, wanted(1, CastWish::Multicast));
    assert!(matches!(opened(&mut bench, &[2, 3, 4]).delivery, Delivery::Pull { .. }));
    let mut nobody_knows = Bench::new().holders([SOURCE]);
    nobody_knows.join(2);
    nobody_knows.say(2, ToController::Keeps);
    asked(&mut nobody_knows, wanted(1, CastWish::Rates));
    assert_eq!(refusal(&nobody_knows), Some(Refusal::Unscheduled(WhyUnscheduled::NotStated)));
}

#[test]
fn a_receiver_off_the_network_is_no_reason_to_believe_its_path() {
    let beyond = || {
        let mut bench = on_a_switch(3, true);
        bench.join(9);
        bench.say(9, ToController::Keeps);
        bench
    };
    let mut bench = beyond();
    asked(&mut bench, wanted(1, CastWish::Rates));
    assert_eq!(refusal(&bench), Some(Refusal::OffNetwork));
    let mut bench = beyond();
    let to = vec![node(2), node(3)];
    asked(&mut bench, Cast { to, of: 2, ..wanted(1, CastWish::Rates) });
    assert!(matches!(opened(&mut bench, &[2, 3]).delivery, Delivery::Rate { .. }));
}

#[test]
fn one_receiver_is_a_group_too() {
    let run = running(on_a_switch(2, true), wanted(1, CastWish::Rates), &[2]);
    assert!(matches!(run.group.delivery, Delivery::Rate { receivers: 1, .. }));
}

#[test]
fn the_source_is_told_who_goes_first_and_how_long_it_has() {
    let mut bench = on_a_switch(3, true);
    bench.pass(ms(5000));
    let urgency = asked_urgently(&mut bench, TransferOrder::EarliestDeadline, Some(ms(10_000)), true);
    bench.pass(ms(250));
    let Delivery::Rate { deadline, terms: Some(terms), .. } = opened(&mut bench, &[2, 3]).delivery else {
        panic!("it goes at computed rates");
    };
    assert_eq!((deadline, terms.precedence), (Some(ms(9750)), urgency.precedence));

    // The controller says which came first: sources have clocks of their own.
    let first_come = |after: u64| {
        let mut bench = on_a_switch(3, true);
        bench.pass(ms(after));
        asked_urgently(&mut bench, TransferOrder::FirstCome, None, false);
        match opened(&mut bench, &[2, 3]).delivery {
            Delivery::Rate { terms: Some(terms), .. } => terms.precedence.order,
            other => panic!("{other:?}"),
        }
    };
    let TransferOrder::Stated(older) = first_come(1000) else { panic!("a rank") };
    let TransferOrder::Stated(younger) = first_come(1001) else { panic!("a rank") };
    assert!(older < younger);
}

#[test]
fn who_asks_hears_the_rate_and_whom_it_waits_for() {
    let mut run = running(on_a_switch(4, true), wanted(1, CastWish::Rates), &[2, 3, 4]);
    let least = Some((run.own[1].1, BitRate::new(5_000_000)));
    let said = TransferReport { least, ..report(run.group.flow, 8) };
    run.bench.say(SOURCE, ToController::Transfers { transfers: vec![said] });
    let AtRates::Goes(told) = at_rates(&mut run.bench) else { panic!("it goes at computed rates") };
    assert_eq!((told.rate, told.least), (said.rate, Some((node(3), BitRate::new(5_000_000)))));
    // A megabyte at a megabyte a second.
    let finish = told.finish.expect("it is being sent");
    assert!(finish >= ms(1000) && finish < ms(1000) + ms(300), "{finish}");
    assert_eq!((told.paused, told.behind), (None, None));

    // Another one goes first.
    asked(&mut run.bench, Cast { to: vec![node(2)], of: 1, ..wanted(2, CastWish::Rates) });
    let other = opened(&mut run.bench, &[2]);
    run.bench.say(SOURCE, ToController::Pushing { flow: other.flow });
    let first = TransferReport { rank: Rank::of(3), ..report(other.flow, 200) };
    let waits = TransferReport { rate: BitRate::ZERO, paused: Some(ms(40)), ..said };
    run.bench.say(SOURCE, ToController::Transfers { transfers: vec![first, waits] });
    let told = run.bench.view().casts.into_iter().find(|cast| cast.cast == 1).and_then(|cast| cast.rates);
    let told = told.expect("it still goes at computed rates");
    assert_eq!((told.behind, told.finish), (Some(2), None));
    assert!(told.paused.is_some_and(|paused| paused >= ms(40)));
    // A report about a flow of no cast changes nothing.
    let stray = report(FlowId(4711), 1);
    run.bench.say(SOURCE, ToController::Transfers { transfers: vec![stray] });
    run.bench.say(3, ToController::Transfers { transfers: vec![report(run.group.flow, 1)] });
    assert_eq!(run.bench.view().casts[0].rates.as_ref().map(|it| it.rate), Some(BitRate::ZERO));
}

/// Goal: a network that does not keep its operator's word is found out, and everybody goes on with what is there.
#[test]
fn a_group_falls_back_to_pulls_once_and_its_members_go_on() {
    let Running { mut bench, group, own } =
        running(on_a_switch(4, true), wanted(1, CastWish::Best), &[2, 3, 4]);
    let reason = Refusal::Unscheduled(WhyUnscheduled::Loss);
    bench.say(SOURCE, ToController::PushRefused { flow: group.flow, reason: reason.clone() });
    let pulled = bench.pushes(SOURCE).pop().expect("the source is to open a pulled group");
    assert_eq!(pulled.delivery, Delivery::Pull { initial_window: 64 });
    assert_eq!(
        (pulled.at[0], pulled.symbol_size),
        (group.at[0], group.symbol_size),
        "what is here is of use"
    );
    assert_ne!(pulled.flow, group.flow);
    assert!(matches!(&pulled.role, FlowRole::Group { members } if members.len() == 3));
    assert!(granted(&mut bench, 2).is_none(), "before the source has opened it nobody is to ask");

    bench.say(SOURCE, ToController::Pushing { flow: pulled.flow });
    let stopped = bench.stops(SOURCE);
    bench.pass(ms(500));
    for (n, before) in &own {
        let (version, delivery, flows) = granted(&mut bench, *n).expect("it is told to begin anew");
        assert!(version > 0 && delivery == pulled.delivery, "{n}: {version}");
        assert_eq!(flows[0].group, Some(pulled.flow));
        assert!(stopped.contains(before) && !stopped.contains(&flows[0].flow));
    }
    let told = news(&mut bench);
    assert_eq!(told.route, CastRoute::Multicast { at: group.at[0], members: 3, of: 3 });
    assert_eq!(at_rates(&mut bench), AtRates::Left(WhyUnscheduled::Loss));
    assert_eq!(bench.controller.stats().casts_unscheduled, 1);
    // Said again, it is old news.
    bench.say(SOURCE, ToController::PushRefused { flow: group.flow, reason });
    assert!(bench.pushes(SOURCE).is_empty());
}

#[test]
fn a_source_that_cannot_open_the_pulled_group_serves_each_by_pulls() {
    let Running { mut bench, group, .. } = running(on_a_switch(3, true), wanted(1, CastWish::Best), &[2, 3]);
    let reason = Refusal::Unscheduled(WhyUnscheduled::StandingQueue);
    bench.say(SOURCE, ToController::PushRefused { flow: group.flow, reason });
    let pulled = bench.pushes(SOURCE).pop().expect("the source is to open a pulled group");
    bench.say(SOURCE, ToController::PushRefused { flow: pulled.flow, reason: Refusal::Full });
    let each = bench.pushes(SOURCE);
    assert_eq!(each.len(), 2);
    assert!(each.iter().all(|push| push.role == FlowRole::Single && push.delivery == pulled.delivery));
}

#[test]
fn a_receiver_that_was_left_behind_falls_back_alone() {
    let Running { mut bench, own, .. } = running(on_a_switch(3, true), wanted(1, CastWish::Best), &[2, 3]);
    let reason = Refusal::Unscheduled(WhyUnscheduled::Loss);
    bench.say(SOURCE, ToController::PushRefused { flow: own[0].1, reason });
    bench.pass(ms(600));
    let (_, delivery, flows) = granted(&mut bench, 2).expect("it is told to begin anew");
    assert_eq!((delivery, flows.len(), flows[0].group), (Delivery::Pull { initial_window: 64 }, 1, None));
    assert!(granted(&mut bench, 3).is_none(), "the others are served as before");
}

#[test]
fn receivers_that_are_late_are_given_up_only_if_that_was_wished_for() {
    for drops_late in [true, false] {
        let mut bench = on_a_switch(3, true);
        asked_urgently(&mut bench, TransferOrder::EarliestDeadline, Some(ms(1000)), drops_late);
        let Running { mut bench, .. } = set_out(bench, &[2, 3]);
        bench.pass(ms(700));
        assert_eq!(bench.view().tasks.len(), 2);
        bench.pass(ms(400));
        let told = news(&mut bench);
        let late =
            |it: &&MemberStanding| matches!(it, MemberStanding::Failed(why) if why.contains("deadline"));
        let failed = told.members.iter().map(|it| &it.standing).filter(late).count();
        assert_eq!((failed, bench.view().tasks.len()), if drops_late { (2, 0) } else { (0, 2) });
        bench.pass(ms(500));
        assert_eq!(news(&mut bench).over, drops_late);
    }
}

#[test]
fn a_cast_that_is_over_leaves_nothing_at_its_source() {
    let Running { mut bench, group, own } = running(on_a_switch(3, true), wanted(1, CastWish::Best), &[2, 3]);
    for (n, _) in own {
        let request = bench.view().tasks.iter().find(|it| it.receiver == node(n)).map(|it| it.task).unwrap();
        let number = bench.kept_request(request);
        let (by_group, by_unicast, relayed, files) = (Bytes::mib(10), Bytes::ZERO, Bytes::ZERO, Bytes::ZERO);
        let end = FetchEnd::Kept;
        let fetched =
            Fetched { request: number, end, by_group, by_unicast, relayed, from: Vec::new(), files };
        bench.say(n, ToController::Fetched(fetched));
    }
    bench.say(SOURCE, ToController::Stopped { flow: group.flow });
    bench.pass(Duration::from_secs(1));
    assert!(bench.view().casts.is_empty());
}

impl Bench {
    /// The request that a task was made for, by what was to be kept of it.
    fn kept_request(&mut self, task: headwater_units::TaskId) -> u64 {
        let kept = |event: &headwater_controller::ControllerEvent| match event {
            headwater_controller::ControllerEvent::Persist(record) if record.task == task => {
                Some(record.request)
            }
            _ => None,
        };
        self.events.iter().rev().find_map(kept).expect("every task is kept")
    }
}
