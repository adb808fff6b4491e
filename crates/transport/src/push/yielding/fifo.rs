//! A drop-tail queue that some flows share, packet by packet, with an ACK for each packet: yielding flows, weighted ones and a
//! model of TCP.

use std::collections::{BTreeMap, BTreeSet};

use headwater_units::{Duration, PacketNumber, Packets, Theta, Time};

use super::{Yielding, YieldingConfig, Yields};
use crate::push::wfcc::{Feedback, Wfcc, WfccConfig};
use headwater_flow::marks::DelayMark;

/// Flows that go by delay look for the empty path together, as `push_flow/refresh.rs` has them do in the end.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// A link and its queue.
#[derive(Clone, Copy)]
pub(super) struct Fifo {
    /// Time of a packet on the link.
    pub(super) packet: Duration,
    /// The round trip without any queue.
    pub(super) empty: Duration,
    /// Packets that wait at most.
    pub(super) depth: usize,
}

/// The congestion control of a sender.
pub(super) enum Rule {
    Yielding(Box<Yielding>),
    /// An ordinary push flow that goes by delay marks, and what is due of them.
    Weighted(Box<Wfcc>, f64),
    Tcp(Tcp),
}

/// TCP in congestion avoidance and slow start, with CUBIC's factors (RFC 9438): 0.7 and C = 0.4, and Reno's growth where that is more.
pub(super) struct Tcp {
    window: f64,
    most: f64,
    since: Option<Time>,
    threshold: f64,
}

impl Tcp {
    fn on_ack(&mut self, now: Time, rtt: Duration) {
        if self.window < self.threshold {
            self.window += 1.0;
            return;
        }
        let since = *self.since.get_or_insert(now);
        let t = (now.since(since) + rtt).as_secs_f64();
        let k = (self.most * 0.3 / 0.4).cbrt();
        let cubic = 0.4 * (t - k).powi(3) + self.most;
        let target = cubic.min(1.5 * self.window);
        self.window += ((target - self.window) / self.window).max(0.53 / self.window);
    }

    fn on_loss(&mut self, now: Time) {
        self.most = self.window;
        self.window = (0.7 * self.window).max(2.0);
        (self.threshold, self.since) = (self.window, Some(now));
    }
}

/// A flow and what it has done.
pub(super) struct Flow {
    pub(super) rule: Rule,
    /// It sends from then on.
    pub(super) from: Time,
    pub(super) until: Time,
    next: u64,
    flying: BTreeSet<u64>,
    /// When each was sent.
    sent: BTreeMap<u64, Time>,
    /// Losses of packets below it are answered.
    recovering: u64,
    least: Duration,
    pub(super) delivered: Vec<Time>,
}

impl Flow {
    fn new(rule: Rule, from: Time) -> Self {
        Flow {
            rule,
            from,
            until: Time::MAX,
            next: 0,
            flying: BTreeSet::new(),
            sent: BTreeMap::new(),
            recovering: 0,
            least: Duration::MAX,
            delivered: Vec::new(),
        }
    }

    pub(super) fn gentle(from: Time) -> Self {
        Flow::new(Rule::Yielding(Box::new(Yielding::new(YieldingConfig::default(), Theta::ONE))), from)
    }

    pub(super) fn weighted(from: Time, theta: f64) -> Self {
        let wfcc = Wfcc::new(WfccConfig::default(), Theta::new(theta));
        Flow::new(Rule::Weighted(Box::new(wfcc), 0.0), from)
    }

    pub(super) fn tcp(from: Time) -> Self {
        let tcp = Tcp { window: 10.0, most: 0.0, since: None, threshold: f64::MAX };
        Flow::new(Rule::Tcp(tcp), from)
    }

    pub(super) fn yields(&self) -> Yields {
        match &self.rule {
            Rule::Yielding(rule) => rule.yields(),
            Rule::Weighted(..) | Rule::Tcp(_) => Yields::default(),
        }
    }

    pub(super) fn window(&self) -> Packets {
        match &self.rule {
            Rule::Yielding(rule) => rule.window(),
            Rule::Weighted(rule, _) => rule.window(),
            Rule::Tcp(tcp) => Packets::new(tcp.window),
        }
    }

