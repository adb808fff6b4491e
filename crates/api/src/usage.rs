//! Resources that this process has used so far, as the kernel counts them.

/// Clock ticks per second of the times in `/proc`: 100 on every Linux that runs this (USER_HZ is part of its ABI).
const USER_HZ: f64 = 100.0;

/// Lets this process open as many files as it may: a thousand transfers have more than the usual 1024.
pub fn open_many_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // Fails only for limits that we may not set; then it stays as it was.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

/// User and system time in seconds.
pub(crate) fn cpu_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The command's name may hold anything, but the last bracket ends it.
    let after = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: f64 = after.split_whitespace().skip(11).take(2).filter_map(|n| n.parse::<f64>().ok()).sum();
    ticks / USER_HZ
}

/// The most memory that was ever resident, in bytes.
pub(crate) fn peak_rss_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    let kib = line.and_then(|l| l.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0);
    kib << 10
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_process_has_used_something() {
        assert!(super::peak_rss_bytes() > 1 << 20);
        let mut x = 1u64;
        while super::cpu_seconds() == 0.0 {
            x = x.wrapping_mul(3).rotate_left(7);
        }
        assert!(x != 0);
    }
}
