//! Sessions between random hosts (SCDP §IV-B, §IV-G): a Poisson process, sizes from a distribution.

use headwater_units::{Duration, Time};

use super::bounds::{count, per_second};
use super::draw::{Draw, Stream};
use super::{Network, Sizes, TaskPlan, WorkloadError, plain};

/// Plans `sessions` sessions at `rate` per second; the run waits for those of at most `awaited` packets.
pub(super) fn plan(
    network: &Network,
    seed: u64,
    (sessions, rate): (u32, f64),
    sizes: &Sizes,
    awaited: Option<u64>,
) -> Result<Vec<TaskPlan>, WorkloadError> {
    count("count", sessions)?;
    per_second(rate)?;
    if network.hosts < 2 {
        let (what, there) = ("a session", network.hosts.into());
        return Err(WorkloadError::TooFewHosts { what, needed: 2, there });
    }
    let drawn = sizes.drawn()?;
    let (mut arrivals, mut of_size) = (Draw::new(seed, Stream::Arrivals), Draw::new(seed, Stream::Sizes));
    let mut at = 0.0;
    let session = |n: u32| {
        at += arrivals.gap(rate);
        let mut draw = Draw::new(seed, Stream::Task(n));
        let receiver = draw.below(network.hosts);
        let source = draw.another(network.hosts, receiver);
        let packets = drawn.at(of_size.unit());
        TaskPlan {
            packets: Some(packets),
            awaited: awaited.is_none_or(|most| packets <= most),
            ..plain(format!("s{n}"), Time::ZERO + Duration::from_secs_f64(at), vec![source], receiver)
        }
    };
    Ok((0..sessions).map(session).collect())
}
