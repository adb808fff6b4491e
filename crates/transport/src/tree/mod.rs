//! Datacast: one source, a group of receivers, trees that share no link; receivers ask, devices where trees branch remember
//! (Datacast §III to §V).
//!
//! ```text
//!             blocks, each tree another one                             credit w
//!   TreeFlow ------ symbols, announcements ----> ContentStore ----> TreeReceiver
//!        ^            at a rate r                (where it branches)       |
//!        +------------------ interests, once per name ------------------<--+
//! ```
//! **One tree.** A receiver asks for each symbol by name, with at most w interests out (§V-B). Devices on the path answer from their
//! stores, and an interest that was passed on already waits there. So the source hears of each symbol once. If it hears of one again,
//! the network lost it or the slowest receiver is further behind the fastest than the stores remember: in both cases the source is too
//! fast and halves its rate. Each time T without such a duplicate it adds delta.
//!
//! **Several trees** carry different blocks at the same time, each as fast as it can: a tree that has begun a block is
//! given the one that comes after it (§IV-B, one block ahead, so that it never idles), and says so to receivers that
//! ask for the name [`NEXT`](headwater_wire::NEXT) of the block.
//!
//! A tree is a flow at the source ([`crate::source`]) and at each receiver. Not here: the search for trees (`fabric`),
//! the store (`switch`), and the membership of the group.

mod config;
mod liveness;
mod rate;
mod signalling;
mod tree_flow;
mod tree_receiver;

pub use config::TreeSourceConfig;
pub use headwater_flow::TreeStats;
pub use headwater_flow::task::{Asks, TreeReceiverConfig};
pub use liveness::{Heartbeat, Liveness};
pub use rate::{RateConfig, TreeRate};
pub use signalling::{Say, Signalling, SignallingConfig};
pub(crate) use tree_flow::{Deals, TreeFlow};
pub use tree_receiver::{TreeReceiver, TreeReceiverStats};
