//! One run of several processes at a time, and what runs since have left behind.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use headwater_testbed::netns::Capability;

/// Where runs keep folders and control groups.
const PLACES: [&str; 4] = ["/dev/shm", "/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/cpuacct"];

/// The right to run one.
pub(crate) struct Alone {
    /// How names of what the runs make begin; their process's id comes next.
    prefix: &'static str,
    /// What earlier runs left: one that is killed together with its guard cannot clean up.
    before: Vec<String>,
    _turn: MutexGuard<'static, ()>,
}

pub(crate) fn alone(prefix: &'static str) -> Alone {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    Alone { prefix, before: of_the_dead(prefix), _turn: turn }
}

impl Alone {
    /// Folders and control groups of runs since that have ended.
    pub(crate) fn leftovers(&self) -> Vec<String> {
        of_the_dead(self.prefix).into_iter().filter(|name| !self.before.contains(name)).collect()
    }
}

/// Whether networks can be built; says why if not.
pub(crate) fn namespaces() -> bool {
    Capability::probe().inspect_err(|why| headwater_skips::cannot(why)).is_ok()
}

/// Folders and control groups of runs that have ended. One of a run that goes on, of another user perhaps, is none.
fn of_the_dead(prefix: &str) -> Vec<String> {
    let places = PLACES.map(Into::into).into_iter().chain([std::env::temp_dir()]);
    let entries = places.filter_map(|place| std::fs::read_dir(place).ok()).flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| {
            let maker = name.strip_prefix(prefix).and_then(|rest| rest.split(['-', '.']).next());
            maker.is_some_and(|pid| !Path::new("/proc").join(pid).exists())
        })
        .collect()
}
