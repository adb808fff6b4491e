//! A task's session with its controller, from the request to the end (PPUSH §III-A).
//!
//! ```text
//!   Asking --Accepted--> Running --everything is here, or it failed--> Ending --FIN acknowledged--> Ended
//!      ^                    |
//!      +--- UnknownTask ----+   (the controller forgot: ask again, keep what is here)
//!      +--- less room ------+   (a path is too narrow: leave the task, ask for one with smaller symbols)
//! ```
//! It is the same whichever transport brings the object. Knows nothing of blocks and symbols: the session that holds it
//! says how far it is, and is told what the controller grants.

use std::collections::VecDeque;

use headwater_machine::{Output, Packet};
use headwater_units::{
    BlockIndex, Bytes, Duration, Geometry, NodeId, ObjectId, PathId, Symbols, TaskId, Time,
};
use headwater_wire::{
    Delivery, FlowGrant, FlowView, Outcome, Refusal, Request, ToController, ToReceiver, Urgency,
};

use super::{FromFetch, ReceiverConfig, ReceiverFailure};

/// Maximum number of FIN attempts.
const FIN_TRIES: u32 = 6;
const FIN_RETRY: Duration = Duration::from_millis(40);
/// Least interval between reports of progress, whatever the controller wants.
const LEAST_FEEDBACK: Duration = Duration::from_millis(1);
/// Number of waiting blocks from which on decoder or disk hold the task up.
const HELD_UP: usize = 8;
const USUAL_FEEDBACK: Duration = Duration::from_millis(100);

#[derive(Debug)]
enum Phase {
    /// `refused`: for this reason, which may pass.
    Asking {
        since: Time,
        next: Time,
        tries: u32,
        refused: Option<Refusal>,
    },
    Running,
    Ending {
        outcome: Outcome,
        next: Time,
        tries: u32,
    },
    Ended,
}

/// One task, as this host and its controller speak of it.
#[derive(Debug)]
pub struct TaskSession {
    controller: PathId,
    /// The request, in the words of the user.
    request: Request,
    urgency: Option<Urgency>,
    retry: Duration,
    patience: Duration,
    /// Maximum wait for an answer.
    answer_patience: Duration,
    phase: Phase,
    task: Option<TaskId>,
    /// The task that was left for one with smaller symbols, until the controller has understood.
    left: Option<TaskId>,
    object: Option<ObjectId>,
    geometry: Option<Geometry>,
    flows_version: u32,
    next_feedback: Time,
    feedback_every: Duration,
    /// After something went wrong, when the controller is told next; doubles up to the usual interval.
    feedback_soon: Duration,
}

/// The meaning of a controller's message to the session.
#[derive(Debug)]
pub enum Told {
    /// Nothing, or nothing any more.
    Nothing,
    /// A message that makes no sense.
    Stray,
    /// The task begins, perhaps anew, with blocks cut otherwise.
    Begins(Granted),
    /// The same object, cut as before: what is here stays, only the flows are new, perhaps of another transport.
    GoesOn(Granted),
    /// Other flows.
    Flows(Vec<FlowGrant>),
    /// It will not be completed.
    Fails(ReceiverFailure),
}

/// The task that a controller has accepted.
#[derive(Debug)]
pub struct Granted {
    /// The controller's name for the fetch.
    pub task: TaskId,
    /// The object.
    pub object: ObjectId,
    /// Its size.
    pub bytes: Bytes,
    /// How it is cut into blocks and symbols.
    pub geometry: Geometry,
    /// Flows that bring it.
    pub flows: Vec<FlowGrant>,
}

/// Progress of a session.
#[derive(Debug)]
pub struct Progress {
    /// All blocks below this one are done.
    pub first_undecoded: BlockIndex,
    /// Symbols that are missing.
    pub needed: Symbols,
    /// Delivery report of each flow.
    pub flows: Vec<FlowView>,
    /// Blocks that wait for decoder, hash or disk.
    pub blocks_behind: usize,
}

impl TaskSession {
    /// Asks at the first call of [`TaskSession::ask`].
    pub fn new(config: &ReceiverConfig) -> Self {
        let request = Request {
            request: config.request,
            name: config.name.clone(),
            receiver: config.node,
            room: config.room,
            class: config.class,
            spread: config.spread,
            max_sources: config.max_sources,
            delivery: config.delivery,
            trims: config.trims,
            passes_on: config.passes_on,
        };
        TaskSession {
            controller: config.controller,
            request,
            urgency: config.urgency,
            retry: config.retry,
            patience: config.patience,
            answer_patience: config.busy_patience.unwrap_or_default().max(config.patience),
            phase: Phase::Asking { since: Time::MAX, next: Time::ZERO, tries: 0, refused: None },
            task: None,
            left: None,
            object: None,
            geometry: None,
            flows_version: 0,
            next_feedback: Time::ZERO,
            feedback_every: USUAL_FEEDBACK,
            feedback_soon: Duration::MAX,
        }
    }

    /// T, once it is known; else zero.
    pub fn symbol_size(&self) -> u16 {
        self.geometry.map_or(0, |geometry| geometry.symbol_size())
    }

