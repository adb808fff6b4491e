//! Delivery beside what a user would run instead, on one machine: every peer in turn, on the same network of namespaces, with
//! the same object, and what arrives is compared with its hash.
//!
//! ```text
//!   Scene (scenario: links, events, ideal)  +  Deployment (peers: commands)  ->  stage: one run  ->  DeliveryRun -> DeliveryMedian
//! ```
//! Seconds run from the start of the receivers' processes to the exit of the last (of uftp, which pushes, of the sender).
//! Peers take turns in every round, so that a machine that gets busier does so for all. Objects are in memory where it is a file
//! system, and random.
//!
//! It says nothing of real networks: virtual cables, no delay, and both ends on the same processors.

mod cgroup;
mod many;
mod peers;
mod scenario;
mod stage;
mod torrent;

use std::path::Path;

use headwater_api::{AppError, Shutdown};
use headwater_testbed::netns::Capability;
use headwater_units::Bytes;
use serde::Serialize;

use super::{BenchWatch, median_of, ratio};
use crate::subprocess::{Scratch, write_random};

pub use many::{ManyFigures, ManyRun};
pub use peers::Peer;
pub use scenario::Scenario;

use peers::NAME;
use scenario::Scene;
use stage::{Seen, Shared, blocking, in_gib, play};

/// Where the object's bytes come from.
const SEED: u64 = 1;

/// Options of the comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct DeliveryOptions {
    /// In these settings, in this order.
    pub scenarios: Vec<Scenario>,
    /// Of the object; `None` is 256 MiB where links are limited, 1 GiB where not, and 10 MiB for each of many.
    pub size: Option<Bytes>,
    /// Rounds; medians count.
    pub repeat: u32,
    /// Peers that take part, where they can and are installed.
    pub peers: Vec<Peer>,
    /// Gets at the same time, for [`Scenario::Many`]; one run each.
    pub gets: Vec<usize>,
}

/// Something to print.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum DeliveryLine {
    /// A peer that cannot take part.
    Missing {
        /// The peer.
        peer: Peer,
        /// The missing programs.
        why: String,
    },
    /// One run.
    Run(DeliveryRun),
    /// All runs of a peer in a scenario.
    Median(DeliveryMedian),
    /// Many gets into one node.
    Many(ManyRun),
}

/// One run of one peer. A run that failed has `error` and no figures.
#[derive(Clone, Debug, Serialize)]
pub struct DeliveryRun {
    /// The setting.
    pub scenario: Scenario,
    /// Peer that was measured.
    pub peer: Peer,
    /// From 1.
    pub round: u32,
    /// Of the object.
    pub bytes: u64,
    /// Measured figures.
    #[serde(flatten)]
    pub figures: Option<Figures>,
    /// Whether the file was compared with the object's hash afterwards, by us; it was the same, or there is an error.
    pub checked: bool,
    /// Whether CPU time is from `cgroup` or from `proc`, in ticks of 10 ms.
    pub cpu_by: &'static str,
    /// Load average of the last minute at the end: above the number of processors, distrust the seconds.
    pub load: f64,
    /// The error.
    pub error: Option<String>,
}

/// Figures of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Figures {
    /// From the start of the receivers to the exit of the last.
    pub seconds: f64,
    /// Size over what the links carry, with what happens counted in; `None` where no link is limited.
    pub ideal_seconds: Option<f64>,
    /// `seconds / ideal_seconds`.
    pub ratio: Option<f64>,
    /// Below this ratio headers alone let nobody go; `None` where there is none.
    pub wire_floor: Option<f64>,
    /// Bytes of the object per second, in millions.
    pub mb_per_s: f64,
    /// CPU seconds of all processes per GiB delivered (the size times the receivers).
    pub cpu_s_per_gib: f64,
    /// Of that, the sources'.
    pub source_cpu_s_per_gib: f64,
    /// Of that, the receivers'.
    pub receiver_cpu_s_per_gib: f64,
    /// Bytes that the sources put on the wire over the size: about 1 is one copy.
    pub sent_per_size: f64,
    /// When the first receiver was done.
    pub first_seconds: f64,
}

