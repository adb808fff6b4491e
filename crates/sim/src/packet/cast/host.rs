//! The driver of a host that takes part in simulated casts: one [`Node`], its [`Invitations`], and a store, a decoder and a disk
//! without bytes, of which only the contents are known.
//!
//! ```text
//!   on_packet, on_bytes, on_control, on_job, wake --> Node, Invitations --> drive: Surroundings
//! ```
//! It decides nothing: it does what the data thread of a real node does (it carries out each [`NodeAction`]), and what a daemon does
//! with invitations. The owner of its network and clock implements [`Surroundings`].

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use headwater_codec::{BlockShape, Decoder, Inserted, PhantomAssembler, drawn_overhead};
use headwater_machine::{Packet, SortedMap};
use headwater_node::{
    Arrived, BLOCKS_IN_FLIGHT, BLOCKS_OF_A_CAST, GroupProbesConfig, InvitationAction, Invitations, Node,
    NodeAction, Parcel, ProbeId, Room, SingleDatagram, To,
};
use headwater_transport::push::receiver::{FlowStats, ReceiverConfig};
use headwater_transport::receiver::{HostReceiverConfig, Receivers};
use headwater_transport::source::{Source, SourceConfig};
use headwater_transport::tree::TreeReceiverConfig;
use headwater_transport::{
    Bind, DecodeFailure, Opened, ReceiverCommand, ReceiverEvent, SourceCommand, SourceEvent,
};
use headwater_units::{
    BlockIndex, Bytes, Duration, Esi, FetchId, FlowId, Geometry, NodeId, ObjectId, PathId, SymbolId, Time,
};
use headwater_wire::{
    Body, Class, Control, Datagram, Delivery, Ecn, FetchEnd, GroupInvitation, HeaderKey, Holding, Invitation,
    NodeInfo, Spoiled, ToController, ToNode, emit,
};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::shelves::{Shelf, Shelves};

/// A packet of a tree that carries no payload, and the length of the one that it has.
#[derive(Clone, Debug)]
pub struct Passed {
    /// Its content.
    pub datagram: Datagram,
    /// Bytes of a symbol; nothing of everything else.
    pub payload: u16,
    /// They are not the symbol's.
    pub wrong: bool,
}

impl Parcel for Passed {
    fn open(&self, _: &HeaderKey) -> Option<(Datagram, usize)> {
        Some((self.datagram.clone(), usize::from(self.payload)))
    }

    fn count_hop(&mut self) {
        if let Body::Interest(interest) = &mut self.datagram.body {
            interest.hops = interest.hops.saturating_add(1);
        }
    }
}

/// A host's access to its network, its clock and its controller's link.
pub trait Surroundings {
    /// The path to the first of these addresses, best first: of a host, or of a group. It leads nowhere if there are none.
    fn path(&mut self, at: &[SocketAddr]) -> PathId;
    /// Sends a packet by a path. `bytes` is its length above UDP; `wrong`: what it carries is not the symbol that it names.
    fn send(&mut self, packet: Packet, bytes: usize, wrong: bool);
    /// Sends a packet of a tree to another host.
    fn forward(&mut self, to: SocketAddr, parcel: Passed);
    /// Sends a datagram that is no transfer's, as bytes.
    fn send_bytes(&mut self, to: To<SocketAddr>, bytes: Arc<[u8]>);
    /// Says something over the link to the controller.
    fn say(&mut self, word: Control);
    /// Gives [`Host::on_job`] this job after the time `after`.
    fn later(&mut self, after: Duration, job: Job);
    /// From now on brings what is sent to a group, or no more.
    fn join(&mut self, group: SocketAddr, joins: bool);
    /// The request with this number has come to an end.
    fn ended(&mut self, request: u64, end: &FetchEnd);
}

/// Work of disk and decoder.
#[derive(Clone, Copy, Debug)]
pub enum Job {
    /// A block is read for a flow.
    Prepared {
        /// The flow.
        flow: FlowId,
        /// The block.
        block: BlockIndex,
        /// Repair symbols can be made of it.
        repair: bool,
    },
    /// The store has opened what is here of the object of a fetch.
    Opened {
        /// The fetch.
        fetch: FetchId,
        /// Number of times that it had begun.
        begun: u32,
    },
    /// The decoder has seen what is here of a block.
    Decoded {
        /// The fetch.
        fetch: FetchId,
        /// Number of times that it had begun.
        begun: u32,
        /// The block.
        block: BlockIndex,
    },
}

