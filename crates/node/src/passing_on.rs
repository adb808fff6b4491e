//! Objects that this node passes on while it receives them, symbols in their order: what its source has to know of its receivers.
//!
//! ```text
//!   not here --Start of a fetch--> coming --hold--> held
//!      ^                             |
//!      `--fetch failed, or ended and nobody is served; block unreadable; handed over
//! ```
//! An object that is held is sent like any other. If its fetch has ended but it is not held yet, it still counts as coming for those
//! who are served from it: the part that is here stays readable until the object is held, or the node hands its receivers over.

use std::collections::BTreeSet;

use headwater_machine::SortedMap;
use headwater_transport::{Arriving, ReceiverCommand, ReceiverEvent, Relaying, SourceCommand};
use headwater_units::{BlockIndex, Bytes, Esi, FetchId, FlowId, ObjectId, SymbolId};

/// The object of a fetch, and how it is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The object.
    pub object: ObjectId,
    /// Its size.
    pub bytes: Bytes,
    /// T.
    pub symbol_size: u16,
}

/// The consequence of an unreadable object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// It was held, and is not any more.
    Held(ObjectId),
    /// It was being received, and is not passed on any more.
    Coming(ObjectId),
    /// Neither.
    Neither,
}

/// Objects that a node holds or receives, and those of them that it serves to others.
#[derive(Debug, Default)]
pub struct PassingOn {
    held: BTreeSet<ObjectId>,
    /// Objects that are being received, or were, and are not held.
    coming: BTreeSet<ObjectId>,
    /// Fetches whose objects are known.
    fetches: SortedMap<FetchId, Cut>,
    /// By fetch and block that somebody may be sent: what is here of it.
    partly: SortedMap<(FetchId, BlockIndex), Partly>,
    /// Objects of the source's flows.
    flows: SortedMap<FlowId, ObjectId>,
}

/// The source symbols of a block that are here.
#[derive(Debug, Default)]
struct Partly {
    /// All below.
    below: u32,
    /// And these.
    beyond: BTreeSet<u32>,
}

/// Number of symbols after which the source is told of them.
const STEP: u32 = 8;

impl PassingOn {
    /// The object of a fetch, once that is known.
    pub fn cut(&self, fetch: FetchId) -> Option<Cut> {
        self.fetches.get(&fetch).copied()
    }

    // ---- what is held

    /// An object is held from now on.
    pub fn hold(&mut self, object: ObjectId) {
        self.held.insert(object);
        self.coming.remove(&object);
    }

    /// The object is no longer held.
    pub fn withdraw(&mut self, object: ObjectId) {
        self.held.remove(&object);
    }

    /// A block that a flow is to send cannot be read.
    pub fn unreadable(&mut self, flow: FlowId) -> Unreadable {
        match self.flows.get(&flow) {
            Some(&object) if self.held.remove(&object) => Unreadable::Held(object),
            Some(&object) if self.coming.remove(&object) => Unreadable::Coming(object),
            _ => Unreadable::Neither,
        }
    }

    // ---- flows of the source

    /// The source has a flow.
    pub fn opened(&mut self, flow: FlowId, object: ObjectId) {
        self.flows.insert(flow, object);
    }

    /// The flow has ended.
    pub fn closed(&mut self, flow: FlowId) {
        self.flows.remove(&flow);
    }

    // ---- fetches

    /// A fetch begins, or goes on with symbols of another size: its object may be passed on from now on. Returns the
    /// command for the source.
    pub fn begin(&mut self, fetch: FetchId, have: &[BlockIndex]) -> Option<Box<Relaying>> {
        let Cut { object, bytes, symbol_size } = self.cut(fetch)?;
        if self.held.contains(&object) {
            return None;
        }
        self.coming.insert(object);
        Some(Box::new(Relaying { object, bytes, symbol_size, have: have.to_vec() }))
    }

    /// A symbol was kept. Returns the command for the source. Also while nobody is served: whoever is served later is sent the same block.
    #[inline]
    pub fn kept(&mut self, fetch: FetchId, symbol: SymbolId) -> Option<SourceCommand> {
        let object = self.fetches.get(&fetch)?.object;
        if !self.coming.contains(&object) {
            return None;
        }
        let partly = self.partly.get_or_default((fetch, symbol.block));
        if symbol.esi.0 != partly.below {
            partly.beyond.insert(symbol.esi.0);
            return None;
        }
        let before = partly.below;
        partly.below += 1;
        while partly.beyond.remove(&partly.below) {
            partly.below += 1;
        }
        let below = partly.below;
        let told = |below: u32| below / STEP;
        let what = Arriving::Partly { block: symbol.block, below: Esi(below - below % STEP) };
        (told(below) > told(before)).then_some(arriving(object, what))
    }