    /// Bytes of symbol that a datagram may carry.
    pub fn room(&self) -> u16 {
        self.request.room
    }

    /// Whether a task is running, as far as both ends know.
    pub fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Running)
    }

    /// Whether the task is over, if not for the farewells.
    pub fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Ending { .. } | Phase::Ended)
    }

    /// Whether nothing is left to say.
    pub fn has_ended(&self) -> bool {
        matches!(self.phase, Phase::Ended)
    }

    // ---- what the controller says

    /// Whether a message by this path is about this task. A task that is granted to a session that has stopped asking is not: the
    /// session says nothing of it any more, so somebody else has to decline it.
    pub fn concerns(&self, path: PathId, control: &ToReceiver) -> bool {
        path == self.controller
            && match control {
                ToReceiver::Accepted { request, task, .. } => {
                    let is_awaited = matches!(self.phase, Phase::Asking { .. });
                    *request == self.request.request && (is_awaited || self.task == Some(*task))
                }
                ToReceiver::Refused { request, .. } => *request == self.request.request,
                ToReceiver::Flows { task, .. } | ToReceiver::UnknownTask { task } => self.task == Some(*task),
                ToReceiver::FinAck { task } => self.task == Some(*task) || self.left == Some(*task),
            }
    }

    /// Whether the controller says that a running task is to begin anew, with other flows and with what is here.
    fn begins_anew(&self, control: &ToReceiver) -> bool {
        matches!(control, ToReceiver::Accepted { task, version, .. }
            if self.is_running() && self.task == Some(*task) && *version > self.flows_version)
    }

    /// Handles a message about this task ([`TaskSession::concerns`]).
    pub fn on_control(&mut self, now: Time, control: ToReceiver) -> Told {
        let anew = self.begins_anew(&control);
        match control {
            ToReceiver::Accepted {
                task, object, bytes, symbol_size, feedback_every, version, flows, ..
            } => {
                if !matches!(self.phase, Phase::Asking { .. }) && !anew {
                    return Told::Nothing;
                }
                let Ok(geometry) = Geometry::new(bytes, symbol_size) else { return Told::Stray };
                let granted = Granted { task, object, bytes, geometry, flows };
                self.on_accepted(now, granted, version, feedback_every)
            }
            ToReceiver::Refused { reason, .. } => self.on_refused(now, reason),
            ToReceiver::Flows { version, flows, .. } => {
                if version <= self.flows_version || !self.is_running() {
                    return Told::Nothing;
                }
                self.flows_version = version;
                Told::Flows(flows)
            }
            ToReceiver::UnknownTask { .. } => {
                if self.is_running() {
                    self.ask_anew(now);
                }
                Told::Nothing
            }
            ToReceiver::FinAck { task } => {
                self.left = self.left.filter(|left| *left != task);
                if self.task == Some(task)
                    && let Phase::Ending { tries, .. } = &mut self.phase
                {
                    *tries = FIN_TRIES;
                }
                Told::Nothing
            }
        }
    }

    fn on_accepted(&mut self, now: Time, granted: Granted, version: u32, feedback_every: Duration) -> Told {
        let geometry = granted.geometry;
        let again = self.object.is_some();
        let same_layout = self.geometry.is_none_or(|before| before.layout() == geometry.layout());
        if again && (self.object != Some(granted.object) || !same_layout) {
            return Told::Fails(ReceiverFailure::Changed);
        }
        self.task = Some(granted.task);
        self.flows_version = version;
        self.feedback_every = feedback_every.max(LEAST_FEEDBACK);
        self.next_feedback = now;
        self.phase = Phase::Running;
        if again && self.geometry == Some(geometry) {
            return Told::GoesOn(granted);
        }
        self.object = Some(granted.object);
        self.geometry = Some(geometry);
        Told::Begins(granted)
    }

    fn on_refused(&mut self, now: Time, reason: Refusal) -> Told {
        // No copy is left that could be sent: neither waiting nor asking again helps.
        if matches!(reason, Refusal::Spoiled { .. }) && !self.is_over() {
            return Told::Fails(ReceiverFailure::Refused(reason));
        }
        let Phase::Asking { since, refused, .. } = &mut self.phase else { return Told::Nothing };
        // Somebody who has it may come back any moment; nobody who never had it will.
        // A controller that has restarted learns only by and by what it knew when it accepted us.
        let known = self.object.is_some() && reason == Refusal::UnknownObject;
        let waiting_helps = known || matches!(reason, Refusal::NoSource | Refusal::Full);
        if waiting_helps && now.since(*since) < self.patience {
            *refused = Some(reason);
            return Told::Nothing;
        }
        Told::Fails(ReceiverFailure::Refused(reason))
    }

    // ---- messages to the controller

    fn ask_anew(&mut self, now: Time) {
        self.request.request = self.request.request.wrapping_add(1);
        self.task = None;
        self.phase = Phase::Asking { since: now, next: now, tries: 0, refused: None };
    }

    /// Requests this transport for the next request to the controller.
    pub fn prefer(&mut self, delivery: Delivery) {
        self.request.delivery = Some(delivery);
    }

    /// Leaves the task for one whose symbols need less room.
    pub fn ask_with_room(&mut self, now: Time, room: u16) {
        self.request.room = room;
        self.left = self.task;
        self.ask_anew(now);
    }

    /// Asks, and asks again, until it is answered, or the answer has failed to come for too long. `begun`: blocks are here,
    /// or may be.
    pub fn ask(
        &mut self,
        now: Time,
        begun: bool,
        outputs: &mut VecDeque<Output<FromFetch>>,
    ) -> Result<(), ReceiverFailure> {
        let Phase::Asking { since, next, tries, refused } = &mut self.phase else { return Ok(()) };
        let first = *since == Time::MAX;
        if first {
            *since = now;
        }
        if now.since(*since) >= self.answer_patience {
            return Err(refused.take().map_or(ReceiverFailure::NoController, ReceiverFailure::Refused));
        }
        if first || now >= *next {
            *next = now + (self.retry * (1 << (*tries).min(3)));
            *tries += 1;
            let mut request = self.request.clone();
            // A name may move while we wait; the object that we began does not.
            if let Some(object) = self.object.filter(|_| begun) {
                request.name = object.to_string();
            }
            self.say_left(outputs);
            let asked = match self.urgency {
                None => ToController::Request(request),
                Some(urgency) => ToController::UrgentRequest(request, urgency),
            };
            self.say(asked, outputs);
        }
        Ok(())
    }

    /// Whether it is time to say how far the task is.
    pub fn is_feedback_due(&self, now: Time) -> bool {
        self.is_running() && now >= self.next_feedback
    }

    /// Something has gone wrong that the controller can mend: it is told at once, and a few times more, where it would hear of it late.
    pub fn hurry(&mut self, now: Time) {
        if self.feedback_every > USUAL_FEEDBACK && self.feedback_soon >= self.feedback_every {
            self.feedback_soon = USUAL_FEEDBACK;
            self.next_feedback = self.next_feedback.min(now);
        }
    }

    /// Says how far the task is.
    pub fn feedback(&mut self, now: Time, progress: Progress, outputs: &mut VecDeque<Output<FromFetch>>) {
        let every = self.feedback_every.min(self.feedback_soon);
        self.feedback_soon = self.feedback_soon * 2;
        self.next_feedback = now + every;
        let Some(task) = self.task else { return };
        self.say_left(outputs);
        let Progress { first_undecoded, needed, flows, blocks_behind } = progress;
        let held_up = blocks_behind >= HELD_UP;
        let flows_version = self.flows_version;
        let feedback =
            ToController::Feedback { task, first_undecoded, needed, flows_version, flows, held_up };
        self.say(feedback, outputs);
    }

    /// Says that a source is not believed any more.
    pub fn distrust(&self, node: NodeId, outputs: &mut VecDeque<Output<FromFetch>>) {
        if let Some(task) = self.task {
            self.say(ToController::Distrust { task, node }, outputs);
        }
    }

    /// The task is over; [`TaskSession::part`] reports it.
    pub fn end(&mut self, now: Time, outcome: Outcome) {
        self.phase = Phase::Ending { outcome, next: now, tries: 0 };
    }

    /// Reports the end of the task until it is confirmed or the attempts are used up. It has ended once its flows have
    /// too.
    pub fn part(&mut self, now: Time, flows_are_gone: bool, outputs: &mut VecDeque<Output<FromFetch>>) {
        let Phase::Ending { outcome, next, tries } = &mut self.phase else { return };
        let outcome = *outcome;
        if *tries < FIN_TRIES && now >= *next {
            *next = now + FIN_RETRY * (1 << *tries);
            *tries += 1;
            match self.task {
                Some(task) => {
                    self.say_left(outputs);
                    self.say(ToController::Fin { task, outcome }, outputs);
                }
                // There is nobody to be told.
                None => *tries = FIN_TRIES,
            }
        }
        if flows_are_gone && matches!(self.phase, Phase::Ending { tries: FIN_TRIES, .. }) {
            self.phase = Phase::Ended;
        }
    }

    /// When the next of all this is due.
    pub fn next_wake(&self) -> Option<Time> {
        match &self.phase {
            Phase::Asking { next, since, .. } => Some((*next).min(*since + self.answer_patience)),
            Phase::Running => Some(self.next_feedback),
            Phase::Ending { next, tries, .. } => (*tries < FIN_TRIES).then_some(*next),
            Phase::Ended => None,
        }
    }

    /// Tells the controller, until it has understood, that a task was left for another one.
    fn say_left(&self, outputs: &mut VecDeque<Output<FromFetch>>) {
        if let Some(task) = self.left {
            self.say(ToController::Fin { task, outcome: Outcome::Cancelled }, outputs);
        }
    }

    fn say(&self, control: ToController, outputs: &mut VecDeque<Output<FromFetch>>) {
        outputs.push_back(Output::Transmit(Packet::control(self.controller, control)));
    }
}
