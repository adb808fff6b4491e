//! Status of an emulated network, for people and programs.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use headwater_experiment::scenario::link_name;
use headwater_fabric::LinkId;
use headwater_switch::AllocatorView;
use headwater_units::{BitRate, Duration};
use serde::{Deserialize, Serialize};

use super::EmulatedNet;
use crate::soft_switch::{NotForwarded, RingStats, Snapshot, Validity};

/// Everything about a running network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Beginning of its namespaces' names.
    pub run: String,
    /// Since it was built.
    pub seconds: f64,
    /// By number.
    pub hosts: Vec<HostStatus>,
    /// Each direction of each cable.
    pub links: Vec<LinkStatus>,
    /// Frames that hosts have put in.
    pub injected: u64,
    /// Frames that switches have made beyond the first of each multicast.
    #[serde(default)]
    pub copied: u64,
    /// Frames that came to their hosts.
    pub delivered: u64,
    /// Frames dropped by queues.
    pub dropped: u64,
    /// Frames that links lost.
    pub lost: u64,
    /// Frames that links delivered twice.
    pub duplicated: u64,
    /// Frames that links held back.
    pub reordered: u64,
    /// Frames to nobody, or with no route.
    pub unroutable: u64,
    /// Frames that were no IP, or broken: why, and how many; only reasons that occurred.
    pub not_forwarded: Vec<(String, u64)>,
    /// How well it keeps time.
    pub lateness: TimeStatus,
    /// Capture of what leaves ports, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capture: Option<CaptureStatus>,
}

/// Files of frames as they left their ports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureStatus {
    /// Where they are: one for each direction of each cable.
    pub folder: PathBuf,
    /// Frames that were kept.
    pub frames: u64,
    /// Frames that were not, since the disk did not keep up or its writer has failed.
    pub missed: u64,
}

/// A host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostStatus {
    /// Its number.
    pub host: usize,
    /// Its name in the scenario.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// Its address.
    pub ipv4: Ipv4Addr,
    /// Its address, where there is IPv6.
    pub ipv6: Option<Ipv6Addr>,
    /// Frames read from it.
    pub sent: u64,
    /// Frames that its interface took.
    pub received: u64,
    /// Frames of it that came when the switch had no room to read, that were longer than its MTU, or whose checksum was
    /// left to hardware.
    pub unread: u64,
}

/// A link; what is counted is since the start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkStatus {
    /// From and to, as in scenarios.
    pub link: String,
    /// Packets in its queue, the one on the line included.
    pub queue: u64,
    /// The most there ever were.
    pub max_queue: u64,
    /// Packets that have left the queue.
    pub packets: u64,
    /// Their bytes, Ethernet headers included.
    pub bytes: u64,
    /// Packets marked CE here.
    pub marked: u64,
    /// Packets that found the queue full, or were in it when the link was cut.
    pub dropped: u64,
    /// Packets whose payload was cut off.
    pub trimmed: u64,
    /// Packets lost on the link.
    pub lost: u64,
    /// Grants of its port to scheduled transfers, if it grants rates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocator: Option<AllocatorStatus>,
}

/// Grants of a port to scheduled transfers (PAM §III-C).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AllocatorStatus {
    /// The critical transfer's flow, in hexadecimal digits; none has been offered everything if absent.
    pub critical: Option<String>,
    /// Transfers that count as active (PAM N).
    pub active: u64,
    /// Capacity that they may use together (PAM C(t)).
    pub available: BitRate,
    /// The factor by which that exceeds the room on the line (PAM α).
    pub alpha: f64,
    /// Packets of transfers beyond the table, which were not counted as active.
    pub untracked: u64,
}

impl From<AllocatorView> for AllocatorStatus {
    fn from(view: AllocatorView) -> AllocatorStatus {
        AllocatorStatus {
            critical: view.critical.map(|flow| format!("{:016x}", flow.0)),
            active: view.active,
            available: view.available,
            alpha: view.alpha,
            untracked: view.untracked,
        }
    }
}

