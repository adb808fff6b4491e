//! The transports that the papers compare themselves with: TCP NewReno, DCTCP, DCCP with CCID 2, and NDP.
//!
//! | Scheme | Rules | Files |
//! |---|---|---|
//! | [`Scheme::NewReno`] | RFC 5681, RFC 6582 (no SACK), RFC 6298 | `tcp_sender`, `tcp_receiver`, `window` |
//! | [`Scheme::Dctcp`] | RFC 8257 on the same machine | the same, and `marks` |
//! | [`Scheme::Ccid2`] | RFC 4341 (TCP-like DCCP), made semi-reliable | `dccp_sender`, `dccp_receiver` |
//! | [`Scheme::Ndp`] | Handley et al., SIGCOMM 2017; SCDP §II to §IV | `ndp_sender`, `ndp_receiver` |
//!
//! One [`Sender`] or [`Receiver`] is one end of one flow, and a packet is the unit of everything: windows, sequence numbers,
//! the length of the flow. Only NDP's receiver is that of a whole host, whose link its flows share: [`PullReceiver`]. Data
//! travels as symbols that are numbered from zero and carry nothing, ACKs as [`Cumulative`](headwater_wire::Cumulative),
//! [`AckVector`](headwater_wire::AckVector) or [`Receipt`](headwater_wire::Receipt), one for every packet that comes.
//! A flow begins with its first packet, without a handshake, and ends at the sender when the last ACK is back: a flow
//! of n packets that loses nothing is 2 n packets on every link of its path, and with NDP up to n pulls more.
//!
//! Knows no bytes, blocks or decoding, no delayed ACKs, no Nagle, no receiver that falls behind. Neither end of TCP or DCCP
//! allocates after it was made; NDP's have what is in flight.

mod avoidance;
mod bits;
mod clock;
mod commands;
mod dccp_receiver;
mod dccp_sender;
mod ends;
mod marks;
mod ndp_receiver;
mod ndp_sender;
mod scoreboard;
mod tcp_receiver;
mod tcp_sender;
mod window;

use headwater_machine::{Endpoint, Input, Output};
use headwater_transport::flow::rtt::RttConfig;
use headwater_units::{Bytes, Duration, FlowId, Packets, PathId, Time};
use headwater_wire::Class;
use serde::{Deserialize, Serialize};

pub use commands::{Expect, SenderCommand, SenderEvent, SinkCommand, SinkEvent};
use dccp_receiver::DccpReceiver;
use dccp_sender::DccpSender;
pub use ndp_receiver::{PullReceiver, PullReceiverConfig};
use ndp_sender::NdpSender;
use tcp_receiver::TcpReceiver;
use tcp_sender::TcpSender;

/// No end keeps state for more packets than this, whatever its configuration says: 128 KiB a flow.
const WINDOW_CEILING: f64 = 1_048_576.0;

/// Which rules a flow follows; both of its ends must be told the same.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Scheme {
    /// TCP with fast retransmit and fast recovery (RFC 5681, RFC 6582). Not ECN-capable.
    NewReno,
    /// TCP that reacts to the share of marks (RFC 8257). Its packets are ECT(0).
    Dctcp(DctcpConfig),
    /// TCP whose window goes half of the way to that of the last loss in each round trip (BIC, INFOCOM 2004). Not ECN-capable.
    Bic,
    /// TCP that keeps one to three packets of its own in queues, by its round trips (Vegas, JSAC 1995). Not ECN-capable.
    Vegas,
    /// TCP-like DCCP (RFC 4341).
    Ccid2 {
        /// Its packets are ECT(0), and a mark counts as a loss (RFC 4341 §5). Off by default: PPUSH §V-A marks only
        /// "ECT-enabled packets" and says that DCCP is "not designed for data center networks"; among its schemes only
        /// push and DCTCP are introduced as reacting to marks. RFC 4340 §12.1 leaves it to the ends (ECN Incapable).
        ecn: bool,
    },
    /// Pulled by the receiver, with switches that trim (NDP). Not ECN-capable; packets that were trimmed are sent again.
    Ndp(NdpConfig),
}

impl Scheme {
    /// DCTCP as RFC 8257 starts it.
    pub const DCTCP: Scheme = Scheme::Dctcp(DctcpConfig { gain: 1.0 / 16.0, initial_mark_fraction: 1.0 });
    /// DCCP as PPUSH compares itself with it.
    pub const DCCP: Scheme = Scheme::Ccid2 { ecn: false };
    /// NDP in one class for all data, as SCDP compares itself with it.
    pub const NDP: Scheme = Scheme::Ndp(NdpConfig { class: Class::Bulk, headroom: Bytes::ZERO });
}

