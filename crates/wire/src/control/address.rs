//! Addresses that their hearer has to complete.

use core::net::{IpAddr, SocketAddr, SocketAddrV6};

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
