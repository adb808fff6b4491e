//! An object in reception: blocks are verified, then written; a killed process loses none that was finished.
//!
//! ```text
//! folder/.NAME.0123456789abcdef.partial     sparse, beside the destination, locked by the process that works on it
//! STATE/partial/<key>.partial               id, size, block hashes, destination (see partial_record.rs)
//! folder/NAME                               appears by one rename, when every block is here and on disk
//! ```
//! A block is here if and only if its bytes in the data file have its hash. Nothing else says so: on resume the parts
//! of the file that are not holes are hashed again, so a torn write, a power cut or a flipped bit costs that block
//! only. Long runs of zeros stay holes; of a block that is nothing but zeros the first page is written all the same, so that a
//! resume looks at it, and given back at the end.
//!
//! Blocks that came go to the disk while others come ([`Partial::write_out`]), so that the end does not wait for all of them at once.
//!
//! There is no preallocation; free space is compared with what is still needed at the start, and a disk that fills up
//! later gives an error that keeps everything resumable.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use headwater_units::{BlockIndex, Bytes, ObjectId};

use crate::disk::{self, TempFile};
use crate::partial_record::{self, PartialList, PartialPaths, PartialSpec};
use crate::source_file::read_block_at;
use crate::{BlockHashes, BlockMap, SourceFile, StoreError};

/// How often opening is tried again when the data file is renamed away between opening and locking it.
const OPEN_ATTEMPTS: u32 = 8;
/// Amount of data per write-out.
const WRITE_OUT: Bytes = Bytes::mib(2);

/// Bytes written for a block of zeros: a page.
const ZERO_MARK: usize = 4096;

/// How far a resume is: for a progress bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resuming {
    /// Blocks looked at so far.
    pub checked: u32,
    /// Of these, blocks that are here.
    pub here: u32,
    /// Blocks to look at.
    pub total: u32,
}

/// An object in reception. Shared by reference between worker threads; dropping it keeps everything for a resume.
#[derive(Debug)]
pub struct Partial {
    spec: PartialSpec,
    wanted: Range<u32>,
    paths: PartialPaths,
    data: File,
    /// Held while a block is written. A file system lets one in at a time anyhow, but those who wait there keep a core
    /// busy: with two workers on fresh pages of a tmpfs that was a quarter of the receiver's CPU time.
    writing: Mutex<()>,
    have: BlockMap,
    /// Where the data file had other bytes than the block's when it was opened: what is written there leaves nothing out.
    stale: BlockMap,
    /// Those of which only the mark is written.
    zero: BlockMap,
    /// Bytes of blocks that were written since the disk was last told to begin with them.
    not_out: AtomicU64,
    finished: Mutex<bool>,
}

impl Partial {
    /// Begins a transfer or goes on with one, whatever a killed process left: blocks that verify are kept, all else is
    /// fetched again. `progress` hears about blocks found in the data file.
    ///
    /// # Errors
    /// [`StoreError::Busy`] while another process works on the same destination, [`StoreError::DestinationExists`],
    /// [`StoreError::BadDestination`], [`StoreError::BadRange`], [`StoreError::DiskFull`] if what is missing cannot
    /// fit, [`StoreError::Io`].
    pub fn open_or_create(
        mut spec: PartialSpec,
        progress: &mut dyn FnMut(Resuming),
    ) -> Result<Self, StoreError> {
        for path in [&mut spec.destination, &mut spec.state_folder] {
            *path = std::path::absolute(&*path).map_err(|e| StoreError::io("find", path, e))?;
        }
        let wanted = wanted(&mut spec)?;
        let bad = |reason| StoreError::BadDestination { path: spec.destination.clone(), reason };
        check_destination(&spec)?;
        let paths = PartialPaths::of(spec.hashes.root(), &spec.destination, &spec.state_folder)
            .ok_or_else(|| bad("it has no file name"))?;
        let data = open_locked(&paths.data)?;
        let blocks = spec.hashes.layout().block_count();
        let partial = Partial {
            spec,
            wanted,
            paths,
            data,
            writing: Mutex::new(()),
            have: BlockMap::new(blocks),
            stale: BlockMap::new(blocks),
            zero: BlockMap::new(blocks),
            not_out: AtomicU64::new(0),
            finished: Mutex::new(false),
        };
        match partial.prepare(progress) {
            Ok(()) => Ok(partial),
            Err(e) => {
                // A transfer that never began leaves nothing behind.
                if partial.have.count() == 0 && !partial.paths.record.exists() {
                    _ = std::fs::remove_file(&partial.paths.data);
                }
                Err(e)
            }
        }
    }

