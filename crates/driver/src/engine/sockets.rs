//! The sockets of the data thread: its own, those of groups, the one for trimmed packets; and the packets that wait to be sent.

use headwater_node::Room;
use headwater_udp::{
    GroupAddr, Offload, PathAddr, RecvBatch, SendBatch, SocketStats, TrimmedBatch, TrimmedPort, UdpPort,
    Waker, wait_with,
};
use headwater_units::{Bytes, Duration, FlowId};
use headwater_wire::{Body, Class, CodePoints, Datagram, Ecn, HeaderKey, emit};

use super::groups::Groups;

/// Bytes and groups of one send batch.
const BATCH_BYTES: usize = 1 << 20;
const BATCH_GROUPS: usize = 64;

pub(super) struct Sockets {
    port: UdpPort,
    pub(super) groups: Groups,
    /// Whether trimmed datagrams are to be looked for once somebody has a use for them.
    may_look: bool,
    /// Where trimmed datagrams are seen, if they are.
    pub(super) trimmed: Option<(TrimmedPort, TrimmedBatch)>,
    /// Which sockets beside `port` have something to read: `trimmed`'s, then those of groups.
    ready: u64,
    dscp: CodePoints,
    pub(super) out: SendBatch,
    /// Where the kernel refused datagrams as too long, until the source is told.
    too_long: Vec<PathAddr>,
    /// The socket is full.
    blocked: bool,
    /// Datagrams given up because of that, or because their flow had ended.
    pub(super) unsendable: u64,
}

impl Sockets {
    pub(super) fn new(port: UdpPort, may_look: bool, dscp: CodePoints) -> Self {
        Sockets {
            port,
            groups: Groups::default(),
            may_look,
            trimmed: None,
            ready: 0,
            dscp,
            out: SendBatch::new(BATCH_BYTES, BATCH_GROUPS),
            too_long: Vec::new(),
            blocked: false,
            unsendable: 0,
        }
    }

    // ---- in

    /// Reads what waits in the data socket, or in that of a group. Nothing is there, mostly for now, if it is false.
    pub(super) fn receive(&mut self, group: Option<usize>, batch: &mut RecvBatch) -> bool {
        let port = match group {
            None => Some(&mut self.port),
            Some(place) => self.groups.port(place),
        };
        match port.map(|port| port.recv(batch)) {
            Some(Ok(buffers)) => buffers > 0,
            Some(Err(error)) => {
                tracing::debug!(%error, "receiving failed");
                false
            }
            None => false,
        }
    }

    /// Whether trimmed packets have come that no UDP socket sees, and the groups by whose sockets something has come, as bits.
    pub(super) fn ready(&self) -> (bool, u64) {
        let packet_sockets = self.trimmed.as_ref().map_or(0, |it| it.0.descriptors().count());
        let trimmed = self.ready.trailing_zeros() < packet_sockets as u32;
        (trimmed, self.ready >> packet_sockets)
    }

    pub(super) fn join(&mut self, group: GroupAddr, port: UdpPort) {
        self.groups.join(group, port);
        self.look_for_trimmed();
    }

    pub(super) fn leave(&mut self, group: &GroupAddr) {
        if self.groups.leave(group) {
            self.look_for_trimmed();
        }
    }

    /// Somebody has a use for trimmed packets: they are looked for from now on. Not before, since each packet that comes to a machine costs
    /// each process that looks: a hundred nodes on one machine had to look at each other's packets.
    pub(super) fn see_trimmed(&mut self) {
        if !std::mem::replace(&mut self.may_look, false) {
            return;
        }
        match TrimmedPort::open(self.port.local_addr(), self.dscp.trimmed()) {
            Ok(port) => {
                self.trimmed = Some((port, TrimmedBatch::default()));
                // Its places are before those of groups.
                self.ready = 0;
                self.look_for_trimmed();
            }
            Err(error) => {
                tracing::debug!(%error, "trimmed packets are not seen, unless switches repair them");
            }
        }
    }

    /// Trimmed packets are looked for where datagrams are received.
    fn look_for_trimmed(&mut self) {
        let data = self.port.local_addr().port();
        let Some((port, _)) = &mut self.trimmed else { return };
        if let Err(error) = port.set_ports(std::iter::once(data).chain(self.groups.ports())) {
            tracing::debug!(%error, "trimmed packets of groups are not seen");
        }
    }

