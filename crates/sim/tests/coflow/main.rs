//! The engine of coflows on ports beside today's engine of rates, by hand, and by what must hold of every run.

mod by_hand;
mod cases;
mod oracle;
mod properties;