/// Settings of DCTCP.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DctcpConfig {
    /// g, in 0..=1: weight of the newest window in the mark fraction. 1/16: RFC 8257 §4.2, PPUSH §IV-B.
    pub gain: f64,
    /// Mark fraction before the first window, in 0..=1. 1: RFC 8257 §3.3 (the first mark halves the window). PPUSH's model
    /// begins with 0, as a push flow does.
    pub initial_mark_fraction: f64,
}

impl Default for DctcpConfig {
    fn default() -> Self {
        DctcpConfig { gain: 1.0 / 16.0, initial_mark_fraction: 1.0 }
    }
}

/// Settings of NDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NdpConfig {
    /// How its data queue. Bulk by default: NDP knows no levels (SCDP §IV-B).
    pub class: Class,
    /// Bytes of its link that a host leaves free for each packet that it pulls. None by default, as NDP's own simulator
    /// has it: receivers ask for all that their links carry, and receipts, pulls and headers come on top. csg-htsim's
    /// receivers pull every wire time / 0.99, as if 15 bytes were left of 1500; its 64 bytes (`NdpPacket::ACKSIZE`) are
    /// the packet's own header, which our 1500 bytes have in them.
    pub headroom: Bytes,
}

impl Default for NdpConfig {
    fn default() -> Self {
        NdpConfig { class: Class::Bulk, headroom: Bytes::ZERO }
    }
}

/// Settings of the sending end.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SenderConfig {
    /// The rules.
    pub scheme: Scheme,
    /// Window at the start, at least 1. 10 for TCP: RFC 6928; 3 for DCCP: RFC 3390 with 1500-byte packets (RFC 4341
    /// §5); PPUSH's experiments take 1. For NDP, the packets that it pushes before it is asked for more: 12, SCDP §IV.
    pub initial_window: Packets,
    /// Slow start ends here; without a bound if absent (RFC 5681 §3.1: "arbitrarily high").
    pub initial_threshold: Option<Packets>,
    /// Never more packets than this between the oldest one that is not acknowledged and the newest one sent; stands for
    /// TCP's receive window, and bounds what either end remembers. 4096: ten times what a 100 Gbit/s path of 10 us with a
    /// buffer of 250 packets holds, and 40 times PPUSH's WAN path of 10^4 packets/s and 10 ms. At most 2^20.
    pub window_limit: Packets,
    /// TCP: receivers say what they have above a gap, and senders repair several losses in one round trip (RFC 2018, RFC 6675). Off by
    /// default, as in the simulations that published figures are of.
    pub sack: bool,
    /// Round-trip time and timeout.
    pub rtt: RttConfig,
}

impl SenderConfig {
    /// For a simulated data centre: timeouts of at least 10 ms, the first one too (what csg-htsim's DCTCP starts with; the
    /// full second of RFC 6298 §2.1 would outlast most flows).
    pub fn data_centre(scheme: Scheme) -> Self {
        Self::with_timeout(scheme, Duration::from_millis(10))
    }

    /// For a wide-area path: timeouts of at least 1 s (RFC 6298 §2.1 and §2.4).
    pub fn wide_area(scheme: Scheme) -> Self {
        Self::with_timeout(scheme, Duration::from_secs(1))
    }

    fn with_timeout(scheme: Scheme, timeout: Duration) -> Self {
        let initial_window = match scheme {
            Scheme::NewReno | Scheme::Dctcp(_) | Scheme::Bic | Scheme::Vegas => 10.0,
            Scheme::Ccid2 { .. } => 3.0,
            Scheme::Ndp(_) => 12.0,
        };
        SenderConfig {
            scheme,
            initial_window: Packets::new(initial_window),
            initial_threshold: None,
            window_limit: Packets::new(4096.0),
            sack: false,
            rtt: RttConfig { initial_rto: timeout, min_rto: timeout, ..RttConfig::default() },
        }
    }

    /// The initial window, in bounds.
    pub fn first_window(&self) -> u64 {
        whole(self.initial_window) as u64
    }

    /// The window limit, in bounds.
    fn limit(&self) -> f64 {
        whole(self.window_limit)
    }
}

