//! Datagrams on their way in: whose they are, and whether they may be believed.

use headwater_machine::{Endpoint, Input, Packet};
use headwater_transport::SourceCommand;
use headwater_udp::{PathAddr, RecvBatch};
use headwater_units::{PathId, Time};
use headwater_wire::{Body, Ecn, Parsed, parse, parse_trimmed, peek_flow};
use rand::Rng;

use super::{Came, Engine, Owner};
use crate::paths::Paths;

/// Receive calls in a row before sending gets its turn.
const BATCHES_IN_A_ROW: usize = 4;

/// Where datagrams that arrived together come from. The path is looked up once the first of them proves authentic.
struct Origin {
    from: PathAddr,
    path: Option<PathId>,
    /// Whether a missing address of ours means that nobody knows it.
    anywhere: bool,
}

impl Origin {
    fn path(&mut self, paths: &mut Paths) -> PathId {
        let Origin { from, anywhere, .. } = *self;
        let look_up = || if anywhere && from.local.is_none() { paths.of_peer(from) } else { paths.of(from) };
        *self.path.get_or_insert_with(look_up)
    }
}

impl Engine {
    /// Takes in what waits in the sockets.
    pub(super) fn receive(&mut self, batch: &mut RecvBatch) {
        self.receive_by(None, batch);
        if self.ready == 0 {
            return;
        }
        let packet_sockets = self.trimmed.as_ref().map_or(0, |it| it.0.descriptors().count());
        if self.ready.trailing_zeros() < packet_sockets as u32 {
            self.receive_trimmed();
        }
        let ready = self.ready >> packet_sockets;
        for group in (0..self.groups.len()).filter(|place| ready >> place & 1 != 0) {
            self.receive_by(Some(group), batch);
        }
    }

    /// By the data socket, or that of a group.
    fn receive_by(&mut self, group: Option<usize>, batch: &mut RecvBatch) {
        for _ in 0..BATCHES_IN_A_ROW {
            let port = match group {
                None => &mut self.port,
                Some(place) => match self.groups.port(place) {
                    Some(port) => port,
                    None => return,
                },
            };
            match port.recv(batch) {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) => {
                    tracing::debug!(%error, "receiving failed");
                    return;
                }
            }
            let now = self.now();
            let full = batch.is_full();
            for run in batch.runs() {
                let mut origin = Origin { from: run.from, path: None, anywhere: false };
                let tos = run.tos;
                for bytes in run.datagrams() {
                    self.on_datagram(now, bytes, &mut origin, tos);
                }
            }
            // The sources' answers to the ACKs of this batch leave together.
            self.drive_source(now);
            self.flush();
            if !full {
                return;
            }
        }
    }

    /// What no UDP socket sees.
    fn receive_trimmed(&mut self) {
        let Some((mut port, mut batch)) = self.trimmed.take() else { return };
        for _ in 0..BATCHES_IN_A_ROW {
            match port.recv(&mut batch) {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) => {
                    tracing::debug!(%error, "receiving trimmed packets failed");
                    break;
                }
            }
            let now = self.now();
            for trimmed in batch.datagrams() {
                let mut origin = Origin { from: trimmed.from, path: None, anywhere: true };
                self.on_datagram(now, trimmed.bytes, &mut origin, Some(trimmed.tos));
            }
        }
        self.trimmed = Some((port, batch));
    }

    /// Trimmed packets are looked for where datagrams are received.
    pub(super) fn look_for_trimmed(&mut self) {
        let data = self.port.local_addr().port();
        let Some((port, _)) = &mut self.trimmed else { return };
        if let Err(error) = port.set_ports(std::iter::once(data).chain(self.groups.ports())) {
            tracing::debug!(%error, "trimmed packets of groups are not seen");
        }
    }

    fn on_datagram(&mut self, now: Time, bytes: &[u8], origin: &mut Origin, tos: Option<u8>) {
        let flow = peek_flow(bytes);
        if let Some(tree) = flow.filter(|flow| self.trees.machine.has(*flow)) {
            return self.on_tree_datagram(now, tree, bytes, origin.from);
        }
        let Some(entry) = flow.and_then(|flow| self.flows.get_mut(&flow)) else {
            let from = origin.from;
            let is_known = flow.is_some_and(|flow| {
                self.on_signal_datagram(now, flow, bytes, from) || self.on_probe(now, flow, bytes, from)
            });
            self.strays += u64::from(!is_known);
            return;
        };
        // A switch that trims says so by a code point. A flag that says so may be anybody's.
        let trimmed = tos.is_some_and(|tos| tos >> 2 == self.dscp.trimmed());
        let parsed = match trimmed {
            true => parse_trimmed(bytes, &entry.key).map(|datagram| Parsed { datagram, payload: &[] }),
            false => parse(bytes, &entry.key),
        };
        let Some(parsed) = parsed.ok().filter(|parsed| trimmed == parsed.datagram.body.is_trimmed()) else {
            self.strays += 1;
            return;
        };
        self.trimmed_symbols += u64::from(trimmed);
        let path = origin.path(&mut self.paths);
        // A lost control message says nothing about marks: as if the field had been bleached.
        let ecn = tos.map_or(Ecn::NotEct, Ecn::from_tos);
        let packet = Packet { path, ecn, datagram: parsed.datagram };
        match entry.owner {
            Owner::Source => {
                if !entry.vouched.is_empty() && entry.vouched.contains(&origin.from.remote) {
                    entry.vouched.clear();
                    let command = SourceCommand::FlowPath { flow: packet.datagram.flow, path };
                    self.hand_to_source(now, Input::Command(command));
                }
                self.source_gets(now, packet);
            }
            Owner::Receivers { symbol_size, passed_on } => {
                let came = Came { payload: parsed.payload, passed_on };
                self.receivers_get(now, packet, came, symbol_size);
            }
        }
    }

    fn source_gets(&mut self, now: Time, packet: Packet) {
        // Orders come over control links, whose peer is known; a flow's key gives no right to give any. Symbols are
        // nothing that a source receives.
        if matches!(packet.datagram.body, Body::Control(_) | Body::Symbol(_)) {
            self.strays += 1;
            return;
        }
        self.hand_to_source(now, Input::Packet(packet));
    }

    pub(super) fn receivers_get(&mut self, now: Time, packet: Packet, came: Came<'_>, symbol_size: u16) {
        match &packet.datagram.body {
            Body::Control(_) => {
                self.strays += 1;
                return;
            }
            Body::Symbol(header) => {
                if let Some((rng, probability)) = &mut self.lossy
                    && rng.random_bool(*probability)
                {
                    self.dropped_on_purpose += 1;
                    return;
                }
                self.pulls |= header.syn;
                if !header.trimmed && came.payload.len() != usize::from(symbol_size) {
                    self.strays += 1;
                    return;
                }
            }
            _ => {}
        }
        self.fetches.taped.handle(now, Input::Packet(packet));
        self.drive_receivers(now, Some(came));
    }
}
