//! A swarm: an object goes from one member to all others in blocks, which members pass on to one another (Datacast §VI-C,
//! BT-Cornet and BT-Optimized; Chowdhury et al., "Managing data transfers in computer clusters with Orchestra", SIGCOMM 2011,
//! Cornet; Cohen, "Incentives build robustness in BitTorrent", 2003).
//!
//! BitTorrent as Datacast §VI-C changes it: there is no tit-for-tat and no choking, so every member serves all its peers;
//! nobody leaves before everybody has everything; blocks are not hashed. A member asks each of its peers for one block at a
//! time, of those that the peer has the one that the fewest of its own peers have (rarest first), equally rare ones by lot,
//! and asks the next as soon as it is there. It asks nobody for a block that it has asked another for.
//!
//! Everything is rates: a connection that carries a block gets its max-min share of all links on the path. Rates are
//! made anew [`STEPS`] times in the time that a block takes alone, and not at every change: five million blocks make
//! ten million of these. A block of a peer is known, and can be had, from the step on that follows its arrival, as if a
//! notice and a request took that long; a block that follows another on its connection follows without a gap. Steps of
//! a sixteenth of the length change no finish by more than another draw of the lots does.
//!
//! Leaves out what real ones have on top, each to their disadvantage: headers, slow start and losses of TCP, a tracker, notices and
//! requests as traffic, blocks that come twice (endgame). Does not know failures.

mod peers;
mod shares;

use headwater_fabric::Path;
use headwater_units::{Bytes, Time};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{FlowError, Network, check_path};
pub use peers::{Choice, Ties, connections};
use shares::{Paths, Shares};

/// How often rates are made anew while a block crosses the fastest path alone.
pub const STEPS: u32 = 2;

/// The lot that decides between equally rare blocks; apart from those of [`connections`].
const PICKS: u64 = u64::MAX;

/// One way between two peers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    /// The member that sends.
    pub from: usize,
    /// The member that receives.
    pub to: usize,
    /// The links in between.
    pub path: Path,
}

/// A swarm: its members, object and rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Swarm {
    /// How many there are; the first one has the object.
    pub members: usize,
    /// Its length.
    pub object: Bytes,
    /// The length of a block; the last may be shorter.
    pub block: Bytes,
    /// In any order.
    pub connections: Vec<Connection>,
}

/// Result of a swarm.
#[derive(Clone, Debug, PartialEq)]
pub struct Spread {
    /// By member: when it had everything; none if that can never be.
    pub finish: Vec<Option<Time>>,
    /// Blocks that arrived.
    pub blocks: u64,
    /// All bytes over all links (Datacast §VI-C, network stress).
    pub carried: Bytes,
    /// How often a block crossed a link that it crossed at all, on average (Datacast §VI-C, link stress).
    pub link_stress: f64,
}

/// Lets it happen. Tells `look` now and then how many blocks have arrived.
///
/// # Errors
/// [`FlowError::Path`]; [`FlowError::NoBlocks`] if there is nothing to cut, or nothing to cut it into;
/// [`FlowError::Member`] if a connection joins members that do not exist, or one to itself.
pub fn spread(
    network: &Network,
    swarm: &Swarm,
    seed: u64,
    look: &mut dyn FnMut(u64),
) -> Result<Spread, FlowError> {
    let (object, block) = (swarm.object, swarm.block);
    if object == Bytes::ZERO || block == Bytes::ZERO {
        return Err(FlowError::NoBlocks { object, block });
    }
    for it in &swarm.connections {
        check_path(&it.path, network.capacities().len())?;
        let (from, to, members) = (it.from, it.to, swarm.members);
        if from == to || from.max(to) >= members {
            return Err(FlowError::Member { from, to, members });
        }
    }
    let slowest_link =
        |it: &Connection| it.path.links().iter().map(|link| network.capacities()[link.0 as usize]).min();
    let fastest = swarm.connections.iter().filter_map(slowest_link).max().map_or(1, |rate| rate.get());
    let step = block.get().min(object.get()) as f64 * 8.0 / fastest as f64 / f64::from(STEPS);
    let paths = Paths::new(swarm.connections.iter().map(|it| &it.path));
    let mut shares = Shares::new(network, paths);
    let mut blocks = Blocks::new(swarm, network.capacities().len(), seed);
    let mut active: Vec<u32> = Vec::new();
    let mut steps = 0u64;
    loop {
        let before = active.len();
        blocks.wake(&mut active);
        active[before..].iter().for_each(|connection| shares.add(*connection));
        if active.is_empty() {
            break;
        }
        if std::mem::take(&mut blocks.stopped) || active.len() > before {
            shares.fill();
        }
        for &connection in &active {
            let bytes = shares.rate(connection) * step / 8.0;
            blocks.carry(connection, shares.paths(), bytes, |part| (steps as f64 + part) * step);
        }
        if blocks.stopped {
            active.retain(|connection| {
                let goes_on = blocks.carried[*connection as usize].is_some();
                if !goes_on {
                    shares.remove(*connection);
                }
                goes_on
            });
        }
        steps += 1;
        if steps.is_multiple_of(1024) {
            look(blocks.arrived);
        }
    }
    Ok(blocks.spread())
}

