//! The path from a flow to its receiver, and what is known of it.
//!
//! The first assignment gives the path. Until an assignment that comes over it carries the nonce of our challenge,
//! little is sent, so that nobody can point a source at a third party (docs/decisions/0030, as RFC 9000 §8). A
//! receiver that turns up elsewhere is challenged there, and the flow moves once that path has answered (RFC 9000 §9).

use std::collections::BTreeMap;

use headwater_units::{Duration, NodeId, PathId, Time};
use rand::RngCore;
use serde::{Deserialize, Serialize};

use super::path_mtu::Known as KnownMtu;
use super::rtt::WindowedMin;

/// The path of a flow, and one that it may move to.
#[derive(Clone, Debug, Default)]
pub struct Paths {
    current: Option<Known>,
    candidate: Option<Known>,
    /// A path that need not be challenged.
    vouched: Option<PathId>,
}

#[derive(Clone, Copy, Debug)]
struct Known {
    path: PathId,
    nonce: u64,
    validated: bool,
    /// Packets that have gone there, and that may until it has answered, where that is bounded by what came from there.
    sent: u64,
    earned: u64,
}

/// How much may be sent to an address before it has answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Unanswered {
    /// A number of packets, whatever came from there: where nobody forges addresses.
    Packets(u64),
    /// A multiple of the bytes that came from there (RFC 9000 §8.1).
    Times(u64),
}

impl Unanswered {
    /// Number of packets of `packet` bytes that may be sent after `came` bytes have arrived.
    pub fn earned(self, came: u64, packet: u64) -> u64 {
        match self {
            Unanswered::Packets(_) => 0,
            Unanswered::Times(times) => times * came / packet.max(1),
        }
    }
}

/// Action to take after a datagram from the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathNews {
    /// Nothing.
    None,
    /// Send this nonce there.
    Challenge(u64),
    /// The flow takes another path now.
    Moved,
}

impl Paths {
    /// The controller vouches for this path: the receiver's connection has proved the address.
    pub fn vouch(&mut self, path: PathId) {
        self.vouched = Some(path);
        for known in self.current.iter_mut().chain(&mut self.candidate).filter(|known| known.path == path) {
            known.validated = true;
        }
    }

    /// An assignment or a pull came over `path`, or the echo of a nonce: what only a receiver says that wants to be sent to
    /// where it is.
    pub fn on_opening(
        &mut self,
        path: PathId,
        nonce: Option<u64>,
        earned: u64,
        rng: &mut impl RngCore,
    ) -> PathNews {
        let (known, moving) = match (&mut self.current, &mut self.candidate) {
            (Some(current), _) if current.path == path => (current, false),
            (Some(_), Some(candidate)) if candidate.path == path => (candidate, true),
            (Some(_), candidate) => (candidate.insert(Known::new(path, rng)), true),
            (current @ None, _) => (current.insert(Known::new(path, rng)), false),
        };
        known.earned += earned;
        known.validated |= nonce == Some(known.nonce) || self.vouched == Some(path);
        match (known.validated, moving) {
            (false, _) => PathNews::Challenge(known.nonce),
            (true, false) => PathNews::None,
            (true, true) => {
                self.current = self.candidate.take();
                PathNews::Moved
            }
        }
    }

    /// Something else came over `path`: challenge it unless it has answered. The answer to an assignment may be lost,
    /// and the receiver, which has got symbols, need not repeat its assignment.
    pub fn on_other(&mut self, path: PathId, rng: &mut impl RngCore) -> PathNews {
        match (&self.current, &mut self.candidate) {
            (None, _) => PathNews::None,
            (Some(current), _) if current.path == path && current.validated => PathNews::None,
            (Some(current), _) if current.path == path => PathNews::Challenge(current.nonce),
            (Some(_), Some(candidate)) if candidate.path == path => PathNews::Challenge(candidate.nonce),
            (Some(_), candidate) => PathNews::Challenge(candidate.insert(Known::new(path, rng)).nonce),
        }
    }

    /// The path in use and its nonce, while it has not answered.
    pub fn unanswered(&self) -> Option<(PathId, u64)> {
        self.current.filter(|k| !k.validated).map(|k| (k.path, k.nonce))
    }

