//! Finds the process that has taken a port, as far as `/proc` says.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

/// Most characters of a command line that are shown.
const SHOWN: usize = 80;

/// Protocol of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Udp,
    Tcp,
}

/// The process that has a port in this network namespace, as `pid 17 (headwater up)`; `None` if it may not be looked at.
pub(crate) fn occupant(protocol: Protocol, port: u16) -> Option<String> {
    let tables = match protocol {
        Protocol::Udp => ["/proc/self/net/udp", "/proc/self/net/udp6"],
        Protocol::Tcp => ["/proc/self/net/tcp", "/proc/self/net/tcp6"],
    };
    let sockets: Vec<String> = tables
        .iter()
        .filter_map(|table| fs::read_to_string(table).ok())
        .flat_map(|table| table.lines().filter_map(|line| socket_of(line, port)).collect::<Vec<_>>())
        .collect();
    let processes = fs::read_dir("/proc").ok()?.flatten();
    processes.into_iter().find_map(|process| {
        let pid: u32 = process.file_name().to_str()?.parse().ok()?;
        has_one_of(&process.path(), &sockets).then(|| format!("pid {pid}{}", command_of(&process.path())))
    })
}

/// As `who` says in an error: the process, or how to find it.
pub(crate) fn who_has(protocol: Protocol, at: SocketAddr) -> String {
    let how = match protocol {
        Protocol::Udp => "ss -ulpn",
        Protocol::Tcp => "ss -tlpn",
    };
    match occupant(protocol, at.port()) {
        Some(process) => format!("{process} has it"),
        None => format!("`{how} sport = :{}`, as root, shows who has it", at.port()),
    }
}

/// The inode of a line of the kernel's table if its local port is this one.
fn socket_of(line: &str, port: u16) -> Option<String> {
    let mut fields = line.split_whitespace();
    let local = fields.nth(1)?;
    let (_, given) = local.rsplit_once(':')?;
    // After the local address: remote, state, queues, timer, retransmits, uid, timeout, inode.
    let inode = fields.nth(7)?;
    (u16::from_str_radix(given, 16) == Ok(port) && inode != "0").then(|| format!("socket:[{inode}]"))
}

fn has_one_of(process: &Path, sockets: &[String]) -> bool {
    let Ok(open) = fs::read_dir(process.join("fd")) else { return false };
    open.flatten()
        .filter_map(|file| fs::read_link(file.path()).ok())
        .any(|link| link.to_str().is_some_and(|link| sockets.iter().any(|socket| socket == link)))
}

fn command_of(process: &Path) -> String {
    let Ok(line) = fs::read(process.join("cmdline")) else { return String::new() };
    let words = String::from_utf8_lossy(&line).trim_end_matches('\0').replace('\0', " ");
    match words.char_indices().nth(SHOWN) {
        _ if words.is_empty() => String::new(),
        Some((end, _)) => format!(" ({}...)", &words[..end]),
        None => format!(" ({words})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_has_a_port_is_named() {
        let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let tcp =
            std::net::TcpListener::bind("[::1]:0").or(std::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let this = format!("pid {} (", std::process::id());
        for (protocol, at) in
            [(Protocol::Udp, udp.local_addr().unwrap()), (Protocol::Tcp, tcp.local_addr().unwrap())]
        {
            let text = who_has(protocol, at);
            assert!(text.starts_with(&this) && text.ends_with(") has it"), "{text}");
        }
        drop(udp);
        assert!(who_has(Protocol::Udp, ([127, 0, 0, 1], 0).into()).contains("ss -ulpn"));
    }
}
