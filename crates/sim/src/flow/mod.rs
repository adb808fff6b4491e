//! A network of rates: no packets, no queues, no round trips; every flow has at each moment the rate that a rule grants.
//!
//! Rates of a scheme whose ends settle at once: weighted max-min for push flows, since WFCC's shares of a bottleneck go
//! by theta (PPUSH Theorem 1), plain max-min for DCTCP and its kin, strict ranks for schemes that serve one after the
//! other. Rates change when tasks arrive, when something completes, and when a [`Weigher`] changes its mind; between
//! two such moments nothing happens, so a run costs its events and not its bytes.
//!
//! * [`rates`]: who gets what now.
//! * [`run`]: tasks over time, from arrival to completion.
//! * [`weigh`]: weights and ranks, such as the thetas of PPUSH Algorithm 1.
//! * [`swarm`]: one object to many by blocks that they pass on to one another, and [`dealt`]: the same over disjoint trees.
//!
//! Leaves out what takes time or is lost on the way: slow start, convergence, headers, repair symbols, drops,
//! propagation. The effect of WFCC where Theorem 1 does not reach is not here either: by Eq. 15 a window follows the
//! marks of the whole path, so a flow that crosses several full links gets less there than max-min grants, and so does
//! one with a longer round trip than others.

use headwater_fabric::{LinkId, Path};
use headwater_policy::PlanError;
use headwater_units::{BitRate, Bytes, TaskId, Time};
use thiserror::Error;

pub mod dealt;
pub mod rates;
pub mod swarm;
pub mod weigh;

mod events;

pub use events::{run, run_until};

/// The links, and what each carries.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    capacities: Vec<BitRate>,
}

impl Network {
    /// A network whose link of id `i` carries `capacities[i]`.
    ///
    /// # Errors
    /// [`FlowError::DeadLink`] if one carries nothing: a flow over it would never end.
    pub fn new(capacities: Vec<BitRate>) -> Result<Self, FlowError> {
        match capacities.iter().zip(0..).find(|(capacity, _)| **capacity == BitRate::ZERO) {
            Some((_, link)) => Err(FlowError::DeadLink(LinkId(link))),
            None => Ok(Network { capacities }),
        }
    }

    /// Capacity of every link, by id.
    pub fn capacities(&self) -> &[BitRate] {
        &self.capacities
    }
}

/// How the links are shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocation {
    /// No flow can have more unless a flow that has no more gets less. Weights and ranks do not count.
    MaxMin,
    /// The same with every rate divided by its flow's weight. Ranks do not count.
    WeightedMaxMin,
    /// Weighted max-min within the smallest rank; then the same for the next rank with what is left, and so on.
    Priority,
}

/// Share of a flow under the rule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Share {
    /// From 10^-6 to 10^9 (PPUSH theta).
    pub weight: f64,
    /// Position in line, smaller first.
    pub rank: u32,
}

impl Share {
    /// Weight 1, rank 0.
    pub const EVEN: Share = Share { weight: 1.0, rank: 0 };
}

/// How the work of a task is divided among its flows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// Any flow brings any byte, until all are there (PPUSH(1,·), dynamic assignment).
    Pooled(Bytes),
    /// Every flow brings its own part, all parts alike (PPUSH(0,·), static assignment); odd bytes go to the first flows.
    Equal(Bytes),
    /// Every flow brings its own, one number per path (a coflow).
    Own(Vec<Bytes>),
}

/// Flows that matter only when all are done.
#[derive(Clone, Debug, PartialEq)]
pub struct Task {
    /// Its name, for the weigher.
    pub task: TaskId,
    /// When its flows begin.
    pub arrival: Time,
    /// Bytes to bring.
    pub work: Work,
    /// One flow each.
    pub paths: Vec<Path>,
}

