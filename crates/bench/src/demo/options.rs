//! Options of a demo.

use headwater_units::{BitRate, Bytes, Duration};

use headwater_api::Common;

/// `headwater demo`. Sources count from zero: those of `rates`, then those of `joins` in the order given.
#[derive(Clone, Debug, PartialEq)]
pub struct DemoOptions {
    /// Options that every command has.
    pub common: Common,
    /// The uplinks of the sources that are there from the start; at least one.
    pub rates: Vec<BitRate>,
    /// Size of the object; not zero.
    pub size: Bytes,
    /// Share of data packets lost at random, 0..1.
    pub loss: f64,
    /// Sources that vanish, and the time after the first request.
    pub kills: Vec<(usize, Duration)>,
    /// Uplinks of further sources that appear, and the time after the first request.
    pub joins: Vec<(BitRate, Duration)>,
    /// Sources whose uplinks change, the time after the first request, and the new rate.
    pub rerates: Vec<(usize, Duration, BitRate)>,
    /// Everything random comes from it.
    pub seed: u64,
    /// Leave files and logs behind.
    pub keep: bool,
}
