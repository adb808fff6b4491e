//! Coflow policies on a user's trace: read, run one by one or on threads, measured, and drawn.
//!
//! Completion times are the same on every run and for every number of threads; processor time and memory are those of this run.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use headwater_experiment::coflow::{PolicyName, Setup, Summary, complete};
use headwater_experiment::workload::coflow_trace::CoflowTrace;
use serde::Serialize;

use super::LabError;
use super::chart::Chart;
use super::files::write_whole;
use super::results::{Drawn, Kind, Line};

/// How often a run looks whether it shall stop.
const LOOK: Duration = Duration::from_millis(50);

/// Policies to run, and how.
#[derive(Clone, Debug)]
pub struct CoflowOptions {
    /// In this order.
    pub policies: Vec<PolicyName>,
    /// On this switch.
    pub setup: Setup,
    /// Number of runs at once.
    pub threads: usize,
}

/// A policy's result, as `--json` shows it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CoflowLine {
    /// Its name.
    pub policy: String,
    /// How many coflows the trace has.
    pub coflows: usize,
    /// Seconds from arrival to the last byte.
    pub mean_cct_s: f64,
    /// Half of the coflows take no longer.
    pub p50_cct_s: f64,
    /// 90 % take no longer.
    pub p90_cct_s: f64,
    /// 99 % take no longer.
    pub p99_cct_s: f64,
    /// The longest.
    pub max_cct_s: f64,
    /// Times that 10 %, 20 % and so on do not exceed; the last is the longest.
    pub deciles_s: [f64; 10],
    /// Processor time; `None` where the kernel does not say.
    pub cpu_seconds: Option<f64>,
    /// The most memory of this process while it ran; `None` where the kernel does not say.
    pub peak_rss_bytes: Option<u64>,
}

/// A policy's result in full.
#[derive(Clone, Debug)]
pub struct CoflowOutcome {
    /// In short.
    pub line: CoflowLine,
    /// By width and length.
    pub summary: Summary,
    /// Of every coflow, in the order of the trace.
    pub seconds: Vec<f64>,
}

/// Reads a trace.
///
/// # Errors
/// [`LabError`] if it cannot be read, or a field is wrong.
pub fn read_trace(path: &Path) -> Result<CoflowTrace, LabError> {
    let bytes = fs::read(path).map_err(|source| LabError::read(path, source))?;
    let trace = CoflowTrace::parse(&bytes);
    trace.map_err(|source| LabError::Trace { path: path.to_owned(), source: Box::new(source) })
}

/// Runs a trace by some policies; what each gave, in their order. Tells `over` of each that is over.
///
/// # Errors
/// [`LabError`] if a run fails, or `stop` says so: no run is kept.
pub fn run_coflows(
    trace: &Arc<CoflowTrace>,
    options: &CoflowOptions,
    stop: &dyn Fn() -> bool,
    over: &mut dyn FnMut(&CoflowLine),
) -> Result<Vec<CoflowOutcome>, LabError> {
    let (sender, receiver) = channel();
    let next = Arc::new(AtomicUsize::new(0));
    let count = options.policies.len();
    for _ in 0..options.threads.clamp(1, count.max(1)) {
        let (sender, next, trace) = (sender.clone(), next.clone(), trace.clone());
        let (policies, setup) = (options.policies.clone(), options.setup);
        let work = move || {
            while let Some(policy) = policies.get(next.fetch_add(1, Ordering::Relaxed)) {
                if sender.send((*policy, run_one(&trace, &setup, *policy))).is_err() {
                    break;
                }
            }
        };
        // Not joined: a run that nobody waits for any more ends with the process.
        thread::Builder::new().name("coflow".to_owned()).spawn(work).map_err(LabError::Threads)?;
    }
    drop(sender);
    let mut outcomes: Vec<(PolicyName, CoflowOutcome)> = Vec::new();
    while outcomes.len() < count {
        match receiver.recv_timeout(LOOK) {
            Ok((policy, outcome)) => {
                let outcome = outcome?;
                over(&outcome.line);
                outcomes.push((policy, outcome));
            }
            Err(RecvTimeoutError::Timeout) if stop() => return Err(LabError::CoflowsStopped),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(LabError::CoflowThread),
        }
    }
    let place = |policy: &PolicyName| options.policies.iter().position(|other| other == policy);
    outcomes.sort_by_key(|(policy, _)| place(policy));
    Ok(outcomes.into_iter().map(|(_, outcome)| outcome).collect())
}