    /// Where to send.
    pub fn current(&self) -> Option<PathId> {
        self.current.map(|k| k.path)
    }

    /// Number of packets that may still be sent there before it has answered.
    pub fn allowance(&self, unanswered: Unanswered) -> u64 {
        match (self.current, unanswered) {
            (None, _) => 0,
            (Some(k), _) if k.validated => u64::MAX,
            (Some(k), Unanswered::Packets(most)) => most.saturating_sub(k.sent),
            (Some(k), Unanswered::Times(_)) => k.earned.saturating_sub(k.sent),
        }
    }

    /// A packet goes there.
    pub fn on_sent(&mut self) {
        if let Some(k) = &mut self.current {
            k.sent += 1;
        }
    }
}

impl Known {
    fn new(path: PathId, rng: &mut impl RngCore) -> Self {
        // Zero is no nonce on the wire.
        Known { path, nonce: rng.next_u64().max(1), validated: false, sent: 0, earned: 0 }
    }
}

/// Memory of the paths to each receiver, shared by its flows. It holds the smallest round-trip time, since a late-comer
/// to a standing queue never sees the empty path and would take the queue for it, and the datagram length that passes,
/// if that is less than was wanted.
#[derive(Clone, Debug)]
pub struct PathMemory {
    receivers: BTreeMap<NodeId, Remembered>,
    most: usize,
    window: Duration,
}

#[derive(Clone, Debug, Default)]
struct Remembered {
    min: WindowedMin,
    mtu: Option<KnownMtu>,
    used: Time,
}

impl PathMemory {
    /// Nothing is known yet of any path; of `most` receivers at most, round-trip times of the last `window`.
    pub fn new(most: usize, window: Duration) -> Self {
        PathMemory { receivers: BTreeMap::new(), most, window }
    }

    /// Takes a sample and returns the smallest.
    pub(crate) fn record(&mut self, now: Time, receiver: NodeId, sample: Duration) -> Duration {
        let window = self.window;
        let min = &mut self.of(now, receiver).min;
        min.record(now, sample, window);
        min.get().unwrap_or(sample)
    }

    /// The smallest sample, if there is one.
    pub fn min(&self, receiver: NodeId) -> Option<Duration> {
        self.receivers.get(&receiver).and_then(|known| known.min.get())
    }

    /// The path's known MTU; nothing where the path has carried all that was wanted so far.
    pub fn mtu(&self, receiver: NodeId) -> Option<KnownMtu> {
        self.receivers.get(&receiver).and_then(|known| known.mtu)
    }

    /// Remembers, or forgets, a path's MTU.
    pub fn set_mtu(&mut self, now: Time, receiver: NodeId, mtu: Option<KnownMtu>) {
        if mtu.is_some() || self.receivers.contains_key(&receiver) {
            self.of(now, receiver).mtu = mtu;
        }
    }

    fn of(&mut self, now: Time, receiver: NodeId) -> &mut Remembered {
        if self.receivers.len() >= self.most && !self.receivers.contains_key(&receiver) {
            let oldest = self.receivers.iter().min_by_key(|(_, known)| known.used).map(|(node, _)| *node);
            if let Some(oldest) = oldest {
                self.receivers.remove(&oldest);
            }
        }
        let known = self.receivers.entry(receiver).or_default();
        known.used = now;
        known
    }
}

/// Number of times that a flow asks the memory per window of the minimum that it keeps.
const LOOKS: u64 = 1000;

/// The smallest round-trip time of [`PathMemory`], as one flow knows it. The memory is asked when a sample is news, else now and then:
/// it is a table of all receivers.
#[derive(Clone, Copy, Debug, Default)]
pub struct KnownMin {
    /// It, and until when that will do.
    known: Option<(Duration, Time)>,
}

