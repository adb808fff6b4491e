//! The state that all flows of a source share, whatever their transport.

use std::collections::VecDeque;

use headwater_machine::Output;
use headwater_units::FlowId;
use rand_chacha::ChaCha12Rng;

use super::events::SourceEvent;
use super::paths::PathMemory;

/// Handed to a flow with everything that it hears.
#[derive(Debug)]
pub struct Shared {
    /// Output of the source, in order: packets and events.
    pub out: VecDeque<Output<SourceEvent>>,
    /// The only source of randomness.
    pub rng: ChaCha12Rng,
    /// Memory of paths from earlier flows.
    pub memory: PathMemory,
    /// The host's rate limit holds everybody back.
    pub limited: bool,
    /// Members of groups that have just been detached.
    pub detached: Vec<FlowId>,
}
