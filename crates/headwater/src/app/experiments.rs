//! What experiments ask of a process beside its work: time series, and the constants of a paper.

use std::path::PathBuf;

use headwater_sim::scenario::TransportSpec;
use headwater_transport::ppush::controller::ControllerConfig;
use headwater_transport::ppush::receiver::ReceiverConfig;
use headwater_transport::source::SourceConfig;
use headwater_units::{Bytes, Duration, Theta};

use super::AppError;
use crate::node::TimelineFile;

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

    pub(super) fn source_config(&self) -> SourceConfig {
        let Some(tuning) = &self.tuning else { return SourceConfig::default() };
        let mut source = tuning.source_config();
        let (rate, said) = (&mut source.trees.rate, &tuning.datacast);
        rate.initial = said.initial_rate.resolve(ETHERNET);
        (rate.step, rate.every) = (said.increase.resolve(ETHERNET), said.interval);
        source
    }

    /// A controller's settings; `fixed_theta` is the weight of every flow instead of Algorithm 1.
    pub(super) fn controller_config(&self, fixed_theta: Option<Theta>) -> ControllerConfig {
        let base = match &self.tuning {
            None => ControllerConfig::default(),
            Some(tuning) => ControllerConfig {
                tree_credit: u16::try_from(tuning.datacast.credit).unwrap_or(u16::MAX),
                tree_store: tuning.datacast.cache,
                ..tuning.controller_config(tuning.theta_ceiling.map(Theta::new), true)
            },
        };
        ControllerConfig { fixed_theta, ..base }
    }

    pub(super) fn tune_receiver(&self, config: &mut ReceiverConfig) {
        if let Some(tuning) = &self.tuning {
            config.max_ack_delay = tuning.max_ack_delay();
        }
    }
}
