//! One type per thing that has a name.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

macro_rules! number_id {
    ($(#[$doc:meta])* $name:ident($raw:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub struct $name(pub $raw);
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
        impl FromStr for $name {
            type Err = core::num::ParseIntError;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                text.parse().map($name)
            }
        }
    };
}

number_id!(
    /// A block of an object, from zero. 32 bits: RFC 6330's 8-bit block number would end objects near 18 GB.
    BlockIndex(u32)
);
number_id!(
    /// Encoding symbol id (RFC 6330 §5.3.1): below K a source symbol, from K on a repair symbol. 24 bits are used.
    Esi(u32)
);
number_id!(
    /// One push flow: one source to one receiver. Drawn at random by the controller.
    FlowId(u64)
);
number_id!(
    /// One receiver wants one object (PPUSH delivery task).
    TaskId(u64)
);
number_id!(
    /// One fetch of one host, by the number that the host's driver gave it.
    FetchId(u64)
);
number_id!(
    /// An opaque name for "where a packet goes or came from"; the driver knows the address behind it.
    PathId(u32)
);
number_id!(
    /// Position of a packet in its flow, strictly increasing (PPUSH §III-A, RFC 9000 §12.3).
    PacketNumber(u64)
);

/// ESIs are below this (24 bits, RFC 6330 §3.2).
pub const ESI_LIMIT: u32 = 1 << 24;

/// Name of the symbol that one datagram carries. The object is that of the flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SymbolId {
    /// The block.
    pub block: BlockIndex,
    /// The symbol's index within the block's endless stream.
    pub esi: Esi,
}

macro_rules! hash_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub struct $name(pub [u8; 32]);
        impl $name {
            /// The first eight hex digits, for people.
            pub fn short(&self) -> String {
                self.to_string()[..8].to_owned()
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({}..)"), self.short())
            }
        }
        impl FromStr for $name {
            type Err = ParseIdError;
            fn from_str(text: &str) -> Result<Self, ParseIdError> {
                hex32(text).map($name)
            }
        }
    };
}

hash_id!(
    /// An object's name: the BLAKE3 hash of its bytes.
    ObjectId
);
hash_id!(
    /// A node's name: the BLAKE3 hash of its public key.
    NodeId
);

/// The secret that a source and a receiver share for one flow; handed out by the controller.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowKey(pub [u8; 32]);

impl fmt::Debug for FlowKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FlowKey(secret)")
    }
}

/// An id was not 64 hex digits.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("'{0}' is not an id: 64 hex digits expected")]
pub struct ParseIdError(pub String);

fn hex32(text: &str) -> Result<[u8; 32], ParseIdError> {
    let fail = || ParseIdError(text.to_owned());
    if text.len() != 64 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(fail());
    }
    let mut out = [0; 32];
    for (byte, pair) in out.iter_mut().zip(text.as_bytes().chunks(2)) {
        let pair = std::str::from_utf8(pair).map_err(|_| fail())?;
        *byte = u8::from_str_radix(pair, 16).map_err(|_| fail())?;
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_survive_being_written_and_read() {
        let id = ObjectId(std::array::from_fn(|i| i as u8 * 7));
        assert_eq!(id.to_string().parse(), Ok(id));
        assert!("abc".parse::<ObjectId>().is_err());
        assert!("g".repeat(64).parse::<ObjectId>().is_err());
        assert!("+f".repeat(32).parse::<ObjectId>().is_err());
    }

    #[test]
    fn keys_do_not_show_themselves() {
        assert_eq!(format!("{:?}", FlowKey([7; 32])), "FlowKey(secret)");
    }
}
