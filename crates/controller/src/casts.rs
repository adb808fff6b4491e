//! The running casts: one object, many receivers that were all told of it at the same moment (SCDP §III-E).
//!
//! ```text
//!   Gathering -- all have asked, or it took too long --> Probing -- who has heard the group --> Opening -- Pushing --> Running
//!       |  one by itself, or by wish           no group     |  fewer than two                      |  refused, silent
//!       |                                    `--------------+--------------------------------------+--> by overlay: Running
//!       `---------------------------------------------------------------------------------------------------------> Running
//! ```
//! What is done at each step is in `casting`.

use core::net::SocketAddr;
use std::collections::BTreeMap;

use headwater_units::{Bytes, Duration, FlowId, NodeId, ObjectId, PathId, TaskId, Time};
use headwater_wire::{
    CastNews, CastWay, CastWish, Class, FlowSecret, GroupInvitation, Invitation, MAX_NEWS, MemberNews,
    MemberStanding, Request,
};

use super::tasks::{Retry, Tasks};
use super::tree_installation::InstalledTrees;

/// One cast.
pub(super) struct Cast {
    pub(super) number: u64,
    /// Whom to tell how it does.
    pub(super) asker: PathId,
    /// Whose key that is: nobody else may stop it, or hear of it.
    pub(super) asked_by: NodeId,
    pub(super) name: String,
    pub(super) object: ObjectId,
    pub(super) bytes: Bytes,
    pub(super) class: Class,
    pub(super) source: NodeId,
    /// Where its data socket is.
    pub(super) source_at: Option<SocketAddr>,
    pub(super) begun: Time,
    pub(super) stage: Stage,
    /// Why there will be no group, or that there may be one.
    pub(super) way: CastWay,
    pub(super) wish: CastWish,
    /// The address that is its own as long as it lives, and on which its members are probed.
    pub(super) group: Option<(SocketAddr, FlowSecret)>,
    /// The group's flow, until it is over.
    pub(super) flow: Option<FlowSecret>,
    /// Its trees, if it is to go by trees.
    pub(super) installed: Option<Box<InstalledTrees>>,
    pub(super) symbol_size: u16,
    /// The most that a receiver says the files of the folder have; zero if it is none.
    pub(super) files: Bytes,
    pub(super) to_group: Bytes,
    /// Useful payload that receivers have got by flows of their own, by who sent it.
    pub(super) given: BTreeMap<NodeId, Bytes>,
    /// Of that, what came from another rack; if any receiver says in which it stands.
    pub(super) between_racks: Option<Bytes>,
    pub(super) members: BTreeMap<NodeId, Member>,
    /// When whoever asked is told the next time.
    pub(super) news_at: Time,
    /// Everybody has ended, and the group's flow is waited for no longer than this.
    pub(super) over_at: Option<Time>,
}

/// How far a cast is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Receivers are told, and ask.
    Gathering { until: Time },
    /// The source asks who hears the group.
    Probing { until: Time },
    /// The source is to open the group's flow.
    Opening { until: Time },
    /// Receivers have their flows, or will have one each when they ask.
    Running,
}

/// One receiver of a cast.
pub(super) struct Member {
    /// The number of its invitation, by which it asks.
    pub(super) request: u64,
    /// On which it answers probes.
    pub(super) own: FlowSecret,
    /// The path and the life of the node in which it was told last.
    pub(super) told: Option<(PathId, u64)>,
    pub(super) invite: Retry,
    /// What it asks for, until that is answered; and where it asks from.
    pub(super) asks: Option<(PathId, Request)>,
    /// The flow of its own, once it belongs to the group.
    pub(super) flow: Option<FlowId>,
    pub(super) grouped: bool,
    /// It is served by trees.
    pub(super) on_trees: bool,
    pub(super) task: Option<TaskId>,
    pub(super) standing: MemberStanding,
    pub(super) away_since: Option<Time>,
    pub(super) bytes: Bytes,
    /// Those of a folder's files, once they are there.
    pub(super) files: Bytes,
    pub(super) by_group: Bytes,
    pub(super) alone: Bytes,
    pub(super) relayed: Bytes,
    /// When it ended, from the cast's beginning.
    pub(super) ended: Option<Duration>,
}