    /// Whether a datagram with this TOS byte has the code point of what switches have cut.
    #[inline]
    pub(super) fn is_trimmed(&self, tos: Option<u8>) -> bool {
        tos.is_some_and(|tos| tos >> 2 == self.dscp.trimmed())
    }

    // ---- out

    /// Room for packets from the source; `gathering`: more datagrams are at hand.
    #[inline]
    pub(super) fn room(&self, gathering: bool) -> Room {
        match (self.blocked, gathering) {
            (true, _) => Room::Full,
            (false, true) => Room::Gathering,
            (false, false) => Room::Free,
        }
    }

    /// The TOS byte of a class.
    #[inline]
    pub(super) fn tos(&self, class: Class, ecn: Ecn) -> u8 {
        self.dscp.of(class) << 2 | ecn as u8
    }

    /// Where to write a datagram; nowhere, and that is counted, if the socket is full.
    #[inline]
    pub(super) fn push(&mut self, to: PathAddr, tos: u8, len: usize) -> Option<&mut [u8]> {
        if !self.out.has_room(&to, tos, len) {
            self.flush();
        }
        let room = self.out.push(to, tos, len);
        self.unsendable += u64::from(room.is_none());
        room
    }

    /// Sends a datagram that is there already.
    pub(super) fn send_copy(&mut self, to: PathAddr, tos: u8, bytes: &[u8]) {
        if let Some(room) = self.push(to, tos, bytes.len()) {
            room.copy_from_slice(bytes);
        }
    }

    /// Sends a datagram of the control class that has no payload.
    pub(super) fn send_single(&mut self, to: PathAddr, flow: FlowId, body: Body, key: &HeaderKey) {
        let datagram = Datagram { class: Class::Control, key_epoch: 0, flow, body };
        let tos = self.tos(datagram.class, Ecn::NotEct);
        if let Some(out) = self.push(to, tos, datagram.len(0)) {
            emit(&datagram, 0, key, out);
        }
    }

    /// Sends what waits.
    pub(super) fn flush(&mut self) {
        if self.out.is_empty() {
            return;
        }
        match self.port.flush(&mut self.out) {
            Ok(flush) => {
                if flush.lost > 0 {
                    let refused = self.out.soft_errors().iter().filter(|error| error.is_too_long());
                    self.too_long.extend(refused.map(|error| error.to));
                }
                self.blocked = flush.blocked;
            }
            Err(error) => {
                tracing::warn!(%error, "sending failed");
                self.out.clear();
                self.blocked = false;
            }
        }
    }

    /// Where this host refuses datagrams for their length, since the last time.
    pub(super) fn take_too_long(&mut self) -> Vec<PathAddr> {
        let mut refused = std::mem::take(&mut self.too_long);
        refused.dedup();
        refused
    }

    // ---- both

    /// Waits until a socket has something, or the one that is full has room, or somebody wakes this thread.
    pub(super) fn wait(&mut self, waker: &Waker, timeout: Option<Duration>) {
        let further = self.trimmed.iter().flat_map(|it| it.0.descriptors()).chain(self.groups.descriptors());
        match wait_with(&self.port, further, waker, timeout, self.blocked) {
            Ok(ready) => {
                self.blocked &= !ready.writable;
                self.ready = ready.further;
            }
            Err(error) => tracing::error!(%error, "waiting for the data socket failed"),
        }
    }

    /// Whether the data socket is full, which is waited for.
    pub(super) fn is_blocked(&self) -> bool {
        self.blocked
    }

    /// Datagrams that the data socket has moved.
    pub(super) fn moved(&self) -> u64 {
        let moved = self.port.stats();
        moved.datagrams_sent + moved.datagrams_received
    }

    /// Counters of all sockets.
    pub(super) fn stats(&self) -> SocketStats {
        *self.port.stats() + self.groups.stats()
    }

    pub(super) fn offload(&self) -> Offload {
        self.port.offload()
    }
}

/// The longest datagram that the route to a node carries, if it is known.
pub(super) fn fits(to: &PathAddr) -> Option<u16> {
    headwater_udp::path_mtu(to.remote).map(|bytes| u16::try_from(Bytes::get(bytes)).unwrap_or(u16::MAX)).ok()
}
