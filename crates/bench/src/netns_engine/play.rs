//! The run itself: everything at its time, and what comes of it.

use std::collections::VecDeque;
use std::time::Duration as Pause;

use headwater_experiment::run::{Repair, Stage};
use headwater_fabric::LinkId;
use headwater_lab::RunContext;
use headwater_testbed::emulate::HostFault;
use headwater_testbed::soft_switch::{QueueSample, Sampling, Snapshot};
use headwater_units::{Duration, Time};
use serde_json::Value;

use super::deployment::{Actor, Deployment, Part, error_in};
use super::{Kind, Trouble};
use crate::subprocess::monotonic_ns;

/// Number of looks at a queue for each sample, which is their mean.
const LOOKS: u64 = 8;
/// The longest sleep between looks at what processes say.
const POLL_INTERVAL: Pause = Pause::from_millis(1);
/// A run without an end of its own is broken off here.
pub(super) const LONGEST: Duration = Duration::from_secs(600);
/// Looks at queues that are kept at most.
const MOST_LOOKS: usize = 8_000_000;

/// Observations of a run.
pub(super) struct Played {
    /// CLOCK_MONOTONIC at the beginning, ns.
    pub(super) begin_ns: u64,
    /// How long it went.
    pub(super) ended: Time,
    /// When each task's receiver had everything, if it had.
    pub(super) finished: Vec<Option<Time>>,
    /// When each task was broken off, if it was.
    pub(super) stopped: Vec<Option<Time>>,
    /// How often each task's receiver asked again because nothing had come.
    pub(super) asked_again: Vec<u64>,
    /// When the cast was asked for, where one was.
    pub(super) requested: Time,
    /// Repairs of its trees.
    pub(super) repairs: Vec<Repair>,
    /// Counters of the switch at the beginning and at the end.
    pub(super) first: Snapshot,
    pub(super) last: Snapshot,
    /// Looks at queues, since the beginning.
    pub(super) looks: Vec<(Time, LinkId, u64)>,
}

impl Played {
    /// A run of which nothing was seen yet.
    pub(super) fn nothing(begin_ns: u64, first: Snapshot) -> Self {
        Played {
            begin_ns,
            ended: Time::ZERO,
            finished: Vec::new(),
            stopped: Vec::new(),
            asked_again: Vec::new(),
            requested: Time::ZERO,
            repairs: Vec::new(),
            last: first.clone(),
            first,
            looks: Vec::new(),
        }
    }

    /// Since the beginning.
    pub(super) fn now(&self) -> Time {
        Time::from_nanos(monotonic_ns().saturating_sub(self.begin_ns))
    }

    pub(super) fn seconds(&self) -> f64 {
        self.ended.as_secs_f64().max(1e-9)
    }
}

/// Event at a given time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cue {
    Start(usize),
    Stop(usize),
    Host(HostFault),
}

