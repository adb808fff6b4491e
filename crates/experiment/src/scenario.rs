//! Scenario of one run: the network, its ports, who sends what to whom, by which scheme, and the faults.
//!
//! A [`Scenario`] is the `[scenario]` part of an experiment file with every axis, override and scheme filled in. It is
//! plain data: engines build from it what they can model and refuse the rest with an error. Defaults are those of
//! PPUSH's evaluation (§IV-B, §V) and of the reproduction's stated choices; each field names its source. Times, rates
//! and sizes are written as people write them: `"40 us"`, `"200000 pps"`, `"100 packets"`.

use headwater_fabric::FabricSpec;
use headwater_units::{Bytes, Duration};
use serde::{Deserialize, Serialize};

mod allocator;
mod background;
mod check;
mod datacast;
mod faults;
mod machines;
mod network;
mod pam;
mod ports;
mod scheme;
mod swarm;
mod transport;

pub use allocator::{AllocatorSpec, Variant};
pub use background::{ArrivingBackground, Background, PermutedBackground};
pub(crate) use check::look_up;
pub use check::{ScenarioError, link_name, link_named};
pub use datacast::{DatacastSpec, Replacement};
pub use faults::{Action, DrawnFaults, Fault, LossPlace, Target};
pub use network::NetworkTextError;
pub use pam::{PamSpec, RankPolicy, RepairBy};
pub use ports::{Amount, PortClass, PortSpec, Service, StaleOrRepaired, Trim, WhenFull};
pub use scheme::{ParseSchemeError, Scheme, ShuffleOrder};
pub use swarm::SwarmSpec;
pub use transport::{Assignment, DataClass, Decode, LossResponse, Machines, PullSpec, TransportSpec};

use crate::text;
use crate::workload::Workload;

/// Everything that decides a run, but for its seed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// The network: its shape, rates and delays.
    pub fabric: FabricSpec,
    /// Every port of every switch.
    #[serde(default)]
    pub port: PortSpec,
    /// The port of every host; as [`Scenario::port`] if absent, since in PPUSH's one big switch the bottleneck is the
    /// storage node's own link, which must mark.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nic: Option<PortSpec>,
    /// How long packets are on the line.
    #[serde(default)]
    pub packet: PacketSpec,
    /// Most time that a host takes to send a packet, which is random; one data packet's time on the slowest link of its
    /// path if absent, without which flows of one bottleneck lock into patterns (Floyd and Jacobson, "On traffic phase
    /// effects", 1991).
    #[serde(default, with = "text::maybe", skip_serializing_if = "Option::is_none")]
    pub jitter: Option<Duration>,
    /// Which of several shortest paths a packet takes.
    #[serde(default)]
    pub routing: Routing,
    /// Scheme that decides the sending.
    pub scheme: Scheme,
    /// The constants of that scheme's machines.
    #[serde(default)]
    pub transport: TransportSpec,
    /// Objects or flows to deliver.
    pub workload: Workload,
    /// Flows beside it, by other rules.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub background: Vec<Background>,
    /// Long flows beside it, between hosts that the seed draws.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permuted_background: Option<PermutedBackground>,
    /// Requests beside it that the seed draws.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arriving_background: Option<ArrivingBackground>,
    /// Time by which the workload begins after the run, and after all background; with it if absent.
    #[serde(default, with = "text::maybe", skip_serializing_if = "Option::is_none")]
    pub lead: Option<Duration>,
    /// Faults, in any order.
    #[serde(default)]
    pub faults: Vec<Fault>,
    /// Faults of hosts beside these that the seed draws.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drawn_faults: Vec<DrawnFaults>,
    /// Every cable is down in both directions from the start, with this probability (Datacast §VI-A, LFR); the seed draws
    /// which, and all that fail at one rate fail at every higher one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub link_failure_rate: f64,
    /// Time series to take; none if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample: Option<Sample>,
    /// When the run ends, if not before by all tasks being done.
    #[serde(default, with = "text::maybe", skip_serializing_if = "Option::is_none")]
    pub until: Option<Duration>,
    /// Whether symbols carry true bytes through the true codec, and headers go through `wire`; for small runs.
    #[serde(default)]
    pub carry_bytes: bool,
}

