//! The control socket of a process, and its name.

use std::net::SocketAddr;
use std::sync::Arc;

use headwater_codec::{BlockEncoder, BlockShape};
use headwater_control::{ControlConfig, ControlEndpoint, ControlError, Identity, Pins};
use headwater_units::{BlockIndex, BlockLayout, Bytes, Geometry};

/// A socket that only dials serves IPv6 and IPv4 where there is IPv6, else IPv4.
pub(super) fn bind_control(
    bind: SocketAddr,
    any: bool,
    identity: &Arc<Identity>,
    pins: Pins,
    config: ControlConfig,
) -> Result<ControlEndpoint, ControlError> {
    let first = ControlEndpoint::bind(bind, identity.clone(), pins.clone(), config.clone());
    match first {
        Err(_) if any => {
            ControlEndpoint::bind(SocketAddr::from(([0u8; 4], 0)), identity.clone(), pins, config)
        }
        result => result,
    }
}

/// Makes ready for the first repair symbols of the blocks that most objects have, where datagrams have `room`. Takes
/// milliseconds, which else the first flow would wait for, and with it all others that begin at that moment.
pub(super) fn prepare_codec(room: u16) {
    let block = BlockLayout::of(Bytes::ZERO).block_bytes();
    if let Ok(shape) = BlockShape::of(&Geometry::fitting(block, room), BlockIndex(0)) {
        BlockEncoder::prepare_shape(shape);
    }
}

pub(super) fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map_or_else(|_| "node".to_owned(), |n| n.trim().to_owned())
}
