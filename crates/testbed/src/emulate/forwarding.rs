//! Hosts that are the network: several interfaces each, and routes through one another.

use headwater_experiment::run::NetworkSetup;
use headwater_fabric::{HostId, LinkId, PointKind};

use super::{EmulateError, address, unavailable};
use crate::netns::{Namespaces, tool};
use crate::soft_switch::{in_namespace, offloads_off};

/// Gives every host its cables, whose far ends are `port<n>` in the middle in the order of `cables`, its addresses and its routes.
pub(super) fn connect(
    namespaces: &Namespaces,
    mtu: u16,
    cables: &[(usize, usize)],
    setup: &NetworkSetup,
) -> Result<(), EmulateError> {
    let mut lines = Vec::new();
    for (port, (host, cable)) in cables.iter().enumerate() {
        let (far, mac) = (namespaces.host(*host)?, address::written(address::mac_on(*host, *cable)));
        lines.push(format!(
            "link add name port{port} mtu {mtu} type veth peer name eth{cable} mtu {mtu} address {mac} netns {far}"
        ));
        lines.push(format!("link set dev port{port} up"));
    }
    tool::batch("ip", namespaces.middle(), &lines).map_err(unavailable)?;
    for host in 0..namespaces.len() {
        let namespace = namespaces.host(host)?;
        let inside = |what: &str| EmulateError::inside(format!("{what} of {namespace}"));
        in_namespace(namespace, forwards).and_then(|done| done).map_err(inside("the settings"))?;
        let own: Vec<usize> = cables.iter().filter(|(it, _)| *it == host).map(|(_, cable)| *cable).collect();
        let mut lines =
            vec!["link set dev lo up".to_owned(), format!("addr add {}/32 dev lo", address::ipv4(host))];
        for cable in &own {
            // Without ARP frames leave at once; the switch goes by IP addresses.
            lines.push(format!("link set dev eth{cable} arp off"));
            lines.push(format!("addr add {}/32 dev eth{cable}", address::ipv4_on(host, *cable)));
            lines.push(format!("link set dev eth{cable} up"));
        }
        lines.extend(routes(host, setup));
        tool::batch("ip", namespace, &lines)?;
        let quiet = || own.iter().try_for_each(|cable| offloads_off(&format!("eth{cable}")));
        in_namespace(namespace, quiet).and_then(|done| done).map_err(inside("the interfaces"))?;
    }
    Ok(())
}

/// Run in a host's namespace: packets for others go on, by whichever interface they came.
fn forwards() -> std::io::Result<()> {
    for (setting, value) in [
        ("ip_forward", "1"),
        ("conf/all/rp_filter", "0"),
        ("conf/default/rp_filter", "0"),
        ("conf/all/send_redirects", "0"),
        ("conf/default/send_redirects", "0"),
    ] {
        std::fs::write(format!("/proc/sys/net/ipv4/{setting}"), value)?;
    }
    Ok(())
}

/// To the usual address of each host, by the first link of a shortest path there; to a neighbour's address on a cable, by the cable
/// that leads to it.
fn routes(host: usize, setup: &NetworkSetup) -> Vec<String> {
    let (topology, fabric) = (&setup.topology, setup.topology.fabric());
    let point = topology.hosts()[host];
    let leaving = fabric.leaving(point);
    let cable_of = |link: &LinkId| leaving.iter().position(|it| it == link);
    let mut lines = Vec::new();
    for to in (0..topology.hosts().len()).filter(|to| *to != host) {
        let next = setup.routes.next(point, HostId(to as u32)).first().and_then(cable_of);
        lines.extend(next.map(|cable| {
            format!("route add {}/32 dev eth{cable} src {}", address::ipv4(to), address::ipv4(host))
        }));
    }
    for (cable, link) in leaving.iter().enumerate() {
        let Some(end) = fabric.link(*link).map(|link| link.to) else { continue };
        // A neighbour is at the other end of the cable, or of another one of the switch there.
        let behind =
            fabric.leaving(end).iter().filter_map(|link| fabric.link(*link)?.back.map(|back| (*link, back)));
        let ends = match topology.place(end).map(|place| place.kind) {
            Some(PointKind::Host(_)) => fabric.link(*link).and_then(|it| it.back).into_iter().collect(),
            _ => behind.map(|(_, back)| back).collect::<Vec<LinkId>>(),
        };
        for back in ends {
            let Some(at) = fabric.link(back).map(|link| link.from).filter(|at| *at != point) else {
                continue;
            };
            let Some(PointKind::Host(neighbour)) = topology.place(at).map(|place| place.kind) else {
                continue;
            };
            let Some(its) = fabric.leaving(at).iter().position(|it| *it == back) else { continue };
            let (there, here) = (address::ipv4_on(neighbour.index(), its), address::ipv4_on(host, cable));
            lines.push(format!("route add {there}/32 dev eth{cable} src {here}"));
        }
    }
    lines
}
