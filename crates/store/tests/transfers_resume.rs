//! Objects in reception: whatever happens in between, the right bytes appear under the final name, or nothing does.

use std::fs::{self, File};
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;

use headwater_store::{BlockHashes, Partial, PartialSpec, SourceFile, StoreError, tree};
use headwater_units::{BlockIndex, Bytes};
use proptest::prelude::*;
use tempfile::TempDir;

const BLOCK: usize = 256 << 10;

fn content(len: usize, seed: u64) -> Vec<u8> {
    (0..len as u64).map(|i| ((i + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 29) as u8).collect()
}

struct Transfer {
    folder: TempDir,
    bytes: Vec<u8>,
    hashes: BlockHashes,
}

impl Transfer {
    fn of(len: usize) -> Self {
        Self::of_bytes(content(len, len as u64))
    }
    fn of_bytes(bytes: Vec<u8>) -> Self {
        let hashes = BlockHashes::of_bytes(&bytes);
        Transfer { folder: tempfile::tempdir().unwrap(), bytes, hashes }
    }
    fn destination(&self) -> PathBuf {
        self.folder.path().join("out.bin")
    }
    fn state_folder(&self) -> PathBuf {
        self.folder.path().join("state/partial")
    }
    fn spec(&self) -> PartialSpec {
        PartialSpec {
            hashes: self.hashes.clone(),
            destination: self.destination(),
            state_folder: self.state_folder(),
            range: None,
            overwrite: false,
        }
    }
    fn open(&self) -> Partial {
        Partial::open_or_create(self.spec(), &mut |_| {}).unwrap()
    }
    fn open_range(&self, range: Range<u64>) -> Result<Partial, StoreError> {
        Partial::open_or_create(PartialSpec { range: Some(range), ..self.spec() }, &mut |_| {})
    }
    fn block(&self, block: BlockIndex) -> &[u8] {
        let layout = self.hashes.layout();
        let start = layout.offset(block).get() as usize;
        &self.bytes[start..start + layout.len(block).get() as usize]
    }
    fn write(&self, partial: &Partial, block: u32) -> bool {
        let new = partial.write_block(BlockIndex(block), self.block(BlockIndex(block))).unwrap();
        partial.write_out();
        new
    }
    fn write_missing(&self, partial: &Partial) -> usize {
        let missing: Vec<_> = partial.missing().collect();
        missing.iter().for_each(|b| assert!(self.write(partial, b.0)));
        missing.len()
    }
    fn data_path(&self) -> PathBuf {
        let id = self.hashes.root().to_string();
        self.folder.path().join(format!(".out.bin.{}.partial", &id[..16]))
    }
    fn record_path(&self) -> PathBuf {
        let found: Vec<_> = fs::read_dir(self.state_folder()).unwrap().collect();
        assert_eq!(found.len(), 1);
        found[0].as_ref().unwrap().path()
    }
    /// Nothing but the destination is left.
    fn assert_clean(&self) {
        let mut names: Vec<_> =
            fs::read_dir(self.folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["out.bin", "state"]);
        assert_eq!(fs::read_dir(self.state_folder()).unwrap().count(), 0);
    }
}

#[test]
fn sizes_at_every_edge_arrive() {
    for len in [0, 1, 1023, 1024, 1025, BLOCK - 1, BLOCK, BLOCK + 1, 5 * BLOCK, 5 * BLOCK + 77, 20 * BLOCK] {
        let t = Transfer::of(len);
        let partial = t.open();
        t.write_missing(&partial);
        assert_eq!(partial.finish().unwrap(), t.destination());
        assert_eq!(partial.finish().unwrap(), t.destination());
        assert_eq!(fs::read(t.destination()).unwrap(), t.bytes);
        drop(partial);
        t.assert_clean();
    }
}

/// Zeros around a little content: an image of a disk.
fn sparse(blocks: usize) -> Vec<u8> {
    let mut bytes = vec![0; blocks * BLOCK + 1000];
    let middle = blocks / 2 * BLOCK + BLOCK / 2;
    bytes[middle..middle + 5000].copy_from_slice(&content(5000, 1));
    bytes
}

fn on_disk(path: &std::path::Path) -> u64 {
    fs::metadata(path).unwrap().blocks() * 512
}

#[test]
fn zeros_stay_holes_and_are_known_as_here_when_a_transfer_goes_on() {
    let t = Transfer::of_bytes(sparse(32));
    let partial = t.open();
    (0..20).for_each(|block| assert!(t.write(&partial, block)));
    drop(partial);
    let partial = t.open();
    assert_eq!(partial.have().count(), 20, "blocks of zeros are not fetched again");
    assert_eq!(t.write_missing(&partial), 13);
    partial.finish().unwrap();
    assert!(fs::read(t.destination()).unwrap() == t.bytes);
    let taken = on_disk(&t.destination());
    assert!(taken <= 128 << 10, "{taken} bytes are taken by 5000 that are not zero");
}

#[test]
fn a_range_of_a_sparse_object_is_sparse_to_its_end() {
    let t = Transfer::of_bytes(sparse(32));
    let (from, to) = (10 * BLOCK + 5, 31 * BLOCK - 5);
    let partial = t.open_range(from as u64..to as u64).unwrap();
    t.write_missing(&partial);
    partial.finish().unwrap();
    assert!(fs::read(t.destination()).unwrap() == t.bytes[from..to]);
    assert!(on_disk(&t.destination()) <= 256 << 10);
}

#[test]
fn zeros_replace_what_else_was_in_the_file() {
    let t = Transfer::of_bytes(sparse(8));
    fs::write(t.data_path(), vec![0xaa; t.bytes.len()]).unwrap();
    let partial = t.open();
    assert_eq!(partial.have().count(), 0);
    t.write_missing(&partial);
    partial.finish().unwrap();
    assert!(fs::read(t.destination()).unwrap() == t.bytes);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// A kill is a drop without a finish: the kernel keeps what was written, as it does after SIGKILL.
    #[test]
    fn a_transfer_killed_at_random_moments_keeps_every_finished_block(
        len in 1usize..12 * BLOCK,
        order in proptest::collection::vec((any::<u32>(), 0u8..8), 1..60),
    ) {
        let t = Transfer::of(len);
        let count = t.hashes.layout().block_count();
        let mut written = std::collections::BTreeSet::new();
        let mut partial = t.open();
        for (pick, dice) in order {
            let block = pick % count;
            match dice {
                0 => {
                    drop(partial);
                    partial = t.open();
                    let here: Vec<u32> = partial.have().here(0..count).map(|b| b.0).collect();
                    prop_assert_eq!(here, written.iter().copied().collect::<Vec<_>>());
                }
                1 => {
                    let mut bad = t.block(BlockIndex(block)).to_vec();
                    let at = pick as usize % bad.len();
                    bad[at] ^= 0x10;
                    let refused = partial.write_block(BlockIndex(block), &bad);
                    let here = written.contains(&block);
                    prop_assert!(matches!(refused, Ok(false)) == here);
                    let blamed = matches!(refused, Err(StoreError::BlockMismatch { .. }));
                    prop_assert!(here || blamed);
                }
                _ => prop_assert_eq!(t.write(&partial, block), written.insert(block)),
            }
            prop_assert!(!t.destination().exists());
        }
        let missing = count - written.len() as u32;
        if missing > 0 {
            let early = partial.finish();
            let incomplete = matches!(early, Err(StoreError::Incomplete { missing: m, .. }) if m == missing);
            prop_assert!(incomplete);
            prop_assert!(!t.destination().exists());
        }
        prop_assert_eq!(t.write_missing(&partial), missing as usize);
        partial.finish().unwrap();
        prop_assert_eq!(&fs::read(t.destination()).unwrap(), &t.bytes);
        t.assert_clean();
    }

    #[test]
    fn any_byte_range_is_delivered_alone(len in 1usize..6 * BLOCK, a in any::<usize>(), b in any::<usize>()) {
        let t = Transfer::of(len);
        let (a, b) = (a % len, b % (len + 1));
        let range = a.min(b)..a.max(b).max(a.min(b) + 1);
        let partial = t.open_range(range.start as u64..range.end as u64).unwrap();
        prop_assert_eq!(partial.wanted(), (range.start / BLOCK) as u32..range.end.div_ceil(BLOCK) as u32);
        if partial.wanted().end < t.hashes.layout().block_count() {
            let outside = BlockIndex(partial.wanted().end);
            let refused = partial.write_block(outside, t.block(outside));
            let no_such_block = matches!(refused, Err(StoreError::NoSuchBlock { .. }));
            prop_assert!(no_such_block);
        }
        t.write_missing(&partial);
        partial.finish().unwrap();
        prop_assert_eq!(&fs::read(t.destination()).unwrap(), &t.bytes[range]);
        drop(partial);
        t.assert_clean();
    }
}

#[test]
fn bytes_that_were_damaged_on_disk_are_fetched_again() {
    let t = Transfer::of(6 * BLOCK + 5);
    let partial = t.open();
    t.write_missing(&partial);
    drop(partial);
    let data = File::options().write(true).open(t.data_path()).unwrap();
    data.write_all_at(b"!", 2 * BLOCK as u64 + 99).unwrap();
    data.write_all_at(b"!", 6 * BLOCK as u64 + 4).unwrap();

    let mut heard = Vec::new();
    let partial = Partial::open_or_create(t.spec(), &mut |r| heard.push(r)).unwrap();
    assert_eq!(partial.missing().map(|b| b.0).collect::<Vec<_>>(), [2, 6]);
    let last = heard.last().unwrap();
    assert_eq!((heard.len(), last.checked, last.here, last.total), (7, 7, 5, 7));
    t.write_missing(&partial);
    partial.finish().unwrap();
    assert_eq!(fs::read(t.destination()).unwrap(), t.bytes);
}

#[test]
fn a_truncated_grown_or_garbage_data_file_costs_only_what_is_wrong() {
    let t = Transfer::of(4 * BLOCK);
    let partial = t.open();
    t.write_missing(&partial);
    drop(partial);
    let data = File::options().write(true).open(t.data_path()).unwrap();
    data.set_len(2 * BLOCK as u64 + 1).unwrap();
    assert_eq!(t.open().missing().map(|b| b.0).collect::<Vec<_>>(), [2, 3]);
    data.set_len(100 * BLOCK as u64).unwrap();
    assert_eq!(t.open().have().count(), 2);
    fs::write(t.data_path(), content(4 * BLOCK + 1, 12345)).unwrap();
    assert_eq!(t.open().have().count(), 0);
    fs::remove_file(t.data_path()).unwrap();
    let partial = t.open();
    assert_eq!(t.write_missing(&partial), 4);
    partial.finish().unwrap();
    assert_eq!(fs::read(t.destination()).unwrap(), t.bytes);
}

#[test]
fn a_garbage_record_is_found_out_and_costs_no_block() {
    let t = Transfer::of(3 * BLOCK);
    let partial = t.open();
    t.write(&partial, 1);
    drop(partial);
    let whole = fs::read(t.record_path()).unwrap();
    for damage in [&b"garbage"[..], &[], &whole[..whole.len() - 1], &whole[1..]] {
        fs::write(t.record_path(), damage).unwrap();
        let list = Partial::list(&t.state_folder()).unwrap();
        assert_eq!((list.partials.len(), list.damaged), (0, vec![t.record_path()]));
        assert_eq!(t.open().have().count(), 1);
        assert_eq!(Partial::list(&t.state_folder()).unwrap().partials.len(), 1);
    }
    let partial = t.open();
    t.write_missing(&partial);
    partial.finish().unwrap();
    t.assert_clean();
}

#[test]
fn a_transfer_goes_on_from_what_is_written_down() {
    let t = Transfer::of(3 * BLOCK);
    assert!(Partial::list(&t.state_folder()).unwrap().partials.is_empty());
    let partial = t.open_range(10..2 * BLOCK as u64).unwrap();
    t.write(&partial, 0);
    drop(partial);

    let list = Partial::list(&t.state_folder()).unwrap();
    let [info] = &list.partials[..] else { panic!("{list:?}") };
    assert_eq!((&info.spec.hashes, &info.spec.destination), (&t.hashes, &t.destination()));
    assert!(info.on_disk >= Bytes::new(BLOCK as u64));
    let partial = Partial::open_or_create(info.spec.clone(), &mut |_| {}).unwrap();
    assert_eq!(partial.missing().collect::<Vec<_>>(), [BlockIndex(1)]);
    assert!(matches!(info.discard(), Err(StoreError::Busy { .. })));
    drop(partial);
    info.discard().unwrap();
    assert!(!t.data_path().exists() && Partial::list(&t.state_folder()).unwrap().partials.is_empty());
}

#[test]
fn a_record_left_by_a_kill_after_the_rename_disappears() {
    let t = Transfer::of(1000);
    let partial = t.open();
    t.write_missing(&partial);
    let (path, record) = (t.record_path(), fs::read(t.record_path()).unwrap());
    partial.finish().unwrap();
    fs::write(&path, record).unwrap();
    assert!(Partial::list(&t.state_folder()).unwrap().partials.is_empty());
    t.assert_clean();
}

#[test]
fn a_range_grows_into_the_whole_without_losing_its_blocks() {
    let t = Transfer::of(5 * BLOCK);
    let partial = t.open_range(BLOCK as u64..3 * BLOCK as u64).unwrap();
    t.write_missing(&partial);
    drop(partial);
    let partial = t.open();
    assert_eq!(t.write_missing(&partial), 3);
    partial.finish().unwrap();
    assert_eq!(fs::read(t.destination()).unwrap(), t.bytes);
    t.assert_clean();
}

#[test]
fn ranges_without_a_byte_are_refused() {
    let t = Transfer::of(1000);
    for (from, to) in [(5, 5), (1000, 2000), (7, 3)] {
        assert!(matches!(t.open_range(from..to), Err(StoreError::BadRange { .. })));
    }
    assert_eq!(t.open_range(999..u64::MAX).unwrap().spec().range, Some(999..1000));
}

#[test]
fn one_process_at_a_time_works_on_a_destination() {
    let t = Transfer::of(1000);
    let first = t.open();
    let busy = |spec| matches!(Partial::open_or_create(spec, &mut |_| {}), Err(StoreError::Busy { .. }));
    assert!(busy(t.spec()));
    assert!(busy(PartialSpec { state_folder: t.folder.path().join("elsewhere"), ..t.spec() }));
    let other = PartialSpec { destination: t.folder.path().join("other"), ..t.spec() };
    assert!(!busy(other));
    drop(first);
    assert!(!busy(t.spec()));
}

#[test]
fn an_existing_file_is_replaced_only_when_asked_and_only_at_the_end() {
    let t = Transfer::of(BLOCK + 1);
    fs::write(t.destination(), "old").unwrap();
    let refused = Partial::open_or_create(t.spec(), &mut |_| {});
    assert!(matches!(refused, Err(StoreError::DestinationExists { .. })));
    let size = t.hashes.size();
    assert!(!tree::holds(&t.destination(), t.hashes.root(), size, &mut |_| {}).unwrap());

    let spec = PartialSpec { overwrite: true, ..t.spec() };
    let partial = Partial::open_or_create(spec, &mut |_| {}).unwrap();
    t.write_missing(&partial);
    assert_eq!(fs::read(t.destination()).unwrap(), b"old");
    partial.finish().unwrap();
    assert!(tree::holds(&t.destination(), t.hashes.root(), size, &mut |_| {}).unwrap());
    t.assert_clean();
}

#[test]
fn a_file_that_appears_meanwhile_is_not_replaced_and_the_blocks_stay() {
    for range in [None, Some(0..100u64)] {
        let t = Transfer::of(BLOCK + 1);
        let partial = Partial::open_or_create(PartialSpec { range, ..t.spec() }, &mut |_| {}).unwrap();
        t.write_missing(&partial);
        fs::write(t.destination(), "mine").unwrap();
        assert!(matches!(partial.finish(), Err(StoreError::DestinationExists { .. })));
        assert_eq!(fs::read(t.destination()).unwrap(), b"mine");
        fs::remove_file(t.destination()).unwrap();
        partial.finish().unwrap();
        t.assert_clean();
    }
}

#[test]
fn destinations_that_cannot_be_are_refused_before_anything_is_fetched() {
    let t = Transfer::of(1000);
    let refused = |destination: PathBuf| {
        let spec = PartialSpec { destination, ..t.spec() };
        Partial::open_or_create(spec, &mut |_| {}).unwrap_err()
    };
    assert!(matches!(refused(t.folder.path().to_owned()), StoreError::BadDestination { .. }));
    assert!(matches!(refused(t.folder.path().join("no/such")), StoreError::BadDestination { .. }));
    assert!(matches!(refused("/".into()), StoreError::BadDestination { .. }));
    assert!(matches!(refused(t.folder.path().join("n".repeat(300))), StoreError::Io { .. }));
    // The longest name there is works, though its hidden file must be named otherwise.
    let longest = t.folder.path().join("n".repeat(255));
    let spec = PartialSpec { destination: longest.clone(), ..t.spec() };
    let partial = Partial::open_or_create(spec, &mut |_| {}).unwrap();
    t.write_missing(&partial);
    assert_eq!(partial.finish().unwrap(), longest);
}

#[test]
fn a_data_file_that_is_a_link_is_not_followed() {
    let t = Transfer::of(1000);
    let victim = t.folder.path().join("victim");
    fs::write(&victim, "precious").unwrap();
    std::os::unix::fs::symlink(&victim, t.data_path()).unwrap();
    assert!(Partial::open_or_create(t.spec(), &mut |_| {}).is_err());
    assert_eq!(fs::read(victim).unwrap(), b"precious");
}

#[test]
fn workers_write_and_read_back_at_the_same_time() {
    let t = Transfer::of(40 * BLOCK + 3);
    let partial = t.open();
    let new: usize = std::thread::scope(|s| {
        let workers: Vec<_> = (0..4u32)
            .map(|w| {
                let (t, partial) = (&t, &partial);
                s.spawn(move || {
                    let mut buffer = Vec::new();
                    let new = (0..41).filter(|i| t.write(partial, (i * 7 + w * 10) % 41)).count();
                    for b in (0..41).map(BlockIndex) {
                        partial.read_block(b, &mut buffer).unwrap();
                        assert_eq!(buffer, t.block(b));
                    }
                    new
                })
            })
            .collect();
        workers.into_iter().map(|w| w.join().unwrap()).sum()
    });
    assert_eq!((new, partial.have().count()), (41, 41));
    partial.finish().unwrap();
    partial.read_block(BlockIndex(3), &mut Vec::new()).unwrap();
    assert_eq!(fs::read(t.destination()).unwrap(), t.bytes);
}

#[test]
fn a_block_that_is_not_here_cannot_be_read() {
    let t = Transfer::of(2 * BLOCK);
    let partial = t.open();
    t.write(&partial, 1);
    let read = partial.read_block(BlockIndex(0), &mut Vec::new());
    assert!(matches!(read, Err(StoreError::BlockMissing { .. })));
    let past = partial.write_block(BlockIndex(2), b"");
    assert!(matches!(past, Err(StoreError::NoSuchBlock { .. })));
}

#[test]
fn a_transfer_given_up_leaves_nothing() {
    let t = Transfer::of(2 * BLOCK);
    let partial = t.open();
    t.write(&partial, 1);
    partial.discard().unwrap();
    assert!(!t.data_path().exists());
    assert_eq!(fs::read_dir(t.state_folder()).unwrap().count(), 0);
}

#[test]
fn blocks_of_a_file_that_is_here_are_taken_over_and_rotten_ones_stay_missing() {
    let transfer = Transfer::of(5 * BLOCK + 100);
    let copy = transfer.folder.path().join("copy");
    let mut rotten = transfer.bytes.clone();
    rotten[2 * BLOCK + 7] ^= 1;
    fs::write(&copy, &rotten).unwrap();
    let partial = transfer.open();
    transfer.write(&partial, 4);
    let mut heard = Bytes::ZERO;
    let taken = partial.fill_from(&SourceFile::open(&copy).unwrap(), &mut |done| heard = done).unwrap();
    assert_eq!((taken, heard), (Bytes::new(3 * BLOCK as u64 + 100), taken));
    assert_eq!(partial.missing().collect::<Vec<_>>(), [BlockIndex(2)]);
    // A shorter file has the blocks that it has.
    fs::write(&copy, &transfer.bytes[..BLOCK + 1]).unwrap();
    assert_eq!(partial.fill_from(&SourceFile::open(&copy).unwrap(), &mut |_| {}).unwrap(), Bytes::ZERO);
    transfer.write(&partial, 2);
    assert_eq!(fs::read(partial.finish().unwrap()).unwrap(), transfer.bytes);
}
