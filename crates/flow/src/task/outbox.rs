//! Output queue of one side of a fetch.

use std::collections::VecDeque;

use headwater_machine::{Output, Packet};
use headwater_units::{FetchId, FlowId, PathId, SymbolId};
use headwater_wire::{Body, Class};

use super::commands::{FromFetch, ReceiverEvent};

/// In order, but for a symbol to keep, which is the first output of all.
#[derive(Debug)]
pub struct Outbox {
    fetch: FetchId,
    outputs: VecDeque<Output<FromFetch>>,
    /// Most symbols cause no other output, and so none goes through the queue.
    keep: Option<(FlowId, SymbolId)>,
}

impl Outbox {
    /// The empty outbox of a fetch.
    pub fn new(fetch: FetchId) -> Self {
        Outbox { fetch, outputs: VecDeque::new(), keep: None }
    }

    /// Whether nothing waits for the driver.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.keep.is_none() && self.outputs.is_empty()
    }

    /// The driver is told this.
    #[inline]
    pub fn event(&mut self, event: ReceiverEvent) {
        self.outputs.push_back(Output::Event(FromFetch(self.fetch, event)));
    }

    /// Says something to the source of a flow.
    pub fn send(&mut self, path: PathId, flow: FlowId, body: Body) {
        self.outputs.push_back(Output::Transmit(Packet::of_flow(path, flow, Class::Control, body)));
    }

    /// The driver is to keep this symbol.
    #[inline]
    pub fn keep(&mut self, flow: FlowId, symbol: SymbolId) {
        match self.is_empty() {
            true => self.keep = Some((flow, symbol)),
            false => self.event(ReceiverEvent::Symbol { flow, symbol }),
        }
    }

    /// The symbol to keep, if one came.
    #[inline]
    pub fn take_kept(&mut self) -> Option<(FlowId, SymbolId)> {
        self.keep.take()
    }

    /// The packet to send, if that is the next output.
    #[inline]
    pub fn take_packet(&mut self) -> Option<Packet> {
        let is_next = self.keep.is_none() && matches!(self.outputs.front(), Some(Output::Transmit(_)));
        let Output::Transmit(packet) = is_next.then(|| self.outputs.pop_front())?? else { return None };
        Some(packet)
    }

    /// The next output.
    #[inline]
    pub fn pop(&mut self) -> Option<Output<FromFetch>> {
        match self.take_kept() {
            Some((flow, symbol)) => {
                Some(Output::Event(FromFetch(self.fetch, ReceiverEvent::Symbol { flow, symbol })))
            }
            None => self.outputs.pop_front(),
        }
    }
}
