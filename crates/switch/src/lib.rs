//! The network's devices, without I/O: queues, marking, trimming, forwarding.
//!
//! A [`Switch`] is a machine with two verbs: `handle` takes a frame in, `poll` says which frame leaves by which port
//! and when. It is put together from [`Port`]s and one [`Forwarding`] table, and both serve alone too: a host's network
//! card is a `Port`. The type of a frame stays open ([`Frame`]): a simulator's typed packet and raw bytes edited in
//! place run through the same code.
//!
//! ```text
//!  handle(frame) -> Forwarding: which ports -> Port: queue, mark, trim or drop -> Line: when its last bit leaves -> poll
//! ```
//!
//! A port has four independent parts, each chosen in its [`PortConfig`]: queues with their limits and mark thresholds
//! (PPUSH Eq. 3), the [`Service`] between them, what happens when one is full ([`WhenFull`]; SCDP §III-C), and a rate
//! allocator ([`Allocator`]; PAM §III-C). There is no type per combination.
//!
//! Behind a port is a link. Its delay is a number that drivers add; what else it may do to a frame is [`LinkFaults`], the
//! same for simulated and for real ones.
//!
//! Beside the ports stands what Datacast adds to devices on its trees: a [`TreeNode`] passes interests and data on, and where the tree
//! branches its [`ContentStore`] answers interests from what passed.
//!
//! Not here: who is joined to whom, who talks to whom, and anything about protocols above the frame's header.

mod config;
mod content_store;
mod departures;
mod forwarding;
mod frame;
mod line;
mod link;
mod port;
mod queue;
mod rate_allocator;
mod ring;
mod service;
mod stats;
mod switch;
mod tree_node;
mod walk;

pub use config::{
    Allocator, ClassMap, Limit, MAX_QUEUE_BYTES, MAX_QUEUES, PortConfig, PortError, QueueConfig, Service,
    Threshold, WhenFull,
};
pub use content_store::{Answer, ContentStore, ContentStores, Replacement, StoreConfig, StoreStats};
pub use forwarding::{Branch, Choice, Egress, Forwarding, ForwardingError, PortIndex};
pub use frame::{Destination, Frame};
pub use line::{Line, MAX_RATE, MIN_RATE};
pub use link::{Fate, FaultCounts, LinkChange, LinkFaults};
pub use port::{Cleared, Offered, Passed, Port};
pub use rate_allocator::{
    AllocatorVariant, AllocatorView, Claim, HardwareState, HardwareTables, RateAllocator,
    RateAllocatorConfig, RateAllocatorError, accuracy,
};
pub use stats::{PortStats, Seen, SwitchStats};
pub use switch::{Switch, SwitchError, SwitchOutput};
pub use tree_node::{TreeNode, TreeNodeStats, TreeWord};
pub use walk::Walk;
