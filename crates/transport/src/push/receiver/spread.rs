//! The plan of which source sends what (docs/decisions/0025).
//!
//! Every flow is kept supplied for two turnarounds and a bit, with whole blocks while there are plenty, so that most
//! blocks come from one source and need no decoding. When little is left, the rest is cut so that all flows end
//! together; a flow that runs dry takes unsent work off the end of a slower one's list; and where nothing unsent is
//! left it sends repair symbols of the blocks that are late. The symbols that a silent flow owed go to the others.

use headwater_machine::SortedMap;
use headwater_units::{BlockIndex, Duration, FlowId, Time};
use headwater_wire::{MAX_WORK, Work};

use super::Receiver;
use super::blocks::Blocks;
use super::flow::{Flow, REVIVAL};
use super::stripes::{Pace, Stripe};
use crate::ReceiverEvent;

/// Least time ahead for which flows are supplied: a wake-up may be late by some milliseconds on a busy machine.
const LEAST_HORIZON: Duration = Duration::from_millis(20);
/// Replanning is not worth it more often.
const LEAST_INTERVAL: Duration = Duration::from_millis(2);
pub(super) const MOST_INTERVAL: Duration = Duration::from_millis(20);
/// In an overlay, where a stripe may come late, a receiver to which nothing comes plans more and more rarely: after a quarter of the time
/// that it has waited. Then there is only silence to be noticed.
const IDLE_PART: u64 = 4;
const LONGEST_IDLE_INTERVAL: Duration = Duration::from_millis(100);
/// Least interval between plans, however many symbols arrive.
pub(super) const RESPITE: Duration = Duration::from_micros(500);
/// Before a turnaround is measured.
const UNKNOWN_TURNAROUND: Duration = Duration::from_millis(20);
/// Least silence after which a flow is taken for dead that brought nothing for four turnarounds.
const LEAST_SILENCE: Duration = Duration::from_millis(150);
/// One of an overlay that waits says after 100 ms that it lives; what comes after that, [`super::flow::Silence::is_longer_than`] knows.
const STRIPE_SILENCE: Duration = Duration::from_millis(400);
/// And one that is silent is tried again after this time.
const STRIPE_REVIVAL: Duration = Duration::from_millis(100);
/// In an overlay blocks are asked for so far ahead of the first that is missing, in rounds of all stripes, or as far as they come in this time
/// if that is more. Who does not get one stripe so passes on the others until the one that is silent has been replaced: else all wait for
/// each that dies. But at the end all stripes should come together.
const ROUNDS_AHEAD: u32 = 4;
const TIME_AHEAD: Duration = Duration::from_secs(1);
/// A list may have this many separate runs; the message holds some more.
const MOST_RUNS: usize = 64;
/// Moving or cutting less is not worth a message.
const LEAST_PIECE: u32 = 8;
/// In an overlay a stripe is late that lacks more than this part of its blocks when most others are here.
const LATE_PART: u32 = 16;
/// Its own source is left with this many of them at least,
const LEFT_BLOCKS: usize = 3;
/// or with none, if less than this part of what is due comes from there.
const STUCK: f64 = 0.1;
/// Before the end of the object a stripe is late only if less than this part of what is due comes.
const SILENT: f64 = 0.01;
/// Repair symbols are asked for at most this many at a time.
const MOST_HELP: u32 = 64;

/// Whether a flow will soon have nothing left to send.
pub(super) fn is_hungry(flow: &Flow) -> bool {
    flow.asked.low_water > flow.asked.outstanding && flow.is_usable()
}

/// Whether a flow should long have brought what it was asked for.
fn is_overdue(flow: &Flow, now: Time, least: Duration) -> bool {
    let limit = least.max(turnaround(flow) * 4);
    flow.asked.outstanding > 0 && flow.silence.is_longer_than(limit, now)
}

