//! Every version must read the logs in `tests/golden/`, so nothing writes them anew. A new version
//! of the encoding gets files of its own: `UPDATE_GOLDEN=1` writes those that are not there.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use dormouse_actors::ports::{Store, SyncLevel, WriteOp};
use dormouse_proto::id::{ContentHash, FactNumber, Pid};
use dormouse_proto::record::codec::VERSION;
use dormouse_records::{
    MemoryLog, NewContent, RecordBatch, RecordLog, RecordOp, RecordStore, StoreSecret, Stream,
    StreamKind,
};
use dormouse_store_conformance::entries::*;

const KINDS: [StreamKind; 7] = [
    StreamKind::Process,
    StreamKind::Snapshot,
    StreamKind::Fact,
    StreamKind::TempFile,
    StreamKind::Checkpoint,
    StreamKind::LastCheckpoint,
    StreamKind::LogHeader,
];

fn plain(log: Arc<MemoryLog>) -> RecordStore<Arc<MemoryLog>> {
    RecordStore::new_on(log)
}

fn packed(log: Arc<MemoryLog>) -> RecordStore<Arc<MemoryLog>> {
    let store = RecordStore::new_on(log).key(StoreSecret::new([7; 32]));
    #[cfg(feature = "compression")]
    let store = store.compression(dormouse_records::Compression::Zstd(3));
    store
}

/// A small content, and one of several chunks that compresses well.
fn contents() -> [Bytes; 2] {
    [bytes(1, 100), "again ".repeat(11_000).into()]
}

fn fill(store: &dyn Store) {
    let owner = store.claim().unwrap();
    let contents = contents().map(|bytes| WriteOp::Content {
        hash: hash(&bytes),
        bytes,
        index: "text index ".repeat(20).into(),
    });
    commit(store, owner, &[created(1), created(2), facts(1, 1..=3)]);
    commit(store, owner, &contents);
    commit(store, owner, &[snapshot(1, 2), temp_file(1, 1)]);
    commit(store, owner, &[checkpoint(1, &[1]), ended(2)]);
}

fn check(store: &dyn Store) {
    let journal = store.journal(Pid(1), None).unwrap();
    assert_eq!(journal.image, b"image of 1 at 2");
    assert_eq!(journal.facts, [fact(1, 3)]);
    let born = store.journal(Pid(1), Some(FactNumber(1))).unwrap();
    assert_eq!(
        (&born.image[..], born.facts),
        (&b"image of 1"[..], vec![fact(1, 1)])
    );
    let rows = store.processes().unwrap().rows;
    assert_eq!(rows.len(), 2);
    assert_eq!(rows[1].exit, Some(exit()));
    assert_eq!(&*store.checkpoints().unwrap()[0].label, "before");
    assert_eq!(store.last_checkpoint().unwrap(), 1);
    assert_eq!(records(store.temp_files(Pid(1)).unwrap()), [change(1, 1)]);
    for bytes in contents() {
        let content = store.content(hash(&bytes)).unwrap();
        assert_eq!(content.slice(0..content.length()).unwrap(), bytes);
        assert_eq!(content.index().unwrap(), "text index ".repeat(20));
    }
    let owner = store.claim().unwrap();
    commit(store, owner, &[facts(1, 4..=4)]);
}

/// A line for each record (`record KIND ID NUMBER BYTES`) and content (`content NAME BYTES INDEX`).
fn to_text(log: &MemoryLog) -> String {
    let mut text = String::new();
    for kind in KINDS {
        for (id, record) in log.read_kind(kind).unwrap() {
            let (kind, number, bytes) = (kind as u8, record.number, hex(&record.bytes));
            writeln!(text, "record {kind} {id} {number} {bytes}").unwrap();
        }
    }
    let mut contents = log.contents().unwrap();
    contents.sort();
    for (name, length) in contents {
        let content = log.content(name).unwrap().unwrap();
        let bytes = hex(&content.slice(0..length).unwrap());
        let index = hex(&content.index().unwrap());
        writeln!(text, "content {} {bytes} {index}", hex(&name.0)).unwrap();
    }
    text
}

fn from_text(text: &str) -> MemoryLog {
    let (mut ops, mut contents) = (Vec::new(), Vec::new());
    for line in text.lines() {
        let words: Vec<_> = line.split(' ').collect();
        match words[..] {
            ["record", kind, id, number, bytes] => {
                let kind = KINDS[kind.parse::<usize>().unwrap() - 1];
                let id = id.parse().unwrap();
                ops.push(RecordOp::Put {
                    stream: Stream { kind, id },
                    number: number.parse().unwrap(),
                    bytes: from_hex(bytes),
                });
            }
            ["content", name, bytes, index] => contents.push(NewContent {
                name: ContentHash((&from_hex(name)[..]).try_into().unwrap()),
                bytes: from_hex(bytes),
                index: from_hex(index),
            }),
            _ => panic!("{line}"),
        }
    }
    let log = MemoryLog::default();
    let batch = RecordBatch {
        contents: &contents,
        ops: &ops,
        at_ms: NOW_MS,
        sync_level: SyncLevel::Synced,
    };
    log.append(log.claim().unwrap(), &batch).unwrap();
    log
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(digits: &str) -> Bytes {
    let pairs = (0..digits.len()).step_by(2);
    pairs
        .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap())
        .collect()
}

/// The file of a version of the encoding.
fn golden(version: u8, name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    folder.join(format!("log-{version}-{name}.txt"))
}

#[cfg(not(feature = "compression"))]
#[test]
fn a_program_without_the_feature_compression_names_it_when_it_reads_compressed_bytes() {
    let log = |name| {
        let file = golden(VERSION, name);
        Arc::new(from_text(&std::fs::read_to_string(file).unwrap()))
    };
    check(&plain(log("plain")));
    let store = packed(log("packed"));
    assert_eq!(store.processes().unwrap().rows.len(), 2);
    let [small, large] = contents().map(|bytes| store.content(hash(&bytes)));
    assert!(small.is_ok());
    let error = large.err().unwrap().to_string();
    assert!(error.contains("with the feature `compression`"), "{error}");
}

#[cfg(feature = "compression")]
#[test]
fn logs_of_every_version_can_be_read_and_continued() {
    type Open = fn(Arc<MemoryLog>) -> RecordStore<Arc<MemoryLog>>;
    for (name, open) in [("packed", packed as Open), ("plain", plain)] {
        let file = golden(VERSION, name);
        if std::env::var_os("UPDATE_GOLDEN").is_some() && !file.exists() {
            let log = Arc::new(MemoryLog::default());
            fill(&open(log.clone()));
            std::fs::write(&file, to_text(&log)).unwrap();
        }
        for version in 1..=VERSION {
            let log = from_text(&std::fs::read_to_string(golden(version, name)).unwrap());
            check(&open(Arc::new(log)));
        }
    }
}

#[test]
fn an_unencrypted_log_has_the_bytes_of_the_golden_file() {
    let log = Arc::new(MemoryLog::default());
    fill(&plain(log.clone()));
    assert_eq!(
        to_text(&log),
        std::fs::read_to_string(golden(VERSION, "plain")).unwrap()
    );
}
