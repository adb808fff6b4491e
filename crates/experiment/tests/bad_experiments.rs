//! A bad experiment file gives an error that says where and what to write; no text makes the reader panic.

mod common;

use common::shipped;
use headwater_experiment::experiment::{Engine, Experiment, Scale};
use proptest::prelude::*;

const GOOD: &str = r#"
title = "t"
source = "s"
engines = ["packet"]
schemes = ["ppush(1,1)", "dctcp"]
[scale.small]
seeds = 2
set = { "workload.count" = 5 }
only = { load = [0.5] }
[[vary]]
key = "workload.load"
values = [0.5, 0.9]
[scenario]
fabric = { kind = "big-switch", hosts = 12, rate = "1 Gbit/s", delay = "1 us" }
[scenario.workload]
kind = "tasks"
count = 10
load = 0.9
load_on = "storage-uplinks"
sizes = { kind = "fixed", packets = 100 }
placement = { kind = "storage", nodes = 4, fanout = 2 }
[[claim]]
id = "X-1"
about = "gain"
source = "here"
published = 1.5
within = "10 %"
on = { at = { load = 0.9 } }
metric = { kind = "ratio_of_means", of = "dctcp", over = "ppush(1,1)" }
[[plot]]
title = "p"
kind = "lines"
x = "load"
metric = { kind = "column", column = "tct_s" }
"#;

#[test]
fn the_good_file_is_good() {
    let experiment = Experiment::parse("x/good", GOOD).unwrap();
    assert_eq!(experiment.jobs(Engine::Packet, Scale::Small, None).unwrap().len(), 4);
    assert_eq!(experiment.jobs(Engine::Packet, Scale::Small, Some(5)).unwrap().len(), 10);
    let error = experiment.jobs(Engine::Fluid, Scale::Small, None).unwrap_err().to_string();
    assert!(error.contains("fluid") && error.contains("packet"), "{error}");
    assert!(experiment.jobs(Engine::Packet, Scale::Paper, None).is_err());
}

#[test]
fn a_scheme_may_have_settings_of_its_own_and_stay_away_from_some_points() {
    let with = |scheme: &str| {
        GOOD.replace("[[vary]]", &format!("{scheme}\n[[vary]]")).replace("only = { load = [0.5] }", "")
    };
    let text = with("[scheme.dctcp]\nset = { 'workload.count' = 7 }\nonly = { load = [0.9] }");
    let jobs =
        Experiment::parse("x/good", &text).unwrap().jobs(Engine::Packet, Scale::Small, Some(1)).unwrap();
    let runs: Vec<(&str, &str, bool)> = jobs
        .iter()
        .map(|job| (&job.scheme[..], &job.point[0].1[..], job.canonical().contains("count = 7")))
        .collect();
    assert_eq!(runs, [("ppush(1,1)", "0.5", false), ("ppush(1,1)", "0.9", false), ("dctcp", "0.9", true)]);
    for (scheme, place, reason) in [
        ("[scheme.reno]", "scheme.reno", "not listed"),
        ("[scheme.dctcp]\nonly = { x = [1] }", "scheme.dctcp.only.x", "no axis"),
        ("[scheme.dctcp]\nonly = { load = [0.7] }", "scheme.dctcp.only.load", "0.7"),
    ] {
        let error = Experiment::parse("x/bad", &with(scheme)).unwrap_err().to_string();
        assert!(error.contains(place) && error.contains(reason), "{scheme}: {error}");
    }
}

#[test]
fn an_engine_may_have_seeds_of_its_own_for_all_scales_or_for_some() {
    let jobs = |seeds: &str| {
        let text = GOOD.replace("[[vary]]", &format!("[engine.packet]\nseeds = {seeds}\n[[vary]]"));
        Experiment::parse("x/good", &text).unwrap().jobs(Engine::Packet, Scale::Small, None).unwrap().len()
    };
    assert_eq!((jobs("3"), jobs("{ small = 4 }"), jobs("{ paper = 4 }")), (6, 8, 4));
}

