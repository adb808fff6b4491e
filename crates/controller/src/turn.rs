//! The tools of every part while one input is handled, and the effects that it returns.
//!
//! Parts do nothing themselves: they note effects, which are carried out in the order in which they were noted, before the
//! next input or timer.

use std::collections::VecDeque;

use headwater_units::{FlowId, FlowKey, NodeId, PathId, TaskId, Time};
use headwater_wire::Control;
use rand::Rng;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng;

use crate::retry::Retry;
use crate::timers::Subject;
use crate::{ControllerConfig, ControllerEvent, ControllerStats};

/// One thing that a part wants done.
#[derive(Debug)]
pub(crate) enum Effect {
    /// Send this to the peer behind a path.
    Answer(PathId, Control),
    /// Something is said to a node; nothing if it is away.
    Tell(NodeId, Control),
    /// The driver is told.
    Event(ControllerEvent),
    /// The subject's only wake-up is set, or taken away.
    Wake(Subject, Option<Time>),
}

/// All that is random of a controller: ids and keys.
pub(crate) struct Draws {
    rng: ChaCha20Rng,
}

impl Draws {
    pub(crate) fn new(seed: [u8; 32]) -> Self {
        Draws { rng: ChaCha20Rng::from_seed(seed) }
    }
    /// The number of an invitation.
    pub(crate) fn request(&mut self) -> u64 {
        self.rng.random()
    }
    /// Where to begin to look for a free one among many.
    pub(crate) fn start(&mut self) -> u32 {
        self.rng.random()
    }
    pub(crate) fn key(&mut self) -> FlowKey {
        FlowKey(self.rng.random())
    }
    pub(crate) fn task(&mut self, is_used: impl Fn(TaskId) -> bool) -> TaskId {
        loop {
            let id = TaskId(self.rng.random());
            if !is_used(id) {
                return id;
            }
        }
    }
    pub(crate) fn flow(&mut self, is_used: impl Fn(FlowId) -> bool) -> FlowId {
        loop {
            // Zero stands for "no flow" in control datagrams.
            let id = FlowId(self.rng.random());
            if id != FlowId(0) && !is_used(id) {
                return id;
            }
        }
    }
}

/// State that a part works with while one input is handled.
pub(crate) struct Turn<'a> {
    pub(crate) now: Time,
    pub(crate) config: &'a ControllerConfig,
    pub(crate) draws: &'a mut Draws,
    pub(crate) stats: &'a mut ControllerStats,
    pub(crate) effects: &'a mut VecDeque<Effect>,
}

impl Turn<'_> {
    /// Sends something to the peer behind a path.
    pub(crate) fn answer(&mut self, path: PathId, control: impl Into<Control>) {
        self.effects.push_back(Effect::Answer(path, control.into()));
    }
    /// Says something to a node; nothing if it is away.
    pub(crate) fn tell(&mut self, node: NodeId, control: impl Into<Control>) {
        self.effects.push_back(Effect::Tell(node, control.into()));
    }
    /// Tells the driver.
    pub(crate) fn event(&mut self, event: ControllerEvent) {
        self.effects.push_back(Effect::Event(event));
    }
    /// Sets the subject's only wake-up, or takes it away.
    pub(crate) fn wake(&mut self, subject: Subject, at: Option<Time>) {
        self.effects.push_back(Effect::Wake(subject, at));
    }
    /// Retry schedule of a message that is sent from now on.
    pub(crate) fn retry(&self) -> Retry {
        Retry::at(self.now, self.config.retry_first)
    }
}
