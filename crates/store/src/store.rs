//! Objects kept by content, and the names that point at them.
//!
//! ```text
//! STATE/store/index.redb        ids, sizes, block hashes, names; locked by the one process that has the store open
//! STATE/store/objects/<id>      the bytes, under the id in hex; only whole, synced files appear here
//! STATE/store/tmp/              files being written; swept when the store is opened
//! STATE/store/incoming/         objects being received; kept, so that a transfer goes on
//! ```
//! A put goes: write and hash a temporary file, sync it, note the id as unfinished, rename, enter the object. A crash
//! at any point leaves either the whole object or nothing of it. A removal takes the entry out first, then the file.

mod collect;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use headwater_units::{Bytes, ObjectId};

pub use self::collect::{Collected, Gathering, GcOptions};
use crate::disk::{self, TempFile};

use self::collect::{Pins, begins_like_a_manifest};
use crate::index::{Entering, Index, Record};
use crate::tree::{self, BlockHasher, BlockHashes, READ_SIZE, read_full};
use crate::{NameFacts, NameStanding, Partial, PartialSpec, SourceFile, StoreError, manifest};

/// The longest name of an object, in bytes.
pub const MAX_NAME_BYTES: usize = 1024;
/// The fewest hex digits that stand for an id.
pub const MIN_PREFIX_DIGITS: usize = 8;

/// Settings of a store.
#[derive(Clone, Copy, Debug, Default)]
pub struct StoreOptions {
    /// The most bytes all objects together may have; none: whatever the disk holds.
    pub quota: Option<Bytes>,
}

/// How a file gets into the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PutMode {
    /// Share the file's blocks copy on write where the file system can, else copy.
    #[default]
    ReflinkOrCopy,
    /// A second name for the same file: no space, but a program that writes to the file later destroys the object.
    HardLink,
}

/// Options of a put.
#[derive(Clone, Copy, Debug, Default)]
pub struct PutOptions<'a> {
    /// A name for the object; if it points elsewhere it moves.
    pub name: Option<&'a str>,
    /// How its bytes get in.
    pub mode: PutMode,
    /// Now, in seconds since 1970; the store reads no clock.
    pub added_unix_secs: u64,
    /// How it comes to that name.
    pub naming: NameStanding,
    /// It is only part of what is being gathered: it stays while something needs it.
    pub part_of: Option<&'a Gathering>,
    /// The put ends with [`StoreError::Stopped`] soon after this becomes true.
    pub stop: Option<&'a AtomicBool>,
}

impl<'a> PutOptions<'a> {
    fn entering(&self, folder: bool) -> Entering<'a> {
        Entering {
            name: self.name.map(|name| (name, self.naming)),
            part: self.part_of.map(Gathering::is_received),
            folder,
        }
    }
}

/// Reads until it is told to stop.
struct Stoppable<'a> {
    inner: &'a mut dyn Read,
    stop: Option<&'a AtomicBool>,
}

impl Read for Stoppable<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match is_set(self.stop) {
            true => Err(io::Error::other("stopped")),
            false => self.inner.read(buffer),
        }
    }
}

fn is_set(stop: Option<&AtomicBool>) -> bool {
    stop.is_some_and(|stop| stop.load(Ordering::Relaxed))
}

/// How an object's bytes came to be in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed {
    /// Sharing blocks with the file put.
    Reflinked,
    /// Copied.
    Copied,
    /// A hard link to the file put.
    HardLinked,
    /// Put together in the store, block by block.
    Received,
    /// They were here before.
    AlreadyHere,
}

/// The outcome of a put.
#[derive(Clone, Debug)]
pub struct Stored {
    /// The object, with its id and size.
    pub hashes: BlockHashes,
    /// How it got in.
    pub placed: Placed,
    /// The object that had the name before, if it was another one. It stays, under its id.
    pub name_moved_from: Option<ObjectId>,
    /// It was here before, but its bytes were not what they should be; now they are.
    pub healed: bool,
}

/// One stored object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectInfo {
    /// Its id.
    pub id: ObjectId,
    /// Its size.
    pub size: Bytes,
    /// The names that point at it, in order; there may be none.
    pub names: Vec<String>,
    /// When it was put, in seconds since 1970.
    pub added_unix_secs: u64,
}

