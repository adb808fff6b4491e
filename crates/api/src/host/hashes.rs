//! Block hashes of objects, 128 KiB for each GiB: a receiver needs them before the first block counts.
//!
//! A controller tells a long list to the first few that ask, and names to each later one somebody who has it or gets it first, so that no
//! machine sends more than a few copies:
//!
//! ```text
//!   controller --list--> a few nodes --list--> a few each --list--> ...
//! ```
//! A node that is not told there asks the controller once more, and is told by it. Whichever node the hashes come from,
//! they are what the object's id says.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use headwater_control::{Expect, Link};
use headwater_store::BlockHashes;
use headwater_units::{NodeId, ObjectId, PathId};
use tokio::time::timeout;

use super::{Host, LOCAL};
use crate::query::{Answer, Query, ask};

/// Block hashes of this many objects of others are remembered, and who was told those of as many.
const KEPT: usize = 64;
/// Longest list of hashes that is told to every asker: that of an object of 256 MiB.
const SHORT: usize = 1024;
/// Others that are told by each who has a long list.
const TOLD_BY_EACH: usize = 4;
/// Nodes that are remembered as told, for each object; later ones are told by the controller.
const MOST_TOLD: usize = 65_536;
/// A node that somebody could not reach is not named to others for so long.
const COMPLAINT_COUNTS: Duration = Duration::from_secs(60);
/// Maximum number of such nodes; further complaints do not count.
const MOST_COMPLAINTS: usize = 1024;
/// Time for a named node to answer; it may have to wait for its own answer.
const NAMED_PATIENCE: Duration = Duration::from_secs(5);
/// Part of it in which it must be reached: somewhere a firewall is between.
const REACHED_WITHIN: Duration = Duration::from_secs(2);
/// Time that a node which was asked waits for hashes that it has asked for itself.
const OWN_PATIENCE: Duration = Duration::from_secs(4);

/// Hashes of objects of others.
#[derive(Default)]
pub(super) struct Remembered {
    lists: BTreeMap<ObjectId, BlockHashes>,
    /// Those that this process is asking for, and for how many fetches.
    wanted: BTreeMap<ObjectId, usize>,
    /// Nodes that its controller has told.
    pub(super) referrals: Referrals,
}

/// Nodes that have been told each list, and the nodes that they tell.
#[derive(Debug, Default)]
pub(super) struct Referrals {
    objects: BTreeMap<ObjectId, Told>,
    away: Away,
}

/// Nodes that nobody is sent to.
#[derive(Debug, Default)]
struct Away {
    /// Their links have ended.
    left: BTreeSet<NodeId>,
    /// Somebody who was sent there could not reach them, and until when that counts.
    in_vain: BTreeMap<NodeId, Instant>,
}

/// Of one object.
#[derive(Debug, Default)]
struct Told {
    /// In the order in which they were told, and how many others were sent to each.
    tellers: Vec<(NodeId, usize)>,
    known: BTreeSet<NodeId>,
    /// Those before have been sent as many as they tell.
    first_free: usize,
    by_controller: usize,
    /// Who was sent to whom, and has not complained. Nobody is sent twice.
    sent: BTreeMap<NodeId, NodeId>,
}

impl Referrals {
    /// Whom `asker` should ask for the hashes of an object; `None`: it is told here. Others may be sent to one that listens.
    fn refer(&mut self, now: Instant, object: ObjectId, asker: NodeId, listens: bool) -> Option<NodeId> {
        if self.objects.len() >= KEPT && !self.objects.contains_key(&object) {
            self.objects.pop_first();
        }
        let told = self.objects.entry(object).or_default();
        let is_new = !told.known.contains(&asker) && !told.sent.contains_key(&asker);
        let may_be_sent = is_new && told.by_controller >= TOLD_BY_EACH && told.sent.len() < MOST_TOLD;
        let teller = if may_be_sent { told.next(now, &self.away) } else { None };
        match teller {
            Some(teller) => _ = told.sent.insert(asker, teller),
            None => told.by_controller += 1,
        }
        if is_new && listens && told.tellers.len() < MOST_TOLD {
            told.tellers.push((asker, 0));
            told.known.insert(asker);
        }
        teller
    }

    /// Nobody is sent to this node any more.
    pub(super) fn leave_out(&mut self, node: NodeId) {
        if self.away.left.len() < MOST_TOLD {
            self.away.left.insert(node);
        }
    }

    /// It is back.
    pub(super) fn allow(&mut self, node: NodeId) {
        self.away.left.remove(&node);
    }