/// Configuration of a host.
#[derive(Clone)]
pub struct HostConfig {
    /// Its introduction.
    pub info: NodeInfo,
    /// The link to its controller.
    pub controller: PathId,
    /// Its sending machine.
    pub source: SourceConfig,
    /// Its receiving machine.
    pub receivers: HostReceiverConfig,
    /// Seed of its machines, and of its decoder.
    pub seed: [u8; 32],
    /// How long it takes to read a block.
    pub prepare: Duration,
    /// Time to decode a block of which symbols were lost.
    pub decode: Duration,
    /// Symbols beyond K that such a block needs; `None`: drawn.
    pub overhead: Option<u32>,
}

/// A disk that is not as it should be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Disk {
    /// Nothing more can be written.
    pub full: bool,
    /// Nothing can be read any more.
    pub unreadable: bool,
    /// Delay of all its actions.
    pub late: Duration,
}

/// A host. After each input, [`Host::drive`]; and again at [`Host::wake`].
pub struct Host {
    config: HostConfig,
    node: Node<Source, Receivers, Passed, SocketAddr>,
    invitations: Invitations,
    shelves: Shelves,
    fetches: SortedMap<FetchId, Box<Fetching>>,
    /// Wanted by a name that is being fetched.
    waiting: VecDeque<Wanted>,
    fetches_begun: u64,
    /// Flows of the source: the shelf of what they send, and T.
    flows: SortedMap<FlowId, (usize, u16)>,
    /// T of what is received, for packets of trees.
    symbol_size: u16,
    askers: BTreeMap<ProbeId, FlowId>,
    disk: Disk,
    /// The datagram that was handed in last does not carry the symbol that it names.
    wrong: bool,
    distrusted: Vec<NodeId>,
    rng: ChaCha8Rng,
}

/// Object to fetch, and the reason.
struct Wanted {
    request: u64,
    name: String,
    class: Class,
    delivery: Option<Delivery>,
    /// By the controller.
    invited: bool,
}

struct Fetching {
    /// Its number.
    request: u64,
    /// Until it has come to its end, and only goodbyes are left.
    wanted: Option<Wanted>,
    object: Option<ObjectId>,
    geometry: Option<Geometry>,
    begun: u32,
    /// A symbol that came could not be kept.
    broken: bool,
    open: SortedMap<BlockIndex, Open>,
    with_decoder: SortedMap<BlockIndex, Open>,
}

/// A block of which some symbols are here. Bytes are not, but it is known of which symbols they are wrong.
struct Open {
    symbols: PhantomAssembler,
    wrong: Vec<Esi>,
}

impl Open {
    /// Whether what decodes from these symbols is not the block. Where all source symbols are here nothing else is looked at.
    fn is_wrong(&self) -> bool {
        let whole = self.symbols.is_systematic_complete();
        let source_symbols = self.symbols.shape().source_symbols();
        self.wrong.iter().any(|esi| !whole || esi.0 < source_symbols)
    }
}

impl Host {
    /// A host that has nothing.
    pub fn new(config: HostConfig) -> Self {
        let source = Source::new(config.source.clone(), config.seed);
        let receivers = Receivers::new(config.receivers);
        Host {
            node: Node::new(source, receivers, GroupProbesConfig::default()),
            invitations: Invitations::new(config.controller),
            shelves: Shelves::default(),
            fetches: SortedMap::default(),
            waiting: VecDeque::new(),
            fetches_begun: 0,
            flows: SortedMap::default(),
            symbol_size: 0,
            askers: BTreeMap::new(),
            disk: Disk::default(),
            wrong: false,
            distrusted: Vec::new(),
            rng: ChaCha8Rng::from_seed(config.seed),
            config,
        }
    }

