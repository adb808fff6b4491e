//! Configuration of the source of scheduled transfers.

use headwater_policy::pam::{Late, Order, Ranking};
use headwater_units::{BitRate, Bytes, Duration};
use headwater_wire::{Precedence, RateTerms, TransferOrder};
use serde::{Deserialize, Serialize};

use headwater_flow::paths::Unanswered;

/// Configuration of the source of scheduled transfers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RateSourceConfig {
    /// Rate of this host's link: the offer that datagrams leave with, and the most that a transfer is ever sent at (PAM §III-A). 1 Gbit/s
    /// unless the driver knows better.
    pub link: BitRate,
    /// Bytes of a symbol that the rate counts; `None`: those of its datagram.
    pub packet: Option<Bytes>,
    /// Part of the schedule that a late driver catches up on. 1 ms: the resolution of `epoll_wait`.
    pub catch_up: Duration,
    /// A rate at which a symbol would have to wait for longer counts as none, unless it is a quarter of the link's: the transfer probes instead.
    /// 100 ms.
    pub longest_gap: Duration,
    /// Interval of probes.
    pub probes: ProbeConfig,
    /// Order of transfers, and treatment of those whose deadline cannot be met. All share alike unless stated
    /// otherwise.
    pub ranking: Ranking,
    /// A transfer that will be complete within a round trip gives its share back before its last symbols (PAM footnote 3). Off, as in the
    /// paper's simulations.
    pub early_start: bool,
    /// Silence while the transfer was sent after which a receiver is left behind. 500 ms: receivers say something every
    /// [`keep_alive`](super::RateReceiverConfig::keep_alive) at least.
    pub detach_after: Duration,
    /// Time after the first word of a member after which silent members of the group are left behind. 1 s, as of pulled
    /// groups.
    pub assemble_for: Duration,
    /// Interval at which a receiver that was left behind is told so again, until it has understood. 50 ms, doubled up
    /// to 32 times.
    pub retell: Duration,
    /// Silence of its receiver after which a flow is over. 40 s, as of pulled flows.
    pub silent_release: Duration,
    /// Before its address has echoed a nonce, a receiver gets little (docs/decisions/0030). Off where addresses cannot be forged, as in a
    /// simulation.
    pub validates_paths: bool,
    /// How little.
    pub unanswered: Unanswered,
    /// Signs that no switch computes the rate; `None`: nothing is taken for one.
    pub fallback: Option<FallbackConfig>,
    /// Blocks prepared ahead of the one that is sent. 4, as for pushed flows.
    pub prepare_ahead: u32,
    /// Blocks kept ready behind the one that is sent, for repairs. 8; older ones are read again.
    pub keep_ready: u32,
}

/// How often a paused transfer asks for an offer (PAM §III-A).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProbeConfig {
    /// Interval before any round-trip time is known. 10 ms.
    pub first: Duration,
    /// Time over which receivers of a group spread their answers while no round-trip time is known. 1 ms.
    pub spread: Duration,
    /// The interval is as many round trips as the remaining size has multiples of this, at least one. 100 MB.
    pub per: Bytes,
    /// Most round trips of it. 10.
    pub most: u32,
    /// The interval is never shorter. 20 us.
    pub shortest: Duration,
    /// When nothing is left to send, or nobody answers, each interval is twice the one before, up to this. 50 ms.
    pub longest_idle: Duration,
}

/// Signs that no switch computes the rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FallbackConfig {
    /// A receiver loses more than this share of the packets, and not by chance. 2 %.
    pub loss: f64,
    /// Least round trips over which losses are counted, and number of long round trips from which on a queue stands.
    /// 10.
    pub round_trips: u32,
    /// A round trip is long from this many times the shortest one on. 2: the queue holds a round trip's worth, which
    /// switches that compute rates drain (PAM footnote 4: q0 is one bandwidth-delay product).
    pub long: f64,
    /// Longer than the shortest by this at least: less may be the hosts' own delay. 100 us.
    pub jitter: Duration,
    /// Least time for which a queue stands, however short round trips are: less may be a host's that is stopped at
    /// times. Zero.
    pub lasts: Duration,
}

