//! Measurements of a run: samples while it runs, rows when something ends, totals at the end.

use super::{Flowing, Machine, World, fetch_of};
use crate::packet::Event;
use crate::packet::records::{Counts, FlowRow, Records, SampleRow};
use crate::packet::setup::Transport;

impl World {
    pub(super) fn sample(&mut self) {
        let Some(sampling) = self.setup.sample.clone() else { return };
        let t = self.now;
        self.delivery.agenda.push((t + sampling.every).as_nanos(), Event::Sample);
        for (name, link) in &sampling.queues {
            let value = self.delivery.network.queue_len(t, link.0) as f64;
            self.records.samples.push(SampleRow::new(t, name, "queue", value));
        }
        if !sampling.flows {
            return;
        }
        let mut samples = Vec::new();
        for task in 0..self.tasks.len() {
            let useful = self.useful(task);
            let gained = useful - std::mem::replace(&mut self.sampled[task], useful);
            let running = &self.tasks[task];
            // Each member of a group has all of it, if all are served together: its rate is that of one.
            let together = !running.trees.is_empty() || self.is_scheduled();
            let alike = if together { running.receivers.len() } else { 1 };
            let rate = gained as f64 / alike as f64 / sampling.every.as_secs_f64();
            if running.receivers.is_empty() || running.finished.is_some_and(|at| at < t) {
                continue;
            }
            let name = &self.setup.tasks[task].name;
            samples.push(SampleRow::new(t, name, "goodput", rate));
            for (index, &Flowing { flow, source: host, .. }) in running.flows.iter().enumerate() {
                let entity = match running.flows.len() {
                    1 => name.clone(),
                    _ => format!("{name}.{index}"),
                };
                let mut note = |quantity, value| samples.push(SampleRow::new(t, &entity, quantity, value));
                if let Some(&sender) = running.senders.get(index) {
                    if let Machine::Sender(sender) = self.machine(sender) {
                        let stats = sender.stats();
                        note("window", stats.window.get());
                        note("mark_fraction", stats.mark_fraction);
                        note("in_flight", stats.in_flight as f64);
                        if let Some(rtt) = stats.rtt {
                            note("rtt", rtt.as_secs_f64());
                        }
                    }
                } else if let Some(&source) = self.sources.get(host as usize)
                    && let Machine::Source(source) = self.machine(source)
                    && let Some(stats) = source.flow(flow)
                {
                    note("window", stats.window.get());
                    note("mark_fraction", stats.mark_fraction);
                    note("theta", stats.theta.get());
                    note("in_flight", stats.in_flight as f64);
                    if let Some(rtt) = stats.rtt {
                        note("rtt", rtt.as_secs_f64());
                    }
                }
            }
        }
        self.records.samples.extend(samples);
    }

    /// Whether switches compute what sources send at.
    fn is_scheduled(&self) -> bool {
        matches!(&self.setup.transport, Transport::Coded(coded) if coded.rates.is_some())
    }

    /// New symbols or packets that a task has received.
    fn useful(&self, task: usize) -> u64 {
        let running = &self.tasks[task];
        let sinks = (0..running.flows.len()).filter_map(|index| Some(self.received(task, index)?.distinct));
        running.useful + sinks.sum::<u64>()
    }

    /// Records each flow of a task, before the machines forget.
    pub(super) fn note_flows(&mut self, task: u32) {
        let running = &self.tasks[task as usize];
        let mut rows = Vec::new();
        for (index, &Flowing { flow, source: host, start, last, .. }) in running.flows.iter().enumerate() {
            let mut row = FlowRow { task, flow, source: host, start, last, ..FlowRow::default() };
            if let Some(&sender) = running.senders.get(index) {
                if let Machine::Sender(sender) = self.machine(sender) {
                    let stats = sender.stats();
                    (row.sent, row.lost, row.marked) = (stats.sent, stats.lost, stats.marked);
                    row.timeouts = stats.timeouts;
                }
                if let Some(stats) = self.received(task as usize, index) {
                    (row.useful, row.trimmed) = (stats.distinct, stats.trimmed);
                    row.unneeded = (stats.arrived - stats.trimmed).saturating_sub(stats.distinct);
                }
            } else if let Some(&source) = self.sources.get(host as usize)
                && let Machine::Source(source) = self.machine(source)
                && let Some(stats) = source.flow(flow)
            {
                row.sent = stats.counters.sent.get();
                row.lost = stats.counters.lost.get();
                row.marked = stats.counters.marked.get();
                row.timeouts = stats.counters.timeouts;
                row.theta = stats.theta.get();
            }
            rows.push(row);
        }
        for &endpoint in running.receivers.iter().filter(|_| running.senders.is_empty()) {
            let slot = self.endpoints[endpoint as usize].slot as usize;
            let Machine::Receivers(receivers) = &mut self.slots[slot].machine else { continue };
            let stats = receivers.stats(self.now, fetch_of(endpoint));
            for stats in stats.into_iter().flat_map(|stats| stats.flows) {
                if let Some(row) = rows.iter_mut().find(|row| row.flow == stats.flow) {
                    row.useful = stats.useful;
                }
            }
        }
        let total: u64 = rows.iter().map(|row| row.useful).sum();
        for row in &mut rows {
            row.share = row.useful as f64 / total.max(1) as f64;
        }
        self.records.flows.extend(rows);
    }

