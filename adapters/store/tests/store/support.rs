//! What the tests of this crate share: the entries of the conformance suite, and folders to damage.

use std::fs;
use std::path::{Path, PathBuf};

use dormouse_store::{Compression, LogStore, Options, StoreSecret};
pub(crate) use dormouse_store_conformance::collection::*;
pub(crate) use dormouse_store_conformance::entries::*;

/// The ways to keep a store that change its bytes and no answer.
pub(crate) fn coded() -> Vec<(&'static str, Options)> {
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

/// All files below a folder, in order.
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

/// How far a segment is written: behind that stands room that is reserved.
pub(crate) fn written(segment: &Path) -> u64 {
    let bytes = std::fs::read(segment).unwrap();
    bytes
        .iter()
        .rposition(|byte| *byte != 0)
        .map_or(0, |last| last as u64 + 1)
}

/// Both files of HEAD are gone.
pub(crate) fn lose_head(folder: &Path) {
    ["HEAD", "HEAD2"]
        .iter()
        .for_each(|file| fs::remove_file(folder.join(file)).unwrap());
}

/// A folder for a store, in memory where the machine has that: no test waits for a disk that loses
/// no power meanwhile. What a loss of power takes is shown on a disk of our own (`power_tests`).
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
