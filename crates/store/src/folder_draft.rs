//! A folder in reception: filled under a hidden name, and seen under its own only when all of it is there.
//!
//! ```text
//! PARENT/.NAME.headwater-partial-0123456789abcdef/   the draft: finished files under their paths, unfinished ones as `Partial` keeps them
//! PARENT/NAME/                                       appears by one rename
//! ```
//! The digits are the beginning of the manifest's id, so the draft of another version of the folder is another
//! draft. A process that works on a draft holds a lock on it. A folder that is replaced changes places with its draft
//! in one step, and is removed then: a crash leaves the old one or the new one under the final name, and what is left
//! under the hidden name goes with the next call.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use headwater_units::{Bytes, ObjectId};

use crate::manifest::{Kind, Manifest};
use crate::{StoreError, disk, tree};

/// Part of every hidden name, between the folder's name and the digits.
const MARK: &str = ".headwater-partial-";
/// Digits of the id in a hidden name.
const DIGITS: usize = 16;
/// File systems give a name this many bytes.
const MAX_FILE_NAME: usize = 255;
/// How often opening is tried again when the draft is renamed away between opening and locking it.
const OPEN_ATTEMPTS: u32 = 8;

/// The hidden folder that becomes the one wanted. Dropping it keeps everything for the next call.
#[derive(Debug)]
pub struct FolderDraft {
    target: PathBuf,
    path: PathBuf,
    /// Locked as long as it is open.
    _lock: File,
}

impl FolderDraft {
    /// Whether a draft of this folder was begun.
    pub fn is_begun(target: &Path, id: ObjectId) -> bool {
        hidden(target, id).is_some_and(|path| is_real_folder(&path))
    }

    /// Begins a draft with the folders of the manifest, or goes on with the one that is there. `target` is the folder's final name, whose
    /// own folder must exist.
    ///
    /// # Errors
    /// [`StoreError::Busy`] while another process works on it, [`StoreError::BadDestination`], [`StoreError::DestinationExists`],
    /// [`StoreError::Io`].
    pub fn open(target: &Path, id: ObjectId, manifest: &Manifest) -> Result<Self, StoreError> {
        let target = std::path::absolute(target).map_err(|e| StoreError::io("find", target, e))?;
        let bad = |reason| StoreError::BadDestination { path: target.clone(), reason };
        let path = hidden(&target, id).ok_or_else(|| bad("it has no file name"))?;
        if !disk::parent(&target).is_dir() {
            return Err(bad("its folder does not exist: create it first"));
        }
        let lock = open_locked(&path)?;
        let draft = FolderDraft { target, path, _lock: lock };
        draft.open_up(manifest);
        manifest.make_folders(&draft.path)?;
        Ok(draft)
    }

    /// The hidden folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A process that was killed while it set modes may have left folders that nothing can be put into.
    fn open_up(&self, manifest: &Manifest) {
        for entry in manifest.entries() {
            let path = self.path.join(&entry.path);
            let least = match entry.kind {
                Kind::Folder { .. } => 0o700,
                Kind::File { .. } => 0o600,
                Kind::Symlink { .. } => continue,
            };
            if let Ok(found) = path.symlink_metadata()
                && !found.is_symlink()
                && found.mode() & least != least
            {
                // The next user of the folder will say why it cannot be used.
                _ = fs::set_permissions(&path, Permissions::from_mode(found.mode() & 0o777 | least));
            }
        }
    }

    /// Gives the folder its final name, once every file of the manifest is in place: makes the links, sets the modes,
    /// removes what the manifest does not name, has all of it on the disk first. A file or folder under the final name
    /// is replaced only if `overwrite` is set.
    ///
    /// # Errors
    /// [`StoreError::DestinationExists`], [`StoreError::Io`]; the draft stays for another call.
    pub fn finish(self, manifest: &Manifest, overwrite: bool) -> Result<PathBuf, StoreError> {
        let mut strangers = Vec::new();
        walk(&self.path, manifest, &mut |path| {
            strangers.push(path.to_owned());
            true
        })?;
        strangers.iter().try_for_each(|path| remove_tree(path))?;
        manifest.complete(&self.path)?;
        let folders = manifest.entries().iter().filter(|e| matches!(e.kind, Kind::Folder { .. }));
        for folder in folders.map(|e| self.path.join(&e.path)).chain([self.path.clone()]) {
            match disk::sync_folder(&folder) {
                // A folder whose owner may not read it cannot be synced by its owner.
                Err(StoreError::Io { source, .. }) if source.kind() == io::ErrorKind::PermissionDenied => {}
                synced => synced?,
            }
        }
        let parent = disk::parent(&self.target);
        if overwrite && self.target.symlink_metadata().is_ok() {
            self.replace()?;
        } else {
            disk::rename(&self.path, &self.target, false)?;
            disk::sync_folder(parent)?;
        }
        sweep(&self.target)?;
        Ok(self.target)
    }

