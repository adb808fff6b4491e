//! PAM: the source sends at the rate that the switches on the way compute; all receivers of a transfer are served together (PAM §III).
//!
//! ```text
//!                     p, r, b = rate of the link     b lowered at each port    b lowered to what can be taken in
//!   RateFlow ------------- probes, symbols, FIN --------> switches ----------> RateReceiver
//!      ^                                                                           |
//!      +---- feedback: b, how long it was held, losses; NACK: what is missing <----+
//! ```
//! - A source sends at the least of the offers that its receivers feed back, and at nothing before all have spoken. While that is zero it
//!   asks with probes (§III-A).
//! - A receiver feeds an offer back when it has changed by more than γ, or else rarely, and after a random delay (Alg. 1).
//! - Lost symbols are named in NACKs, and made good by repair symbols for all, or sent again as in the paper.
//! - A receiver that falls silent is left behind, and what it misses is sent to it alone (as in SCDP's groups).
//! - **Where no switch computes rates, the offer stays at that of the link.** So a transfer may be scheduled only where they do; the
//!   controller must know. A source that sees much loss or a standing queue stops, and says so ([`WhyFallback`]): the receivers go on by
//!   pulls, with what they have.
//!
//! Ranks are those of [`headwater_policy::pam`]. The switches' part is not here, nor the membership of groups.
//!
//! A receiver can do harm to its own group: by offering nothing, by asking for repairs, or by claiming losses. To others it does none.
//!
//! Differs from the paper: receivers also answer when the source evidently has not heard them, and every
//! [`keep_alive`](RateReceiverConfig::keep_alive) at least, so that silence means something; feedback that waits for its random delay
//! leaves with the newest offer; NACKs count, and leave a round trip after each other. There is no SYN: the controller opens flows, and the
//! first probe is the first datagram.
//!
//! [`WhyFallback`]: crate::WhyFallback

mod arrivals;
mod config;
mod feedback;
mod members;
mod rate_flow;
mod rate_receiver;
mod reach;
mod sent;
mod supply;
mod transfer;
mod watch;

use headwater_units::Duration;

pub use config::{FallbackConfig, ProbeConfig, RateSourceConfig};
pub use headwater_flow::task::{RateReceiverConfig, Repair};
pub(crate) use rate_flow::{Common, RateFlow};
pub(crate) use rate_receiver::RateReceiver;

/// Holding time in the feedback of a receiver that has got nothing yet: the longest that travels. It answers no packet.
const OPENING_HELD: Duration = Duration::from_nanos(u32::MAX as u64);
