//! Tasks over time: arrivals and completions in order, rates anew at each.
//!
//! Time is a float of nanoseconds in here, so that a completion falls where it belongs and not on the next whole
//! nanosecond; what falls within half a nanosecond is one moment. Good for runs of some days.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use headwater_units::{Bytes, Time};

use super::rates::{Rates, Slot};
use super::{ActiveTask, Allocation, Done, FlowError, Flowing, Network, Share, Span, Task, Weigher, Work};

/// Events nearer to each other than this are one.
const MOMENT: f64 = 0.5;

/// Runs `tasks`, in any order, until the last byte of the last; what became of each, in the order given.
///
/// # Errors
/// [`FlowError`] if a task cannot be run on this network, or the weigher fails.
pub fn run(
    network: &Network,
    tasks: &[Task],
    rule: Allocation,
    weigher: &mut Weigher,
) -> Result<Vec<Done>, FlowError> {
    drive(network, tasks, &vec![None; tasks.len()], rule, weigher, None)
}

/// As [`run`], but breaks a task off at its end in `stops`, one per task, if it is not through by then; one whose end is
/// not after its arrival brings nothing. Shows `watch` every span of time in which no rate changes, from zero on.
///
/// # Errors
/// [`FlowError`] if a task cannot be run on this network, or the weigher fails.
pub fn run_until(
    network: &Network,
    tasks: &[Task],
    stops: &[Option<Time>],
    rule: Allocation,
    weigher: &mut Weigher,
    watch: &mut dyn FnMut(&Span),
) -> Result<Vec<Done>, FlowError> {
    drive(network, tasks, stops, rule, weigher, Some(watch))
}

fn drive(
    network: &Network,
    tasks: &[Task],
    stops: &[Option<Time>],
    rule: Allocation,
    weigher: &mut Weigher,
    mut watch: Option<&mut dyn FnMut(&Span)>,
) -> Result<Vec<Done>, FlowError> {
    if stops.len() != tasks.len() {
        return Err(FlowError::Stops { stops: stops.len(), tasks: tasks.len() });
    }
    for task in tasks {
        check(task, network.capacities.len())?;
    }
    let mut run = Run::new(network, tasks, stops, rule);
    while let Some(now) = run.next_moment() {
        if let Some(watch) = &mut watch {
            watch(&run.span(now));
        }
        run.now = now;
        let completed = run.complete();
        let admitted = run.admit()?;
        if run.stop() || admitted || completed {
            run.weigh(weigher)?;
        }
        run.share_out();
    }
    let done = run.done.into_iter();
    Ok(done.map(|done| done.expect("every task completes, since some flow always has a rate")).collect())
}

fn check(task: &Task, links: usize) -> Result<(), FlowError> {
    if task.paths.is_empty() {
        return Err(FlowError::NoFlows(task.task));
    }
    if let Work::Own(sizes) = &task.work
        && sizes.len() != task.paths.len()
    {
        return Err(FlowError::Sizes { task: task.task, sizes: sizes.len(), paths: task.paths.len() });
    }
    task.paths.iter().try_for_each(|path| super::check_path(path, links))
}

struct Run<'a> {
    tasks: &'a [Task],
    rates: Rates,
    now: f64,
    /// Not arrived yet; the next one last.
    waiting: Vec<usize>,
    /// When tasks are broken off that are not over by then; the next one last.
    stops: Vec<(f64, usize)>,
    /// Arrived and not done, by index.
    active: BTreeSet<usize>,
    /// Of every task that has arrived, by index.
    pools_of: Vec<Vec<usize>>,
    pools: Vec<Pool>,
    /// How many pools are not empty.
    open: usize,
    /// Of every flow, by slot.
    flows: Vec<Flow>,
    /// When a pool will be empty, unless its version has changed by then; at most four per open pool, and 64.
    completions: BinaryHeap<Reverse<Completion>>,
    done: Vec<Option<Done>>,
}

