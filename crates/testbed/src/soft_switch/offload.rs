//! Turning off what an interface leaves to hardware, where the far end of its cable is a program.
//!
//! A virtual interface promises checksums and segmentation because its peer is in the same memory. A switch between the
//! two sees the bytes as they are: packets without a checksum, and super-packets of 64 KiB that no queue should count
//! as one. The kernel then does the work before the frame leaves.

use std::io;
use std::os::fd::AsFd;

use super::sys;

/// Turns off checksumming, scatter-gather, segmentation and receive merging of an interface of the calling thread's
/// namespace, all that can be turned off: as `ethtool -K ... tx off sg off tso off gso off gro off lro off
/// tx-udp-segmentation off`, without the program.
///
/// Meant for the interface of a host whose packets pass the switch; [`in_namespace`](super::in_namespace) goes there.
///
/// # Errors
/// No such interface, no right to change it (`CAP_NET_ADMIN`), or a feature that stays on.
pub fn offloads_off(interface: &str) -> io::Result<()> {
    turn_off(interface, is_offload)
}

/// Turns off what an interface cuts up by itself, and nothing else: the kernel then cuts large buffers right before they leave
/// by it, for TCP as for UDP, and they travel on as packets. As a network card without segmentation has it.
///
/// # Errors
/// As [`offloads_off`].
pub fn segmentation_off(interface: &str) -> io::Result<()> {
    turn_off(interface, is_segmentation)
}

fn turn_off(interface: &str, is_meant: fn(&str) -> bool) -> io::Result<()> {
    let socket = sys::packet_socket()?;
    let named = |error: io::Error| io::Error::new(error.kind(), format!("offloads of {interface}: {error}"));
    let names = sys::feature_names(socket.as_fd(), interface).map_err(named)?;
    let before = sys::features(socket.as_fd(), interface, names.len()).map_err(named)?;

    let mut masks = vec![0; before.len()];
    for (number, name) in names.iter().enumerate() {
        let bit = 1 << (number % 32);
        if is_meant(text(name)) && before[number / 32].available & bit != 0 {
            masks[number / 32] |= bit;
        }
    }
    sys::features_off(socket.as_fd(), interface, &masks).map_err(named)?;

    let after = sys::features(socket.as_fd(), interface, names.len()).map_err(named)?;
    let still_on = names
        .iter()
        .enumerate()
        .filter(|(number, _)| after[number / 32].active & masks[number / 32] & (1 << (number % 32)) != 0);
    match still_on.map(|(_, name)| text(name)).collect::<Vec<_>>() {
        names if names.is_empty() => Ok(()),
        names => Err(io::Error::other(format!("offloads of {interface} stay on: {}", names.join(", ")))),
    }
}

/// By the kernel's names (net/ethtool/common.c, `netdev_features_strings`).
fn is_offload(name: &str) -> bool {
    const BEGINNINGS: [&str; 6] =
        ["tx-checksum-", "tx-scatter-gather", "tx-gso-", "rx-gro", "rx-lro", "rx-udp-gro-forwarding"];
    BEGINNINGS.iter().any(|it| name.starts_with(it))
        || name.starts_with("tx-") && name.ends_with("-segmentation")
}

/// Whether this is segmentation by the interface; the kernel's own part has the word `generic`.
fn is_segmentation(name: &str) -> bool {
    name.starts_with("tx-") && name.ends_with("-segmentation") && !name.contains("generic")
}

/// A name without the zeroes behind it.
fn text(name: &[u8]) -> &str {
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
    std::str::from_utf8(&name[..end]).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ethtool_calls_tx_sg_tso_gso_gro_is_an_offload_and_the_rest_is_not() {
        for name in [
            "tx-checksum-ip-generic",
            "tx-checksum-sctp",
            "tx-scatter-gather-fraglist",
            "tx-tcp-segmentation",
            "tx-tcp6-segmentation",
            "tx-generic-segmentation",
            "tx-udp-segmentation",
            "rx-gro",
            "rx-gro-list",
            "rx-udp-gro-forwarding",
        ] {
            assert!(is_offload(name), "{name}");
        }
        for name in ["rx-checksum", "tx-vlan-hw-insert", "highdma", "loopback", "rx-all", ""] {
            assert!(!is_offload(name), "{name}");
        }
    }

    #[test]
    fn what_the_kernel_cuts_up_itself_stays_on() {
        for name in ["tx-tcp-segmentation", "tx-tcp6-segmentation", "tx-udp-segmentation"] {
            assert!(is_segmentation(name), "{name}");
        }
        for name in ["tx-generic-segmentation", "tx-checksum-ip-generic", "tx-scatter-gather", "rx-gro"] {
            assert!(!is_segmentation(name), "{name}");
        }
    }

    #[test]
    fn missing_interface_is_named() {
        let error = offloads_off("no-such-if").unwrap_err().to_string();
        // Where packet sockets are forbidden there is another complaint before.
        if sys::packet_socket().is_ok() {
            assert!(error.contains("no-such-if"), "{error}");
        }
    }
}