#[test]
fn every_mistake_is_named_with_its_place_and_a_way_out() {
    let cases: [(&str, &str, &[&str]); 36] = [
        ("[[vary]]", "[engine.packet]\nseeds = { small = 0 }\n[[vary]]", &["engine.packet.seeds", "1 to"]),
        ("[[vary]]", "[engine.packet]\nseeds = { medium = 1 }\n[[vary]]", &["one for some scales"]),
        (
            "[scenario]",
            "[scenario]\ntransport = { machines = 'product', gain = 0.5 }",
            &["transport.gain is 0.5", "leave it out"],
        ),
        ("title = \"t\"", "titel = \"t\"", &["line 2", "`titel`", "`title`"]),
        ("title = \"t\"", "title = 3", &["line 2", "string"]),
        ("title = \"t\"", "title = ", &["line 2"]),
        ("[\"packet\"]", "[\"quantum\"]", &["`quantum`", "`fluid`"]),
        ("[\"packet\"]", "[]", &["engines", "at least one"]),
        ("\"dctcp\"]", "\"westwood\"]", &["unknown scheme 'westwood'", "dctcp"]),
        ("\"dctcp\"]", "\"ppush(1,1)\"]", &["schemes", "twice"]),
        ("seeds = 2", "seeds = 0", &["scale.small.seeds", "1 to"]),
        ("seeds = 2", "seeds = 2\nsed = 1", &["`sed`", "`seeds`"]),
        ("[scale.small]", "[scale.medium]", &["`medium`", "`paper`"]),
        ("\"workload.count\" = 5", "\"workload.cuont\" = 5", &["`cuont`", "`count`"]),
        ("\"workload.count\" = 5", "\"title.x.y\" = 5", &["`title`"]),
        ("\"workload.count\" = 5", "\"workload.count.x\" = 5", &["workload.count.x", "integer"]),
        ("only = { load = [0.5] }", "only = { load = [0.7] }", &["scale.small.only.load", "0.7", "0.5, 0.9"]),
        ("only = { load = [0.5] }", "only = { lod = [0.5] }", &["scale.small.only.lod", "no axis"]),
        ("only = { load = [0.5] }", "only = { load = [] }", &["axis load", "no value is left"]),
        ("key = \"workload.load\"", "name = \"load\"\nkey = \"workload.laod\"", &["`laod`"]),
        ("values = [0.5, 0.9]", "values = [0.5, 0.50]", &["axis load", "twice"]),
        ("values = [0.5, 0.9]", "values = []", &["vary 1", "values"]),
        ("key = \"workload.load\"", "name = \"packets\"\nkey = \"workload.load\"", &["packets", "taken"]),
        ("hosts = 12", "hosts = 2", &["workload", "nodes", "5 hosts"]),
        ("1 Gbit/s", "1 furlong", &["furlong", "50Mbit/s"]),
        ("kind = \"big-switch\"", "kind = \"bus\"", &["`bus`", "`big-switch`"]),
        ("fanout = 2", "fanout = 5", &["fanout needs 5 hosts", "4"]),
        ("packets = 100", "packets = 0", &["a size is 0"]),
        ("within = \"10 %\"", "within = \"about right\"", &["about right", "10 %"]),
        ("published = 1.5\n", "", &["claim X-1", "published"]),
        ("at = { load = 0.9 }", "at = { load = 0.8 }", &["claim X-1", "0.8", "0.5, 0.9"]),
        ("at = { load = 0.9 }", "at = { lode = 0.9 }", &["claim X-1", "lode", "load"]),
        ("on = { at = { load = 0.9 } }\n", "", &["claim X-1", "of which load"]),
        ("of = \"dctcp\"", "of = \"reno\"", &["claim X-1", "reno", "dctcp"]),
        ("kind = \"ratio_of_means\"", "kind = \"ratio_of_modes\"", &["`ratio_of_modes`", "`ratio_of_means`"]),
        ("x = \"load\"\n", "", &["plot 'p'", "of which load"]),
    ];
    for (from, to, parts) in cases {
        assert_eq!(GOOD.matches(from).count(), 1, "{from}");
        let error = Experiment::parse("x/bad", &GOOD.replace(from, to));
        let message = error.map(|_| ()).expect_err(to).to_string();
        assert!(message.starts_with("x/bad"), "{message}");
        for part in parts {
            assert!(message.contains(part), "{from} -> {to}: no {part} in: {message}");
        }
    }
}

