//! What a controller may be told, and what it counts.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use headwater_units::{Bytes, Duration, Theta};
use headwater_wire::{Delivery, SpreadRule};
use serde::Serialize;

use crate::NetworkSpec;

/// Multicast addresses in a row, all with the same port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupRange {
    /// The first one.
    pub first: IpAddr,
    /// How many there are; not zero.
    pub count: u32,
    /// The UDP port.
    pub port: u16,
}

impl GroupRange {
    const ORGANIZATION: GroupRange =
        GroupRange { first: IpAddr::V4(Ipv4Addr::new(239, 195, 0, 0)), count: 1 << 16, port: 7003 };
    const SITE: GroupRange = GroupRange {
        first: IpAddr::V6(Ipv6Addr::new(0xff05, 0, 0, 0, 0, 0, 0x4857, 0)),
        count: 1 << 16,
        port: 7003,
    };

    /// The nth address of the range, counted around.
    pub(crate) fn nth(&self, n: u32) -> SocketAddr {
        let n = n % self.count.max(1);
        let ip = match self.first {
            IpAddr::V4(ip) => IpAddr::from(Ipv4Addr::from(u32::from(ip).wrapping_add(n))),
            IpAddr::V6(ip) => IpAddr::from(Ipv6Addr::from(u128::from(ip).wrapping_add(u128::from(n)))),
        };
        SocketAddr::new(ip, self.port)
    }
}

