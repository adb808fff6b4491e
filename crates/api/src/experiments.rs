//! What experiments ask of a process beside its work: time series, and the constants of a paper.

use std::path::PathBuf;

use headwater_controller::ControllerConfig;
use headwater_sim::scenario::TransportSpec;
use headwater_transport::pull::PullFlowConfig;
use headwater_transport::push::receiver::ReceiverConfig;
use headwater_transport::source::SourceConfig;
use headwater_units::{Bytes, Duration, Theta};

use super::AppError;
use headwater_driver::TimelineFile;

/// The size of packets for whom rates are meant that are written in packets.
const ETHERNET: Bytes = Bytes::new(1500);

/// Options that measure or change how flows are driven. Without any of them a process is the product as it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Experiments {
    /// Write what every flow does.
    pub timeline: Option<TimelineOptions>,
    /// Constants for the machines, in place of the product's.
    pub tuning: Option<TransportSpec>,
}

/// `--timeline` and `--timeline-every`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimelineOptions {
    /// The CSV file.
    pub path: PathBuf,
    /// From sample to sample; not zero.
    pub every: Duration,
}

impl Experiments {
    /// The file of the timeline, created.
    pub(super) fn timeline_file(&self) -> Result<Option<TimelineFile>, AppError> {
        let create = |options: &TimelineOptions| {
            TimelineFile::create(&options.path, options.every).map_err(|e| {
                AppError::io(format!("cannot write the timeline to {}", options.path.display()), e)
            })
        };
        self.timeline.as_ref().map(create).transpose()
    }

    /// A source whose packets carry symbols of so many bytes.
    pub(super) fn source_config(&self, symbol: u16) -> SourceConfig {
        let Some(tuning) = &self.tuning else { return SourceConfig::default() };
        let mut source = tuning.source_config();
        source.pull = PullFlowConfig {
            demotion: Some(tuning.demotion(Bytes::new(symbol.into()), symbol)),
            detach_after: tuning.pull.detach_after,
            // Addresses can be forged here, as not in a simulation.
            ..PullFlowConfig::default()
        };
        let (rate, stated) = (&mut source.trees.rate, &tuning.datacast);
        rate.initial = stated.initial_rate.resolve(ETHERNET);
        (rate.step, rate.every) = (stated.increase.resolve(ETHERNET), stated.interval);
        source
    }

    /// A controller's settings; `fixed_theta` is the weight of every flow instead of Algorithm 1.
    pub(super) fn controller_config(&self, fixed_theta: Option<Theta>) -> ControllerConfig {
        let base = match &self.tuning {
            None => ControllerConfig::default(),
            Some(tuning) => ControllerConfig {
                tree_credit: u16::try_from(tuning.datacast.credit).unwrap_or(u16::MAX),
                tree_store: tuning.datacast.cache,
                cast_window: packets(tuning.pull.window),
                ..tuning.controller_config(tuning.theta_ceiling.map(Theta::new), true)
            },
        };
        ControllerConfig { fixed_theta, ..base }
    }

    pub(super) fn tune_receiver(&self, config: &mut ReceiverConfig) {
        if let Some(tuning) = &self.tuning {
            config.max_ack_delay = tuning.max_ack_delay();
            let rtt = &mut config.pull.rtt;
            (rtt.min_rto, rtt.initial_rto) = (tuning.pull.min_rto, tuning.pull.min_rto);
        }
    }

    /// What each source pushes before it is asked for more; `alone`: there is one only. `None`: as the product has it.
    pub fn pulled_window(&self, alone: bool) -> Option<u16> {
        let pull = &self.tuning.as_ref()?.pull;
        Some(packets(if alone { pull.window } else { pull.many_window }))
    }

    /// What a receiver leaves free of its links for each packet that it pulls.
    pub(super) fn headroom(&self) -> Bytes {
        self.tuning.as_ref().map_or(Bytes::ZERO, |tuning| tuning.pull.headroom)
    }
}

fn packets(count: u32) -> u16 {
    u16::try_from(count).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use headwater_units::{Duration, NodeId, PathId};

    use super::*;

    fn tuned(text: &str) -> Experiments {
        Experiments { timeline: None, tuning: Some(toml::from_str(text).unwrap()) }
    }

    #[test]
    fn each_constant_of_pulled_flows_arrives_at_its_machine() {
        let experiments = tuned(
            "pull = { window = 3, many_window = 2, min_rto = '7 ms', headroom = '9 B', detach_after = '8 ms', \
             levels = ['2 packets', '5 packets', '6 packets', '7 packets'] }",
        );
        let pull = experiments.source_config(1000).pull;
        assert_eq!(pull.demotion, Some([2000, 5000, 6000, 7000].map(Bytes::new)));
        assert_eq!((pull.detach_after, pull.validates_paths), (Duration::from_millis(8), true));
        let mut receiver = ReceiverConfig::new("name", NodeId([0; 32]), PathId(0), 0);
        experiments.tune_receiver(&mut receiver);
        assert_eq!(
            (receiver.pull.rtt.min_rto, receiver.pull.rtt.initial_rto),
            (Duration::from_millis(7), Duration::from_millis(7))
        );
        assert_eq!([true, false].map(|alone| experiments.pulled_window(alone)), [Some(3), Some(2)]);
        assert_eq!(experiments.controller_config(None).cast_window, 3);
        assert_eq!(experiments.headroom(), Bytes::new(9));
    }

    #[test]
    fn without_constants_a_process_is_the_product() {
        let none = Experiments::default();
        assert_eq!(none.source_config(1000), SourceConfig::default());
        assert_eq!((none.pulled_window(true), none.headroom()), (None, Bytes::ZERO));
    }
}
