//! Addresses that their hearer has to complete, and the networks of peers.

use core::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// An address as its hearer can use it ([`Control::resolve`](super::Control::resolve)).
pub fn resolve_address(at: SocketAddr, sender: SocketAddr) -> SocketAddr {
    match (at.ip().is_unspecified(), sender.ip().to_canonical()) {
        (false, _) => at,
        (true, IpAddr::V4(ip)) => SocketAddr::from((ip, at.port())),
        (true, IpAddr::V6(ip)) => {
            let scope = match sender {
                SocketAddr::V6(sender) => sender.scope_id(),
                SocketAddr::V4(_) => 0,
            };
            SocketAddrV6::new(ip, at.port(), 0, scope).into()
        }
    }
}

/// The network of a peer, as far as bounds for each network go: its IPv4 address, or the /64 of its IPv6 address, of which a host has as
/// many addresses as it wants.
pub fn network_of(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() & !u128::from(u64::MAX)).into(),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_addresses_of_one_host_are_one_network() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        assert_eq!(network_of(ip("2001:db8::1")), network_of(ip("2001:db8::ffff:1")));
        assert_ne!(network_of(ip("2001:db8::1")), network_of(ip("2001:db8:0:1::1")));
        assert_eq!(network_of(ip("::ffff:192.0.2.7")), ip("192.0.2.7"));
    }
}
