//! Equations instead of packets: what a protocol's own analysis says will happen.
//!
//! * [`ppush`]: weighted fair congestion control of push flows (PPUSH §IV-A).
//! * [`datacast`]: one tree, its slowest receiver and its caches (Datacast §V-D).
//! * [`pam`]: long transfers over ports that grant rates (PAM §III-C).

pub mod datacast;
pub mod pam;
pub mod ppush;
