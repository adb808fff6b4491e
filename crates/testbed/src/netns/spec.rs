//! Description of a network: hosts, racks, their links and queues.

use headwater_units::{BitRate, Bytes, Duration};

/// More hosts than this are refused: neighbour tables grow with the square.
pub const MAX_HOSTS: usize = 64;
/// More racks than this are refused.
pub const MAX_RACKS: usize = 16;

/// Ethernet header; token buckets count it.
const FRAME_HEADER: u64 = 14;
/// A queue holds at least this many full packets, however slow the link: below that, bursts of a fair sender drop.
const MIN_QUEUE_PACKETS: u64 = 30;
/// A bucket holds at least this many full packets, else it would never let one pass.
const MIN_BURST_PACKETS: u64 = 2;
/// Time that a bucket fills: small against any queue, large against timer slack.
const BURST: Duration = Duration::from_millis(1);

/// Network to build.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    /// The hosts, in the order of their numbers.
    pub hosts: Vec<HostSpec>,
    /// The racks, in the order of their numbers; usually none.
    pub racks: Vec<RackSpec>,
    /// How long a packet waits in a full queue: the depth of each limited link at its own rate, at least
    /// 30 packets.
    pub queue: Duration,
    /// Largest IP packet. IPv6 needs at least 1280.
    pub mtu: u16,
    /// Every host has a bridge of its own in front of the core, where its uplink is limited. Without them all hang on one
    /// bridge: less work per packet, but no limits on uplinks, and no racks.
    pub edges: bool,
    /// Hosts send their packets one by one. Without it the kernel carries buffers of many packets from end to end, as between
    /// containers of one machine: limits, losses and counters then see buffers.
    pub cut: bool,
}

impl Default for Spec {
    /// No hosts; queues of 10 ms, 1500-byte packets one by one, and limits on uplinks.
    fn default() -> Self {
        Spec {
            hosts: Vec::new(),
            racks: Vec::new(),
            queue: Duration::from_millis(10),
            mtu: 1500,
            edges: true,
            cut: true,
        }
    }
}

/// One host and its link.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HostSpec {
    /// Rate at which it may send; `None` is no limit.
    pub uplink: Option<BitRate>,
    /// Rate at which it may receive; `None` is no limit.
    pub downlink: Option<BitRate>,
    /// The rack it stands in; `None` hangs it on the core.
    pub rack: Option<usize>,
}

/// One rack and its link to the core, which its hosts share.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RackSpec {
    /// Rate at which its hosts together may send out of the rack; `None` is no limit.
    pub uplink: Option<BitRate>,
    /// Rate at which its hosts together may receive from outside; `None` is no limit.
    pub downlink: Option<BitRate>,
}

/// One direction of one cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Link {
    /// From this host.
    Uplink(usize),
    /// To this host.
    Downlink(usize),
    /// From this rack to the core.
    RackUplink(usize),
    /// From the core to this rack.
    RackDownlink(usize),
}

impl Link {
    /// The device whose egress is this link; its token bucket sits there.
    pub(super) fn device(self) -> String {
        match self {
            Link::Uplink(host) => format!("up{host}"),
            Link::Downlink(host) => format!("host{host}"),
            Link::RackUplink(rack) => format!("rackup{rack}"),
            Link::RackDownlink(rack) => format!("rackcore{rack}"),
        }
    }

    /// Whether it is there only if hosts have a bridge of their own.
    pub(super) fn needs_edges(self) -> bool {
        !matches!(self, Link::Downlink(_))
    }

    /// Where random loss strikes: the map that is asked, and the device that it knows the link by.
    ///
    /// Behind the queue, so a lost packet has used up its share of the link, but for [`Link::Downlink`], whose far
    /// end is already the host.
    pub(super) fn loss_point(self) -> (&'static str, String) {
        match self {
            Link::Uplink(host) => ("from", format!("core{host}")),
            Link::Downlink(host) => ("to", format!("host{host}")),
            Link::RackUplink(rack) => ("from", format!("rackcore{rack}")),
            Link::RackDownlink(rack) => ("from", format!("rackup{rack}")),
        }
    }
}

/// Counters of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets that left the queue.
    pub packets: u64,
    /// Their bytes, with Ethernet headers.
    pub bytes: Bytes,
    /// Packets that found the queue full, since the link was last without a limit.
    pub dropped: u64,
    /// Packets that [`Net::loss`](super::Net::loss) took.
    pub lost: u64,
}

/// Burst and queue length of a token bucket, in bytes.
pub(super) fn bucket_size(spec: &Spec, rate: BitRate) -> (u64, u64) {
    let packet = u64::from(spec.mtu) + FRAME_HEADER;
    let burst = (rate * BURST).get().max(MIN_BURST_PACKETS * packet);
    let limit = (rate * spec.queue).get().max(MIN_QUEUE_PACKETS * packet);
    // The kernel keeps both in 32 bits.
    (burst.min(1 << 30), limit.min(1 << 30))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_is_ten_milliseconds_at_its_rate_but_never_shallow() {
        let spec = Spec::default();
        assert_eq!(bucket_size(&spec, BitRate::new(100_000_000)), (12_500, 125_000));
        assert_eq!(bucket_size(&spec, BitRate::new(1_000_000)), (2 * 1514, 30 * 1514));
        assert_eq!(bucket_size(&spec, BitRate::new(u64::MAX)), (1 << 30, 1 << 30));
    }
}
