//! The trait of a transport towards the fetch whose symbols it brings (`headwater_transport::receiver`).

use headwater_machine::{Output, Packet};
use headwater_units::{Duration, FlowId, NodeId, SymbolId, Time};
use headwater_wire::FlowGrant;

use super::ReceiverStats;
use super::blame::Trust;
use super::commands::{FromFetch, ReceiverCommand, ReceiverFailure};
use super::ledger::Ledger;
use super::session::Progress;

/// State that a transport hands over to the transport that continues with the object.
#[derive(Debug, Default)]
pub struct HandedOn {
    /// Record of arrived symbols, once the wanted range is known.
    pub ledger: Option<Ledger<()>>,
    /// Sources that have sent wrong symbols.
    pub trust: Trust,
    /// Flows that are bound.
    pub bound: Vec<FlowId>,
}

/// The side of a fetch by which its symbols come. It knows flows and blocks, and nothing of the controller: messages
/// for that follow from what it tells the driver.
pub trait FetchSide {
    /// State that all fetches of a host by this transport share.
    type Host;

    /// These are its flows now: sources join, die, move.
    fn set_flows(&mut self, now: Time, grants: Vec<FlowGrant>, host: &mut Self::Host);

    /// A packet of one of its flows.
    fn on_packet(&mut self, now: Time, packet: Packet, host: &mut Self::Host);

    /// A command of the driver; and whether a task is running, as far as both ends know.
    fn on_command(&mut self, now: Time, command: ReceiverCommand, is_running: bool, host: &mut Self::Host);

    /// Goes on with what came by another transport.
    fn resume(&mut self, now: Time, ledger: Ledger<()>, host: &mut Self::Host);

    /// The controller that had forgotten the task has taken it up again.
    fn go_on(&mut self, _now: Time) {}

    /// Gives up, and tells the driver.
    fn fail(&mut self, now: Time, failure: ReceiverFailure, host: &mut Self::Host);

    /// The symbol to keep, if that is the next output and it is at hand.
    fn take_kept(&mut self) -> Option<(FlowId, SymbolId)>;

    /// The packet to send, if that is the next output and it is cheap to know that.
    fn take_packet(&mut self) -> Option<Packet> {
        None
    }

    /// The next output; [`Output::Wake`] when there is nothing more to do now.
    fn poll(&mut self, now: Time, is_running: bool, host: &mut Self::Host) -> Output<FromFetch>;

    /// Time before which there is certainly nothing to do, if that is cheap to know.
    fn quiet_until(&self, _now: Time) -> Option<Time> {
        None
    }

    /// Whether something has gone wrong since this was asked last that the controller is to hear of soon.
    fn take_alarm(&mut self) -> bool {
        false
    }

    /// Something was heard that is no symbol.
    fn stir(&mut self) {}

    /// Hands its state over to another transport. Flows end without a word: the controller stops their sources.
    fn hand_on(self) -> HandedOn;

    /// Which sources are believed, as it was found out before.
    fn trust(&mut self, trust: Trust);

    /// Whether nothing of this source is believed any more.
    fn is_distrusted(&self, node: NodeId) -> bool;

    /// Whether blocks are here, or may be.
    fn has_begun(&self) -> bool {
        true
    }

    /// Whether nothing is left to say to any source.
    fn has_ended(&self) -> bool;

    /// Progress to report to the controller.
    fn progress(&mut self, now: Time) -> Progress;

    /// The counters at this moment.
    fn stats(&mut self, now: Time) -> ReceiverStats;

    /// Tolerated delay of the driver, once that is known; nothing where each packet is asked for.
    fn slack(&self) -> Option<Duration> {
        Some(Duration::ZERO)
    }

    /// Useful symbols so far of each flow, by id.
    fn useful(&self) -> Box<dyn Iterator<Item = (FlowId, u64)> + '_>;

    /// Useful symbols of a flow that is over; `None` if nothing ever came by it.
    fn useful_of_ended(&self, flow: FlowId) -> Option<u64>;
}
