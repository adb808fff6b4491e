//! SCDP: a receiver pulls the symbols of an object from its sources, one by one (SCDP §III).
//!
//! ```text
//!   controller --Push-->  source                                          receiver   <--Accepted, Flows-- controller
//!                         PullFlow  --- first window (syn), unasked --->  Session
//!                                   <-- pull: one more, of block 3 -----      |
//!                                   --- symbol, or its header --------->      +--> the host's pull queue, at its link's rate
//!                                   <-- pull, fin ----------------------
//! ```
//! - A flow begins with a window of symbols that its source pushes, in the product once its receiver is there (§III-D, and below).
//!   The receiver answers each symbol, or header of a trimmed one, by a pull as long as more is needed than is coming. So a block
//!   of K symbols that loses nothing takes K pulls less the pushed symbols, and one more for each header (§III-H).
//! - A pull counts all that were asked for ([`crate::pull::queue`]), and names the oldest and a newer block of which symbols are
//!   wanted ([`headwater_wire::Want`]): any of them may be lost, doubled or overtaken.
//! - n sources share a block without speaking to each other: source i sends ESI i, i + n, i + 2 n and so on of it (§III-F), in
//!   the next block i + 1 and so on, as far as it is asked to. A source whose symbols come faster is asked more often.
//! - The source lowers a flow's class as it sends ([`headwater_wire::Class::LEVELS`]); the first window and the answer to the
//!   last pull go first (§III-D).
//! - One source serves a group of receivers by one flow that a network copies to all (§III-E, `group`).
//!
//! The source's side is `PullFlow`, the receiver's is [`Session`]. Both know nothing of queues that trim: where nothing
//! trims, losses are inferred from the packets that come later, and from time.
//!
//! Differs from the paper:
//! - Sources change their parts from block to block, and pulls keep the window filled, where the paper sends exactly one for each
//!   arrival. It is the same until more is needed than was (K becomes K + 2, or a source dies); then several may leave for one arrival.
//! - In the product a receiver opens each flow by a first pull, of sequence number zero: it says where the receiver is, and which
//!   symbols are to be its first window ([`SessionConfig::opens_flows`]). Nothing leaves before that, and to a group not before each
//!   member's has come, or a second has passed ([`PullFlowConfig::assemble_for`]). The paper's source begins by itself, without a
//!   handshake. So do sources in simulations, whose driver says at once where receivers are ([`crate::SourceCommand::FlowPath`]).
//! - A source lets go of a flow whose receiver is silent for long, whether or not a pull bore `fin`
//!   ([`PullFlowConfig::silent_release`]).

mod config;
mod group;
mod pull_flow;
pub mod queue;
mod runs;
mod session;

pub use config::PullFlowConfig;
pub(crate) use pull_flow::{Common, PullFlow};
pub use session::{Ask, Session};

pub use headwater_flow::task::{SessionConfig, SessionFlow, SessionStats};

use headwater_units::{BlockIndex, Geometry};

/// No flow pushes more than this before it is asked, whatever its grant says: bounds bursts and the tables of both ends.
const LARGEST_WINDOW: u16 = 4096;

/// The first window, in bounds.
fn window(initial: u16) -> u32 {
    u32::from(initial.clamp(1, LARGEST_WINDOW))
}

/// The first ESI of a source's part of a block: c of c, c + n, c + 2 n and so on. It moves on by one from block to block, so that
/// all sources have as much of an object, whatever K.
fn class_of(block: u32, index: u8, of: u8) -> u32 {
    (u32::from(index) + block % u32::from(of.max(1))) % u32::from(of.max(1))
}

/// Number of source symbols in a source's part of a block.
fn part(source_symbols: u32, class: u32, of: u8) -> u32 {
    source_symbols.saturating_sub(class).div_ceil(u32::from(of.max(1)))
}

/// Symbols that a source pushes before anybody has asked: a number of its part of the first block, of the second, and
/// so on, until the window or the object ends. Source symbols only: the other sources bring the rest.
fn first_window(
    geometry: Geometry,
    window: u32,
    index: u8,
    of: u8,
) -> impl Iterator<Item = (BlockIndex, u32)> {
    let mut left = window;
    (0..geometry.layout().block_count()).map(BlockIndex).map_while(move |block| {
        let count = part(geometry.source_symbols(block), class_of(block.0, index, of), of).min(left);
        (left > 0).then(|| {
            left -= count;
            (block, count)
        })
    })
}

#[cfg(test)]
mod tests {
    use headwater_units::Bytes;

    use super::*;

    fn pushed(bytes: u64, window: u32, index: u8, of: u8) -> Vec<(u32, u32)> {
        let geometry = Geometry::new(Bytes::new(bytes), 4096).unwrap();
        first_window(geometry, window, index, of).map(|(block, count)| (block.0, count)).collect()
    }

    #[test]
    fn sources_have_parts_of_equal_size_over_as_many_blocks() {
        let parts = |index| (0..3).map(|block| part(64, class_of(block, index, 3), 3)).collect::<Vec<_>>();
        assert_eq!([parts(0), parts(1), parts(2)], [[22, 21, 21], [21, 21, 22], [21, 22, 21]].map(Vec::from));
        assert_eq!(class_of(u32::MAX, 254, 255), 254);
    }

    #[test]
    fn a_first_window_is_the_sources_part_of_the_first_blocks() {
        let two_blocks = 96 * 4096;
        assert_eq!(pushed(two_blocks, 12, 0, 1), [(0, 12)]);
        assert_eq!(pushed(two_blocks, 70, 0, 1), [(0, 64), (1, 6)]);
        assert_eq!(pushed(two_blocks, 4096, 0, 1), [(0, 64), (1, 32)], "no more than there is");
        assert_eq!(pushed(two_blocks, 60, 0, 3), [(0, 22), (1, 11)]);
        assert_eq!(pushed(two_blocks, 30, 2, 3), [(0, 21), (1, 9)]);
        assert_eq!(pushed(2 * 4096, 6, 2, 3), [(0, 0)], "a small object is no business of the third source");
        assert_eq!(pushed(0, 6, 0, 1), []);
    }
}