    /// Withdraws the readable part of a block, which was verified or thrown away and cannot be read meanwhile. Returns
    /// the command for the source.
    fn withdraw_part(&mut self, fetch: FetchId, block: BlockIndex) -> Option<SourceCommand> {
        self.partly.remove(&(fetch, block))?;
        let object = self.cut(fetch)?.object;
        Some(arriving(object, Arriving::Partly { block, below: Esi(0) }))
    }

    /// The symbols of a block cannot be read any more: it is decoded, or begins anew, or all does. Returns the command
    /// for the source, of one block after the other.
    pub fn withdraw_parts(&mut self, fetch: FetchId, event: &ReceiverEvent) -> Option<SourceCommand> {
        match *event {
            ReceiverEvent::Decode { block } | ReceiverEvent::Discard { block } => {
                self.withdraw_part(fetch, block)
            }
            ReceiverEvent::Accepted { .. } | ReceiverEvent::Failed(_) | ReceiverEvent::Ended => {
                let (&(_, block), _) = self.partly.iter().find(|((its, _), _)| *its == fetch)?;
                self.withdraw_part(fetch, block)
            }
            _ => None,
        }
    }

    /// Something happens to a fetch. The object that is passed on no more for that.
    pub fn on_event(&mut self, fetch: FetchId, event: &ReceiverEvent) -> Option<ObjectId> {
        if let ReceiverEvent::Accepted { object, bytes, symbol_size, .. } = *event {
            self.fetches.insert(fetch, Cut { object, bytes, symbol_size });
            return None;
        }
        let object = self.cut(fetch)?.object;
        let is_over = match event {
            ReceiverEvent::Failed(_) => true,
            ReceiverEvent::Ended => {
                self.fetches.remove(&fetch);
                // Receivers that are served with it can wait until it is held.
                self.flows.values().all(|its| *its != object)
            }
            _ => false,
        };
        (is_over && self.coming.remove(&object)).then_some(object)
    }

    /// A worker has dealt with a block. Returns the command for the source.
    pub fn on_command(&self, fetch: FetchId, command: &ReceiverCommand) -> Option<SourceCommand> {
        let ReceiverCommand::BlockDecoded { block } = *command else { return None };
        let object = self.cut(fetch)?.object;
        self.coming.contains(&object).then_some(arriving(object, Arriving::Whole(block)))
    }

    /// Objects that are passed on no more, since the node hands over: receivers that are served with them turn to
    /// others.
    pub fn hand_over(&mut self) -> impl Iterator<Item = ObjectId> + use<> {
        std::mem::take(&mut self.coming).into_iter()
    }
}

/// The command that tells the source how an object comes in.
pub(crate) fn arriving(object: ObjectId, what: Arriving) -> SourceCommand {
    SourceCommand::Arriving { object, what }
}

#[cfg(test)]
mod tests {
    use headwater_transport::{DecodeFailure, ReceiverFailure};
    use headwater_units::TaskId;

    use super::*;

    const OBJECT: ObjectId = ObjectId([9; 32]);
    const FETCH: FetchId = FetchId(1);
    const FLOW: FlowId = FlowId(5);
    const BLOCK: BlockIndex = BlockIndex(2);

    fn accepted(symbol_size: u16) -> ReceiverEvent {
        ReceiverEvent::Accepted { task: TaskId(1), object: OBJECT, bytes: Bytes::new(5000), symbol_size }
    }

    /// A node that fetches the object.
    fn fetching() -> PassingOn {
        let mut node = PassingOn::default();
        assert!(node.begin(FETCH, &[]).is_none(), "nothing is known of it");
        assert_eq!(node.on_event(FETCH, &accepted(1000)), None);
        let relaying = node.begin(FETCH, &[BLOCK]).expect("it is not held");
        assert_eq!((relaying.object, relaying.symbol_size, &relaying.have[..]), (OBJECT, 1000, &[BLOCK][..]));
        node
    }

