//! The cache on disk, as readers use it.

use std::fs;
use std::path::Path;

use dormouse_objects::ObjectContents;

use crate::proxy::Proxy;
use crate::stores::{TestStore, content, folder, name, open, put, servers};

fn open_with_cache(store: &TestStore, cache: &Path, max_bytes: u64) -> ObjectContents {
    ObjectContents::open(store.options().cache(cache, max_bytes)).unwrap()
}

/// The files below a folder.
fn files(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .map(Result::unwrap);
    let nested = entries.map(|entry| match entry.path() {
        path if path.is_dir() => files(&path),
        path => vec![path],
    });
    nested.flatten().collect()
}

#[test]
fn what_was_read_once_costs_no_request_in_the_next_program() {
    let bytes = content(3 << 20, 1);
    for mut store in servers() {
        let cache = tempfile::tempdir().unwrap();
        let proxy = Proxy::before(&mut store);
        put(&store.open(), &bytes, "index");
        for (round, requests) in [(0, 2), (1, 1)] {
            proxy.requests();
            let contents = open_with_cache(&store, cache.path(), 10 << 20);
            let reader = open(&contents, name(&bytes));
            assert_eq!(reader.slice(0..3 << 20).unwrap(), bytes);
            assert_eq!(proxy.requests().len(), requests, "round {round}");
        }
    }
}

#[test]
fn a_damaged_block_of_the_cache_is_read_again_from_the_store() {
    let bytes = content(3 << 20, 1);
    for mut store in servers() {
        let cache = tempfile::tempdir().unwrap();
        let proxy = Proxy::before(&mut store);
        put(&store.open(), &bytes, "index");
        let read = || {
            let contents = open_with_cache(&store, cache.path(), 10 << 20);
            let read = open(&contents, name(&bytes)).slice(0..3 << 20).unwrap();
            assert_eq!(read, bytes);
            proxy.requests().len()
        };
        read();
        for file in files(cache.path()) {
            let mut block = fs::read(&file).unwrap();
            block[1000] ^= 1;
            fs::write(&file, block).unwrap();
            assert_eq!(read(), 2);
            assert_eq!(read(), 1, "the block is in the cache again");
            fs::write(&file, "").unwrap();
            assert_eq!(read(), 2);
        }
    }
}

#[test]
fn the_bound_holds_while_threads_and_programs_read() {
    let store = folder();
    let cache = tempfile::tempdir().unwrap();
    let bytes = content(40 << 20, 1);
    put(&store.open(), &bytes, "index");
    let max_bytes = 10 << 20;
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (store, cache, bytes) = (&store, cache.path(), &bytes);
            scope.spawn(move || {
                let contents = open_with_cache(store, cache, max_bytes);
                let reader = open(&contents, name(bytes));
                for page in 0..100u64 {
                    let start = ((page * 7919 + thread * 104_729) % 39) << 20;
                    let read = reader.slice(start + 5..start + 1005).unwrap();
                    assert_eq!(read, bytes[start as usize + 5..start as usize + 1005]);
                }
            });
        }
    });
    // Each of the four knows what it wrote itself since it last looked at the folder: an eighth.
    let kept: u64 = files(cache.path())
        .iter()
        .map(|file| file.metadata().unwrap().len())
        .sum();
    assert!(
        kept > 0 && kept <= max_bytes + 3 * (max_bytes / 8 + (1 << 20)),
        "{kept} bytes"
    );
    let contents = open_with_cache(&store, cache.path(), max_bytes);
    open(&contents, name(&bytes)).slice(0..40 << 20).unwrap();
    let kept: u64 = files(cache.path())
        .iter()
        .map(|file| file.metadata().unwrap().len())
        .sum();
    assert!(kept <= max_bytes, "{kept} bytes");
}

#[test]
fn a_cache_that_cannot_be_written_does_not_fail_reads() {
    let store = folder();
    let bytes = content(6 << 20, 1);
    put(&store.open(), &bytes, "index");
    let scratch = tempfile::tempdir().unwrap();
    let no_folder = scratch.path().join("file");
    fs::write(&no_folder, "x").unwrap();
    // Made by `.ci/objects`, which needs root for that: a file system of 3 MB, and one for reading.
    let disks = std::env::var("DORMOUSE_BAD_DISKS").unwrap_or_default();
    let disks = disks
        .split(':')
        .filter(|disk| !disk.is_empty())
        .map(Into::into);
    for cache in disks.chain([no_folder, "/proc/none".into()]) {
        let contents = open_with_cache(&store, &cache, 100 << 20);
        let reader = open(&contents, name(&bytes));
        for _ in 0..2 {
            assert_eq!(
                reader.slice(0..6 << 20).unwrap(),
                bytes,
                "{}",
                cache.display()
            );
        }
        assert!(files(&cache).iter().all(|file| !file.ends_with("pending-")));
    }
}

#[test]
fn a_cache_of_no_bytes_keeps_nothing() {
    let store = folder();
    let cache = tempfile::tempdir().unwrap();
    let bytes = content(2 << 20, 1);
    put(&store.open(), &bytes, "index");
    let contents = open_with_cache(&store, cache.path(), 0);
    assert_eq!(
        open(&contents, name(&bytes)).slice(0..2 << 20).unwrap(),
        bytes
    );
    assert!(files(cache.path()).is_empty());
}
