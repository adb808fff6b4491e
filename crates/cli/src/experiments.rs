//! Options for experiments: reads the constants that `--tuning` names.

use std::path::Path;

use headwater_api::{Sent, TimelineOptions, Tuning};
use headwater_controller::ControllerConfig;
use headwater_experiment::scenario::{Amount, Machines, TransportSpec};
use headwater_transport::pull::PullFlowConfig;
use headwater_units::{Bytes, Duration, Theta};
use serde::Deserialize;

use super::args::{TimelineFlags, TuningFlag};
use super::usage::{ExperimentError, TIMELINE_LEAST};

/// From sample to sample, unless told otherwise.
const TIMELINE_EVERY: Duration = Duration::from_millis(10);

/// Packet size that turns rates written in packets into bits.
const ETHERNET: Bytes = Bytes::new(1500);

/// Reads these flags: a time series, and constants in place of the product's.
pub(crate) fn read(
    timeline: &TimelineFlags,
    tuning: &TuningFlag,
) -> Result<(Option<TimelineOptions>, Option<TransportSpec>), ExperimentError> {
    let every = timeline.timeline_every.unwrap_or(TIMELINE_EVERY);
    if every < TIMELINE_LEAST {
        return Err(ExperimentError::TooOften(every));
    }
    let timeline = timeline.timeline.clone().map(|path| TimelineOptions { path, every });
    let tuning = tuning.tuning.as_deref().map(constants).transpose()?;
    // The product's machines are what runs without any constants.
    Ok((timeline, tuning.filter(|spec| spec.machines != Machines::Product)))
}

/// Constants for the machines of a process.
pub(crate) fn tuning(spec: &TransportSpec) -> Tuning {
    let mut source = spec.source_config();
    // Addresses can be forged here, as not in a simulation.
    source.pull = PullFlowConfig { detach_after: spec.pull.detach_after, ..PullFlowConfig::default() };
    let (rate, stated) = (&mut source.trees.rate, &spec.datacast);
    rate.initial = stated.initial_rate.resolve(ETHERNET);
    (rate.step, rate.every) = (stated.increase.resolve(ETHERNET), stated.interval);
    let level = |amount: &Amount| match amount {
        Amount::Packets(packets) => Sent::Packets(*packets),
        Amount::Bytes(bytes) => Sent::Bytes(*bytes),
        Amount::Unlimited => Sent::Unlimited,
    };
    let (window, many_window) = (packets(spec.pull.window), packets(spec.pull.many_window));
    Tuning {
        source,
        levels: [0, 1, 2, 3].map(|n| level(&spec.pull.levels[n])),
        controller: ControllerConfig {
            tree_credit: u16::try_from(stated.credit).unwrap_or(u16::MAX),
            tree_store: stated.cache,
            cast_window: window,
            ..spec.controller_config(spec.theta_ceiling.map(Theta::new), true)
        },
        max_ack_delay: spec.max_ack_delay(),
        min_rto: spec.pull.min_rto,
        window,
        many_window,
        headroom: spec.pull.headroom,
    }
}

fn packets(count: u32) -> u16 {
    u16::try_from(count).unwrap_or(u16::MAX)
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
    match spec.simulated_only() {
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
    use headwater_api::Experiments;
    use headwater_transport::push::receiver::ReceiverConfig;
    use headwater_units::{NodeId, PathId};

    use super::*;

    fn constants(given: &str) -> Result<TransportSpec, ExperimentError> {
        let tuning = TuningFlag { tuning: Some(given.to_owned()) };
        read(&TimelineFlags::default(), &tuning).map(|(_, tuning)| tuning.unwrap())
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
            constants(path.to_str().unwrap()).unwrap()
        };
        let lines = "gain = 0.25\nmin_rto = '1 s'\ntheta_ceiling = 20.0";
        assert_eq!(constants(lines).unwrap(), expected);
        assert_eq!(constants("gain = 0.25, min_rto = '1 s', theta_ceiling = 20.0").unwrap(), expected);
        assert_eq!(file("table.toml", lines), expected);
        assert_eq!(file("with=sign", lines), expected);
        assert_eq!(file("headed.toml", &format!("[transport]\n{lines}")), expected);
        let experiment = format!("title = 'x'\n[scenario]\nscheme = 'dctcp'\n[scenario.transport]\n{lines}");
        assert_eq!(file("experiment.toml", &experiment), expected);
        assert_eq!(file("empty.toml", ""), TransportSpec::default());
    }

    #[test]
    fn each_constant_of_pulled_flows_arrives_at_its_machine() {
        let spec = toml::from_str(
            "pull = { window = 3, many_window = 2, min_rto = '7 ms', headroom = '9 B', detach_after = '8 ms', \
             levels = ['2 packets', '5 packets', '6 packets', '7 packets'] }",
        );
        let tuning = Some(Box::new(super::tuning(&spec.unwrap())));
        let experiments = Experiments { timeline: None, tuning };
        let pull = experiments.source_config(1000).pull;
        assert_eq!(pull.demotion, Some([2000, 5000, 6000, 7000].map(Bytes::new)));
        assert_eq!((pull.detach_after, pull.validates_paths), (Duration::from_millis(8), true));
        let mut receiver = ReceiverConfig::new("name", NodeId([0; 32]), PathId(0), 0);
        experiments.tune_receiver(&mut receiver);
        assert_eq!(
            (receiver.pull.rtt.min_rto, receiver.pull.rtt.initial_rto),
            (Duration::from_millis(7), Duration::from_millis(7))
        );
        assert_eq!([true, false].map(|alone| experiments.pulled_window(alone)), [Some(3), Some(2)]);
        assert_eq!(experiments.controller_config(None).cast_window, 3);
        assert_eq!(experiments.headroom(), Bytes::new(9));
    }

    #[test]
    fn the_products_machines_are_what_runs_without_constants() {
        let flag = TuningFlag { tuning: Some("machines = 'product', class = 'gentle'".to_owned()) };
        assert_eq!(read(&TimelineFlags::default(), &flag).unwrap(), (None, None));
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
            ("swarm = { peers = 3 }", "swarm works in simulations only"),
            ("datacast = { gathers = false }", "datacast.gathers works in simulations only"),
            ("machines = 'product', gain = 0.25", "transport.gain is 0.25"),
            ("/nonexistent/tuning.toml", "/nonexistent/tuning.toml"),
        ] {
            let error = constants(given).unwrap_err().to_string();
            assert!(error.starts_with("--tuning: ") && error.contains(must_say), "{given}: {error}");
        }
    }

    #[test]
    fn a_timeline_has_samples_some_time_apart() {
        let flags = |every| TimelineFlags { timeline: Some("t.csv".into()), timeline_every: every };
        let read = |every| read(&flags(every), &TuningFlag::default());
        assert_eq!(read(None).unwrap().0.unwrap().every, Duration::from_millis(10));
        assert!(read(Some(Duration::ZERO)).is_err());
    }
}
