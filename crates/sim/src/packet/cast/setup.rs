//! The input of a simulated cast, and its outcome.

use headwater_controller::{ControllerConfig, ControllerStats, NetworkSpec};
use headwater_fabric::{LinkId, Routes, Topology};
use headwater_switch::{Choice, PortConfig};
use headwater_units::{BitRate, Bytes, Duration, Time};
use headwater_wire::{CastRoute, CastWish, Delivery, TreeRepair};

use crate::packet::setup::{Change, Jitter};

/// One run: a pure function of this.
pub struct CastSetup {
    /// The network.
    pub topology: Topology,
    /// Where switches send what is for a host.
    pub routes: Routes,
    /// The port of a link; the flag says whether a host's NIC is meant.
    pub port: Box<dyn Fn(LinkId, bool) -> PortConfig>,
    /// How a switch chooses among equal paths.
    pub choice: Box<dyn Fn(u32) -> Choice>,
    /// Time that a host takes to send a packet.
    pub jitter: Jitter,
    /// Changes of links and hosts, ascending by time.
    pub changes: Vec<(Time, Change)>,
    /// The object's size.
    pub bytes: Bytes,
    /// Host that holds the object.
    pub source: u32,
    /// Further hosts that hold it.
    pub holders: Vec<u32>,
    /// Receivers of the cast.
    pub receivers: Vec<u32>,
    /// How it is to travel.
    pub wish: CastWish,
    /// Further casts of it by the same asker, with the same wish, ascending by time.
    pub further: Vec<CastAt>,
    /// Hosts that `get` it without the cast, ascending by time.
    pub gets: Vec<GetAt>,
    /// One way between a host and the controller.
    pub control_delay: Duration,
    /// Silence after which a host is taken to be gone.
    pub noticed: Duration,
    /// How long it takes to read a block.
    pub prepare: Duration,
    /// Time to decode a block of which symbols were lost.
    pub decode: Duration,
    /// Symbols beyond K that such a block needs; `None`: drawn.
    pub overhead: Option<u32>,
    /// Bytes of symbol that a datagram carries.
    pub room: u16,
    /// The racks that hosts say they stand in, if they do, by host.
    pub racks: Vec<Option<u32>>,
    /// Capacities that hosts state of their links, away from them and towards them, if they do.
    pub lines: Vec<(BitRate, BitRate)>,
    /// The controller's settings, but for its network and groups.
    pub controller: ControllerConfig,
    /// The network carries what is sent to groups.
    pub multicast: bool,
    /// The controller knows this network.
    pub network: Option<NetworkSpec>,
    /// Bytes that a line carries around an IP packet.
    pub framing: Bytes,
    /// The run ends then, whatever is left to do.
    pub until: Time,
    /// After the last receiver and the last change it goes on, at most for this time, until controller and hosts are at rest, and then for
    /// a minute more.
    pub drain: Option<Duration>,
    /// Everything that is drawn.
    pub seed: u64,
}

/// A further cast of the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CastAt {
    /// The time.
    pub at: Time,
    /// Its receivers, which may be those of another cast or of a get as well.
    pub receivers: Vec<u32>,
}

/// A host that gets the object by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetAt {
    /// The time.
    pub at: Time,
    /// Its number.
    pub host: u32,
    /// The transport that it asks for, if it does.
    pub delivery: Option<Delivery>,
}

