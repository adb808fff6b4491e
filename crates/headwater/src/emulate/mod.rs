//! A network of a scenario under real programs: hosts are namespaces, and all between them is one software switch.
//!
//! ```text
//!   host h0 |                  namespace "mid"                 | host h1
//!           |                                                  |
//!      eth0 = port0 -> EmulatedFabric: NICs, links, switches -> port1 = eth0
//! 10.99.0.1 |                                                  | 10.99.0.2
//! ```
//! `=` is a veth pair. What a host sends is read from its port, goes through the queues, lines, delays and faults that the
//! scenario says, and comes out at the receiving host's port when it is due. So a scenario means the same network here and
//! in the packet simulator, and any program can run on it: [`EmulatedNet::command`].
//!
//! Nobody asks for addresses: hosts send without ARP or neighbour discovery (`arp off`), since the switch goes by IP
//! addresses and sets the MAC address of whom it delivers to. A host sees all others on its own subnet, one hop away.
//!
//! Built from `ip` and `nsenter`, which run by way of [`crate::netns`]; needs root or a user namespace. How many packets a
//! second there may be is the machine's affair: [`crate::soft_switch::Validity`] says whether it kept up.
//!
//! Not here: networks whose hosts forward (BCube, torus), and hosts that fail.

mod address;
mod control;
mod error;
mod fault;
mod status;

use std::ffi::OsStr;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::process::Command;

use headwater_fabric::{LinkId, Topology};
use headwater_sim::packet::Change;
use headwater_sim::run::{NetworkSetup, network_setup};
use headwater_sim::scenario::{Scenario, link_name, link_named};
use headwater_switch::LinkChange;
use headwater_units::{Bytes, Time};

pub use control::{ControlSocket, Request, Runs};
pub use error::EmulateError;
pub use status::{HostStatus, LinkStatus, Status, TimeStatus};

use crate::netns::{Namespaces, NetError, Unavailable, command_in, has_ipv6, tool, user_namespace_works};
use crate::soft_switch::{
    AddressBook, PacketPort, RingConfig, Snapshot, SoftSwitch, SoftSwitchError, SoftSwitchSpec, in_namespace,
    offloads_off,
};

/// More hosts than this are refused: their rings alone would take half a gigabyte.
pub const MAX_HOSTS: usize = 256;
/// Largest IP packet of hosts, in bytes.
const MTU: u32 = 1500;
/// Slots of all rings together, at most: what 64 hosts have by default.
const SLOTS: usize = 64 * 2048;

/// A running network. Dropping it ends the switch, kills what runs on the hosts and removes them.
///
/// A process that dies without dropping it leaves the removal to a guard process.
pub struct EmulatedNet {
    // Before the namespaces: it has sockets in one.
    switch: SoftSwitch,
    topology: Topology,
    packet: Bytes,
    ipv6: bool,
    namespaces: Namespaces,
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
        let setup = network_setup(scenario, seed)?;
        let hosts = setup.topology.hosts().len();
        if hosts > MAX_HOSTS {
            return Err(EmulateError::Size { hosts });
        }
        if setup.topology.hosts().iter().any(|host| setup.topology.forwards(*host)) {
            return Err(EmulateError::HostsForward);
        }
        let changes = setup.changes.iter().map(|(at, change)| match change {
            Change::Link(link, change) => Ok((*at, *link, *change)),
            _ => Err(EmulateError::HostFault),
        });
        let changes: Vec<(Time, LinkId, LinkChange)> = changes.collect::<Result<_, _>>()?;

        let namespaces = Namespaces::create(hosts).map_err(unavailable)?;
        let ipv6 = has_ipv6();
        connect(&namespaces, ipv6)?;
        let switch = start(&setup, &namespaces, changes, seed)?;
        let NetworkSetup { topology, .. } = setup;
        Ok(EmulatedNet { switch, topology, packet: scenario.packet.data, ipv6, namespaces })
    }

    /// Whether networks can be emulated here: builds the smallest one and removes it.
    ///
    /// # Errors
    /// What stands in the way.
    pub fn probe() -> Result<(), EmulateError> {
        const SMALLEST: &str =
            r#"fabric = { kind = "big-switch", hosts = 1, rate = "1 Mbit/s", delay = "1 ms" }"#;
        let scenario = Scenario::of_network(SMALLEST).expect("written here");
        EmulatedNet::build(&scenario, 0).map(drop)
    }

    /// What all its namespaces' names begin with: `hw-<process id>-<number>`.
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

    /// A host's IPv6 address, where this kernel has IPv6.
    pub fn ipv6(&self, host: usize) -> Option<Ipv6Addr> {
        self.ipv6.then(|| address::ipv6(host))
    }

    /// A command that runs `program` on `host`; add arguments, environment and pipes, then spawn it.
    ///
    /// The child's process id is the program's own. What still runs when the network goes is killed.
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

    /// Everything that is known, now.
    ///
    /// # Errors
    /// The switch has stopped.
    pub fn status(&self) -> Result<Status, EmulateError> {
        Ok(Status::new(self, &self.switch.snapshot()?))
    }

    /// Ends the network and returns the last counts.
    ///
    /// # Errors
    /// [`SoftSwitchError::Stopped`] with the reason if the switch had stopped before.
    pub fn stop(self) -> Result<Snapshot, SoftSwitchError> {
        let EmulatedNet { switch, namespaces, .. } = self;
        let last = switch.stop();
        drop(namespaces);
        last
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
fn connect(namespaces: &Namespaces, ipv6: bool) -> Result<(), EmulateError> {
    let inside = |what: &str, host: &str| EmulateError::inside(format!("{what} of {host}"));
    let mut cables = Vec::new();
    for host in 0..namespaces.len() {
        let far = namespaces.host(host)?;
        if ipv6 {
            in_namespace(far, be_quiet).and_then(|done| done).map_err(inside("the settings", far))?;
        }
        let mac = address::written(address::mac(host));
        cables.push(format!(
            "link add name port{host} mtu {MTU} type veth peer name eth0 mtu {MTU} address {mac} netns {far}"
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

fn start(
    setup: &NetworkSetup,
    namespaces: &Namespaces,
    changes: Vec<(Time, LinkId, LinkChange)>,
    seed: u64,
) -> Result<SoftSwitch, EmulateError> {
    let hosts = namespaces.len();
    let usual = RingConfig::default();
    let slots = usual.slots.min((SLOTS / hosts.max(1)) as u32);
    let config = RingConfig { slots, ..usual };
    let open = || -> io::Result<Vec<PacketPort>> {
        (0..hosts).map(|host| PacketPort::open(&format!("port{host}"), config)).collect()
    };
    let ports = in_namespace(namespaces.middle(), open).and_then(|opened| opened);
    let ports = ports.map_err(EmulateError::inside("the switch".to_owned()))?;
    let mut book = AddressBook::new();
    for host in 0..hosts {
        let listed = [address::ipv4(host).into(), address::ipv6(host).into()]
            .into_iter()
            .try_for_each(|address| book.insert_host(address, host as u32));
        listed.map_err(SoftSwitchError::from)?;
    }
    Ok(SoftSwitch::start(SoftSwitchSpec {
        topology: &setup.topology,
        routes: &setup.routes,
        port: &*setup.port,
        choice: &*setup.choice,
        seed,
        hosts: ports.into_iter().zip((0..hosts).map(address::mac)).collect(),
        book,
        changes,
    })?)
}