    #[test]
    fn the_source_is_told_of_a_block_when_it_is_whole() {
        let mut node = fetching();
        assert_eq!(node.on_event(FETCH, &ReceiverEvent::Decode { block: BLOCK }), None);
        assert_eq!(node.on_event(FETCH, &ReceiverEvent::Done), None);
        let command = |command| node.on_command(FETCH, &command);
        assert_eq!(
            command(ReceiverCommand::BlockDecoded { block: BLOCK }),
            Some(arriving(OBJECT, Arriving::Whole(BLOCK)))
        );
        let failed = ReceiverCommand::DecodeFailed { block: BLOCK, failure: DecodeFailure::Corrupt };
        assert_eq!(command(failed), None);
    }

    /// Orders to send a block on come by other connections than its symbols. Without the first of them it would wait until it is whole.
    #[test]
    fn symbols_count_that_come_before_anybody_is_served() {
        let mut node = fetching();
        let mut told = Vec::new();
        for esi in 0..2 * STEP {
            if esi == 3 {
                node.opened(FLOW, OBJECT);
            }
            told.extend(node.kept(FETCH, SymbolId { block: BLOCK, esi: Esi(esi) }));
        }
        let partly = |below| arriving(OBJECT, Arriving::Partly { block: BLOCK, below: Esi(below) });
        assert_eq!(told, [partly(STEP), partly(2 * STEP)]);
    }

    #[test]
    fn a_fetch_that_fails_serves_nobody_any_more() {
        let mut node = fetching();
        node.opened(FLOW, OBJECT);
        assert_eq!(node.on_event(FETCH, &ReceiverEvent::Failed(ReceiverFailure::NoController)), Some(OBJECT));
        assert_eq!(node.on_event(FETCH, &ReceiverEvent::Ended), None);
        assert_eq!(node.unreadable(FLOW), Unreadable::Neither);
    }

    #[test]
    fn a_fetch_that_ends_serves_on_until_its_object_is_held() {
        let mut node = fetching();
        assert_eq!(node.on_event(FETCH, &ReceiverEvent::Ended), Some(OBJECT), "nobody is served");

        let mut node = fetching();
        node.opened(FLOW, OBJECT);
        assert_eq!(node.on_event(FETCH, &ReceiverEvent::Ended), None);
        node.hold(OBJECT);
        assert_eq!(node.hand_over().count(), 0, "what is held stays");
        assert!(node.begin(FETCH, &[]).is_none());

        let mut node = fetching();
        node.opened(FLOW, OBJECT);
        node.closed(FLOW);
        assert_eq!(node.on_event(FETCH, &ReceiverEvent::Ended), Some(OBJECT), "nobody is served any more");
    }

    #[test]
    fn what_is_held_is_fetched_and_not_passed_on_while_it_comes() {
        let mut node = PassingOn::default();
        node.hold(OBJECT);
        node.on_event(FETCH, &accepted(1000));
        assert!(node.begin(FETCH, &[]).is_none());
        assert_eq!(node.on_command(FETCH, &ReceiverCommand::BlockDecoded { block: BLOCK }), None);
        node.withdraw(OBJECT);
        assert!(node.begin(FETCH, &[]).is_some(), "the task has begun anew since");
    }

    #[test]
    fn a_node_that_hands_over_passes_nothing_on_any_more() {
        let mut node = fetching();
        node.opened(FLOW, OBJECT);
        assert_eq!(node.hand_over().collect::<Vec<_>>(), [OBJECT]);
        assert_eq!(node.on_command(FETCH, &ReceiverCommand::BlockDecoded { block: BLOCK }), None);
        assert_eq!(node.hand_over().count(), 0);
    }

    #[test]
    fn a_block_that_cannot_be_read_ends_what_the_object_is_here_for() {
        let mut node = fetching();
        node.opened(FLOW, OBJECT);
        assert_eq!(node.unreadable(FlowId(99)), Unreadable::Neither, "a flow that is over");
        assert_eq!(node.unreadable(FLOW), Unreadable::Coming(OBJECT));
        assert_eq!(node.unreadable(FLOW), Unreadable::Neither);
        node.hold(OBJECT);
        assert_eq!(node.unreadable(FLOW), Unreadable::Held(OBJECT));
        assert_eq!(node.unreadable(FLOW), Unreadable::Neither);
    }

    #[test]
    fn a_fetch_with_symbols_of_another_size_is_the_same() {
        let mut node = fetching();
        assert_eq!(node.on_event(FETCH, &accepted(500)), None);
        assert_eq!(node.cut(FETCH).map(|cut| cut.symbol_size), Some(500));
        assert_eq!(node.begin(FETCH, &[]).map(|it| it.symbol_size), Some(500));
        node.on_event(FETCH, &ReceiverEvent::Ended);
        assert_eq!(node.cut(FETCH), None);
    }
}
