//! True bytes for small runs: every message crosses `wire`, every symbol is made and decoded by the true codec.

use std::collections::BTreeMap;

use headwater_codec::{BlockEncoder, BlockShape};
use headwater_machine::Packet;
use headwater_units::{
    BlockIndex, Bytes, Duration, FlowId, FlowKey, Geometry, ObjectId, PacketNumber, SymbolId,
};
use headwater_wire::{Body, Datagram, HeaderKey, emit, lower_offer, mark_trimmed, parse};
use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Content of one flow.
#[derive(Clone)]
struct Lading {
    key: FlowKey,
    object: ObjectId,
    symbol_size: u16,
}

/// Messages as bytes, and the objects that they are of.
pub(super) struct Cargo {
    seed: u64,
    flows: BTreeMap<FlowId, Lading>,
    objects: BTreeMap<ObjectId, Bytes>,
    encoders: BTreeMap<(ObjectId, u16, BlockIndex), BlockEncoder>,
    /// By the place of the message.
    in_flight: Vec<Vec<u8>>,
    payload: Vec<u8>,
}

impl Cargo {
    pub(super) fn new(seed: u64) -> Self {
        Cargo {
            seed,
            flows: BTreeMap::new(),
            objects: BTreeMap::new(),
            encoders: BTreeMap::new(),
            in_flight: Vec::new(),
            payload: Vec::new(),
        }
    }

    /// An object of this size exists; its bytes are a function of its id and the run's seed.
    pub(super) fn exists(&mut self, object: ObjectId, bytes: Bytes) {
        self.objects.insert(object, bytes);
    }

    /// A flow begins.
    pub(super) fn opened(&mut self, flow: FlowId, key: FlowKey, object: ObjectId, symbol_size: u16) {
        self.flows.insert(flow, Lading { key, object, symbol_size });
    }

    /// One block of an object.
    fn block(&self, object: ObjectId, geometry: &Geometry, block: BlockIndex) -> Vec<u8> {
        let mut seed = object.0;
        seed[16..24].copy_from_slice(&self.seed.to_be_bytes());
        seed[24..28].copy_from_slice(&block.0.to_be_bytes());
        let mut bytes = vec![0; geometry.layout().len(block).get() as usize];
        ChaCha8Rng::from_seed(seed).fill_bytes(&mut bytes);
        bytes
    }

    /// Whether these are the bytes of that block.
    pub(super) fn is_block(
        &self,
        object: ObjectId,
        geometry: &Geometry,
        block: BlockIndex,
        bytes: &[u8],
    ) -> bool {
        self.block(object, geometry, block) == bytes
    }

    fn symbol(&mut self, lading: &Lading, symbol: SymbolId, out: &mut [u8]) {
        let bytes = self.objects[&lading.object];
        let geometry = Geometry::new(bytes, lading.symbol_size).expect("the set-up was checked");
        let shape = BlockShape::of(&geometry, symbol.block).expect("a source names blocks of its object");
        let key = (lading.object, lading.symbol_size, symbol.block);
        if !self.encoders.contains_key(&key) {
            let block = self.block(lading.object, &geometry, symbol.block);
            let encoder = BlockEncoder::new(shape, block).expect("the block has its own length");
            self.encoders.insert(key, encoder);
        }
        self.encoders[&key].symbol(symbol.esi, out).expect("a source names symbols that exist");
    }

    /// Writes a message as it would be on the wire.
    pub(super) fn sent(&mut self, place: u32, packet: &Packet) {
        let Packet { datagram, .. } = packet;
        let lading = self.flows.get(&datagram.flow).cloned();
        let key = HeaderKey::new(&lading.as_ref().map_or(FlowKey([0; 32]), |l| l.key));
        let symbol_size = lading.as_ref().map_or(0, |l| l.symbol_size);
        let mut bytes = vec![0; datagram.len(symbol_size)];
        let room = emit(datagram, symbol_size, &key, &mut bytes);
        let symbol = match &datagram.body {
            Body::Symbol(header) => Some(header.symbol),
            Body::ScheduledSymbol(header) => Some(header.symbol),
            _ => None,
        };
        if let (Some(symbol), Some(lading)) = (symbol, &lading) {
            self.symbol(lading, symbol, room);
        }
        let place = place as usize;
        if self.in_flight.len() <= place {
            self.in_flight.resize(place + 1, Vec::new());
        }
        self.in_flight[place] = bytes;
    }

    /// Messages have been copied from place to place.
    pub(super) fn forked(&mut self, forks: Vec<(u32, u32)>) {
        for (from, to) in forks {
            let bytes = self.in_flight[from as usize].clone();
            let to = to as usize;
            if self.in_flight.len() <= to {
                self.in_flight.resize(to + 1, Vec::new());
            }
            self.in_flight[to] = bytes;
        }
    }

    /// Reads a message back. The packet that was read must be the one that was sent: packet numbers but for what the
    /// wire cuts off.
    pub(super) fn arrived(&mut self, place: u32, sent: Packet) -> Packet {
        let key = HeaderKey::new(&self.flows.get(&sent.datagram.flow).map_or(FlowKey([0; 32]), |l| l.key));
        let body = &sent.datagram.body;
        let edited = (body.is_trimmed() || body.negotiated().is_some()).then(|| {
            // Another copy of the frame may still be whole.
            let mut bytes = self.in_flight[place as usize].clone();
            if let Some((_, scheduling)) = body.negotiated() {
                lower_offer(&mut bytes, scheduling.offer()).expect("it was written as scheduled");
            }
            if body.is_trimmed() {
                let rest = mark_trimmed(&mut bytes).expect("only whole symbols are cut");
                bytes.truncate(rest);
            }
            bytes
        });
        let bytes = edited.as_ref().unwrap_or(&self.in_flight[place as usize]);
        let parsed = parse(bytes, &key)
            .unwrap_or_else(|e| panic!("{:?} was written and cannot be read: {e}", sent.datagram));
        assert_eq!(parsed.datagram, as_written(&sent.datagram), "what was read is what was written");
        self.payload.clear();
        self.payload.extend_from_slice(parsed.payload);
        Packet { datagram: parsed.datagram, ..sent }
    }

    /// The payload of the message that was read last.
    pub(super) fn payload(&self) -> &[u8] {
        &self.payload
    }
}

fn as_held(held: Duration) -> Duration {
    held.min(Duration::from_nanos(u32::MAX.into()))
}

/// A datagram with the precision that the wire has.
fn as_written(datagram: &Datagram) -> Datagram {
    let mut written = datagram.clone();
    match &mut written.body {
        Body::Symbol(header) => header.number = PacketNumber(header.number.0 & 0xffff_ffff),
        Body::Ack(ack) => {
            let micros = ack.delay.as_micros().min(u64::from(u32::MAX));
            ack.delay = Duration::from_micros(micros);
        }
        Body::RateFeedback(feedback) => feedback.held = as_held(feedback.held),
        Body::Nack(nack) => nack.feedback.held = as_held(nack.feedback.held),
        _ => {}
    }
    written
}
