//! The transfer itself: what the receiver says, and what happens to the sources meanwhile.

use std::time::Duration;

use headwater_api::{AppError, GetResult, Progress, SourceShare, Watch};
use headwater_units::BitRate;
use serde_json::Value;
use tokio::time::{Instant, sleep_until, timeout};

use super::environment::Role;
use super::progress::{error_of, progress_of};
use super::script::{Event, Happening};
use super::stage::{NAME, Stage};
use super::{DemoResult, Joined, Killed, Rerated, Run, blocking, failure, sending_flags};
use crate::subprocess::{self, Process, cpu_seconds};

/// Name of the received file.
const OUTPUT: &str = "received.bin";
/// Multiple of the ideal, and time on top, after which a transfer is stuck.
const STUCK: (f64, Duration) = (20.0, Duration::from_secs(60));
/// How long the receiver may take to begin.
const BEGIN: Duration = Duration::from_secs(30);

/// Interval between looks at the sources.
const TICK: Duration = Duration::from_millis(50);

/// Observations while it ran.
#[derive(Default)]
struct Seen {
    joined: Vec<Joined>,
    killed: Vec<Killed>,
    rerated: Vec<Rerated>,
    /// The script's events that have happened, at the times at which they did: a busy machine is late.
    happened: Vec<Event>,
    /// The last line that was not progress.
    last: Option<Value>,
}

impl Run<'_> {
    /// Fetches the object, lets the script's events happen meanwhile, and checks what came.
    pub(super) async fn transfer(
        &self,
        stage: &mut Stage,
        watch: &mut dyn Watch,
    ) -> Result<DemoResult, AppError> {
        let own_before = cpu_seconds("self");
        let output = stage.scratch.path().join(OUTPUT);
        let mut arguments =
            vec!["get".to_owned(), NAME.to_owned(), format!("--controller={}", stage.controller.address)];
        arguments.extend(["-o".to_owned(), output.display().to_string()]);
        arguments.extend(["--progress".to_owned(), "json".to_owned()]);
        arguments.extend(sending_flags(&self.options.common));
        let mut receiver = stage.start(self, Role::Receiver, "receiver", &arguments)?;

        let mut seen = Seen::default();
        self.follow(&mut receiver, stage, &mut seen, watch).await?;
        receiver.ended().await?;
        let cpu = receiver.cpu_seconds() + stage.cpu_seconds() + (cpu_seconds("self") - own_before);
        let status = receiver
            .reap()
            .map_err(|source| AppError::Io { doing: "cannot wait for the receiver".to_owned(), source })?;
        let last = seen.last.take();
        let Some(last) = last else {
            return Err(receiver.failed(&format!("ended without a result ({status})")));
        };
        if let Some((code, message)) = error_of(&last) {
            return Err(failure(code, format!("the demo's receiver failed: {message}")));
        }
        let dropped = last["dropped_on_purpose"].as_u64();
        let get: GetResult = serde_json::from_value(last)
            .map_err(|error| receiver.failed(&format!("printed a result that cannot be read ({error})")))?;

        let arrived = blocking(move || subprocess::hash(&output)).await?;
        if arrived != stage.object || get.object != stage.object.to_string() {
            return Err(AppError::Verification(format!(
                "the sources had {}, the receiver says {} and its file is {arrived}",
                stage.object, get.object
            )));
        }
        let lost = stage.environment.lost().await?;
        let ideal = self.script.ideal_after(&seen.happened, self.options.size, None);
        Ok(DemoResult {
            get: GetResult {
                ideal_seconds: ideal,
                ratio: ideal.map(|ideal| get.seconds / ideal),
                cpu_seconds: cpu,
                output: stage.kept().and(get.output),
                sources: in_our_order(&get.sources, stage),
                ..get
            },
            network: stage.environment.word().to_owned(),
            source_rates: self.script.rates.iter().map(|rate| rate.get()).collect(),
            loss: self.options.loss,
            loss_dropped: lost.or(dropped),
            seed: self.options.seed,
            joined: seen.joined,
            killed: seen.killed,
            rerated: seen.rerated,
            kept: stage.kept(),
        })
    }

    /// Follows the receiver until it says no more, and lets the events of the script happen in time.
    async fn follow(
        &self,
        receiver: &mut Process,
        stage: &mut Stage,
        seen: &mut Seen,
        watch: &mut dyn Watch,
    ) -> Result<(), AppError> {
        let first = match timeout(BEGIN, receiver.json()).await {
            Ok(line) => line,
            Err(_) => return Err(receiver.failed("does not begin")),
        };
        // `get` says that it is asking, and its clock starts.
        let begun = Instant::now();
        let planned = self.script.ideal_seconds(self.options.size, None);
        let patience = planned.or_else(|| self.ideal_without_events()).unwrap_or_default() * STUCK.0;
        let stuck = begun + Duration::from_secs_f64(patience) + STUCK.1;
        let mut events = self.script.events.iter();
        let mut next = events.next();
        let mut tick = tokio::time::interval(TICK);
        let mut next_line = first;
        while let Some(line) = next_line {
            self.hear(line, begun, stage, seen, watch);
            next_line = loop {
                let due = next.map_or(stuck, |event| begun + event.at.into());
                tokio::select! {
                    line = receiver.json() => break line,
                    _ = tick.tick() => {
                        let now = begun.elapsed().as_secs_f64();
                        stage.look_after_sources(now, &mut seen.joined, watch);
                    }
                    () = sleep_until(due) => match next.take() {
                        Some(event) => {
                            self.happen(event, begun, stage, seen, watch).await?;
                            next = events.next();
                        }
                        None => return Err(receiver.failed("is stuck")),
                    }
                }
            };
        }
        Ok(())
    }

    fn ideal_without_events(&self) -> Option<f64> {
        let all: BitRate = self.script.rates.iter().copied().sum();
        (all > BitRate::ZERO).then(|| (self.options.size / all).as_secs_f64())
    }

    /// Takes in one line of the receiver.
    fn hear(&self, line: Value, begun: Instant, stage: &mut Stage, seen: &mut Seen, watch: &mut dyn Watch) {
        let now = begun.elapsed().as_secs_f64();
        stage.look_after_sources(now, &mut seen.joined, watch);
        let Some(mut progress) = progress_of(&line) else {
            // Sources that only the result tells of were used by its time.
            for share in line["sources"].as_array().into_iter().flatten() {
                let useful = share["bytes"].as_u64().unwrap_or(0) > 0;
                stage.note_use(share["node"].as_str().unwrap_or_default(), useful, now, &mut seen.joined);
            }
            seen.last = Some(line);
            return;
        };
        for source in &mut progress.sources {
            stage.note_use(&source.node, source.share > 0.0, now, &mut seen.joined);
            let ours = stage.sources.iter().find(|ours| ours.is_called(&source.node));
            if let Some(address) = ours.and_then(|ours| ours.address.as_ref()) {
                source.node.clone_from(address);
            }
        }
        let number = |node: &str| stage.sources.iter().position(|ours| ours.is_called(node));
        progress.sources.sort_by_cached_key(|source| number(&source.node).unwrap_or(usize::MAX));
        watch.progress(&Progress { object: NAME.to_owned(), ..progress });
    }

    /// Lets an event happen.
    async fn happen(
        &self,
        event: &Event,
        begun: Instant,
        stage: &mut Stage,
        seen: &mut Seen,
        watch: &mut dyn Watch,
    ) -> Result<(), AppError> {
        let source = event.source;
        let before = begun.elapsed();
        // An event that takes time has taken effect at its end at the latest; a source that joins may send from the
        // first moment on.
        let at = match event.what {
            Happening::Vanish => {
                stage.sources[source].dismissed = true;
                stage.environment.vanish(source).await?;
                if let Some(process) = &mut stage.sources[source].process {
                    process.kill();
                }
                let at = begun.elapsed();
                seen.killed.push(Killed { source, at_seconds: at.as_secs_f64() });
                watch.note(&format!("source {source} has vanished"));
                at
            }
            Happening::Join => {
                stage.start_source(self, source)?;
                seen.joined.push(Joined { source, at_seconds: before.as_secs_f64(), ..Joined::default() });
                watch.note(&format!("source {source} joins with {}", self.script.rates[source]));
                before
            }
            Happening::Rerate(rate) => {
                stage.environment.rerate(source, rate).await?;
                let at = begun.elapsed();
                seen.rerated.push(Rerated { source, rate: rate.get(), at_seconds: at.as_secs_f64() });
                watch.note(&format!("source {source} now has {rate}"));
                at
            }
        };
        seen.happened.push(Event { at: at.into(), ..*event });
        Ok(())
    }
}

