//! A disk that fills up: a clear error, nothing lost, and the same work goes on once there is room.
//!
//! Needs to mount a small tmpfs, so it runs as root only and says so otherwise.

use std::fs;
use std::path::Path;

use headwater_skips::SmallDisk;
use headwater_store::{BlockHashes, Partial, PartialSpec, PutOptions, Store, StoreError, StoreOptions};
use headwater_units::{BlockIndex, Bytes};

fn content(len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 29) as u8).collect()
}

fn put(store: &Store, bytes: &[u8], name: &str) -> Result<(), StoreError> {
    let options = PutOptions { name: Some(name), ..PutOptions::default() };
    store.put_reader(&mut &bytes[..], Path::new("-"), &options, &mut |_| {}).map(|_| ())
}

#[test]
fn a_put_onto_a_full_disk_keeps_what_was_stored() {
    let Some(disk) = SmallDisk::of_mib(8) else { return };
    let store = Store::open(&disk.path().join("store"), StoreOptions::default()).unwrap();
    put(&store, &content(100_000), "kept").unwrap();

    // Found out half-way, of a stream; and before the first byte, of a file.
    let full = put(&store, &content(9 << 20), "large").unwrap_err();
    assert!(matches!(&full, StoreError::DiskFull { path, .. } if path.starts_with(disk.path())), "{full}");
    let elsewhere = tempfile::NamedTempFile::new().unwrap();
    fs::write(elsewhere.path(), content(9 << 20)).unwrap();
    let full = store.put(elsewhere.path(), &PutOptions::default(), &mut |_| panic!("began")).unwrap_err();
    assert!(matches!(full, StoreError::DiskFull { needed, .. } if needed == Bytes::mib(9)));
    assert!(full.to_string().contains("make room"), "{full}");

    assert_eq!(fs::read_dir(disk.path().join("store/tmp")).unwrap().count(), 0);
    assert_eq!(store.used(), Bytes::new(100_000));
    let (source, hashes) = store.open_object(store.lookup("kept").unwrap().id).unwrap();
    let mut buffer = Vec::new();
    source.read_block(BlockIndex(0), &mut buffer).unwrap();
    assert!(hashes.verify_block(BlockIndex(0), &buffer));
    put(&store, &content(3 << 20), "fits").unwrap();
}

/// The index, too, must survive a disk without a single free byte, and work again afterwards.
#[test]
fn a_store_on_a_disk_full_to_the_last_byte_recovers_without_a_restart() {
    let Some(disk) = SmallDisk::of_mib(8) else { return };
    let store = Store::open(&disk.path().join("store"), StoreOptions::default()).unwrap();
    put(&store, &content(1000), "kept").unwrap();
    let filler = disk.fill_up();
    let file = fs::OpenOptions::new().write(true).open(&filler).unwrap();

    // Leaves a page more each time, so that the data, the index's pages or its growth are what does not fit.
    let mut outcomes = Vec::new();
    for page in 0..60u64 {
        let len = file.metadata().unwrap().len();
        file.set_len(len - 4096).unwrap();
        let outcome = put(&store, &content(page as usize + 2000), &format!("{page}-{}", "n".repeat(1000)));
        if let Err(e) = &outcome {
            assert!(matches!(e, StoreError::DiskFull { .. }), "{e}");
        }
        outcomes.push(outcome.is_ok());
        assert_eq!(store.lookup("kept").unwrap().size, Bytes::new(1000));
        assert_eq!(fs::read_dir(disk.path().join("store/tmp")).unwrap().count(), 0);
    }
    eprintln!("{outcomes:?}");
    assert!(outcomes.contains(&false) && outcomes.contains(&true));
    drop(file);
    fs::remove_file(filler).unwrap();
    put(&store, &content(5000), "after").unwrap();
    let stored = outcomes.iter().filter(|ok| **ok).count();
    assert_eq!((store.ls().unwrap().len(), store.problems().unwrap()), (stored + 2, vec![]));
    drop(store);
    let store = Store::open(&disk.path().join("store"), StoreOptions::default()).unwrap();
    assert_eq!((store.ls().unwrap().len(), store.problems().unwrap()), (stored + 2, vec![]));
}

#[test]
fn a_transfer_goes_on_when_there_is_room_again() {
    let Some(disk) = SmallDisk::of_mib(8) else { return };
    let state = tempfile::tempdir().unwrap();
    let bytes = content(6 << 20);
    let spec = PartialSpec {
        hashes: BlockHashes::of_bytes(&bytes),
        destination: disk.path().join("out"),
        state_folder: state.path().to_owned(),
        range: None,
        overwrite: false,
    };
    let block = |b: BlockIndex| &bytes[b.0 as usize * (256 << 10)..][..256 << 10];

    let filler = disk.fill(3);
    let refused = Partial::open_or_create(spec.clone(), &mut |_| {}).unwrap_err();
    assert!(matches!(refused, StoreError::DiskFull { needed, .. } if needed == Bytes::mib(6)), "{refused}");
    assert_eq!(fs::read_dir(disk.path()).unwrap().count(), 1, "a transfer that never began left a file");
    disk.make_room(&filler, 6);

    let partial = Partial::open_or_create(spec.clone(), &mut |_| {}).unwrap();
    let filler = disk.fill(4);
    let missing: Vec<_> = partial.missing().collect();
    let written = missing.iter().take_while(|b| partial.write_block(**b, block(**b)).is_ok()).count();
    assert!(written > 4 && written < 24, "{written}");
    let full = partial.write_block(BlockIndex(written as u32), block(BlockIndex(written as u32)));
    assert!(matches!(full, Err(StoreError::DiskFull { .. })));
    assert_eq!(partial.have().count() as usize, written);
    drop(partial);

    fs::remove_file(filler).unwrap();
    let partial = Partial::open_or_create(spec, &mut |_| {}).unwrap();
    assert_eq!(partial.have().count() as usize, written);
    let missing: Vec<_> = partial.missing().collect();
    missing.iter().for_each(|b| assert!(partial.write_block(*b, block(*b)).unwrap()));
    assert_eq!(fs::read(partial.finish().unwrap()).unwrap(), bytes);
}
