//! Copies of objects that are not the objects any more, and tasks that nobody else can serve.

use headwater_units::{NodeId, ObjectId, TaskId, Time};
use headwater_wire::{Outcome, Refusal, Spoiled, ToReceiver};

use super::Controller;

impl Controller {
    /// A node says that its copy of an object is spoiled: it serves nobody any more, and who has no other source is told why.
    pub(super) fn spoil(&mut self, now: Time, node: NodeId, object: ObjectId, how: Spoiled) {
        self.registry.spoil(node, object, how);
        self.drop_object(now, node, object);
        let tasks: Vec<TaskId> = self.tasks.wanting(object).collect();
        tasks.into_iter().for_each(|id| self.give_up_spoiled(now, id, node, how));
    }

    /// Ends a task that has no flow left and that no node that is here could serve: waiting does not mend a copy. A task whose
    /// other sources are only away is not ended, nor one that comes by trees, which are its cast's.
    pub(super) fn give_up_spoiled(&mut self, now: Time, id: TaskId, node: NodeId, how: Spoiled) {
        let Some(task) = self.tasks.get(id) else { return };
        if !task.flows.is_empty() || !task.trees.is_empty() {
            return;
        }
        let may =
            |other: NodeId| other != node && other != task.receiver && !task.distrusted.contains(&other);
        if !self.sources_of(task.object, task.symbol_size, may).is_empty() {
            return;
        }
        // A receiver that is away asks again when it is back, and is told then.
        let (path, request) = (task.path, task.request);
        if let Some(path) = path {
            self.send(path, ToReceiver::Refused { request, reason: Refusal::Spoiled { node, how } });
        }
        self.end_task(now, id, Outcome::Failed);
    }

    /// Why a known object cannot be had: the last copies were spoiled, or those who hold it are away.
    pub(super) fn no_source_of(&self, object: ObjectId) -> Refusal {
        match self.registry.object(object) {
            Some(known) if known.holders.is_empty() => match known.spoiled {
                Some((node, how)) => Refusal::Spoiled { node, how },
                None => Refusal::NoSource,
            },
            _ => Refusal::NoSource,
        }
    }
}
