//! `headwater cast`: one object into the stores of many nodes, all told of it at once.
//!
//! The controller runs the cast. This module asks for it, shows its progress, and reports the results. A cast goes on if the asker's
//! connection is lost; an asker that is interrupted stops it.

mod result;
mod rollout;
mod standing;
mod who;

pub(super) use self::rollout::in_order;
pub use self::standing::{Standing, standing_cast};

use std::collections::BTreeMap;
use std::time::Instant;

use headwater_units::{Bytes, Duration, NodeId, PathId};
use headwater_wire::{
    self as wire, AtRates, CastNews, CastRoute, Class, MemberNews, MemberStanding, Refusal, ToController,
    ToNode, TreeRepair, Urgency,
};
use tokio::sync::mpsc::UnboundedReceiver;

use super::host::{Host, HostConfig};
use super::report::{route_in_words, unscheduled_in_words};
use super::requests::Cast;
use super::{AppError, Common, Phase, Progress, ProgressReceiver, Shutdown, StatusReport, Watch};
pub use result::{CastReceiver, CastRepair, CastResult, CastSource, CastWave};

/// Silence of the controller after which it is asked once more: it, or the connection, may be new.
const ASK_AGAIN: std::time::Duration = std::time::Duration::from_secs(2);
/// Silence of the controller after which nobody knows how the cast does.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(30);
/// The controller says so.
const TOO_MANY: &str = "more receivers than the controller takes in one cast: name some with --to and the others in a second one";
/// Time for which a user who stops a cast waits for the news of who had it all the same.
const LAST_WORD: std::time::Duration = std::time::Duration::from_secs(1);

/// Has nodes fetch an object, by a process of no node.
///
/// # Errors
/// As [`cast_at`]; also when the controller cannot be reached.
pub(super) async fn cast(
    (common, controller): (&Common, &str),
    cast: &Cast,
    shutdown: &Shutdown,
    watch: &mut dyn Watch,
) -> Result<CastResult, AppError> {
    let host =
        Host::start(HostConfig { common, listen: None, controller: None, node: None, passes_on: false })?;
    let path = host.new_path();
    host.keep_dialled(path, controller, false).await?;
    let result = cast_at((&host, path, controller), cast, shutdown, watch).await;
    host.close().await;
    result
}

/// Has nodes fetch an object; the controller is asked by `path`.
///
/// # Errors
/// The controller refuses, a node is not known, or the user or the time limit stops it. Receivers that do not have the
/// object are no error here: see [`CastResult::complete`].
pub(super) async fn cast_at(
    (host, path, controller): (&Host, PathId, &str),
    cast: &Cast,
    shutdown: &Shutdown,
    watch: &mut dyn Watch,
) -> Result<CastResult, AppError> {
    watch.progress(&Progress { object: cast.what.clone(), ..Progress::default() });
    let report = host.report(path).await?;
    let (to, note) = cast.to.ids(&report)?;
    note.into_iter().for_each(|note| watch.note(&note));
    let mut asker = Asker { host, path, controller, report, cast, shutdown, heard: host.hear_casts() };
    match &cast.rollout {
        None => asker.serve(to, cast.timeout, watch).await,
        Some(rollout) => asker.roll_out(rollout, to, watch).await,
    }
}

/// A request for casts of one object.
struct Asker<'a> {
    host: &'a Host,
    path: PathId,
    controller: &'a str,
    /// As the controller was when the first was asked for.
    report: StatusReport,
    cast: &'a Cast,
    shutdown: &'a Shutdown,
    heard: UnboundedReceiver<(PathId, ToNode)>,
}

