//! A bounded number of slots for diallers. When they become scarce, one network gets no more than a part of them.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use headwater_wire::network_of;

/// With fewer slots than this, first come, first served.
const SHARED: usize = 8;
/// Slots are scarce when this many are taken, or half of all if that is fewer.
const SCARCE: usize = 2048;
/// When slots are scarce, a network may have this many, or a quarter of all if that is fewer: this bounds what it can
/// make this process hold.
const OF_A_NETWORK: usize = 1024;

/// The slots.
#[derive(Debug)]
pub(super) struct Slots {
    most: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    by_network: BTreeMap<IpAddr, usize>,
}

/// One slot; free again when this is dropped.
#[derive(Debug)]
pub(super) struct Slot {
    slots: Arc<Slots>,
    network: IpAddr,
}

impl Slots {
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Slots { most, taken: Mutex::default() })
    }

    /// A slot for a dialler from there. Until they are scarce everybody gets one; then only a network that has less
    /// than its part.
    pub(super) fn take(self: &Arc<Self>, ip: IpAddr) -> Option<Slot> {
        let network = network_of(ip);
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let of_it = taken.by_network.get(&network).copied().unwrap_or(0);
        let is_scarce = self.most >= SHARED && taken.all >= (self.most / 2).min(SCARCE);
        if taken.all >= self.most || (is_scarce && of_it >= (self.most / 4).min(OF_A_NETWORK)) {
            return None;
        }
        taken.all += 1;
        taken.by_network.insert(network, of_it + 1);
        Some(Slot { slots: self.clone(), network })
    }

    /// How many are taken.
    pub(super) fn taken(&self) -> usize {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).all
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut taken = self.slots.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.all -= 1;
        let left = taken.by_network.get_mut(&self.network).map(|of_it| {
            *of_it -= 1;
            *of_it
        });
        if left == Some(0) {
            taken.by_network.remove(&self.network);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn one_network_cannot_take_the_places_of_others_and_gives_them_back() {
        let slots = Slots::new(8);
        let taken: Vec<Slot> = std::iter::from_fn(|| slots.take(ip("192.0.2.7"))).collect();
        assert_eq!((taken.len(), slots.taken()), (4, 4), "half of them, as nobody else was there");
        let others: Vec<Slot> = (1..=6).filter_map(|n| slots.take(ip(&format!("198.51.100.{n}")))).collect();
        assert_eq!((others.len(), slots.taken()), (4, 8));
        drop(taken);
        assert_eq!(slots.taken(), 4);
        let again: Vec<Slot> = std::iter::from_fn(|| slots.take(ip("192.0.2.7"))).collect();
        assert_eq!(again.len(), 2, "now they are scarce");
        drop(again);
        drop(others);
        assert!(slots.taken.lock().unwrap().by_network.is_empty());
    }

    #[test]
    fn of_many_slots_a_network_gets_no_larger_part_and_many_networks_get_all() {
        let slots = Slots::new(16_384);
        let taken: Vec<Slot> = std::iter::from_fn(|| slots.take(ip("192.0.2.7"))).collect();
        assert_eq!(taken.len(), 2048);
        let of = |n: u32| IpAddr::from(std::net::Ipv4Addr::from(0x0a00_0000 + n));
        let others: Vec<Slot> = (0..20_000).filter_map(|n| slots.take(of(n))).collect();
        assert_eq!(others.len(), 16_384 - 2048);
    }
}
