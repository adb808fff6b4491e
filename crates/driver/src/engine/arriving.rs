//! Incoming datagrams.

use headwater_node::Arrived;
use headwater_udp::{PathAddr, RecvBatch};
use headwater_units::{PathId, Time};
use headwater_wire::{Datagram, Ecn};

use super::Engine;
use super::parcel::Copy;
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
        let (trimmed, groups) = self.sockets.ready();
        if trimmed {
            self.receive_trimmed();
        }
        for group in (0..self.sockets.groups.len()).filter(|place| groups >> place & 1 != 0) {
            self.receive_by(Some(group), batch);
        }
    }

    /// By the data socket, or that of a group.
    fn receive_by(&mut self, group: Option<usize>, batch: &mut RecvBatch) {
        for _ in 0..BATCHES_IN_A_ROW {
            if !self.sockets.receive(group, batch) {
                return;
            }
            let now = self.now();
            self.sample_if_due(now);
            let full = batch.is_full();
            for run in batch.runs() {
                let mut origin = Origin { from: run.from, path: None, anywhere: false };
                let tos = run.tos;
                for bytes in run.datagrams() {
                    self.on_datagram(now, bytes, &mut origin, tos);
                }
            }
            // The source's answers to the ACKs of this batch leave together.
            self.drive(now);
            self.sockets.flush();
            if !full {
                return;
            }
        }
    }

    /// Receives trimmed packets, which no UDP socket sees.
    fn receive_trimmed(&mut self) {
        let Some((mut port, mut batch)) = self.sockets.trimmed.take() else { return };
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
            self.sample_if_due(now);
            for trimmed in batch.datagrams() {
                let mut origin = Origin { from: trimmed.from, path: None, anywhere: true };
                self.on_datagram(now, trimmed.bytes, &mut origin, Some(trimmed.tos));
            }
        }
        self.sockets.trimmed = Some((port, batch));
    }

    fn on_datagram(&mut self, now: Time, bytes: &[u8], origin: &mut Origin, tos: Option<u8>) {
        let Engine { node, paths, sockets, .. } = self;
        // A lost control message says nothing about marks: as if the field had been bleached.
        let ecn = tos.map_or(Ecn::NotEct, Ecn::from_tos);
        let arrived = Arrived { bytes, from: origin.from, ecn, trimmed: sockets.is_trimmed(tos) };
        let parcel =
            |datagram: &Datagram| Copy { tos: sockets.tos(datagram.class, Ecn::NotEct), bytes: bytes.into() };
        if let Some(payload) = node.on_datagram(now, arrived, || origin.path(paths), parcel) {
            self.drive_with(now, payload);
        }
    }
}
