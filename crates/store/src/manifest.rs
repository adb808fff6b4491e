//! A folder as an object: names, modes and ids (docs/decisions/0019).
//!
//! The bytes of a manifest are text that anybody can read: the magic line, then one JSON object per line, in the order
//! of the paths' bytes. One folder has one encoding, so it has one id.
//! ```text
//! headwater manifest 1
//! {"path":"bin","kind":"dir","mode":"0755"}
//! {"path":"bin/run","kind":"file","mode":"0755","size":5,"object":"<64 hex digits>"}
//! {"path":"start","kind":"symlink","target":"bin/run"}
//! ```
//! Version 2 has two fields more, and is written only where one of them is needed, so that a folder without them keeps its id:
//! ```text
//! headwater manifest 2
//! {"path":"bin/run","kind":"file","mode":"0755","size":5,"object":"<64 hex digits>","mtime":1700000000,"mtime_nanos":5}
//! {"path_bytes":"caf%E9","kind":"symlink","target_bytes":"t%E9"}
//! ```
//! - `path_bytes` and `target_bytes` stand in place of `path` and `target` where those are not UTF-8, percent-encoded;
//! - `mtime` is when the entry was last written to, in whole seconds since 1970 (rounded down) and nanoseconds beyond (left out if
//!   zero). With it equal contents have different ids on machines where they were written at different times, so whoever makes a
//!   manifest chooses: a snapshot of one machine keeps times, a folder that several machines offer as one object does not.
//!
//! A manifest comes from strangers. [`Manifest::parse`] accepts nothing that would write outside the folder:
//! - a path is relative, of plain components (not empty, `.` or `..`, no NUL), and the folder of every entry is itself
//!   listed as a folder, so no path leads through a symbolic link;
//! - a symbolic link's target is relative, goes up (`..`) only at its beginning and not above the folder. Up from a
//!   real folder is where it seems to be; `..` after a name could be elsewhere if that name is a link itself;
//! - of the mode, only the permission bits: nothing becomes setuid.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use headwater_units::{Bytes, ObjectId};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_OMIT, utimensat};
use serde::{Deserialize, Serialize};

use crate::{StoreError, percent};

/// How a manifest begins. The digit is the format's version.
pub const MAGIC: &str = "headwater manifest 1\n";
/// How a manifest begins that has times, or names that are not UTF-8. As long as [`MAGIC`].
pub const MAGIC_2: &str = "headwater manifest 2\n";
/// The most entries of a folder.
pub const MAX_ENTRIES: usize = 1_000_000;
/// The longest path or symlink target, in bytes (PATH_MAX of Linux, with its NUL).
pub const MAX_PATH_BYTES: usize = 4095;
/// The longest component of a path, in bytes.
pub const MAX_COMPONENT_BYTES: usize = 255;
/// The largest manifest, in bytes. Look at an object's size before reading it as one.
pub const MAX_MANIFEST_BYTES: usize = 256 << 20;

/// A folder's content. Entries in the order of the bytes of their paths; every one valid.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    entries: Vec<Entry>,
}

/// One thing in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Relative to the folder, with `/` between components. Mostly UTF-8.
    pub path: OsString,
    /// Its type.
    pub kind: Kind,
    /// When it was last written to, if the manifest keeps that.
    pub modified: Option<Modified>,
}

/// A time as file systems keep it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Modified {
    /// Whole seconds since 1970, rounded down: negative before.
    pub secs: i64,
    /// Nanoseconds beyond, 0..1,000,000,000.
    pub nanos: u32,
}

/// Type of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// A folder.
    Folder {
        /// Permission bits, at most 0o777.
        mode: u32,
    },
    /// A regular file.
    File {
        /// Permission bits, at most 0o777.
        mode: u32,
        /// Its size.
        size: Bytes,
        /// Its bytes.
        object: ObjectId,
    },
    /// A symbolic link.
    Symlink {
        /// Where it points, relative to where it is. Mostly UTF-8.
        target: OsString,
    },
}

