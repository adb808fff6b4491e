//! Folder manifests from anybody: nothing panics, a folder has one encoding, and no path leads out of it.
#![no_main]

use std::path::{Component, Path};

use headwater_store::manifest::Manifest;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(manifest) = Manifest::parse(bytes) else { return };
    assert_eq!(manifest.encode(), bytes, "one folder, one encoding, one id");
    for entry in manifest.entries() {
        let path = Path::new(&entry.path);
        assert!(path.components().all(|it| matches!(it, Component::Normal(_))), "{path:?} leads elsewhere");
    }
});
