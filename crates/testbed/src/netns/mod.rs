//! A small network on this machine: hosts in namespaces of their own, limited links in the middle.
//!
//! Used by `headwater demo` and by tests. Built from `ip`, `bridge`, `tc` and `nft`, which run here and nowhere else.
//! Needs root or a user namespace ([`in_user_namespace`]); [`Capability::probe`] tries for real and says what is amiss.
//!
//! ```text
//!            host h0 |                namespace "mid"                       | host h1
//!                    |                                                      |
//!   eth0 (10.99.0.1) = host0 . edge0 . up0 = core0 . core . core1 = up1 . edge1 . host1 = eth0 (10.99.0.2)
//!                    |    ^              ^                     ^         ^  |
//!                    | h0's downlink  h0's uplink     h1's uplink  h1's downlink
//! ```
//! `=` is a veth pair, `.` a bridge port, `^` where a token bucket (`tbf`) limits what leaves that device. An uplink
//! limit sits on `up0`, on the far side of a bridge: on the sender's own device a full queue would push back the
//! sending socket instead of dropping, as no real network does. A rack is one more bridge with one more veth pair
//! (`rackup0 = rackcore0`) between its hosts and the core.
//!
//! Every packet is a packet: `gso_max_segs 1` on the hosts' devices makes the kernel cut a sender's large buffers
//! before they reach the first queue, so limits, drops and losses count what a wire would carry. Neighbour and
//! forwarding tables are fixed: nothing is flooded, and a host that vanished is silent rather than "unreachable".
//!
//! For measuring processors rather than networks, [`Spec::edges`] and [`Spec::cut`] take the edges and the cutting away.
//!
//! Not here: delay (needs netem, which many kernels lack) and ECN marks (no queue that marks without RED or CoDel).
//! A kernel-wide limit shows through at high rates: `net.core.netdev_max_backlog` packets may wait between two devices.

mod error;
mod guard;
mod namespaces;
mod spec;
pub(crate) mod tool;

pub use error::NetError;
pub(crate) use namespaces::{Namespaces, command_in};
pub use spec::{Counters, HostSpec, Link, MAX_HOSTS, MAX_RACKS, RackSpec, Spec};

use std::ffi::OsStr;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use headwater_units::{BitRate, Bytes};
use serde_json::Value;
use thiserror::Error;

use spec::bucket_size;

/// Steps of the random numbers behind [`Net::loss`].
const LOSS_STEPS: u32 = 1_000_000;

/// Abilities of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Capability {
    /// Random loss works ([`Net::loss`]).
    pub loss: bool,
}

/// Namespaces or limits are not to be had.
#[derive(Debug, Error)]
#[error("cannot build a network of namespaces here: {reason}")]
#[non_exhaustive]
pub struct Unavailable {
    /// The obstacle.
    #[source]
    pub reason: NetError,
    /// Whether a process started by [`in_user_namespace`] could.
    pub user_namespace: bool,
}

impl Capability {
    /// Builds the smallest network, limits it, loses packets in it, and removes it.
    ///
    /// # Errors
    /// [`Unavailable`] when namespaces or token buckets are missing. Missing random loss is no error.
    pub fn probe() -> Result<Self, Unavailable> {
        let rate = Some(BitRate::new(1_000_000));
        let host = HostSpec { uplink: rate, downlink: rate, rack: None };
        let net = Net::build(&Spec { hosts: vec![host], ..Spec::default() })
            .map_err(|reason| Unavailable { reason, user_namespace: user_namespace_works() })?;
        Ok(Capability { loss: net.loss(Link::Downlink(0), 0.5).is_ok() })
    }
}

