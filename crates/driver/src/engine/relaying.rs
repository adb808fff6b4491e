//! What this node receives and passes on as it comes: what the one machine is to know of the other.

use std::sync::Arc;

use headwater_machine::{Endpoint, Input};
use headwater_transport::{
    Arriving, DecodeFailure, ReceiverCommand, ReceiverEvent, Relaying, SourceCommand, ToFetch,
};
use headwater_units::{BlockIndex, FetchId, ObjectId, Time};

use super::Engine;
use crate::BlockSink;

impl Engine {
    /// A fetch begins, or goes on with symbols of another size: its object may be passed on from now on.
    pub(super) fn begin_relaying(
        &mut self,
        now: Time,
        id: FetchId,
        have: &[BlockIndex],
        blocks: &Arc<dyn BlockSink>,
    ) {
        let Some(receiving) = self.fetches.running.get(&id) else { return };
        let (object, bytes, symbol_size) = (receiving.object(), receiving.size(), receiving.symbol_size());
        let (Some(object), Some(bytes), Some(symbol_size)) = (object, bytes, symbol_size) else { return };
        if !self.sources.holds(object) {
            self.sources.relay(object, blocks);
            let relaying = Relaying { object, bytes, symbol_size, have: have.to_vec() };
            self.tell_source(now, SourceCommand::Relay(Box::new(relaying)));
        }
    }

    /// Tells the source of what has come. It speaks when the batch at hand is dealt with.
    pub(super) fn pass_on(&mut self, now: Time, object: ObjectId, what: Arriving) {
        let command = SourceCommand::Arriving { object, what };
        self.hand_to_source(now, Input::Command(command));
    }

    /// The object of a fetch that is passed on, if anybody wants it.
    fn passed_on(&self, id: FetchId) -> Option<ObjectId> {
        let object = self.fetches.running.get(&id)?.object()?;
        self.sources.is_coming(object).then_some(object)
    }

    /// What a fetch does that matters to whom its object is passed on.
    pub(super) fn relay_what_happens(&mut self, now: Time, id: FetchId, event: &ReceiverEvent) {
        let Some(object) = self.passed_on(id) else { return };
        match event {
            ReceiverEvent::Decode { block } => {
                // What can leave still does: with the decoder the symbols cannot be read.
                self.drive_source(now);
                self.pass_on(now, object, Arriving::Decoding(*block));
            }
            ReceiverEvent::Discard { block } => self.pass_on(now, object, Arriving::Anew(*block)),
            ReceiverEvent::Failed(_) => self.end_relaying(now, object),
            // Nobody wants it who could wait until it is held.
            ReceiverEvent::Ended if !self.sources.passes_on(object) => self.end_relaying(now, object),
            _ => {}
        }
    }

    /// A worker has dealt with a block.
    pub(super) fn assembled(&mut self, now: Time, id: FetchId, command: &ReceiverCommand) {
        let Some(object) = self.passed_on(id) else { return };
        let what = match command {
            ReceiverCommand::BlockDecoded { block } => Arriving::Whole(*block),
            ReceiverCommand::DecodeFailed { block, failure: DecodeFailure::NeedMore } => {
                Arriving::NeedsMore(*block)
            }
            _ => return,
        };
        self.pass_on(now, object, what);
        self.drive_source(now);
    }

    /// An object is not passed on any more, unless it is held by now.
    pub(super) fn end_relaying(&mut self, now: Time, object: ObjectId) {
        if self.sources.relay_no_more(object) {
            self.tell_source(now, SourceCommand::Arriving { object, what: Arriving::Over });
        }
    }

    /// Nothing that is not held is passed on any more: whoever is served is told, and so are controllers, so that others serve it.
    pub(super) fn end_all_relaying(&mut self, now: Time) {
        for object in self.sources.coming() {
            self.end_relaying(now, object);
        }
    }

    /// Others want more of a class of a block than this node was to have.
    pub(super) fn want_more(&mut self, now: Time, object: ObjectId, wanted: ReceiverCommand) {
        let Some(id) = self.fetches.of(object) else { return };
        self.fetches.taped.handle(now, Input::Command(ToFetch(id, wanted)));
        // Polled when whatever is under way is done.
        self.fetches.wake = Some(now);
    }
}
