//! One source and its receivers (Datacast §VI-A, §VI-C), and which cables have failed before.

use headwater_units::Time;

use super::draw::{Draw, Stream};
use super::{Network, TaskPlan, WorkloadError, plain};

/// All hosts in the order in which the seed lets them join: the source, then the receivers.
pub(crate) fn order(network: &Network, seed: u64) -> Vec<u32> {
    Draw::new(seed, Stream::Storage).several(network.hosts, network.hosts)
}

/// Whether the next cable is down, for each with this probability: what fails at one rate fails at every higher one.
pub(crate) fn failing(seed: u64, rate: f64) -> impl Iterator<Item = bool> {
    let mut draw = Draw::new(seed, Stream::Failures);
    std::iter::repeat_with(move || draw.unit() < rate)
}

/// One task of one source and all other members.
pub(super) fn plan(
    network: &Network,
    seed: u64,
    members: u32,
    packets: u64,
) -> Result<Vec<TaskPlan>, WorkloadError> {
    if members < 2 {
        let (value, must) = (f64::from(members), "at least 2, a source and a receiver");
        return Err(WorkloadError::OutOfRange { what: "members", value, must });
    }
    if members > network.hosts {
        let (needed, there) = (members.into(), network.hosts.into());
        return Err(WorkloadError::TooFewHosts { what: "members", needed, there });
    }
    let order = order(network, seed);
    let task = TaskPlan {
        packets: Some(packets),
        further: order[2..members as usize].to_vec(),
        ..plain("group".to_owned(), Time::ZERO, vec![order[0]], order[1])
    };
    Ok(vec![task])
}