impl Asker<'_> {
    /// Serves these receivers, all that keep objects if none is named.
    async fn serve(
        &mut self,
        to: Vec<NodeId>,
        timeout: Option<Duration>,
        watch: &mut dyn Watch,
    ) -> Result<CastResult, AppError> {
        let Asker { host, path, controller, cast, shutdown, .. } = *self;
        let wanted = wire::Cast {
            cast: rand::random(),
            name: cast.what.clone(),
            to,
            first: 0,
            of: 0,
            class: if cast.gentle { Class::Gentle } else { Class::Bulk },
            wish: cast.wish,
        };
        let seen = Seen::new(&self.report);
        let mut asking =
            Asking { host, path, wanted, urgency: cast.urgency, heard: &mut self.heard, seen, watch };
        let limit = timeout.map_or(std::time::Duration::MAX, Into::into);
        match tokio::time::timeout(limit, asking.run(cast, controller, shutdown)).await {
            Ok(result) => result,
            Err(_) => {
                asking.stop().await;
                let state = format!("{}; run the same command again to resume", asking.seen.how_far());
                Err(AppError::TimedOut { after: cast.timeout.unwrap_or_default(), state })
            }
        }
    }
}

struct Asking<'a> {
    host: &'a Host,
    path: PathId,
    wanted: wire::Cast,
    urgency: Option<Urgency>,
    heard: &'a mut UnboundedReceiver<(PathId, ToNode)>,
    seen: Seen,
    watch: &'a mut dyn Watch,
}

impl Asking<'_> {
    fn ask(&self) {
        for part in self.wanted.clone().into_parts() {
            let asked = match self.urgency {
                None => ToController::Cast(part),
                Some(urgency) => ToController::UrgentCast(part, urgency),
            };
            self.host.say(self.path, asked);
        }
    }

    async fn run(
        &mut self,
        cast: &Cast,
        controller: &str,
        shutdown: &Shutdown,
    ) -> Result<CastResult, AppError> {
        self.ask();
        #[allow(clippy::disallowed_methods)] // A limit of patience.
        let mut last_word = Instant::now();
        let (mut route_reported, mut fallback_reported) = (false, false);
        loop {
            let control = tokio::select! {
                heard = tokio::time::timeout(ASK_AGAIN, self.heard.recv()) => match heard {
                    Ok(Some((_, control))) => control,
                    Ok(None) => return Err(AppError::Failed("the connection's task has ended".to_owned())),
                    Err(_) if last_word.elapsed() > PATIENCE => return Err(AppError::Unreachable {
                        who: format!("the controller {}", controller),
                        reason: format!(
                            "it has said nothing for {} s; running transfers go on ({})",
                            PATIENCE.as_secs(),
                            self.seen.how_far()
                        ),
                    }),
                    Err(_) => {
                        self.ask();
                        continue;
                    }
                },
                () = shutdown.wait() => {
                    self.stop().await;
                    self.watch.note(&format!("stopped: {}", self.seen.how_far()));
                    return Err(AppError::Interrupted { resumable: true });
                }
            };
            #[allow(clippy::disallowed_methods)] // A limit of patience.
            let now = Instant::now();
            last_word = now;
            match control {
                ToNode::Casting(news) if news.cast == self.wanted.cast => {
                    let over = self.seen.hear(*news);
                    self.remember_receivers();
                    if !fallback_reported && let Some(why) = self.seen.unscheduled() {
                        fallback_reported = true;
                        self.watch.note(&why);
                    }
                    if !route_reported && let Some((_, why)) = self.seen.route() {
                        route_reported = true;
                        self.watch.note(&why);
                    }
                    self.watch.progress(&self.seen.progress(&cast.what));
                    if over {
                        return Ok(self.seen.result(&cast.what).judged(cast));
                    }
                }
                ToNode::CastAtRates { cast, how } if cast == self.wanted.cast => {
                    self.seen.at_rates = Some(how)
                }
                ToNode::CastRefused { cast: refused_cast, reason } if refused_cast == self.wanted.cast => {
                    return Err(refused(reason, &cast.what, &self.seen));
                }
                _ => {}
            }
        }
    }

    /// A controller that has forgotten the cast is to take it up with the same receivers: meanwhile others may have come, and one
    /// of these may be its source.
    fn remember_receivers(&mut self) {
        let of = self.seen.newest.as_ref().map_or(0, |news| news.of);
        if self.wanted.to.is_empty() && self.seen.members.len() as u64 == u64::from(of) {
            self.wanted.to = self.seen.members.keys().copied().collect();
        }
    }

    /// Nobody is to fetch it any more; waits a little for the news of who has it all the same.
    async fn stop(&mut self) {
        self.host.say(self.path, ToController::StopCast { cast: self.wanted.cast });
        let hearing = async {
            while let Some((_, control)) = self.heard.recv().await {
                if let ToNode::Casting(news) = control
                    && self.seen.hear(*news)
                {
                    return;
                }
            }
        };
        let _ = tokio::time::timeout(LAST_WORD, hearing).await;
    }
}

