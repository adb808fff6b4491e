//! Gets of one object that are under way at the same time, without a cast: they come to pass on to each other what they get, where
//! that is faster.
//!
//! ```text
//!   one get:    served at once, as always
//!   the second: served at once too, and from then on others are waited for, a little while after each
//!   nobody has come for a while, and all have a rate: are they more than the sources, and each busy for long? -- yes --> an overlay of all of them
//! ```
//! Nobody waits for anybody: a task that joins an overlay is begun anew in the middle ([`headwater_wire::ToReceiver::Accepted`] with a newer
//! version), by other flows and with the blocks that it has. That costs a round trip, and what was here of blocks that are not whole. So
//! it is done only with tasks that leave the choice of transport to the controller, that take all of the object, whose receivers say that
//! they can pass on, and that will take long at the rate that they have.
//!
//! Whether sources are the bottleneck is told by what links are stated to carry; where that is not known of all, by numbers: as many
//! sources as receivers bring as much as an overlay would.

use headwater_units::{BitRate, Geometry, NodeId, ObjectId, Symbols, TaskId, Time};
use headwater_wire::Delivery;

use super::Controller;
use super::overlay_membership::Circle;
use super::selection::Place;
use super::tasks::Task;
use super::timers::Subject;

impl Controller {
    /// Tasks that can come to belong to an overlay of their object: their receivers, and the bytes of symbol that they take.
    pub(super) fn regroupable(&self, object: ObjectId) -> Vec<(NodeId, TaskId, u16)> {
        let here = |node: NodeId| {
            let node = self.registry.node(node);
            node.is_some_and(|node| node.path.is_some() && !node.info.data.is_empty())
        };
        let tasks = self.tasks.wanting(object).filter_map(|task| self.tasks.get(task));
        let may = |task: &&Task| {
            task.passes_on && task.delivery == Delivery::Push && !task.is_paused() && here(task.receiver)
        };
        let mut found: Vec<(NodeId, TaskId, u16)> =
            tasks.filter(may).map(|task| (task.receiver, task.id, task.symbol_size)).collect();
        found.sort_unstable();
        found.dedup_by_key(|(node, ..)| *node);
        found
    }

    /// One more task has begun that wants an object.
    pub(super) fn watch_for_swarm(&mut self, now: Time, object: ObjectId) {
        if self.overlays.symbol_size(object).is_some() || self.regroupable(object).len() < 2 {
            return;
        }
        let since = *self.swarms.entry(object).or_insert(now);
        let until = (now + self.config.crowd_gather).min(since + self.config.crowd_longest);
        self.timers.set(Subject::Swarm(object), Some(until.max(now)));
    }

    /// Nobody has come for a while.
    pub(super) fn tick_swarm(&mut self, now: Time, object: ObjectId) {
        let Some(since) = self.swarms.remove(&object) else { return };
        if self.overlays.symbol_size(object).is_some() {
            return;
        }
        let mut tasks = self.regroupable(object);
        let is_measured = |id| self.tasks.get(id).is_some_and(|task| rate_of(task) > BitRate::ZERO);
        let latest = since + self.config.crowd_longest;
        if now < latest && !tasks.iter().all(|(_, task, _)| is_measured(*task)) {
            self.swarms.insert(object, since);
            let next = (now + self.config.crowd_gather).min(latest);
            return self.timers.set(Subject::Swarm(object), Some(next));
        }
        tasks.retain(|(_, task, _)| self.tasks.get(*task).is_some_and(|task| self.takes_long(task)));
        let sources = self.sources_of(object, 0, |_| true);
        let receivers: Vec<NodeId> = tasks.iter().map(|(node, ..)| *node).collect();
        let bytes = self.registry.object(object).map(|object| object.bytes);
        let (Some(rooms), Some(bytes)) = (self.rooms(&sources), bytes) else { return };
        if receivers.len() < 2 || !self.are_bottleneck(&sources, &receivers) {
            return;
        }
        let room = tasks.iter().map(|(_, _, room)| *room).fold(rooms, u16::min);
        let symbol_size = Geometry::fitting(bytes, room).symbol_size();
        self.stats.crowds_overlaid += 1;
        let largest = self.config.overlay_circle;
        let beginners = self.beginners(&sources, &receivers);
        let places = self.overlays.begin(object, symbol_size, &beginners, largest);
        for (node, circle) in places {
            let (_, task, _) = tasks.iter().find(|(its, ..)| *its == node).expect("they are its receivers");
            self.regroup(now, *task, circle, symbol_size);
        }
    }

    /// Whether a task has much left at the rate that it has.
    fn takes_long(&self, task: &Task) -> bool {
        let rate = rate_of(task);
        rate == BitRate::ZERO || task.remaining() / rate >= self.config.crowd_rest
    }

    /// Whether these sources can send less than these receivers can take.
    fn are_bottleneck(&self, sources: &[NodeId], receivers: &[NodeId]) -> bool {
        let info = |node: &NodeId| self.registry.node(*node).map(|node| &node.info);
        let up: Option<BitRate> = sources.iter().map(|node| info(node)?.uplink).sum();
        let down: Option<BitRate> = receivers.iter().map(|node| info(node)?.downlink).sum();
        match (up, down) {
            (Some(up), Some(down)) => up < down,
            _ => sources.len() < receivers.len(),
        }
    }

    /// A running task goes on as one of a circle.
    pub(super) fn regroup(&mut self, now: Time, id: TaskId, circle: Circle, symbol_size: u16) {
        if circle.relays.is_empty() {
            // Left over from the others.
            return;
        }
        let task = self.tasks.get(id).expect("the caller has found it");
        let flows: Vec<_> = task.flows.iter().map(|flow| flow.facts.flow).collect();
        flows.into_iter().for_each(|flow| self.close_flow(now, flow, true));
        let initial_window = Place::overlay_window(circle.of, &self.config);
        let task = self.tasks.get_mut(id).expect("closing a flow ends no task");
        task.needed = Symbols::new(task.remaining().get().div_ceil(u64::from(symbol_size.max(1))));
        task.symbol_size = symbol_size;
        task.delivery = Delivery::Pull { initial_window };
        (task.classes, task.max_sources) = (circle.of, circle.of);
        task.classes_used.clear();
        task.anew = Some(task.version.saturating_add(1));
        self.stats.tasks_regrouped += 1;
        self.open_circle(now, id, circle);
        self.changed.insert(id);
    }
}

/// What its flows bring together, as its receiver says.
fn rate_of(task: &Task) -> BitRate {
    task.flows.iter().filter_map(|flow| flow.view).map(|view| view.rate).sum()
}
