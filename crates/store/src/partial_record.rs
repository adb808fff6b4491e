//! Record of an object in reception, written to disk so that reception can continue before anybody is asked.
//!
//! One small file per transfer, written once when the transfer begins and removed when it ends. Which blocks are here
//! is *not* in it: that is found by hashing them. So it needs no transactions, and a plain file with a hash of itself,
//! synced and renamed into place, is as crash-safe as a database, never locks two transfers against each other, and
//! damage of any kind is found and does no harm.
//!
//! ```text
//! headwater partial 1\n | postcard of Record | BLAKE3 of everything before (32 bytes)
//! ```

use std::ffi::OsString;
use std::io::Write;
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use headwater_units::{Bytes, ObjectId};
use serde::{Deserialize, Serialize};

use crate::StoreError;
use crate::disk::{self, TempFile};
use crate::tree::{BlockHashes, ChainingValue};

const MAGIC: &[u8] = b"headwater partial 1\n";
const SUFFIX: &str = "partial";
/// File systems give a name this many bytes.
const MAX_FILE_NAME: usize = 255;

#[derive(Serialize, Deserialize)]
struct Record {
    id: ObjectId,
    size: Bytes,
    destination: Vec<u8>,
    range: Option<Range<u64>>,
    overwrite: bool,
    hashes: Vec<ChainingValue>,
}

/// Object to receive, and its destination.
#[derive(Clone, Debug)]
pub struct PartialSpec {
    /// The object: id, size, and by what each block is verified.
    pub hashes: BlockHashes,
    /// The final name. Its folder must exist.
    pub destination: PathBuf,
    /// Where transfers are written down (STATE/partial); made if missing.
    pub state_folder: PathBuf,
    /// Only these bytes of the object are wanted, and the destination will hold only them.
    pub range: Option<Range<u64>>,
    /// Whether a file under the final name may be replaced.
    pub overwrite: bool,
}

/// An object in reception that some process began.
#[derive(Clone, Debug)]
pub struct PartialInfo {
    /// All that is needed to go on with it.
    pub spec: PartialSpec,
    /// The hidden file with the blocks that arrived.
    pub data_path: PathBuf,
    /// Size of that file on disk: about the bytes that have arrived, not all of them verified.
    pub on_disk: Bytes,
    /// Where this is written down.
    pub record_path: PathBuf,
}

impl PartialInfo {
    /// Gives the transfer up: removes the blocks that arrived and this record.
    ///
    /// # Errors
    /// [`StoreError::Busy`] while a process works on it, [`StoreError::Io`].
    pub fn discard(&self) -> Result<(), StoreError> {
        if let Ok(data) = std::fs::OpenOptions::new().write(true).open(&self.data_path) {
            disk::lock(&data, &self.data_path)?;
            disk::remove_if_there(&self.data_path)?;
        }
        let state_folder = disk::parent(&self.record_path);
        if let Some(paths) = PartialPaths::of(self.spec.hashes.root(), &self.spec.destination, state_folder) {
            disk::remove_if_there(&paths.range)?;
        }
        disk::remove_if_there(&self.record_path)
    }
}

/// The transfers written down in one state folder.
#[derive(Clone, Debug, Default)]
pub struct PartialList {
    /// In the order of their destinations.
    pub partials: Vec<PartialInfo>,
    /// Records that cannot be read; their data stays, and counts again once the same object is asked for under the
    /// same name.
    pub damaged: Vec<PathBuf>,
}

/// Where things about one transfer are.
#[derive(Debug)]
pub(crate) struct PartialPaths {
    pub(crate) data: PathBuf,
    /// A file for the bytes of a range while they are put together.
    pub(crate) range: PathBuf,
    pub(crate) record: PathBuf,
}

