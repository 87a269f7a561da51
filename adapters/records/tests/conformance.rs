//! The conformance suite, on a log in memory.

use std::sync::Arc;

use dormouse_records::{MemoryStore, RecordStore};
use dormouse_store_conformance::check_store;

#[test]
fn the_memory_store_conforms() {
    check_store(|| {
        let store = MemoryStore::new();
        Box::new(move |operation| operation(&store))
    });
}

#[test]
fn a_store_conforms_that_is_opened_anew_for_each_operation() {
    check_store(|| {
        let log = Arc::new(dormouse_records::MemoryLog::default());
        Box::new(move |operation| operation(&RecordStore::new_on(log.clone())))
    });
}