/// Plays it to its end.
#[allow(clippy::disallowed_methods, reason = "what happens in real time is waited for")]
pub(super) fn play(
    deployment: &mut Deployment<'_>,
    stage: &Stage,
    kind: Kind<'_>,
    context: &RunContext,
    watch: &mut dyn FnMut(f64),
) -> Result<Played, Trouble> {
    let mut cues = cues(deployment, stage);
    let first = begin_sampling(deployment, stage)?;
    let begin = deployment.net.begin()?;
    deployment.net.switch().forget_lateness()?;
    if let Kind::Cast(casting) = kind {
        deployment.begin_cast(casting)?;
    }
    let mut play = Play {
        begin_ns: begin.monotonic_ns,
        wanted: stage.tasks.len() - stage.background.len(),
        finished: vec![None; stage.tasks.len()],
        stopped: vec![None; stage.tasks.len()],
        asked_again: vec![0; stage.tasks.len()],
        requested: Time::ZERO,
        repairs: Vec::new(),
        begun: vec![false; stage.tasks.len()],
        parts: vec![0; stage.tasks.len()],
    };
    let end = stage.until.unwrap_or(Time::ZERO + LONGEST);
    let ended = loop {
        let now = play.now();
        while cues.front().is_some_and(|(at, _)| *at <= now) {
            let (_, cue) = cues.pop_front().expect("it was seen just now");
            play.act(deployment, cue)?;
        }
        play.hear(deployment, stage)?;
        let over = play.over();
        let by_time = stage.until.map_or(0.0, |until| now.as_secs_f64() / until.as_secs_f64().max(1e-9));
        watch(by_time.max(over as f64 / play.wanted.max(1) as f64).min(1.0));
        // Where nobody wants anything the run is about its background, until its end.
        let all_have = over == play.wanted && (play.wanted > 0 || stage.until.is_none());
        if all_have || now >= end {
            break play.now();
        }
        if context.stop() {
            return Err(Trouble::Stopped);
        }
        let next = cues.front().map_or(end, |(at, _)| (*at).min(end));
        std::thread::sleep(POLL_INTERVAL.min(next.since(play.now()).into()));
    };
    if stage.until.is_none() && play.over() < play.wanted {
        return Err(Trouble::Failed(format!("not done after {LONGEST}")));
    }
    let last = deployment.net.switch().snapshot()?;
    let since = |look: &QueueSample| {
        let at = Time::ZERO + look.at.since(begin.switch);
        (look.at >= begin.switch).then_some((at, look.link, look.packets))
    };
    let looks = deployment.net.switch().take_samples()?.iter().filter_map(since).collect();
    let Play { begin_ns, finished, stopped, asked_again, requested, repairs, .. } = play;
    Ok(Played { begin_ns, ended, finished, stopped, asked_again, requested, repairs, first, last, looks })
}

fn cues(deployment: &Deployment<'_>, stage: &Stage) -> VecDeque<(Time, Cue)> {
    let mut cues: Vec<(Time, Cue)> = Vec::new();
    for (place, task) in stage.tasks.iter().enumerate() {
        cues.push((task.at, Cue::Start(place)));
        cues.extend(task.stop.map(|at| (at, Cue::Stop(place))));
    }
    cues.extend(deployment.net.host_faults().iter().map(|(at, fault)| (Time::ZERO + *at, Cue::Host(*fault))));
    // Stable: what happens at one moment does so in the order of the file.
    cues.sort_by_key(|(at, _)| *at);
    cues.into()
}

fn begin_sampling(deployment: &Deployment<'_>, stage: &Stage) -> Result<Snapshot, Trouble> {
    let switch = deployment.net.switch();
    if let (Some(every), false) = (stage.every, stage.queues.is_empty()) {
        let every = every / LOOKS;
        let span = stage.until.map_or(LONGEST, |until| until.since(Time::ZERO));
        let looks = span.as_nanos() / every.as_nanos().max(1) + 1_000;
        let most = (looks as usize).saturating_mul(stage.queues.len()).min(MOST_LOOKS);
        let links = stage.queues.iter().map(|(_, link)| *link).collect();
        switch.sample(Sampling { every, links, most })?;
    }
    Ok(switch.snapshot()?)
}

pub(super) struct Play {
    begin_ns: u64,
    /// Tasks that must end; what is behind them goes on in the background.
    wanted: usize,
    pub(super) finished: Vec<Option<Time>>,
    pub(super) stopped: Vec<Option<Time>>,
    asked_again: Vec<u64>,
    pub(super) requested: Time,
    pub(super) repairs: Vec<Repair>,
    begun: Vec<bool>,
    /// Connections that have delivered their part, where the scheme is TCP.
    parts: Vec<usize>,
}

impl Play {
    /// Since the beginning.
    pub(super) fn now(&self) -> Time {
        self.since(monotonic_ns())
    }

    fn since(&self, monotonic_ns: u64) -> Time {
        Time::from_nanos(monotonic_ns.saturating_sub(self.begin_ns))
    }

