//! Objects that names stand for: they never go back, whichever node comes first, and nobody takes one from a node that
//! is here.

use headwater_controller::{ControllerCommand, ControllerConfig, ControllerEvent, NameRecord};
use headwater_units::Bytes;
use headwater_wire::{
    Claim, ClaimRule, Control, Holding, NameStands, Naming, NodeInfo, Refusal, ToController, ToNode,
    ToReceiver,
};

use crate::harness::{Bench, holding, info, ms, node, object, request};

fn unnamed(n: u8) -> Control {
    Control::Controller(ToController::Hold(Holding { name: None, ..holding(n) }))
}

fn naming(n: u8, generation: u64, owner: u8) -> Naming {
    Naming { name: "prod".into(), object: object(n), generation, owner: node(owner) }
}

fn claim(n: u8, number: u64, rule: ClaimRule) -> Control {
    Control::Controller(ToController::Claim(Claim {
        number,
        name: "prod".into(),
        object: object(n),
        at_least: 1,
        rule,
    }))
}

/// Node `of` holds object `n` by its name, as it was granted.
fn say_named(bench: &mut Bench, of: u8, naming: Naming) {
    bench.say(of, unnamed(naming.object.0[0]));
    bench.say(of, ToController::Named(naming));
}

/// Node `of` has object `n`, wants the name for it, and hears what the name stands for then.
fn claimed(bench: &mut Bench, of: u8, n: u8, rule: ClaimRule) -> Option<NameStands> {
    bench.say(of, unnamed(n));
    bench.heard(of);
    bench.say(of, claim(n, 77, rule));
    told(bench, of)
}

fn told(bench: &mut Bench, of: u8) -> Option<NameStands> {
    let stands =
        |control| if let Control::Node(ToNode::NameStands(stands)) = control { Some(*stands) } else { None };
    bench.heard(of).into_iter().find_map(stands)
}

fn names(bench: &Bench) -> Vec<(u8, String)> {
    let view = bench.view();
    let of = |o: &headwater_controller::ObjectView| (o.object.0[0], o.names.clone());
    let named = view.objects.iter().map(of);
    named.flat_map(|(n, names)| names.into_iter().map(move |name| (n, name))).collect()
}

fn got(bench: &mut Bench, number: u64) -> u8 {
    bench.ask(9, request(9, number, "prod")).object.0[0]
}

fn kept(bench: &mut Bench) -> Vec<NameRecord> {
    let of = |event| if let ControllerEvent::NameChanged(record) = event { Some(*record) } else { None };
    std::mem::take(&mut bench.events).into_iter().filter_map(of).collect()
}

#[test]
fn a_higher_generation_holds_in_whichever_order_its_holders_come() {
    for order in [[1, 2], [2, 1]] {
        let mut bench = Bench::new();
        for n in order {
            bench.join(n);
            say_named(&mut bench, n, naming(n, u64::from(n), 2));
        }
        assert_eq!(got(&mut bench, 1), 2, "{order:?}");
        assert_eq!(names(&bench), [(2, "prod".to_owned())]);
        // The one with the older object is told, whether it came first or last.
        assert_eq!(told(&mut bench, 1).unwrap().naming, naming(2, 2, 2));
    }
}

#[test]
fn of_two_that_were_given_at_the_same_time_all_choose_the_same() {
    for order in [[1, 2], [2, 1]] {
        let mut bench = Bench::new();
        for n in order {
            bench.join(n);
            say_named(&mut bench, n, naming(n, 5, n));
        }
        assert_eq!(got(&mut bench, 1), 2, "{order:?}");
    }
}

