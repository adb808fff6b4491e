//! From the constants of a scenario to the settings of the machines of PPUSH, SCDP, Datacast and PAM: the one mapping, for simulated hosts and real ones.
//!
//! With [`Machines::Paper`] the base is [`SourceConfig::paper`], PPUSH's experiments (§IV-B, §V-A), not the product's
//! defaults: an ACK per symbol, no pacing, no tail probes, CE as the only mark, windows whose fraction is not carried.
//! Everything that is a constant of a paper is set here. What is not set here keeps a machine's default, and the packet
//! engine then sets what simulated hosts need no protection from:
//!
//! | Setting | Simulated hosts | Real ones |
//! |---|---|---|
//! | source: packets to an address not yet validated, blocks looked ahead, packets in flight | no limit, 4,096, no limit | the machine's defaults |
//! | source: pause of a silent receiver | never | the machine's default |
//! | receiver: window of its socket, blocks in flight, patience | no limit, 2^20, none | the socket's buffer, the machine's defaults |
//! | pulled flows (SCDP): addresses, opening, packets late before one is lost | believed, none, as stated | the machine's defaults |
//! | pulled flows: first window | by how many sources a task has | the same, unless links are stated and the product plans |
//! | controller: silent flows and receivers | never given up | the machine's defaults |
//! | controller: sources per task, smallest symbol | 128, 8 bytes | as the user says, the machine's default |
//! | symbol size | a block over `block_symbols` | what the path's MTU carries |
//! | θ+ where none is stated | Eq. 20 with the fabric's `base_rtt` | Eq. 20 with measured rates and round trips |
//! | decoding | `decode` | the codec |
//!
//! Real hosts thus do without `block_symbols`, `base_rtt` and `decode`. `duplicate_acks` and `ack_every` no machine can
//! vary: see [`TransportSpec::fixed`].
//!
//! With [`Machines::Product`] every machine has its own defaults in both worlds. Of the table's middle column only the
//! smallest symbol, `block_symbols` and `decode` are left, and a simulated receiver, which has no socket, has the default
//! window of 4,096 packets. θ+ is measured. Real hosts are told nothing at all: they are the product without options.

use headwater_controller::ControllerConfig;
use headwater_switch::StoreConfig;
use headwater_transport::flow::in_flight::LATER_ACKS;
use headwater_transport::flow::rtt::RttConfig;
use headwater_transport::pull::{PullFlowConfig, SessionConfig};
use headwater_transport::push::wfcc::{LossGuard, LossResponse as WindowResponse};
use headwater_transport::rate::{ProbeConfig, RateReceiverConfig, RateSourceConfig};
use headwater_transport::source::SourceConfig;
use headwater_transport::tree::{RateConfig, TreeReceiverConfig, TreeSourceConfig};
use headwater_units::{BitRate, Bytes, Duration, Packets, Theta};
use headwater_wire::SpreadRule;

use super::{
    Amount, Assignment, DatacastSpec, LossResponse, Machines, PamSpec, PullSpec, SwarmSpec, TransportSpec,
};

/// Longer than any run: what should never happen by itself happens after this.
const NEVER: Duration = Duration::from_secs(1 << 20);

impl TransportSpec {
    /// A host's source. Initial and least retransmission timeout are the same, since the paper knows one (§III-B).
    pub fn source_config(&self) -> SourceConfig {
        if self.machines == Machines::Product {
            return SourceConfig::default();
        }
        let mut source = SourceConfig::paper();
        source.push.wfcc.initial_window = Packets::new(self.initial_window);
        source.push.wfcc.gain = self.gain;
        source.push.wfcc.theta_floor = Theta::new(self.theta_floor);
        source.push.wfcc.loss_response = match self.loss_response {
            LossResponse::Ignore => WindowResponse::Ignore,
            LossResponse::Guarded => WindowResponse::Guarded(LossGuard::default()),
        };
        source.push.rtt.min_rto = self.min_rto;
        source.push.rtt.initial_rto = self.min_rto;
        source
    }

    /// A host's source whose flows are pulled (SCDP). The levels, where they are bytes, are of packets with this
    /// payload; the machine counts them in symbols of `symbol` bytes, one to a packet.
    pub fn pulled_source_config(&self, payload: Bytes, symbol: u16) -> SourceConfig {
        if self.machines == Machines::Product {
            return SourceConfig::default();
        }
        let pull = PullFlowConfig {
            demotion: Some(self.demotion(payload, symbol)),
            detach_after: self.pull.detach_after,
            ..PullFlowConfig::data_centre()
        };
        // Nobody reads reports.
        SourceConfig { pull, report_every: NEVER, ..SourceConfig::paper() }
    }

