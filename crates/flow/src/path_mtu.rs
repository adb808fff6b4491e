//! The longest datagram that a path carries, found by its two ends alone (RFC 8899, DPLPMTUD).
//!
//! ```text
//!     .------------- a packet of full size is acknowledged, or a probe of the length wanted --------------.
//!     v                                                                                                   |
//!  Passing --suspicion--> Base --answered--> Searching --nothing left to try, or time is over--> Complete |
//!     ^  \                 |                  ^   ^ |                                              |  |   |
//!     |   `-the host says--|------------------|---' `- three probes lost: shorter, or done         |  `---'
//!     |                    v three lost       |                                                    |
//!     `--- three lost --- Error --answered----'<--------- raise timer -----------------------------'
//! ```
//!
//! `Passing` is where a path begins: the caller sends packets of the length that the hosts' interfaces allow, and every
//! one that is acknowledged confirms it (RFC 8899 §4.1 lets data be the probes). So a path that carries what its ends
//! do costs no packet and no round trip. A search begins with the caller's *suspicion*: packets of full size vanish and
//! nothing of them is acknowledged (black hole detection, §4.3). A probe of BASE_PLPMTU then tells a hole for long
//! packets from a path that is down, on which nothing is concluded, and the full length is tried again three times
//! before anything shorter is: a burst of losses leads to no decision.
//!
//! Probes carry no data, are acknowledged by themselves, and are no packets of congestion control: their loss says nothing
//! (§3). One is out at a time, so they are a round trip apart. Lengths are tried by halving a list of common ones, then
//! what is left between two of them (§5.3.2). A search ends after [`PathMtuConfig::search`]: the flow waits for it.
//!
//! Differs from the RFC: it begins with the largest PLPMTU instead of the base; the probe timer follows the round trip,
//! which §5.1.1 allows where it is known. ICMP is not read here: if the kernel believes a message, it refuses longer
//! packets, and the driver tells ([`PathMtu::on_too_long`]); what it says is still probed (§4.6).
//!
//! Knows nothing of flows, symbols or protocols: lengths are whole datagrams above UDP, in bytes.

use headwater_units::{Duration, Time};
use headwater_wire::Probe;
use serde::{Deserialize, Serialize};

/// Lengths and times of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathMtuConfig {
    /// BASE_PLPMTU: 1,200 bytes (RFC 8899 §5.1.2).
    pub base: u16,
    /// MIN_PLPMTU, tried where not even the base passes: 548 bytes, the 576-byte datagram of RFC 791 less its headers.
    pub least: u16,
    /// MAX_PROBES: 3 (RFC 8899 §5.1.2).
    pub probes: u8,
    /// PMTU_RAISE_TIMER, the time after which it is tried again whether more passes: 600 s (RFC 8899 §5.1.1).
    pub raise: Duration,
    /// Least PROBE_TIMER: 20 ms, above the hiccups of a busy host. It is twice the round trip where that is longer.
    pub least_wait: Duration,
    /// PROBE_TIMER while no round trip is known: 250 ms.
    pub first_wait: Duration,
    /// Time after which a search ends with the best that it has found: 1 s; later where three probes of one length and
    /// a fourth take longer.
    pub search: Duration,
}

impl Default for PathMtuConfig {
    fn default() -> Self {
        PathMtuConfig {
            base: 1200,
            least: 548,
            probes: 3,
            raise: Duration::from_secs(600),
            least_wait: Duration::from_millis(20),
            first_wait: Duration::from_millis(250),
            search: Duration::from_secs(1),
        }
    }
}

/// MTUs that are often met: tunnels and overlays (1280 to 1492), Ethernet, jumbo frames of clouds and switches.
const COMMON_MTUS: [u16; 12] = [1280, 1400, 1420, 1450, 1460, 1480, 1492, 1500, 4096, 8192, 8896, 9000];
/// IP and UDP headers.
const HEADERS: [u16; 2] = [20 + 8, 40 + 8];
/// Granularity of the search, in bytes: the search stops when its bounds are closer than this. 2 % of the base.
const GRAIN: u16 = 24;
/// Between two common lengths nothing is tried if they are so far apart: there, other ones are rare.
const WIDE_GAP: u16 = 256;
/// Longest interval between repeated reports of a length that does not pass. Each report doubles the interval.
const LONGEST_SAY: Duration = Duration::from_secs(1);

/// The known limit of a path that carries less than was wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// The longest datagram that passes.
    pub fits: u16,
    /// Length that was wanted; tried again when the raise timer has run out.
    pub wanted: u16,
    /// When it was found.
    pub since: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing speaks against the length wanted.
    Passing,
    /// Does BASE_PLPMTU pass?
    Base,
    /// It does not: does MIN_PLPMTU?
    Error,
    /// The largest length that passes lies between `passes` and `fails`.
    Searching { since: Time, hint: Option<u16> },
    /// The largest length that passes is known, and is less than wanted.
    Complete { since: Time },
}

/// A probe that has not been answered.
#[derive(Clone, Copy, Debug)]
struct Out {
    bytes: u16,
    sent: Time,
    /// Its number and that of the first one of this length: any answer to these will do.
    number: u32,
    first: u32,
}