#[test]
fn after_a_restart_an_old_holder_that_comes_first_does_not_bring_the_old_object_back() {
    let mut before = Bench::new();
    for n in [1, 2] {
        before.join(n);
    }
    assert_eq!(claimed(&mut before, 1, 1, ClaimRule::Give).unwrap().naming, naming(1, 1, 1));
    assert_eq!(claimed(&mut before, 2, 1, ClaimRule::Copy).unwrap().naming, naming(1, 1, 1));
    assert_eq!(claimed(&mut before, 1, 2, ClaimRule::Give).unwrap().naming, naming(2, 2, 1));
    let records = kept(&mut before);
    assert_eq!(records.last().unwrap(), &NameRecord { naming: naming(2, 2, 1), removed: false });

    let mut after = Bench::new();
    after.command(ControllerCommand::Returned);
    for record in records {
        after.command(ControllerCommand::RestoreName(Box::new(record)));
    }
    after.join(2);
    say_named(&mut after, 2, naming(1, 1, 1));
    assert_eq!(told(&mut after, 2).unwrap().naming, naming(2, 2, 1), "it is told that its name is old");
    after.say(9, headwater_wire::Control::Controller(ToController::Request(request(9, 1, "prod"))));
    assert!(after.heard(9).is_empty(), "whoever has the new one is waited for");
    after.join(1);
    say_named(&mut after, 1, naming(2, 2, 1));
    let accepted = |c: &Control| matches!(c, Control::Receiver(ToReceiver::Accepted { object: o, .. }) if *o == object(2));
    assert!(after.heard(9).iter().any(accepted));
    assert!(kept(&mut after).is_empty(), "nothing has changed");
}

#[test]
fn a_name_whose_new_object_nobody_has_brought_back_has_no_source() {
    let mut bench = Bench::new();
    let record = NameRecord { naming: naming(2, 2, 1), removed: false };
    bench.command(ControllerCommand::RestoreName(Box::new(record)));
    bench.join(3);
    say_named(&mut bench, 3, naming(1, 1, 1));
    bench.say(9, ToController::Request(request(9, 1, "prod")));
    let refused = bench.heard(9);
    assert!(
        matches!(refused[..], [Control::Receiver(ToReceiver::Refused { reason: Refusal::NoSource, .. })]),
        "{refused:?}"
    );
}

#[test]
fn a_name_is_not_taken_while_its_owner_is_here_and_the_claimer_is_told_who_that_is() {
    let mut bench = Bench::new();
    bench.join(1);
    bench.join(2);
    claimed(&mut bench, 1, 1, ClaimRule::Give).unwrap();
    for rule in [ClaimRule::Copy, ClaimRule::Give, ClaimRule::Replace] {
        let told = claimed(&mut bench, 2, 2, rule).unwrap();
        assert_eq!((told.claim, told.naming), (Some(77), naming(1, 1, 1)), "{rule:?}");
        assert_eq!(told.owner_is, "node-1");
    }
    assert_eq!(bench.controller.stats().names_refused, 3);
    assert_eq!(got(&mut bench, 1), 1);
    // The same bytes are free, and the owner stays.
    assert_eq!(claimed(&mut bench, 2, 1, ClaimRule::Give).unwrap().naming, naming(1, 1, 1));
    // Its owner moves it.
    assert_eq!(claimed(&mut bench, 1, 3, ClaimRule::Give).unwrap().naming, naming(3, 2, 1));
    assert_eq!(told(&mut bench, 2).unwrap().naming, naming(3, 2, 1), "who has a copy hears of it");
    assert_eq!(got(&mut bench, 2), 3);
}

#[test]
fn a_name_whose_owner_has_gone_is_taken_but_from_living_copies_only_explicitly() {
    let mut bench = Bench::new();
    for n in [1, 2, 3] {
        bench.join(n);
    }
    claimed(&mut bench, 1, 1, ClaimRule::Give).unwrap();
    claimed(&mut bench, 2, 1, ClaimRule::Copy).unwrap();
    bench.lose_path(1);
    assert_eq!(claimed(&mut bench, 3, 3, ClaimRule::Give).unwrap().naming, naming(1, 1, 1));
    assert_eq!(claimed(&mut bench, 3, 3, ClaimRule::Replace).unwrap().naming, naming(3, 2, 3));
    // The former owner comes back with what it had.
    bench.join(1);
    say_named(&mut bench, 1, naming(1, 1, 1));
    assert_eq!(told(&mut bench, 1).unwrap().naming, naming(3, 2, 3));
    assert_eq!(got(&mut bench, 1), 3);
    // With nobody else here, nothing need be said.
    [2, 3].into_iter().for_each(|n| bench.lose_path(n));
    assert_eq!(claimed(&mut bench, 1, 4, ClaimRule::Give).unwrap().naming, naming(4, 3, 1));
}