impl PartialPaths {
    /// `destination` is absolute.
    pub(crate) fn of(id: ObjectId, destination: &Path, state_folder: &Path) -> Option<Self> {
        let name = destination.file_name()?;
        let mut hasher = blake3::Hasher::new();
        let key = hasher.update(&id.0).update(destination.as_os_str().as_bytes()).finalize().to_hex();
        let key = &key.as_str()[..32];
        let id = &id.to_string()[..16];
        let hidden = |suffix: &str| {
            let tail = format!(".{id}.{suffix}");
            let full = [b".", name.as_bytes(), tail.as_bytes()].concat();
            // A name too long for that is told from its neighbours by the key instead.
            let fits = full.len() <= MAX_FILE_NAME;
            let full = if fits { full } else { format!(".{key}{tail}").into_bytes() };
            destination.with_file_name(OsString::from_vec(full))
        };
        Some(PartialPaths {
            data: hidden("partial"),
            range: hidden("range"),
            record: state_folder.join(format!("{key}.{SUFFIX}")),
        })
    }
}

/// Writes the record of a transfer, unless it is there already.
pub(crate) fn write(spec: &PartialSpec, paths: &PartialPaths) -> Result<(), StoreError> {
    let record = Record {
        id: spec.hashes.root(),
        size: spec.hashes.size(),
        destination: spec.destination.as_os_str().as_bytes().to_vec(),
        range: spec.range.clone(),
        overwrite: spec.overwrite,
        hashes: spec.hashes.as_slice().to_vec(),
    };
    let mut bytes = MAGIC.to_vec();
    let fail = |e| StoreError::io_writing("write", &paths.record, Bytes::kib(64), e);
    bytes = postcard::to_extend(&record, bytes).map_err(|e| fail(std::io::Error::other(e)))?;
    bytes.extend(blake3::hash(&bytes).as_bytes());
    if std::fs::read(&paths.record).is_ok_and(|there| there == bytes) {
        return Ok(());
    }
    // Nobody else writes this one: the caller holds the lock of the data file. A file that is there is of a killed
    // process.
    let temp = paths.record.with_extension("tmp");
    disk::remove_if_there(&temp)?;
    let temp = TempFile::create(temp)?;
    temp.file().write_all(&bytes).map_err(fail)?;
    temp.persist(&paths.record, true)
}

/// Reads the records of a state folder; one that does not exist has none.
///
/// A record whose data file is gone is left out, and removed: data comes before the record, so the transfer was ending
/// when it was killed. Only where the whole folder is gone (a disk that is not mounted) the record stays.
pub(crate) fn list(state_folder: &Path) -> Result<PartialList, StoreError> {
    let fail = |e| StoreError::io("list", state_folder, e);
    let entries = match std::fs::read_dir(state_folder) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(PartialList::default()),
        Err(e) => return Err(fail(e)),
    };
    let mut list = PartialList::default();
    for entry in entries {
        let path = entry.map_err(fail)?.path();
        if path.extension().is_none_or(|e| e != SUFFIX) {
            continue;
        }
        let Some((spec, paths)) = read(&path, state_folder) else {
            list.damaged.push(path);
            continue;
        };
        match std::fs::metadata(&paths.data) {
            Ok(data) => list.partials.push(PartialInfo {
                on_disk: Bytes::new(data.blocks().saturating_mul(512)).min(spec.hashes.size()),
                data_path: paths.data,
                record_path: path,
                spec,
            }),
            Err(_) if disk::parent(&spec.destination).is_dir() => disk::remove_if_there(&path)?,
            Err(_) => {}
        }
    }
    list.partials.sort_by(|a, b| a.spec.destination.cmp(&b.spec.destination));
    list.damaged.sort();
    Ok(list)
}

fn read(path: &Path, state_folder: &Path) -> Option<(PartialSpec, PartialPaths)> {
    let bytes = std::fs::read(path).ok()?;
    let (body, hash) = bytes.split_last_chunk::<32>()?;
    if blake3::hash(body).as_bytes() != hash {
        return None;
    }
    let record: Record = postcard::from_bytes(body.strip_prefix(MAGIC)?).ok()?;
    let destination = PathBuf::from(OsString::from_vec(record.destination));
    let paths = PartialPaths::of(record.id, &destination, state_folder)?;
    let hashes = BlockHashes::verified(record.id, record.size, record.hashes).ok()?;
    let state_folder = state_folder.to_owned();
    let spec =
        PartialSpec { hashes, destination, state_folder, range: record.range, overwrite: record.overwrite };
    (paths.record == path).then_some((spec, paths))
}