    fn prepare(&self, progress: &mut dyn FnMut(Resuming)) -> Result<(), StoreError> {
        self.resume(progress)?;
        disk::check_space(&self.spec.destination, self.needed())?;
        let state = &self.spec.state_folder;
        std::fs::create_dir_all(state).map_err(|e| StoreError::io("create folder", state, e))?;
        partial_record::write(&self.spec, &self.paths)
    }

    /// The transfers written down in a state folder, with all that is needed to go on with each.
    ///
    /// # Errors
    /// [`StoreError::Io`]; a damaged record is not an error but in the list.
    pub fn list(state_folder: &Path) -> Result<PartialList, StoreError> {
        partial_record::list(state_folder)
    }

    /// Verifies what is in the data file.
    fn resume(&self, progress: &mut dyn FnMut(Resuming)) -> Result<(), StoreError> {
        let size = self.spec.hashes.size().get();
        let fail = |e| StoreError::io_writing("write", &self.paths.data, self.needed(), e);
        let len = self.data.metadata().map_err(fail)?.len();
        if len != size {
            self.data.set_len(size).map_err(fail)?;
        }
        let mut candidates: Vec<Range<u32>> = Vec::new();
        for extent in disk::data_extents(&self.data, size.min(len)) {
            let layout = self.spec.hashes.layout();
            let blocks = layout.covering(Bytes::new(extent.start), Bytes::new(extent.end));
            match candidates.last_mut() {
                Some(last) if blocks.start <= last.end => last.end = last.end.max(blocks.end),
                _ => candidates.push(blocks),
            }
        }
        let total = candidates.iter().map(|r| r.end - r.start).sum();
        let mut buffer = Vec::new();
        for (block, checked) in candidates.into_iter().flatten().map(BlockIndex).zip(1..) {
            // A bad sector is a block that is not here.
            let read = self.read_any(block, &mut buffer);
            if read.is_ok() && self.spec.hashes.verify_block(block, &buffer) {
                if disk::is_zero(&buffer) {
                    self.zero.insert(block);
                }
                self.have.insert(block);
            } else {
                self.stale.insert(block);
            }
            progress(Resuming { checked, here: self.have.count(), total });
        }
        Ok(())
    }

    /// Verifies a block and writes it. True if it is new, false if it was here already (then the bytes are not looked
    /// at). May be called by several threads at once, for the same block, too.
    ///
    /// # Errors
    /// [`StoreError::BlockMismatch`]: nothing was written, blame who sent it. [`StoreError::NoSuchBlock`] outside
    /// [`Partial::wanted`]. [`StoreError::DiskFull`]: everything stays resumable, and the same call works again once
    /// there is room. [`StoreError::Io`].
    pub fn write_block(&self, block: BlockIndex, bytes: &[u8]) -> Result<bool, StoreError> {
        if !self.wanted.contains(&block.0) {
            return Err(StoreError::NoSuchBlock { block, wanted: self.wanted.clone() });
        }
        if self.have.contains(block) {
            return Ok(false);
        }
        if !self.spec.hashes.verify_block(block, bytes) {
            return Err(StoreError::BlockMismatch { block });
        }
        let offset = self.spec.hashes.layout().offset(block).get();
        let written = {
            let _alone = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
            if self.stale.contains(block) {
                self.data.write_all_at(bytes, offset)
            } else if disk::is_zero(bytes) {
                self.zero.insert(block);
                self.data.write_all_at(&bytes[..bytes.len().min(ZERO_MARK)], offset)
            } else {
                disk::write_sparse(&self.data, bytes, offset)
            }
        };
        written.map_err(|e| StoreError::io_writing("write", &self.paths.data, self.needed(), e))?;
        self.not_out.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        Ok(self.have.insert(block))
    }

    /// Has the disk begin with what was written, if that is enough to be worth it. For a caller that will
    /// [`Partial::finish`] this: the last sync then waits for the last blocks, not for the whole object. Returns at
    /// once unless the disk has more to do than it takes in.
    pub fn write_out(&self) {
        let not_out = self.not_out.load(Ordering::Relaxed);
        // Of several threads one does it.
        if not_out >= WRITE_OUT.get()
            && self.not_out.compare_exchange(not_out, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            disk::begin_to_write_out(&self.data);
        }
    }

    /// Reads a block that is here into `buffer`, which takes its length. The bytes were verified when they came.
    ///
    /// # Errors
    /// [`StoreError::BlockMissing`], [`StoreError::Io`].
    pub fn read_block(&self, block: BlockIndex, buffer: &mut Vec<u8>) -> Result<(), StoreError> {
        if !self.have.contains(block) {
            return Err(StoreError::BlockMissing { block });
        }
        self.read_any(block, buffer)
    }

