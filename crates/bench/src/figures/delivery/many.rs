//! Many objects into one node at the same time: what it costs in memory, and whether all get their share.
//!
//! The node is a daemon that is asked for all objects at the same time, as by one `headwater get --keep` each
//! ([`keep_many`](headwater_api::keep_many)); it takes a bounded number under way and lets the others wait for their
//! turn. Three sources have all objects. Every link carries 1 Gbit/s, so the ideal is that of the receiver's downlink.

use std::path::Path;

use headwater_api::AppError;
use headwater_units::{Bytes, ObjectId};
use serde::Serialize;
use serde_json::Value;

use super::peers::{Deployment, Layout, Part, Ready, Role};
use super::scenario::{Scenario, Scene};
use super::stage::{Seen, Shared, blocking, in_gib, play};
use crate::figures::{median_of, ratio};
use crate::subprocess::{Scratch, write_random};

/// Where sources listen.
const PORT: u16 = 7000;
/// Where the node keeps objects, below its folder.
const OBJECTS: &str = "state/store/objects";

/// Many gets at the same time. A run that failed has `error` and no figures.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ManyRun {
    /// How many at the same time.
    pub gets: usize,
    /// Of each object.
    pub bytes_each: u64,
    /// Measured figures.
    #[serde(flatten)]
    pub figures: Option<ManyFigures>,
    /// The error.
    pub error: Option<String>,
}

/// Figures of many gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ManyFigures {
    /// From the start of the asking process until it has heard that all objects are kept.
    pub seconds: f64,
    /// All bytes over the node's downlink.
    pub ideal_seconds: f64,
    /// `seconds / ideal_seconds`.
    pub ratio: f64,
    /// Bytes of all objects per second, in millions.
    pub mb_per_s: f64,
    /// Jain's index of the times of the gets, 1 / n to 1: (sum of t)^2 / (n times the sum of t^2).
    pub fairness: f64,
    /// When the first, the middle and the last get was complete, seconds after the first request.
    pub fastest_seconds: f64,
    /// See there.
    pub median_seconds: f64,
    /// See there.
    pub slowest_seconds: f64,
    /// The most memory that the node had resident.
    pub peak_rss_bytes: u64,
    /// CPU seconds of all processes per GiB delivered.
    pub cpu_s_per_gib: f64,
    /// Of that, the node's.
    pub receiver_cpu_s_per_gib: f64,
    /// Bytes that the sources put on the wire over those to be delivered.
    pub sent_per_size: f64,
}

/// Fetches `gets` objects of `size` each into one node.
pub(super) async fn run(program: &Path, gets: usize, size: Option<Bytes>) -> ManyRun {
    let each = size.unwrap_or(Scenario::Many.usual_size());
    let (figures, error) = match measure(program, gets, each).await {
        Ok(figures) => (Some(figures), None),
        Err(error) => (None, Some(error.to_string())),
    };
    ManyRun { gets, bytes_each: each.get(), figures, error }
}

async fn measure(program: &Path, gets: usize, each: Bytes) -> Result<ManyFigures, AppError> {
    let total = each * gets as u64;
    let (scratch, guard) = Scratch::create_guarded("bench", total, false)?;
    let folder = scratch.path().to_owned();
    let objects: Vec<(std::path::PathBuf, ObjectId)> = blocking(move || {
        let write = |n: usize| {
            let path = folder.join(format!("object-{n}.bin"));
            write_random(&path, each, n as u64).map(|object| (path, object))
        };
        (0..gets).map(write).collect()
    })
    .await?;
    let files: Vec<_> = objects.iter().map(|(path, object)| (path.clone(), object.to_string())).collect();
    let ids: Vec<ObjectId> = objects.iter().map(|(_, object)| *object).collect();
    let shared = Shared { program, guard: &guard, folder: scratch.path(), files: &files, object: ids[0] };
    let scene = Scene::of(Scenario::Many, Some(total));
    let arrivals: Vec<_> = ids.iter().map(|id| (format!("{OBJECTS}/{id}"), *id)).collect();
    let seen = play(&shared, &scene, |layout| Ok(deployment(layout, &ids)), &arrivals).await?;
    let ideal = scene.ideal_seconds().expect("its links are limited");
    figures(&seen, gets, each, ideal)
}

