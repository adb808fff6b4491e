//! Our sockets between two ends: [`SendBatch`] and [`RecvBatch`] as the data thread uses them, with a window and ACKs.
//!
//! A datagram begins with its number (8 bytes); an ACK is the next number that the receiver expects. Packets sent
//! before an acknowledged number are in flight no longer, whether they arrived or not: losses are counted, not
//! repaired.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use headwater_api::AppError;
use headwater_udp::{PathAddr, RecvBatch, SendBatch, SocketOptions, SocketStats, UdpPort, Waker, wait};
use headwater_units::Duration;

use super::{Both, End, Setting, UdpFigures, both, gbit, per_gib};
use crate::figures::ratio;

/// Bytes in flight: below the 1,000 packets that the kernel lets wait between two devices.
const WINDOW: usize = 1 << 20;
/// Datagrams per ACK: `min(46, W / 4)`, as in the product, at this window.
const ACK_EVERY: u64 = 46;
/// As in the data thread.
const BATCH_BYTES: usize = 1 << 20;
const BATCH_GROUPS: usize = 64;
/// ECT(0), as on all data.
const TOS: u8 = 2;
/// Bytes of a datagram's number, and of an ACK.
const NUMBER: usize = 8;
/// Time without an ACK after which packets in flight are given up.
const PATIENCE: Duration = Duration::from_millis(20);

/// Sends for `time`.
pub(super) fn measure(setting: &Setting, time: std::time::Duration) -> Result<UdpFigures, AppError> {
    let options = SocketOptions::default();
    let any = SocketAddr::new([0, 0, 0, 0].into(), 0);
    let to = SocketAddr::new(setting.address, 0);
    let inbound = setting.open(End::Receiver, || UdpPort::bind(to, &options))?;
    let out = setting.open(End::Sender, || UdpPort::bind(any, &options))?;
    let to = PathAddr::to(inbound.local_addr());
    let over = AtomicBool::new(false);
    let send = || {
        let sent = Sender::new(out, to, setting.payload).and_then(|sender| sender.run(time));
        over.store(true, Ordering::Release);
        sent
    };
    let Both { sent, send_cpu, received, receive_cpu } = both(send, || receive(inbound, &over))?;
    let (stats, bytes) = (received.stats, received.stats.bytes_received);
    let each = |cpu: f64| ratio(cpu * 1e9, stats.datagrams_received as f64);
    Ok(UdpFigures {
        gbit_per_s: gbit(bytes, received.seconds),
        send_ns: each(send_cpu),
        receive_ns: each(receive_cpu),
        send_cpu_s_per_gib: per_gib(send_cpu, bytes),
        receive_cpu_s_per_gib: per_gib(receive_cpu, bytes),
        datagrams_per_buffer: stats.datagrams_per_buffer().unwrap_or(0.0),
        lost_share: ratio(sent.saturating_sub(stats.datagrams_received) as f64, sent as f64),
    })
}

struct Sender {
    port: UdpPort,
    to: PathAddr,
    payload: usize,
    window: u64,
    batch: SendBatch,
    acks: RecvBatch,
    waker: Waker,
    /// The next datagram's number.
    next: u64,
    /// All before this one are out of flight.
    acknowledged: u64,
}

impl Sender {
    fn new(port: UdpPort, to: PathAddr, payload: usize) -> io::Result<Self> {
        Ok(Sender {
            port,
            to,
            payload,
            window: (WINDOW / payload) as u64,
            batch: SendBatch::new(BATCH_BYTES, BATCH_GROUPS),
            acks: RecvBatch::new(RecvBatch::DEFAULT_BUFFERS),
            waker: Waker::new()?,
            next: 0,
            acknowledged: 0,
        })
    }

    /// Datagrams sent.
    #[allow(clippy::disallowed_methods, reason = "this measures the machine")]
    fn run(mut self, time: std::time::Duration) -> io::Result<u64> {
        let start = Instant::now();
        while start.elapsed() < time {
            while self.next < self.acknowledged + self.window {
                let Some(datagram) = self.batch.push(self.to, TOS, self.payload) else { break };
                // The rest stays as it is: data in the product is read straight into this room.
                datagram[..NUMBER].copy_from_slice(&self.next.to_be_bytes());
                self.next += 1;
            }
            let blocked = self.port.flush(&mut self.batch)?.blocked;
            if !self.hear()? {
                let ready = wait(&self.port, &self.waker, Some(PATIENCE), blocked)?;
                if !ready.readable && !ready.writable {
                    self.acknowledged = self.next;
                }
            }
        }
        Ok(self.next)
    }

    /// Takes in the ACKs that are there; whether there were any.
    fn hear(&mut self) -> io::Result<bool> {
        let heard = self.port.recv(&mut self.acks)? > 0;
        for ack in self.acks.datagrams() {
            if let Some(expected) = number(ack.bytes) {
                self.acknowledged = self.acknowledged.max(expected.min(self.next));
            }
        }
        Ok(heard)
    }
}

struct Received {
    stats: SocketStats,
    /// From the first to the last datagram.
    seconds: f64,
}

#[allow(clippy::disallowed_methods, reason = "this measures the machine")]
fn receive(mut port: UdpPort, over: &AtomicBool) -> io::Result<Received> {
    let mut inbound = RecvBatch::new(RecvBatch::DEFAULT_BUFFERS);
    let mut acks = SendBatch::new(0, BATCH_GROUPS);
    let waker = Waker::new()?;
    let (mut expected, mut acknowledged) = (0, 0);
    let mut from = None;
    let mut span: Option<(Instant, Instant)> = None;
    loop {
        let ended = over.load(Ordering::Acquire);
        let there = port.recv(&mut inbound)? > 0;
        for datagram in inbound.datagrams() {
            if let Some(number) = number(datagram.bytes) {
                expected = expected.max(number + 1);
                from = Some(datagram.from);
            }
        }
        if there {
            let now = Instant::now();
            span = Some((span.map_or(now, |(first, _)| first), now));
        }
        // Nobody waits for an ACK that is not asked for: with nothing more to read, the last few are told as well.
        let due = expected - acknowledged >= if there { ACK_EVERY } else { 1 };
        if let Some(from) = from.filter(|_| due)
            && let Some(ack) = acks.push(from, TOS, NUMBER)
        {
            ack.copy_from_slice(&expected.to_be_bytes());
            acknowledged = expected;
            // One that finds no room is followed by another.
            let _ = port.flush(&mut acks)?;
            acks.clear();
        }
        if !there {
            if ended {
                let seconds = span.map_or(0.0, |(first, last)| (last - first).as_secs_f64());
                return Ok(Received { stats: *port.stats(), seconds });
            }
            wait(&port, &waker, Some(PATIENCE / 2), false)?;
        }
    }
}

fn number(bytes: &[u8]) -> Option<u64> {
    bytes.first_chunk::<NUMBER>().map(|number| u64::from_be_bytes(*number))
}
