//! The address to announce for a process that listens on all of them.
//!
//! A process that listens on a wildcard address does not know the addresses by which others reach it; there may be several: one by IPv4,
//! one by IPv6, another behind a NAT. But each of its peers uses one. So the process announces the wildcard address, and each hearer
//! replaces it by the address at the other end of the link ([`Control::resolve`](headwater_wire::Control::resolve)). The same holds for
//! what a controller says of the machines in its own process, and of nodes that came to it over loopback: for its peers they are all at
//! the controller's address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use headwater_control::Link;
use headwater_units::NodeId;
use headwater_wire::NodeInfo;

use super::Host;

/// Where processes of this machine reach what listens on a wildcard address: IPv6 ones take IPv4 too, and loopback has it wherever
/// there are addresses at all.
pub(super) const THIS_MACHINE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// A node's word about itself, with what the link knows better: its key, and the address it really comes from.
pub(super) fn introduced(mut info: NodeInfo, peer: NodeId, from: SocketAddr) -> NodeInfo {
    let seen = from.ip().to_canonical();
    (info.node, info.seen) = (peer, Some(seen));
    // For others loopback is no address: "where you reach me" is where they reach this machine.
    if !seen.is_loopback() {
        info.resolve(from);
    }
    info
}

/// Links that are looked at for an address of this machine: of a thousand none may have a usable one.
const PEERS_ASKED: usize = 16;

impl Host {
    /// An address of this machine for people to read: the one by which the asker has come, else one by which somebody
    /// has, else the one that packets to the world would carry, else loopback.
    pub(super) fn own_ip(&self, asking: Option<&Link>) -> IpAddr {
        let usable = |ip: &IpAddr| !ip.is_loopback() && !ip.is_unspecified();
        let by = |link: &Link| link.local_ip().filter(usable);
        asking
            .and_then(by)
            .or_else(|| self.state().peers.values().take(PEERS_ASKED).find_map(|peer| by(&peer.link)))
            .or_else(|| routed().filter(usable))
            .unwrap_or(THIS_MACHINE.ip())
    }
}

/// The address that packets to the world would carry, if there is a route there. Nothing is sent.
fn routed() -> Option<IpAddr> {
    // Addresses for documentation (RFC 5737, RFC 3849): nobody has them, so they go by the default route.
    let targets: [(IpAddr, IpAddr); 2] = [
        (Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::new(192, 0, 2, 1).into()),
        (Ipv6Addr::UNSPECIFIED.into(), Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into()),
    ];
    targets.into_iter().find_map(|(any, world)| {
        let socket = UdpSocket::bind((any, 0)).ok()?;
        socket.connect((world, 9)).ok()?;
        Some(socket.local_addr().ok()?.ip())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(data: &str) -> NodeInfo {
        let data: SocketAddr = data.parse().unwrap();
        NodeInfo {
            listen: Some(data),
            data: vec![data],
            seen: Some(IpAddr::V4(Ipv4Addr::new(8, 8, 8, 8))),
            ..NodeInfo::new(NodeId([1; 32]), "n", 1400)
        }
    }

    #[test]
    fn a_node_that_listens_everywhere_is_where_its_link_comes_from_and_only_that_is_proven() {
        let peer = NodeId([2; 32]);
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        let mapped = introduced(node("[::]:7001"), peer, at("[::ffff:10.0.0.2]:50000"));
        assert_eq!(
            (mapped.node, mapped.data[0], mapped.listen),
            (peer, at("10.0.0.2:7001"), Some(at("10.0.0.2:7001")))
        );
        assert_eq!(mapped.proven(), [at("10.0.0.2:7001")]);
        let six = introduced(node("[::]:7001"), peer, at("[fd00::2]:50000"));
        assert_eq!(six.proven(), [at("[fd00::2]:7001")]);
        let stated = introduced(node("10.9.9.9:7001"), peer, at("10.0.0.2:50000"));
        assert_eq!((stated.data[0], stated.proven()), (at("10.9.9.9:7001"), vec![]));
    }

    #[test]
    fn a_node_beside_its_controller_stays_where_others_reach_the_controller() {
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        for loopback in ["127.0.0.1:50000", "[::1]:50000"] {
            let beside = introduced(node("[::]:7001"), NodeId([2; 32]), at(loopback));
            assert_eq!((beside.data[0], beside.proven()), (at("[::]:7001"), vec![at("[::]:7001")]));
        }
        let stated = introduced(node("127.0.0.1:7001"), NodeId([2; 32]), at("127.0.0.1:50000"));
        assert_eq!(stated.proven(), [at("127.0.0.1:7001")]);
    }
}
