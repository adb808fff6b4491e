//! Reads a folder into a [`Manifest`], hashing every file once.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use headwater_units::Bytes;

use crate::manifest::{Entry, Kind, Manifest, check_count, check_target};
use crate::{BlockHashes, SourceFile, StoreError};

/// A folder as it was found.
#[derive(Clone, Debug)]
pub struct FolderScan {
    /// What is in it.
    pub manifest: Manifest,
    /// What could not go into the manifest, in the order of the paths. Show this to the user.
    pub skipped: Vec<Skipped>,
}

/// Something in a folder that is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// The whole path.
    pub path: PathBuf,
    /// Why.
    pub reason: String,
}

impl FolderScan {
    /// Walks a folder without following symbolic links.
    ///
    /// Left out, and said so: devices, pipes and sockets, names that are not UTF-8, links that lead out of the folder.
    /// Of modes only the permission bits are kept. `each` gets every file, open, with its hashes; a caller that serves
    /// very many files keeps [`SourceFile::identity`] and opens them again when needed. `progress` hears the bytes
    /// hashed so far.
    /// # Errors
    /// [`StoreError::Io`], [`StoreError::ObjectChanged`] if a file changes while it is read,
    /// [`StoreError::BadManifest`] if the folder has more entries than a manifest may, and whatever `each` returns.
    pub fn of(
        root: &Path,
        each: &mut dyn FnMut(SourceFile, BlockHashes) -> Result<(), StoreError>,
        progress: &mut dyn FnMut(Bytes),
    ) -> Result<Self, StoreError> {
        let mut walk = Walk { each, progress, hashed: Bytes::ZERO, entries: Vec::new(), skipped: Vec::new() };
        let mut folders = vec![(root.to_owned(), String::new())];
        while let Some((path, prefix)) = folders.pop() {
            walk.folder(&path, &prefix, &mut folders)?;
        }
        let Walk { entries, mut skipped, .. } = walk;
        skipped.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(FolderScan { manifest: Manifest::new(entries)?, skipped })
    }
}

struct Walk<'a> {
    each: &'a mut dyn FnMut(SourceFile, BlockHashes) -> Result<(), StoreError>,
    progress: &'a mut dyn FnMut(Bytes),
    hashed: Bytes,
    entries: Vec<Entry>,
    skipped: Vec<Skipped>,
}

impl Walk<'_> {
    /// Enters what is in one folder; `prefix` is its path in the manifest, with a slash unless it is the root.
    fn folder(
        &mut self,
        folder: &Path,
        prefix: &str,
        later: &mut Vec<(PathBuf, String)>,
    ) -> Result<(), StoreError> {
        let fail = |e| StoreError::io("list", folder, e);
        let mut found =
            fs::read_dir(folder).and_then(Iterator::collect::<Result<Vec<_>, _>>).map_err(fail)?;
        found.sort_by_key(fs::DirEntry::file_name);
        for entry in found {
            let path = entry.path();
            let Ok(name) = entry.file_name().into_string() else {
                self.skip(path, "its name is not UTF-8");
                continue;
            };
            let relative = format!("{prefix}{name}");
            // Of the entry itself, not of what a link points at.
            let metadata = entry.metadata().map_err(|e| StoreError::io("look at", &path, e))?;
            let mode = metadata.permissions().mode() & 0o777;
            let kind = if metadata.is_dir() {
                later.push((path, format!("{relative}/")));
                Kind::Folder { mode }
            } else if metadata.is_file() {
                self.file(&path, mode)?
            } else if metadata.is_symlink() {
                let target = fs::read_link(&path).map_err(|e| StoreError::io("read link", &path, e))?;
                let Some(target) = target.to_str() else {
                    self.skip(path, "its target is not UTF-8");
                    continue;
                };
                if let Err(reason) = check_target(target, prefix.matches('/').count()) {
                    self.skip(path, reason);
                    continue;
                }
                Kind::Symlink { target: target.to_owned() }
            } else {
                self.skip(path, "it is neither a file nor a folder nor a link");
                continue;
            };
            check_count(self.entries.len() + 1)?;
            self.entries.push(Entry { path: relative, kind });
        }
        Ok(())
    }

    fn file(&mut self, path: &Path, mode: u32) -> Result<Kind, StoreError> {
        let before = self.hashed;
        let (source, hashes) = SourceFile::hash(path, &mut |n| (self.progress)(before + n))?;
        self.hashed += hashes.size();
        let kind = Kind::File { mode, size: hashes.size(), object: hashes.root() };
        (self.each)(source, hashes)?;
        Ok(kind)
    }

    fn skip(&mut self, path: PathBuf, reason: impl Into<String>) {
        self.skipped.push(Skipped { path, reason: reason.into() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    fn scan(root: &Path) -> FolderScan {
        FolderScan::of(root, &mut |_, _| Ok(()), &mut |_| {}).unwrap()
    }

    #[test]
    fn a_folder_made_from_its_manifest_has_the_same_manifest() {
        let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let root = here.path();
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::create_dir(root.join("empty")).unwrap();
        fs::write(root.join("a/b/file"), "content").unwrap();
        fs::write(root.join("a-file"), "").unwrap();
        fs::set_permissions(root.join("a/b/file"), fs::Permissions::from_mode(0o4750)).unwrap();
        symlink("../a-file", root.join("a/link")).unwrap();
        fs::set_permissions(root.join("a/b"), fs::Permissions::from_mode(0o555)).unwrap();
        let first = scan(root);
        assert_eq!(first.skipped, []);

        let target = there.path().join("copy");
        let manifest = Manifest::parse(&first.manifest.encode()).unwrap();
        manifest.make_folders(&target).unwrap();
        for (path, ..) in manifest.files() {
            fs::write(target.join(path), fs::read(root.join(path)).unwrap()).unwrap();
        }
        manifest.complete(&target).unwrap();
        assert_eq!(scan(&target).manifest, first.manifest);
        assert_eq!(manifest.total_bytes(), Bytes::new(7));
        manifest.make_folders(&target).unwrap();
        manifest.complete(&target).unwrap();
        // So that the test's own folders can be removed by anybody.
        for folder in [root.join("a/b"), target.join("a/b")] {
            fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
        }
    }

    #[test]
    fn what_cannot_be_delivered_is_named() {
        let here = tempfile::tempdir().unwrap();
        let root = here.path();
        let _socket = UnixListener::bind(root.join("socket")).unwrap();
        symlink("/etc/passwd", root.join("out")).unwrap();
        fs::write(root.join(OsStr::from_bytes(b"bad\xff")), "").unwrap();
        fs::write(root.join("good"), "").unwrap();
        let scan = scan(root);
        assert_eq!(scan.manifest.entries().len(), 1);
        let names: Vec<_> = scan.skipped.iter().map(|s| s.path.file_name().unwrap().as_bytes()).collect();
        assert_eq!(names, [&b"bad\xff"[..], b"out", b"socket"]);
    }
}