fn refused(reason: Refusal, what: &str, seen: &Seen) -> AppError {
    match reason {
        Refusal::Spoiled { node, how } => {
            AppError::Verification(super::errors::spoiled(what, &seen.label(node), how))
        }
        Refusal::UnknownObject => AppError::NotFound(format!(
            "the controller knows no object '{what}'; `headwater ls` lists them, `headwater put` adds one"
        )),
        Refusal::NoSource | Refusal::Gone => AppError::NoSource {
            object: what.to_owned(),
            missing: Bytes::ZERO,
            hint: "it is known, but no node that holds it is online".to_owned(),
        },
        Refusal::Nobody => AppError::NotFound(
            "there is no node to send it to: start one with `headwater node --join CONTROLLER`".to_owned(),
        ),
        Refusal::TooMany => AppError::Usage(TOO_MANY.to_owned()),
        Refusal::NoNetwork => AppError::Usage(
            "--via trees needs a controller that knows the network: start it with `headwater controller --topology FILE`, or leave \
             --via out to take the best route without"
                .to_owned(),
        ),
        Refusal::Unscheduled(_) => AppError::Usage(
            "--via rates needs a controller whose network says that its switches compute rates: `computes_rates = true` in the file \
             of `headwater controller --topology FILE`; leave --via out to take the best route without"
                .to_owned(),
        ),
        Refusal::OffNetwork => AppError::Usage(
            "--via trees and --via rates need the source and the receivers (by trees two or more) at addresses that the controller's \
             network (--topology) lists under `hosts`; `headwater status` shows where nodes are"
                .to_owned(),
        ),
        _ => AppError::Failed(
            "the controller is busy with too many casts or tasks; try again later".to_owned(),
        ),
    }
}

/// News from the controller so far.
pub(super) struct Seen {
    nodes: BTreeMap<NodeId, (String, String)>,
    newest: Option<CastNews>,
    members: BTreeMap<NodeId, MemberNews>,
    at_rates: Option<AtRates>,
}

impl Seen {
    fn new(report: &StatusReport) -> Self {
        let nodes =
            report.nodes.iter().map(|node| (node.id, (node.listen.clone(), node.name.clone()))).collect();
        Seen { nodes, newest: None, members: BTreeMap::new(), at_rates: None }
    }

    /// True if that was the last word.
    fn hear(&mut self, news: CastNews) -> bool {
        self.members.extend(news.members.iter().map(|member| (member.node, member.clone())));
        let over = news.over;
        self.newest = Some(news);
        over
    }

    fn label(&self, node: NodeId) -> String {
        self.nodes.get(&node).map_or_else(|| node.short(), |(address, _)| address.clone())
    }

    /// How it travels and why, once that is known.
    fn route(&self) -> Option<(&'static str, String)> {
        route_in_words(self.newest.as_ref()?.route)
    }

    /// Why it goes no longer at computed rates, if it did.
    fn unscheduled(&self) -> Option<String> {
        match self.at_rates? {
            AtRates::Left(why) => Some(unscheduled_in_words(why)),
            AtRates::Goes(_) => None,
        }
    }

