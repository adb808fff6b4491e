//! The numerical part of [`super::model`]: explicit steps of Eq. 5, 6 and 7, all from the state before the step.

use std::collections::VecDeque;

use headwater_units::{BitRate, Bytes, Duration, Packets, Time};

use super::model::{FluidError, Link, MAX_STEPS, Model, PushFlow, Sample, Series, Step};
use super::steady::{Bottleneck, packets_per_second};

/// Fine steps per round trip.
const PER_RTT: f64 = 20.0;

/// Integrates `model` from an empty network on, giving a sample about every `sampling`.
///
/// Steps are not cut for a sample by [`Step::Rtt`]: there it ends with the first step that reaches its time.
///
/// # Errors
/// [`FluidError`] if the model makes no sense, or would take too long.
pub fn integrate(model: &Model, step: Step, sampling: Duration) -> Result<Series, FluidError> {
    check(model, sampling)?;
    Ok(run(model, step, sampling))
}

fn check(model: &Model, sampling: Duration) -> Result<(), FluidError> {
    for (index, &link) in model.links.iter().enumerate() {
        let (mark, limit) = (link.mark_threshold.get(), link.limit.get());
        if link.capacity == BitRate::ZERO || !(mark >= 0.0 && limit >= mark && limit.is_finite()) {
            return Err(FluidError::Link { index, link });
        }
    }
    for (flow, push) in model.flows.iter().enumerate() {
        if !(push.theta.get() > 0.0 && push.theta.get().is_finite()) {
            return Err(FluidError::Theta { flow, theta: push.theta });
        }
        let ascending = push.path.windows(2).all(|pair| pair[0] < pair[1]);
        if !ascending || push.path.last().is_none_or(|&last| last >= model.links.len()) {
            return Err(FluidError::Path { flow, path: push.path.clone(), links: model.links.len() });
        }
    }
    if model.packet == Bytes::ZERO {
        return Err(FluidError::Packet);
    }
    if !(model.gain > 0.0 && model.gain <= 1.0) {
        return Err(FluidError::Gain(model.gain));
    }
    let steps = most_steps(model).max(model.end.as_secs_f64() / sampling.as_secs_f64());
    if steps.is_nan() || steps > MAX_STEPS as f64 {
        return Err(FluidError::Steps(steps));
    }
    Ok(())
}

/// More steps than an integration of `model` can take, besides those that end a sample.
fn most_steps(model: &Model) -> f64 {
    let flows = model.flows.iter().map(|flow| FlowPath::new(model, flow));
    let shortest = flows.map(|path| path.least_rtt.min(path.mean_rtt)).fold(f64::INFINITY, f64::min);
    let boundaries = 2.0 * model.flows.len() as f64 + 1.0;
    model.end.as_secs_f64() * PER_RTT / shortest + boundaries
}

/// Integrates a checked model.
fn run(model: &Model, step: Step, sampling: Duration) -> Series {
    let mut state = State::new(model, step);
    let (end, interval) = (model.end.as_secs_f64(), sampling.as_secs_f64());
    let mut series = Series::default();
    let mut sums = Sums::new(model);
    // Multiples and not sums, and no sample for what rounding leaves of the last interval.
    let due_at = |n: u64| {
        let at = n as f64 * interval;
        if at > end - interval * 1e-6 { end } else { at }
    };
    let (mut count, mut due) = (1, due_at(1));
    while state.now < end {
        let span = state.span(due);
        state.advance(span);
        sums.add(&state, span);
        if state.now >= due {
            series.samples.push(sums.take(state.now, model));
            while due <= state.now && due < end {
                count += 1;
                due = due_at(count);
            }
        }
    }
    series
}

/// Constants of a flow.
struct FlowPath<'a> {
    flow: &'a PushFlow,
    /// R' of Eq. 8 by Eq. 13, at the slowest link of the path, in seconds.
    mean_rtt: f64,
    /// One packet's time on the slowest link, or the propagation if that is longer.
    least_rtt: f64,
}

impl<'a> FlowPath<'a> {
    fn new(model: &Model, flow: &'a PushFlow) -> Self {
        let links = flow.path.iter().map(|&link| &model.links[link]);
        let slowest: &Link = links.min_by_key(|link| link.capacity).expect("a checked path is not empty");
        let bottleneck = Bottleneck {
            capacity: slowest.capacity,
            packet: model.packet,
            propagation: model.propagation,
            mark_threshold: slowest.mark_threshold,
        };
        let packets = bottleneck.packets_per_second();
        let least_rtt = model.propagation.as_secs_f64().max(1.0 / packets);
        // Not `Bottleneck::mean_rtt`: whole nanoseconds would make a step of one round trip miss its own echo. A
        // threshold of zero must still take time.
        let mean_rtt =
            (model.propagation.as_secs_f64() + slowest.mark_threshold.get() / packets).max(least_rtt);
        FlowPath { flow, mean_rtt, least_rtt }
    }

