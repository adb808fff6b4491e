//! A path that does not carry the task's symbols (RFC 8899; the search itself is the source's: [`headwater_flow::path_mtu`]).
//!
//! ```text
//!   source: Probe { fits } --> room := what fits; every flow ended, the task left (Fin)
//!                              --> Request with less room --> Accepted with a smaller T --> blocks that are done stay,
//!                                                                                          partial ones begin anew
//! ```
//!
//! T may change at a block boundary only, so what is partly here is thrown away: a few blocks per source at most. All
//! sources of the task then send the smaller symbols, also those whose paths carry more: a task has one T.
//!
//! A source that lies about its path costs its receiver a few bytes of header per packet, and no more than
//! [`LEAST_ROOM`] allows.

use headwater_units::{FlowId, PathId, Time};
use headwater_wire::{Body, FinReason, Probe, ProbeAck, SYMBOL_OVERHEAD};

use super::{Flow, Receiver};

/// Less room than this is not believed: that of MIN_PLPMTU, 548 bytes ([`headwater_flow::path_mtu::PathMtuConfig::least`]).
const LEAST_ROOM: u16 = 548 - SYMBOL_OVERHEAD as u16;

impl Receiver {
    /// A probe has arrived: confirm it, and take in what it says.
    pub(super) fn on_probe(&mut self, path: PathId, flow: FlowId, probe: Probe) {
        let Probe { number, bytes, fits } = probe;
        self.outbox.send(path, flow, Body::ProbeAck(ProbeAck { number, bytes }));
        if let Some(fits) = fits
            && self.flows.get(&flow).is_some_and(|flow| flow.is_live())
        {
            self.narrow = Some(fits);
        }
    }

    /// The longest datagram that a path was just heard to carry.
    pub(crate) fn take_narrow(&mut self) -> Option<u16> {
        self.narrow.take()
    }

    /// The task is left for one with smaller symbols.
    pub(crate) fn leave_task(&mut self, now: Time) {
        let live: Vec<FlowId> = self.flows.values().filter(|flow| flow.is_live()).map(Flow::id).collect();
        for flow in live {
            self.end_flow(now, flow, FinReason::Cancelled);
        }
    }
}

/// Bytes of symbol that a path has room for which carries datagrams of `fits` bytes.
pub(crate) fn room_for(fits: u16) -> u16 {
    fits.saturating_sub(SYMBOL_OVERHEAD as u16).max(LEAST_ROOM)
}
