//! Requests to a node, with defaults that suit most: a request is made of a name or a path, and changed by its methods.

use std::fmt;
use std::io::Read;
use std::path::{Path, PathBuf};

use headwater_units::{BitRate, Bytes, Duration, ObjectId};
use headwater_wire::{CastWish, Delivery, SpreadRule, Urgency};

/// An object to be fetched ([`crate::Node::get`]).
///
/// ```
/// # use headwater_api::Get;
/// # use headwater_units::{Bytes, Duration};
/// let first_mib = Get::new("data.bin").range(Bytes::ZERO, Some(Bytes::mib(1))).timeout(Duration::from_secs(60));
/// assert_eq!(first_mib.what, "data.bin");
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Get {
    /// A name, an id (64 hex digits), or the beginning of one.
    pub what: String,
    /// The only id accepted, whatever the name stands for.
    pub hash: Option<ObjectId>,
    /// Only these bytes: the first, and the one after the last (`None`: to the end). Not empty, and not for what goes into the store.
    pub range: Option<(Bytes, Option<Bytes>)>,
    /// Compute SHA-256 too; not of what goes into the store.
    pub sha256: bool,
    /// Replace a file that is there; fetch what the store has once more.
    pub overwrite: bool,
    /// Gives way to everything else on its path.
    pub gentle: bool,
    /// The most that sources together may send, beside the node's own limit.
    pub limit: Option<BitRate>,
    /// Which transport is to bring it; the controller chooses if absent.
    pub delivery: Option<Delivery>,
    /// Which symbols each source sends, where sources push.
    pub spread: SpreadRule,
    /// Maximum number of sources at once, at least 1; the controller's limit if absent.
    pub max_sources: Option<u8>,
    /// Maximum time, after which it is given up; what came by then stays.
    pub timeout: Option<Duration>,
    /// From the request until it should be complete, if it matters: the controller weighs its flows by that.
    pub deadline: Option<Duration>,
    /// A guest stays for those who are served from what came until [`crate::Node::close`] has ended, 2 s at most.
    pub drain: bool,
    /// A fixed weight for every flow instead of Algorithm 1; only of a guest that has no controller ([`crate::Where::From`]).
    pub theta: Option<f64>,
    /// The machines' inputs are recorded in this file; only of a guest.
    pub record: Option<PathBuf>,
    /// It is asked for only after a line on standard input ([`crate::Update::Ready`]); only of a guest.
    pub wait_for_line: bool,
}

impl Get {
    /// All of an object, by its name, its id, or the beginning of one. A whole id stands for that object and no other.
    pub fn new(what: impl Into<String>) -> Self {
        let what = what.into();
        Get {
            hash: what.parse().ok(),
            what,
            range: None,
            sha256: false,
            overwrite: false,
            gentle: false,
            limit: None,
            delivery: None,
            spread: SpreadRule::Listed,
            max_sources: None,
            timeout: None,
            deadline: None,
            drain: true,
            theta: None,
            record: None,
            wait_for_line: false,
        }
    }

    /// Accepts only this object, whatever the name stands for.
    #[must_use]
    pub fn expecting(self, object: ObjectId) -> Self {
        Get { hash: Some(object), ..self }
    }

    /// Fetches only the bytes from `from` to before `to` (`None`: to the end).
    #[must_use]
    pub fn range(self, from: Bytes, to: Option<Bytes>) -> Self {
        Get { range: Some((from, to)), ..self }
    }

    /// Replaces a file that is there, or fetches once more what the store has.
    #[must_use]
    pub fn overwriting(self) -> Self {
        Get { overwrite: true, ..self }
    }

    /// Gives way to everything else on its path.
    #[must_use]
    pub fn gently(self) -> Self {
        Get { gentle: true, ..self }
    }

    /// Gives up after this time.
    #[must_use]
    pub fn timeout(self, after: Duration) -> Self {
        Get { timeout: Some(after), ..self }
    }

    /// Begins only after a line on standard input.
    #[must_use]
    pub fn wait_for_line(self) -> Self {
        Get { wait_for_line: true, ..self }
    }
}

impl<T: Into<String>> From<T> for Get {
    fn from(what: T) -> Self {
        Get::new(what)
    }
}

/// Source of a put's bytes.
pub enum PutSource {
    /// A file, or a folder with all that is in it. A pipe or a block device is read to its end.
    Path(PathBuf),
    /// Read to its end, on a thread of its own.
    Reader {
        /// Its name in messages.
        label: String,
        /// Need not end soon: a put that is cancelled does not wait for it.
        reader: Box<dyn Read + Send>,
    },
}

impl fmt::Debug for PutSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PutSource::Path(path) => f.debug_tuple("Path").field(path).finish(),
            PutSource::Reader { label, .. } => {
                f.debug_struct("Reader").field("label", label).finish_non_exhaustive()
            }
        }
    }
}

