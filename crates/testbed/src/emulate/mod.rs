//! A network of a scenario under real programs: hosts are namespaces, and all between them is one software switch.
//!
//! ```text
//!   host h0 |                  namespace "mid"                 | host h1
//!           |                                                  |
//!      eth0 = port0 -> EmulatedFabric: NICs, links, switches -> port1 = eth0
//! 10.99.0.1 |                                                  | 10.99.0.2
//! ```
//! `=` is a veth pair. A frame of a host is read from its port, goes through the queues, lines, delays and faults of
//! the scenario, and comes out at the receiving host's port when it is due. So a scenario means the same network here
//! and in the packet simulator, and any program can run on it: [`EmulatedNet::command`].
//!
//! Nobody asks for addresses: hosts send without ARP or neighbour discovery (`arp off`), since the switch goes by IP
//! addresses and sets the MAC address of the host that it delivers to. A host sees all others on its own subnet, one
//! hop away.
//!
//! Built from `ip` and `nsenter`, which run by way of [`crate::netns`]; needs root or a user namespace. How many packets a
//! second there may be is the machine's affair: [`crate::soft_switch::Validity`] says whether it kept up.
//!
//! Where hosts are the network (BCube), each has an interface per cable, `eth0`, `eth1` and so on, with an address of its own by which
//! its neighbours reach it, and the usual address beside these. It forwards for others as routers do, on the shortest paths of
//! the network as it was built; IPv4 only, and no multicast.
//!
//! Not here: hosts that fail. When they should is known ([`EmulatedNet::host_faults`]): the caller, who runs programs
//! on them, stops and starts those.

mod address;
mod control;
mod error;
mod fault;
mod forwarding;
mod options;
mod status;

use std::ffi::OsStr;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::process::Command;

use headwater_experiment::run::{NetworkSetup, network_setup};
use headwater_experiment::scenario::{Scenario, StaleOrRepaired, Trim, link_name, link_named};
use headwater_fabric::{LinkId, PointId, Topology};
use headwater_units::{Bytes, Duration};

pub use control::{ControlSocket, Request, Runs};
pub use error::EmulateError;
pub use options::{HostFault, NetOptions};
pub use status::{AllocatorStatus, CaptureStatus, HostStatus, LinkStatus, Status, TimeStatus};

pub use crate::soft_switch::Begin;

use self::options::Faults;
use crate::netns::{Namespaces, NetError, Unavailable, command_in, has_ipv6, tool, user_namespace_works};
use crate::soft_switch::{
    AddressBook, Capture, PacketPort, Recorder, RingConfig, Snapshot, SoftSwitch, SoftSwitchError,
    SoftSwitchSpec, TrimRule, TrimmedUdp, in_namespace, offloads_off,
};

/// More hosts than this are refused: starting that many namespaces takes a minute, and one thread serves them all.
pub const MAX_HOSTS: usize = 256;
/// The longest IP packet of hosts, in bytes, where packets of the scenario are not longer.
const MTU: u16 = 1500;
/// The longest IP packet that a scenario may ask for, in bytes: what is common as jumbo.
pub const MAX_MTU: u16 = 9000;
/// Bytes before the IP packet.
const ETHERNET: u16 = 14;
/// A tag may come on top of that.
const TAG: u16 = 4;
/// Memory of one ring, at most: 2048 frames of usual length, 900 of the longest.
const RING: Bytes = Bytes::new(8 << 20);
/// Memory of all rings together, at most: 2048 frames of usual length for each of 64 hosts.
const RINGS: Bytes = Bytes::new(200 << 20);

/// A running network. Dropping it ends the switch, kills what runs on the hosts and removes them.
///
/// A process that dies without dropping it leaves the removal to a guard process.
pub struct EmulatedNet {
    // Before the namespaces: it has sockets in one.
    switch: SoftSwitch,
    topology: Topology,
    packet: Bytes,
    mtu: u16,
    ipv6: bool,
    host_faults: Vec<(Duration, HostFault)>,
    namespaces: Namespaces,
    // After the switch: its files are complete when that has ended.
    capture: Option<(PathBuf, Capture)>,
}

impl EmulatedNet {
    /// Builds the network of a scenario, whose tasks and scheme do not matter; every host can send when this returns.
    ///
    /// Its faults happen at their times from then on. Chance follows from `seed`; what hosts do does not. Several networks
    /// beside each other, in one process or several, never touch.
    ///
    /// # Errors
    /// [`EmulateError`]; nothing is left behind then.
    pub fn build(scenario: &Scenario, seed: u64) -> Result<EmulatedNet, EmulateError> {
        EmulatedNet::build_with(scenario, seed, &NetOptions::default())
    }

