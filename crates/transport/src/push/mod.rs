//! PPUSH: many sources push disjoint symbols of one object to one receiver (PPUSH §III).
//!
//! ```text
//!              Request, Feedback, Fin                 Push, SetTheta, Pause, Stop
//!  receiver  <------------------------>  controller  <---------------------------->  source 0..M
//!     ^              Accepted, Flows                   Hello, Hold, Pushing, Report       |
//!     |                                                                                   |
//!     +----------------------------- symbols, challenge ----------------------------------+
//!     +--------------------------- ACK, assignment, fin ---------------------------------->
//! ```

mod config;
mod congestion;
mod feedback;
mod first_window;
mod push_flow;
pub mod receiver;
mod stripe_window;
pub mod wfcc;
pub mod yielding;

pub(crate) use config::LOOK_AHEAD;
pub use config::{AckInterval, LostSymbols, PushFlowConfig, TailProbe};
pub(crate) use push_flow::PushFlow;
