//! Hadoop's shuffle (Courier §V): reducers wait for slots, and fetch a bounded number of map outputs at once, from
//! hosts in random order.
//!
//! The combiner makes one flow of the outputs that a host has for one reducer. What is on the reducer's own host, or empty, needs no
//! flow. Slots are given in the order in which reducers want them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use headwater_units::Time;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use super::SetupError;
use super::records::JobRow;
use super::setup::{JobPlan, ShuffleSetup};

/// A flow of a reducer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flow {
    pub(super) job: u32,
    pub(super) reducer: u32,
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) bytes: u64,
    /// Bytes that have not come.
    pub(super) left: u64,
}

#[derive(Clone, Debug)]
struct Reducer {
    job: u32,
    host: u32,
    /// Flows that have not begun; the last one is next.
    pending: Vec<u32>,
    active: u32,
}

/// A job, as it goes.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) row: JobRow,
    reducers: std::ops::Range<u32>,
    unfinished: u32,
    /// Bytes that its flows have delivered.
    pub(super) sent: u64,
    /// Bytes left between each pair of hosts, where somebody asks.
    pub(super) left: BTreeMap<(u16, u16), u64>,
    pub(super) has_arrived: bool,
}

impl Job {
    pub(super) fn is_running(&self) -> bool {
        self.has_arrived && self.row.finished.is_none()
    }
}

struct Slots {
    free: u32,
    waiting: VecDeque<u32>,
}

/// All jobs.
pub(super) struct Hadoop {
    pub(super) flows: Vec<Flow>,
    reducers: Vec<Reducer>,
    pub(super) jobs: Vec<Job>,
    hosts: Vec<Slots>,
    fetches: u32,
    /// Flows that are open: job, source, receiver, flow.
    pub(super) active: BTreeSet<(u32, u16, u16, u32)>,
    /// Jobs that have not finished.
    pub(super) left: usize,
    pub(super) begun: u64,
    pub(super) most_active: u64,
}

/// Changes since the last plan.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// Flows that begin.
    pub(super) begin: Vec<u32>,
    /// Jobs that have ended.
    pub(super) ended: Vec<u32>,
}

/// The most bytes of all jobs, 8 PiB: beyond, they are not exact in a floating-point number.
const MAX_BYTES: u64 = 1 << 53;

/// Whether all flows have numbers, and all bytes can be counted.
fn countable(jobs: &[JobPlan]) -> Result<(), SetupError> {
    let reducers = || jobs.iter().flat_map(|job| &job.reducers);
    let sums = reducers().try_fold((0_u32, 0_u64), |(flows, bytes), reducer| {
        let flows = u32::try_from(reducer.outputs.len()).ok().and_then(|more| flows.checked_add(more));
        let mut outputs = reducer.outputs.iter().map(|(_, bytes)| bytes.get());
        let bytes = outputs.try_fold(bytes, u64::checked_add).filter(|bytes| *bytes <= MAX_BYTES);
        Ok((flows.ok_or(SetupError::TooManyFlows)?, bytes.ok_or(SetupError::TooManyBytes)?))
    });
    sums.map(|_| ())
}

impl Hadoop {
    /// # Errors
    /// [`SetupError`] if there are more flows or bytes than can be counted: the sums below never overflow.
    pub(super) fn new(setup: &ShuffleSetup) -> Result<Self, SetupError> {
        countable(&setup.jobs)?;
        let hosts = setup.topology.hosts().len();
        let slots = || Slots { free: setup.slots.unwrap_or(u32::MAX), waiting: VecDeque::new() };
        let mut hadoop = Hadoop {
            flows: Vec::new(),
            reducers: Vec::new(),
            jobs: Vec::new(),
            hosts: std::iter::repeat_with(slots).take(hosts).collect(),
            fetches: setup.fetches.unwrap_or(u32::MAX),
            active: BTreeSet::new(),
            left: setup.jobs.len(),
            begun: 0,
            most_active: 0,
        };
        let mut rng = ChaCha8Rng::seed_from_u64(setup.seed ^ 0x0068_6164_6f6f_7000);
        for (number, plan) in (0..).zip(&setup.jobs) {
            hadoop.plan(number, plan, setup.combiner, &mut rng);
        }
        Ok(hadoop)
    }

