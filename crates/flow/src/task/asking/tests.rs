//! Sources of one receiver alone, each of which is asked for one symbol at a time. Trees are tried with their nodes (tests `datacast`).

use headwater_units::{Bytes, Esi, FlowKey, PacketNumber, Symbols};
use headwater_wire::SymbolHeader;

use super::*;

const BLOCK: u32 = 64;

/// Asks for the first symbol that it may, until that has come.
#[derive(Debug)]
struct One<const IS_GROUPS: bool = false> {
    flow: FlowId,
    path: PathId,
    out: Option<SymbolId>,
    asked: u64,
}

impl<const IS_GROUPS: bool> Asker for One<IS_GROUPS> {
    type Config = ();

    const IS_GROUPS: bool = IS_GROUPS;

    fn new(_: &(), grant: &FlowGrant, path: PathId, _: Geometry) -> Option<Self> {
        Some(One { flow: grant.flow, path, out: None, asked: 0 })
    }

    fn move_to(&mut self, path: PathId) {
        self.path = path;
    }

    fn on_symbol(&mut self, _: Time, name: SymbolId) {
        self.out = self.out.filter(|out| *out != name);
    }

    fn hear(&mut self, _: Time, _: PathId, _: &Body) -> bool {
        false
    }

    fn awaits(&self) -> Option<SymbolId> {
        self.out
    }

    fn next(&mut self, _: Time, lacks: &Lacks<'_>) -> Option<Packet> {
        if self.out.is_some_and(|SymbolId { block, esi }| lacks.first_missing(block, esi.0) == Some(esi.0)) {
            return None;
        }
        self.out = lacks.first_of(2);
        self.asked += u64::from(self.out.is_some());
        Some(Packet::of_flow(self.path, self.flow, Class::Control, Body::Interest(self.out?.into())))
    }

    fn deadline(&self) -> Option<Time> {
        None
    }

    fn counts(&self) -> AskerCounts {
        AskerCounts { asked: self.asked, ..AskerCounts::default() }
    }
}

fn grant(n: u8) -> FlowGrant {
    FlowGrant {
        flow: FlowId(n.into()),
        node: NodeId([n; 32]),
        at: Vec::new(),
        key: FlowKey([n; 32]),
        index: 0,
        of: 1,
        group: None,
        relays: false,
    }
}

/// Two blocks of 64 symbols from these sources, each at the path that has its flow's number.
fn asking<const IS_GROUPS: bool>(sources: &[u8]) -> Asking<One<IS_GROUPS>> {
    let geometry = Geometry::new(Bytes::kib(512), 4096).unwrap();
    let mut asking = Asking::new(FetchId(1), Delivery::Push, (), SessionConfig::default(), geometry);
    asking.set_flows(Time::ZERO, sources.iter().map(|n| grant(*n)).collect(), &mut ());
    for n in sources {
        let path = ReceiverCommand::FlowPath { flow: FlowId((*n).into()), path: PathId((*n).into()) };
        asking.on_command(Time::ZERO, path, true, &mut ());
    }
    let start = ReceiverCommand::Start { wanted: 0..2, have: Vec::new() };
    asking.on_command(Time::ZERO, start, true, &mut ());
    asking
}

/// All output at `now`: packets, each with its flow, and events.
fn said(asking: &mut Asking<One>, now: Time) -> (Vec<(u64, Body)>, Vec<ReceiverEvent>) {
    let (mut packets, mut events) = (Vec::new(), Vec::new());
    loop {
        match asking.poll(now, true, &mut ()) {
            Output::Transmit(packet) => packets.push((packet.datagram.flow.0, packet.datagram.body)),
            Output::Event(FromFetch(_, event)) => events.push(event),
            Output::Wake(_) => return (packets, events),
        }
    }
}

/// Every symbol that it asks for comes, from the asked source, until it asks for nothing more. Returns who was asked
/// for each symbol of a block, and the events.
fn answer(asking: &mut Asking<One>, block: u32) -> (Vec<u64>, Vec<ReceiverEvent>) {
    let (mut asked, mut all) = (Vec::new(), Vec::new());
    loop {
        let (packets, events) = said(asking, Time::ZERO);
        all.extend(events);
        if packets.is_empty() {
            return (asked, all);
        }
        for (flow, body) in packets {
            let Body::Interest(interest) = body else { panic!("{body:?}") };
            asked.extend((interest.name.block.0 == block).then_some(flow));
            come(asking, flow, interest.name);
        }
    }
}

