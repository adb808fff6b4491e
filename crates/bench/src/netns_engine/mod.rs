//! The netns engine: a scenario's tasks with real daemons on real packets.
//!
//! ```text
//!  scenario, seed --> Stage: who wants what, and when                     (headwater_experiment::run)
//!                 --> EmulatedNet: the fabric, under real packets         (headwater_testbed::emulate)
//!                 --> Deployment: a `serve` per source, a `get` per task, a controller; `debug tcp` where the scheme is TCP,
//!                                agents or servers, and `debug shuffle fetch` per host, for a shuffle; a node per host, and `cast`,
//!                                for what goes to several
//!                     play: starts, stops and host faults at their times; queues are sampled meanwhile
//!                 --> Records, as the packet engine leaves them --> the same tables, judged by the same claims
//! ```
//! Everything has one clock, CLOCK_MONOTONIC: the switch's samples, the daemons' timelines and the results of `get`.
//!
//! A run in real time measures the machine too. When the switch was late ([`headwater_testbed::soft_switch::Validity`]) nothing that was
//! seen counts: the run is tried again, [`TRIES`] times and for [`PATIENCE`] at least, and then skipped. Where there are two
//! processors or more, one is the switch's alone ([`Reserved`]), and all programs share the others.
//!
//! Differences from the packet engine: control messages share the network with data, hosts need processor time, and TCP
//! is the kernel's.

mod cast;
mod cluster;
mod deployment;
mod groups;
mod play;
mod recipe;
mod records;
mod shuffle;
mod timeline;

use std::time::Duration as Patience;

use headwater_experiment::experiment::Job;
use headwater_experiment::run::{CastStage, RunError, ShuffleStage, Stage};
use headwater_experiment::scenario::{Scenario, Scheme};
use headwater_experiment::table::{MeasureRow, Tables};
use headwater_lab::{ModelError, RunContext};
use headwater_testbed::emulate::EmulateError;
use headwater_testbed::soft_switch::{Reserved, SoftSwitchError, Validity};

use deployment::{Deployment, before, deadline};
use headwater_api::AppError;

/// Number of times that a run is tried at least before the machine counts as too busy for it,
const TRIES: u32 = 3;
/// and the least time: short runs are often disturbed by something that is over in a second.
const PATIENCE: Patience = Patience::from_secs(10);

/// Runs a job; see the module's description.
///
/// # Errors
/// [`ModelError`]; nothing of the run is left behind, whatever happens.
pub(crate) fn run(job: &Job, context: &RunContext, watch: &mut dyn FnMut(f64)) -> Result<Tables, ModelError> {
    let scenario = &job.scenario;
    let stage = Stage::new(scenario, job.seed).map_err(Trouble::from)?;
    let reserved = Reserved::take();
    let processor = reserved.as_ref().map(Reserved::processor);
    let patience = deadline(PATIENCE);
    let mut tries = 0;
    loop {
        let (mut tables, seen) = attempt(scenario, &stage, job.seed, processor, context, watch)?;
        if seen.valid {
            let (name, value) = ("invalid_tries".to_owned(), f64::from(tries));
            MeasureRow { name, value }.push(&mut tables.measures);
            return Ok(tables);
        }
        tries += 1;
        if tries >= TRIES && !before(patience) {
            return Err(ModelError::Skipped(format!(
                "invalid: machine too busy (p99 lateness {:.0} us, read after p99 {:.0} us, limit {:.0} us, {} packets \
                 missed, {tries} tries)",
                micros(seen.p99),
                micros(seen.read_p99),
                micros(seen.limit),
                seen.missed
            )));
        }
    }
}

