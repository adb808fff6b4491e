//! The results of a `get`: what came from which source, and what held it up.

use headwater_transport::push::receiver::{FlowStats, ReceiverStats};
use headwater_units::{BlockIndex, Bytes, NodeId};
use headwater_wire::{MarkSignal, SYMBOL_OVERHEAD};

use crate::fetch::{Fetched, source_label};
use crate::host::Host;
use crate::{GetResult, SourceShare, usage};

/// Ethernet, IPv4 and UDP headers.
const FRAME_HEADERS: f64 = 14.0 + 20.0 + 8.0;

/// Packets that a drill dropped in the data thread; none outside of drills.
pub(super) fn host_dropped(host: &Host) -> Option<u64> {
    host.snapshot().map(|s| s.dropped_on_purpose).filter(|&n| n > 0)
}

pub(super) fn wanted_bytes(fetched: &Fetched, range: Option<(Bytes, Option<Bytes>)>) -> u64 {
    let size = fetched.arrivals.hashes().size();
    match range {
        None => size.get(),
        Some((from, to)) => (to.unwrap_or(size).min(size) - from).get(),
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

pub(crate) fn result_of(
    fetched: &Fetched,
    stats: &ReceiverStats,
    seconds: f64,
    names: &[(NodeId, String)],
) -> GetResult {
    let cpu_seconds = usage::cpu_seconds();
    let layout = fetched.arrivals.hashes().layout();
    let symbol = f64::from(fetched.symbol_size.max(1));
    let block = layout.len(BlockIndex(0)).get().max(1) as f64;
    let padding = (block / symbol).ceil() * symbol / block;
    GetResult {
        object: fetched.object.to_string(),
        bytes: layout.object_bytes().get(),
        seconds,
        ideal_seconds: None,
        ratio: None,
        symbol_size: fetched.symbol_size,
        wire_floor: (symbol + SYMBOL_OVERHEAD as f64 + FRAME_HEADERS) / symbol * padding,
        mb_per_s: 0.0,
        verified: true,
        repair_share: share(stats.repair_used, stats.source_symbols),
        duplicate_share: share(stats.useless, stats.arrivals),
        timeouts: stats.timeouts,
        peak_rss_bytes: usage::peak_rss_bytes(),
        cpu_seconds,
        mark_signal: mark_signal(&stats.flows).to_owned(),
        limited_by: limited_by(stats, fetched.held_up, seconds, cpu_seconds).to_owned(),
        sources: sources_of(&stats.flows, names),
        name: None,
        sha256: None,
        resumed_bytes: fetched.resumed.get(),
        output: None,
        transport: transport(&stats.flows).to_owned(),
        dropped_on_purpose: None,
        group_bytes: stats.flows.iter().map(|flow| flow.by_group.get()).sum(),
        relayed_bytes: stats.flows.iter().filter(|flow| flow.relays).map(|flow| flow.bytes.get()).sum(),
        start_ns: 0,
        received_ns: 0,
        finish_ns: 0,
        deadline_met: None,
    }
}

/// Flows of one source are one line: a source that was replaced and came back had several.
fn sources_of(flows: &[FlowStats], names: &[(NodeId, String)]) -> Vec<SourceShare> {
    let total: u64 = flows.iter().map(|f| f.useful).sum();
    let mut lines: Vec<(NodeId, SourceShare)> = Vec::new();
    for flow in flows {
        let at = match lines.iter().position(|(node, _)| *node == flow.node) {
            Some(at) => at,
            None => {
                let name = names.iter().find(|(id, _)| *id == flow.node).map(|(_, name)| name.clone());
                let node = name.unwrap_or_else(|| source_label(flow.node));
                let id = flow.node.to_string();
                lines.push((flow.node, SourceShare { node, id, ..SourceShare::default() }));
                lines.len() - 1
            }
        };
        let line = &mut lines[at].1;
        line.bytes += flow.bytes.get();
        line.group_bytes += flow.by_group.get();
        line.symbols += flow.useful;
        line.lost += flow.lost;
        line.share = share(line.symbols, total);
    }
    lines.into_iter().map(|(_, line)| line).collect()
}

fn transport(flows: &[FlowStats]) -> &'static str {
    let mut kinds = flows.iter().filter(|flow| flow.symbols > 0).map(|flow| flow.came_by.name());
    match kinds.next() {
        None => "none",
        Some(first) if kinds.any(|kind| kind != first) => "mixed",
        Some(kind) => kind,
    }
}

fn mark_signal(flows: &[FlowStats]) -> &'static str {
    let any = |signal| flows.iter().any(|f| f.signal == signal);
    match (any(MarkSignal::Ecn), any(MarkSignal::Delay)) {
        (true, true) => "mixed",
        (true, false) => "ecn",
        (false, true) => "delay",
        (false, false) => "unknown",
    }
}

/// The bottleneck of the task most of the time.
fn limited_by(stats: &ReceiverStats, held_up: bool, seconds: f64, cpu_seconds: f64) -> &'static str {
    let starved: u64 = stats.flows.iter().map(|f| f.starved).sum();
    // One thread receives; when it never sleeps, the processor is the limit.
    if cpu_seconds / seconds > 0.9 {
        "cpu"
    } else if held_up {
        "disk"
    } else if starved * 2 > stats.arrivals {
        "source"
    } else {
        "path"
    }
}
