//! Which code point of the IP header a class travels with, and which one says that a switch cut the payload off.
//!
//! A switch sees a datagram's class only in the differentiated services field (RFC 2474). The choice, unless somebody
//! decides otherwise:
//!
//! | Class | DSCP | Why |
//! |---|---|---|
//! | [`Class::Control`] | 48 | class selector 6, which is preferred to the default (RFC 2474 §4.2.2.2, RFC 4594 §3.1) |
//! | [`Class::First`], [`Class::Second`], [`Class::Third`] | 27, 19, 11 | local use; precedence 3, 2, 1 |
//! | [`Class::Bulk`] | 0 | default forwarding |
//! | [`Class::Gentle`] | 1 | lower effort (RFC 8622) |
//! | trimmed | 51 | local use; precedence 6, as control |
//!
//! The levels above bulk take pool 2, `xxxx11`, "experimental or local use" (RFC 2474 §6), and not the code points of
//! RFC 4594: those are promises that a network has made to video or signalling, and they say nothing about what a flow has
//! sent so far. A network that knows nothing of the levels forwards an unknown code point as the default (RFC 2474 §3), so
//! nothing is taken from anybody; equipment that looks at the old precedence alone serves them in their order; and an
//! operator can give each a queue of its own without touching other traffic. CS1 is nobody's level: it was lower effort
//! before RFC 8622.
//!
//! The command line decides otherwise of control: it leaves with data's code point, which no network polices, unless
//! `--dscp-control` says so. `docs/push-or-pull.md` has the settings for switches that trim.
//!
//! Not here: which datagrams have which class, and the field itself, which is the driver's to write.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::Class;

/// Class selector 6: control.
pub const DSCP_CONTROL: u8 = 48;
/// Class selector 7: what a network says to itself; the same class here.
pub const DSCP_NETWORK_CONTROL: u8 = 56;
/// Symbols of the first level.
pub const DSCP_FIRST: u8 = 27;
/// Symbols of the second level.
pub const DSCP_SECOND: u8 = 19;
/// Symbols of the third level.
pub const DSCP_THIRD: u8 = 11;
/// Lower effort (RFC 8622): symbols of the gentle class.
pub const DSCP_LOWER_EFFORT: u8 = 1;
/// Code point of trimmed packets.
pub const DSCP_TRIMMED: u8 = 51;

/// The code point of each class, 0..=63, and that of trimmed packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodePoints {
    /// By the class's number.
    of: [u8; Class::ALL.len()],
    trimmed: u8,
}

/// Code points cannot be chosen so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CodePointError {
    /// The field has six bits.
    #[error("{0} is not a code point: it must be in 0..=63")]
    Range(u8),
    /// Every packet of the class would look as if it had been trimmed.
    #[error("code point {dscp} marks trimmed packets, and cannot be that of class {class:?} too")]
    Trimmed {
        /// The code point.
        dscp: u8,
        /// Class that uses the code point already.
        class: Class,
    },
}

impl Default for CodePoints {
    /// A code point for every class, see the module's table.
    fn default() -> Self {
        let of = Class::ALL.map(|class| match class {
            Class::Control => DSCP_CONTROL,
            Class::First => DSCP_FIRST,
            Class::Second => DSCP_SECOND,
            Class::Third => DSCP_THIRD,
            Class::Bulk => 0,
            Class::Gentle => DSCP_LOWER_EFFORT,
        });
        CodePoints { of, trimmed: DSCP_TRIMMED }
    }
}

impl CodePoints {
    /// One for each class, and that of trimmed packets.
    ///
    /// # Errors
    /// [`CodePointError`]: more than six bits, or a class that would look trimmed.
    pub fn new(of: impl Fn(Class) -> u8, trimmed: u8) -> Result<Self, CodePointError> {
        let points = CodePoints { of: Class::ALL.map(of), trimmed };
        if let Some(dscp) = points.of.into_iter().chain([trimmed]).find(|dscp| *dscp > 63) {
            return Err(CodePointError::Range(dscp));
        }
        match Class::ALL.into_iter().find(|class| points.of(*class) == trimmed) {
            Some(class) => Err(CodePointError::Trimmed { dscp: trimmed, class }),
            None => Ok(points),
        }
    }

    /// Code point of datagrams of a class.
    #[inline]
    pub fn of(&self, class: Class) -> u8 {
        self.of[class as usize]
    }

    /// Code point of trimmed packets.
    #[inline]
    pub fn trimmed(&self) -> u8 {
        self.trimmed
    }
}

/// The class that a DSCP stands for where nobody has decided otherwise: control, trimmed packets with it, the levels, gentle
/// for lower effort; else bulk, which is what an unknown code point gets (RFC 2474 §3: as the default).
pub const fn class_of(dscp: u8) -> Class {
    match dscp {
        DSCP_CONTROL | DSCP_NETWORK_CONTROL | DSCP_TRIMMED => Class::Control,
        DSCP_FIRST => Class::First,
        DSCP_SECOND => Class::Second,
        DSCP_THIRD => Class::Third,
        DSCP_LOWER_EFFORT => Class::Gentle,
        _ => Class::Bulk,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_is_known_again_by_its_code_point() {
        let points = CodePoints::default();
        for class in Class::ALL {
            assert_eq!(class_of(points.of(class)), class);
        }
        assert_eq!(class_of(points.trimmed()), Class::Control);
        let known = |class: Class| (0..64).filter(move |dscp| class_of(*dscp) == class).count();
        assert_eq!(Class::ALL.map(known), [3, 57, 1, 1, 1, 1], "all others are bulk");
    }

    /// RFC 791: precedence is the upper three bits.
    #[test]
    fn old_equipment_serves_the_levels_in_their_order() {
        let points = CodePoints::default();
        let above_bulk = Class::LEVELS[..4].iter().map(|level| points.of(*level) >> 3);
        assert_eq!(above_bulk.collect::<Vec<_>>(), [3, 2, 1, 0]);
        assert!(points.trimmed() >> 3 == 6 && points.of(Class::Control) >> 3 == 6);
    }

    #[test]
    fn only_pool_two_is_for_local_use() {
        for dscp in [DSCP_FIRST, DSCP_SECOND, DSCP_THIRD, DSCP_TRIMMED] {
            assert_eq!(dscp & 0b11, 0b11, "{dscp}");
        }
    }

    #[test]
    fn a_class_that_would_look_trimmed_is_refused() {
        assert_eq!(CodePoints::new(|_| 10, 11).unwrap().of(Class::Gentle), 10);
        let both = |class| if class == Class::Third { 51 } else { 0 };
        assert_eq!(CodePoints::new(both, 51), Err(CodePointError::Trimmed { dscp: 51, class: Class::Third }));
        assert_eq!(CodePoints::new(|_| 64, 51), Err(CodePointError::Range(64)));
        assert_eq!(CodePoints::new(|_| 0, 77), Err(CodePointError::Range(77)));
    }
}