    fn over(&self) -> usize {
        let ends = self.finished.iter().zip(&self.stopped).take(self.wanted);
        ends.filter(|(finish, stop)| finish.or(**stop).is_some()).count()
    }

    fn act(&mut self, deployment: &mut Deployment<'_>, cue: Cue) -> Result<(), Trouble> {
        match cue {
            Cue::Start(task) => {
                self.begun[task] = true;
                let parts = deployment.actors.iter_mut().filter(|actor| actor.part.asks_for(task));
                parts.for_each(|actor| actor.process.tell("start"));
                deployment.ask_for(task)?;
            }
            Cue::Stop(task) => {
                if self.finished[task].is_none() {
                    self.stopped[task] = Some(self.now());
                    for actor in deployment.actors.iter_mut().filter(|a| a.part.asks_for(task)) {
                        actor.dismissed = true;
                        actor.process.interrupt();
                    }
                }
            }
            Cue::Host(fault) => {
                let on = |host: usize| move |actor: &&Actor| actor.fails_with(host);
                match fault {
                    HostFault::Pause(host) => {
                        deployment.actors.iter().filter(on(host)).for_each(|a| a.process.freeze())
                    }
                    HostFault::Resume(host) => {
                        deployment.actors.iter().filter(on(host)).for_each(|a| a.process.thaw())
                    }
                    HostFault::Restart(host) => {
                        let begun = self.begun.clone();
                        deployment.restart(host, |task| begun[task])?;
                    }
                    HostFault::Kill(host) => deployment.kill(host)?,
                }
            }
        }
        Ok(())
    }

    /// Takes in what processes have said.
    fn hear(&mut self, deployment: &mut Deployment<'_>, stage: &Stage) -> Result<(), Trouble> {
        for actor in &mut deployment.actors {
            while let Some(line) = actor.heard()? {
                self.hear_line(actor, stage, &line)?;
            }
        }
        Ok(())
    }

    fn hear_line(&mut self, actor: &mut Actor, stage: &Stage, line: &Value) -> Result<(), Trouble> {
        if let Some(message) = error_in(line) {
            let unfinished = line["error"]["kind"] == "no_source" || line["error"]["kind"] == "interrupted";
            match actor.part {
                // As a receiver in the simulator that gives up.
                Part::Get(task) if unfinished => {
                    self.stopped[task] = self.stopped[task].or(Some(self.now()));
                    actor.dismissed = true;
                }
                _ if actor.dismissed => {}
                _ => return Err(Trouble::Failed(actor.process.blame(&format!("failed: {message}")))),
            }
            return Ok(());
        }
        match actor.part {
            Part::Get(task) => {
                if let Some(at) = line["received_ns"].as_u64() {
                    self.finished[task] = Some(self.since(at));
                    self.asked_again[task] = line["timeouts"].as_u64().unwrap_or(0);
                    actor.dismissed = true;
                }
            }
            Part::TcpReceive(task) => {
                if let Some(at) = line["finish_ns"].as_u64() {
                    self.parts[task] += 1;
                    if self.parts[task] == stage.tasks[task].sources.len() && self.stopped[task].is_none() {
                        self.finished[task] = Some(self.since(at));
                    }
                }
            }
            Part::TcpSend(..) => actor.dismissed |= line["finish_ns"].is_u64(),
            Part::Asker => actor.dismissed |= self.hear_cast(stage, line),
            Part::Cast(task) => actor.dismissed |= self.hear_group(task, line),
            Part::Controller | Part::Serve | Part::Node => {}
            Part::Agent | Part::ShuffleServe | Part::ShuffleFetch(_) => {}
        }
        Ok(())
    }
}

/// Until processes may have said something more.
#[allow(clippy::disallowed_methods, reason = "what happens in real time is waited for")]
pub(super) fn rest() {
    std::thread::sleep(POLL_INTERVAL);
}
