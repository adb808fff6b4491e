//! The rate that a flow can count on before it has sent anything ([`headwater_wire::Start`]): its part of the links at its ends,
//! as far as their nodes have stated what these carry.
//!
//! From the same facts follow the first window of a pulled task, and the transport of a task whose request leaves the choice.
//!
//! The flows of a source have equal parts of its uplink. The flows of a receiver share its downlink by max-min. Links between, except
//! those of racks, and neighbours in the rack are ignored: the first ACKs show the rest.

use headwater_units::{BitRate, NodeId};
use headwater_wire::{Class, Delivery, NodeInfo, Request, SpreadRule, Start, on_the_wire};

use super::Known;
use crate::tasks::Task;

/// Number of flows to one receiver from which on it counts as incast.
const INCAST: usize = 8;
/// Packets that pulls of a task keep in flight at least, all sources together: hosts take their time too.
const LEAST_PULLED: f64 = 48.0;
/// And at most: 10 Gbit/s over 5 ms.
const MOST_PULLED: f64 = 4096.0;
/// Least symbols that each source pushes.
const LEAST_EACH: f64 = 2.0;

impl Known<'_> {
    /// For new flows of one task, from each of these sources.
    pub(crate) fn starts(&self, receiver: NodeId, sources: &[NodeId]) -> Vec<Option<Start>> {
        let info = |node: NodeId| self.catalog.node(node).map(|node| &node.info);
        let to = info(receiver).filter(|_| self.config.begin_at_stated_rates);
        let Some((to, downlink)) = to.and_then(|to| Some((to, to.downlink?))) else {
            return vec![None; sources.len()];
        };
        // The receiver's other flows leave this much if each has as much as one of these.
        let (new, others) = (sources.len() as u64, self.tasks.flows_to(receiver) as u64);
        let part = new as f64 / (new + others).max(1) as f64;
        let downlink = downlink.mul_f64(part);
        let mut candidates: Vec<(usize, BitRate, Start)> = Vec::with_capacity(sources.len());
        for (place, source) in sources.iter().enumerate() {
            let Some(from) = info(*source) else { continue };
            let (Some(uplink), Some(rtt)) = (from.uplink, from.rtt.max(to.rtt)) else { continue };
            let flows = self.tasks.load(*source) as u64 + 1;
            let uplink = self.between(from, to).map_or(uplink, |rack| rack.min(uplink));
            let start = Start { rate: BitRate::ZERO, rtt };
            candidates.push((place, BitRate::new(uplink.get() / flows), start));
        }
        // The slowest first: what it cannot use is for the others. Sources of which nothing is known count with an equal part.
        candidates.sort_by_key(|(place, uplink, _)| (*uplink, *place));
        let (mut left, mut takers) = (downlink.get(), new);
        let mut starts = vec![None; sources.len()];
        for (place, uplink, start) in candidates {
            let rate = uplink.get().min(left / takers.max(1));
            (left, takers) = (left - rate, takers - 1);
            starts[place] = Some(Start { rate: BitRate::new(rate), ..start }).filter(|_| rate > 0);
        }
        starts
    }

    /// Which transport a new task comes by.
    pub(crate) fn delivery(&self, request: &Request, task: &Task, starts: &[Option<Start>]) -> Delivery {
        let window = pulled_window(starts, task.facts.symbol_size);
        match request.delivery {
            // Trees and computed rates are not asked for: they are given to the receivers of a cast where the network has them.
            None | Some(Delivery::Trees { .. } | Delivery::Rate { .. }) => {
                self.choose(request, task, starts, window)
            }
            Some(Delivery::Pull { initial_window }) => {
                Delivery::Pull { initial_window: window.unwrap_or(initial_window) }
            }
            Some(asked) => asked,
        }
    }

    /// Where a request leaves it to the controller, sources push, but for incast where it is known that switches trim, and how
    /// fast to pull: there a receiver that pulls has as much of its link or more, and its senders do not send most symbols
    /// twice (docs/push-or-pull.md).
    fn choose(
        &self,
        request: &Request,
        task: &Task,
        starts: &[Option<Start>],
        window: Option<u16>,
    ) -> Delivery {
        let flows = starts.len() + self.tasks.flows_to(request.receiver);
        let is_plain = task.facts.class == Class::Bulk && task.facts.spread == SpreadRule::Listed;
        match window {
            Some(initial_window) if request.trims && is_plain && flows >= INCAST => {
                Delivery::Pull { initial_window }
            }
            _ => Delivery::Push,
        }
    }

    /// Capacity between two nodes of the racks' own links, if that is stated.
    fn between(&self, from: &NodeInfo, to: &NodeInfo) -> Option<BitRate> {
        let (one, other) = (from.rack.as_ref(), to.rack.as_ref());
        if one.map(|(rack, _)| rack) == other.map(|(rack, _)| rack) {
            return None;
        }
        let capacity = |(rack, _): &(String, Option<BitRate>)| self.catalog.rack_capacity(rack);
        one.into_iter().chain(other).filter_map(capacity).min()
    }
}

/// Symbols that each source of a pulled task pushes unasked, if the capacities of all their lines are known. Unlike a
/// pushing source's window this one never grows: what is pushed first is what stays in flight (SCDP §III-D). So it is a
/// quarter more than a round trip carries, shared out evenly. It never shrinks either, so it is no more than that: on a
/// busy machine the round trip to the controller is measured too long.
fn pulled_window(starts: &[Option<Start>], symbol_size: u16) -> Option<u16> {
    let known: Vec<&Start> = starts.iter().flatten().collect();
    if known.is_empty() || known.len() < starts.len() {
        return None;
    }
    let carried = |start: &&Start| (start.rate * start.rtt).get() as f64;
    let packets = known.iter().map(carried).sum::<f64>() / on_the_wire(symbol_size).get() as f64;
    let all = (1.25 * packets).clamp(LEAST_PULLED, MOST_PULLED);
    Some((all / known.len() as f64).ceil().max(LEAST_EACH) as u16)
}
