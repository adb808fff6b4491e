//! `--metrics ADDR` of an agent: its counters as Prometheus reads them, and whether it answers. Labels are the hosts of the list of agents,
//! and those coflows that are being fetched, of which only the most important have any.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use headwater_agent::{Agent, AgentStatus};
use metrics::{counter, describe_counter, describe_gauge, gauge};
use metrics_exporter_prometheus::PrometheusBuilder;
use tokio::task::JoinHandle;

use super::ANSWER_WITHIN;
use crate::AppError;
use crate::occupant::Protocol;

/// Coflows that have lines of their own, the most important first: a label costs Prometheus a series for each value that it ever had.
const COFLOWS: usize = 20;

/// Serves `/metrics`, `/healthz` and `/readyz` until it is aborted.
pub(super) async fn start(at: SocketAddr, agent: Arc<Agent>) -> Result<JoinHandle<()>, AppError> {
    let listener = tokio::net::TcpListener::bind(at)
        .await
        .map_err(|e| AppError::no_socket("serve metrics", "--metrics", Protocol::Tcp, at, &e))?;
    let app = Router::new()
        .route("/metrics", get(text))
        .route("/healthz", get(health))
        .route("/readyz", get(health))
        .with_state(agent);
    Ok(tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, app).await {
            tracing::error!(%error, "metrics have ended");
        }
    }))
}

async fn health(State(agent): State<Arc<Agent>>) -> Response {
    match tokio::time::timeout(ANSWER_WITHIN, agent.status()).await {
        Ok(_) => "ok\n".into_response(),
        Err(_) => (StatusCode::SERVICE_UNAVAILABLE, "the agent does not answer\n").into_response(),
    }
}

async fn text(State(agent): State<Arc<Agent>>) -> Response {
    let status = agent.status().await;
    let recorder = PrometheusBuilder::new().build_recorder();
    metrics::with_local_recorder(&recorder, || write(&status));
    let text = "text/plain; version=0.0.4; charset=utf-8";
    ([(header::CONTENT_TYPE, text)], recorder.handle().render()).into_response()
}

fn write(status: &AgentStatus) {
    describe_gauge!("headwater_build_info", "1, with the version and the command of this process as labels");
    gauge!("headwater_build_info", "version" => env!("CARGO_PKG_VERSION"), "role" => "agent").set(1.0);
    for (name, help, value) in [
        ("headwater_agent_received_bytes_total", "Bytes received from other agents", status.bytes_received),
        ("headwater_agent_sent_bytes_total", "Bytes sent to other agents", status.bytes_sent),
        ("headwater_agent_flows_done_total", "Flows that came to their end", status.flows_done),
        ("headwater_agent_flows_broken_total", "Flows that ended before their end", status.flows_broken),
        ("headwater_agent_blocks_again_total", "Blocks asked for again after a reset", status.blocks_again),
        ("headwater_agent_resets_total", "Connections to other agents that broke", status.resets),
        ("headwater_agent_strangers_total", "Diallers whose keys are not in the list", status.strangers),
        ("headwater_agent_malformed_total", "Frames that broke the protocol", status.malformed),
        ("headwater_agent_silences_total", "Times that the scheduler fell silent", status.silences),
    ] {
        describe_counter!(name, help);
        counter!(name).absolute(value);
    }
    let flows: usize = status.coflows.iter().map(|it| it.flows).sum();
    let stalled: usize = status.coflows.iter().map(|it| it.stalled).sum();
    let up = status.lanes.iter().filter(|it| it.up).count();
    for (name, help, value) in [
        ("headwater_agent_coflows", "Coflows that are being fetched", status.coflows.len() as f64),
        ("headwater_agent_flows", "Flows that are being fetched", flows as f64),
        ("headwater_agent_flows_stalled", "Flows that wait for their program's credit", stalled as f64),
        ("headwater_agent_lanes", "Connections to other agents that are up", up as f64),
        ("headwater_agent_serving", "Connections that other agents have dialled", status.serving as f64),
        ("headwater_agent_outputs", "Outputs that programs have registered", status.outputs as f64),
        ("headwater_agent_memory_bytes", "Memory promised to flows", status.memory_used as f64),
        ("headwater_agent_memory_most_bytes", "The most memory that ever was", status.memory_most as f64),
        ("headwater_agent_ordered", "1 while a scheduler is heard", f64::from(u8::from(status.ordered))),
    ] {
        describe_gauge!(name, help);
        gauge!(name).set(value);
    }
    let mut peers: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for lane in &status.lanes {
        let (bytes, up) = peers.entry(&lane.host).or_default();
        *bytes += lane.bytes;
        *up += u64::from(lane.up);
    }
    describe_counter!(
        "headwater_agent_peer_received_bytes_total",
        "Bytes received from a host's agent by connections that are kept"
    );
    describe_gauge!("headwater_agent_peer_lanes", "Connections to a host's agent that are up");
    for (peer, (bytes, up)) in peers {
        counter!("headwater_agent_peer_received_bytes_total", "peer" => peer.to_owned()).absolute(bytes);
        gauge!("headwater_agent_peer_lanes", "peer" => peer.to_owned()).set(up as f64);
    }
    describe_gauge!("headwater_agent_coflow_here_bytes", "Bytes of a coflow that are here");
    describe_gauge!("headwater_agent_coflow_left_bytes", "Bytes of a coflow that are known to be left");
    describe_gauge!(
        "headwater_agent_coflow_stalled",
        "Flows of a coflow that wait for their program's credit"
    );
    for it in status.coflows.iter().take(COFLOWS) {
        let labels = [("application", it.application.to_string()), ("coflow", it.coflow.to_string())];
        gauge!("headwater_agent_coflow_here_bytes", &labels).set(it.bytes as f64);
        gauge!("headwater_agent_coflow_left_bytes", &labels).set(it.left as f64);
        gauge!("headwater_agent_coflow_stalled", &labels).set(it.stalled as f64);
    }
}

#[cfg(test)]
mod tests {
    use headwater_agent::{CoflowStatus, LaneStatus, Name};

    use super::*;

    #[test]
    fn hosts_and_the_most_important_coflows_have_lines_of_their_own() {
        let coflow = |coflow| CoflowStatus {
            application: Name::new("sort").unwrap(),
            coflow,
            rank: None,
            flows: 2,
            stalled: 1,
            bytes: 10 + coflow,
            left: 5,
            from: Vec::new(),
        };
        let lane =
            |host: &str, number, up| LaneStatus { host: host.to_owned(), class: 0, number, up, bytes: 7 };
        let mut status = AgentStatus::default();
        status.coflows = (0..30).map(coflow).collect();
        status.lanes = vec![lane("a", 0, true), lane("a", 1, false), lane("b", 0, true)];
        let recorder = PrometheusBuilder::new().build_recorder();
        metrics::with_local_recorder(&recorder, || write(&status));
        let text = recorder.handle().render();
        for line in [
            "headwater_agent_peer_received_bytes_total{peer=\"a\"} 14",
            "headwater_agent_peer_lanes{peer=\"a\"} 1",
            "headwater_agent_coflow_here_bytes{application=\"sort\",coflow=\"19\"} 29",
            "headwater_agent_coflow_left_bytes{application=\"sort\",coflow=\"0\"} 5",
            "headwater_agent_coflow_stalled{application=\"sort\",coflow=\"0\"} 1",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        assert!(!text.contains("coflow=\"20\""), "{text}");
    }
}
