//! Scenarios of PAM on the packet engine: groups at the rates that ports grant, who goes first, deadlines, and TCP beside them.

use headwater_experiment::experiment::{Engine, Experiment, Scale};
use headwater_experiment::run::{RunError, run_job};
use headwater_experiment::table::{Column, Table, Tables};

/// Four hosts and more on one switch, 100 Mbit/s; 1,000 packets take 0.12 s.
fn tables(port: &str, transport: &str, rest: &str) -> Result<Tables, RunError> {
    let text = format!(
        r#"
        title = "test"
        source = "none"
        engines = ["packet"]
        schemes = ["pam"]
        [scale.small]
        seeds = 1
        [scenario]
        fabric = {{ kind = "big-switch", hosts = 8, rate = "100 Mbit/s", delay = "10 us" }}
        port = {{ queue = "200 packets", mark_threshold = "none", {port} }}
        packet = {{ data = "1500 B", ack = "40 B" }}
        transport = {{ block_symbols = 180, pam = {{ longest_gap = "5 ms", {transport} }} }}
        {rest}
        "#
    );
    let experiment = Experiment::parse("test/pam", &text).unwrap_or_else(|error| panic!("{error}"));
    let job = experiment.jobs(Engine::Packet, Scale::Small, None).unwrap().remove(0);
    run_job(&job, &mut |_| {})
}

const GRANTS: &str = "allocator = { round_trip = '1 ms' }";

fn listed(tasks: &str) -> String {
    format!("[scenario.workload]\nkind = 'task-list'\ntasks = [{tasks}]")
}

fn column<'a>(table: &'a Table, name: &str) -> &'a Column {
    &table.columns.iter().find(|(found, _)| found == name).expect("there is such a column").1
}

/// Completion times of the tasks, by name.
fn times(tables: &Tables) -> Vec<(String, f64)> {
    let (Column::Text(names), Column::F64(times)) =
        (column(&tables.tasks, "task"), column(&tables.tasks, "tct_s"))
    else {
        panic!("names are text, times are numbers")
    };
    let mut all: Vec<(String, f64)> = names.iter().cloned().zip(times.iter().copied()).collect();
    all.sort_by(|a, b| a.0.cmp(&b.0));
    all
}

fn measure(tables: &Tables, name: &str) -> f64 {
    let (Column::Text(names), Column::F64(values)) =
        (column(&tables.measures, "name"), column(&tables.measures, "value"))
    else {
        panic!("names are text, values are numbers")
    };
    values[names.iter().position(|found| found == name).expect("it is measured")]
}

#[test]
fn a_group_has_its_object_in_the_time_of_one_copy() {
    for variant in ["simple", "optimal", "hardware"] {
        let port = format!("allocator = {{ round_trip = '1 ms', variant = '{variant}' }}");
        let one = "{ name = 'a', packets = 1000, sources = [0], receiver = 1, further = [2, 3, 4] }";
        let tables = tables(&port, "policy = 'srsf'", &listed(one)).unwrap();
        let took = times(&tables)[0].1;
        assert!((0.12..0.125).contains(&took), "{variant}: {took}");
        assert_eq!(measure(&tables, "drops"), 0.0);
        // Once to the switch and once to each of four: 1,000 packets, and some probes and answers.
        let hops = measure(&tables, "hops");
        assert!((5000.0..5400.0).contains(&hops), "{variant}: {hops}");
    }
}

#[test]
fn the_smaller_one_goes_first_and_fair_ones_share() {
    let two = "{ name = 'large', packets = 2000, sources = [0], receiver = 2, further = [3] }, \
               { name = 'small', at = '50 ms', packets = 500, sources = [1], receiver = 2, further = [4] }";
    let of = |policy: &str| times(&tables(GRANTS, policy, &listed(two)).unwrap());
    let [(_, large), (_, small)] = &of("policy = 'srsf'")[..] else { panic!("two tasks") };
    assert!(*small < 1.1 * 0.06 && (0.3..0.32).contains(large), "{small} {large}");
    let [(_, large), (_, small)] = &of("policy = 'fair'")[..] else { panic!("two tasks") };
    assert!((0.115..0.135).contains(small) && (0.3..0.32).contains(large), "{small} {large}");
    // Each is of the same rank: the critical one stays so.
    let [(_, large), (_, small)] = &of("policy = 7")[..] else { panic!("two tasks") };
    assert!((0.24..0.26).contains(large) && *small > 0.22, "{small} {large}");
}

