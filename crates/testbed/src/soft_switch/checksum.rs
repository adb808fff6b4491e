//! The Internet checksum: over whole headers (RFC 1071), and changed along with one word (RFC 1624).

/// Whether an IPv4 header's checksum is right: all its words, that one included, add up to all ones (RFC 1071 §1).
pub(super) fn is_right(header: &[u8]) -> bool {
    sum(header) == 0xffff
}

/// The ones' complement sum of big-endian words; an odd byte at the end counts as if a zero followed.
pub(super) fn sum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|word| match *word {
        [high, low] => u32::from(u16::from_be_bytes([high, low])),
        [high] => u32::from(high) << 8,
        _ => 0,
    });
    // At most 32 Ki words of 16 bits: no overflow.
    fold(words.take(1 << 15).sum())
}

/// The checksum after one word of what it covers became `new` (RFC 1624, equation 3).
pub(super) fn updated(checksum: u16, old: u16, new: u16) -> u16 {
    !fold(u32::from(!checksum) + u32::from(!old) + u32::from(new))
}

fn fold(sum: u32) -> u16 {
    let sum = (sum & 0xffff) + (sum >> 16);
    ((sum & 0xffff) + (sum >> 16)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn example_of_rfc_1624_comes_out_as_printed() {
        // RFC 1624 §4: where equation 2 would give 0xffff, equation 3 gives zero.
        assert_eq!(updated(0xdd2f, 0x5555, 0x3285), 0x0000);
    }

    #[test]
    fn example_of_rfc_1071_comes_out_as_printed() {
        assert_eq!(sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), 0xddf2);
    }

    #[test]
    fn updated_is_what_a_new_sum_gives() {
        let mut words = [0x4500_u16, 0x0073, 0, 0x4000, 0x4011, 0, 0xc0a8, 0x0001, 0xc0a8, 0x00c7];
        let whole = |words: &[u16]| !sum(&words.iter().flat_map(|w| w.to_be_bytes()).collect::<Vec<_>>());
        words[5] = whole(&words);
        for new in 0..=u16::MAX {
            let mut changed = words;
            changed[1] = new;
            let before = std::mem::take(&mut changed[5]);
            assert_eq!(updated(before, words[1], new), whole(&changed), "{new}");
        }
    }
}
