//! A controller's terms of a transfer: its rank follows from them and not from the source's own settings; and the
//! reports to the controller.

use headwater_machine::{Endpoint, Input, Output, Packet};
use headwater_transport::SourceCommand;
use headwater_transport::source::{Source, SourceConfig};
use headwater_units::{
    BitRate, Bytes, Duration, FlowId, FlowKey, NodeId, ObjectId, PathId, Rank, TaskId, Theta, Time,
};
use headwater_wire::{
    Body, Class, Control, Delivery, FlowRole, Precedence, Push, RateTerms, ToController, ToSource,
    TransferOrder, TransferReport,
};

use crate::net::{mbps, ms};

const FLOW: FlowId = FlowId(5);
const OBJECT: ObjectId = ObjectId([7; 32]);
const CONTROLLER: PathId = PathId(9);
const T: u16 = 1024;

/// A source that was told this of a transfer to two receivers of which it has heard nothing.
fn told(terms: Option<RateTerms>) -> Source {
    let mut source = Source::new(SourceConfig::paper(), [1; 32]);
    let bytes = Bytes::mib(1);
    source.handle(Time::ZERO, Input::Command(SourceCommand::Hold { object: OBJECT, bytes }));
    let push = Push {
        task: TaskId(1),
        flow: FLOW,
        object: OBJECT,
        bytes,
        symbol_size: T,
        key: FlowKey([1; 32]),
        theta: Theta::ONE,
        class: Class::Bulk,
        receiver: NodeId([3; 32]),
        delivery: Delivery::Rate { receivers: 2, deadline: Some(ms(700)), terms },
        index: 0,
        of: 1,
        at: Vec::new(),
        start: None,
        role: FlowRole::Group { members: vec![FlowId(1), FlowId(2)] },
    };
    source.handle(Time::ZERO, Input::Packet(Packet::control(CONTROLLER, ToSource::Push(push))));
    source.handle(Time::ZERO, Input::Command(SourceCommand::FlowPath { flow: FLOW, path: PathId(4) }));
    source
}

/// The first probe, and the report to its controller about the transfer in the first second.
fn says(mut source: Source) -> (Option<headwater_wire::Scheduling>, Option<TransferReport>) {
    let (mut now, mut probe, mut report) = (Time::ZERO, None, None);
    while now < Time::ZERO + ms(1000) {
        match source.poll(now) {
            Output::Wake(at) => now = at.unwrap_or(Time::MAX),
            Output::Event(_) => {}
            Output::Transmit(packet) => match packet.datagram.body {
                Body::RateProbe(it) => _ = probe.get_or_insert(it.scheduling),
                Body::Control(control) => {
                    if let Control::Controller(ToController::Transfers { transfers }) = *control {
                        report = transfers.first().copied();
                    }
                }
                _ => {}
            },
        }
    }
    (probe, report)
}

fn terms(order: TransferOrder) -> RateTerms {
    let precedence = Precedence { order, drops_late: false };
    RateTerms { precedence, link: Some(mbps(200)), around: 42, queue: Duration::ZERO }
}

#[test]
fn the_rank_follows_from_the_controllers_word() {
    let rank = |order| says(told(Some(terms(order)))).0.expect("it probes").rank();
    assert_eq!(rank(TransferOrder::Fair), Rank::LAST);
    assert_eq!(rank(TransferOrder::Stated(Rank::new(7))), Rank::new(7));
    assert_eq!(rank(TransferOrder::EarliestDeadline), Rank::of(ms(700).as_nanos()));
    assert_eq!(rank(TransferOrder::SmallestRemaining), Rank::of(2 << 20));
}

#[test]
fn the_offer_begins_at_the_rate_of_the_link_that_the_controller_knows() {
    let offer = |terms| says(told(terms)).0.expect("it probes").offer();
    assert!(offer(Some(terms(TransferOrder::Fair))) > mbps(199));
    assert!(offer(Some(terms(TransferOrder::Fair))) <= mbps(200));
    assert_eq!(offer(Some(RateTerms { link: None, ..terms(TransferOrder::Fair) })), offer(None));
}

#[test]
fn a_controller_hears_how_a_transfer_does_if_it_has_said_something_of_it() {
    assert_eq!(says(told(None)).1, None);
    let report = says(told(Some(terms(TransferOrder::Stated(Rank::new(7)))))).1.expect("it reports");
    assert_eq!((report.flow, report.rate, report.rank), (FLOW, BitRate::ZERO, Rank::new(7)));
    assert_eq!((report.left, report.least), (Bytes::mib(1), None));
    assert!(report.paused.is_some_and(|paused| paused > ms(0) && paused < ms(1000)), "{report:?}");
}