/// One line, as it is written. Field order is part of the format.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path_bytes: Option<String>,
    kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mode: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    object: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    target_bytes: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mtime: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mtime_nanos: Option<u32>,
}

/// Whether an object that begins so is a manifest. Give at least as many bytes as [`MAGIC`] has.
pub fn is_manifest(prefix: &[u8]) -> bool {
    prefix.starts_with(MAGIC.as_bytes()) || prefix.starts_with(MAGIC_2.as_bytes())
}

/// How the manifest of these entries begins.
fn magic_of(entries: &[Entry]) -> &'static str {
    let is_text = |bytes: &OsStr| bytes.to_str().is_some();
    let is_plain = |entry: &Entry| {
        let target_is_text = match &entry.kind {
            Kind::Symlink { target } => is_text(target),
            _ => true,
        };
        entry.modified.is_none() && is_text(&entry.path) && target_is_text
    };
    if entries.iter().all(is_plain) { MAGIC } else { MAGIC_2 }
}

impl Manifest {
    /// Makes a manifest of entries in any order.
    ///
    /// # Errors
    /// [`StoreError::BadManifest`] for what [`Manifest::parse`] would refuse.
    pub fn new(mut entries: Vec<Entry>) -> Result<Self, StoreError> {
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        check_count(entries.len())?;
        let mut len = MAGIC.len();
        for (i, entry) in entries.iter().enumerate() {
            check_entry(entry, &entries[..i]).map_err(|reason| bad(i + 2, reason))?;
            len += line_of(entry).len();
        }
        check_len(len)?;
        Ok(Manifest { entries })
    }

    /// Reads a manifest that may come from anybody.
    ///
    /// # Errors
    /// [`StoreError::BadManifest`] for anything but the one encoding of a folder that stays within itself.
    pub fn parse(bytes: &[u8]) -> Result<Self, StoreError> {
        check_len(bytes.len())?;
        let text = std::str::from_utf8(bytes).map_err(|e| bad(1, e.to_string()))?;
        if !is_manifest(bytes) {
            return Err(bad(1, "does not begin as a manifest"));
        }
        let (magic, body) = text.split_at(MAGIC.len());
        let mut entries: Vec<Entry> = Vec::new();
        for (i, line) in body.split_inclusive('\n').enumerate() {
            check_count(i + 1)?;
            let entry = parse_line(line).and_then(|entry| check_entry(&entry, &entries).map(|()| entry));
            entries.push(entry.map_err(|reason| bad(i + 2, reason))?);
        }
        if magic_of(&entries) != magic {
            return Err(bad(1, "not the version that its entries need"));
        }
        Ok(Manifest { entries })
    }