/// How many separate runs of blocks a flow's list has.
fn runs(flow: &Flow) -> usize {
    let follows = |(a, b): (&BlockIndex, &BlockIndex)| a.0 + 1 == b.0;
    let order = &flow.asked.order;
    order.len() - order.iter().zip(order.iter().skip(1)).filter(|&pair| follows(pair)).count()
}

fn turnaround(flow: &Flow) -> Duration {
    flow.assigning.turnaround.unwrap_or(UNKNOWN_TURNAROUND)
}

fn horizon(flow: &Flow) -> Duration {
    (turnaround(flow) * 2 + LEAST_HORIZON / 2).max(LEAST_HORIZON)
}

/// Work that is given to flows.
struct Giving<'a> {
    now: Time,
    blocks: &'a mut Blocks,
    /// Symbols that may be asked for, if there is a limit.
    allowed: Option<f64>,
    /// Blocks that may be open.
    open_blocks: usize,
    counts_asked_for: bool,
    /// No block from this one on is asked for yet.
    end: u32,
}

impl Giving<'_> {
    /// Gives a flow unassigned work of a stripe until it has `target` symbols outstanding.
    fn give(&mut self, flow: &mut Flow, target: u64, split: bool, stripe: Stripe) {
        while flow.asked.outstanding + u64::from(LEAST_PIECE) / 2 < target
            || flow.asked.outstanding == 0 && target > 0
        {
            if runs(flow) >= MOST_RUNS {
                forget_done(self.blocks, flow);
                if runs(flow) >= MOST_RUNS {
                    break;
                }
            }
            if self.allowed.is_some_and(|a| a < f64::from(LEAST_PIECE)) {
                break;
            }
            let open = if self.counts_asked_for { self.blocks.opened() } else { self.blocks.in_reception() };
            let open_below = if open < self.open_blocks { self.end } else { 0 };
            let most = target.saturating_sub(flow.asked.outstanding);
            let most = most.max(u64::from(LEAST_PIECE)).min(u64::from(u16::MAX)) as u32;
            let most = self.allowed.map_or(most, |a| most.min(a as u32));
            let Some((block, symbols)) = self.blocks.take(flow.id(), most, split, open_below, stripe) else {
                break;
            };
            if let Some(allowed) = &mut self.allowed {
                *allowed -= f64::from(symbols);
            }
            flow.give(block, symbols);
            if flow.silence.expecting_since.is_none() || flow.asked.outstanding == u64::from(symbols) {
                flow.silence.expecting_since = Some(self.now);
            }
        }
    }
}

impl Receiver {
    /// Plans anew and notes which flows must be told.
    pub(super) fn plan(&mut self, now: Time) {
        self.plan_soon = false;
        self.last_plan = Some(now);
        let turnaround = self.flows.values().filter_map(|f| f.assigning.turnaround).min();
        let interval = turnaround.unwrap_or(MOST_INTERVAL).max(LEAST_INTERVAL).min(MOST_INTERVAL);
        let idle = (now.since(self.last_useful) / IDLE_PART).min(LONGEST_IDLE_INTERVAL);
        self.next_plan = now + if self.stripes.is_some() { interval.max(idle) } else { interval };
        self.drop_silent(now);
        self.revive(now);
        if self.stripes.is_some() {
            return self.supply_stripes(now);
        }
        let mut usable: Vec<(FlowId, f64)> = Vec::new();
        let flows = self.flows.values_mut().filter(|f| f.is_usable());
        let measured: Vec<(FlowId, Option<f64>)> =
            flows.map(|f| (f.id(), f.rate.per_second(now).map(|r| r.max(1.0)))).collect();
        let known: Vec<f64> = measured.iter().filter_map(|&(_, r)| r).collect();
        // A flow that was not measured yet is taken for an average one.
        let guess = if known.is_empty() { 1.0 } else { known.iter().sum::<f64>() / known.len() as f64 };
        usable.extend(measured.iter().map(|&(id, r)| (id, r.unwrap_or(guess))));
        if usable.is_empty() {
            return;
        }
        self.supply(now, &usable, &measured);
        self.balance(&usable);
        self.help(now, &usable);
    }