    fn how_far(&self) -> String {
        let (done, of) = self.newest.as_ref().map_or((0, 0), |news| (news.done, news.of));
        format!("{done} of {of} receivers have it")
    }

    /// As far as the one is that is behind all others: what one waits for.
    fn progress(&self, what: &str) -> Progress {
        let Some(news) = &self.newest else { return Progress::default() };
        let mut receivers: Vec<ProgressReceiver> = self
            .members
            .values()
            .map(|member| ProgressReceiver {
                node: self.label(member.node),
                bytes_done: member.bytes.get(),
                state: match member.standing {
                    MemberStanding::Invited => "waiting",
                    MemberStanding::Receiving => "receiving",
                    MemberStanding::Had | MemberStanding::Kept => "done",
                    MemberStanding::Failed(_) => "failed",
                    MemberStanding::Away => "away",
                }
                .to_owned(),
            })
            .collect();
        receivers.sort_by(|a, b| a.node.cmp(&b.node));
        let (whole, is_over) = (whole(news).get(), news.done + news.failed == news.of);
        Progress {
            object: what.to_owned(),
            bytes_done: if is_over { whole } else { news.behind.get() },
            bytes_total: whole,
            phase: Phase::Receiving,
            receivers,
            ..Progress::default()
        }
    }

    fn result(&self, what: &str) -> CastResult {
        let Some(news) = &self.newest else { return CastResult::default() };
        let mut receivers: Vec<CastReceiver> = self.members.values().map(|it| self.receiver(it)).collect();
        receivers.sort_by(|a, b| a.node.cmp(&b.node));
        let mut finishes: Vec<f64> =
            receivers.iter().filter(|it| it.state == "done").map(|it| it.seconds).collect();
        finishes.sort_by(f64::total_cmp);
        let unicast: Bytes = receivers.iter().map(|it| Bytes::new(it.unicast_bytes)).sum();
        let relayed: Bytes = receivers.iter().map(|it| Bytes::new(it.relayed_bytes)).sum();
        let sources = self.sources(news, &receivers);
        let uplinks = sources.iter().map(|it| it.bytes).chain(receivers.iter().map(|it| it.passed_on_bytes));
        let most = uplinks.chain(receivers.iter().map(CastReceiver::came)).max().unwrap_or(0);
        let (via, why) = self.route().unwrap_or(("unicast", "nobody had to be sent anything".to_owned()));
        let (object, size) = (news.object.to_string(), whole(news).get());
        let group = match news.route {
            CastRoute::Multicast { at, .. } | CastRoute::Rates { at, .. } => Some(at.to_string()),
            _ => None,
        };
        CastResult {
            name: (!object.starts_with(what)).then(|| what.to_owned()),
            object,
            bytes: size,
            seconds: receivers.iter().map(|it| it.seconds).fold(0.0, f64::max),
            via: via.to_owned(),
            why,
            group,
            source: self.label(news.source),
            sources,
            multicast_bytes: news.to_group.get(),
            unicast_bytes: unicast.get(),
            relayed_bytes: relayed.get(),
            copies: (news.to_group + unicast).get() as f64 / size.max(1) as f64,
            link_stress: most as f64 / size.max(1) as f64,
            between_racks_bytes: news.between_racks.map(Bytes::get),
            first_seconds: finishes.first().copied(),
            median_seconds: finishes.get(finishes.len().saturating_sub(1) / 2).copied(),
            last_seconds: finishes.last().copied(),
            repairs: news.repairs.iter().map(repair).collect(),
            complete: news.done == news.of,
            unscheduled: self.unscheduled(),
            deadline_seconds: None,
            deadline_met: None,
            waves: Vec::new(),
            stopped: None,
            receivers,
        }
    }

