//! Results in words, for people; programs read `--json`.

mod status;

use std::fmt::Write;

use headwater_api::{
    CastResult, CastWave, ForgetResult, GcResult, GetResult, Listening, PlanResult, PutResult, ReplayResult,
    RmResult, rate_in_words,
};
use headwater_units::{Bytes, Duration};
use serde_json::Value;

pub(crate) use status::{objects, status, total_rate};

use super::output::printable;
use super::settings::{Key, Origin};

/// Digits of an id that are shown: enough to tell objects apart and to type.
const ID_DIGITS: usize = 12;

fn short(id: &impl ToString) -> String {
    id.to_string().chars().take(ID_DIGITS).collect()
}

fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// Rows whose columns are padded to the same width; columns whose heading begins with a blank are right-aligned.
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(headings: &[&str]) -> Self {
        Table { rows: vec![headings.iter().map(|heading| (*heading).to_owned()).collect()] }
    }

    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        // Names come from other machines: nothing of theirs moves the cursor.
        self.rows.push(cells.iter().map(|cell| printable(cell)).collect());
    }

    /// The lines, each behind `indent`, without blanks at the end.
    pub(crate) fn render(&self, indent: &str) -> String {
        let Some(headings) = self.rows.first() else { return String::new() };
        let right: Vec<bool> = headings.iter().map(|heading| heading.starts_with(' ')).collect();
        let width_of = |cell: &String| cell.trim_start().chars().count();
        let widths: Vec<usize> = (0..headings.len())
            .map(|column| {
                self.rows.iter().filter_map(|row| row.get(column)).map(width_of).max().unwrap_or_default()
            })
            .collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = indent.to_owned();
            for ((cell, width), right) in row.iter().zip(&widths).zip(&right) {
                let cell = cell.trim_start();
                // Writing to a String cannot fail.
                let _ =
                    if *right { write!(line, "{cell:>width$}  ") } else { write!(line, "{cell:<width$}  ") };
            }
            text += line.trim_end();
            text.push('\n');
        }
        text
    }
}

/// Whether a deadline was met, and why a cast did not go on at computed rates.
fn judged(result: &CastResult) -> String {
    let deadline = result.deadline_seconds.zip(result.deadline_met).map(|(deadline, met)| {
        let how = if met { "met" } else { "MISSED" };
        format!("  deadline of {deadline:.2} s {how}\n")
    });
    let why = result.unscheduled.as_ref().map(|why| format!("  {why}\n"));
    deadline.into_iter().chain(why).collect()
}

/// The waves of a rollout.
fn waves(waves: &[CastWave]) -> String {
    let mut table = Table::new(&["WAVE", " RECEIVERS", " DONE", " HAD IT", " FAILED", " TIME"]);
    for (number, wave) in (1..).zip(waves) {
        table.row([
            number.to_string(),
            wave.receivers.to_string(),
            wave.done.to_string(),
            wave.had.to_string(),
            wave.failed.to_string(),
            format!("{:.2} s", wave.seconds),
        ]);
    }
    table.render("  ")
}

/// `headwater plan`.
pub(crate) fn planned(plan: &PlanResult) -> String {
    let what = plan.name.clone().unwrap_or_else(|| short(&plan.object));
    let to_serve: usize = plan.waves.iter().map(|wave| wave.to_serve).sum();
    let mut text = format!(
        "{}: {} to {to_serve} of {} nodes ({} have it, {} are away or keep nothing), from {}\n",
        printable(&what),
        Bytes::new(plan.bytes),
        plan.receivers,
        plan.have_it,
        plan.away,
        plan.holders
    );
    let mut table = Table::new(&["WAVE", " RECEIVERS", " TO SERVE", " RACKS", " AT LEAST", "BOUND BY"]);
    let at_least = |seconds: Option<f64>| or_dash(seconds.map(|seconds| format!("{seconds:.1} s")));
    for (number, wave) in (1..).zip(&plan.waves) {
        let by = match (&wave.bound_by, &wave.slowest) {
            (Some(by), Some(node)) if by == "slowest receiver" => format!("{by}: {node}"),
            (by, _) => by.clone().unwrap_or_default(),
        };
        table.row([
            number.to_string(),
            wave.receivers.to_string(),
            wave.to_serve.to_string(),
            wave.racks.to_string(),
            at_least(wave.least_seconds),
            by,
        ]);
    }
    text += &table.render("  ");
    let _ = match plan.least_seconds {
        Some(seconds) => writeln!(
            text,
            "  in all at least {seconds:.1} s; expect about a tenth more where links are equal"
        ),
        None => writeln!(
            text,
            "  rates of {} nodes are not known: state them there (--uplink, --downlink), or give --rate to assume one",
            plan.unknown_rates
        ),
    };
    let _ = writeln!(
        text,
        "  {} over all links; {} of memory at the controller meanwhile",
        Bytes::new(plan.network_bytes),
        Bytes::new(plan.controller_bytes)
    );
    text
}