    /// Somebody says that a node did not tell the hashes. That counts once from whoever was sent there, and for a while: whoever says so
    /// may lie, or be behind a firewall of its own.
    fn complain(&mut self, now: Instant, object: ObjectId, asker: NodeId, of: NodeId) {
        let Some(told) = self.objects.get_mut(&object) else { return };
        if told.sent.get(&asker) != Some(&of) {
            return;
        }
        // It stays known as one that was told, so it is not sent anywhere again.
        told.sent.remove(&asker);
        if told.known.len() < MOST_TOLD {
            told.known.insert(asker);
        }
        let in_vain = &mut self.away.in_vain;
        if in_vain.len() >= MOST_COMPLAINTS {
            in_vain.retain(|_, until| now < *until);
        }
        if in_vain.len() < MOST_COMPLAINTS {
            in_vain.insert(of, now + COMPLAINT_COUNTS);
        }
    }
}

impl Told {
    /// Takes a turn of the first that has one left.
    fn next(&mut self, now: Instant, away: &Away) -> Option<NodeId> {
        let mut place = self.first_free;
        while let Some((node, turns)) = self.tellers.get_mut(place) {
            let is_over = *turns >= TOLD_BY_EACH || away.left.contains(node);
            if !is_over && away.in_vain.get(node).is_none_or(|until| now >= *until) {
                *turns += 1;
                return Some(*node);
            }
            self.first_free += usize::from(is_over && place == self.first_free);
            place += 1;
        }
        None
    }
}

/// A fetch asks for the hashes of an object.
struct Wanting<'a> {
    host: &'a Host,
    object: ObjectId,
}

impl Drop for Wanting<'_> {
    fn drop(&mut self) {
        let wanted = &mut self.host.state().hashes.wanted;
        if let Some(fetches) = wanted.get_mut(&self.object) {
            *fetches -= 1;
            if *fetches == 0 {
                wanted.remove(&self.object);
            }
        }
        self.host.inner.hashes_changed.send_replace(());
    }
}

impl Host {
    /// The block hashes of an object: from here, from a peer that holds it, or as the controller at `path` says.
    pub(crate) async fn hashes(&self, object: ObjectId, path: Option<PathId>) -> Option<BlockHashes> {
        let (holders, controller) = {
            let state = self.state();
            if let Some(hashes) = state.hashes_here(object) {
                return Some(hashes);
            }
            let link = |path: PathId| Some(state.peers.get(&path)?.link.clone());
            let holders: Vec<Link> = state.held_by.of(object).filter_map(link).collect();
            (holders, path.filter(|path| *path != LOCAL).and_then(link))
        };
        let _wanting = self.want(object);
        for link in holders {
            if let Some(hashes) = self.hashes_of(&link, object).await {
                return Some(hashes);
            }
        }
        self.hashes_by(&controller?, object).await
    }

    /// As a controller says.
    async fn hashes_by(&self, controller: &Link, object: ObjectId) -> Option<BlockHashes> {
        match ask(controller, &Query::HashesOrWhere { object, in_vain: None }).await {
            Ok(Answer::HashesAt { node, at }) => {
                let named = timeout(NAMED_PATIENCE, self.hashes_of_named(node, at, object)).await;
                if let Ok(Some(hashes)) = named {
                    return Some(hashes);
                }
                tracing::debug!(node = %node.short(), %at, "not told the block hashes there");
                let again = ask(controller, &Query::HashesOrWhere { object, in_vain: Some(node) }).await;
                self.checked(controller, object, again.ok()?)
            }
            Ok(answer) => self.checked(controller, object, answer),
            // One of an earlier version does not know the question.
            Err(_) => self.hashes_of(controller, object).await,
        }
    }

    async fn hashes_of_named(&self, node: NodeId, at: SocketAddr, object: ObjectId) -> Option<BlockHashes> {
        let dialling = self.inner.endpoint.dial(at, Expect::Known(node));
        let link = timeout(REACHED_WITHIN, dialling).await.ok()?.ok()?;
        let hashes = self.hashes_of(&link, object).await;
        link.close("asked for block hashes");
        hashes
    }

    async fn hashes_of(&self, link: &Link, object: ObjectId) -> Option<BlockHashes> {
        let answer = ask(link, &Query::Hashes { object }).await.ok()?;
        self.checked(link, object, answer)
    }

    /// The hashes of an answer, if they are those of the object; remembered.
    fn checked(&self, link: &Link, object: ObjectId, answer: Answer) -> Option<BlockHashes> {
        let Answer::Hashes { bytes, hashes } = answer else { return None };
        match BlockHashes::verified(object, bytes, hashes) {
            Ok(hashes) => {
                let lists = &mut self.state().hashes.lists;
                if lists.len() >= KEPT {
                    lists.pop_first();
                }
                lists.insert(object, hashes.clone());
                Some(hashes)
            }
            Err(error) => {
                tracing::warn!(peer = %link.peer(), %error, "wrong block hashes");
                None
            }
        }
    }