fn run_one(trace: &CoflowTrace, setup: &Setup, policy: PolicyName) -> Result<CoflowOutcome, LabError> {
    forget_peak();
    let before = processor_seconds();
    let failed = |reason: String| LabError::Coflow { policy: policy.to_string(), reason };
    let seconds = complete(trace, setup, policy).map_err(|error| failed(error.to_string()))?;
    let cpu_seconds = processor_seconds().zip(before).map(|(after, before)| after - before);
    let summary = Summary::of(trace, &seconds).ok_or_else(|| failed("the trace is empty".to_owned()))?;
    let all = &summary.all;
    let line = CoflowLine {
        policy: policy.to_string(),
        coflows: all.coflows,
        mean_cct_s: all.mean,
        p50_cct_s: all.p50(),
        p90_cct_s: all.p90(),
        p99_cct_s: all.p99,
        max_cct_s: all.max(),
        deciles_s: all.deciles,
        cpu_seconds,
        peak_rss_bytes: peak(),
    };
    Ok(CoflowOutcome { line, summary, seconds })
}

/// Processor time of this thread so far, in seconds.
fn processor_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanos: u64 = stat.split(' ').next()?.parse().ok()?;
    Some(nanos as f64 / 1e9)
}

/// The most memory of this process since it was last forgotten.
fn peak() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib << 10)
}

/// Begins to count the peak anew. Where the kernel does not allow it, the peak is that of the whole process so far.
fn forget_peak() {
    let file = fs::OpenOptions::new().write(true).open("/proc/self/clear_refs");
    drop(file.and_then(|mut file| file.write_all(b"5")));
}

/// Draws the distribution of completion times by each policy, as SVG or PNG by the name's end.
///
/// # Errors
/// [`LabError`] if the name ends otherwise, or the file cannot be written.
pub fn draw_coflows(outcomes: &[CoflowOutcome], path: &Path) -> Result<(), LabError> {
    let line = |outcome: &CoflowOutcome| {
        let mut sorted = outcome.seconds.clone();
        sorted.sort_by(f64::total_cmp);
        let count = sorted.len() as f64;
        let points = sorted.iter().enumerate().map(|(at, x)| vec![Some(*x), Some((at + 1) as f64 / count)]);
        Line { name: outcome.line.policy.clone(), points: points.collect() }
    };
    let drawn = Drawn {
        title: "Coflow completion times".to_owned(),
        kind: Kind::Cdf,
        x_label: "completion time (s)".to_owned(),
        y_label: "part of the coflows".to_owned(),
        log_x: true,
        log_y: false,
        categories: Vec::new(),
        series: outcomes.iter().map(line).collect(),
    };
    let Some(chart) = Chart::new(&[("flow", &drawn)]) else { return Ok(()) };
    let bytes = match plot_format(path)? {
        PlotFormat::Svg => chart.svg()?.into_bytes(),
        PlotFormat::Png => chart.png()?,
    };
    let written = write_whole(path, |file| file.write_all(&bytes));
    written.map_err(|source| LabError::write(path, "--plot", source))
}

/// How a plot is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlotFormat {
    /// As an SVG file.
    Svg,
    /// As a PNG file.
    Png,
}

/// The format that a file's name asks for.
///
/// # Errors
/// [`LabError::PlotName`] if it ends neither in .svg nor in .png.
pub fn plot_format(path: &Path) -> Result<PlotFormat, LabError> {
    match path.extension().and_then(|end| end.to_str()) {
        Some("svg") => Ok(PlotFormat::Svg),
        Some("png") => Ok(PlotFormat::Png),
        _ => Err(LabError::PlotName { path: path.to_owned() }),
    }
}