/// How late frames were sent, in microseconds, and whether that is good enough.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TimeStatus {
    /// How many frames.
    pub sent: u64,
    /// Half of them were not later.
    pub p50_us: f64,
    /// All but one in a hundred were not later.
    pub p99_us: f64,
    /// All but one in a thousand were not later.
    pub p999_us: f64,
    /// The latest.
    pub max_us: f64,
    /// All but one in a hundred frames of hosts did not wait longer to be read.
    pub read_p99_us: f64,
    /// Limit of `p99_us` and `read_p99_us`.
    pub limit_us: f64,
    /// Frames lost outside of the emulated network.
    pub missed: u64,
    /// Whether measurements count.
    pub valid: bool,
}

impl Status {
    pub(super) fn new(net: &EmulatedNet, seen: &Snapshot) -> Status {
        let topology = net.topology();
        let hosts = topology.hosts().iter().zip(ports(net, seen)).enumerate().map(|(host, (point, port))| {
            HostStatus {
                host,
                name: topology.name(*point).unwrap_or_default().to_owned(),
                namespace: net.namespace(host).unwrap_or_default().to_owned(),
                ipv4: net.ipv4(host),
                ipv6: net.ipv6(host),
                sent: port.received,
                received: port.sent,
                unread: port.kernel_drops + port.too_long + port.without_checksum,
            }
        });
        let links = (0..).zip(&seen.links).map(|(link, state)| LinkStatus {
            link: link_name(topology, LinkId(link)).unwrap_or_default(),
            queue: state.queue,
            max_queue: state.port.high_water,
            packets: state.port.frames_out,
            bytes: state.port.bytes_out.get(),
            marked: state.port.marked,
            dropped: state.port.dropped,
            trimmed: state.port.trimmed,
            lost: state.lost,
            allocator: state.allocator.map(AllocatorStatus::from),
        });
        let counts = &seen.counts;
        let reasons = NotForwarded::ALL.iter().zip(seen.not_forwarded).filter(|(_, count)| *count > 0);
        Status {
            run: net.run_id().to_owned(),
            seconds: seen.at.as_secs_f64(),
            hosts: hosts.collect(),
            links: links.collect(),
            injected: counts.injected.frames,
            copied: counts.copied.frames,
            delivered: counts.delivered.frames,
            dropped: counts.dropped.frames,
            lost: counts.lost.frames,
            duplicated: counts.duplicated.frames,
            reordered: counts.reordered,
            unroutable: counts.unroutable.frames,
            not_forwarded: reasons.map(|(reason, count)| (reason.to_string(), count)).collect(),
            lateness: seen.validity.into(),
            capture: net.captures().zip(seen.captured).map(|(folder, counts)| CaptureStatus {
                folder: folder.to_owned(),
                frames: counts.frames,
                missed: counts.missed,
            }),
        }
    }
}

/// Counters of the cables of each host together.
fn ports(net: &EmulatedNet, seen: &Snapshot) -> Vec<RingStats> {
    let fabric = net.topology().fabric();
    let mut ports = seen.ports.iter();
    let cables = net.topology().hosts().iter().map(|host| fabric.leaving(*host).len());
    let together = |sum: RingStats, it: &RingStats| RingStats {
        received: sum.received + it.received,
        sent: sum.sent + it.sent,
        kernel_drops: sum.kernel_drops + it.kernel_drops,
        too_long: sum.too_long + it.too_long,
        without_checksum: sum.without_checksum + it.without_checksum,
        refused: sum.refused + it.refused,
        blocked: sum.blocked + it.blocked,
    };
    cables.map(|cables| ports.by_ref().take(cables).fold(RingStats::default(), together)).collect()
}

impl From<Validity> for TimeStatus {
    fn from(seen: Validity) -> TimeStatus {
        let us = |span: Duration| span.as_nanos() as f64 / 1e3;
        TimeStatus {
            sent: seen.sent,
            p50_us: us(seen.p50),
            p99_us: us(seen.p99),
            p999_us: us(seen.p999),
            max_us: us(seen.max),
            read_p99_us: us(seen.read_p99),
            limit_us: us(seen.limit),
            missed: seen.missed,
            valid: seen.valid,
        }
    }
}
