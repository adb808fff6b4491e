//! Casts by trees (Datacast §III): the source has a flow per tree, every node on a tree is told whom to ask and whom to answer, and
//! cut cables are left out of new trees.
//!
//! ```text
//!   Gathering --> trees --> Push per tree --------> source -- Pushing ---.
//!                   ^   `-> TreeOrder per node and tree --> TreeReady ---+--> Running: receivers have their trees
//!                   |                                                           |
//!                   `------ repair <-- a heartbeat to hear the others too <-- Silent ' (neighbours that are not heard of)
//! ```
//! **Routes.** In the paper each packet carries its route. Here each node on a tree is told its neighbours, since it must be
//! told the tree's key in any case: it takes packets only from neighbours that have the key, and sends only to these.
//! Switches with stores have no key and need none: an interest is addressed to the next host.
//!
//! **Cuts.** A hop crosses cables. If its ends report silence, in either direction, one of its cables may be cut; cables that another
//! hop is heard over are not. Of the others, the smallest set that explains all silent hops counts as cut; if there are several such
//! sets, all of their cables count as cut.
//!
//! **A tree keeps its flow** when it is rerouted. Nothing that has arrived is lost, and repeated interests are answered by any node
//! that has the symbol. A tree for which there is no path of its own shares that of another: the blocks that it was given must still
//! come. (The paper gives such a tree up.)
//!
//! **Signalling.** The first order of a tree carries its key, and goes to each node by its own connection. A reroute may be spread by
//! the nodes themselves: `signals`.

use core::net::{IpAddr, SocketAddr};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use headwater_fabric::HostId;
use headwater_fabric::trees::{Hop, SteinerTree};
use headwater_units::{BitRate, Bytes, Duration, FlowId, Geometry, NodeId, ObjectId, Symbols, TaskId, Time};
use headwater_wire::{Class, FlowGrant, FlowSecret, ToNode, TreeOrder, TreeRepair, WhyUnicast};

use crate::catalog::Catalog;
use crate::network::Network;
use crate::retry::Retry;
use crate::tasks::Tasks;
use crate::turn::Turn;
use signals::Signals;

mod cuts;
mod pushes;
mod repair;
mod signals;

/// Object that is cast by trees, and its source.
#[derive(Clone, Copy)]
pub(crate) struct Cargo {
    pub(crate) object: ObjectId,
    pub(crate) bytes: Bytes,
    pub(crate) class: Class,
    pub(crate) source: NodeId,
    /// When the cast began.
    pub(crate) begun: Time,
}

/// The trees of a cast.
pub(crate) struct InstalledTrees {
    cargo: Cargo,
    pub(crate) symbol_size: u16,
    /// Task that the source's flows are for.
    task: TaskId,
    trees: Vec<InstalledTree>,
    /// Receivers of the trees, with their hosts.
    receivers: BTreeMap<NodeId, HostId>,
    orders: BTreeMap<(NodeId, FlowId), Order>,
    /// Where the node above reaches each.
    addresses: BTreeMap<(NodeId, FlowId), SocketAddr>,
    version: u32,
    /// Last reports of silence: the reporter, the tree, the neighbour.
    silent: BTreeSet<(NodeId, FlowId, SocketAddr)>,
    /// The first such report since the last repair, and how long there had been silence.
    reported: Option<(Time, Duration)>,
    repairs: VecDeque<TreeRepair>,
    /// When the orders of the last repair were given, until all are confirmed.
    told_since: Option<Time>,
    /// Bytes of symbol that a datagram to each node carries.
    room: u16,
    signals: Signals,
}

