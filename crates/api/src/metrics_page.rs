//! `--metrics ADDR`: counters and gauges as Prometheus reads them, made when it asks, and health checks.
//!
//! Every family has a HELP and a TYPE. Labels have few values, all of them known beforehand: the number of series does not grow with
//! tasks, flows, casts or nodes. A test holds this against what a running process answers.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use headwater_units::{BitRate, Bytes};
use metrics::{Unit, counter, describe_counter, describe_gauge, gauge};
use metrics_exporter_prometheus::PrometheusBuilder;
use serde_json::json;

use super::controller_host::Tally;
use super::host::{Host, LOCAL};
use super::occupant::Protocol;
use super::ops::{Ops, Outcomes};
use super::{AppError, StatusReport, health};
use headwater_driver::Snapshot;

/// Every route that a cast may take, as [`super::CastLine::via`] names them.
const ROUTES: [&str; 6] = ["multicast", "overlay", "rates", "trees", "undecided", "unicast"];

/// State that a page shows.
#[derive(Clone)]
struct Page {
    host: Host,
    /// Which command this is: `up`, `node`, `controller` or `serve`.
    role: &'static str,
}

/// Serves `/metrics`, `/healthz` and `/readyz` until the process ends.
pub(super) async fn start(at: SocketAddr, host: Host, role: &'static str) -> Result<(), AppError> {
    let listener = tokio::net::TcpListener::bind(at)
        .await
        .map_err(|e| AppError::no_socket("serve metrics", "--metrics", Protocol::Tcp, at, &e))?;
    let serving = host.clone();
    let app = Router::new()
        .route("/metrics", get(metrics_text))
        .route("/healthz", get(alive))
        .route("/readyz", get(ready))
        .with_state(Page { host, role });
    serving.spawn(async move {
        if let Err(error) = axum::serve(listener, app).await {
            tracing::error!(%error, "metrics have ended");
        }
    });
    Ok(())
}

async fn alive(State(page): State<Page>, headers: HeaderMap) -> Response {
    verdict(&headers, "alive", &health::troubles(&page.host).await)
}

async fn ready(State(page): State<Page>, headers: HeaderMap) -> Response {
    verdict(&headers, "ready", &health::obstacles(&page.host).await)
}

/// 200, or 503 with the reasons: one per line, or as JSON for clients that accept that.
fn verdict(headers: &HeaderMap, word: &str, reasons: &[String]) -> Response {
    let status = if reasons.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let accepts = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if accepts.contains("application/json") {
        let body = json!({ word: reasons.is_empty(), "reasons": reasons }).to_string() + "\n";
        return (status, [(header::CONTENT_TYPE, "application/json")], body).into_response();
    }
    let lines = if reasons.is_empty() { "ok".to_owned() } else { reasons.join("\n") };
    (status, lines + "\n").into_response()
}

async fn metrics_text(State(page): State<Page>) -> Response {
    let host = &page.host;
    if host.data_address().is_some() {
        host.node().look().await;
    }
    let report = match host.controller() {
        Some(_) => host.report(LOCAL).await.ok(),
        None => None,
    };
    let objects = match host.ops().store().cloned() {
        Some(store) => {
            tokio::task::spawn_blocking(move || store.ls().map(|all| all.len()).ok()).await.ok().flatten()
        }
        None => None,
    };
    let recorder = PrometheusBuilder::new().build_recorder();
    metrics::with_local_recorder(&recorder, || {
        process(page.role, host.ops());
        if let Some(snapshot) = host.snapshot() {
            socket(&snapshot);
            flows(&snapshot);
        }
        if host.ops().store().is_some() {
            store(host.ops(), objects);
        }
        if let (Some(report), Some(controller)) = (&report, host.controller()) {
            cluster(report);
            deliveries(controller.tally());
        }
    });
    let text = "text/plain; version=0.0.4; charset=utf-8";
    ([(header::CONTENT_TYPE, text)], recorder.handle().render()).into_response()
}

fn count(name: &'static str, help: &'static str, value: u64) {
    describe_counter!(name, help);
    counter!(name).absolute(value);
}

fn level(name: &'static str, help: &'static str, value: f64) {
    describe_gauge!(name, help);
    gauge!(name).set(value);
}