    /// How long a flow may be silent at least.
    fn least_silence(&self) -> Duration {
        if self.stripes.is_some() { STRIPE_SILENCE } else { LEAST_SILENCE }
    }

    fn drop_silent(&mut self, now: Time) {
        let least = self.least_silence();
        let is_silent = |flow: &&Flow| flow.is_usable() && is_overdue(flow, now, least);
        let silent: Vec<FlowId> = self.flows.values().filter(is_silent).map(Flow::id).collect();
        // The last usable flow keeps its work: nobody else could do it.
        let usable = self.flows.values().filter(|f| f.is_usable()).count();
        if silent.len() == usable {
            return;
        }
        // Nobody else brings the same stripe, and the links may be back any moment.
        let revival = if self.stripes.is_some() { STRIPE_REVIVAL } else { REVIVAL };
        for id in silent {
            self.release(id);
            if let Some(flow) = self.flows.get_mut(&id) {
                let is_news = flow.silence.begin(now, revival);
                self.alarm |= is_news && self.stripes.is_some();
            }
        }
    }

    /// Tries silent flows again now and then, while there is enough to do that the trial delays nothing, or while nobody
    /// brings anything: the one that kept its work may be as dead as they were.
    fn revive(&mut self, now: Time) {
        let plenty = self.stripes.is_some()
            || self.blocks.as_ref().is_some_and(|b| b.unassigned() > u64::from(MOST_HELP) * 16);
        let least = self.least_silence();
        let last_resort = !self.flows.values().any(|f| f.is_usable() && !is_overdue(f, now, least));
        if plenty || last_resort {
            self.flows.values_mut().filter(|f| f.is_live()).for_each(|f| f.silence.revive(now));
        }
        for flow in self.flows.values_mut().filter(|f| f.asked.truncated) {
            flow.assigning.change();
        }
    }

    /// Gives unassigned work to the flows that will run dry first.
    fn supply(&mut self, now: Time, usable: &[(FlowId, f64)], measured: &[(FlowId, Option<f64>)]) {
        let allowed = self.allowance(now);
        let (Some(blocks), geometry) = (&mut self.blocks, self.geometry) else { return };
        let first_block = u64::from(geometry.source_symbols(blocks.first_undecoded())).max(1);
        let available = blocks.unassigned();
        let total_rate: f64 = usable.iter().map(|&(_, rate)| rate).sum();
        let mut targets: Vec<(FlowId, f64, u64)> = Vec::with_capacity(usable.len());
        for (&(id, rate), &(_, known)) in usable.iter().zip(measured) {
            let flow = &self.flows[&id];
            // Twice the rate: a flow in slow start doubles within the horizon.
            let target = match known {
                Some(rate) => (2.0 * rate * horizon(flow).as_secs_f64()) as u64,
                None => 0,
            };
            let even = available.div_ceil(usable.len() as u64).min(first_block).max(u64::from(LEAST_PIECE));
            let target = if known.is_some() { target.max(u64::from(LEAST_PIECE)) } else { even };
            targets.push((id, rate, target));
        }
        let outstanding: u64 = usable.iter().map(|(id, _)| self.flows[id].asked.outstanding).sum();
        let scarce = available < targets.iter().map(|&(_, _, target)| target).sum();
        targets.sort_by(|a, b| {
            let ends = |&(id, rate, _): &(FlowId, f64, u64)| self.flows[&id].asked.outstanding as f64 / rate;
            ends(a).total_cmp(&ends(b)).then(a.0.cmp(&b.0))
        });
        let open_blocks = self.config.open_blocks(geometry.layout().block_bytes());
        let counts_asked_for = self.config.counts_asked_for;
        let mut giving = Giving { now, blocks, allowed, open_blocks, counts_asked_for, end: u32::MAX };
        for (id, rate, target) in targets {
            let flow = self.flows.get_mut(&id).expect("usable flows exist");
            flow.asked.low_water = target * 3 / 4;
            let target = match scarce {
                // All are to end together.
                true => ((available + outstanding) as f64 * rate / total_rate).ceil() as u64,
                false => target,
            };
            // A slow flow gets parts, so that no block waits for it long.
            let split = scarce || target < first_block || giving.allowed.is_some();
            giving.give(flow, target, split, Stripe::ALL);
        }
        let (allowed, nothing_left) = (giving.allowed, giving.blocks.unassigned() == 0);
        if let Some(allowed) = allowed {
            self.allowance = (allowed, now);
        }
        if nothing_left {
            // Nothing to give before something changes.
            self.flows.values_mut().for_each(|f| f.asked.low_water = 0);
        }
    }