/// Something that is to become an object of the node's store ([`crate::Node::put`]).
#[derive(Debug)]
pub struct Put {
    /// Where its bytes come from.
    pub from: PutSource,
    /// The object's name instead of the file's; what is read has no other.
    pub name: Option<String>,
    /// Take the name from others that hold copies of what it stands for.
    pub replace: bool,
    /// Link the file instead of copying it: it must never change again.
    pub link: bool,
    /// Leave out of a folder what cannot be delivered, instead of refusing it.
    pub skip_special: bool,
    /// A folder's entries keep when they were last written to.
    pub times: bool,
}

impl Put {
    /// A file, or a folder with all that is in it, under its own name.
    pub fn path(path: impl Into<PathBuf>) -> Self {
        Put::of(PutSource::Path(path.into()))
    }

    /// Puts the bytes of a reader until its end; `label` names it in messages. Without a [name](Put::name) it has its
    /// id only.
    pub fn reader(label: impl Into<String>, reader: impl Read + Send + 'static) -> Self {
        Put::of(PutSource::Reader { label: label.into(), reader: Box::new(reader) })
    }

    fn of(from: PutSource) -> Self {
        Put { from, name: None, replace: false, link: false, skip_special: false, times: true }
    }

    /// Under this name: 1 to 1024 bytes, no control characters, not 64 hex digits, which are an id.
    #[must_use]
    pub fn name(self, name: impl Into<String>) -> Self {
        Put { name: Some(name.into()), ..self }
    }

    /// Its name in messages.
    pub(crate) fn label(&self) -> String {
        match &self.from {
            PutSource::Path(path) => path.display().to_string(),
            PutSource::Reader { label, .. } => label.clone(),
        }
    }

    /// Takes the name from others that hold copies of what it stands for.
    #[must_use]
    pub fn replacing(self) -> Self {
        Put { replace: true, ..self }
    }
}

impl From<&Path> for Put {
    fn from(path: &Path) -> Self {
        Put::path(path)
    }
}

impl From<PathBuf> for Put {
    fn from(path: PathBuf) -> Self {
        Put::path(path)
    }
}

/// The receivers of a cast.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Receivers {
    /// All nodes that keep objects and are connected.
    All,
    /// These: names, addresses or fingerprints.
    Named(Vec<String>),
    /// Those of all that carry each of these labels, key and value.
    Labelled(Vec<(String, String)>),
}

/// An object that many nodes are to fetch into their stores ([`crate::Node::cast`]).
#[derive(Clone, Debug, PartialEq)]
pub struct Cast {
    /// A name, an id, or the beginning of one.
    pub what: String,
    /// Receivers of the object.
    pub to: Receivers,
    /// Route to use; by default the best one that the network allows.
    pub wish: CastWish,
    /// How much it matters beside other casts, if that is stated; the deadline is none of a rollout.
    pub urgency: Option<Urgency>,
    /// Gives way to everything else.
    pub gentle: bool,
    /// Maximum time, after which it is given up; what came by then stays. Of a rollout: for all waves and pauses.
    pub timeout: Option<Duration>,
    /// Receivers are served one group after the other; all at once if absent.
    pub rollout: Option<Rollout>,
}

/// How a cast goes on from wave to wave.
#[derive(Clone, Debug, PartialEq)]
pub struct Rollout {
    /// How much of the receivers have the object after each wave. Each wave is larger than the one before; what lies beyond the last one
    /// is not served.
    pub waves: Vec<Wave>,
    /// Time between the end of a wave and the beginning of the next.
    pub pause: Duration,
    /// No wave begins once more receivers than this have failed or are away.
    pub max_failures: u32,
}

/// The receivers up to the end of a wave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Wave {
    /// This part of all, more than 0 and at most 1; rounded up.
    Part(f64),
    /// This many nodes, or all if there are fewer.
    Nodes(u32),
}

impl Wave {
    /// Its end among `receivers`.
    pub(crate) fn end(self, receivers: usize) -> usize {
        match self {
            // A twentieth of 100 is 5, though the product is a little more.
            Wave::Part(part) => ((receivers as f64 * part - 1e-9).ceil().max(0.0) as usize).min(receivers),
            Wave::Nodes(nodes) => (nodes as usize).min(receivers),
        }
    }
}

impl Cast {
    /// To these nodes, the best route that the network allows.
    pub fn new(what: impl Into<String>, to: Receivers) -> Self {
        let (wish, gentle, urgency, timeout, rollout) = (CastWish::Best, false, None, None, None);
        Cast { what: what.into(), to, wish, urgency, gentle, timeout, rollout }
    }

    /// By this route, or not at all.
    #[must_use]
    pub fn via(self, wish: CastWish) -> Self {
        Cast { wish, ..self }
    }

    /// In waves.
    #[must_use]
    pub fn rollout(self, rollout: Rollout) -> Self {
        Cast { rollout: Some(rollout), ..self }
    }

    /// Gives up after this time.
    #[must_use]
    pub fn timeout(self, after: Duration) -> Self {
        Cast { timeout: Some(after), ..self }
    }
}
