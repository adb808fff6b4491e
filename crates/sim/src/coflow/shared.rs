//! Flows that share the ports by weighted max-min: no flow's rate per weight can rise unless that of a flow falls which
//! has no more.
//!
//! All flows of a pair of ports have the same rate per weight, so rates are found per pair, of which there are at most the square
//! of the number of ports. A pair counts what it has sent per weight; a flow ends when that count reaches what it was when the flow
//! was added, and its size per weight more. So an end costs its pair one step in a sorted list, and not a pass over all its flows.

use headwater_units::Theta;

use super::state::{FlowNumber, Flows, MOMENT};

/// All pairs with flows.
pub(super) struct Shared {
    pairs: Vec<Pair>,
    /// The pairs at every port: egress ports, then ingress ports.
    at_port: Vec<Vec<u32>>,
    /// Every flow, by pair, then the order in which they end.
    members: Vec<Member>,
    since: f64,
    first_end: f64,
    /// Capacity left of every port while rates are found, and the weight of its pairs without one.
    left: Vec<f64>,
    weight: Vec<f64>,
}

struct Pair {
    egress: u32,
    ingress: u32,
    /// Its members that have not ended: a range that shrinks from below.
    first: usize,
    end: usize,
    /// Their weights' sum.
    weight: f64,
    /// Bits per weight since the beginning.
    count: f64,
    /// Bits per weight and nanosecond; below zero while it is not found.
    rate: f64,
    /// When its first member ends.
    ends: f64,
}

struct Member {
    flow: FlowNumber,
    weight: f64,
    /// The count of its pair at which it ends.
    until: f64,
}

impl Shared {
    /// From now on; `shares` are flows and their weights, in any order.
    pub(super) fn new(
        now: f64,
        flows: &mut Flows,
        shares: impl Iterator<Item = (FlowNumber, Theta)>,
    ) -> Shared {
        let ports = flows.egress.len();
        let pair = |flow: FlowNumber| (flows.source[flow as usize], flows.receiver[flow as usize]);
        let mut members: Vec<Member> = shares
            .map(|(flow, weight)| {
                let weight = weight.get();
                Member { flow, weight, until: flows.left[flow as usize] / weight }
            })
            .collect();
        members.sort_unstable_by(|a, b| {
            pair(a.flow).cmp(&pair(b.flow)).then(a.until.total_cmp(&b.until)).then(a.flow.cmp(&b.flow))
        });
        let (mut pairs, mut at_port, mut first) = (Vec::new(), vec![Vec::new(); 2 * ports], 0);
        for own in members.chunk_by(|a, b| pair(a.flow) == pair(b.flow)) {
            let (source, receiver) = pair(own[0].flow);
            let (egress, ingress) = (u32::from(source.0), ports as u32 + u32::from(receiver.0));
            at_port[egress as usize].push(pairs.len() as u32);
            at_port[ingress as usize].push(pairs.len() as u32);
            let (end, weight) = (first + own.len(), own.iter().map(|member| member.weight).sum());
            pairs.push(Pair { egress, ingress, first, end, weight, count: 0.0, rate: 0.0, ends: now });
            first = end;
        }
        let mut shared = Shared {
            pairs,
            at_port,
            members,
            since: now,
            first_end: now,
            left: Vec::new(),
            weight: Vec::new(),
        };
        shared.fill(flows);
        shared
    }

    /// When the next flow ends, and others get more.
    pub(super) fn first_end(&self) -> f64 {
        self.first_end
    }

    /// Moves everybody on to `now`, and shares anew if a flow has ended.
    pub(super) fn advance(&mut self, now: f64, flows: &mut Flows) {
        let passed = now - self.since;
        self.since = now;
        let mut any = false;
        for pair in self.pairs.iter_mut().filter(|pair| pair.first < pair.end) {
            pair.count += pair.rate * passed;
            // Members that end within the same moment have counts that differ by rounding.
            let until = if pair.ends <= now + MOMENT { self.members[pair.first].until } else { continue };
            let until = f64::max(until, pair.count) + pair.rate * MOMENT;
            while pair.first < pair.end && self.members[pair.first].until <= until {
                let member = &self.members[pair.first];
                flows.end(member.flow, pair.ends);
                pair.weight -= member.weight;
                pair.first += 1;
                any = true;
            }
        }
        if any {
            self.fill(flows);
        }
    }

    /// Brings what is left of every flow up to date, and of every coflow what it has sent.
    pub(super) fn settle(&self, flows: &mut Flows) {
        for pair in &self.pairs {
            for member in &self.members[pair.first..pair.end] {
                let left = (member.until - pair.count) * member.weight;
                flows.send(member.flow, flows.left[member.flow as usize] - left);
            }
        }
    }

    /// Progressive filling: the port whose flows get the least per weight is full first, its flows stay there, the rest goes on.
    fn fill(&mut self, flows: &Flows) {
        self.left.clear();
        self.left.extend(flows.egress.iter().chain(&flows.ingress));
        self.weight.clear();
        self.weight.resize(self.left.len(), 0.0);
        for pair in self.pairs.iter_mut().filter(|pair| pair.first < pair.end) {
            pair.rate = -1.0;
            self.weight[pair.egress as usize] += pair.weight;
            self.weight[pair.ingress as usize] += pair.weight;
        }
        let mut open: Vec<u32> =
            (0..).zip(&self.weight).filter(|(_, w)| **w > 0.0).map(|(at, _)| at).collect();
        let mut levels: Vec<f64> = self.left.iter().zip(&self.weight).map(|(left, w)| left / w).collect();
        while let Some(least) = (0..open.len())
            .reduce(|a, b| if levels[open[b] as usize] < levels[open[a] as usize] { b } else { a })
        {
            let port = open.swap_remove(least) as usize;
            let level = levels[port].max(0.0);
            for &pair in &self.at_port[port] {
                let pair = &mut self.pairs[pair as usize];
                if pair.rate >= 0.0 || pair.first == pair.end {
                    continue;
                }
                pair.rate = level;
                let other = pair.egress as usize + pair.ingress as usize - port;
                self.left[other] -= level * pair.weight;
                self.weight[other] -= pair.weight;
                levels[other] = self.left[other] / self.weight[other];
            }
            open.retain(|port| self.weight[*port as usize] > ROUNDING);
        }
        self.ends(flows);
    }

    /// When pairs' first members end at the rates that were found.
    fn ends(&mut self, flows: &Flows) {
        self.first_end = f64::INFINITY;
        for pair in self.pairs.iter_mut().filter(|pair| pair.first < pair.end) {
            let left = self.members[pair.first].until - pair.count;
            pair.ends = flows.grid.end(self.since + left.max(0.0) / pair.rate);
            self.first_end = self.first_end.min(pair.ends);
        }
    }
}

/// Rest of a sum of weights that counts as rounding.
const ROUNDING: f64 = 1e-9;
