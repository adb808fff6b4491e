//! Hosts of a cast that lie, and datagrams and messages that arrive damaged or twice.

use std::collections::BTreeMap;

use headwater_units::{BlockIndex, Duration, FlowKey, Symbols};
use headwater_wire::{Body, Datagram, HeaderKey, emit, parse};
use rand::Rng;
use rand_chacha::ChaCha8Rng;

use super::transit::{Brought, CONTROLLER};
use super::{Standing, World};
use crate::packet::setup::MemberFault;

/// Faults of a host beside those of its disk; each with its probability.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Misconduct {
    symbols: f64,
    feedback: f64,
    corrupt: f64,
    replay: f64,
    /// How much later what came comes once more.
    by: Duration,
}

/// Packets that come once more: where they are kept until then, and how often its host had found the controller.
#[derive(Default)]
pub(super) struct Replays {
    places: BTreeMap<u32, u32>,
    /// Somebody has wrong done to it, or had.
    begun: bool,
}

impl Misconduct {
    /// Whether the bytes of a symbol are to be wrong.
    pub(super) fn spoils(&self, body: &Body, chance: &mut ChaCha8Rng) -> bool {
        self.symbols > 0.0 && body.symbol().is_some() && chance.random_bool(self.symbols)
    }

    /// Makes a receiver's feedback say what is not so. A datagram that no receiver sends is left as it is.
    pub(super) fn forge(&self, datagram: &mut Datagram, chance: &mut ChaCha8Rng) {
        if self.feedback == 0.0 || datagram.body.symbol().is_some() || !chance.random_bool(self.feedback) {
            return;
        }
        let mut forged = datagram.clone();
        match &mut forged.body {
            Body::Ack(ack) => match chance.random_range(0..5) {
                0 => ack.largest.0 += chance.random_range(1..1000),
                1 => ack.first_undecoded = BlockIndex(chance.random_range(0..64)),
                2 => ack.ce = chance.random(),
                3 => ack.first_run = chance.random_range(1..=u16::MAX),
                _ => ack
                    .owed
                    .iter_mut()
                    .for_each(|owed| owed.symbols = Symbols::new(chance.random_range(0..500))),
            },
            Body::Assign(assign) => match chance.random_range(0..3) {
                0 => assign.version = assign.version.wrapping_add(chance.random_range(0..1000)),
                1 => assign.receive_window = chance.random(),
                _ => assign.first_undecoded = BlockIndex(chance.random_range(0..64)),
            },
            Body::Pull(pull) => match chance.random_range(0..4) {
                0 => pull.sequence = pull.sequence.wrapping_add(chance.random_range(1..300)),
                1 => pull.sequence = chance.random(),
                2 => pull.fin = !pull.fin,
                _ => pull.wants.iter_mut().flatten().for_each(|want| {
                    want.block = BlockIndex(chance.random_range(0..64));
                    want.start = chance.random_range(0..2000);
                }),
            },
            Body::Receipt(receipt) => match chance.random_range(0..2) {
                0 => receipt.number.0 = chance.random_range(0..5000),
                _ => receipt.sequence = receipt.sequence.wrapping_add(chance.random_range(1..300)),
            },
            Body::Interest(interest) => interest.name.block = BlockIndex(chance.random_range(0..64)),
            _ => return,
        }
        // It crosses the network, so it must be something that can be written and read.
        let key = HeaderKey::new(&FlowKey([0; 32]));
        let mut bytes = vec![0; forged.len(0)];
        emit(&forged, 0, &key, &mut bytes);
        if let Ok(read) = parse(&bytes, &key) {
            *datagram = read.datagram;
        }
    }
}

impl World {
    pub(super) fn change_member(&mut self, host: u32, fault: MemberFault) {
        if let MemberFault::CutOff(cut) = fault {
            return self.transit.cut_off(self.now, host, cut);
        }
        let it = &mut self.hosts[host as usize];
        let misconduct = it.misconduct.get_or_insert_default();
        match fault {
            MemberFault::DiskFull(full) => it.host.disk().full = full,
            MemberFault::DiskUnreadable(unreadable) => it.host.disk().unreadable = unreadable,
            MemberFault::DiskLate(late) => it.host.disk().late = late,
            MemberFault::WrongSymbols(p) => misconduct.symbols = p,
            MemberFault::ForgedFeedback(p) => misconduct.feedback = p,
            MemberFault::Corrupt(p) => misconduct.corrupt = p,
            MemberFault::Replay(p, by) => (misconduct.replay, misconduct.by) = (p, by),
            MemberFault::CutOff(_) => unreachable!("it is no misconduct"),
        }
        self.replays.begun = true;
        if **misconduct == (Misconduct { by: misconduct.by, ..Misconduct::default() }) {
            it.misconduct = None;
        }
    }

    pub(super) fn may_go_wrong(&self) -> bool {
        self.replays.begun
    }

    /// Whether this comes a second time by a link that is gone. A packet that comes for the first time may be kept to
    /// come again.
    pub(super) fn is_replay_of_old(&mut self, place: u32, at: u32, brought: &Brought) -> bool {
        // Where it is about a link to the controller, it is the host's at the other end.
        let host = if at == CONTROLLER { brought.packet.path.0 } else { at };
        let Some(Standing { misconduct, links, .. }) = self.hosts.get(host as usize) else { return false };
        if let Some(then) = self.replays.places.remove(&place) {
            return matches!(brought.packet.datagram.body, Body::Control(_)) && then != *links;
        }
        if let Some(Misconduct { replay, by, .. }) = misconduct.as_deref()
            && *replay > 0.0
            && self.chance.random_bool(*replay)
        {
            let place = self.transit.again(self.now + *by, at, brought.clone());
            self.replays.places.insert(place, *links);
        }
        false
    }

    /// A packet that has come to a host, perhaps with a wrong byte in its header.
    pub(super) fn damaged(&mut self, at: u32, brought: Brought) -> Brought {
        let it = &mut self.hosts[at as usize];
        let p = it.misconduct.as_ref().map_or(0.0, |misconduct| misconduct.corrupt);
        if p == 0.0 || !self.chance.random_bool(p) {
            return brought;
        }
        let datagram = &brought.packet.datagram;
        let (bytes, header) = match &brought.bytes {
            Some(bytes) => (Some(bytes.to_vec()), bytes.len()),
            None => (it.host.in_bytes(datagram), datagram.len(0)),
        };
        // Without the key of its flow nothing is made of it, right or wrong.
        let Some(mut bytes) = bytes else { return brought };
        let place = self.chance.random_range(0..header.min(bytes.len()));
        bytes[place] ^= 1 << self.chance.random_range(0..8);
        Brought { bytes: Some(bytes.into()), ..brought }
    }
}