/// A command that runs `program` as root of a user namespace, where networks can be built without privilege.
///
/// The program sees an empty `/run` and no network but its own; files it writes belong to the calling user.
pub fn in_user_namespace(program: impl AsRef<OsStr>) -> Command {
    let mut command = tool::command("unshare");
    command
        .args(["--user", "--map-root-user", "--net", "--mount", "--", "sh", "-c"])
        .arg(r#"mount -t tmpfs tmpfs /run && exec "$@""#)
        .arg("sh")
        .arg(program);
    command
}

pub(crate) fn user_namespace_works() -> bool {
    in_user_namespace("ip").args(["netns", "add", "probe"]).output().is_ok_and(|o| o.status.success())
}

/// Removes what runs that no longer live have left behind; returns the names of the namespaces removed.
///
/// # Errors
/// [`NetError`] when a namespace of a dead run resists.
pub fn clean() -> Result<Vec<String>, NetError> {
    guard::remove_leftovers()
}

/// The namespaces of ours that are there and that nobody else answers for: their maker is this process, or is dead.
pub fn left_behind() -> Vec<String> {
    guard::unanswered()
}

/// A network of namespaces. Dropping it kills what runs inside and removes it.
pub struct Net {
    namespaces: Namespaces,
    spec: Spec,
    ipv6: bool,
    /// Whether random loss was ever asked for, so that counting does not need `nft` before.
    lossy: AtomicBool,
}

impl Net {
    /// Builds `spec`; every host is ready to send when this returns.
    ///
    /// Runs in parallel, in one process or several, never touch each other. Left-overs of dead runs are removed first.
    ///
    /// # Errors
    /// [`NetError`] for a spec that makes no sense, or the command that failed; nothing is left behind then.
    pub fn build(spec: &Spec) -> Result<Self, NetError> {
        let (hosts, racks) = (spec.hosts.len(), spec.racks.len());
        if !(1..=MAX_HOSTS).contains(&hosts) || racks > MAX_RACKS {
            return Err(NetError::Size { hosts, racks });
        }
        if let Some(rack) = spec.hosts.iter().filter_map(|host| host.rack).find(|rack| *rack >= racks) {
            return Err(NetError::UnknownRack { rack, racks });
        }
        if !spec.edges && racks > 0 {
            return Err(NetError::OneBridge { what: "racks".to_owned() });
        }
        if let Some(host) = spec.hosts.iter().position(|host| host.uplink.is_some() && !spec.edges) {
            return Err(NetError::OneBridge { what: format!("limited uplink, as host {host} was to have") });
        }
        let net = Net {
            namespaces: Namespaces::create(hosts)?,
            spec: spec.clone(),
            ipv6: spec.mtu >= 1280 && has_ipv6(),
            lossy: AtomicBool::new(false),
        };
        net.build_middle()?;
        for host in 0..hosts {
            net.build_host(host)?;
        }
        for (host, HostSpec { uplink, downlink, .. }) in spec.hosts.iter().enumerate() {
            net.limit_new(Link::Uplink(host), *uplink)?;
            net.limit_new(Link::Downlink(host), *downlink)?;
        }
        for (rack, RackSpec { uplink, downlink }) in spec.racks.iter().enumerate() {
            net.limit_new(Link::RackUplink(rack), *uplink)?;
            net.limit_new(Link::RackDownlink(rack), *downlink)?;
        }
        Ok(net)
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
        ipv4(host)
    }

    /// A host's IPv6 address, where this kernel has IPv6 and the packets are large enough for it.
    pub fn ipv6(&self, host: usize) -> Option<Ipv6Addr> {
        self.ipv6.then(|| ipv6(host))
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

    /// Limits `link` to `rate` from now on; `None` takes the limit away.
    ///
    /// # Errors
    /// An unknown host or rack, or the command that failed.
    pub fn set_rate(&self, link: Link, rate: Option<BitRate>) -> Result<(), NetError> {
        self.check(link)?;
        let device = link.device();
        match rate {
            Some(rate) => self.bucket("replace", &device, rate),
            // Nothing to delete if there was no limit; `replace` makes sure there is something.
            None => {
                self.bucket("replace", &device, BitRate::new(1_000_000_000))?;
                tool::run("tc", &["-n", self.namespaces.middle(), "qdisc", "delete", "dev", &device, "root"])
                    .map(drop)
            }
        }
    }

    /// Loses each packet on `link` with this probability from now on; 0 ends it.
    ///
    /// The kernel draws the numbers: two runs lose different packets.
    ///
    /// # Errors
    /// An unknown host or rack, a probability outside 0..=1, or the command that failed (no `nft`, or a kernel
    /// without random numbers in it).
    pub fn loss(&self, link: Link, probability: f64) -> Result<(), NetError> {
        self.check(link)?;
        if !(0.0..=1.0).contains(&probability) {
            return Err(NetError::Probability { probability });
        }
        let below = (probability * f64::from(LOSS_STEPS)).round() as u32;
        let (map, device) = link.loss_point();
        let chain = loss_chain(link);
        // `add` is idempotent for tables, maps, chains, counters and elements; rules are flushed and written anew.
        // One transaction: packets see the old loss or the new one.
        let mut script = format!(
            "add table bridge headwater\n\
             add map bridge headwater to {{ type ifname : verdict; }}\n\
             add map bridge headwater from {{ type ifname : verdict; }}\n\
             add chain bridge headwater forward {{ type filter hook forward priority 0; policy accept; }}\n\
             add counter bridge headwater {chain}\n\
             add chain bridge headwater {chain}\n\
             flush chain bridge headwater forward\n\
             flush chain bridge headwater {chain}\n\
             add rule bridge headwater forward oifname vmap @to\n\
             add rule bridge headwater forward iifname vmap @from\n\
             add element bridge headwater {map} {{ \"{device}\" : jump {chain} }}\n"
        );
        if below > 0 {
            script += &format!(
                "add rule bridge headwater {chain} \
                 numgen random mod {LOSS_STEPS} < {below} counter name \"{chain}\" drop\n"
            );
        }
        let entered = format!("--net=/run/netns/{}", self.namespaces.middle());
        tool::feed("nsenter", &[&entered, "--", "nft", "-f", "-"], &script)?;
        self.lossy.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Cuts a host off: nothing reaches it and nothing it sends arrives, without a word to anybody.
    ///
    /// # Errors
    /// [`NetError::UnknownHost`], or the command that failed.
    pub fn link_down(&self, host: usize) -> Result<(), NetError> {
        self.switch_link(host, false)
    }

    /// Connects a host again.
    ///
    /// # Errors
    /// [`NetError::UnknownHost`], or the command that failed.
    pub fn link_up(&self, host: usize) -> Result<(), NetError> {
        self.switch_link(host, true)
    }

    /// Makes a host vanish, as a power cut would: link first, so that no goodbye gets out, then all its processes.
    ///
    /// # Errors
    /// [`NetError::UnknownHost`], or the command that failed.
    pub fn vanish(&self, host: usize) -> Result<(), NetError> {
        self.link_down(host)?;
        guard::kill_processes(self.namespace(host)?)
    }

    /// Counters of `link` so far.
    ///
    /// # Errors
    /// An unknown host or rack, or the command that failed.
    pub fn counters(&self, link: Link) -> Result<Counters, NetError> {
        self.check(link)?;
        let device = link.device();
        let sent = json("ip", &["-n", self.namespaces.middle(), "-s", "-j", "link", "show", "dev", &device])?;
        let queue =
            json("tc", &["-n", self.namespaces.middle(), "-s", "-j", "qdisc", "show", "dev", &device])?;
        let number = |value: &Value, path: &str| value.pointer(path).and_then(Value::as_u64).unwrap_or(0);
        Ok(Counters {
            packets: number(&sent, "/0/stats64/tx/packets"),
            bytes: Bytes::new(number(&sent, "/0/stats64/tx/bytes")),
            dropped: number(&queue, "/0/drops"),
            lost: if self.lossy.load(Ordering::Relaxed) { self.lost(link)? } else { 0 },
        })
    }

    /// Bytes that a host has put on the wire, with Ethernet headers, whatever became of them. Of buffers that are not
    /// [cut](Spec::cut) the headers count once.
    ///
    /// # Errors
    /// [`NetError::UnknownHost`], or the command that failed.
    pub fn sent(&self, host: usize) -> Result<Bytes, NetError> {
        self.namespace(host)?;
        let device = Link::Downlink(host).device();
        let shown =
            json("ip", &["-n", self.namespaces.middle(), "-s", "-j", "link", "show", "dev", &device])?;
        let bytes = shown.pointer("/0/stats64/rx/bytes").and_then(Value::as_u64);
        Ok(Bytes::new(bytes.unwrap_or(0)))
    }

    fn lost(&self, link: Link) -> Result<u64, NetError> {
        let entered = format!("--net=/run/netns/{}", self.namespaces.middle());
        let listed = json(
            "nsenter",
            &[&entered, "--", "nft", "-j", "list", "counters", "table", "bridge", "headwater"],
        )?;
        let chain = loss_chain(link);
        let counters = listed["nftables"].as_array().into_iter().flatten();
        Ok(counters
            .map(|item| &item["counter"])
            .find(|counter| counter["name"] == chain.as_str())
            .and_then(|counter| counter["packets"].as_u64())
            .unwrap_or(0))
    }

    fn check(&self, link: Link) -> Result<(), NetError> {
        match link {
            _ if link.needs_edges() && !self.spec.edges => {
                Err(NetError::OneBridge { what: format!("{link:?}") })
            }
            Link::Uplink(host) | Link::Downlink(host) => self.namespace(host).map(drop),
            Link::RackUplink(rack) | Link::RackDownlink(rack) if rack < self.spec.racks.len() => Ok(()),
            Link::RackUplink(rack) | Link::RackDownlink(rack) => {
                Err(NetError::UnknownRack { rack, racks: self.spec.racks.len() })
            }
        }
    }

    fn switch_link(&self, host: usize, up: bool) -> Result<(), NetError> {
        self.namespace(host)?;
        let middle = self.namespaces.middle();
        if self.spec.edges {
            let device = Link::Uplink(host).device();
            let to = if up { "up" } else { "down" };
            return tool::run("ip", &["-n", middle, "link", "set", "dev", &device, to]).map(drop);
        }
        // Taken down, the cable's other end would notice: the bridge's port forwards nothing instead.
        let device = Link::Downlink(host).device();
        let state = if up { "forwarding" } else { "disabled" };
        tool::run("bridge", &["-n", middle, "link", "set", "dev", &device, "state", state]).map(drop)
    }

    fn limit_new(&self, link: Link, rate: Option<BitRate>) -> Result<(), NetError> {
        rate.map_or(Ok(()), |rate| self.bucket("add", &link.device(), rate))
    }

    fn bucket(&self, verb: &str, device: &str, rate: BitRate) -> Result<(), NetError> {
        let (burst, limit) = bucket_size(&self.spec, rate);
        let (rate, burst, limit) = (format!("{}bit", rate.get()), burst.to_string(), limit.to_string());
        let queue = ["tbf", "rate", &rate, "burst", &burst, "limit", &limit];
        let place = ["-n", self.namespaces.middle(), "qdisc", verb, "dev", device, "root"];
        tool::run("tc", &[place, queue].concat()).map(drop)
    }

    fn build_middle(&self) -> Result<(), NetError> {
        let mtu = self.spec.mtu;
        let bridge = |name: &str| {
            format!("link add name {name} mtu {mtu} type bridge stp_state 0 forward_delay 0 mcast_snooping 0")
        };
        let mut links = vec![bridge("core"), "link set dev core up".to_owned()];
        let mut forwarding = Vec::new();
        for rack in 0..self.spec.racks.len() {
            links.extend([
                bridge(&format!("rack{rack}")),
                format!("link set dev rack{rack} up"),
                format!("link add name rackup{rack} mtu {mtu} type veth peer name rackcore{rack} mtu {mtu}"),
                format!("link set dev rackup{rack} master rack{rack}"),
                format!("link set dev rackcore{rack} master core"),
                format!("link set dev rackup{rack} up"),
                format!("link set dev rackcore{rack} up"),
            ]);
        }
        for (host, HostSpec { rack, .. }) in self.spec.hosts.iter().enumerate() {
            let above = rack.map_or("core".to_owned(), |rack| format!("rack{rack}"));
            let far = self.namespaces.host(host)?;
            if !self.spec.edges {
                links.extend([
                    format!(
                        "link add name host{host} mtu {mtu} type veth peer name eth0 mtu {mtu} netns {far}"
                    ),
                    format!("link set dev host{host} master core"),
                    format!("link set dev host{host} up"),
                ]);
                forwarding.push(format!("fdb add {} dev host{host} master static", mac(host)));
                continue;
            }
            links.extend([
                bridge(&format!("edge{host}")),
                format!("link set dev edge{host} up"),
                format!("link add name host{host} mtu {mtu} type veth peer name eth0 mtu {mtu} netns {far}"),
                format!("link add name up{host} mtu {mtu} type veth peer name core{host} mtu {mtu}"),
                format!("link set dev host{host} master edge{host}"),
                format!("link set dev up{host} master edge{host}"),
                format!("link set dev core{host} master {above}"),
                format!("link set dev host{host} up"),
                format!("link set dev up{host} up"),
                format!("link set dev core{host} up"),
            ]);
            // An edge has two ports and needs no table: what comes in by one leaves by the other.
            forwarding.push(match rack {
                Some(rack) => format!("fdb add {} dev rackcore{rack} master static", mac(host)),
                None => format!("fdb add {} dev core{host} master static", mac(host)),
            });
            forwarding.extend((0..self.spec.racks.len()).map(|seen_from| match rack {
                Some(rack) if *rack == seen_from => {
                    format!("fdb add {} dev core{host} master static", mac(host))
                }
                _ => format!("fdb add {} dev rackup{seen_from} master static", mac(host)),
            }));
        }
        tool::batch("ip", self.namespaces.middle(), &links)?;
        tool::batch("bridge", self.namespaces.middle(), &forwarding)
    }

    fn build_host(&self, host: usize) -> Result<(), NetError> {
        let mut lines = vec![
            "link set dev lo up".to_owned(),
            format!("link set dev eth0 address {}", mac(host)),
            format!("addr add {}/24 dev eth0", ipv4(host)),
            "link set dev eth0 up".to_owned(),
        ];
        if self.spec.cut {
            lines.push("link set dev eth0 gso_max_segs 1".to_owned());
        }
        if self.ipv6 {
            // `nodad`: else the address is unusable for its first second or two.
            lines.push(format!("addr add {}/64 dev eth0 nodad", ipv6(host)));
        }
        for peer in (0..self.hosts()).filter(|peer| *peer != host) {
            lines.push(format!("neigh add {} lladdr {} dev eth0 nud permanent", ipv4(peer), mac(peer)));
            if self.ipv6 {
                lines.push(format!("neigh add {} lladdr {} dev eth0 nud permanent", ipv6(peer), mac(peer)));
            }
        }
        tool::batch("ip", self.namespaces.host(host)?, &lines)
    }
}

impl std::fmt::Debug for Net {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Net")
            .field("run_id", &self.run_id())
            .field("spec", &self.spec)
            .finish_non_exhaustive()
    }
}

/// Whether this kernel has IPv6 at all.
pub(crate) fn has_ipv6() -> bool {
    std::path::Path::new("/proc/net/if_inet6").exists()
}

fn ipv4(host: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 99, 0, host as u8 + 1)
}

fn ipv6(host: usize) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, 0x99, 0, 0, 0, 0, 0, host as u16 + 1)
}