fn process(role: &'static str, ops: &Ops) {
    describe_gauge!("headwater_build_info", "1, with the version and the command of this process as labels");
    gauge!("headwater_build_info", "version" => env!("CARGO_PKG_VERSION"), "role" => role).set(1.0);
    describe_gauge!("headwater_uptime_seconds", Unit::Seconds, "Time since this process started");
    gauge!("headwater_uptime_seconds").set(ops.uptime().as_secs_f64());
    let draining = f64::from(u8::from(ops.is_draining()));
    level(
        "headwater_draining",
        "1 while this process is about to stop and finishes what it serves",
        draining,
    );
    count(
        "headwater_control_messages_refused_total",
        "Messages over control links that their senders may not say",
        ops.refused_messages(),
    );
    let (told, referred) = ops.hash_lists();
    count("headwater_hash_lists_told_total", "Block hashes of an object that were sent to a peer", told);
    count(
        "headwater_hash_lists_referred_total",
        "Peers that were sent to another node for block hashes",
        referred,
    );
}

fn socket(snapshot: &Snapshot) {
    let socket = &snapshot.socket;
    for (name, help, value) in [
        (
            "headwater_datagrams_received_total",
            "Datagrams received by the data socket",
            socket.datagrams_received,
        ),
        ("headwater_datagrams_sent_total", "Datagrams sent by the data socket", socket.datagrams_sent),
        (
            "headwater_bytes_received_total",
            "Bytes of UDP payload received by the data socket",
            socket.bytes_received,
        ),
        ("headwater_bytes_sent_total", "Bytes of UDP payload sent by the data socket", socket.bytes_sent),
        (
            "headwater_datagrams_dropped_by_kernel_total",
            "Datagrams that the kernel dropped because the receive buffer was full",
            socket.kernel_dropped,
        ),
        (
            "headwater_receive_buffers_total",
            "Buffers that datagrams came in, each of one or more",
            socket.buffers_received,
        ),
        (
            "headwater_send_messages_total",
            "Messages that datagrams were sent in, each of one or more",
            socket.messages_sent,
        ),
        ("headwater_receive_calls_total", "System calls that received", socket.receive_calls),
        ("headwater_send_calls_total", "System calls that sent", socket.send_calls),
        ("headwater_waits_total", "System calls that waited", snapshot.waits),
        (
            "headwater_receive_buffers_control_truncated_total",
            "Buffers whose control messages were cut off: a fault of this program",
            socket.control_truncated,
        ),
        (
            "headwater_datagrams_stray_total",
            "Datagrams of nobody, or that failed their header tag",
            snapshot.strays,
        ),
        (
            "headwater_symbols_trimmed_total",
            "Headers of symbols whose payload a switch has cut off",
            snapshot.trimmed,
        ),
    ] {
        count(name, help, value);
    }
    level(
        "headwater_datagrams_per_receive_buffer",
        "Datagrams in a receive buffer, on average since the start",
        socket.datagrams_per_buffer().unwrap_or(0.0),
    );
}

/// Flows that this process sends, all together.
fn flows(snapshot: &Snapshot) {
    let (flows, ended) = (&snapshot.flows, &snapshot.sources);
    let sum = |of: fn(&headwater_transport::source::FlowStats) -> f64| flows.iter().map(of).sum::<f64>();
    level("headwater_flows_sending", "Flows that are being sent", flows.len() as f64);
    level(
        "headwater_flows_paused",
        "Flows that wait: their receiver is silent, or the controller said so",
        sum(|flow| f64::from(u8::from(flow.paused))),
    );
    level(
        "headwater_flows_starved",
        "Flows that wait for this machine's disk or encoder",
        sum(|flow| f64::from(u8::from(flow.starved))),
    );
    level(
        "headwater_flows_window_packets",
        "Windows of all flows together, packets",
        sum(|f| f.window.get()),
    );
    level(
        "headwater_flows_mark_fraction",
        "Share of packets that came back marked, mean of all flows, 0 to 1",
        sum(|flow| flow.mark_fraction) / flows.len().max(1) as f64,
    );
    count("headwater_flows_opened_total", "Flows begun", ended.opened);
    count("headwater_flows_closed_total", "Flows ended", ended.closed);
    let sent: u64 = flows.iter().map(|flow| flow.counters.sent.get()).sum();
    let lost: u64 = flows.iter().map(|flow| flow.counters.lost.get()).sum();
    count("headwater_symbols_sent_total", "Symbols sent, copies included", ended.symbols_sent + sent);
    count("headwater_symbols_lost_total", "Symbols declared lost", ended.symbols_lost + lost);
}

