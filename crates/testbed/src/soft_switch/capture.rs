//! Frames as they left their ports, in files that Wireshark and tcpdump read: one for each link, named after it.
//!
//! ```text
//!  EmulatedFabric -- Tap --> Recorder == full chunks ==> writer thread -> h0-left.pcap, left-right.pcap, ...
//!                                     <= empty chunks ==
//! ```
//! The thread that moves frames copies the beginning of each into a chunk of memory and does nothing else: it never waits,
//! allocates, locks or writes. Where no chunk is free the frame is counted as missed. All chunks are allocated at the start,
//! so a slow disk costs captures and never time.
//!
//! The format is that of draft-ietf-opsawg-pcap with nanoseconds, link type Ethernet. A frame's time is when its last bit
//! left the port by the network's own clock, exactly, however late the switch was; the calendar's time is added once, at the
//! start, so that no clock that is set meanwhile can bend it.
//!
//! Not here: frames that never left (drops, cuts), and what happens on links behind the ports (loss, duplicates).

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::{self, JoinHandle};

use headwater_fabric::LinkId;
use headwater_units::{Duration, Time};

use super::buffer::MAX_FRAME;
use super::fabric::Tap;
use super::frame::RawFrame;

/// Bytes of a frame that are kept unless told otherwise: all headers, those of the datagrams in them too.
pub const SNAP: usize = 128;

/// Bytes of a chunk: several of the longest records.
const CHUNK: usize = 1 << 16;
/// Chunks there are, 16 MiB in all: more than half a second of 200,000 short records a second.
const CHUNKS: usize = 256;
/// Age at which kept frames are handed over in a quiet moment, so that a reader of the files meanwhile sees them.
const STALE: Duration = Duration::from_millis(100);
/// How often the writer looks for full chunks. It is not woken, since that would cost the switch a system call.
const LOOK: std::time::Duration = std::time::Duration::from_millis(5);
/// Number of bytes from which on the writer appends to a file; with fewer it does so when it has nothing else to do.
const APPEND: usize = 1 << 15;

/// Magic number of files with nanoseconds; written in our order of bytes, little-endian, as all that follows.
const MAGIC: u32 = 0xa1b2_3c4d;
const VERSION: [u16; 2] = [2, 4];
const ETHERNET: u32 = 1;
/// Of a record: seconds, nanoseconds, bytes kept, bytes there were; before these stands its link in a chunk.
const RECORD: usize = 16;
const LINK: usize = 4;

/// How many frames were kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CaptureCounts {
    /// Kept.
    pub frames: u64,
    /// Not kept: the writer did not keep up, or had failed.
    pub missed: u64,
}

/// The files, and the thread that writes them until its [`Recorder`] is gone. Dropping it waits for that.
#[derive(Debug)]
pub struct Capture {
    writer: Option<JoinHandle<io::Result<()>>>,
}

impl Capture {
    /// Creates the folder and an empty file for each link, `<name>.pcap`; files of that name are replaced.
    ///
    /// Characters that no file name should contain become `_`, and a name that is taken gets a number. Of each frame at
    /// most the first `snap` bytes are kept.
    ///
    /// # Errors
    /// The system's, when it creates a file or a thread.
    pub fn start(
        folder: &Path,
        links: impl IntoIterator<Item = String>,
        snap: usize,
    ) -> io::Result<(Capture, Recorder)> {
        let snap = snap.clamp(1, MAX_FRAME);
        fs::create_dir_all(folder)?;
        let names = file_names(links);
        let files: Vec<PathBuf> = names.iter().map(|name| folder.join(name)).collect();
        files.iter().try_for_each(|file| File::create(file)?.write_all(&header(snap)))?;

        let (full, inbox) = sync_channel(CHUNKS);
        let (empties, empty) = sync_channel(CHUNKS);
        for _ in 0..CHUNKS {
            // Written to once, so that the switch does not meet pages that are not there yet.
            let mut bytes = vec![0xff; CHUNK];
            bytes.clear();
            empties.send(Chunk { bytes, since: Time::ZERO }).expect("there is room for all");
        }
        let writer = Writer { buffers: vec![Vec::new(); files.len()], files };
        let writer =
            thread::Builder::new().name("capture".to_owned()).spawn(move || writer.run(&inbox, &empties))?;
        let recorder =
            Recorder { snap, zero_ns: 0, chunk: None, full, empty, counts: CaptureCounts::default() };
        Ok((Capture { writer: Some(writer) }, recorder))
    }

    /// Waits until all is written; its recorder is gone or will soon be.
    ///
    /// # Errors
    /// Of the first write that failed: the files end there.
    pub fn finish(mut self) -> io::Result<()> {
        self.join()
    }

    fn join(&mut self) -> io::Result<()> {
        let panicked = |_| Err(io::Error::other("the writer of captures has panicked"));
        self.writer.take().map_or(Ok(()), |writer| writer.join().unwrap_or_else(panicked))
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        // A caller that wants the result calls `finish`.
        let _ = self.join();
    }
}

/// Sink for frames as they leave. Belongs to the thread that moves them.
#[derive(Debug)]
pub struct Recorder {
    snap: usize,
    /// The calendar at time zero, in nanoseconds since 1970.
    zero_ns: u64,
    /// Where the next frame goes, if there is anything to go into.
    chunk: Option<Chunk>,
    full: SyncSender<Chunk>,
    empty: Receiver<Chunk>,
    counts: CaptureCounts,
}

