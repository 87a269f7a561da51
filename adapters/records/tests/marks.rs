//! A garbage collection that begins while a commit is being written.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::ops::{ControlFlow, RangeInclusive};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use dormouse_actors::garbage::EncodedRecord;
use dormouse_actors::ports::inventory::Inventory;
use dormouse_actors::ports::{
    BlobReader, Deletions, InventoryUpdate, KeptContents, MarkToken, OwnerToken, Store as _,
    StoreError, SweepMode, SweepRequest, WriteOp,
};
use dormouse_proto::id::{CommitNumber, ContentHash};
use dormouse_records::{
    MemoryLog, Record, RecordBatch, RecordLog, RecordStore, Stream, StreamKind,
};
use dormouse_store_conformance::collection::THOROUGH;
use dormouse_store_conformance::entries::*;

/// How long a commit stands still for a collection. It is over before that only if the collection
/// does not wait for the commit.
const STANDSTILL: Duration = Duration::from_millis(200);

type Hook = Box<dyn FnOnce() + Send>;

/// A log in memory that calls a function once before it writes.
#[derive(Default)]
struct HookedLog {
    log: MemoryLog,
    before_write: Mutex<Option<Hook>>,
}

impl RecordLog for HookedLog {
    fn claim(&self) -> Result<OwnerToken, StoreError> {
        self.log.claim()
    }

    fn append(
        &self,
        owner: OwnerToken,
        batch: &RecordBatch<'_>,
    ) -> Result<CommitNumber, StoreError> {
        if !batch.is_empty() {
            let hook = self.before_write.lock().unwrap().take();
            if let Some(hook) = hook {
                hook();
            }
        }
        self.log.append(owner, batch)
    }

    fn read(
        &self,
        stream: Stream,
        numbers: RangeInclusive<u64>,
    ) -> Result<Vec<Record>, StoreError> {
        self.log.read(stream, numbers)
    }

    fn latest(&self, stream: Stream, up_to: u64) -> Result<Option<Record>, StoreError> {
        self.log.latest(stream, up_to)
    }

    fn read_kind(&self, kind: StreamKind) -> Result<Vec<(u64, Record)>, StoreError> {
        self.log.read_kind(kind)
    }

    fn content(&self, name: ContentHash) -> Result<Option<Arc<dyn BlobReader>>, StoreError> {
        self.log.content(name)
    }

    fn contents(&self) -> Result<Vec<(ContentHash, u64)>, StoreError> {
        self.log.contents()
    }

    fn delete_contents(&self, owner: OwnerToken, names: &[ContentHash]) -> Result<(), StoreError> {
        self.log.delete_contents(owner, names)
    }
}

type HookedStore = RecordStore<Arc<HookedLog>>;

/// Begins a mark, and takes an inventory in which facts refer to `content`.
fn begin_collection(
    store: &HookedStore,
    owner: OwnerToken,
    content: ContentHash,
) -> (MarkToken, Inventory) {
    let mark = store.begin_mark(owner).unwrap();
    let mut inventory = Inventory::default();
    let update = InventoryUpdate {
        inventory: &mut inventory,
        references: &mut |record: EncodedRecord<'_>| {
            Ok(match record {
                EncodedRecord::Fact(_) => vec![content],
                EncodedRecord::Image(_) | EncodedRecord::TempFile(_) => Vec::new(),
            })
        },
        watch: &mut || ControlFlow::Continue(()),
    };
    store.update_inventory(update).unwrap();
    (mark, inventory)
}

/// The commit looks for its contents before it writes its records. A collection that begins in
/// between finds no record of it.
#[test]
fn a_content_that_a_commit_in_progress_refers_to_survives_a_collection_that_begins() {
    let log = Arc::new(HookedLog::default());
    let store = Arc::new(HookedStore::new_on(log.clone()));
    let owner = store.claim().unwrap();
    let held = bytes(1, 600);
    let name = hash(&held);
    commit(&*store, owner, &[created(1), content(&held)]);

    let (begun, collection) = mpsc::channel();
    let collecting = store.clone();
    let before_write = move || {
        let (ended, end) = mpsc::channel();
        thread::spawn(move || {
            let collection = begin_collection(&collecting, owner, name);
            begun.send(collection).unwrap();
            // The commit has perhaps waited long enough.
            let _ = ended.send(());
        });
        // Nobody sends within this time if the collection waits for the commit.
        let _ = end.recv_timeout(STANDSTILL);
    };
    *log.before_write.lock().unwrap() = Some(Box::new(before_write));
    let reference = WriteOp::ContentReferenced { hash: name };
    commit(&*store, owner, &[reference, facts(1, 1..=1)]);

    let (mark, mut inventory) = collection.recv().unwrap();
    let request = SweepRequest {
        mark,
        inventory: &mut inventory,
        contents: KeptContents::Referenced,
        deletions: &Deletions::default(),
        mode: SweepMode::Free,
        limits: THOROUGH,
        watch: &mut |_| ControlFlow::Continue(()),
    };
    store.sweep(owner, request).unwrap();
    assert_eq!(read(&*store, name).unwrap(), held);
}
