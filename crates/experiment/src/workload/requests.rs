//! Blocks that clients write to, and read from, storage that keeps several copies of each (SCDP §IV-A).
//!
//! Where copies are is HDFS's default policy for clients that are no data nodes: the first anywhere, the second in another
//! rack, the third beside the second, and so on beside it. Who reads takes a copy in its own rack if there is one, else any.
//!
//! Clients, arrivals and places come from streams of their own, so that the same requests meet the same places whether they
//! are written or read, and however.

use headwater_units::{Duration, Time};
use serde::{Deserialize, Serialize};

use super::bounds::{MOST_TASKS, count, per_second, rate};
use super::draw::{Draw, Stream};
use super::{Network, TaskPlan, WorkloadError, plain};

/// Kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// The client gives the block to every replica itself: a group where the scheme has groups, else a flow each (SCDP
    /// Fig. 4a and 4c).
    Write,
    /// The client gives it to the first, each replica to the next, as it comes (Fig. 4b).
    WriteChain,
    /// From one replica (Fig. 4d).
    Read,
    /// A block of the same size in as many consecutive ones as there are replicas, each with places of its own and read from
    /// one of them, all at once: read-ahead (§IV-A).
    ReadAhead,
    /// From all replicas at once (Fig. 4e).
    ReadAll,
}

/// Requests as a Poisson process; see [`super::Workload::Requests`].
pub(super) struct Requests {
    pub(super) count: u32,
    pub(super) per_second: f64,
    pub(super) packets: u64,
    pub(super) replicas: u32,
    pub(super) access: Access,
}

impl Requests {
    pub(super) fn plan(&self, network: &Network, seed: u64) -> Result<Vec<TaskPlan>, WorkloadError> {
        count("count", self.count)?;
        per_second(self.per_second)?;
        let places = ReplicaPlacement::new(network, self.replicas, &[self.access])?;
        let mut arrivals = Draw::new(seed, Stream::Arrivals);
        let mut at = 0.0;
        let request = |n: u32| {
            at += arrivals.gap(self.per_second);
            let task = plain(format!("r{n}"), Time::ZERO + Duration::from_secs_f64(at), Vec::new(), 0);
            let task = TaskPlan { packets: Some(self.packets), ..task };
            places.request(self.access, &mut Draw::new(seed, Stream::Task(n)), task)
        };
        Ok((0..self.count).map(request).collect())
    }
}

/// Requests that arrive beside a workload as a Poisson process, for as long as it may last.
pub(crate) struct Arriving<'a> {
    /// The part of all hosts' links that they ask for, on average: bytes that come to somebody.
    pub(crate) load: f64,
    /// Of each.
    pub(crate) packets: u64,
    /// Copies of each block.
    pub(crate) replicas: u32,
    /// Kinds of requests, each as often as the others.
    pub(crate) access: &'a [Access],
}

impl Arriving<'_> {
    /// Those that arrive before `until`, called `background-0` and so on. Nobody waits for them.
    pub(crate) fn plan(
        &self,
        network: &Network,
        seed: u64,
        until: Time,
    ) -> Result<Vec<TaskPlan>, WorkloadError> {
        let places = ReplicaPlacement::new(network, self.replicas, self.access)?;
        let kinds = self.access.len().max(1) as f64;
        let delivered = |access: &Access| self.packets as f64 * access.receivers(self.replicas);
        let mean = self.access.iter().map(delivered).sum::<f64>() / kinds;
        let rate = self.load * f64::from(network.hosts) * rate(network)? / mean;
        per_second(rate)?;
        let expected = rate * until.as_secs_f64();
        if expected > f64::from(MOST_TASKS) {
            let must = "fewer than 1000000 requests before the run may end";
            return Err(WorkloadError::OutOfRange { what: "background", value: expected, must });
        }
        let mut arrivals = Draw::new(seed, Stream::BackgroundArrivals);
        let (mut at, mut tasks) = (0.0, Vec::new());
        loop {
            at += arrivals.gap(rate);
            let when = Time::ZERO + Duration::from_secs_f64(at);
            if when >= until {
                return Ok(tasks);
            }
            let n = tasks.len() as u32;
            let mut draw = Draw::new(seed, Stream::BackgroundTask(n));
            let access = self.access[draw.below(self.access.len() as u32) as usize];
            let task = plain(format!("background-{n}"), when, Vec::new(), 0);
            let task = TaskPlan { packets: Some(self.packets), awaited: false, ..task };
            tasks.push(places.request(access, &mut draw, task));
        }
    }
}

impl Access {
    /// How many times a request's bytes are delivered.
    fn receivers(self, replicas: u32) -> f64 {
        match self {
            Access::Write | Access::WriteChain => f64::from(replicas),
            Access::Read | Access::ReadAhead | Access::ReadAll => 1.0,
        }
    }
}