    /// Packets delivered in this time, of what the link carries in it.
    pub(super) fn share(&self, fifo: Fifo, from: Time, until: Time) -> f64 {
        let packets = self.delivered.iter().filter(|at| (from..until).contains(at)).count();
        packets as f64 * fifo.packet.as_secs_f64() / until.since(from).as_secs_f64()
    }

    /// The ACK of a packet has come; three later ones tell of a loss.
    fn on_ack(&mut self, now: Time, number: u64) {
        let rtt = now.since(self.sent[&number]);
        self.least = self.least.min(rtt);
        self.flying.remove(&number);
        let lost: Vec<u64> = self.flying.range(..number.saturating_sub(2)).copied().collect();
        for number in &lost {
            self.flying.remove(number);
        }
        let feedback = Feedback {
            acked: 1,
            marked: 0,
            lost: lost.len() as u64,
            largest: PacketNumber(number),
            next: PacketNumber(self.next),
            limited: true,
            by_routers: false,
        };
        match &mut self.rule {
            Rule::Yielding(rule) => rule.on_ack(now, &feedback, 0, Some((rtt, self.least))),
            Rule::Weighted(rule, due) => {
                *due += DelayMark::default().share(rtt - self.least, self.least);
                let marked = u64::from(*due >= 1.0);
                *due -= marked as f64;
                rule.on_ack(now, &Feedback { marked, ..feedback });
            }
            Rule::Tcp(tcp) if lost.iter().any(|number| *number >= self.recovering) => {
                tcp.on_loss(now);
                self.recovering = self.next;
            }
            Rule::Tcp(tcp) => tcp.on_ack(now, rtt),
        }
    }
}

/// Next step on the path of a packet of a flow.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    /// The link is done with it.
    Leave,
    /// Its ACK is back.
    Ack,
    /// Long after: had it been lost, somebody should notice.
    Timeout,
    Send,
}

/// Lets the flows run until then.
pub(super) fn run(fifo: Fifo, flows: &mut [Flow], until: Time) {
    let mut agenda: BTreeSet<(Time, Step, usize, u64)> = BTreeSet::new();
    let (mut waiting, mut free_at) = (0, Time::ZERO);
    // The first sender is drawn, by a rule that repeats itself: senders in step would always hit the same one.
    let mut drawn = 1_u64;
    let mut jitter = move || {
        drawn = drawn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        Duration::from_nanos((drawn >> 33) % fifo.packet.as_nanos())
    };
    for (index, flow) in flows.iter().enumerate() {
        agenda.insert((flow.from, Step::Send, index, 0));
    }
    while let Some((now, step, index, number)) = agenda.pop_first() {
        if now >= until {
            break;
        }
        let flow = &mut flows[index];
        match step {
            Step::Leave => {
                waiting -= 1;
                flow.delivered.push(now);
                agenda.insert((now + fifo.empty + jitter(), Step::Ack, index, number));
            }
            Step::Ack => flow.on_ack(now, number),
            Step::Timeout => {
                if flow.flying.contains(&number) {
                    flow.flying.clear();
                    match &mut flow.rule {
                        Rule::Yielding(rule) => rule.on_rto(now),
                        Rule::Weighted(rule, _) => rule.on_rto(now, 1),
                        Rule::Tcp(tcp) => tcp.on_loss(now),
                    }
                }
            }
            Step::Send => {}
        }
        let look = Duration::from_millis(20) + (fifo.empty + fifo.packet * fifo.depth as u64) * 3;
        let looks =
            !matches!(flow.rule, Rule::Tcp(_)) && now.as_nanos() % LOOK_EVERY.as_nanos() < look.as_nanos();
        let window = if looks { flow.window().get().min(1.0) } else { flow.window().get() };
        while now < flow.until && flow.flying.len() as f64 + 1.0 <= window {
            let number = flow.next;
            flow.next += 1;
            flow.flying.insert(number);
            flow.sent.insert(number, now);
            agenda.insert((now + fifo.empty * 3 + Duration::from_millis(200), Step::Timeout, index, number));
            if waiting < fifo.depth {
                waiting += 1;
                free_at = free_at.max(now) + fifo.packet;
                agenda.insert((free_at, Step::Leave, index, number));
            }
        }
    }
}
