//! Room for so many diallers, of which one network gets no more than a part when it becomes scarce.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

/// Where a dialler is, as far as it counts: its IPv4 address, or the /64 of its IPv6 address, of which a host has as many addresses as it
/// wants.
fn network_of(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() & !u128::from(u64::MAX)).into(),
        v4 => v4,
    }
}

/// Fewer places than these are whoever's comes first.
const SHARED: usize = 8;

/// The places.
#[derive(Debug)]
pub(super) struct Places {
    most: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    by_network: BTreeMap<IpAddr, usize>,
}

/// One place; free again when this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    network: IpAddr,
}

impl Places {
    pub(super) fn new(most: usize) -> Arc<Self> {
        Arc::new(Places { most, taken: Mutex::default() })
    }

    /// A place for a dialler from there. While half of them are free everybody gets one; then only who has less than a quarter.
    pub(super) fn take(self: &Arc<Self>, ip: IpAddr) -> Option<Place> {
        let network = network_of(ip);
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let of_it = taken.by_network.get(&network).copied().unwrap_or(0);
        let scarce = self.most >= SHARED && taken.all >= self.most / 2;
        if taken.all >= self.most || (scarce && of_it >= self.most / 4) {
            return None;
        }
        taken.all += 1;
        taken.by_network.insert(network, of_it + 1);
        Some(Place { places: self.clone(), network })
    }

    /// How many are taken.
    pub(super) fn taken(&self) -> usize {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).all
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken.lock().unwrap_or_else(PoisonError::into_inner);
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
        let places = Places::new(8);
        let crowd: Vec<Place> = std::iter::from_fn(|| places.take(ip("192.0.2.7"))).collect();
        assert_eq!((crowd.len(), places.taken()), (4, 4), "half of them, as nobody else was there");
        let others: Vec<Place> =
            (1..=6).filter_map(|n| places.take(ip(&format!("198.51.100.{n}")))).collect();
        assert_eq!((others.len(), places.taken()), (4, 8));
        drop(crowd);
        assert_eq!(places.taken(), 4);
        let again: Vec<Place> = std::iter::from_fn(|| places.take(ip("192.0.2.7"))).collect();
        assert_eq!(again.len(), 2, "now they are scarce");
        drop(again);
        drop(others);
        assert!(places.taken.lock().unwrap().by_network.is_empty());
    }

    #[test]
    fn the_addresses_of_one_host_are_one_network() {
        assert_eq!(network_of(ip("2001:db8::1")), network_of(ip("2001:db8::ffff:1")));
        assert_ne!(network_of(ip("2001:db8::1")), network_of(ip("2001:db8:0:1::1")));
        assert_eq!(network_of(ip("::ffff:192.0.2.7")), ip("192.0.2.7"));
    }
}
