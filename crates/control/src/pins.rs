//! Which key answered at which address, as ssh's `accept-new` keeps it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use headwater_units::NodeId;

use super::error::{ControlError, KeyChanged};
use super::files;

const HEAD: &str =
    "# Keys of the nodes that this one dialled, stored at first contact. Remove a line to forget a node.\n";
/// The version of the file's format, which its first entry states. A file that states none is from before there was one, and of the same format.
const VERSION: i64 = 1;
/// Addresses a person dials are few; a file beyond this is a loop gone wrong.
const MAX_PINS: usize = 1 << 16;

/// The file `STATE/identity/pins.toml`: its version, then one line `"ADDRESS" = "KEY"` per node that was dialled by address.
///
/// Read afresh on every use and replaced as a whole under a lock, so processes may share it.
#[derive(Clone, Debug)]
pub struct Pins {
    dir: PathBuf,
    file: PathBuf,
}

/// Result of checking a dialled node's key against the pins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PinOutcome {
    /// The address was unknown: the key is stored from now on. Tell the user its fingerprint.
    Stored,
    /// The stored key answered.
    Matched,
    /// The user stated this key, and it replaced another one stored before.
    Replaced(NodeId),
}

impl Pins {
    /// The pins kept under `state`.
    ///
    /// # Errors
    /// [`ControlError::State`] if the folder cannot be made.
    pub fn open(state: &Path) -> Result<Pins, ControlError> {
        let dir = files::identity_dir(state)?;
        Ok(Pins { file: dir.join("pins.toml"), dir })
    }

    /// The file itself.
    pub fn path(&self) -> &Path {
        &self.file
    }

    /// The key stored for `addr`.
    ///
    /// # Errors
    /// [`ControlError::State`] if the file cannot be read or understood.
    pub fn get(&self, addr: SocketAddr) -> Result<Option<NodeId>, ControlError> {
        Ok(self.load()?.get(&canonical(addr)).copied())
    }

    /// `node` answered at `addr` and proved its key: stores it if the address is unknown.
    ///
    /// # Errors
    /// [`ControlError::KeyChanged`] if another key is stored; [`ControlError::State`].
    pub fn accept(&self, addr: SocketAddr, node: NodeId) -> Result<PinOutcome, ControlError> {
        match self.update(addr, node, false)? {
            None => Ok(PinOutcome::Stored),
            Some(stored) if stored == node => Ok(PinOutcome::Matched),
            Some(stored) => Err(self.key_changed(addr, stored, node)),
        }
    }

    /// The user says that `node` is right for `addr`: stores it in place of whatever is there.
    ///
    /// # Errors
    /// [`ControlError::State`].
    pub fn set(&self, addr: SocketAddr, node: NodeId) -> Result<PinOutcome, ControlError> {
        Ok(match self.update(addr, node, true)? {
            None => PinOutcome::Stored,
            Some(stored) if stored == node => PinOutcome::Matched,
            Some(stored) => PinOutcome::Replaced(stored),
        })
    }

    /// The error that says where the stored key is and what to do.
    pub(super) fn key_changed(&self, addr: SocketAddr, expected: NodeId, found: NodeId) -> ControlError {
        let addr = canonical(addr);
        let quoted = format!("\"{addr}\"");
        let text = files::read(&self.file).ok().flatten().unwrap_or_default();
        let line = text.lines().position(|line| line.trim_start().starts_with(&quoted));
        let line = line.map_or(0, |index| index + 1);
        ControlError::KeyChanged(Box::new(KeyChanged {
            addr,
            expected,
            found,
            file: self.file.clone(),
            line,
        }))
    }

