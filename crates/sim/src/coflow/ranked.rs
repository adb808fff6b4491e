//! Flows in the order of their ranks: each takes all that those before it leave of its two ports.
//!
//! A flow that moves leaves nothing of at least one of its ports. So no more flows move than there are ports, and of the flows of one
//! rank between two hosts only the first can. Each rank keeps a bit per pair of ports that still has a flow; a search for the next
//! flow that moves is then a few words per port, not a walk over all flows.

use headwater_policy::coflow::Port;
use headwater_units::Rank;

use super::state::{FlowNumber, Flows, MOMENT};

/// Rest of a port that counts as nothing, as a part of its capacity.
const ROUNDING: f64 = 1e-9;

/// Everybody in order, and who moves.
pub(super) struct Ranked {
    ranks: Vec<OneRank>,
    running: Vec<Running>,
    since: f64,
    egress: Vec<f64>,
    ingress: Vec<f64>,
    /// How many rows have a flow to each receiver.
    wanted: Vec<u32>,
    /// A bit per receiver to which there is a flow.
    wanted_bits: Vec<u64>,
    /// A bit per receiver to which there is a flow and that has something left.
    receivers: Vec<u64>,
}

/// The flows of one rank.
struct OneRank {
    /// By source; those that have no flow are not there.
    rows: Vec<Row>,
    /// Flows that have not ended.
    open: usize,
}

struct Row {
    source: u16,
    /// A bit per receiver for which there is a flow.
    receivers: Vec<u64>,
    /// By receiver, then number.
    flows: Vec<(Port, FlowNumber)>,
}

struct Running {
    flow: FlowNumber,
    /// Bits per nanosecond.
    rate: f64,
    end: f64,
    /// Its rank and row.
    place: (usize, usize),
}

impl Ranked {
    /// From now on; `shares` are flows and their ranks, in any order.
    pub(super) fn new(
        now: f64,
        flows: &mut Flows,
        shares: impl Iterator<Item = (FlowNumber, Rank)>,
    ) -> Ranked {
        let mut order: Vec<(Rank, FlowNumber)> = shares.map(|(flow, rank)| (rank, flow)).collect();
        let pair = |flow: FlowNumber| (flows.source[flow as usize], flows.receiver[flow as usize]);
        let key = |(rank, flow): &(Rank, FlowNumber)| (*rank, pair(*flow), *flow);
        if !order.is_sorted_by_key(key) {
            order.sort_unstable_by_key(key);
        }
        let words = flows.ingress.len().div_ceil(64);
        let row = |row: &[(Rank, FlowNumber)]| {
            let mut receivers = vec![0; words];
            let list: Vec<_> = row.iter().map(|(_, flow)| (flows.receiver[*flow as usize], *flow)).collect();
            list.iter().for_each(|(receiver, _)| set(&mut receivers, *receiver));
            Row { source: flows.source[row[0].1 as usize].0, receivers, flows: list }
        };
        let ranks = order.chunk_by(|a, b| a.0 == b.0).map(|rank| OneRank {
            rows: rank.chunk_by(|a, b| pair(a.1).0 == pair(b.1).0).map(row).collect(),
            open: rank.len(),
        });
        let ranks: Vec<OneRank> = ranks.collect();
        let mut wanted = vec![0; flows.ingress.len()];
        let mut wanted_bits = vec![0; words];
        for row in ranks.iter().flat_map(|rank| &rank.rows) {
            row.flows.chunk_by(|a, b| a.0 == b.0).for_each(|flows| wanted[usize::from(flows[0].0.0)] += 1);
            wanted_bits.iter_mut().zip(&row.receivers).for_each(|(all, own)| *all |= own);
        }
        let mut ranked = Ranked {
            ranks,
            running: Vec::new(),
            since: now,
            egress: Vec::new(),
            ingress: Vec::new(),
            wanted,
            wanted_bits,
            receivers: Vec::new(),
        };
        ranked.serve(flows);
        ranked
    }

