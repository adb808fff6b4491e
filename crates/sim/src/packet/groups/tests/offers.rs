//! Ports that grant rates: each copy of a scheduled datagram brings the offer of its own path.

use headwater_switch::{Allocator, AllocatorVariant, RateAllocatorConfig};
use headwater_units::{FlowKey, ObjectId, Rank};
use headwater_wire::{RateProbe, RateUnit, RoundTrip, ScheduledSymbol, Scheduling};

use super::*;

const LINE: BitRate = BitRate::new(1_000_000_000);
const VARIANTS: [AllocatorVariant; 3] =
    [AllocatorVariant::Simple, AllocatorVariant::Optimal, AllocatorVariant::HARDWARE];

/// Ports that do not update what is available while a test lasts.
fn granting(variant: AllocatorVariant) -> PortConfig {
    let config = RateAllocatorConfig::new(variant, Duration::from_secs(10));
    PortConfig { allocator: Allocator::Pam(config), ..unlimited() }
}

/// A network of granting ports that carries true bytes.
fn field(nic: PortConfig, port: PortConfig) -> Field {
    let mut field = Field::with_nic(BIG_SWITCH, "ecmp", nic, port, 1);
    field.setup.carry_bytes = true;
    field.delivery = Delivery::new(&field.setup).unwrap();
    (0..16).for_each(|host| field.delivery.settle(host));
    let (cargo, object) = (field.delivery.cargo.as_mut().unwrap(), ObjectId([3; 32]));
    cargo.exists(object, Bytes::new(100_000));
    (0..20).for_each(|flow| cargo.opened(FlowId(flow), FlowKey([flow as u8; 32]), object, 1424));
    field
}

fn scheduling(rank: u32, rate: u64) -> Scheduling {
    Scheduling::new(RateUnit::finest(LINE), Rank::new(rank), BitRate::new(rate), LINE)
}

fn probe(rank: u32) -> Body {
    let round_trip = RoundTrip::of(Duration::from_micros(100));
    Body::RateProbe(RateProbe { number: 1, round_trip, scheduling: scheduling(rank, 0) })
}

fn symbol(rank: u32, rate: u64) -> Body {
    Body::ScheduledSymbol(ScheduledSymbol {
        number: 1,
        symbol: SymbolId { block: BlockIndex(0), esi: Esi(0) },
        scheduling: scheduling(rank, rate),
        round_trip: RoundTrip::of(Duration::from_micros(100)),
        last: false,
        trimmed: false,
    })
}

/// By host: the offers that a flow has brought, in Mbit/s, rounded.
fn offers(field: &Field, flow: u64) -> BTreeMap<u32, Vec<u64>> {
    let mut offers: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    for (host, _, body) in field.heard.iter().filter(|it| it.1 == FlowId(flow)) {
        let (_, scheduling) = body.negotiated().expect("only scheduled bodies are sent");
        offers.entry(*host).or_default().push((scheduling.offer().get() + 500_000) / 1_000_000);
    }
    offers
}

#[test]
fn each_member_hears_what_its_own_path_grants() {
    for variant in VARIANTS {
        let mut field = field(unlimited(), granting(variant));
        // The link to host 2 has a critical transfer at 400 Mbit/s, that to host 3 one at 900.
        field.say(5, PathId(2), FlowId(9), symbol(1, 400_000_000));
        field.say(6, PathId(3), FlowId(10), symbol(1, 900_000_000));
        field.run(Time::MAX);
        let group = field.delivery.group(&[1, 2, 3]);
        field.say(0, group, FlowId(7), probe(5));
        field.say(0, group, FlowId(7), symbol(5, 100_000_000));
        field.run(Time::MAX);
        let expected = [(1, vec![1000; 2]), (2, vec![600; 2]), (3, vec![100; 2])].into_iter().collect();
        assert_eq!(offers(&field, 7), expected, "{variant:?}");
        field.conserved();
        assert_eq!(field.delivery.bodies.len(), 0);
    }
}

#[test]
fn a_network_card_grants_rates_too() {
    for variant in VARIANTS {
        let mut field = field(granting(variant), granting(variant));
        field.say(0, PathId(1), FlowId(9), symbol(1, 700_000_000));
        field.say(0, PathId(2), FlowId(10), symbol(2, 10_000_000));
        field.say(0, PathId(2), FlowId(10), symbol(2, 10_000_000));
        field.run(Time::MAX);
        assert_eq!(offers(&field, 9), [(1, vec![1000])].into_iter().collect(), "{variant:?}");
        assert_eq!(offers(&field, 10), [(2, vec![300; 2])].into_iter().collect(), "{variant:?}");
    }
}

#[test]
fn copies_that_a_fault_makes_have_offers_of_their_own() {
    let mut field = field(granting(AllocatorVariant::Simple), granting(AllocatorVariant::Simple));
    let first = field.setup.topology.fabric().leaving(PointId(0)).first().unwrap().0;
    field.delivery.change(Time::ZERO, first, LinkChange::Duplicate(1.0));
    let group = field.delivery.group(&[1, 2]);
    field.say(0, group, FlowId(7), symbol(5, 100_000_000));
    field.run(Time::MAX);
    let expected = [(1, vec![1000; 2]), (2, vec![1000; 2])].into_iter().collect();
    assert_eq!(offers(&field, 7), expected);
    field.conserved();
    assert_eq!(field.delivery.bodies.len(), 0);
}

/// Packets of other flows are copied at branches as ever: one message for all.
#[test]
fn frames_that_claim_nothing_share_their_message() {
    let mut field = field(granting(AllocatorVariant::Simple), granting(AllocatorVariant::Simple));
    let group = field.delivery.group(&[1, 2, 3, 4]);
    field.send(0, group);
    while field.had.is_empty() {
        let next = field.now + Duration::from_nanos(1_000);
        field.run(next);
        assert!(field.delivery.bodies.len() <= 1);
    }
    field.run(Time::MAX);
    assert_eq!(field.had.len(), 4);
}