    /// Returns what was stored before; stores `node` if that was nothing, or in any case if `replace`.
    fn update(&self, addr: SocketAddr, node: NodeId, replace: bool) -> Result<Option<NodeId>, ControlError> {
        let addr = canonical(addr);
        let lock = files::Lock::take(&self.dir)?;
        let mut pins = self.load()?;
        let stored = pins.get(&addr).copied();
        if stored == Some(node) || (stored.is_some() && !replace) {
            return Ok(stored);
        }
        if pins.len() >= MAX_PINS {
            return Err(files::failed(
                &self.file,
                &format_args!("holds {MAX_PINS} keys, the most there may be"),
            ));
        }
        pins.insert(addr, node);
        let mut text = format!("{HEAD}version = {VERSION}\n");
        for (addr, node) in &pins {
            writeln!(text, "\"{addr}\" = \"{node}\"").expect("writing to a string");
        }
        files::replace(&lock, &self.file, text.as_bytes())?;
        Ok(stored)
    }

    fn load(&self) -> Result<BTreeMap<SocketAddr, NodeId>, ControlError> {
        let Some(text) = files::read(&self.file)? else { return Ok(BTreeMap::new()) };
        let mut raw: toml::Table = toml::from_str(&text).map_err(|e| files::failed(&self.file, &e))?;
        match raw.remove("version") {
            None | Some(toml::Value::Integer(VERSION)) => {}
            Some(other) => {
                return Err(files::failed(
                    &self.file,
                    &format_args!(
                        "is of version {other}, and this program reads version {VERSION}: install the headwater that wrote it, or move \
                         the file away to trust every address anew"
                    ),
                ));
            }
        }
        raw.into_iter()
            .map(|(addr, node)| {
                let addr: SocketAddr = addr.parse().map_err(|_| {
                    files::failed(&self.file, &format_args!("'{addr}' is not an address with a port"))
                })?;
                let node = node.as_str().unwrap_or_default();
                let node = node.parse().map_err(|e| files::failed(&self.file, &e))?;
                Ok((canonical(addr), node))
            })
            .collect()
    }
}

