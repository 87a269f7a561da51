//! Shared by the tests of this crate: the operations of the conformance suite, and folders to
//! damage.

use std::fs;
use std::path::{Path, PathBuf};

use dormouse_store::{Compression, LogStore, Options, StoreSecret};
pub(crate) use dormouse_store_conformance::collection::*;
pub(crate) use dormouse_store_conformance::entries::*;

/// The options that change the bytes of a store, but not the answers to queries.
pub(crate) fn encoding_options() -> Vec<(&'static str, Options)> {
    let compressed = || LogStore::options().compression(Compression::Zstd(3));
    vec![
        ("encrypted", LogStore::options().key(secret(1))),
        ("compressed", compressed()),
        ("compressed and encrypted", compressed().key(secret(1))),
    ]
}

pub(crate) fn secret(byte: u8) -> StoreSecret {
    StoreSecret::new([byte; 32])
}

/// All files in a folder, recursively, in order.
pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path))
        } else {
            found.push(path)
        }
    }
    found.sort();
    found
}

/// The offset at which the records of a segment end; reserved space may follow.
pub(crate) fn records_end(segment: &Path) -> u64 {
    let bytes = std::fs::read(segment).unwrap();
    bytes
        .iter()
        .rposition(|byte| *byte != 0)
        .map_or(0, |last| last as u64 + 1)
}

/// Removes both files of HEAD.
pub(crate) fn remove_head_files(folder: &Path) {
    ["HEAD", "HEAD2"]
        .iter()
        .for_each(|file| fs::remove_file(folder.join(file)).unwrap());
}

/// A folder for a store, in memory if the machine has `/dev/shm`: these tests need no real disk.
/// Power losses are tested on a simulated disk (`power_tests`).
pub(crate) fn tempdir() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap()
}

pub(crate) fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}