fn deployment(layout: &Layout<'_>, ids: &[ObjectId]) -> Deployment {
    let program = layout.program.as_os_str().to_owned();
    let command = |role: Role, words: Vec<String>| {
        let state = layout.home(role).join("state").display().to_string();
        let words = words.into_iter().chain(["--json".to_owned(), "--state".to_owned(), state]);
        Part { role, command: std::iter::once(program.clone()).chain(words.map(Into::into)).collect() }
    };
    let node = Role::Receiver(0);
    let node_at = format!("{}:{PORT}", layout.receivers[0]);
    let up = ["up", "--listen", &node_at].map(str::to_owned).to_vec();
    let serve = |(n, at): (usize, &std::net::Ipv4Addr)| {
        let files =
            ids.iter().map(|id| layout.home(Role::Source(n)).join(id.to_string()).display().to_string());
        let listen = format!("{at}:{PORT}");
        let words = ["serve", "--controller", &node_at, "--listen", &listen].map(str::to_owned);
        (command(Role::Source(n), words.into_iter().chain(files).collect()), Ready::Says)
    };
    let holders = layout.sources.len().to_string();
    let words = ["bench", "gets", "--holders", &holders].map(str::to_owned).into_iter();
    let gets = command(node, words.chain(ids.iter().map(ToString::to_string)).collect());
    let standing = std::iter::once((command(node, up), Ready::Says));
    Deployment {
        standing: standing.chain(layout.sources.iter().enumerate().map(serve)).collect(),
        timed: vec![gets],
    }
}

fn figures(seen: &Seen, gets: usize, each: Bytes, ideal: f64) -> Result<ManyFigures, AppError> {
    let said = seen.said.as_ref().unwrap_or(&Value::Null);
    let times = said["each_seconds"].as_array().into_iter().flatten().filter_map(Value::as_f64);
    let times: Vec<f64> = times.collect();
    if times.len() != gets {
        return Err(AppError::Failed(format!("the node said nothing of {gets} gets: {said}")));
    }
    let total = each * gets as u64;
    let per_gib = |cpu: f64| ratio(cpu, in_gib(total));
    Ok(ManyFigures {
        seconds: seen.seconds,
        ideal_seconds: ideal,
        ratio: ratio(seen.seconds, ideal),
        mb_per_s: ratio(total.get() as f64 / 1e6, seen.seconds),
        fairness: jain(&times),
        fastest_seconds: times.iter().copied().fold(f64::INFINITY, f64::min),
        median_seconds: median_of(times.iter().copied()),
        slowest_seconds: times.iter().copied().fold(0.0, f64::max),
        peak_rss_bytes: said["peak_rss_bytes"].as_u64().unwrap_or(0),
        cpu_s_per_gib: per_gib(seen.source_cpu + seen.receiver_cpu),
        receiver_cpu_s_per_gib: per_gib(seen.receiver_cpu),
        sent_per_size: ratio(seen.sent.get() as f64, total.get() as f64),
    })
}

/// Jain's fairness index: 1 if all are equal, 1 / n if one has everything.
fn jain(values: &[f64]) -> f64 {
    let sum: f64 = values.iter().sum();
    let squares: f64 = values.iter().map(|value| value * value).sum();
    ratio(sum * sum, values.len() as f64 * squares)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fairness_is_one_among_equals_and_one_nth_where_one_has_all() {
        assert_eq!(jain(&[3.0; 7]), 1.0);
        assert_eq!(jain(&[1.0, 0.0, 0.0, 0.0]), 0.25);
        assert_eq!(jain(&[]), 0.0);
    }

    #[test]
    fn what_the_node_says_becomes_figures() {
        let said = json!({ "each_seconds": [1.0, 3.0, 2.0], "peak_rss_bytes": 4096 });
        let seen = Seen {
            seconds: 4.0,
            receiver_cpu: 0.5,
            source_cpu: 1.0,
            sent: Bytes::mib(1100),
            said: Some(said),
            ..Seen::default()
        };
        let run = figures(&seen, 3, Bytes::mib(1024), 2.0).unwrap();
        assert_eq!(
            (run.ratio, run.fastest_seconds, run.median_seconds, run.slowest_seconds),
            (2.0, 1.0, 2.0, 3.0)
        );
        assert_eq!((run.cpu_s_per_gib, run.peak_rss_bytes), (0.5, 4096));
        assert!(figures(&seen, 4, Bytes::mib(1), 2.0).is_err(), "one get is missing");
    }
}