/// Settings of a controller; every default says where it comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct ControllerConfig {
    /// Sources of a task whose request names no number: 3 (PPUSH §III-A, against incast).
    pub max_sources: u8,
    /// Sources of a task at most, whatever its request says: 32. A list of their grants must fit one control message.
    pub sources_limit: u8,
    /// Residue classes beyond `max_sources` under [`SpreadRule::Residue`]: 0. Each class without a source turns its
    /// share of every block into repair symbols; a replacement that inherits a class repeats a block's share at most.
    pub spare_classes: u8,
    /// Residue classes under [`SpreadRule::Listed`], where they spread repair symbols only and cost nothing: 64.
    pub listed_classes: u8,
    /// Bytes of symbol that a source's datagrams must carry at least: 256, below any IPv4 host's 576-byte datagram.
    pub smallest_room: u16,
    /// How often receivers report: 100 ms, so that a joining source is used well within a second.
    pub feedback_every: Duration,
    /// First wait before an unanswered message is said again: 500 ms. Doubles each time.
    pub retry_first: Duration,
    /// Longest such wait: 8 s.
    pub retry_longest: Duration,
    /// A flow that brought nothing for this long gives way to another source: 1.5 s, as does one whose source has not
    /// confirmed it.
    pub silent_limit: Duration,
    /// A source that failed a task is not chosen for it again for this long: 10 s.
    pub bar: Duration,
    /// A task's flows pause after this long without a word of its receiver: 3 s (PPUSH §III-A "a long time").
    pub receiver_silent: Duration,
    /// A task ends after this long without a word of its receiver: 60 s.
    pub receiver_gone: Duration,
    /// A restored flow waits this long for its source to come back, and so does an unknown name after a restart: 10 s, several
    /// reconnection attempts.
    pub restore_grace: Duration,
    /// [`headwater_wire::ToSource::Stop`] to a source that does not answer is given up after this long: 10 min. A later
    /// report of the flow starts it anew.
    pub stop_for: Duration,
    /// Weights are planned anew this often beside every arrival and completion, since remaining sizes, rates and
    /// round trips change meanwhile: 500 ms.
    pub replan_every: Duration,
    /// Plans are at least this far apart, so that a thousand arrivals at once cost a few plans: 20 ms. A plan of a
    /// thousand tasks takes some milliseconds. Zero plans at every single event, as the paper does.
    pub replan_gap: Duration,
    /// Capacities are the largest delivered rate within this span: 10 s (docs/decisions/0031).
    pub rate_window: Duration,
    /// θ-: 0.5 (PPUSH Eq. 21).
    pub theta_floor: Theta,
    /// θ+ of every link, where the operator knows it (PPUSH Eq. 20); `None`: from measured rates and round trips.
    pub theta_ceiling: Option<Theta>,
    /// θ+ of a path where nothing is measured: 2 (docs/decisions/0031).
    pub theta_unmeasured: Theta,
    /// Relative change of a weight that is worth telling: 0.01.
    pub theta_step: f64,
    /// Flows between nodes that have stated what their links carry begin at that rate, and with what it carries in a round
    /// trip: yes. Else each finds out for itself.
    pub begin_at_stated_rates: bool,
    /// Every flow weighs this, whatever its task, instead of Algorithm 1: for control runs. None.
    pub fixed_theta: Option<Theta>,
    /// Addresses for the groups of casts, each to one at a time; the first range of the source's family counts. 239.195.0.0/16, from
    /// the organization-local scope (RFC 2365 §6.2), and ff05::4857:0/112, site-local (RFC 4291 §2.7). None: casts go to each
    /// receiver by itself.
    pub groups: Vec<GroupRange>,
    /// A cast waits so long for its receivers to answer before it goes on with those that have: 300 ms. The others come later,
    /// each by itself.
    pub cast_gather: Duration,
    /// What the source of a cast pushes to its group unasked, in symbols (SCDP §III-D, IW): 64, 90 KB in packets of Ethernet,
    /// less than the smallest queues of switches.
    pub cast_window: u16,
    /// What is under way to a receiver of a cast whose receivers pass on what comes to each other, in symbols, from all of them
    /// together: 64, as of a group, and for the same reason. Where there are n > 6 of them it is 6/n of that, because each symbol
    /// is sent on to all others at once; of one of them it is 2 at least.
    pub overlay_window: u16,
    /// So many receivers pass on to each other what comes; where there are more, there are several such meshes, and the source
    /// sends a copy to each. 32: every one has a flow from every other one.
    pub overlay_circle: u8,
    /// Gets of one object begin to pass on to each other what comes when no further one has come for so long: 100 ms. Longer waits
    /// have no gain: who comes later is served no worse (tests/overlay, 4 to 12 gets 10 to 250 ms apart).
    pub swarm_gather: Duration,
    /// And at the latest so long after the second one: 300 ms. Until then it is also waited for their first rates.
    pub swarm_longest: Duration,
    /// Who will be through within this at the rate that it has goes on as it is: 1 s. To begin anew takes some tens of milliseconds.
    pub swarm_rest: Duration,
    /// Whoever asked for a cast is told how it does this often: 200 ms.
    pub cast_news: Duration,
    /// A receiver of a cast that has gone is waited for so long: 10 s, several reconnection attempts.
    pub cast_away: Duration,
    /// The network, if an operator has written it down: then casts go by its trees. None.
    pub network: Option<NetworkSpec>,
    /// Interests that a receiver may have out in one tree (Datacast §V-B, w): 48, the middle one of Fig. 7a. The paper's 16 fill 1 Gbit/s
    /// at 200 us; hosts that hand on as programs, each of which may be woken milliseconds late, do add to that.
    pub tree_credit: u16,
    /// Bytes of symbols that a node keeps of each tree that branches there: 512 KB (Datacast §VII-B).
    pub tree_store: Bytes,
    /// How often neighbours on a tree tell each other that they are there: 100 ms. Three that do not come are a cut.
    pub tree_heartbeat: Duration,
    /// Where nodes are told down a tree that their trees were rerouted, each tells so many at most of those that it reaches over
    /// switches alone, and they the others: 16.
    pub signal_fan_out: usize,
    /// A cable that was found cut is left out of trees for so long: 60 s.
    pub cut_for: Duration,
    /// Casts at the same time, at most: 256.
    pub max_casts: usize,
    /// Running tasks at most: 4,096. More are refused.
    pub max_tasks: usize,
    /// Nodes known at most: 4,096. Absent ones make room.
    pub max_nodes: usize,
    /// Objects remembered per node at most: 65,536.
    pub max_objects_per_node: usize,
    /// Objects known at most: 262,144. Those without a holder make room.
    pub max_objects: usize,
    /// Names known at most: 262,144; at most 16 per object of a node. Removed ones make room, then those of objects without a holder.
    pub max_names: usize,
    /// Bytes of all names at most: 64 MiB, of which no node has more than an eighth.
    pub max_name_bytes: Bytes,
    /// Flows that are being stopped, at most: 65,536. The rest is stopped when its source reports it.
    pub max_ending: usize,
    /// Finished requests remembered at most, so that a late copy does not start a task again: 4,096.
    pub max_finished: usize,
    /// Sources that one task may distrust at most: 256.
    pub max_distrusted: usize,
}