fn attempt(
    scenario: &Scenario,
    stage: &Stage,
    seed: u64,
    processor: Option<usize>,
    context: &RunContext,
    watch: &mut dyn FnMut(f64),
) -> Result<(Tables, Validity), Trouble> {
    let casting = match scenario.scheme {
        Scheme::Cast => Some(CastStage::new(scenario)?),
        _ => None,
    };
    let shuffle = ShuffleStage::new(scenario, seed, stage.hosts.len() as u32);
    let kind = match (&casting, &shuffle) {
        (Some(casting), _) => Kind::Cast(casting),
        (None, Some(shuffle)) => Kind::Shuffle(shuffle),
        (None, None) if scenario.scheme == Scheme::Pam => Kind::Groups,
        (None, None) => Kind::Tasks,
    };
    let mut deployment = Deployment::ready(scenario, stage, kind, seed, processor, context)?;
    let (mut tables, played) = match kind {
        Kind::Shuffle(shuffle) => {
            let shuffled = shuffle::play(&mut deployment, shuffle, stage, context, watch)?;
            deployment.leave()?;
            (shuffle::tables(shuffle, &deployment.net, &shuffled), shuffled.played)
        }
        Kind::Cast(casting) => {
            let played = play::play(&mut deployment, stage, kind, context, watch)?;
            deployment.leave()?;
            (cast::tables(casting, stage, &deployment.net, &played), played)
        }
        Kind::Tasks | Kind::Groups => {
            let played = play::play(&mut deployment, stage, kind, context, watch)?;
            let timelines = deployment.leave()?;
            let records = records::records(stage, kind, &deployment.objects, &played, &timelines)?;
            let mut tables = stage.tables(&records);
            if let Kind::Groups = kind {
                let (name, value) = ("signalling_s".to_owned(), groups::signalling(stage, &records));
                MeasureRow { name, value }.push(&mut tables.measures);
            }
            (tables, played)
        }
    };
    let validity = played.last.validity;
    deployment.close()?;
    for (name, value) in [
        ("lateness_p99_us", micros(validity.p99)),
        ("read_p99_us", micros(validity.read_p99)),
        ("packets_per_s", validity.sent as f64 / played.seconds()),
    ] {
        MeasureRow { name: name.to_owned(), value }.push(&mut tables.measures);
    }
    Ok((tables, validity))
}

/// Kind of workload.
#[derive(Clone, Copy)]
enum Kind<'a> {
    /// Tasks of one receiver each, and background.
    Tasks,
    /// Tasks of several receivers.
    Groups,
    /// A cast.
    Cast(&'a CastStage<'a>),
    /// Jobs that fetch map outputs.
    Shuffle(&'a ShuffleStage<'a>),
}

fn micros(duration: headwater_units::Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

/// Why an attempt gave nothing.
#[derive(Debug)]
enum Trouble {
    /// No engine of real packets can do it.
    Unsupported(String),
    /// Not on this machine.
    Unavailable(String),
    /// The user stopped it.
    Stopped,
    /// Something went wrong.
    Failed(String),
}

impl From<Trouble> for ModelError {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Unsupported(what) => {
                ModelError::NotModelled(format!("the netns engine cannot run this: {what}"))
            }
            Trouble::Unavailable(what) => ModelError::Skipped(what),
            Trouble::Stopped => ModelError::Stopped,
            Trouble::Failed(what) => ModelError::Failed(what),
        }
    }
}

impl From<RunError> for Trouble {
    fn from(error: RunError) -> Self {
        match error {
            RunError::Unsupported { what, .. } => Trouble::Unsupported(what),
            other => Trouble::Failed(other.to_string()),
        }
    }
}

impl From<EmulateError> for Trouble {
    fn from(error: EmulateError) -> Self {
        let text = error.to_string();
        match error {
            EmulateError::Unavailable(_) => Trouble::Unavailable(text),
            EmulateError::Size { .. } | EmulateError::Cables { .. } => Trouble::Unsupported(text),
            _ => Trouble::Failed(text),
        }
    }
}

impl From<SoftSwitchError> for Trouble {
    fn from(error: SoftSwitchError) -> Self {
        Trouble::Failed(error.to_string())
    }
}

impl From<AppError> for Trouble {
    fn from(error: AppError) -> Self {
        Trouble::Failed(error.to_string())
    }
}