    /// Bytes that a pulled flow has sent when it drops a level, in whole symbols of `symbol` bytes, one to a packet;
    /// levels that are bytes are of packets with this payload.
    pub fn demotion(&self, payload: Bytes, symbol: u16) -> [Bytes; 4] {
        let symbols = |level: &Amount| match level {
            Amount::Packets(packets) => u64::from(*packets),
            Amount::Bytes(bytes) => bytes.get().div_ceil(payload.get().max(1)),
            Amount::Unlimited => u64::from(u32::MAX),
        };
        [0, 1, 2, 3].map(|n| Bytes::new(symbols(&self.pull.levels[n]) * u64::from(symbol)))
    }

    /// A host's source of trees (Datacast), with packets of this length.
    pub fn tree_source_config(&self, packet: Bytes) -> SourceConfig {
        if self.machines == Machines::Product {
            return SourceConfig::default();
        }
        let spec = &self.datacast;
        let rate = RateConfig {
            initial: spec.initial_rate.resolve(packet),
            step: spec.increase.resolve(packet),
            every: spec.interval,
            ..RateConfig::default()
        };
        let trees = TreeSourceConfig { rate, packet: Some(packet), ..TreeSourceConfig::default() };
        SourceConfig { trees, report_every: NEVER, ..SourceConfig::paper() }
    }

    /// A host's source whose rates switches compute (PAM), with packets of this length.
    pub fn scheduled_source_config(&self, packet: Bytes) -> SourceConfig {
        let pam = &self.pam;
        // Hosts of the network learn their link's rate where they are made.
        let usual = RateSourceConfig::data_centre(BitRate::new(1_000_000_000));
        let probes = ProbeConfig {
            first: pam.first_probe,
            per: pam.probe_per,
            shortest: pam.probe_interval,
            ..usual.probes
        };
        let rate = RateSourceConfig {
            packet: Some(packet),
            catch_up: Duration::ZERO,
            probes,
            longest_gap: pam.longest_gap,
            ranking: pam.ranking(),
            early_start: pam.early_start,
            ..usual
        };
        SourceConfig { rate, report_every: NEVER, ..SourceConfig::paper() }
    }

    /// A receiver of scheduled transfers.
    pub fn rate_receiver_config(&self) -> RateReceiverConfig {
        self.pam.receiver_config()
    }

    /// A receiver along trees.
    pub fn tree_receiver_config(&self) -> TreeReceiverConfig {
        let spec = &self.datacast;
        let usual = TreeReceiverConfig::default();
        let rtt = RttConfig { min_rto: spec.min_rto, ..usual.rtt };
        TreeReceiverConfig { credit: spec.credit, rtt }
    }

    /// Store of a device where a tree branches.
    pub fn store_config(&self) -> StoreConfig {
        let spec = &self.datacast;
        StoreConfig {
            size: spec.cache,
            replacement: spec.replacement.into(),
            gathers: spec.gathers,
            ..StoreConfig::default()
        }
    }

    /// A receiver that pulls.
    pub fn session_config(&self) -> SessionConfig {
        if self.machines == Machines::Product {
            return SessionConfig::default();
        }
        let session = SessionConfig::data_centre();
        let rtt = RttConfig { initial_rto: self.pull.min_rto, min_rto: self.pull.min_rto, ..session.rtt };
        let (extra, reordering) = (self.decode.overhead, self.pull.reordering);
        SessionConfig { extra, rtt, reordering, ..session }
    }

    /// The controller, with Algorithm 1 if `weigh`, else with weight 1 for every flow. `ceiling` is θ+ of every link;
    /// `None` leaves it to measured rates and round trips, as the product always does.
    pub fn controller_config(&self, ceiling: Option<Theta>, weigh: bool) -> ControllerConfig {
        let fixed_theta = (!weigh).then_some(Theta::ONE);
        if self.machines == Machines::Product {
            return ControllerConfig { fixed_theta, ..ControllerConfig::default() };
        }
        ControllerConfig {
            feedback_every: self.feedback_every,
            // Weights follow arrivals and completions alone (PPUSH §III-C).
            replan_every: NEVER,
            replan_gap: Duration::ZERO,
            rate_window: NEVER,
            theta_floor: Theta::new(self.theta_floor),
            theta_ceiling: ceiling,
            theta_step: 0.0,
            begin_at_stated_rates: false,
            fixed_theta,
            ..ControllerConfig::default()
        }
    }

