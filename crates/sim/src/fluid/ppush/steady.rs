//! Where push flows settle that share one bottleneck for long (PPUSH §IV-A, Theorem 1 and Eq. 12-21).
//!
//! Formulas without state and without failure: an absurd link gives an absurd number. Eq. 14 is the step of the proof
//! from Eq. 5 to Eq. 15 and Eq. 16 says that the share of marked packets is the mark fraction, so neither has a function
//! of its own. The paper names the sawtooth's period T but prints no formula for it, and there is none here.

use headwater_policy::theta;
use headwater_units::{BitRate, Bytes, Duration, Packets, Theta};

/// One link that several push flows fill, and the round trip over it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bottleneck {
    /// Capacity of the link (PPUSH C, there in packets per second).
    pub capacity: BitRate,
    /// The size of every packet; 1210 B in PPUSH §IV-B.
    pub packet: Bytes,
    /// The round trip without queueing (PPUSH d).
    pub propagation: Duration,
    /// The queue beyond which packets are marked (PPUSH K).
    pub mark_threshold: Packets,
}

impl Bottleneck {
    /// The capacity in packets per second (PPUSH C); a packet of no bytes counts as one of one byte.
    pub fn packets_per_second(&self) -> f64 {
        packets_per_second(self.capacity, self.packet)
    }

    /// Packets that fill the round trip while the queue is empty (PPUSH Cd).
    pub fn in_flight(&self) -> Packets {
        Packets::new(self.packets_per_second() * self.propagation.as_secs_f64())
    }

    /// Mean queue (PPUSH Eq. 12): the mark threshold.
    pub fn mean_queue(&self) -> Packets {
        self.mark_threshold
    }

    /// Mean round trip (PPUSH Eq. 13): d + K / C. Also how late a mark is heard of (Eq. 8).
    pub fn mean_rtt(&self) -> Duration {
        let queueing = self.mark_threshold.get() / self.packets_per_second();
        self.propagation + Duration::from_secs_f64(queueing)
    }

    /// Sum of the mean windows (PPUSH Eq. 17): C d + K.
    pub fn total_window(&self) -> Packets {
        self.in_flight() + self.mark_threshold
    }

    /// Mean mark fraction (PPUSH Eq. 18, with Eq. 16): sqrt(2 * sum of thetas / (C d + K)).
    ///
    /// Above 1 where the thetas break Eq. 20: then every packet is marked, and [`Bottleneck::saturated_queue`] is longer
    /// than the mark threshold.
    pub fn mean_mark_fraction(&self, thetas: &[Theta]) -> f64 {
        (2.0 * sum(thetas) / self.total_window().get()).sqrt()
    }

    /// Mean window of every flow, in the order of `thetas` (PPUSH Eq. 19): its share of C d + K.
    pub fn mean_windows(&self, thetas: &[Theta]) -> Vec<Packets> {
        let total = self.total_window().get();
        shares(thetas).into_iter().map(|share| Packets::new(share * total)).collect()
    }

    /// The most that thetas may sum up to (PPUSH Eq. 20), by [`theta::theta_ceiling`] at the mean round trip.
    pub fn theta_ceiling(&self) -> Theta {
        theta::theta_ceiling(self.mean_rtt(), self.capacity, self.packet)
    }

    /// The queue once every packet is marked: 2 * sum of thetas - C d, never below zero.
    ///
    /// Eq. 15 with a mark fraction of 1 makes every window twice its theta, and what is not in flight on the link is in the queue.
    /// With a buffer of 100 packets this is where §V-A's incast test overflows: 179 flows by Algorithm 1, 90 of theta 1.
    pub fn saturated_queue(&self, thetas: &[Theta]) -> Packets {
        let windows: Packets = thetas.iter().map(|&theta| mean_window(theta, 1.0, 1.0)).sum();
        windows - self.in_flight()
    }
}

