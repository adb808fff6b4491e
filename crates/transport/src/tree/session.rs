//! All trees of one task at a receiver: what is here of each block, and what that means to each tree.
//!
//! A block comes down one tree, symbol by symbol, as it is: nothing is coded, and a block is whole when its K source symbols are
//! here. A block that fails its hash is asked for once more from the same tree; where it fails again, the task does.
//!
//! Nobody is told that a tree is over: its devices forget it, and the controller ends it at the source.

use core::ops::Range;
use std::collections::VecDeque;

use headwater_machine::{Output, Packet};
use headwater_units::{
    BitRate, BlockIndex, Bytes, Duration, FetchId, FlowId, Geometry, NodeId, PathId, SymbolId, Symbols, Time,
};
use headwater_wire::{Announcement, Body, FlowGrant, FlowView};

use super::{Asks, TreeReceiver, TreeReceiverConfig};
use crate::task::HandedOn;
use crate::task::blame::Trust;
use crate::task::ledger::{Block, Ledger};
use crate::task::{SessionConfig, SessionFlow, SessionStats};
use crate::{Bind, DecodeFailure, FromFetch, ReceiverCommand, ReceiverEvent, ReceiverFailure};

/// A block that fails its hash so often ends the task.
const ATTEMPTS: u8 = 2;

/// Of which blocks something is here, each with the tree that brought its last symbol.
#[derive(Debug)]
struct Blocks {
    ledger: Ledger<usize>,
    most_open: usize,
}

/// What became of a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arrival {
    Useless,
    Kept,
    Complete,
}

impl Blocks {
    fn arrive(&mut self, tree: usize, name: SymbolId) -> Arrival {
        let Blocks { ledger, .. } = self;
        let SymbolId { block, esi } = name;
        let known = ledger.find_again(block.0);
        if known.is_none() && (!ledger.wanted().contains(&block.0) || ledger.is_done(block.0))
            || esi.0 >= ledger.source_symbols(block.0)
        {
            return Arrival::Useless;
        }
        let place = known.unwrap_or_else(|| ledger.open(block.0, tree));
        let Block { here, asked, .. } = &mut ledger[place];
        if !here.is_filling() || !here.insert(esi.0) {
            return Arrival::Useless;
        }
        *asked = tree;
        if here.missing() > 0 {
            return Arrival::Kept;
        }
        ledger.decode(place);
        Arrival::Complete
    }

    /// Where a block is that waits for decoder, hash or disk.
    fn decoding(&self, block: BlockIndex) -> Option<usize> {
        self.ledger.find(block.0).filter(|place| !self.ledger[*place].here.is_filling())
    }

    fn finish(&mut self, block: BlockIndex) -> bool {
        self.decoding(block).and_then(|place| self.ledger.finish(place)).is_some()
    }

    /// A block turned out wrong: it is empty again. Returns its tree, and how often it has failed.
    fn corrupt(&mut self, block: BlockIndex) -> Option<(usize, u8)> {
        let place = self.decoding(block)?;
        // Who is to blame is known: the tree.
        self.ledger.restart(place);
        let Block { here, asked, .. } = &self.ledger[place];
        Some((*asked, here.attempts()))
    }
}

impl Asks for Blocks {
    fn first_missing(&self, block: BlockIndex, from: u32) -> Option<u32> {
        match self.ledger.get(block.0) {
            Some(Block { here, .. }) => here.first_missing(from).filter(|_| here.is_filling()),
            None => {
                let is_wanted = self.ledger.wanted().contains(&block.0) && !self.ledger.is_done(block.0);
                (is_wanted && from < self.ledger.source_symbols(block.0)).then_some(from)
            }
        }
    }

    fn has_room(&self, block: BlockIndex) -> bool {
        self.ledger.len() < self.most_open || self.ledger.find(block.0).is_some()
    }
}

