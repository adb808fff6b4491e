//! Casts by trees (Datacast §III): the source has a flow per tree, every node on one is told whom to ask and whom to answer, and what
//! is found cut is left out of new trees.
//!
//! ```text
//!   Gathering --> trees --> Push per tree --------> source -- Pushing ---.
//!                   ^   `-> TreeOrder per node and tree --> TreeReady ---+--> Running: receivers have their trees
//!                   |                                                           |
//!                   `------ repair <-- a beat to hear the others too <-- Silent ' (neighbours that are not heard of)
//! ```
//! **Who knows the way.** In the paper each packet carries its route. Here whoever hands on is told its neighbours, since it must be
//! told the tree's key in any case: it takes nothing from a neighbour that has not got it, and sends nothing anywhere else.
//! Devices that know no key, switches with stores, need neither: the next host's address is what an interest goes to.
//!
//! **What is cut.** A hop that its ends report silent, in either direction, crosses cables; those that another hop is heard over are
//! well. Of the others the fewest that explain all silent hops count as cut, and where several explain as much, all of these.
//!
//! **A tree keeps its flow** when it is led another way; nothing that has come is lost, and who asks again is answered by whoever has
//! it. One for which there is no way of its own shares that of another: the blocks that it was given must still come. (The paper
//! gives such a tree up.)
//!
//! **Who is told how.** The first order of a tree carries its key, and goes to each node by its own connection. That it leads another
//! way may be told down a tree of nodes: `signals`.

use core::net::{IpAddr, SocketAddr};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use headwater_fabric::HostId;
use headwater_fabric::trees::{Hop, SteinerTree};
use headwater_units::{BitRate, BlockIndex, Duration, FlowId, Geometry, NodeId, Symbols, TaskId, Time};
use headwater_wire::{
    CastWay, FlowGrant, FlowSecret, MAX_NEWS, MemberStanding, Request, ToNode, ToReceiver, TreeOrder,
    TreeRepair, WhyUnicast,
};

use super::Controller;
use super::casts::{Cast, Stage};
use super::tasks::{Pace, Retry, Task};
use cuts::cut_cables;
use signals::Signals;

mod cuts;
mod signals;

mod pushes;

/// The trees of a cast.
#[derive(Default)]
pub(super) struct InstalledTrees {
    /// What the source is told that its flows are for.
    task: TaskId,
    trees: Vec<InstalledTree>,
    /// Who receives by them, and where they stand.
    receivers: BTreeMap<NodeId, HostId>,
    orders: BTreeMap<(NodeId, FlowId), Order>,
    /// Where the node above reaches each.
    addresses: BTreeMap<(NodeId, FlowId), SocketAddr>,
    version: u32,
    /// What was last reported as silent: by whom, on which tree, which neighbour.
    silent: BTreeSet<(NodeId, FlowId, SocketAddr)>,
    /// The first such report since the last repair, and how long there had been silence.
    reported: Option<(Time, Duration)>,
    pub(super) repairs: VecDeque<TreeRepair>,
    /// When the orders of the last repair were given, until all are confirmed.
    told_since: Option<Time>,
    /// Bytes of symbol that a datagram to each node carries.
    room: u16,
    signals: Signals,
}

/// One tree.
struct InstalledTree {
    secret: FlowSecret,
    way: SteinerTree,
    /// The most that its links carry, if that is known, and whether the source was told so.
    most: Option<BitRate>,
    told_most: bool,
    state: State,
    sent: Symbols,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Ordered,
    Pushing,
    Stopping,
    Over,
}

/// What a node was told of a tree.
struct Order {
    order: TreeOrder,
    say: Retry,
    confirmed: bool,
    /// The node has confirmed a version of it, and has the keys.
    known: bool,
}

/// What nodes are to be told, and where the node above reaches each.
#[derive(Default)]
struct Wanted {
    orders: BTreeMap<(NodeId, FlowId), TreeOrder>,
    addresses: BTreeMap<(NodeId, FlowId), SocketAddr>,
}

