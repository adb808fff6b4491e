//! The comparison schemes, each against the sentences of its RFC, and all of them against a network that loses, reorders,
//! doubles and marks.

mod any_network;
mod bench;
mod dccp;
mod dctcp;
mod ending;
mod growing;
mod ndp;
mod net;
mod recovery;
mod window;
