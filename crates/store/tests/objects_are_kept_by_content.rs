//! Put, find, read and remove objects; quota; crashes; what others do to the files.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use headwater_store::{
    BlockHashes, Partial, Placed, Problem, PutMode, PutOptions, SourceFile, Store, StoreError, StoreOptions,
    Stored,
};
use headwater_units::{BlockIndex, Bytes, ObjectId};
use tempfile::TempDir;

fn content(len: usize, seed: u64) -> Vec<u8> {
    (0..len as u64).map(|i| ((i + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 29) as u8).collect()
}

struct Sandbox {
    folder: TempDir,
}

impl Sandbox {
    fn new() -> Self {
        Sandbox { folder: tempfile::tempdir().unwrap() }
    }
    fn file(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    }
    fn store_path(&self) -> PathBuf {
        self.folder.path().join("store")
    }
    fn open(&self) -> Store {
        Store::open(&self.store_path(), StoreOptions::default()).unwrap()
    }
    fn open_with_quota(&self, bytes: u64) -> Store {
        Store::open(&self.store_path(), StoreOptions { quota: Some(Bytes::new(bytes)) }).unwrap()
    }
    fn temp_files(&self) -> usize {
        fs::read_dir(self.store_path().join("tmp")).unwrap().count()
    }
    fn object_path(&self, id: ObjectId) -> PathBuf {
        self.store_path().join("objects").join(id.to_string())
    }
}

fn put(store: &Store, path: &Path, name: Option<&str>) -> Result<Stored, StoreError> {
    store.put(
        path,
        &PutOptions { name, added_unix_secs: 1_700_000_000, ..PutOptions::default() },
        &mut |_| {},
    )
}

fn read_all(source: &SourceFile, hashes: &BlockHashes) -> Vec<u8> {
    let (mut all, mut buffer) = (Vec::new(), Vec::new());
    for block in (0..hashes.layout().block_count()).map(BlockIndex) {
        source.read_block(block, &mut buffer).unwrap();
        assert!(hashes.verify_block(block, &buffer));
        all.extend_from_slice(&buffer);
    }
    all
}

#[test]
fn an_object_comes_back_byte_for_byte_after_a_restart() {
    let sandbox = Sandbox::new();
    for (i, size) in [0, 1, 262_144, 3_000_001].into_iter().enumerate() {
        let bytes = content(size, i as u64);
        let path = sandbox.file("in", &bytes);
        let mut last = Bytes::ZERO;
        let options = PutOptions { name: Some("it"), added_unix_secs: 77, ..PutOptions::default() };
        let stored = sandbox.open().put(&path, &options, &mut |n| last = n).unwrap();
        assert_eq!(stored.hashes.root().0, *blake3::hash(&bytes).as_bytes());
        assert_eq!(last, Bytes::new(size as u64));

        let store = sandbox.open();
        let object = store.lookup("it").unwrap();
        assert_eq!((object.id, object.added_unix_secs), (stored.hashes.root(), 77));
        let (source, hashes) = store.open_object(object.id).unwrap();
        assert_eq!(hashes, stored.hashes);
        assert_eq!(read_all(&source, &hashes), bytes);
        assert_eq!(sandbox.temp_files(), 0);
    }
    assert_eq!(sandbox.open().ls().unwrap().len(), 4);
}

#[test]
fn the_same_bytes_are_stored_once_under_any_number_of_names() {
    let sandbox = Sandbox::new();
    let store = sandbox.open();
    let path = sandbox.file("in", &content(500_000, 1));
    put(&store, &path, Some("a")).unwrap();
    assert_eq!(put(&store, &path, Some("b")).unwrap().placed, Placed::AlreadyHere);
    assert_eq!(store.used(), Bytes::new(500_000));
    assert_eq!(store.ls().unwrap()[0].names, ["a", "b"]);

    let removed = store.rm("a").unwrap();
    assert_eq!((removed.names, removed.freed), (vec!["a".to_owned()], None));
    let removed = store.rm("b").unwrap();
    assert_eq!(removed.freed, Some(Bytes::new(500_000)));
    assert!(!sandbox.object_path(removed.id).exists());
    assert_eq!((store.used(), store.ls().unwrap().len()), (Bytes::ZERO, 0));
    assert!(matches!(store.lookup("b"), Err(StoreError::NotFound { .. })));
}

#[test]
fn a_name_moves_and_the_object_it_left_stays() {
    let sandbox = Sandbox::new();
    let store = sandbox.open();
    let old = put(&store, &sandbox.file("1", b"one"), Some("x")).unwrap().hashes.root();
    let stored = put(&store, &sandbox.file("2", b"two"), Some("x")).unwrap();
    assert_eq!(stored.name_moved_from, Some(old));
    assert_eq!(store.lookup("x").unwrap().id, stored.hashes.root());
    assert_eq!(store.lookup(&old.to_string()).unwrap().names, Vec::<String>::new());
}

#[test]
fn objects_are_found_by_the_first_digits_of_their_id() {
    let sandbox = Sandbox::new();
    let store = sandbox.open();
    let id = put(&store, &sandbox.file("1", b"one"), None).unwrap().hashes.root();
    let text = id.to_string();
    for what in [&text[..8], &text[..63], &text, &text.to_uppercase()[..12]] {
        assert_eq!(store.lookup(what).unwrap().id, id);
    }
    assert!(matches!(store.lookup(&text[..7]), Err(StoreError::NotFound { .. })));
    assert!(matches!(store.lookup(&format!("{text}0")), Err(StoreError::NotFound { .. })));
    // A name goes first, even one that looks like the beginning of an id.
    let other = put(&store, &sandbox.file("2", b"two"), Some(&text[..8])).unwrap().hashes.root();
    assert_eq!(store.lookup(&text[..8]).unwrap().id, other);
    assert_eq!(store.rm(&text[..9]).unwrap().id, id);
}

#[test]
fn beyond_the_quota_nothing_is_stored_and_nothing_is_lost() {
    let sandbox = Sandbox::new();
    let store = sandbox.open_with_quota(1000);
    put(&store, &sandbox.file("1", &[1; 600]), Some("kept")).unwrap();
    let too_much = put(&store, &sandbox.file("2", &[2; 401]), Some("kept")).unwrap_err();
    let StoreError::QuotaExceeded { quota, used, needed } = too_much else { panic!("{too_much}") };
    assert_eq!([quota, used, needed].map(Bytes::get), [1000, 600, 401]);
    let endless =
        store.put_reader(&mut std::io::repeat(3), Path::new("-"), &PutOptions::default(), &mut |_| {});
    assert!(matches!(endless, Err(StoreError::QuotaExceeded { .. })));
    assert_eq!((sandbox.temp_files(), store.used()), (0, Bytes::new(600)));
    assert_eq!(store.lookup("kept").unwrap().size, Bytes::new(600));
    // The same bytes again need no room, and what is left is usable to the last byte.
    put(&store, &sandbox.file("3", &[1; 600]), Some("again")).unwrap();
    put(&store, &sandbox.file("4", &[2; 400]), None).unwrap();
    store.rm("again").unwrap();
    store.rm("kept").unwrap();
    put(&store, &sandbox.file("5", &[5; 600]), None).unwrap();
}

#[test]
fn a_put_that_is_stopped_leaves_nothing_and_says_so() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let sandbox = Sandbox::new();
    let store = sandbox.open();
    let path = sandbox.file("big", &content(5 << 20, 1));
    for way in ["file", "stream"] {
        let stop = AtomicBool::new(false);
        let options = PutOptions { name: Some("it"), stop: Some(&stop), ..PutOptions::default() };
        let mut heard = 0;
        let mut progress = |_: Bytes| {
            heard += 1;
            stop.store(heard == 2, Ordering::Relaxed);
        };
        let stopped = match way {
            "file" => store.put(&path, &options, &mut progress),
            _ => store.put_reader(&mut std::io::repeat(3), Path::new("-"), &options, &mut progress),
        };
        assert!(matches!(stopped, Err(StoreError::Stopped)), "{way}: {stopped:?}");
        assert_eq!((heard, sandbox.temp_files(), store.ls().unwrap().len()), (2, 0, 0), "{way}");
        assert_eq!(store.used(), Bytes::ZERO);
    }
}

