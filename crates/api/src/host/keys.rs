//! The key of a process.
//!
//! A state folder is one node: a listening process has the key `keys/node`, wherever it listens. Only one process at a time can be that
//! node. A second listening process is another node, with a key by its address (`keys/ADDRESS`) that it keeps from then on; so both
//! keep their identities, in whatever order they are restarted. A process that only dials takes the first free one of `keys/slot-N`.

use std::fs::{File, TryLockError};
use std::net::{SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use headwater_control::Identity;

use crate::AppError;

/// The folder of the key that the node of a state folder has.
const NODE: &str = "node";
/// The folders of keys for processes that only dial begin with this.
const SLOT: &str = "slot-";
const SLOTS: usize = 256;

/// The key of a process that listens there, or only dials.
///
/// # Errors
/// The folder cannot be used; another process listens there.
pub(super) fn key_for(state: &Path, listen: Option<SocketAddr>) -> Result<Key, AppError> {
    let keys = state.join("keys");
    if let Some(listen) = listen {
        let node = Claim::on(keys.join(NODE))?;
        if node.is_some() {
            adopt_old_key(&keys, listen)?;
        }
        let own = (listen.port() != 0).then(|| keys.join(folder_of(listen)));
        if let Some(own) = own.clone().filter(|own| has_key(own))
            && let Some(claim) = Claim::on(own)?
        {
            return claim.key();
        }
        if let Some(claim) = node {
            return claim.key();
        }
        if let Some(own) = own {
            // A process that cannot listen there is no second node.
            drop(UdpSocket::bind(listen).map_err(|e| AppError::io(format!("cannot listen on {listen}"), e))?);
            if let Some(claim) = Claim::on(own)? {
                return claim.key();
            }
        }
    }
    for slot in 0..SLOTS {
        if let Some(claim) = Claim::on(keys.join(format!("{SLOT}{slot}")))? {
            return claim.key();
        }
    }
    Ok(Key { identity: Arc::new(Identity::ephemeral()?), _lock: None })
}

/// A key, which nobody else has until it is dropped.
pub(super) struct Key {
    pub(super) identity: Arc<Identity>,
    _lock: Option<File>,
}

/// The right to be known by the key in a folder, which one process has at a time.
struct Claim {
    folder: PathBuf,
    lock: File,
}

impl Claim {
    /// `None` if another process has it.
    fn on(folder: PathBuf) -> Result<Option<Claim>, AppError> {
        std::fs::create_dir_all(&folder).map_err(|e| AppError::state(&folder, e))?;
        let lock = File::create(folder.join("lock")).map_err(|e| AppError::state(&folder, e))?;
        match lock.try_lock() {
            Ok(()) => Ok(Some(Claim { folder, lock })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(AppError::state(&folder, error)),
        }
    }

    fn key(self) -> Result<Key, AppError> {
        let identity = Arc::new(Identity::load_or_create(&self.folder)?);
        Ok(Key { identity, _lock: Some(self.lock) })
    }
}

/// The folder of a key that goes with an address.
fn folder_of(listen: SocketAddr) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '_' };
    listen.to_string().chars().map(plain).collect()
}

fn has_key(folder: &Path) -> bool {
    folder.join("identity").is_dir()
}

/// Once, all keys went with addresses. Where there is one, or one for this address, and the folder's node has none yet, that is the
/// node's: it stays who it was.
fn adopt_old_key(keys: &Path, listen: SocketAddr) -> Result<(), AppError> {
    let failed = |e| AppError::state(keys, e);
    if has_key(&keys.join(NODE)) {
        return Ok(());
    }
    let mut old = Vec::new();
    for entry in std::fs::read_dir(keys).map_err(failed)? {
        let folder = entry.map_err(failed)?.path();
        let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or(NODE);
        if name != NODE && !name.starts_with(SLOT) && has_key(&folder) {
            old.push(folder);
        }
    }
    let own = keys.join(folder_of(listen));
    let adopted = match &old[..] {
        [only] => Some(only),
        several => several.iter().find(|folder| **folder == own),
    };
    if let Some(folder) = adopted {
        std::fs::rename(folder.join("identity"), keys.join(NODE).join("identity")).map_err(failed)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use headwater_units::NodeId;

    use super::*;

    /// A process that goes on until all end.
    fn start(state: &Path, listen: Option<&str>) -> NodeId {
        let key = key_for(state, listen.map(|at| at.parse().unwrap())).unwrap();
        let node = key.identity.node();
        std::mem::forget(key);
        node
    }

    /// Takes the locks of all processes away.
    fn all_end(state: &Path) {
        for folder in std::fs::read_dir(state.join("keys")).unwrap() {
            std::fs::remove_file(folder.unwrap().path().join("lock")).unwrap_or_default();
        }
    }

    #[test]
    fn a_folder_is_one_node_wherever_it_listens() {
        let state = tempfile::tempdir().unwrap();
        let first = start(state.path(), Some("127.0.0.1:4071"));
        for listen in ["127.0.0.1:4072", "[::]:4071", "127.0.0.1:0"] {
            all_end(state.path());
            assert_eq!(start(state.path(), Some(listen)), first, "{listen}");
        }
        all_end(state.path());
        assert_ne!(start(state.path(), None), first, "what only dials is no node");
    }

    #[test]
    fn two_that_listen_are_two_nodes_and_stay_so_in_whatever_order_they_start() {
        let state = tempfile::tempdir().unwrap();
        let (a, b) = ("127.0.0.1:4073", "127.0.0.1:4074");
        let (first, second) = (start(state.path(), Some(a)), start(state.path(), Some(b)));
        assert_ne!(first, second);
        all_end(state.path());
        assert_eq!((start(state.path(), Some(b)), start(state.path(), Some(a))), (second, first));
        all_end(state.path());
        assert_eq!((start(state.path(), Some(a)), start(state.path(), Some(b))), (first, second));
    }

    #[test]
    fn a_node_that_cannot_listen_makes_no_key() {
        let state = tempfile::tempdir().unwrap();
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let taken = socket.local_addr().unwrap();
        start(state.path(), Some("127.0.0.1:4075"));
        let error = key_for(state.path(), Some(taken)).err().unwrap().to_string();
        assert!(error.contains("cannot listen on"), "{error}");
        assert!(!state.path().join("keys").join(folder_of(taken)).exists());
    }

    #[test]
    fn keys_that_went_with_addresses_are_kept() {
        let old = |state: &Path, listen: &str| {
            let folder = state.join("keys").join(folder_of(listen.parse().unwrap()));
            Identity::load_or_create(&folder).unwrap().node()
        };
        let state = tempfile::tempdir().unwrap();
        let only = old(state.path(), "[::]:7000");
        assert_eq!(start(state.path(), Some("127.0.0.1:4076")), only, "the only one moves with the node");
        assert_ne!(start(state.path(), None), only);

        let state = tempfile::tempdir().unwrap();
        let (a, b) = (old(state.path(), "127.0.0.1:4077"), old(state.path(), "127.0.0.1:4078"));
        assert_eq!(start(state.path(), Some("127.0.0.1:4078")), b, "of several, that of the address");
        assert_eq!(start(state.path(), Some("127.0.0.1:4077")), a);
    }
}
