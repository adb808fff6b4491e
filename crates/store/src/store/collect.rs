//! Removal from a store: objects, files of folders that no folder needs any more, remains of transfers.
//!
//! ```text
//!   put, get --keep  ---> root -----------------------------.
//!                          ^ | rm NAME of a file            | rm
//!     named, or kept by id | v that a folder needs          v
//!   file of a folder  ---> part --- no manifest here ---> removed
//!                                   names it, and nobody
//!                                   is gathering it
//! ```
//! Which files a folder needs is read from its manifest, which is checked against its id first. While one cannot be read nobody knows
//! what it needs, and no part is removed. The entries of all that goes leave the index in one step; a crash before that changes
//! nothing, and one after it leaves files that the next start removes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use headwater_units::{Bytes, ObjectId};

use super::{Removed, Store, files_in, lock};
use crate::index::Record;
use crate::manifest::{self, Manifest};
use crate::{BlockHashes, Partial, StoreError, disk};

/// A file that no record speaks of may be one that is just being made.
const YOUNGEST_LEFTOVER_SECONDS: u64 = 60;

/// Objects that belong together while they come in one by one: files of a folder that is put or fetched. As long as this lives none of
/// them is taken for garbage.
#[derive(Clone, Debug)]
pub struct Gathering(Arc<Gathered>);

#[derive(Debug)]
struct Gathered {
    pins: Arc<Mutex<Pins>>,
    number: u64,
    received: bool,
}

#[derive(Debug, Default)]
pub(super) struct Pins {
    next: u64,
    pins: BTreeMap<u64, BTreeSet<ObjectId>>,
}

impl Pins {
    fn contains(&self, id: ObjectId) -> bool {
        self.pins.values().any(|ids| ids.contains(&id))
    }
}

impl Gathering {
    /// This object belongs to it, whether or not it is here yet.
    pub fn pin(&self, id: ObjectId) {
        lock(&self.0.pins).pins.entry(self.0.number).or_default().insert(id);
    }

    /// Objects pinned so far.
    pub fn pinned(&self) -> Vec<ObjectId> {
        lock(&self.0.pins).pins.get(&self.0.number).into_iter().flatten().copied().collect()
    }

    pub(crate) fn is_received(&self) -> bool {
        self.0.received
    }
}

impl Drop for Gathered {
    fn drop(&mut self) {
        lock(&self.pins).pins.remove(&self.number);
    }
}

/// Options of [`Store::gc`].
#[derive(Clone, Copy, Debug, Default)]
pub struct GcOptions {
    /// Only say what would go.
    pub dry_run: bool,
    /// Now, in seconds since 1970; the store reads no clock.
    pub now_unix_secs: u64,
    /// Seconds for which the remains of a transfer, and files of incomplete folders, are kept so that the transfer can
    /// go on.
    pub keep_unfinished_secs: u64,
}

/// Result of [`Store::gc`]: objects and files that it removed, or would remove.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Files of folders that nothing needed, by id.
    pub objects: Vec<ObjectId>,
    /// Bytes that they took.
    pub object_bytes: Bytes,
    /// Transfers that nobody was working on, and other leftovers.
    pub partials: u64,
    /// Bytes that they took on disk.
    pub partial_bytes: Bytes,
    /// Folders whose manifest cannot be read: until they are put again or removed, no file of a folder is.
    pub unreadable: Vec<ObjectId>,
}

/// The files that the folders of a store need.
struct Needed {
    files: BTreeSet<ObjectId>,
    unreadable: Vec<ObjectId>,
}

impl Store {
    /// Begins to gather objects. `received`: they come from others, and a transfer that breaks off may go on later.
    pub fn gather(&self, received: bool) -> Gathering {
        let mut pins = lock(&self.pins);
        pins.next += 1;
        Gathering(Arc::new(Gathered { pins: self.pins.clone(), number: pins.next, received }))
    }

