//! Batched UDP with ECN: the only door between the machines and the kernel's datagrams.
//!
//! One [`UdpPort`] belongs to one thread. It sends groups of equal-size datagrams with one TOS byte each (UDP GSO
//! below `sendmmsg`), receives merged ones (UDP GRO below `recvmmsg`) and hands back every datagram with the TOS byte
//! it arrived with, so marks are counted exactly. [`wait`] sleeps until datagrams, a [`Waker`] or a timer.
//!
//! ```text
//! SendBatch::push.. -> UdpPort::flush -> kernel        kernel -> UdpPort::recv -> RecvBatch::datagrams
//! ```
//!
//! Datagrams for a multicast group come by a port of their own ([`UdpPort::join`], [`GroupAddr`]). A datagram that a
//! switch has trimmed may be no UDP any more in the kernel's eyes; [`TrimmedPort`] sees it all the same.
//!
//! Control messages are read and written here and not by a library: quinn-udp's 96 bytes of control space lose the
//! TOS byte of merged IPv4 buffers (they need 112), and it cannot set DSCP beside the ECN bits. Knows nothing of
//! headers, flows or pacing. Linux only.

#[cfg(not(target_os = "linux"))]
compile_error!("headwater's sockets need Linux (UDP GSO and GRO, recvmmsg, ppoll, eventfd)");

mod addr;
mod control_message;
mod group;
mod port;
mod receive;
mod send;
mod stats;
mod sys;
#[cfg(test)]
mod tests;
mod trimmed;
mod wait;

pub use addr::PathAddr;
pub use group::GroupAddr;
pub use port::{Multicast, Offload, SocketOptions, UdpPort, ask_receive_buffer, own_address, path_mtu};
pub use receive::{Datagram, RecvBatch, Run};
pub use send::{Flush, MAX_DATAGRAM, MAX_GROUP, SendBatch, SoftError};
pub use stats::{Merging, SocketStats};
pub use trimmed::{Trimmed, TrimmedBatch, TrimmedPort, TrimmedStats};
pub use wait::{MAX_FURTHER, Ready, Waker, doze, sharpen_timers, wait, wait_with};
