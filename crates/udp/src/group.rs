//! Multicast groups: who takes part, and by which interface.
//!
//! Datagrams to a group are sent by the ordinary data socket, to the [path](GroupAddr::path) of the group. A receiver
//! of the group opens one more socket ([`UdpPort::join`]), bound to the group's own address and port: members need no
//! common data port, and datagrams for another group or for nobody never get in. It has marks, merging and counters as
//! every [`UdpPort`] has them; answers leave by the data socket.
//!
//! Leaving is dropping the socket. Not here: which node is told which group.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use socket2::InterfaceIndexOrAddress;

use super::addr::PathAddr;
use super::port::{SocketOptions, UdpPort, own_address};

/// Where this process's interfaces with IPv6 addresses are listed, those of the calling thread's namespace.
const IPV6_ADDRESSES: &str = "/proc/thread-self/net/if_inet6";

/// A multicast group with its port, and the interface by which it is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupAddr {
    /// Of IPv6, with the interface as its scope, if that is known.
    at: SocketAddr,
    on: Option<IpAddr>,
}

impl GroupAddr {
    /// The group `at`, by the interface that has our address `on`; where that is none, by the one that the kernel's routes
    /// name.
    ///
    /// # Errors
    /// `InvalidInput`: no multicast address, port 0, or an own address of the other family. `AddrNotAvailable`: no
    /// interface has that own address (IPv6; of IPv4 the kernel says so when it is used).
    pub fn new(at: SocketAddr, on: Option<IpAddr>) -> io::Result<GroupAddr> {
        let wrong = |what: String| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        let on = on.map(|on| on.to_canonical());
        let mut at = match at.ip().to_canonical() {
            IpAddr::V4(ip) => SocketAddr::new(ip.into(), at.port()),
            IpAddr::V6(_) => at,
        };
        if !at.ip().is_multicast() || at.port() == 0 {
            return wrong(format!("{at} is no multicast address with a port"));
        }
        if let Some(on) = on.filter(|on| on.is_ipv4() != at.is_ipv4()) {
            return wrong(format!("group {at} cannot be reached from {on}, which is of another family"));
        }
        if let (SocketAddr::V6(group), Some(IpAddr::V6(on))) = (&mut at, on)
            && group.scope_id() == 0
        {
            group.set_scope_id(interface_of(on)?);
        }
        Ok(GroupAddr { at, on })
    }

    /// The group `at`, by the interface that leads to a host: to its source, or to another member.
    ///
    /// # Errors
    /// As [`GroupAddr::new`], or the kernel's: no route to that host.
    pub fn towards(at: SocketAddr, host: SocketAddr) -> io::Result<GroupAddr> {
        GroupAddr::new(at, Some(own_address(host)?))
    }

    /// Its address and port.
    pub fn at(&self) -> SocketAddr {
        self.at
    }

    /// How to send to it.
    pub fn path(&self) -> PathAddr {
        PathAddr { remote: self.at, local: self.on }
    }
}

impl UdpPort {
    /// Takes part in a group until it is dropped. Several sockets of a host may be members of one; each gets a copy.
    ///
    /// # Errors
    /// The kernel's: no interface with such an address, no route to choose one by, or as [`UdpPort::bind`].
    pub fn join(group: &GroupAddr, options: &SocketOptions) -> io::Result<UdpPort> {
        let port = UdpPort::open(group.at, options, true)?;
        // Else the kernel hands over what anybody on this host has joined by another interface.
        match (group.at, group.on) {
            (SocketAddr::V4(at), on) => {
                port.socket.set_multicast_all_v4(false)?;
                let on = match on {
                    Some(IpAddr::V4(on)) => on,
                    _ => Ipv4Addr::UNSPECIFIED,
                };
                port.socket.join_multicast_v4_n(at.ip(), &InterfaceIndexOrAddress::Address(on))?;
            }
            (SocketAddr::V6(at), _) => {
                port.socket.set_multicast_all_v6(false)?;
                port.socket.join_multicast_v6(at.ip(), at.scope_id())?;
            }
        }
        Ok(port)
    }
}

/// The number of the interface that has this address.
fn interface_of(address: Ipv6Addr) -> io::Result<u32> {
    let listed = std::fs::read_to_string(IPV6_ADDRESSES).unwrap_or_default();
    find_interface(&listed, address).ok_or_else(|| {
        let what = format!("no interface has the address {address}");
        io::Error::new(io::ErrorKind::AddrNotAvailable, what)
    })
}

/// Each line begins with an address without colons and the number of its interface, both hexadecimal.
fn find_interface(listed: &str, address: Ipv6Addr) -> Option<u32> {
    let wanted = format!("{:032x}", u128::from(address));
    listed.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        (words.next()? == wanted).then(|| u32::from_str_radix(words.next()?, 16).ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(at: &str, on: Option<&str>) -> io::Result<GroupAddr> {
        GroupAddr::new(at.parse().unwrap(), on.map(|on| on.parse().unwrap()))
    }

    #[test]
    fn a_group_has_a_multicast_address_and_a_port() {
        for (at, on) in [("10.0.0.1:9", None), ("239.1.1.1:0", None), ("[fd00::1]:9", None)] {
            let error = group(at, on).unwrap_err();
            assert!(error.kind() == io::ErrorKind::InvalidInput && error.to_string().contains(at), "{error}");
        }
        assert!(group("239.1.1.1:9", Some("::1")).unwrap_err().to_string().contains("family"));
        let path = group("239.1.1.1:9", Some("10.0.0.1")).unwrap().path();
        assert_eq!((path.remote.to_string(), path.local), ("239.1.1.1:9".into(), "10.0.0.1".parse().ok()));
    }

    #[test]
    fn interfaces_are_found_as_the_kernel_lists_them() {
        let listed = "fe80000000000000024857fffe000001 0c 40 20 80     eth0\n\
                      00000000000000000000000000000001 01 80 10 80       lo\n";
        assert_eq!(find_interface(listed, "fe80::248:57ff:fe00:1".parse().unwrap()), Some(12));
        assert_eq!(find_interface(listed, Ipv6Addr::LOCALHOST), Some(1));
        assert_eq!(find_interface(listed, "fe80::2".parse().unwrap()), None);
        assert_eq!(find_interface("\nnonsense\n", Ipv6Addr::LOCALHOST), None);
    }
}
