//! The state that all flows of a source share, whatever their transport.

use std::collections::VecDeque;

use headwater_machine::Output;
use headwater_units::FlowId;
use rand_chacha::ChaCha12Rng;

use super::events::SourceEvent;
use super::paths::PathMemory;

/// Handed to a flow with everything that it hears.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) out: VecDeque<Output<SourceEvent>>,
    pub(crate) rng: ChaCha12Rng,
    pub(crate) memory: PathMemory,
    /// The host's rate limit holds everybody back.
    pub(crate) limited: bool,
    /// Members of groups that have just been detached.
    pub(crate) detached: Vec<FlowId>,
}