impl InstalledTrees {
    pub(super) fn flows(&self) -> impl Iterator<Item = FlowId> + '_ {
        self.trees.iter().map(|tree| tree.secret.flow)
    }

    pub(super) fn tree(&self, flow: FlowId) -> Option<usize> {
        self.trees.iter().position(|tree| tree.secret.flow == flow)
    }

    pub(super) fn has_order(&self, node: NodeId, tree: FlowId) -> bool {
        self.orders.contains_key(&(node, tree))
    }

    /// So much has left on one tree; on all together.
    pub(super) fn has_sent(&mut self, flow: FlowId, sent: Symbols) -> Symbols {
        if let Some(place) = self.tree(flow) {
            self.trees[place].sent = sent;
        }
        self.trees.iter().map(|tree| tree.sent).sum()
    }

    /// It receives by them no more.
    pub(super) fn leave_out(&mut self, node: NodeId) {
        self.receivers.remove(&node);
    }

    fn is_ready(&self) -> bool {
        self.trees.iter().all(|tree| tree.state == State::Pushing)
            && self.orders.values().all(|order| order.confirmed)
    }
}

impl Controller {
    // ---- the way there

    /// Whether it is known where enough of them stand.
    pub(super) fn may_install_trees(&self, cast: &Cast) -> bool {
        let Some(network) = &self.network else { return false };
        let stands =
            |node: NodeId| self.registry.node(node).is_some_and(|it| network.host_of(&it.info).is_some());
        stands(cast.source) && cast.open_members().filter(|(node, _)| stands(*node)).count() >= 2
    }

    /// The nodes that are here, by where they stand.
    fn standing(&self) -> BTreeMap<HostId, NodeId> {
        let Some(network) = &self.network else { return BTreeMap::new() };
        let here = self.registry.nodes().filter(|node| node.path.is_some());
        here.filter_map(|node| Some((network.host_of(&node.info)?, node.info.node))).collect()
    }

    /// All are here who are waited for: finds the trees, and tells everybody on them.
    pub(super) fn install_trees(&mut self, now: Time, number: u64) {
        let standing = self.standing();
        let cast = self.casts.get(number).expect("the caller has found it");
        let (source, bytes) = (cast.source, cast.bytes);
        let asking =
            |node: &NodeId| cast.members.get(node).is_some_and(|it| it.asks.is_some() && !it.has_ended());
        let mut receivers: BTreeMap<NodeId, HostId> =
            standing.iter().filter(|(_, node)| asking(node)).map(|(host, node)| (*node, *host)).collect();
        let of = u16::try_from(cast.open_members().count()).unwrap_or(u16::MAX);
        let root = standing.iter().find(|(_, node)| **node == source).map(|(host, _)| *host);
        let (Some(root), 2.., Some(network)) = (root, receivers.len(), &mut self.network) else {
            return self.serve_without_group(now, number, WhyUnicast::TooFew);
        };
        let hosts: Vec<HostId> = receivers.values().copied().collect();
        let (ways, lost) = network.trees(now, root, &hosts, Vec::new(), |host| standing.contains_key(&host));
        receivers.retain(|_, host| !lost.contains(host));
        if ways.is_empty() || receivers.len() < 2 {
            return self.serve_without_group(now, number, WhyUnicast::NoTrees);
        }
        let ways: Vec<SteinerTree> = ways.into_iter().take(network.most_trees).collect();
        let hops = ways.iter().flat_map(|way| network.hops(way)).map(|hop| hop.depth).max().unwrap_or(0);
        // Whoever only hands on must carry the symbols too.
        let rooms = standing.values().filter_map(|node| self.registry.node(*node)).map(|node| node.info.room);
        let cast = self.casts.get(number).expect("the caller has found it");
        let asked = cast.members.values().filter_map(|member| Some(member.asks.as_ref()?.1.room));
        let room = asked.chain(rooms).min().unwrap_or(0);
        let symbol_size = Geometry::fitting(bytes, room).symbol_size();
        let rates = self.network.as_ref().map_or_else(Vec::new, |network| network.rates(&ways, symbol_size));
        let task = self.unused_task_id();
        let mut installed = InstalledTrees { task, receivers, room, ..InstalledTrees::default() };
        for way in ways {
            installed.trees.push(InstalledTree {
                secret: self.secret(),
                way,
                most: None,
                told_most: false,
                state: State::Ordered,
                sent: Symbols::ZERO,
            });
        }
        installed.bound(rates);
        let (trees, members) = (installed.trees.len() as u16, installed.receivers.len() as u16);
        let cast = self.casts.get_mut(number).expect("the caller has found it");
        cast.symbol_size = symbol_size;
        cast.stage = Stage::Opening { until: now + self.config.silent_limit };
        cast.way = CastWay::Trees { trees, members, of, hops: hops.try_into().unwrap_or(u16::MAX) };
        self.casts.install_trees(number, installed);
        self.stats.casts_planted += 1;
        self.order_pushes(number);
        self.give_orders(now, number, &standing);
    }

