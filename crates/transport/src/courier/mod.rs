//! Courier's agent at a host that receives (Zhang et al., TPDS 2025, Algorithms 1 to 3): the flows from one peer travel in one
//! unified flow, which is split into lanes where a host may have more of them.
//!
//! ```text
//!   Want, Schedule, Grant, Arrived        Request (flow, offset, length, lane), Lane, Done
//!            |                                             ^
//!            v                                             |
//!   members of each pair --Selection--> lanes of each pair --deficit round robin--> blocks
//! ```
//!
//! One machine for simulator and sockets. It names blocks, and the driver moves their bytes: it asks the peer's agent for a block in
//! a lane, and says when the block is at its local writer. A lane is a connection that stays open: what changes is what is asked for
//! in it. So a new schedule re-weights and never restarts, and whatever was lost with a connection is asked for again by offset.
//!
//! * `commands`: what the machine is told, and what it tells.
//! * `selection`: the trait behind which Algorithms 2 and 3 stand; `by_policy` has them from `policy`.
//! * `courier`: Algorithm 1, the machine.
//! * `pair`, `member`, `deficit`: the flows from one peer, one flow, and whose turn it is among equals.
//!
//! Differs from the paper: lanes of a pair draw on one queue of blocks instead of a fixed half each (with equal lanes both give the
//! same, and a slow path strands nothing); a pair whose first rank has ended goes on to the next without a word of the scheduler,
//! where the published loop would wait for one; among flows of one rank turns go round evenly, of which the paper only says "among
//! the reducers with the highest priority".

mod by_policy;
mod commands;
#[expect(clippy::module_inception, reason = "the machine has the name of what it is a part of")]
mod courier;
mod deficit;
mod member;
mod pair;
mod selection;

pub use by_policy::ByPolicy;
pub use commands::{
    Arrival, CourierCommand, CourierConfig, CourierEvent, CourierStats, LaneId, PairId, Request, Schedule,
    Want,
};
pub use courier::Courier;
pub use selection::{Candidate, Chosen, Selection, Share};
