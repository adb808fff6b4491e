//! The work behind the commands: processes made of a host, its objects and the machines.

mod agent;
mod cast;
mod cast_agent;
mod controller_host;
mod daemon;
mod data_path;
mod desk;
mod drain;
mod errors;
mod events;
mod experiments;
mod fetch;
mod forget;
mod get;
mod health;
mod host;
mod keep;
mod keep_many;
mod local;
mod metrics_page;
mod named_nodes;
mod names;
mod node;
mod occupant;
mod ops;
mod outbox;
mod own;
mod plan;
mod put;
mod query;
mod report;
mod requests;
mod serve;
pub mod service;
mod spool;
mod start_line;
mod transfer;
mod types;
mod usage;

use std::net::SocketAddr;
use std::path::Path;

use headwater_transport::flow::path_mtu::PathMtuConfig;
use headwater_transport::flow::paths::Unanswered;
use headwater_transport::pull::queue::PullConfig;
use headwater_transport::push::wfcc::LossResponse;
use headwater_transport::push::yielding::YieldingConfig;
use headwater_transport::rate::RateSourceConfig;
use headwater_transport::receiver::HostReceiverConfig;
use headwater_udp::Multicast;
use headwater_units::{BitRate, Bytes, Duration};
use headwater_wire::Delivery;

pub use agent::{AGENT_PORT, AgentOptions, ReadPeers, agent};
pub use cast::{CastReceiver, CastRepair, CastResult, CastSource, CastWave, Standing, standing_cast};
pub use daemon::{controller, node};
pub use events::{Event, Events, Outcome, TransferId, TransferKind};
pub use experiments::{Experiments, Sent, TimelineOptions, Tuning};
pub use fetch::source_label;
pub use forget::forget;
pub use headwater_controller::CoflowPolicy;
pub use keep_many::{KeepManyOptions, KeepManyResult, keep_many};
pub use local::{gc, ls, rm, status};
pub use node::{Config, ControllerAt, Node, NodeKind};
pub use plan::{PlanResult, PlannedWave, plan};
pub use requests::{Cast, Get, Put, PutSource, Receivers, Rollout, Wave};
pub use serve::serve;
pub use transfer::{Transfer, Update};
pub use types::*;
pub use usage::open_many_files;

use headwater_driver::{self, Lossy, NodeConfig, TapeFile};

/// Loss on purpose, for drills: `probability:seed`.
const DROP_VARIABLE: &str = "HEADWATER_DROP";

/// A link whose rate nobody has stated holds nobody back.
const ANY_RATE: BitRate = BitRate::new(1_000_000_000_000);
/// Delay with which a process may be woken on a host with more to do than cores to do it: 10 ms, two turns of a
/// scheduler. Symbols that a source of trees does not make up for are lost to all of its receivers.
const TREES_CATCH_UP: Duration = Duration::from_millis(10);
/// Routers between a source and the members of its group, and one. Groups are of a scope that ends at the border of an
/// organization, whatever the time to live.
const GROUP_HOPS: u8 = 16;
/// Ethernet's.
const USUAL_MTU: u16 = 1500;
/// Bytes that Ethernet puts around an IP packet: preamble, addresses, type, check sequence and gap.
const FRAMING: Bytes = Bytes::new(38);