    /// The bytes whose hash names the folder.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = magic_of(&self.entries).as_bytes().to_vec();
        self.entries.iter().for_each(|entry| out.extend(line_of(entry).into_bytes()));
        out
    }

    /// The entries, in the order of the bytes of their paths: a folder before what is in it.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The files: path, mode, size, id.
    pub fn files(&self) -> impl Iterator<Item = (&OsStr, u32, Bytes, ObjectId)> {
        self.entries.iter().filter_map(|e| match e.kind {
            Kind::File { mode, size, object } => Some((&e.path[..], mode, size, object)),
            _ => None,
        })
    }

    /// The size of all files together, as far as a number holds it: the sizes are a stranger's claims.
    pub fn total_bytes(&self) -> Bytes {
        Bytes::new(self.files().fold(0, |sum, (_, _, size, _)| sum.saturating_add(size.get())))
    }

    /// Makes the folders below `root`, and `root` itself, where they are missing, so that files can be received into
    /// them. Their modes come with [`Manifest::complete`].
    ///
    /// # Errors
    /// [`StoreError::DestinationExists`] where something else (a symbolic link, too) has a folder's name;
    /// [`StoreError::Io`].
    pub fn make_folders(&self, root: &Path) -> Result<(), StoreError> {
        fs::create_dir_all(root).map_err(|e| StoreError::io("create folder", root, e))?;
        for entry in &self.entries {
            if !matches!(entry.kind, Kind::Folder { .. }) {
                continue;
            }
            let path = root.join(&entry.path);
            match fs::create_dir(&path) {
                Ok(()) => {}
                Err(_) if is_real_folder(&path) => {}
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                    return Err(StoreError::DestinationExists { path });
                }
                Err(e) => return Err(StoreError::io("create folder", &path, e)),
            }
        }
        Ok(())
    }

    /// Makes the symbolic links and sets modes and times, once all files are in place.
    ///
    /// # Errors
    /// [`StoreError::DestinationExists`] where something else has a link's name; [`StoreError::Io`].
    pub fn complete(&self, root: &Path) -> Result<(), StoreError> {
        // Folders last and innermost first: without write permission nothing more could be put into them, and what is put into
        // them changes their times.
        let (folders, others): (Vec<_>, Vec<_>) =
            self.entries.iter().partition(|e| matches!(e.kind, Kind::Folder { .. }));
        for entry in others.into_iter().chain(folders.into_iter().rev()) {
            let path = root.join(&entry.path);
            match &entry.kind {
                Kind::Folder { .. } | Kind::File { .. } if path.is_symlink() => {
                    return Err(StoreError::DestinationExists { path });
                }
                Kind::Folder { mode } | Kind::File { mode, .. } => {
                    let set = fs::set_permissions(&path, fs::Permissions::from_mode(*mode));
                    set.map_err(|e| StoreError::io("set the mode of", &path, e))?;
                }
                Kind::Symlink { target } => match symlink(target, &path) {
                    Ok(()) => {}
                    Err(_) if fs::read_link(&path).is_ok_and(|t| t.as_os_str() == target) => {}
                    Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                        return Err(StoreError::DestinationExists { path });
                    }
                    Err(e) => return Err(StoreError::io("create symbolic link", &path, e)),
                },
            }
            if let Some(modified) = entry.modified {
                set_modified(&path, modified)?;
            }
        }
        Ok(())
    }
}

fn set_modified(path: &Path, modified: Modified) -> Result<(), StoreError> {
    let times = Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec: modified.secs, tv_nsec: modified.nanos.into() },
    };
    // Of a link its own time, never that of what it points at.
    let set = utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW);
    set.map_err(|e| StoreError::io("set the time of", path, e.into()))
}

fn bad(line: usize, reason: impl Into<String>) -> StoreError {
    StoreError::BadManifest { line, reason: reason.into() }
}

pub(crate) fn check_count(entries: usize) -> Result<(), StoreError> {
    if entries > MAX_ENTRIES {
        return Err(bad(entries + 1, format!("more than {MAX_ENTRIES} entries")));
    }
    Ok(())
}

fn check_len(bytes: usize) -> Result<(), StoreError> {
    if bytes > MAX_MANIFEST_BYTES {
        return Err(bad(1, format!("the manifest is longer than {MAX_MANIFEST_BYTES} bytes")));
    }
    Ok(())
}

fn line_of(entry: &Entry) -> String {
    let octal = |mode: &u32| Some(format!("{mode:04o}"));
    let (path, path_bytes) = text_or_bytes(&entry.path);
    let empty = Line {
        path,
        path_bytes,
        kind: String::new(),
        mode: None,
        size: None,
        object: None,
        target: None,
        target_bytes: None,
        mtime: entry.modified.map(|modified| modified.secs),
        mtime_nanos: entry.modified.map(|modified| modified.nanos).filter(|nanos| *nanos > 0),
    };
    let line = match &entry.kind {
        Kind::Folder { mode } => Line { kind: "dir".into(), mode: octal(mode), ..empty },
        Kind::File { mode, size, object } => Line {
            kind: "file".into(),
            mode: octal(mode),
            size: Some(size.get()),
            object: Some(object.to_string()),
            ..empty
        },
        Kind::Symlink { target } => {
            let (target, target_bytes) = text_or_bytes(target);
            Line { kind: "symlink".into(), target, target_bytes, ..empty }
        }
    };
    let mut text = serde_json::to_string(&line).expect("strings and numbers are always valid JSON");
    text.push('\n');
    text
}

