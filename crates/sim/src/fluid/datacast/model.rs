//! The source and its slowest receiver over time (Datacast Eq. 2-4), integrated numerically.
//!
//! The source is at position x_s of the object, the slowest receiver at x_r. Four delays lie between them and the critical
//! caching node, the last one that the slowest receiver shares with fast ones: d1 from there to the source and d2 back, d3 on
//! to the slowest receiver, d4 from it.
//!
//! ```text
//! source    x_s'' = (1 - p) delta / T - p x_s' / 2 * x_r'(t - d1 - d4) / MTU          Eq. 2
//! receiver  x_r'  = R                              if x_r < x_s(t - d2 - d3)          Eq. 3
//!                   min(R, x_s'(t - d2 - d3))      if x_r = x_s(t - d2 - d3)
//! signal    p = x_s(t - d1 - d2) - x_r(t - d1 + d3) > C + w MTU - (d3 + d4) R         Eq. 4
//! ```
//!
//! Differs from the paper, which prints max in Eq. 3: its prose ("constrained by both") and the proof of Theorem 1 need min. And
//! Eq. 4 looks at x_r in the future where d3 is larger than d1; so the receiver is followed where its data pass the critical
//! node, y(t) = x_r(t + d3), which Eq. 3 determines from x_s(t - d2).
//!
//! Duplicate data are what the slowest receiver asks for while p = 1, as in the proof of Theorem 2.

use std::collections::VecDeque;

use headwater_units::{BitRate, Bytes, Duration, Time};
use thiserror::Error;

use super::bounds::{SlowestReceiver, bytes_per_second};

/// The most steps of one integration: seconds of work.
pub const MAX_STEPS: u64 = 100_000_000;
/// Steps in the shorter of a delay and the time in which signals halve the rate.
const FINE: f64 = 50.0;

/// The parts of the slowest receiver's round trip; their sum is RTT_m.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delays {
    /// Of an interest, from the critical caching node to the source (Datacast d1).
    pub to_source: Duration,
    /// Of data, from the source to that node (Datacast d2).
    pub from_source: Duration,
    /// Of data, from that node to the slowest receiver (Datacast d3).
    pub to_receiver: Duration,
    /// Of an interest, from the slowest receiver to that node (Datacast d4).
    pub from_receiver: Duration,
}

impl Delays {
    /// All four (Datacast RTT_m).
    pub fn rtt(&self) -> Duration {
        self.to_source + self.from_source + self.to_receiver + self.from_receiver
    }
}

/// The model to integrate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Model {
    /// The receiver and the constants. Its round trip is not used: see [`Model::delays`].
    pub receiver: SlowestReceiver,
    /// Where its round trip goes.
    pub delays: Delays,
    /// Of every caching node (Datacast C).
    pub cache: Bytes,
    /// Initial rate of the source; 500 Mbit/s in §VI-B.
    pub initial_rate: BitRate,
    /// When the integration ends.
    pub end: Time,
}

/// Means over a short time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// The time it covers begins here; where the last one ended.
    pub from: Time,
    /// End of the sample.
    pub to: Time,
    /// New data that the source sends (Datacast x_s').
    pub source_rate: BitRate,
    /// Rate of the slowest receiver (Datacast x_r').
    pub receiver_rate: BitRate,
    /// Old data that it asks the source for.
    pub duplicate_rate: BitRate,
    /// How far the source is ahead of it at the end, as the critical caching node sees it, bytes (Datacast Δx).
    pub ahead: f64,
}

/// Samples in the order of time, without gaps.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// The first begins at [`Time::ZERO`].
    pub samples: Vec<Sample>,
}

impl Series {
    /// Rate of the slowest receiver from a moment on. `None` if nothing was sampled then.
    pub fn goodput(&self, from: Time) -> Option<BitRate> {
        let (time, received, _, _) = self.sums(from);
        (time > 0.0).then(|| BitRate::new((received / time) as u64))
    }

    /// Data sent twice as a part of the data sent once (Datacast §V-D), from a moment on. `None` if nothing new was.
    pub fn duplicate_ratio(&self, from: Time) -> Option<f64> {
        let (_, _, new, twice) = self.sums(from);
        (new > 0.0).then(|| twice / new)
    }

    /// Seconds, and bits received, new and twice, of the samples that begin at `from` or later.
    fn sums(&self, from: Time) -> (f64, f64, f64, f64) {
        let mut sums = (0.0, 0.0, 0.0, 0.0);
        for sample in self.samples.iter().filter(|sample| sample.from >= from) {
            let time = sample.to.since(sample.from).as_secs_f64();
            sums.0 += time;
            sums.1 += time * sample.receiver_rate.get() as f64;
            sums.2 += time * sample.source_rate.get() as f64;
            sums.3 += time * sample.duplicate_rate.get() as f64;
        }
        sums
    }
}

/// Why a model cannot be integrated.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum ModelError {
    /// Something that must not be nothing.
    #[error("{0} is zero; it must be more")]
    Nothing(&'static str),
    /// Credit that does not keep the pipe full: the model is one of a receiver that is limited by its link alone.
    #[error(
        "credit of {credit:.0} bytes is less than the {in_flight:.0} bytes that fill the path there and back"
    )]
    Credit {
        /// Datacast w MTU.
        credit: f64,
        /// Datacast R RTT_m.
        in_flight: f64,
    },
    /// The integration would take more steps than [`MAX_STEPS`].
    #[error("{0:e} steps are more than {MAX_STEPS}: end sooner")]
    Steps(f64),
}