    fn read_any(&self, block: BlockIndex, buffer: &mut Vec<u8>) -> Result<(), StoreError> {
        read_block_at(&self.data, &self.paths.data, self.spec.hashes.layout(), block, buffer)
    }

    /// Which blocks are here; those outside [`Partial::wanted`] come from an earlier transfer.
    pub fn have(&self) -> &BlockMap {
        &self.have
    }
    /// The blocks this transfer needs: all, or those that cover the range.
    pub fn wanted(&self) -> Range<u32> {
        self.wanted.clone()
    }
    /// The wanted blocks that are not here, ascending.
    pub fn missing(&self) -> impl Iterator<Item = BlockIndex> + '_ {
        self.have.missing(self.wanted())
    }
    /// The object, and what verifies its blocks.
    pub fn hashes(&self) -> &BlockHashes {
        &self.spec.hashes
    }
    /// The object's id.
    pub fn id(&self) -> ObjectId {
        self.spec.hashes.root()
    }
    /// The specification as opened: paths absolute, the range clipped to the object.
    pub fn spec(&self) -> &PartialSpec {
        &self.spec
    }
    /// The hidden file with the blocks.
    pub fn data_path(&self) -> &Path {
        &self.paths.data
    }

    /// Bytes still to be written until the end.
    fn needed(&self) -> Bytes {
        let layout = self.spec.hashes.layout();
        let range = self.spec.range.as_ref().map_or(0, |r| r.end - r.start);
        self.missing().map(|b| layout.len(b)).sum::<Bytes>() + Bytes::new(range)
    }

    /// Gives the object (or the range of it) its final name, with its bytes on disk first, and forgets the transfer.
    /// Blocks can still be read back afterwards.
    ///
    /// # Errors
    /// Nothing is lost by any of them; the call may be repeated. [`StoreError::Incomplete`],
    /// [`StoreError::DestinationExists`] if a file appeared there meanwhile, [`StoreError::DiskFull`],
    /// [`StoreError::Io`].
    pub fn finish(&self) -> Result<PathBuf, StoreError> {
        let destination = &self.spec.destination;
        // From here no block is written: all that may be written are here.
        let mut finished = self.finished.lock().unwrap_or_else(PoisonError::into_inner);
        if *finished {
            return Ok(destination.clone());
        }
        let missing = self.missing().count() as u32;
        if missing > 0 {
            let wanted = self.wanted.end - self.wanted.start;
            return Err(StoreError::Incomplete { missing, wanted });
        }
        match &self.spec.range {
            Some(range) => {
                self.write_range(range)?;
                *finished = true;
                disk::remove_if_there(&self.paths.data)?;
            }
            None => {
                self.give_back_zeros();
                self.data.sync_all().map_err(|e| {
                    // Pages that could not be written count as clean now; a resume must see the disk, not them.
                    disk::drop_cache(&self.data);
                    StoreError::io_writing("sync", &self.paths.data, self.spec.hashes.size(), e)
                })?;
                disk::rename(&self.paths.data, destination, self.spec.overwrite)?;
                *finished = true;
                disk::sync_folder(disk::parent(destination))?;
            }
        }
        disk::remove_if_there(&self.paths.record)?;
        Ok(destination.clone())
    }

    /// Makes holes of the blocks that are nothing but zeros.
    fn give_back_zeros(&self) {
        let layout = self.spec.hashes.layout();
        let mut runs: Vec<Range<u64>> = Vec::new();
        for block in self.zero.here(0..self.zero.blocks()) {
            let start = layout.offset(block).get();
            let end = start + layout.len(block).get();
            match runs.last_mut() {
                Some(last) if last.end == start => last.end = end,
                _ => runs.push(start..end),
            }
        }
        runs.into_iter().for_each(|run| disk::punch_hole(&self.data, run));
    }

    /// Puts the bytes of a range together and renames them to the destination. Every block is verified on its way.
    fn write_range(&self, range: &Range<u64>) -> Result<(), StoreError> {
        disk::remove_if_there(&self.paths.range)?;
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&self.paths.range);
        let file = file.map_err(|e| StoreError::io("create", &self.paths.range, e))?;
        let temp = TempFile::adopt(self.paths.range.clone(), file);
        let layout = self.spec.hashes.layout();
        let mut buffer = Vec::new();
        for block in self.wanted().map(BlockIndex) {
            self.read_any(block, &mut buffer)?;
            if !self.spec.hashes.verify_block(block, &buffer) {
                return Err(StoreError::BlockMismatch { block });
            }
            let start = layout.offset(block).get();
            let end = start + layout.len(block).get();
            let (from, to) = (range.start.max(start), range.end.min(end));
            let part = &buffer[(from - start) as usize..(to - start) as usize];
            let written = disk::write_sparse(temp.file(), part, from - range.start);
            let needed = Bytes::new(range.end - from);
            written.map_err(|e| StoreError::io_writing("write", &self.paths.range, needed, e))?;
        }
        let len = range.end - range.start;
        temp.file().set_len(len).map_err(|e| StoreError::io("write", &self.paths.range, e))?;
        temp.persist(&self.spec.destination, self.spec.overwrite)
    }

    /// Takes missing blocks from a file of this machine that holds the object, or parts of it at their places: shared copy on write
    /// where the file system can, else copied. A block counts only once its bytes in the data file have its hash; others stay missing.
    /// Returns what was taken; `progress` hears it block by block.
    ///
    /// # Errors
    /// [`StoreError::DiskFull`]. A part that cannot be read is only not taken.
    pub fn fill_from(
        &self,
        source: &SourceFile,
        progress: &mut dyn FnMut(Bytes),
    ) -> Result<Bytes, StoreError> {
        let layout = self.spec.hashes.layout();
        let missing: Vec<BlockIndex> = self.missing().collect();
        let (mut buffer, mut taken) = (Vec::new(), Bytes::ZERO);
        for block in missing {
            let (offset, len) = (layout.offset(block), layout.len(block));
            if offset + len > source.size() {
                break;
            }
            match disk::copy_range(source.file(), &self.data, offset.get(), len.get()) {
                Err(e) if matches!(e.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) => {
                    return Err(StoreError::io_writing("write", &self.paths.data, self.needed(), e));
                }
                Err(_) => continue,
                Ok(()) => {}
            }
            // The copy is checked, not its origin: that could have changed in between.
            if self.read_any(block, &mut buffer).is_ok() && self.spec.hashes.verify_block(block, &buffer) {
                self.have.insert(block);
                taken += len;
                self.not_out.fetch_add(len.get(), Ordering::Relaxed);
                self.write_out();
                progress(taken);
            }
        }
        Ok(taken)
    }

    /// Gives the transfer up and removes all traces of it.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn discard(self) -> Result<(), StoreError> {
        self.remove()
    }

    /// As [`Partial::discard`], while others may still read what came.
    ///
    /// # Errors
    /// [`StoreError::Io`].
    pub fn remove(&self) -> Result<(), StoreError> {
        if !*self.finished.lock().unwrap_or_else(PoisonError::into_inner) {
            disk::remove_if_there(&self.paths.data)?;
            disk::remove_if_there(&self.paths.range)?;
        }
        disk::remove_if_there(&self.paths.record)
    }
}