/// A data socket as the common options want it.
///
/// # Errors
/// The timeline cannot be written where it should be.
pub(crate) fn data_config(common: &Common, bind: SocketAddr) -> Result<NodeConfig, AppError> {
    let mut source =
        common.experiments.source_config(headwater_driver::room_in(common.mtu.unwrap_or(USUAL_MTU), bind));
    source.limit = common.limit;
    source.gentle = common.gentle;
    // Experiments go by the constants that they state.
    source.rate = RateSourceConfig { unanswered: Unanswered::Times(3), ..RateSourceConfig::on_hosts() };
    source.push.yielding = common.experiments.tuning.is_none().then(YieldingConfig::default);
    let rate = &mut source.trees.rate;
    rate.most = common.uplink.unwrap_or(ANY_RATE);
    if let (None, Some(uplink)) = (&common.experiments.tuning, common.uplink) {
        // As Datacast's testbed has them for 1 Gbit/s.
        (rate.initial, rate.step) = (uplink.mul_f64(0.5), uplink.mul_f64(0.125));
    }
    source.trees.catch_up = TREES_CATCH_UP;
    source.push.path_mtu = Some(PathMtuConfig::default());
    // Anybody may claim to be anywhere (RFC 9000 §8.1).
    source.push.unanswered = Unanswered::Times(3);
    source.pull.unanswered = Some(Unanswered::Times(3));
    if common.loss_response_ignore {
        source.push.wfcc.loss_response = LossResponse::Ignore;
    }
    Ok(NodeConfig {
        bind,
        dscp: common.dscp,
        sees_trimmed: true,
        multicast: Multicast { hops: GROUP_HOPS, ..Multicast::default() },
        source,
        seed: rand::random(),
        receivers: HostReceiverConfig { pull: pull_config(common) },
        record_source: None,
        record_receivers: None,
        timeline: common.experiments.timeline_file()?,
        workers: std::thread::available_parallelism().map_or(2, usize::from),
        interrupt_moderation: common.experiments.tuning.is_none(),
        lossy: std::env::var(DROP_VARIABLE).ok().and_then(|text| lossy(&text)),
        buffer: Bytes::mib(8),
    })
}

/// A host pulls as fast as its link brings the longest packets.
fn pull_config(common: &Common) -> PullConfig {
    PullConfig {
        rate: common.downlink.unwrap_or(ANY_RATE),
        packet: FRAMING
            + Bytes::new(u64::from(common.mtu.unwrap_or(USUAL_MTU)))
            + common.experiments.headroom(),
        catch_up: Duration::from_millis(1),
    }
}

/// Warning for a user who wants to pull: nobody has stated what the machine's links carry, or the pace of pulls yields
/// to nobody.
fn unpaced(common: &Common, delivery: Option<Delivery>) -> Option<&'static str> {
    if !matches!(delivery, Some(Delivery::Pull { .. })) {
        return None;
    }
    if common.downlink.is_none() {
        return Some(
            "without --downlink pulls are not paced, and what switches trim is asked for again at once: state what all links of \
             this machine carry together, as in --downlink 10Gbit/s",
        );
    }
    common.gentle.then_some(
        "--gentle pulls give way only in switches that serve DSCP 1 last: leave --transport pull out for a flow that also yields by \
         delay, or state a smaller --downlink",
    )
}

/// A rate as results show it: in bits, as links and limits are stated, and in bytes, as sizes are.
pub fn rate_in_words(rate: BitRate) -> String {
    format!("{rate} = {:.1} MB/s", rate.get() as f64 / 8e6)
}

/// Where a machine is to be recorded.
///
/// # Errors
/// Nothing can be written there.
pub(crate) fn tape(record: Option<&Path>) -> Result<Option<TapeFile>, AppError> {
    let create = |path: &Path| {
        TapeFile::create(path).map_err(|e| AppError::io(format!("cannot record to {}", path.display()), e))
    };
    record.map(create).transpose()
}

fn lossy(text: &str) -> Option<Lossy> {
    let (probability, seed) = text.split_once(':')?;
    let probability: f64 = probability.parse().ok().filter(|p| (0.0..1.0).contains(p))?;
    Some(Lossy { probability, seed: seed.parse().ok()? })
}

/// Feeds a record of a machine to a fresh one.
///
/// # Errors
/// The record cannot be read; a difference is a result, not an error.
pub fn replay(path: &Path) -> Result<ReplayResult, AppError> {
    match headwater_driver::replay(path) {
        Ok(played) => Ok(ReplayResult {
            inputs: played.inputs,
            outputs: played.outputs,
            identical: true,
            difference: None,
        }),
        Err(error @ headwater_driver::ReplayError::Differs { .. }) => {
            Ok(ReplayResult { difference: Some(error.to_string()), ..ReplayResult::default() })
        }
        Err(headwater_driver::ReplayError::Io(source)) => {
            Err(AppError::io(format!("cannot read {}", path.display()), source))
        }
        Err(error) => Err(AppError::Failed(error.to_string())),
    }
}
