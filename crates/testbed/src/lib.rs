//! The testbed: networks of this machine's own, for real programs and real packets.
//!
//! | Module | What |
//! |---|---|
//! | [`netns`] | hosts in namespaces, limits and losses in the middle, built from `ip`, `tc` and `nft` |
//! | [`soft_switch`] | a scenario's network as a switch that moves Ethernet frames in real time |
//! | [`emulate`] | hosts in namespaces around such a switch, and how a running network is asked and changed |
//! | [`tcp`] | the kernel's TCP, to compare with |
//!
//! The crate knows nothing of the product. Which programs run in such a network is up to others.

pub mod emulate;
pub mod netns;
pub mod soft_switch;
pub mod tcp;