    /// Records the counters of a receiver that pulls, before its machine forgets it.
    pub(super) fn note_receiver(&mut self, task: u32, place: usize) {
        let running = &mut self.tasks[task as usize];
        let endpoint = running.receivers[place];
        let slot = self.endpoints[endpoint as usize].slot as usize;
        let Machine::Receivers(receivers) = &mut self.slots[slot].machine else { return };
        if running.tallies.is_empty() {
            return;
        }
        let Some(stats) = receivers.stats(self.now, fetch_of(endpoint)) else { return };
        for (n, flow) in stats.flows.iter().enumerate() {
            if let Some(tally) = running.tallies.get_mut((flow.flow.0 & 0xff) as usize) {
                // A tree has many receivers, any other flow one.
                let (lost, timeouts) =
                    if running.trees.is_empty() { (0, 0) } else { (tally.lost, tally.timeouts) };
                tally.lost = lost + flow.lost;
                // A session counts those of its flows together.
                tally.timeouts = timeouts + if n == 0 { stats.timeouts } else { 0 };
            }
        }
    }

    /// Records the counts of flows that are pulled, at the end of the run.
    fn note_tallies(&mut self) {
        for task in 0..self.tasks.len() as u32 {
            let receptions = self.tasks[task as usize].receptions.iter().enumerate();
            let open: Vec<usize> = receptions.filter(|(_, it)| !it.done).map(|(place, _)| place).collect();
            if !self.tasks[task as usize].receivers.is_empty() {
                open.into_iter().for_each(|place| self.note_receiver(task, place));
            }
        }
        for row in &mut self.records.flows {
            let tallies = &self.tasks[row.task as usize].tallies;
            let Some(tally) = tallies.get((row.flow.0 & 0xff) as usize) else { continue };
            (row.useful, row.trimmed) = (tally.useful, tally.trimmed);
            row.unneeded = tally.whole.saturating_sub(tally.useful);
            (row.lost, row.timeouts) = (tally.lost, tally.timeouts);
            let all: u64 = tallies.iter().map(|tally| tally.useful).sum();
            row.share = row.useful as f64 / all.max(1) as f64;
        }
    }

    pub(super) fn finish(mut self) -> Records {
        for task in 0..self.tasks.len() as u32 {
            let running = &self.tasks[task as usize];
            if running.finished.is_none() && !running.receivers.is_empty() {
                self.note_flows(task);
            }
        }
        self.note_tallies();
        self.note_trees();
        for task in 0..self.tasks.len() {
            self.tasks[task].useful = self.useful(task);
        }
        for row in &mut self.records.tasks {
            row.useful = self.tasks[row.task as usize].useful;
        }
        for task in 0..self.tasks.len() as u32 {
            if !self.tasks[task as usize].over {
                self.tasks[task as usize].failed = true;
                self.left += usize::from(self.setup.tasks[task as usize].is_awaited());
                self.over(task);
            }
        }
        self.records.tasks.sort_by_key(|row| row.task);
        self.records.flows.sort_by_key(|row| (row.task, row.flow));
        let mut counts = Counts {
            ended: self.now,
            events: self.events,
            faults: self.delivery.network.faults,
            corrupt: self.corrupt,
            in_flight: self.delivery.bodies.len() as u64,
            pending: self.delivery.agenda.len() as u64,
            ..Counts::default()
        };
        for link in 0..self.delivery.network.link_count() {
            let stats = self.delivery.network.stats(self.now, link);
            counts.add(&stats);
            self.records.links.push(stats);
        }
        self.records.tallies = std::mem::take(&mut self.delivery.network.tallies);
        for (host, &endpoint) in self.sources.iter().enumerate() {
            if let Machine::Source(source) = self.machine(endpoint) {
                let flows: Vec<_> = source.flows().map(|flow| (host as u32, flow.flow)).collect();
                self.records.flows_left.extend(flows);
            }
        }
        self.records.counts = counts;
        self.records
    }
}
