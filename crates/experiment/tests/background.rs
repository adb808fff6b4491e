//! Flows of other rules beside push flows: they live in one network, yield where classes tell them to, and are no tasks.

use headwater_experiment::experiment::{Engine, Experiment, Job, Scale};
use headwater_experiment::run::{RunError, run_job};
use headwater_experiment::table::{Column, Table, Tables};

/// A push flow without end and TCP over one link of 20 Mbit/s; what is `@` differs.
const BESIDE: &str = r#"
    title = "x"
    source = "x"
    engines = ["packet", "flow", "fluid"]
    schemes = ["ppush(1,1)"]
    [scale.small]
    seeds = 1
    [scenario]
    fabric = { kind = "dumbbell", left = 2, right = 2, rate = "20 Mbit/s", delay = "1 ms" }
    packet = { data = "1514 B" }
    port = { @port }
    transport = { @transport }
    background = [@background]
    sample = { every = "100 ms", what = ["window", "goodput"] }
    until = "10 s"
    workload = { kind = "long-flows", flows = [@flows] }
"#;
const PUSH: &str = "{ name = 'push', from = 0, to = 2 }";
const TCP: &str = "{ name = 'tcp', from = 1, to = 3, scheme = 'reno' }";
const ONE_QUEUE: &str = "queue = '100 packets', mark_threshold = '30 packets'";
/// Control before bulk before gentle, each with a queue of its own.
const STRICT: &str = "queue = 'unlimited', mark_threshold = '30 packets', classes = [
    { of = [0], queue = '100 packets' }, { of = [1], queue = '100 packets' }, { of = [2], queue = '100 packets' }]";

