//! SCDP: real sources, real sessions, and a network between them that loses, trims, doubles, delays and reorders.

mod crawl;
mod group;
mod hostile;
mod many;
mod net;
mod properties;
mod side_by_side;
mod trust;
mod unicast;