impl Default for ControllerConfig {
    fn default() -> Self {
        ControllerConfig {
            max_sources: 3,
            sources_limit: 32,
            spare_classes: 0,
            listed_classes: 64,
            smallest_room: 256,
            feedback_every: Duration::from_millis(100),
            retry_first: Duration::from_millis(500),
            retry_longest: Duration::from_secs(8),
            silent_limit: Duration::from_millis(1_500),
            bar: Duration::from_secs(10),
            receiver_silent: Duration::from_secs(3),
            receiver_gone: Duration::from_secs(60),
            restore_grace: Duration::from_secs(10),
            stop_for: Duration::from_secs(600),
            replan_every: Duration::from_millis(500),
            replan_gap: Duration::from_millis(20),
            rate_window: Duration::from_secs(10),
            theta_floor: Theta::FLOOR,
            theta_ceiling: None,
            theta_unmeasured: Theta::new(2.0),
            theta_step: 0.01,
            begin_at_stated_rates: true,
            fixed_theta: None,
            groups: vec![GroupRange::ORGANIZATION, GroupRange::SITE],
            cast_gather: Duration::from_millis(300),
            cast_window: 64,
            overlay_window: 64,
            overlay_circle: 32,
            swarm_gather: Duration::from_millis(100),
            swarm_longest: Duration::from_millis(300),
            swarm_rest: Duration::from_secs(1),
            cast_news: Duration::from_millis(200),
            cast_away: Duration::from_secs(10),
            network: None,
            tree_credit: 48,
            tree_store: Bytes::new(512_000),
            tree_heartbeat: Duration::from_millis(100),
            signal_fan_out: 16,
            cut_for: Duration::from_secs(60),
            max_casts: 256,
            max_tasks: 4_096,
            max_nodes: 4_096,
            max_objects_per_node: 65_536,
            max_objects: 262_144,
            max_names: 262_144,
            max_name_bytes: Bytes::mib(64),
            max_ending: 65_536,
            max_finished: 4_096,
            max_distrusted: 256,
        }
    }
}

impl ControllerConfig {
    /// How many sources a task may have, by what its request asks for.
    pub(crate) fn sources_for(&self, asked: Option<u8>) -> u8 {
        asked.unwrap_or(self.max_sources).clamp(1, self.sources_limit)
    }

    /// M of PPUSH §III-A: how many disjoint classes the symbols of a task fall into.
    pub(crate) fn classes_for(&self, spread: SpreadRule, sources: u8) -> u8 {
        match spread {
            SpreadRule::Residue => sources.saturating_add(self.spare_classes),
            SpreadRule::Equal => sources,
            SpreadRule::Listed => sources.max(self.listed_classes),
        }
    }

    /// What tasks are told that come by trees.
    pub(crate) fn delivery_by_trees(&self) -> Delivery {
        Delivery::Trees { credit: self.tree_credit.max(1) }
    }