/// A tree, and what came of it.
#[derive(Debug)]
struct Tree {
    grant: FlowGrant,
    /// Once it is known where it leads, and what is wanted.
    machine: Option<TreeReceiver>,
    path: Option<PathId>,
    symbols: u64,
    useful: u64,
    heard: Time,
    viewed: (u64, Time),
    rate: BitRate,
    over: bool,
}

/// One task.
#[derive(Debug)]
pub(crate) struct Session {
    fetch: FetchId,
    config: TreeReceiverConfig,
    source_patience: Duration,
    open_blocks: usize,
    geometry: Geometry,
    blocks: Option<Blocks>,
    trust: Trust,
    trees: Vec<Tree>,
    outbox: VecDeque<Output<FromFetch>>,
    keep: Option<(FlowId, SymbolId)>,
    last_useful: Time,
    over: bool,
    stats: SessionStats,
}

impl Session {
    /// A receiver of an object that is cut like this. How long it waits, and for how many blocks at once, is said for all
    /// transports by `session`.
    pub(crate) fn new(
        fetch: FetchId,
        config: TreeReceiverConfig,
        session: &SessionConfig,
        geometry: Geometry,
    ) -> Self {
        Session {
            fetch,
            config,
            source_patience: session.source_patience,
            open_blocks: session.open_blocks as usize,
            geometry,
            blocks: None,
            trust: Trust::default(),
            trees: Vec::new(),
            outbox: VecDeque::new(),
            keep: None,
            last_useful: Time::ZERO,
            over: false,
            stats: SessionStats::default(),
        }
    }

    // ---- what is known

    pub(crate) fn has_ended(&self) -> bool {
        self.over
    }

