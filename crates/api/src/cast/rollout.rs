//! A rollout: a cast in waves, each of which begins if those before have gone well enough.
//!
//! The command that asks for it leads it from wave to wave: if that ends, the wave that has begun goes on, and no other begins. The same
//! command again resumes: receivers are in the same order, and those that have the object are through at once.

use std::collections::BTreeSet;
use std::time::Instant;

use headwater_units::{Duration, NodeId};

use super::{Asker, CastReceiver, CastResult, CastWave};
use crate::requests::Rollout;
use crate::{AppError, NodeLine, ObjectLine, StatusReport, Watch};

impl Asker<'_> {
    /// Serves these receivers, all that keep objects if none is named, in waves.
    #[allow(clippy::disallowed_methods)] // Pauses, and the time that a user waits.
    pub(super) async fn roll_out(
        &mut self,
        rollout: &Rollout,
        to: Vec<NodeId>,
        watch: &mut dyn Watch,
    ) -> Result<CastResult, AppError> {
        let receivers = in_order(&self.report, &self.cast.what, &to);
        if receivers.is_empty() {
            return self.serve(receivers, self.cast.timeout, watch).await;
        }
        let ends: Vec<usize> = rollout.waves.iter().map(|wave| wave.end(receivers.len())).collect();
        let (begin, mut all, mut from) = (Instant::now(), CastResult::default(), 0);
        let mut needs_pause = false;
        for (number, end) in (1..).zip(ends) {
            if end <= from {
                continue;
            }
            if needs_pause {
                self.pause(rollout.pause, watch).await?;
            }
            watch.note(&format!(
                "wave {number} of {}: receivers {} to {end} of {}",
                rollout.waves.len(),
                from + 1,
                receivers.len()
            ));
            let left = self.cast.timeout.map(|limit| {
                Duration::from_nanos(limit.as_nanos().saturating_sub(begin.elapsed().as_nanos() as u64))
            });
            let result = self.serve(receivers[from..end].to_vec(), left, watch).await?;
            from = end;
            let wave = wave_of(&result);
            // A wave that has gone well before is not waited for once more.
            needs_pause = wave.done + wave.failed > 0;
            all = joined(all, result, wave);
            all.seconds = begin.elapsed().as_secs_f64();
            let failed: usize = all.waves.iter().map(|wave| wave.failed).sum();
            if failed > rollout.max_failures as usize && from < receivers.len() {
                all.stopped = Some(format!(
                    "after wave {number} of {}, as more receivers failed or were away ({failed}) than --max-failures allows ({})",
                    rollout.waves.len(),
                    rollout.max_failures
                ));
                break;
            }
        }
        let waiting = receivers[from..].iter().map(|node| waiting(&self.report, *node));
        all.receivers.extend(waiting);
        all.complete &= from == receivers.len();
        Ok(all)
    }

    async fn pause(&self, pause: Duration, watch: &mut dyn Watch) -> Result<(), AppError> {
        if pause == Duration::ZERO {
            return Ok(());
        }
        watch.note(&format!("the next wave begins in {pause}"));
        tokio::select! {
            () = tokio::time::sleep(pause.into()) => Ok(()),
            () = self.shutdown.wait() => {
                watch.note("stopped between two waves; run the same command again to go on");
                Err(AppError::Interrupted { resumable: true })
            }
        }
    }
}

/// The receivers, those first that have the object: a rollout that is resumed finds its first waves done. Then by name.
pub(in super::super) fn in_order(report: &StatusReport, what: &str, to: &[NodeId]) -> Vec<NodeId> {
    let is_it = |line: &&ObjectLine| {
        line.name.as_deref() == Some(what) || !what.is_empty() && line.object.to_string().starts_with(what)
    };
    let holders: BTreeSet<&str> =
        report.objects.iter().filter(is_it).flat_map(|line| &line.holders).map(String::as_str).collect();
    let is_wanted = |node: &&NodeLine| match to.is_empty() {
        true => node.up && node.keeps,
        false => to.contains(&node.id),
    };
    let mut nodes: Vec<&NodeLine> = report.nodes.iter().filter(is_wanted).collect();
    let order = |node: &NodeLine| (!holders.contains(node.listen.as_str()), node.name.clone(), node.id);
    nodes.sort_by_cached_key(|node| order(node));
    nodes.iter().map(|node| node.id).collect()
}

/// Summary of a wave.
fn wave_of(result: &CastResult) -> CastWave {
    let count = |states: &[&str]| result.receivers.iter().filter(|it| states.contains(&&*it.state)).count();
    CastWave {
        receivers: result.receivers.len(),
        done: count(&["done"]),
        had: count(&["had"]),
        failed: count(&["failed", "away"]),
        seconds: result.seconds,
    }
}

/// A receiver whose wave has not begun.
fn waiting(report: &StatusReport, id: NodeId) -> CastReceiver {
    let line = report.nodes.iter().find(|node| node.id == id);
    CastReceiver {
        node: line.map_or_else(|| id.short(), |node| node.listen.clone()),
        name: line.map_or_else(String::new, |node| node.name.clone()),
        id: id.to_string(),
        state: "waiting".to_owned(),
        ..CastReceiver::default()
    }
}

