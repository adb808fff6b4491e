//! The fluid model of Datacast's congestion control on one tree (Datacast §V-D and Appendix).
//!
//! * [`bounds`]: Theorems 1 and 2 as formulas, and what the paper reckons beside them.
//! * [`model`]: the positions of the source and of its slowest receiver over time (Eq. 2-4).
//!
//! Knows one slowest receiver of constant rate behind one critical caching node, and the fast ones only as those that keep
//! this node's cache new: no queue that overflows, no loss, no whole packets, no other trees.

pub mod bounds;
pub mod model;
