//! What a demo is asked to do.

use headwater_units::{BitRate, Bytes, Duration};

use headwater_api::Common;

/// `headwater demo`. Sources count from zero: those of `rates`, then those of `joins` in the order given.
#[derive(Clone, Debug, PartialEq)]
pub struct DemoOptions {
    /// What every command knows.
    pub common: Common,
    /// The uplinks of the sources that are there from the start; at least one.
    pub rates: Vec<BitRate>,
    /// Size of the object; not zero.
    pub size: Bytes,
    /// Share of data packets lost at random, 0..1.
    pub loss: f64,
    /// These sources vanish, so long after the first request.
    pub kills: Vec<(usize, Duration)>,
    /// Further sources of this uplink appear, so long after the first request.
    pub joins: Vec<(BitRate, Duration)>,
    /// These sources' uplinks change, so long after the first request.
    pub rerates: Vec<(usize, Duration, BitRate)>,
    /// Everything random comes from it.
    pub seed: u64,
    /// Leave files and logs behind.
    pub keep: bool,
}