    fn plan(&mut self, number: u32, plan: &JobPlan, combines: bool, rng: &mut ChaCha8Rng) {
        let first = self.reducers.len() as u32;
        let (mut total, mut left) = (0, BTreeMap::new());
        for reducer in &plan.reducers {
            let mut outputs: Vec<(u32, u64)> =
                reducer.outputs.iter().map(|(host, bytes)| (*host, bytes.get())).collect();
            if combines {
                let mut by_host = BTreeMap::new();
                outputs.iter().for_each(|(host, bytes)| *by_host.entry(*host).or_insert(0) += bytes);
                outputs = by_host.into_iter().collect();
            }
            outputs.retain(|(host, bytes)| *host != reducer.host && *bytes > 0);
            let start = self.flows.len() as u32;
            for (from, bytes) in outputs {
                total += bytes;
                *left.entry((from as u16, reducer.host as u16)).or_insert(0) += bytes;
                let (reducer_number, to) = (self.reducers.len() as u32, reducer.host);
                self.flows.push(Flow { job: number, reducer: reducer_number, from, to, bytes, left: bytes });
            }
            let mut pending: Vec<u32> = (start..self.flows.len() as u32).collect();
            pending.shuffle(rng);
            self.reducers.push(Reducer { job: number, host: reducer.host, pending, active: 0 });
        }
        let row = JobRow {
            task: plan.task,
            arrival: plan.at,
            finished: None,
            bytes: headwater_units::Bytes::new(total),
            last_timed_out: false,
        };
        let reducers = first..self.reducers.len() as u32;
        let unfinished = reducers.len() as u32;
        self.jobs.push(Job { row, reducers, unfinished, sent: 0, left, has_arrived: false });
    }

    /// A job's map outputs are there.
    pub(super) fn arrive(&mut self, now: Time, job: u32) -> Changes {
        let mut changes = Changes::default();
        self.jobs[job as usize].has_arrived = true;
        self.jobs[job as usize].row.arrival = now;
        let reducers = self.jobs[job as usize].reducers.clone();
        if reducers.is_empty() {
            self.finish(now, job, &mut changes);
        }
        for reducer in reducers {
            let host = self.reducers[reducer as usize].host;
            self.hosts[host as usize].waiting.push_back(reducer);
            self.fill(now, host, &mut changes);
        }
        changes
    }

    /// All of a flow has come.
    pub(super) fn end(&mut self, now: Time, flow: u32, timed_out: bool) -> Changes {
        let mut changes = Changes::default();
        let Flow { job, reducer, from, to, .. } = self.flows[flow as usize];
        self.active.remove(&(job, from as u16, to as u16, flow));
        self.jobs[job as usize].row.last_timed_out = timed_out;
        self.reducers[reducer as usize].active -= 1;
        if self.refill(now, reducer, &mut changes) {
            self.fill(now, to, &mut changes);
        }
        changes
    }

    /// Bytes of a flow have come.
    pub(super) fn deliver(&mut self, flow: u32, bytes: u64) {
        let it = &mut self.flows[flow as usize];
        let bytes = bytes.min(it.left);
        it.left -= bytes;
        let job = &mut self.jobs[it.job as usize];
        job.sent += bytes;
        if let Some(left) = job.left.get_mut(&(it.from as u16, it.to as u16)) {
            *left -= bytes.min(*left);
        }
    }

    /// Gives a host's free slots to those that wait.
    fn fill(&mut self, now: Time, host: u32, changes: &mut Changes) {
        while self.hosts[host as usize].free > 0 {
            let Some(reducer) = self.hosts[host as usize].waiting.pop_front() else { return };
            self.hosts[host as usize].free -= 1;
            self.refill(now, reducer, changes);
        }
    }

    /// Begins as many fetches as a reducer may have. Whether it has everything, and its slot is free again.
    fn refill(&mut self, now: Time, number: u32, changes: &mut Changes) -> bool {
        let reducer = &mut self.reducers[number as usize];
        while reducer.active < self.fetches {
            let Some(flow) = reducer.pending.pop() else { break };
            reducer.active += 1;
            let Flow { job, from, to, .. } = self.flows[flow as usize];
            self.active.insert((job, from as u16, to as u16, flow));
            self.begun += 1;
            changes.begin.push(flow);
        }
        self.most_active = self.most_active.max(self.active.len() as u64);
        let (is_done, job, host) = (reducer.active == 0, reducer.job, reducer.host);
        if is_done {
            self.hosts[host as usize].free += 1;
            self.jobs[job as usize].unfinished -= 1;
            if self.jobs[job as usize].unfinished == 0 {
                self.finish(now, job, changes);
            }
        }
        is_done
    }

    fn finish(&mut self, now: Time, job: u32, changes: &mut Changes) {
        self.jobs[job as usize].row.finished = Some(now);
        self.left -= 1;
        changes.ended.push(job);
    }
}