/// The outcome of a removal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removed {
    /// The object.
    pub id: ObjectId,
    /// The names that are gone.
    pub names: Vec<String>,
    /// Bytes of the objects that were removed; none if the object stays because of another name, or because a folder
    /// needs it.
    pub freed: Option<Bytes>,
    /// All that is gone: the object, and of a folder the files that nothing else needs.
    pub objects: Vec<ObjectId>,
}

/// Something that is not as it should be, found without reading whole files.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// The index knows the object, but its file is missing, has another size, or (a hard link) was written to. The
    /// object is not listed; putting it again heals it.
    Damaged {
        /// The object.
        object: ObjectInfo,
        /// The damage.
        reason: String,
    },
    /// A file among the objects that the index does not know: see [`Store::adopt`].
    Unindexed {
        /// The file.
        path: PathBuf,
    },
}

/// The objects of one node. Owned by one process; shared by reference between its threads.
pub struct Store {
    folder: PathBuf,
    index: Index,
    ledger: Mutex<Ledger>,
    /// Held while an object's file and entry appear or go, so that nobody sees one without the other.
    change: Mutex<()>,
    pins: Arc<Mutex<Pins>>,
    temp_count: AtomicU64,
}

#[derive(Default)]
struct Ledger {
    /// Of all objects in the index.
    used: Bytes,
    /// Of running puts.
    reserved: Bytes,
    /// As in [`StoreOptions`], until it is set anew.
    quota: Option<Bytes>,
}