    // ---- who hands on to whom

    /// What each node on the trees is to do.
    fn wanted_orders(&self, number: u64, standing: &BTreeMap<HostId, NodeId>) -> Wanted {
        let mut wanted = Wanted::default();
        let (Some(cast), Some(network)) = (self.casts.get(number), &self.network) else { return wanted };
        let Some(installed) = &cast.installed else { return wanted };
        let Wanted { orders, addresses } = &mut wanted;
        let port = |node: NodeId| self.registry.node(node)?.info.data.first().map(SocketAddr::port);
        let at = |address: IpAddr, node| Some(SocketAddr::new(address, port(node)?));
        for tree in &installed.trees {
            let signals = |node| installed.signals.secret(node).cloned().expect("all who stand have one");
            let order = |node: NodeId| TreeOrder {
                tree: tree.secret.clone(),
                version: 0,
                symbol_size: cast.symbol_size,
                parent: None,
                branches: Vec::new(),
                receives: installed.receivers.contains_key(&node),
                store: self.config.tree_store,
                beat: self.config.tree_beat,
                signals: signals(node),
            };
            for Hop { from, from_port, to, to_port, branch, .. } in network.hops(&tree.way) {
                let (Some(&above), Some(&below)) = (standing.get(&from), standing.get(&to)) else { continue };
                let parent = at(network.address(from, from_port), above);
                let child = at(network.address(to, to_port), below);
                let (Some(parent), Some(child)) = (parent, child) else { continue };
                let key = |node| (node, tree.secret.flow);
                let branches = &mut orders.entry(key(above)).or_insert_with(|| order(above)).branches;
                branches.resize(branches.len().max(branch + 1), Vec::new());
                branches[branch].push(child);
                orders.entry(key(below)).or_insert_with(|| order(below)).parent = Some(parent);
                addresses.insert(key(below), child);
            }
        }
        // A host that has left meanwhile leaves a branch that leads nowhere.
        orders.values_mut().for_each(|order| order.branches.retain(|branch| !branch.is_empty()));
        wanted
    }

    /// Tells the nodes whose part has changed.
    fn give_orders(&mut self, now: Time, number: u64, standing: &BTreeMap<HostId, NodeId>) {
        self.draw_signal_keys(number, standing.values());
        let Wanted { orders: wanted, addresses } = self.wanted_orders(number, standing);
        let first = self.config.retry_first;
        let Some(installed) = self.casts.get_mut(number).and_then(|cast| cast.installed.as_mut()) else {
            return;
        };
        installed.addresses = addresses;
        installed.version += 1;
        let version = installed.version;
        let gone: Vec<(NodeId, FlowId)> =
            installed.orders.keys().filter(|key| !wanted.contains_key(*key)).copied().collect();
        gone.iter().for_each(|key| drop(installed.orders.remove(key)));
        for (key, order) in wanted {
            let before = installed.orders.get(&key);
            let same = |before: &Order| TreeOrder { version: 0, ..before.order.clone() } == order;
            if !before.is_some_and(same) {
                let known = before.is_some_and(|before| before.known || before.confirmed);
                let (order, say) = (TreeOrder { version, ..order }, Retry::at(now, first));
                installed.orders.insert(key, Order { order, say, confirmed: false, known });
            }
        }
        gone.into_iter().for_each(|(node, tree)| self.send_to(node, ToNode::FellTree { tree }));
        self.signal_orders(now, number, standing);
        self.say_orders(now, number);
    }