    fn runs(&self, now: f64) -> bool {
        self.flow.start.as_secs_f64() <= now && now < self.flow.stop.as_secs_f64()
    }
}

/// A link's queue, by flow, and when it began and ceased to mark.
struct Queue {
    capacity: f64,
    threshold: f64,
    limit: f64,
    /// Packets of every flow.
    held: Vec<f64>,
    /// From when on it marked or did not, oldest first.
    turns: VecDeque<(f64, bool)>,
}

impl Queue {
    fn total(&self) -> f64 {
        self.held.iter().sum()
    }

    /// p of Eq. 3 at an earlier moment.
    fn marked_at(&self, then: f64) -> bool {
        self.turns.iter().rev().find(|(from, _)| *from <= then).is_some_and(|(_, marked)| *marked)
    }

    /// Eq. 7 over one step: `rates` come in as what arrives and go out as what leaves, for every flow on the link.
    fn serve(&mut self, rates: &mut [f64], uses: &[bool], span: f64) {
        let mut present = 0.0;
        for ((held, rate), _) in self.held.iter_mut().zip(rates.iter()).zip(uses).filter(|(_, uses)| **uses) {
            *held += rate * span;
            present += *held;
        }
        if present <= 0.0 {
            return;
        }
        let served = (self.capacity * span).min(present);
        let kept = (present - served).min(self.limit);
        for ((held, rate), _) in self.held.iter_mut().zip(rates).zip(uses).filter(|(_, uses)| **uses) {
            let part = *held / present;
            *rate = served * part / span;
            *held = kept * part;
        }
    }

    fn note_marking(&mut self, now: f64, forget_before: f64) {
        let marked = self.total() > self.threshold;
        if self.turns.back().is_some_and(|(_, last)| *last) != marked {
            self.turns.push_back((now, marked));
        }
        while self.turns.get(1).is_some_and(|(from, _)| *from <= forget_before) {
            self.turns.pop_front();
        }
    }
}

struct State<'a> {
    model: &'a Model,
    step: Step,
    paths: Vec<FlowPath<'a>>,
    /// Per link, which flows cross it.
    uses: Vec<Vec<bool>>,
    /// Seconds since the start.
    now: f64,
    window: Vec<f64>,
    mark_fraction: Vec<f64>,
    /// Packets per second out of the last link.
    rate: Vec<f64>,
    queues: Vec<Queue>,
    longest_echo: f64,
}

impl<'a> State<'a> {
    fn new(model: &'a Model, step: Step) -> Self {
        let flows = model.flows.len();
        let paths: Vec<FlowPath> = model.flows.iter().map(|flow| FlowPath::new(model, flow)).collect();
        let queue = |link: &Link| Queue {
            capacity: packets_per_second(link.capacity, model.packet),
            threshold: link.mark_threshold.get(),
            limit: link.limit.get(),
            held: vec![0.0; flows],
            turns: VecDeque::new(),
        };
        let crosses =
            |link: usize| model.flows.iter().map(|flow| flow.path.contains(&link)).collect::<Vec<bool>>();
        State {
            model,
            step,
            uses: (0..model.links.len()).map(crosses).collect(),
            now: 0.0,
            window: vec![0.0; flows],
            mark_fraction: vec![0.0; flows],
            rate: vec![0.0; flows],
            queues: model.links.iter().map(queue).collect(),
            longest_echo: paths.iter().map(|path| path.mean_rtt).fold(0.0, f64::max),
            paths,
        }
    }

    /// R of Eq. 4 over all links of the path, in seconds.
    fn rtt(&self, flow: usize) -> f64 {
        let queueing = |link: &usize| self.queues[*link].total() / self.queues[*link].capacity;
        let path = &self.paths[flow];
        let rtt = self.model.propagation.as_secs_f64() + path.flow.path.iter().map(queueing).sum::<f64>();
        rtt.max(path.least_rtt)
    }

    /// The round trip that a step reckons with.
    fn stepping_rtt(&self, flow: usize) -> f64 {
        match self.step {
            Step::Rtt => self.paths[flow].mean_rtt,
            Step::Fine => self.rtt(flow),
        }
    }

