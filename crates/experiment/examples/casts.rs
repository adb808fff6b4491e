//! Cost of casts in the packet simulator: one line per file of a cast, or for overlays on a star of equal links if none
//! is given.
//!
//! `cargo run --release -p headwater-experiment --example casts [FILE...]`

use std::time::Instant;

use headwater_experiment::run::{CastSpec, run_cast};
use headwater_sim::packet::cast::CastOutcome;

/// An overlay to `receivers` receivers, each with a link of 20 Mbit/s.
fn star(receivers: u32, object: &str) -> String {
    format!(
        r#"
        fabric = {{ kind = "big-switch", hosts = {hosts}, rate = "20 Mbit/s", delay = "50 us" }}
        port = {{ queue = "100 packets", mark_threshold = "30 packets" }}
        [cast]
        object = "{object}"
        wish = "overlay"
        "#,
        hosts = receivers + 1
    )
}

/// The most memory that this process has had, MiB.
fn peak_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kib.unwrap_or(f64::NAN) / 1024.0
}

/// Prints receivers that do not have it, and why; hosts that are not believed; and state that has not come to its end.
fn remarks(outcome: &CastOutcome) {
    for row in outcome.receivers.iter().filter(|row| row.finished.is_none()) {
        println!("    host {}: {}", row.host, row.failed.as_deref().unwrap_or("still waits for it"));
    }
    for (by, whom) in &outcome.distrusted {
        println!("    host {by} distrusts {whom}");
    }
    if !outcome.left.is_empty() {
        println!("    left: {:?}", outcome.left);
    }
}

fn line(name: &str, outcome: &CastOutcome, seconds: f64) {
    let done = outcome.receivers.iter().filter(|row| row.finished.is_some()).count();
    let messages = outcome.messages.iter().map(|(to, from)| to + from);
    println!(
        "{name:<28} {done:>4}/{:<4} {:>9.3} {:>9.3} {:>7.3} {:>7.3} {:>7.3} {:>7.3} {:>9.1} {:>9.0} {:>9} {:>8} {:>11} {seconds:>8.2} {:>8.1}",
        outcome.receivers.len(),
        outcome.all.as_secs_f64(),
        outcome.stretch(),
        outcome.copies,
        outcome.host_copies,
        outcome.rack_copies.0,
        outcome.rack_copies.1,
        outcome.messages_per_node(),
        outcome.message_bytes_per_node(),
        messages.max().unwrap_or(0),
        outcome.dropped,
        outcome.events,
        peak_mib(),
    );
}

#[allow(clippy::disallowed_methods)] // It says how long it took.
fn main() {
    println!(
        "{:<28} {:>9} {:>9} {:>9} {:>7} {:>7} {:>7} {:>7} {:>9} {:>9} {:>9} {:>8} {:>11} {:>8} {:>8}",
        "cast",
        "have it",
        "all s",
        "/one copy",
        "copies",
        "host",
        "rack in",
        "out",
        "msgs/node",
        "B/node",
        "most",
        "dropped",
        "events",
        "wall s",
        "peak MiB"
    );
    let files: Vec<String> = std::env::args().skip(1).collect();
    let mut specs: Vec<(String, String)> = files
        .into_iter()
        .map(|file| {
            let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{file}: {error}"));
            (file, text)
        })
        .collect();
    if specs.is_empty() {
        let stars = [(4, "16 MiB"), (8, "16 MiB"), (16, "16 MiB"), (64, "16 MiB")];
        specs.extend(stars.map(|(receivers, object)| {
            (format!("overlay to {receivers}, {object}"), star(receivers, object))
        }));
    }
    for (name, text) in specs {
        let spec = CastSpec::of_text(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
        let began = Instant::now();
        let outcome = run_cast(&spec, 1).unwrap_or_else(|error| panic!("{name}: {error}"));
        line(&name, &outcome, began.elapsed().as_secs_f64());
        remarks(&outcome);
    }
}