#[test]
fn a_quota_can_be_set_anew_and_what_is_stored_stays() {
    let sandbox = Sandbox::new();
    let store = sandbox.open_with_quota(1000);
    put(&store, &sandbox.file("1", &[1; 600]), None).unwrap();
    store.set_quota(Some(Bytes::new(500)));
    assert_eq!((store.options().quota, store.used()), (Some(Bytes::new(500)), Bytes::new(600)));
    assert!(matches!(put(&store, &sandbox.file("2", &[2; 1]), None), Err(StoreError::QuotaExceeded { .. })));
    store.set_quota(None);
    put(&store, &sandbox.file("3", &[3; 5000]), None).unwrap();
}

#[test]
fn a_sparse_file_stays_sparse() {
    let sandbox = Sandbox::new();
    let path = sandbox.folder.path().join("sparse");
    let file = File::create(&path).unwrap();
    file.set_len(64 << 20).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"here", 40 << 20).unwrap();
    let store = sandbox.open();
    let stored = put(&store, &path, None).unwrap();
    let found = fs::metadata(sandbox.object_path(stored.hashes.root())).unwrap();
    assert_eq!(found.len(), 64 << 20);
    assert!(found.blocks() * 512 < 1 << 20);
    assert_eq!(BlockHashes::of_file(&path, &mut |_| {}).unwrap(), stored.hashes);
}

