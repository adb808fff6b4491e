//! Jobs of MapReduce whose reducers fetch map outputs, by the schemes `hadoop`, `courier` and those with a scheduler.

use std::sync::OnceLock;

use headwater_sim::packet::shuffle::{JobPlan, ReducerPlan};
use headwater_units::{Bytes, Duration, TaskId, Time};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

use super::coflow_trace::{CoflowTrace, TraceCoflow};
use super::{WorkloadError, training};
use crate::text;

/// The public trace (`data/SOURCES.md`).
static PUBLIC: &[u8] = include_bytes!("../../data/fb2010-1hr-150-0.txt");

/// Jobs, Hadoop's limits, and the constants of schedulers and Courier.
///
/// `shrink` divides sizes and arrivals of the trace, Aalo's first threshold and period, the stand-in for Django's period, and MinSize
/// alike: a run at the trace's own scale is 2.4 * 10^9 packets. Blocks, round trips, timeouts and buffers stay what they are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShuffleText {
    /// Which jobs.
    pub jobs: Jobs,
    /// The common factor; 1 if absent.
    #[serde(default = "one")]
    pub shrink: f64,
    /// Reducers that a host runs at once; 20 (Courier §V). Any number if 0.
    #[serde(default = "ShuffleText::usual_slots")]
    pub slots: u32,
    /// Map outputs that a reducer fetches at once; 5 (Hadoop's default). Any number if 0.
    #[serde(default = "ShuffleText::usual_fetches")]
    pub fetches: u32,
    /// Whether the outputs that a host has for one reducer are one flow.
    #[serde(default = "yes")]
    pub combiner: bool,
    /// One way of a request or an order, beside the network; 2 us, two links.
    #[serde(default = "ShuffleText::usual_delay", with = "text::one")]
    pub delay: Duration,
    /// Tick of a timer: the least allowance for variation of a timeout; 1 us.
    #[serde(default = "ShuffleText::usual_tick", with = "text::one")]
    pub tick: Duration,
    /// The timeout of a connection without a sample; 2 ms, a port's buffer at 1 Gbit/s. Not below the least one.
    #[serde(default = "ShuffleText::usual_first_timeout", with = "text::one")]
    pub first_timeout: Duration,
    /// Classes of data of Sincronia, 1 to 8.
    #[serde(default = "ShuffleText::usual_classes")]
    pub classes: u8,
    /// How the classes of a port share its buffer.
    #[serde(default)]
    pub buffers: Buffers,
    /// From where each class marks; as the port if absent.
    #[serde(default, with = "text::maybe", skip_serializing_if = "Option::is_none")]
    pub class_mark: Option<Bytes>,
    /// Whether a connection that changes its class begins with the first window again (Courier §IV-A).
    #[serde(default = "yes")]
    pub restart_window: bool,
    /// Sincronia's order turned about, the most urgent coflow last, to see what order is worth; no.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub inverted: bool,
    /// Aalo's first threshold; 10 MiB.
    #[serde(default = "ShuffleText::usual_first_queue", with = "text::one")]
    pub first_queue: Bytes,
    /// How often Aalo's hosts and coordinator talk; 10 ms.
    #[serde(default = "ShuffleText::usual_sync", with = "text::one")]
    pub sync: Duration,
    /// The most lanes into a host (MaxNum). Any number if absent, which is 0 here; 0 in a file is refused.
    #[serde(default, deserialize_with = "lanes")]
    pub max_num: u32,
    /// The most lanes of a pair of hosts; 1. Any number if 0, which takes a MaxNum.
    #[serde(default = "ShuffleText::usual_per_pair")]
    pub max_per_pair: u32,
    /// MinSize; 1 MiB.
    #[serde(default = "ShuffleText::usual_min_size", with = "text::one")]
    pub min_size: Bytes,
    /// The block; 64 KiB (Courier §VI-C).
    #[serde(default = "ShuffleText::usual_block", with = "text::one")]
    pub block: Bytes,
    /// Whether a pair's flow has a connection for each class; else it keeps the one that it has, which changes its class
    /// (Courier §IV-A).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lane_per_class: bool,
    /// Whether each flow has a lane of its own, as if Courier merged nothing, to see what merging is worth; no.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unmerged: bool,
    /// Blocks under way in a lane; 2.
    #[serde(default = "ShuffleText::usual_pipeline")]
    pub pipeline: u32,
    /// The most flows of a host by the stand-in for Django.
    #[serde(default = "ShuffleText::usual_django_flows")]
    pub django_flows: u32,
    /// The kernel's name of the congestion control of connections on real packets; its own choice if absent. The packet
    /// engine's connections run DCTCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion: Option<String>,
}

