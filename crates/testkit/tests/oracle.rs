//! The oracle sees each way in which a machine can break its contract.

use std::panic::{AssertUnwindSafe, catch_unwind};

use headwater_machine::Packet;
use headwater_testkit::messages::symbol_header;
use headwater_testkit::{Duty, Preparation, Reception};
use headwater_transport::{DecodeFailure, ReceiverCommand, ReceiverEvent, ReceiverFailure, SourceEvent};
use headwater_units::{BlockIndex, Bytes, Esi, FlowId, Geometry, ObjectId, PathId, SymbolId, TaskId, Time};
use headwater_wire::{Body, Class, Datagram, Ecn};

const FLOW: FlowId = FlowId(1);
const BLOCK: BlockIndex = BlockIndex(0);

/// Two blocks of 64 symbols.
fn reception() -> Reception {
    let mut reception = Reception::default();
    let (task, object, bytes) = (TaskId(1), ObjectId([1; 32]), Bytes::kib(512));
    let accepted = ReceiverEvent::Accepted { task, object, bytes, symbol_size: 4096 };
    assert!(matches!(reception.on_event(Time::ZERO, accepted), Some(Duty::Start(_))));
    reception
}

fn symbol(block: BlockIndex, esi: u32) -> SymbolId {
    SymbolId { block, esi: Esi(esi) }
}

fn packet(symbol: SymbolId) -> Packet {
    let header = symbol_header(0, symbol.block.0, symbol.esi.0);
    let datagram = Datagram { class: Class::Bulk, key_epoch: 0, flow: FLOW, body: Body::Symbol(header) };
    Packet { path: PathId(0), ecn: Ecn::Ect0, datagram }
}

fn keep(reception: &mut Reception, symbol: SymbolId) {
    reception.hands_in(&packet(symbol));
    reception.on_event(Time::ZERO, ReceiverEvent::Symbol { flow: FLOW, symbol });
}

/// Enough symbols of a block, with the decoder.
fn filled(block: BlockIndex) -> Reception {
    let mut reception = reception();
    let k = reception.geometry.map_or(0, |geometry| geometry.source_symbols(block));
    (0..k).for_each(|esi| keep(&mut reception, symbol(block, esi)));
    let duty = reception.on_event(Time::ZERO, ReceiverEvent::Decode { block });
    assert!(matches!(duty, Some(Duty::Decode(_))));
    reception
}

/// Complaint of the oracle against this.
fn complaint(what: impl FnOnce()) -> String {
    let payload = catch_unwind(AssertUnwindSafe(what)).expect_err("the oracle saw nothing");
    *payload
        .downcast::<String>()
        .unwrap_or_else(|other| Box::new((*other.downcast::<&str>().expect("a panic has a text")).to_owned()))
}

fn complaint_of(mut reception: Reception, events: impl IntoIterator<Item = ReceiverEvent>) -> String {
    complaint(|| events.into_iter().for_each(|event| drop(reception.on_event(Time::ZERO, event))))
}

#[test]
fn symbols_are_kept_once_and_only_as_they_come() {
    let it = symbol(BLOCK, 3);
    let twice = complaint(|| {
        let mut reception = reception();
        keep(&mut reception, it);
        keep(&mut reception, it);
    });
    assert!(twice.contains("kept twice"), "{twice}");
    let unasked = complaint_of(reception(), [ReceiverEvent::Symbol { flow: FLOW, symbol: it }]);
    assert!(unasked.contains("handed in"), "{unasked}");
    let late = complaint(|| keep(&mut filled(BLOCK), symbol(BLOCK, 100)));
    assert!(late.contains("at the decoder"), "{late}");
}

#[test]
fn blocks_are_decoded_from_enough_symbols_and_left_alone_until_that_is_done() {
    let few = complaint_of(reception(), [ReceiverEvent::Decode { block: BLOCK }]);
    assert!(few.contains("0 are here"), "{few}");
    let again = complaint_of(filled(BLOCK), [ReceiverEvent::Decode { block: BLOCK }]);
    assert!(again.contains("already"), "{again}");
    let gone = complaint_of(filled(BLOCK), [ReceiverEvent::Discard { block: BLOCK }]);
    assert!(gone.contains("the decoder has"), "{gone}");
}

#[test]
fn a_task_ends_once_and_with_all_blocks() {
    let partly = complaint_of(filled(BLOCK), [ReceiverEvent::Done]);
    assert!(partly.contains("without all blocks"), "{partly}");
    let failed = || ReceiverEvent::Failed(ReceiverFailure::Cancelled);
    let twice = complaint_of(reception(), [failed(), failed()]);
    assert!(twice.contains("ends twice"), "{twice}");
    let nothing = complaint_of(reception(), [ReceiverEvent::Ended]);
    assert!(nothing.contains("without an end"), "{nothing}");
}

#[test]
fn the_decoder_answers_as_the_test_says_but_source_symbols_are_the_block() {
    let mut wrong = filled(BLOCK);
    let corrupt = wrong.decode(BLOCK, |attempt| {
        assert!(attempt.is_systematic() && attempt.symbols.values().all(|flow| *flow == FLOW));
        Err(DecodeFailure::Corrupt)
    });
    assert!(matches!(corrupt, Some(ReceiverCommand::DecodeFailed { .. })) && wrong.whole.is_empty());
    let mut reception = filled(BLOCK);
    let decoded = reception.decode(BLOCK, |_| Err(DecodeFailure::NeedMore));
    assert_eq!(decoded, Some(ReceiverCommand::BlockDecoded { block: BLOCK }));
    assert!(reception.has(symbol(BLOCK, 77)) && !reception.has(symbol(BlockIndex(1), 0)));
}

/// A decoder that was at work when the task began anew gives its block all the same.
#[test]
fn a_task_that_begins_anew_keeps_what_is_whole_and_what_is_at_the_decoder() {
    let mut reception = filled(BLOCK);
    let geometry: Geometry = reception.geometry.expect("it was accepted");
    let (bytes, symbol_size) = (geometry.layout().object_bytes(), geometry.symbol_size());
    let again = ReceiverEvent::Accepted { task: TaskId(2), object: ObjectId([1; 32]), bytes, symbol_size };
    reception.on_event(Time::ZERO, again);
    keep(&mut reception, symbol(BLOCK, 0));
    assert!(reception.decode(BLOCK, |_| Ok(())).is_some() && reception.whole.contains(&BLOCK));
    assert_eq!((reception.begun, reception.symbols_of(BLOCK).len()), (2, 1));
}

#[test]
fn a_source_sends_of_blocks_that_are_ready_and_lets_each_go_once() {
    let (sent, prepare) =
        (packet(symbol(BLOCK, 1)), SourceEvent::Prepare { flow: FLOW, block: BLOCK, repair: false });
    let mut preparation = Preparation::default();
    let ready = preparation.on_event(&prepare).expect("it is read");
    let early = complaint(|| preparation.sends(&sent.datagram));
    assert!(early.contains("not ready"), "{early}");
    preparation.ready(&ready);
    preparation.sends(&sent.datagram);
    let release = SourceEvent::Release { flow: FLOW, block: BLOCK };
    preparation.on_event(&release);
    assert!(preparation.is_empty());
    let twice = complaint(|| _ = preparation.on_event(&release));
    assert!(twice.contains("not asked for"), "{twice}");
}
