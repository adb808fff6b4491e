//! Reads a folder into a [`Manifest`]: first a listing of all that is in it, then every file is hashed once.

use std::ffi::{OsStr, OsString};
use std::fs::{self, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use headwater_units::Bytes;

use crate::manifest::{Entry, Kind, Manifest, Modified, check_count, check_target};
use crate::{BlockHashes, StoreError};

/// Content of a folder before any file is read: enough to refuse it, and to say how much there is to hash.
#[derive(Clone, Debug)]
pub struct FolderListing {
    root: PathBuf,
    found: Vec<Found>,
    skipped: Vec<Skipped>,
    total: Bytes,
}

/// Gives the hashes of the file at a path, and tells how much of it is hashed meanwhile.
pub type HashFile<'a> = dyn FnMut(&Path, &mut dyn FnMut(Bytes)) -> Result<BlockHashes, StoreError> + 'a;

/// Something in a folder that cannot go into its manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// The whole path.
    pub path: PathBuf,
    /// The reason.
    pub reason: String,
}

/// Something in a folder that can.
#[derive(Clone, Debug)]
struct Found {
    /// Relative to the folder.
    path: OsString,
    what: What,
    modified: Modified,
}

#[derive(Clone, Debug)]
enum What {
    Folder { mode: u32 },
    File,
    Symlink { target: OsString },
}

impl FolderListing {
    /// Walks a folder without following symbolic links.
    ///
    /// Lists a folder. Entries that cannot go into a manifest are among the [`FolderListing::skipped`]: devices, pipes,
    /// sockets, and links that lead out of the folder. Of modes only the permission bits are kept; owners and extended
    /// attributes are not.
    /// # Errors
    /// [`StoreError::Io`], and [`StoreError::BadManifest`] if the folder has more entries than a manifest may.
    pub fn of(root: &Path) -> Result<Self, StoreError> {
        let mut listing = FolderListing {
            root: root.to_owned(),
            found: Vec::new(),
            skipped: Vec::new(),
            total: Bytes::ZERO,
        };
        let mut folders = vec![(root.to_owned(), OsString::new())];
        while let Some((path, prefix)) = folders.pop() {
            listing.folder(&path, &prefix, &mut folders)?;
        }
        listing.skipped.sort_by(|a, b| a.path.as_os_str().cmp(b.path.as_os_str()));
        Ok(listing)
    }

    /// Enters what is in one folder; `prefix` is its path in the manifest, with a slash unless it is the root.
    fn folder(
        &mut self,
        folder: &Path,
        prefix: &OsStr,
        later: &mut Vec<(PathBuf, OsString)>,
    ) -> Result<(), StoreError> {
        let fail = |e| StoreError::io("list", folder, e);
        let mut found =
            fs::read_dir(folder).and_then(Iterator::collect::<Result<Vec<_>, _>>).map_err(fail)?;
        found.sort_by_key(fs::DirEntry::file_name);
        for entry in found {
            let path = entry.path();
            let mut relative = prefix.to_owned();
            relative.push(entry.file_name());
            // Of the entry itself, not of what a link points at.
            let metadata = entry.metadata().map_err(|e| StoreError::io("look at", &path, e))?;
            let what = if metadata.is_dir() {
                let mut prefix = relative.clone();
                prefix.push("/");
                later.push((path, prefix));
                What::Folder { mode: mode(&metadata) }
            } else if metadata.is_file() {
                self.total += Bytes::new(metadata.len());
                What::File
            } else if metadata.is_symlink() {
                let target = fs::read_link(&path).map_err(|e| StoreError::io("read link", &path, e))?;
                let depth = prefix.as_bytes().iter().filter(|byte| **byte == b'/').count();
                if let Err(reason) = check_target(target.as_os_str(), depth) {
                    self.skipped.push(Skipped { path, reason });
                    continue;
                }
                What::Symlink { target: target.into_os_string() }
            } else {
                self.skipped.push(Skipped { path, reason: kind_of(&metadata).to_owned() });
                continue;
            };
            check_count(self.found.len() + 1)?;
            self.found.push(Found { path: relative, what, modified: modified(&metadata) });
        }
        Ok(())
    }