    /// The same host after its process has started anew: its objects and finished blocks are still there.
    pub fn restarted(self, seed: [u8; 32], now: Time) -> Self {
        let info = NodeInfo { incarnation: self.config.info.incarnation + 1, ..self.config.info };
        let mut host = Host::new(HostConfig { info, seed, ..self.config });
        (host.shelves, host.disk, host.distrusted) = (self.shelves, self.disk, self.distrusted);
        for shelf in &mut host.shelves.0 {
            (shelf.coming, shelf.fetch) = (false, None);
            if shelf.held {
                host.node.tell_source(now, SourceCommand::Hold { object: shelf.object, bytes: shelf.bytes });
            }
        }
        host
    }

    /// Whatever happens to its disk.
    pub fn disk(&mut self) -> &mut Disk {
        &mut self.disk
    }

    /// Nodes that its fetches have found to send wrong bytes.
    pub fn distrusted(&self) -> &[NodeId] {
        &self.distrusted
    }

    /// Flows that its source has.
    pub fn flows(&self) -> usize {
        self.node.source().flows().count()
    }

    /// Whether it fetches nothing, has said all its goodbyes, and asks nobody whether a group is heard.
    pub fn is_idle(&self) -> bool {
        self.fetches.is_empty() && self.waiting.is_empty() && self.askers.is_empty()
    }

    /// Whether trees lead through it.
    pub fn has_trees(&self) -> bool {
        self.node.has_trees()
    }

    /// A datagram as bytes, if it has the key of its flow. The payload of a symbol is all zeros.
    pub fn in_bytes(&mut self, datagram: &Datagram) -> Option<Vec<u8>> {
        let payload = if datagram.body.symbol().is_some() { self.symbol_size } else { 0 };
        let mut bytes = vec![0; datagram.len(payload)];
        let key = match self.node.tree_key(datagram.flow) {
            Some(key) => key,
            None => self.node.key(datagram.flow)?,
        };
        emit(datagram, payload, key, &mut bytes);
        Some(bytes)
    }

    /// It has an object, all of it.
    pub fn hold(&mut self, now: Time, object: ObjectId, bytes: Bytes, name: Option<String>) {
        self.shelves.of(object).hold(bytes, name);
        self.node.tell_source(now, SourceCommand::Hold { object, bytes });
    }

    /// Its link to the controller is there, or again: says who it is and what it holds, and that it may be invited.
    pub fn introduce(&mut self, out: &mut impl Surroundings) {
        out.say(ToController::Hello(self.config.info.clone()).into());
        out.say(ToController::Keeps.into());
        for shelf in self.shelves.held() {
            let holding = Holding { object: shelf.object, bytes: shelf.bytes, name: shelf.name.clone() };
            out.say(ToController::Hold(holding).into());
        }
    }

    /// Somebody at this host wants an object and keeps it; by this transport, if it asks for one.
    pub fn get(
        &mut self,
        now: Time,
        name: &str,
        request: u64,
        delivery: Option<Delivery>,
        out: &mut impl Surroundings,
    ) {
        if self.shelves.held().any(|shelf| shelf.name.as_deref() == Some(name)) {
            return out.ended(request, &FetchEnd::Had);
        }
        self.want(
            now,
            Wanted { request, name: name.to_owned(), class: Class::Bulk, delivery, invited: false },
        );
    }

    // ---- what comes in

    /// The network has brought a packet; `wrong`: what it carries is not the symbol that it names.
    #[inline]
    pub fn on_packet(&mut self, now: Time, from: SocketAddr, packet: Packet, wrong: bool) {
        let payload = if packet.datagram.body.symbol().is_some() { self.symbol_size } else { 0 };
        let bytes = packet.datagram.len(payload);
        let parcel = |datagram: &Datagram| Passed { datagram: datagram.clone(), payload, wrong };
        self.wrong = wrong;
        self.node.on_packet(now, from, packet, Bytes::new(bytes as u64), parcel);
    }

    /// The network has brought a datagram as bytes, by a path.
    pub fn on_bytes(&mut self, now: Time, from: SocketAddr, path: PathId, bytes: &[u8]) {
        let arrived = Arrived { bytes, from, ecn: Ecn::NotEct, trimmed: false };
        let parcel = |datagram: &Datagram| Passed { datagram: datagram.clone(), payload: 0, wrong: false };
        self.wrong = false;
        self.node.on_datagram(now, arrived, || path, parcel);
    }