/// A precedence as [`headwater_policy`] has it.
fn ranking(precedence: Precedence) -> Ranking {
    Ranking {
        order: match precedence.order {
            TransferOrder::SmallestRemaining => Order::SmallestRemaining,
            TransferOrder::EarliestDeadline => Order::EarliestDeadline,
            TransferOrder::FirstCome => Order::FirstCome,
            TransferOrder::Fair => Order::Fair,
            TransferOrder::Stated(rank) => Order::Stated(rank),
        },
        late: if precedence.drops_late { Late::Dropped } else { Late::RanksLast },
    }
}

impl Default for RateSourceConfig {
    fn default() -> Self {
        RateSourceConfig {
            link: BitRate::new(1_000_000_000),
            packet: None,
            catch_up: Duration::from_millis(1),
            longest_gap: Duration::from_millis(100),
            probes: ProbeConfig::default(),
            ranking: Ranking { order: Order::Fair, late: Late::RanksLast },
            early_start: false,
            detach_after: Duration::from_millis(500),
            assemble_for: Duration::from_secs(1),
            retell: Duration::from_millis(50),
            silent_release: Duration::from_secs(40),
            validates_paths: true,
            unanswered: Unanswered::Packets(10),
            fallback: Some(FallbackConfig::default()),
            prepare_ahead: 4,
            keep_ready: 8,
        }
    }
}

impl Default for ProbeConfig {
    fn default() -> Self {
        ProbeConfig {
            first: Duration::from_millis(10),
            spread: Duration::from_millis(1),
            per: Bytes::new(100_000_000),
            most: 10,
            shortest: Duration::from_micros(20),
            longest_idle: Duration::from_millis(50),
        }
    }
}

impl Default for FallbackConfig {
    fn default() -> Self {
        FallbackConfig {
            loss: 0.02,
            round_trips: 10,
            long: 2.0,
            jitter: Duration::from_micros(100),
            lasts: Duration::ZERO,
        }
    }
}

impl RateSourceConfig {
    /// For a transfer of which the controller says this, if it says anything.
    pub(super) fn under(self, terms: Option<RateTerms>) -> Self {
        let Some(RateTerms { precedence, link, queue, .. }) = terms else { return self };
        let fallback = self.fallback.map(|it| FallbackConfig { jitter: it.jitter.max(queue), ..it });
        RateSourceConfig { ranking: ranking(precedence), link: link.unwrap_or(self.link), fallback, ..self }
    }

    /// Of hosts whose programs are woken some milliseconds late at times: round trips are no sign of a queue until they are longer by more
    /// than that, and a rate so low that a symbol waits for longer than a wake-up may be late is asked about with probes.
    pub fn on_hosts() -> Self {
        let (jitter, lasts) = (Duration::from_millis(20), Duration::from_secs(1));
        let fallback = FallbackConfig { jitter, lasts, ..FallbackConfig::default() };
        let longest_gap = Duration::from_millis(50);
        RateSourceConfig { fallback: Some(fallback), longest_gap, ..RateSourceConfig::default() }
    }

    /// Configuration of the paper's simulations (PAM §V): nobody forges addresses, and all switches are known to
    /// compute rates.
    pub fn data_centre(link: BitRate) -> Self {
        RateSourceConfig { link, validates_paths: false, fallback: None, ..RateSourceConfig::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_that_switches_tolerate_is_no_sign_of_one_that_grants_nothing() {
        let jitter = |queue| {
            let terms = RateTerms { precedence: Precedence::default(), link: None, around: 0, queue };
            RateSourceConfig::on_hosts().under(Some(terms)).fallback.unwrap().jitter
        };
        assert_eq!(jitter(Duration::from_millis(500)), Duration::from_millis(500));
        assert_eq!(jitter(Duration::ZERO), RateSourceConfig::on_hosts().fallback.unwrap().jitter);
    }
}