/// The result with that of one more wave.
fn joined(before: CastResult, wave: CastResult, summary: CastWave) -> CastResult {
    if before.waves.is_empty() {
        return CastResult { waves: vec![summary], ..wave };
    }
    let mut sources = before.sources;
    for source in wave.sources {
        match sources.iter_mut().find(|it| it.node == source.node) {
            Some(known) => {
                known.bytes = known.bytes.saturating_add(source.bytes);
                known.copies += source.copies;
            }
            None => sources.push(source),
        }
    }
    CastResult {
        sources,
        multicast_bytes: before.multicast_bytes.saturating_add(wave.multicast_bytes),
        unicast_bytes: before.unicast_bytes.saturating_add(wave.unicast_bytes),
        relayed_bytes: before.relayed_bytes.saturating_add(wave.relayed_bytes),
        copies: before.copies + wave.copies,
        // The busiest link of any wave: links of different waves are not added up.
        link_stress: before.link_stress.max(wave.link_stress),
        between_racks_bytes: before.between_racks_bytes.or(wave.between_racks_bytes).map(|_| {
            let bytes = |it: Option<u64>| it.unwrap_or(0);
            bytes(before.between_racks_bytes).saturating_add(bytes(wave.between_racks_bytes))
        }),
        // Of one wave these say something, of several nothing.
        first_seconds: None,
        median_seconds: None,
        last_seconds: None,
        repairs: [before.repairs, wave.repairs].concat(),
        complete: before.complete && wave.complete,
        waves: [before.waves, vec![summary]].concat(),
        receivers: [before.receivers, wave.receivers].concat(),
        ..wave
    }
}

#[cfg(test)]
mod tests {

    use headwater_units::{Bytes, ObjectId};

    use super::*;
    use crate::requests::Wave;

    fn line(n: u8, name: &str) -> NodeLine {
        NodeLine::example(n, name)
    }

    #[test]
    fn waves_end_at_parts_of_all_or_at_numbers_of_nodes() {
        let ends = |wave: Wave| [1, 3, 20, 100].map(|receivers| wave.end(receivers));
        assert_eq!(ends(Wave::Part(0.05)), [1, 1, 1, 5]);
        assert_eq!(ends(Wave::Part(0.25)), [1, 1, 5, 25]);
        assert_eq!(ends(Wave::Part(1.0)), [1, 3, 20, 100]);
        assert_eq!(ends(Wave::Nodes(7)), [1, 3, 7, 7]);
    }

    #[test]
    fn those_who_have_it_come_first_so_that_the_same_command_resumes() {
        let mut nodes = vec![line(1, "d"), line(2, "b"), line(3, "c"), line(4, "a"), line(5, "e")];
        nodes[4].up = false;
        let held = |name: &str, by: u8| ObjectLine {
            object: ObjectId([0xab; 32]),
            name: Some(name.to_owned()),
            bytes: Bytes::kib(1),
            holders: vec![format!("10.0.0.{by}:7001")],
        };
        let objects = vec![held("model", 3), held("other", 1)];
        let report = StatusReport { nodes, objects, ..StatusReport::default() };
        let order = |what: &str, to: &[u8]| -> Vec<u8> {
            let to: Vec<NodeId> = to.iter().map(|n| NodeId([*n; 32])).collect();
            in_order(&report, what, &to).iter().map(|id| id.0[0]).collect()
        };
        assert_eq!(order("model", &[]), [3, 4, 2, 1]);
        assert_eq!(order("none", &[]), [4, 2, 3, 1]);
        assert_eq!(order("ababab", &[5, 1, 2]), [1, 2, 5], "also those that are away, if they are named");
    }

    #[test]
    fn the_result_of_a_rollout_adds_up_its_waves() {
        let receiver = |state: &str| CastReceiver { state: state.to_owned(), ..CastReceiver::default() };
        let wave = |states: &[&str], copies: f64| CastResult {
            receivers: states.iter().map(|state| receiver(state)).collect(),
            complete: states.iter().all(|state| matches!(*state, "done" | "had")),
            unicast_bytes: 100,
            copies,
            seconds: 2.0,
            ..CastResult::default()
        };
        let first = wave(&["done", "had"], 1.0);
        let second = wave(&["done", "failed", "away"], 0.5);
        let summaries = [wave_of(&first), wave_of(&second)];
        assert_eq!((summaries[0].done, summaries[0].had, summaries[0].failed), (1, 1, 0));
        assert_eq!((summaries[1].receivers, summaries[1].failed), (3, 2));
        let all = joined(CastResult::default(), first, summaries[0].clone());
        assert!(all.complete);
        let all = joined(all, second, summaries[1].clone());
        assert_eq!((all.waves.len(), all.receivers.len(), all.unicast_bytes), (2, 5, 200));
        assert_eq!((all.copies, all.complete), (1.5, false));
    }
}