/// Integrates from an idle tree on, giving a sample about every `sampling`, at least one step each.
///
/// # Errors
/// [`ModelError`] if the model makes no sense, or would take too long.
pub fn integrate(model: &Model, sampling: Duration) -> Result<Series, ModelError> {
    let receiver = &model.receiver;
    for (what, nothing) in [
        ("the slowest receiver's rate", receiver.rate == BitRate::ZERO),
        ("the increase", receiver.increase == BitRate::ZERO),
        ("the interval of increases", receiver.interval == Duration::ZERO),
        ("a packet", receiver.packet == Bytes::ZERO),
        ("the time between samples", sampling == Duration::ZERO),
    ] {
        if nothing {
            return Err(ModelError::Nothing(what));
        }
    }
    let in_flight = bytes_per_second(receiver.rate) * model.delays.rtt().as_secs_f64();
    // A credit that just fills the pipe may be computed a last bit short of it.
    if receiver.credit_bytes() < in_flight * (1.0 - 1e-9) {
        return Err(ModelError::Credit { credit: receiver.credit_bytes(), in_flight });
    }
    let steps = model.end.as_secs_f64() / step(model);
    if steps > MAX_STEPS as f64 {
        return Err(ModelError::Steps(steps));
    }
    Ok(run(model, sampling))
}

/// Seconds.
fn step(model: &Model) -> f64 {
    let halving = 2.0 * model.receiver.packet.get() as f64 / bytes_per_second(model.receiver.rate);
    let rtt = model.delays.rtt().as_secs_f64();
    let shortest = if rtt > 0.0 { halving.min(rtt) } else { halving };
    shortest / FINE
}

fn run(model: &Model, sampling: Duration) -> Series {
    let dt = step(model);
    let receiver = &model.receiver;
    let rate = bytes_per_second(receiver.rate);
    let [d1, d2, d3, d4] = [
        model.delays.to_source,
        model.delays.from_source,
        model.delays.to_receiver,
        model.delays.from_receiver,
    ]
    .map(|delay| delay.as_secs_f64() / dt);
    let threshold = model.cache.get() as f64 + receiver.credit_bytes() - (d3 + d4) * dt * rate;
    let (growth, packet) = (receiver.acceleration(), receiver.packet.get() as f64);
    // Positions in bytes, rates in bytes per second.
    let past = || Past::new(d1 + d2 + d3 + d4);
    let (mut source, mut source_rate, mut passed, mut passed_rate) = (past(), past(), past(), past());
    let (mut at, mut speed, mut passes) = (0.0, bytes_per_second(model.initial_rate), 0.0);
    let mut series = Series::default();
    let mut sums = Sums::default();
    let steps = (model.end.as_secs_f64() / dt).ceil() as u64;
    for n in 1..=steps {
        source.push(at);
        source_rate.push(speed);
        passed.push(passes);
        let reached = source.back(d2);
        let room = reached - passes;
        // Eq. 3, a step at a time: what has come may pass, at R at the most.
        let pass_rate = (room / dt + source_rate.back(d2)).clamp(0.0, rate);
        passed_rate.push(pass_rate);
        let ahead = source.back(d1 + d2) - passed.back(d1);
        let asked = passed_rate.back(d1 + d3 + d4);
        let duplicate = ahead > threshold;
        let change = if duplicate { -speed / 2.0 * asked / packet } else { growth };
        at += speed * dt;
        passes += pass_rate * dt;
        sums.add(speed * dt, passed_rate.back(d3) * dt, if duplicate { asked * dt } else { 0.0 });
        speed = (speed + change * dt).max(0.0);
        let now = Time::ZERO + Duration::from_secs_f64(n as f64 * dt);
        let from = series.samples.last().map_or(Time::ZERO, |sample| sample.to);
        if now.since(from) >= sampling || n == steps {
            series.samples.push(sums.sample(from, now, ahead));
            sums = Sums::default();
        }
    }
    series
}

/// History of a quantity, step by step, the latest one last. Before the first step it was nothing.
struct Past(VecDeque<f64>);

impl Past {
    /// Remembers `steps` steps.
    fn new(steps: f64) -> Past {
        Past(VecDeque::from(vec![0.0; steps as usize + 3]))
    }

    fn push(&mut self, value: f64) {
        self.0.pop_front();
        self.0.push_back(value);
    }

    /// The value a number of steps ago, interpolated linearly between two steps.
    fn back(&self, steps: f64) -> f64 {
        let whole = steps.floor();
        let before = |n: f64| self.0[self.0.len() - 1 - n as usize];
        let part = steps - whole;
        before(whole) * (1.0 - part) + before(whole + 1.0) * part
    }
}

/// Bytes since the last sample.
#[derive(Default)]
struct Sums {
    new: f64,
    received: f64,
    twice: f64,
}

impl Sums {
    fn add(&mut self, new: f64, received: f64, twice: f64) {
        self.new += new;
        self.received += received;
        self.twice += twice;
    }

    fn sample(&self, from: Time, to: Time, ahead: f64) -> Sample {
        let time = to.since(from).as_secs_f64();
        let rate = |bytes: f64| BitRate::new((bytes * 8.0 / time).round() as u64);
        let (source_rate, receiver_rate) = (rate(self.new), rate(self.received));
        Sample { from, to, source_rate, receiver_rate, duplicate_rate: rate(self.twice), ahead }
    }
}
