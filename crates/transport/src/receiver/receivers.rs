//! Everything that a host receives: its fetches, side by side.
//!
//! A packet of a flow goes to the fetch that the flow was granted to, and a message of a controller to the fetch that it names. A
//! fetch gets its turn when something has come for it, or when its timer is due, and keeps it until it has to wait. So a poll never
//! looks at fetches that have nothing to do.
//!
//! A task that is granted to a fetch that is over is declined: the fetch was cancelled before its request was answered, or another
//! copy of the request was. Its controller and sources would wait for it long. A fetch is over when it has failed or was cancelled,
//! also while it still says goodbye to its sources.

use std::collections::VecDeque;

use headwater_machine::{Endpoint, Input, Output, Packet, SortedMap, Timers};
use headwater_units::{Duration, FetchId, FlowId, PathId, TaskId, Time};
use headwater_wire::{Body, Control, Outcome, ToController, ToReceiver};
use serde::{Deserialize, Serialize};

use super::fetch::Fetch;
use crate::pull::Ask;
use crate::pull::queue::{PullConfig, PullQueue};
use crate::{FromFetch, ReceiverCommand, ReceiverEvent, ToFetch};
use headwater_flow::task::{ReceiverConfig, ReceiverStats};

/// Configuration of a host's receiving machine.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct HostReceiverConfig {
    /// Pace of the host's pulls, for all fetches together.
    pub pull: PullConfig,
}

/// The receiving machine of a host.
///
/// Told to begin each fetch by [`ReceiverCommand::Fetch`]; a fetch is over with [`ReceiverEvent::Ended`].
#[derive(Debug)]
pub struct Receivers {
    config: HostReceiverConfig,
    /// Fetches by place.
    seats: Vec<Option<Seat>>,
    /// Places that are free.
    free: Vec<u32>,
    /// Where each fetch is.
    fetches: SortedMap<FetchId, u32>,
    /// Where the fetch of each flow is.
    flows: SortedMap<FlowId, u32>,
    /// The fetch whose turn it is: mostly that of a packet that has just arrived.
    turn: Option<u32>,
    /// The fetches whose turns come next, in order; entries may be doubled, or of freed seats.
    waiting: VecDeque<u32>,
    timers: Timers<u32>,
    /// The pulls of all fetches that pull, each by its place.
    pulls: PullQueue<Ask>,
    /// The fetch whose output the last poll returned.
    speaker: Option<FetchId>,
    /// Tasks that nobody here wants, to be declined by these paths.
    declined: VecDeque<(PathId, TaskId)>,
    strays: u64,
}

/// No more tasks than this wait to be declined: a controller that grants more at once is answered in part.
const MOST_DECLINED: usize = 64;

/// One fetch.
#[derive(Debug)]
struct Seat {
    id: FetchId,
    fetch: Box<Fetch>,
    /// Its entry among the timers.
    timer: Option<Time>,
}

impl Receivers {
    /// A machine that fetches nothing.
    pub fn new(config: HostReceiverConfig) -> Self {
        Receivers {
            config,
            seats: Vec::new(),
            free: Vec::new(),
            fetches: SortedMap::default(),
            flows: SortedMap::default(),
            turn: None,
            waiting: VecDeque::new(),
            timers: Timers::default(),
            pulls: PullQueue::new(config.pull),
            speaker: None,
            declined: VecDeque::new(),
            strays: 0,
        }
    }

    /// Its configuration.
    pub fn config(&self) -> HostReceiverConfig {
        self.config
    }

    /// Whether nothing is left to do and to say.
    pub fn is_empty(&self) -> bool {
        self.fetches.is_empty()
    }