    /// The controller says something.
    pub fn on_control(&mut self, now: Time, control: Control, out: &mut impl Surroundings) {
        let path = self.config.controller;
        match control {
            Control::Node(word @ (ToNode::Fetch(_) | ToNode::StopFetch { .. })) => {
                self.invitations.on_control(path, word);
                self.follow_invitations(now, out);
            }
            Control::Node(ToNode::ProbeGroup(question)) => {
                let group = out.path(&[question.at, question.towards]);
                let id = self.node.probe_group(now, group, &question);
                self.askers.insert(id, question.asked.flow);
            }
            // It asks for no names and for no casts.
            Control::Node(
                ToNode::NameStands(_)
                | ToNode::NameRefused { .. }
                | ToNode::Casting(_)
                | ToNode::CastRefused { .. }
                | ToNode::StandingCastChanged { .. }
                | ToNode::CastAtRates { .. }
                | ToNode::CoflowRanks(_),
            ) => {}
            control => self.node.on_control(now, path, control),
        }
    }

    /// Disk or decoder are done with something.
    pub fn on_job(&mut self, now: Time, job: Job) {
        match job {
            Job::Prepared { flow, block, repair } => {
                self.node.tell_source(now, SourceCommand::BlockReady { flow, block, repair });
            }
            Job::Opened { fetch, begun } => self.on_opened(now, fetch, begun),
            Job::Decoded { fetch, begun, block } => self.on_decoded(now, fetch, begun, block),
        }
    }

    /// When it is to be driven again.
    #[inline]
    pub fn wake(&self) -> Option<Time> {
        self.node.wake(Room::Free)
    }

    /// Has its machines say all that they have to say.
    #[inline]
    pub fn drive(&mut self, now: Time, out: &mut impl Surroundings) {
        while let Some(action) = self.node.poll(now, Room::Free) {
            match action {
                NodeAction::Transmit { packet, .. } => self.transmit(packet, out),
                NodeAction::Keep { fetch, symbol, parcel, .. } => {
                    let wrong = parcel.map_or(self.wrong, |parcel| parcel.wrong);
                    self.keep(now, fetch, symbol, wrong);
                }
                action => self.act_rarely(now, action, out),
            }
        }
    }

    #[inline(never)]
    fn act_rarely(&mut self, now: Time, action: NodeAction<Passed, SocketAddr>, out: &mut impl Surroundings) {
        match action {
            NodeAction::Transmit { .. } | NodeAction::Keep { .. } => unreachable!("the caller does it"),
            NodeAction::Tell { control, .. } => out.say(*control),
            NodeAction::Fetch(fetch, event) => self.on_fetch_event(now, fetch, event, out),
            NodeAction::Source(event) => self.on_source_event(now, event, out),
            NodeAction::Coming { object, .. } => self.shelves.of(object).coming = true,
            NodeAction::Gone { object } => self.shelves.of(object).coming = false,
            NodeAction::Spoiled { object, how } => {
                *self.shelves.of(object) = Shelf::empty(object);
                out.say(ToController::Spoiled { object, how }.into());
            }
            NodeAction::Lead { tree } => {
                let path = out.path(&[]);
                self.node.tell_source(now, SourceCommand::FlowPath { flow: tree, path });
            }
            NodeAction::Wrap(datagram) => {
                let payload = self.payload_of(&datagram);
                let bytes = datagram.len(payload);
                let wrong = self.is_wrong(&datagram);
                self.node.from_here(&datagram, bytes, Passed { datagram: datagram.clone(), payload, wrong });
            }
            NodeAction::Forward { to, parcel } => out.forward(to, parcel),
            NodeAction::Signal { to, datagram } => out.send_bytes(To::Node(to), datagram),
            NodeAction::Send(datagram) => {
                let SingleDatagram { to, flow, key, body } = *datagram;
                let datagram = Datagram { class: Class::Control, key_epoch: 0, flow, body };
                let mut bytes = vec![0; datagram.len(0)];
                emit(&datagram, 0, &key, &mut bytes);
                out.send_bytes(to, bytes.into());
            }
            NodeAction::Heard { id, members } => {
                if let Some(asked) = self.askers.remove(&id) {
                    out.say(ToController::GroupProbed { asked, heard: members }.into());
                }
            }
        }
    }

    // ---- what its source sends

