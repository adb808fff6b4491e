//! Which addresses hosts have: they spell the host's number, counted from one.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::soft_switch::MacAddress;

/// In 10.99.0.0/16.
pub(super) fn ipv4(host: usize) -> Ipv4Addr {
    let [high, low] = (host as u16 + 1).to_be_bytes();
    Ipv4Addr::new(10, 99, high, low)
}

/// The address of one of several cables, in 10.100.0.0/16 for the first, 10.101.0.0/16 for the second and so on.
pub(super) fn ipv4_on(host: usize, cable: usize) -> Ipv4Addr {
    let [high, low] = (host as u16 + 1).to_be_bytes();
    Ipv4Addr::new(10, 100 + cable as u8, high, low)
}

/// In fd00:99::/64.
pub(super) fn ipv6(host: usize) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00, 0x99, 0, 0, 0, 0, 0, host as u16 + 1)
}

/// Locally administered.
pub(super) fn mac(host: usize) -> MacAddress {
    let [high, low] = (host as u16 + 1).to_be_bytes();
    [0x02, 0x48, 0x57, 0, high, low]
}

/// The address of one of several cables.
pub(super) fn mac_on(host: usize, cable: usize) -> MacAddress {
    let [high, low] = (host as u16 + 1).to_be_bytes();
    [0x02, 0x48, 0x57, cable as u8, high, low]
}

/// As `ip` reads it.
pub(super) fn written(mac: MacAddress) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_have_addresses_of_their_own_beyond_one_byte() {
        assert_eq!(ipv4(0), Ipv4Addr::new(10, 99, 0, 1));
        assert_eq!(ipv4(255), Ipv4Addr::new(10, 99, 1, 0));
        assert_eq!(ipv6(255).to_string(), "fd00:99::100");
        assert_eq!(written(mac(255)), "02:48:57:00:01:00");
    }
}
