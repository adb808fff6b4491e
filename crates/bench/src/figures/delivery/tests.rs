use serde_json::{Value, json};

use super::*;

fn seen(seconds: f64) -> Seen {
    Seen {
        seconds,
        first_seconds: seconds / 2.0,
        source_cpu: 0.1,
        receiver_cpu: 0.4,
        by_group: true,
        sent: Bytes::new(66_000_000),
        said: Some(json!({ "wire_floor": 1.07 })),
    }
}

/// 62.5 MB at 500 Mbit/s take one second.
fn scene() -> Scene {
    Scene::of(Scenario::Multi, Some(Bytes::new(62_500_000)))
}

fn good(peer: Peer, round: u32, seconds: f64) -> DeliveryRun {
    run_of(&scene(), peer, round, Ok(seen(seconds)))
}

#[test]
fn a_run_has_the_names_that_programs_read() {
    let line = serde_json::to_value(DeliveryLine::Run(good(Peer::Headwater, 1, 1.25))).unwrap();
    assert_eq!(
        (&line["type"], &line["scenario"], &line["peer"]),
        (&json!("run"), &json!("multi"), &json!("headwater"))
    );
    assert_eq!(
        (&line["seconds"], &line["ideal_seconds"], &line["ratio"]),
        (&json!(1.25), &json!(1.0), &json!(1.25))
    );
    assert_eq!(
        (&line["wire_floor"], &line["mb_per_s"], &line["checked"]),
        (&json!(1.07), &json!(50.0), &json!(true))
    );
    assert_eq!(
        (&line["cpu_by"], &line["error"], &line["sent_per_size"]),
        (&json!("cgroup"), &Value::Null, &json!(1.056))
    );
    let per_gib = (1u64 << 30) as f64 / 62_500_000.0;
    assert!((line["cpu_s_per_gib"].as_f64().unwrap() / (0.5 * per_gib) - 1.0).abs() < 1e-9, "{line}");
    assert!((line["receiver_cpu_s_per_gib"].as_f64().unwrap() / (0.4 * per_gib) - 1.0).abs() < 1e-9);
}

#[test]
fn a_run_that_failed_has_an_error_and_no_figures() {
    let run = run_of(&scene(), Peer::Aria2, 2, Err(AppError::Failed("aria2c on receiver 0 failed".into())));
    let line = serde_json::to_value(DeliveryLine::Run(run)).unwrap();
    assert_eq!((&line["error"], &line["checked"]), (&json!("aria2c on receiver 0 failed"), &json!(false)));
    assert_eq!((&line["seconds"], &line["round"]), (&Value::Null, &json!(2)));
}

#[test]
fn medians_are_those_of_the_runs_that_went_well_and_compare_with_ours() {
    let failed = || Err(AppError::Failed("no".into()));
    let runs = [
        good(Peer::Headwater, 1, 1.1),
        good(Peer::Aria2, 1, 9.0),
        run_of(&scene(), Peer::Rqbit, 1, failed()),
        good(Peer::Headwater, 2, 1.3),
        run_of(&scene(), Peer::Aria2, 2, failed()),
        run_of(&scene(), Peer::Rqbit, 2, failed()),
        good(Peer::Headwater, 3, 1.2),
        good(Peer::Aria2, 3, 1.5),
        run_of(&scene(), Peer::Rqbit, 3, failed()),
    ];
    let medians = medians(Scenario::Multi, &[Peer::Headwater, Peer::Aria2, Peer::Rqbit], &runs);
    let figures: Vec<_> = medians.iter().map(|m| (m.peer, m.runs, m.failed, m.figures.seconds)).collect();
    assert_eq!(figures, [(Peer::Headwater, 3, 0, 1.2), (Peer::Aria2, 2, 1, 5.25), (Peer::Rqbit, 0, 3, 0.0)]);
    assert_eq!(medians[0].times_ours, Some(1.0));
    assert_eq!(medians[1].times_ours, Some(5.25 / 1.2));
    assert_eq!((medians[2].times_ours, medians[2].figures.ratio), (None, None));
    let line = serde_json::to_value(DeliveryLine::Median(medians[1].clone())).unwrap();
    assert_eq!((&line["type"], &line["peer"], &line["runs"]), (&json!("median"), &json!("aria2"), &json!(2)));
}

#[test]
fn what_is_delivered_to_four_counts_four_times_for_the_processors_and_once_for_the_wire() {
    let scene = Scene::of(Scenario::Fanout, Some(Bytes::mib(1024)));
    let seen = Seen { sent: Bytes::mib(4096), ..seen(50.0) };
    let figures = figures(&scene, Peer::Curl, &seen);
    assert_eq!((figures.cpu_s_per_gib, figures.sent_per_size), (0.125, 4.0));
    assert!(figures.wire_floor.is_some());
}

#[test]
fn without_limits_there_is_no_ratio_and_no_floor_of_it() {
    let figures = figures(&Scene::of(Scenario::Fat, None), Peer::Curl, &seen(1.0));
    assert_eq!((figures.ideal_seconds, figures.ratio, figures.wire_floor), (None, None, None));
    assert!((figures.mb_per_s - 1073.7).abs() < 0.1);
}
