//! The machines of a scenario whose receivers pull coded symbols (SCDP).

use headwater_controller::ControllerConfig;
use headwater_transport::push::receiver::ReceiverConfig;
use headwater_units::{Bytes, NodeId, PathId};
use headwater_wire::Delivery;

use super::{BLOCK, NEVER, symbol_size, unprotect};
use crate::scenario::{Machines, Scenario};
use headwater_sim::packet::{CodedSetup, PullSetup, TaskPlan};

/// The largest object of the usual blocks: what a flow has at most that has no end.
const LARGEST: u64 = 16 << 30;

/// The machines of SCDP. Nothing is planned: no host says what it is, and no controller asks how far it is.
pub(super) fn setup(scenario: &Scenario) -> CodedSetup {
    let spec = &scenario.transport;
    let symbol_size = symbol_size(scenario);
    let receiver = ReceiverConfig::new("", NodeId([0; 32]), PathId(0), 0);
    let window = |packets: u32| u16::try_from(packets).unwrap_or(u16::MAX);
    let mut setup = CodedSetup {
        source: spec.pulled_source_config(payload(scenario), symbol_size),
        spread: spec.spread_rule(true),
        receive_window: receiver.receive_window,
        blocks_in_flight: receiver.blocks_in_flight,
        max_ack_delay: spec.max_ack_delay(),
        source_patience: receiver.source_patience,
        controller: ControllerConfig::default(),
        symbol_size,
        class: spec.class.into(),
        host_rate: None,
        lines: Vec::new(),
        racks: Vec::new(),
        delivery: Delivery::Pull { initial_window: window(spec.pull.window) },
        pull: Some(PullSetup {
            session: spec.session_config(),
            many_window: window(spec.pull.many_window),
            headroom: spec.pull.headroom,
        }),
        trees: None,
        rates: None,
    };
    setup.controller.feedback_every = NEVER;
    if spec.machines == Machines::Paper {
        unprotect(&mut setup);
    }
    setup
}

/// Payload of a packet: all but a header, which is as long as an ACK.
fn payload(scenario: &Scenario) -> Bytes {
    match scenario.packet.true_sizes {
        true => Bytes::new(u64::from(symbol_size(scenario))),
        false => scenario.packet.data - scenario.packet.ack.min(scenario.packet.data),
    }
}

/// Gives a task an object of exactly its packets, or as many as an object has.
pub(super) fn fit(plan: &mut TaskPlan, symbol: u16) {
    plan.packets = plan.packets.min(LARGEST / u64::from(symbol));
    plan.bytes = Some(exactly(plan.packets, symbol));
}

/// The object that is cut into `packets` symbols: its blocks are not whole symbols long.
fn exactly(packets: u64, symbol: u16) -> Bytes {
    let symbol = u64::from(symbol);
    let block_symbols = BLOCK.div_ceil(symbol);
    Bytes::new(packets / block_symbols * BLOCK + packets % block_symbols * symbol)
}

#[cfg(test)]
mod tests {
    use headwater_units::Geometry;

    use super::*;

    #[test]
    fn an_object_has_as_many_symbols_as_its_task_has_packets() {
        for symbol in [256, 2622] {
            for packets in [1, 99, 100, 101, 179, 1045, 2786] {
                let geometry = Geometry::new(exactly(packets, symbol), symbol).unwrap();
                assert_eq!(geometry.total_symbols().get(), packets, "of {symbol} bytes");
            }
        }
    }
}