    /// The same, with what is not in the scenario.
    ///
    /// # Errors
    /// [`EmulateError`]; nothing is left behind then.
    pub fn build_with(
        scenario: &Scenario,
        seed: u64,
        options: &NetOptions,
    ) -> Result<EmulatedNet, EmulateError> {
        let mtu = mtu(scenario.packet.data)?;
        let setup = network_setup(scenario, seed)?;
        let hosts = setup.topology.hosts().len();
        if hosts > MAX_HOSTS {
            return Err(EmulateError::Size { hosts });
        }
        let cables = cables(&setup.topology);
        let forward = setup.topology.hosts().iter().any(|host| setup.topology.forwards(*host));
        if cables.len() > MAX_HOSTS || (!forward && cables.len() > hosts) {
            return Err(EmulateError::Cables { cables: cables.len() });
        }
        let Faults { on_links, on_hosts } = Faults::sort(&setup.changes, options.hold_faults)?;

        let namespaces = Namespaces::create(hosts).map_err(unavailable)?;
        let ipv6 = has_ipv6();
        match forward {
            true => forwarding::connect(&namespaces, mtu, &cables, &setup)?,
            false => connect(&namespaces, mtu, ipv6)?,
        }
        on_hosts.iter().try_for_each(|(_, fault)| namespaces.host(fault.host()).map(drop))?;
        let book = listed(hosts, if forward { &cables } else { &[] })?;
        let ports = ports(&namespaces, mtu, cables.len())?;
        let mac = |(host, cable): &(usize, usize)| match forward {
            true => address::mac_on(*host, *cable),
            false => address::mac(*host),
        };
        let (capture, recorder) = capture(&setup.topology, options)?.unzip();
        let switch = SoftSwitch::start(SoftSwitchSpec {
            topology: &setup.topology,
            routes: &setup.routes,
            port: &*setup.port,
            choice: &*setup.choice,
            seed,
            hosts: ports.into_iter().zip(cables.iter().map(mac)).collect(),
            book,
            packet: scenario.packet.data,
            changes: on_links,
            jitter: if options.host_jitter && !forward { setup.jitter(scenario) } else { Vec::new() },
            trim: trim_rule(&scenario.port.trim),
            groups: options.groups,
            tree_store: options.tree_store,
            hold: options.hold_faults,
            processor: options.processor,
            recorder,
        })?;
        let NetworkSetup { topology, .. } = setup;
        let packet = scenario.packet.data;
        let capture = options.pcap.clone().zip(capture);
        let ipv6 = ipv6 && !forward;
        Ok(EmulatedNet { switch, topology, packet, mtu, ipv6, host_faults: on_hosts, namespaces, capture })
    }

    /// Whether networks can be emulated here: builds the smallest one and removes it.
    ///
    /// # Errors
    /// The obstacle.
    pub fn probe() -> Result<(), EmulateError> {
        const SMALLEST: &str =
            r#"fabric = { kind = "big-switch", hosts = 1, rate = "1 Mbit/s", delay = "1 ms" }"#;
        let scenario = Scenario::of_network(SMALLEST).expect("written here");
        EmulatedNet::build(&scenario, 0).map(drop)
    }

    /// Beginning of all its namespaces' names: `hw-<process id>-<number>`.
    pub fn run_id(&self) -> &str {
        self.namespaces.run_id()
    }

    /// How many hosts there are.
    pub fn hosts(&self) -> usize {
        self.namespaces.len()
    }

    /// The name of a host's namespace, for `ip netns exec` and friends.
    ///
    /// # Errors
    /// [`NetError::UnknownHost`].
    pub fn namespace(&self, host: usize) -> Result<&str, NetError> {
        self.namespaces.host(host)
    }

    /// A host's IPv4 address.
    pub fn ipv4(&self, host: usize) -> Ipv4Addr {
        address::ipv4(host)
    }

    /// A host's IPv4 address on one of its cables, in the order of its links, where hosts forward; else its only one.
    pub fn ipv4_on(&self, host: usize, cable: usize) -> Ipv4Addr {
        let point = self.topology.hosts().get(host);
        match point.is_some_and(|point| self.topology.forwards(*point)) {
            true => address::ipv4_on(host, cable),
            false => address::ipv4(host),
        }
    }

    /// A host's IPv6 address, where this kernel has IPv6.
    pub fn ipv6(&self, host: usize) -> Option<Ipv6Addr> {
        self.ipv6.then(|| address::ipv6(host))
    }

    /// The longest IP packet that hosts send, in bytes: 1500, or what makes the scenario's `packet.data` a frame with its
    /// Ethernet header.
    pub fn mtu(&self) -> u16 {
        self.mtu
    }

    /// A command that runs `program` on `host`; add arguments, environment and pipes, then spawn it.
    ///
    /// The child's process id is the program's own. Programs that still run when the network goes are killed.
    ///
    /// # Errors
    /// [`NetError::UnknownHost`].
    pub fn command(&self, host: usize, program: impl AsRef<OsStr>) -> Result<Command, NetError> {
        Ok(command_in(self.namespace(host)?, program))
    }

