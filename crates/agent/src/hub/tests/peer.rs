//! A peer's agent, honest or not, and a connection to it.

use std::collections::BTreeMap;
use std::fmt;

use headwater_units::{Bytes, Duration, Time};
use rand::Rng;
use rand_chacha::ChaCha8Rng;

use super::{BLOCK, FromLane};
use crate::peer_frames::{FromFetcher, FromSource};
use crate::refusal::Refusal;

/// Output of a peer: its name says all about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Output {
    /// Number that tells its bytes from those of others.
    key: u64,
    pub(super) size: u64,
    /// Where its file ends too early, if it does; at 0 there is none.
    pub(super) cut: Option<u64>,
}

impl Output {
    pub(super) fn draw(seed: u64, rng: &mut ChaCha8Rng) -> Output {
        let size = match rng.random_range(0..8) {
            0 => 0,
            1 | 2 => rng.random_range(1..BLOCK),
            _ => rng.random_range(1..60 * BLOCK),
        };
        let cut = rng.random_bool(0.08).then(|| rng.random_range(0..=size) / BLOCK * BLOCK);
        Output { key: seed.wrapping_mul(1_000_003) ^ rng.random_range(0..u64::MAX), size, cut }
    }

    fn parse(name: &str) -> Output {
        let parts: Vec<u64> = name.split('-').map(|part| part.parse().unwrap()).collect();
        Output { key: parts[0], size: parts[1], cut: parts[2].checked_sub(1) }
    }

    pub(super) fn byte(&self, at: u64) -> u8 {
        (self.key.wrapping_mul(31).wrapping_add(at).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
    }
}

impl fmt::Display for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}", self.key, self.size, self.cut.map_or(0, |cut| cut + 1))
    }
}

/// One connection of a lane, as its two ends and the way between them know it.
pub(super) struct Connection {
    pub(super) epoch: u64,
    pub(super) is_up: bool,
    /// The peer has said nothing in it yet.
    pub(super) is_silent: bool,
    /// Frames for a connection that is not made yet.
    pub(super) waiting: Vec<FromFetcher>,
    /// Flows that were opened in it; none for those that were refused.
    open: BTreeMap<u64, Option<Output>>,
    /// When the last frame arrives, to the peer and back: frames keep their order.
    arrives: [Time; 2],
}

impl Connection {
    pub(super) fn new(epoch: u64) -> Self {
        let (waiting, open) = (Vec::new(), BTreeMap::new());
        Connection { epoch, is_up: false, is_silent: true, waiting, open, arrives: [Time::ZERO; 2] }
    }

    pub(super) fn reaches_peer(&mut self, now: Time, rng: &mut ChaCha8Rng) -> Time {
        self.arrival(0, now, rng)
    }

    pub(super) fn reaches_hub(&mut self, now: Time, rng: &mut ChaCha8Rng) -> Time {
        self.arrival(1, now, rng)
    }

    fn arrival(&mut self, way: usize, now: Time, rng: &mut ChaCha8Rng) -> Time {
        let at = (now + Duration::from_micros(rng.random_range(0..5_000))).max(self.arrives[way]);
        self.arrives[way] = at;
        at
    }
}

/// A peer.
pub(super) struct Peer {
    pub(super) lies: bool,
    pub(super) away_until: Time,
}

impl Peer {
    pub(super) fn new(lies: bool) -> Self {
        Peer { lies, away_until: Time::ZERO }
    }

    /// Its answer to a frame.
    pub(super) fn answer(
        &self,
        connection: &mut Connection,
        frame: &FromFetcher,
        rng: &mut ChaCha8Rng,
    ) -> Vec<FromLane<Vec<u8>>> {
        let mut said = Vec::new();
        if self.lies && rng.random_bool(0.4) {
            said.push(lie(rng));
        }
        let refuse =
            |flow, refusal| FromLane::Frame(FromSource::Refused { flow, refusal, text: String::new() });
        match frame {
            FromFetcher::Open { flow, output, .. } => {
                let output = Output::parse(output.as_str());
                let is_there = output.cut != Some(0);
                let before = connection.open.insert(*flow, is_there.then_some(output));
                assert!(before.is_none(), "flow {flow} is opened once in a connection");
                said.push(match is_there {
                    true => {
                        let (length, info, stamp) = (Bytes::new(output.size), output.key, output.key);
                        FromLane::Frame(FromSource::Opened { flow: *flow, length, info, stamp })
                    }
                    false => refuse(*flow, Refusal::Unknown),
                });
            }
            FromFetcher::Ask { flow, offset, length } => {
                let known = connection.open.get_mut(flow).expect("a flow is opened before it is asked for");
                let Some(output) = *known else { return said };
                let (from, to) = (offset.get(), offset.get() + u64::from(*length));
                assert!(from < to && u64::from(*length) <= BLOCK);
                // Of a flow whose length was a lie, more may be asked for than there is.
                assert!(to <= output.size || self.lies, "{from}..{to} of {output:?}");
                if output.cut.is_some_and(|cut| to > cut) {
                    *known = None;
                    said.push(refuse(*flow, Refusal::Truncated));
                    return said;
                }
                let block: Vec<u8> = (from..to).map(|at| output.byte(at)).collect();
                if self.lies && rng.random_bool(0.2) {
                    said.push(FromLane::Block { flow: *flow, offset: *offset, block: block.clone() });
                }
                said.push(FromLane::Block { flow: *flow, offset: *offset, block });
            }
            FromFetcher::Close { flow } => {
                assert!(connection.open.remove(flow).is_some(), "flow {flow} is closed where it is open");
            }
        }
        said
    }
}

/// Something that no honest peer says, of a flow that may be another's.
fn lie(rng: &mut ChaCha8Rng) -> FromLane<Vec<u8>> {
    let flow = rng.random_range(0..60);
    let offset = Bytes::new(rng.random_range(0..20) * BLOCK);
    match rng.random_range(0..4) {
        0 => FromLane::Frame(FromSource::Opened { flow, length: offset, info: 0, stamp: 1 }),
        1 => FromLane::Frame(FromSource::Refused { flow, refusal: Refusal::Io, text: "a lie".to_owned() }),
        2 => FromLane::Block { flow, offset, block: Vec::new() },
        _ => FromLane::Block { flow, offset, block: vec![0; rng.random_range(1..2 * BLOCK as usize)] },
    }
}