    /// Removes a name, and the object with it unless another name or a folder needs it; or, by id or its first digits, the object with
    /// all its names. With a folder go its files that nothing else needs. Works on damaged objects, too.
    ///
    /// # Errors
    /// As [`Store::lookup`], [`StoreError::PartOfFolder`] if that is all it is, and [`StoreError::Io`].
    pub fn rm(&self, what: &str) -> Result<Removed, StoreError> {
        let _change = lock(&self.change);
        let object = self.lookup(what)?;
        let by_name = object.names.iter().any(|name| name == what) && what.parse::<ObjectId>().is_err();
        if by_name && object.names.len() > 1 {
            self.index.remove_name(what, object.id)?;
            let names = vec![what.to_owned()];
            return Ok(Removed { id: object.id, names, freed: None, objects: Vec::new() });
        }
        let record = self.index.record(object.id)?;
        if let Some(folder) = self.folder_of(object.id)? {
            if object.names.is_empty() {
                return Err(StoreError::PartOfFolder { id: object.id, folder });
            }
            self.index.become_part(object.id)?;
            return Ok(Removed { id: object.id, names: object.names, freed: None, objects: Vec::new() });
        }
        let files = match self.index.folders()?.contains(&object.id) {
            true => self.manifest(object.id).map_or(BTreeSet::new(), |it| files_of(&it)),
            false => BTreeSet::new(),
        };
        let mut going: BTreeMap<ObjectId, Bytes> = match files.is_empty() {
            true => BTreeMap::new(),
            false => self.unneeded(Some(object.id), |id, _, _| files.contains(&id))?.0,
        };
        going.insert(object.id, record.map_or(Bytes::ZERO, |record| record.size));
        let freed = self.remove(&going)?;
        let objects = going.into_keys().collect();
        Ok(Removed { id: object.id, names: object.names, freed: Some(freed), objects })
    }

    /// Removes what was gathered and has come to nothing: what nothing else needs. Returns the objects that are gone.
    ///
    /// # Errors
    /// As [`Store::gc`].
    pub fn give_up(&self, gathering: Gathering) -> Result<Vec<ObjectId>, StoreError> {
        let pinned: BTreeSet<ObjectId> = gathering.pinned().into_iter().collect();
        drop(gathering);
        let _change = lock(&self.change);
        let going = self.unneeded(None, |id, _, _| pinned.contains(&id))?.0;
        self.remove(&going)?;
        Ok(going.into_keys().collect())
    }

    /// Removes what nothing needs: files of folders that are gone, transfers that nobody goes on with. Objects that
    /// were put or kept by themselves stay, named or not. Objects of which `in_use` says that they are being sent or
    /// fetched stay, too.
    ///
    /// # Errors
    /// [`StoreError::Index`] and its kin, [`StoreError::Io`].
    pub fn gc(&self, options: GcOptions, in_use: &dyn Fn(ObjectId) -> bool) -> Result<Collected, StoreError> {
        let is_old = |then: u64| then.saturating_add(options.keep_unfinished_secs) <= options.now_unix_secs;
        let mut collected = Collected::default();
        {
            let _change = lock(&self.change);
            let goes = |id: ObjectId, record: &Record, received: bool| {
                (!received || is_old(record.added_unix_secs)) && !in_use(id)
            };
            let (going, unreadable) = self.unneeded(None, goes)?;
            collected.unreadable = unreadable;
            collected.object_bytes = going.values().copied().sum();
            if !options.dry_run {
                self.remove(&going)?;
            }
            collected.objects = going.into_keys().collect();
        }
        self.collect_transfers(options, &is_old, &mut collected)?;
        Ok(collected)
    }

    fn collect_transfers(
        &self,
        options: GcOptions,
        is_old: &dyn Fn(u64) -> bool,
        collected: &mut Collected,
    ) -> Result<(), StoreError> {
        let incoming = self.folder.join("incoming");
        let list = Partial::list(&incoming)?;
        let mut known = BTreeSet::new();
        for partial in list.partials {
            known.extend([partial.data_path.clone(), partial.record_path.clone()]);
            let here = self.index.record(partial.spec.hashes.root())?.is_some();
            if !(here || is_old(modified(&partial.data_path))) || is_busy(&partial.data_path) {
                continue;
            }
            if !options.dry_run {
                match partial.discard() {
                    Err(StoreError::Busy { .. }) => continue,
                    done => done?,
                }
            }
            collected.partials += 1;
            collected.partial_bytes += partial.on_disk;
        }
        for path in files_in(&incoming)? {
            let then = modified(&path);
            let young = then.saturating_add(YOUNGEST_LEFTOVER_SECONDS) > options.now_unix_secs;
            if known.contains(&path) || young || !is_old(then) || is_busy(&path) {
                continue;
            }
            collected.partials += 1;
            collected.partial_bytes +=
                fs::metadata(&path).map_or(Bytes::ZERO, |m| Bytes::new(m.blocks() * 512));
            if !options.dry_run {
                disk::remove_if_there(&path)?;
            }
        }
        Ok(())
    }

    /// Parts that nothing needs and nobody is gathering, as `goes` chooses by id, record, and whether it was received; and the folders
    /// that cannot be read, for which nothing goes. One folder counts as gone.
    fn unneeded(
        &self,
        gone: Option<ObjectId>,
        mut goes: impl FnMut(ObjectId, &Record, bool) -> bool,
    ) -> Result<(BTreeMap<ObjectId, Bytes>, Vec<ObjectId>), StoreError> {
        let parts = self.index.parts()?;
        if parts.is_empty() {
            return Ok(Default::default());
        }
        let needed = self.needed(gone)?;
        if !needed.unreadable.is_empty() {
            return Ok((BTreeMap::new(), needed.unreadable));
        }
        let pins = lock(&self.pins);
        let mut going = BTreeMap::new();
        for (id, (record, names)) in self.index.all()? {
            let Some(received) = parts.get(&id) else { continue };
            let free = names.is_empty() && !needed.files.contains(&id) && !pins.contains(id);
            if free && goes(id, &record, *received) {
                going.insert(id, record.size);
            }
        }
        Ok((going, Vec::new()))
    }

