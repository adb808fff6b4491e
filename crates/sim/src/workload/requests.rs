//! Blocks that clients write to, and read from, storage that keeps several copies of each (SCDP §IV-A).
//!
//! Where copies are is HDFS's default policy for clients that are no data nodes: the first anywhere, the second in another
//! rack, the third beside the second, and so on beside it. Who reads takes a copy in its own rack if there is one, else any.
//!
//! Clients, arrivals and places come from streams of their own, so that the same requests meet the same places whether they
//! are written or read, and however.

use headwater_units::{Duration, Time};
use serde::{Deserialize, Serialize};

use super::generate::{Draw, Stream, count, plain};
use super::{Network, TaskPlan, WorkloadError};

/// What a request does.
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
        let per_second = self.per_second;
        if !(per_second > 0.0 && per_second.is_finite()) {
            let must = "above 0 requests per second";
            return Err(WorkloadError::OutOfRange { what: "per_second", value: per_second, must });
        }
        // Flows of a task are numbered in eight bits, and sources in seven.
        if !(1..=128).contains(&self.replicas) {
            let value = f64::from(self.replicas);
            return Err(WorkloadError::OutOfRange { what: "replicas", value, must: "1 to 128" });
        }
        let places = Places::new(network, self.replicas)?;
        let mut arrivals = Draw::new(seed, Stream::Arrivals);
        let mut at = 0.0;
        let request = |n: u32| {
            at += -(1.0 - arrivals.unit()).ln() / per_second;
            let when = Time::ZERO + Duration::from_secs_f64(at);
            self.request(&places, seed, n, when)
        };
        Ok((0..self.count).map(request).collect())
    }

    fn request(&self, places: &Places, seed: u64, n: u32, at: Time) -> TaskPlan {
        let mut draw = Draw::new(seed, Stream::Task(n));
        let client = draw.below(places.hosts);
        let copies = places.of_block(client, &mut draw);
        let packets = Some(self.packets);
        let task = |sources, receiver| TaskPlan { packets, ..plain(format!("r{n}"), at, sources, receiver) };
        match self.access {
            Access::Write | Access::WriteChain => TaskPlan {
                further: copies[1..].to_vec(),
                relayed: self.access == Access::WriteChain,
                ..task(vec![client], copies[0])
            },
            Access::Read => task(vec![places.nearest(client, &copies, &mut draw)], client),
            Access::ReadAll => task(copies, client),
            Access::ReadAhead => {
                let mut from = vec![places.nearest(client, &copies, &mut draw)];
                while from.len() < self.replicas as usize {
                    let copies = places.of_block(client, &mut draw);
                    let next = places.nearest(client, &copies, &mut draw);
                    // Two blocks from one place would be one flow: the next block is placed elsewhere.
                    if !from.contains(&next) {
                        from.push(next);
                    }
                }
                task(from, client)
            }
        }
    }
}

/// Where copies of blocks may be.
struct Places {
    hosts: u32,
    /// By host; everybody in one rack where a network has none.
    rack: Vec<u32>,
    /// By rack.
    members: Vec<Vec<u32>>,
    replicas: usize,
}

impl Places {
    fn new(network: &Network, replicas: u32) -> Result<Self, WorkloadError> {
        let mut rack = network.racks.clone();
        rack.resize(network.hosts as usize, 0);
        let racks = rack.iter().max().map_or(0, |last| *last as usize + 1);
        let mut members = vec![Vec::new(); racks];
        for (host, &rack) in (0..).zip(&rack) {
            members[rack as usize].push(host);
        }
        // With the client and the first copy anywhere, the others must find room in any other rack; without racks, in the one.
        let (what, there) = match racks {
            0 | 1 => ("replicas (and the client)", u64::from(network.hosts)),
            _ => {
                let fewest = members.iter().map(Vec::len).min().unwrap_or(0) as u64;
                ("replicas (two but in one rack, with the client)", fewest + 1)
            }
        };
        let needed = u64::from(replicas) + 1;
        if network.hosts < 2 || needed > there {
            return Err(WorkloadError::TooFewHosts { what, needed, there });
        }
        Ok(Places { hosts: network.hosts, rack, members, replicas: replicas as usize })
    }

    /// The hosts that keep a block, the first one first; none of them the client.
    fn of_block(&self, client: u32, draw: &mut Draw) -> Vec<u32> {
        let mut copies = vec![self.another(client, draw)];
        if self.members.len() < 2 {
            while copies.len() < self.replicas {
                let next = self.another(client, draw);
                if !copies.contains(&next) {
                    copies.push(next);
                }
            }
            return copies;
        }
        let first = self.rack[copies[0] as usize];
        let remote = loop {
            let rack = draw.below(self.members.len() as u32);
            if rack != first {
                break &self.members[rack as usize];
            }
        };
        let order = draw.several(remote.len() as u32, remote.len() as u32);
        let others = order.into_iter().map(|place| remote[place as usize]).filter(|host| *host != client);
        copies.extend(others.take(self.replicas - 1));
        copies
    }

    fn another(&self, than: u32, draw: &mut Draw) -> u32 {
        let host = draw.below(self.hosts - 1);
        host + u32::from(host >= than)
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
