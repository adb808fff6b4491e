//! Nodes that come and go, and the news of that to each part.

use core::net::IpAddr;

use headwater_units::{Duration, NodeId, PathId, TaskId, Time};
use headwater_wire::{NodeInfo, Outcome};
use serde::{Deserialize, Serialize};

use super::Controller;
use crate::ControllerEvent;

/// A node that has been away for less may be restarting: with it, names would go that only it holds.
const MAY_RESTART: Duration = Duration::from_secs(600);

/// Where an operator's command comes from, as far as that gives rights (docs/decisions/0043).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The controller's machine.
    Here,
    /// Another machine; nodes may run there.
    Elsewhere(IpAddr),
}

/// Why a node is not forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NotForgotten {
    /// It is connected.
    Connected,
    /// There is no such node.
    Unknown,
    /// Whoever asks is neither on the controller's machine nor on that of a connected node.
    NotFromThere,
    /// It has not been away for long, and may be restarting. On the controller's machine it is forgotten now, elsewhere after this time.
    TooSoon {
        /// From now on.
        wait: Duration,
    },
}

impl Controller {
    /// Whether [`ControllerCommand::ForgetNode`](crate::ControllerCommand::ForgetNode) may be given for a command from there, with the
    /// introduction of the node.
    ///
    /// # Errors
    /// The node is unknown or here, or the command comes from the wrong place or too soon.
    pub fn may_forget(&self, now: Time, node: NodeId, from: Origin) -> Result<&NodeInfo, NotForgotten> {
        let is_operator = match from {
            Origin::Here => true,
            Origin::Elsewhere(ip) => {
                self.catalog.nodes().any(|node| node.path.is_some() && node.info.seen == Some(ip))
            }
        };
        if !is_operator {
            return Err(NotForgotten::NotFromThere);
        }
        let known = self.catalog.node(node).ok_or(NotForgotten::Unknown)?;
        if known.path.is_some() {
            return Err(NotForgotten::Connected);
        }
        let may_restart_until = known.seen + MAY_RESTART;
        if from != Origin::Here && now < may_restart_until {
            return Err(NotForgotten::TooSoon { wait: may_restart_until.since(now) });
        }
        Ok(&known.info)
    }

    /// A node says who it is.
    pub(super) fn hello(&mut self, now: Time, path: PathId, info: NodeInfo) {
        let Controller { deliveries, catalog, planner, desk, .. } = self;
        let turn = &mut desk.turn(now);
        let busy = |node| deliveries.tasks().load(node) > 0;
        let Some(greeting) = catalog.greet(now, path, info.clone(), turn.config, busy) else {
            turn.stats.nodes_refused += 1;
            return;
        };
        if let Some(node) = greeting.displaced {
            deliveries.node_down(turn, catalog, node);
            turn.event(ControllerEvent::NodeDown { node });
        }
        let displaced = greeting.displaced;
        if greeting.changed {
            planner.forget_topology();
        }
        deliveries.node_up(turn, catalog, &info, greeting.new_path);
        if greeting.new_path || greeting.changed {
            let node = info.node;
            turn.event(ControllerEvent::NodeUp(Box::new(info)));
            let (casts, below) = &mut self.casts(now);
            casts.node_changed(below, node);
        }
        if let Some(node) = displaced {
            let (casts, below) = &mut self.casts(now);
            casts.node_changed(below, node);
        }
    }

    /// Nobody is behind a path any more.
    pub(super) fn path_lost(&mut self, now: Time, path: PathId) {
        let Controller { deliveries, catalog, casts, recovery, desk, .. } = self;
        let turn = &mut desk.turn(now);
        recovery.forget(path);
        casts.path_lost(path);
        if let Some(peer) = catalog.peer_at(path) {
            deliveries.path_lost(peer, path);
        }
        if let Some(node) = catalog.lose(now, path) {
            deliveries.node_down(turn, catalog, node);
            turn.event(ControllerEvent::NodeDown { node });
            let (casts, below) = &mut self.casts(now);
            casts.node_changed(below, node);
        }
    }

    /// The process behind a path has ended, and said so: what it was fetching is over, where it was not invited to it. A cast waits
    /// for its receivers.
    pub(super) fn path_left(&mut self, now: Time, path: PathId) {
        let Controller { deliveries, catalog, casts, desk, .. } = self;
        let peer = catalog.peer_at(path).into_iter();
        let of_it = peer.flat_map(|peer| deliveries.tasks().of_receiver(peer));
        let of_it = of_it.filter(|task| task.path == Some(path));
        let asked = of_it.filter(|task| !casts.has_invited(task.facts.receiver, task.facts.request));
        let over: Vec<TaskId> = asked.map(|task| task.id()).collect();
        let turn = &mut desk.turn(now);
        over.into_iter().for_each(|task| deliveries.end_task(turn, catalog, task, Outcome::Cancelled));
        // Messages put down until now may still go by this path.
        self.carry_out();
        self.path_lost(now, path);
    }

    /// A node that is away is not expected back: its flows are over, what only it held is unknown from now on, and so is the node.
    pub(super) fn forget_node(&mut self, now: Time, node: NodeId) {
        let Controller { deliveries, catalog, planner, desk, .. } = self;
        let turn = &mut desk.turn(now);
        if catalog.path_of(node).is_some() {
            turn.stats.unexpected += 1;
            return;
        }
        deliveries.forget_node(turn, catalog, node);
        let tasks = deliveries.tasks();
        let names = catalog.forget_with_objects(node, |object| tasks.wanting(object).next().is_some());
        names.into_iter().for_each(|record| turn.event(ControllerEvent::NameChanged(Box::new(record))));
        planner.forget_topology();
    }
}