#[test]
fn a_hard_link_takes_no_room_and_is_reported_once_written_to() {
    let sandbox = Sandbox::new();
    let store = sandbox.open();
    let path = sandbox.file("in", &content(300_000, 4));
    let options = PutOptions { mode: PutMode::HardLink, name: Some("linked"), ..PutOptions::default() };
    let stored = store.put(&path, &options, &mut |_| {}).unwrap();
    let id = stored.hashes.root();
    assert_eq!(stored.placed, Placed::HardLinked);
    assert_eq!(fs::metadata(&path).unwrap().ino(), fs::metadata(sandbox.object_path(id)).unwrap().ino());
    assert!(store.open_object(id).is_ok());

    let long_ago = std::time::SystemTime::UNIX_EPOCH;
    File::options().write(true).open(&path).unwrap().set_modified(long_ago).unwrap();
    assert!(matches!(store.open_object(id), Err(StoreError::ObjectDamaged { .. })));
    assert_eq!(store.problems().unwrap().len(), 1);
    // Its bytes are still right, so putting it again heals it.
    assert_eq!(store.put(&path, &options, &mut |_| {}).unwrap().placed, Placed::HardLinked);
    assert!(store.open_object(id).is_ok());
    assert_eq!((sandbox.temp_files(), store.used()), (0, Bytes::new(300_000)));
}

#[test]
fn a_second_process_is_told_that_the_store_is_busy() {
    let sandbox = Sandbox::new();
    let _store = sandbox.open();
    let second = Store::open(&sandbox.store_path(), StoreOptions::default());
    assert!(matches!(second, Err(StoreError::Busy { path }) if path.ends_with("index.redb")));
}

#[test]
fn leftovers_of_a_killed_put_are_swept() {
    let sandbox = Sandbox::new();
    drop(sandbox.open());
    fs::write(sandbox.store_path().join("tmp/17"), "half an object").unwrap();
    let store = sandbox.open();
    assert_eq!(sandbox.temp_files(), 0);
    assert!(store.problems().unwrap().is_empty());
}

#[test]
fn a_missing_or_short_file_is_reported_skipped_and_healed_by_a_put() {
    let sandbox = Sandbox::new();
    let store = sandbox.open();
    let (one, two) = (sandbox.file("1", &[1; 1000]), sandbox.file("2", &[2; 1000]));
    let gone = put(&store, &one, Some("gone")).unwrap().hashes.root();
    let short = put(&store, &two, Some("short")).unwrap().hashes.root();
    fs::remove_file(sandbox.object_path(gone)).unwrap();
    fs::remove_file(sandbox.object_path(short)).unwrap();
    fs::write(sandbox.object_path(short), [2; 999]).unwrap();
    drop(store);

    let store = sandbox.open();
    assert_eq!(store.ls().unwrap(), []);
    let problems = store.problems().unwrap();
    assert!(problems.iter().all(|p| matches!(p, Problem::Damaged { .. })) && problems.len() == 2);
    assert!(matches!(store.open_object(gone), Err(StoreError::ObjectDamaged { .. })));
    put(&store, &one, None).unwrap();
    assert!(store.open_object(gone).is_ok());
    assert_eq!(store.rm("short").unwrap().id, short);
    assert_eq!((store.problems().unwrap(), store.used()), (vec![], Bytes::new(1000)));
}