    /// Has each flow of an overlay bring what comes next of its stripe, and of those that it has adopted.
    fn supply_stripes(&mut self, now: Time) {
        let allowed = self.allowance(now);
        let (Some(blocks), Some(stripes), geometry) = (&mut self.blocks, &mut self.stripes, self.geometry)
        else {
            return;
        };
        let usable: Vec<(FlowId, u8)> =
            self.flows.values().filter(|f| f.is_usable()).map(|f| (f.id(), f.grant.index)).collect();
        for (stripe, id) in stripes.assign(now, &usable) {
            let (anew, owed) = blocks.release(id, stripe);
            anew.into_iter().for_each(|block| self.outbox.event(ReceiverEvent::Discard { block }));
            if let Some(flow) = self.flows.get_mut(&id) {
                flow.asked.outstanding = flow.asked.outstanding.saturating_sub(owed);
                flow.assigning.change();
            }
        }
        let first = blocks.first_undecoded().0;
        let open_blocks = self.config.open_blocks(geometry.layout().block_bytes());
        let counts_asked_for = self.config.counts_asked_for;
        let block = f64::from(geometry.source_symbols(BlockIndex(0)).max(1));
        let in_time = stripes.peak() * TIME_AHEAD.as_secs_f64() / (block * f64::from(stripes.of()));
        let rounds = ROUNDS_AHEAD.max(in_time as u32);
        let end = first.saturating_add(rounds.saturating_mul(u32::from(stripes.of())));
        let mut giving = Giving { now, blocks, allowed, open_blocks, counts_asked_for, end };
        for (id, index) in usable {
            let flow = self.flows.get_mut(&id).expect("usable flows exist");
            for stripe in stripes.of_flow(id, index) {
                giving.give(flow, u64::MAX, giving.allowed.is_some(), stripe);
            }
            // More is given when a block is done.
            flow.asked.low_water = 0;
        }
        if let Some(allowed) = giving.allowed {
            self.allowance = (allowed, now);
        }
        // At the end some stripe is the last; it is behind if it still has nothing to show.
        let is_end = blocks.are_all_asked_for();
        let idle = self.flows.values().filter(|f| f.is_usable() && f.asked.outstanding == 0).count();
        let filling = blocks.filling(stripes.of());
        // Under a limit there is no room for what may come twice.
        if allowed.is_none() && idle > 0 {
            let due = stripes.peak() / f64::from(stripes.of());
            share_late(now, blocks, &mut self.flows, &filling, (due, is_end));
        }
        let block = u64::from(geometry.source_symbols(BlockIndex(0)));
        let pace = |flow: &mut Flow| {
            let rate = flow.rate.per_second(now).unwrap_or(0.0);
            // What it owes of other stripes holds up nobody.
            let is_here = filling.get(usize::from(flow.grant.index)).is_some_and(Vec::is_empty);
            let owed = if is_here { 0 } else { flow.asked.outstanding };
            Pace { flow: flow.id(), owed, rate }
        };
        let paces: Vec<Pace> = self.flows.values_mut().filter(|flow| flow.is_usable()).map(pace).collect();
        stripes.compare(now, self.last_useful, &paces, block, is_end);
    }