    /// Swaps the draft and what is under the final name, and removes the latter.
    fn replace(&self) -> Result<(), StoreError> {
        let parent = disk::parent(&self.target);
        if disk::exchange(&self.path, &self.target)? {
            disk::sync_folder(parent)?;
            return remove_tree(&self.path);
        }
        // A file system that cannot swap: the old one steps aside, under a hidden name that the next call sweeps.
        let aside = hidden(&self.target, ObjectId([0; 32])).expect("the target has a name: it was opened");
        if aside.symlink_metadata().is_ok() {
            remove_tree(&aside)?;
        }
        disk::rename(&self.target, &aside, false)?;
        disk::rename(&self.path, &self.target, false)?;
        disk::sync_folder(parent)?;
        remove_tree(&aside)
    }

    /// Removes what earlier calls for the same name left: drafts of other versions, and a folder that was replaced when its process was
    /// killed. A draft that another process works on stays.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn sweep(target: &Path) -> Result<(), StoreError> {
        let target = std::path::absolute(target).map_err(|e| StoreError::io("find", target, e))?;
        sweep(&target)
    }
}

/// The hidden name beside a folder's own.
fn hidden(target: &Path, id: ObjectId) -> Option<PathBuf> {
    let id = id.to_string();
    let tail = format!("{MARK}{}", &id[..DIGITS]);
    Some(target.with_file_name(OsString::from_vec([&stem(target.file_name()?), tail.as_bytes()].concat())))
}

/// How every hidden name for this folder begins. A name too long for that is told from its neighbours by its hash instead.
fn stem(name: &OsStr) -> Vec<u8> {
    if 1 + name.len() + MARK.len() + DIGITS <= MAX_FILE_NAME {
        return [b".", name.as_bytes()].concat();
    }
    format!(".{}", &blake3::hash(name.as_bytes()).to_hex().as_str()[..32]).into_bytes()
}

/// Opens a folder for this process alone, and makes it where it is missing.
fn open_locked(path: &Path) -> Result<File, StoreError> {
    for _ in 0..OPEN_ATTEMPTS {
        match fs::create_dir(path) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
                return Err(StoreError::io("create folder", path, e));
            }
            _ => {}
        }
        let folder = match open_folder(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            opened => opened.map_err(|e| StoreError::io("open", path, e))?,
        };
        disk::lock(&folder, path)?;
        let locked = folder.metadata().map_err(|e| StoreError::io("look at", path, e))?;
        // The last holder of the lock may just have given the folder its final name, or removed it.
        match path.symlink_metadata() {
            Ok(named) if (named.dev(), named.ino()) == (locked.dev(), locked.ino()) => return Ok(folder),
            _ => {}
        }
    }
    Err(StoreError::Busy { path: path.to_owned() })
}

fn open_folder(path: &Path) -> io::Result<File> {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::DIRECTORY;
    OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(path)
}

fn sweep(target: &Path) -> Result<(), StoreError> {
    let Some(name) = target.file_name() else { return Ok(()) };
    let begin = [&stem(name), MARK.as_bytes()].concat();
    let parent = disk::parent(target);
    let fail = |e| StoreError::io("list", parent, e);
    for entry in fs::read_dir(parent).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        let name = entry.file_name();
        let is_ours = name.as_bytes().strip_prefix(&begin[..]).is_some_and(|digits| digits.len() == DIGITS);
        if !is_ours {
            continue;
        }
        let path = entry.path();
        match open_folder(&path) {
            Ok(folder) => match disk::lock(&folder, &path) {
                Ok(()) => remove_tree(&path)?,
                Err(StoreError::Busy { .. }) => {}
                Err(error) => return Err(error),
            },
            // A file that was replaced by a folder.
            Err(_) => remove_tree(&path)?,
        }
    }
    Ok(())
}