    #[inline]
    fn transmit(&mut self, packet: Packet, out: &mut impl Surroundings) {
        let payload = self.payload_of(&packet.datagram);
        let (bytes, wrong) = (packet.datagram.len(payload), self.is_wrong(&packet.datagram));
        out.send(packet, bytes, wrong);
    }

    /// The length of what a datagram of the source carries, which must be here.
    #[inline]
    fn payload_of(&self, datagram: &Datagram) -> u16 {
        let Some(symbol) = datagram.body.symbol() else { return 0 };
        let &(shelf, symbol_size) =
            self.flows.get(&datagram.flow).expect("a source names symbols of its flows");
        assert!(self.has(&self.shelves.0[shelf], symbol), "{symbol:?} is sent and not here");
        symbol_size
    }

    /// Whether a symbol that is passed on as it came has come with wrong bytes.
    #[inline]
    fn is_wrong(&self, datagram: &Datagram) -> bool {
        let Some(SymbolId { block, esi }) = datagram.body.symbol() else { return false };
        let Some((shelf, _)) = self.flows.get(&datagram.flow) else { return false };
        let shelf = &self.shelves.0[*shelf];
        let open = || self.fetches.get(&shelf.fetch?)?.open.get(&block);
        !shelf.is_whole(block) && open().is_some_and(|open| open.wrong.contains(&esi))
    }

    #[inline]
    fn has(&self, shelf: &Shelf, SymbolId { block, esi }: SymbolId) -> bool {
        let coming =
            || self.fetches.get(&shelf.fetch?)?.open.get(&block).map(|block| block.symbols.contains(esi));
        shelf.is_whole(block) || coming().unwrap_or(false)
    }

    fn on_source_event(&mut self, now: Time, event: SourceEvent, out: &mut impl Surroundings) {
        match event {
            SourceEvent::Opened(opened) => {
                let Opened { flow, object, symbol_size, at, .. } = *opened;
                self.flows.insert(flow, (self.shelves.number(object), symbol_size));
                if at.first().is_some_and(|group| group.ip().is_multicast()) {
                    let path = out.path(&at);
                    self.node.tell_source(now, SourceCommand::FlowPath { flow, path });
                }
            }
            SourceEvent::Closed { flow } => _ = self.flows.remove(&flow),
            SourceEvent::Prepare { flow, block, repair } => {
                let Some(&(shelf, _)) = self.flows.get(&flow) else { return };
                let shelf = &self.shelves.0[shelf];
                match !self.disk.unreadable && (shelf.held || (shelf.coming && shelf.is_whole(block))) {
                    true => {
                        let after = self.config.prepare + self.disk.late;
                        out.later(after, Job::Prepared { flow, block, repair });
                    }
                    false => self.node.unreadable(now, flow, Spoiled::Unreadable),
                }
            }
            SourceEvent::Release { .. } | SourceEvent::FellBack { .. } => {}
        }
    }

    // ---- what it fetches

    fn follow_invitations(&mut self, now: Time, out: &mut impl Surroundings) {
        while let Some(action) = self.invitations.poll() {
            match action {
                InvitationAction::Look { request, object } => {
                    let is_here = self.shelves.held().any(|shelf| shelf.object == object);
                    self.invitations.looked(request, is_here, Bytes::ZERO);
                    if is_here {
                        out.ended(request, &FetchEnd::Had);
                    }
                }
                InvitationAction::Join { group, .. } => {
                    let GroupInvitation { at, asked, own, .. } = *group;
                    out.join(at, true);
                    self.node.answer_probes(&asked, &own);
                }
                InvitationAction::Fetch(invitation) => {
                    let Invitation { request, name, class, .. } = *invitation;
                    self.want(now, Wanted { request, name, class, delivery: None, invited: true });
                }
                InvitationAction::Stop(request) => {
                    self.waiting.retain(|wanted| wanted.request != request);
                    let is_it = |it: &Fetching| it.wanted.as_ref().is_some_and(|it| it.request == request);
                    if let Some((&fetch, _)) = self.fetches.iter().find(|(_, it)| is_it(it)) {
                        self.node.tell_fetch(now, fetch, ReceiverCommand::Cancel);
                    }
                }
                InvitationAction::Answer(fetched) => out.say(ToController::Fetched(*fetched).into()),
                InvitationAction::Leave { group, .. } => {
                    self.node.ignore_probes(group.asked.flow);
                    out.join(group.at, false);
                }
            }
        }
    }