    /// How a receiver spreads its work: over sources that share one pool of symbols, as `assignment` or the product has it,
    /// or in equal parts that nobody else sends (the scheme ppush(0,x)).
    pub fn spread_rule(&self, pool: bool) -> SpreadRule {
        match (pool, self.machines, self.assignment) {
            (false, ..) => SpreadRule::Equal,
            (true, Machines::Paper, Assignment::Residue) => SpreadRule::Residue,
            (true, Machines::Product, _) | (true, _, Assignment::Listed) => SpreadRule::Listed,
        }
    }

    /// An ACK never waits longer for more symbols. Where a source asks for an ACK per symbol, none waits at all.
    pub fn max_ack_delay(&self) -> Duration {
        Duration::from_millis(2)
    }

    /// The first field that states something else than all machines do, what it states, and what they do: a loss is
    /// inferred from three later packets, and a source of [`SourceConfig::paper`] asks for an ACK per symbol. Engines
    /// that run machines should refuse such constants rather than run others.
    pub fn fixed(&self) -> Option<(&'static str, u32, u32)> {
        let stated =
            [("duplicate_acks", self.duplicate_acks, LATER_ACKS as u32), ("ack_every", self.ack_every, 1)];
        stated.into_iter().find(|(_, stated, does)| stated != does)
    }

    /// The first field that is stated and that no real host follows: swarms, which only simulations have, and what the devices and
    /// the receivers of trees are told in them, when a pulled packet is lost, and whether rates are stated: real hosts are told by
    /// options of their own.
    pub fn simulated_only(&self) -> Option<&'static str> {
        let (datacast, usual) = (&self.datacast, DatacastSpec::default());
        let stated = [
            ("states_rates", !self.states_rates),
            ("pull.reordering", self.pull.reordering != PullSpec::default().reordering),
            ("pam", self.pam != PamSpec::default()),
            ("swarm", self.swarm != SwarmSpec::default()),
            ("datacast.header", datacast.header != usual.header),
            ("datacast.trees", datacast.trees != usual.trees),
            ("datacast.replacement", datacast.replacement != usual.replacement),
            ("datacast.gathers", datacast.gathers != usual.gathers),
            ("datacast.min_rto", datacast.min_rto != usual.min_rto),
        ];
        stated.into_iter().find(|(_, stated)| *stated).map(|(field, _)| field)
    }
}

#[cfg(test)]
mod tests {
    use headwater_transport::push::receiver::ReceiverConfig;
    use headwater_units::{NodeId, PathId};

    use super::*;

    #[test]
    fn each_constant_of_a_source_arrives_at_its_machine() {
        let spec = TransportSpec {
            initial_window: 7.0,
            gain: 0.25,
            theta_floor: 0.75,
            min_rto: Duration::from_millis(123),
            loss_response: LossResponse::Guarded,
            ..TransportSpec::default()
        };
        let source = spec.source_config();
        let wfcc = source.push.wfcc;
        assert_eq!((wfcc.initial_window, wfcc.gain, wfcc.theta_floor.get()), (Packets::new(7.0), 0.25, 0.75));
        assert_eq!(wfcc.loss_response, WindowResponse::Guarded(LossGuard::default()));
        assert_eq!((source.push.rtt.min_rto, source.push.rtt.initial_rto), (spec.min_rto, spec.min_rto));
    }

    #[test]
    fn without_a_word_a_source_is_that_of_the_paper_but_for_its_first_timeout() {
        let spec = TransportSpec::default();
        let mut paper = SourceConfig::paper();
        paper.push.rtt.initial_rto = spec.min_rto;
        assert_eq!(spec.source_config(), paper);
        assert_eq!(spec.fixed(), None);
    }

    #[test]
    fn levels_are_counted_in_symbols() {
        let levels = |spec: &TransportSpec, payload| {
            let demotion = spec.pulled_source_config(Bytes::new(payload), 100).pull.demotion.unwrap();
            demotion.map(|level| level.get() / 100)
        };
        let mut spec = TransportSpec::default();
        // SCDP §IV: 10 KB, 100 KB, 1 MB and 10 MB, of packets of 1500 B with a header of 64 B.
        assert_eq!(levels(&spec, 1436), [7, 70, 697, 6964]);
        spec.pull.levels = [20, 204, 2048, 20_480].map(Amount::Packets);
        assert_eq!(levels(&spec, 1436), [20, 204, 2048, 20_480]);
    }