    /// # Panics
    /// If a setting would break an invariant: said here instead of later.
    pub(crate) fn assert_usable(&self) {
        let network = self.network.as_ref().map_or(Ok(()), NetworkSpec::check);
        assert!(network.is_ok(), "a network is checked before it is used: {network:?}");
        let floor = self.theta_floor.get();
        assert!(floor > 0.0 && floor <= 1.0, "theta_floor lies in (0, 1]");
        assert!(
            self.theta_unmeasured.get().is_finite() && self.theta_unmeasured >= self.theta_floor,
            "theta_unmeasured is a number, at least theta_floor"
        );
        assert!((1..=128).contains(&self.sources_limit), "a list of grants must fit one control message");
        let waits = [
            self.retry_first,
            self.retry_longest,
            self.replan_every,
            self.stop_for,
            self.bar,
            self.cast_news,
            self.swarm_gather,
        ];
        assert!(waits.iter().all(|wait| *wait > Duration::ZERO), "no timer may fire without time passing");
        assert!((2..=128).contains(&self.overlay_circle), "a list of grants must fit one control message");
        assert!(self.receiver_gone > self.receiver_silent, "a receiver falls silent before it is gone");
    }
}

/// Counters of a controller, from its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ControllerStats {
    /// Tasks begun.
    pub tasks_accepted: u64,
    /// Tasks taken over from before a restart.
    pub tasks_restored: u64,
    /// Requests refused, for whatever reason.
    pub requests_refused: u64,
    /// Tasks that ended with their object complete.
    pub tasks_done: u64,
    /// Tasks that ended otherwise.
    pub tasks_failed: u64,
    /// Flows begun.
    pub flows_opened: u64,
    /// Flows that gave way to another source.
    pub flows_replaced: u64,
    /// Pushes that sources refused.
    pub pushes_refused: u64,
    /// Times that a task paused because its receiver was silent.
    pub pauses: u64,
    /// Times that a silent flow without an alternative was ordered again.
    pub flows_reordered: u64,
    /// Plans made (PPUSH Alg. 1).
    pub plans: u64,
    /// Weights told to sources after the start of their flows.
    pub thetas_told: u64,
    /// Sources distrusted by a task.
    pub distrusts: u64,
    /// Messages that a controller is never sent, or that are no control messages.
    pub unexpected: u64,
    /// Messages about a flow or task that is not the sender's, or from a node that has not said who it is.
    pub strangers: u64,
    /// Late copies of requests whose tasks have finished.
    pub requests_late: u64,
    /// Nodes turned away because the table is full of nodes that are here.
    pub nodes_refused: u64,
    /// Holdings not recorded: a table is full, or the size contradicts another holder's.
    pub holdings_refused: u64,
    /// Names that were not given, or not recorded: their owner is here, or a table is full.
    pub names_refused: u64,
    /// Flows that were not waited for until stopped, for want of room.
    pub stops_given_up: u64,
    /// Casts begun.
    pub casts_accepted: u64,
    /// Casts refused, for whatever reason.
    pub casts_refused: u64,
    /// Casts of which a group's flow was begun.
    pub casts_grouped: u64,
    /// Casts that went by trees.
    pub casts_by_trees: u64,
    /// Times that trees were repaired.
    pub trees_repaired: u64,
    /// Receivers that were served by themselves because their trees had come to nothing.
    pub receivers_off_trees: u64,
    /// Nodes told down a tree that their trees were rerouted.
    pub nodes_signalled: u64,
    /// Of these, the ones that did not answer that way.
    pub signals_unanswered: u64,
    /// Casts whose receivers pass on what comes.
    pub casts_overlaid: u64,
    /// Times that gets came to pass on to each other what comes, without a cast.
    pub swarms_overlaid: u64,
    /// Requests that were served by those who pass on.
    pub overlays_joined: u64,
    /// Tasks that went on as one of those.
    pub tasks_regrouped: u64,
}