    /// When the next flow ends, and others move in its place.
    pub(super) fn first_end(&self) -> f64 {
        self.running.iter().map(|running| running.end).fold(f64::INFINITY, f64::min)
    }

    /// Moves everybody on to `now`, and serves anew if a flow has ended.
    pub(super) fn advance(&mut self, now: f64, flows: &mut Flows) {
        let passed = now - self.since;
        self.since = now;
        let mut any = false;
        for running in &self.running {
            if running.end > now + MOMENT {
                flows.send(running.flow, running.rate * passed);
                continue;
            }
            any = true;
            flows.end(running.flow, running.end);
            let (rank, row) = running.place;
            self.ranks[rank].open -= 1;
            let row = &mut self.ranks[rank].rows[row];
            let receiver = flows.receiver[running.flow as usize];
            if row.first(receiver, flows).is_none() {
                clear(&mut row.receivers, receiver);
                let rows = &mut self.wanted[usize::from(receiver.0)];
                *rows -= 1;
                if *rows == 0 {
                    clear(&mut self.wanted_bits, receiver);
                }
            }
        }
        if any {
            self.serve(flows);
        }
    }

    /// Gives the ports out anew.
    fn serve(&mut self, flows: &mut Flows) {
        for running in self.running.drain(..) {
            flows.speed[flows.coflow[running.flow as usize] as usize] = 0.0;
        }
        self.egress.clone_from(&flows.egress);
        self.ingress.clone_from(&flows.ingress);
        self.receivers.clone_from(&self.wanted_bits);
        for rank in 0..self.ranks.len() {
            if self.ranks[rank].open == 0 {
                continue;
            }
            for row in 0..self.ranks[rank].rows.len() {
                self.serve_row(rank, row, flows);
            }
            if self.receivers.iter().all(|word| *word == 0) {
                break;
            }
        }
        for running in &self.running {
            flows.speed[flows.coflow[running.flow as usize] as usize] += running.rate;
        }
    }

    fn serve_row(&mut self, rank: usize, row: usize, flows: &Flows) {
        let list = &self.ranks[rank].rows[row];
        let source = usize::from(list.source);
        if self.egress[source] <= 0.0 {
            return;
        }
        for word in 0..self.receivers.len() {
            let mut open = list.receivers[word] & self.receivers[word];
            while open != 0 && self.egress[source] > 0.0 {
                let receiver = word * 64 + open.trailing_zeros() as usize;
                open &= open - 1;
                let port = Port(receiver as u16);
                let Some(flow) = list.first(port, flows) else { continue };
                let rate = self.egress[source].min(self.ingress[receiver]);
                self.egress[source] = less(self.egress[source], rate, flows.egress[source]);
                self.ingress[receiver] = less(self.ingress[receiver], rate, flows.ingress[receiver]);
                if self.ingress[receiver] <= 0.0 {
                    clear(&mut self.receivers, port);
                }
                let end = flows.grid.end(self.since + flows.left[flow as usize] / rate);
                self.running.push(Running { flow, rate, end, place: (rank, row) });
            }
        }
    }
}

impl Row {
    /// The first flow to this receiver that has not ended.
    fn first(&self, receiver: Port, flows: &Flows) -> Option<FlowNumber> {
        let begin = self.flows.partition_point(|(other, _)| *other < receiver);
        let to_it = self.flows[begin..].iter().take_while(|(other, _)| *other == receiver);
        to_it.map(|(_, flow)| *flow).find(|flow| flows.left[*flow as usize] > 0.0)
    }
}

fn less(left: f64, taken: f64, capacity: f64) -> f64 {
    let left = left - taken;
    if left > capacity * ROUNDING { left } else { 0.0 }
}

fn set(bits: &mut [u64], Port(port): Port) {
    bits[usize::from(port) / 64] |= 1 << (port % 64);
}

fn clear(bits: &mut [u64], Port(port): Port) {
    bits[usize::from(port) / 64] &= !(1 << (port % 64));
}