/// Splits a name into the two fields of an entry: text, or percent-encoded bytes if it is not UTF-8.
fn text_or_bytes(bytes: &OsStr) -> (Option<String>, Option<String>) {
    match bytes.to_str() {
        Some(text) => (Some(text.to_owned()), None),
        None => (None, Some(percent::encode(bytes))),
    }
}

fn parse_line(text: &str) -> Result<Entry, String> {
    let line: Line = serde_json::from_str(text).map_err(|e| e.to_string())?;
    let mode = || {
        let digits = line.mode.as_deref().ok_or("mode is missing")?;
        u32::from_str_radix(digits, 8).map_err(|_| "mode is not octal")
    };
    let either = |text: &Option<String>, bytes: &Option<String>, field: &str| match (text, bytes) {
        (Some(text), None) => Ok(OsString::from(text)),
        (None, Some(bytes)) => {
            percent::decode(bytes).ok_or_else(|| format!("{field}_bytes is not percent-encoded"))
        }
        _ => Err(format!("{field} is missing, or there twice")),
    };
    let kind = match &line.kind[..] {
        "dir" => Kind::Folder { mode: mode()? },
        "file" => Kind::File {
            mode: mode()?,
            size: Bytes::new(line.size.ok_or("size is missing")?),
            object: line
                .object
                .as_deref()
                .ok_or("object is missing")?
                .parse()
                .map_err(|_| "object is not an id")?,
        },
        "symlink" => Kind::Symlink { target: either(&line.target, &line.target_bytes, "target")? },
        _ => return Err("unknown kind".to_owned()),
    };
    let path = either(&line.path, &line.path_bytes, "path")?;
    let modified = line.mtime.map(|secs| Modified { secs, nanos: line.mtime_nanos.unwrap_or(0) });
    let entry = Entry { path, kind, modified };
    // Whatever else the line has (spaces, other escapes, fields of another kind) would be a second encoding.
    if line_of(&entry) != text {
        return Err("not in canonical form".to_owned());
    }
    Ok(entry)
}

/// Checks an entry against the rules in the module's documentation; `before` are the valid entries in front of it.
fn check_entry(entry: &Entry, before: &[Entry]) -> Result<(), String> {
    check_path(&entry.path)?;
    if before.last().is_some_and(|last| last.path >= entry.path) {
        return Err("a path twice, or not in order".to_owned());
    }
    let path = entry.path.as_bytes();
    if let Some(slash) = path.iter().rposition(|byte| *byte == b'/') {
        let folder = &path[..slash];
        let listed = before.binary_search_by(|e| e.path.as_bytes().cmp(folder)).map(|i| &before[i].kind);
        if !matches!(listed, Ok(Kind::Folder { .. })) {
            return Err("its folder is not listed as a folder".to_owned());
        }
    }
    if entry.modified.is_some_and(|modified| modified.nanos >= 1_000_000_000) {
        return Err("mtime_nanos is a second or more".to_owned());
    }
    match &entry.kind {
        Kind::Folder { mode } | Kind::File { mode, .. } if *mode > 0o777 => {
            Err("mode has more than permission bits".to_owned())
        }
        Kind::Symlink { target } => check_target(target, path.iter().filter(|byte| **byte == b'/').count()),
        _ => Ok(()),
    }
}

