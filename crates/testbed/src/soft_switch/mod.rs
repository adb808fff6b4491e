//! A switch for real packets: what `headwater_switch` decides, done to Ethernet frames between network namespaces.
//!
//! The lower half is here: frames as bytes that a switch may mark and trim ([`RawFrame`]), the buffers they live in
//! ([`FramePool`]), the addresses of hosts ([`AddressBook`]), and the sockets that they come and go by
//! ([`PacketPort`]).
//!
//! ```text
//!  interface -> PacketPort::receive -> RawBuffer -> RawFrame::parse -> a switch -> PacketPort::send -> interface
//! ```
//!
//! A sending host's interface must not leave checksums and segmentation to hardware that is not there:
//! [`offloads_off`], run [inside its namespace](in_namespace). Nothing is learned and nothing answered: the switch knows
//! hosts by their IP addresses from the start, the hosts have fixed neighbours, and ARP goes nowhere. It is a bridge in
//! that it leaves TTL and hop limit alone.
//!
//! The upper half is [`EmulatedFabric`]: a whole network of switches as one machine without sockets or a clock, built from
//! what a scenario says, as the simulator's is. [`SoftSwitch`] joins the two: a thread that moves frames in real time.
//! Frames that leave its ports can be kept in files ([`Capture`]).

mod address;
mod buffer;
mod capture;
mod checksum;
mod driver;
mod fabric;
mod frame;
#[cfg(test)]
mod laws;
mod layout;
mod membership;
mod namespace;
mod offload;
mod reserved;
mod ring;
#[cfg(test)]
mod storm;
mod sys;
#[cfg(test)]
mod tests;
mod tree_stores;

pub use address::{AddressBook, AddressError};
pub use buffer::{FramePool, MAX_FRAME, RawBuffer};
pub use capture::{Capture, CaptureCounts, Recorder, SNAP};
pub use driver::{
    Begin, LinkState, QueueSample, Sampling, Snapshot, SoftSwitch, SoftSwitchError, SoftSwitchSpec, Validity,
};
pub use fabric::{DropReason, EmulatedFabric, EmulatedFabricError, FabricCounts, FabricOutput, Tap};
pub use frame::{MacAddress, RawFrame, TRIM_PAYLOAD, TRIM_SIZE, TrimRule, TrimmedUdp};
pub use layout::NotForwarded;
pub use membership::{Groups, MAX_GROUPS};
pub use namespace::in_namespace;
pub use offload::{offloads_off, segmentation_off};
pub use reserved::Reserved;
pub use ring::{FramePort, PORT_BATCH, PacketPort, RingConfig, RingStats, wait};
