//! The controller of PPUSH §III-A and §III-C, driven by hand: what it says to whom, and when.

mod casts;
mod chaos;
mod coflows;
mod departures;
mod flows;
mod harness;
mod names;
mod overlays;
mod rates;
mod registry;
mod shares;
mod standing_casts;
mod starts;
mod swarm_detection;
mod tasks;
mod trees;
mod weights;