/// One tree.
struct InstalledTree {
    secret: FlowSecret,
    route: SteinerTree,
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

/// Order to a node about a tree.
struct Order {
    order: TreeOrder,
    say: Retry,
    confirmed: bool,
    /// The node has confirmed a version of it, and has the keys.
    known: bool,
}

/// Orders for nodes, and the address at which the node above reaches each.
#[derive(Default)]
struct Wanted {
    orders: BTreeMap<(NodeId, FlowId), TreeOrder>,
    addresses: BTreeMap<(NodeId, FlowId), SocketAddr>,
}

/// How the trees of a cast are, as they are installed.
pub(crate) struct Shape {
    pub(crate) trees: u16,
    pub(crate) members: u16,
    pub(crate) hops: u16,
}

/// Whether it is known where enough of them stand.
pub(crate) fn may_install(
    network: Option<&Network>,
    catalog: &Catalog,
    source: NodeId,
    receivers: impl Iterator<Item = NodeId>,
) -> bool {
    let Some(network) = network else { return false };
    let stands = |node: NodeId| catalog.node(node).is_some_and(|it| network.host_of(&it.info).is_some());
    stands(source) && receivers.filter(|node| stands(*node)).count() >= 2
}

/// The nodes that are here, by where they stand.
fn standing(network: &Network, catalog: &Catalog) -> BTreeMap<HostId, NodeId> {
    let here = catalog.nodes().filter(|node| node.path.is_some());
    here.filter_map(|node| Some((network.host_of(&node.info)?, node.info.node))).collect()
}

impl InstalledTrees {
    // ---- installation

    /// All are here who are waited for: finds trees to those who ask, given with the bytes of symbol that each takes, and tells
    /// everybody on them.
    ///
    /// # Errors
    /// Why there are no trees.
    pub(crate) fn install(
        turn: &mut Turn<'_>,
        catalog: &Catalog,
        tasks: &Tasks,
        network: &mut Network,
        (cargo, asking): (Cargo, &BTreeMap<NodeId, u16>),
    ) -> Result<(InstalledTrees, Shape), WhyUnicast> {
        let standing = standing(network, catalog);
        let asks = standing.iter().filter(|(_, node)| asking.contains_key(node));
        let mut receivers: BTreeMap<NodeId, HostId> = asks.map(|(host, node)| (*node, *host)).collect();
        let root = standing.iter().find(|(_, node)| **node == cargo.source).map(|(host, _)| *host);
        let (Some(root), 2..) = (root, receivers.len()) else { return Err(WhyUnicast::TooFew) };
        let hosts: Vec<HostId> = receivers.values().copied().collect();
        let is_there = |host| standing.contains_key(&host);
        let (routes, lost) = network.trees(turn.now, root, &hosts, Vec::new(), is_there);
        receivers.retain(|_, host| !lost.contains(host));
        if routes.is_empty() || receivers.len() < 2 {
            return Err(WhyUnicast::NoTrees);
        }
        let routes: Vec<SteinerTree> = routes.into_iter().take(network.most_trees).collect();
        let hops =
            routes.iter().flat_map(|route| network.hops(route)).map(|hop| hop.depth).max().unwrap_or(0);
        // Nodes that only hand on must carry the symbols too.
        let rooms = standing.values().filter_map(|node| catalog.node(*node)).map(|node| node.info.room);
        let room = asking.values().copied().chain(rooms).min().unwrap_or(0);
        let symbol_size = Geometry::fitting(cargo.bytes, room).symbol_size();
        let rates = network.rates(&routes, symbol_size);
        let shape = Shape {
            trees: routes.len() as u16,
            members: receivers.len() as u16,
            hops: hops.try_into().unwrap_or(u16::MAX),
        };
        let mut installed = InstalledTrees {
            cargo,
            symbol_size,
            task: tasks.unused_task(turn.draws),
            trees: Vec::new(),
            receivers,
            orders: BTreeMap::new(),
            addresses: BTreeMap::new(),
            version: 0,
            silent: BTreeSet::new(),
            reported: None,
            repairs: VecDeque::new(),
            told_since: None,
            room,
            signals: Signals::default(),
        };
        let mut tree = |route| InstalledTree {
            secret: tasks.secret(turn.draws),
            route,
            most: None,
            told_most: false,
            state: State::Ordered,
            sent: Symbols::ZERO,
        };
        installed.trees.extend(routes.into_iter().map(&mut tree));
        installed.bound(rates);
        turn.stats.casts_by_trees += 1;
        installed.order_pushes(turn);
        installed.give_orders(turn, catalog, tasks, network, &standing);
        Ok((installed, shape))
    }

