//! The store's index: what objects there are, their block hashes, and the names that point at them (`redb`).
//!
//! One table, `unfinished`, names objects whose file is about to appear or to go: after a crash in between, that file
//! has no entry and is removed at the next start.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

use headwater_units::{Bytes, ObjectId};
use redb::{Database, ReadTransaction, ReadableDatabase, ReadableTable, TableDefinition, WriteTransaction};
use serde::{Deserialize, Serialize};

use crate::tree::ChainingValue;
use crate::{StoreError, disk};

/// Object id -> [`Record`], postcard. The digit is the format's version.
const OBJECTS: TableDefinition<[u8; 32], &[u8]> = TableDefinition::new("objects 1");
/// Object id -> the chaining values of its blocks, one after the other.
const HASHES: TableDefinition<[u8; 32], &[u8]> = TableDefinition::new("hashes 1");
/// Name -> object id.
const NAMES: TableDefinition<&str, [u8; 32]> = TableDefinition::new("names 1");
/// Object ids whose file may exist without an entry.
const UNFINISHED: TableDefinition<[u8; 32], ()> = TableDefinition::new("unfinished 1");

/// The index is small; the default cache of 1 GiB would let it grow for no use.
const CACHE_BYTES: usize = 8 << 20;
/// How a `redb` file begins; zeros here mean that its creation never ended.
const MAGIC_BYTES: usize = 9;

/// What the index knows of one object, besides its hashes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) size: Bytes,
    /// When it was put, in seconds since 1970.
    pub(crate) added_unix_secs: u64,
    /// For a hard link, which others may write to: its modification time when it was hashed.
    pub(crate) linked_modified: Option<(i64, i64)>,
}

pub(crate) struct Index {
    path: PathBuf,
    /// None after a failure, until it could be opened again: `redb` refuses all work after one failed write.
    database: RwLock<Option<Database>>,
}

type Outcome<T> = Result<T, redb::Error>;

impl Index {
    pub(crate) fn open(path: PathBuf) -> Result<Self, StoreError> {
        let database = open_database(&path)?;
        let index = Index { path, database: RwLock::new(Some(database)) };
        index.write(|t| {
            // Reading a table that was never made is an error: make them all.
            t.open_table(OBJECTS)?;
            t.open_table(HASHES)?;
            t.open_table(NAMES)?;
            t.open_table(UNFINISHED)?;
            Ok(())
        })?;
        Ok(index)
    }

    fn read<T>(&self, work: impl FnOnce(&ReadTransaction) -> Outcome<T>) -> Result<T, StoreError> {
        let mut work = Some(work);
        let mut run = |database: &Database| {
            let work = work.take().expect("runs once");
            shielded(&self.path, || work(&database.begin_read()?))
        };
        let outcome = {
            let guard = self.database.read().unwrap_or_else(PoisonError::into_inner);
            guard.as_ref().map(&mut run)
        };
        let outcome = match outcome {
            Some(outcome) => outcome,
            None => {
                let mut guard = self.database.write().unwrap_or_else(PoisonError::into_inner);
                run(self.reopened(&mut guard)?)
            }
        };
        outcome.inspect_err(|_| close(&mut self.database.write().unwrap_or_else(PoisonError::into_inner)))
    }

    fn write<T>(&self, work: impl FnOnce(&WriteTransaction) -> Outcome<T>) -> Result<T, StoreError> {
        let mut guard = self.database.write().unwrap_or_else(PoisonError::into_inner);
        let database = self.reopened(&mut guard)?;
        let outcome = shielded(&self.path, || {
            let transaction = database.begin_write()?;
            let value = work(&transaction)?;
            transaction.commit()?;
            Ok(value)
        });
        outcome.inspect_err(|_| close(&mut guard))
    }