    pub(crate) fn bound(&self) -> impl Iterator<Item = FlowId> + '_ {
        self.trees.iter().filter(|tree| !tree.over).map(|tree| tree.grant.flow)
    }

    pub(crate) fn is_distrusted(&self, node: NodeId) -> bool {
        self.trust.is_distrusted(node)
    }

    /// Which sources are believed, as it was found out before.
    pub(crate) fn trust(&mut self, trust: Trust) {
        self.trust = trust;
    }

    /// What another transport goes on with. What came down trees was handed on by others, unverified.
    pub(crate) fn hand_on(mut self) -> HandedOn {
        let bound = self.bound().collect();
        for Block { here, asked, .. } in self.blocks.iter_mut().flat_map(|blocks| blocks.ledger.iter_mut()) {
            if let Some(Tree { grant, .. }) = self.trees.get(*asked).filter(|_| here.symbols() > 0) {
                here.trial.on_symbol(grant.flow, grant.node, true);
            }
        }
        HandedOn { ledger: self.blocks.map(|blocks| blocks.ledger.map(|_| ())), trust: self.trust, bound }
    }

    pub(crate) fn blocks_behind(&self) -> usize {
        self.blocks.as_ref().map_or(0, |blocks| blocks.ledger.decoding())
    }

    pub(crate) fn first_undecoded(&self) -> BlockIndex {
        self.blocks.as_ref().map_or(BlockIndex(0), |blocks| blocks.ledger.first_undone())
    }

    pub(crate) fn needed(&self) -> Symbols {
        self.blocks
            .as_ref()
            .map_or(self.geometry.total_symbols(), |blocks| Symbols::new(blocks.ledger.needed()))
    }

    pub(crate) fn useful(&self) -> impl Iterator<Item = (FlowId, u64)> + '_ {
        self.trees.iter().map(|tree| (tree.grant.flow, tree.useful))
    }

    pub(crate) fn flow(&self, flow: FlowId) -> Option<SessionFlow> {
        self.trees.iter().find(|tree| tree.grant.flow == flow).map(Tree::stats)
    }

    pub(crate) fn stats(&self) -> SessionStats {
        let mut stats = self.stats.clone();
        if let Some(blocks) = &self.blocks {
            let ledger = &blocks.ledger;
            stats.blocks = ledger.wanted_blocks();
            stats.blocks_done = ledger.wanted_blocks() - ledger.undone();
            stats.blocks_behind = ledger.decoding() as u32;
            stats.needed = ledger.needed();
        }
        let machines = self.trees.iter().filter_map(|tree| tree.machine.as_ref());
        stats.timeouts = machines.map(|machine| machine.stats().repeated).sum();
        stats.flows = self.trees.iter().map(Tree::stats).collect();
        stats.flows.sort_by_key(|flow| flow.flow);
        stats
    }

    pub(crate) fn views(&mut self, now: Time) -> Vec<FlowView> {
        let symbol = u64::from(self.geometry.symbol_size());
        self.trees.iter_mut().filter(|tree| !tree.over).map(|tree| tree.view(now, symbol)).collect()
    }

    // ---- from the host

    pub(crate) fn set_flows(&mut self, now: Time, grants: Vec<FlowGrant>) {
        if self.over {
            return;
        }
        for place in 0..self.trees.len() {
            let Tree { grant, over, .. } = &self.trees[place];
            if !over && grants.iter().all(|it| it.flow != grant.flow) {
                self.unbind(place);
            }
        }
        for grant in grants {
            if self.trees.iter().any(|tree| tree.grant.flow == grant.flow) {
                continue;
            }
            self.event(ReceiverEvent::Bind(Box::new(Bind::from(&grant))));
            self.trees.push(Tree {
                grant,
                machine: None,
                path: None,
                symbols: 0,
                useful: 0,
                heard: now,
                viewed: (0, now),
                rate: BitRate::ZERO,
                over: false,
            });
        }
        self.begin_trees(now);
    }

    pub(crate) fn on_command(&mut self, now: Time, command: ReceiverCommand) {
        match command {
            ReceiverCommand::Start { wanted, have } => self.start(now, wanted, &have),
            ReceiverCommand::FlowPath { flow, path } => {
                if let Some(tree) = self.trees.iter_mut().find(|tree| tree.grant.flow == flow) {
                    tree.path = Some(path);
                    self.begin_trees(now);
                }
            }
            ReceiverCommand::BlockDecoded { block } => {
                let Some(blocks) = &mut self.blocks else { return };
                if blocks.finish(block) {
                    self.last_useful = now;
                    if blocks.ledger.undone() == 0 {
                        self.complete();
                    }
                }
            }
            ReceiverCommand::DecodeFailed { block, failure } => self.on_decode_failed(now, block, failure),
            ReceiverCommand::Cancel => self.fail(ReceiverFailure::Cancelled),
            // It has begun.
            ReceiverCommand::Fetch(_) | ReceiverCommand::Wanted { .. } => self.stats.strays += 1,
        }
    }

    fn start(&mut self, now: Time, wanted: Range<u32>, have: &[BlockIndex]) {
        if self.blocks.is_some() || self.over {
            return;
        }
        let ledger = Ledger::new(self.geometry, wanted, have);
        self.stats.source_symbols = ledger.needed();
        self.receive(now, ledger);
    }

    /// Goes on with what came by another transport: whatever a wrong block of it was, the first tree is asked for it again.
    pub(crate) fn resume(&mut self, now: Time, ledger: Ledger<()>) {
        self.receive(now, ledger.map(|_| 0));
    }

    fn receive(&mut self, now: Time, ledger: Ledger<usize>) {
        self.last_useful = now;
        let done = ledger.undone() == 0;
        self.blocks = Some(Blocks { ledger, most_open: self.open_blocks });
        match done {
            true => self.complete(),
            false => self.begin_trees(now),
        }
    }

    /// Trees whose way is known, once it is known where symbols go.
    fn begin_trees(&mut self, now: Time) {
        if self.blocks.is_none() {
            return;
        }
        for tree in self.trees.iter_mut().filter(|tree| tree.machine.is_none() && !tree.over) {
            let Some(path) = tree.path else { continue };
            let first = BlockIndex(tree.grant.index.into());
            tree.heard = now;
            if first.0 < self.geometry.layout().block_count() {
                tree.machine = Some(TreeReceiver::new(self.config, tree.grant.flow, path, first));
            }
        }
    }

    fn on_decode_failed(&mut self, now: Time, block: BlockIndex, failure: DecodeFailure) {
        let Some(blocks) = &mut self.blocks else { return };
        let Some((tree, failed)) = blocks.corrupt(block) else { return };
        self.last_useful = now;
        match failure {
            DecodeFailure::Corrupt => self.stats.corrupt += 1,
            // All source symbols were there: whoever says this has lost some.
            DecodeFailure::NeedMore => self.stats.need_more += 1,
        }
        self.event(ReceiverEvent::Discard { block });
        if failed >= ATTEMPTS {
            return self.fail(ReceiverFailure::Corrupt { block });
        }
        if let Some(machine) = self.trees.get_mut(tree).and_then(|tree| tree.machine.as_mut()) {
            machine.ask_again(block);
        }
    }

    // ---- from the trees

    #[inline]
    pub(crate) fn on_packet(&mut self, now: Time, packet: Packet) {
        let datagram = packet.datagram;
        let place = self.trees.iter().position(|tree| tree.grant.flow == datagram.flow && !tree.over);
        let Some(place) = place else {
            self.stats.strays += 1;
            return;
        };
        match datagram.body {
            Body::Symbol(header) if !header.trimmed => self.on_symbol(now, place, header.symbol),
            Body::Announcement(announcement) => self.on_announcement(now, place, announcement),
            _ => self.stats.strays += 1,
        }
    }

    fn on_announcement(&mut self, now: Time, place: usize, announcement: Announcement) {
        if let Some(machine) = &mut self.trees[place].machine {
            machine.on_announcement(now, announcement);
        }
    }

    #[inline]
    fn on_symbol(&mut self, now: Time, place: usize, name: SymbolId) {
        let tree = &mut self.trees[place];
        let (Some(blocks), Some(machine), false) = (&mut self.blocks, &mut tree.machine, self.over) else {
            return;
        };
        self.stats.arrivals += 1;
        tree.symbols += 1;
        tree.heard = now;
        machine.on_symbol(now, name);
        let arrival = blocks.arrive(place, name);
        if arrival == Arrival::Useless {
            self.stats.useless += 1;
            return;
        }
        tree.useful += 1;
        self.last_useful = now;
        let flow = tree.grant.flow;
        if self.outbox.is_empty() && self.keep.is_none() {
            self.keep = Some((flow, name));
        } else {
            self.event(ReceiverEvent::Symbol { flow, symbol: name });
        }
        if arrival == Arrival::Complete {
            self.event(ReceiverEvent::Decode { block: name.block });
            let behind = self.blocks_behind() as u32;
            self.stats.blocks_behind_most = self.stats.blocks_behind_most.max(behind);
        }
    }

    // ---- the end

    fn complete(&mut self) {
        self.event(ReceiverEvent::Done);
        self.finish();
    }

    pub(crate) fn fail(&mut self, failure: ReceiverFailure) {
        if self.over {
            return;
        }
        self.event(ReceiverEvent::Failed(failure));
        self.finish();
    }

    fn finish(&mut self) {
        self.over = true;
        (0..self.trees.len()).for_each(|place| self.unbind(place));
    }

    fn unbind(&mut self, place: usize) {
        let tree = &mut self.trees[place];
        if !std::mem::replace(&mut tree.over, true) {
            let flow = tree.grant.flow;
            self.event(ReceiverEvent::Unbind { flow });
        }
    }

    // ---- what goes out

    #[inline]
    pub(crate) fn take_kept(&mut self) -> Option<(FlowId, SymbolId)> {
        self.keep.take()
    }

    pub(crate) fn poll(&mut self, now: Time) -> Output<FromFetch> {
        if let Some((flow, symbol)) = self.keep.take() {
            return Output::Event(FromFetch(self.fetch, ReceiverEvent::Symbol { flow, symbol }));
        }
        if let Some(output) = self.outbox.pop_front() {
            return output;
        }
        let (Some(blocks), false) = (&self.blocks, self.over) else { return Output::Wake(None) };
        let mut wake = Time::MAX;
        for tree in self.trees.iter_mut().filter(|tree| !tree.over) {
            let Some(machine) = &mut tree.machine else { continue };
            if let Some(interest) = machine.next(now, blocks) {
                self.stats.pulls += 1;
                return Output::Transmit(interest);
            }
            wake = wake.min(machine.deadline().unwrap_or(Time::MAX));
        }
        if blocks.ledger.decoding() == 0 {
            let until = self.last_useful + self.source_patience;
            if now >= until {
                let missing = blocks.ledger.undone();
                self.fail(ReceiverFailure::NoSource { missing });
                return self.poll(now);
            }
            wake = wake.min(until);
        }
        Output::Wake(Some(wake).filter(|at| *at < Time::MAX))
    }

    #[inline]
    fn event(&mut self, event: ReceiverEvent) {
        self.outbox.push_back(Output::Event(FromFetch(self.fetch, event)));
    }
}

