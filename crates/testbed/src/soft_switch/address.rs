//! Address book: hosts and groups as a forwarding table numbers them.

use std::collections::BTreeMap;
use std::net::IpAddr;

use headwater_switch::Destination;
use thiserror::Error;

/// An address cannot be listed so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum AddressError {
    /// A host has a multicast address, or a group has none.
    #[error("{address} cannot be the address of a {kind}")]
    Kind {
        /// The address.
        address: IpAddr,
        /// `host` or `group`.
        kind: &'static str,
    },
    /// The address is listed already, and leads elsewhere.
    #[error("{address} is already the address of {known:?}")]
    Taken {
        /// The address.
        address: IpAddr,
        /// Destinations by address.
        known: Destination,
    },
}

/// From IP addresses to the numbers of hosts and groups. A host may have several addresses.
#[derive(Clone, Debug, Default)]
pub struct AddressBook {
    known: BTreeMap<IpAddr, Destination>,
}

impl AddressBook {
    /// Where frames to unknown addresses go: no table has this many hosts, so they are counted as unroutable.
    pub const NOWHERE: Destination = Destination::Host(u32::MAX);

    /// An empty book.
    pub fn new() -> Self {
        Self::default()
    }

    /// Lists a unicast address of a host.
    ///
    /// # Errors
    /// See [`AddressError`]; the book is as before then.
    pub fn insert_host(&mut self, address: IpAddr, host: u32) -> Result<(), AddressError> {
        match address.is_multicast() {
            true => Err(AddressError::Kind { address, kind: "host" }),
            false => self.insert(address, Destination::Host(host)),
        }
    }

    /// Lists the multicast address of a group.
    ///
    /// # Errors
    /// See [`AddressError`]; the book is as before then.
    pub fn insert_group(&mut self, address: IpAddr, group: u32) -> Result<(), AddressError> {
        match address.is_multicast() {
            true => self.insert(address, Destination::Group(group)),
            false => Err(AddressError::Kind { address, kind: "group" }),
        }
    }

    /// Lists the address of a group no more.
    pub(super) fn remove_group(&mut self, address: IpAddr) {
        if address.is_multicast() {
            self.known.remove(&address);
        }
    }

    /// Destination of an address; [`AddressBook::NOWHERE`] if it is not listed.
    pub fn destination(&self, address: IpAddr) -> Destination {
        self.known.get(&address).copied().unwrap_or(Self::NOWHERE)
    }

    fn insert(&mut self, address: IpAddr, destination: Destination) -> Result<(), AddressError> {
        match *self.known.entry(address).or_insert(destination) {
            known if known == destination => Ok(()),
            known => Err(AddressError::Taken { address, known }),
        }
    }
}
