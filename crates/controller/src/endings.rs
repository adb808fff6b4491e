//! Flows that are over here and may not be over at their sources: each is stopped until its source confirms it.

use std::collections::BTreeMap;

use headwater_units::{FlowId, NodeId, Time};
use headwater_wire::ToSource;

use crate::catalog::Catalog;
use crate::retry::Retry;
use crate::timers::Subject;
use crate::turn::Turn;

/// All flows that are being stopped.
#[derive(Default)]
pub(crate) struct Endings {
    flows: BTreeMap<(NodeId, FlowId), Ending>,
}

/// A flow that is being stopped.
struct Ending {
    incarnation: u64,
    stop: Retry,
    /// Given up then.
    until: Time,
}

impl Endings {
    pub(crate) fn contains(&self, node: NodeId, flow: FlowId) -> bool {
        self.flows.contains_key(&(node, flow))
    }

    /// Has a source stop a flow, now or when it is back.
    pub(crate) fn stop(
        &mut self,
        turn: &mut Turn<'_>,
        catalog: &Catalog,
        node: NodeId,
        flow: FlowId,
        incarnation: u64,
    ) {
        if self.flows.len() >= turn.config.max_ending {
            turn.stats.stops_given_up += 1;
            turn.tell(node, ToSource::Stop { flow });
            return;
        }
        let (stop, until) = (turn.retry(), turn.now + turn.config.stop_for);
        self.flows.insert((node, flow), Ending { incarnation, stop, until });
        self.tick(turn, catalog, node, flow);
    }

    /// Looks after a flow that is being stopped, and sets its next wake-up.
    pub(crate) fn tick(&mut self, turn: &mut Turn<'_>, catalog: &Catalog, node: NodeId, flow: FlowId) {
        let here = catalog.path_of(node).is_some();
        let Some(ending) = self.flows.get_mut(&(node, flow)) else { return };
        if turn.now >= ending.until {
            self.forget(turn, node, flow);
            turn.stats.stops_given_up += 1;
            return;
        }
        let say = here && ending.stop.fire(turn.now, turn.config.retry_longest);
        let next = if here { ending.stop.due().min(ending.until) } else { ending.until };
        turn.wake(Subject::Ending(node, flow), Some(next));
        if say {
            turn.tell(node, ToSource::Stop { flow });
        }
    }

    /// A flow is not running at its source.
    pub(crate) fn forget(&mut self, turn: &mut Turn<'_>, node: NodeId, flow: FlowId) {
        if self.flows.remove(&(node, flow)).is_some() {
            turn.wake(Subject::Ending(node, flow), None);
        }
    }

    /// A node is here in this life: what an older one was sending is over, the rest is said anew if it came by another path.
    pub(crate) fn node_up(
        &mut self,
        turn: &mut Turn<'_>,
        catalog: &Catalog,
        node: NodeId,
        incarnation: u64,
        new_path: bool,
    ) {
        for flow in self.of(node) {
            let Some(ending) = self.flows.get_mut(&(node, flow)) else { continue };
            if ending.incarnation != incarnation {
                self.forget(turn, node, flow);
            } else if new_path {
                ending.stop = turn.retry();
                self.tick(turn, catalog, node, flow);
            }
        }
    }

    /// A node is away, which the catalog knows already.
    pub(crate) fn node_down(&mut self, turn: &mut Turn<'_>, catalog: &Catalog, node: NodeId) {
        self.of(node).into_iter().for_each(|flow| self.tick(turn, catalog, node, flow));
    }

    /// A node is not expected back.
    pub(crate) fn forget_node(&mut self, turn: &mut Turn<'_>, node: NodeId) {
        self.of(node).into_iter().for_each(|flow| self.forget(turn, node, flow));
    }

    /// The flows that are being stopped at a node.
    fn of(&self, node: NodeId) -> Vec<FlowId> {
        let flows = (node, FlowId(0))..=(node, FlowId(u64::MAX));
        self.flows.range(flows).map(|((_, flow), _)| *flow).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use headwater_units::{Duration, PathId};
    use headwater_wire::{Control, NodeInfo};

    use super::*;
    use crate::turn::{Draws, Effect};
    use crate::{ControllerConfig, ControllerStats};

    const NODE: NodeId = NodeId([1; 32]);
    const FLOW: FlowId = FlowId(7);

    /// Effects of a turn at this time: how often the flow is stopped, and when it is looked after next.
    fn turn(at: u64, act: impl FnOnce(&mut Turn<'_>)) -> (usize, Option<Time>) {
        let (config, mut draws) = (ControllerConfig::default(), Draws::new([0; 32]));
        let (mut stats, mut effects) = (ControllerStats::default(), VecDeque::new());
        let now = Time::ZERO + Duration::from_millis(at);
        let (draws, stats) = (&mut draws, &mut stats);
        act(&mut Turn { now, config: &config, draws, stats, effects: &mut effects });
        let stops = effects
            .iter()
            .filter(|it| matches!(it, Effect::Tell(NODE, Control::Source(ToSource::Stop { flow: FLOW }))));
        let mut wakes =
            effects.iter().filter_map(|it| if let Effect::Wake(_, at) = it { Some(*at) } else { None });
        (stops.count(), wakes.next_back().flatten())
    }

    fn catalog() -> Catalog {
        let info = NodeInfo::new(NODE, "", 1424);
        let mut catalog = Catalog::default();
        catalog.greet(Time::ZERO, PathId(1), info, &ControllerConfig::default(), |_| true);
        catalog
    }

    #[test]
    fn a_flow_is_stopped_until_its_source_confirms_it_or_is_another() {
        let (mut endings, catalog) = (Endings::default(), catalog());
        let at = |ms| Some(Time::ZERO + Duration::from_millis(ms));
        assert_eq!(turn(0, |turn| endings.stop(turn, &catalog, NODE, FLOW, 1)), (1, at(500)));
        assert_eq!(turn(400, |turn| endings.tick(turn, &catalog, NODE, FLOW)), (0, at(500)));
        assert_eq!(turn(500, |turn| endings.tick(turn, &catalog, NODE, FLOW)), (1, at(1_500)));
        assert_eq!(turn(600, |turn| endings.node_up(turn, &catalog, NODE, 1, true)), (1, at(1_100)));
        assert_eq!(turn(700, |turn| endings.node_up(turn, &catalog, NODE, 2, true)), (0, None));
        assert!(!endings.contains(NODE, FLOW));
    }

    #[test]
    fn nothing_is_said_to_a_source_that_is_away() {
        let (mut endings, mut catalog) = (Endings::default(), catalog());
        catalog.lose(Time::ZERO, PathId(1));
        let given_up = Some(Time::ZERO + ControllerConfig::default().stop_for);
        assert_eq!(turn(0, |turn| endings.stop(turn, &catalog, NODE, FLOW, 1)), (0, given_up));
    }
}