impl Tree {
    fn stats(&self) -> SessionFlow {
        let machine = self.machine.as_ref();
        let of = machine.map(TreeReceiver::stats).unwrap_or_default();
        SessionFlow {
            flow: self.grant.flow,
            node: self.grant.node,
            symbols: self.symbols,
            useful: self.useful,
            by_group: self.useful,
            relays: false,
            trimmed: 0,
            lost: of.repeated,
            asked: of.interests,
            coming: machine.map_or(0, |machine| u64::from(machine.outstanding())),
            rate: self.rate,
            rtt: machine.and_then(|machine| machine.rtt().smoothed()),
            silent: false,
            ended: self.over,
        }
    }

    fn view(&mut self, now: Time, symbol: u64) -> FlowView {
        let (useful, since) = std::mem::replace(&mut self.viewed, (self.useful, now));
        let span = now.since(since);
        if span > Duration::ZERO {
            self.rate = Bytes::new((self.useful - useful) * symbol) / span;
        }
        let waits = self.machine.as_ref().is_some_and(|machine| machine.outstanding() > 0);
        FlowView {
            flow: self.grant.flow,
            bytes: Bytes::new(self.useful * symbol),
            rate: self.rate,
            silent: if waits { now.since(self.heard) } else { Duration::ZERO },
        }
    }
}