    /// The network as a graph.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The switch: its counts, how well it keeps time, groups, samples of queues.
    pub fn switch(&self) -> &SoftSwitch {
        &self.switch
    }

    /// The link from one point to another, written `a-b` as in scenarios: `left-right`, `h0-switch`.
    ///
    /// # Errors
    /// [`EmulateError::UnknownLink`], with one that is there.
    pub fn link(&self, name: &str) -> Result<LinkId, EmulateError> {
        link_named(&self.topology, name).ok_or_else(|| EmulateError::UnknownLink {
            name: name.to_owned(),
            example: link_name(&self.topology, LinkId(0)).unwrap_or_default(),
        })
    }

    /// Changes a link from now on, as its words say: `loss 1%`, `rate 5Mbit/s`, `down`, `up`, `duplicate 1%`,
    /// `reorder 1% 2ms`, `drop-next 100`.
    ///
    /// # Errors
    /// No such link, words that say nothing, or a rate at which no line runs.
    pub fn fault(&self, link: &str, words: &[String]) -> Result<(), EmulateError> {
        let change = fault::read(words, self.packet)?;
        Ok(self.switch.change(self.link(link)?, change)?)
    }

    /// Lets the faults that were [held](NetOptions::hold_faults) happen at their times since now, and says when that is;
    /// see [`SoftSwitch::begin`].
    ///
    /// # Errors
    /// The switch has stopped.
    pub fn begin(&self) -> Result<Begin, EmulateError> {
        Ok(self.switch.begin()?)
    }

    /// Faults of hosts, by time since the beginning: not carried out by the network, whose hosts have no programs of
    /// their own. Empty unless faults are [held](NetOptions::hold_faults).
    pub fn host_faults(&self) -> &[(Duration, HostFault)] {
        &self.host_faults
    }

    /// Everything that is known, now.
    ///
    /// # Errors
    /// The switch has stopped.
    pub fn status(&self) -> Result<Status, EmulateError> {
        Ok(Status::new(self, &self.switch.snapshot()?))
    }

    /// Ends the network and returns the last counts. Captures are complete then.
    ///
    /// # Errors
    /// [`SoftSwitchError::Stopped`] with the reason if the switch had stopped before; [`EmulateError::Capture`].
    pub fn stop(self) -> Result<Snapshot, EmulateError> {
        let EmulatedNet { switch, namespaces, capture, .. } = self;
        let last = switch.stop();
        drop(namespaces);
        if let Some((folder, capture)) = capture {
            capture.finish().map_err(|source| EmulateError::Capture { folder, source })?;
        }
        Ok(last?)
    }

    /// Where captures are written, if they are.
    fn captures(&self) -> Option<&Path> {
        self.capture.as_ref().map(|(folder, _)| folder.as_path())
    }
}

impl std::fmt::Debug for EmulatedNet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EmulatedNet").field("run_id", &self.run_id()).finish_non_exhaustive()
    }
}

/// The words that [`EmulatedNet::fault`] reads, checked without a network.
///
/// # Errors
/// [`EmulateError::Fault`], with what could be written.
pub fn check_fault(words: &[String]) -> Result<(), EmulateError> {
    fault::read(words, Bytes::new(1500)).map(drop)
}

/// A command that runs `program` in a host's namespace, by the namespace's name.
pub fn command_on(namespace: &str, program: impl AsRef<OsStr>) -> Command {
    command_in(namespace, program)
}

fn unavailable(reason: NetError) -> EmulateError {
    Unavailable { reason, user_namespace: user_namespace_works() }.into()
}

/// Gives every host its cable, whose far end is `port<n>` in the middle, and its addresses.
fn connect(namespaces: &Namespaces, mtu: u16, ipv6: bool) -> Result<(), EmulateError> {
    let inside = |what: &str, host: &str| EmulateError::inside(format!("{what} of {host}"));
    let mut cables = Vec::new();
    for host in 0..namespaces.len() {
        let far = namespaces.host(host)?;
        if ipv6 {
            in_namespace(far, be_quiet).and_then(|done| done).map_err(inside("the settings", far))?;
        }
        let mac = address::written(address::mac(host));
        cables.push(format!(
            "link add name port{host} mtu {mtu} type veth peer name eth0 mtu {mtu} address {mac} netns {far}"
        ));
        cables.push(format!("link set dev port{host} up"));
    }
    tool::batch("ip", namespaces.middle(), &cables).map_err(unavailable)?;
    for host in 0..namespaces.len() {
        let namespace = namespaces.host(host)?;
        let mut lines = vec![
            "link set dev lo up".to_owned(),
            // Then frames leave at once, to the host's own MAC address, which the switch does not look at.
            "link set dev eth0 arp off".to_owned(),
            format!("addr add {}/16 dev eth0", address::ipv4(host)),
            "link set dev eth0 up".to_owned(),
            "route add 224.0.0.0/4 dev eth0".to_owned(),
        ];
        if ipv6 {
            // `nodad`: else the address is unusable for its first second or two.
            lines.push(format!("addr add {}/64 dev eth0 nodad", address::ipv6(host)));
        }
        tool::batch("ip", namespace, &lines)?;
        let done = in_namespace(namespace, || offloads_off("eth0")).and_then(|done| done);
        done.map_err(inside("the interface", namespace))?;
    }
    Ok(())
}

