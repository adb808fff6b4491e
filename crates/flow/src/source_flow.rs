//! The trait of a source's flows, whatever their transport (`headwater_transport::source`).

use headwater_machine::Packet;
use headwater_units::{BlockIndex, Duration, FlowId, ObjectId, PathId, Symbols, Theta, Time};
use headwater_wire::{Body, Push, SYMBOL_OVERHEAD};

use super::in_flight::AckOutcome;
use super::{FlowStats, Shared};

/// Maximum number of packets in one GSO send (docs/decisions/0024).
pub const QUANTUM: u64 = 46;

/// One flow at its source. The source owns the table of flows, their turns and timers; a flow says what may leave and when.
pub trait SourceFlow {
    /// State that the flows of this transport share at a host.
    type Common;

    /// The controller's order that it follows.
    fn order(&self) -> &Push;

    /// The object that it sends.
    fn object(&self) -> ObjectId {
        self.order().object
    }

    /// Whether this order means this flow: all but the weight, what is known of its path, and where the receiver is known to be,
    /// which a controller that has started anew may not know yet.
    fn is(&self, push: &Push) -> bool {
        Push { theta: push.theta, start: push.start, at: push.at.clone(), ..self.order().clone() } == *push
    }

    /// The order has come again.
    fn order_again(&mut self, _now: Time, _push: &Push) {}

    /// Bytes of one symbol's datagram above UDP.
    fn packet_bytes(&self) -> u64 {
        u64::from(self.order().symbol_size) + SYMBOL_OVERHEAD as u64
    }

    /// Something is about to change: what comes next is to be found anew.
    fn look_again(&mut self) {}

    /// Packets that may leave in one turn among the ready flows.
    fn quantum(&self) -> u64 {
        QUANTUM
    }

    /// Tolerated delay of the driver; nothing where the receiver asks for each packet.
    fn slack(&self) -> Option<Duration> {
        Some(Duration::ZERO)
    }

    /// Whether the timers begin to run with the packet sent last.
    fn is_flight_new(&self) -> bool {
        false
    }

    /// If it is a group's flow or one of its trees, how many symbols have left on it.
    fn sent_to_group(&self) -> Option<Symbols> {
        None
    }

    /// The path that it sends on, while it may send.
    fn open_path(&self) -> Option<PathId>;

    /// A weight. A rate that receivers decide ignores it.
    fn set_theta(&mut self, _theta: Theta) {}

    /// The controller wants nothing sent for now.
    fn pause(&mut self, now: Time);

    /// The flow sends again.
    fn resume(&mut self, now: Time);

    /// The counters at this moment.
    fn stats(&self) -> FlowStats;

    /// The driver knows where the receiver is, or the group. Else its first word tells.
    fn on_flow_path(&mut self, _now: Time, _path: PathId, _shared: &mut Shared) {}

    /// A block that was asked for can be sent.
    fn on_block_ready(&mut self, block: BlockIndex, repair: bool);

    /// The receiver says something that is neither control nor the end. False if a flow of this transport is not told this.
    fn hear(
        &mut self,
        now: Time,
        path: PathId,
        body: &Body,
        shared: &mut Shared,
        outcome: &mut AckOutcome,
        common: &mut Self::Common,
    ) -> bool;

    /// The next packet that may leave now. `None`: not before the deadline, the next input or the next block.
    fn next(&mut self, now: Time, shared: &mut Shared, common: &mut Self::Common) -> Option<Packet>;

    /// When [`SourceFlow::on_timer`] has something to do next.
    fn deadline(&self) -> Option<Time>;

    /// Does what is due; true if the flow is over by itself.
    fn on_timer(&mut self, now: Time, outcome: &mut AckOutcome, shared: &mut Shared) -> bool;

    /// The last datagram of a flow that ends now, if others than its receiver wait for it.
    fn last_word(&mut self) -> Option<Packet> {
        None
    }

    // ---- groups, whose members have flows of their own

    /// The group whose member it is, or was.
    fn group(&self) -> Option<FlowId> {
        None
    }

    /// Of a group: a member's flow is over; true if it was the last one.
    fn on_leave(&mut self, _now: Time, _member: FlowId) -> bool {
        false
    }

    /// Of a member: its group has gone on without it.
    fn detach(&mut self, _now: Time, _shared: &mut Shared) {}

    /// The flow has ended.
    fn leave(&self, _common: &mut Self::Common) {}
}