#[test]
fn after_a_restart_a_claim_waits_for_the_owner_to_come_back() {
    let restarted = || {
        let mut bench = Bench::new();
        bench.command(ControllerCommand::Returned);
        let record = NameRecord { naming: naming(1, 4, 1), removed: false };
        bench.command(ControllerCommand::RestoreName(Box::new(record)));
        bench.join(2);
        assert_eq!(claimed(&mut bench, 2, 2, ClaimRule::Replace), None);
        bench
    };
    let mut bench = restarted();
    bench.join(1);
    say_named(&mut bench, 1, naming(1, 4, 1));
    assert_eq!(told(&mut bench, 2).unwrap().naming, naming(1, 4, 1), "refused: it is back");
    let mut bench = restarted();
    bench.pass(ControllerConfig::default().restore_grace + ms(1));
    assert_eq!(told(&mut bench, 2).unwrap().naming, naming(2, 5, 2), "granted: it is not");
}

#[test]
fn a_name_that_its_last_holder_removes_is_gone_and_only_the_same_object_brings_it_back() {
    let mut bench = Bench::new();
    [1, 2].into_iter().for_each(|n| bench.join(n));
    claimed(&mut bench, 1, 1, ClaimRule::Give).unwrap();
    claimed(&mut bench, 1, 2, ClaimRule::Give).unwrap();
    claimed(&mut bench, 2, 2, ClaimRule::Copy).unwrap();
    kept(&mut bench);
    let unname = || Control::Controller(ToController::Unname { object: object(2), name: "prod".into() });
    bench.say(1, unname());
    assert_eq!(names(&bench), [(2, "prod".to_owned())], "a copy stays");
    bench.say(2, unname());
    assert_eq!(names(&bench), []);
    assert_eq!(kept(&mut bench), [NameRecord { naming: naming(2, 2, 1), removed: true }]);
    bench.say(9, ToController::Request(request(9, 1, "prod")));
    assert!(matches!(
        bench.heard(9)[..],
        [Control::Receiver(ToReceiver::Refused { reason: Refusal::UnknownObject, .. })]
    ));
    say_named(&mut bench, 2, naming(1, 1, 1));
    assert_eq!(names(&bench), [], "nothing older comes back");
    say_named(&mut bench, 2, naming(2, 2, 1));
    assert_eq!(names(&bench), [(2, "prod".to_owned())]);
}

#[test]
fn a_removed_name_is_given_anew_with_a_higher_generation() {
    let mut bench = Bench::new();
    bench.join(1);
    bench.join(2);
    claimed(&mut bench, 1, 1, ClaimRule::Give).unwrap();
    bench.say(1, ToController::Unname { object: object(1), name: "prod".into() });
    assert_eq!(claimed(&mut bench, 2, 2, ClaimRule::Give).unwrap().naming, naming(2, 2, 2));
}

#[test]
fn what_is_said_without_a_generation_gives_way_to_what_has_one() {
    let named =
        |n: u8| Control::Controller(ToController::Hold(Holding { name: Some("prod".into()), ..holding(n) }));
    let mut bench = Bench::new();
    [1, 2, 3].into_iter().for_each(|n| bench.join(n));
    bench.say(1, named(1));
    bench.say(2, named(2));
    assert_eq!(got(&mut bench, 1), 1, "the first one holds while it is here");
    bench.say(1, ToController::Hello(NodeInfo { incarnation: 2, ..info(1) }));
    bench.say(2, named(2));
    assert_eq!(got(&mut bench, 2), 2, "it has come back without it");
    say_named(&mut bench, 3, naming(3, 1, 3));
    assert_eq!(got(&mut bench, 3), 3);
    bench.say(2, named(2));
    assert_eq!(got(&mut bench, 4), 3);
}