    fn want(&mut self, now: Time, wanted: Wanted) {
        // Two who want the same wait for each other: the second then finds it in the store.
        let is_it = |fetch: &Fetching| fetch.wanted.as_ref().is_some_and(|it| it.name == wanted.name);
        let is_running = self.fetches.values().any(|fetch| is_it(fetch));
        match is_running {
            true => self.waiting.push_back(wanted),
            false => self.begin(now, wanted),
        }
    }

    fn begin(&mut self, now: Time, wanted: Wanted) {
        let Wanted { request, name, class, delivery, invited } = &wanted;
        let config = ReceiverConfig {
            room: self.config.info.room,
            class: *class,
            delivery: *delivery,
            trims: self.node.stats().trimmed > 0,
            passes_on: true,
            trees: TreeReceiverConfig::on_hosts(),
            blocks_in_flight: if *invited { BLOCKS_OF_A_CAST } else { BLOCKS_IN_FLIGHT },
            ..ReceiverConfig::new(name.as_str(), self.config.info.node, self.config.controller, *request)
        };
        self.fetches_begun += 1;
        let fetch = FetchId(self.fetches_begun);
        let (object, geometry, open, with_decoder) = Default::default();
        let (request, wanted, broken) = (wanted.request, Some(wanted), false);
        let fetching = Fetching { wanted, request, object, geometry, begun: 0, broken, open, with_decoder };
        self.fetches.insert(fetch, Box::new(fetching));
        self.node.tell_fetch(now, fetch, ReceiverCommand::Fetch(Box::new(config)));
    }

    #[inline]
    fn keep(&mut self, now: Time, fetch: FetchId, symbol: SymbolId, wrong: bool) {
        let Some(it) = self.fetches.get_mut(&fetch) else { return };
        let Some(geometry) = &it.geometry else { return };
        let (overhead, rng) = (self.config.overhead, &mut self.rng);
        let block = it.open.get_or_insert_with(symbol.block, || {
            let shape =
                BlockShape::of(geometry, symbol.block).expect("the machine names blocks of the object");
            let overhead = overhead.unwrap_or_else(|| drawn_overhead(rng.random()));
            Open { symbols: PhantomAssembler::new(shape, overhead), wrong: Vec::new() }
        });
        if let Ok(inserted) = block.symbols.insert(symbol.esi, &[]) {
            if wrong && inserted == Inserted::New {
                block.wrong.push(symbol.esi);
            }
            self.node.kept(now, fetch, symbol);
        }
    }

    fn on_fetch_event(
        &mut self,
        now: Time,
        fetch: FetchId,
        event: ReceiverEvent,
        out: &mut impl Surroundings,
    ) {
        let Some(it) = self.fetches.get_mut(&fetch) else { return };
        match event {
            ReceiverEvent::Symbol { .. } => unreachable!("it is kept by an action of its own"),
            ReceiverEvent::Accepted { object, bytes, symbol_size, .. } => {
                let geometry = Geometry::new(bytes, symbol_size).expect("the machine has looked");
                (it.object, it.geometry) = (Some(object), Some(geometry));
                it.begun += 1;
                it.open = SortedMap::default();
                self.symbol_size = symbol_size;
                let (shelf, blocks) = (self.shelves.of(object), geometry.layout().block_count());
                shelf.cut(bytes, blocks);
                shelf.fetch = Some(fetch);
                match (self.disk.late, it.begun) {
                    (Duration::ZERO, begun) => self.on_opened(now, fetch, begun),
                    (late, begun) => out.later(late, Job::Opened { fetch, begun }),
                }
            }
            ReceiverEvent::Bind(bind) | ReceiverEvent::Moved(bind) => {
                let Bind { flow, at, .. } = *bind;
                let path = out.path(&at);
                self.node.tell_fetch(now, fetch, ReceiverCommand::FlowPath { flow, path });
            }
            ReceiverEvent::Decode { block } => {
                let Some(open) = it.open.remove(&block) else { return };
                let lost = !open.symbols.is_systematic_complete();
                it.with_decoder.insert(block, open);
                let after = if lost { self.config.decode } else { Duration::ZERO };
                out.later(after + self.disk.late, Job::Decoded { fetch, begun: it.begun, block });
            }
            ReceiverEvent::Discard { block } => _ = it.open.remove(&block),
            ReceiverEvent::Done => self.on_done(now, fetch, out),
            ReceiverEvent::Failed(failure) => {
                let Some(wanted) = it.wanted.take() else { return };
                let why = if it.broken { "the disk is full".to_owned() } else { format!("{failure:?}") };
                let next = self.waiting.iter().position(|other| other.name == wanted.name);
                self.over(now, &wanted, FetchEnd::Failed(why), &[], out);
                if let Some(next) = next.and_then(|next| self.waiting.remove(next)) {
                    self.begin(now, next);
                }
            }
            ReceiverEvent::Ended => {
                if let Some(ended) = self.fetches.remove(&fetch) {
                    self.invitations.left(ended.request);
                    self.follow_invitations(now, out);
                }
            }
            ReceiverEvent::Distrusted { node } => self.distrusted.push(node),
            ReceiverEvent::Unbind { .. } => {}
        }
    }

