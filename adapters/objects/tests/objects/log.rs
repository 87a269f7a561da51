//! A log with contents in an object store, as the kernel uses it.

use std::sync::Arc;

use dormouse_actors::ports::{Store, StoreError, SyncLevel, WriteOp};
use dormouse_objects::{ObjectContents, WithObjects};
use dormouse_proto::id::CommitNumber;
use dormouse_records::{Compression, MemoryLog, RecordBatch, RecordLog, RecordStore, StoreSecret};
use dormouse_records::{NewContent, RecordOp, Stream, StreamKind};
use dormouse_store_conformance::check_store;
use dormouse_store_conformance::entries::{commit, content as content_op, created, hash};

use crate::stores::{content, name, stores};

type Log = WithObjects<Arc<MemoryLog>>;

fn log(log: &Arc<MemoryLog>, contents: ObjectContents, large_bytes: usize) -> Log {
    WithObjects::new(log.clone(), contents).large_bytes(large_bytes)
}

/// The number of the server under test, which has other prefixes for each case.
fn check_each(check: impl Fn(&dyn Fn() -> crate::stores::TestStore)) {
    for number in 0..stores().len() {
        check(&|| stores().swap_remove(number));
    }
}

#[test]
fn a_store_with_objects_conforms() {
    check_each(|new_store| {
        for large_bytes in [0, 64 << 10] {
            check_store(|| {
                let store = new_store();
                let log = log(&Arc::default(), store.open(), large_bytes);
                let records = RecordStore::new_on(log);
                Box::new(move |operation| {
                    let _in_use = &store;
                    operation(&records);
                })
            });
        }
    });
}

#[test]
fn an_encrypted_and_compressed_store_that_is_reopened_conforms() {
    check_each(|new_store| {
        check_store(|| {
            let store = new_store();
            let memory = Arc::default();
            Box::new(move |operation| {
                let log = log(&memory, store.open(), 0);
                let records = RecordStore::new_on(log)
                    .key(StoreSecret::new([7; 32]))
                    .compression(Compression::Zstd(3));
                operation(&records);
            })
        });
    });
}

#[test]
fn only_large_contents_are_objects() {
    let large = content(64 << 10, 1);
    let small = content((64 << 10) - 1, 2);
    for store in stores() {
        let memory = Arc::<MemoryLog>::default();
        let contents = store.open();
        let records = RecordStore::new_on(WithObjects::new(memory.clone(), contents.clone()));
        let owner = records.claim().unwrap();
        commit(
            &records,
            owner,
            &[created(1), content_op(&large), content_op(&small)],
        );
        let names = |objects: &ObjectContents| -> Vec<_> {
            objects.list().map(|object| object.unwrap().name).collect()
        };
        assert_eq!(names(&contents), [name(&large)]);
        assert_eq!(memory.contents().unwrap().len(), 1);
        for bytes in [&large, &small] {
            let reader = records.content(hash(bytes)).unwrap();
            assert_eq!(reader.slice(0..reader.length()).unwrap(), *bytes);
        }
    }
}

#[test]
fn a_commit_that_refers_to_a_content_again_makes_no_request() {
    for mut store in crate::stores::servers() {
        let proxy = crate::proxy::Proxy::before(&mut store);
        let records = RecordStore::new_on(log(&Arc::default(), store.open(), 0));
        let owner = records.claim().unwrap();
        let bytes = content(100, 1);
        commit(&records, owner, &[created(1), content_op(&bytes)]);
        let refer = [WriteOp::ContentReferenced { hash: hash(&bytes) }];
        commit(&records, owner, &refer);
        proxy.requests();
        commit(&records, owner, &refer);
        assert_eq!(proxy.requests(), [""; 0]);
    }
}

#[test]
fn each_commit_has_a_number_and_a_stale_owner_gets_none() {
    let store = crate::stores::folder();
    let log = log(&Arc::default(), store.open(), 0);
    let contents = [1, 2].map(|seed| {
        let bytes = content(100, seed);
        NewContent {
            name: name(&bytes),
            bytes,
            index: "index".into(),
        }
    });
    let batch = |contents, ops| RecordBatch {
        contents,
        ops,
        at_ms: 1,
        sync_level: SyncLevel::Synced,
    };
    let owner = log.claim().unwrap();
    assert_eq!(
        log.append(owner, &batch(&contents, &[])).unwrap(),
        CommitNumber(1)
    );
    let stream = Stream {
        kind: StreamKind::Fact,
        id: 1,
    };
    let put = RecordOp::Put {
        stream,
        number: 1,
        bytes: "fact".into(),
    };
    assert_eq!(
        log.append(owner, &batch(&contents, &[put])).unwrap(),
        CommitNumber(2)
    );
    for content in &contents {
        let reader = log.content(content.name).unwrap().unwrap();
        assert_eq!(reader.slice(0..100).unwrap(), content.bytes);
    }
    let listed = log.contents().unwrap();
    assert_eq!(listed.len(), 2, "{listed:?}");
    let newer = log.claim().unwrap();
    let names = contents.map(|content| content.name);
    let stale = log.delete_contents(owner, &names).unwrap_err();
    assert!(matches!(stale, StoreError::Stale { .. }), "{stale}");
    assert!(log.content(names[0]).unwrap().is_some());
    log.delete_contents(newer, &names).unwrap();
    assert_eq!(log.contents().unwrap(), []);
}
