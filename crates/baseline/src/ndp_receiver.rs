//! The receiving end of NDP: all flows that end at one host (Handley et al., SIGCOMM 2017; SCDP §III-D).
//!
//! ```text
//!   packet, or its header --> receipt at once
//!                        \--> one more pull, if more is missing than is coming --> the host's pull queue --> pull
//! ```
//! The number of packets still coming is the first window and every pull, less the packets that came of them, whole or
//! trimmed: so a flow of n packets is asked for n less its first window, and once more for every header. A pull that is
//! due when its packet comes travels with the receipt.
//!
//! A flow that is incomplete, has no pull waiting and has heard nothing for [`PullReceiverConfig::silence`] is asked
//! for one packet more, and again after twice that time: its last pulls may be lost. The sender finds out about other
//! losses.

use std::collections::{BTreeMap, VecDeque};

use headwater_machine::{Endpoint, Input, Output};
use headwater_transport::pull::queue::{Asked, PullConfig, PullQueue};
use headwater_units::{Duration, FlowId, PacketNumber, Packets, Time};
use headwater_wire::{Body, Ecn, Pull, Receipt, SymbolHeader};
use serde::{Deserialize, Serialize};

use super::bits::BitRing;
use super::commands::{Expect, SinkCommand, SinkEvent};
use super::ends::{CANCELLED, Route, whole_number};
use super::{ReceiverStats, SenderConfig, whole};

/// Most doublings of the wait between questions to a silent flow.
const MOST_DOUBLINGS: u32 = 8;

/// Settings of a host's receiver.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PullReceiverConfig {
    /// Packets further ahead of a gap than this are refused; not less than the senders'.
    pub window_limit: Packets,
    /// How fast it pulls.
    pub pull: PullConfig,
    /// Time without a packet after which it asks again. Twice the least timeout of a sender, which should go first.
    pub silence: Duration,
}

impl PullReceiverConfig {
    /// The other end of senders with this configuration.
    pub fn of(sender: &SenderConfig, pull: PullConfig) -> Self {
        PullReceiverConfig { window_limit: sender.window_limit, pull, silence: sender.rtt.min_rto * 2 }
    }
}

/// The receiving end of all NDP flows of a host.
///
/// Told of each by [`SinkCommand::Expect`]; emits [`SinkEvent::Complete`] for each that is complete, behind the receipt of
/// its last packet, and goes on with receipts for what still comes. A flow that was abandoned answers every packet with a FIN.
#[derive(Debug)]
pub struct PullReceiver {
    limit: u64,
    silence: Duration,
    /// Places among the sessions.
    flows: BTreeMap<FlowId, u32>,
    sessions: Vec<Session>,
    /// Those that are incomplete and have begun.
    open: Vec<u32>,
    pulls: PullQueue<()>,
    outbox: VecDeque<Output<SinkEvent>>,
    /// When silent flows are looked for next.
    look_at: Option<Time>,
    unexpected: u64,
}

/// How a flow stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stand {
    /// Nothing has come.
    Expected,
    /// Packets are missing.
    Begun,
    Complete,
    Abandoned,
}

#[derive(Debug)]
struct Session {
    route: Route,
    packets: u64,
    stand: Stand,
    relayed: bool,
    /// Every packet below is here.
    next: u64,
    /// How many above it are here.
    held: u64,
    ahead: BitRing,
    /// Packets that the sender pushes or was asked for, or will be, and of which nothing has come.
    coming: u64,
    asked: Asked,
    /// When something came last, or was asked for again.
    heard: Time,
    doublings: u32,
    stats: ReceiverStats,
}

impl PullReceiver {
    /// A host's receiver, which knows of no flow yet.
    pub fn new(config: PullReceiverConfig) -> Self {
        PullReceiver {
            limit: whole(config.window_limit) as u64,
            silence: config.silence.max(Duration::from_nanos(1)),
            flows: BTreeMap::new(),
            sessions: Vec::new(),
            open: Vec::new(),
            pulls: PullQueue::new(config.pull),
            outbox: VecDeque::new(),
            look_at: None,
            unexpected: 0,
        }
    }

    /// Counters of a flow that it was told of.
    pub fn flow(&self, flow: FlowId) -> Option<ReceiverStats> {
        let session = &self.sessions[*self.flows.get(&flow)? as usize];
        Some(ReceiverStats { distinct: session.distinct(), next: session.next, ..session.stats })
    }

    /// Inputs that make no sense to it.
    pub fn unexpected(&self) -> u64 {
        self.unexpected
    }

    fn expect(&mut self, expect: Expect) {
        let Expect { flow, path, packets, window, relayed } = expect;
        if self.flows.contains_key(&flow) {
            self.unexpected += 1;
            return;
        }
        let place = u32::try_from(self.sessions.len()).expect("fewer than 2^32 flows are ever expected");
        self.flows.insert(flow, place);
        let complete = packets == 0;
        if complete {
            self.say(SinkEvent::Complete { flow });
        }
        self.sessions.push(Session {
            route: Route { flow, path, ecn: Ecn::NotEct },
            packets,
            stand: if complete { Stand::Complete } else { Stand::Expected },
            relayed,
            next: 0,
            held: 0,
            ahead: BitRing::new(self.limit.min(packets)),
            coming: window.min(packets),
            asked: Asked::default(),
            heard: Time::ZERO,
            doublings: 0,
            stats: ReceiverStats::default(),
        });
    }

    fn abandon(&mut self, flow: FlowId) {
        let Some(&place) = self.flows.get(&flow) else {
            self.unexpected += 1;
            return;
        };
        let session = &mut self.sessions[place as usize];
        if matches!(session.stand, Stand::Expected | Stand::Begun) {
            session.stand = Stand::Abandoned;
            self.outbox.push_back(session.route.back(CANCELLED));
            self.close(place);
        }
    }

