//! The timed engine: computations of the product itself, and how long they take on this machine.
//!
//! Times are of the thread's processor, so that what else runs here counts less; each is the median of some repetitions.

use std::time::Duration;

use cpu_time::ThreadTime;
use headwater_experiment::experiment::{Engine, Job};
use headwater_experiment::run::{RunError, TreeSearch};
use headwater_experiment::table::{FlowRow, MeasureRow, SampleRow, Tables, TaskRow};
use headwater_experiment::workload::Workload;
use headwater_lab::{ModelError, RunContext};

use crate::figures::codec::{self, Wanted};

/// How often each computation is timed.
const REPETITIONS: u32 = 5;

/// Runs a job.
///
/// # Errors
/// [`ModelError`] if it is no such computation, or was stopped.
pub(crate) fn run(job: &Job, context: &RunContext, watch: &mut dyn FnMut(f64)) -> Result<Tables, ModelError> {
    let measures = match job.scenario.workload {
        Workload::Group { .. } => trees(job, context)?,
        Workload::Coding { source_symbols, symbol_size, loss, trials } => {
            let wanted = Wanted {
                source_symbols: vec![source_symbols],
                symbol_sizes: vec![symbol_size],
                losses: vec![loss],
                repeat: REPETITIONS,
            };
            coding(&wanted, trials, job.seed, context, watch)?
        }
        _ => {
            let what = "the timed engine runs workloads of kind 'group' and 'coding'";
            return Err(ModelError::NotModelled(what.into()));
        }
    };
    watch(1.0);
    let mut rows = MeasureRow::table();
    for (name, value) in measures {
        MeasureRow { name, value }.push(&mut rows);
    }
    Ok(Tables {
        tasks: TaskRow::table(),
        flows: FlowRow::table(),
        samples: SampleRow::table(),
        measures: rows,
    })
}

type Measures = Vec<(String, f64)>;

/// How long it takes to compute a group's trees from nothing (Datacast §VI-A1).
fn trees(job: &Job, context: &RunContext) -> Result<Measures, ModelError> {
    let search = TreeSearch::new(&job.scenario, job.seed, Engine::Timed)
        .map_err(|error: RunError| ModelError::NotModelled(error.to_string()))?;
    let (mut times, mut count) = (Vec::new(), 0);
    for _ in 0..REPETITIONS {
        if context.stop() {
            return Err(ModelError::Stopped);
        }
        let begun = ThreadTime::now();
        count = search.run().trees.len();
        times.push(begun.elapsed());
    }
    Ok(vec![("tree_seconds".to_owned(), median(times).as_secs_f64()), ("trees".to_owned(), count as f64)])
}

/// How fast blocks are coded and decoded by one core, Gbit/s of the object, and how often blocks do not decode.
fn coding(
    wanted: &Wanted,
    trials: u32,
    seed: u64,
    context: &RunContext,
    watch: &mut dyn FnMut(f64),
) -> Result<Measures, ModelError> {
    let failed = |error: codec::CodecBenchError| ModelError::Failed(error.to_string());
    let mut measures = Vec::new();
    for speed in codec::run(wanted, |_| {}).map_err(failed)? {
        measures.push((format!("{}_gbit_per_s", speed.op), speed.mb_per_s * 8.0 / 1000.0));
    }
    let mut failures = [0; 3];
    // In pieces, so that a stop is not kept waiting.
    const PIECE: u32 = 500;
    let pieces = trials.div_ceil(PIECE);
    for piece in 0..pieces {
        if context.stop() {
            return Err(ModelError::Stopped);
        }
        let blocks = PIECE.min(trials - piece * PIECE);
        let stream = seed << 32 | u64::from(piece);
        for row in codec::failures(wanted, blocks, stream, |_| {}).map_err(failed)? {
            failures[row.extra as usize] += row.failed;
        }
        watch(f64::from(piece + 1) / f64::from(pieces));
    }
    for (extra, failed) in failures.into_iter().enumerate() {
        measures.push((format!("failed_with_{extra}_more"), f64::from(failed) / f64::from(trials.max(1))));
    }
    Ok(measures)
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

#[cfg(test)]
mod tests {
    use headwater_experiment::experiment::{Experiment, Scale};

    use super::*;

    fn jobs(id: &str, text: &str) -> Vec<Job> {
        let experiment = Experiment::parse(id, text).unwrap();
        experiment.jobs(Engine::Timed, Scale::Small, Some(1)).unwrap()
    }

    /// Measures of a run, by name.
    fn measured(job: &Job) -> Vec<(String, f64)> {
        let tables = run(job, &RunContext::default(), &mut |_| {}).unwrap();
        let (names, values) =
            (tables.measures.column("name").unwrap(), tables.measures.column("value").unwrap());
        (0..tables.measures.rows()).map(|row| (names.text(row), values.number(row).unwrap())).collect()
    }

    #[test]
    fn trees_are_found_and_take_time() {
        let jobs = jobs("datacast/fig5-time", include_str!("../../../experiments/datacast/fig5-time.toml"));
        for job in &jobs {
            let measured = measured(job);
            let [(time, seconds), (trees, count)] = &measured[..] else { panic!("{measured:?}") };
            assert_eq!((time.as_str(), trees.as_str()), ("tree_seconds", "trees"));
            assert!(*seconds > 0.0 && *count >= 1.0, "{measured:?}");
        }
    }

    #[test]
    fn blocks_are_coded_decoded_and_sometimes_not() {
        let jobs = jobs("scdp/coding", include_str!("../../../experiments/scdp/coding.toml"));
        let measured = measured(&jobs[0]);
        let of = |wanted: &str| measured.iter().find(|(name, _)| name == wanted).unwrap().1;
        assert!(of("decode_gbit_per_s") > 0.0 && of("encode_gbit_per_s") > 0.0, "{measured:?}");
        // One in 256 of 2000, as a random system over 256 elements has it.
        assert!((0.0005..0.015).contains(&of("failed_with_0_more")), "{measured:?}");
        assert!(of("failed_with_2_more") <= of("failed_with_1_more"), "{measured:?}");
        assert_eq!(measured, measured_again(&jobs[0], &measured), "failures are those of the seed");
    }

    /// The same run once more, with the first one's times.
    fn measured_again(job: &Job, first: &[(String, f64)]) -> Vec<(String, f64)> {
        let again = measured(job);
        let pairs = again.into_iter().zip(first);
        pairs.map(|(now, then)| if now.0.ends_with("per_s") { then.clone() } else { now }).collect()
    }

    #[test]
    fn nothing_else_is_timed() {
        let mut job = jobs("scdp/coding", include_str!("../../../experiments/scdp/coding.toml")).remove(0);
        job.scenario.workload = Workload::Permutation { multiplier: 1, offset: 1, packets: 1 };
        let refused = run(&job, &RunContext::default(), &mut |_| {});
        assert!(matches!(refused, Err(ModelError::NotModelled(_))), "{refused:?}");
    }
}