/// `headwater cast`.
pub(crate) fn cast(result: &CastResult) -> String {
    let what = result.name.clone().unwrap_or_else(|| short(&result.object));
    let mut text = format!(
        "{}: {} from {}, {}\n",
        printable(&what),
        Bytes::new(result.bytes),
        result.source,
        result.why
    );
    let mut table = Table::new(&[
        "RECEIVER",
        "NAME",
        "STATE",
        " TIME",
        " MULTICAST",
        " UNICAST",
        " RELAYED",
        " PASSED ON",
        "WHY",
    ]);
    let bytes = |n: u64| if n == 0 { "-".to_owned() } else { Bytes::new(n).to_string() };
    for receiver in &result.receivers {
        table.row([
            receiver.node.clone(),
            receiver.name.clone(),
            receiver.state.clone(),
            format!("{:.2} s", receiver.seconds),
            bytes(receiver.multicast_bytes),
            bytes(receiver.unicast_bytes),
            bytes(receiver.relayed_bytes),
            bytes(receiver.passed_on_bytes),
            receiver.reason.clone().unwrap_or_default(),
        ]);
    }
    text += &table.render("  ");
    if !result.waves.is_empty() {
        text += &waves(&result.waves);
    }
    text += &judged(result);
    text += &cast_totals(result);
    text += &cast_repairs(result);
    text
}

/// When the receivers had it, and how many copies were sent.
fn cast_totals(result: &CastResult) -> String {
    let mut text = String::new();
    if let (Some(first), Some(median), Some(last)) =
        (result.first_seconds, result.median_seconds, result.last_seconds)
    {
        let _ =
            writeln!(text, "  first after {first:.2} s, half after {median:.2} s, last after {last:.2} s");
    }
    if result.copies > 0.0 {
        let (group, own) = (Bytes::new(result.multicast_bytes), Bytes::new(result.unicast_bytes));
        let _ = writeln!(
            text,
            "  sent {:.3} copies: {group} to the group, {own} to receivers by themselves; {} passed on by receivers",
            result.copies,
            Bytes::new(result.relayed_bytes)
        );
        let _ =
            write!(text, "  {:.3} copies over the busiest link of a source or receiver", result.link_stress);
        if let Some(between) = result.between_racks_bytes {
            let _ = write!(text, "; {} came from another rack", Bytes::new(between));
        }
        text.push('\n');
    }
    if result.sources.len() > 1 {
        for source in &result.sources {
            let _ = writeln!(text, "  from {}: {:.3} copies", source.node, source.copies);
        }
    }
    text
}

/// Repairs of trees after cables failed.
fn cast_repairs(result: &CastResult) -> String {
    let mut text = String::new();
    for repair in &result.repairs {
        let told = repair
            .told_seconds
            .map_or("not all were told yet".to_owned(), |s| format!("all were told in {s:.3} s"));
        let told = match repair.signalled {
            0 => told,
            nodes => format!("{told}, {nodes} nodes down a tree"),
        };
        let _ = writeln!(
            text,
            "  after {:.2} s a neighbour had been silent for {:.2} s: {} cables left out, {} trees rerouted; decided in {:.3} s, {told}",
            repair.after_seconds, repair.silent_seconds, repair.cut, repair.rebuilt, repair.decided_seconds
        );
    }
    text
}

