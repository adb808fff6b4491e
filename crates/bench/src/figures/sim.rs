//! How fast the packet simulator is: jobs with known packet-hops, timed in CPU seconds.
//!
//! A packet-hop is one packet sent over one link, ACKs included. Jobs A1 and B are DCTCP on plain ports, as csg-htsim and
//! ns-3 run them too; A2 is NDP on ports that trim, as csg-htsim runs it. The others are PPUSH and SCDP with everything that the
//! product's machines do.

use std::time::Duration;

use cpu_time::ProcessTime;
use headwater_experiment::experiment::{Engine, Experiment, Scale};
use headwater_experiment::run::run_job;
use headwater_experiment::table::Tables;
use headwater_units::Bytes;
use serde::Serialize;
use thiserror::Error;

/// The first run of an experiment.
struct Job {
    name: &'static str,
    experiment: &'static str,
    text: &'static str,
    scale: Scale,
}

macro_rules! job {
    ($name:literal, $experiment:literal, $scale:ident) => {
        Job {
            name: $name,
            experiment: $experiment,
            text: include_str!(concat!("../../../../experiments/", $experiment, ".toml")),
            scale: Scale::$scale,
        }
    };
}

const JOBS: [Job; 5] = [
    job!("A1", "bench/ft128-perm", Paper),
    job!("A2", "bench/ft128-perm-ndp", Paper),
    job!("B", "bench/star16-incast", Paper),
    job!("ppush", "bench/ppush-obs", Paper),
    job!("S-7", "scdp/fig7", Small),
];

/// One job, measured.
#[derive(Clone, Debug, Serialize)]
pub struct SimBench {
    /// `A1` (permutation on a fat-tree of 128 hosts), `A2` (the same with NDP), `B` (16 hosts send to one), `ppush` (60 tasks on one
    /// big switch) or `S-7` (60 sessions of SCDP beside background on a fat-tree of 54 hosts).
    pub job: &'static str,
    /// Flows, or tasks, that ended.
    pub flows_done: u64,
    /// Packets sent over links, ACKs included.
    pub packet_hops: u64,
    /// Events handled.
    pub events: u64,
    /// CPU time of one run, user and system: the median of the repeats.
    pub cpu_seconds: f64,
    /// `packet_hops / cpu_seconds`.
    pub hops_per_cpu_second: f64,
    /// The most memory that this process ever had resident: of this job only if no larger one ran before it.
    pub peak_rss_bytes: u64,
    /// Packets dropped.
    pub drops: u64,
    /// Packets marked.
    pub marks: u64,
    /// Packets trimmed.
    pub trims: u64,
    /// Retransmissions by timeout.
    pub timeouts: u64,
    /// From a flow's start until its last ACK is back, or until its task is complete.
    pub fct_us: Fct,
}

/// Completion times, microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Fct {
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Longest.
    pub max: f64,
}

/// The benchmark cannot be run.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SimBenchError {
    /// No such job.
    #[error("there is no job '{0}'; there are A1, A2, B, ppush and S-7")]
    Unknown(String),
    /// A job's experiment does not run.
    #[error("job {job}: {why}")]
    Job {
        /// The job.
        job: &'static str,
        /// The problem.
        why: String,
    },
}

/// Runs one job, or all, `repeat` times each; says each when it is done.
///
/// # Errors
/// [`SimBenchError`].
pub fn run(
    job: Option<&str>,
    repeat: u32,
    mut done: impl FnMut(&SimBench),
) -> Result<Vec<SimBench>, SimBenchError> {
    let wanted: Vec<_> =
        JOBS.iter().filter(|it| job.is_none_or(|name| name.eq_ignore_ascii_case(it.name))).collect();
    if wanted.is_empty() {
        return Err(SimBenchError::Unknown(job.unwrap_or_default().to_owned()));
    }
    let mut results = Vec::new();
    for job in wanted {
        let result = measure(job, repeat.max(1))?;
        done(&result);
        results.push(result);
    }
    Ok(results)
}