impl Scenario {
    /// Whether every port grants rates to scheduled transfers (PAM), those of hosts too.
    pub fn grants_rates(&self) -> bool {
        [Some(&self.port), self.nic.as_ref()].into_iter().flatten().all(|port| port.allocator.is_some())
    }

    /// How long packets may wait on a way at the port of a host and another one that grants rates: each tolerates what a line sends in the
    /// round trip that it is told.
    pub fn tolerated_queue(&self) -> Duration {
        let told = self.port.allocator.as_ref().and_then(|allocator| allocator.round_trip);
        told.unwrap_or_default() * 2
    }

    /// Whether anything goes wrong.
    pub(crate) fn has_faults(&self) -> bool {
        !self.faults.is_empty() || !self.drawn_faults.is_empty()
    }

    /// Whether anything is sent beside the workload.
    pub(crate) fn has_background(&self) -> bool {
        !self.background.is_empty()
            || self.permuted_background.is_some()
            || self.arriving_background.is_some()
    }
}

fn is_zero(rate: &f64) -> bool {
    *rate == 0.0
}

/// How long packets are on the line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PacketSpec {
    /// A data packet, all headers; 1210 B by PPUSH §IV-B. Rates in `pps` are in packets of this length.
    #[serde(default = "PacketSpec::paper_data", with = "text::one")]
    pub data: Bytes,
    /// An ACK; 40 B (a bare TCP/IP header; PPUSH does not say).
    #[serde(default = "PacketSpec::bare_ack", with = "text::one")]
    pub ack: Bytes,
    /// Every packet is as long as `wire` makes it, and `data` and `ack` only convert units.
    #[serde(default)]
    pub true_sizes: bool,
}

impl PacketSpec {
    fn paper_data() -> Bytes {
        Bytes::new(1210)
    }
    fn bare_ack() -> Bytes {
        Bytes::new(40)
    }
}

impl Default for PacketSpec {
    fn default() -> Self {
        PacketSpec { data: Self::paper_data(), ack: Self::bare_ack(), true_sizes: false }
    }
}

/// Which of several shortest paths a packet takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Routing {
    /// One per flow, by its hash: the choice for all of PPUSH's figures.
    #[default]
    Ecmp,
    /// One per packet, evenly: every switch has a random order of its ports for each destination (SCDP, NDP).
    Spray,
    /// One per packet, evenly: every source has a random order of all paths to each destination (NDP, as csg-htsim has it).
    SourceSpray,
    /// One per destination on a fat-tree: the rack's uplink by the destination's slot in its rack, the aggregation's
    /// uplink by the destination's rack in its pod.
    DModK,
    /// The lowest one.
    First,
}

/// Which time series are taken, and how often.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sample {
    /// The interval.
    #[serde(with = "text::one")]
    pub every: Duration,
    /// Quantities, of every flow or every switch port that has them.
    pub what: Vec<Quantity>,
    /// The links to sample, as `a-b`; all that ever queued a packet if absent.
    #[serde(default)]
    pub links: Vec<String>,
}

/// A time series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    /// A flow's congestion window, packets.
    Window,
    /// A flow's last measured round-trip time, seconds.
    Rtt,
    /// A flow's running share of marked packets (PPUSH alpha), 0..=1.
    MarkFraction,
    /// Rate at which a flow sent during the interval, packets per second.
    Rate,
    /// A flow's weight.
    Theta,
    /// Useful packets that arrived during the interval, per second.
    Goodput,
    /// A link's queue, packets, the one in transmission included; the mean over the interval.
    Queue,
}