#[test]
fn objects_survive_the_loss_of_the_index() {
    let sandbox = Sandbox::new();
    let id = put(&sandbox.open(), &sandbox.file("1", &content(400_000, 9)), Some("x")).unwrap().hashes.root();
    let index = sandbox.store_path().join("index.redb");
    fs::write(&index, "not a database").unwrap();
    let refused = Store::open(&sandbox.store_path(), StoreOptions::default());
    assert!(matches!(refused, Err(StoreError::IndexDamaged { .. })));

    fs::remove_file(&index).unwrap();
    fs::write(sandbox.object_path(ObjectId([5; 32])), "not what its name says").unwrap();
    let store = sandbox.open();
    assert_eq!(store.problems().unwrap().len(), 2);
    assert_eq!(store.adopt(0, &mut |_| {}).unwrap(), [id]);
    assert!(store.open_object(id).is_ok());
    assert_eq!((store.problems().unwrap().len(), store.used()), (1, Bytes::new(400_000)));
}

#[test]
fn a_damaged_index_is_an_error_and_never_a_panic() {
    let sandbox = Sandbox::new();
    let store = sandbox.open();
    for i in 0..20 {
        put(&store, &sandbox.file("in", &content(1000 + i, 3)), Some(&format!("name{i}"))).unwrap();
    }
    drop(store);
    let index = sandbox.store_path().join("index.redb");
    let good = fs::read(&index).unwrap();
    let pages: Vec<usize> =
        (0..good.len() / 4096).filter(|p| good[p * 4096..][..4096].iter().any(|b| *b != 0)).collect();
    let use_it = || -> Result<(), StoreError> {
        let store = Store::open(&sandbox.store_path(), StoreOptions::default())?;
        store.ls()?;
        store.problems()?;
        store.open_object(store.lookup("name3")?.id)?;
        put(&store, &sandbox.folder.path().join("in"), Some("another"))?;
        store.rm("name4").map(|_| ())
    };
    let (mut random, mut refused) = (1u64, 0);
    for round in 0..100 {
        let mut bad = good.clone();
        // Rounds alternate between a lost tail and 1 to 256 flipped bits in pages that are in use.
        let mut next = |below: usize| {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (random >> 33) as usize % below
        };
        match round % 5 {
            0 => bad.truncate(next(good.len())),
            _ => (0..1 << (round % 9)).for_each(|_| {
                bad[pages[next(pages.len())] * 4096 + next(4096)] ^= 1 << next(8);
            }),
        }
        fs::write(&index, bad).unwrap();
        refused += usize::from(use_it().is_err());
    }
    assert!(refused > 20, "{refused}");
    // Nothing stays locked, and the objects never depended on the index.
    fs::remove_file(&index).unwrap();
    assert!(sandbox.open().adopt(0, &mut |_| {}).unwrap().len() >= 18);
}

#[test]
fn removing_an_object_stops_those_who_read_it() {
    let sandbox = Sandbox::new();
    let store = sandbox.open();
    put(&store, &sandbox.file("1", &[1; 1000]), Some("x")).unwrap();
    let (source, _) = store.open_object(store.lookup("x").unwrap().id).unwrap();
    store.rm("x").unwrap();
    let read = source.read_block(BlockIndex(0), &mut Vec::new());
    assert!(matches!(read, Err(StoreError::ObjectChanged { .. })));
}

#[test]
fn a_file_written_to_while_it_is_put_is_refused() {
    let sandbox = Sandbox::new();
    let store = sandbox.open();
    let path = sandbox.file("in", &content(3 << 20, 2));
    let result = store.put(&path, &PutOptions::default(), &mut |_| {
        File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_modified(std::time::SystemTime::UNIX_EPOCH)
            .unwrap();
    });
    // Where the file system clones, what is stored is the clone, whatever becomes of the file.
    match result {
        Err(StoreError::ObjectChanged { .. }) => assert_eq!(store.ls().unwrap(), []),
        Ok(stored) => assert_eq!(stored.placed, Placed::Reflinked),
        Err(other) => panic!("{other}"),
    }
    assert_eq!(sandbox.temp_files(), 0);
}

#[test]
fn names_that_would_garble_a_terminal_are_refused() {
    let sandbox = Sandbox::new();
    let store = sandbox.open();
    let path = sandbox.file("in", b"x");
    for name in ["", "a\nb", "\x1b[31m", &"n".repeat(1025)] {
        assert!(matches!(put(&store, &path, Some(name)), Err(StoreError::BadName { .. })));
    }
}

/// Gives 1 GiB of zeros and checks that it is asked for small parts only.
struct Stream {
    left: u64,
    largest_read: usize,
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.largest_read = self.largest_read.max(buffer.len());
        let n = (buffer.len() as u64).min(self.left) as usize;
        buffer[..n].fill(0);
        self.left -= n as u64;
        Ok(n)
    }
}