#[test]
fn deadlines_decide_and_what_is_hopeless_ends_if_wanted() {
    // Together they take 0.24 s; the second one's deadline comes first, the third one can never be met.
    let three = "{ name = 'a', packets = 1000, sources = [0], receiver = 3, deadline = '400 ms' }, \
                 { name = 'b', packets = 1000, sources = [1], receiver = 3, deadline = '150 ms' }, \
                 { name = 'c', packets = 1000, sources = [2], receiver = 3, deadline = '100 ms' }";
    let run = |policy: &str| tables(GRANTS, policy, &listed(three)).unwrap();
    let kept = run("policy = 'edf'");
    let took: Vec<f64> = times(&kept).into_iter().map(|it| it.1).collect();
    assert!(took[1] < 0.15 && took[0] < 0.4 && took[2] > 0.3, "{took:?}");
    assert!((measure(&kept, "missed_ratio") - 1.0 / 3.0).abs() < 1e-9);
    let dropped = run("policy = 'edf', drops_late = true");
    let took: Vec<f64> = times(&dropped).into_iter().map(|it| it.1).collect();
    assert!(took[1] < 0.15 && took[0] < 0.27 && took[2].is_nan(), "{took:?}");
    assert!((measure(&dropped, "missed_ratio") - 1.0 / 3.0).abs() < 1e-9);
}

#[test]
fn lost_packets_are_made_good_either_way() {
    for repair in ["retransmission", "coding"] {
        let rest = listed("{ name = 'a', packets = 1000, sources = [0], receiver = 1, further = [2, 3] }")
            + "\n[[scenario.faults]]\nat = '10 ms'\non = 'link switch-h2'\nwhat = { kind = 'drop-run', packets = 30 }";
        let tables = tables(GRANTS, &format!("repair = '{repair}'"), &rest).unwrap();
        let took = times(&tables)[0].1;
        assert!((0.123..0.14).contains(&took), "{repair}: {took}");
        assert_eq!(measure(&tables, "lost"), 30.0);
    }
}

/// A-15, PAM Fig. 15: the transfer waits for TCP, which hardly notices it.
#[test]
fn a_transfer_leaves_the_link_to_tcp() {
    let tcp = "{ name = 'tcp', at = '100 ms', packets = 4000, sources = [1], receiver = 2, flows = 'reno' }";
    let solo = times(&tables(GRANTS, "policy = 'srsf'", &listed(tcp)).unwrap())[0].1;
    let both = format!("{{ name = 'a', packets = 3000, sources = [0], receiver = 2, further = [3] }}, {tcp}");
    let [(_, transfer), (_, tcp)] = &times(&tables(GRANTS, "policy = 'srsf'", &listed(&both)).unwrap())[..]
    else {
        panic!("two tasks")
    };
    assert!(*tcp <= solo / 0.95, "{tcp} s, alone {solo} s");
    // Alone it takes 0.36 s. It uses what TCP leaves while that waits for timeouts.
    assert!((0.8..solo + 0.4).contains(transfer), "{transfer} s, TCP {solo} s");
}

#[test]
fn a_switch_that_grants_no_rates_is_refused() {
    let one = listed("{ name = 'a', packets = 1000, sources = [0], receiver = 1 }");
    let error = tables("trim = {}", "policy = 'srsf'", &one).unwrap_err().to_string();
    assert!(error.contains("port.allocator"), "{error}");
    let several = listed("{ name = 'a', packets = 1000, sources = [0, 1], receiver = 2 }");
    let error = tables(GRANTS, "policy = 'srsf'", &several).unwrap_err().to_string();
    assert!(error.contains("2 sources"), "{error}");
}
