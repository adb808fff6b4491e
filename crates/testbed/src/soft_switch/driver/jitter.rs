//! Sending time of a host: a random time, in order, as hosts of the packet simulator have it.
//!
//! The hosts of an emulated network answer within microseconds, and all by one processor's clock: flows of few packets then
//! lock into patterns (Floyd and Jacobson, "On traffic phase effects in packet-switched gateways", 1991).

use std::collections::VecDeque;

use headwater_fabric::HostId;
use headwater_switch::{Destination, Frame as _};
use headwater_units::{Duration, Time};
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use crate::soft_switch::RawFrame;

/// Frames that hosts have not quite sent yet.
pub(super) struct Jitter {
    rng: ChaCha8Rng,
    /// The longest time, by sender and receiver: the number of hosts times the one, plus the other.
    most: Vec<Duration>,
    /// By host: when its last frame leaves, and those that have not left.
    hosts: Vec<(Time, VecDeque<(Time, RawFrame)>)>,
}

impl Jitter {
    /// Up to `most` from each host to each other one.
    pub(super) fn new(most: Vec<Duration>, hosts: usize, seed: u64) -> Self {
        debug_assert_eq!(most.len(), hosts * hosts, "a time for each pair");
        let rng = ChaCha8Rng::seed_from_u64(seed ^ 0x6a69_7474_6572);
        Jitter { rng, most, hosts: (0..hosts).map(|_| (Time::ZERO, VecDeque::new())).collect() }
    }

    /// A host begins to send; what it sends leaves in order.
    pub(super) fn hold(&mut self, now: Time, from: HostId, frame: RawFrame) {
        let most = match frame.destination() {
            Destination::Host(to) => self.most.get(from.index() * self.hosts.len() + to as usize).copied(),
            _ => None,
        };
        let drawn = Duration::from_nanos(self.rng.random_range(0..=most.unwrap_or_default().as_nanos()));
        let (last, held) = &mut self.hosts[from.index()];
        *last = (*last).max(now + drawn);
        held.push_back((*last, frame));
    }

    /// When the next frame leaves.
    pub(super) fn next(&self) -> Option<Time> {
        self.hosts.iter().filter_map(|(_, held)| Some(held.front()?.0)).min()
    }

    /// The next frame that has left by `now`, its host, and when it did.
    pub(super) fn release(&mut self, now: Time) -> Option<(Time, HostId, RawFrame)> {
        let hosts = self.hosts.iter().enumerate();
        let (at, host) = hosts.filter_map(|(host, (_, held))| Some((held.front()?.0, host))).min()?;
        if at > now {
            return None;
        }
        let (_, frame) = self.hosts[host].1.pop_front().expect("it was seen just now");
        Some((at, HostId(host as u32), frame))
    }
}
