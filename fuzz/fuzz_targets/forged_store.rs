//! Stores with right hashes and forged insides, opened to look into as `dormouse ps` and `log` do,
//! and recovered: each record is read or refused by name, and takes no more memory than a
//! multiple of the store's bytes.

#![no_main]

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use arbitrary::Unstructured;
use dormouse_actors::ports::{Batch, BlobReader, Store, WriteOp};
use dormouse_fuzz::forge::export;
use dormouse_fuzz::forge::store::Forged;
use dormouse_fuzz::forging::{EXPORT, facts, forgeries, member, named, recover, within_bounds};
use dormouse_kernel::temp_files::{TempFiles, evolve};
use dormouse_proto::checkpoint::Scope;
use dormouse_proto::id::{CheckpointId, ContentHash, FactNumber, Pid};
use dormouse_proto::process::{Exit, ExitStatus, ProcessRow};
use dormouse_proto::record::codec;
use dormouse_proto::record::{ContentRef, Image};
use dormouse_proto::temp_file::TempFileRecord;
use dormouse_store::{LogStore, Repair, fsck};
use libfuzzer_sys::fuzz_target;
use peak_alloc::PeakAlloc;
use tempfile::TempDir;

#[global_allocator]
static ALLOC: PeakAlloc = PeakAlloc;

/// What an open store takes, empty: its index is built in memory.
const OPEN_BYTES: usize = 1 << 20;

/// Where stores are written: in memory where there is such a place.
static FOLDER: LazyLock<TempDir> = LazyLock::new(|| {
    let shared = Path::new("/dev/shm");
    let base = if shared.is_dir() {
        shared.to_owned()
    } else {
        std::env::temp_dir()
    };
    tempfile::tempdir_in(base).expect("a folder for a store")
});

/// A store with records of the kinds that are forged.
static STORE: LazyLock<Forged> = LazyLock::new(|| {
    let dir = FOLDER.path().join("seed");
    let seed = export::records(EXPORT);
    let image = codec::encode(&member().image).expect("it is small");
    let (row, child) = (
        ProcessRow::started(Pid(1), "p"),
        ProcessRow::started(Pid(2), "p"),
    );
    let contents = seed.iter().filter(|record| record.kind == 5).map(|record| {
        let bytes = bytes::Bytes::from(record.payload.clone());
        let hash = ContentHash(*blake3::hash(&bytes).as_bytes());
        WriteOp::Content {
            hash,
            index: bytes::Bytes::new(),
            bytes,
        }
    });
    let change = seed
        .iter()
        .find(|record| record.kind == 4)
        .expect("it holds a change")
        .payload
        .clone();
    let facts = facts();
    let last = FactNumber(facts.len() as u64);
    let exit = Exit::new(ExitStatus::Done, "done");
    let commits: Vec<Vec<WriteOp>> = vec![
        contents.collect(),
        vec![
            WriteOp::ProcessCreated {
                row: Box::new(row),
                image: image.clone(),
            },
            WriteOp::ProcessCreated {
                row: Box::new(child),
                image: image.clone(),
            },
        ],
        vec![WriteOp::Facts {
            pid: Pid(1),
            first: FactNumber(1),
            facts,
        }],
        vec![WriteOp::Snapshot {
            pid: Pid(1),
            at: last,
            image,
        }],
        vec![WriteOp::TempFile {
            root: Pid(1),
            number: 1,
            record: change,
        }],
        vec![WriteOp::Checkpoint {
            id: CheckpointId(1),
            label: "here".into(),
            pid: Pid(1),
            root: Pid(1),
            scope: Scope::Tree,
            members: vec![Pid(1), Pid(2)],
        }],
        vec![WriteOp::ProcessEnded { pid: Pid(2), exit }],
    ];
    let store = LogStore::open(&dir).expect("a new store");
    let owner = store.claim().expect("it is free");
    for entries in &commits {
        store
            .commit(owner, Batch::durable(entries, 1_700_000_000_000))
            .expect("it is written");
    }
    drop(store);
    Forged::read(&dir).expect("it is whole")
});

fuzz_target!(|bytes: &[u8]| {
    let mut bytes = Unstructured::new(bytes);
    let (Ok(numbers), Ok(forgeries)) = (
        bytes.arbitrary::<[(u8, u8, u8); 2]>(),
        forgeries(&mut bytes),
    ) else {
        return;
    };
    let mut store = STORE.clone();
    for (at, forgery) in forgeries {
        let at = usize::from(at) % store.records.len();
        forgery.apply(&mut store.records[at].payload);
    }
    for (at, which, claim) in numbers.into_iter().filter(|(at, ..)| *at > 127) {
        let at = usize::from(at) % store.records.len();
        // The chain determines where a record is, so its commit and its length are kept.
        let which = [1, 2, 3, 5, 6, 7][usize::from(which) % 6];
        store.records[at].numbers[which] = claimed(claim);
    }
    let dir = FOLDER.path().join("forged");
    let _ = std::fs::remove_dir_all(&dir);
    store.write(&dir).expect("it can be written");
    let length: usize = store
        .records
        .iter()
        .map(|record| record.payload.len() + 168)
        .sum();
    within_bounds(&ALLOC, length + OPEN_BYTES, || look(&dir));
});

fn claimed(claim: u8) -> u64 {
    let power = 1_u64.checked_shl(u32::from(claim / 2)).unwrap_or(u64::MAX);
    if claim % 2 == 0 {
        power
    } else {
        power.wrapping_sub(1)
    }
}

/// Reads all that can be read. Answers are not looked at: that nothing panics and nothing is
/// reserved is all that is asked.
fn look(dir: &PathBuf) {
    if let Ok(store) = LogStore::read_only(dir) {
        for row in store
            .processes()
            .map(|listing| listing.rows)
            .unwrap_or_default()
        {
            recovered(&store, row.pid, None);
            let Ok(history) = store.history(row.pid).map(|history| history.commits) else {
                continue;
            };
            let (first, last) = (
                history.first().map(|run| run.first),
                history.last().map(|run| run.last()),
            );
            if let (Some(first), Some(last)) = (first, last) {
                let _ = store.facts(row.pid, first, last);
                recovered(&store, row.pid, Some(FactNumber(last.0 / 2)));
            }
            let mut files = TempFiles::default();
            for change in store.temp_files(row.pid).unwrap_or_default() {
                if let Ok(change) = codec::decode::<TempFileRecord<ContentRef>>(&change.record) {
                    let Ok(change) = change.try_map(&mut |content| Ok::<_, ()>(named(content)))
                    else {
                        continue;
                    };
                    evolve(&mut files, &change);
                }
            }
        }
        let _ = (store.checkpoints(), store.last_checkpoint());
    }
    let _ = fsck(dir, &LogStore::options(), Repair::No, &mut |_, _| {});
}

fn recovered(store: &LogStore, pid: Pid, upto: Option<FactNumber>) {
    let Ok(journal) = store.journal(pid, upto) else {
        return;
    };
    let Ok(image) = codec::decode::<Image<ContentRef>>(&journal.image) else {
        return;
    };
    let content = store
        .content(image.bundle.hash)
        .and_then(|backing| all(&*backing));
    recover(
        journal.row.local_id(),
        image,
        content.ok().as_deref(),
        &journal.facts,
    );
}

fn all(content: &dyn BlobReader) -> Result<bytes::Bytes, dormouse_actors::ports::StoreError> {
    let _ = content.index();
    Ok(content.slice(0..content.length()).unwrap_or_default())
}