#[cfg(test)]
mod tests {
    use headwater_units::{Esi, FlowKey};

    use super::*;
    use crate::task::blame::Blame;

    #[test]
    fn whoever_goes_on_with_what_came_down_a_tree_blames_nobody_for_that() {
        let geometry = Geometry::new(Bytes::kib(2), 1024).unwrap();
        let (config, session) = (TreeReceiverConfig::on_hosts(), SessionConfig::data_centre());
        let mut session = Session::new(FetchId(1), config, &session, geometry);
        let [source, other] = [1, 2].map(|n| (FlowId(n), NodeId([n as u8; 32])));
        let grant = FlowGrant {
            flow: source.0,
            node: source.1,
            at: Vec::new(),
            key: FlowKey([0; 32]),
            index: 0,
            of: 1,
            group: None,
            relays: false,
            passed_on: true,
        };
        session.trees.push(Tree {
            grant,
            machine: None,
            path: None,
            symbols: 0,
            useful: 0,
            heard: Time::ZERO,
            viewed: (0, Time::ZERO),
            rate: BitRate::ZERO,
            over: false,
        });
        session.start(Time::ZERO, 0..1, &[]);
        let symbol = SymbolId { block: BlockIndex(0), esi: Esi(0) };
        assert_eq!(session.blocks.as_mut().unwrap().arrive(0, symbol), Arrival::Kept);
        let mut ledger = session.hand_on().ledger.unwrap();
        let place = ledger.find(0).unwrap();
        ledger[place].here.trial.on_symbol(other.0, other.1, false);
        assert_eq!(ledger.corrupt(place), Blame::Unclear);
    }
}
