//! The fluid model of weighted fair congestion control (PPUSH §IV-A, Table I).
//!
//! * [`steady`]: where long-lived flows settle, as formulas (Theorem 1, Eq. 12-21).
//! * [`model`]: windows, mark fractions and queues over time (Eq. 3-8); [`integrate()`] takes steps of one round trip, as the
//!   paper does, or fine ones.
//!
//! Knows windows that only grow by one per round trip and shrink by marks, as the equations do: no slow start, no loss,
//! no timeouts, no whole packets.

mod integrate;
pub mod model;
pub mod steady;

pub use integrate::integrate;