impl Store {
    /// Opens the store in this folder, or makes one. Sweeps what an earlier process left unfinished.
    ///
    /// # Errors
    /// [`StoreError::Busy`] if another process (a daemon) has it open, [`StoreError::IndexDamaged`],
    /// [`StoreError::Io`].
    pub fn open(folder: &Path, options: StoreOptions) -> Result<Store, StoreError> {
        let folder = std::path::absolute(folder).map_err(|e| StoreError::io("find", folder, e))?;
        for sub in ["", "objects", "tmp", "incoming"] {
            let path = folder.join(sub);
            let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&path);
            made.map_err(|e| StoreError::io("create folder", &path, e))?;
        }
        let index = Index::open(folder.join("index.redb"))?;
        let store = Store {
            folder,
            index,
            ledger: Mutex::new(Ledger { quota: options.quota, ..Ledger::default() }),
            change: Mutex::default(),
            pins: Arc::default(),
            temp_count: AtomicU64::new(0),
        };
        store.sweep()?;
        if store.index.is_old()? {
            store.migrate()?;
        }
        lock(&store.ledger).used = store.index.all()?.values().map(|(record, _)| record.size).sum();
        Ok(store)
    }

    fn sweep(&self) -> Result<(), StoreError> {
        for path in files_in(&self.folder.join("tmp"))? {
            disk::remove_if_there(&path)?;
        }
        for id in self.index.unfinished()? {
            if self.index.record(id)?.is_none() {
                disk::remove_if_there(&self.object_path(id))?;
            }
            self.index.clear_unfinished(&[id])?;
        }
        Ok(())
    }

    /// Where an object's bytes are or would be.
    fn object_path(&self, id: ObjectId) -> PathBuf {
        self.folder.join("objects").join(id.to_string())
    }

    fn temp_path(&self) -> PathBuf {
        self.folder.join("tmp").join(self.temp_count.fetch_add(1, Ordering::Relaxed).to_string())
    }

    /// The folder it lives in, absolute.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
    /// Bytes that all objects take together.
    pub fn used(&self) -> Bytes {
        lock(&self.ledger).used
    }
    /// Its settings.
    pub fn options(&self) -> StoreOptions {
        StoreOptions { quota: lock(&self.ledger).quota }
    }
    /// From now on objects have at most this many bytes together. Stored objects stay.
    pub fn set_quota(&self, quota: Option<Bytes>) {
        lock(&self.ledger).quota = quota;
    }

    /// Takes a file in, in constant memory and one pass. `progress` hears the bytes hashed so far.
    ///
    /// # Errors
    /// Whatever happens, stored objects stay as they were and no temporary file remains.
    /// [`StoreError::QuotaExceeded`], [`StoreError::DiskFull`], [`StoreError::ObjectChanged`] if the file is written
    /// to meanwhile, [`StoreError::BadName`], [`StoreError::NotAFile`], [`StoreError::Stopped`], [`StoreError::Io`] (a hard
    /// link across file systems, among others).
    pub fn put(
        &self,
        path: &Path,
        options: &PutOptions<'_>,
        progress: &mut dyn FnMut(Bytes),
    ) -> Result<Stored, StoreError> {
        self.put_file(path, options, progress).map_err(|e| stopped_or(e, options))
    }

    fn put_file(
        &self,
        path: &Path,
        options: &PutOptions<'_>,
        progress: &mut dyn FnMut(Bytes),
    ) -> Result<Stored, StoreError> {
        options.name.map_or(Ok(()), check_name)?;
        let source = SourceFile::open(path)?;
        let mut reservation = Reservation { store: self, bytes: Bytes::ZERO };
        if let Err(full) = reservation.grow(source.size())
            && let Some(known) = self.put_if_known(&source, options, full, progress)?
        {
            return Ok(known);
        }
        let mut linked_modified = None;
        let (temp, hashes, placed) = match options.mode {
            PutMode::HardLink => {
                let temp = self.hard_link(&source)?;
                let mut reader = Stoppable { inner: &mut temp.file(), stop: options.stop };
                let hashes = BlockHashes::of_reader(&mut reader, source.path(), progress)?;
                linked_modified = Some(source.identity().modified());
                (temp, hashes, Placed::HardLinked)
            }
            PutMode::ReflinkOrCopy => {
                let temp = TempFile::create(self.temp_path())?;
                if source.reflink_to(temp.file()) {
                    let mut reader = Stoppable { inner: &mut temp.file(), stop: options.stop };
                    let hashes = BlockHashes::of_reader(&mut reader, temp.path(), progress)?;
                    (temp, hashes, Placed::Reflinked)
                } else {
                    disk::check_space(&self.folder, source.allocated()?)?;
                    let mut reader = Stoppable { inner: &mut source.file(), stop: options.stop };
                    let hashes = self.copy(&mut reader, source.path(), &temp, None, progress)?;
                    (temp, hashes, Placed::Copied)
                }
            }
        };
        // A clone is a snapshot: what becomes of the file afterwards does not matter.
        if placed != Placed::Reflinked {
            source.check()?;
        }
        if hashes.size() != source.size() {
            return Err(StoreError::ObjectChanged { path: source.path().to_owned() });
        }
        self.enter(temp, hashes, placed, linked_modified, options, reservation)
    }

    /// Takes a stream in, of whatever length: a manifest, standard input.
    ///
    /// `label` stands for the stream in messages. [`PutOptions::mode`] has no meaning here.
    /// # Errors
    /// As [`Store::put`].
    pub fn put_reader(
        &self,
        reader: &mut dyn Read,
        label: &Path,
        options: &PutOptions<'_>,
        progress: &mut dyn FnMut(Bytes),
    ) -> Result<Stored, StoreError> {
        options.name.map_or(Ok(()), check_name)?;
        let temp = TempFile::create(self.temp_path())?;
        let mut reservation = Reservation { store: self, bytes: Bytes::ZERO };
        let mut reader = Stoppable { inner: reader, stop: options.stop };
        let hashes = self
            .copy(&mut reader, label, &temp, Some(&mut reservation), progress)
            .map_err(|e| stopped_or(e, options))?;
        self.enter(temp, hashes, Placed::Copied, None, options, reservation)
    }

    /// How an object is received into the store: for [`Partial::open_or_create`], and then [`Store::take`]. A transfer
    /// that is unfinished when the process ends goes on when the same object is wanted again.
    ///
    /// # Errors
    /// [`StoreError::QuotaExceeded`] if it has no room now.
    pub fn incoming(&self, hashes: BlockHashes) -> Result<PartialSpec, StoreError> {
        let _room = self.room_for(&hashes)?;
        let folder = self.folder.join("incoming");
        let destination = folder.join(hashes.root().to_string());
        Ok(PartialSpec { hashes, destination, state_folder: folder, range: None, overwrite: true })
    }

    /// Makes an object of what was received into the store, and is complete.
    ///
    /// # Errors
    /// [`StoreError::QuotaExceeded`], [`StoreError::BadName`], and those of [`Partial::finish`]: what was received stays
    /// for another try. [`StoreError::Index`] and its kin.
    pub fn take(&self, partial: &Partial, options: &PutOptions<'_>) -> Result<Stored, StoreError> {
        options.name.map_or(Ok(()), check_name)?;
        let reservation = self.room_for(partial.hashes())?;
        let path = partial.finish()?;
        let file = File::open(&path).map_err(|e| StoreError::io("open", &path, e))?;
        let temp = TempFile::adopt(path, file);
        self.enter(temp, partial.hashes().clone(), Placed::Received, None, options, reservation)
    }

    fn hard_link(&self, source: &SourceFile) -> Result<TempFile, StoreError> {
        let fail = |e| StoreError::io("hard-link into the store", source.path(), e);
        // Of a symbolic link, the file it points at is meant.
        let real = fs::canonicalize(source.path()).map_err(fail)?;
        let path = self.temp_path();
        fs::hard_link(&real, &path).map_err(fail)?;
        let file = File::open(&path).map_err(fail);
        match file {
            Ok(file) => Ok(TempFile::adopt(path, file)),
            Err(e) => {
                _ = fs::remove_file(&path);
                Err(e)
            }
        }
    }

    /// Copies a stream to a temporary file and hashes it on the way. Long runs of zeros become holes.
    fn copy(
        &self,
        reader: &mut dyn Read,
        read_path: &Path,
        temp: &TempFile,
        mut reservation: Option<&mut Reservation<'_>>,
        progress: &mut dyn FnMut(Bytes),
    ) -> Result<BlockHashes, StoreError> {
        let mut hasher = BlockHasher::new();
        let mut buffer = vec![0; READ_SIZE];
        loop {
            let n = read_full(reader, &mut buffer).map_err(|e| StoreError::io("read", read_path, e))?;
            if n == 0 {
                break;
            }
            if let Some(reservation) = &mut reservation {
                reservation.grow(Bytes::new(n as u64))?;
            }
            let needed = hasher.len() + Bytes::new(n as u64);
            let written = disk::write_sparse(temp.file(), &buffer[..n], hasher.len().get());
            written.map_err(|e| StoreError::io_writing("write", &self.folder, needed, e))?;
            hasher.update(&buffer[..n]);
            progress(hasher.len());
        }
        let len = hasher.len().get();
        temp.file().set_len(len).map_err(|e| StoreError::io("write", temp.path(), e))?;
        Ok(hasher.finish())
    }

    /// Room for an object; one that is here, but rotten, needs none.
    fn room_for(&self, hashes: &BlockHashes) -> Result<Reservation<'_>, StoreError> {
        let mut reservation = Reservation { store: self, bytes: Bytes::ZERO };
        if self.index.record(hashes.root())?.is_none() {
            reservation.grow(hashes.size())?;
        }
        Ok(reservation)
    }

    /// A put that does not fit: fine if the same bytes are here already, and only then. `None` if they are here and rotten: then they
    /// are to be replaced, which takes no more room.
    fn put_if_known(
        &self,
        source: &SourceFile,
        options: &PutOptions<'_>,
        full: StoreError,
        progress: &mut dyn FnMut(Bytes),
    ) -> Result<Option<Stored>, StoreError> {
        if !self.index.all()?.values().any(|(record, _)| record.size == source.size()) {
            return Err(full);
        }
        let mut reader = Stoppable { inner: &mut source.file(), stop: options.stop };
        let hashes = BlockHashes::of_reader(&mut reader, source.path(), progress)?;
        // It may be read once more.
        source.file().rewind().map_err(|e| StoreError::io("read", source.path(), e))?;
        source.check()?;
        let id = hashes.root();
        if self.index.record(id)?.is_none() {
            return Err(full);
        }
        if self.verify(id).is_err() {
            return Ok(None);
        }
        if let Some(gathering) = options.part_of {
            gathering.pin(id);
        }
        let _change = lock(&self.change);
        match self.index.record(id)? {
            Some(_) => self.known(hashes, options).map(Some),
            None => Err(full),
        }
    }

    /// An object that is here, and in order, is put again.
    fn known(&self, hashes: BlockHashes, options: &PutOptions<'_>) -> Result<Stored, StoreError> {
        let name_moved_from = self.index.insert_again(hashes.root(), options.entering(false))?;
        Ok(Stored { hashes, placed: Placed::AlreadyHere, name_moved_from, healed: false })
    }

    /// Reads an object and compares it with its id.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::ObjectDamaged`] if its bytes are not those of its id, or cannot be read.
    pub fn verify(&self, id: ObjectId) -> Result<(), StoreError> {
        let damaged = |reason: String| StoreError::ObjectDamaged { id, reason };
        let record = self.index.record(id)?.ok_or_else(|| StoreError::NotFound { what: id.to_string() })?;
        self.state_of(id, &record).map_err(damaged)?;
        let path = self.object_path(id);
        match tree::holds(&path, id, record.size, &mut |_| {}) {
            Ok(true) => Ok(()),
            Ok(false) => {
                Err(damaged(format!("the bytes of {} are not the object's any more", path.display())))
            }
            Err(e) => Err(damaged(e.to_string())),
        }
    }

    /// Gives a hashed temporary file its place, with its entry and name.
    fn enter(
        &self,
        temp: TempFile,
        hashes: BlockHashes,
        placed: Placed,
        linked_modified: Option<(i64, i64)>,
        options: &PutOptions<'_>,
        reservation: Reservation<'_>,
    ) -> Result<Stored, StoreError> {
        let id = hashes.root();
        if let Some(gathering) = options.part_of {
            gathering.pin(id);
        }
        let folder =
            hashes.size().get() <= manifest::MAX_MANIFEST_BYTES as u64 && begins_like_a_manifest(temp.path());
        // Reading it takes as long as the object is large: others may change the store meanwhile.
        let sound = self.verify(id).is_ok();
        let _change = lock(&self.change);
        let before = self.index.record(id)?;
        if let (Some(record), true) = (&before, sound)
            && self.state_of(id, record).is_ok()
        {
            return self.known(hashes, options);
        }
        if placed != Placed::HardLinked {
            let read_only = fs::Permissions::from_mode(0o400);
            temp.file().set_permissions(read_only).map_err(|e| StoreError::io("protect", temp.path(), e))?;
        }
        self.index.mark_unfinished(id)?;
        let path = self.object_path(id);
        temp.persist(&path, true)?;
        let record =
            Record { size: hashes.size(), added_unix_secs: options.added_unix_secs, linked_modified };
        match self.index.insert(id, &record, hashes.as_slice(), options.entering(folder)) {
            Ok(name_moved_from) => {
                // An entry that was damaged is healed; its bytes were counted all along.
                reservation.spend(if before.is_none() { hashes.size() } else { Bytes::ZERO });
                Ok(Stored { hashes, placed, name_moved_from, healed: before.is_some() })
            }
            Err(e) => {
                _ = fs::remove_file(&path);
                Err(e)
            }
        }
    }

    /// Everything that is known of a name.
    ///
    /// # Errors
    /// [`StoreError::Index`] and its kin.
    pub fn name_facts(&self, name: &str) -> Result<Option<NameFacts>, StoreError> {
        self.index.named(name)
    }

    /// All names, with everything that is known of them.
    ///
    /// # Errors
    /// [`StoreError::Index`] and its kin.
    pub fn names(&self) -> Result<BTreeMap<String, NameFacts>, StoreError> {
        self.index.names()
    }

    /// Points a name at an object that is here, which is then no mere part any more. Returns the object that had it before.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if the object is not here, [`StoreError::BadName`], [`StoreError::Index`] and its kin.
    pub fn set_name(&self, name: &str, facts: &NameFacts) -> Result<Option<ObjectId>, StoreError> {
        check_name(name)?;
        let _change = lock(&self.change);
        if self.index.record(facts.object)?.is_none() {
            return Err(StoreError::NotFound { what: facts.object.to_string() });
        }
        self.index.set_name(name, facts)
    }

    /// An object that came as part of something stays by itself from now on, and under this name if one is given. Returns the object that
    /// had the name before.
    ///
    /// # Errors
    /// As [`Store::set_name`].
    pub fn keep(
        &self,
        object: ObjectId,
        name: Option<(&str, NameStanding)>,
    ) -> Result<Option<ObjectId>, StoreError> {
        name.map_or(Ok(()), |(name, _)| check_name(name))?;
        let _change = lock(&self.change);
        if self.index.record(object)?.is_none() {
            return Err(StoreError::NotFound { what: object.to_string() });
        }
        self.index.insert_again(object, Entering { name, part: None, folder: false })
    }

    /// Takes a name from an object, which stays. Whether it had it.
    ///
    /// # Errors
    /// [`StoreError::Index`] and its kin.
    pub fn unname(&self, name: &str, object: ObjectId) -> Result<bool, StoreError> {
        let _change = lock(&self.change);
        self.index.remove_name(name, object)
    }

    /// All objects whose file is in order, by id.
    ///
    /// # Errors
    /// [`StoreError::Index`] and its kin.
    pub fn ls(&self) -> Result<Vec<ObjectInfo>, StoreError> {
        let all = self.index.all()?.into_iter();
        Ok(all.filter(|(id, (r, _))| self.state_of(*id, r).is_ok()).map(info).collect())
    }

    /// Damaged objects and files without an index entry. Looks at sizes, not at contents.
    ///
    /// # Errors
    /// [`StoreError::Index`] and its kin, [`StoreError::Io`].
    pub fn problems(&self) -> Result<Vec<Problem>, StoreError> {
        let all = self.index.all()?;
        let unindexed = self.unindexed(&all)?.into_iter().map(|path| Problem::Unindexed { path });
        let damaged = all.into_iter().filter_map(|(id, entry)| {
            let reason = self.state_of(id, &entry.0).err()?;
            Some(Problem::Damaged { object: info((id, entry)), reason })
        });
        Ok(damaged.chain(unindexed).collect())
    }

    fn unindexed(&self, all: &BTreeMap<ObjectId, (Record, Vec<String>)>) -> Result<Vec<PathBuf>, StoreError> {
        let mut files = files_in(&self.folder.join("objects"))?;
        files.retain(|path| id_of(path).is_none_or(|id| !all.contains_key(&id)));
        Ok(files)
    }

    /// Enters the files among the objects that the index does not know, after the index was lost: each is hashed and
    /// must be what its file name says. They get no names, and the quota does not stop them.
    ///
    /// Returns the adopted objects; the others stay among the [`Store::problems`].
    /// # Errors
    /// [`StoreError::Io`], [`StoreError::Index`] and its kin.
    pub fn adopt(
        &self,
        added_unix_secs: u64,
        progress: &mut dyn FnMut(Bytes),
    ) -> Result<Vec<ObjectId>, StoreError> {
        let _change = lock(&self.change);
        let mut adopted = Vec::new();
        for path in self.unindexed(&self.index.all()?)? {
            let Some(id) = id_of(&path) else { continue };
            let hashes = BlockHashes::of_file(&path, progress)?;
            if hashes.root() == id {
                let record = Record { size: hashes.size(), added_unix_secs, linked_modified: None };
                let folder = hashes.size().get() <= manifest::MAX_MANIFEST_BYTES as u64
                    && begins_like_a_manifest(&path);
                let entering = Entering { name: None, part: None, folder };
                self.index.insert(id, &record, hashes.as_slice(), entering)?;
                lock(&self.ledger).used += hashes.size();
                adopted.push(id);
            }
        }
        Ok(adopted)
    }

    fn state_of(&self, id: ObjectId, record: &Record) -> Result<(), String> {
        use std::os::unix::fs::MetadataExt;
        let path = self.object_path(id);
        let found = fs::metadata(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        if found.len() != record.size.get() {
            return Err(format!("{} has {} bytes, not {}", path.display(), found.len(), record.size.get()));
        }
        match record.linked_modified {
            Some(then) if then != (found.mtime(), found.mtime_nsec()) => {
                Err(format!("{} is a hard link and was written to", path.display()))
            }
            _ => Ok(()),
        }
    }

    /// Finds an object by its id, by name, or by the first digits of its id ([`MIN_PREFIX_DIGITS`] at least).
    ///
    /// 64 hex digits are an id and nothing else; a name goes before the beginning of an id that looks the same.
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::Ambiguous`], [`StoreError::Index`] and its kin.
    pub fn lookup(&self, what: &str) -> Result<ObjectInfo, StoreError> {
        let not_found = || StoreError::NotFound { what: what.to_owned() };
        let id = match (what.parse().ok(), self.index.named(what)?) {
            (Some(id), _) => id,
            (None, Some(named)) => named.object,
            (None, None) => self.by_digits(what)?.ok_or_else(not_found)?,
        };
        let record = self.index.record(id)?.ok_or_else(not_found)?;
        Ok(info((id, (record, self.index.names_of(id)?))))
    }

    fn by_digits(&self, what: &str) -> Result<Option<ObjectId>, StoreError> {
        let digits = MIN_PREFIX_DIGITS..=64;
        if !digits.contains(&what.len()) || !what.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Ok(None);
        }
        let found = self.index.beginning_with(what)?;
        if found.len() > 1 {
            return Err(StoreError::Ambiguous { prefix: what.to_owned(), matches: found.len() });
        }
        Ok(found.first().copied())
    }

    /// Opens an object for sending. A removal meanwhile shows as [`StoreError::ObjectChanged`] at the next read.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::ObjectDamaged`] if its file is not in order, [`StoreError::Io`].
    pub fn open_object(&self, id: ObjectId) -> Result<(SourceFile, BlockHashes), StoreError> {
        let damaged = |reason: String| StoreError::ObjectDamaged { id, reason };
        let record = self.index.record(id)?.ok_or_else(|| StoreError::NotFound { what: id.to_string() })?;
        self.state_of(id, &record).map_err(damaged)?;
        let hashes = BlockHashes::verified(id, record.size, self.index.hashes(id)?)
            .map_err(|e| damaged(e.to_string()))?;
        let source = SourceFile::open(&self.object_path(id))?;
        if source.size() != record.size {
            return Err(damaged("its size changed".to_owned()));
        }
        Ok((source, hashes))
    }
}