    fn want(&self, object: ObjectId) -> Wanting<'_> {
        *self.state().hashes.wanted.entry(object).or_default() += 1;
        Wanting { host: self, object }
    }

    /// The hashes of an object for a peer; where this process is asking for them itself, once it has them.
    async fn hashes_soon(&self, object: ObjectId) -> Option<BlockHashes> {
        let mut changes = self.inner.hashes_changed.subscribe();
        let awaited = async {
            loop {
                let (hashes, wanted) = {
                    let state = self.state();
                    (state.hashes_here(object), state.hashes.wanted.contains_key(&object))
                };
                if hashes.is_some() || !wanted {
                    return hashes;
                }
                changes.changed().await.ok()?;
            }
        };
        match timeout(OWN_PATIENCE, awaited).await.ok().flatten() {
            Some(hashes) => Some(hashes),
            None => self.hashes(object, None).await,
        }
    }

    /// Answers a peer that asks for hashes.
    pub(super) async fn tell_hashes(&self, object: ObjectId) -> Answer {
        match self.hashes_soon(object).await {
            Some(hashes) => {
                self.inner.ops.hashes_told();
                Answer::Hashes { bytes: hashes.size(), hashes: hashes.as_slice().to_vec() }
            }
            None => Answer::Unknown,
        }
    }

    /// The same, or who else tells it.
    pub(super) async fn tell_hashes_or_where(
        &self,
        asker: NodeId,
        object: ObjectId,
        in_vain: Option<NodeId>,
    ) -> Answer {
        let is_long = |hashes: BlockHashes| hashes.as_slice().len() > SHORT;
        if self.inner.controller.is_none() || !self.hashes_soon(object).await.is_some_and(is_long) {
            return self.tell_hashes(object).await;
        }
        let named = {
            let mut state = self.state();
            let listens = state.labels.get(asker).is_some();
            let referrals = &mut state.hashes.referrals;
            #[allow(clippy::disallowed_methods)] // A complaint counts for a while.
            let now = Instant::now();
            match in_vain {
                Some(node) => {
                    referrals.complain(now, object, asker, node);
                    None
                }
                None => referrals.refer(now, object, asker, listens),
            }
            .and_then(|node| Some((node, state.labels.get(node)?.parse().ok()?)))
        };
        match named {
            Some((node, at)) => {
                self.inner.ops.hashes_referred();
                Answer::HashesAt { node, at }
            }
            None => self.tell_hashes(object).await,
        }
    }
}

