//! A tree of links with rates, delays and queues, stores where it branches, and the machines at its ends.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use headwater_switch::{Answer, ContentStore, StoreConfig};
use headwater_transport::Packet;
use headwater_transport::datacast::{
    Asks, TreeReceiver, TreeReceiverConfig, TreeSource, TreeSourceConfig, TreeSourceStats,
};
use headwater_units::{BitRate, BlockIndex, Bytes, Duration, FlowId, Geometry, PathId, SymbolId, Time};
use headwater_wire::{Body, Class};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

pub(crate) const TREE: FlowId = FlowId(1);
/// A symbol's packet, and all others (Datacast §VI-B: headers of 16 bytes).
const DATA: u64 = 1500;
const SMALL: u64 = 16;
const QUEUE: usize = 100;

/// The link from a device to the one below it; the way up is as fast as the source's.
#[derive(Clone, Copy)]
pub(crate) struct Link {
    pub(crate) rate: BitRate,
    pub(crate) delay: Duration,
    /// Packets on their way down that are lost.
    pub(crate) loss: f64,
}

/// A device: its parent's place among the devices, and whether an application receives here. The first is the source.
#[derive(Clone, Copy)]
pub(crate) struct Device {
    pub(crate) parent: usize,
    pub(crate) down: Link,
    pub(crate) receives: bool,
}

/// What of the object is here.
struct Here {
    geometry: Geometry,
    symbols: BTreeMap<BlockIndex, Vec<bool>>,
    count: u64,
}

impl Asks for Here {
    fn first_missing(&self, block: BlockIndex, from: u32) -> Option<u32> {
        let here = self.symbols.get(&block);
        (from..self.geometry.source_symbols(block)).find(|esi| !here.is_some_and(|here| here[*esi as usize]))
    }
}

struct Receiver {
    machine: TreeReceiver,
    here: Here,
    wake: Time,
    done: Option<Time>,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    /// A packet arrives at a device, from above or from the child with this number.
    Arrive {
        at: usize,
        from: Option<usize>,
        number: usize,
    },
    Wake {
        at: usize,
    },
}

pub(crate) struct Net {
    devices: Vec<Device>,
    children: Vec<Vec<usize>>,
    stores: Vec<Option<ContentStore<Packet, usize>>>,
    /// By device: when its link down, and its link up, are free.
    free: Vec<[Time; 2]>,
    source: TreeSource,
    source_wake: Time,
    receivers: BTreeMap<usize, Receiver>,
    agenda: BinaryHeap<Reverse<(Time, u64, What)>>,
    packets: Vec<Option<Packet>>,
    spare: Vec<usize>,
    serial: u64,
    rng: ChaCha8Rng,
    pub(crate) now: Time,
    /// Symbols that crossed each device's link from above.
    pub(crate) carried: Vec<u64>,
    total: u64,
}

impl Net {
    pub(crate) fn new(
        devices: Vec<Device>,
        store: StoreConfig,
        source: TreeSourceConfig,
        receiver: TreeReceiverConfig,
        bytes: u64,
    ) -> Self {
        let mut children = vec![Vec::new(); devices.len()];
        for (place, device) in devices.iter().enumerate().skip(1) {
            children[device.parent].push(place);
        }
        let geometry = Geometry::new(Bytes::new(bytes), 1024).unwrap();
        let branches = |place: usize| children[place].len() + usize::from(devices[place].receives) > 1;
        let stores = (0..devices.len()).map(|place| branches(place).then(|| ContentStore::new(store)));
        let receivers = devices.iter().enumerate().filter(|(_, device)| device.receives).map(|(place, _)| {
            let machine = TreeReceiver::new(receiver, TREE, PathId(0), BlockIndex(0));
            let here = Here { geometry, symbols: BTreeMap::new(), count: 0 };
            (place, Receiver { machine, here, wake: Time::MAX, done: None })
        });
        let receivers: BTreeMap<_, _> = receivers.collect();
        let mut net = Net {
            stores: stores.collect(),
            free: vec![[Time::ZERO; 2]; devices.len()],
            source: TreeSource::new(Time::ZERO, source, geometry, Class::Bulk, [(TREE, PathId(0))]),
            source_wake: Time::MAX,
            agenda: BinaryHeap::new(),
            packets: Vec::new(),
            spare: Vec::new(),
            serial: 0,
            rng: ChaCha8Rng::seed_from_u64(7),
            now: Time::ZERO,
            carried: vec![0; devices.len()],
            total: geometry.total_symbols().get(),
            devices,
            children,
            receivers,
        };
        let places: Vec<usize> = net.receivers.keys().copied().collect();
        places.into_iter().for_each(|place| net.drain_receiver(place));
        net
    }

    /// Runs until all have everything, or until this time.
    pub(crate) fn run(&mut self, until: Time) {
        while self.receivers.values().any(|receiver| receiver.done.is_none()) {
            let due = self.agenda.peek().map(|Reverse((at, ..))| *at);
            if due.is_some_and(|at| at > until) {
                self.now = until;
                return;
            }
            let Some(Reverse((at, _, what))) = self.agenda.pop() else {
                panic!("nothing will happen any more")
            };
            self.now = at;
            match what {
                What::Wake { at: 0 } => {
                    self.source_wake = Time::MAX;
                    self.drain_source();
                }
                What::Wake { at } => self.drain_receiver(at),
                What::Arrive { at, from, number } => {
                    let packet = self.packets[number].take().expect("a packet arrives once");
                    self.spare.push(number);
                    match from {
                        None => self.comes_down(at, packet),
                        Some(child) => self.comes_up(at, child, packet),
                    }
                }
            }
        }
    }

