//! A connection: both ends of a TCP of `baseline`, and what is to cross it.

use std::collections::VecDeque;

use headwater_baseline::{Receiver, ReceiverConfig, Sender, SenderConfig};
use headwater_transport::courier::Request;
use headwater_units::{FlowId, PathId};

/// Both ends. Packets to the receiver have the path 2 n, those to the sender 2 n + 1, n being its number.
pub(super) struct Connection {
    pub(super) sender: Sender,
    pub(super) receiver: Receiver,
    /// Host.
    pub(super) from: u32,
    /// Host.
    pub(super) to: u32,
    /// Class of its data.
    pub(super) class: u8,
    /// The path that it is pinned to, by number.
    pub(super) path: Option<u32>,
    /// When its sender is woken next; `u64::MAX`: never.
    pub(super) wake: u64,
    pub(super) load: Load,
    /// Whether something is to cross that has not.
    pub(super) is_busy: bool,
}

/// Load of a connection.
pub(super) enum Load {
    /// One flow, by its number.
    Fetch(u32),
    /// Blocks of a lane, each with the number of the packet behind its last.
    Lane { blocks: VecDeque<(Request, u64)>, packets: u64 },
}

impl Connection {
    /// One flow of `packets` packets.
    pub(super) fn fetch(
        config: SenderConfig,
        number: u32,
        (from, to): (u32, u32),
        flow: u32,
        packets: u64,
    ) -> Self {
        let (id, [data, acks]) = names(number);
        let receiver = Receiver::new(ReceiverConfig::of(&config), id, acks, packets);
        Connection {
            sender: Sender::new(config, id, data, packets),
            receiver,
            from,
            to,
            class: 0,
            path: None,
            wake: u64::MAX,
            load: Load::Fetch(flow),
            is_busy: true,
        }
    }

    /// A lane, which has nothing to carry yet.
    pub(super) fn lane(
        config: SenderConfig,
        number: u32,
        (from, to): (u32, u32),
        class: u8,
        path: Option<u32>,
    ) -> Self {
        let (id, [data, acks]) = names(number);
        Connection {
            sender: Sender::relay(config, id, data, u64::MAX),
            receiver: Receiver::new(ReceiverConfig::of(&config), id, acks, u64::MAX),
            from,
            to,
            class,
            path,
            wake: u64::MAX,
            load: Load::Lane { blocks: VecDeque::new(), packets: 0 },
            is_busy: false,
        }
    }
}

/// A connection's name and the paths to its ends.
fn names(number: u32) -> (FlowId, [PathId; 2]) {
    (FlowId(u64::from(number)), [PathId(2 * number), PathId(2 * number + 1)])
}