    /// Symbols that may be asked for now, if there is a limit: what the time since the last plan allows, at most a
    /// horizon's worth, so that a pause is not made up for by a burst.
    fn allowance(&self, now: Time) -> Option<f64> {
        let limit = self.config.limit?;
        let symbol = f64::from(self.geometry.symbol_size()) * 8.0;
        let per_second = limit.get() as f64 / symbol;
        let (left, since) = self.allowance;
        let most = (per_second * LEAST_HORIZON.as_secs_f64() * 2.0).max(f64::from(LEAST_PIECE));
        Some((left + per_second * now.since(since).as_secs_f64()).min(most))
    }

    /// Moves unsent work from flows that will end late to flows that will end early.
    fn balance(&mut self, usable: &[(FlowId, f64)]) {
        if usable.len() < 2 || self.blocks.as_ref().is_none_or(|b| b.unassigned() > 0) {
            return;
        }
        let ends = |flow: &Flow, rate: f64| flow.asked.outstanding as f64 / rate;
        let (mut early, mut late) = (usable[0], usable[0]);
        for &(id, rate) in usable {
            let end = ends(&self.flows[&id], rate);
            if end < ends(&self.flows[&early.0], early.1) {
                early = (id, rate);
            }
            if end > ends(&self.flows[&late.0], late.1) {
                late = (id, rate);
            }
        }
        let (slow, fast) = (&self.flows[&late.0], &self.flows[&early.0]);
        // The packets that the slow flow has in flight, or will have by the time it hears of this, cannot be taken
        // back.
        let in_flight = late.1 * turnaround(slow).as_secs_f64() * 1.25;
        let (owed, helper) = (slow.asked.outstanding as f64, fast.asked.outstanding as f64);
        let surplus = (owed * early.1 - helper * late.1) / (late.1 + early.1);
        let movable = surplus.min(owed - in_flight);
        if movable < f64::from(LEAST_PIECE)
            || ends(slow, late.1) < fast.assigning.turnaround.unwrap_or_default().as_secs_f64()
        {
            return;
        }
        let mut left = movable as u32;
        let order: Vec<BlockIndex> = slow.asked.order.iter().rev().copied().collect();
        let blocks = self.blocks.as_mut().expect("checked above");
        for block in order {
            while left > 0 {
                let taken = blocks.take_back_tail(late.0, block, left);
                if taken == 0 {
                    break;
                }
                left -= taken;
                let slow = self.flows.get_mut(&late.0).expect("usable flows exist");
                slow.asked.outstanding = slow.asked.outstanding.saturating_sub(u64::from(taken));
                slow.assigning.change();
            }
        }
        let fast = self.flows.get_mut(&early.0).expect("usable flows exist");
        while let Some((block, symbols)) = blocks.take(early.0, u32::from(u16::MAX), true, 0, Stripe::ALL) {
            fast.give(block, symbols);
        }
    }

    /// Lets a flow that has nothing to do send repair symbols of blocks that others are late with.
    fn help(&mut self, now: Time, usable: &[(FlowId, f64)]) {
        let Some(blocks) = &mut self.blocks else { return };
        if blocks.unassigned() > 0 || usable.len() < 2 {
            return;
        }
        let Some(&(idle, _)) = usable.iter().find(|(id, _)| self.flows[id].asked.outstanding == 0) else {
            return;
        };
        let turnaround = turnaround(&self.flows[&idle]);
        let flow = self.flows.get_mut(&idle).expect("usable flows exist");
        let since = *flow.asked.idle_since.get_or_insert(now);
        // Most of what is late arrives by itself within one turnaround.
        if now.since(since) < turnaround.max(LEAST_INTERVAL * 2) {
            return;
        }
        let late: Vec<(BlockIndex, u32)> = blocks
            .open()
            .filter(|b| {
                b.here.is_filling() && b.asked.helped_at.is_none_or(|at| now.since(at) > turnaround * 4)
            })
            .map(|b| (BlockIndex(b.number), b.here.missing()))
            .take(8)
            .collect();
        let flow = self.flows.get_mut(&idle).expect("usable flows exist");
        for (block, wants) in late {
            let given = blocks.help(now, idle, block, wants.clamp(1, MOST_HELP));
            if given > 0 {
                flow.give_beside(block, given);
                flow.silence.expecting_since = Some(now);
                flow.asked.idle_since = None;
            }
        }
    }
}