/// `headwater get`.
pub(crate) fn fetched(result: &GetResult) -> String {
    let mut text =
        format!("{} -> {}\n", headline(result), result.output.as_deref().unwrap_or("standard output"));
    text += &details(result);
    text
}

/// `model: 256.0 MiB in 4.31 s (498.2 Mbit/s = 62.3 MB/s), verified`.
fn headline(result: &GetResult) -> String {
    let what = result.name.clone().unwrap_or_else(|| short(&result.object));
    let bytes = Bytes::new(result.bytes);
    let came = bytes - Bytes::new(result.resumed_bytes);
    let mut text = format!("{}: {bytes} in {:.2} s", printable(&what), result.seconds);
    // What was here already came at no rate.
    if result.seconds > 0.0 && came > Bytes::ZERO {
        let _ = write!(text, " ({})", rate_in_words(came / Duration::from_secs_f64(result.seconds)));
    }
    text + if result.verified { ", verified" } else { ", NOT VERIFIED" }
}

fn details(result: &GetResult) -> String {
    let mut text = String::new();
    if result.resumed_bytes > 0 {
        let _ = writeln!(text, "  {} were here already", Bytes::new(result.resumed_bytes));
    }
    if let (Some(ideal), Some(ratio)) = (result.ideal_seconds, result.ratio) {
        let _ = writeln!(
            text,
            "  ideal {ideal:.2} s, ratio {ratio:.3} (headers alone: {:.3}, the floor of any transfer)",
            result.wire_floor
        );
    }
    if !result.sources.is_empty() {
        let mut table = Table::new(&["SOURCE", " SHARE", " BYTES", " SYMBOLS", " LOST"]);
        for source in &result.sources {
            table.row([
                source.node.clone(),
                percent(source.share),
                Bytes::new(source.bytes).to_string(),
                source.symbols.to_string(),
                source.lost.to_string(),
            ]);
        }
        text += &table.render("  ");
    }
    let _ = writeln!(
        text,
        "  limited by {}, marks by {}, repair {}, duplicates {}",
        result.limited_by,
        result.mark_signal,
        percent(result.repair_share),
        percent(result.duplicate_share)
    );
    let _ = writeln!(
        text,
        "  {:.2} s of CPU, {} of memory at most",
        result.cpu_seconds,
        Bytes::new(result.peak_rss_bytes)
    );
    let _ = writeln!(text, "  blake3 {}", result.object);
    if let Some(sha256) = &result.sha256 {
        let _ = writeln!(text, "  sha256 {sha256}");
    }
    text
}

/// A daemon or source is ready.
pub(crate) fn listening(role: &str, listening: &Listening) -> String {
    let mut text = format!("{role} at {}, fingerprint {}\n", listening.address, listening.fingerprint);
    if let Some(data) = listening.data_address {
        let _ = writeln!(text, "  data at {data} (UDP)");
    }
    for object in &listening.objects {
        let name = object.name.as_deref().unwrap_or("-");
        let _ = writeln!(text, "  {}  {}  {}", object.object, object.bytes, printable(name));
    }
    text
}

/// `headwater put`; the id is alone on the first line.
pub(crate) fn stored(result: &PutResult) -> String {
    let name = result.name.as_ref().map(|name| format!("{}: ", printable(name))).unwrap_or_default();
    let generation = result.generation.map(|n| format!(", generation {n}")).unwrap_or_default();
    let before = result.replaced.as_ref().map(|it| format!(", instead of {}", short(it))).unwrap_or_default();
    let bytes = Bytes::new(result.bytes);
    format!("{}\n  {name}{bytes}, {}{generation}{before}", result.object, result.placed)
}

/// `headwater gc`.
pub(crate) fn collected(result: &GcResult) -> String {
    let (would, objects) = (if result.dry_run { "would remove" } else { "removed" }, result.objects.len());
    let bytes = Bytes::new(result.freed_bytes);
    let mut lines = format!("{would} {objects} files of folders and {} transfers, {bytes}", result.partials);
    for folder in &result.unreadable {
        lines += &format!(
            "\nfolder {} cannot be read, so no file of a folder was removed: put it again, or rm it",
            short(folder)
        );
    }
    lines
}