/// Run in a host's namespace before its interface is there: no router is looked for, and no address is made up whose
/// groups would be announced. The queues that are measured are for the hosts' programs.
fn be_quiet() -> io::Result<()> {
    for (setting, value) in [("accept_ra", "0"), ("router_solicitations", "0"), ("addr_gen_mode", "1")] {
        std::fs::write(format!("/proc/sys/net/ipv6/conf/default/{setting}"), value)?;
    }
    Ok(())
}

/// The MTU with which a frame may have `packet` bytes.
fn mtu(packet: Bytes) -> Result<u16, EmulateError> {
    let most = MAX_MTU + ETHERNET;
    let packet = u16::try_from(packet.get())
        .ok()
        .filter(|it| *it <= most)
        .ok_or(EmulateError::PacketSize { packet })?;
    Ok(MTU.max(packet.saturating_sub(ETHERNET)))
}

/// The cables of all hosts: whose, and which of its.
fn cables(topology: &Topology) -> Vec<(usize, usize)> {
    let of = |point: &PointId| topology.fabric().leaving(*point).len();
    let hosts = topology.hosts().iter().enumerate();
    hosts.flat_map(|(host, point)| (0..of(point)).map(move |cable| (host, cable))).collect()
}

/// The switch's ends of all cables.
fn ports(namespaces: &Namespaces, mtu: u16, cables: usize) -> Result<Vec<PacketPort>, EmulateError> {
    let memory = RING.min(Bytes::new(RINGS.get() / cables.max(1) as u64));
    let config = RingConfig::within(usize::from(mtu + ETHERNET + TAG), memory);
    let open = || -> io::Result<Vec<PacketPort>> {
        (0..cables).map(|cable| PacketPort::open(&format!("port{cable}"), config)).collect()
    };
    let ports = in_namespace(namespaces.middle(), open).and_then(|opened| opened);
    ports.map_err(EmulateError::inside("the switch".to_owned()))
}

/// Rule by which the scenario's switches trim a frame.
fn trim_rule(trim: &Trim) -> TrimRule {
    TrimRule {
        // Checked with the scenario.
        size: u16::try_from(trim.to.get()).unwrap_or(u16::MAX),
        udp: match trim.udp {
            StaleOrRepaired::Stale => TrimmedUdp::Stale,
            StaleOrRepaired::Repaired => TrimmedUdp::Repaired,
        },
    }
}

/// The files of what leaves ports, if they are wanted, and who fills them.
fn capture(topology: &Topology, options: &NetOptions) -> Result<Option<(Capture, Recorder)>, EmulateError> {
    let Some(folder) = &options.pcap else { return Ok(None) };
    let links = (0..topology.fabric().link_count() as u32).map(LinkId);
    let names = links.map(|link| link_name(topology, link).unwrap_or_else(|| format!("link{link}")));
    let started = Capture::start(folder, names, options.pcap_snap);
    started.map(Some).map_err(|source| EmulateError::Capture { folder: folder.clone(), source })
}

/// All hosts with their addresses.
fn listed(hosts: usize, cables: &[(usize, usize)]) -> Result<AddressBook, SoftSwitchError> {
    let mut book = AddressBook::new();
    for host in 0..hosts {
        book.insert_host(address::ipv4(host).into(), host as u32)?;
        book.insert_host(address::ipv6(host).into(), host as u32)?;
    }
    for (host, cable) in cables {
        book.insert_host(address::ipv4_on(*host, *cable).into(), *host as u32)?;
    }
    Ok(book)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_of_the_scenarios_packets_fits_and_no_frame_is_longer_than_jumbo() {
        let of = |bytes| mtu(Bytes::new(bytes));
        assert_eq!([0, 1210, 1514, 1515, 9014].map(|it| of(it).unwrap()), [1500, 1500, 1500, 1501, 9000]);
        for bytes in [9015, 65_536 + 100, u64::MAX] {
            let error = of(bytes).unwrap_err().to_string();
            assert!(error.contains(&Bytes::new(bytes).to_string()) && error.contains("9014"), "{error}");
        }
    }
}