/// Bytes that some flows of one task bring together.
struct Pool {
    /// Initial bytes.
    bytes: Bytes,
    /// Bits left at `since`.
    left: f64,
    since: f64,
    /// Those who bring it; none once it is empty.
    flows: Vec<Slot>,
    version: u64,
}

struct Flow {
    /// The index of its task, and its place among the paths.
    task: usize,
    place: usize,
    pool: usize,
    /// Bits per second since its pool's `since`.
    rate: f64,
    /// Bits brought until its pool's `since`.
    brought: f64,
}

#[derive(PartialEq)]
struct Completion {
    at: f64,
    pool: usize,
    version: u64,
}

impl Eq for Completion {}

impl PartialOrd for Completion {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Completion {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.at.total_cmp(&other.at).then((self.pool, self.version).cmp(&(other.pool, other.version)))
    }
}

impl<'a> Run<'a> {
    fn new(network: &Network, tasks: &'a [Task], stops: &[Option<Time>], rule: Allocation) -> Self {
        let mut waiting: Vec<usize> = (0..tasks.len()).collect();
        waiting.sort_by_key(|&task| Reverse((tasks[task].arrival, task)));
        let mut ends: Vec<(Time, usize)> =
            (0..tasks.len()).filter_map(|at| Some((stops[at]?.max(tasks[at].arrival), at))).collect();
        ends.sort_unstable_by_key(|end| Reverse(*end));
        Run {
            tasks,
            rates: Rates::new(network, rule),
            now: 0.0,
            waiting,
            stops: ends.into_iter().map(|(end, task)| (end.as_nanos() as f64, task)).collect(),
            active: BTreeSet::new(),
            pools_of: vec![Vec::new(); tasks.len()],
            pools: Vec::new(),
            open: 0,
            flows: Vec::new(),
            completions: BinaryHeap::new(),
            done: vec![None; tasks.len()],
        }
    }

    fn next_moment(&mut self) -> Option<f64> {
        while let Some(Reverse(next)) = self.completions.peek()
            && next.version != self.pools[next.pool].version
        {
            self.completions.pop();
        }
        while self.stops.last().is_some_and(|(_, task)| self.is_over(*task)) {
            self.stops.pop();
        }
        let arrival = self.waiting.last().map(|&task| self.arrival(task));
        let completion = self.completions.peek().map(|Reverse(next)| next.at);
        let stop = self.stops.last().map(|(at, _)| *at);
        let next = [arrival, completion, stop].into_iter().flatten().reduce(f64::min);
        next.map(|moment| moment.max(self.now))
    }

    /// Whether a task has arrived and brings nothing any more.
    fn is_over(&self, task: usize) -> bool {
        self.done[task].is_some() && !self.active.contains(&task)
    }

    /// Rates from now until the next moment.
    fn span(&self, until: f64) -> Span {
        let moment = |at: f64| Time::from_nanos(at.round() as u64);
        let mut flows = Vec::new();
        for &task in &self.active {
            let slots = self.pools_of[task].iter().flat_map(|&pool| &self.pools[pool].flows);
            flows.extend(slots.map(|&slot| {
                let Flow { place, rate, .. } = self.flows[slot.index()];
                Flowing { task, place, rate, share: self.rates.share(slot) }
            }));
        }
        let tasks_done = self.tasks.len() - self.waiting.len() - self.active.len();
        Span { from: moment(self.now), to: moment(until), tasks_done, flows }
    }

    fn arrival(&self, task: usize) -> f64 {
        self.tasks[task].arrival.as_nanos() as f64
    }

    /// Ends the pools that are empty now; whether a task was among them that has no other.
    fn complete(&mut self) -> bool {
        let mut completed = false;
        while let Some(Reverse(next)) = self.completions.peek()
            && next.at <= self.now + MOMENT
        {
            let (pool, version) = (next.pool, next.version);
            self.completions.pop();
            if self.pools[pool].version == version {
                completed |= self.empty(pool);
            }
        }
        completed
    }