    fn on_opened(&mut self, now: Time, fetch: FetchId, begun: u32) {
        let Some(it) = self.fetches.get(&fetch).filter(|it| it.begun == begun) else { return };
        let (Some(object), Some(geometry)) = (it.object, &it.geometry) else { return };
        let (wanted, have) = (0..geometry.layout().block_count(), self.shelves.of(object).have());
        self.node.tell_fetch(now, fetch, ReceiverCommand::Start { wanted, have });
    }

    fn on_decoded(&mut self, now: Time, fetch: FetchId, begun: u32, block: BlockIndex) {
        let Some(it) = self.fetches.get_mut(&fetch) else { return };
        let Some(mut open) = it.with_decoder.remove(&block) else { return };
        let (decodes, is_newest) = (open.symbols.finish().is_ok(), it.begun == begun);
        if decodes && open.is_wrong() {
            if is_newest {
                let failure = DecodeFailure::Corrupt;
                self.node.tell_fetch(now, fetch, ReceiverCommand::DecodeFailed { block, failure });
            }
        } else if decodes && self.disk.full {
            // As of any block that cannot be kept: the fetch is stopped, and its caller is told why.
            it.broken = true;
            self.node.tell_fetch(now, fetch, ReceiverCommand::Cancel);
        } else if decodes {
            let object = it.object.expect("it has begun");
            self.shelves.of(object).whole.set(block.0);
            self.node.tell_fetch(now, fetch, ReceiverCommand::BlockDecoded { block });
        } else if is_newest {
            it.open.insert(block, open);
            let failure = DecodeFailure::NeedMore;
            self.node.tell_fetch(now, fetch, ReceiverCommand::DecodeFailed { block, failure });
        }
    }

    /// All is here: it goes into the store and is offered, and the inviting controller is told.
    fn on_done(&mut self, now: Time, fetch: FetchId, out: &mut impl Surroundings) {
        let stats = self.node.receivers_mut().stats(now, fetch).unwrap_or_default();
        let Some(it) = self.fetches.get_mut(&fetch) else { return };
        let (Some(wanted), Some(object)) = (it.wanted.take(), it.object) else { return };
        let shelf = self.shelves.of(object);
        let (bytes, name) = (shelf.bytes, wanted.name.clone());
        shelf.hold(bytes, Some(name.clone()));
        self.node.tell_source(now, SourceCommand::Hold { object, bytes });
        out.say(ToController::Hold(Holding { object, bytes, name: None }).into());
        self.over(now, &wanted, FetchEnd::Kept, &stats.flows, out);
        let (same, others) = self.waiting.drain(..).partition(|other| other.name == name);
        self.waiting = others;
        let same: VecDeque<Wanted> = same;
        for other in same {
            self.over(now, &other, FetchEnd::Had, &[], out);
        }
    }

    /// A fetch has come to its end.
    fn over(
        &mut self,
        now: Time,
        wanted: &Wanted,
        end: FetchEnd,
        flows: &[FlowStats],
        out: &mut impl Surroundings,
    ) {
        out.ended(wanted.request, &end);
        if wanted.invited {
            self.invitations.ended(wanted.request, end, flows, Bytes::ZERO);
            self.follow_invitations(now, out);
        }
    }
}