    /// Orders that nobody has confirmed are said again. Returns when the next one is due.
    fn say_orders(&mut self, now: Time, number: u64) -> Option<Time> {
        let longest = self.config.retry_longest;
        let installed = self.casts.get_mut(number)?.installed.as_mut()?;
        let mut says = Vec::new();
        for ((node, _), order) in installed.orders.iter_mut().filter(|(_, order)| !order.confirmed) {
            if order.say.fire(now, longest) {
                says.push((*node, ToNode::PlantTree(Box::new(order.order.clone()))));
            }
        }
        let next =
            installed.orders.values().filter(|order| !order.confirmed).map(|order| order.say.due()).min();
        says.into_iter().for_each(|(node, order)| self.send_to(node, order));
        next
    }

    /// A node does as its order says.
    pub(super) fn tree_ready(&mut self, now: Time, node: NodeId, tree: FlowId, version: u32) {
        let Some(number) = self.casts.of_order(node, tree) else {
            // Nobody knows what it is for.
            return self.send_to(node, ToNode::FellTree { tree });
        };
        let installed = self.casts.get_mut(number).and_then(|cast| cast.installed.as_mut());
        if let Some(order) = installed.and_then(|installed| installed.orders.get_mut(&(node, tree))) {
            order.confirmed |= order.order.version == version;
        }
        self.have_confirmed(now, number);
    }

    /// Some nodes do as their orders say.
    fn have_confirmed(&mut self, now: Time, number: u64) {
        let cast = self.casts.get_mut(number).expect("orders and casts agree");
        let (begun, installed) = (cast.begun, cast.installed.as_mut().expect("it has orders"));
        if installed.orders.values().all(|order| order.confirmed)
            && let (Some(since), Some(last)) = (installed.told_since.take(), installed.repairs.back_mut())
        {
            last.told = Some(now.since(since));
            debug_assert!(since >= begun, "a cast is repaired after it has begun");
        }
        self.look_whether_ready(now, number);
        self.tick_cast(now, number);
    }

    /// The source has opened a tree's flow.
    pub(super) fn tree_pushing(&mut self, now: Time, source: NodeId, flow: FlowId) {
        let Some(number) = self.casts.of_tree(source, flow) else { return };
        let installed = self.casts.get_mut(number).and_then(|cast| cast.installed.as_mut());
        let installed = installed.expect("it has that tree");
        let place = installed.tree(flow).expect("it has that tree");
        if installed.trees[place].state == State::Ordered {
            installed.trees[place].state = State::Pushing;
        }
        self.look_whether_ready(now, number);
        self.tick_cast(now, number);
    }

    /// A tree's flow is over, or was refused.
    pub(super) fn tree_over(&mut self, now: Time, source: NodeId, flow: FlowId) {
        let Some(number) = self.casts.of_tree(source, flow) else { return };
        let cast = self.casts.get_mut(number).expect("trees and casts agree");
        let (stage, installed) = (cast.stage, cast.installed.as_mut().expect("it has that tree"));
        let place = installed.tree(flow).expect("it has that tree");
        let before = std::mem::replace(&mut installed.trees[place].state, State::Over);
        match (before, stage) {
            (State::Stopping | State::Over, _) => {}
            (_, Stage::Running) => {
                let receivers: Vec<NodeId> = installed.receivers.keys().copied().collect();
                for node in receivers {
                    self.leave_trees(now, number, node, "its source has it no more");
                }
            }
            _ => self.serve_without_group(now, number, WhyUnicast::Source),
        }
        self.tick_cast(now, number);
    }

    /// Once everybody on the trees knows, receivers have them.
    fn look_whether_ready(&mut self, now: Time, number: u64) {
        let cast = self.casts.get_mut(number).expect("the caller has found it");
        let Some(installed) = cast.installed.as_ref().filter(|installed| installed.is_ready()) else {
            return;
        };
        if !matches!(cast.stage, Stage::Opening { .. }) {
            return;
        }
        cast.stage = Stage::Running;
        let (of, source, room) = (installed.trees.len() as u8, cast.source, cast.symbol_size);
        let grant = |(index, tree): (u8, &InstalledTree)| FlowGrant {
            flow: tree.secret.flow,
            node: source,
            at: Vec::new(),
            key: tree.secret.key,
            index,
            of,
            relays: false,
            passed_on: true,
            group: None,
        };
        let grants: Vec<FlowGrant> = (0..of).zip(&installed.trees).map(grant).collect();
        let receivers: Vec<NodeId> = installed.receivers.keys().copied().collect();
        for node in receivers {
            self.serve_by_trees(now, number, node, grants.clone(), room);
        }
        self.serve_waiting(now, number);
    }

