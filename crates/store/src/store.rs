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

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{DirBuilderExt, FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use headwater_units::{Bytes, ObjectId};

use crate::disk::{self, TempFile};
use crate::index::{Index, Record};
use crate::tree::{BlockHasher, BlockHashes, READ_SIZE, read_full};
use crate::{Partial, PartialSpec, SourceFile, StoreError};

/// The longest name of an object, in bytes.
pub const MAX_NAME_BYTES: usize = 1024;
/// The fewest hex digits that stand for an id.
pub const MIN_PREFIX_DIGITS: usize = 8;
/// Zeros are looked for in pieces of this size, so that a sparse file stays sparse.
const HOLE_SIZE: usize = 64 << 10;

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
    /// A second name for the same file: no space, but whoever writes to the file later destroys the object.
    HardLink,
}

/// What to do with a file that is put.
#[derive(Clone, Copy, Debug, Default)]
pub struct PutOptions<'a> {
    /// A name for the object; if it points elsewhere it moves.
    pub name: Option<&'a str>,
    /// How its bytes get in.
    pub mode: PutMode,
    /// Now, in seconds since 1970; the store reads no clock.
    pub added_unix_secs: u64,
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
    /// What the object took; none if it stays because of another name.
    pub freed: Option<Bytes>,
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
        /// What is wrong.
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
    options: StoreOptions,
    index: Index,
    ledger: Mutex<Ledger>,
    /// Held while an object's file and entry appear or go, so that nobody sees one without the other.
    change: Mutex<()>,
    temp_count: AtomicU64,
}