impl KnownMin {
    /// Takes a sample and returns the smallest.
    pub fn on_sample(
        &mut self,
        now: Time,
        sample: Duration,
        receiver: NodeId,
        memory: &mut PathMemory,
    ) -> Duration {
        let known = self.known.filter(|(least, until)| sample >= *least && now < *until);
        let known =
            known.unwrap_or_else(|| (memory.record(now, receiver, sample), now + memory.window / LOOKS));
        self.known.insert(known).0
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_chacha::ChaCha12Rng;

    use super::*;

    const TEN: Unanswered = Unanswered::Packets(10);
    const A: PathId = PathId(1);
    const B: PathId = PathId(2);

    fn challenge(news: PathNews) -> u64 {
        match news {
            PathNews::Challenge(nonce) => nonce,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_flow_moves_only_to_a_path_that_echoed_its_own_nonce() {
        let mut rng = ChaCha12Rng::from_seed([3; 32]);
        let mut paths = Paths::default();
        let a = challenge(paths.on_opening(A, None, 0, &mut rng));
        assert_eq!(challenge(paths.on_opening(A, Some(a ^ 1), 0, &mut rng)), a);
        assert_eq!(paths.allowance(TEN), 10);
        paths.on_sent();
        assert_eq!(paths.allowance(TEN), 9);
        assert_eq!(paths.on_opening(A, Some(a), 0, &mut rng), PathNews::None);
        assert_eq!(paths.allowance(TEN), u64::MAX);
        let b = challenge(paths.on_opening(B, Some(a), 0, &mut rng));
        assert_ne!(a, b);
        assert_eq!(paths.current(), Some(A));
        assert_eq!(paths.on_other(B, &mut rng), PathNews::Challenge(b));
        assert_eq!(paths.on_other(A, &mut rng), PathNews::None);
        assert_eq!(paths.on_opening(B, Some(b), 0, &mut rng), PathNews::Moved);
        assert_eq!(paths.current(), Some(B));
        challenge(paths.on_other(A, &mut rng));
    }

    #[test]
    fn a_path_that_the_controller_vouches_for_is_not_challenged_and_no_other_gains_by_it() {
        let mut rng = ChaCha12Rng::from_seed([3; 32]);
        let mut paths = Paths::default();
        paths.vouch(A);
        challenge(paths.on_opening(B, None, 0, &mut rng));
        assert_eq!(paths.allowance(TEN), 10);
        assert_eq!(paths.on_opening(A, None, 0, &mut rng), PathNews::Moved);
        assert_eq!((paths.current(), paths.allowance(TEN)), (Some(A), u64::MAX));
        challenge(paths.on_opening(B, None, 0, &mut rng));
        let mut early = Paths::default();
        challenge(early.on_opening(A, None, 0, &mut rng));
        early.vouch(A);
        assert_eq!((early.unanswered(), early.allowance(TEN)), (None, u64::MAX));
    }

    #[test]
    fn the_memory_of_paths_is_bounded_and_forgets_the_longest_unused() {
        let mut memory = PathMemory::new(2, Duration::from_secs(10));
        let ms = Duration::from_millis;
        let at = |s: u64| Time::ZERO + Duration::from_secs(s);
        memory.record(at(0), NodeId([1; 32]), ms(1));
        memory.record(at(1), NodeId([2; 32]), ms(2));
        assert_eq!(memory.record(at(2), NodeId([1; 32]), ms(5)), ms(1));
        memory.record(at(3), NodeId([3; 32]), ms(3));
        assert_eq!(memory.record(at(4), NodeId([1; 32]), ms(7)), ms(1));
        assert_eq!(memory.record(at(5), NodeId([2; 32]), ms(7)), ms(7));
    }

    #[test]
    fn a_narrow_path_is_remembered_by_receiver_and_forgotten_when_it_is_mended() {
        let mut memory = PathMemory::new(2, Duration::from_secs(10));
        let at = |s: u64| Time::ZERO + Duration::from_secs(s);
        let node = |n: u8| NodeId([n; 32]);
        let narrow = KnownMtu { fits: 1372, wanted: 1472, since: at(0) };
        memory.set_mtu(at(0), node(1), Some(narrow));
        assert_eq!((memory.mtu(node(1)), memory.mtu(node(2))), (Some(narrow), None));
        // Nothing to forget takes no place in the memory.
        memory.set_mtu(at(1), node(2), None);
        memory.set_mtu(at(1), node(3), None);
        memory.set_mtu(at(1), node(4), Some(narrow));
        assert_eq!(memory.mtu(node(1)), Some(narrow));
        memory.set_mtu(at(2), node(1), None);
        assert_eq!(memory.mtu(node(1)), None);
    }
}
