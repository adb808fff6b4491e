//! Errors in a description of a network, or in a question about one.

use headwater_units::{BitRate, Duration};
use thiserror::Error;

use crate::HostId;

/// Why a topology cannot be built, or a question about it not be answered.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FabricError {
    /// A number is below what makes sense.
    #[error("{what} must be at least {least}, got {given}")]
    TooSmall {
        /// The field.
        what: &'static str,
        /// The value as given.
        given: u64,
        /// The smallest that is allowed.
        least: u64,
    },
    /// The k of a fat-tree is odd.
    #[error("k must be even, got {given}")]
    OddK {
        /// The value as given.
        given: u32,
    },
    /// The network is larger than a fabric may be.
    #[error(
        "{points} points and {cables} cables are too many: at most {most_points} points and {most_cables} cables; \
         make the network smaller"
    )]
    TooLarge {
        /// Hosts and switches described.
        points: u128,
        /// Cables described.
        cables: u128,
        /// [`MAX_POINTS`](crate::MAX_POINTS).
        most_points: u128,
        /// [`MAX_CABLES`](crate::MAX_CABLES).
        most_cables: u128,
    },
    /// A rate is zero, or more than a line can be modelled at.
    #[error("{what} comes to {given}; it must be from 1 bit/s to {most}")]
    RateOutOfRange {
        /// The field.
        what: String,
        /// The rate that results with the given packet size.
        given: BitRate,
        /// The largest that is allowed.
        most: BitRate,
    },
    /// A delay is longer than any link's.
    #[error("{what} is {given}; it must be at most {most}")]
    DelayOutOfRange {
        /// The field.
        what: String,
        /// The value as given.
        given: Duration,
        /// The longest that is allowed.
        most: Duration,
    },
    /// A list has the wrong number of entries.
    #[error("{what} has {given} entries and needs {needed}: {why}")]
    WrongLength {
        /// The field.
        what: &'static str,
        /// Its length.
        given: usize,
        /// The length that fits.
        needed: usize,
        /// Where that comes from.
        why: &'static str,
    },
    /// A field that cannot be left out here.
    #[error("{what} is missing: {why}")]
    Missing {
        /// The field.
        what: &'static str,
        /// Why it is needed here.
        why: &'static str,
    },
    /// Two fields that exclude each other.
    #[error("give either {one} or {other}, not both")]
    Conflict {
        /// The one.
        one: &'static str,
        /// The other.
        other: &'static str,
    },
    /// Something the chosen form of a network does not know.
    #[error("{what} is not known here: {why}")]
    NotKnown {
        /// The field.
        what: &'static str,
        /// The advice.
        why: &'static str,
    },
    /// A name that is empty or holds what separates names.
    #[error("'{name}' cannot be a name: write it without spaces and commas")]
    BadName {
        /// The name as given.
        name: String,
    },
    /// Two points with one name.
    #[error("two points are named '{name}'; rename one")]
    DuplicateName {
        /// The name.
        name: String,
    },
    /// A name that no point has.
    #[error("{what} names '{name}', but there is no such point")]
    UnknownPoint {
        /// The field.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// A cable with both ends at one point.
    #[error("the link of '{name}' to itself leads nowhere; remove it")]
    SelfLink {
        /// The point.
        name: String,
    },
    /// A host of an explicit graph could not be read.
    #[error("'{text}' is not a host: {why}; write 'h0' or 'h0 on s0, 10 Gbit/s, 40 us'")]
    HostLine {
        /// The text as given.
        text: String,
        /// The problem.
        why: String,
    },
    /// A host that does not exist.
    #[error("there is no host {host}; there are {hosts}, counted from 0")]
    UnknownHost {
        /// The host as given.
        host: HostId,
        /// How many there are.
        hosts: usize,
    },
    /// A group in which nobody wants anything.
    #[error("the group of source {host} has no receivers; name at least one")]
    NoReceivers {
        /// Its source.
        host: HostId,
    },
    /// A source that is to send to itself.
    #[error("host {host} is the group's source and one of its receivers; name it once")]
    ReceivesItself {
        /// The host.
        host: HostId,
    },
    /// Only fat-trees have D-mod-k paths.
    #[error("D-mod-k paths need a fabric of kind 'fat-tree'")]
    NotFatTree,
    /// The table of all routes would not fit.
    #[error(
        "routes from {points} points to {hosts} hosts are {entries} entries, at most {most} are kept; ask for one \
         destination at a time"
    )]
    TooManyRoutes {
        /// Points of the fabric.
        points: usize,
        /// Its hosts.
        hosts: usize,
        /// The product.
        entries: u128,
        /// The bound.
        most: u128,
    },
}
