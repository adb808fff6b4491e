//! Objects that this node passes on as they arrive: what its source has to know of its receivers, and they of it.
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
use headwater_transport::{
    Arriving, DecodeFailure, ReceiverCommand, ReceiverEvent, Relaying, SourceCommand, ToFetch,
};
use headwater_units::{BlockIndex, Bytes, FetchId, FlowId, ObjectId, SymbolId};

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

/// What a node holds and receives, and which of it others are served with.
#[derive(Debug, Default)]
pub struct PassingOn {
    held: BTreeSet<ObjectId>,
    /// Objects that are being received, or were, and are not held.
    coming: BTreeSet<ObjectId>,
    /// Fetches whose objects are known.
    fetches: SortedMap<FetchId, Cut>,
    /// Flows of the source: the object, and whether it was not held when the flow began.
    flows: SortedMap<FlowId, (ObjectId, bool)>,
    /// By object: how many flows pass it on as it comes.
    passing: SortedMap<ObjectId, usize>,
}

impl PassingOn {
    /// Whether an object is passed on as it comes.
    #[inline]
    pub fn passes_on(&self, object: ObjectId) -> bool {
        !self.passing.is_empty() && self.passing.contains_key(&object)
    }

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
            Some(&(object, _)) if self.held.remove(&object) => Unreadable::Held(object),
            Some(&(object, _)) if self.coming.remove(&object) => Unreadable::Coming(object),
            _ => Unreadable::Neither,
        }
    }

    // ---- flows of the source

    /// The source has a flow.
    pub fn opened(&mut self, flow: FlowId, object: ObjectId) {
        let passes_on = !self.held.contains(&object);
        self.flows.insert(flow, (object, passes_on));
        if passes_on {
            *self.passing.get_or_default(object) += 1;
        }
    }

    /// The flow has ended.
    pub fn closed(&mut self, flow: FlowId) {
        let Some((object, true)) = self.flows.remove(&flow) else { return };
        let flows = self.passing.get_mut(&object).expect("counted when the flow began");
        *flows -= 1;
        if *flows == 0 {
            self.passing.remove(&object);
        }
    }

    // ---- fetches

    /// A fetch begins, or goes on with symbols of another size: its object may be passed on from now on. What to tell the source.
    pub fn begin(&mut self, fetch: FetchId, have: &[BlockIndex]) -> Option<Box<Relaying>> {
        let Cut { object, bytes, symbol_size } = self.cut(fetch)?;
        if self.held.contains(&object) {
            return None;
        }
        self.coming.insert(object);
        Some(Box::new(Relaying { object, bytes, symbol_size, have: have.to_vec() }))
    }

    /// A symbol that may be passed on was kept. What to tell the source.
    #[inline]
    pub fn kept(&mut self, fetch: FetchId, symbol: SymbolId) -> Option<SourceCommand> {
        if self.passing.is_empty() {
            return None;
        }
        let object = self.fetches.get_mut(&fetch)?.object;
        self.passing.contains_key(&object).then_some(arriving(object, Arriving::Symbol(symbol)))
    }

    /// Something happens to a fetch. What to tell the source; of [`ReceiverEvent::Decode`] before the symbols go to the decoder.
    pub fn on_event(&mut self, fetch: FetchId, event: &ReceiverEvent) -> Option<SourceCommand> {
        if let ReceiverEvent::Accepted { object, bytes, symbol_size, .. } = *event {
            let before = self.fetches.insert(fetch, Cut { object, bytes, symbol_size });
            let begins_anew = before.is_some() && self.coming.contains(&object);
            if !begins_anew {
                return None;
            }
            // What is partly here is thrown away now; what is whole is known at the start.
            return self.begin(fetch, &[]).map(SourceCommand::Relay);
        }
        let object = self.cut(fetch)?.object;
        let what = match *event {
            ReceiverEvent::Decode { block } => Arriving::Decoding(block),
            ReceiverEvent::Discard { block } => Arriving::Anew(block),
            ReceiverEvent::Failed(_) => Arriving::Over,
            ReceiverEvent::Ended => {
                self.fetches.remove(&fetch);
                // Whoever is served with it can wait until it is held.
                if self.passes_on(object) {
                    return None;
                }
                Arriving::Over
            }
            _ => return None,
        };
        let is_coming = if what == Arriving::Over { self.end(object) } else { self.coming.contains(&object) };
        is_coming.then_some(arriving(object, what))
    }

    /// A worker has dealt with a block. What to tell the source.
    pub fn on_command(&self, fetch: FetchId, command: &ReceiverCommand) -> Option<SourceCommand> {
        let object = self.cut(fetch)?.object;
        let what = match *command {
            ReceiverCommand::BlockDecoded { block } => Arriving::Whole(block),
            ReceiverCommand::DecodeFailed { block, failure: DecodeFailure::NeedMore } => {
                Arriving::NeedsMore(block)
            }
            _ => return None,
        };
        self.coming.contains(&object).then_some(arriving(object, what))
    }

    /// Others want more of a class of a block than this node was to have. Which fetch to tell.
    pub fn wanted(&self, object: ObjectId, wanted: ReceiverCommand) -> Option<ToFetch> {
        let (&fetch, _) = self.fetches.iter().find(|(_, cut)| cut.object == object)?;
        Some(ToFetch(fetch, wanted))
    }

    /// Objects that are passed on no more, since the node hands over: whoever is served with them turns to others.
    pub fn hand_over(&mut self) -> impl Iterator<Item = ObjectId> + use<> {
        std::mem::take(&mut self.coming).into_iter()
    }

    fn end(&mut self, object: ObjectId) -> bool {
        self.coming.remove(&object)
    }
}

