//! What the options for experiments stand for: reads the constants that `--tuning` names.

use std::path::Path;

use headwater_api::{Experiments, TimelineOptions};
use headwater_sim::scenario::{Machines, TransportSpec};
use headwater_units::Duration;
use serde::Deserialize;

use super::args::{TimelineFlags, TuningFlag};
use super::usage::{ExperimentError, TIMELINE_LEAST};

/// From sample to sample, unless told otherwise.
const TIMELINE_EVERY: Duration = Duration::from_millis(10);

/// What these flags ask for.
pub(crate) fn read(timeline: &TimelineFlags, tuning: &TuningFlag) -> Result<Experiments, ExperimentError> {
    let every = timeline.timeline_every.unwrap_or(TIMELINE_EVERY);
    if every < TIMELINE_LEAST {
        return Err(ExperimentError::TooOften(every));
    }
    let timeline = timeline.timeline.clone().map(|path| TimelineOptions { path, every });
    let tuning = tuning.tuning.as_deref().map(constants).transpose()?;
    // The product's machines are what runs without any constants.
    Ok(Experiments { timeline, tuning: tuning.filter(|spec| spec.machines != Machines::Product) })
}

/// Constants from a file, or from the text itself if it cannot be a file's name.
fn constants(given: &str) -> Result<TransportSpec, ExperimentError> {
    let spec = match std::fs::read_to_string(Path::new(given)) {
        Ok(text) => parse(&text)?,
        Err(_) if given.contains('=') => parse(&as_lines(given))?,
        Err(reason) => return Err(ExperimentError::Unreadable { path: given.to_owned(), reason }),
    };
    spec.check()?;
    if let Some((field, stated, does)) = spec.fixed() {
        return Err(ExperimentError::Fixed { field, stated, does });
    }
    match spec.simulated_alone() {
        None => Ok(spec),
        Some(field) => Err(ExperimentError::Simulated(field)),
    }
}

/// One line may hold several constants with commas between, as in an inline table.
fn as_lines(given: &str) -> String {
    match given.trim().contains('\n') {
        true => given.to_owned(),
        false => format!("transport = {{ {given} }}"),
    }
}

fn parse(text: &str) -> Result<TransportSpec, ExperimentError> {
    let syntax = |e: toml::de::Error| ExperimentError::Syntax(e.to_string().trim_end().to_owned());
    let file: toml::Table = text.parse().map_err(syntax)?;
    let scenario = file.get("scenario").and_then(toml::Value::as_table).unwrap_or(&file);
    let table = scenario.get("transport").and_then(toml::Value::as_table).unwrap_or(scenario);
    TransportSpec::deserialize(table.clone()).map_err(syntax)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuning(given: &str) -> Result<TransportSpec, ExperimentError> {
        let tuning = TuningFlag { tuning: Some(given.to_owned()) };
        read(&TimelineFlags::default(), &tuning).map(|experiments| experiments.tuning.unwrap())
    }

    #[test]
    fn text_and_files_give_the_same_constants() {
        let expected = TransportSpec {
            gain: 0.25,
            min_rto: Duration::from_secs(1),
            theta_ceiling: Some(20.0),
            ..TransportSpec::default()
        };
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            tuning(path.to_str().unwrap()).unwrap()
        };
        let lines = "gain = 0.25\nmin_rto = '1 s'\ntheta_ceiling = 20.0";
        assert_eq!(tuning(lines).unwrap(), expected);
        assert_eq!(tuning("gain = 0.25, min_rto = '1 s', theta_ceiling = 20.0").unwrap(), expected);
        assert_eq!(file("table.toml", lines), expected);
        assert_eq!(file("with=sign", lines), expected);
        assert_eq!(file("headed.toml", &format!("[transport]\n{lines}")), expected);
        let experiment = format!("title = 'x'\n[scenario]\nscheme = 'dctcp'\n[scenario.transport]\n{lines}");
        assert_eq!(file("experiment.toml", &experiment), expected);
        assert_eq!(file("empty.toml", ""), TransportSpec::default());
    }

    #[test]
    fn the_products_machines_are_what_runs_without_constants() {
        let flag = TuningFlag { tuning: Some("machines = 'product', class = 'gentle'".to_owned()) };
        let experiments = read(&TimelineFlags::default(), &flag).unwrap();
        assert_eq!(experiments, Experiments::default());
    }

    #[test]
    fn what_cannot_be_followed_is_refused_with_what_is_wrong() {
        for (given, must_say) in [
            ("gian = 0.25", "gian"),
            ("gain = 2.0", "transport.gain is 2"),
            ("min_rto = 'soon'", "soon"),
            ("duplicate_acks = 4", "duplicate_acks = 4"),
            ("ack_every = 2", "ack_every = 2"),
            ("pull = { window = 0 }", "transport.pull.window is 0"),
            ("pull = { lvels = [] }", "lvels"),
            ("swarm = { peers = 3 }", "swarm is for simulations"),
            ("datacast = { gathers = false }", "datacast.gathers is for simulations"),
            ("machines = 'product', gain = 0.25", "transport.gain is 0.25"),
            ("/nonexistent/tuning.toml", "/nonexistent/tuning.toml"),
        ] {
            let error = tuning(given).unwrap_err().to_string();
            assert!(error.starts_with("--tuning: ") && error.contains(must_say), "{given}: {error}");
        }
    }

    #[test]
    fn a_timeline_has_samples_some_time_apart() {
        let flags = |every| TimelineFlags { timeline: Some("t.csv".into()), timeline_every: every };
        let read = |every| read(&flags(every), &TuningFlag::default());
        assert_eq!(read(None).unwrap().timeline.unwrap().every, Duration::from_millis(10));
        assert!(read(Some(Duration::ZERO)).is_err());
    }
}
