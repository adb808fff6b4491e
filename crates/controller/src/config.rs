//! Configuration and counters of a controller.

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
    /// Number of addresses; not zero.
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

/// By which policy coflows are ordered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CoflowPolicy {
    /// By what each has sent so far. Needs no sizes.
    #[default]
    Aalo,
    /// By bottleneck, select, scale, iterate, over what is left.
    Sincronia,
    /// By Varys' smallest effective bottleneck first, as an order: rates would need pacing at the sources.
    Varys,
}

/// Settings of a controller; every default says where it comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct ControllerConfig {
    /// Sources of a task whose request names no number: 3 (PPUSH §III-A, against incast).
    pub max_sources: u8,
    /// Maximum number of sources of a task, whatever its request says: 32. A list of their grants must fit one control message.
    pub sources_limit: u8,
    /// Residue classes beyond `max_sources` under [`SpreadRule::Residue`]: 0. Each class without a source turns its
    /// share of every block into repair symbols; a replacement that inherits a class repeats a block's share at most.
    pub spare_classes: u8,
    /// Residue classes under [`SpreadRule::Listed`], where they spread repair symbols only and cost nothing: 64.
    pub listed_classes: u8,
    /// Bytes of symbol that a source's datagrams must carry at least: 256, below any IPv4 host's 576-byte datagram.
    pub smallest_room: u16,
    /// Interval of receivers' reports: 100 ms, so that a joining source is used well within a second.
    pub feedback_every: Duration,
    /// Interval between reports of an overlay's receiver, for each receiver of the overlay: 4 ms, so that all together
    /// send 250 reports a second. A receiver for which something goes wrong reports at once.
    pub overlay_feedback: Duration,
    /// But no less often than this: 1 s, since a receiver that falls silent is found out by its reports.
    pub overlay_feedback_longest: Duration,
    /// First wait before an unanswered message is repeated: 500 ms. Doubles each time.
    pub retry_first: Duration,
    /// Longest such wait: 8 s.
    pub retry_longest: Duration,
    /// Time after which a flow is replaced by another source if it brings nothing, or if its source has not confirmed
    /// it: 1.5 s.
    pub silent_limit: Duration,
    /// Time for which a source that failed a task is not chosen for it again: 10 s.
    pub bar: Duration,
    /// Time after which a task's flows pause if its receiver is silent: 3 s (PPUSH §III-A "a long time").
    pub receiver_silent: Duration,
    /// Time after which a task ends whose receiver is silent: 60 s.
    pub receiver_gone: Duration,
    /// After a restart, maximum wait for the source of a restored flow, and for a holder of an unknown name: 10 s, several
    /// reconnection attempts.
    pub restore_grace: Duration,
    /// Time after which a [`headwater_wire::ToSource::Stop`] to a source that does not answer is given up: 10 min. A
    /// later report of the flow starts it anew.
    pub stop_for: Duration,
    /// Interval at which weights are planned anew beside every arrival and completion, since remaining sizes, rates and
    /// round trips change meanwhile: 500 ms.
    pub replan_every: Duration,
    /// Least interval between plans, so that a thousand arrivals at once cost a few plans: 20 ms. A plan of a thousand
    /// tasks takes some milliseconds. Zero plans at every single event, as the paper does.
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
    /// Addresses for the groups of casts; each group has one of its own. The first range of the source's family counts.
    /// 239.195.0.0/16, from the organization-local scope (RFC 2365 §6.2), and ff05::4857:0/112, site-local (RFC 4291 §2.7). None: no
    /// multicast.
    pub groups: Vec<GroupRange>,
    /// Maximum wait for the receivers of a cast to answer: 300 ms, or four round trips to the farthest (3 s at most). Those that answer later
    /// are served one by one.
    pub cast_gather: Duration,
    /// First window that the source of a cast pushes to its group, in symbols (SCDP §III-D, IW): 64, 90 KB in packets of Ethernet,
    /// less than the smallest queues of switches.
    pub cast_window: u16,
    /// Packets that may be in flight to a receiver of an overlay: 48, from all its sources together, an equal part from each. All have as
    /// many, or blocks come late to those that have fewer; and queues of 40 packets take it, since not all come at once.
    pub overlay_window: u16,
    /// A node becomes a leaf of the tree of a stripe when one below it has waited for that stripe alone for longer: 300 ms.
    pub overlay_behind: Duration,
    /// A stripe of an overlay comes from another node when its source has been silent for longer: 500 ms, and twice as long each
    /// time that a stripe of the same receiver has moved. One that has nothing to send says that it lives.
    pub overlay_silent: Duration,
    /// Time without a further get after which gets of one object form an overlay: 100 ms. Longer waits have no gain: a
    /// later get is served no worse (tests/overlay, 4 to 12 gets 10 to 250 ms apart).
    pub swarm_gather: Duration,
    /// Maximum such wait, from the second get on: 300 ms. Until then their first rates are awaited too.
    pub swarm_longest: Duration,
    /// A get that will finish within this time at its present rate goes on as it is: 1 s. To begin anew takes some tens of
    /// milliseconds.
    pub swarm_rest: Duration,
    /// Interval of news to the asker of a cast: 200 ms.
    pub cast_news: Duration,
    /// Maximum wait for a receiver of a cast that has gone: 10 s, several reconnection attempts.
    pub cast_away: Duration,
    /// The network, if an operator has written it down: then casts go by its trees. None.
    pub network: Option<NetworkSpec>,
    /// Interests that a receiver may have out in one tree (Datacast §V-B, w): 48, the middle one of Fig. 7a. The paper's 16 fill 1 Gbit/s
    /// at 200 us; hosts that hand on as programs, each of which may be woken milliseconds late, do add to that.
    pub tree_credit: u16,
    /// Bytes of symbols that a node keeps of each tree that branches there: 512 KB (Datacast §VII-B).
    pub tree_store: Bytes,
    /// Interval of heartbeats between neighbours on a tree: 100 ms. Three missing ones count as a cut.
    pub tree_heartbeat: Duration,
    /// Maximum number of nodes that one node tells in a signalling tree: 16. It tells nodes that it reaches over switches only, and
    /// they tell the others.
    pub signal_fan_out: usize,
    /// Time for which a cable that was found cut is left out of trees: 60 s.
    pub cut_for: Duration,
    /// By which policy coflows are ordered that agents fetch: Aalo's, which needs no sizes.
    pub coflows: CoflowPolicy,
    /// Maximum number of casts at the same time: 256. One asker has a quarter at most, those of one network half.
    pub max_casts: usize,
    /// Maximum number of receivers of a cast: 16,384.
    pub max_receivers: usize,
    /// Maximum number of running tasks: 32,768, two casts to as many as there may be. More are refused. One receiver has a quarter at most,
    /// those of one network half (docs/decisions/0044).
    pub max_tasks: usize,
    /// Maximum number of known nodes: 16,384. Absent ones make room.
    pub max_nodes: usize,
    /// Maximum number of objects remembered per node: 65,536.
    pub max_objects_per_node: usize,
    /// Maximum number of known objects: 262,144. Those without a holder make room. Of those with one, a node has a quarter at most, the
    /// nodes of one network half.
    pub max_objects: usize,
    /// Maximum bytes of what nodes say that they hold, by which names: 1 GiB, as much as 16,384 nodes with 300 named objects each. The nodes of
    /// one network have half at most.
    pub max_said_bytes: Bytes,
    /// Of that, the part of one node: 24 MiB, as much as 65,536 objects with a name of 192 bytes each.
    pub max_said_bytes_of_node: Bytes,
    /// Maximum number of known names: 262,144, and 16 per object of a node. Removed names make room, then those of objects
    /// without a holder.
    pub max_names: usize,
    /// Maximum bytes of all names: 64 MiB, of which no node has more than an eighth.
    pub max_name_bytes: Bytes,
    /// Maximum number of flows that are being stopped: 262,144, eight of each task. Any other is stopped when its source reports it.
    pub max_ending: usize,
    /// Maximum number of finished requests to remember, so that a late copy does not start a task again: 32,768,
    /// as many as may end at once.
    pub max_finished: usize,
    /// Maximum number of sources that one task may distrust: 256.
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
            overlay_feedback: Duration::from_millis(4),
            overlay_feedback_longest: Duration::from_secs(1),
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
            overlay_window: 48,
            overlay_behind: Duration::from_millis(300),
            overlay_silent: Duration::from_millis(500),
            swarm_gather: Duration::from_millis(100),
            swarm_longest: Duration::from_millis(300),
            swarm_rest: Duration::from_secs(1),
            cast_news: Duration::from_millis(200),
            cast_away: Duration::from_secs(10),
            network: None,
            coflows: CoflowPolicy::default(),
            tree_credit: 48,
            tree_store: Bytes::new(512_000),
            tree_heartbeat: Duration::from_millis(100),
            signal_fan_out: 16,
            cut_for: Duration::from_secs(60),
            max_casts: 256,
            max_receivers: 16_384,
            max_tasks: 32_768,
            max_nodes: 16_384,
            max_objects_per_node: 65_536,
            max_objects: 262_144,
            max_said_bytes: Bytes::mib(1024),
            max_said_bytes_of_node: Bytes::mib(24),
            max_names: 262_144,
            max_name_bytes: Bytes::mib(64),
            max_ending: 262_144,
            max_finished: 32_768,
            max_distrusted: 256,
        }
    }
}

