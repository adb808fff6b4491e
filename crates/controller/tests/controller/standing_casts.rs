//! Standing casts: who of those that come is sent what, and who may end it.

use std::collections::BTreeMap;

use headwater_controller::{ControllerCommand, ControllerEvent, StandingRecord};
use headwater_units::{Duration, PathId};
use headwater_wire::{Control, NodeInfo, Refusal, StandingCast, ToController, ToNode};

use crate::harness::{Bench, holding, info, ms, node};

/// The asker is no node.
const ASKER: PathId = PathId(200);
/// Nodes have settled, and a cast has begun.
const SETTLED: Duration = Duration::from_millis(1_100);

fn to_zone(zone: &str) -> StandingCast {
    let labels = [("zone".to_owned(), zone.to_owned())].into_iter().filter(|_| !zone.is_empty()).collect();
    StandingCast { name: "object-1".to_owned(), labels }
}

impl Bench {
    fn standing(&mut self, by: PathId, cast: StandingCast, stands: bool) -> Result<(), Refusal> {
        self.say_at(by, ToController::StandingCast { number: 7, cast, stands });
        let mut answers = self.heard(by.0 as u8);
        match answers.pop() {
            Some(Control::Node(ToNode::StandingCastChanged { number: 7 })) => Ok(()),
            Some(Control::Node(ToNode::CastRefused { cast: 7, reason })) => Err(reason),
            other => panic!("no answer: {other:?}"),
        }
    }

    /// A node comes that keeps objects.
    fn come(&mut self, n: u8, zone: &str) {
        let labels = [("zone".to_owned(), zone.to_owned())].into();
        self.say(n, ToController::Hello(NodeInfo { labels, ..info(n) }));
        self.say(n, ToController::Keeps);
    }

    /// Invitations of a node since the last look, however often it was told.
    fn invitations(&mut self, n: u8) -> Vec<String> {
        let invitation = |control| match control {
            Control::Node(ToNode::Fetch(invitation)) => Some((invitation.request, invitation.name)),
            _ => None,
        };
        let told: BTreeMap<u64, String> = self.heard(n).into_iter().filter_map(invitation).collect();
        told.into_values().collect()
    }
}

fn kept(bench: &mut Bench) -> Vec<StandingRecord> {
    let of = |event| if let ControllerEvent::StandingBegun(record) = event { Some(*record) } else { None };
    std::mem::take(&mut bench.events).into_iter().filter_map(of).collect()
}

#[test]
fn whoever_comes_with_the_label_is_sent_the_object() {
    let mut bench = Bench::new().holders([1]);
    bench.come(2, "eu");
    bench.standing(ASKER, to_zone("eu"), true).unwrap();
    bench.pass(SETTLED);
    assert!(bench.invitations(2).is_empty(), "it was here before: that takes a cast");
    for (n, zone) in [(3, "eu"), (4, "us"), (5, "eu")] {
        bench.come(n, zone);
    }
    bench.say(5, ToController::Hold(holding(1)));
    assert!(bench.invitations(3).is_empty(), "others may come with it");
    bench.pass(SETTLED);
    assert_eq!(bench.invitations(3), ["object-1"]);
    assert!(
        bench.invitations(4).is_empty() && bench.invitations(5).is_empty(),
        "one is elsewhere, one has it"
    );
    assert_eq!(bench.view().standing, [to_zone("eu")]);
    assert_eq!(bench.view().casts.len(), 1);
}

#[test]
fn nodes_that_come_together_are_served_together() {
    let mut bench = Bench::new().holders([1]);
    bench.standing(ASKER, to_zone(""), true).unwrap();
    for n in 10..20 {
        bench.come(n, "eu");
        bench.pass(ms(50));
    }
    bench.pass(SETTLED);
    let casts = bench.view().casts;
    assert_eq!((casts.len(), casts[0].of), (1, 10), "all but those that come a second later");
}

#[test]
fn what_nobody_holds_yet_is_sent_once_somebody_does() {
    let mut bench = Bench::new();
    bench.standing(ASKER, to_zone("eu"), true).unwrap();
    bench.come(3, "eu");
    bench.pass(Duration::from_secs(30));
    assert!(bench.invitations(3).is_empty());
    let mut bench = bench.holders([1]);
    bench.pass(Duration::from_secs(11));
    assert_eq!(bench.invitations(3), ["object-1"]);
}

#[test]
fn a_standing_cast_outlasts_the_controller_and_ends_by_its_owner() {
    let mut bench = Bench::new().holders([1]);
    bench.standing(ASKER, to_zone("eu"), true).unwrap();
    bench.standing(ASKER, to_zone("eu"), true).unwrap();
    let records = kept(&mut bench);
    assert_eq!(records.len(), 1, "the same again changes nothing");
    assert_eq!(records[0].owner, node(ASKER.0 as u8));

    let mut bench = Bench::new();
    bench.command(ControllerCommand::RestoreStanding(Box::new(records[0].clone())));
    let mut bench = bench.holders([1]);
    bench.come(3, "eu");
    bench.pass(SETTLED);
    assert_eq!(bench.invitations(3), ["object-1"]);

    assert_eq!(bench.standing(PathId(201), to_zone("eu"), false), Err(Refusal::NotYours));
    assert_eq!(bench.standing(PathId(201), to_zone("us"), false), Ok(()), "there is none");
    bench.standing(ASKER, to_zone("eu"), false).unwrap();
    let ended = |event: &ControllerEvent| matches!(event, ControllerEvent::StandingEnded(cast) if **cast == to_zone("eu"));
    assert_eq!(bench.events.iter().filter(|event| ended(event)).count(), 1);
    bench.come(4, "eu");
    bench.pass(SETTLED);
    assert!(bench.invitations(4).is_empty());
}

#[test]
fn there_are_only_so_many() {
    let mut bench = Bench::new();
    let by = |n: u32| PathId(ASKER.0 + n % 5);
    let refused = (0..2000_u32)
        .filter(|n| bench.standing(by(*n), to_zone(&n.to_string()), true) == Err(Refusal::Full))
        .count();
    assert_eq!(refused, 2000 - 1024);
}
