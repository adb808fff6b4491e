//! The experiment files of this repository, and made-up results for them.

#![allow(dead_code)] // Each test uses its part.

use std::path::{Path, PathBuf};

use headwater_experiment::experiment::{Engine, Experiment, Job, Scale};
use headwater_experiment::table::{MeasureRow, SampleRow, Tables, TaskRow};

/// Id and text of every shipped experiment, sorted by id.
pub(crate) fn shipped() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
    let mut found = Vec::new();
    for folder in ["ppush", "scdp", "datacast", "pam", "courier", "bench", "emulate", "scale"] {
        for entry in std::fs::read_dir(root.join(folder)).expect("the repository has experiments") {
            let path: PathBuf = entry.unwrap().path();
            if path.extension().is_some_and(|ending| ending == "toml") {
                let name = path.file_stem().unwrap().to_str().unwrap();
                found.push((format!("{folder}/{name}"), std::fs::read_to_string(&path).unwrap()));
            }
        }
    }
    found.sort();
    found
}

/// A shipped experiment.
pub(crate) fn experiment(id: &str) -> Experiment {
    let (_, text) = shipped().into_iter().find(|(found, _)| found == id).expect("it is shipped");
    Experiment::parse(id, &text).unwrap_or_else(|error| panic!("{error}"))
}

/// The packet engine where it can run the experiment, else the main one.
pub(crate) fn engine_of(experiment: &Experiment) -> Engine {
    let packet = experiment.engines.iter().find(|engine| **engine == Engine::Packet);
    *packet.unwrap_or(&experiment.engines[0])
}

/// Result that [`engine_of`] would have given if every job's tables were these.
pub(crate) fn gathered(
    experiment: &Experiment,
    scale: Scale,
    mut made_up: impl FnMut(&Job) -> Tables,
) -> Tables {
    let mut all = Tables::gathering();
    for job in experiment.jobs(engine_of(experiment), scale, None).unwrap() {
        job.gather(made_up(&job), &mut all).unwrap();
    }
    all
}

/// A task with this completion time.
pub(crate) fn task(name: &str, tct_s: f64) -> TaskRow {
    TaskRow {
        task: name.to_owned(),
        arrival_s: 0.0,
        finish_s: tct_s,
        tct_s,
        normalised: tct_s,
        packets: 1,
        receiver: 0,
        fanout: 3,
        timeouts: 0,
        goodput: 1.0 / tct_s,
        slowdown: tct_s,
        // Zero, but nothing of a task that has no end.
        trimmed: 0.0 * tct_s,
        unneeded: 0.0 * tct_s,
    }
}

/// A value of a time series.
pub(crate) fn sample(t_s: f64, entity: &str, quantity: &str, value: f64) -> SampleRow {
    SampleRow { t_s, entity: entity.to_owned(), quantity: quantity.to_owned(), value }
}

/// A scalar.
pub(crate) fn measure(name: &str, value: f64) -> MeasureRow {
    MeasureRow { name: name.to_owned(), value }
}
