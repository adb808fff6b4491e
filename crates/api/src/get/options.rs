//! A `get` with everything that it needs.

use std::path::PathBuf;

use headwater_units::{Bytes, Duration, ObjectId};
use headwater_wire::{Delivery, SpreadRule};

use crate::{Common, Get, Output, Where};

/// A get, with all that the node knows.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct GetOptions {
    /// Options that every command has.
    pub(crate) common: Common,
    /// A name, an id, or the beginning of one.
    pub(crate) what: String,
    /// Holder of the object, or a controller.
    pub(crate) at: Where,
    /// Where it goes.
    pub(crate) output: Output,
    /// Only these bytes: the first, and the one after the last (`None`: to the end). Not empty.
    pub(crate) range: Option<(Bytes, Option<Bytes>)>,
    /// The only id accepted, whatever the name points at.
    pub(crate) hash: Option<ObjectId>,
    /// Compute SHA-256 too.
    pub(crate) sha256: bool,
    /// Replace an existing file.
    pub(crate) overwrite: bool,
    /// Transport to use; the controller's choice if absent.
    pub(crate) delivery: Option<Delivery>,
    /// Which symbols each source sends, where sources push.
    pub(crate) spread: SpreadRule,
    /// Maximum number of sources at once; at least 1.
    pub(crate) max_sources: Option<u8>,
    /// A fixed weight for every flow, instead of Algorithm 1; only with [`Where::From`].
    pub(crate) theta: Option<f64>,
    /// Record the machines' inputs here.
    pub(crate) record: Option<PathBuf>,
    /// Connect, report that, and request only after a line on standard input.
    pub(crate) wait_for_start: bool,
    /// Time after which it gives up; a wait for the start does not count.
    pub(crate) timeout: Option<Duration>,
    /// From the request until it should be complete, if that matters.
    pub(crate) deadline: Option<Duration>,
    /// Stay for a moment for those who are served from what came.
    pub(crate) drain: bool,
}

impl GetOptions {
    /// A request, by a process with these settings.
    pub(crate) fn of(common: &Common, at: Where, output: Output, get: Get) -> Self {
        let common = Common {
            gentle: common.gentle || get.gentle,
            limit: get.limit.or(common.limit),
            ..common.clone()
        };
        GetOptions {
            common,
            what: get.what,
            at,
            output,
            range: get.range,
            hash: get.hash,
            sha256: get.sha256,
            overwrite: get.overwrite,
            delivery: get.delivery,
            spread: get.spread,
            max_sources: get.max_sources,
            theta: get.theta,
            record: get.record,
            wait_for_start: get.wait_for_line,
            timeout: get.timeout,
            deadline: get.deadline,
            drain: get.drain,
        }
    }
}
