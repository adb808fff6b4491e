//! Casts that are stopped, receivers that go and come back, and controllers that restart.

use headwater_controller::{ControllerCommand, ControllerEvent};
use headwater_units::{FlowId, Symbols};
use headwater_wire::{
    Cast, Control, FetchEnd, MemberStanding, NodeInfo, Push, ToController, ToNode, ToReceiver,
};

use super::{ASKER, SOURCE, keepers, standing, wanted};
use crate::harness::{Bench, info, ms, node, request};

#[test]
fn only_whoever_asked_can_stop_it_and_then_all_is_stopped() {
    let mut bench = keepers([2, 3]);
    bench.cast();
    let group = bench.opened(&[2, 3], &[2, 3]);
    bench.say(SOURCE, ToController::Pushing { flow: group.flow });
    bench.say(2, ToController::StopCast { cast: 1 });
    assert_eq!((bench.controller.stats().strangers, bench.controller.running_tasks()), (1, 2));
    bench.say_at(ASKER, Control::Controller(ToController::StopCast { cast: 1 }));
    assert_eq!(bench.controller.running_tasks(), 0);
    for n in [2, 3] {
        assert!(
            bench.heard(n).iter().any(|control| matches!(control, Control::Node(ToNode::StopFetch { .. })))
        );
    }
    bench.pass(ms(500));
    assert!(bench.news().is_some_and(|news| news.over), "the source's silence is not waited for long");
    let stops = bench.stops(SOURCE);
    assert!(stops.len() >= 3 && stops.contains(&group.flow), "{stops:?}");
}

/// A receiver had asked, or had not yet, when the cast was stopped: what comes of that later begins nothing.
#[test]
fn a_request_that_comes_when_its_cast_is_over_begins_no_task() {
    let mut bench = keepers([2, 3]);
    bench.cast();
    let invitations = [2, 3].map(|n| (n, bench.invited(n).expect("it is invited")));
    let ask = |bench: &mut Bench, n: u8| {
        let (_, invitation) = invitations.iter().find(|it| it.0 == n).unwrap();
        bench.say(n, ToController::Request(request(n, invitation.request, &invitation.name)));
    };
    ask(&mut bench, 2);
    bench.say_at(ASKER, Control::Controller(ToController::StopCast { cast: 1 }));
    bench.pass(ms(500));
    assert!(bench.news().is_some_and(|news| news.over));
    for n in [2, 3] {
        bench.heard(n);
        ask(&mut bench, n);
        let heard = bench.heard(n);
        let refused = |it: &Control| matches!(it, Control::Receiver(ToReceiver::Refused { .. }));
        assert!(heard.iter().any(refused), "{heard:?}");
    }
    assert_eq!((bench.controller.running_tasks(), bench.controller.stats().requests_late), (0, 2));
}

/// A receiver had reported when the cast was stopped, or its connection broke and it has not heard of the end: it is told to stop, and not
/// that its task is unknown, for which it would ask anew.
#[test]
fn a_receiver_that_reports_when_its_cast_was_stopped_is_told_so_again() {
    let mut bench = keepers([2, 3]);
    bench.cast();
    let group = bench.opened(&[2, 3], &[2, 3]);
    bench.say(SOURCE, ToController::Pushing { flow: group.flow });
    let view = bench.view();
    let task = |n: u8| view.tasks.iter().find(|task| task.receiver == node(n)).unwrap().task;
    bench.lose_path(3);
    bench.heard(2);
    bench.say_at(ASKER, Control::Controller(ToController::StopCast { cast: 1 }));
    let stops = |heard: Vec<Control>| -> Vec<u64> {
        let stop = |control| match control {
            Control::Node(ToNode::StopFetch { request }) => Some(request),
            Control::Receiver(ToReceiver::UnknownTask { .. }) => panic!("it would ask anew"),
            _ => None,
        };
        heard.into_iter().filter_map(stop).collect()
    };
    let first = stops(bench.heard(2));
    assert_eq!(first.len(), 1);
    bench.feedback(2, task(2), 100, 1, vec![]);
    assert_eq!(stops(bench.heard(2)), first);
    bench.pass(ms(500));
    assert!(bench.news().is_some_and(|news| news.over));
    bench.say(3, ToController::Hello(info(3)));
    bench.heard(3);
    bench.feedback(3, task(3), 100, 1, vec![]);
    assert_eq!(stops(bench.heard(3)).len(), 1);

    // Of a task of somebody else nobody learns anything.
    bench.feedback(3, task(2), 100, 1, vec![]);
    let unknown = Control::Receiver(ToReceiver::UnknownTask { task: task(2) });
    assert_eq!(bench.heard(3), [unknown]);
}