/// The blocks of each member, and those in flight.
struct Blocks<'a> {
    swarm: &'a Swarm,
    /// How many there are.
    count: usize,
    /// Words of 64 blocks of one member or link.
    words: usize,
    /// By member, bits by block: there.
    has: Vec<u64>,
    /// By member, bits by block: neither there nor asked for.
    wants: Vec<u64>,
    /// By member and block: how many of those that it may ask have it.
    copies: Vec<u16>,
    /// By member: blocks that are not there.
    missing: Vec<usize>,
    /// By member: when the last block arrived, seconds.
    latest: Vec<f64>,
    /// By member: the connections over which it sends.
    sends: Vec<Vec<u32>>,
    /// By connection: the block on its way, and the bytes of it that are not there.
    carried: Vec<Option<(u32, f64)>>,
    /// Members and blocks that have arrived there since everybody was told.
    fresh: Vec<(usize, usize)>,
    /// Connections that may have something to carry now.
    woken: Vec<u32>,
    /// Whether one has nothing to carry any more.
    stopped: bool,
    /// By link, bits by block: has crossed it.
    crossed: Vec<u64>,
    /// Block and link pairs of these.
    first_crossings: u64,
    crossings: u64,
    bytes: u64,
    arrived: u64,
    draw: ChaCha8Rng,
}

impl<'a> Blocks<'a> {
    fn new(swarm: &'a Swarm, links: usize, seed: u64) -> Self {
        let count = swarm.object.get().div_ceil(swarm.block.get()) as usize;
        let words = count.div_ceil(64);
        let members = swarm.members;
        let mut sends = vec![Vec::new(); members];
        for (it, connection) in swarm.connections.iter().zip(0..) {
            sends[it.from].push(connection);
        }
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let mut draw = ChaCha8Rng::from_seed(bytes);
        draw.set_stream(PICKS);
        let mut blocks = Blocks {
            swarm,
            count,
            words,
            has: vec![0; members * words],
            wants: vec![0; members * words],
            copies: vec![0; members * count],
            missing: vec![count; members],
            latest: vec![0.0; members],
            fresh: Vec::new(),
            woken: sends.first().cloned().unwrap_or_default(),
            sends,
            carried: vec![None; swarm.connections.len()],
            stopped: false,
            crossed: vec![0; links * words],
            first_crossings: 0,
            crossings: 0,
            bytes: 0,
            arrived: 0,
            draw,
        };
        for block in 0..count {
            let bit = 1 << (block % 64);
            for member in 0..members {
                let set = if member == 0 { &mut blocks.has } else { &mut blocks.wants };
                set[member * words + block / 64] |= bit;
            }
        }
        for at in 0..blocks.woken.len() {
            let to = swarm.connections[blocks.woken[at] as usize].to;
            blocks.copies[to * count..(to + 1) * count].fill(1);
        }
        blocks.missing[..members.min(1)].fill(0);
        blocks
    }