impl Member {
    pub(super) fn has_ended(&self) -> bool {
        self.ended.is_some()
    }
}

impl Cast {
    /// Receivers that are not through.
    pub(super) fn open_members(&self) -> impl Iterator<Item = (NodeId, &Member)> {
        self.members.iter().filter(|(_, member)| !member.has_ended()).map(|(node, member)| (*node, member))
    }

    /// What a receiver is told.
    pub(super) fn invitation(&self, member: &Member) -> Invitation {
        let group = self.group.as_ref().zip(self.source_at).filter(|_| self.way == CastWay::Open);
        Invitation {
            request: member.request,
            name: self.name.clone(),
            object: self.object,
            class: self.class,
            group: group.map(|((at, asked), source)| GroupInvitation {
                at: *at,
                source,
                asked: asked.clone(),
                own: member.own.clone(),
            }),
        }
    }

    /// A receiver is through.
    pub(super) fn end(&mut self, now: Time, node: NodeId, standing: MemberStanding) {
        let after = now.since(self.begun);
        let Some(member) = self.members.get_mut(&node).filter(|member| !member.has_ended()) else { return };
        (member.standing, member.ended, member.asks) = (standing, Some(after), None);
        if matches!(member.standing, MemberStanding::Kept | MemberStanding::Had) {
            member.bytes = self.bytes;
        }
    }

    /// How it does, in as many messages as it takes; the last one says whether it is over.
    pub(super) fn news(&mut self, now: Time, tasks: &Tasks, over: bool) -> Vec<CastNews> {
        let after = now.since(self.begun);
        let mut members = Vec::with_capacity(self.members.len());
        for (&node, member) in &mut self.members {
            if let Some(task) = member.task.and_then(|task| tasks.get(task)).filter(|_| !member.has_ended()) {
                member.bytes = member.bytes.max(self.bytes - task.remaining().min(self.bytes));
            }
            members.push(MemberNews {
                node,
                standing: member.standing.clone(),
                grouped: member.grouped || member.on_trees,
                bytes: Bytes::new(member.bytes.get().saturating_add(member.files.get())),
                by_group: member.by_group,
                alone: member.alone,
                relayed: member.relayed,
                passed_on: self.given.get(&node).copied().unwrap_or_default(),
                after: member.ended.unwrap_or(after),
            });
        }
        let others = self.given.iter().filter(|(node, _)| !self.members.contains_key(node));
        let given: Vec<(NodeId, Bytes)> =
            others.map(|(node, bytes)| (*node, *bytes)).take(MAX_NEWS).collect();
        let mut news: Vec<CastNews> = members
            .chunks(MAX_NEWS)
            .map(|members| CastNews {
                cast: self.number,
                object: self.object,
                bytes: self.bytes,
                files: self.files,
                source: self.source,
                way: self.way,
                to_group: self.to_group,
                given: given.clone(),
                between_racks: self.between_racks,
                members: members.to_vec(),
                of: u16::try_from(self.members.len()).unwrap_or(u16::MAX),
                repairs: self
                    .installed
                    .as_ref()
                    .map_or_else(Vec::new, |it| it.repairs.iter().copied().collect()),
                over: false,
            })
            .collect();
        if let Some(last) = news.last_mut() {
            last.over = over;
        }
        news
    }
}

/// All casts, with indexes that cannot disagree.
#[derive(Default)]
pub(super) struct Casts {
    casts: BTreeMap<u64, Cast>,
    requests: BTreeMap<(NodeId, u64), u64>,
    /// Flows of groups, and those on which they are probed.
    flows: BTreeMap<(NodeId, FlowId), u64>,
}