    /// Entries that cannot go into the manifest, in the order of the paths. Show this to the user.
    pub fn skipped(&self) -> &[Skipped] {
        &self.skipped
    }

    /// The size of all files together, as they were when they were listed.
    pub fn total_bytes(&self) -> Bytes {
        self.total
    }

    /// Has every file hashed and makes the manifest of what was found.
    ///
    /// `each` gets every file's path and a callback for how much of it is hashed, and gives its hashes: by
    /// [`SourceFile::hash`](crate::SourceFile::hash) or [`Store::put`](crate::Store::put). `progress` hears the bytes
    /// of all files hashed so far. With `times` entries keep when they were last written to (see [`crate::manifest`] on
    /// what that costs).
    /// # Errors
    /// [`StoreError::Io`], [`StoreError::BadManifest`], and whatever `each` returns.
    pub fn scan(
        self,
        times: bool,
        each: &mut HashFile<'_>,
        progress: &mut dyn FnMut(Bytes),
    ) -> Result<Manifest, StoreError> {
        let mut hashed = Bytes::ZERO;
        let mut entries = Vec::with_capacity(self.found.len());
        for Found { path, what, mut modified } in self.found {
            let kind = match what {
                What::Folder { mode } => Kind::Folder { mode },
                What::Symlink { target } => Kind::Symlink { target },
                What::File => {
                    let full = self.root.join(&path);
                    // It may have been written to since it was listed.
                    let now = full.symlink_metadata().map_err(|e| StoreError::io("look at", &full, e))?;
                    let hashes = each(&full, &mut |n| progress(hashed + n))?;
                    hashed += hashes.size();
                    modified = self::modified(&now);
                    Kind::File { mode: mode(&now), size: hashes.size(), object: hashes.root() }
                }
            };
            entries.push(Entry { path, kind, modified: times.then_some(modified) });
        }
        Manifest::new(entries)
    }
}

fn mode(metadata: &Metadata) -> u32 {
    metadata.permissions().mode() & 0o777
}

fn modified(metadata: &Metadata) -> Modified {
    // The kernel keeps nanoseconds below a second.
    Modified { secs: metadata.mtime(), nanos: u32::try_from(metadata.mtime_nsec()).unwrap_or(0) }
}