    /// The fetches that are not over, ascending.
    pub fn fetches(&self) -> impl Iterator<Item = FetchId> + '_ {
        self.fetches.iter().map(|(&fetch, _)| fetch)
    }

    /// The fetch whose output the last poll returned, for drivers that give each fetch an address of its own; `None` if it was of no
    /// fetch.
    pub fn speaker(&self) -> Option<FetchId> {
        self.speaker
    }

    /// Inputs that are nothing of any fetch's.
    pub fn strays(&self) -> u64 {
        self.strays
    }

    /// The counters of a fetch at this moment.
    pub fn stats(&mut self, now: Time, fetch: FetchId) -> Option<ReceiverStats> {
        self.fetch_mut(fetch).map(|fetch| fetch.stats(now))
    }

    /// How late a driver may come without the fetches that it drives suffering from it: a part of their shortest round trip, nothing
    /// where they ask for each packet. `None`: no fetch says.
    pub fn slack(&self) -> Option<Duration> {
        self.seats.iter().flatten().filter_map(|seat| seat.fetch.slack()).min()
    }

    /// Useful symbols so far of each flow of a fetch that is not over, by id: what a time series needs, without moving any
    /// estimate.
    pub fn useful(&self, fetch: FetchId) -> impl Iterator<Item = (FlowId, u64)> + '_ {
        self.fetch(fetch).into_iter().flat_map(Fetch::useful)
    }

    /// Useful symbols of a flow that is over; `None` if nothing ever came by it.
    pub fn useful_of_ended(&self, fetch: FetchId, flow: FlowId) -> Option<u64> {
        self.fetch(fetch)?.useful_of_ended(flow)
    }

    fn fetch(&self, fetch: FetchId) -> Option<&Fetch> {
        let place = *self.fetches.get(&fetch)?;
        self.seats[place as usize].as_ref().map(|seat| &*seat.fetch)
    }

    fn fetch_mut(&mut self, fetch: FetchId) -> Option<&mut Fetch> {
        let place = *self.fetches.get(&fetch)?;
        self.seats[place as usize].as_mut().map(|seat| &mut *seat.fetch)
    }

    // ---- what comes in

    #[inline]
    fn on_packet(&mut self, now: Time, packet: Packet) {
        if let Body::Control(control) = packet.datagram.body {
            return match *control {
                Control::Receiver(control) => self.on_control(now, packet.path, control),
                Control::Controller(_) | Control::Node(_) | Control::Source(_) => self.strays += 1,
            };
        }
        let Some(&mut place) = self.flows.get_mut(&packet.datagram.flow) else {
            self.strays += 1;
            return;
        };
        let Receivers { seats, pulls, .. } = self;
        let seat = seats[place as usize].as_mut().expect(LED);
        seat.fetch.on_packet(now, packet, pulls);
        self.takes_turn(place);
    }

    fn on_control(&mut self, now: Time, path: PathId, control: ToReceiver) {
        let mut seats =
            self.seats.iter_mut().zip(0u32..).filter_map(|(seat, place)| Some((seat.as_mut()?, place)));
        let Some((seat, place)) = seats.find(|(seat, _)| seat.fetch.is_concerned(path, &control)) else {
            self.strays += 1;
            if let ToReceiver::Accepted { task, .. } = control
                && self.declined.len() < MOST_DECLINED
            {
                self.declined.push_back((path, task));
            }
            return;
        };
        seat.fetch.on_control(now, control, &mut self.pulls);
        self.takes_turn(place);
    }

    fn on_command(&mut self, now: Time, fetch: FetchId, command: ReceiverCommand) {
        match (self.fetches.get(&fetch).copied(), command) {
            (None, ReceiverCommand::Fetch(config)) => self.begin(fetch, *config),
            (None, _) | (Some(_), ReceiverCommand::Fetch(_)) => self.strays += 1,
            (Some(place), command) => {
                let Receivers { seats, pulls, .. } = self;
                let seat = seats[place as usize].as_mut().expect(LED);
                seat.fetch.on_command(now, command, pulls);
                self.takes_turn(place);
            }
        }
    }

    fn begin(&mut self, id: FetchId, config: ReceiverConfig) {
        let place = self.free.pop().unwrap_or_else(|| {
            self.seats.push(None);
            u32::try_from(self.seats.len() - 1).expect("fewer than 2^32 fetches are under way")
        });
        let fetch = Box::new(Fetch::new(id, config, place));
        self.seats[place as usize] = Some(Seat { id, fetch, timer: None });
        self.fetches.insert(id, place);
        self.takes_turn(place);
    }

    #[inline]
    fn seat(&mut self, place: u32) -> &mut Seat {
        self.seats[place as usize].as_mut().expect(LED)
    }

    #[inline]
    fn takes_turn(&mut self, place: u32) {
        match self.turn {
            None => self.turn = Some(place),
            Some(turn) if turn == place => {}
            Some(_) => self.waiting.push_back(place),
        }
    }

    // ---- what goes out

    fn poll_further(&mut self, now: Time) -> Output<FromFetch> {
        loop {
            let Some(place) = self.turn else {
                if self.next_turn(now) {
                    continue;
                }
                if let Some((path, task)) = self.declined.pop_front() {
                    self.speaker = None;
                    let fin = ToController::Fin { task, outcome: Outcome::Cancelled };
                    return Output::Transmit(Packet::control(path, fin));
                }
                if let Some(pull) = self.pull(now) {
                    return Output::Transmit(pull);
                }
                let wake = self.timers.first().min(self.pulls.wake().unwrap_or(Time::MAX));
                return Output::Wake(Some(wake).filter(|at| *at < Time::MAX));
            };
            let Some(seat) = &mut self.seats[place as usize] else {
                self.turn = None;
                continue;
            };
            self.speaker = Some(seat.id);
            match seat.fetch.poll(now, &mut self.pulls) {
                Output::Wake(until) => {
                    if let Some(fetch) = self.rests(now, place, until) {
                        return Output::Event(FromFetch(fetch, ReceiverEvent::Ended));
                    }
                }
                output => {
                    self.note_flow(place, &output);
                    return output;
                }
            }
        }
    }

    /// Gives the next one its turn, if there is one.
    fn next_turn(&mut self, now: Time) -> bool {
        self.turn = self.waiting.pop_front();
        if self.turn.is_none()
            && let Some(due) = self.timers.pop_due(now)
        {
            self.seat(due).timer = None;
            self.turn = Some(due);
        }
        self.turn.is_some()
    }

    /// The one whose turn it is wants to wait until then. Tells which fetch is over, if it is.
    #[inline]
    fn rests(&mut self, now: Time, place: u32, until: Option<Time>) -> Option<FetchId> {
        self.turn = None;
        let Receivers { seats, timers, .. } = self;
        let seat = seats[place as usize].as_mut()?;
        debug_assert!(
            until.is_none_or(|at| at > now),
            "{} wants to be woken at {until:?}, now {now}",
            seat.id
        );
        // A wish for a time that has passed would never let the poll end.
        let until = until.map(|at| at.max(now + Duration::from_nanos(1)));
        timers.arm(&mut seat.timer, until, place);
        seat.fetch.has_ended().then(|| self.forget(place))
    }

    /// A fetch is over. Its flows have gone before it, each with its own event.
    #[cold]
    fn forget(&mut self, place: u32) -> FetchId {
        let seat = self.seats[place as usize].take().expect("the caller has just polled it");
        if let Some(at) = seat.timer {
            self.timers.remove(at, place);
        }
        self.flows.retain(|_, at| *at != place);
        self.pulls.clear(place);
        self.fetches.remove(&seat.id);
        self.free.push(place);
        seat.id
    }

    /// Which flow leads where.
    fn note_flow(&mut self, place: u32, output: &Output<FromFetch>) {
        let Output::Event(FromFetch(_, event)) = output else { return };
        match event {
            ReceiverEvent::Bind(bind) => drop(self.flows.insert(bind.flow, place)),
            ReceiverEvent::Unbind { flow } if self.flows.get(flow) == Some(&place) => {
                self.flows.remove(flow);
            }
            _ => {}
        }
    }
}