    fn receiver(&self, member: &MemberNews) -> CastReceiver {
        let (state, reason) = match &member.standing {
            MemberStanding::Kept => ("done", None),
            MemberStanding::Had => ("had", None),
            MemberStanding::Away => ("away", Some("not connected".to_owned())),
            MemberStanding::Failed(reason) => ("failed", Some(reason.clone())),
            MemberStanding::Invited | MemberStanding::Receiving => ("failed", None),
        };
        CastReceiver {
            node: self.label(member.node),
            name: self.nodes.get(&member.node).map_or_else(String::new, |(_, name)| name.clone()),
            id: member.node.to_string(),
            state: state.to_owned(),
            reason,
            seconds: member.after.as_secs_f64(),
            bytes: member.bytes.get(),
            multicast_bytes: member.by_group.get(),
            unicast_bytes: member.by_unicast.get().saturating_sub(member.relayed.get()),
            relayed_bytes: member.relayed.get(),
            passed_on_bytes: member.passed_on.get(),
        }
    }

    /// Sources: nodes that sent without having to be sent anything; the one of the group first.
    fn sources(&self, news: &CastNews, receivers: &[CastReceiver]) -> Vec<CastSource> {
        let had = receivers.iter().filter(|it| it.state == "had" && it.passed_on_bytes > 0);
        let had = had.map(|it| (it.node.clone(), it.passed_on_bytes));
        let given = news.given.iter().map(|(node, bytes)| (self.label(*node), bytes.get()));
        let group = Some((self.label(news.source), news.to_group.get())).filter(|(_, bytes)| *bytes > 0);
        let mut sources: Vec<CastSource> = Vec::new();
        for (node, bytes) in group.into_iter().chain(given).chain(had) {
            match sources.iter_mut().find(|it| it.node == node) {
                Some(known) => known.bytes = known.bytes.saturating_add(bytes),
                None => sources.push(CastSource { node, bytes, copies: 0.0 }),
            }
        }
        let size = whole(news).get().max(1) as f64;
        sources.iter_mut().for_each(|it| it.copies = it.bytes as f64 / size);
        sources
    }
}

/// Bytes that each receiver is to have: the object, and if that is a folder's manifest, its files.
fn whole(news: &CastNews) -> Bytes {
    Bytes::new(news.bytes.get().saturating_add(news.files.get()))
}

fn repair(it: &TreeRepair) -> CastRepair {
    CastRepair {
        after_seconds: it.after.as_secs_f64(),
        silent_seconds: it.silent.as_secs_f64(),
        decided_seconds: it.decided.as_secs_f64(),
        told_seconds: it.told.map(Duration::as_secs_f64),
        cut: it.cut,
        rebuilt: it.rebuilt,
        shared: it.shared,
        signalled: it.signalled,
        unanswered: it.unanswered,
    }
}

#[cfg(test)]
mod tests {
    use headwater_units::ObjectId;

    use headwater_wire::WhyUnicast;

    use super::*;
    use crate::NodeLine;

    fn line(n: u8) -> NodeLine {
        NodeLine::example(n, "x")
    }

    fn news(standings: &[(u8, MemberStanding, u64)], route: CastRoute, over: bool) -> CastNews {
        let member = |(n, standing, ms): &(u8, MemberStanding, u64)| MemberNews {
            node: NodeId([*n; 32]),
            standing: standing.clone(),
            grouped: true,
            bytes: Bytes::new(1000),
            by_group: Bytes::new(600),
            by_unicast: Bytes::new(if *n == 3 { 400 } else { 0 }),
            relayed: Bytes::new(if *n == 3 { 100 } else { 0 }),
            passed_on: Bytes::new(if *n == 1 { 100 } else { 0 }),
            after: Duration::from_millis(*ms),
        };
        let has = |(_, standing, _): &&(u8, MemberStanding, u64)| {
            matches!(standing, MemberStanding::Had | MemberStanding::Kept)
        };
        let done = standings.iter().filter(has).count() as u32;
        CastNews {
            cast: 1,
            object: ObjectId([7; 32]),
            bytes: Bytes::new(1000),
            files: Bytes::ZERO,
            source: NodeId([9; 32]),
            route,
            to_group: Bytes::new(1040),
            given: vec![(NodeId([9; 32]), Bytes::new(200)), (NodeId([8; 32]), Bytes::new(100))],
            between_racks: None,
            members: standings.iter().map(member).collect(),
            of: 4,
            done,
            failed: 0,
            behind: Bytes::new(250),
            repairs: Vec::new(),
            over,
        }
    }

