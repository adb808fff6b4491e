//! Objects of this machine's own store, for a `get` that need not fetch them.
//!
//! The daemon of the state folder is asked. If none runs, the store is opened briefly. The result is a file and the hashes of its
//! blocks: a copy from it must be hashed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use headwater_store::{BlockHashes, NameFacts, Store, StoreError, StoreOptions};
use headwater_units::ObjectId;

use super::AppError;
use super::desk::{self, Told};
use super::host::{Held, Host};

/// Objects that are looked for by one question: an answer has the block hashes of all.
const AT_ONCE: usize = 256;

/// A store that another process has open is tried again at this interval, 100 times in all: 2 s. A process that only
/// looks into it has it for a moment.
const LOOK_AGAIN: Duration = Duration::from_millis(20);
const TRIES: u32 = 100;

/// Opens the store for this process, and waits a little for others that only look into it.
///
/// # Errors
/// As [`Store::open`].
#[allow(clippy::disallowed_methods, reason = "a command waits for a file, no machine does")]
pub(super) fn open_store(folder: &Path, options: StoreOptions) -> Result<Store, StoreError> {
    for _ in 1..TRIES {
        match Store::open(folder, options) {
            Err(StoreError::Busy { .. }) => std::thread::sleep(LOOK_AGAIN),
            opened => return opened,
        }
    }
    Store::open(folder, options)
}

/// An object in the store of this machine.
#[derive(Clone, Debug)]
pub(crate) struct OwnObject {
    pub(crate) id: ObjectId,
    pub(crate) hashes: BlockHashes,
    /// Its file.
    pub(crate) path: PathBuf,
}

impl OwnObject {
    /// Its file is not what it should be, and nobody else is known.
    pub(crate) fn damaged(&self) -> AppError {
        AppError::Verification(format!(
            "the copy of {} in this machine's store is damaged ({}), and nobody else was asked: give --controller ADDR or --from ADDR,...",
            self.id.short(),
            self.path.display()
        ))
    }
}

/// Looks for objects by name or id; the answers are in the order of the questions.
pub(crate) async fn find(state: &Path, what: &[String]) -> Vec<Option<OwnObject>> {
    let mut all = Vec::new();
    for part in what.chunks(AT_ONCE) {
        let told = match desk::find(state, part).await {
            Some(told) => told,
            None => {
                let (folder, part) = (state.join("store"), part.to_vec());
                tokio::task::spawn_blocking(move || in_store_of_nobody(&folder, &part))
                    .await
                    .unwrap_or_default()
            }
        };
        // A store that cannot be read has nothing for us.
        let mut found: Vec<Option<OwnObject>> = told.into_iter().map(|it| it.and_then(heard)).collect();
        found.resize_with(part.len(), || None);
        all.extend(found);
    }
    all
}

/// Looks in a store that no daemon owns.
fn in_store_of_nobody(folder: &Path, what: &[String]) -> Vec<Option<Told>> {
    // Looking makes no store.
    if !folder.join("index.redb").exists() {
        return Vec::new();
    }
    match open_store(folder, StoreOptions::default()) {
        Ok(store) => look(&store, what),
        Err(error) => {
            tracing::debug!(%error, "the own store was not looked at");
            Vec::new()
        }
    }
}

/// Objects of a store with these names or ids.
pub(super) fn look(store: &Store, what: &[String]) -> Vec<Option<Told>> {
    what.iter().map(|what| one(store, what).ok()).collect()
}

fn one(store: &Store, what: &str) -> Result<Told, StoreError> {
    let id = store.lookup(what)?.id;
    let (file, hashes) = store.open_object(id)?;
    let text = hashes.as_slice().iter().map(|hash| ObjectId(*hash).to_string()).collect();
    Ok(Told { id, size: hashes.size(), hashes: text, path: file.path().to_owned() })
}

fn heard(told: Told) -> Option<OwnObject> {
    let Told { id, size, hashes, path } = told;
    let list = hashes.as_bytes().chunks(64).map(|digits| {
        let digits = std::str::from_utf8(digits).ok()?;
        digits.parse::<ObjectId>().ok().map(|hash| hash.0)
    });
    let hashes = BlockHashes::verified(id, size, list.collect::<Option<Vec<_>>>()?).ok()?;
    // Another user's store may be listed and not readable.
    std::fs::File::open(&path).ok()?;
    Some(OwnObject { id, hashes, path })
}

/// Offers an object of the store to everybody, if there is a process that does.
pub(super) fn offer(store: &Store, host: Option<&Host>, object: ObjectId) -> Result<(), AppError> {
    let Some(host) = host else { return Ok(()) };
    let mut names: BTreeMap<String, NameFacts> = BTreeMap::new();
    for name in store.lookup(&object.to_string())?.names {
        if let Some(facts) = store.name_facts(&name)? {
            names.insert(name, facts);
        }
    }
    let (file, hashes) = store.open_object(object)?;
    host.hold(object, Held { file: Arc::new(file), hashes, names });
    Ok(())
}
