//! Models of a network: packets (discrete events), rates (flow; coflow for 10^5 flows on one switch), equations (fluid).
//!
//! Each model takes plain values and gives plain records; `headwater-experiment` makes the values from a few lines of text.
//! The packet engine ([`packet`]) runs the machines of the product, [`flow`] and [`fluid`] the rules of the papers.

pub mod coflow;
pub mod flow;
pub mod fluid;
pub mod packet;
