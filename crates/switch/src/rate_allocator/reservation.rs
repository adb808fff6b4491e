//! Rate that is kept for a paused transfer that goes first, until its first symbols come.
//!
//! By the letter of Algorithm 2 a probe changes nothing, so all that probe while nobody is critical are offered the whole line, overload it
//! together, and are paused together. Why that does not end by itself, and what was measured, is docs/decisions/0039.
//!
//! A port keeps what it has offered to the probe of a transfer that would go first. For a while, probes that rank behind that
//! transfer share what the reservation leaves. It ends with the transfer's first symbol, with its FIN, or with that time; the
//! same transfer gets no second one after another, since it may be held up elsewhere.

use headwater_units::{BitRate, Duration, FlowId, Rank, Time};

/// One port's reservation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reservation {
    settling: Duration,
    holder: Option<Held>,
}

/// The kept rate, its transfer, and until when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) transfer: FlowId,
    pub(super) rank: Rank,
    pub(super) rate: BitRate,
    pub(super) until: Time,
}

impl Reservation {
    pub(super) fn new(settling: Duration) -> Self {
        Reservation { settling, holder: None }
    }

    pub(super) fn settling(&self) -> Duration {
        self.settling
    }

    pub(super) fn held(&self) -> Option<Held> {
        self.holder
    }

    /// Rate that transfers of this rank must leave, if another transfer than this one goes before it.
    pub(super) fn before(&self, now: Time, transfer: FlowId, rank: Rank) -> Option<BitRate> {
        let holder = self.holder.as_ref()?;
        (now < holder.until && holder.transfer != transfer && holder.rank <= rank).then_some(holder.rate)
    }

    /// A probe that goes first is offered this much.
    pub(super) fn offered(&mut self, now: Time, transfer: FlowId, rank: Rank, rate: BitRate) {
        let again = self.holder.is_some_and(|it| it.transfer == transfer);
        if !again && self.settling > Duration::ZERO {
            self.holder = Some(Held { transfer, rank, rate, until: now + self.settling });
        }
    }

    /// The transfer sends, or has ended.
    pub(super) fn settled(&mut self, transfer: FlowId) {
        if self.holder.is_some_and(|it| it.transfer == transfer) {
            self.holder = None;
        }
    }
}