/// Where jobs come from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "from", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Jobs {
    /// The public trace: racks become hosts, and sizes grow by hosts per rack, so that ports carry the load that they carried there.
    Facebook {
        /// Number of its first coflows; all 526 if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        first: Option<u32>,
        /// Sizes times this, before shrinking.
        #[serde(default = "one")]
        sizes: f64,
        /// Times between arrivals times this, before shrinking.
        #[serde(default = "one")]
        gaps: f64,
    },
    /// Jobs that train neural networks with parameter servers (Courier §V-D): 60 of a public trace.
    Training {
        /// Number of its first jobs; all 60 if absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        first: Option<u32>,
        /// GPUs of each job times this.
        gpus: u32,
        /// The most iterations of a job.
        iterations: u32,
    },
    /// The same job several times at once, mappers on the first half of the hosts and reducers on the second, evenly
    /// (Courier Fig. 1).
    Grid {
        /// Jobs (Courier n).
        coflows: u32,
        /// Mappers of each, over all its hosts (Courier m).
        mappers: u32,
        /// Reducers of each, over all its hosts (Courier r).
        reducers: u32,
        /// From each mapper to each reducer.
        #[serde(with = "text::one")]
        bytes: Bytes,
    },
    /// Jobs one after the other, each with its mappers and its reducers spread evenly over all hosts.
    AllToAll {
        /// Mappers of each.
        mappers: u32,
        /// Reducers of each.
        reducers: u32,
        /// From each mapper to each reducer,
        #[serde(with = "text::one")]
        bytes: Bytes,
        /// times that of the job: there are as many jobs as numbers.
        sizes: Vec<f64>,
        /// From one arrival to the next.
        #[serde(with = "text::one")]
        gap: Duration,
    },
}

/// How the classes of a port share its buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Buffers {
    /// One pool for all of them.
    #[default]
    Pool,
    /// Each has an equal part.
    PerClass,
}

/// The most bytes of all jobs, 8 PiB: sums stay exact in a floating-point number.
const MAX_BYTES: f64 = (1_u64 << 53) as f64;
/// The most map outputs of all jobs: a run keeps some 150 bytes for each.
const MAX_OUTPUTS: f64 = 10_000_000.0;

fn one() -> f64 {
    1.0
}

/// A number of lanes. No lane at all would let every job wait forever.
fn lanes<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    match u32::deserialize(from)? {
        0 => Err(D::Error::custom(
            "max_num is 0, so that no lane could run; leave it out for any number of lanes",
        )),
        lanes => Ok(lanes),
    }
}

fn yes() -> bool {
    true
}

impl ShuffleText {
    fn usual_slots() -> u32 {
        20
    }
    fn usual_fetches() -> u32 {
        5
    }
    fn usual_delay() -> Duration {
        Duration::from_micros(2)
    }
    fn usual_tick() -> Duration {
        Duration::from_micros(1)
    }
    fn usual_first_timeout() -> Duration {
        Duration::from_millis(2)
    }
    fn usual_classes() -> u8 {
        8
    }
    fn usual_first_queue() -> Bytes {
        Bytes::mib(10)
    }
    fn usual_sync() -> Duration {
        Duration::from_millis(10)
    }
    fn usual_per_pair() -> u32 {
        1
    }
    fn usual_min_size() -> Bytes {
        Bytes::mib(1)
    }
    fn usual_block() -> Bytes {
        Bytes::kib(64)
    }
    fn usual_pipeline() -> u32 {
        2
    }
    fn usual_django_flows() -> u32 {
        20
    }

    /// A size of the trace's scale in this run.
    pub(crate) fn shrunk(&self, bytes: Bytes) -> Bytes {
        Bytes::new(((bytes.get() as f64 / self.shrink).round() as u64).max(1))
    }

    /// A time of the trace's scale in this run.
    pub(crate) fn shrunk_time(&self, time: Duration) -> Duration {
        Duration::from_secs_f64(time.as_secs_f64() / self.shrink).max(Duration::from_micros(1))
    }