/// A symbol comes by a flow.
fn come<const IS_GROUPS: bool>(asking: &mut Asking<One<IS_GROUPS>>, flow: u64, name: SymbolId) {
    let header = SymbolHeader::new(PacketNumber(0), name);
    let symbol = Packet::of_flow(PathId(1), FlowId(flow), Class::Bulk, Body::Symbol(header));
    asking.on_packet(Time::ZERO, symbol, &mut ());
}

fn decoded(asking: &mut Asking<One>, block: u32) {
    let command = ReceiverCommand::BlockDecoded { block: BlockIndex(block) };
    asking.on_command(Time::ZERO, command, true, &mut ());
}

fn corrupt(asking: &mut Asking<One>, block: u32) {
    let failure = DecodeFailure::Corrupt;
    let command = ReceiverCommand::DecodeFailed { block: BlockIndex(block), failure };
    asking.on_command(Time::ZERO, command, true, &mut ());
}

#[test]
fn no_symbol_is_asked_of_two_sources() {
    let mut asking = asking(&[1, 2, 3]);
    let (asked, _) = answer(&mut asking, 0);
    assert_eq!(asked.len(), BLOCK as usize);
    assert!((1..=3).all(|flow| asked.iter().filter(|it| **it == flow).count() >= 21), "{asked:?}");
    let counted = asking.stats(Time::ZERO);
    assert_eq!((counted.arrivals, counted.useless), (2 * u64::from(BLOCK), 0));
    assert_eq!(asking.progress(Time::ZERO).needed, Symbols::ZERO);
}

#[test]
fn a_wrong_block_is_asked_of_one_source_alone_and_a_liar_is_found() {
    let mut asking = asking(&[1, 2]);
    answer(&mut asking, 0);
    decoded(&mut asking, 1);
    corrupt(&mut asking, 0);
    let (asked, events) = answer(&mut asking, 0);
    assert!(events.contains(&ReceiverEvent::Discard { block: BlockIndex(0) }));
    let alone = asked[0];
    assert_eq!(asked, vec![alone; BLOCK as usize]);
    corrupt(&mut asking, 0);
    let liar = NodeId([alone as u8; 32]);
    assert!(asking.is_distrusted(liar));
    let (packets, events) = said(&mut asking, Time::ZERO);
    assert!(events.contains(&ReceiverEvent::Distrusted { node: liar }));
    assert!(packets.contains(&(alone, Body::Fin(FinReason::Distrusted))));
    let arrivals = asking.stats(Time::ZERO).arrivals;
    come(&mut asking, alone, SymbolId { block: BlockIndex(0), esi: Esi(0) });
    assert_eq!(asking.stats(Time::ZERO).arrivals, arrivals, "nothing more is taken from it");
    let honest = 3 - alone;
    assert!(packets.iter().any(|(flow, body)| *flow == honest && matches!(body, Body::Interest(_))));
}

#[test]
fn each_flow_is_closed_until_its_source_has_understood() {
    let mut asking = asking(&[1, 2]);
    answer(&mut asking, 0);
    (0..2).for_each(|block| decoded(&mut asking, block));
    let (packets, events) = said(&mut asking, Time::ZERO);
    assert_eq!(packets, [1, 2].map(|flow| (flow, Body::Fin(FinReason::Done))));
    assert_eq!(events, [ReceiverEvent::Done]);
    let answer = Packet::of_flow(PathId(1), FlowId(1), Class::Control, Body::FinAck);
    asking.on_packet(Time::ZERO, answer, &mut ());
    let later = Time::ZERO + Duration::from_secs(1);
    let (packets, events) = said(&mut asking, later);
    assert_eq!((packets.len(), asking.has_ended()), (1, false), "the other is told again");
    assert_eq!(events, [ReceiverEvent::Unbind { flow: FlowId(1) }]);
    let last = (2..60).map(|s| said(&mut asking, Time::ZERO + Duration::from_secs(s)));
    assert!(last.flat_map(|(_, events)| events).any(|it| it == ReceiverEvent::Unbind { flow: FlowId(2) }));
    assert!(asking.has_ended());
}

#[test]
fn whoever_goes_on_with_what_came_down_a_tree_blames_no_source_for_it() {
    let name = SymbolId { block: BlockIndex(0), esi: Esi(0) };
    let mut down_a_tree = asking::<true>(&[1]);
    come(&mut down_a_tree, 1, name);
    let mut from_a_source = asking::<false>(&[1]);
    come(&mut from_a_source, 1, name);
    let liar = Blame::Liar(NodeId([1; 32]));
    for (handed_on, expected) in [(down_a_tree.hand_on(), Blame::Unclear), (from_a_source.hand_on(), liar)] {
        let mut ledger = handed_on.ledger.unwrap();
        let place = ledger.find(0).unwrap();
        assert_eq!(ledger.corrupt(place), expected);
    }
}
