//! CPU time of groups of processes: by a control group where one can be made, which counts what its members' children and
//! dead members used too, to the microsecond.

use std::fs;
use std::path::{Path, PathBuf};

/// Where control groups are kept, and the file in each that has the CPU time: version 2, version 2 beside version 1, and
/// version 1.
const KINDS: [(&str, &str); 3] = [
    ("/sys/fs/cgroup", "cpu.stat"),
    ("/sys/fs/cgroup/unified", "cpu.stat"),
    ("/sys/fs/cgroup/cpuacct", "cpuacct.usage"),
];
/// How ours are called: with the process id of their maker and a word behind it.
const PREFIX: &str = "headwater-bench-";
/// Members are listed here, and added by writing to it.
const MEMBERS: &str = "cgroup.procs";

/// A control group, removed when dropped; it must be empty by then.
#[derive(Debug)]
pub(super) struct Group {
    folder: PathBuf,
    usage: &'static str,
}

impl Group {
    /// Makes one; `None` where that is not allowed.
    pub(super) fn create(word: &str) -> Option<Self> {
        KINDS.into_iter().find_map(|(base, usage)| {
            remove_forgotten(Path::new(base));
            let folder = Path::new(base).join(format!("{PREFIX}{}-{word}", std::process::id()));
            // Beside the groups, not one of them: version 1 keeps each kind in a folder of its own.
            if !Path::new(base).join(MEMBERS).exists() {
                return None;
            }
            fs::create_dir(&folder).ok()?;
            let group = Group { folder, usage };
            group.cpu_seconds().map(|_| group)
        })
    }

    /// File to which a process writes its id.
    pub(super) fn members(&self) -> PathBuf {
        self.folder.join(MEMBERS)
    }

    /// User and system seconds of all that were ever members.
    pub(super) fn cpu_seconds(&self) -> Option<f64> {
        seconds(&fs::read_to_string(self.folder.join(self.usage)).ok()?)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A rest of it uses nothing, and the next run removes it.
        let _ = fs::remove_dir(&self.folder);
    }
}

/// Removes groups of runs that could not.
fn remove_forgotten(base: &Path) {
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let maker = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
        if maker.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// `usage_usec 123` among other lines, or nanoseconds alone.
fn seconds(text: &str) -> Option<f64> {
    match text.lines().find_map(|line| line.strip_prefix("usage_usec ")) {
        Some(micros) => micros.trim().parse::<f64>().ok().map(|n| n / 1e6),
        None => text.trim().parse::<f64>().ok().map(|n| n / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_are_read() {
        assert_eq!(seconds("usage_usec 2500000\nuser_usec 1\nsystem_usec 2\n"), Some(2.5));
        assert_eq!(seconds("1500000000\n"), Some(1.5));
        assert_eq!(seconds("nr_periods 0\n"), None);
    }

    #[test]
    fn a_group_counts_its_members_and_goes_when_dropped() {
        let Some(group) = Group::create("test") else {
            headwater_skips::cannot("no control groups can be made here");
            return;
        };
        let script = r#"echo $$ >"$1" && i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"#;
        let status =
            std::process::Command::new("sh").args(["-c", script, "sh"]).arg(group.members()).status();
        assert!(status.unwrap().success());
        assert!(group.cpu_seconds().unwrap() > 0.001);
        let folder = group.folder.clone();
        drop(group);
        assert!(!folder.exists());
    }
}