#[test]
fn a_large_object_streams_through_a_small_buffer() {
    let sandbox = Sandbox::new();
    let store = sandbox.open();
    let mut stream = Stream { left: 1 << 30, largest_read: 0 };
    let before = peak_memory();
    let stored = store.put_reader(&mut stream, Path::new("-"), &PutOptions::default(), &mut |_| {}).unwrap();
    assert_eq!(stored.hashes.size(), Bytes::mib(1024));
    assert!(stream.largest_read <= 1 << 20);
    // Other tests of this file run beside this one: a band, not a figure.
    assert!(peak_memory() - before < 128 << 20);
}

/// Peak resident memory of this process in bytes; zero where the system does not tell.
fn peak_memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    line.and_then(|l| l.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0) << 10
}

#[test]
fn threads_put_find_and_remove_at_the_same_time() {
    let sandbox = Sandbox::new();
    let store = sandbox.open();
    let shared = sandbox.file("shared", &content(300_000, 1));
    std::thread::scope(|s| {
        for thread in 0..4u64 {
            let (store, sandbox, shared) = (&store, &sandbox, &shared);
            s.spawn(move || {
                for round in 0..5 {
                    let name = format!("{thread}-{round}");
                    let own = sandbox.file(&name, &content(10_000, thread * 100 + round));
                    let id = put(store, &own, Some(&name)).unwrap().hashes.root();
                    put(store, shared, Some(&format!("shared-{name}"))).unwrap();
                    let (source, hashes) = store.open_object(id).unwrap();
                    assert_eq!(read_all(&source, &hashes), fs::read(&own).unwrap());
                    store.rm(&format!("shared-{name}")).unwrap();
                    if round % 2 == 0 {
                        store.rm(&name).unwrap();
                    }
                }
            });
        }
    });
    assert_eq!(store.ls().unwrap().len(), 8);
    assert_eq!((store.used(), sandbox.temp_files()), (Bytes::new(80_000), 0));
    drop(store);
    let store = sandbox.open();
    assert_eq!((store.used(), store.problems().unwrap()), (Bytes::new(80_000), vec![]));
}

#[test]
fn an_object_is_received_into_the_store_across_a_restart_and_kept_under_its_name() {
    let sandbox = Sandbox::new();
    let bytes = content(600_000, 4);
    let hashes = BlockHashes::of_bytes(&bytes);
    let blocks = hashes.layout().block_count();
    let write = |partial: &Partial, blocks: std::ops::Range<u32>| {
        for block in blocks.map(BlockIndex) {
            let start = hashes.layout().offset(block).get() as usize;
            let end = start + hashes.layout().len(block).get() as usize;
            partial.write_block(block, &bytes[start..end]).unwrap();
        }
    };
    let options = PutOptions { name: Some("received"), ..PutOptions::default() };
    {
        let store = sandbox.open();
        let partial = Partial::open_or_create(store.incoming(hashes.clone()).unwrap(), &mut |_| {}).unwrap();
        write(&partial, 0..1);
        let early = store.take(&partial, &options).unwrap_err();
        assert!(matches!(early, StoreError::Incomplete { .. }), "{early}");
        assert!(store.ls().unwrap().is_empty());
    }
    let store = sandbox.open();
    let partial = Partial::open_or_create(store.incoming(hashes.clone()).unwrap(), &mut |_| {}).unwrap();
    assert!(partial.have().contains(BlockIndex(0)), "what was here before the restart is here");
    write(&partial, 1..blocks);
    let stored = store.take(&partial, &options).unwrap();
    assert_eq!(stored.placed, Placed::Received);
    let found = store.lookup("received").unwrap();
    let (source, known) = store.open_object(found.id).unwrap();
    assert_eq!(read_all(&source, &known), bytes);
    assert_eq!(store.used(), Bytes::new(600_000));
    assert_eq!(
        fs::read_dir(sandbox.store_path().join("incoming")).unwrap().count(),
        0,
        "nothing is left over"
    );
}

#[test]
fn nothing_is_received_for_which_there_is_no_room() {
    let sandbox = Sandbox::new();
    let store = sandbox.open_with_quota(500_000);
    let refused = store.incoming(BlockHashes::of_bytes(&content(600_000, 4))).unwrap_err();
    assert!(matches!(refused, StoreError::QuotaExceeded { .. }), "{refused}");
    assert!(store.incoming(BlockHashes::of_bytes(&content(400_000, 4))).is_ok());
}
