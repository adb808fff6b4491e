//! The devices of a topology and the links between them.

use headwater_fabric::{LinkId, PointId, PointKind, Routes, Topology};
use headwater_sim::packet::forwarding_table;
use headwater_switch::{Choice, Frame, LinkFaults, Port, PortConfig, PortIndex, Switch};
use headwater_units::Duration;

use super::EmulatedFabricError;

/// Where a link begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Near {
    /// Place among all hosts' NICs.
    Nic(usize),
    Switch {
        switch: usize,
        port: PortIndex,
    },
}

/// Where a link ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Far {
    /// By number, and by which of its cables.
    Host {
        host: u32,
        cable: usize,
    },
    Switch(usize),
}

#[derive(Clone, Debug)]
pub(super) struct Link {
    pub(super) near: Near,
    pub(super) far: Far,
    pub(super) delay: Duration,
    /// The other direction of the cable, if there is one.
    pub(super) back: Option<u32>,
    /// The far switch's port to this cable: a group's frames do not go out where they came in.
    pub(super) ingress: PortIndex,
    /// None as long as the link has been healthy.
    pub(super) faults: Option<Box<LinkFaults>>,
}

impl Link {
    pub(super) fn is_down(&self) -> bool {
        self.faults.as_ref().is_some_and(|faults| faults.is_down())
    }
}

/// A host's end of a link.
#[derive(Clone, Debug)]
pub(super) struct Nic<F> {
    pub(super) port: Port<F>,
    pub(super) link: u32,
}

#[derive(Clone, Debug)]
pub(super) struct SwitchAt<F> {
    pub(super) switch: Switch<F>,
    /// The link behind each port.
    pub(super) links: Vec<u32>,
}

/// All devices, by their points, and links.
pub(super) struct Wiring<F> {
    pub(super) links: Vec<Link>,
    pub(super) nics: Vec<Nic<F>>,
    pub(super) switches: Vec<SwitchAt<F>>,
    /// By host.
    pub(super) uplinks: Vec<Vec<u32>>,
}

impl<F: Frame> Wiring<F> {
    pub(super) fn new(
        topology: &Topology,
        routes: &Routes,
        port: &dyn Fn(LinkId, bool) -> PortConfig,
        choice: &dyn Fn(u32) -> Choice,
    ) -> Result<Self, EmulatedFabricError> {
        let fabric = topology.fabric();
        let mut near = vec![Near::Nic(0); fabric.link_count()];
        let mut far_of = Vec::with_capacity(fabric.point_count());
        let (mut nics, mut switches) = (Vec::new(), Vec::new());
        let mut uplinks = vec![Vec::new(); topology.hosts().len()];
        for point in (0..fabric.point_count() as u32).map(PointId) {
            let leaving = fabric.leaving(point);
            if let Some(PointKind::Host(host)) = topology.place(point).map(|place| place.kind) {
                far_of.push(Far::Host { host: host.0, cable: 0 });
                for &link in leaving {
                    near[link.index()] = Near::Nic(nics.len());
                    let mut port = Port::new(port(link, true))
                        .map_err(|error| EmulatedFabricError::Port { link, error })?;
                    port.make_plain(false);
                    nics.push(Nic { port, link: link.0 });
                    uplinks[host.index()].push(link.0);
                }
                continue;
            }
            let switch = switches.len();
            far_of.push(Far::Switch(switch));
            for (port, link) in leaving.iter().enumerate() {
                near[link.index()] = Near::Switch { switch, port: PortIndex(port as u16) };
            }
            let table = forwarding_table(topology, routes, point)
                .ok_or(EmulatedFabricError::ForeignRoutes { point })?;
            let ports = leaving.iter().map(|link| port(*link, false)).collect();
            let mut switch = Switch::new(ports, table.with_choice(choice(switch as u32)))
                .map_err(|error| EmulatedFabricError::Switch { point, error })?;
            switch.hold_frames();
            switches.push(SwitchAt { switch, links: leaving.iter().map(|it| it.0).collect() });
        }
        let links = (0..fabric.link_count()).map(|id| {
            let link = fabric.link(LinkId(id as u32)).expect("links count from zero");
            let ingress = match link.back.map(|back| near[back.index()]) {
                Some(Near::Switch { port, .. }) => port,
                Some(Near::Nic(_)) | None => PortIndex::OWN,
            };
            Link {
                near: near[id],
                far: match far_of[link.to.index()] {
                    Far::Host { host, .. } => {
                        let own = fabric.leaving(link.to).iter().position(|it| Some(*it) == link.back);
                        Far::Host { host, cable: own.unwrap_or(0) }
                    }
                    switch @ Far::Switch(_) => switch,
                },
                delay: link.delay,
                back: link.back.map(|it| it.0),
                ingress,
                faults: None,
            }
        });
        Ok(Wiring { links: links.collect(), nics, switches, uplinks })
    }
}