fn check_path(path: &OsStr) -> Result<(), String> {
    if path.len() > MAX_PATH_BYTES {
        return Err(format!("path longer than {MAX_PATH_BYTES} bytes"));
    }
    for component in path.as_bytes().split(|byte| *byte == b'/') {
        match component {
            b"" => return Err("path is absolute or has an empty component".to_owned()),
            b"." | b".." => return Err("path has a component that is not a name".to_owned()),
            long if long.len() > MAX_COMPONENT_BYTES => {
                return Err(format!("a name longer than {MAX_COMPONENT_BYTES} bytes"));
            }
            name if name.contains(&0) => return Err("path has a NUL".to_owned()),
            _ => {}
        }
    }
    Ok(())
}

/// `depth` is how many folders the link is below the manifest's own.
pub(crate) fn check_target(target: &OsStr, depth: usize) -> Result<(), String> {
    let target = target.as_bytes();
    if target.is_empty() || target.len() > MAX_PATH_BYTES || target.contains(&0) {
        return Err("symlink target is empty, too long or has a NUL".to_owned());
    }
    if target.starts_with(b"/") {
        return Err("symlink target is absolute".to_owned());
    }
    let (mut up, mut down) = (0, false);
    for component in target.split(|byte| *byte == b'/') {
        match component {
            b"" | b"." => {}
            b".." if down => return Err("symlink target goes up after a name".to_owned()),
            b".." => up += 1,
            _ => down = true,
        }
    }
    if up > depth {
        return Err("symlink target leaves the folder".to_owned());
    }
    Ok(())
}