#[test]
fn who_comes_back_is_told_anew_and_who_stays_away_is_given_up() {
    let mut bench = keepers([2, 3, 4]);
    bench.cast();
    let first = bench.follow(2);
    bench.lose_path(3);
    bench.lose_path(4);
    bench.say(3, ToController::Hello(info(3)));
    let again = bench.invited(3).unwrap();
    bench.say(2, ToController::Hello(NodeInfo { incarnation: 2, ..info(2) }));
    bench.pass(ms(200));
    let anew = bench.invited(2).expect("its new life knows nothing of it");
    assert_ne!(anew.request, first.request);
    assert_ne!(anew.request, again.request);
    bench.pass(ms(9_700));
    assert_eq!(standing(&bench.news().unwrap(), 4), &MemberStanding::Invited);
    bench.pass(ms(400));
    assert_eq!(standing(&bench.news().unwrap(), 4), &MemberStanding::Away);
}

/// Its connection was lost for long, as happens on a machine that has too much to do; its fetch went on meanwhile.
#[test]
fn who_was_given_up_and_comes_back_before_the_others_are_through_counts_as_any() {
    let mut bench = keepers([2, 3, 4]);
    bench.cast();
    let invitations = [2, 3, 4].map(|n| bench.follow(n));
    bench.lose_path(3);
    bench.lose_path(4);
    bench.pass(ms(10_500));
    let news = bench.news().unwrap();
    assert_eq!([3, 4].map(|n| standing(&news, n)), [&MemberStanding::Away; 2]);
    assert_eq!(
        (news.failed, news.over, bench.controller.running_tasks()),
        (2, false, 3),
        "their flows go on"
    );

    bench.say(3, ToController::Hello(info(3)));
    bench.pass(ms(500));
    let again = bench.invited(3).expect("it is asked what has come of it");
    assert_eq!(again.request, invitations[1].request);
    let news = bench.news().unwrap();
    assert_eq!((standing(&news, 3), news.failed), (&MemberStanding::Receiving, 1));

    for n in [2, 3] {
        bench.end(n, invitations[usize::from(n) - 2].request, FetchEnd::Kept);
    }
    bench.pass(ms(500));
    let news = bench.news().unwrap();
    assert_eq!((news.over, news.done, news.failed), (true, 2, 1));
    assert_eq!(standing(&news, 4), &MemberStanding::Away);
    bench.say(4, ToController::Hello(info(4)));
    bench.say(4, ToController::Request(request(4, invitations[2].request, &invitations[2].name)));
    assert_eq!(bench.controller.stats().requests_late, 1, "nobody waits for it any more");
}

/// The cast is forgotten by a controller that restarts; its receivers are served on.
#[test]
fn members_of_a_group_outlast_their_controller() {
    let mut before = keepers([2, 3]);
    before.cast();
    let group = before.opened(&[2, 3], &[2, 3]);
    before.say(SOURCE, ToController::Pushing { flow: group.flow });
    let pushed = before.pushes(SOURCE);
    let records: Vec<_> = std::mem::take(&mut before.events)
        .into_iter()
        .filter_map(|event| match event {
            ControllerEvent::Persist(record) => Some(record),
            _ => None,
        })
        .collect();
    assert_eq!(records.len(), 2);

    let mut bench = Bench::new();
    records.into_iter().for_each(|record| bench.command(ControllerCommand::Restore(record)));
    bench = bench.holders([SOURCE]);
    let again = bench.pushes(SOURCE);
    let orders = |pushes: &[Push]| {
        let mut orders: Vec<_> = pushes.iter().map(|push| (push.flow, push.key, push.role.clone())).collect();
        orders.sort_by_key(|order| order.0);
        orders
    };
    assert_eq!(orders(&again), orders(&pushed), "the source is to know them again");
    bench.say(SOURCE, ToController::GroupSent { flow: group.flow, sent: Symbols::new(5) });
    assert!(bench.stops(SOURCE).is_empty());
    bench.say(SOURCE, ToController::GroupSent { flow: FlowId(4711), sent: Symbols::new(5) });
    assert_eq!(bench.stops(SOURCE), [FlowId(4711)], "a group of which nobody knows is of no use");
}

#[test]
fn after_a_restart_receivers_that_have_not_come_back_yet_are_not_given_up_at_once() {
    for returned in [true, false] {
        let mut bench = Bench::new();
        if returned {
            bench.command(ControllerCommand::Returned);
        }
        let mut bench = bench.holders([SOURCE]);
        for n in [2, 3] {
            bench.join(n);
            bench.say(n, ToController::Keeps);
        }
        let to = vec![node(2), node(3), node(4)];
        bench.say_at(ASKER, Control::Controller(ToController::Cast(Cast { to, ..wanted(1) })));
        bench.pass(ms(200));
        let expected = if returned { MemberStanding::Invited } else { MemberStanding::Away };
        assert_eq!(standing(&bench.news().unwrap(), 4), &expected);
        bench.join(4);
        bench.say(4, ToController::Keeps);
        bench.pass(ms(200));
        assert_eq!(bench.invited(4).is_some(), returned);
    }
}
