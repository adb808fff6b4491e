//! Where controllers and nodes listen, and which controller a state folder belongs to.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::Path;

/// Where a controller listens unless told otherwise: what `--controller HOST` and `--join HOST` add.
pub const CONTROLLER_PORT: u16 = 7000;
/// Where a source listens unless told otherwise: what `--from HOST` adds.
pub const NODE_PORT: u16 = 7001;

/// This port on every address: IPv6 and IPv4 together, or IPv4 alone on a machine without IPv6.
pub fn wildcard(port: u16) -> SocketAddr {
    let six = UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).is_ok();
    let ip = if six { IpAddr::V6(Ipv6Addr::UNSPECIFIED) } else { IpAddr::V4(Ipv4Addr::UNSPECIFIED) };
    SocketAddr::new(ip, port)
}

/// The file in a state folder that names the controller which the daemon of that folder belongs to.
const CONTROLLER_NOTE: &str = "controller-address";

/// Notes the controller (`host:port`) of a daemon in its state folder, so that other commands with the same folder need
/// no `--controller`.
///
/// # Errors
/// The file cannot be written.
pub fn remember_controller(state: &Path, controller: &str) -> io::Result<()> {
    std::fs::write(state.join(CONTROLLER_NOTE), format!("{controller}\n"))
}

/// Controller that [`remember_controller`] noted last, if any.
pub fn remembered_controller(state: &Path) -> Option<String> {
    let text = std::fs::read_to_string(state.join(CONTROLLER_NOTE)).ok()?;
    Some(text.trim().to_owned()).filter(|note| !note.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_controller_is_remembered_in_the_state_folder() {
        let state = tempfile::tempdir().unwrap();
        assert_eq!(remembered_controller(state.path()), None);
        remember_controller(state.path(), "10.0.0.1:7000").unwrap();
        assert_eq!(remembered_controller(state.path()).as_deref(), Some("10.0.0.1:7000"));
    }
}