    fn empty(&mut self, pool: usize) -> bool {
        self.settle(pool);
        let bytes = self.pools[pool].bytes;
        self.close(pool, bytes)
    }

    /// Breaks off the tasks whose end is now; whether there was one.
    fn stop(&mut self) -> bool {
        let mut stopped = false;
        while let Some(&(at, task)) = self.stops.last()
            && at <= self.now + MOMENT
        {
            self.stops.pop();
            for pool in self.pools_of[task].clone() {
                if !self.pools[pool].flows.is_empty() {
                    self.settle(pool);
                    let flows = self.pools[pool].flows.iter();
                    let bits: f64 = flows.map(|slot| self.flows[slot.index()].brought).sum();
                    let bytes = Bytes::new((bits / 8.0).round() as u64).min(self.pools[pool].bytes);
                    stopped |= self.close(pool, bytes);
                }
            }
        }
        stopped
    }

    /// Ends a settled pool that has brought `bytes`; whether its task has no other.
    fn close(&mut self, pool: usize, bytes: Bytes) -> bool {
        let slots = std::mem::take(&mut self.pools[pool].flows);
        self.pools[pool].version += 1;
        self.open -= 1;
        let task = self.flows[slots[0].index()].task;
        for &slot in &slots {
            self.rates.remove(slot);
        }
        for (slot, bytes) in slots.iter().zip(self.brought(&slots, bytes)) {
            let place = self.flows[slot.index()].place;
            let done = self.done[task].as_mut().expect("an active task has its account");
            done.brought[place] = bytes;
            done.finish = Time::from_nanos(self.now.round() as u64);
        }
        let completed = self.pools_of[task].iter().all(|&pool| self.pools[pool].flows.is_empty());
        if completed {
            self.active.remove(&task);
        }
        completed
    }

    /// Bytes that each of a pool's flows brought: whole ones that sum up to `bytes`.
    fn brought(&self, slots: &[Slot], bytes: Bytes) -> Vec<Bytes> {
        let total: f64 = slots.iter().map(|slot| self.flows[slot.index()].brought).sum();
        let (mut so_far, mut given) = (0.0, Bytes::ZERO);
        let mut list = Vec::new();
        for slot in slots {
            so_far += self.flows[slot.index()].brought;
            let part = if total > 0.0 { so_far / total } else { 0.0 };
            let until = Bytes::new((bytes.get() as f64 * part).round() as u64).min(bytes);
            list.push(until - given);
            given = until;
        }
        // The parts may sum up to less than the whole by rounding.
        *list.last_mut().expect("a pool has flows") += bytes - given;
        list
    }

    /// Lets in the tasks that arrive now; whether any of them has something to bring.
    fn admit(&mut self) -> Result<bool, FlowError> {
        let mut admitted = false;
        while let Some(&task) = self.waiting.last()
            && self.arrival(task) <= self.now + MOMENT
        {
            self.waiting.pop();
            let paths = self.tasks[task].paths.len();
            self.done[task] =
                Some(Done { finish: self.tasks[task].arrival, brought: vec![Bytes::ZERO; paths] });
            for (bytes, places) in parts(&self.tasks[task]) {
                if bytes > Bytes::ZERO {
                    self.open(task, bytes, places)?;
                    admitted = true;
                }
            }
            if !self.pools_of[task].is_empty() {
                self.active.insert(task);
            }
        }
        Ok(admitted)
    }

    fn open(&mut self, task: usize, bytes: Bytes, places: std::ops::Range<usize>) -> Result<(), FlowError> {
        let pool = self.pools.len();
        let mut flows = Vec::new();
        for place in places {
            let slot = self.rates.add(&self.tasks[task].paths[place], Share::EVEN)?;
            assert_eq!(slot.index(), self.flows.len(), "slots count up from zero");
            self.flows.push(Flow { task, place, pool, rate: 0.0, brought: 0.0 });
            flows.push(slot);
        }
        let left = bytes.get() as f64 * 8.0;
        self.pools.push(Pool { bytes, left, since: self.now, flows, version: 0 });
        self.pools_of[task].push(pool);
        self.open += 1;
        Ok(())
    }