/// Removes a file, or a folder with all that is in it, even if its modes speak against that.
fn remove_tree(path: &Path) -> Result<(), StoreError> {
    if !is_real_folder(path) {
        return disk::remove_if_there(path);
    }
    _ = fs::set_permissions(path, Permissions::from_mode(0o700));
    let fail = |e| StoreError::io("remove", path, e);
    for entry in fs::read_dir(path).map_err(fail)? {
        remove_tree(&entry.map_err(fail)?.path())?;
    }
    fs::remove_dir(path).map_err(fail)
}

/// How a folder that is there compares with a manifest, by names, kinds and sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Something of the manifest is there.
    pub begun: bool,
    /// All of the manifest is there; what is in the files is not looked at.
    pub complete: bool,
    /// Something is there that the manifest does not name.
    pub foreign: bool,
}

/// Compares a folder with a manifest. Links in it are not followed.
///
/// # Errors
/// [`StoreError::Io`].
pub fn compare(manifest: &Manifest, folder: &Path) -> Result<Comparison, StoreError> {
    let mut comparison = Comparison { complete: true, ..Comparison::default() };
    for entry in manifest.entries() {
        let path = folder.join(&entry.path);
        let Ok(found) = path.symlink_metadata() else {
            comparison.complete = false;
            continue;
        };
        comparison.begun = true;
        comparison.complete &= match &entry.kind {
            Kind::Folder { .. } => found.is_dir(),
            Kind::File { size, .. } => found.is_file() && found.len() == size.get(),
            Kind::Symlink { target } => fs::read_link(&path).is_ok_and(|to| to == Path::new(target)),
        };
    }
    walk(folder, manifest, &mut |_| {
        comparison.foreign = true;
        false
    })?;
    Ok(comparison)
}

impl Comparison {
    /// Whether the files' contents are the manifest's, too: all of them are hashed. `progress` hears the bytes hashed so far.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn is_verified(
        self,
        manifest: &Manifest,
        folder: &Path,
        progress: &mut dyn FnMut(Bytes),
    ) -> Result<bool, StoreError> {
        let mut before = Bytes::ZERO;
        for (path, _, size, object) in manifest.files() {
            if !self.complete
                || !tree::holds(&folder.join(path), object, size, &mut |done| progress(before + done))?
            {
                return Ok(false);
            }
            before += size;
        }
        Ok(self.complete)
    }
}

/// Names what is in a folder and not in the manifest, not what is below it; `stranger` says whether to go on.
fn walk(root: &Path, manifest: &Manifest, stranger: &mut dyn FnMut(&Path) -> bool) -> Result<(), StoreError> {
    let known: std::collections::BTreeMap<&Path, bool> = manifest
        .entries()
        .iter()
        .map(|e| (Path::new(&e.path), matches!(e.kind, Kind::Folder { .. })))
        .collect();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        let path = root.join(&folder);
        let fail = |e| StoreError::io("list", &path, e);
        for entry in fs::read_dir(&path).map_err(fail)? {
            let entry = entry.map_err(fail)?;
            let relative = folder.join(entry.file_name());
            let is_folder = entry.file_type().map_err(fail)?.is_dir();
            match known.get(&*relative) {
                Some(true) if is_folder => folders.push(relative),
                Some(false) if !is_folder => {}
                _ if stranger(&root.join(&relative)) => {}
                _ => return Ok(()),
            }
        }
    }
    Ok(())
}

