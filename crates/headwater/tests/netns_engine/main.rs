//! `headwater lab run --engine netns`, as people run it: real daemons on real packets, and nothing of them afterwards.
//!
//! Needs the right to make namespaces, itself or in a user namespace, or else is skipped with the reason. Runs in which the
//! switch was late are skipped by the engine ("machine too busy"): what they would have shown is then not looked at.
#![allow(clippy::disallowed_methods, reason = "drives real processes on a real clock")]

mod common;
mod faults;
mod forwarding;
mod leftovers;
mod parity;
mod pcap;
mod shuffles;
mod unprivileged;