    #[test]
    fn each_constant_of_a_receiver_that_pulls_arrives_at_its_machine() {
        let mut spec = TransportSpec::default();
        spec.pull.min_rto = Duration::from_millis(7);
        spec.pull.detach_after = Duration::from_millis(8);
        spec.pull.reordering = 9;
        spec.decode.overhead = 3;
        let session = spec.session_config();
        assert_eq!((session.rtt.min_rto, session.rtt.initial_rto), (spec.pull.min_rto, spec.pull.min_rto));
        assert_eq!((session.extra, session.reordering, session.opens_flows), (3, 9, false));
        let source = spec.pulled_source_config(Bytes::new(1436), 1436).pull;
        assert_eq!((source.detach_after, source.validates_paths), (spec.pull.detach_after, false));
        spec.machines = Machines::Product;
        assert_eq!(spec.session_config(), SessionConfig::default());
    }

    #[test]
    fn each_constant_of_trees_arrives_at_its_machine() {
        let text = "increase = '7 Mbit/s'\ninterval = '3 ms'\ncredit = 9\ncache = '64 KB'\ninitial_rate = '50 Mbit/s'\n\
                    replacement = 'lfu'\ngathers = false\nmin_rto = '6 ms'";
        let spec = TransportSpec { datacast: toml::from_str(text).unwrap(), ..TransportSpec::default() };
        let TreeSourceConfig { rate, packet, .. } = spec.tree_source_config(Bytes::new(1500)).trees;
        assert_eq!((rate.initial.get(), rate.step.get()), (50_000_000, 7_000_000));
        assert_eq!((rate.every, packet), (Duration::from_millis(3), Some(Bytes::new(1500))));
        let receiver = spec.tree_receiver_config();
        assert_eq!((receiver.credit, receiver.rtt.min_rto), (9, Duration::from_millis(6)));
        let store = spec.store_config();
        assert_eq!((store.size, store.gathers), (Bytes::new(64_000), false));
        assert_eq!(store.replacement, headwater_switch::Replacement::Lfu);
    }

    #[test]
    fn each_constant_of_a_controller_arrives_at_its_machine() {
        let spec = TransportSpec {
            feedback_every: Duration::from_millis(5),
            theta_floor: 0.25,
            ..TransportSpec::default()
        };
        let controller = spec.controller_config(Some(Theta::new(9.0)), false);
        assert_eq!(controller.feedback_every, Duration::from_millis(5));
        assert_eq!((controller.theta_floor.get(), controller.theta_ceiling), (0.25, Some(Theta::new(9.0))));
        assert_eq!(controller.fixed_theta, Some(Theta::ONE));
        assert_eq!(spec.controller_config(None, true).fixed_theta, None);
    }

    #[test]
    fn the_products_machines_are_its_defaults_but_for_equal_weights() {
        let spec = TransportSpec { machines: Machines::Product, ..TransportSpec::default() };
        assert_eq!(spec.source_config(), SourceConfig::default());
        let ceiling = Some(Theta::new(9.0));
        assert_eq!(spec.controller_config(ceiling, true), ControllerConfig::default());
        let equal = ControllerConfig { fixed_theta: Some(Theta::ONE), ..ControllerConfig::default() };
        assert_eq!(spec.controller_config(ceiling, false), equal);
        let receiver = ReceiverConfig::new("name", NodeId([0; 32]), PathId(0), 0);
        assert_eq!((spec.max_ack_delay(), spec.spread_rule(true)), (receiver.max_ack_delay, receiver.spread));
        assert_eq!(spec.spread_rule(false), SpreadRule::Equal);
    }

    #[test]
    fn flows_without_a_pool_have_equal_parts() {
        let listed = TransportSpec { assignment: Assignment::Listed, ..TransportSpec::default() };
        assert_eq!(TransportSpec::default().spread_rule(true), SpreadRule::Residue);
        assert_eq!(listed.spread_rule(true), SpreadRule::Listed);
        assert_eq!(listed.spread_rule(false), SpreadRule::Equal);
    }

    #[test]
    fn what_no_machine_can_vary_is_found() {
        let spec = TransportSpec { duplicate_acks: 4, ..TransportSpec::default() };
        assert_eq!(spec.fixed(), Some(("duplicate_acks", 4, 3)));
        let spec = TransportSpec { ack_every: 2, ..TransportSpec::default() };
        assert_eq!(spec.fixed(), Some(("ack_every", 2, 1)));
    }

    #[test]
    fn what_only_simulations_have_is_found() {
        let of = |text: &str| toml::from_str::<TransportSpec>(text).unwrap().simulated_only();
        assert_eq!(of("swarm = { peers = 3 }"), Some("swarm"));
        assert_eq!(of("pull = { window = 3, reordering = 9 }"), Some("pull.reordering"));
        assert_eq!(of("datacast = { credit = 9, replacement = 'lru' }"), Some("datacast.replacement"));
        assert_eq!(of("datacast = { credit = 9, cache = '64 KB' }"), None);
    }
}
