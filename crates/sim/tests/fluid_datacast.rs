//! The fluid model of Datacast does what its theorems say, with the constants of the paper's micro benchmarks (§VI-B).

use headwater_sim::fluid::datacast::bounds::SlowestReceiver;
use headwater_sim::fluid::datacast::model::{Delays, Model, ModelError, Series, integrate};
use headwater_units::{BitRate, Bytes, Duration, Packets, Time};

const LINK: u64 = 100_000_000;

/// A receiver on 100 Mbit/s, `rtt_us` away, most of it between the source and the critical caching node.
fn model(cache: u64, credit: f64, rtt_us: u64) -> Model {
    let rtt = Duration::from_micros(rtt_us);
    let receiver = SlowestReceiver {
        rate: BitRate::new(LINK),
        increase: BitRate::new(5_000_000),
        interval: Duration::from_millis(1),
        credit: Packets::new(credit),
        packet: Bytes::new(1_500),
        rtt,
    };
    let delays = Delays {
        to_source: rtt * 3 / 8,
        from_source: rtt * 3 / 8,
        to_receiver: rtt / 8,
        from_receiver: rtt - rtt * 3 / 8 * 2 - rtt / 8,
    };
    let (initial_rate, end) = (BitRate::new(500_000_000), Time::ZERO + Duration::from_secs(4));
    Model { receiver, delays, cache: Bytes::new(cache), initial_rate, end }
}

fn ran(model: &Model) -> Series {
    integrate(model, Duration::from_millis(1)).unwrap()
}

/// After the start, which is no part of the theorems.
fn settled() -> Time {
    Time::ZERO + Duration::from_secs(1)
}

/// As a part of the link.
fn goodput(model: &Model) -> f64 {
    ran(model).goodput(settled()).unwrap().get() as f64 / LINK as f64
}

fn duplicates(model: &Model) -> f64 {
    ran(model).duplicate_ratio(settled()).unwrap()
}

/// Theorem 1, at the three credits of Fig. 7a: above its bound no cache makes the receiver wait.
#[test]
fn a_cache_above_the_bound_keeps_the_slowest_receiver_at_its_full_rate() {
    for credit in [16.0, 48.0, 72.0] {
        let bound = model(0, credit, 80).receiver.cache_bound() as u64;
        for cache in [bound + 1_000, 2 * bound, 4_096_000] {
            let part = goodput(&model(cache, credit, 80));
            assert!((part - 1.0).abs() < 1e-4, "credit {credit}, cache {cache}: {part}");
        }
    }
}

/// "Graceful performance degradation" (§VI-B1, Appendix): less with every smaller cache, and nowhere a cliff.
#[test]
fn a_cache_below_the_bound_costs_little_and_more_the_smaller_it_is() {
    let caches = [102_000, 64_000, 32_000, 8_000, 0];
    let parts = caches.map(|cache| goodput(&model(cache, 16.0, 80)));
    assert!(parts.windows(2).all(|pair| pair[1] <= pair[0] + 1e-6), "{parts:?}");
    assert!(parts[4] < 0.999 && parts[4] > 0.5, "{parts:?}");
}

/// Theorem 2: equality without a round trip, for every increase of Fig. 7b.
#[test]
fn without_a_round_trip_duplicates_are_those_of_the_theorem() {
    for kbps in [100u64, 400, 1_600, 5_000, 12_800, 51_200, 102_400] {
        let mut model = model(0, 16.0, 0);
        model.receiver.increase = BitRate::new(kbps * 1_000);
        model.cache = Bytes::new(model.receiver.cache_bound().max(0.0) as u64 + 50_000);
        // A slow increase takes its time from one cycle to the next.
        model.end = Time::ZERO + Duration::from_secs(if kbps < 1_000 { 20 } else { 6 });
        let (ours, theorem) = (duplicates(&model), model.receiver.duplicate_bound());
        assert!((ours / theorem - 1.0).abs() < 0.1, "{kbps} kbit/s: {ours} and {theorem}");
    }
}

/// Theorem 2 is an upper bound with a round trip, wherever that goes.
#[test]
fn with_a_round_trip_duplicates_stay_below_the_theorem() {
    for rtt_us in [80, 350, 1_000, 2_000] {
        let credit = 16.0 + rtt_us as f64 / 100.0;
        let bounded = model(200_000, credit, rtt_us);
        let (ours, theorem) = (duplicates(&bounded), bounded.receiver.duplicate_bound());
        assert!(ours <= theorem && ours > theorem / 4.0, "{rtt_us} us: {ours} and {theorem}");
    }
}

#[test]
fn the_source_is_never_far_from_where_duplicates_begin() {
    let series = ran(&model(128_000, 16.0, 80));
    let late: Vec<_> = series.samples.iter().filter(|sample| sample.from >= settled()).collect();
    // C + w MTU - (d3 + d4) R.
    let threshold = 128_000.0 + 24_000.0 - 250.0;
    assert!(late.iter().all(|sample| sample.ahead > 0.0 && sample.ahead < threshold * 1.1));
    assert!(late.iter().any(|sample| sample.duplicate_rate > BitRate::ZERO));
    let mean = late.iter().map(|sample| sample.source_rate.get() as f64).sum::<f64>() / late.len() as f64;
    assert!(
        (mean / LINK as f64 - 1.0).abs() < 0.01,
        "the source goes as fast as its slowest receiver: {mean}"
    );
}

#[test]
fn samples_leave_no_gap_and_come_out_the_same_every_time() {
    let small = Model { end: Time::ZERO + Duration::from_millis(50), ..model(64_000, 16.0, 80) };
    let series = ran(&small);
    assert_eq!(series.samples[0].from, Time::ZERO);
    assert!(series.samples.windows(2).all(|pair| pair[0].to == pair[1].from));
    assert!(series.samples.last().unwrap().to >= small.end);
    assert_eq!(series, ran(&small));
}

#[test]
fn what_makes_no_sense_is_refused() {
    let good = model(64_000, 16.0, 80);
    let with = |change: &dyn Fn(&mut Model)| {
        let mut model = good;
        change(&mut model);
        integrate(&model, Duration::from_millis(1)).unwrap_err()
    };
    assert_eq!(with(&|m| m.receiver.increase = BitRate::ZERO), ModelError::Nothing("the increase"));
    assert!(matches!(with(&|m| m.receiver.rate = BitRate::ZERO), ModelError::Nothing(_)));
    assert!(matches!(with(&|m| m.receiver.packet = Bytes::ZERO), ModelError::Nothing(_)));
    assert!(matches!(integrate(&good, Duration::ZERO), Err(ModelError::Nothing(_))));
    let few = with(&|m| m.receiver.credit = Packets::new(0.5));
    assert_eq!(
        few.to_string(),
        "credit of 750 bytes is less than the 1000 bytes that fill the path there and back"
    );
    assert!(matches!(with(&|m| m.end = Time::ZERO + Duration::from_secs(1_000_000)), ModelError::Steps(_)));
}
