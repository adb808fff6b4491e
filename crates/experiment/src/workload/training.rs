//! Jobs that train neural networks with parameter servers (Courier §V-D), from a public trace (`data/SOURCES.md`).
//!
//! ```text
//!   iteration: workers --gradients--> parameter servers --parameters--> workers, computing, next iteration
//!              \-------- coflow -------------/ \-------- coflow --------/
//! ```
//! A worker has a GPU. Gradients and parameters are as large as the model, in 32 bits each, and each server has an equal part of them.

use std::sync::OnceLock;

use headwater_sim::packet::shuffle::{After, JobPlan, ReducerPlan};
use headwater_units::{Bytes, Duration, TaskId, Time};
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

static TRACE: &str = include_str!("../../data/tiresias-60-jobs.csv");

/// Parameters of the trace's models, in millions, as commonly published.
const MODELS: [(&str, f64); 10] = [
    ("vgg19", 143.67),
    ("vgg16", 138.36),
    ("vgg11", 132.86),
    ("alexnet", 61.10),
    ("resnet152", 60.19),
    ("resnet101", 44.55),
    ("resnet50", 25.56),
    ("inception4", 42.68),
    ("inception3", 27.16),
    ("googlenet", 6.62),
];
/// Bytes of a parameter.
const PARAMETER: f64 = 4.0;
/// Numbers of a job's coflows begin at its own number times this.
const COFLOWS: u64 = 100_000;

/// A job of the trace.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Job {
    gpus: u32,
    submitted: Duration,
    /// From the beginning of an iteration to that of the next, in the trace.
    iteration: Duration,
    iterations: u32,
    model: Bytes,
}

/// The coflows of the first jobs, with their GPUs multiplied and their iterations bounded, on `hosts` hosts. Sizes and
/// times are divided by `shrink`.
pub(super) fn plan(
    hosts: u32,
    seed: u64,
    shrink: f64,
    first: Option<u32>,
    (gpus, iterations): (u32, u32),
) -> Vec<JobPlan> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut plans = Vec::new();
    let most = first.map_or(usize::MAX, |first| first as usize);
    // How many workers each host has got, of all jobs.
    let mut workers_on = vec![0u32; hosts as usize];
    for (number, job) in (0..).zip(jobs().iter().take(most)) {
        let shrunk = |time: Duration| Duration::from_secs_f64(time.as_secs_f64() / shrink);
        let workers: Vec<u32> = (0..job.gpus * gpus).map(|_| least(&mut workers_on, &mut rng)).collect();
        let servers: Vec<u32> = (0..workers.len().div_ceil(2)).map(|_| rng.random_range(0..hosts)).collect();
        let part = job.model.get() as f64 / servers.len() as f64 / shrink;
        let part = Bytes::new(part.round().max(1.0) as u64);
        for iteration in 0..job.iterations.min(iterations) {
            for (half, (from, to)) in [(&workers, &servers), (&servers, &workers)].into_iter().enumerate() {
                let place = u64::from(iteration) * 2 + half as u64;
                // Computing takes what an iteration took in the trace, between parameters and the next gradients.
                let pause = if half == 0 { shrunk(job.iteration) } else { Duration::ZERO };
                let after = (place > 0).then(|| After { job: plans.len() - 1, pause });
                let outputs: Vec<(u32, Bytes)> = from.iter().map(|host| (*host, part)).collect();
                let reducer = |host: &u32| ReducerPlan { host: *host, outputs: outputs.clone() };
                plans.push(JobPlan {
                    task: TaskId(number * COFLOWS + place),
                    at: Time::ZERO + shrunk(job.submitted),
                    after,
                    reducers: to.iter().map(reducer).collect(),
                });
            }
        }
    }
    plans
}

/// One of the hosts with the fewest workers, which gets another.
fn least(workers_on: &mut [u32], rng: &mut ChaCha8Rng) -> u32 {
    let fewest = workers_on.iter().copied().min().unwrap_or(0);
    let mut free: Vec<usize> = (0..workers_on.len()).filter(|host| workers_on[*host] == fewest).collect();
    free.shuffle(rng);
    workers_on[free[0]] += 1;
    free[0] as u32
}

fn jobs() -> &'static [Job] {
    static JOBS: OnceLock<Vec<Job>> = OnceLock::new();
    JOBS.get_or_init(|| {
        let lines = TRACE.lines().skip(1).filter(|line| !line.trim().is_empty());
        lines.map(|line| job(line).expect("the shipped trace is in order")).collect()
    })
}

/// `job_id,num_gpu,submit_time,iterations,model_name,duration,interval`
fn job(line: &str) -> Option<Job> {
    let mut fields = line.trim().split(',').skip(1);
    let gpus = fields.next()?.parse().ok()?;
    let submitted = Duration::from_secs(fields.next()?.parse().ok()?);
    let iterations: u32 = fields.next()?.parse().ok()?;
    let name = fields.next()?;
    let duration: f64 = fields.next()?.parse().ok()?;
    let (_, millions) = MODELS.iter().find(|(model, _)| *model == name)?;
    Some(Job {
        gpus,
        submitted,
        iteration: Duration::from_secs_f64(duration / f64::from(iterations.max(1))),
        iterations,
        model: Bytes::new((millions * 1e6 * PARAMETER) as u64),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_trace_has_sixty_jobs_of_one_to_eight_gpus() {
        let jobs = jobs();
        assert_eq!((jobs.len(), jobs.iter().map(|job| job.gpus).max()), (60, Some(8)));
        assert_eq!(jobs[1].model, Bytes::new(531_440_000), "vgg11");
        assert_eq!(job("0,1,0,606,lenet,164,30"), None);
    }

    #[test]
    fn each_iteration_is_two_coflows_of_the_models_size_to_each_worker_and_from_each() {
        let plans = plan(16, 1, 1.0, Some(2), (2, 3));
        assert_eq!(plans.len(), 2 * 3 * 2);
        let of_second = &plans[6..];
        let bytes = |plan: &JobPlan| -> Vec<(usize, u64)> {
            plan.reducers
                .iter()
                .map(|it| (it.outputs.len(), it.outputs.iter().map(|it| it.1.get()).sum()))
                .collect()
        };
        // Sixteen workers, eight servers, which have an eighth of the model each.
        assert_eq!(bytes(&of_second[0]), vec![(16, 2 * 531_440_000); 8]);
        assert_eq!(bytes(&of_second[1]), vec![(8, 531_440_000); 16]);
        assert_eq!(of_second[0].after, None);
        let waits: Vec<usize> = of_second[1..].iter().map(|plan| plan.after.unwrap().job).collect();
        assert_eq!(waits, [6, 7, 8, 9, 10]);
        let computing = of_second[2].after.unwrap().pause.as_secs_f64();
        assert!((computing - 147.0 / 133.0).abs() < 1e-6, "{computing}");
        assert_eq!(plan(16, 1, 1.0, Some(2), (2, 3)), plans);
        assert_ne!(plan(16, 2, 1.0, Some(2), (2, 3)), plans);
    }

    #[test]
    fn workers_are_spread_evenly() {
        let plans = plan(16, 1, 1.0, None, (1, 1));
        let mut on = vec![0; 16];
        plans
            .iter()
            .step_by(2)
            .flat_map(|plan| &plan.reducers[0].outputs)
            .for_each(|(host, _)| on[*host as usize] += 1);
        assert!(on.iter().max().unwrap() - on.iter().min().unwrap() <= 1, "{on:?}");
    }
}