const SHUFFLE: &str = r#"
title = "t"
source = "s"
engines = ["packet"]
schemes = ["courier"]
[scale.small]
seeds = 1
[scenario]
fabric = { kind = "big-switch", hosts = 4, rate = "1 Gbit/s", delay = "1 us" }
[scenario.workload]
kind = "shuffle"
max_num = 3
block = "8 KB"
shrink = 1.0
jobs = { from = "grid", coflows = 1, mappers = 2, reducers = 2, bytes = "1 MB" }
"#;

#[test]
fn every_mistake_in_a_shuffle_is_named_with_its_key_and_a_way_out() {
    let jobs = |text: &str| Experiment::parse("x/good", text)?.jobs(Engine::Packet, Scale::Small, None);
    assert_eq!(jobs(SHUFFLE).unwrap().len(), 1);
    assert_eq!(jobs(&SHUFFLE.replace("max_num = 3\n", "")).unwrap().len(), 1, "any number of lanes");
    let grid = "from = \"grid\", coflows = 1, mappers = 2, reducers = 2, bytes = \"1 MB\"";
    let facebook = |rest: &str| format!("from = \"facebook\", {rest}");
    let all_to_all =
        |rest: &str| format!("from = \"all-to-all\", mappers = 2, reducers = 2, gap = \"1 s\", {rest}");
    let cases: Vec<(&str, String, &[&str])> = vec![
        ("max_num = 3", "max_num = 0".to_owned(), &["max_num is 0", "leave it out"]),
        ("max_num = 3", "max_num = -1".to_owned(), &["line 9", "`-1`", "u32"]),
        (
            "max_num = 3",
            "max_per_pair = 0".to_owned(),
            &["workload.max_per_pair", "at least 1 where max_num is"],
        ),
        ("block = \"8 KB\"", "block = \"0 B\"".to_owned(), &["workload.block", "at least 1 B"]),
        ("shrink = 1.0", "shrink = 0.5".to_owned(), &["workload.shrink is 0.5", "at least 1"]),
        ("shrink = 1.0", "shrink = nan".to_owned(), &["workload.shrink", "at least 1"]),
        ("shrink = 1.0", "classes = 9".to_owned(), &["workload.classes is 9", "1 to 8"]),
        ("shrink = 1.0", "django_flows = 0".to_owned(), &["workload.django_flows", "at least 1"]),
        (
            "bytes = \"1 MB\"",
            "bytes = \"9007199254740993 B\"".to_owned(),
            &["workload.jobs.bytes", "at most 2^53"],
        ),
        (
            "bytes = \"1 MB\"",
            "bytes = \"18446744073709551615 B\"".to_owned(),
            &["'18446744073709551615 B' is out of range"],
        ),
        ("mappers = 2", "mappers = 4294967295".to_owned(), &["map outputs", "at most 10000000"]),
        ("mappers = 2", "mappers = 0".to_owned(), &["a grid", "at least 1 of each"]),
        (grid, facebook("sizes = 1e30"), &["workload.jobs.sizes", "at most 2^53 bytes"]),
        (grid, facebook("sizes = 0.0"), &["workload.jobs.sizes is 0", "above 0"]),
        (grid, facebook("sizes = inf"), &["workload.jobs.sizes", "above 0"]),
        (grid, facebook("gaps = 1e300"), &["workload.jobs.gaps", "at most 1000000"]),
        (grid, facebook("first = 0"), &["workload.jobs.first", "at least 1"]),
        (grid, all_to_all("bytes = \"1 GB\", sizes = [1e9]"), &["workload.jobs.bytes", "at most 2^53"]),
        (grid, all_to_all("bytes = \"1 B\", sizes = [1e10]"), &["workload.jobs.sizes", "0 to 1000000000"]),
        (
            grid,
            all_to_all("bytes = \"1 B\", sizes = [1, 1]").replace("1 s", "18000000000 s"),
            &["workload.jobs.gap", "within 10^9 s"],
        ),
        (grid, all_to_all("bytes = \"1 B\", sizes = []"), &["from all to all", "at least 1 of each"]),
    ];
    for (from, to, parts) in cases {
        assert_eq!(SHUFFLE.matches(from).count(), 1, "{from}");
        let message = jobs(&SHUFFLE.replace(from, &to)).map(|_| ()).expect_err(&to).to_string();
        for part in parts {
            assert!(message.contains(part), "{from} -> {to}: no {part} in: {message}");
        }
    }
}

