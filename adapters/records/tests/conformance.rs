//! Runs the conformance suite on a log in memory, with and without encryption and compression.

use std::sync::Arc;

use dormouse_records::{Compression, MemoryLog, MemoryStore, RecordLog, RecordStore, StoreSecret};
use dormouse_store_conformance::check_store;

const ENCODINGS: [(Option<[u8; 32]>, Compression); 4] = [
    (None, Compression::None),
    (None, Compression::Zstd(3)),
    (Some([7; 32]), Compression::None),
    (Some([7; 32]), Compression::Zstd(3)),
];

fn open<L: RecordLog>(
    log: L,
    (secret, compression): (Option<[u8; 32]>, Compression),
) -> RecordStore<L> {
    let store = RecordStore::new_on(log).compression(compression);
    match secret {
        Some(secret) => store.key(StoreSecret::new(secret)),
        None => store,
    }
}

#[test]
fn the_memory_store_conforms() {
    check_store(|| {
        let store = MemoryStore::new();
        Box::new(move |operation| operation(&store))
    });
}

#[test]
fn a_store_conforms_with_each_encoding() {
    for encoding in ENCODINGS {
        check_store(|| {
            let store = open(MemoryLog::default(), encoding);
            Box::new(move |operation| operation(&store))
        });
    }
}

#[test]
fn a_store_that_is_reopened_for_each_operation_conforms() {
    for encoding in ENCODINGS {
        check_store(|| {
            let log = Arc::new(MemoryLog::default());
            Box::new(move |operation| operation(&open(log.clone(), encoding)))
        });
    }
}

#[test]
fn a_store_with_changing_compression_conforms() {
    for secret in [None, Some([7; 32])] {
        check_store(|| {
            let log = Arc::new(MemoryLog::default());
            let mut levels = [Compression::Zstd(1), Compression::None]
                .into_iter()
                .cycle();
            Box::new(move |operation| {
                let compression = levels.next().expect("the iterator is endless");
                operation(&open(log.clone(), (secret, compression)));
            })
        });
    }
}