impl Stage {
    /// Learns where sources that joined listen, and tells the user of those that ended by themselves.
    fn look_after_sources(&mut self, now: f64, joined: &mut [Joined], watch: &mut dyn Watch) {
        for (number, source) in self.sources.iter_mut().enumerate() {
            let Some(process) = source.process.as_mut().filter(|_| !source.dismissed) else { continue };
            match process.json_now() {
                Ok(None) => {}
                Ok(Some(line)) => {
                    if source.address.is_none() {
                        source.listens(&line);
                        if let Some(joined) = joined.iter_mut().find(|joined| joined.source == number) {
                            joined.ready_after_seconds = Some(now - joined.at_seconds);
                        }
                    }
                }
                Err(_) => {
                    source.dismissed = true;
                    watch.note(&process.blame("ended by itself"));
                }
            }
        }
    }

    /// Notes when a source that joined is first of use.
    fn note_use(&self, node: &str, useful: bool, now: f64, joined: &mut [Joined]) {
        for joined in joined.iter_mut().filter(|joined| useful && joined.used_after_seconds.is_none()) {
            if self.sources[joined.source].is_called(node) {
                joined.used_after_seconds = Some(now - joined.at_seconds);
            }
        }
    }

    /// Processor time that controller and sources have used so far, the dead ones too.
    fn cpu_seconds(&self) -> f64 {
        let sources = self.sources.iter().filter_map(|source| source.process.as_ref());
        sources.chain([&self.controller.process]).map(|process| process.cpu_seconds()).sum()
    }
}

/// One line per source of the demo in the order of their numbers, also for those that were of no use.
fn in_our_order(shares: &[SourceShare], stage: &Stage) -> Vec<SourceShare> {
    let ours = stage.sources.iter().map(|source| {
        let node = source.address.clone().unwrap_or_default();
        let share = shares.iter().find(|share| source.is_called(&share.node)).cloned().unwrap_or_default();
        SourceShare { node, ..share }
    });
    ours.collect()
}