/// What tells the source how an object comes.
pub(crate) fn arriving(object: ObjectId, what: Arriving) -> SourceCommand {
    SourceCommand::Arriving { object, what }
}

#[cfg(test)]
mod tests {
    use headwater_transport::ReceiverFailure;
    use headwater_units::{Esi, TaskId};

    use super::*;

    const OBJECT: ObjectId = ObjectId([9; 32]);
    const FETCH: FetchId = FetchId(1);
    const FLOW: FlowId = FlowId(5);
    const BLOCK: BlockIndex = BlockIndex(2);
    const SYMBOL: SymbolId = SymbolId { block: BLOCK, esi: Esi(3) };

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
    fn a_fetch_that_begins_anew_has_nothing_of_its_object_before_its_start() {
        let mut node = fetching();
        let relaying = |have: &[BlockIndex]| {
            Box::new(Relaying {
                object: OBJECT,
                bytes: Bytes::new(5000),
                symbol_size: 1000,
                have: have.to_vec(),
            })
        };
        assert_eq!(node.on_event(FETCH, &accepted(1000)), Some(SourceCommand::Relay(relaying(&[]))));
        assert_eq!(node.begin(FETCH, &[BLOCK]), Some(relaying(&[BLOCK])));
        node.hold(OBJECT);
        assert_eq!(node.on_event(FETCH, &accepted(1000)), None, "it is held by now");
    }

    fn over() -> Option<SourceCommand> {
        Some(arriving(OBJECT, Arriving::Over))
    }

