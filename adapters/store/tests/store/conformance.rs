//! Runs the conformance suite on a log store, with each encoding and in several ways of reopening
//! it.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use dormouse_actors::ports::{
    Batch, BlobReader, History, InventoryReport, InventoryUpdate, Journal, MarkToken, OwnerToken,
    ProcessListing, Store, StoreError, SweepReport, SweepRequest, TempFileChange,
};
use dormouse_proto::checkpoint::Checkpoint;
use dormouse_proto::id::{CommitNumber, ContentHash, FactNumber, Pid};
use dormouse_store::{Compression, LogStore};
use dormouse_store_conformance::check_store;

use crate::support::*;

/// The only one of these tests that writes to a real disk.
#[test]
fn the_log_store_conforms() {
    check_store(|| {
        let folder = tempfile::tempdir().unwrap();
        let store = LogStore::open(folder.path()).unwrap();
        Box::new(move |operation| {
            let _in_use = &folder;
            operation(&store);
        })
    });
}

#[test]
fn the_log_store_conforms_if_it_is_reopened_without_its_index_before_each_operation() {
    check_store(|| {
        let folder = tempdir();
        Box::new(move |operation| {
            operation(&LogStore::open(folder.path()).unwrap());
            fs::remove_dir_all(folder.path().join("index")).unwrap();
        })
    });
}

#[test]
fn the_log_store_conforms_if_it_is_reopened_with_small_segments() {
    check_store(|| {
        let folder = tempdir();
        Box::new(move |operation| {
            operation(
                &LogStore::options()
                    .segment_bytes(700)
                    .open(folder.path())
                    .unwrap(),
            )
        })
    });
}

#[test]
fn the_log_store_conforms_if_its_index_is_deleted_while_it_is_open() {
    check_store(|| {
        let folder = tempdir();
        let store = LogStore::open(folder.path()).unwrap();
        Box::new(move |operation| {
            operation(&store);
            let index: PathBuf = folder.path().join("index");
            if index.exists() {
                fs::remove_dir_all(index).unwrap();
            }
        })
    });
}

/// Compaction needs an owner, and a new claim would invalidate the suite's token, so the suite's
/// own token is used.
fn latest_owner(store: &LogStore) -> Option<OwnerToken> {
    (0..64)
        .map(OwnerToken)
        .find(|owner| store.begin_mark(*owner).is_ok())
}

#[test]
fn the_log_store_conforms_if_it_is_swept_between_operations() {
    let sealed = LogStore::options()
        .compression(Compression::Zstd(3))
        .key(secret(1));
    let cases = [
        (LogStore::options(), false),
        (LogStore::options(), true),
        (sealed, true),
    ];
    for (options, reopened) in cases {
        check_store(|| {
            let (folder, mut store, options) = (tempdir(), None, options.clone());
            Box::new(move |operation| {
                let open = || {
                    options
                        .clone()
                        .segment_bytes(700)
                        .open(folder.path())
                        .unwrap()
                };
                let held = store.take().unwrap_or_else(open);
                operation(&held);
                if let Some(owner) = latest_owner(&held) {
                    let swept = sweep(&held, owner, &LiveContents::default());
                    assert!(swept.damaged_segments.is_empty(), "{swept:?}");
                }
                if reopened {
                    drop(held);
                    fs::remove_dir_all(folder.path().join("index")).unwrap();
                } else {
                    store = Some(held);
                }
            })
        });
    }
}

#[test]
fn a_store_that_is_encrypted_or_compressed_conforms() {
    for (name, options) in encoding_options() {
        check_store(|| {
            let (folder, options) = (tempdir(), options.clone());
            Box::new(move |operation| {
                let store = options.clone().segment_bytes(700).open(folder.path());
                operation(&store.unwrap_or_else(|error| panic!("{name}: {error}")));
            })
        });
    }
}

#[test]
fn a_read_only_store_gives_the_same_answers_as_the_store_that_is_written() {
    for options in [LogStore::options()]
        .into_iter()
        .chain(encoding_options().into_iter().map(|(_, options)| options))
    {
        check_store(|| {
            let folder = tempdir();
            let store = Arc::new(
                options
                    .clone()
                    .segment_bytes(700)
                    .open(folder.path())
                    .unwrap(),
            );
            let options = options.clone();
            Box::new(move |operation| {
                let beside = options.clone().read_only(folder.path()).unwrap();
                operation(&WriterAndReader {
                    reads: beside,
                    writes: Arc::clone(&store),
                });
            })
        });
    }
}

/// Writes one store, and reads from another that has the folder open for reading.
struct WriterAndReader {
    reads: LogStore,
    writes: Arc<LogStore>,
}

impl Store for WriterAndReader {
    fn claim(&self) -> Result<OwnerToken, StoreError> {
        self.writes.claim()
    }
    fn commit(&self, owner: OwnerToken, batch: Batch<'_>) -> Result<CommitNumber, StoreError> {
        self.writes.commit(owner, batch)
    }
    fn processes(&self) -> Result<ProcessListing, StoreError> {
        self.reads.processes()
    }
    fn journal(&self, pid: Pid, up_to: Option<FactNumber>) -> Result<Journal, StoreError> {
        self.reads.journal(pid, up_to)
    }
    fn history(&self, pid: Pid) -> Result<History, StoreError> {
        self.reads.history(pid)
    }
    fn facts(
        &self,
        pid: Pid,
        first: FactNumber,
        up_to: FactNumber,
    ) -> Result<Vec<Vec<u8>>, StoreError> {
        self.reads.facts(pid, first, up_to)
    }
    fn checkpoints(&self) -> Result<Vec<Checkpoint>, StoreError> {
        self.reads.checkpoints()
    }
    fn last_checkpoint(&self) -> Result<u64, StoreError> {
        self.reads.last_checkpoint()
    }
    fn labels(&self) -> Result<Vec<(u64, Vec<u8>)>, StoreError> {
        self.reads.labels()
    }
    fn content(&self, hash: ContentHash) -> Result<Arc<dyn BlobReader>, StoreError> {
        self.reads.content(hash)
    }
    fn temp_files(&self, root: Pid) -> Result<Vec<TempFileChange>, StoreError> {
        self.reads.temp_files(root)
    }
    fn temp_files_up_to(
        &self,
        root: Pid,
        commit: CommitNumber,
    ) -> Result<Vec<TempFileChange>, StoreError> {
        self.reads.temp_files_up_to(root, commit)
    }
    fn begin_mark(&self, owner: OwnerToken) -> Result<MarkToken, StoreError> {
        self.writes.begin_mark(owner)
    }
    fn end_mark(&self, mark: MarkToken) {
        self.writes.end_mark(mark);
    }
    fn update_inventory(&self, order: InventoryUpdate<'_>) -> Result<InventoryReport, StoreError> {
        self.writes.update_inventory(order)
    }

    fn sweep(&self, owner: OwnerToken, sweep: SweepRequest<'_>) -> Result<SweepReport, StoreError> {
        self.writes.sweep(owner, sweep)
    }
}