fn measure(job: &Job, repeat: u32) -> Result<SimBench, SimBenchError> {
    let &Job { name: job, experiment, text, scale } = job;
    let wrong = |why: String| SimBenchError::Job { job, why };
    let experiment = Experiment::parse(experiment, text).map_err(|e| wrong(e.to_string()))?;
    let runs = experiment.jobs(Engine::Packet, scale, Some(1)).map_err(|e| wrong(e.to_string()))?;
    let run = runs.first().ok_or_else(|| wrong("it has no run".to_owned()))?;
    let mut times = Vec::new();
    let mut tables = None;
    for _ in 0..repeat {
        let before = ProcessTime::now();
        tables = Some(run_job(run, &mut |_| {}).map_err(|e| wrong(e.to_string()))?);
        times.push(before.elapsed());
    }
    times.sort();
    let cpu_seconds = Duration::as_secs_f64(&times[times.len() / 2]);
    let tables = tables.expect("it ran at least once");
    let value = |name| measured(&tables, name);
    let hops = value("hops");
    Ok(SimBench {
        job,
        flows_done: tables.tasks.rows() as u64,
        packet_hops: hops as u64,
        events: value("events") as u64,
        cpu_seconds,
        hops_per_cpu_second: hops / cpu_seconds,
        peak_rss_bytes: peak_resident().get(),
        drops: value("drops") as u64,
        marks: value("marks") as u64,
        trims: value("trims") as u64,
        timeouts: value("timeouts") as u64,
        fct_us: Fct {
            mean: value("fct_mean_s") * 1e6,
            p50: value("fct_p50_s") * 1e6,
            p99: value("fct_p99_s") * 1e6,
            max: value("fct_max_s") * 1e6,
        },
    })
}

fn measured(tables: &Tables, name: &str) -> f64 {
    let (Some(names), Some(values)) = (tables.measures.column("name"), tables.measures.column("value"))
    else {
        return f64::NAN;
    };
    let row = (0..tables.measures.rows()).find(|row| names.is(*row, name));
    row.and_then(|row| values.number(row)).unwrap_or(f64::NAN)
}

/// The most memory that this process had resident; zero where the system does not say.
fn peak_resident() -> Bytes {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    Bytes::kib(line.and_then(|l| l.trim().trim_end_matches("kB").trim().parse().ok()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_jobs_have_exactly_the_packet_hops_that_can_be_counted_by_hand() {
        let a1 = run(Some("A1"), 1, |_| {}).unwrap().remove(0);
        assert_eq!((a1.flows_done, a1.packet_hops, a1.drops), (128, 2_056_416, 0));
        assert!((a1.fct_us.mean / 245.9 - 1.0).abs() < 0.1, "csg-htsim: 245.9 us; {:?}", a1.fct_us);
        let a2 = run(Some("A2"), 1, |_| {}).unwrap().remove(0);
        assert_eq!((a2.flows_done, a2.timeouts), (128, 0));
        assert!((a2.fct_us.mean / 192.5 - 1.0).abs() < 0.01, "csg-htsim: 192.5 us; {:?}", a2.fct_us);
        assert!((a2.fct_us.max / 194.4 - 1.0).abs() < 0.01, "csg-htsim: 194.4 us; {:?}", a2.fct_us);
        let b = run(Some("b"), 1, |_| {}).unwrap().remove(0);
        assert_eq!((b.flows_done, b.packet_hops, b.drops), (16, 442_048, 0));
        assert!((b.fct_us.mean / 131_900.0 - 1.0).abs() < 0.05, "csg-htsim: 131.9 ms; {:?}", b.fct_us);
        assert!((b.fct_us.max / 132_700.0 - 1.0).abs() < 0.01, "csg-htsim: 132.7 ms; {:?}", b.fct_us);
        assert!(b.cpu_seconds > 0.0 && b.peak_rss_bytes > 1 << 20);
    }

    #[test]
    fn a_job_that_is_not_there_is_named_with_those_that_are() {
        assert!(run(Some("C"), 1, |_| {}).unwrap_err().to_string().contains("A1, A2, B, ppush and S-7"));
    }
}