    fn reopened<'a>(&self, slot: &'a mut Option<Database>) -> Result<&'a Database, StoreError> {
        let database = match slot.take() {
            Some(database) => database,
            None => open_database(&self.path)?,
        };
        Ok(slot.insert(database))
    }

    pub(crate) fn record(&self, id: ObjectId) -> Result<Option<Record>, StoreError> {
        self.read(|t| t.open_table(OBJECTS)?.get(id.0)?.map(|v| decode(v.value())).transpose())
    }

    pub(crate) fn hashes(&self, id: ObjectId) -> Result<Vec<ChainingValue>, StoreError> {
        self.read(|t| {
            let table = t.open_table(HASHES)?;
            let found = table.get(id.0)?;
            Ok(found.map(|v| v.value().as_chunks().0.to_vec()).unwrap_or_default())
        })
    }

    /// All objects in the order of their ids, each with its names in order.
    pub(crate) fn all(&self) -> Result<BTreeMap<ObjectId, (Record, Vec<String>)>, StoreError> {
        self.read(|t| {
            let mut all = BTreeMap::new();
            for row in t.open_table(OBJECTS)?.iter()? {
                let (id, record) = row?;
                all.insert(ObjectId(id.value()), (decode(record.value())?, Vec::new()));
            }
            for row in t.open_table(NAMES)?.iter()? {
                let (name, id) = row?;
                if let Some((_, names)) = all.get_mut(&ObjectId(id.value())) {
                    names.push(name.value().to_owned());
                }
            }
            Ok(all)
        })
    }

    pub(crate) fn named(&self, name: &str) -> Result<Option<ObjectId>, StoreError> {
        self.read(|t| Ok(t.open_table(NAMES)?.get(name)?.map(|id| ObjectId(id.value()))))
    }

    pub(crate) fn names_of(&self, id: ObjectId) -> Result<Vec<String>, StoreError> {
        self.read(|t| names_of(&t.open_table(NAMES)?, id))
    }

    /// The ids whose hex form begins with these digits.
    pub(crate) fn beginning_with(&self, hex: &str) -> Result<Vec<ObjectId>, StoreError> {
        let bound = |fill: char| {
            let padded: String = hex.chars().chain(std::iter::repeat(fill)).take(64).collect();
            padded.parse::<ObjectId>().map(|id| id.0)
        };
        let (Ok(low), Ok(high)) = (bound('0'), bound('f')) else { return Ok(Vec::new()) };
        self.read(|t| {
            let table = t.open_table(OBJECTS)?;
            let rows = table.range(low..=high)?;
            rows.map(|row| Ok(ObjectId(row?.0.value()))).collect()
        })
    }

    pub(crate) fn unfinished(&self) -> Result<Vec<ObjectId>, StoreError> {
        self.read(|t| {
            let table = t.open_table(UNFINISHED)?;
            let rows = table.iter()?;
            rows.map(|row| Ok(ObjectId(row?.0.value()))).collect()
        })
    }

    pub(crate) fn mark_unfinished(&self, id: ObjectId) -> Result<(), StoreError> {
        self.write(|t| Ok(t.open_table(UNFINISHED)?.insert(id.0, ()).map(|_| ())?))
    }

    pub(crate) fn clear_unfinished(&self, id: ObjectId) -> Result<(), StoreError> {
        self.write(|t| Ok(t.open_table(UNFINISHED)?.remove(id.0).map(|_| ())?))
    }

    /// Enters an object, with a name if one is given. Returns the object that had the name before.
    pub(crate) fn insert(
        &self,
        id: ObjectId,
        record: &Record,
        hashes: &[ChainingValue],
        name: Option<&str>,
    ) -> Result<Option<ObjectId>, StoreError> {
        self.write(|t| {
            t.open_table(OBJECTS)?.insert(id.0, &encode(record)?[..])?;
            t.open_table(HASHES)?.insert(id.0, hashes.as_flattened())?;
            t.open_table(UNFINISHED)?.remove(id.0)?;
            set_name(t, id, name)
        })
    }

    /// Points a name at an object. Returns the object that had it before.
    pub(crate) fn set_name(&self, id: ObjectId, name: Option<&str>) -> Result<Option<ObjectId>, StoreError> {
        match name {
            Some(_) => self.write(|t| set_name(t, id, name)),
            None => Ok(None),
        }
    }

    pub(crate) fn remove_name(&self, name: &str) -> Result<(), StoreError> {
        self.write(|t| Ok(t.open_table(NAMES)?.remove(name).map(|_| ())?))
    }

    /// Removes an object with all its names, and notes that its file must go.
    pub(crate) fn remove(&self, id: ObjectId) -> Result<(), StoreError> {
        self.write(|t| {
            t.open_table(OBJECTS)?.remove(id.0)?;
            t.open_table(HASHES)?.remove(id.0)?;
            let mut names = t.open_table(NAMES)?;
            for name in names_of(&names, id)? {
                names.remove(&name[..])?;
            }
            t.open_table(UNFINISHED)?.insert(id.0, ())?;
            Ok(())
        })
    }
}

fn set_name(t: &WriteTransaction, id: ObjectId, name: Option<&str>) -> Outcome<Option<ObjectId>> {
    let Some(name) = name else { return Ok(None) };
    let mut names = t.open_table(NAMES)?;
    let before = names.insert(name, id.0)?.map(|old| ObjectId(old.value()));
    Ok(before.filter(|old| *old != id))
}

fn names_of(names: &impl ReadableTable<&'static str, [u8; 32]>, id: ObjectId) -> Outcome<Vec<String>> {
    let mut found = Vec::new();
    for row in names.iter()? {
        let (name, of) = row?;
        if of.value() == id.0 {
            found.push(name.value().to_owned());
        }
    }
    Ok(found)
}

