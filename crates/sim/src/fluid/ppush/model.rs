//! Windows, mark fractions and queues of push flows over time (PPUSH Eq. 3-11), integrated numerically.
//!
//! Every flow has a window and a mark fraction, every link a queue:
//!
//! ```text
//! marked   p = q > K                                                              Eq. 3
//! rtt      R = d + q / C                                                          Eq. 4
//! window   dW/dt = 1 / R - W alpha / (2 R theta) * p(t - R')                      Eq. 5
//! marks    dalpha/dt = g / R * (p(t - R') - alpha)                                Eq. 6
//! queue    dq/dt = sum of W / R - C                                               Eq. 7
//! delay    R' = d + K / C                                                         Eq. 8, by Eq. 13
//! ```
//!
//! Starts and bounds are those of §IV-B: a window starts at 1 and a mark fraction at 0; a window never falls below 1, a
//! mark fraction not below 0, and a queue stays within its limit. That a window grow by at most twice the bandwidth-delay
//! product per round trip needs no code: by Eq. 5 it grows by one packet, and that product is one packet at least.
//!
//! Differs from the paper, which has one link. Here a path may cross several, so that work conservation (Fig. 3) can be
//! computed: R adds up the queues on the path, a packet is marked if any link marks it, R' takes the slowest link of the
//! path, and a link's queue is well mixed: what leaves it is made up of the flows as what stands in it. R is at least the
//! time of one packet on the slowest link, or nothing could be divided by it where d = 0 and the queue is empty.

use headwater_units::{BitRate, Bytes, Duration, Packets, Theta, Time};
use thiserror::Error;

/// A link and its queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Its capacity (PPUSH C).
    pub capacity: BitRate,
    /// The queue beyond which packets are marked (PPUSH K).
    pub mark_threshold: Packets,
    /// The longest queue (PPUSH q_max); the rest is lost, which no window notices.
    pub limit: Packets,
}

/// A push flow that always has something to send between two moments.
#[derive(Clone, Debug, PartialEq)]
pub struct PushFlow {
    /// Its weight.
    pub theta: Theta,
    /// When it starts, with a window of 1 and a mark fraction of 0.
    pub start: Time,
    /// When it ends; what is in a queue by then still arrives.
    pub stop: Time,
    /// The links it crosses, as indices into [`Model::links`], ascending.
    pub path: Vec<usize>,
}

/// The model to integrate.
#[derive(Clone, Debug, PartialEq)]
pub struct Model {
    /// Numbered such that every path goes upwards.
    pub links: Vec<Link>,
    /// In the order of every list in a [`Sample`].
    pub flows: Vec<PushFlow>,
    /// The size of every packet; 1210 B in PPUSH §IV-B.
    pub packet: Bytes,
    /// The round trip without queueing, of every flow (PPUSH d).
    pub propagation: Duration,
    /// How fast the mark fraction follows (PPUSH g, 1/16 in §IV-B); in (0, 1].
    pub gain: f64,
    /// When the integration ends.
    pub end: Time,
}

/// How long a step is, and with it which round trip is reckoned with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// One round trip, fixed at d + K / C (Eq. 13): the paper's own iteration (§IV-B, footnote 3).
    ///
    /// Too coarse for its own steady state: alpha comes out near 0.27 and 0.60 where Eq. 18 says 0.258 and 0.577, and the
    /// queue swings around 19 and 49 packets instead of 30.
    Rtt,
    /// At most a twentieth of the round trip of the moment (Eq. 4) and of the mean one.
    Fine,
}

/// Means over a short time.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The time it covers begins here; where the last one ended.
    pub from: Time,
    /// End of the sample.
    pub to: Time,
    /// Of every flow; zero while it does not run.
    pub window: Vec<Packets>,
    /// Of every flow (PPUSH alpha); zero while it does not run.
    pub mark_fraction: Vec<f64>,
    /// Rate of every flow through its last link.
    pub rate: Vec<BitRate>,
    /// Round-trip time of every flow's path, whether it runs or not.
    pub rtt: Vec<Duration>,
    /// Of every link.
    pub queue: Vec<Packets>,
}

/// Samples in the order of time, without gaps.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Series {
    /// The first begins at [`Time::ZERO`], the last ends at the model's end or, by [`Step::Rtt`], within a step after.
    pub samples: Vec<Sample>,
}

impl Series {
    /// The mean of `value` between two moments (PPUSH Eq. 9-11); samples count by how much of them lies between.
    /// `None` if no sample does.
    pub fn mean(&self, from: Time, to: Time, value: impl Fn(&Sample) -> f64) -> Option<f64> {
        let (mut sum, mut time) = (0.0, 0.0);
        for sample in &self.samples {
            let part = sample.to.min(to).since(sample.from.max(from)).as_secs_f64();
            if part > 0.0 {
                sum += part * value(sample);
                time += part;
            }
        }
        (time > 0.0).then(|| sum / time)
    }
}

/// Why a model cannot be integrated.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum FluidError {
    /// A link must carry something, mark at a number of packets, and hold at least as many.
    #[error("link {index} is not valid: capacity {}, mark threshold {}, limit {}", .link.capacity, .link.mark_threshold, .link.limit)]
    Link {
        /// Its index.
        index: usize,
        /// The link.
        link: Link,
    },
    /// Theta must be a number above zero.
    #[error("flow {flow} has theta {theta}, which is not above zero")]
    Theta {
        /// The flow's index.
        flow: usize,
        /// Its theta.
        theta: Theta,
    },
    /// A path must name links of the model, ascending, and at least one.
    #[error("flow {flow} has path {path:?}: not an ascending list among {links} links")]
    Path {
        /// The flow's index.
        flow: usize,
        /// Its path.
        path: Vec<usize>,
        /// How many links the model has.
        links: usize,
    },
    /// Packets must have bytes.
    #[error("the packet size is zero")]
    Packet,
    /// The gain must lie above 0 and at most at 1.
    #[error("gain {0} is not in (0, 1]")]
    Gain(f64),
    /// The integration would take more steps, or give more samples, than [`MAX_STEPS`].
    #[error("{0:e} steps are more than {MAX_STEPS}: end sooner, or sample less often")]
    Steps(f64),
}

/// The most steps of one integration: minutes of work.
pub const MAX_STEPS: u64 = 1_000_000_000;