    /// Files that the folders need, all folders but one.
    fn needed(&self, gone: Option<ObjectId>) -> Result<Needed, StoreError> {
        let mut needed = Needed { files: BTreeSet::new(), unreadable: Vec::new() };
        for folder in self.index.folders()?.into_iter().filter(|folder| Some(*folder) != gone) {
            match self.manifest(folder) {
                Some(manifest) => needed.files.extend(files_of(&manifest)),
                None => needed.unreadable.push(folder),
            }
        }
        Ok(needed)
    }

    /// A folder that needs an object, other than itself.
    fn folder_of(&self, id: ObjectId) -> Result<Option<ObjectId>, StoreError> {
        let mut folders = self.index.folders()?.into_iter().filter(|folder| *folder != id);
        Ok(folders.find(|folder| self.manifest(*folder).is_some_and(|it| files_of(&it).contains(&id))))
    }

    /// Reads an object, and of a folder all its files, and compares them with their ids. What they hold together: of a folder, that of its
    /// files.
    ///
    /// # Errors
    /// As [`Store::verify`], for the first that is not in order.
    pub fn verify_all(&self, id: ObjectId) -> Result<Bytes, StoreError> {
        self.verify(id)?;
        let is_folder = self.index.folders()?.contains(&id);
        if let Some(manifest) = is_folder.then(|| self.manifest(id)).flatten() {
            files_of(&manifest).into_iter().try_for_each(|file| self.verify(file))?;
            return Ok(manifest.total_bytes());
        }
        Ok(self.index.record(id)?.map_or(Bytes::ZERO, |record| record.size))
    }

    /// The manifest that an object is, if its bytes are in order.
    fn manifest(&self, id: ObjectId) -> Option<Manifest> {
        let bytes = fs::read(self.object_path(id)).ok()?;
        let is_genuine = BlockHashes::of_bytes(&bytes).root() == id;
        is_genuine.then(|| Manifest::parse(&bytes).ok()).flatten()
    }

    /// Removes objects: first what the index says of them, all in one step, then their files.
    fn remove(&self, going: &BTreeMap<ObjectId, Bytes>) -> Result<Bytes, StoreError> {
        if going.is_empty() {
            return Ok(Bytes::ZERO);
        }
        let ids: Vec<ObjectId> = going.keys().copied().collect();
        let freed = going.values().copied().sum();
        self.index.remove(&ids)?;
        lock(&self.ledger).used -= freed;
        for id in &ids {
            disk::remove_if_there(&self.object_path(*id))?;
        }
        self.index.clear_unfinished(&ids)?;
        Ok(freed)
    }

    /// Notes which objects of a store of an older version are folders, and which of its nameless ones are only files of those.
    pub(super) fn migrate(&self) -> Result<(), StoreError> {
        let all = self.index.all()?;
        let (mut folders, mut files) = (Vec::new(), BTreeSet::new());
        for (id, (record, _)) in &all {
            if record.size.get() <= manifest::MAX_MANIFEST_BYTES as u64
                && begins_like_a_manifest(&self.object_path(*id))
                && let Some(manifest) = self.manifest(*id)
            {
                folders.push(*id);
                files.extend(files_of(&manifest));
            }
        }
        let named: BTreeSet<ObjectId> = self.index.old_names()?.into_values().collect();
        let nameless =
            |id: &ObjectId| all.get(id).is_some_and(|(_, names)| names.is_empty()) && !named.contains(id);
        let parts: Vec<ObjectId> = files.into_iter().filter(nameless).collect();
        self.index.migrate(&folders, &parts)
    }
}

fn files_of(manifest: &Manifest) -> BTreeSet<ObjectId> {
    manifest.files().map(|(_, _, _, object)| object).collect()
}

/// Whether a file may be a manifest, by its first bytes.
pub(super) fn begins_like_a_manifest(path: &Path) -> bool {
    use std::io::Read;
    let mut first = Vec::new();
    let read = fs::File::open(path).and_then(|file| file.take(64).read_to_end(&mut first));
    read.is_ok() && manifest::is_manifest(&first)
}

fn modified(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |m| u64::try_from(m.mtime()).unwrap_or(0))
}

/// Whether some process works on it.
fn is_busy(path: &Path) -> bool {
    fs::File::open(path).is_ok_and(|file| disk::lock(&file, path).is_err())
}
