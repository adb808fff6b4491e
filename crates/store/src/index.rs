//! The store's index: what objects there are, their block hashes, and the names that point at them (`redb`).
//!
//! `parts` are objects that came only as files of a folder, and go when no folder needs them; `folders` are those that are
//! manifests, in which it says what they need. One table, `unfinished`, names objects whose file is about to appear or to go: after a crash in between, that file
//! has no entry and is removed at the next start.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

use headwater_units::{Bytes, ObjectId};
use redb::{
    Database, ReadTransaction, ReadableDatabase, ReadableTable, TableDefinition, TableHandle,
    WriteTransaction,
};
use serde::{Deserialize, Serialize};

use crate::tree::ChainingValue;
use crate::{NameFacts, NameStanding, StoreError, disk};

/// Object id -> [`Record`], postcard. The digit is the format's version.
const OBJECTS: TableDefinition<[u8; 32], &[u8]> = TableDefinition::new("objects 1");
/// Object id -> the chaining values of its blocks, one after the other.
const HASHES: TableDefinition<[u8; 32], &[u8]> = TableDefinition::new("hashes 1");
/// Name -> [`NameFacts`], postcard.
const NAMES: TableDefinition<&str, &[u8]> = TableDefinition::new("names 2");
/// Name -> object id, as an older version wrote it.
const OLD_NAMES: TableDefinition<&str, [u8; 32]> = TableDefinition::new("names 1");
/// Object id -> whether it was received.
const PARTS: TableDefinition<[u8; 32], bool> = TableDefinition::new("parts 1");
/// Ids of objects that are manifests.
const FOLDERS: TableDefinition<[u8; 32], ()> = TableDefinition::new("folders 1");
/// Object ids whose file may exist without an entry.
const UNFINISHED: TableDefinition<[u8; 32], ()> = TableDefinition::new("unfinished 1");

/// All tables, of this version and of older ones. Whatever changes in one changes its name, so that older programs notice.
const TABLES: [&str; 7] =
    ["objects 1", "hashes 1", "names 2", "names 1", "parts 1", "folders 1", "unfinished 1"];

/// The index is small; the default cache of 1 GiB would let it grow for no use.
const CACHE_BYTES: usize = 8 << 20;
/// How a `redb` file begins; zeros here mean that its creation never ended.
const MAGIC_BYTES: usize = 9;

/// The index's record of one object, besides its hashes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) size: Bytes,
    /// When it was put, in seconds since 1970.
    pub(crate) added_unix_secs: u64,
    /// For a hard link, which others may write to: its modification time when it was hashed.
    pub(crate) linked_modified: Option<(i64, i64)>,
}