fn store(ops: &Ops, objects: Option<usize>) {
    let Some(store) = ops.store() else { return };
    level("headwater_store_bytes", "Bytes that stored objects take", store.used().get() as f64);
    if let Some(quota) = store.options().quota {
        level("headwater_store_quota_bytes", "The most that stored objects may take", quota.get() as f64);
    }
    if let Some(objects) = objects {
        level("headwater_store_objects", "Objects in the store", objects as f64);
    }
    count("headwater_kept_bytes_total", "Bytes of objects fetched into the store", ops.kept());
    outcomes(
        ("headwater_gets_total", "Objects and folders fetched into the store"),
        ("headwater_gets_failed_total", "Fetches into the store that failed, by reason"),
        &ops.gets,
    );
    outcomes(
        ("headwater_puts_total", "Files and folders put into the store"),
        ("headwater_puts_failed_total", "Puts into the store that failed, by reason"),
        &ops.puts,
    );
}

fn outcomes(done: (&'static str, &'static str), failed: (&'static str, &'static str), of: &Outcomes) {
    count(done.0, done.1, of.done());
    describe_counter!(failed.0, failed.1);
    for (reason, times) in of.failed() {
        counter!(failed.0, "reason" => reason).absolute(times);
    }
}

/// State of the controller.
fn cluster(report: &StatusReport) {
    let up = report.nodes.iter().filter(|node| node.up).count();
    level("headwater_nodes_up", "Nodes that are connected", up as f64);
    level("headwater_nodes_known", "Nodes that are connected, or were", report.nodes.len() as f64);
    level("headwater_objects", "Objects and names that somebody holds, or held", report.objects.len() as f64);
    level("headwater_tasks", "Running tasks", report.tasks.len() as f64);
    let remaining: Bytes = report.tasks.iter().map(|task| task.bytes - task.done).sum();
    level("headwater_tasks_remaining_bytes", "What running tasks still lack", remaining.get() as f64);
    let rate: u64 = report.tasks.iter().map(|task| task.rate.get()).sum();
    level("headwater_tasks_rate_bits_per_second", "What comes in to all running tasks together", rate as f64);
    describe_gauge!("headwater_casts", "Running casts, by how they travel");
    for via in ROUTES {
        let casts = report.casts.iter().filter(|cast| cast.via == via).count();
        gauge!("headwater_casts", "via" => via).set(casts as f64);
    }
    let by_rates = || report.casts.iter().filter(|cast| cast.via == "rates");
    let waiting = by_rates().filter(|cast| cast.paused_seconds.is_some()).count();
    level("headwater_casts_waiting", "Running casts at computed rates that wait for others", waiting as f64);
    let rate: u64 = by_rates().filter_map(|cast| cast.rate).map(BitRate::get).sum();
    level(
        "headwater_casts_rate_bits_per_second",
        "Rates computed for all running casts together",
        rate as f64,
    );
    describe_gauge!("headwater_cast_receivers", "Receivers of running casts, by how far they are");
    let sum = |of: fn(&super::CastLine) -> u64| report.casts.iter().map(of).sum::<u64>();
    for (state, receivers) in [
        ("done", sum(|cast| cast.done)),
        ("failed", sum(|cast| cast.failed)),
        ("open", sum(|cast| cast.receivers - cast.done - cast.failed)),
    ] {
        gauge!("headwater_cast_receivers", "state" => state).set(receivers as f64);
    }
}

/// Counts of tasks and casts.
fn deliveries(tally: &Tally) {
    describe_counter!("headwater_tasks_ended_total", "Tasks that are over, by outcome");
    for (outcome, tasks) in
        [("done", &tally.tasks_done), ("cancelled", &tally.tasks_cancelled), ("failed", &tally.tasks_failed)]
    {
        counter!("headwater_tasks_ended_total", "outcome" => outcome).absolute(tasks.load(Ordering::Relaxed));
    }
    let delivered = tally.bytes_delivered.load(Ordering::Relaxed);
    count("headwater_delivered_bytes_total", "Bytes of objects whose tasks are done", delivered);
    count("headwater_casts_begun_total", "Casts begun", tally.casts.load(Ordering::Relaxed));
    describe_counter!("headwater_cast_deadlines_total", "Casts with a deadline that are over, by outcome");
    for (outcome, casts) in [("met", &tally.casts_in_time), ("missed", &tally.casts_late)] {
        counter!("headwater_cast_deadlines_total", "outcome" => outcome)
            .absolute(casts.load(Ordering::Relaxed));
    }
    describe_counter!("headwater_cast_receivers_ended_total", "Receivers of casts that are over, by outcome");
    for (outcome, receivers) in
        [("done", &tally.cast_receivers_done), ("failed", &tally.cast_receivers_failed)]
    {
        counter!("headwater_cast_receivers_ended_total", "outcome" => outcome)
            .absolute(receivers.load(Ordering::Relaxed));
    }
}