    /// Shows everybody what has arrived, and lets connections begin that have something to carry now.
    fn wake(&mut self, active: &mut Vec<u32>) {
        let mut fresh = std::mem::take(&mut self.fresh);
        for (member, block) in fresh.drain(..) {
            let (word, bit) = (block / 64, 1u64 << (block % 64));
            self.has[member * self.words + word] |= bit;
            for &onward in &self.sends[member] {
                let further = self.swarm.connections[onward as usize].to;
                self.copies[further * self.count + block] += 1;
                let is_wanted = self.wants[further * self.words + word] & bit != 0;
                if is_wanted && self.carried[onward as usize].is_none() {
                    self.woken.push(onward);
                }
            }
        }
        self.fresh = fresh;
        let mut woken = std::mem::take(&mut self.woken);
        for connection in woken.drain(..) {
            if self.carried[connection as usize].is_none() && self.next(connection) {
                active.push(connection);
            }
        }
        self.woken = woken;
    }

    /// Brings `bytes` over a connection. `when` tells the time at a part of the step, 0 to 1.
    fn carry(&mut self, connection: u32, paths: &Paths, bytes: f64, when: impl Fn(f64) -> f64) {
        let mut room = bytes;
        while let Some((block, left)) = self.carried[connection as usize] {
            if left > room {
                self.carried[connection as usize] = Some((block, left - room));
                return;
            }
            room -= left;
            self.arrive(connection, paths, block as usize, when(1.0 - room / bytes));
            if !self.next(connection) {
                self.carried[connection as usize] = None;
                self.stopped = true;
            }
        }
    }

    fn arrive(&mut self, connection: u32, paths: &Paths, block: usize, at_s: f64) {
        let (word, bit) = (block / 64, 1u64 << (block % 64));
        let to = self.swarm.connections[connection as usize].to;
        let path = paths.of(connection);
        self.arrived += 1;
        self.crossings += path.len() as u64;
        self.bytes += path.len() as u64 * self.length(block);
        for &link in path {
            let crossed = &mut self.crossed[link as usize * self.words + word];
            self.first_crossings += u64::from(*crossed & bit == 0);
            *crossed |= bit;
        }
        self.missing[to] -= 1;
        // Of one step arrivals do not come in their order.
        self.latest[to] = self.latest[to].max(at_s);
        self.fresh.push((to, block));
    }

    /// Asks for the rarest block that there is at the other end. Whether there is one.
    fn next(&mut self, connection: u32) -> bool {
        let &Connection { from, to, .. } = &self.swarm.connections[connection as usize];
        let [of_from, of_to] = [from, to].map(|member| member * self.words..(member + 1) * self.words);
        let copies = &self.copies[to * self.count..(to + 1) * self.count];
        let useful = || {
            let words = self.has[of_from.clone()].iter().zip(&self.wants[of_to.clone()]);
            words
                .enumerate()
                .flat_map(|(word, (has, wants))| bits(has & wants).map(move |bit| 64 * word + bit))
        };
        let (mut fewest, mut many) = (u16::MAX, 0);
        for block in useful() {
            let there = copies[block];
            if there < fewest {
                (fewest, many) = (there, 0);
            }
            many += usize::from(there == fewest);
        }
        if many == 0 {
            return false;
        }
        let lot = if many > 1 { self.draw.random_range(0..many) } else { 0 };
        let block = useful().filter(|block| copies[*block] == fewest).nth(lot);
        let block = block.expect("a block was drawn among those that are there");
        self.wants[to * self.words + block / 64] &= !(1 << (block % 64));
        self.carried[connection as usize] = Some((block as u32, self.length(block) as f64));
        true
    }

    fn length(&self, block: usize) -> u64 {
        let block_bytes = self.swarm.block.get();
        block_bytes.min(self.swarm.object.get() - block as u64 * block_bytes)
    }

    fn spread(self) -> Spread {
        let at = |seconds: f64| Time::from_nanos((seconds * 1e9).round() as u64);
        let done = self.missing.iter().zip(&self.latest);
        Spread {
            finish: done.map(|(missing, latest)| (*missing == 0).then_some(at(*latest))).collect(),
            blocks: self.arrived,
            carried: Bytes::new(self.bytes),
            link_stress: self.crossings as f64 / self.first_crossings as f64,
        }
    }
}

/// The places of the bits that are set, ascending.
fn bits(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let place = word.trailing_zeros() as usize;
        (word != 0).then(|| {
            word &= word - 1;
            place
        })
    })
}