fn is_real_folder(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|m| m.is_dir())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Entry;

    fn manifest(files: &[(&str, &str)]) -> Manifest {
        let mut entries =
            vec![Entry { path: "sub".into(), kind: Kind::Folder { mode: 0o555 }, modified: None }];
        entries.extend(files.iter().map(|(path, content)| Entry {
            path: (*path).into(),
            kind: Kind::File {
                mode: 0o644,
                size: Bytes::new(content.len() as u64),
                object: ObjectId(*blake3::hash(content.as_bytes()).as_bytes()),
            },
            modified: None,
        }));
        Manifest::new(entries).unwrap()
    }

    fn fill(draft: &FolderDraft, files: &[(&str, &str)]) {
        files.iter().for_each(|(path, content)| fs::write(draft.path().join(path), content).unwrap());
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    const ONE: &[(&str, &str)] = &[("a", "first"), ("sub/b", "second")];
    const TWO: &[(&str, &str)] = &[("a", "other"), ("sub/b", "second")];

    #[test]
    fn a_folder_is_seen_only_when_it_is_whole_and_one_process_works_on_it() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("set");
        let (manifest, id) = (manifest(ONE), ObjectId([7; 32]));
        let draft = FolderDraft::open(&target, id, &manifest).unwrap();
        assert!(!target.exists());
        assert!(matches!(FolderDraft::open(&target, id, &manifest), Err(StoreError::Busy { .. })));
        fill(&draft, &ONE[..1]);
        drop(draft);
        assert!(FolderDraft::is_begun(&target, id) && !FolderDraft::is_begun(&target, ObjectId([8; 32])));
        // As a process that was killed while it set modes leaves it.
        let sub = folder.path().join(&names(folder.path())[0]).join("sub");
        fs::set_permissions(&sub, Permissions::from_mode(0o555)).unwrap();
        let draft = FolderDraft::open(&target, id, &manifest).unwrap();
        fill(&draft, &ONE[1..]);
        fs::write(draft.path().join("sub/.b.partial"), "left over").unwrap();
        draft.finish(&manifest, false).unwrap();
        assert_eq!(
            (names(folder.path()), names(&target)),
            (vec!["set".into()], vec!["a".into(), "sub".into()])
        );
        assert_eq!(names(&target.join("sub")), ["b"]);
        assert_eq!(target.join("sub").metadata().unwrap().mode() & 0o777, 0o555);
        let found = compare(&manifest, &target).unwrap();
        assert_eq!(found, Comparison { begun: true, complete: true, foreign: false });
        assert!(found.is_verified(&manifest, &target, &mut |_| {}).unwrap());
    }

    #[test]
    fn a_folder_that_is_there_is_replaced_only_if_asked_and_by_one_step() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("set");
        for (content, id) in [(ONE, ObjectId([1; 32])), (TWO, ObjectId([2; 32]))] {
            let manifest = manifest(content);
            let draft = FolderDraft::open(&target, id, &manifest).unwrap();
            fill(&draft, content);
            if content == TWO {
                assert!(matches!(draft.finish(&manifest, false), Err(StoreError::DestinationExists { .. })));
                assert_eq!(fs::read(target.join("a")).unwrap(), b"first");
                let draft = FolderDraft::open(&target, id, &manifest).unwrap();
                draft.finish(&manifest, true).unwrap();
            } else {
                draft.finish(&manifest, false).unwrap();
            }
        }
        assert_eq!(fs::read(target.join("a")).unwrap(), b"other");
        assert_eq!(names(folder.path()), ["set"], "the old one is gone");
        let old = compare(&manifest(ONE), &target).unwrap();
        assert!(old.complete && !old.is_verified(&manifest(ONE), &target, &mut |_| {}).unwrap());
    }

    #[test]
    fn what_a_killed_process_left_under_hidden_names_is_swept_unless_somebody_works_on_it() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("set");
        let manifest = manifest(ONE);
        drop(FolderDraft::open(&target, ObjectId([1; 32]), &manifest).unwrap());
        let busy = FolderDraft::open(&target, ObjectId([2; 32]), &manifest).unwrap();
        fs::write(folder.path().join(".set.headwater-partial-notes"), "a user's").unwrap();
        FolderDraft::sweep(&target).unwrap();
        let left = names(folder.path());
        assert_eq!(left.len(), 2, "{left:?}");
        assert!(busy.path().is_dir());
    }

    #[test]
    fn a_name_as_long_as_a_name_may_be_has_a_draft_too() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("n".repeat(255));
        let manifest = manifest(&[]);
        let draft = FolderDraft::open(&target, ObjectId([1; 32]), &manifest).unwrap();
        draft.finish(&manifest, false).unwrap();
        assert!(target.is_dir());
    }

    #[test]
    fn a_folder_of_another_content_is_foreign() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("diary"), "mine").unwrap();
        let found = compare(&manifest(ONE), folder.path()).unwrap();
        assert_eq!(found, Comparison { begun: false, complete: false, foreign: true });
    }
}