impl ControllerConfig {
    /// Maximum number of sources of a task, by what its request asks for.
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

    /// How receivers of an overlay of `stripes` stripes are served.
    pub(crate) fn delivery_by_overlay(&self, stripes: u8) -> Delivery {
        Delivery::Overlay { window: (self.overlay_window / u16::from(stripes.max(1))).max(2) }
    }

    /// The interval of reports of a receiver of an overlay with `members` members.
    pub(crate) fn feedback_of(&self, members: usize) -> Duration {
        let longest = self.overlay_feedback_longest.max(self.feedback_every);
        (self.overlay_feedback * members as u64).clamp(self.feedback_every, longest)
    }

    /// The delivery of tasks by trees.
    pub(crate) fn delivery_by_trees(&self) -> Delivery {
        Delivery::Trees { credit: self.tree_credit.max(1) }
    }

    /// # Panics
    /// If a setting would break an invariant: better here than later.
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
    /// Flows that were replaced by another source.
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
    /// Messages that nobody sends to a controller, or that are no control messages.
    pub unexpected: u64,
    /// Messages about a flow or task that is not the sender's, or from a node that has not said who it is.
    pub strangers: u64,
    /// Late copies of requests whose tasks have finished.
    pub requests_late: u64,
    /// Nodes turned away because the table is full of nodes that are here.
    pub nodes_refused: u64,
    /// Holdings not recorded: a table or the node's share of it is full, or the size contradicts another holder's.
    pub holdings_refused: u64,
    /// Names that were not given, or not recorded: their owner is here, the object has as many of its node as it may, or a table or the
    /// node's share of it is full.
    pub names_refused: u64,
    /// Flows that were not waited for until stopped, for want of room.
    pub stops_given_up: u64,
    /// Casts begun.
    pub casts_accepted: u64,
    /// Casts refused, for whatever reason.
    pub casts_refused: u64,
    /// Casts of which a group's flow was begun.
    pub casts_grouped: u64,
    /// Casts at computed rates that became pulled groups.
    pub casts_unscheduled: u64,
    /// Casts that went by trees.
    pub casts_by_trees: u64,
    /// Times that trees were repaired.
    pub trees_repaired: u64,
    /// Receivers that were served by flows of their own because their trees had failed.
    pub receivers_off_trees: u64,
    /// Nodes told down a tree that their trees were rerouted.
    pub nodes_signalled: u64,
    /// Of these, the ones that did not answer the signal.
    pub signals_unanswered: u64,
    /// Casts that went by an overlay.
    pub casts_overlaid: u64,
    /// Times that gets formed an overlay without a cast.
    pub swarms_overlaid: u64,
    /// Times that a node which held up others became a leaf of a stripe's tree.
    pub demoted: u64,
    /// Requests that joined an overlay.
    pub overlays_joined: u64,
    /// Running tasks that joined an overlay.
    pub tasks_regrouped: u64,
    /// Running tasks at computed rates that went on by pulls.
    pub tasks_unscheduled: u64,
}