/// Records of any links, one after another.
#[derive(Debug)]
struct Chunk {
    bytes: Vec<u8>,
    /// Of the first record.
    since: Time,
}

impl Recorder {
    /// Time zero was at `zero_ns` by the calendar, in nanoseconds since 1970.
    pub(super) fn begin(&mut self, zero_ns: u64) {
        self.zero_ns = zero_ns;
    }

    /// There is time to hand over what is old.
    pub(super) fn idle(&mut self, now: Time) {
        if self.chunk.as_ref().is_some_and(|chunk| now.since(chunk.since) >= STALE) {
            self.hand_over();
        }
    }

    pub(super) fn counts(&self) -> CaptureCounts {
        self.counts
    }

    fn keep(&mut self, link: LinkId, at: Time, frame: &[u8]) {
        let kept = frame.len().min(self.snap);
        if self.chunk.as_ref().is_some_and(|chunk| chunk.bytes.len() + LINK + RECORD + kept > CHUNK) {
            self.hand_over();
        }
        if self.chunk.is_none() {
            self.chunk = self.empty.try_recv().ok().map(|chunk| Chunk { since: at, ..chunk });
        }
        let Some(Chunk { bytes, .. }) = &mut self.chunk else {
            self.counts.missed += 1;
            return;
        };
        let since_1970 = self.zero_ns + at.as_nanos();
        let (seconds, nanos) = (since_1970 / 1_000_000_000, since_1970 % 1_000_000_000);
        for word in [link.0, seconds as u32, nanos as u32, kept as u32, frame.len() as u32] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend_from_slice(&frame[..kept]);
        self.counts.frames += 1;
    }

    fn hand_over(&mut self) {
        // There is room for all chunks; a writer that has failed takes none, and sends none back either.
        self.chunk.take().map(|chunk| self.full.try_send(chunk));
    }
}

impl Tap<RawFrame> for Recorder {
    #[inline]
    fn left(&mut self, link: LinkId, at: Time, frame: &RawFrame) {
        self.keep(link, at, frame.bytes());
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.hand_over();
    }
}

/// The thread's own. Files are opened for each append: there may be more of them than a process may have open.
struct Writer {
    /// By link.
    files: Vec<PathBuf>,
    /// Bytes still to be appended to them.
    buffers: Vec<Vec<u8>>,
}

impl Writer {
    #[allow(clippy::disallowed_methods, reason = "a thread of its own, which has nothing to do but to wait")]
    fn run(mut self, inbox: &Receiver<Chunk>, empties: &SyncSender<Chunk>) -> io::Result<()> {
        loop {
            match inbox.try_recv() {
                Ok(mut chunk) => {
                    self.sort(&chunk.bytes)?;
                    chunk.bytes.clear();
                    // A recorder that is gone needs none.
                    let _ = empties.try_send(chunk);
                }
                Err(TryRecvError::Empty) => {
                    self.append(1)?;
                    thread::sleep(LOOK);
                }
                Err(TryRecvError::Disconnected) => return self.append(1),
            }
        }
    }

    /// Puts the records of a chunk where they belong.
    fn sort(&mut self, mut records: &[u8]) -> io::Result<()> {
        let word = |bytes: &[u8], at: usize| {
            u32::from_le_bytes(bytes[at..at + 4].try_into().expect("a slice of four bytes"))
        };
        while !records.is_empty() {
            let (link, kept) = (word(records, 0), word(records, LINK + 8));
            let (record, rest) = records.split_at(LINK + RECORD + kept as usize);
            self.buffers[link as usize].extend_from_slice(&record[LINK..]);
            records = rest;
        }
        self.append(APPEND)
    }

    /// Writes what has come together for files that have at least `least` bytes of it.
    fn append(&mut self, least: usize) -> io::Result<()> {
        for (file, bytes) in
            self.files.iter().zip(&mut self.buffers).filter(|(_, bytes)| bytes.len() >= least)
        {
            OpenOptions::new().append(true).open(file)?.write_all(bytes)?;
            bytes.clear();
        }
        Ok(())
    }
}

/// Header of a file.
fn header(snap: usize) -> Vec<u8> {
    let mut bytes = MAGIC.to_le_bytes().to_vec();
    bytes.extend(VERSION.map(u16::to_le_bytes).as_flattened());
    // Two fields that are reserved today, how much of a frame there is at most, and what frames are.
    bytes.extend([0, 0, snap as u32, ETHERNET].map(u32::to_le_bytes).as_flattened());
    bytes
}

fn file_names(links: impl IntoIterator<Item = String>) -> Vec<String> {
    let fit = |c: char| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '_' };
    let mut taken = BTreeSet::new();
    let mut name = |link: String| {
        let base: String = link.chars().map(fit).collect();
        let numbered = (2..).map(|number| format!("{base}-{number}"));
        let mut names = std::iter::once(base.clone()).chain(numbered);
        let name = names.find(|name| taken.insert(name.clone())).expect("numbers do not end");
        name + ".pcap"
    };
    links.into_iter().map(&mut name).collect()
}

#[cfg(test)]
mod tests;
