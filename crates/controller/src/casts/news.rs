//! News for the node that asked for a cast: at once of all changes, of all other receivers a few each time, and of all
//! at the end.

use headwater_units::{Bytes, Duration, NodeId, Time};
use headwater_wire::{CastNews, MAX_NEWS, MemberNews};

use super::cast::Cast;
use super::member::Served;
use crate::ControllerConfig;
use crate::tasks::Tasks;
use crate::tree_installation::InstalledTrees;

/// News say how far the last receiver is, for which all are looked at: this is the least time between news for each of
/// them.
const EACH: Duration = Duration::from_micros(100);

impl Cast {
    /// The time between news.
    pub(super) fn news_every(&self, config: &ControllerConfig) -> Duration {
        config.cast_news.max(EACH * self.members.len() as u64)
    }

    /// Progress for the asker, in as many messages as it takes; the last one says whether the cast is over.
    pub(super) fn news(&mut self, now: Time, tasks: &Tasks, over: bool) -> Vec<CastNews> {
        let whole = self.bytes;
        let behind = self.members.progress(|member| {
            let task = member.task.and_then(|task| tasks.get(task));
            task.map_or(Bytes::ZERO, |task| whole - task.remaining().min(whole))
        });
        // The bytes that others have got of a receiver are known when all have ended.
        let nodes: Vec<NodeId> = match over {
            true => self.members.nodes().collect(),
            false => self.members.take_news(MAX_NEWS).into_iter().collect(),
        };
        let members: Vec<MemberNews> = nodes.into_iter().filter_map(|node| self.news_of(now, node)).collect();
        let others = self.given.iter().filter(|(node, _)| self.members.get(**node).is_none());
        let given: Vec<(NodeId, Bytes)> =
            others.map(|(node, bytes)| (*node, *bytes)).take(MAX_NEWS).collect();
        let route = self.route();
        let repairs = self.trees().map_or_else(Vec::new, InstalledTrees::repairs);
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let (of, done, open) = (self.members.len(), self.members.done(), self.members.open());
        let mut news: Vec<CastNews> = members
            .chunks(MAX_NEWS)
            .map(|members| CastNews {
                cast: self.number,
                object: self.object,
                bytes: whole,
                files: self.files,
                source: self.source,
                route,
                to_group: self.to_group,
                given: given.clone(),
                between_racks: self.between_racks,
                members: members.to_vec(),
                of: count(of),
                done: count(done),
                failed: count(of - open - done),
                behind: behind.unwrap_or(whole),
                repairs: repairs.clone(),
                over: false,
            })
            .collect();
        if let Some(last) = news.last_mut() {
            last.over = over;
        }
        news
    }

    fn news_of(&self, now: Time, node: NodeId) -> Option<MemberNews> {
        let member = self.members.get(node)?;
        Some(MemberNews {
            node,
            standing: member.standing.clone(),
            grouped: member.served != Served::Unicast,
            bytes: Bytes::new(member.bytes.get().saturating_add(member.files.get())),
            by_group: member.by_group,
            by_unicast: member.by_unicast,
            relayed: member.relayed,
            passed_on: self.given.get(&node).copied().unwrap_or_default(),
            after: member.ended.unwrap_or(now.since(self.begun)),
        })
    }
}