/// Every flow's share of the bottleneck, in the order of `thetas` (PPUSH Theorem 1): theta over the sum of thetas.
///
/// The shares sum up to 1, unless all thetas are zero: then they are zero.
pub fn shares(thetas: &[Theta]) -> Vec<f64> {
    let sum = sum(thetas);
    thetas.iter().map(|theta| if sum > 0.0 { theta.get() / sum } else { 0.0 }).collect()
}

/// Mean window of one flow (PPUSH Eq. 15): 2 theta / (mean mark fraction * share of packets marked).
///
/// Both in 0..=1 and by Eq. 16 the same number in the long run; infinite where nothing is marked.
pub fn mean_window(theta: Theta, mark_fraction: f64, marked: f64) -> Packets {
    Packets::new(2.0 * theta.get() / (mark_fraction * marked))
}

/// Theta must lie above this lest one round trip of marks take the whole window (PPUSH Eq. 21).
///
/// Half the mark fraction times W / (W + 1), so below [`Theta::FLOOR`] for every window.
pub fn theta_above(mark_fraction: f64, window: Packets) -> Theta {
    Theta::new(mark_fraction / 2.0 * window.get() / (window.get() + 1.0))
}

pub(super) fn packets_per_second(capacity: BitRate, packet: Bytes) -> f64 {
    capacity.get() as f64 / (packet.get().max(1) as f64 * 8.0)
}