#[test]
fn metrics_that_do_not_fit_together_are_refused() {
    let metric = "metric = { kind = \"ratio_of_means\", of = \"dctcp\", over = \"ppush(1,1)\" }";
    let cases: [(&str, &str); 9] = [
        ("metric = { kind = \"column\", column = \"tct_s\" }", "which scheme"),
        (
            "metric = { kind = \"ordering\", schemes = [\"dctcp\", \"ppush(1,1)\"], of = { kind = \"column\", column = \"tct_s\" } }",
            "true or false",
        ),
        ("metric = { kind = \"all\", of = [] }", "always true"),
        ("metric = { kind = \"all\", of = [{ kind = \"constant\", value = 1 }] }", "holds"),
        ("metric = { kind = \"formula\", name = \"magic\" }", "mark_fraction"),
        (
            "metric = { kind = \"samples\", entities = [], quantity = \"rtt\", on = { scheme = \"dctcp\" } }",
            "entities",
        ),
        (
            "metric = { kind = \"samples\", entities = [\"f\"], quantity = \"rtt\", from_s = 2, to_s = 1, on = { scheme = \"dctcp\" } }",
            "empty",
        ),
        ("metric = { kind = \"constant\", value = nan }", "constant"),
        (
            "metric = { kind = \"first_where\", axis = \"load\", of = { kind = \"constant\", value = 1 } }",
            "below",
        ),
    ];
    for (other, part) in cases {
        let message = Experiment::parse("x", &GOOD.replace(metric, other)).expect_err(other).to_string();
        assert!(message.contains(part), "{other}: {message}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn no_text_makes_the_reader_panic(text in "\\PC{0,200}") {
        let _ = Experiment::parse("x", &text);
    }

    #[test]
    fn no_damage_to_a_good_file_makes_the_reader_panic(
        at in any::<prop::sample::Index>(),
        length in 0usize..12,
        put in prop_oneof![
            "[-0-9a-z=\\[\\]{}\". ,\n]{0,8}",
            Just("nan".to_owned()), Just("-1".to_owned()), Just("1e308".to_owned()),
            Just("18446744073709551615".to_owned()), Just("\"\"".to_owned()),
        ],
    ) {
        let start = at.index(GOOD.len());
        let end = (start + length).min(GOOD.len());
        let damaged = format!("{}{put}{}", &GOOD[..start], &GOOD[end..]);
        if let Ok(experiment) = Experiment::parse("x", &damaged) {
            for scale in &experiment.scales {
                prop_assert!(experiment.jobs(experiment.engines[0], *scale, Some(1)).is_ok());
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn no_line_lost_from_a_shipped_file_makes_the_reader_panic(
        which in any::<prop::sample::Index>(),
        line in any::<prop::sample::Index>(),
    ) {
        let all = shipped();
        let (id, text) = &all[which.index(all.len())];
        let gone = line.index(text.lines().count());
        let rest: Vec<&str> = text.lines().enumerate().filter(|(i, _)| *i != gone).map(|(_, l)| l).collect();
        let _ = Experiment::parse(id, &rest.join("\n"));
    }
}