    /// Answers what a receiver has asked, with a task that has a cast's trees.
    fn serve_by_trees(
        &mut self,
        now: Time,
        number: u64,
        node: NodeId,
        trees: Vec<FlowGrant>,
        symbol_size: u16,
    ) {
        let delivery = self.delivery_by_trees();
        let id = self.unused_task_id();
        let full = self.tasks.len() >= self.config.max_tasks;
        let cast = self.casts.get_mut(number).expect("the caller has found it");
        let (object, bytes, name) = (cast.object, cast.bytes, cast.name.clone());
        let Some(member) = cast.members.get_mut(&node).filter(|member| !member.has_ended()) else { return };
        let Some((path, request)) = member.asks.take() else { return };
        if full {
            self.stats.requests_refused += 1;
            let reason = headwater_wire::Refusal::Full;
            return self.send(path, ToReceiver::Refused { request: request.request, reason });
        }
        (member.task, member.standing, member.on_trees) = (Some(id), MemberStanding::Receiving, true);
        let needed = Geometry::new(bytes, symbol_size).map_or(Symbols::ZERO, |it| it.total_symbols());
        let Request { request, receiver, class, spread, .. } = request;
        self.tasks.add(Task {
            id,
            request,
            receiver,
            object,
            bytes,
            name,
            symbol_size,
            class,
            spread,
            delivery,
            // Nobody else brings a part of it.
            max_sources: 0,
            classes: 0,
            version: 0,
            flows: Vec::new(),
            trees,
            distrusted: BTreeSet::new(),
            path: Some(path),
            heard: now,
            pace: Pace::Running,
            needed,
            held_up: false,
            first_undecoded: BlockIndex(0),
            list: None,
            anew: None,
            passes_on: false,
            barred: BTreeMap::new(),
            classes_used: BTreeSet::new(),
        });
        self.stats.tasks_accepted += 1;
        self.accept(path, id);
        self.touched.insert(id);
    }

    // ---- what fails

    /// A node does not hear of neighbours on a tree.
    pub(super) fn silent(
        &mut self,
        now: Time,
        node: NodeId,
        tree: FlowId,
        neighbours: &[SocketAddr],
        since: Duration,
    ) {
        let Some(number) = self.casts.of_order(node, tree) else {
            return self.send_to(node, ToNode::FellTree { tree });
        };
        let cast = self.casts.get_mut(number).expect("orders and casts agree");
        let installed = cast.installed.as_mut().expect("it has orders");
        let Some(Order { order, .. }) = installed.orders.get(&(node, tree)) else { return };
        // Whatever a node says, its neighbours are few.
        let is_its = |at: &&SocketAddr| {
            order.parent == Some(**at) || order.branches.iter().flatten().any(|its| its == *at)
        };
        installed.silent.extend(neighbours.iter().filter(is_its).map(|at| (node, tree, *at)));
        // What is said of somebody who is no neighbour any more was said before an order came.
        if !installed.silent.is_empty() {
            installed.reported.get_or_insert((now, since));
        }
        self.tick_cast(now, number);
    }

    /// Says orders again, and repairs what was reported. Returns when there is more to do.
    pub(super) fn look_after_trees(&mut self, now: Time, number: u64) -> Option<Time> {
        let cast = self.casts.get(number)?;
        let installed = cast.installed.as_ref()?;
        // The other neighbours of what has failed notice within a beat.
        let mut next = installed.reported.map(|(at, _)| at + self.config.tree_beat);
        if next.is_some_and(|at| now >= at) {
            self.repair(now, number);
            next = None;
        }
        let say = self.say_orders(now, number);
        next.into_iter().chain(say).min()
    }

