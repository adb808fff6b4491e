//! Transfers as fluids over ports that grant rates (PAM §III-C, Fig. 3).
//!
//! Time goes in steps of a fiftieth of a round trip. In each, every transfer passes what it sends in that time through the ports of its
//! path, where [`RateAllocator`] counts it and lowers its offer. A round trip later the transfer sends at the offer; while that is nothing, it
//! asks once a round trip. A queue holds what a link was given and has not carried yet.

use std::collections::VecDeque;

use headwater_switch::{Claim, RateAllocator, RateAllocatorConfig, RateAllocatorError};
use headwater_units::{BitRate, Bytes, Duration, FlowId, Rank, Time};
use headwater_wire::SchedulingKind;

/// Steps of a round trip.
const STEPS: u64 = 50;

/// A network and its transfers.
#[derive(Clone, Debug)]
pub struct Model {
    /// Each with its port.
    pub links: Vec<Link>,
    /// In any order; those of one moment pass the ports in this one.
    pub transfers: Vec<Transfer>,
    /// How long an offer takes to become a rate.
    pub round_trip: Duration,
    /// When the run ends.
    pub end: Time,
}

/// A link, with the port that it begins at.
#[derive(Clone, Debug)]
pub struct Link {
    /// Its capacity.
    pub capacity: BitRate,
    /// Its port's allocator; without one it carries what comes.
    pub allocator: Option<RateAllocatorConfig>,
}

/// A transfer that goes on until it is stopped.
#[derive(Clone, Debug)]
pub struct Transfer {
    /// Its place in line; it does not change.
    pub rank: Rank,
    /// Places of the links that it crosses.
    pub path: Vec<usize>,
    /// When it begins.
    pub start: Time,
    /// When it is over.
    pub stop: Time,
}

/// Means over an interval.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// From when.
    pub from: Time,
    /// Until when.
    pub to: Time,
    /// Rate that each transfer sent, bit/s.
    pub sent: Vec<f64>,
    /// The part of each link that was carried, 0..=1.
    pub used: Vec<f64>,
}

/// A transfer while it runs.
struct Running {
    rate: BitRate,
    /// Offers that have passed its path and not come back yet, and when they will.
    offers: VecDeque<(Time, BitRate)>,
    asks_at: Time,
    /// Part of a byte that allocators have not counted yet.
    rest: f64,
    ended: bool,
}

/// A link while it runs.
struct Port {
    capacity: f64,
    allocator: Option<RateAllocator>,
    /// Bytes.
    queue: f64,
}

/// Runs the model; samples are means over `every`, rounded down to whole steps.
///
/// # Errors
/// [`RateAllocatorError`] if an allocator cannot be set up so.
pub fn integrate(model: &Model, every: Duration) -> Result<Vec<Sample>, RateAllocatorError> {
    let step = (model.round_trip / STEPS).max(Duration::from_nanos(1));
    let port = |link: &Link| -> Result<Port, RateAllocatorError> {
        let allocator =
            link.allocator.map(|config| RateAllocator::new(&config, link.capacity)).transpose()?;
        Ok(Port { capacity: link.capacity.get() as f64, allocator, queue: 0.0 })
    };
    let mut ports = model.links.iter().map(port).collect::<Result<Vec<_>, _>>()?;
    let begin = |transfer: &Transfer| Running {
        rate: BitRate::ZERO,
        offers: VecDeque::new(),
        asks_at: transfer.start,
        rest: 0.0,
        ended: false,
    };
    let mut running: Vec<Running> = model.transfers.iter().map(begin).collect();
    let per_sample = (every.as_nanos() / step.as_nanos()).max(1);
    let steps = model.end.since(Time::ZERO).as_nanos() / step.as_nanos();
    let mut samples = Vec::new();
    let (mut sent, mut carried) = (vec![0.0; running.len()], vec![0.0; ports.len()]);
    for nth in 0..steps {
        let now = Time::ZERO + step * nth;
        for (at, (transfer, it)) in model.transfers.iter().zip(&mut running).enumerate() {
            sent[at] += advance(now, step, model.round_trip, (FlowId(at as u64), transfer), it, &mut ports);
        }
        for (port, carried) in ports.iter_mut().zip(&mut carried) {
            let leaves = port.queue.min(port.capacity * step.as_secs_f64() / 8.0);
            port.queue -= leaves;
            *carried += leaves;
        }
        if (nth + 1) % per_sample == 0 {
            let span = step * per_sample;
            let to = now + step;
            let from = Time::ZERO + to.since(Time::ZERO).saturating_sub(span);
            let rate = |bytes: &mut f64| std::mem::take(bytes) * 8.0 / span.as_secs_f64();
            samples.push(Sample {
                from,
                to,
                sent: sent.iter_mut().map(rate).collect(),
                used: carried.iter_mut().zip(&ports).map(|(it, port)| rate(it) / port.capacity).collect(),
            });
        }
    }
    Ok(samples)
}

