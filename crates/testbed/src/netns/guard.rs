//! Removal of namespaces, also when their maker dies without a chance to clean up.
//!
//! Two nets. A guard process holds the read end of a pipe whose only write end is ours: however we end (return,
//! panic, Ctrl-C, SIGKILL), the pipe closes and the guard removes what the run left. And every namespace carries its
//! maker's process id in its name, so [`remove_leftovers`] recognises what even the guard could not remove.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::{NetError, tool};

/// Where `ip netns` keeps its names.
const NAMES: &str = "/run/netns";
/// How all our namespaces begin; `hw-<pid>-<number>-<host>`.
pub(super) const PREFIX: &str = "hw-";

/// Waits for the end of its standard input, then removes every namespace of run `$1` and what runs in it.
const SCRIPT: &str = r#"
trap '' INT TERM HUP PIPE
while read -r _; do :; done
for path in /run/netns/"$1"-*; do
  [ -e "$path" ] || continue
  name=${path##*/}
  for pid in $(ip netns pids "$name"); do kill -KILL "$pid"; done
  ip netns delete "$name"
done
"#;

/// A process that outlives us for as long as the clean-up takes.
pub(super) struct Guard {
    process: Child,
}

impl Guard {
    /// Starts watching over run `run_id`.
    pub(super) fn start(run_id: &str) -> Result<Self, NetError> {
        use std::os::unix::process::CommandExt as _;
        let process = tool::command("sh")
            .args(["-c", SCRIPT, "sh", run_id])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Its own group: Ctrl-C in a terminal reaches the foreground group only.
            .process_group(0)
            .spawn()
            .map_err(|source| NetError::Start { command: "sh".to_owned(), source })?;
        Ok(Guard { process })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

/// Kills everything that runs in `namespace`.
pub(super) fn kill_processes(namespace: &str) -> Result<(), NetError> {
    let pids = tool::run("ip", &["netns", "pids", namespace])?;
    let pids: Vec<&str> = pids.split_whitespace().collect();
    if !pids.is_empty() {
        // Some may have ended meanwhile, so the exit status says nothing.
        let _ = Command::new("sh")
            .args(["-c", r#"kill -KILL "$@""#, "sh"])
            .args(&pids)
            .stderr(Stdio::null())
            .status();
    }
    Ok(())
}

/// Kills what runs in `namespace` and removes it; one that is already gone is fine.
pub(super) fn remove(namespace: &str) -> Result<(), NetError> {
    let exists = || Path::new(NAMES).join(namespace).exists();
    if !exists() {
        return Ok(());
    }
    let removed =
        kill_processes(namespace).and_then(|()| tool::run("ip", &["netns", "delete", namespace]).map(drop));
    match removed {
        Err(_) if !exists() => Ok(()),
        other => other,
    }
}

/// Removes the namespaces of runs whose maker no longer lives; returns their names in order.
pub(super) fn remove_leftovers() -> Result<Vec<String>, NetError> {
    let mut removed = Vec::new();
    for name in names().into_iter().filter(|name| is_orphan(name)) {
        remove(&name)?;
        removed.push(name);
    }
    Ok(removed)
}

/// The namespaces that this process made, or a dead one, in order.
pub(super) fn unanswered() -> Vec<String> {
    let ours = |name: &String| maker(name) == Some(std::process::id()) || is_orphan(name);
    names().into_iter().filter(ours).collect()
}

/// Whether its maker no longer lives.
fn is_orphan(name: &str) -> bool {
    maker(name).is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists())
}

/// The names of all namespaces that look like ours, in order.
fn names() -> Vec<String> {
    // No folder means that nobody ever named a namespace here.
    let mut names: Vec<String> = fs::read_dir(NAMES)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| maker(name).is_some())
        .collect();
    names.sort();
    names
}

/// The process id in `hw-<pid>-<number>-<host>`; `None` for a name that is not ours.
fn maker(name: &str) -> Option<u32> {
    let mut parts = name.strip_prefix(PREFIX)?.splitn(3, '-');
    let pid = parts.next()?.parse().ok()?;
    let _number: u32 = parts.next()?.parse().ok()?;
    parts.next().filter(|host| !host.is_empty()).map(|_| pid)
}

#[cfg(test)]
mod tests {
    use super::maker;

    #[test]
    fn only_our_own_names_are_ours() {
        assert_eq!(maker("hw-4711-0-mid"), Some(4711));
        assert_eq!(maker("hw-4711-12-h3"), Some(4711));
        for other in ["hw-4711", "hw-4711-0", "hw-4711-0-", "hw-x-0-h1", "hw-1-x-h1", "docker-4711-0-h1", ""]
        {
            assert_eq!(maker(other), None, "{other}");
        }
    }
}