    fn repair(&mut self, now: Time, number: u64) {
        let Some(network) = &self.network else { return };
        let (mut standing, lasts) = (self.standing(), self.config.cut_for);
        let cast = self.casts.get_mut(number).expect("the caller has found it");
        let (source, begun, symbol_size) = (cast.source, cast.begun, cast.symbol_size);
        let installed = cast.installed.as_mut().expect("it has trees");
        let Some((reported, silence)) = installed.reported.take() else { return };
        // Whose connection to the controller has gone may stand on a tree all the same.
        for (node, _) in installed.orders.keys() {
            let host = self.registry.node(*node).and_then(|it| network.host_of(&it.info));
            host.map(|host| standing.insert(host, *node));
        }
        let cut = cut_cables(installed, &standing, |way| network.hops(way), |link| network.cable(link));
        installed.silent.clear();
        let open = |node: &NodeId| cast.members.get(node).is_some_and(|it| it.on_trees && !it.has_ended());
        let receivers: BTreeMap<NodeId, HostId> = installed
            .receivers
            .iter()
            .filter(|(node, _)| open(node))
            .map(|(node, host)| (*node, *host))
            .collect();
        let root = standing.iter().find(|(_, node)| **node == source).map(|(host, _)| *host);
        let (Some(root), false, Some(network)) = (root, receivers.is_empty(), &mut self.network) else {
            return;
        };
        cut.iter().for_each(|cable| network.cut(now, *cable, lasts));
        let hosts: Vec<HostId> = receivers.values().copied().collect();
        let known = installed.trees.iter().map(|tree| tree.way.clone()).collect();
        let (ways, lost) = network.trees(now, root, &hosts, known, |host| standing.contains_key(&host));
        let (mut rebuilt, mut shared) = (0, 0);
        for (place, tree) in installed.trees.iter_mut().enumerate() {
            let own = ways.iter().find(|way| way.number() == tree.way.number());
            let Some(way) = own.or_else(|| ways.get(place % ways.len().max(1))) else { continue };
            shared += u16::from(own.is_none());
            rebuilt += u16::from(tree.way.links() != way.links());
            tree.way = way.clone();
        }
        installed.bound(network.rates(&installed.ways(), symbol_size));
        installed.repairs.push_back(TreeRepair {
            after: reported.since(begun),
            silent: silence,
            decided: now.since(reported),
            told: None,
            cut: u16::try_from(cut.len()).unwrap_or(u16::MAX),
            rebuilt,
            shared,
            signalled: 0,
            unanswered: 0,
        });
        if installed.repairs.len() > MAX_NEWS {
            installed.repairs.pop_front();
        }
        installed.receivers.retain(|_, host| !lost.contains(host));
        self.stats.trees_repaired += 1;
        for node in receivers.into_iter().filter(|(_, host)| lost.contains(host)).map(|(node, _)| node) {
            self.leave_trees(now, number, node, "no way leads to it that is not cut");
        }
        self.order_pushes(number);
        self.give_orders(now, number, &standing);
        if let Some(installed) = self.casts.get_mut(number).and_then(|cast| cast.installed.as_mut()) {
            // Where nobody's part has changed nobody is told, and there is nothing to wait for.
            let told = installed.orders.values().any(|order| !order.confirmed);
            installed.told_since = told.then_some(now);
        }
    }

    // ---- the end

    /// The source is to send nothing more; true if it does not.
    pub(super) fn stop_trees(&mut self, now: Time, number: u64) -> bool {
        let Some(cast) = self.casts.get_mut(number) else { return true };
        let source = cast.source;
        let Some(installed) = &mut cast.installed else { return true };
        let mut stops = Vec::new();
        for tree in &mut installed.trees {
            if matches!(tree.state, State::Ordered | State::Pushing) {
                tree.state = State::Stopping;
                stops.push(tree.secret.flow);
            }
        }
        let over = installed.trees.iter().all(|tree| tree.state == State::Over);
        if let Some(node) = self.registry.node(source) {
            let incarnation = node.info.incarnation;
            stops.into_iter().for_each(|flow| self.stop_flow(now, source, flow, incarnation));
        }
        over
    }

    /// A cast has no trees any more.
    pub(super) fn remove_trees(&mut self, now: Time, number: u64) {
        self.stop_trees(now, number);
        let installed = self.casts.get_mut(number).and_then(|cast| cast.installed.take());
        for (node, tree) in installed.iter().flat_map(|installed| installed.orders.keys()) {
            self.send_to(*node, ToNode::FellTree { tree: *tree });
        }
    }
}