/// Names and flags of an object that enters the index.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entering<'a> {
    pub(crate) name: Option<(&'a str, NameStanding)>,
    /// Only as a file of a folder, and whether it was received; what was more before stays so.
    pub(crate) part: Option<bool>,
    /// It is a manifest.
    pub(crate) folder: bool,
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
        let unknown = |table: &redb::UntypedTableHandle| !TABLES.contains(&table.name());
        if let Some(table) = index.read(|t| Ok(t.list_tables()?.find(unknown)))? {
            let (path, table) = (index.path.clone(), table.name().to_owned());
            return Err(StoreError::IndexNewer { path, table });
        }
        index.write(|t| {
            // Reading a table that was never made is an error: make them all.
            t.open_table(OBJECTS)?;
            t.open_table(HASHES)?;
            t.open_table(NAMES)?;
            t.open_table(UNFINISHED)?;
            t.open_table(PARTS)?;
            t.open_table(FOLDERS)?;
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
                let (name, facts) = row?;
                if let Some((_, names)) = all.get_mut(&decode_facts(facts.value())?.object) {
                    names.push(name.value().to_owned());
                }
            }
            Ok(all)
        })
    }

    pub(crate) fn named(&self, name: &str) -> Result<Option<NameFacts>, StoreError> {
        self.read(|t| t.open_table(NAMES)?.get(name)?.map(|it| decode_facts(it.value())).transpose())
    }

    pub(crate) fn names(&self) -> Result<BTreeMap<String, NameFacts>, StoreError> {
        self.read(|t| {
            let table = t.open_table(NAMES)?;
            let rows = table.iter()?;
            rows.map(|row| {
                let (name, facts) = row?;
                Ok((name.value().to_owned(), decode_facts(facts.value())?))
            })
            .collect()
        })
    }

    /// Objects that are only files of folders, and whether they were received.
    pub(crate) fn parts(&self) -> Result<BTreeMap<ObjectId, bool>, StoreError> {
        self.read(|t| {
            let table = t.open_table(PARTS)?;
            let rows = table.iter()?;
            rows.map(|row| row.map(|(id, received)| (ObjectId(id.value()), received.value())))
                .map(|row| row.map_err(redb::Error::from))
                .collect()
        })
    }

    pub(crate) fn folders(&self) -> Result<Vec<ObjectId>, StoreError> {
        self.read(|t| {
            let table = t.open_table(FOLDERS)?;
            let rows = table.iter()?;
            rows.map(|row| Ok(ObjectId(row?.0.value()))).collect()
        })
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

    pub(crate) fn clear_unfinished(&self, ids: &[ObjectId]) -> Result<(), StoreError> {
        self.write(|t| {
            let mut table = t.open_table(UNFINISHED)?;
            for id in ids {
                table.remove(id.0)?;
            }
            Ok(())
        })
    }

    /// Enters an object. Returns the object that had the name before.
    pub(crate) fn insert(
        &self,
        id: ObjectId,
        record: &Record,
        hashes: &[ChainingValue],
        entering: Entering<'_>,
    ) -> Result<Option<ObjectId>, StoreError> {
        self.write(|t| {
            let is_new = t.open_table(OBJECTS)?.insert(id.0, &encode(record)?[..])?.is_none();
            t.open_table(HASHES)?.insert(id.0, hashes.as_flattened())?;
            t.open_table(UNFINISHED)?.remove(id.0)?;
            if let (true, Some(received)) = (is_new, entering.part) {
                t.open_table(PARTS)?.insert(id.0, received)?;
            }
            if entering.folder {
                t.open_table(FOLDERS)?.insert(id.0, ())?;
            }
            entered(t, id, entering)
        })
    }

    /// An object that is here enters again. Returns the object that had the name before.
    pub(crate) fn insert_again(
        &self,
        id: ObjectId,
        entering: Entering<'_>,
    ) -> Result<Option<ObjectId>, StoreError> {
        match (entering.name, entering.part) {
            (None, Some(_)) => Ok(None),
            _ => self.write(|t| entered(t, id, entering)),
        }
    }

    /// Says all of a name. Returns the object that had it before.
    pub(crate) fn set_name(&self, name: &str, facts: &NameFacts) -> Result<Option<ObjectId>, StoreError> {
        self.write(|t| {
            t.open_table(PARTS)?.remove(facts.object.0)?;
            let mut names = t.open_table(NAMES)?;
            let before = names.insert(name, &encode(facts)?[..])?.map(|old| decode_facts(old.value()));
            Ok(before.transpose()?.map(|old| old.object).filter(|old| *old != facts.object))
        })
    }

    /// Removes a name if it points at this object. Whether it did.
    pub(crate) fn remove_name(&self, name: &str, object: ObjectId) -> Result<bool, StoreError> {
        self.write(|t| {
            let mut names = t.open_table(NAMES)?;
            let facts = names.get(name)?.map(|it| decode_facts(it.value())).transpose()?;
            let is_its = facts.is_some_and(|it| it.object == object);
            if is_its {
                names.remove(name)?;
            }
            Ok(is_its)
        })
    }

    /// An object loses all its names, and is only a file of a folder from now on.
    pub(crate) fn become_part(&self, id: ObjectId) -> Result<(), StoreError> {
        self.write(|t| {
            let mut names = t.open_table(NAMES)?;
            for name in names_of(&names, id)? {
                names.remove(&name[..])?;
            }
            t.open_table(PARTS)?.insert(id.0, false)?;
            Ok(())
        })
    }

    /// Removes objects with all their names, and notes that their files must go.
    pub(crate) fn remove(&self, ids: &[ObjectId]) -> Result<(), StoreError> {
        self.write(|t| {
            let mut names = t.open_table(NAMES)?;
            let going: BTreeSet<ObjectId> = ids.iter().copied().collect();
            for name in names_pointing(&names, |id| going.contains(&id))? {
                names.remove(&name[..])?;
            }
            let (mut objects, mut hashes) = (t.open_table(OBJECTS)?, t.open_table(HASHES)?);
            let (mut parts, mut folders) = (t.open_table(PARTS)?, t.open_table(FOLDERS)?);
            let mut unfinished = t.open_table(UNFINISHED)?;
            for id in ids {
                objects.remove(id.0)?;
                hashes.remove(id.0)?;
                parts.remove(id.0)?;
                folders.remove(id.0)?;
                unfinished.insert(id.0, ())?;
            }
            Ok(())
        })
    }

    /// Whether an older version has written to it last.
    pub(crate) fn is_old(&self) -> Result<bool, StoreError> {
        self.read(|t| Ok(t.list_tables()?.any(|table| table.name() == OLD_NAMES.name())))
    }

    /// Makes one of this version of it: an older one knew no generations of names, nor what belongs to a folder.
    pub(crate) fn migrate(&self, folders: &[ObjectId], parts: &[ObjectId]) -> Result<(), StoreError> {
        self.write(|t| {
            {
                let old = t.open_table(OLD_NAMES)?;
                let mut names = t.open_table(NAMES)?;
                for row in old.iter()? {
                    let (name, id) = row?;
                    if names.get(name.value())?.is_none() {
                        let facts = NameFacts::pointed(None, ObjectId(id.value()), NameStanding::Copied);
                        names.insert(name.value(), &encode(&facts)?[..])?;
                    }
                }
                let (mut all, mut known) = (t.open_table(FOLDERS)?, t.open_table(PARTS)?);
                for id in folders {
                    all.insert(id.0, ())?;
                }
                for id in parts {
                    known.insert(id.0, false)?;
                }
            }
            t.delete_table(OLD_NAMES)?;
            Ok(())
        })
    }

    /// The names that an older version gave.
    pub(crate) fn old_names(&self) -> Result<BTreeMap<String, ObjectId>, StoreError> {
        self.read(|t| {
            let table = t.open_table(OLD_NAMES)?;
            let rows = table.iter()?;
            rows.map(|row| {
                let (name, id) = row?;
                Ok((name.value().to_owned(), ObjectId(id.value())))
            })
            .collect()
        })
    }
}

