//! Detects several gets of one object at the same time, without a cast: they form an overlay, where that is faster.
//!
//! ```text
//!   one get:    served at once, as always
//!   the second: served at once too, and from then on others are waited for, a little while after each
//!   nobody has come for a while, and all have a rate: are they more than the sources, and each busy for long? -- yes --> an overlay of all of them
//! ```
//! No get waits for another one: a task that joins an overlay is begun anew in the middle ([`headwater_wire::ToReceiver::Accepted`] with a
//! newer version), by other flows and with the blocks that it has. That costs a round trip, and the symbols of blocks that are not whole.
//! So it is done only with tasks that leave the choice of transport to the controller, that take all of the object, whose receivers state
//! that they can pass on, and that will still take long at their present rate.
//!
//! Whether sources are the bottleneck follows from the stated rates of links. Where these are not all known, it follows from the numbers:
//! as many sources as receivers bring as much as an overlay would.

use std::collections::BTreeMap;

use headwater_units::{BitRate, Geometry, NodeId, ObjectId, Time};

use crate::ControllerConfig;
use crate::catalog::Catalog;
use crate::deliveries::Deliveries;
use crate::overlay;
use crate::tasks::Task;
use crate::timers::Subject;
use crate::turn::Turn;

/// Objects with several running gets.
#[derive(Default)]
pub(crate) struct Swarms {
    /// Since when.
    since: BTreeMap<ObjectId, Time>,
}

impl Swarms {
    /// One more task has begun that wants an object.
    pub(crate) fn watch(
        &mut self,
        turn: &mut Turn<'_>,
        catalog: &Catalog,
        deliveries: &Deliveries,
        object: ObjectId,
    ) {
        let (now, config) = (turn.now, turn.config);
        let are_regroupable = || deliveries.known(catalog, config).are_regroupable(object);
        if deliveries.overlays().symbol_size(object).is_some() || !are_regroupable() {
            return;
        }
        let since = *self.since.entry(object).or_insert(now);
        let until = (now + config.swarm_gather).min(since + config.swarm_longest);
        turn.wake(Subject::Swarm(object), Some(until.max(now)));
    }

    /// Nobody has come for a while.
    pub(crate) fn tick(
        &mut self,
        turn: &mut Turn<'_>,
        catalog: &Catalog,
        deliveries: &mut Deliveries,
        object: ObjectId,
    ) {
        let (now, config) = (turn.now, turn.config);
        let Some(since) = self.since.remove(&object) else { return };
        if deliveries.overlays().symbol_size(object).is_some() {
            return;
        }
        let known = deliveries.known(catalog, config);
        let mut running = known.regroupable(object);
        let is_measured = |id| known.tasks.get(id).is_some_and(|task: &Task| task.rate() > BitRate::ZERO);
        let latest = since + config.swarm_longest;
        if now < latest && !running.iter().all(|it| is_measured(it.task)) {
            self.since.insert(object, since);
            let next = (now + config.swarm_gather).min(latest);
            return turn.wake(Subject::Swarm(object), Some(next));
        }
        running.retain(|it| known.tasks.get(it.task).is_some_and(|task| takes_long(config, task)));
        let sources = known.sources_of(object, 0, |_| true);
        let receivers: Vec<NodeId> = running.iter().map(|it| it.receiver).collect();
        let bytes = catalog.object(object).map(|object| object.bytes);
        let (Some(rooms), Some(bytes)) = (overlay::rooms(catalog, &sources), bytes) else { return };
        if receivers.len() < 2 || !are_bottleneck(catalog, &sources, &receivers) {
            return;
        }
        let room = running.iter().map(|it| it.room).fold(rooms, u16::min);
        let symbol_size = Geometry::fitting(bytes, room).symbol_size();
        turn.stats.swarms_overlaid += 1;
        let beginners = overlay::beginners(catalog, &receivers);
        let places = deliveries.begin_overlay(object, symbol_size, &sources, &beginners);
        for (node, parents) in places {
            let task = running.iter().find(|it| it.receiver == node).map(|it| it.task);
            if let Some(task) = task {
                deliveries.regroup(turn, catalog, task, parents, symbol_size);
            }
        }
    }
}

/// Whether a task has much left at the rate that it has.
fn takes_long(config: &ControllerConfig, task: &Task) -> bool {
    let rate = task.rate();
    rate == BitRate::ZERO || task.remaining() / rate >= config.swarm_rest
}

/// Whether these sources can send less than these receivers can take.
fn are_bottleneck(catalog: &Catalog, sources: &[NodeId], receivers: &[NodeId]) -> bool {
    let info = |node: &NodeId| catalog.node(*node).map(|node| &node.info);
    let up: Option<BitRate> = sources.iter().map(|node| info(node)?.uplink).sum();
    let down: Option<BitRate> = receivers.iter().map(|node| info(node)?.downlink).sum();
    match (up, down) {
        (Some(up), Some(down)) => up < down,
        _ => sources.len() < receivers.len(),
    }
}