impl Casts {
    pub(super) fn len(&self) -> usize {
        self.casts.len()
    }
    pub(super) fn iter(&self) -> impl Iterator<Item = &Cast> {
        self.casts.values()
    }
    pub(super) fn get(&self, cast: u64) -> Option<&Cast> {
        self.casts.get(&cast)
    }
    pub(super) fn get_mut(&mut self, cast: u64) -> Option<&mut Cast> {
        self.casts.get_mut(&cast)
    }
    pub(super) fn of_request(&self, key: (NodeId, u64)) -> Option<u64> {
        self.requests.get(&key).copied()
    }
    /// The cast that a source's flow belongs to, or that is probed on it.
    pub(super) fn of_flow(&self, source: NodeId, flow: FlowId) -> Option<u64> {
        self.flows.get(&(source, flow)).copied()
    }
    /// The cast whose group has this flow.
    pub(super) fn of_group(&self, flow: FlowId) -> Option<(u64, FlowSecret)> {
        self.casts.values().find_map(|cast| {
            cast.flow.as_ref().filter(|its| its.flow == flow).map(|its| (cast.number, its.clone()))
        })
    }
    /// The cast that a source's flow is a tree of.
    pub(super) fn of_tree(&self, source: NodeId, tree: FlowId) -> Option<u64> {
        let number = self.of_flow(source, tree)?;
        self.get(number)?.installed.as_ref()?.tree(tree).map(|_| number)
    }
    /// The cast that has given a node an order of this tree.
    pub(super) fn of_order(&self, node: NodeId, tree: FlowId) -> Option<u64> {
        let has = |cast: &&Cast| cast.installed.as_ref().is_some_and(|it| it.has_order(node, tree));
        self.casts.values().find(has).map(|cast| cast.number)
    }
    /// The cast whose signals reach a node on this flow.
    pub(super) fn of_signals(&self, node: NodeId, flow: FlowId) -> Option<u64> {
        let has = |cast: &&Cast| cast.installed.as_ref().is_some_and(|it| it.signals_on(node, flow));
        self.casts.values().find(has).map(|cast| cast.number)
    }
    /// A cast has these trees.
    pub(super) fn install_trees(&mut self, number: u64, installed: InstalledTrees) {
        let cast = self.casts.get_mut(&number).expect("trees belong to a cast");
        self.flows.extend(installed.flows().map(|flow| ((cast.source, flow), number)));
        cast.installed = Some(Box::new(installed));
    }
    /// Whether it is the flow of a group that this node serves.
    pub(super) fn serves(&self, source: NodeId, flow: FlowId) -> bool {
        let its = |cast: &Cast| cast.flow.as_ref().is_some_and(|its| its.flow == flow);
        self.of_flow(source, flow).and_then(|cast| self.get(cast)).is_some_and(its)
    }
    /// Whether some cast has this group.
    pub(super) fn uses(&self, at: SocketAddr) -> bool {
        self.casts.values().any(|cast| cast.group.as_ref().is_some_and(|(its, _)| *its == at))
    }
    pub(super) fn add(&mut self, cast: Cast) {
        let number = cast.number;
        self.requests.extend(cast.members.iter().map(|(node, member)| ((*node, member.request), number)));
        if let Some((_, asked)) = &cast.group {
            self.flows.insert((cast.source, asked.flow), number);
        }
        let before = self.casts.insert(number, cast);
        assert!(before.is_none(), "a cast's number is used once");
    }
    /// The group's flow of a cast is this one.
    pub(super) fn open(&mut self, number: u64, flow: FlowSecret) {
        let cast = self.casts.get_mut(&number).expect("a group's flow belongs to a cast");
        self.flows.insert((cast.source, flow.flow), number);
        cast.flow = Some(flow);
    }
    /// The group's flow of a cast is over.
    pub(super) fn close(&mut self, number: u64) -> Option<FlowSecret> {
        let cast = self.casts.get_mut(&number)?;
        let flow = cast.flow.take()?;
        self.flows.remove(&(cast.source, flow.flow));
        Some(flow)
    }
    /// A receiver is told anew, under another number.
    pub(super) fn renumber(&mut self, number: u64, node: NodeId, request: u64) {
        let cast = self.casts.get_mut(&number).expect("a receiver belongs to a cast");
        let member = cast.members.get_mut(&node).expect("the caller has found it there");
        self.requests.remove(&(node, member.request));
        member.request = request;
        self.requests.insert((node, request), number);
    }
    pub(super) fn remove(&mut self, number: u64) {
        let Some(cast) = self.casts.remove(&number) else { return };
        self.requests.retain(|_, its| *its != number);
        self.flows.retain(|_, its| *its != number);
        drop(cast);
    }
}