/// Result of a cast.
#[derive(Clone, Debug, PartialEq)]
pub struct CastOutcome {
    /// Those who were to have the object, by a cast or by themselves, each once, in the order of the set-up: first those of the first
    /// cast, then those of gets, then those whom only a further cast names.
    pub receivers: Vec<ReceiverRow>,
    /// How the first cast travelled, by the controller's last word; `None`: there was none, or it was refused.
    pub route: Option<CastRoute>,
    /// Repairs of its trees, by the same word.
    pub repairs: Vec<TreeRepair>,
    /// From the beginning until the last receiver had it that ever did.
    pub all: Duration,
    /// Time that one copy takes on the source's links.
    pub one_copy: Duration,
    /// Bytes that left the source, all headers included, over those of one copy.
    pub copies: f64,
    /// Messages between the controller and each host, in the order of their numbers: to the controller, and from it.
    pub messages: Vec<(u64, u64)>,
    /// Bytes of these messages, as they are encoded.
    pub message_bytes: u64,
    /// Bytes that left the receiver that sent most, all headers included, over those of one copy.
    pub host_copies: f64,
    /// Bytes that left all hosts, in the same measure.
    pub all_copies: f64,
    /// Bytes that reached the receiver that most reached, in the same measure.
    pub host_copies_in: f64,
    /// Bytes that entered the rack with the most, and bytes that left the one with the most, in the same measure; none
    /// where hosts do not say in which they stand.
    pub rack_copies: (f64, f64),
    /// Frames that found no room or no route.
    pub dropped: u64,
    /// Hosts that found another to send wrong bytes, and which.
    pub distrusted: Vec<(u32, u32)>,
    /// State that was not at its end at the end.
    pub left: Leftovers,
    /// Packets and messages that were sent in the minute after all had come to rest, if that was waited for.
    pub unrest: u64,
    /// Counters of the controller.
    pub controller: ControllerStats,
    /// Events simulated.
    pub events: u64,
}

/// State left at the end of a run in hosts that are up, and in the controller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leftovers {
    /// Tasks of the controller.
    pub tasks: usize,
    /// Its casts.
    pub casts: usize,
    /// Members of its overlays.
    pub members: usize,
    /// Hosts whose source has flows, and how many.
    pub flows: Vec<(u32, usize)>,
    /// Hosts that fetch something.
    pub fetching: Vec<u32>,
    /// Hosts through which trees lead.
    pub trees: Vec<u32>,
    /// Packets and messages on their way.
    pub under_way: usize,
}

impl Leftovers {
    /// Nothing is left.
    pub fn is_empty(&self) -> bool {
        *self == Leftovers::default()
    }
}

/// A receiver of a cast.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiverRow {
    /// Its number.
    pub host: u32,
    /// When it wanted the object.
    pub from: Time,
    /// When it had all of it, if it ever did.
    pub finished: Option<Time>,
    /// Why it has not.
    pub failed: Option<String>,
    /// When that was known.
    pub failed_at: Option<Time>,
}

impl ReceiverRow {
    /// It does not have the object, and this is why.
    pub(crate) fn fail(&mut self, now: Time, why: String) {
        (self.failed, self.failed_at) = (Some(why), Some(now));
    }

    /// It has the object, or it is known why not.
    pub fn is_over(&self) -> bool {
        self.finished.is_some() || self.failed.is_some()
    }
}

impl CastOutcome {
    /// The time of all over that of one copy.
    pub fn stretch(&self) -> f64 {
        self.all.as_secs_f64() / self.one_copy.as_secs_f64()
    }

    /// Whether every receiver has it.
    pub fn is_complete(&self) -> bool {
        self.receivers.iter().all(|row| row.finished.is_some())
    }

    /// Messages between the controller and a host, the mean over all.
    pub fn messages_per_node(&self) -> f64 {
        let all: u64 = self.messages.iter().map(|(to, from)| to + from).sum();
        all as f64 / self.messages.len().max(1) as f64
    }

    /// Messages from the controller to a host, the mean over all.
    pub fn orders_per_node(&self) -> f64 {
        let all: u64 = self.messages.iter().map(|(_, orders)| orders).sum();
        all as f64 / self.messages.len().max(1) as f64
    }

    /// Bytes of these messages in both directions, the mean over all hosts.
    pub fn message_bytes_per_node(&self) -> f64 {
        self.message_bytes as f64 / self.messages.len().max(1) as f64
    }
}