/// The blocks that cover the range, which is clipped to the object.
fn wanted(spec: &mut PartialSpec) -> Result<Range<u32>, StoreError> {
    let size = spec.hashes.size().get();
    let Some(range) = &mut spec.range else { return Ok(0..spec.hashes.layout().block_count()) };
    let (from, to) = (range.start, range.end);
    range.end = to.min(size);
    if range.start >= range.end {
        return Err(StoreError::BadRange { from, to, size });
    }
    Ok(spec.hashes.layout().covering(Bytes::new(range.start), Bytes::new(range.end)))
}

fn check_destination(spec: &PartialSpec) -> Result<(), StoreError> {
    let path = spec.destination.clone();
    if !disk::parent(&path).is_dir() {
        return Err(StoreError::BadDestination {
            path,
            reason: "its folder does not exist: create it first",
        });
    }
    match path.symlink_metadata() {
        Ok(there) if there.is_dir() => {
            Err(StoreError::BadDestination { path, reason: "it is a folder: name a file in it" })
        }
        Ok(_) if !spec.overwrite => Err(StoreError::DestinationExists { path }),
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(StoreError::io("look at", &path, e)),
        _ => Ok(()),
    }
}

/// Opens the data file for this process alone. The lock is on the file itself, so that it also holds against
/// processes with another state folder.
fn open_locked(path: &Path) -> Result<File, StoreError> {
    for _ in 0..OPEN_ATTEMPTS {
        let no_follow = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).custom_flags(no_follow);
        let file = options.open(path).map_err(|e| StoreError::io("open", path, e))?;
        let locked = file.metadata().map_err(|e| StoreError::io("look at", path, e))?;
        if !locked.is_file() {
            return Err(StoreError::NotAFile { path: path.to_owned() });
        }
        disk::lock(&file, path)?;
        // The last holder of the lock may just have given the file its final name, or removed it.
        match path.symlink_metadata() {
            Ok(named) if (named.dev(), named.ino()) == (locked.dev(), locked.ino()) => return Ok(file),
            _ => {}
        }
    }
    Err(StoreError::Busy { path: path.to_owned() })
}