/// A task that has come to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// When the last byte came, or when the task was broken off.
    pub finish: Time,
    /// Bytes that every flow brought, in the order of the paths; together exactly the task's bytes, or less if it was
    /// broken off.
    pub brought: Vec<Bytes>,
}

/// A time in which no rate changes, as [`run_until`] shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// It begins here; where the last one ended.
    pub from: Time,
    /// End of the span.
    pub to: Time,
    /// Tasks that were over when it began.
    pub tasks_done: usize,
    /// Everybody who brings something, by task and place.
    pub flows: Vec<Flowing>,
}

/// A flow in a [`Span`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Flowing {
    /// The index of its task among those given.
    pub task: usize,
    /// Its place among the task's paths.
    pub place: usize,
    /// Bits per second.
    pub rate: f64,
    /// Its share.
    pub share: Share,
}

/// A running task, as a weigher sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct ActiveTask<'a> {
    /// The task.
    pub task: &'a Task,
    /// Bytes left of it over all flows, to the nearest byte but never zero.
    pub remaining: Bytes,
    /// Which of its paths still bring something, ascending; at least one.
    pub flows: Vec<usize>,
}

/// Gives every flow of every active task its share, as one list in the order of the tasks and their flows.
///
/// Asked whenever a task arrives or completes, as PPUSH §III-C does it, and not when one flow of a task is done before
/// the others.
pub type Weigher<'a> = dyn FnMut(&[ActiveTask]) -> Result<Vec<Share>, FlowError> + 'a;

/// Why a run cannot be.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum FlowError {
    /// A link carries nothing.
    #[error("link {0} has no capacity")]
    DeadLink(LinkId),
    /// A path must have links, all of the network and none twice.
    #[error("{path:?} is not a path over the {links} links of the network")]
    Path {
        /// The path.
        path: Path,
        /// How many links there are.
        links: usize,
    },
    /// A task has no path at all.
    #[error("task {0} has no flows")]
    NoFlows(TaskId),
    /// [`Work::Own`] must have a number per path.
    #[error("task {task} has {sizes} sizes for {paths} paths")]
    Sizes {
        /// The task.
        task: TaskId,
        /// How many numbers.
        sizes: usize,
        /// How many paths.
        paths: usize,
    },
    /// Every task must have its end, or none.
    #[error("{stops} stop times for {tasks} tasks")]
    Stops {
        /// How many ends.
        stops: usize,
        /// How many tasks.
        tasks: usize,
    },
    /// A weight must be a number from 10^-6 to 10^9.
    #[error("weight {0} is not within 1e-6 and 1e9")]
    Weight(f64),
    /// The weigher gave too few shares or too many.
    #[error("{shares} shares for {flows} flows")]
    Shares {
        /// How many it gave.
        shares: usize,
        /// How many flows are active.
        flows: usize,
    },
    /// An object is cut into blocks, and neither may be nothing.
    #[error("{object} bytes cannot be cut into blocks of {block}")]
    NoBlocks {
        /// The object's length.
        object: Bytes,
        /// A block's.
        block: Bytes,
    },
    /// A connection joins two different members.
    #[error("a connection from member {from} to {to}; there are {members}, numbered from 0")]
    Member {
        /// Where it begins.
        from: usize,
        /// Where it ends.
        to: usize,
        /// How many there are.
        members: usize,
    },
    /// There is no tree, or one over which nothing would ever come.
    #[error("there is no tree, or one without any rate")]
    NoFlow,
    /// The policy behind the weigher refused.
    #[error(transparent)]
    Plan(#[from] PlanError),
}

fn check_path(path: &Path, links: usize) -> Result<(), FlowError> {
    let list = path.links();
    let unknown = list.iter().any(|link| link.0 as usize >= links);
    let twice = list.iter().enumerate().any(|(at, link)| list[..at].contains(link));
    match list.is_empty() || unknown || twice {
        true => Err(FlowError::Path { path: path.clone(), links }),
        false => Ok(()),
    }
}