/// `headwater rm`.
pub(crate) fn removed(result: &RmResult) -> String {
    let what = result.name.as_deref().map_or_else(|| short(&result.object), printable);
    match result.freed_bytes {
        0 if result.objects == 0 => {
            format!("removed {what}; its bytes stay, another name or a folder has them")
        }
        bytes if result.objects > 1 => {
            format!("removed {what}, {} objects, {} free now", result.objects, Bytes::new(bytes))
        }
        bytes => format!("removed {what}, {} free now", Bytes::new(bytes)),
    }
}

/// `headwater forget`.
pub(crate) fn forgotten(result: &ForgetResult) -> String {
    format!("forgot {} ({}, {})", printable(&result.name), printable(&result.address), short(&result.id))
}

/// `headwater debug replay`.
pub(crate) fn replayed(result: &ReplayResult) -> String {
    let counts = format!("{} inputs fed, {} outputs compared", result.inputs, result.outputs);
    match &result.difference {
        _ if result.identical => format!("identical: {counts}"),
        Some(difference) => format!("DIFFERENT: {counts}; first difference: {difference}"),
        None => format!("DIFFERENT: {counts}"),
    }
}

/// `headwater config`: a valid config file.
pub(crate) fn settings<'a>(rows: impl Iterator<Item = (Key, Option<Value>, Option<&'a Origin>)>) -> String {
    let mut lines = Vec::new();
    for (key, value, origin) in rows {
        lines.push(match (value, origin) {
            (Some(value), Some(origin)) => {
                (format!("{} = {}", key.name, toml_text(&value)), origin.to_string())
            }
            _ => (format!("# {}", key.name), format!("not set; flag --{}, env {}", key.name, key.variable)),
        });
    }
    let width = lines
        .iter()
        .map(|(line, _)| line.chars().count())
        .filter(|&width| width <= 40)
        .max()
        .unwrap_or_default();
    lines.iter().fold(String::new(), |mut text, (line, comment)| {
        let _ = writeln!(text, "{line:<width$}  # {comment}");
        text
    })
}

/// A string, a number or a boolean in TOML.
fn toml_text(value: &Value) -> String {
    match value {
        Value::String(text) => toml::Value::String(text.clone()).to_string(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_api::SourceShare;

    fn result() -> GetResult {
        GetResult {
            object: "ab".repeat(32),
            name: Some("model".into()),
            bytes: 256 << 20,
            seconds: 4.0,
            ideal_seconds: Some(3.9),
            ratio: Some(1.026),
            wire_floor: 1.063,
            verified: true,
            limited_by: "path".into(),
            mark_signal: "delay".into(),
            output: Some("model.bin".into()),
            sources: vec![SourceShare {
                node: "s0".into(),
                bytes: 1 << 20,
                share: 1.0,
                symbols: 9,
                lost: 1,
                ..SourceShare::default()
            }],
            ..GetResult::default()
        }
    }

    #[test]
    fn a_get_ends_with_what_where_and_how() {
        let text = fetched(&result());
        assert!(
            text.starts_with(
                "model: 256.0 MiB in 4.00 s (536.9 Mbit/s = 67.1 MB/s), verified -> model.bin\n"
            ),
            "{text}"
        );
        assert!(text.contains("ratio 1.026") && text.contains("limited by path, marks by delay"), "{text}");
    }

    #[test]
    fn what_was_here_already_came_at_no_rate() {
        let text = fetched(&GetResult { resumed_bytes: 256 << 20, ..result() });
        assert!(text.starts_with("model: 256.0 MiB in 4.00 s, verified -> model.bin\n"), "{text}");
        assert!(text.contains("256.0 MiB were here already"), "{text}");
    }

    #[test]
    fn strings_in_a_config_file_are_quoted_as_toml_wants() {
        for text in ["plain", "with \"quotes\"", "back\\slash", "Zürich"] {
            let line: toml::Table = format!("key = {}", toml_text(&Value::from(text))).parse().unwrap();
            assert_eq!(line["key"].as_str(), Some(text));
        }
    }
}
