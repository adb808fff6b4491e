//! Control messages with the usual in them, for tests to change what they are about.

use headwater_units::{
    BlockIndex, Bytes, Duration, Esi, FlowId, FlowKey, NodeId, ObjectId, PacketNumber, SymbolId, TaskId,
    Theta,
};
use headwater_wire::{
    Class, Control, Delivery, FlowGrant, FlowRole, NodeInfo, Push, SymbolHeader, ToReceiver,
};

/// Introduction of a node in its first life: it has no limits, and takes datagrams of 1424 bytes at 10.0.0.`host`.
pub fn node_info(node: NodeId, name: impl Into<String>, host: u8) -> NodeInfo {
    NodeInfo { data: vec![([10, 0, 0, host], 7000).into()], ..NodeInfo::new(node, name, 1424) }
}

/// A receiver's grant of one flow, of which there are `of`: not of a group, and not passed on.
pub fn grant(flow: FlowId, node: NodeId, key: FlowKey, index: u8, of: u8) -> FlowGrant {
    FlowGrant { flow, node, at: Vec::new(), key, index, of, group: None, relays: false }
}

/// The header of a symbol that asks for an ACK of its own.
pub fn symbol_header(number: u64, block: u32, esi: u32) -> SymbolHeader {
    SymbolHeader::new(PacketNumber(number), SymbolId { block: BlockIndex(block), esi: Esi(esi) })
}

/// An object, and how it is cut.
#[derive(Clone, Copy, Debug)]
pub struct Object {
    /// Its name.
    pub id: ObjectId,
    /// Its size.
    pub bytes: Bytes,
    /// T.
    pub symbol_size: u16,
}

impl Object {
    /// The order to send all of it to a receiver by the only flow of a task.
    pub fn push(
        &self,
        task: TaskId,
        flow: FlowId,
        key: FlowKey,
        receiver: NodeId,
        delivery: Delivery,
    ) -> Push {
        Push {
            task,
            flow,
            object: self.id,
            bytes: self.bytes,
            symbol_size: self.symbol_size,
            key,
            theta: Theta::ONE,
            class: Class::Bulk,
            receiver,
            delivery,
            index: 0,
            of: 1,
            at: Vec::new(),
            start: None,
            role: FlowRole::Single,
        }
    }

    /// The answer to a request: these flows bring it, for a task about which the receiver reports at this interval.
    pub fn accepted(
        &self,
        request: u64,
        task: TaskId,
        feedback_every: Duration,
        delivery: Delivery,
        flows: Vec<FlowGrant>,
    ) -> Control {
        Control::Receiver(ToReceiver::Accepted {
            request,
            task,
            object: self.id,
            bytes: self.bytes,
            symbol_size: self.symbol_size,
            feedback_every,
            version: 0,
            flows,
            delivery,
        })
    }
}