    /// How long the next step is.
    fn span(&self, due: f64) -> f64 {
        let shortest = |rtts: &mut dyn Iterator<Item = f64>| rtts.fold(f64::INFINITY, f64::min);
        let mean = shortest(&mut self.paths.iter().map(|path| path.mean_rtt));
        match self.step {
            Step::Rtt if mean.is_finite() => mean,
            Step::Rtt => due - self.now,
            Step::Fine => {
                let rtt = shortest(&mut (0..self.paths.len()).map(|flow| self.rtt(flow)));
                let changes = self.paths.iter().flat_map(|path| [path.flow.start, path.flow.stop]);
                let next = changes.map(Time::as_secs_f64).filter(|at| *at > self.now).fold(due, f64::min);
                (mean.min(rtt) / PER_RTT).min(next - self.now)
            }
        }
    }

    fn advance(&mut self, span: f64) {
        let rtts: Vec<f64> = (0..self.paths.len()).map(|flow| self.stepping_rtt(flow)).collect();
        let runs: Vec<bool> = self.paths.iter().map(|path| path.runs(self.now)).collect();
        for flow in 0..runs.len() {
            match (runs[flow], self.window[flow] > 0.0) {
                (true, false) => self.window[flow] = 1.0,
                (false, true) => (self.window[flow], self.mark_fraction[flow]) = (0.0, 0.0),
                _ => {}
            }
            self.rate[flow] = self.window[flow] / rtts[flow];
        }
        for flow in (0..runs.len()).filter(|flow| runs[*flow]) {
            let path = &self.paths[flow];
            // A step of one round trip looks exactly one step back; the slack is for rounding.
            let then = self.now - path.mean_rtt + span * 1e-6;
            let marked = path.flow.path.iter().any(|link| self.queues[*link].marked_at(then));
            let (echo, part) = (f64::from(u8::from(marked)), span / rtts[flow]);
            let (window, fraction) = (self.window[flow], self.mark_fraction[flow]);
            let change = part * (1.0 - window * fraction / (2.0 * path.flow.theta.get()) * echo); // Eq. 5.
            self.window[flow] = (window + change).max(1.0);
            self.mark_fraction[flow] = (fraction + part * self.model.gain * (echo - fraction)).max(0.0); // Eq. 6.
        }
        self.now += span;
        for (queue, uses) in self.queues.iter_mut().zip(&self.uses) {
            queue.serve(&mut self.rate, uses, span);
            queue.note_marking(self.now, self.now - self.longest_echo);
        }
    }
}

/// Time integrals since the last sample.
struct Sums {
    from: f64,
    window: Vec<f64>,
    mark_fraction: Vec<f64>,
    rate: Vec<f64>,
    rtt: Vec<f64>,
    queue: Vec<f64>,
}

impl Sums {
    fn new(model: &Model) -> Self {
        let zeros = || vec![0.0; model.flows.len()];
        Sums {
            from: 0.0,
            window: zeros(),
            mark_fraction: zeros(),
            rate: zeros(),
            rtt: zeros(),
            queue: vec![0.0; model.links.len()],
        }
    }

    fn add(&mut self, state: &State, span: f64) {
        for flow in 0..state.paths.len() {
            self.window[flow] += state.window[flow] * span;
            self.mark_fraction[flow] += state.mark_fraction[flow] * span;
            self.rate[flow] += state.rate[flow] * span;
            self.rtt[flow] += state.rtt(flow) * span;
        }
        for (sum, queue) in self.queue.iter_mut().zip(&state.queues) {
            *sum += queue.total() * span;
        }
    }

    /// The means since the last sample, which ends `now`.
    fn take(&mut self, now: f64, model: &Model) -> Sample {
        let time = now - self.from;
        let bits = model.packet.get() as f64 * 8.0;
        let moment = |seconds: f64| Time::ZERO + Duration::from_secs_f64(seconds);
        let means = |sums: &[f64]| sums.iter().map(|sum| sum / time).collect::<Vec<f64>>();
        let packets = |sums: &[f64]| means(sums).into_iter().map(Packets::new).collect();
        let sample = Sample {
            from: moment(self.from),
            to: moment(now),
            window: packets(&self.window),
            mark_fraction: means(&self.mark_fraction),
            rate: means(&self.rate)
                .into_iter()
                .map(|rate| BitRate::new((rate * bits).round() as u64))
                .collect(),
            rtt: means(&self.rtt).into_iter().map(Duration::from_secs_f64).collect(),
            queue: packets(&self.queue),
        };
        *self = Sums { from: now, ..Sums::new(model) };
        sample
    }
}