/// Gives an object the name that it enters by; what does not enter as a file of a folder stays by itself from now on.
fn entered(t: &WriteTransaction, id: ObjectId, entering: Entering<'_>) -> Outcome<Option<ObjectId>> {
    if entering.part.is_none() {
        t.open_table(PARTS)?.remove(id.0)?;
    }
    let Some((name, standing)) = entering.name else { return Ok(None) };
    let mut names = t.open_table(NAMES)?;
    let before = names.get(name)?.map(|it| decode_facts(it.value())).transpose()?;
    let facts = NameFacts::pointed(before, id, standing);
    names.insert(name, &encode(&facts)?[..])?;
    Ok(before.map(|old| old.object).filter(|old| *old != id))
}

fn names_of(names: &impl ReadableTable<&'static str, &'static [u8]>, id: ObjectId) -> Outcome<Vec<String>> {
    names_pointing(names, |of| of == id)
}

fn names_pointing(
    names: &impl ReadableTable<&'static str, &'static [u8]>,
    at: impl Fn(ObjectId) -> bool,
) -> Outcome<Vec<String>> {
    let mut found = Vec::new();
    for row in names.iter()? {
        let (name, facts) = row?;
        if at(decode_facts(facts.value())?.object) {
            found.push(name.value().to_owned());
        }
    }
    Ok(found)
}

fn encode(row: &impl Serialize) -> Outcome<Vec<u8>> {
    postcard::to_stdvec(row).map_err(|e| redb::Error::Corrupted(e.to_string()))
}

fn decode(bytes: &[u8]) -> Outcome<Record> {
    postcard::from_bytes(bytes).map_err(|e| redb::Error::Corrupted(format!("record of an object: {e}")))
}

fn decode_facts(bytes: &[u8]) -> Outcome<NameFacts> {
    postcard::from_bytes(bytes).map_err(|e| redb::Error::Corrupted(format!("record of a name: {e}")))
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
    fn an_index_of_a_newer_program_is_refused_by_name_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("index.redb");
        drop(Index::open(path.clone()).unwrap());
        const NEWER: TableDefinition<u64, u64> = TableDefinition::new("objects 2");
        let database = Database::create(&path).unwrap();
        let transaction = database.begin_write().unwrap();
        transaction.open_table(NEWER).unwrap();
        transaction.commit().unwrap();
        drop(database);
        let refused = Index::open(path.clone()).err().unwrap().to_string();
        assert!(refused.contains("newer headwater") && refused.contains("objects 2"), "{refused}");
        assert!(Database::open(&path).unwrap().begin_read().unwrap().open_table(NEWER).is_ok());
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
        index.clear_unfinished(&[ObjectId([1; 32])]).unwrap();
        assert!(index.unfinished().unwrap().is_empty());
    }
}
