//! Datagrams on their way in: whose they are, and whether they may be believed.

use headwater_transport::{Endpoint, Input, Packet};
use headwater_units::{PathId, Time};
use headwater_wire::{Body, Ecn};
use rand::Rng;

use super::{Engine, Owner};
use crate::node::paths::Paths;
use crate::socket::{PathAddr, RecvBatch};

/// Receive calls in a row before sending gets its turn.
const BATCHES_IN_A_ROW: usize = 4;

/// Where datagrams that arrived together come from. The path is looked up once the first of them proves authentic.
struct Origin {
    from: PathAddr,
    path: Option<PathId>,
}

impl Origin {
    fn path(&mut self, paths: &mut Paths) -> PathId {
        *self.path.get_or_insert_with(|| paths.of(self.from))
    }
}

impl Engine {
    /// Takes in what waits in the socket.
    pub(super) fn receive(&mut self, batch: &mut RecvBatch) {
        for _ in 0..BATCHES_IN_A_ROW {
            match self.port.recv(batch) {
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
                let mut origin = Origin { from: run.from, path: None };
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

    fn on_datagram(&mut self, now: Time, bytes: &[u8], origin: &mut Origin, tos: Option<u8>) {
        let flow = headwater_wire::peek_flow(bytes);
        let Some(entry) = flow.and_then(|flow| self.flows.get_mut(&flow)) else {
            self.strays += 1;
            return;
        };
        let Ok(parsed) = headwater_wire::parse(bytes, &entry.key) else {
            self.strays += 1;
            return;
        };
        let path = origin.path(&mut self.paths);
        // A lost control message says nothing about marks: as if the field had been bleached.
        let ecn = tos.map_or(Ecn::NotEct, Ecn::from_tos);
        let packet = Packet { path, ecn, datagram: parsed.datagram };
        match entry.owner {
            Owner::Source => self.source_gets(now, packet),
            Owner::Receivers { symbol_size } => self.receivers_get(now, packet, parsed.payload, symbol_size),
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

    fn receivers_get(&mut self, now: Time, packet: Packet, payload: &[u8], symbol_size: u16) {
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
                if !header.trimmed && payload.len() != usize::from(symbol_size) {
                    self.strays += 1;
                    return;
                }
            }
            _ => {}
        }
        self.fetches.taped.handle(now, Input::Packet(packet));
        self.drive_receivers(now, Some(payload));
    }
}