    fn close(&mut self, place: u32) {
        self.pulls.clear(place);
        if let Some(at) = self.open.iter().position(|it| *it == place) {
            self.open.swap_remove(at);
        }
    }

    fn on_data(&mut self, now: Time, flow: FlowId, header: SymbolHeader, marked: bool) {
        let Some(&place) = self.flows.get(&flow) else {
            self.unexpected += 1;
            return;
        };
        let session = &mut self.sessions[place as usize];
        let number = whole_number(header, session.next);
        if number >= session.packets {
            session.stats.unexpected += 1;
            return;
        }
        session.stats.arrived += 1;
        session.stats.marked += u64::from(marked);
        session.stats.trimmed += u64::from(header.trimmed);
        if number >= session.next && number - session.next >= self.limit {
            session.stats.outside += 1;
            return;
        }
        match session.stand {
            Stand::Abandoned => return self.outbox.push_back(session.route.back(CANCELLED)),
            Stand::Expected => {
                session.stand = Stand::Begun;
                self.open.push(place);
                self.look_at.get_or_insert(now + self.silence);
            }
            Stand::Begun | Stand::Complete => {}
        }
        (session.heard, session.doublings) = (now, 0);
        session.coming = session.coming.saturating_sub(1);
        let before = session.next;
        if !header.trimmed {
            session.keep(number);
        }
        let (progress, distinct) = (session.next > before, session.distinct());
        let completes = session.stand == Stand::Begun && distinct == session.packets;
        if completes {
            session.stand = Stand::Complete;
        } else if session.packets - distinct > session.coming {
            session.coming += 1;
            self.pulls.push(now, place, ());
        }
        if completes {
            self.close(place);
        }
        // A pull that is due leaves now; this flow's goes with the receipt.
        if let Some((due, ())) = self.pulls.poll(now) {
            let sequence = self.sessions[due as usize].asked.one_more();
            if due != place {
                self.pull(due, sequence);
            }
        }
        let session = &self.sessions[place as usize];
        let receipt = Receipt {
            number: PacketNumber(number),
            sequence: session.asked.sequence(),
            // Of two copies one may have come whole.
            trimmed: header.trimmed && !session.has(number),
        };
        self.outbox.push_back(session.route.back(Body::Receipt(receipt)));
        if progress && session.relayed {
            let packets = session.next;
            self.say(SinkEvent::Progress { flow, packets });
        }
        if completes {
            self.say(SinkEvent::Complete { flow });
        }
    }

    fn pull(&mut self, place: u32, sequence: u32) {
        let pull = Body::Pull(Pull::any(sequence));
        self.outbox.push_back(self.sessions[place as usize].route.back(pull));
    }

    fn say(&mut self, event: SinkEvent) {
        self.outbox.push_back(Output::Event(event));
    }

    /// Asks flows again that have fallen silent.
    fn look_for_silence(&mut self, now: Time) {
        let mut next = None::<Time>;
        for &place in &self.open {
            let session = &mut self.sessions[place as usize];
            let patience = self.silence * (1 << session.doublings);
            let mut due = session.heard + patience;
            if self.pulls.waiting(place) > 0 {
                due = now + self.silence;
            } else if due <= now {
                session.heard = now;
                session.doublings = (session.doublings + 1).min(MOST_DOUBLINGS);
                // The packet thought to be coming may be; one more packet does no harm.
                session.coming += 1;
                session.stats.asked_again += 1;
                self.pulls.push(now, place, ());
                due = now + self.silence;
            }
            next = Some(next.map_or(due, |next| next.min(due)));
        }
        self.look_at = next;
    }
}

impl Session {
    fn distinct(&self) -> u64 {
        self.next + self.held
    }

    /// Whether a packet within the limit is here.
    fn has(&self, number: u64) -> bool {
        number < self.next || self.ahead.get(number)
    }

    /// A whole packet, within the limit, is here.
    fn keep(&mut self, number: u64) {
        if number == self.next {
            self.next += 1;
            while self.held > 0 && self.ahead.take(self.next) {
                self.held -= 1;
                self.next += 1;
            }
        } else if number > self.next {
            self.held += u64::from(self.ahead.set(number));
        }
    }
}

impl Endpoint for PullReceiver {
    type Command = SinkCommand;
    type Event = SinkEvent;

    fn handle(&mut self, now: Time, input: Input<SinkCommand>) {
        match input {
            Input::Packet(packet) => match packet.datagram.body {
                Body::Symbol(header) => {
                    self.on_data(now, packet.datagram.flow, header, packet.ecn == Ecn::Ce);
                }
                _ => self.unexpected += 1,
            },
            Input::Command(SinkCommand::Expect(expect)) => self.expect(expect),
            Input::Command(SinkCommand::Abandon { flow }) => self.abandon(flow),
            Input::Command(_) => self.unexpected += 1,
        }
    }

    fn poll(&mut self, now: Time) -> Output<SinkEvent> {
        if let Some(output) = self.outbox.pop_front() {
            return output;
        }
        if self.look_at.is_some_and(|at| at <= now) {
            self.look_for_silence(now);
        }
        if let Some((due, ())) = self.pulls.poll(now) {
            let session = &mut self.sessions[due as usize];
            let pull = Pull::any(session.asked.one_more());
            return session.route.back(Body::Pull(pull));
        }
        Output::Wake(match (self.pulls.wake(), self.look_at) {
            (Some(pull), Some(look)) => Some(pull.min(look)),
            (one, other) => one.or(other),
        })
    }
}