    #[test]
    fn a_result_counts_copies_and_says_who_does_not_have_it() {
        let report = StatusReport { nodes: (1..5).map(line).collect(), ..Default::default() };
        let mut seen = Seen::new(&report);
        let route = CastRoute::Multicast { at: ([239, 1, 2, 3], 9).into(), members: 3, of: 4 };
        use MemberStanding::{Failed, Had, Kept};
        assert!(!seen.hear(news(&[(1, Kept, 900), (2, Had, 10)], route, false)));
        let last = [(3, Kept, 1900), (4, Failed("the disk is full".to_owned()), 500)];
        assert!(seen.hear(CastNews { done: 3, failed: 1, ..news(&last, route, true) }));
        let result = seen.result("model");
        assert_eq!((result.via.as_str(), result.complete), ("multicast", false));
        assert!(result.why.contains("3 of 4 receivers hear the group 239.1.2.3:9"), "{}", result.why);
        assert_eq!((result.multicast_bytes, result.unicast_bytes, result.copies), (1040, 300, 1.34));
        let sources: Vec<u64> = result.sources.iter().map(|it| it.bytes).collect();
        assert_eq!((sources, result.link_stress), (vec![1240, 100], 1.24));
        assert_eq!(result.receivers[0].passed_on_bytes, 100);
        let finishes = (result.first_seconds, result.median_seconds, result.last_seconds);
        assert_eq!(finishes, (Some(0.9), Some(0.9), Some(1.9)));
        let states: Vec<&str> = result.receivers.iter().map(|it| it.state.as_str()).collect();
        assert_eq!(states, ["done", "had", "done", "failed"]);
        assert_eq!(result.receivers[3].reason.as_deref(), Some("the disk is full"));
        assert_eq!(seen.how_far(), "3 of 4 receivers have it");
    }

    #[test]
    fn copies_of_a_folder_are_those_of_its_files_too() {
        let mut seen = Seen::new(&StatusReport { nodes: (1..5).map(line).collect(), ..Default::default() });
        let kept = [(3, MemberStanding::Kept, 900)];
        let route = CastRoute::Unicast(WhyUnicast::TooFew);
        let folder = CastNews { files: Bytes::new(9000), to_group: Bytes::ZERO, ..news(&kept, route, true) };
        seen.hear(folder);
        let result = seen.result("set");
        // The receiver got 600 bytes by the group, 300 from sources and 100 from others.
        assert_eq!((result.bytes, result.unicast_bytes, result.copies), (10_000, 300, 0.03));
        assert_eq!((result.link_stress, result.sources[0].copies), (0.1, 0.02));
        assert_eq!(seen.progress("set").bytes_total, 10_000);
    }

    #[test]
    fn progress_is_that_of_the_receiver_that_is_behind() {
        let mut seen = Seen::new(&StatusReport::default());
        let mut half =
            news(&[(1, MemberStanding::Kept, 9), (2, MemberStanding::Receiving, 9)], CastRoute::Open, false);
        half.members[1].bytes = Bytes::new(250);
        seen.hear(half);
        let progress = seen.progress("model");
        assert_eq!((progress.bytes_done, progress.bytes_total), (250, 1000));
        assert_eq!(progress.receivers[1].state, "receiving");
        assert_eq!(seen.route(), None, "nobody knows yet");
    }
}
