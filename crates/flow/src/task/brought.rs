//! Delivery record of one flow, as its receiver reports it to the controller.

use headwater_units::{BitRate, Bytes, Duration, FlowId, Time};
use headwater_wire::FlowView;

/// The symbols of one flow that is asked for them.
#[derive(Debug)]
pub struct Brought {
    /// Symbols that came.
    pub symbols: u64,
    /// Those that were needed.
    pub useful: u64,
    /// Useful symbols, and when they were counted, as said last.
    viewed: (u64, Time),
    rate: BitRate,
}

impl Brought {
    /// Nothing, from now on.
    pub fn new(now: Time) -> Self {
        Brought { symbols: 0, useful: 0, viewed: (0, now), rate: BitRate::ZERO }
    }

    /// The rate in the last report.
    pub fn rate(&self) -> BitRate {
        self.rate
    }

    /// The report that is due now; `symbol` is the number of bytes of a symbol.
    pub fn view(&mut self, now: Time, flow: FlowId, symbol: u64, silent: Duration) -> FlowView {
        let (useful, since) = std::mem::replace(&mut self.viewed, (self.useful, now));
        let span = now.since(since);
        if span > Duration::ZERO {
            self.rate = Bytes::new((self.useful - useful) * symbol) / span;
        }
        FlowView {
            flow,
            bytes: Bytes::new(self.useful * symbol),
            rate: self.rate,
            silent,
            behind: Duration::ZERO,
        }
    }
}
