//! Equations instead of packets: what a protocol's own analysis says will happen.
//!
//! * [`ppush`]: weighted fair congestion control of push flows (PPUSH §IV-A).

pub mod datacast;
pub mod ppush;