    fn weigh(&mut self, weigher: &mut Weigher) -> Result<(), FlowError> {
        let mut slots = Vec::new();
        let mut active = Vec::new();
        for &task in &self.active {
            let (mut left, mut flows) = (0.0, Vec::new());
            for &pool in &self.pools_of[task] {
                left += self.left(pool);
                slots.extend(&self.pools[pool].flows);
                flows.extend(self.pools[pool].flows.iter().map(|slot| self.flows[slot.index()].place));
            }
            let remaining = Bytes::new(((left / 8.0).round() as u64).max(1));
            active.push(ActiveTask { task: &self.tasks[task], remaining, flows });
        }
        let shares = weigher(&active)?;
        if shares.len() != slots.len() {
            return Err(FlowError::Shares { shares: shares.len(), flows: slots.len() });
        }
        slots.into_iter().zip(shares).try_for_each(|(slot, share)| self.rates.set_share(slot, share))
    }

    /// Bits left of a pool now; none once it is empty.
    fn left(&self, pool: usize) -> f64 {
        let pool = &self.pools[pool];
        let rate: f64 = pool.flows.iter().map(|slot| self.flows[slot.index()].rate).sum();
        if pool.flows.is_empty() { 0.0 } else { (pool.left - rate * (self.now - pool.since) / 1e9).max(0.0) }
    }

    /// Brings the accounts of a pool and its flows to now.
    fn settle(&mut self, pool: usize) {
        let left = self.left(pool);
        let pool = &mut self.pools[pool];
        for slot in &pool.flows {
            let flow = &mut self.flows[slot.index()];
            flow.brought += flow.rate * (self.now - pool.since) / 1e9;
        }
        (pool.left, pool.since) = (left, self.now);
    }

    /// New rates, and when their pools will be empty by them.
    fn share_out(&mut self) {
        let mut pools = BTreeSet::new();
        for slot in self.rates.update() {
            let pool = self.flows[slot.index()].pool;
            // A flow that was removed has no pool to bring up to date: it is empty.
            if !self.pools[pool].flows.is_empty() && pools.insert(pool) {
                self.settle(pool);
            }
            self.flows[slot.index()].rate = self.rates.rate(slot);
        }
        for index in pools {
            let pool = &mut self.pools[index];
            pool.version += 1;
            let rate: f64 = pool.flows.iter().map(|slot| self.flows[slot.index()].rate).sum();
            if rate > 0.0 {
                let at = self.now + pool.left / rate * 1e9;
                self.completions.push(Reverse(Completion { at, pool: index, version: pool.version }));
            }
        }
        // Outdated completions would else wait for a time that never comes to them.
        if self.completions.len() > 4 * self.open + 64 {
            let pools = &self.pools;
            self.completions.retain(|Reverse(entry)| entry.version == pools[entry.pool].version);
        }
    }
}

/// The pools of a task: how much, and which of its paths bring it.
fn parts(task: &Task) -> Vec<(Bytes, std::ops::Range<usize>)> {
    let paths = task.paths.len();
    let each = |size: &dyn Fn(usize) -> Bytes| (0..paths).map(|at| (size(at), at..at + 1)).collect();
    match &task.work {
        Work::Pooled(bytes) => vec![(*bytes, 0..paths)],
        Work::Equal(bytes) => {
            let (share, odd) = (bytes.get() / paths as u64, bytes.get() % paths as u64);
            each(&|at| Bytes::new(share + u64::from((at as u64) < odd)))
        }
        Work::Own(sizes) => each(&|at| sizes[at]),
    }
}
