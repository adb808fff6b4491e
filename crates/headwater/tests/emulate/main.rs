//! The emulated network under real sockets: its rates, delays, queues and faults are the scenario's, and nothing of it is
//! left behind.
//!
//! Needs the right to make namespaces, or else is skipped with the reason. A result that depends on timing counts only
//! if the switch kept time ([`headwater_testbed::soft_switch::Validity`]): it is measured up to three times, and then
//! skipped as "machine too busy".
#![allow(clippy::disallowed_methods, reason = "drives real sockets on a real clock")]

mod auto;
#[path = "../cluster/mod.rs"]
mod cluster;
mod command;
mod common;
mod multicast;
mod nodes;
mod options;
mod pcap;
mod pulled;
mod storm;
mod traffic;
mod trimmed;
