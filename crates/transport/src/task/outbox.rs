//! What a side of a fetch has to say.

use std::collections::VecDeque;

use headwater_machine::{Output, Packet};
use headwater_units::{FetchId, FlowId, PathId, SymbolId};
use headwater_wire::{Body, Class};

use super::commands::{FromFetch, ReceiverEvent};

/// In order, but for a symbol to keep, which is the first output of all.
#[derive(Debug)]
pub(crate) struct Outbox {
    fetch: FetchId,
    outputs: VecDeque<Output<FromFetch>>,
    /// Most symbols cause no other output, and so none goes through the queue.
    keep: Option<(FlowId, SymbolId)>,
}

impl Outbox {
    pub(crate) fn new(fetch: FetchId) -> Self {
        Outbox { fetch, outputs: VecDeque::new(), keep: None }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.keep.is_none() && self.outputs.is_empty()
    }

    #[inline]
    pub(crate) fn event(&mut self, event: ReceiverEvent) {
        self.outputs.push_back(Output::Event(FromFetch(self.fetch, event)));
    }

    /// Says something to the source of a flow.
    pub(crate) fn send(&mut self, path: PathId, flow: FlowId, body: Body) {
        self.outputs.push_back(Output::Transmit(Packet::of_flow(path, flow, Class::Control, body)));
    }

    /// The driver is to keep this symbol.
    #[inline]
    pub(crate) fn keep(&mut self, flow: FlowId, symbol: SymbolId) {
        match self.is_empty() {
            true => self.keep = Some((flow, symbol)),
            false => self.event(ReceiverEvent::Symbol { flow, symbol }),
        }
    }

    #[inline]
    pub(crate) fn take_kept(&mut self) -> Option<(FlowId, SymbolId)> {
        self.keep.take()
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Output<FromFetch>> {
        match self.take_kept() {
            Some((flow, symbol)) => {
                Some(Output::Event(FromFetch(self.fetch, ReceiverEvent::Symbol { flow, symbol })))
            }
            None => self.outputs.pop_front(),
        }
    }
}