/// A locally administered address that spells its host.
fn mac(host: usize) -> String {
    format!("02:48:57:00:00:{:02x}", host + 1)
}

fn loss_chain(link: Link) -> String {
    format!("loss_{}", link.device())
}

fn json(tool: &str, args: &[&str]) -> Result<Value, NetError> {
    let output = tool::run(tool, args)?;
    serde_json::from_str(&output).map_err(|_| NetError::Unexpected {
        command: std::iter::once(tool).chain(args.iter().copied()).collect::<Vec<_>>().join(" "),
        output,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn senseless_networks_are_refused_before_anything_is_built() {
        let host = HostSpec::default();
        let of = |hosts, racks| Net::build(&Spec { hosts, racks, ..Spec::default() });
        assert!(matches!(of(vec![], vec![]), Err(NetError::Size { hosts: 0, .. })));
        assert!(matches!(of(vec![host; MAX_HOSTS + 1], vec![]), Err(NetError::Size { .. })));
        let racked = HostSpec { rack: Some(1), ..host };
        let refused = of(vec![racked], vec![RackSpec::default()]);
        assert!(matches!(refused, Err(NetError::UnknownRack { rack: 1, racks: 1 })));
        let flat = |hosts, racks| Net::build(&Spec { hosts, racks, edges: false, ..Spec::default() });
        let refused = flat(vec![HostSpec { rack: Some(0), ..host }], vec![RackSpec::default()]);
        assert!(matches!(refused, Err(NetError::OneBridge { .. })));
        let limited = HostSpec { uplink: Some(BitRate::new(1_000_000)), ..host };
        assert!(matches!(flat(vec![limited], vec![]), Err(NetError::OneBridge { .. })));
    }
}