/// Where copies of blocks may be.
struct ReplicaPlacement {
    hosts: u32,
    /// By host; everybody in one rack where a network has none.
    rack: Vec<u32>,
    /// By rack.
    members: Vec<Vec<u32>>,
    replicas: usize,
}

impl ReplicaPlacement {
    fn new(network: &Network, replicas: u32, access: &[Access]) -> Result<Self, WorkloadError> {
        let mut rack = network.racks.clone();
        rack.resize(network.hosts as usize, 0);
        let racks = rack.iter().max().map_or(0, |last| *last as usize + 1);
        let mut members = vec![Vec::new(); racks];
        for (host, &rack) in (0..).zip(&rack) {
            members[rack as usize].push(host);
        }
        // Flows of a task are numbered in eight bits, and sources in seven.
        if !(1..=128).contains(&replicas) {
            let value = f64::from(replicas);
            return Err(WorkloadError::OutOfRange { what: "replicas", value, must: "1 to 128" });
        }
        // With the client and the first copy anywhere, the others must find room in any other rack; without racks, in the one.
        let (what, there) = match racks {
            0 | 1 => ("replicas (and the client)", u64::from(network.hosts)),
            _ => {
                // Whatever rack the first is in, there must be another.
                let mut sizes: Vec<usize> = members.iter().map(Vec::len).collect();
                sizes.sort_unstable();
                let second = sizes[racks - 2] as u64;
                ("replicas (all but one in one rack, with the client)", second + 1)
            }
        };
        let needed = u64::from(replicas) + 1;
        if network.hosts < 2 || needed > there {
            return Err(WorkloadError::TooFewHosts { what, needed, there });
        }
        // With two racks every block has a copy in the client's, which is where it reads: from as many hosts as it reads blocks.
        let occupied = || members.iter().map(Vec::len).filter(|size| *size > 0);
        if access.contains(&Access::ReadAhead) && replicas > 1 && occupied().count() == 2 {
            let (what, there) = ("blocks read ahead (and the client) in one rack of two", occupied().min());
            let there = there.unwrap_or(0) as u64;
            if needed > there {
                return Err(WorkloadError::TooFewHosts { what, needed, there });
            }
        }
        Ok(ReplicaPlacement { hosts: network.hosts, rack, members, replicas: replicas as usize })
    }

    /// A task with the places of a request: client and block are drawn.
    fn request(&self, access: Access, draw: &mut Draw, task: TaskPlan) -> TaskPlan {
        let client = draw.below(self.hosts);
        let copies = self.of_block(client, draw);
        match access {
            Access::Write | Access::WriteChain => TaskPlan {
                sources: vec![client],
                receiver: copies[0],
                further: copies[1..].to_vec(),
                relayed: access == Access::WriteChain,
                ..task
            },
            Access::Read => {
                let nearest = self.nearest(client, &copies, draw);
                TaskPlan { sources: vec![nearest], receiver: client, ..task }
            }
            Access::ReadAll => TaskPlan { sources: copies, receiver: client, ..task },
            Access::ReadAhead => {
                let mut sources = vec![self.nearest(client, &copies, draw)];
                while sources.len() < self.replicas {
                    let copies = self.of_block(client, draw);
                    let next = self.nearest(client, &copies, draw);
                    // Two blocks from one place would be one flow: the next block is placed elsewhere.
                    if !sources.contains(&next) {
                        sources.push(next);
                    }
                }
                TaskPlan { sources, receiver: client, ..task }
            }
        }
    }

    /// The hosts that keep a block, the first one first; none of them the client.
    fn of_block(&self, client: u32, draw: &mut Draw) -> Vec<u32> {
        let mut copies = vec![draw.another(self.hosts, client)];
        if self.members.len() < 2 {
            while copies.len() < self.replicas {
                let next = draw.another(self.hosts, client);
                if !copies.contains(&next) {
                    copies.push(next);
                }
            }
            return copies;
        }
        let first = self.rack[copies[0] as usize];
        let remote = loop {
            let rack = draw.below(self.members.len() as u32);
            let members = &self.members[rack as usize];
            let room = members.len() - usize::from(self.rack[client as usize] == rack);
            if rack != first && room >= self.replicas - 1 {
                break members;
            }
        };
        let order = draw.several(remote.len() as u32, remote.len() as u32);
        let others = order.into_iter().map(|place| remote[place as usize]).filter(|host| *host != client);
        copies.extend(others.take(self.replicas - 1));
        copies
    }

    /// Where a client reads: in its own rack, else anywhere.
    fn nearest(&self, client: u32, copies: &[u32], draw: &mut Draw) -> u32 {
        let near: Vec<u32> = copies
            .iter()
            .copied()
            .filter(|host| self.members.len() > 1 && self.rack[*host as usize] == self.rack[client as usize])
            .collect();
        let among = if near.is_empty() { copies } else { &near };
        among[draw.below(among.len() as u32) as usize]
    }
}