    #[test]
    fn symbols_are_told_of_while_somebody_is_served_and_blocks_always() {
        let mut node = fetching();
        assert_eq!(node.kept(FETCH, SYMBOL), None);
        node.opened(FLOW, OBJECT);
        assert!(node.passes_on(OBJECT));
        assert_eq!(node.kept(FETCH, SYMBOL), Some(arriving(OBJECT, Arriving::Symbol(SYMBOL))));
        let mut event = |event| node.on_event(FETCH, &event);
        let told = |what| Some(arriving(OBJECT, what));
        assert_eq!(event(ReceiverEvent::Decode { block: BLOCK }), told(Arriving::Decoding(BLOCK)));
        assert_eq!(event(ReceiverEvent::Discard { block: BLOCK }), told(Arriving::Anew(BLOCK)));
        assert_eq!(event(ReceiverEvent::Done), None);
        let failed = |failure| ReceiverCommand::DecodeFailed { block: BLOCK, failure };
        let command = |command| node.on_command(FETCH, &command);
        assert_eq!(command(ReceiverCommand::BlockDecoded { block: BLOCK }), told(Arriving::Whole(BLOCK)));
        assert_eq!(command(failed(DecodeFailure::NeedMore)), told(Arriving::NeedsMore(BLOCK)));
        assert_eq!(command(failed(DecodeFailure::Corrupt)), None, "its symbols are thrown away first");
        node.closed(FLOW);
        assert!(!node.passes_on(OBJECT));
        assert_eq!(node.kept(FETCH, SYMBOL), None);
    }

    #[test]
    fn a_fetch_that_fails_serves_nobody_any_more() {
        let mut node = fetching();
        node.opened(FLOW, OBJECT);
        assert_eq!(node.on_event(FETCH, &ReceiverEvent::Failed(ReceiverFailure::NoController)), over());
        assert_eq!(node.on_event(FETCH, &ReceiverEvent::Ended), None);
        assert_eq!(node.unreadable(FLOW), Unreadable::Neither);
        assert_eq!(node.wanted(OBJECT, ReceiverCommand::Cancel), None);
    }

    #[test]
    fn a_fetch_that_ends_serves_on_until_its_object_is_held() {
        let mut node = fetching();
        assert_eq!(node.on_event(FETCH, &ReceiverEvent::Ended), over(), "nobody is served");

        let mut node = fetching();
        node.opened(FLOW, OBJECT);
        assert_eq!(node.on_event(FETCH, &ReceiverEvent::Ended), None);
        node.hold(OBJECT);
        assert_eq!(node.hand_over().count(), 0, "what is held stays");
        assert!(node.passes_on(OBJECT), "the flow goes on as it began");
        node.opened(FlowId(6), OBJECT);
        node.closed(FLOW);
        assert!(!node.passes_on(OBJECT), "the later one sends what is held");
        assert!(node.begin(FETCH, &[]).is_none());
    }

    #[test]
    fn what_is_held_is_fetched_and_not_passed_on_as_it_comes() {
        let mut node = PassingOn::default();
        node.hold(OBJECT);
        node.on_event(FETCH, &accepted(1000));
        assert!(node.begin(FETCH, &[]).is_none());
        assert_eq!(node.on_event(FETCH, &ReceiverEvent::Decode { block: BLOCK }), None);
        node.withdraw(OBJECT);
        assert!(node.begin(FETCH, &[]).is_some(), "the task has begun anew since");
    }

    #[test]
    fn a_node_that_hands_over_passes_nothing_on_any_more() {
        let mut node = fetching();
        node.opened(FLOW, OBJECT);
        assert_eq!(node.hand_over().collect::<Vec<_>>(), [OBJECT]);
        assert_eq!(node.on_event(FETCH, &ReceiverEvent::Decode { block: BLOCK }), None);
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
    fn what_others_want_beyond_this_nodes_part_is_the_fetchs_that_runs() {
        let mut node = fetching();
        let wanted = || ReceiverCommand::Wanted { block: BLOCK, class: 1, symbols: 7 };
        assert_eq!(node.wanted(OBJECT, wanted()), Some(ToFetch(FETCH, wanted())));
        assert_eq!(node.wanted(ObjectId([8; 32]), wanted()), None);
        // With symbols of another size it is the same fetch.
        node.on_event(FETCH, &accepted(500));
        assert_eq!(node.cut(FETCH).map(|cut| cut.symbol_size), Some(500));
        assert_eq!(node.begin(FETCH, &[]).map(|it| it.symbol_size), Some(500));
        node.on_event(FETCH, &ReceiverEvent::Ended);
        assert_eq!(node.wanted(OBJECT, wanted()), None);
    }
}