/// Where stripes are late, and the others have brought all that may be asked for, the trees of those bring blocks of the late ones too: who
/// stands above this receiver in such a tree has them already, or asks for them in the same manner, up to the source. So each block has one
/// other tree, whoever asks. The late stripe's own source stays asked for all of it, and begins at the other end; if next to nothing of the
/// `due` rate comes from there, that is left nothing. Before the end of the object a stripe must be all but silent. `filling`:
/// [`Blocks::filling`].
fn share_late(
    now: Time,
    blocks: &mut Blocks,
    flows: &mut SortedMap<FlowId, Flow>,
    filling: &[Vec<u32>],
    (due, is_end): (f64, bool),
) {
    let of = filling.len() as u32;
    // Where few are here, these are early.
    if filling.iter().filter(|late| late.is_empty()).count() * 2 < filling.len() {
        return;
    }
    let most_in_time = (blocks.wanted() / of.max(1) / LATE_PART) as usize;
    let mut shared = Vec::new();
    for (index, late) in (0..).zip(filling) {
        let own = flows.values_mut().find(|f| f.is_usable() && u32::from(f.grant.index) == index);
        let rate = own.and_then(|flow| flow.rate.per_second(now)).unwrap_or(0.0);
        let left = match late.len() {
            _ if rate < due * if is_end { STUCK } else { SILENT } => 0,
            count if is_end && count > most_in_time => count.div_ceil(filling.len()).max(LEFT_BLOCKS),
            _ => continue,
        };
        for block in late.iter().skip(left).rev() {
            let other = (index + 1 + block / of % (of - 1).max(1)) % of;
            if filling[other as usize].is_empty() {
                shared.push((other, BlockIndex(*block)));
            }
        }
    }
    for (other, block) in shared {
        let flow = flows.values_mut().find(|f| f.is_usable() && u32::from(f.grant.index) == other);
        let Some(flow) = flow.filter(|flow| runs(flow) < MOST_RUNS) else { continue };
        let symbols = blocks.ask_beside(flow.id(), block);
        if symbols > 0 {
            if flow.asked.outstanding == 0 {
                flow.silence.expecting_since = Some(now);
            }
            flow.give_beside(block, symbols);
        }
    }
}

/// Forgets blocks that a flow was asked for and that need no more of it.
fn forget_done(blocks: &Blocks, flow: &mut Flow) {
    let id = flow.id();
    let has_share =
        |b: &BlockIndex| blocks.get(*b).is_some_and(|it| it.asked.shares.iter().any(|s| s.flow == id));
    flow.asked.order.retain(has_share);
}

/// The work of a flow as it travels: runs of whole blocks merged, at most [`MAX_WORK`] pieces.
pub(super) fn list(blocks: &Blocks, flow: &mut Flow) -> Vec<Work> {
    forget_done(blocks, flow);
    let id = flow.id();
    let mut work: Vec<Work> = Vec::new();
    for &index in &flow.asked.order {
        let Some(block) = blocks.get(index) else { continue };
        for share in block.asked.shares.iter().filter(|s| s.flow == id) {
            let attempt = block.here.attempts();
            if share.is_whole(block) {
                if let Some(Work::Blocks { first, count, attempt: before }) = work.last_mut()
                    && first.0 + u32::from(*count) == index.0
                    && *before == attempt
                    && *count < u16::MAX
                {
                    *count += 1;
                    continue;
                }
                work.push(Work::Blocks { first: index, count: 1, attempt });
            } else {
                let count = (share.range.end - share.range.start) as u16;
                work.push(Work::Symbols { block: index, first: share.first(), count, attempt });
            }
        }
    }
    flow.asked.truncated = work.len() > MAX_WORK;
    work.truncate(MAX_WORK);
    work
}