/// The medians of a peer in a scenario.
#[derive(Clone, Debug, Serialize)]
pub struct DeliveryMedian {
    /// The setting.
    pub scenario: Scenario,
    /// Peer that was measured.
    pub peer: Peer,
    /// Runs that went well.
    pub runs: usize,
    /// Runs that did not.
    pub failed: usize,
    /// Each figure's median.
    #[serde(flatten)]
    pub figures: Figures,
    /// Its seconds over Headwater's: above 1 it takes longer.
    pub times_ours: Option<f64>,
}

/// Compares; says each line when it is known, and returns all.
///
/// A run that fails is a line with an error, and the others go on.
///
/// # Errors
/// No networks of namespaces, no room, or [`AppError::Interrupted`]; nothing is left behind.
pub async fn run(
    options: &DeliveryOptions,
    shutdown: &Shutdown,
    watch: &mut dyn BenchWatch,
    say: &mut dyn FnMut(&DeliveryLine),
) -> Result<Vec<DeliveryLine>, AppError> {
    let probed = blocking(|| Ok(Capability::probe())).await?;
    probed.map_err(|why| AppError::Failed(why.to_string()))?;
    let program = std::env::current_exe()
        .map_err(|source| AppError::io("cannot find this program's own file", source))?;
    let mut lines = Lines { all: Vec::new(), say };
    let compare = Compare { options, program: &program };
    tokio::select! {
        result = compare.all(watch, &mut lines) => result?,
        // Files and namespaces of the runs go when they are dropped.
        () = shutdown.wait() => return Err(AppError::Interrupted { resumable: false }),
    }
    Ok(lines.all)
}

struct Lines<'a> {
    all: Vec<DeliveryLine>,
    say: &'a mut dyn FnMut(&DeliveryLine),
}

impl Lines<'_> {
    fn add(&mut self, line: DeliveryLine) {
        (self.say)(&line);
        self.all.push(line);
    }
}

struct Compare<'a> {
    options: &'a DeliveryOptions,
    program: &'a Path,
}

impl Compare<'_> {
    async fn all(&self, watch: &mut dyn BenchWatch, lines: &mut Lines<'_>) -> Result<(), AppError> {
        let (mut peers, scenarios) = (Vec::new(), &self.options.scenarios);
        for &peer in &self.options.peers {
            match peer.missing() {
                None => peers.push(peer),
                Some(why) if scenarios.iter().any(|scenario| peer.plays(*scenario)) => {
                    lines.add(DeliveryLine::Missing { peer, why });
                }
                Some(_) => {}
            }
        }
        for &scenario in scenarios {
            match scenario {
                Scenario::Many => self.many(watch, lines).await,
                _ => self.scenario(scenario, &peers, watch, lines).await?,
            }
        }
        Ok(())
    }

    async fn many(&self, watch: &mut dyn BenchWatch, lines: &mut Lines<'_>) {
        for (index, gets) in self.options.gets.iter().enumerate() {
            watch.begun(&format!("many: {gets} gets"), index + 1, self.options.gets.len());
            lines.add(DeliveryLine::Many(many::run(self.program, *gets, self.options.size).await));
        }
    }

    async fn scenario(
        &self,
        scenario: Scenario,
        peers: &[Peer],
        watch: &mut dyn BenchWatch,
        lines: &mut Lines<'_>,
    ) -> Result<(), AppError> {
        let scene = Scene::of(scenario, self.options.size);
        let peers: Vec<Peer> = peers.iter().copied().filter(|peer| peer.plays(scenario)).collect();
        let copies = (1 + scene.receivers as u64).div_ceil(2);
        let (scratch, guard) = Scratch::create_guarded("bench", scene.size * copies, false)?;
        let (file, size) = (scratch.path().join(NAME), scene.size);
        let object = blocking({
            let file = file.clone();
            move || write_random(&file, size, SEED)
        })
        .await?;
        let files = [(file, NAME.to_owned())];
        let shared =
            Shared { program: self.program, guard: &guard, folder: scratch.path(), files: &files, object };
        let of = peers.len() * self.options.repeat as usize;
        let mut runs: Vec<DeliveryRun> = Vec::new();
        for round in 1..=self.options.repeat {
            for &peer in &peers {
                watch.begun(&format!("{scenario}: {peer}"), runs.len() + 1, of);
                let arrivals = [(NAME.to_owned(), object)];
                let arrivals = if peer.writes() { &arrivals[..] } else { &[] };
                let seen = play(&shared, &scene, |layout| layout.deployment(peer), arrivals).await;
                let run = run_of(&scene, peer, round, seen);
                lines.add(DeliveryLine::Run(run.clone()));
                runs.push(run);
            }
        }
        medians(scenario, &peers, &runs).into_iter().for_each(|m| lines.add(DeliveryLine::Median(m)));
        // Files of a GiB take a moment to go.
        blocking(move || {
            drop((scratch, guard));
            Ok(())
        })
        .await
    }
}