/// One spelling per address: mapped IPv4 is IPv4, and an IPv6 flow label says nothing about who is there.
pub(super) fn canonical(addr: SocketAddr) -> SocketAddr {
    match addr {
        SocketAddr::V6(v6) => match v6.ip().to_ipv4_mapped() {
            Some(v4) => SocketAddr::from((v4, v6.port())),
            None => std::net::SocketAddrV6::new(*v6.ip(), v6.port(), 0, v6.scope_id()).into(),
        },
        SocketAddr::V4(_) => addr,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn pins() -> (tempfile::TempDir, Pins) {
        let state = tempfile::tempdir().unwrap();
        let pins = Pins::open(state.path()).unwrap();
        (state, pins)
    }

    #[test]
    fn an_unknown_address_is_stored_and_then_known() {
        let (state, pins) = pins();
        let (one, two) = (addr("10.0.0.1:4450"), addr("[2001:db8::1]:4450"));
        assert_eq!(pins.accept(one, NodeId([1; 32])).unwrap(), PinOutcome::Stored);
        assert_eq!(pins.accept(two, NodeId([2; 32])).unwrap(), PinOutcome::Stored);
        let again = Pins::open(state.path()).unwrap();
        assert_eq!(again.accept(one, NodeId([1; 32])).unwrap(), PinOutcome::Matched);
        assert_eq!(again.get(two).unwrap(), Some(NodeId([2; 32])));
        assert_eq!(again.get(addr("[::ffff:10.0.0.1]:4450")).unwrap(), Some(NodeId([1; 32])));
        assert_eq!(again.get(addr("10.0.0.1:4451")).unwrap(), None, "the port counts");
    }

    #[test]
    fn a_changed_key_is_an_error_that_names_the_line() {
        let (_state, pins) = pins();
        for i in 1..=3 {
            pins.accept(addr(&format!("10.0.0.{i}:1")), NodeId([i; 32])).unwrap();
        }
        let error = pins.accept(addr("10.0.0.2:1"), NodeId([9; 32])).unwrap_err();
        let ControlError::KeyChanged(ref changed) = error else { panic!("{error}") };
        let (line, text) = (changed.line, std::fs::read_to_string(&changed.file).unwrap());
        assert!(text.lines().nth(line - 1).unwrap().contains(&"02".repeat(32)), "line {line} of\n{text}");
        let said = error.to_string();
        assert!(
            said.contains(&"02".repeat(32)) && said.contains(&format!("--pin {}", "09".repeat(32))),
            "{said}"
        );
        assert_eq!(pins.get(addr("10.0.0.2:1")).unwrap(), Some(NodeId([2; 32])), "nothing was stored");
    }

    #[test]
    fn a_stated_key_replaces_the_stored_one() {
        let (_state, pins) = pins();
        let at = addr("10.0.0.1:1");
        assert_eq!(pins.set(at, NodeId([1; 32])).unwrap(), PinOutcome::Stored);
        assert_eq!(pins.set(at, NodeId([1; 32])).unwrap(), PinOutcome::Matched);
        assert_eq!(pins.set(at, NodeId([2; 32])).unwrap(), PinOutcome::Replaced(NodeId([1; 32])));
        assert_eq!(pins.get(at).unwrap(), Some(NodeId([2; 32])));
    }

    #[test]
    fn writers_at_once_lose_nothing() {
        let (_state, pins) = pins();
        std::thread::scope(|scope| {
            for i in 0..8_u8 {
                let pins = pins.clone();
                scope.spawn(move || {
                    for port in 1..=10 {
                        pins.accept(addr(&format!("10.0.0.{i}:{port}")), NodeId([i; 32])).unwrap();
                    }
                });
            }
        });
        assert_eq!(pins.load().unwrap().len(), 80);
    }

    #[test]
    fn a_file_without_a_version_is_read_and_gets_one() {
        let (_state, pins) = pins();
        std::fs::write(pins.path(), format!("{HEAD}\"10.0.0.1:1\" = \"{}\"\n", NodeId([1; 32]))).unwrap();
        assert_eq!(pins.get(addr("10.0.0.1:1")).unwrap(), Some(NodeId([1; 32])));
        pins.accept(addr("10.0.0.2:1"), NodeId([2; 32])).unwrap();
        let text = std::fs::read_to_string(pins.path()).unwrap();
        assert!(text.lines().any(|line| line == "version = 1"), "{text}");
        assert_eq!(pins.get(addr("10.0.0.1:1")).unwrap(), Some(NodeId([1; 32])));
    }

    #[test]
    fn a_file_of_another_version_is_refused_by_name_and_stays() {
        let (_state, pins) = pins();
        for version in ["2", "\"1.5\""] {
            let text = format!("version = {version}\n\"10.0.0.1:1\" = \"{}\"\n", NodeId([1; 32]));
            std::fs::write(pins.path(), &text).unwrap();
            let error = pins.get(addr("10.0.0.1:1")).unwrap_err().to_string();
            assert!(error.contains("pins.toml") && error.contains(&format!("version {version}")), "{error}");
            pins.accept(addr("10.0.0.2:1"), NodeId([2; 32])).unwrap_err();
            assert_eq!(std::fs::read_to_string(pins.path()).unwrap(), text);
        }
    }

    #[test]
    fn a_file_that_cannot_be_read_is_an_error_and_stays() {
        let (_state, pins) = pins();
        for text in ["not toml", "\"10.0.0.1:1\" = \"short\"", "\"nowhere\" = \"aa\"", "\"10.0.0.1:1\" = 3"] {
            std::fs::write(pins.path(), text).unwrap();
            let error = pins.accept(addr("10.0.0.1:1"), NodeId([1; 32])).unwrap_err().to_string();
            assert!(error.contains("pins.toml"), "{error}");
            assert_eq!(std::fs::read_to_string(pins.path()).unwrap(), text);
        }
    }
}