impl Receivers {
    /// The next pull that is due, of whichever fetch; one that is not wanted any more makes room for the next.
    fn pull(&mut self, now: Time) -> Option<Packet> {
        while let Some((place, ask)) = self.pulls.poll(now) {
            let Some(seat) = &mut self.seats[place as usize] else { continue };
            if let Some(packet) = seat.fetch.pull(now, ask) {
                self.speaker = Some(seat.id);
                // Something is expected now that was not before.
                self.takes_turn(place);
                return Some(packet);
            }
        }
        None
    }
}

/// Entries that lead to a place leave with its fetch.
const LED: &str = "what leads to a place leaves with its fetch";

impl Endpoint for Receivers {
    type Command = ToFetch;
    type Event = FromFetch;

    #[inline]
    fn handle(&mut self, now: Time, input: Input<ToFetch>) {
        match input {
            Input::Packet(packet) => self.on_packet(now, packet),
            Input::Command(ToFetch(fetch, command)) => self.on_command(now, fetch, command),
        }
    }

    /// The common case of a poll; the rest is out of line, so that this stays small.
    #[inline]
    fn poll(&mut self, now: Time) -> Output<FromFetch> {
        if let Some(place) = self.turn
            && let Some(seat) = &mut self.seats[place as usize]
        {
            if let Some((flow, symbol)) = seat.fetch.take_kept() {
                self.speaker = Some(seat.id);
                return Output::Event(FromFetch(seat.id, ReceiverEvent::Symbol { flow, symbol }));
            }
            if let Some(packet) = seat.fetch.take_packet() {
                self.speaker = Some(seat.id);
                return Output::Transmit(packet);
            }
            let first = self.timers.first();
            if self.waiting.is_empty()
                && self.pulls.is_empty()
                && now < first
                && let (Some(timer), Some(until)) = (seat.timer, seat.fetch.quiet_until(now))
                && timer <= until
            {
                self.turn = None;
                return Output::Wake(Some(first));
            }
        }
        self.poll_further(now)
    }
}