    /// Whether all of it is in range.
    ///
    /// # Errors
    /// [`WorkloadError`].
    pub(crate) fn check(&self, hosts: u32) -> Result<(), WorkloadError> {
        let range = |what, value: f64, ok: bool, must| match ok {
            true => Ok(()),
            false => Err(WorkloadError::OutOfRange { what, value, must }),
        };
        let finite = |x: f64| x.is_finite() && x > 0.0;
        range("workload.shrink", self.shrink, finite(self.shrink) && self.shrink >= 1.0, "at least 1")?;
        range("workload.classes", self.classes.into(), (1..=8).contains(&self.classes), "1 to 8")?;
        range("workload.pipeline", self.pipeline.into(), self.pipeline > 0, "at least 1")?;
        range("workload.block", self.block.get() as f64, self.block > Bytes::ZERO, "at least 1 B")?;
        let bounded = self.max_num > 0 || self.max_per_pair > 0;
        range(
            "workload.max_per_pair",
            0.0,
            bounded,
            "at least 1 where max_num is 0, else lanes have no bound",
        )?;
        range("workload.django_flows", 0.0, self.django_flows > 0, "at least 1")?;
        range("fabric's hosts", hosts.into(), (2..=4096).contains(&hosts), "2 to 4096 for a shuffle")?;
        match &self.jobs {
            &Jobs::Facebook { first, sizes, gaps } => {
                let first = first.unwrap_or(1);
                range("workload.jobs.first", first.into(), first > 0, "at least 1")?;
                let trace = public_trace();
                let all = trace.bytes().get() as f64 * f64::from(hosts) / f64::from(trace.ports);
                let most = finite(sizes) && all * sizes / self.shrink <= MAX_BYTES;
                let must = "above 0, and such that all jobs together have at most 2^53 bytes";
                range("workload.jobs.sizes", sizes, most, must)?;
                // The trace has an hour.
                let sensible = finite(gaps) && gaps <= 1e6;
                range("workload.jobs.gaps", gaps, sensible, "above 0 and at most 1000000")
            }
            &Jobs::Training { first, gpus, iterations } => {
                let least = first.unwrap_or(1).min(gpus).min(iterations);
                range("workload.jobs of training", least.into(), least > 0, "at least 1 of each")?;
                range("workload.jobs.gpus", gpus.into(), gpus <= 64, "at most 64")
            }
            &Jobs::Grid { coflows, mappers, reducers, bytes } => {
                let least = coflows.min(mappers).min(reducers);
                range("workload.jobs of a grid", least.into(), least > 0, "at least 1 of each")?;
                let outputs = f64::from(coflows) * f64::from(mappers) * f64::from(reducers);
                self.countable(outputs, bytes, outputs)
            }
            Jobs::AllToAll { mappers, reducers, bytes, sizes, gap } => {
                let least = (*mappers).min(*reducers).min(sizes.len() as u32);
                range("workload.jobs from all to all", least.into(), least > 0, "at least 1 of each")?;
                let sensible = |size: &f64| size.is_finite() && (0.0..=1e9).contains(size);
                sizes.iter().try_for_each(|size| {
                    range("workload.jobs.sizes", *size, sensible(size), "0 to 1000000000")
                })?;
                let (gap, last) = (gap.as_secs_f64(), gap.as_secs_f64() * sizes.len() as f64);
                range(
                    "workload.jobs.gap in seconds",
                    gap,
                    last <= 1e9,
                    "such that all arrive within 10^9 s",
                )?;
                let each = f64::from(*mappers) * f64::from(*reducers);
                self.countable(each * sizes.len() as f64, *bytes, each * sizes.iter().sum::<f64>())
            }
        }
    }

    /// Whether so many map outputs, and so many times these bytes, can be counted.
    fn countable(&self, outputs: f64, bytes: Bytes, times: f64) -> Result<(), WorkloadError> {
        let refused = |what, value, must| Err(WorkloadError::OutOfRange { what, value, must });
        if outputs > MAX_OUTPUTS {
            let must = "at most 10000000: fewer jobs, mappers or reducers";
            return refused("the number of map outputs of workload.jobs", outputs, must);
        }
        // An output has a byte at least.
        if (bytes.get() as f64 / self.shrink).max(1.0) * times > MAX_BYTES {
            let must = "such that all jobs together have at most 2^53";
            return refused("workload.jobs.bytes", bytes.get() as f64, must);
        }
        Ok(())
    }

