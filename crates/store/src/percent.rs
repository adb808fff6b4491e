//! Bytes that are no text, written as text: `caf%E9`.
//!
//! Printable ASCII stands for itself, every other byte and `%` itself is `%` and two upper-case hex digits.

use std::ffi::{OsStr, OsString};
use std::fmt::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// The only text of these bytes.
pub(crate) fn encode(bytes: &OsStr) -> String {
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes.as_bytes() {
        match byte {
            b' '..=b'~' if byte != b'%' => text.push(char::from(byte)),
            // Writing to a String cannot fail.
            _ => drop(write!(text, "%{byte:02X}")),
        }
    }
    text
}

/// Bytes of a text; none if a `%` is not followed by two hex digits. Takes more than [`encode`] writes: a caller that
/// wants one text for the same bytes compares.
pub(crate) fn decode(text: &str) -> Option<OsString> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        rest = behind;
        if first == b'%' {
            let (digits, behind) = rest.split_at_checked(2)?;
            let digit = |byte: u8| char::from(byte).to_digit(16);
            let value = digit(digits[0])? * 16 + digit(digits[1])?;
            bytes.push(value as u8);
            rest = behind;
        } else {
            bytes.push(first);
        }
    }
    Some(OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn text_stays_readable() {
        assert_eq!(encode(OsStr::from_bytes(b"caf\xe9 100%")), "caf%E9 100%25");
        assert_eq!(decode("caf%e9").unwrap().as_bytes(), b"caf\xe9");
        assert!(["%", "%4", "%g0", "x%+1"].into_iter().all(|text| decode(text).is_none()));
    }

    proptest! {
        #[test]
        fn encode_then_decode_is_identity(bytes: Vec<u8>) {
            let name = OsString::from_vec(bytes);
            prop_assert_eq!(decode(&encode(&name)), Some(name));
        }
    }
}
