//! The receivers of a cast, and which of them there is something to do for: with ten thousand of them nobody is looked at in vain.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use headwater_units::{Bytes, Duration, NodeId, Time};
use headwater_wire::MemberStanding;

use super::member::Member;

/// All receivers of a cast. They are those of its beginning.
#[derive(Default)]
pub(crate) struct Roster {
    members: BTreeMap<NodeId, Member>,
    /// Receivers that are not through.
    open: usize,
    /// Receivers that have the object.
    done: usize,
    /// Receivers that have asked and wait to be served.
    asking: BTreeSet<NodeId>,
    /// When receivers are to be looked after: each once at most.
    due: BTreeSet<(Time, NodeId)>,
    due_at: BTreeMap<NodeId, Time>,
    /// Receivers whose standing has changed since the asker was told of them.
    changed: BTreeSet<NodeId>,
    /// Receivers after this one are told of next where there is nothing new.
    told: Option<NodeId>,
}

impl Roster {
    /// One more is to have the object.
    pub(super) fn insert(&mut self, node: NodeId, member: Member) {
        assert!(!member.has_ended() && member.asks.is_none(), "a receiver begins with nothing");
        if self.members.insert(node, member).is_none() {
            self.open += 1;
            self.changed.insert(node);
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    pub(super) fn get(&self, node: NodeId) -> Option<&Member> {
        self.members.get(&node)
    }

    /// All of them, by id.
    pub(super) fn nodes(&self) -> impl Iterator<Item = NodeId> {
        self.members.keys().copied()
    }

    /// Number of receivers that are not through.
    pub(crate) fn open(&self) -> usize {
        self.open
    }

    /// Number of receivers that have the object.
    pub(crate) fn done(&self) -> usize {
        self.done
    }

    /// Whether all have the object, and had it this long after the cast began: looks at all.
    pub(super) fn have_it_by(&self, deadline: Duration) -> bool {
        self.members.values().all(|member| match member.standing {
            MemberStanding::Had => true,
            MemberStanding::Kept => member.ended.is_some_and(|ended| ended <= deadline),
            _ => false,
        })
    }

    /// Receivers that are not waited for, but may come back: looks at all.
    pub(super) fn away(&self) -> Vec<NodeId> {
        let away = self.members.iter().filter(|(_, member)| member.may_come_back());
        away.map(|(node, _)| *node).collect()
    }

    /// Receivers that are not through: looks at all.
    pub(super) fn open_members(&self) -> impl Iterator<Item = (NodeId, &Member)> {
        self.members.iter().filter(|(_, member)| !member.has_ended()).map(|(node, member)| (*node, member))
    }

    /// Tells how much of the object each has that is not through: looks at all.
    pub(super) fn progress(&mut self, mut bytes: impl FnMut(&Member) -> Bytes) -> Option<Bytes> {
        let open = self.members.values_mut().filter(|member| !member.has_ended());
        open.map(|member| {
            member.bytes = member.bytes.max(bytes(member));
            member.bytes
        })
        .min()
    }

    /// Number of receivers that have asked and wait to be served.
    pub(super) fn asking(&self) -> usize {
        self.asking.len()
    }

    /// Receivers that have asked and wait to be served, each with the bytes of symbol that it takes.
    pub(super) fn rooms_asked(&self) -> BTreeMap<NodeId, u16> {
        let asking = |node: &NodeId| Some((*node, self.get(*node)?.asks.as_ref()?.1.room));
        self.asking.iter().filter_map(asking).collect()
    }

    /// Changes what is known of a receiver.
    pub(super) fn change<T>(&mut self, node: NodeId, act: impl FnOnce(&mut Member) -> T) -> Option<T> {
        let member = self.members.get_mut(&node)?;
        let (had_ended, standing) = (member.has_ended(), member.standing.clone());
        let result = act(member);
        match member.asks {
            Some(_) => _ = self.asking.insert(node),
            None => _ = self.asking.remove(&node),
        }
        if member.standing != standing {
            self.changed.insert(node);
        }
        if member.has_ended() && !had_ended {
            self.open -= 1;
            self.done += usize::from(matches!(member.standing, MemberStanding::Had | MemberStanding::Kept));
            self.look_after(node, None);
        }
        Some(result)
    }

    /// A receiver is here again that was not waited for. False if that is not how it is.
    pub(super) fn reopen(&mut self, node: NodeId) -> bool {
        let Some(member) = self.members.get_mut(&node) else { return false };
        let comes_back = member.may_come_back();
        if comes_back {
            member.ended = None;
            member.standing =
                if member.task.is_some() { MemberStanding::Receiving } else { MemberStanding::Invited };
            self.open += 1;
            self.changed.insert(node);
        }
        comes_back
    }

    /// When a receiver is to be looked after next, if it is.
    pub(super) fn look_after(&mut self, node: NodeId, at: Option<Time>) {
        let before = match at {
            Some(at) => self.due_at.insert(node, at),
            None => self.due_at.remove(&node),
        };
        before.into_iter().for_each(|before| _ = self.due.remove(&(before, node)));
        at.into_iter().for_each(|at| _ = self.due.insert((at, node)));
    }

    /// A receiver that is to be looked after now.
    pub(super) fn take_due(&mut self, now: Time) -> Option<NodeId> {
        let (_, node) = *self.due.first().filter(|(at, _)| *at <= now)?;
        self.look_after(node, None);
        Some(node)
    }

    /// When the first of them is to be looked after.
    pub(super) fn next_due(&self) -> Option<Time> {
        self.due.first().map(|(at, _)| *at)
    }

    /// The node that asked knows nothing yet.
    pub(super) fn tell_all(&mut self) {
        self.changed = self.nodes().collect();
    }

    /// Receivers to tell of: those that have changed, and at least `least`, one after the other.
    pub(super) fn take_news(&mut self, least: usize) -> BTreeSet<NodeId> {
        let mut news = std::mem::take(&mut self.changed);
        let missing = least.min(self.len()).saturating_sub(news.len());
        let after = self.told.map_or(Bound::Unbounded, Bound::Excluded);
        let around = self.members.range((after, Bound::Unbounded)).chain(&self.members);
        let others = around.map(|(node, _)| *node).filter(|node| !news.contains(node));
        let others: Vec<NodeId> = others.take(missing).collect();
        self.told = others.last().copied().or(self.told);
        news.extend(others);
        news
    }
}
