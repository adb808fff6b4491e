//! Reading the JSON lines that `get` prints.

use headwater_units::{BitRate, Duration};
use serde_json::Value;

use headwater_api::{Phase, Progress, ProgressSource};

/// The progress that a line tells of; `None` if it is about something else.
pub(super) fn progress_of(line: &Value) -> Option<Progress> {
    if line["type"] != "progress" {
        return None;
    }
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let sources = line["sources"].as_array().into_iter().flatten().map(|source| ProgressSource {
        node: text(&source["node"]),
        rate: BitRate::new(number(&source["rate"])),
        share: source["share"].as_f64().unwrap_or(0.0),
        theta: source["theta"].as_f64(),
        live: source["live"].as_bool().unwrap_or(true),
    });
    Some(Progress {
        object: text(&line["object"]),
        bytes_done: number(&line["bytes_done"]),
        bytes_total: number(&line["bytes_total"]),
        rate: BitRate::new(number(&line["rate"])),
        eta: line["eta_seconds"].as_f64().map(Duration::from_secs_f64),
        sources: sources.collect(),
        receivers: Vec::new(),
        phase: match line["phase"].as_str() {
            Some("hashing") => Phase::Hashing,
            Some("checking") => Phase::Checking,
            Some("receiving") => Phase::Receiving,
            Some("finishing") => Phase::Finishing,
            _ => Phase::Asking,
        },
    })
}

/// Exit code and message of the error that a line tells of, if it does.
pub(super) fn error_of(line: &Value) -> Option<(u64, String)> {
    let error = line.get("error")?;
    Some((error["exit_code"].as_u64().unwrap_or(1), text(&error["message"])))
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_survives_its_way_through_json() {
        let progress = Progress {
            object: "demo.bin".into(),
            bytes_done: 1,
            bytes_total: 2,
            rate: BitRate::new(3),
            eta: Some(Duration::from_millis(1500)),
            sources: vec![ProgressSource {
                node: "10.0.0.1:7000".into(),
                rate: BitRate::new(4),
                share: 0.25,
                theta: Some(1.5),
                live: true,
            }],
            receivers: Vec::new(),
            phase: Phase::Receiving,
        };
        let mut line = serde_json::to_value(&progress).unwrap();
        assert_eq!(progress_of(&line), None, "only what says so is progress");
        line["type"] = "progress".into();
        assert_eq!(progress_of(&line), Some(progress));
    }
}
