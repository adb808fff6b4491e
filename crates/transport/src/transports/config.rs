//! Configuration of a source.

use headwater_units::{BitRate, Duration};
use serde::{Deserialize, Serialize};

use crate::pull::PullFlowConfig;
use crate::push::PushFlowConfig;
use crate::rate::RateSourceConfig;
use crate::tree::TreeSourceConfig;

/// Everything that a source can be told at its start. `Default` is the product.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SourceConfig {
    /// Everything that is sent is of the gentle class, whatever tasks are of.
    pub gentle: bool,
    /// Rate limit of all flows together (bytes of datagrams above UDP).
    pub limit: Option<BitRate>,
    /// Interval of reports to the controller. 200 ms.
    pub report_every: Duration,
    /// Flows at a time; a push beyond is refused. Of those that callers have ordered, one caller has a quarter at most, those of one network
    /// half.
    pub max_flows: usize,
    /// Ended flows remembered, so that a repeated FIN is answered and a repeated push does not revive them.
    pub ended_memory: usize,
    /// Receivers whose smallest round-trip time and path MTU are remembered.
    pub path_memory: usize,
    /// Flows that push.
    pub push: PushFlowConfig,
    /// Flows whose receivers pull.
    pub pull: PullFlowConfig,
    /// Trees.
    pub trees: TreeSourceConfig,
    /// Flows whose rate switches compute.
    pub rate: RateSourceConfig,
}

impl Default for SourceConfig {
    fn default() -> Self {
        SourceConfig {
            gentle: false,
            limit: None,
            report_every: Duration::from_millis(200),
            max_flows: 4096,
            ended_memory: 1024,
            path_memory: 1024,
            push: PushFlowConfig::default(),
            pull: PullFlowConfig::default(),
            trees: TreeSourceConfig::default(),
            rate: RateSourceConfig::default(),
        }
    }
}

impl SourceConfig {
    /// Configuration of the papers' experiments: [`PushFlowConfig::paper`], [`PullFlowConfig::data_centre`].
    pub fn paper() -> Self {
        SourceConfig {
            push: PushFlowConfig::paper(),
            pull: PullFlowConfig::data_centre(),
            ..SourceConfig::default()
        }
    }
}