/// Settings of the receiving end.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReceiverConfig {
    /// The rules.
    pub scheme: Scheme,
    /// Packets further ahead of a gap than this are refused; not less than the sender's.
    pub window_limit: Packets,
    /// As the sender's.
    pub sack: bool,
}

impl ReceiverConfig {
    /// The other end of a sender with this configuration.
    pub fn of(sender: &SenderConfig) -> Self {
        ReceiverConfig { scheme: sender.scheme, window_limit: sender.window_limit, sack: sender.sack }
    }
}

/// A number of packets without fraction, at least 1 and at most [`WINDOW_CEILING`]; NaN becomes 1.
fn whole(packets: Packets) -> f64 {
    match packets.get() {
        packets if packets >= 1.0 => packets.floor().min(WINDOW_CEILING),
        _ => 1.0,
    }
}

/// Counters and state of a sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SenderStats {
    /// Congestion window; while TCP recovers, with the inflation of RFC 5681 §3.2.
    pub window: Packets,
    /// Slow start ends here; infinite until the first congestion, unless configured.
    pub threshold: Packets,
    /// DCTCP's alpha; 0 for the others.
    pub mark_fraction: f64,
    /// SRTT; none before the first sample.
    pub rtt: Option<Duration>,
    /// The timeout as it stands, backed off.
    pub timeout: Duration,
    /// TCP: from the oldest packet not acknowledged to the newest sent (FlightSize). DCCP: pipe.
    pub in_flight: u64,
    /// Packets sent, every one counted each time.
    pub sent: u64,
    /// Those of them that had been sent before under the same number. DCCP never does that.
    pub resent: u64,
    /// Packets acknowledged, each once.
    pub acked: u64,
    /// TCP: ACKs with the echo of a mark. DCCP: packets acknowledged as marked.
    pub marked: u64,
    /// DCCP: packets inferred as lost from three later ones, or given up by a timeout. NDP: packets that were trimmed. 0 for
    /// TCP, which cannot tell.
    pub lost: u64,
    /// Windows cut in answer to marks: DCTCP's, and CCID 2's where it is ECN-capable.
    pub cuts: u64,
    /// Retransmission timeouts; with NDP, where each packet has one, packets that were sent again for it.
    pub timeouts: u64,
    /// TCP: times that fast recovery was entered. DCCP: windows halved for loss.
    pub fast_recoveries: u64,
    /// Inputs that make no sense to this end: of another flow or kind, or about packets that were never sent.
    pub unexpected: u64,
}

/// Counters of a receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiverStats {
    /// Packets of the flow that came, duplicates too.
    pub arrived: u64,
    /// Different ones among them, up to the length of the flow.
    pub distinct: u64,
    /// TCP: every packet below is here. DCCP: one above the largest that came.
    pub next: u64,
    /// Packets that came with CE.
    pub marked: u64,
    /// NDP: packets of which only the header came, those among `arrived`.
    pub trimmed: u64,
    /// NDP: pulls after a silence.
    pub asked_again: u64,
    /// Packets refused because they are too far ahead of a gap (TCP) or too old to be told from duplicates (DCCP).
    pub outside: u64,
    /// Inputs that make no sense to this end.
    pub unexpected: u64,
}

/// The sending end of one flow.
///
/// Starts at the first [`Endpoint::poll`]. Emits [`SenderEvent::Closed`] when every packet is acknowledged; at once, sending
/// nothing more, when told [`SenderCommand::Withdraw`] or by the [`Fin`](headwater_wire::Body::Fin) of a receiver that has
/// cancelled.
#[derive(Debug)]
pub struct Sender(SenderKind);

#[derive(Debug)]
enum SenderKind {
    Tcp(TcpSender),
    Dccp(DccpSender),
    Ndp(NdpSender),
}

impl Sender {
    /// A flow of `packets` packets towards `path`; [`u64::MAX`] for one that runs until it is told to end.
    pub fn new(config: SenderConfig, flow: FlowId, path: PathId, packets: u64) -> Self {
        Sender(match config.scheme {
            Scheme::NewReno | Scheme::Dctcp(_) | Scheme::Bic | Scheme::Vegas => {
                SenderKind::Tcp(TcpSender::new(&config, flow, path, packets, packets))
            }
            Scheme::Ccid2 { ecn } => SenderKind::Dccp(DccpSender::new(&config, ecn, flow, path, packets)),
            Scheme::Ndp(ndp) => SenderKind::Ndp(NdpSender::new(&config, ndp, flow, path, packets, packets)),
        })
    }