fn encode(record: &Record) -> Outcome<Vec<u8>> {
    postcard::to_stdvec(record).map_err(|e| redb::Error::Corrupted(e.to_string()))
}

fn decode(bytes: &[u8]) -> Outcome<Record> {
    postcard::from_bytes(bytes).map_err(|e| redb::Error::Corrupted(format!("record of an object: {e}")))
}

fn open_database(path: &Path) -> Result<Database, StoreError> {
    let fail = |e| StoreError::io("open", path, e);
    let file =
        OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).map_err(fail)?;
    disk::lock(&file, path)?;
    if is_unborn(&file).map_err(fail)? {
        file.set_len(0).map_err(fail)?;
    }
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE_BYTES);
    shielded(path, || Ok(builder.create_file(file)?))
}

/// Runs database work. `redb` answers some kinds of damage with a panic; here that is an error as well.
fn shielded<T>(path: &Path, work: impl FnOnce() -> Outcome<T>) -> Result<T, StoreError> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(outcome) => outcome.map_err(|e| index_error(path, e)),
        Err(_) => Err(StoreError::IndexDamaged {
            path: path.to_owned(),
            reason: "its pages make no sense".to_owned(),
        }),
    }
}

/// Closing writes, too, and may stumble over damage.
fn close(slot: &mut Option<Database>) {
    let database = slot.take();
    _ = catch_unwind(AssertUnwindSafe(|| drop(database)));
}

impl Drop for Index {
    fn drop(&mut self) {
        close(self.database.get_mut().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Whether a crash ended the creation of this file: `redb` writes the magic last and would refuse the rest.
fn is_unborn(file: &File) -> std::io::Result<bool> {
    let len = file.metadata()?.len();
    let mut magic = [0; MAGIC_BYTES];
    if len >= MAGIC_BYTES as u64 {
        file.read_exact_at(&mut magic, 0)?;
    }
    Ok(len > 0 && magic == [0; MAGIC_BYTES])
}

fn index_error(path: &Path, error: redb::Error) -> StoreError {
    let path = path.to_owned();
    match error {
        redb::Error::DatabaseAlreadyOpen => StoreError::Busy { path },
        redb::Error::Corrupted(reason) => StoreError::IndexDamaged { path, reason },
        redb::Error::Io(e)
            if matches!(e.kind(), std::io::ErrorKind::InvalidData | std::io::ErrorKind::UnexpectedEof) =>
        {
            StoreError::IndexDamaged { path, reason: "not a database of this program".to_owned() }
        }
        redb::Error::Io(e) => StoreError::io_writing("write", &path, Bytes::mib(1), e),
        other @ (redb::Error::RepairAborted
        | redb::Error::UpgradeRequired(_)
        | redb::Error::TableTypeMismatch { .. }
        | redb::Error::TableIsMultimap(_)
        | redb::Error::TableIsNotMultimap(_)
        | redb::Error::TypeDefinitionChanged { .. }
        | redb::Error::TableDoesNotExist(_)) => StoreError::IndexDamaged { path, reason: other.to_string() },
        other => StoreError::Index { path, reason: other.to_string() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder_with(content: &[u8]) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("index.redb");
        std::fs::write(&path, content).unwrap();
        (folder, path)
    }

    #[test]
    fn an_index_whose_creation_was_killed_is_created_again() {
        for len in [1, 8, 9, 4096, 1 << 20] {
            let (_folder, path) = folder_with(&vec![0; len]);
            let index = Index::open(path).unwrap();
            assert!(index.all().unwrap().is_empty());
        }
    }

    #[test]
    fn garbage_is_called_damaged_and_left_alone() {
        let garbage: Vec<u8> = (0..100_000u32).map(|i| (i * 7 + 1) as u8).collect();
        for len in [9, 4096, 100_000] {
            let (_folder, path) = folder_with(&garbage[..len]);
            assert!(matches!(Index::open(path.clone()), Err(StoreError::IndexDamaged { .. })));
            assert_eq!(std::fs::read(path).unwrap(), garbage[..len]);
        }
    }

    #[test]
    fn an_index_works_again_after_a_failed_write() {
        let (_folder, path) = folder_with(b"");
        let index = Index::open(path).unwrap();
        index.mark_unfinished(ObjectId([1; 32])).unwrap();
        let failed = index.write(|_| Err::<(), _>(redb::Error::PreviousIo));
        assert!(failed.is_err());
        assert_eq!(index.unfinished().unwrap(), [ObjectId([1; 32])]);
        index.clear_unfinished(ObjectId([1; 32])).unwrap();
        assert!(index.unfinished().unwrap().is_empty());
    }
}