    pub(crate) fn stats(&self) -> TreeSourceStats {
        self.source.stats().next().unwrap().1
    }

    /// When each receiver had everything.
    pub(crate) fn done(&self) -> Vec<Option<Time>> {
        self.receivers.values().map(|receiver| receiver.done).collect()
    }

    /// Symbols that a receiver has.
    pub(crate) fn has(&self, place: usize) -> u64 {
        self.receivers[&place].here.count
    }

    /// Symbols over links, for each link and symbol of the object.
    pub(crate) fn link_stress(&self) -> f64 {
        self.carried.iter().sum::<u64>() as f64 / (self.total * (self.devices.len() as u64 - 1)) as f64
    }

    fn schedule(&mut self, at: Time, what: What) {
        self.serial += 1;
        self.agenda.push(Reverse((at, self.serial, what)));
    }

    /// Over the link between a device and its parent; a full queue drops.
    fn cross(&mut self, child: usize, up: bool, packet: Packet) {
        let Link { rate, delay, loss } = self.devices[child].down;
        let is_data = matches!(packet.datagram.body, Body::Symbol(_));
        let took = Bytes::new(if is_data { DATA } else { SMALL }) / rate;
        let free = &mut self.free[child][usize::from(up)];
        let waits = free.since(self.now);
        if waits.as_nanos() > (Bytes::new(DATA) / rate).as_nanos() * QUEUE as u64 {
            return;
        }
        let leaves = self.now + waits + took;
        *free = leaves;
        if is_data {
            self.carried[child] += 1;
            if self.rng.random_bool(loss) {
                return;
            }
        }
        let number = self.spare.pop().unwrap_or_else(|| {
            self.packets.push(None);
            self.packets.len() - 1
        });
        self.packets[number] = Some(packet);
        let (at, from) = if up { (self.devices[child].parent, Some(child)) } else { (child, None) };
        self.schedule(leaves + delay, What::Arrive { at, from, number });
    }

    fn comes_up(&mut self, at: usize, child: usize, packet: Packet) {
        let Body::Interest(name) = packet.datagram.body else { panic!("only interests go up: {packet:?}") };
        self.interest(at, child, name, packet);
    }

    /// An interest at a device, from a child or from the application there, which counts as the device itself.
    fn interest(&mut self, at: usize, from: usize, name: SymbolId, packet: Packet) {
        if let Some(store) = &mut self.stores[at] {
            match store.on_interest(name, from) {
                Answer::Held(held) => {
                    let held = held.clone();
                    return self.give(at, from, held);
                }
                Answer::Waits => return,
                Answer::GoesOn => {}
            }
        }
        if at == 0 {
            self.source.on_interest(self.now, TREE, name);
            return self.drain_source();
        }
        self.cross(at, true, packet);
    }

    fn comes_down(&mut self, at: usize, packet: Packet) {
        let (name, number, bytes) = match packet.datagram.body {
            Body::Symbol(header) => (header.symbol, Some(header.number.0), DATA),
            Body::Announcement(announcement) => (announcement.name(), None, SMALL),
            ref other => panic!("{other:?} comes down"),
        };
        let Some(store) = &mut self.stores[at] else {
            let to = self.children[at].first().copied().unwrap_or(at);
            return self.give(at, to, packet);
        };
        let mut ways = Vec::new();
        store.on_packet(name, number, packet.clone(), Bytes::new(bytes), |_, way| ways.push(*way));
        ways.into_iter().for_each(|way| self.give(at, way, packet.clone()));
    }

    /// To a child, or to the application of the device itself.
    fn give(&mut self, at: usize, to: usize, packet: Packet) {
        if to != at {
            return self.cross(to, false, packet);
        }
        let now = self.now;
        let receiver = self.receivers.get_mut(&at).expect("somebody receives there");
        match packet.datagram.body {
            Body::Symbol(header) => {
                receiver.machine.on_symbol(now, header.symbol);
                let symbols = receiver.here.geometry.source_symbols(header.symbol.block);
                let here = receiver.here.symbols.entry(header.symbol.block);
                let here = here.or_insert_with(|| vec![false; symbols as usize]);
                let was = std::mem::replace(&mut here[header.symbol.esi.0 as usize], true);
                receiver.here.count += u64::from(!was);
                if receiver.here.count == self.total && receiver.done.is_none() {
                    receiver.done = Some(now);
                }
            }
            Body::Announcement(announcement) => receiver.machine.on_announcement(now, announcement),
            other => panic!("{other:?}"),
        }
        self.drain_receiver(at);
    }

    fn drain_receiver(&mut self, at: usize) {
        let now = self.now;
        loop {
            let receiver = self.receivers.get_mut(&at).expect("it is there");
            let Some(packet) = receiver.machine.next(now, &receiver.here) else { break };
            let Body::Interest(name) = packet.datagram.body else { panic!("{packet:?}") };
            self.interest(at, at, name, packet);
        }
        let receiver = self.receivers.get_mut(&at).expect("it is there");
        let due = receiver.machine.deadline().filter(|due| *due < receiver.wake || receiver.wake <= now);
        if let Some(due) = due {
            receiver.wake = due;
            self.schedule(due, What::Wake { at });
        }
    }

    fn drain_source(&mut self) {
        while let Some((flow, block, read)) = self.source.take_want() {
            if read {
                self.source.on_block_ready(flow, block);
            }
        }
        while let Some(packet) = self.source.next(self.now) {
            self.comes_down(0, packet);
        }
        if let Some(due) = self.source.deadline()
            && due < self.source_wake
        {
            self.source_wake = due;
            self.schedule(due, What::Wake { at: 0 });
        }
    }
}
