//! `--metrics ADDR`: counters and gauges as Prometheus reads them, made when it asks.

use std::net::SocketAddr;

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use metrics::{counter, gauge};
use metrics_exporter_prometheus::PrometheusBuilder;

use super::AppError;
use super::host::{Host, LOCAL};

/// Serves `/metrics` and `/healthz` until the process ends.
pub(super) async fn start(at: SocketAddr, host: Host) -> Result<(), AppError> {
    let listener = tokio::net::TcpListener::bind(at)
        .await
        .map_err(|e| AppError::io(format!("cannot serve metrics on {at}"), e))?;
    let app = Router::new()
        .route("/metrics", get(page))
        .route("/healthz", get(|| async { "ok\n" }))
        .with_state(host);
    tokio::spawn(async move {
        if let Err(error) = axum::serve(listener, app).await {
            tracing::error!(%error, "metrics have ended");
        }
    });
    Ok(())
}

async fn page(State(host): State<Host>) -> String {
    let report = match host.controller() {
        Some(_) => host.report(LOCAL).await.ok(),
        None => None,
    };
    let recorder = PrometheusBuilder::new().build_recorder();
    metrics::with_local_recorder(&recorder, || {
        if let Some(snapshot) = host.snapshot() {
            let socket = &snapshot.socket;
            counter!("headwater_datagrams_received_total").absolute(socket.datagrams_received);
            counter!("headwater_datagrams_sent_total").absolute(socket.datagrams_sent);
            counter!("headwater_bytes_received_total").absolute(socket.bytes_received);
            counter!("headwater_bytes_sent_total").absolute(socket.bytes_sent);
            counter!("headwater_datagrams_dropped_by_kernel_total").absolute(socket.kernel_dropped);
            counter!("headwater_receive_buffers_total").absolute(socket.buffers_received);
            counter!("headwater_send_messages_total").absolute(socket.messages_sent);
            counter!("headwater_receive_calls_total").absolute(socket.receive_calls);
            counter!("headwater_send_calls_total").absolute(socket.send_calls);
            counter!("headwater_waits_total").absolute(snapshot.waits);
            counter!("headwater_receive_buffers_control_truncated_total").absolute(socket.control_truncated);
            counter!("headwater_datagrams_stray_total").absolute(snapshot.strays);
            counter!("headwater_symbols_trimmed_total").absolute(snapshot.trimmed);
            gauge!("headwater_flows_sending").set(snapshot.flows.len() as f64);
            gauge!("headwater_datagrams_per_receive_buffer")
                .set(socket.datagrams_per_buffer().unwrap_or(0.0));
            for flow in &snapshot.flows {
                let labels = [("flow", flow.flow.to_string()), ("receiver", flow.receiver.short())];
                gauge!("headwater_flow_window_packets", &labels).set(flow.window.get());
                gauge!("headwater_flow_theta", &labels).set(flow.theta.get());
                gauge!("headwater_flow_mark_fraction", &labels).set(flow.mark_fraction);
                counter!("headwater_flow_symbols_sent_total", &labels).absolute(flow.counters.sent.get());
                counter!("headwater_flow_symbols_lost_total", &labels).absolute(flow.counters.lost.get());
            }
        }
        if let Some(report) = &report {
            gauge!("headwater_nodes_up").set(report.nodes.iter().filter(|n| n.up).count() as f64);
            gauge!("headwater_objects").set(report.objects.len() as f64);
            gauge!("headwater_tasks").set(report.tasks.len() as f64);
            gauge!("headwater_casts").set(report.casts.len() as f64);
            for cast in &report.casts {
                let labels = [("cast", cast.cast.to_string()), ("via", cast.via.clone())];
                gauge!("headwater_cast_receivers", &labels).set(cast.receivers as f64);
                gauge!("headwater_cast_receivers_done", &labels).set(cast.done as f64);
                gauge!("headwater_cast_receivers_failed", &labels).set(cast.failed as f64);
            }
            for task in &report.tasks {
                let labels = [("task", task.task.to_string()), ("receiver", task.receiver.clone())];
                gauge!("headwater_task_remaining_bytes", &labels).set((task.bytes - task.done).get() as f64);
                gauge!("headwater_task_rate_bits_per_second", &labels).set(task.rate.get() as f64);
            }
        }
    });
    recorder.handle().render()
}
