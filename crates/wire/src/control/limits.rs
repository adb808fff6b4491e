//! The limits that messages share.

use headwater_units::Theta;

/// Names, racks and texts are at most this many bytes.
pub const MAX_NAME: usize = 1024;
/// Names of one object that one node may have.
pub const MAX_NAMES: usize = 16;
/// Lists of flows have at most this many entries.
pub const MAX_FLOWS: usize = 256;
/// Lists of a node's addresses have at most this many entries.
pub(super) const MAX_ADDRESSES: usize = 16;

/// An error that names `what` unless `ok` holds.
pub(super) fn check(ok: bool, what: &'static str) -> Result<(), &'static str> {
    if ok { Ok(()) } else { Err(what) }
}

/// A weight is a number above zero.
pub(super) fn weight(theta: Theta) -> Result<(), &'static str> {
    check(theta.get().is_finite() && theta.get() > 0.0, "a theta that is no weight")
}