    /// The same, of a relay that has nothing yet: it sends what [`SenderCommand::Extend`] says
    /// is there.
    ///
    /// # Panics
    /// For [`Scheme::Ccid2`], which does not relay.
    pub fn relay(config: SenderConfig, flow: FlowId, path: PathId, packets: u64) -> Self {
        match config.scheme {
            Scheme::Ndp(ndp) => Sender(SenderKind::Ndp(NdpSender::new(&config, ndp, flow, path, packets, 0))),
            Scheme::NewReno | Scheme::Dctcp(_) | Scheme::Bic | Scheme::Vegas => {
                Sender(SenderKind::Tcp(TcpSender::new(&config, flow, path, packets, 0)))
            }
            Scheme::Ccid2 { .. } => panic!("DCCP does not relay"),
        }
    }

    /// Its counters and state.
    pub fn stats(&self) -> SenderStats {
        match &self.0 {
            SenderKind::Tcp(sender) => sender.stats(),
            SenderKind::Dccp(sender) => sender.stats(),
            SenderKind::Ndp(sender) => sender.stats(),
        }
    }
}

impl Endpoint for Sender {
    type Command = SenderCommand;
    type Event = SenderEvent;

    // Once for every packet, as is polling: a call would copy the packet.
    #[inline(always)]
    fn handle(&mut self, now: Time, input: Input<SenderCommand>) {
        match &mut self.0 {
            SenderKind::Tcp(sender) => sender.handle(now, input),
            SenderKind::Dccp(sender) => sender.handle(now, input),
            SenderKind::Ndp(sender) => sender.handle(now, input),
        }
    }

    #[inline(always)]
    fn poll(&mut self, now: Time) -> Output<SenderEvent> {
        match &mut self.0 {
            SenderKind::Tcp(sender) => sender.poll(now),
            SenderKind::Dccp(sender) => sender.poll(now),
            SenderKind::Ndp(sender) => sender.poll(now),
        }
    }
}

/// The receiving end of one flow.
///
/// Emits [`SinkEvent::Done`] once, behind the ACK of the packet that completes the flow, and goes
/// on acknowledging what still comes. Told [`SinkCommand::Cancel`], it fails and answers
/// every further packet with a FIN.
#[derive(Debug)]
pub struct Receiver(ReceiverKind);

#[derive(Debug)]
enum ReceiverKind {
    Tcp(TcpReceiver),
    Dccp(DccpReceiver),
}

impl Receiver {
    /// Expects `packets` packets ([`u64::MAX`]: without end) and sends its ACKs towards `path`.
    ///
    /// # Panics
    /// For [`Scheme::Ndp`]: its receiver is a [`PullReceiver`].
    pub fn new(config: ReceiverConfig, flow: FlowId, path: PathId, packets: u64) -> Self {
        let limit = whole(config.window_limit) as u64;
        Receiver(match config.scheme {
            Scheme::NewReno | Scheme::Dctcp(_) | Scheme::Bic | Scheme::Vegas => {
                ReceiverKind::Tcp(TcpReceiver::new(limit, config.sack, flow, path, packets))
            }
            Scheme::Ccid2 { .. } => ReceiverKind::Dccp(DccpReceiver::new(limit, flow, path, packets)),
            Scheme::Ndp(_) => panic!("NDP flows have no receiver each: a host has one for all of them"),
        })
    }

    /// Its counters.
    pub fn stats(&self) -> ReceiverStats {
        match &self.0 {
            ReceiverKind::Tcp(receiver) => receiver.stats(),
            ReceiverKind::Dccp(receiver) => receiver.stats(),
        }
    }
}

impl Endpoint for Receiver {
    type Command = SinkCommand;
    type Event = SinkEvent;

    #[inline(always)]
    fn handle(&mut self, now: Time, input: Input<SinkCommand>) {
        match &mut self.0 {
            ReceiverKind::Tcp(receiver) => receiver.handle(now, input),
            ReceiverKind::Dccp(receiver) => receiver.handle(now, input),
        }
    }

    fn poll(&mut self, now: Time) -> Output<SinkEvent> {
        match &mut self.0 {
            ReceiverKind::Tcp(receiver) => receiver.poll(now),
            ReceiverKind::Dccp(receiver) => receiver.poll(now),
        }
    }
}
