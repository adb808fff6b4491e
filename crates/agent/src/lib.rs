//! Courier's agent on sockets (Zhang et al., TPDS 2025, §IV and §VI-C): programs of one host fetch shuffle data from other hosts
//! through it, and all of it that comes from one host comes by one connection.
//!
//! ```text
//!  program            agent of its host                             agent of the other host         program there
//!  --------           -----------------                             -----------------------         -------------
//!                                                                   registry  <--- REGISTER -----   output, index
//!  FETCH, CREDIT -->  session --> hub --OPEN, ASK--> link ==TLS==>  serving --> file
//!  DATA          <--  session <-- hub <----DATA----- link <=======  serving <-- file
//!                                  |
//!                       transport::courier::Courier decides which block is asked for next, in which lane
//! ```
//!
//! The machine is the simulator's: [`Courier`](headwater_transport::courier::Courier). This crate moves its bytes.
//!
//! * `client_frames`, `peer_frames`, `fields`, `refusal`: the two protocols, without I/O (`docs/agent-protocol.md`).
//! * `registry`, `index`, `budget`, `delivery`: who may read which output, where partitions lie, memory, and order; without I/O.
//! * `secure`: TLS 1.3 of one connection, without sockets; `tcp`: the options of its socket.
//! * `hub`: the one owner of Courier and of all flows that are fetched, a machine itself: its blocks, lanes and programs are its driver's, or a
//!   storm's. `driver`: what moves for it.
//! * `link`: a connection to another host's agent, dialled again when it breaks; `serving`: the other end of it.
//! * `local`, `session`: programs of this host; `roots`: the files that they may name; `sweep`: lets go of those that were deleted.
//! * `client`: the program's side of the local socket, in Rust.

mod agent;
mod assembler;
mod blocks;
mod budget;
pub mod client;
pub mod client_frames;
mod config;
mod delivery;
mod driver;
mod fields;
mod hub;
mod index;
mod link;
mod local;
mod outbox;
pub mod peer_frames;
mod peers;
mod refusal;
mod registry;
mod roots;
mod secure;
mod serving;
mod session;
mod status;
mod sweep;
mod tcp;

pub use agent::Agent;
pub use config::{AgentConfig, Quotas};
pub use fields::{FrameError, Name};
pub use peers::{Peer, Peers};
pub use refusal::Refusal;
pub use status::{AgentError, AgentStatus, CoflowDemand, CoflowStatus, LaneStatus};