/// The discovery of one path's MTU, from the end that sends the long packets.
#[derive(Clone, Copy, Debug)]
pub struct PathMtu {
    config: PathMtuConfig,
    /// The caller's packets of full size.
    bytes: u16,
    /// MAX_PLPMTU.
    wanted: u16,
    /// The longest that is known to pass; zero if none is.
    passes: u16,
    /// The shortest that is known not to; `wanted` + 1 if none is.
    fails: u16,
    state: State,
    out: Option<Out>,
    wait: Duration,
    next_number: u32,
    /// State before a suspicion; it holds again if the suspicion was wrong.
    before: Option<Known>,
    /// When the caller's peer is told next that the packets are too long, and how long the wait is after that.
    say: (Time, Duration),
    changed: bool,
}

impl PathMtu {
    /// A path that packets of `bytes` are to take, and what is remembered of it.
    pub fn new(config: PathMtuConfig, bytes: u16, known: Option<Known>) -> Self {
        let wanted = known.map_or(bytes, |k| k.wanted.max(bytes));
        let mut mtu = PathMtu {
            config,
            bytes,
            wanted,
            passes: 0,
            fails: wanted.saturating_add(1),
            state: State::Passing,
            out: None,
            wait: config.first_wait,
            next_number: 0,
            before: None,
            say: (Time::ZERO, config.least_wait),
            changed: false,
        };
        if let Some(Known { fits, since, .. }) = known {
            mtu.passes = fits;
            mtu.state = State::Complete { since };
        }
        mtu
    }

    /// The longest datagram that passes, if the caller's packets are longer.
    pub fn too_long(&self) -> Option<u16> {
        let known = matches!(self.state, State::Complete { .. }) && self.passes < self.bytes;
        known.then_some(self.passes)
    }

    /// The result to remember for later packets on this path.
    pub fn known(&self) -> Option<Known> {
        match self.state {
            State::Complete { since } => Some(Known { fits: self.passes, wanted: self.wanted, since }),
            _ => None,
        }
    }

