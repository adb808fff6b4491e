//! The order in which a side of a fetch says what it has to say.

use headwater_flow::task::outbox::Outbox;
use headwater_flow::task::{FromFetch, ReceiverEvent};
use headwater_machine::Output;
use headwater_units::{FetchId, FlowId, PathId, SymbolId};
use headwater_wire::Body;

#[test]
fn a_packet_is_taken_only_where_it_is_the_next_output() {
    let mut outbox = Outbox::new(FetchId(1));
    outbox.keep(FlowId(1), SymbolId::default());
    outbox.send(PathId(1), FlowId(1), Body::FinAck);
    outbox.event(ReceiverEvent::Done);
    outbox.send(PathId(1), FlowId(1), Body::Detached);
    assert_eq!(outbox.take_packet(), None, "the symbol to keep comes first");
    assert_eq!(outbox.take_kept(), Some((FlowId(1), SymbolId::default())));
    assert_eq!(outbox.take_packet().map(|packet| packet.datagram.body), Some(Body::FinAck));
    assert_eq!(outbox.take_packet(), None, "an event comes first");
    assert!(matches!(outbox.pop(), Some(Output::Event(FromFetch(_, ReceiverEvent::Done)))));
    assert_eq!(outbox.take_packet().map(|packet| packet.datagram.body), Some(Body::Detached));
    assert!(outbox.is_empty());
}