    /// The jobs on `hosts` hosts, ascending by arrival.
    pub(crate) fn plan(&self, hosts: u32, seed: u64) -> Vec<JobPlan> {
        match &self.jobs {
            &Jobs::Facebook { first, sizes, gaps } => self.facebook(hosts, first, (sizes, gaps), seed),
            &Jobs::Training { first, gpus, iterations } => {
                training::plan(hosts, seed, self.shrink, first, (gpus, iterations))
            }
            &Jobs::Grid { coflows, mappers, reducers, bytes } => {
                let half = hosts / 2;
                let bytes = self.shrunk(bytes);
                let reducer = |number: u32| ReducerPlan {
                    host: half + number % (hosts - half),
                    outputs: (0..mappers).map(|mapper| (mapper % half, bytes)).collect(),
                };
                let job = |task| JobPlan {
                    task: TaskId(u64::from(task)),
                    at: Time::ZERO,
                    after: None,
                    reducers: (0..reducers).map(reducer).collect(),
                };
                (0..coflows).map(job).collect()
            }
            Jobs::AllToAll { mappers, reducers, bytes, sizes, gap } => {
                let job = |(number, size): (u64, &f64)| {
                    let each = self.shrunk(Bytes::new((bytes.get() as f64 * size).round() as u64));
                    let outputs: Vec<_> = (0..*mappers).map(|mapper| (mapper % hosts, each)).collect();
                    let reducer = |number| ReducerPlan { host: number % hosts, outputs: outputs.clone() };
                    let at = Time::ZERO + *gap * number;
                    let reducers = (0..*reducers).map(reducer).collect();
                    JobPlan { task: TaskId(number), at, after: None, reducers }
                };
                (0..).zip(sizes).map(job).collect()
            }
        }
    }

    fn facebook(&self, hosts: u32, first: Option<u32>, (sizes, gaps): (f64, f64), seed: u64) -> Vec<JobPlan> {
        let trace = public_trace();
        let racks = u32::from(trace.ports);
        let scale = sizes * f64::from(hosts) / f64::from(racks) / self.shrink;
        let most = first.map_or(usize::MAX, |first| first as usize);
        let mut jobs: Vec<JobPlan> = Vec::new();
        for coflow in trace.coflows.iter().take(most) {
            let mut places =
                Places { hosts, racks, rng: ChaCha8Rng::seed_from_u64(seed ^ coflow.id.0 << 16) };
            let at = Time::from_nanos((coflow.arrival.as_nanos() as f64 * gaps / self.shrink).round() as u64);
            let reducers = reducers(coflow, scale, &mut places);
            jobs.push(JobPlan { task: coflow.id, at, after: None, reducers });
        }
        jobs.sort_by_key(|job| (job.at, job.task));
        jobs
    }
}

fn reducers(coflow: &TraceCoflow, scale: f64, places: &mut Places) -> Vec<ReducerPlan> {
    let mappers: Vec<u32> = coflow.mappers.iter().map(|port| places.host_of(port.0.into())).collect();
    let reducer = |(port, bytes): &(headwater_policy::coflow::Port, Bytes)| {
        let each = (bytes.get() as f64 * scale / mappers.len() as f64).round().max(1.0) as u64;
        let outputs = mappers.iter().map(|host| (*host, Bytes::new(each))).collect();
        ReducerPlan { host: places.host_of(port.0.into()), outputs }
    };
    coflow.reducers.iter().map(reducer).collect()
}

/// Where racks of the trace are: rack r on host r modulo the hosts, where there are fewer; else each task on any of its rack's hosts.
struct Places {
    hosts: u32,
    racks: u32,
    rng: ChaCha8Rng,
}

impl Places {
    fn host_of(&mut self, rack: u32) -> u32 {
        if self.hosts <= self.racks {
            return rack % self.hosts;
        }
        let own = (self.hosts - 1 - rack) / self.racks + 1;
        rack + self.racks * self.rng.random_range(0..own)
    }
}

fn public_trace() -> &'static CoflowTrace {
    static TRACE: OnceLock<CoflowTrace> = OnceLock::new();
    TRACE.get_or_init(|| CoflowTrace::parse(PUBLIC).expect("the shipped trace is in order"))
}