fn sum(thetas: &[Theta]) -> f64 {
    thetas.iter().map(|theta| theta.get()).sum()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use headwater_fabric::LinkId;
    use headwater_policy::theta::{Bounds, plan};
    use headwater_policy::{Coflow, Demand, PathedFlow};
    use headwater_units::{FlowId, TaskId};
    use proptest::prelude::*;

    use super::*;

    const PACKET: Bytes = Bytes::new(1210);

    /// PPUSH §IV-B: 20 Mbit/s, 30 packets, a delay so small that it is left out.
    fn two_flow_link() -> Bottleneck {
        Bottleneck {
            capacity: BitRate::new(20_000_000),
            packet: PACKET,
            propagation: Duration::ZERO,
            mark_threshold: Packets::new(30.0),
        }
    }

    /// PPUSH §V-A: 10^6 packets per second, 40 us each way, 30 packets.
    fn ten_flow_link() -> Bottleneck {
        Bottleneck {
            capacity: BitRate::new(1_000_000 * 1210 * 8),
            packet: PACKET,
            propagation: Duration::from_micros(80),
            mark_threshold: Packets::new(30.0),
        }
    }

    fn thetas(list: &[f64]) -> Vec<Theta> {
        list.iter().map(|&theta| Theta::new(theta)).collect()
    }

    /// Thetas of `count` tasks of one flow each on one link, the smallest task first (PPUSH Alg. 1).
    fn planned(count: u64, ceiling: Theta) -> Vec<Theta> {
        let path = || [LinkId(0)].into_iter().collect();
        let coflow = |n| Coflow::sized(TaskId(n), Bytes::new(n), vec![PathedFlow::pooled(FlowId(n), path())]);
        let bounds = Bounds { ceilings: BTreeMap::from([(LinkId(0), Some(ceiling))]), ..Bounds::default() };
        let plan = plan(&Demand { coflows: (0..count).map(coflow).collect() }, &bounds).unwrap();
        plan.shares().filter_map(|(_, share)| share.weight()).collect()
    }

    #[test]
    fn twenty_megabits_are_2066_packets_per_second() {
        assert_eq!(two_flow_link().packets_per_second().floor(), 2066.0);
    }

    #[test]
    fn one_flow_settles_at_a_mark_fraction_of_0_258_and_two_at_0_577() {
        let link = two_flow_link();
        let three_digits = |x: f64| (x * 1e3).round() / 1e3;
        assert_eq!(three_digits(link.mean_mark_fraction(&thetas(&[1.0]))), 0.258);
        assert_eq!(three_digits(link.mean_mark_fraction(&thetas(&[1.0, 4.0]))), 0.577);
    }

    #[test]
    fn windows_sum_up_to_the_mark_threshold_of_30_and_stand_four_to_one() {
        let link = two_flow_link();
        assert_eq!(link.mean_queue(), Packets::new(30.0));
        assert_eq!(link.total_window(), Packets::new(30.0));
        assert_eq!(link.mean_windows(&thetas(&[1.0, 4.0])), [Packets::new(6.0), Packets::new(24.0)]);
    }

    #[test]
    fn ten_flows_may_sum_up_to_55_and_settle_102_to_one_and_then_101_to_one() {
        let link = ten_flow_link();
        assert_eq!(link.mean_rtt(), Duration::from_micros(110));
        assert_eq!(link.theta_ceiling(), Theta::new(55.0));
        // Nine flows run before f2 starts, ten while it does.
        for (flows, heavy, ratio) in [(9, 51.0, 102.0), (10, 50.5, 101.0)] {
            let thetas = planned(flows, link.theta_ceiling());
            assert_eq!(thetas[0], Theta::new(heavy));
            let shares = shares(&thetas);
            assert!(shares[1..].iter().all(|share| (shares[0] / share - ratio).abs() < 1e-9));
        }
    }

    #[test]
    fn thetas_at_the_ceiling_mark_every_packet() {
        let link = ten_flow_link();
        assert!((link.mean_mark_fraction(&[link.theta_ceiling()]) - 1.0).abs() < 1e-12);
        assert!((link.saturated_queue(&[link.theta_ceiling()]).get() - 30.0).abs() < 1e-9);
    }

    /// PPUSH §V-A, incast: a buffer of 100 packets is full with 90 flows of theta 1, and with 179 by Algorithm 1.
    #[test]
    fn a_buffer_of_100_is_full_with_90_equal_flows_or_179_planned_ones() {
        let link = ten_flow_link();
        let full = |thetas: &[Theta]| link.saturated_queue(thetas).get() > 100.0 - 1e-9;
        let first = |thetas: &dyn Fn(u64) -> Vec<Theta>| (1..500).find(|&n| full(&thetas(n)));
        assert_eq!(first(&|n| vec![Theta::ONE; n as usize]), Some(90));
        // From 110 flows on the smallest task gets 1 (line 19) and all others the floor.
        assert_eq!(
            first(&|n| if n < 110 { Vec::new() } else { planned(n, link.theta_ceiling()) }),
            Some(179)
        );
    }

    #[test]
    fn equations_15_to_19_agree_with_each_other() {
        let (link, thetas) = (ten_flow_link(), thetas(&[0.5, 3.0, 11.0]));
        let marked = link.mean_mark_fraction(&thetas);
        for (theta, window) in thetas.iter().zip(link.mean_windows(&thetas)) {
            assert!((mean_window(*theta, marked, marked).get() - window.get()).abs() < 1e-9);
        }
    }

    proptest! {
        #[test]
        fn shares_are_in_proportion_to_thetas(list in prop::collection::vec(0.5f64..60.0, 1..12)) {
            let shares = shares(&thetas(&list));
            prop_assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9);
            for (share, theta) in shares.iter().zip(&list) {
                prop_assert!((share * list[0] - shares[0] * theta).abs() < 1e-9);
            }
        }

        #[test]
        fn a_theta_of_a_half_leaves_something_of_every_window(marked in 0.0f64..=1.0, window in 1.0f64..1e6) {
            let bound = theta_above(marked, Packets::new(window));
            prop_assert!(bound < Theta::FLOOR);
            // Exactly at the bound, one round trip of marks would leave nothing.
            if marked > 1e-3 {
                let left = window + 1.0 - marked * window / (2.0 * bound.get());
                prop_assert!(left.abs() < 1e-6 * window);
            }
        }
    }
}