impl super::State {
    fn hashes_here(&self, object: ObjectId) -> Option<BlockHashes> {
        let held = self.held.get(&object).map(|held| &held.hashes);
        held.or_else(|| self.hashes.lists.get(&object)).cloned()
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::path::Path;
    use std::sync::Arc;

    use headwater_controller::ControllerConfig;
    use headwater_store::SourceFile;

    use super::super::{Held, HostConfig};
    use super::*;
    use crate::{Common, data_config};

    fn node(n: u16) -> NodeId {
        let mut id = [0; 32];
        id[..2].copy_from_slice(&n.to_be_bytes());
        NodeId(id)
    }

    #[allow(clippy::disallowed_methods)] // A test counts from now.
    fn now() -> Instant {
        Instant::now()
    }

    #[test]
    fn each_tells_four_and_the_controller_too() {
        let object = ObjectId([1; 32]);
        let mut referrals = Referrals::default();
        let mut told: BTreeMap<Option<NodeId>, usize> = BTreeMap::new();
        for n in 0..1000 {
            *told.entry(referrals.refer(now(), object, node(n), true)).or_default() += 1;
        }
        assert!(told.values().all(|others| *others <= TOLD_BY_EACH), "{told:?}");
        assert_eq!(told[&None], TOLD_BY_EACH);
        assert_eq!(referrals.refer(now(), object, node(7), true), None, "who asks again is told here");
    }

    #[test]
    fn nobody_is_sent_to_who_is_away_or_does_not_listen() {
        let object = ObjectId([1; 32]);
        let mut referrals = Referrals::default();
        for n in 0..4 {
            assert_eq!(referrals.refer(now(), object, node(n), n > 1), None);
        }
        referrals.leave_out(node(2));
        for n in 10..14 {
            assert_eq!(referrals.refer(now(), object, node(n), false), Some(node(3)));
        }
        assert_eq!(referrals.refer(now(), object, node(14), true), None, "nobody else has it");
        assert_eq!(referrals.refer(now(), object, node(15), true), Some(node(14)));
        referrals.leave_out(node(14));
        assert_eq!(referrals.refer(now(), object, node(16), false), Some(node(15)));
    }

    #[test]
    fn a_complaint_counts_from_whoever_was_sent_there_once_and_for_a_minute() {
        let (object, begun) = (ObjectId([1; 32]), now());
        let mut referrals = Referrals::default();
        for n in 0..4 {
            assert_eq!(referrals.refer(begun, object, node(n), n == 0), None);
        }
        // Neither one that asks for the first time, nor one that was sent elsewhere.
        referrals.complain(begun, object, node(20), node(0));
        assert_eq!(referrals.refer(begun, object, node(21), false), Some(node(0)));
        referrals.complain(begun, object, node(21), node(9));
        assert_eq!(referrals.refer(begun, object, node(22), false), Some(node(0)));
        referrals.complain(begun, object, node(22), node(0));
        assert_eq!(referrals.refer(begun, object, node(22), false), None, "nobody is sent twice");
        assert_eq!(referrals.refer(begun, object, node(23), false), None);
        let later = begun + COMPLAINT_COUNTS;
        referrals.complain(later, object, node(22), node(0));
        assert_eq!(referrals.refer(later, object, node(24), false), Some(node(0)), "it may be tried again");
    }

    #[test]
    fn complaints_are_bounded_and_expire() {
        let (object, begun) = (ObjectId([1; 32]), now());
        let mut referrals = Referrals::default();
        (0..4).for_each(|n| _ = referrals.refer(begun, object, node(n), n == 0));
        referrals.objects.get_mut(&object).unwrap().sent =
            (0..2000).map(|n| (node(3000 + n), node(1000 + n))).collect();
        (0..2000).for_each(|n| referrals.complain(begun, object, node(3000 + n), node(1000 + n)));
        assert_eq!(referrals.away.in_vain.len(), MOST_COMPLAINTS);
        referrals.objects.get_mut(&object).unwrap().sent.insert(node(9000), node(0));
        referrals.complain(begun + COMPLAINT_COUNTS, object, node(9000), node(0));
        assert_eq!(referrals.away.in_vain.len(), 1);
    }

    fn host(state: &Path, is_controller: bool) -> Host {
        let common = Common::new(state);
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let node = Some(data_config(&common, listen).unwrap());
        let controller = is_controller.then(|| (ControllerConfig::default(), None));
        Host::start(HostConfig { common: &common, listen: Some(listen), controller, node, passes_on: true })
            .unwrap()
    }

    /// Joins the controller, and is known there.
    async fn join(node: &Host, controller: &Host) -> PathId {
        let path = node.new_path();
        node.keep_dialled(path, &controller.listen().unwrap().to_string(), false).await.unwrap();
        while controller.label(node.id()).is_none() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        path
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_long_list_goes_from_node_to_node_and_past_those_that_have_gone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("object");
        std::fs::File::create(&path).unwrap().set_len(257 << 20).unwrap();
        let list = BlockHashes::of_file(&path, &mut |_| {}).unwrap();
        let object = list.root();
        let controller = host(&folder.path().join("controller"), true);
        let file = Arc::new(SourceFile::open(&path).unwrap());
        controller.hold(object, Held { file, hashes: list.clone(), names: BTreeMap::new() });
        let mut nodes = Vec::new();
        for n in 0..12 {
            let node = host(&folder.path().join(n.to_string()), false);
            nodes.push((join(&node, &controller).await, node));
        }
        let mut asking = tokio::task::JoinSet::new();
        for (path, node) in nodes.clone() {
            asking.spawn(async move { node.hashes(object, Some(path)).await });
        }
        while let Some(told) = asking.join_next().await {
            assert_eq!(told.unwrap().unwrap().as_slice(), list.as_slice());
        }
        // On a busy machine one or the other may come back to the controller; who is told by whom otherwise, the tests above say.
        let (by_controller, referred) = controller.inner.ops.hash_lists();
        let by_nodes: u64 = nodes.iter().map(|(_, node)| node.inner.ops.hash_lists().0).sum();
        assert!(by_controller + by_nodes >= 12 && by_controller >= 4, "{by_controller} and {by_nodes}");
        assert!(referred > 0, "nobody was sent on");

        // All have gone but the one that asks.
        for (_, node) in &nodes {
            node.close().await;
        }
        let late = host(&folder.path().join("late"), false);
        let path = join(&late, &controller).await;
        assert!(late.hashes(object, Some(path)).await.is_some());
    }
}
