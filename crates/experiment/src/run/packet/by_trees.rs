//! The machines of a scenario whose groups are served by trees (Datacast), and what these are measured by.

use headwater_controller::ControllerConfig;
use headwater_units::{Duration, Time};
use headwater_wire::Delivery;

use super::super::common::Ground;
use super::super::fluid_datacast;
use super::super::{RunError, network};
use super::{NEVER, pulled, unprotect, unsupported};
use crate::scenario::{Machines, Scenario, Scheme};
use headwater_sim::fluid::datacast::bounds::SlowestReceiver;
use headwater_sim::packet::{Change, CodedSetup, LinkChange, Records, TreeRow, TreeSetup};

/// The machines of Datacast. As with SCDP nothing is planned; there is one packet to a symbol, and nothing is coded.
pub(super) fn setup(scenario: &Scenario) -> Result<CodedSetup, RunError> {
    if scenario.faults.iter().any(|fault| fault.what.place() != "link") {
        return Err(unsupported("hosts that fail: trees are not repaired while something is sent"));
    }
    let spec = &scenario.transport;
    let receiver = spec.tree_receiver_config();
    let mut setup = CodedSetup {
        source: spec.tree_source_config(scenario.packet.data),
        delivery: Delivery::Trees { credit: u16::try_from(receiver.credit).unwrap_or(u16::MAX) },
        controller: ControllerConfig::default(),
        trees: Some(TreeSetup {
            receiver,
            store: spec.store_config(),
            most: spec.datacast.trees.map_or(usize::MAX, |trees| trees as usize),
        }),
        pull: None,
        ..pulled::setup(scenario)
    };
    setup.controller.feedback_every = NEVER;
    if spec.machines == Machines::Paper {
        unprotect(&mut setup);
    }
    Ok(setup)
}

/// Facts that the measures of trees need besides their records.
pub(super) struct TreeMeasures {
    /// How many tasks there are; what stands behind them is background.
    tasks: u32,
    /// Seconds of the second half of the run, if it has a stated end.
    settled_s: Option<f64>,
    /// The slowest receiver of the first tree, where there is one group.
    slowest: Option<SlowestReceiver>,
}

impl TreeMeasures {
    /// Of a scenario of trees.
    pub(super) fn of(scenario: &Scenario, ground: &Ground) -> Option<Self> {
        if scenario.scheme != Scheme::Datacast {
            return None;
        }
        let settled_s = scenario.until.map(|until| until.as_secs_f64() / 2.0);
        Some(TreeMeasures {
            tasks: ground.plans.len() as u32,
            settled_s,
            slowest: slowest_of(scenario, ground),
        })
    }

    /// `goodput` is that of the slowest receiver, packets per second, as a mean over groups; it and `duplicate_ratio` are those
    /// of the run's second half where its end is stated, so that the beginning is forgotten, else of all of it. `link_stress` is
    /// how often a symbol crossed a link of its tree. `cache_bound` (bytes) and `duplicate_bound` are Theorems 1 and 2 for the
    /// slowest receiver of the first tree, with the round trip of propagation alone.
    pub(super) fn measures(&self, records: &Records, note: &mut impl FnMut(String, f64)) {
        let trees = || records.trees.iter().filter(|tree| tree.task < self.tasks);
        let sum = |count: &dyn Fn(&TreeRow) -> u64| trees().map(count).sum::<u64>() as f64;
        let settled: f64 = records
            .tasks
            .iter()
            .filter(|task| task.task < self.tasks)
            .map(|task| match (self.settled_s, task.finish) {
                (Some(seconds), _) => {
                    let of_task = trees().find(|tree| tree.task == task.task);
                    of_task.map_or(f64::NAN, |tree| tree.settled as f64 / seconds)
                }
                (None, Some(finish)) => task.packets as f64 / finish.since(task.arrival).as_secs_f64(),
                (None, None) => f64::NAN,
            })
            .sum();
        let (mut new, mut again) = (sum(&|tree| tree.new), sum(&|tree| tree.repeated));
        if self.settled_s.is_some() {
            new -= sum(&|tree| tree.midway.unwrap_or_default().0);
            again -= sum(&|tree| tree.midway.unwrap_or_default().1);
        }
        let interests =
            sum(&|tree| tree.nodes.store.held + tree.nodes.store.waited + tree.nodes.store.went_on);
        for (name, value) in [
            ("goodput", settled / f64::from(self.tasks.max(1))),
            ("duplicate_ratio", again / new),
            ("link_stress", sum(&|tree| tree.carried) / sum(&|tree| tree.new * tree.links)),
            ("trees", trees().count() as f64),
            ("tree_links", sum(&|tree| tree.links)),
            ("duplicate_interests", sum(&|tree| tree.duplicates)),
            ("held_share", sum(&|tree| tree.nodes.store.held) / interests),
            ("waited_share", sum(&|tree| tree.nodes.store.waited) / interests),
            ("strays", sum(&|tree| tree.nodes.strays)),
        ] {
            note(name.to_owned(), value);
        }
        if let Some(slowest) = &self.slowest {
            note("cache_bound".to_owned(), slowest.cache_bound());
            note("duplicate_bound".to_owned(), slowest.duplicate_bound());
            let none = SlowestReceiver { rtt: Duration::ZERO, ..*slowest };
            note("duplicate_bound_without_rtt".to_owned(), none.duplicate_bound());
            note("rtt_s".to_owned(), slowest.rtt.as_secs_f64());
        }
    }
}

/// The slowest receiver of the only group's first tree, with the links as slow as they are made when the run begins.
fn slowest_of(scenario: &Scenario, ground: &Ground) -> Option<SlowestReceiver> {
    let [plan] = &ground.plans[..] else { return None };
    let mut topology = ground.topology.clone();
    for (at, change) in network::changes(scenario, &topology).ok()? {
        if let (Time::ZERO, Change::Link(link, LinkChange::Rate(rate))) = (at, change) {
            topology.set_capacity(link, rate);
        }
    }
    fluid_datacast::receiver(scenario, &topology, plan).ok().map(|(receiver, _)| receiver)
}