impl Quantity {
    /// As it is written in the samples.
    pub fn name(self) -> &'static str {
        match self {
            Quantity::Window => "window",
            Quantity::Rtt => "rtt",
            Quantity::MarkFraction => "mark_fraction",
            Quantity::Rate => "rate",
            Quantity::Theta => "theta",
            Quantity::Goodput => "goodput",
            Quantity::Queue => "queue",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = r#"
        scheme = "ppush(1,1)"
        fabric = { kind = "dumbbell", left = 1, right = 1, rate = "20 Mbit/s", delay = "10 us" }
        nic = { queue = "unlimited", mark_threshold = "none" }
        sample = { every = "1 ms", what = ["window", "mark_fraction"] }
        [workload]
        kind = "long-flows"
        flows = [{ name = "f1", from = 0, to = 1, theta = 1.0 }]
        [[faults]]
        at = "50 ms"
        on = "link left-right"
        what = { kind = "drop-run", packets = 100 }
    "#;

    #[test]
    fn what_is_left_out_is_as_in_the_paper() {
        let scenario: Scenario = toml::from_str(SMALL).unwrap();
        assert_eq!(scenario.port.queue, Amount::Packets(100));
        assert_eq!(scenario.port.mark_threshold, Amount::Packets(30));
        assert_eq!(scenario.nic.unwrap().queue, Amount::Unlimited);
        assert_eq!(scenario.packet.data, Bytes::new(1210));
        assert_eq!(scenario.transport.min_rto, Duration::from_millis(10));
        assert_eq!(scenario.transport.initial_window, 1.0);
        assert_eq!(scenario.transport.gain, 1.0 / 16.0);
        assert_eq!(scenario.routing, Routing::Ecmp);
        assert!(!scenario.carry_bytes);
    }

    #[test]
    fn a_scenario_survives_being_written_and_read() {
        let scenario: Scenario = toml::from_str(SMALL).unwrap();
        let again: Scenario = toml::from_str(&toml::to_string(&scenario).unwrap()).unwrap();
        assert_eq!(again, scenario);
    }

    #[test]
    fn what_is_newer_than_the_first_runs_is_written_only_where_it_is_used() {
        let scenario: Scenario = toml::from_str(SMALL).unwrap();
        let text = toml::to_string(&scenario).unwrap();
        for newer in ["background", "class =", "machines", "trim"] {
            assert!(!text.contains(newer), "{newer}: {text}");
        }
        let used = SMALL.replace(
            "[workload]",
            "transport = { machines = 'product', class = 'gentle' }
            background = [{ name = 'tcp', from = 0, to = 1, scheme = 'cubic', stop = '1 s' }]
            [workload]",
        );
        let scenario: Scenario = toml::from_str(&used).unwrap();
        assert_eq!(scenario.transport.class, DataClass::Gentle);
        assert_eq!(scenario.transport.machines, Machines::Product);
        let flow = &scenario.background[0];
        assert_eq!(
            (flow.scheme, flow.start, flow.stop),
            (Scheme::Cubic, Duration::ZERO, Some(Duration::from_secs(1)))
        );
        assert_eq!(toml::from_str::<Scenario>(&toml::to_string(&scenario).unwrap()).unwrap(), scenario);
    }

    #[test]
    fn an_unknown_field_is_named_with_its_line_and_the_known_ones() {
        let text = SMALL.replace("scheme =", "schem =");
        let error = toml::from_str::<Scenario>(&text).unwrap_err().to_string();
        assert!(
            error.contains("line 2") && error.contains("`schem`") && error.contains("`scheme`"),
            "{error}"
        );
    }

    #[test]
    fn a_bad_quantity_says_how_to_write_one() {
        let text = SMALL.replace("1 ms", "1 fortnight");
        let error = toml::from_str::<Scenario>(&text).unwrap_err().to_string();
        assert!(error.contains("fortnight") && error.contains("2s"), "{error}");
    }
}