/// Room under the quota, held while a put runs.
struct Reservation<'a> {
    store: &'a Store,
    bytes: Bytes,
}

impl Reservation<'_> {
    fn grow(&mut self, more: Bytes) -> Result<(), StoreError> {
        let mut ledger = lock(&self.store.ledger);
        let taken = ledger.used + ledger.reserved;
        if let Some(quota) = ledger.quota
            && quota - taken < more
        {
            let used = taken - self.bytes;
            return Err(StoreError::QuotaExceeded { quota, used, needed: self.bytes + more });
        }
        ledger.reserved += more;
        self.bytes += more;
        Ok(())
    }
    /// The room is taken for good.
    fn spend(self, bytes: Bytes) {
        lock(&self.store.ledger).used += bytes;
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        lock(&self.store.ledger).reserved -= self.bytes;
    }
}

/// A put that was told to stop failed for no other reason.
fn stopped_or(error: StoreError, options: &PutOptions<'_>) -> StoreError {
    if is_set(options.stop) { StoreError::Stopped } else { error }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn info((id, (record, names)): (ObjectId, (Record, Vec<String>))) -> ObjectInfo {
    ObjectInfo { id, size: record.size, names, added_unix_secs: record.added_unix_secs }
}

fn id_of(path: &Path) -> Option<ObjectId> {
    path.file_name()?.to_str()?.parse().ok()
}

fn files_in(folder: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let fail = |e| StoreError::io("list", folder, e);
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(fail)? {
        found.push(entry.map_err(fail)?.path());
    }
    found.sort();
    Ok(found)
}

/// Whether a name can be given to an object.
///
/// # Errors
/// [`StoreError::BadName`].
pub fn check_name(name: &str) -> Result<(), StoreError> {
    let reason = if name.is_empty() {
        "it is empty"
    } else if name.len() > MAX_NAME_BYTES {
        "it has more than 1024 bytes"
    } else if name.chars().any(char::is_control) {
        "it has control characters"
    } else if name.parse::<ObjectId>().is_ok() {
        "64 hex digits are the id of an object; give it another with --name"
    } else {
        return Ok(());
    };
    Err(StoreError::BadName { name: name.chars().take(80).collect(), reason })
}