fn is_real_folder(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|m| m.is_dir())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn folder(path: &str) -> Entry {
        Entry { path: path.into(), kind: Kind::Folder { mode: 0o755 }, modified: None }
    }
    fn file(path: &str) -> Entry {
        let kind = Kind::File { mode: 0o644, size: Bytes::new(5), object: ObjectId([7; 32]) };
        Entry { path: path.into(), kind, modified: None }
    }
    fn link(path: &str, target: &str) -> Entry {
        Entry { path: path.into(), kind: Kind::Symlink { target: target.into() }, modified: None }
    }

    #[test]
    fn the_encoding_is_the_documented_text() {
        let entries = vec![link("start", "bin/run"), file("bin/run"), folder("bin")];
        let manifest = Manifest::new(entries).unwrap();
        let id = "07".repeat(32);
        let expected = format!(
            "headwater manifest 1\n\
             {{\"path\":\"bin\",\"kind\":\"dir\",\"mode\":\"0755\"}}\n\
             {{\"path\":\"bin/run\",\"kind\":\"file\",\"mode\":\"0644\",\"size\":5,\"object\":\"{id}\"}}\n\
             {{\"path\":\"start\",\"kind\":\"symlink\",\"target\":\"bin/run\"}}\n"
        );
        assert_eq!(String::from_utf8(manifest.encode()).unwrap(), expected);
        assert_eq!(Manifest::parse(expected.as_bytes()).unwrap(), manifest);
        assert!(is_manifest(expected.as_bytes()) && !is_manifest(b"headwater manifest 3\n"));
    }

    #[test]
    fn names_that_are_no_text_and_times_make_version_2_which_is_the_documented_text() {
        let name = |bytes: &[u8]| OsStr::from_bytes(bytes).to_owned();
        let times = |secs, nanos| Some(Modified { secs, nanos });
        let target = Kind::Symlink { target: name(b"t\xe9") };
        let entries = vec![
            Entry { path: name(b"caf\xe9"), kind: target, modified: times(-2, 500_000_000) },
            Entry { modified: times(1_700_000_000, 0), ..folder("bin") },
            file("bin/run"),
        ];
        let manifest = Manifest::new(entries).unwrap();
        let id = "07".repeat(32);
        let expected = format!(
            "headwater manifest 2\n\
             {{\"path\":\"bin\",\"kind\":\"dir\",\"mode\":\"0755\",\"mtime\":1700000000}}\n\
             {{\"path\":\"bin/run\",\"kind\":\"file\",\"mode\":\"0644\",\"size\":5,\"object\":\"{id}\"}}\n\
             {{\"path_bytes\":\"caf%E9\",\"kind\":\"symlink\",\"target_bytes\":\"t%E9\",\"mtime\":-2,\
             \"mtime_nanos\":500000000}}\n"
        );
        assert_eq!(String::from_utf8(manifest.encode()).unwrap(), expected);
        assert_eq!(Manifest::parse(expected.as_bytes()).unwrap(), manifest);
        assert!(is_manifest(expected.as_bytes()));
        for (from, to) in [
            ("manifest 2", "manifest 1"),
            ("manifest 2", "manifest 3"),
            ("caf%E9", "caf%e9"),
            ("caf%E9", "caf%C3%A9"),
            ("caf%E9", "c%61f%E9"),
            ("caf%E9", "caf%E"),
            ("caf%E9", "..%2F%E9"),
            ("\"path_bytes\":\"caf%E9\"", "\"path\":\"x\",\"path_bytes\":\"caf%E9\""),
            ("\"target_bytes\":\"t%E9\",", ""),
            ("t%E9", "%2Ft%E9"),
            ("\"mtime\":1700000000", "\"mtime\":1700000000,\"mtime_nanos\":0"),
            ("\"mtime_nanos\":500000000", "\"mtime_nanos\":1000000000"),
            ("\"mtime\":-2,", ""),
        ] {
            let text = expected.replacen(from, to, 1);
            assert_ne!(text, expected);
            assert!(Manifest::parse(text.as_bytes()).is_err(), "{to}");
        }
        // Without what is new in it, version 2 would be a second encoding.
        assert!(Manifest::parse(MAGIC_2.as_bytes()).is_err());
    }

    #[test]
    fn hostile_paths_are_refused() {
        let long = "x".repeat(MAX_COMPONENT_BYTES + 1);
        let deep = "y/".repeat(MAX_PATH_BYTES / 2 + 1) + "y";
        for path in ["", "/", "/etc/passwd", "..", "../x", "./x", "a\0b", "x/", &long, &deep] {
            assert!(Manifest::new(vec![file(path)]).is_err(), "{path:.20}");
        }
        for inner in ["a/../x", "a//x", "a/./x", "a/.."] {
            assert!(Manifest::new(vec![folder("a"), file(inner)]).is_err(), "{inner}");
        }
    }

    #[test]
    fn nothing_is_written_through_a_link_or_a_file() {
        assert!(Manifest::new(vec![file("a/x")]).is_err());
        assert!(Manifest::new(vec![link("a", "b"), file("a/x")]).is_err());
        assert!(Manifest::new(vec![file("a"), file("a/x")]).is_err());
        assert!(Manifest::new(vec![folder("a"), link("a", "b")]).is_err());
        assert!(Manifest::new(vec![folder("a"), file("a/x"), file("a/x")]).is_err());
        assert!(Manifest::new(vec![folder("a"), file("a-b"), file("a/x")]).is_ok());
    }

    #[test]
    fn links_stay_inside() {
        let within = |path: &str, target: &str| {
            Manifest::new(vec![folder("a"), folder("a/b"), link(path, target)]).is_ok()
        };
        assert!(
            within("l", "a/b") && within("a/b/l", "../../x") && within("a/l", "./b/") && within("l", ".")
        );
        assert!(!within("l", "/etc") && !within("l", "..") && !within("a/b/l", "../../../x"));
        assert!(
            !within("l", "a/../..") && !within("a/l", "b/../../x") && !within("l", "") && !within("l", "a\0")
        );
    }

    #[test]
    fn modes_are_permission_bits() {
        let setuid = Entry { kind: Kind::Folder { mode: 0o4755 }, ..folder("x") };
        assert!(Manifest::new(vec![setuid]).is_err());
    }

    #[test]
    fn only_the_canonical_form_is_a_manifest() {
        let good =
            String::from_utf8(Manifest::new(vec![folder("a"), file("a/x")]).unwrap().encode()).unwrap();
        assert!(Manifest::parse(good.as_bytes()).is_ok());
        for (from, to) in [
            ("manifest 1", "manifest 2"),
            ("\"path\":\"a\"", "\"path\": \"a\""),
            ("\"path\":\"a\"", "\"path\":\"\\u0061\""),
            ("\"kind\":\"dir\"", "\"kind\":\"dir\",\"size\":1"),
            ("\"kind\":\"dir\"", "\"kind\":\"fifo\""),
            ("\"mode\":\"0755\"", "\"mode\":\"755\""),
            ("\"mode\":\"0755\"", "\"mode\":\"+755\""),
            ("\"size\":5", "\"size\":05"),
            ("\"size\":5", "\"size\":-5"),
            ("\"size\":5,", ""),
            ("0707\"}", "070\"}"),
            ("}\n", "}\n\n"),
            ("}\n", "}\r\n"),
            ("\"path\":\"a\",", "\"path\":\"a\",\"extra\":1,"),
        ] {
            let text = good.replacen(from, to, 1);
            assert_ne!(text, good);
            assert!(Manifest::parse(text.as_bytes()).is_err(), "{to}");
        }
        assert!(Manifest::parse(good.trim_end().as_bytes()).is_err());
        assert!(Manifest::parse(b"\xff").is_err() && Manifest::parse(b"").is_err());
        assert!(Manifest::parse(MAGIC.as_bytes()).unwrap().entries().is_empty());
    }

    #[test]
    fn a_folder_is_not_made_through_a_link_that_was_there_before() {
        let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        symlink(outside.path(), root.path().join("a")).unwrap();
        let manifest = Manifest::new(vec![folder("a"), folder("a/b")]).unwrap();
        let made = manifest.make_folders(root.path());
        assert!(matches!(made, Err(StoreError::DestinationExists { .. })));
        assert!(!outside.path().join("b").exists());
    }

    proptest! {
        #[test]
        fn bytes_of_any_kind_never_panic_and_what_is_accepted_is_canonical(tail in ".{0,200}") {
            let text = format!("{MAGIC}{tail}\n");
            if let Ok(manifest) = Manifest::parse(text.as_bytes()) {
                prop_assert_eq!(manifest.encode(), text.into_bytes());
            }
        }

        #[test]
        fn encode_then_parse_is_identity(names in proptest::collection::btree_set("[^/\0]{1,20}", 0..20)) {
            let usable = names.iter().filter(|n| n.len() <= MAX_COMPONENT_BYTES && !matches!(&n[..], "." | ".."));
            let manifest = Manifest::new(usable.map(|n| file(n)).collect()).unwrap();
            prop_assert_eq!(Manifest::parse(&manifest.encode()).unwrap(), manifest);
        }

        #[test]
        fn names_of_any_bytes_and_any_times_come_back(
            names in proptest::collection::btree_map(
                proptest::collection::vec(1u8..=255, 1..20), any::<Option<(i64, u32)>>(), 0..20,
            )
        ) {
            let usable = names.iter().filter(|(n, _)| !n.contains(&b'/') && !matches!(&n[..], b"." | b".."));
            let entries = usable.map(|(name, modified)| Entry {
                path: OsStr::from_bytes(name).to_owned(),
                modified: modified.map(|(secs, nanos)| Modified { secs, nanos: nanos % 1_000_000_000 }),
                ..file("x")
            });
            let manifest = Manifest::new(entries.collect()).unwrap();
            prop_assert_eq!(Manifest::parse(&manifest.encode()).unwrap(), manifest);
        }
    }
}