    /// Whether [`PathMtu::known`] has changed since it was asked last.
    pub fn take_change(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// Whether it is being found out why packets of full size vanish.
    pub fn is_suspicious(&self) -> bool {
        let searching = matches!(self.state, State::Base | State::Error | State::Searching { .. });
        searching && self.passes < self.bytes
    }

    /// Packets of full size vanish, and none is acknowledged. `rtt` is the path's, if it is known.
    pub fn suspect(&mut self, rtt: Option<Duration>) {
        if self.is_suspicious() || self.too_long().is_some() || self.bytes <= self.config.least {
            return;
        }
        self.begin(rtt);
        self.state = if self.bytes > self.config.base { State::Base } else { State::Error };
    }

    /// The host itself refuses packets on this path that are longer than `fits`.
    pub fn on_too_long(&mut self, now: Time, fits: u16, rtt: Option<Duration>) {
        let fits = fits.max(self.config.least);
        if self.out.is_some_and(|out| out.bytes > fits) {
            self.out = None;
            self.fails = self.fails.min(fits.saturating_add(1)).max(self.passes + 1);
        }
        if fits >= self.bytes || self.too_long().is_some_and(|known| known <= fits) {
            return;
        }
        if !self.is_suspicious() {
            self.begin(rtt);
        }
        self.fails = self.fails.min(fits.saturating_add(1));
        self.passes = self.passes.min(self.fails - 1);
        self.state = State::Searching { since: now, hint: Some(fits) };
    }

    /// Forgets what was known and begins anew.
    fn begin(&mut self, rtt: Option<Duration>) {
        self.before = self.known().filter(|known| known.fits >= self.bytes);
        (self.wanted, self.passes, self.fails) = (self.bytes, 0, self.bytes.saturating_add(1));
        self.out = None;
        self.wait = rtt.map_or(self.config.first_wait, |rtt| (rtt * 2).max(self.config.least_wait));
    }

    /// A packet of full size was acknowledged.
    pub fn on_full_size_acknowledged(&mut self) {
        if self.is_suspicious() {
            self.passes = self.bytes;
            self.pass();
        }
    }

    /// The length wanted passes after all, or nothing was learnt.
    fn pass(&mut self) {
        (self.state, self.out) = (State::Passing, None);
        match self.before.take() {
            None => self.changed = true,
            Some(Known { fits, wanted, since }) => {
                (self.passes, self.wanted, self.state) = (fits, wanted, State::Complete { since });
            }
        }
    }

    /// The answer to a probe.
    pub fn on_probe_ack(&mut self, now: Time, number: u32, bytes: u16) {
        let asked = |out: &Out| out.bytes == bytes && (out.first..=out.number).contains(&number);
        let Some(out) = self.out.filter(asked) else { return };
        self.out = None;
        if number == out.number {
            self.wait = (now.since(out.sent) * 2).max(self.config.least_wait);
        }
        self.passes = self.passes.max(bytes);
        match self.state {
            State::Base | State::Error => self.state = State::Searching { since: now, hint: None },
            State::Searching { .. } if self.passes >= self.wanted => self.pass(),
            State::Searching { .. } | State::Passing | State::Complete { .. } => {}
        }
    }

    /// The probe that is to leave now. With `may_probe` false, only one that is short and says what passes.
    pub fn poll(&mut self, now: Time, may_probe: bool) -> Option<Probe> {
        if let Some(fits) = self.too_long() {
            let (at, wait) = self.say;
            if now < at {
                return None;
            }
            self.say = (now + wait, (wait * 2).min(LONGEST_SAY));
            return Some(Probe { number: self.number(), bytes: Probe::SHORTEST, fits: Some(fits) });
        }
        if !may_probe {
            return None;
        }
        if let State::Complete { since } = self.state
            && now >= since + self.config.raise
        {
            self.state = State::Searching { since: now, hint: None };
            (self.fails, self.before) = (self.wanted.saturating_add(1), None);
        }
        if let Some(out) = self.out {
            let over = self.search_ends().is_some_and(|end| now >= end);
            if now < out.sent + self.wait && !over {
                return None;
            }
            if !over && out.number.wrapping_sub(out.first) + 1 < u32::from(self.config.probes) {
                return Some(self.probe(now, out.bytes, Some(out.first)));
            }
            self.out = None;
            self.on_no_answer(out.bytes);
        }
        match self.next_length(now) {
            Some(bytes) => Some(self.probe(now, bytes, None)),
            // The end of a search is what the peer is to hear of.
            None => self.too_long().and_then(|_| self.poll(now, may_probe)),
        }
    }

    /// When a search that has found something is over, whatever is left to try.
    fn search_ends(&self) -> Option<Time> {
        match self.state {
            State::Searching { since, .. } if self.passes > 0 => {
                Some(since + self.config.search.max(self.wait * 4))
            }
            _ => None,
        }
    }

    fn on_no_answer(&mut self, bytes: u16) {
        match self.state {
            State::Base => (self.state, self.fails) = (State::Error, bytes),
            // The path is down, for whatever reason: nothing was learnt.
            State::Error => self.pass(),
            State::Searching { .. } => self.fails = self.fails.min(bytes),
            State::Passing | State::Complete { .. } => {}
        }
    }

    /// The next length to try; ends the search if there is none.
    fn next_length(&mut self, now: Time) -> Option<u16> {
        let over = self.search_ends().is_some_and(|end| now >= end);
        match &mut self.state {
            State::Passing | State::Complete { .. } => None,
            State::Base => Some(self.config.base),
            State::Error => Some(self.config.least),
            State::Searching { hint, .. } => {
                let between = self.passes + 1..self.fails;
                let hint = hint.take().filter(|hint| between.contains(hint));
                let base = self.config.base;
                let next = hint.or_else(|| between_lengths(self.passes, self.fails, self.wanted, base));
                match next.filter(|_| !over) {
                    Some(bytes) => Some(bytes),
                    None if self.passes == 0 => {
                        // The length that the host suggested does not pass either.
                        self.state = State::Base;
                        Some(self.config.base)
                    }
                    None => {
                        self.state = State::Complete { since: now };
                        self.wanted = self.before.take().map_or(self.wanted, |b| b.wanted.max(self.wanted));
                        self.say = (now, self.wait);
                        self.changed = true;
                        None
                    }
                }
            }
        }
    }

    fn probe(&mut self, now: Time, bytes: u16, first: Option<u32>) -> Probe {
        let number = self.number();
        self.out = Some(Out { bytes, sent: now, number, first: first.unwrap_or(number) });
        Probe { number, bytes, fits: None }
    }

    fn number(&mut self) -> u32 {
        self.next_number = self.next_number.wrapping_add(1);
        self.next_number
    }

    /// When [`PathMtu::poll`] has something to do next.
    pub fn deadline(&self, may_probe: bool) -> Option<Time> {
        if self.too_long().is_some() {
            return Some(self.say.0);
        }
        match (self.state, self.out) {
            _ if !may_probe => None,
            (State::Passing, _) => None,
            (State::Complete { since }, _) => Some(since + self.config.raise),
            (_, Some(out)) => {
                let answer = out.sent + self.wait;
                Some(self.search_ends().map_or(answer, |end| end.min(answer)))
            }
            (_, None) => Some(Time::ZERO),
        }
    }
}

/// The length to try next where `passes` does and `fails` does not; `None` if they are close enough.
fn between_lengths(passes: u16, fails: u16, wanted: u16, base: u16) -> Option<u16> {
    if fails > wanted {
        return Some(wanted).filter(|wanted| *wanted > passes);
    }
    let lengths = COMMON_MTUS.iter().flat_map(|mtu| HEADERS.map(|headers| mtu - headers));
    let mut common: Vec<u16> = lengths.filter(|length| (passes + 1..fails).contains(length)).collect();
    common.sort_unstable();
    // Both can be true at once of a path that has changed; then there is nothing between them.
    let gap = fails.checked_sub(passes)?;
    match common.get(common.len() / 2) {
        Some(middle) => Some(*middle),
        None if gap > GRAIN && (gap < WIDE_GAP || fails <= base) => Some(passes + gap / 2),
        None => None,
    }
}
