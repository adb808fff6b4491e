//! A disk that a test can fill.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::cannot;

/// A file system of a few MiB in memory, unmounted when dropped.
#[derive(Debug)]
pub struct SmallDisk {
    folder: tempfile::TempDir,
}

impl SmallDisk {
    /// Mounts it; `None`, said by [`cannot`], where that is not allowed.
    ///
    /// # Panics
    /// There is no temporary folder to mount it on.
    #[track_caller]
    pub fn of_mib(mib: u32) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        if mount(&format!("size={mib}m"), folder.path()) {
            return Some(SmallDisk { folder });
        }
        cannot("a tmpfs cannot be mounted here (not root, or no mount)");
        None
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// A file of so many MiB on it.
    ///
    /// # Panics
    /// They do not fit.
    pub fn fill(&self, mib: usize) -> PathBuf {
        let path = self.path().join("filler");
        std::fs::write(&path, vec![1; mib << 20]).expect("it fits");
        path
    }

    /// A file on it that leaves no byte to others.
    ///
    /// # Panics
    /// The file cannot be made.
    pub fn fill_up(&self) -> PathBuf {
        let path = self.path().join("filler");
        let mut file = File::create(&path).expect("a file without content fits");
        while file.write(&[1; 4096]).is_ok_and(|n| n > 0) {}
        path
    }

    /// Removes a file, and waits until `mib` MiB are free: a program that another test starts may still have it open
    /// for a moment.
    ///
    /// # Panics
    /// There is no such file, or they are not free after 5 s.
    #[allow(clippy::disallowed_methods, reason = "the kernel is waited for")]
    pub fn make_room(&self, filler: &Path, mib: u64) {
        std::fs::remove_file(filler).expect("the file is there");
        let free = || rustix::fs::statvfs(self.path()).map_or(0, |it| it.f_bavail * it.f_frsize);
        for _ in 0..500 {
            if free() >= mib << 20 {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("{} bytes are free after 5 s", free());
    }

    /// From now on it has this size.
    ///
    /// # Panics
    /// The system refuses.
    pub fn resize(&self, mib: u32) {
        assert!(mount(&format!("remount,size={mib}m"), self.path()), "a tmpfs can be resized");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // A program that another test starts may still have a file of it open for a moment: it goes when that is closed.
        _ = Command::new("umount").arg("--lazy").arg(self.path()).status();
    }
}

fn mount(options: &str, at: &Path) -> bool {
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(at).output();
    mounted.is_ok_and(|it| it.status.success())
}
