//! Which multicast addresses a controller may give to casts, as people write them: `239.195.0.0/16:7003`, or `none`.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use headwater_controller::GroupRange;

use super::{ValueError, bad};

/// The port of a range that names none.
const USUAL_PORT: u16 = 7003;
/// No range has more addresses, however short its prefix.
const MOST: u32 = 1 << 24;

/// Ranges of group addresses; none: no cast gets a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Groups(pub(crate) Vec<GroupRange>);

impl FromStr for Groups {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Self, ValueError> {
        match text {
            "none" => Ok(Groups(Vec::new())),
            _ => text.split(',').map(|range| self::range(range.trim())).collect::<Result<_, _>>().map(Groups),
        }
    }
}

fn range(text: &str) -> Result<GroupRange, ValueError> {
    let wrong = || {
        bad(format!(
            "'{text}' is no range of multicast addresses: 'none' or ADDR/BITS[:PORT] expected, as in 239.195.0.0/16"
        ))
    };
    let Some((first, rest)) = text.split_once('/') else { return wrong() };
    let (bits, port) =
        rest.split_once(':').map_or((rest, Ok(USUAL_PORT)), |(bits, port)| (bits, port.parse()));
    let (Ok(first), Ok(bits), Ok(port)) = (first.parse::<IpAddr>(), bits.parse::<u32>(), port) else {
        return wrong();
    };
    let Some(host_bits) = (if first.is_ipv4() { 32 } else { 128_u32 }).checked_sub(bits) else {
        return wrong();
    };
    if !first.is_multicast() || port == 0 || bits < 4 || host_bits_of(first, host_bits) != 0 {
        return wrong();
    }
    Ok(GroupRange { first, count: 1_u32.checked_shl(host_bits).unwrap_or(MOST).min(MOST), port })
}

/// The lowest bits of an address.
fn host_bits_of(ip: IpAddr, bits: u32) -> u128 {
    let all = match ip {
        IpAddr::V4(ip) => u32::from(ip).into(),
        IpAddr::V6(ip) => u128::from(ip),
    };
    all & !u128::MAX.checked_shl(bits).unwrap_or(0)
}

impl fmt::Display for Groups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("none");
        }
        for (i, range) in self.0.iter().enumerate() {
            let separator = if i == 0 { "" } else { "," };
            let bits = if range.first.is_ipv4() { 32 } else { 128 } - range.count.ilog2();
            write!(f, "{separator}{}/{bits}:{}", range.first, range.port)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_and_written() {
        let read =
            |text: &str| text.parse::<Groups>().map(|groups| groups.to_string()).map_err(|e| e.to_string());
        for (text, written) in [
            ("none", "none"),
            ("239.195.0.0/16", "239.195.0.0/16:7003"),
            ("239.1.2.0/24:9", "239.1.2.0/24:9"),
            ("239.1.2.3/32", "239.1.2.3/32:7003"),
            ("239.195.0.0/16, ff05::4857:0/112:8", "239.195.0.0/16:7003,ff05::4857:0/112:8"),
        ] {
            assert_eq!(read(text), Ok(written.to_owned()), "{text}");
        }
        assert_eq!("239.1.2.0/24".parse::<Groups>().unwrap().0[0].count, 256);
        for text in
            ["", "239.1.2.0", "10.0.0.0/8", "239.1.2.1/24", "239.1.2.0/33", "239.1.2.0/24:0", "224.0.0.0/2"]
        {
            assert!(read(text).is_err_and(|e| e.contains("ADDR/BITS")), "{text}");
        }
    }
}
