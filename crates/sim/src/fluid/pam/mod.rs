//! Rates of long transfers over ports that grant them, without packets (PAM §III-C, Fig. 2 and 3).
//!
//! * [`model`]: the allocators of `switch`, fed with the fluid of transfers that send at what they were offered a round trip ago.
//!
//! Knows no sources and receivers: no probe interval, no random delay, no loss, no whole packets. Every offer takes one round trip, the same
//! for all.

pub mod model;
