//! Probes of a path's MTU and their answers (RFC 8899 §4.1).
//!
//! A probe is a datagram of the length in question, filled up with zeros: it carries nothing that would be missed. The
//! choice of the length to try, and the consequences of an answer, are not here.

use serde::{Deserialize, Serialize};

use crate::{HEADER, WireError};

/// Source to receiver: does a datagram of this length arrive?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    /// Counts the probes of a flow, so that a late answer is not taken for another's.
    pub number: u32,
    /// The whole datagram, bytes above UDP; at least [`Probe::SHORTEST`].
    pub bytes: u16,
    /// The longest datagram that passes here, where it is known that the flow's symbols do not; never zero.
    pub fits: Option<u16>,
}

/// Receiver to source: this probe arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeAck {
    /// Which one.
    pub number: u32,
    /// How long it was.
    pub bytes: u16,
}

/// Number, length and what passes.
const FIELDS: usize = 8;

impl Probe {
    /// The shortest that there is: one without padding.
    pub const SHORTEST: u16 = (HEADER + FIELDS) as u16;

    /// Bytes behind the header.
    pub(crate) fn len(&self) -> usize {
        usize::from(self.bytes.max(Self::SHORTEST)) - HEADER
    }

    pub(crate) fn parse(rest: &[u8]) -> Result<Self, WireError> {
        let short = WireError::Short { have: rest.len(), need: FIELDS };
        let (fields, padding) = rest.split_first_chunk::<FIELDS>().ok_or(short)?;
        let [a, b, c, d, e, f, g, h] = *fields;
        let (bytes, fits) = (u16::from_be_bytes([e, f]), u16::from_be_bytes([g, h]));
        let (have, need) = (HEADER + rest.len(), usize::from(bytes));
        if have != need {
            return Err(WireError::Length { have, need });
        }
        if padding.iter().any(|byte| *byte != 0) {
            return Err(WireError::Field { what: "padding of a probe" });
        }
        Ok(Probe { number: u32::from_be_bytes([a, b, c, d]), bytes, fits: (fits > 0).then_some(fits) })
    }

    pub(crate) fn emit(&self, out: &mut [u8]) {
        out[..4].copy_from_slice(&self.number.to_be_bytes());
        out[4..6].copy_from_slice(&self.bytes.max(Self::SHORTEST).to_be_bytes());
        out[6..8].copy_from_slice(&self.fits.unwrap_or(0).to_be_bytes());
        out[FIELDS..].fill(0);
    }
}

impl ProbeAck {
    pub(crate) const LEN: usize = 6;

    pub(crate) fn parse(rest: &[u8]) -> Result<Self, WireError> {
        let wrong = WireError::Length { have: rest.len(), need: Self::LEN };
        let [a, b, c, d, e, f] = *<&[u8; Self::LEN]>::try_from(rest).map_err(|_| wrong)?;
        Ok(ProbeAck { number: u32::from_be_bytes([a, b, c, d]), bytes: u16::from_be_bytes([e, f]) })
    }

    pub(crate) fn emit(&self, out: &mut [u8]) {
        out[..4].copy_from_slice(&self.number.to_be_bytes());
        out[4..].copy_from_slice(&self.bytes.to_be_bytes());
    }
}