/// Why something that is neither file nor folder nor link is left out.
fn kind_of(metadata: &Metadata) -> &'static str {
    use std::os::unix::fs::FileTypeExt;
    let kind = metadata.file_type();
    if kind.is_fifo() {
        "it is a named pipe"
    } else if kind.is_socket() {
        "it is a socket"
    } else if kind.is_block_device() || kind.is_char_device() {
        "it is a device"
    } else {
        "it is neither a file nor a folder nor a link"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;
    use std::time::{Duration, SystemTime};

    use crate::SourceFile;

    fn scan(root: &Path, times: bool) -> Manifest {
        let listing = FolderListing::of(root).unwrap();
        assert_eq!(listing.skipped(), []);
        let total = listing.total_bytes();
        let mut last = Bytes::ZERO;
        let mut hash = |path: &Path, progress: &mut dyn FnMut(Bytes)| Ok(SourceFile::hash(path, progress)?.1);
        let manifest = listing.scan(times, &mut hash, &mut |n| last = n).unwrap();
        assert_eq!((last, manifest.total_bytes()), (total, total));
        manifest
    }

    fn write_as_of(path: &Path, content: &str, secs: u64, nanos: u32) {
        fs::write(path, content).unwrap();
        let file = fs::File::options().write(true).open(path).unwrap();
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::new(secs, nanos)).unwrap();
    }

    fn copy_by_manifest(root: &Path, target: &Path, manifest: &Manifest) {
        let manifest = Manifest::parse(&manifest.encode()).unwrap();
        manifest.make_folders(target).unwrap();
        for (path, ..) in manifest.files() {
            fs::write(target.join(path), fs::read(root.join(path)).unwrap()).unwrap();
        }
        manifest.complete(target).unwrap();
        // Once more does no harm.
        manifest.make_folders(target).unwrap();
        manifest.complete(target).unwrap();
    }

    #[test]
    fn a_folder_made_from_its_manifest_has_the_same_manifest() {
        let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let root = here.path();
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::create_dir(root.join("empty")).unwrap();
        fs::write(root.join("a/b/file"), "content").unwrap();
        fs::write(root.join("a-file"), "x").unwrap();
        fs::write(root.join(OsStr::from_bytes(b"caf\xe9")), "y").unwrap();
        fs::set_permissions(root.join("a/b/file"), fs::Permissions::from_mode(0o4750)).unwrap();
        symlink("../a-file", root.join("a/link")).unwrap();
        symlink(OsStr::from_bytes(b"caf\xe9"), root.join("menu")).unwrap();
        fs::set_permissions(root.join("a/b"), fs::Permissions::from_mode(0o555)).unwrap();
        let first = scan(root, false);
        let target = there.path().join("copy");
        copy_by_manifest(root, &target, &first);
        assert_eq!(scan(&target, false), first);
        assert_eq!(first.total_bytes(), Bytes::new(9));
        assert_eq!(fs::read(target.join("menu")).unwrap(), b"y");
        // So that the test's own folders can be removed by anybody.
        for folder in [root.join("a/b"), target.join("a/b")] {
            fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
        }
    }

    #[test]
    fn times_come_back_to_the_nanosecond_where_they_are_kept_and_only_there() {
        let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let root = here.path();
        fs::create_dir(root.join("old")).unwrap();
        write_as_of(&root.join("old/file"), "content", 1_000_000_000, 123_456_789);
        symlink("old/file", root.join("link")).unwrap();
        let with = scan(root, true);
        let target = there.path().join("copy");
        copy_by_manifest(root, &target, &with);
        let time = |path: &Path| {
            let metadata = path.symlink_metadata().unwrap();
            (metadata.mtime(), metadata.mtime_nsec())
        };
        assert_eq!(time(&target.join("old/file")), (1_000_000_000, 123_456_789));
        for path in ["old", "old/file", "link"] {
            assert_eq!(time(&target.join(path)), time(&root.join(path)), "{path}");
        }
        assert_eq!(scan(&target, true), with);
        // Without times the same content has the same manifest wherever and whenever it was written.
        write_as_of(&target.join("old/file"), "content", 2_000_000_000, 0);
        assert_eq!(scan(&target, false).encode(), scan(root, false).encode());
        assert!(scan(root, false).encode().starts_with(crate::manifest::MAGIC.as_bytes()));
    }

    #[test]
    fn what_cannot_be_delivered_is_named() {
        let here = tempfile::tempdir().unwrap();
        let root = here.path();
        let _socket = UnixListener::bind(root.join("socket")).unwrap();
        symlink("/etc/passwd", root.join("absolute")).unwrap();
        symlink("../elsewhere", root.join("out")).unwrap();
        fs::write(root.join(OsStr::from_bytes(b"fine\xff")), "").unwrap();
        fs::write(root.join("good"), "").unwrap();
        let listing = FolderListing::of(root).unwrap();
        let said: Vec<_> = listing.skipped().iter().map(|s| (s.path.as_path(), s.reason.as_str())).collect();
        let expected = [
            (root.join("absolute"), "symlink target is absolute"),
            (root.join("out"), "symlink target leaves the folder"),
            (root.join("socket"), "it is a socket"),
        ];
        assert_eq!(said, expected.each_ref().map(|(path, reason)| (path.as_path(), *reason)));
        let mut hash = |path: &Path, progress: &mut dyn FnMut(Bytes)| Ok(SourceFile::hash(path, progress)?.1);
        assert_eq!(listing.scan(false, &mut hash, &mut |_| {}).unwrap().entries().len(), 2);
    }
}