fn run_of(scene: &Scene, peer: Peer, round: u32, seen: Result<Seen, AppError>) -> DeliveryRun {
    let (seen, error) = match seen {
        Ok(seen) => (Some(seen), None),
        Err(error) => (None, Some(error.to_string())),
    };
    DeliveryRun {
        scenario: scene.scenario,
        peer,
        round,
        bytes: scene.size.get(),
        figures: seen.as_ref().map(|seen| figures(scene, peer, seen)),
        checked: seen.is_some() && peer.writes(),
        cpu_by: if seen.is_some_and(|seen| seen.by_group) { "cgroup" } else { "proc" },
        load: load(),
        error,
    }
}

fn figures(scene: &Scene, peer: Peer, seen: &Seen) -> Figures {
    let ideal = scene.ideal_seconds();
    let size = scene.size.get() as f64;
    let per_gib = |cpu: f64| ratio(cpu, in_gib(scene.size) * scene.receivers as f64);
    let said = seen.said.as_ref().and_then(|said| said["wire_floor"].as_f64());
    Figures {
        seconds: seen.seconds,
        ideal_seconds: ideal,
        ratio: ideal.map(|ideal| ratio(seen.seconds, ideal)),
        wire_floor: ideal.and(peer.wire_floor().or(said)),
        mb_per_s: ratio(size / 1e6, seen.seconds),
        cpu_s_per_gib: per_gib(seen.source_cpu + seen.receiver_cpu),
        source_cpu_s_per_gib: per_gib(seen.source_cpu),
        receiver_cpu_s_per_gib: per_gib(seen.receiver_cpu),
        sent_per_size: ratio(seen.sent.get() as f64, size),
        first_seconds: seen.first_seconds,
    }
}

/// One line per peer that had a run that went well or not.
fn medians(scenario: Scenario, peers: &[Peer], runs: &[DeliveryRun]) -> Vec<DeliveryMedian> {
    let of = |peer: Peer| {
        let own = runs.iter().filter(move |run| run.peer == peer);
        let good: Vec<Figures> = own.clone().filter_map(|run| run.figures).collect();
        (good, own.filter(|run| run.error.is_some()).count())
    };
    let (ours, _) = of(Peer::Headwater);
    let ours = median_of(ours.iter().map(|figures| figures.seconds));
    let of_peer = |&peer: &Peer| {
        let (good, failed) = of(peer);
        let each = |value: fn(&Figures) -> f64| {
            // A scenario that never went well has no figures; JSON has no NaN either.
            if good.is_empty() { 0.0 } else { median_of(good.iter().map(value)) }
        };
        let some = |value: fn(&Figures) -> Option<f64>| {
            let values: Vec<f64> = good.iter().filter_map(value).collect();
            (!values.is_empty()).then(|| median_of(values))
        };
        let figures = Figures {
            seconds: each(|f| f.seconds),
            ideal_seconds: some(|f| f.ideal_seconds),
            ratio: some(|f| f.ratio),
            wire_floor: some(|f| f.wire_floor),
            mb_per_s: each(|f| f.mb_per_s),
            cpu_s_per_gib: each(|f| f.cpu_s_per_gib),
            source_cpu_s_per_gib: each(|f| f.source_cpu_s_per_gib),
            receiver_cpu_s_per_gib: each(|f| f.receiver_cpu_s_per_gib),
            sent_per_size: each(|f| f.sent_per_size),
            first_seconds: each(|f| f.first_seconds),
        };
        let times_ours = (!good.is_empty() && ours > 0.0).then(|| figures.seconds / ours);
        DeliveryMedian { scenario, peer, runs: good.len(), failed, figures, times_ours }
    };
    peers.iter().map(of_peer).collect()
}

/// The load average of the last minute; 0 where the system does not say.
fn load() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0.0)
}

#[cfg(test)]
mod tests;