    // ---- what is asked of them

    pub(crate) fn flows(&self) -> impl Iterator<Item = FlowId> + '_ {
        self.trees.iter().map(|tree| tree.secret.flow)
    }

    pub(crate) fn has_tree(&self, flow: FlowId) -> bool {
        self.flows().any(|its| its == flow)
    }

    pub(crate) fn has_order(&self, node: NodeId, tree: FlowId) -> bool {
        self.orders.contains_key(&(node, tree))
    }

    pub(crate) fn receivers(&self) -> Vec<NodeId> {
        self.receivers.keys().copied().collect()
    }

    pub(crate) fn repairs(&self) -> Vec<TreeRepair> {
        self.repairs.iter().copied().collect()
    }

    /// Everybody on the trees knows.
    pub(crate) fn is_ready(&self) -> bool {
        self.trees.iter().all(|tree| tree.state == State::Pushing)
            && self.orders.values().all(|order| order.confirmed)
    }

    /// Grant of each of the trees' receivers.
    pub(crate) fn grants(&self) -> Vec<FlowGrant> {
        let of = self.trees.len() as u8;
        let grant = |(index, tree): (u8, &InstalledTree)| FlowGrant {
            flow: tree.secret.flow,
            node: self.cargo.source,
            at: Vec::new(),
            key: tree.secret.key,
            index,
            of,
            relays: false,
            group: None,
        };
        (0..of).zip(&self.trees).map(grant).collect()
    }

    // ---- what becomes of them

    /// A source reports how many symbols it has sent on one tree; returns the sum of all trees.
    pub(crate) fn has_sent(&mut self, flow: FlowId, sent: Symbols) -> Symbols {
        if let Some(tree) = self.tree_mut(flow) {
            tree.sent = sent;
        }
        self.trees.iter().map(|tree| tree.sent).sum()
    }

    /// It receives by them no more.
    pub(crate) fn leave_out(&mut self, node: NodeId) {
        self.receivers.remove(&node);
    }

    /// The source has opened a tree's flow.
    pub(crate) fn opened(&mut self, flow: FlowId) {
        if let Some(tree) = self.tree_mut(flow).filter(|tree| tree.state == State::Ordered) {
            tree.state = State::Pushing;
        }
    }

    /// A tree's flow is over, or was refused. Whether that was not meant to be.
    pub(crate) fn closed(&mut self, flow: FlowId) -> bool {
        let Some(tree) = self.tree_mut(flow) else { return false };
        let before = std::mem::replace(&mut tree.state, State::Over);
        !matches!(before, State::Stopping | State::Over)
    }

    /// The source is to send nothing more: the flows that it is to be told to stop, and whether it does not send.
    pub(crate) fn stop(&mut self) -> (Vec<FlowId>, bool) {
        let mut stops = Vec::new();
        for tree in &mut self.trees {
            if matches!(tree.state, State::Ordered | State::Pushing) {
                tree.state = State::Stopping;
                stops.push(tree.secret.flow);
            }
        }
        (stops, self.trees.iter().all(|tree| tree.state == State::Over))
    }

    /// There are no trees any more.
    pub(crate) fn remove(self, turn: &mut Turn<'_>) {
        for (node, tree) in self.orders.keys() {
            turn.tell(*node, ToNode::RemoveTree { tree: *tree });
        }
    }

    fn tree_mut(&mut self, flow: FlowId) -> Option<&mut InstalledTree> {
        self.trees.iter_mut().find(|tree| tree.secret.flow == flow)
    }

    // ---- who hands on to whom