#[derive(Default)]
struct Ledger {
    /// Of all objects in the index.
    used: Bytes,
    /// Of running puts.
    reserved: Bytes,
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
            options,
            index,
            ledger: Mutex::default(),
            change: Mutex::default(),
            temp_count: AtomicU64::new(0),
        };
        store.sweep()?;
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
            self.index.clear_unfinished(id)?;
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
    /// What all its objects take together.
    pub fn used(&self) -> Bytes {
        lock(&self.ledger).used
    }
    /// Its settings.
    pub fn options(&self) -> StoreOptions {
        self.options
    }

    /// Takes a file in, in constant memory and one pass. `progress` hears the bytes hashed so far.
    ///
    /// # Errors
    /// Whatever happens, stored objects stay as they were and no temporary file remains.
    /// [`StoreError::QuotaExceeded`], [`StoreError::DiskFull`], [`StoreError::ObjectChanged`] if the file is written
    /// to meanwhile, [`StoreError::BadName`], [`StoreError::NotAFile`], [`StoreError::Io`] (a hard link across file
    /// systems, among others).
    pub fn put(
        &self,
        path: &Path,
        options: &PutOptions<'_>,
        progress: &mut dyn FnMut(Bytes),
    ) -> Result<Stored, StoreError> {
        check_name(options.name)?;
        let source = SourceFile::open(path)?;
        let mut reservation = Reservation { store: self, bytes: Bytes::ZERO };
        if let Err(full) = reservation.grow(source.size()) {
            return self.put_if_known(&source, options, full, progress);
        }
        let mut linked_modified = None;
        let (temp, hashes, placed) = match options.mode {
            PutMode::HardLink => {
                let temp = self.hard_link(&source)?;
                let hashes = BlockHashes::of_reader(&mut temp.file(), source.path(), progress)?;
                linked_modified = Some(source.identity().modified());
                (temp, hashes, Placed::HardLinked)
            }
            PutMode::ReflinkOrCopy => {
                let temp = TempFile::create(self.temp_path())?;
                if source.reflink_to(temp.file()) {
                    let hashes = BlockHashes::of_reader(&mut temp.file(), temp.path(), progress)?;
                    (temp, hashes, Placed::Reflinked)
                } else {
                    disk::check_space(&self.folder, source.allocated()?)?;
                    let hashes = self.copy(&mut source.file(), source.path(), &temp, None, progress)?;
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
        check_name(options.name)?;
        let temp = TempFile::create(self.temp_path())?;
        let mut reservation = Reservation { store: self, bytes: Bytes::ZERO };
        let hashes = self.copy(reader, label, &temp, Some(&mut reservation), progress)?;
        self.enter(temp, hashes, Placed::Copied, None, options, reservation)
    }

    /// How an object is received into the store: for [`Partial::open_or_create`], and then [`Store::take`]. What is
    /// unfinished when the process ends goes on when the same object is wanted again.
    ///
    /// # Errors
    /// [`StoreError::QuotaExceeded`] if it has no room now.
    pub fn incoming(&self, hashes: BlockHashes) -> Result<PartialSpec, StoreError> {
        let mut room = Reservation { store: self, bytes: Bytes::ZERO };
        room.grow(hashes.size())?;
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
        check_name(options.name)?;
        let mut reservation = Reservation { store: self, bytes: Bytes::ZERO };
        reservation.grow(partial.hashes().size())?;
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
            let mut at = hasher.len().get();
            for piece in buffer[..n].chunks(HOLE_SIZE) {
                if piece.iter().any(|b| *b != 0) {
                    let needed = hasher.len() + Bytes::new(n as u64);
                    let written = temp.file().write_all_at(piece, at);
                    written.map_err(|e| StoreError::io_writing("write", &self.folder, needed, e))?;
                }
                at += piece.len() as u64;
            }
            hasher.update(&buffer[..n]);
            progress(hasher.len());
        }
        let len = hasher.len().get();
        temp.file().set_len(len).map_err(|e| StoreError::io("write", temp.path(), e))?;
        Ok(hasher.finish())
    }

    /// A put that does not fit: fine if the same bytes are here already, and only then.
    fn put_if_known(
        &self,
        source: &SourceFile,
        options: &PutOptions<'_>,
        full: StoreError,
        progress: &mut dyn FnMut(Bytes),
    ) -> Result<Stored, StoreError> {
        if !self.index.all()?.values().any(|(record, _)| record.size == source.size()) {
            return Err(full);
        }
        let (_, hashes) = SourceFile::hash(source.path(), progress)?;
        let _change = lock(&self.change);
        match self.index.record(hashes.root())? {
            Some(record) if self.state_of(hashes.root(), &record).is_ok() => {
                let name_moved_from = self.index.set_name(hashes.root(), options.name)?;
                Ok(Stored { hashes, placed: Placed::AlreadyHere, name_moved_from })
            }
            _ => Err(full),
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
        let _change = lock(&self.change);
        let before = self.index.record(id)?;
        if let Some(record) = &before
            && self.state_of(id, record).is_ok()
        {
            let name_moved_from = self.index.set_name(id, options.name)?;
            return Ok(Stored { hashes, placed: Placed::AlreadyHere, name_moved_from });
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
        match self.index.insert(id, &record, hashes.as_slice(), options.name) {
            Ok(name_moved_from) => {
                // An entry that was damaged is healed; its bytes were counted all along.
                reservation.spend(if before.is_none() { hashes.size() } else { Bytes::ZERO });
                Ok(Stored { hashes, placed, name_moved_from })
            }
            Err(e) => {
                _ = fs::remove_file(&path);
                Err(e)
            }
        }
    }

    /// All objects whose file is in order, by id.
    ///
    /// # Errors
    /// [`StoreError::Index`] and its kin.
    pub fn ls(&self) -> Result<Vec<ObjectInfo>, StoreError> {
        let all = self.index.all()?.into_iter();
        Ok(all.filter(|(id, (r, _))| self.state_of(*id, r).is_ok()).map(info).collect())
    }

    /// What is not in order. Looks at sizes, not at contents.
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
                self.index.insert(id, &record, hashes.as_slice(), None)?;
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

    /// Finds an object by name, by id, or by the first digits of its id ([`MIN_PREFIX_DIGITS`] at least).
    ///
    /// A name goes before an id that looks the same.
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::Ambiguous`], [`StoreError::Index`] and its kin.
    pub fn lookup(&self, what: &str) -> Result<ObjectInfo, StoreError> {
        let not_found = || StoreError::NotFound { what: what.to_owned() };
        let id = match self.index.named(what)? {
            Some(id) => id,
            None => self.by_digits(what)?.ok_or_else(not_found)?,
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

    /// Removes a name, and the object with it unless it has other names; or, by id or its first digits, the object
    /// with all its names. Works on damaged objects, too.
    ///
    /// # Errors
    /// As [`Store::lookup`], and [`StoreError::Io`].
    pub fn rm(&self, what: &str) -> Result<Removed, StoreError> {
        let _change = lock(&self.change);
        let by_name = self.index.named(what)?.is_some();
        let object = self.lookup(what)?;
        if by_name && object.names.len() > 1 {
            self.index.remove_name(what)?;
            return Ok(Removed { id: object.id, names: vec![what.to_owned()], freed: None });
        }
        self.index.remove(object.id)?;
        lock(&self.ledger).used -= object.size;
        disk::remove_if_there(&self.object_path(object.id))?;
        self.index.clear_unfinished(object.id)?;
        Ok(Removed { id: object.id, names: object.names, freed: Some(object.size) })
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
        if let Some(quota) = self.store.options.quota
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

fn check_name(name: Option<&str>) -> Result<(), StoreError> {
    let Some(name) = name else { return Ok(()) };
    let reason = if name.is_empty() {
        "it is empty"
    } else if name.len() > MAX_NAME_BYTES {
        "it has more than 1024 bytes"
    } else if name.chars().any(char::is_control) {
        "it has control characters"
    } else {
        return Ok(());
    };
    Err(StoreError::BadName { name: name.chars().take(80).collect(), reason })
}