#[test]
fn an_id_stands_for_that_object_or_nothing() {
    let mut bench = Bench::new().holders([1]);
    let id = object(7).to_string();
    bench.say(1, unnamed(2));
    let claim = Claim { number: 1, name: id.clone(), object: object(2), at_least: 1, rule: ClaimRule::Give };
    bench.say(1, ToController::Claim(claim));
    bench.say(9, ToController::Request(request(9, 1, &id)));
    let refused = bench.heard(9);
    assert!(
        matches!(
            refused[..],
            [Control::Receiver(ToReceiver::Refused { reason: Refusal::UnknownObject, .. })]
        ),
        "{refused:?}"
    );
}

#[test]
fn removed_names_make_room_for_new_ones_and_need_not_be_kept() {
    let config = ControllerConfig { max_names: 2, ..ControllerConfig::default() };
    let mut bench = Bench::with(config);
    bench.join(1);
    bench.say(1, unnamed(1));
    let of = |name: &str, number| {
        let rule = ClaimRule::Give;
        Control::Controller(ToController::Claim(Claim {
            number,
            name: name.into(),
            object: object(1),
            at_least: 1,
            rule,
        }))
    };
    bench.say(1, of("a", 1));
    bench.say(1, of("b", 2));
    bench.say(1, of("c", 3));
    assert_eq!((names(&bench).len(), bench.controller.stats().names_refused), (2, 1));
    bench.say(1, ToController::Unname { object: object(1), name: "a".into() });
    bench.say(1, of("c", 4));
    assert_eq!(names(&bench), [(1, "b".to_owned()), (1, "c".to_owned())]);
    assert!(bench.events.contains(&ControllerEvent::NameForgotten { name: "a".into() }));
}

#[test]
fn what_this_controller_has_granted_no_other_word_takes_while_its_owner_is_here() {
    let mut bench = Bench::new();
    bench.join(1);
    bench.join(2);
    assert_eq!(claimed(&mut bench, 1, 1, ClaimRule::Give).unwrap().naming, naming(1, 1, 1));
    say_named(&mut bench, 2, naming(2, u64::MAX, 2));
    say_named(&mut bench, 2, naming(1, u64::MAX, 2));
    assert_eq!(names(&bench), [(1, "prod".to_owned())]);
    assert_eq!(told(&mut bench, 2).unwrap().naming, naming(1, 1, 1), "who says so hears what stands");
    // Once its owner is away, what another controller may have granted since counts.
    bench.lose_path(1);
    say_named(&mut bench, 2, naming(2, 2, 2));
    assert_eq!(names(&bench), [(2, "prod".to_owned())]);
}

#[test]
fn no_node_has_more_than_its_part_of_the_bytes_of_names() {
    let config = ControllerConfig { max_name_bytes: Bytes::new(8 * 30), ..ControllerConfig::default() };
    let mut bench = Bench::with(config);
    bench.join(1);
    for n in 1..=9_u8 {
        let name = Some(format!("{n:010}"));
        bench.say(1, ToController::Hold(Holding { name, ..holding(n) }));
    }
    let named = |bench: &Bench, n: u8| names(bench).iter().any(|(it, _)| *it == n);
    assert_eq!((1..=9).filter(|n| named(&bench, *n)).count(), 3, "three names of ten bytes");
    assert_eq!(bench.view().objects.len(), 9, "what has no name is held all the same");
    bench.join(2);
    bench.say(2, ToController::Hold(Holding { name: Some("another's".into()), ..holding(20) }));
    assert!(named(&bench, 20));
    // Objects that it gives up make room.
    bench.say(1, ToController::Drop { object: object(1) });
    bench.say(1, ToController::Hold(Holding { name: Some(format!("{:010}", 9)), ..holding(9) }));
    assert!(named(&bench, 9));
}