    /// Order for each node on the trees.
    fn wanted_orders(
        &self,
        turn: &Turn<'_>,
        catalog: &Catalog,
        network: &Network,
        standing: &BTreeMap<HostId, NodeId>,
    ) -> Wanted {
        let mut wanted = Wanted::default();
        let Wanted { orders, addresses } = &mut wanted;
        let at = |address: IpAddr, node| Some(SocketAddr::new(address, catalog.data_of(node)?.port()));
        for tree in &self.trees {
            let order = |node: NodeId, signals: &FlowSecret| TreeOrder {
                tree: tree.secret.clone(),
                version: 0,
                symbol_size: self.symbol_size,
                parent: None,
                branches: Vec::new(),
                receives: self.receivers.contains_key(&node),
                store: turn.config.tree_store,
                heartbeat: turn.config.tree_heartbeat,
                signals: signals.clone(),
            };
            let end = |host: HostId| {
                let node = *standing.get(&host)?;
                Some((node, self.signals.secret(node)?))
            };
            for Hop { from, from_port, to, to_port, branch, .. } in network.hops(&tree.route) {
                let (Some((above, above_key)), Some((below, below_key))) = (end(from), end(to)) else {
                    continue;
                };
                let parent = at(network.address(from, from_port), above);
                let child = at(network.address(to, to_port), below);
                let (Some(parent), Some(child)) = (parent, child) else { continue };
                let key = |node| (node, tree.secret.flow);
                let branches =
                    &mut orders.entry(key(above)).or_insert_with(|| order(above, above_key)).branches;
                branches.resize(branches.len().max(branch + 1), Vec::new());
                branches[branch].push(child);
                orders.entry(key(below)).or_insert_with(|| order(below, below_key)).parent = Some(parent);
                addresses.insert(key(below), child);
            }
        }
        // A host that has left meanwhile leaves a branch that leads nowhere.
        orders.values_mut().for_each(|order| order.branches.retain(|branch| !branch.is_empty()));
        wanted
    }

    /// Tells the nodes whose part has changed.
    fn give_orders(
        &mut self,
        turn: &mut Turn<'_>,
        catalog: &Catalog,
        tasks: &Tasks,
        network: &mut Network,
        standing: &BTreeMap<HostId, NodeId>,
    ) {
        self.signals.draw_keys(standing.values(), || tasks.secret(turn.draws));
        let Wanted { orders: wanted, addresses } = self.wanted_orders(turn, catalog, network, standing);
        self.addresses = addresses;
        self.version += 1;
        let version = self.version;
        let gone: Vec<(NodeId, FlowId)> =
            self.orders.keys().filter(|key| !wanted.contains_key(*key)).copied().collect();
        gone.iter().for_each(|key| drop(self.orders.remove(key)));
        for (key, order) in wanted {
            let before = self.orders.get(&key);
            let same = |before: &Order| TreeOrder { version: 0, ..before.order.clone() } == order;
            if !before.is_some_and(same) {
                let known = before.is_some_and(|before| before.known || before.confirmed);
                let (order, say) = (TreeOrder { version, ..order }, turn.retry());
                self.orders.insert(key, Order { order, say, confirmed: false, known });
            }
        }
        gone.into_iter().for_each(|(node, tree)| turn.tell(node, ToNode::RemoveTree { tree }));
        self.signal_orders(turn, catalog, network, standing);
        self.say_orders(turn);
    }

    /// Orders that nobody has confirmed are said again. Returns when the next one is due.
    pub(crate) fn say_orders(&mut self, turn: &mut Turn<'_>) -> Option<Time> {
        for ((node, _), order) in self.orders.iter_mut().filter(|(_, order)| !order.confirmed) {
            if order.say.fire(turn.now, turn.config.retry_longest) {
                turn.tell(*node, ToNode::InstallTree(Box::new(order.order.clone())));
            }
        }
        self.orders.values().filter(|order| !order.confirmed).map(|order| order.say.due()).min()
    }

    /// A node does as its order says.
    pub(crate) fn ready(&mut self, now: Time, node: NodeId, tree: FlowId, version: u32) {
        if let Some(order) = self.orders.get_mut(&(node, tree)) {
            order.confirmed |= order.order.version == version;
        }
        self.have_confirmed(now);
    }

    /// Some nodes do as their orders say.
    fn have_confirmed(&mut self, now: Time) {
        if self.orders.values().all(|order| order.confirmed)
            && let (Some(since), Some(last)) = (self.told_since.take(), self.repairs.back_mut())
        {
            last.told = Some(now.since(since));
            debug_assert!(since >= self.cargo.begun, "a cast is repaired after it has begun");
        }
    }
}