/// One step of a transfer. Returns the bytes that it sends.
fn advance(
    now: Time,
    step: Duration,
    round_trip: Duration,
    (id, transfer): (FlowId, &Transfer),
    it: &mut Running,
    ports: &mut [Port],
) -> f64 {
    if now < transfer.start || it.ended {
        return 0.0;
    }
    while let Some((_, offer)) = it.offers.front().filter(|(at, _)| *at <= now).copied() {
        it.offers.pop_front();
        it.rate = offer;
    }
    let fluid = it.rate.get() as f64 * step.as_secs_f64() / 8.0;
    let (kind, bytes) = match it.rate {
        _ if now >= transfer.stop => (SchedulingKind::Fin, 0.0),
        BitRate::ZERO if now < it.asks_at => return 0.0,
        BitRate::ZERO => (SchedulingKind::Probe, 0.0),
        _ => (SchedulingKind::Data, fluid),
    };
    it.ended = kind == SchedulingKind::Fin;
    it.asks_at = now + round_trip;
    it.rest += bytes;
    let whole = it.rest.floor();
    it.rest -= whole;
    let most = ports.iter().map(|port| port.capacity as u64).max().unwrap_or(0);
    let mut claim =
        Claim { transfer: id, kind, rank: transfer.rank, rate: it.rate, offer: BitRate::new(most) };
    for &place in &transfer.path {
        let port = &mut ports[place];
        let (len, queued) = (Bytes::new(whole as u64), Bytes::new(port.queue as u64));
        let offer = port.allocator.as_mut().and_then(|it| it.pass(now, len, queued, Some(&claim)));
        claim.offer = offer.unwrap_or(claim.offer);
        port.queue += bytes;
    }
    it.offers.push_back((now + round_trip, claim.offer));
    bytes
}

#[cfg(test)]
mod tests {
    use headwater_switch::AllocatorVariant;

    use super::*;

    const RTT: Duration = Duration::from_micros(100);

    /// PAM Fig. 2: three links with 300 Mbit/s left; f_A over two of them, f_B over two, f_C and f_D over the one that f_B crosses first. They
    /// begin one after the other, and allocators are told what an offer takes: a round trip and the random delay of feedback.
    fn figure_2(variant: AllocatorVariant, adapts: bool) -> Model {
        let allocator = RateAllocatorConfig { adapts, ..RateAllocatorConfig::new(variant, RTT * 2) };
        let link = Link { capacity: BitRate::new(300_000_000), allocator: Some(allocator) };
        let transfer = |(nth, path): (u64, &[usize])| Transfer {
            rank: Rank::LAST,
            path: path.to_vec(),
            start: Time::ZERO + RTT * 10 * nth,
            stop: Time::MAX,
        };
        Model {
            links: vec![link; 3],
            transfers: vec![
                transfer((0, &[1, 2])),
                transfer((1, &[0, 2])),
                transfer((2, &[0])),
                transfer((3, &[0])),
            ],
            round_trip: RTT,
            end: Time::ZERO + RTT * 1000,
        }
    }

    fn last(model: &Model) -> Sample {
        integrate(model, RTT * 100).unwrap().pop().unwrap()
    }

    #[test]
    fn with_alpha_fixed_a_sixth_of_the_shared_link_is_unused() {
        for variant in [AllocatorVariant::Simple, AllocatorVariant::Optimal] {
            let sample = last(&figure_2(variant, false));
            let mbps: Vec<f64> = sample.sent.iter().map(|rate| rate / 1e6).collect();
            assert_eq!(mbps, [150.0, 100.0, 100.0, 100.0], "{variant:?}");
            assert!((sample.used[2] * 300.0 - 250.0).abs() < 1e-6, "{variant:?}: {:?}", sample.used);
        }
    }

    #[test]
    fn equation_3_makes_use_of_it() {
        for variant in [AllocatorVariant::Simple, AllocatorVariant::HARDWARE] {
            let sample = last(&figure_2(variant, true));
            assert!(sample.used[2] >= 0.98, "{variant:?}: {:?}", sample.used);
        }
    }

    #[test]
    fn the_first_in_line_has_the_link_until_it_stops() {
        let mut model = figure_2(AllocatorVariant::Simple, true);
        let (one, other) = (Rank::new(1), Rank::new(2));
        let path = vec![0];
        model.transfers = vec![
            Transfer { rank: other, path: path.clone(), start: Time::ZERO, stop: Time::MAX },
            Transfer { rank: one, path, start: Time::ZERO + RTT * 100, stop: Time::ZERO + RTT * 500 },
        ];
        let samples = integrate(&model, RTT * 100).unwrap();
        let share = |nth: usize| [0, 1].map(|it| (samples[nth].sent[it] / 3e6).round());
        assert_eq!((share(0)[1], share(3)), (0.0, [0.0, 100.0]));
        assert!(share(9)[0] >= 99.0 && share(9)[1] == 0.0, "{:?}", samples[9]);
    }
}