fn job(engine: Engine, port: &str, transport: &str, background: &str, flows: &str) -> Job {
    let text = BESIDE.replace("@port", port).replace("@transport", transport);
    // TOML 1.0 keeps inline tables on one line.
    let text = text.replace("@background", background).replace("@flows", flows).replace(",\n   ", ",");
    let experiment = Experiment::parse("x", &text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    experiment.jobs(engine, Scale::Small, None).unwrap().remove(0)
}

fn packet(port: &str, transport: &str, background: &str, flows: &str) -> Tables {
    run_job(&job(Engine::Packet, port, transport, background, flows), &mut |_| {}).unwrap()
}

fn numbers(table: &Table, column: &str) -> Vec<f64> {
    let column = table.column(column).unwrap();
    (0..column.len()).map(|row| column.number(row).unwrap()).collect()
}

/// Useful packets of a flow; zero if there is no such row.
fn packets(tables: &Tables, flow: &str) -> f64 {
    let names = tables.flows.column("flow").unwrap();
    let rows = numbers(&tables.flows, "packets").into_iter().enumerate();
    rows.filter(|(row, _)| names.is(*row, flow)).map(|(_, packets)| packets).sum()
}

/// Goal: in a class below the others, push traffic leaves TCP at least nine tenths of what it has alone, and takes the
/// rest.
#[test]
fn gentle_push_traffic_leaves_tcp_its_goodput_where_ports_have_classes() {
    let alone = packets(&packet(STRICT, "", TCP, ""), "tcp");
    let gentle = packet(STRICT, "class = 'gentle'", TCP, PUSH);
    let bulk = packet(STRICT, "", TCP, PUSH);
    let shared = packet(ONE_QUEUE, "class = 'gentle'", TCP, PUSH);
    let kept = |tables: &Tables| packets(tables, "tcp") / alone;
    println!("kept: gentle {:.3}, bulk {:.3}, one queue {:.3}", kept(&gentle), kept(&bulk), kept(&shared));
    // 20 Mbit/s for 10 s are 16,513 packets.
    assert!(alone > 14_000.0, "{alone} packets alone");
    assert!(kept(&gentle) >= 0.9, "{}", kept(&gentle));
    let both = packets(&gentle, "tcp") + packets(&gentle, "push");
    assert!(both > 0.97 * 16_513.0, "what TCP leaves is used: {both} packets");
    // Without a class of its own it takes a share; otherwise the line above would show nothing.
    assert!(kept(&bulk) < 0.9 && kept(&shared) < 0.9, "{} {}", kept(&bulk), kept(&shared));
}

#[test]
fn background_has_flow_rows_and_samples_but_is_no_task() {
    let with = packet(ONE_QUEUE, "", TCP, PUSH);
    let tasks = with.tasks.column("task").unwrap();
    assert_eq!(tasks, &Column::Text(vec!["push".to_owned()]));
    let flows = with.flows.column("flow").unwrap();
    assert_eq!(flows, &Column::Text(vec!["push".to_owned(), "tcp".to_owned()]));
    let (entities, quantities) =
        (with.samples.column("entity").unwrap(), with.samples.column("quantity").unwrap());
    for quantity in ["window", "goodput"] {
        let rows =
            (0..entities.len()).filter(|row| entities.is(*row, "tcp") && quantities.is(*row, quantity));
        assert_eq!(rows.count(), 100, "{quantity}");
    }
    let names = with.measures.column("name").unwrap();
    let row = (0..names.len()).find(|row| names.is(*row, "goodput")).unwrap();
    let goodput = numbers(&with.measures, "value")[row];
    assert!((goodput * 10.0 - packets(&with, "push")).abs() < 1e-6, "the goodput is that of the tasks");
}

#[test]
fn background_starts_and_stops_when_it_is_told_and_holds_up_no_run() {
    let timed = "{ name = 'tcp', from = 1, to = 3, scheme = 'dctcp', start = '2 s', stop = '4 s' }";
    let tables = packet(ONE_QUEUE, "", timed, PUSH);
    let times: Vec<f64> = {
        let entities = tables.samples.column("entity").unwrap();
        let all = numbers(&tables.samples, "t_s").into_iter().enumerate();
        all.filter(|(row, _)| entities.is(*row, "tcp")).map(|(_, t)| t).collect()
    };
    assert!(times[0] > 1.99 && times[0] < 2.2 && times[times.len() - 1] < 4.2, "{times:?}");
    let while_there = packets(&tables, "tcp");
    // Algorithm 1 gives the only task theta+ = 15 or so, and DCTCP is like theta 1.
    assert!((100.0..500.0).contains(&while_there), "{while_there} of the 3303 packets of two seconds");
    // Nothing else ends this run: it ends with its task of 1000 packets.
    let text = BESIDE.replace("until = \"10 s\"", "").replace("@port", ONE_QUEUE).replace("@transport", "");
    let text = text.replace("@background", TCP).replace("kind = \"long-flows\", flows = [@flows]", "@");
    let text = text.replace(
        "{ @ }",
        "{ kind = 'task-list', tasks = [{ name = 't', packets = 1000, sources = [0], receiver = 2 }] }",
    );
    let experiment = Experiment::parse("x", &text).unwrap();
    let job = experiment.jobs(Engine::Packet, Scale::Small, None).unwrap().remove(0);
    let tables = run_job(&job, &mut |_| {}).unwrap();
    let finish = numbers(&tables.tasks, "finish_s");
    assert!(finish[0] > 1.0 && finish[0] < 3.0, "{finish:?}");
}

#[test]
fn every_kind_of_background_runs_but_the_kernels_own() {
    for scheme in ["reno", "dctcp", "dccp"] {
        let flow = TCP.replace("reno", scheme);
        assert!(packets(&packet(ONE_QUEUE, "", &flow, ""), "tcp") > 10_000.0, "{scheme}");
    }
    let cubic = job(Engine::Packet, ONE_QUEUE, "", &TCP.replace("reno", "cubic"), "");
    let error = run_job(&cubic, &mut |_| {}).unwrap_err();
    assert!(matches!(error, RunError::Unsupported { .. }) && error.to_string().contains("kernel"), "{error}");
    for engine in [Engine::Flow, Engine::Fluid] {
        let error = run_job(&job(engine, ONE_QUEUE, "", TCP, PUSH), &mut |_| {}).unwrap_err();
        assert!(matches!(error, RunError::Unsupported { .. }), "{engine}: {error}");
    }
}
