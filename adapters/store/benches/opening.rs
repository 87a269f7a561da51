//! Measures how long opening a store takes, by the number of its records: for reading, for writing
//! with an existing index, and for writing with an index that has to be rebuilt. The same run
//! measures two baselines on the same log: the minimal work of a reader without an index, which
//! reads each header and computes its hash, and a sealed table of the same records, which is one
//! file that is read whole and verified by one hash.
//!
//! Figures for a million facts on two busy cores, fastest of five runs: opening for reading takes
//! 1.6 s, as long as reading the headers one by one. Opening with sled's index takes 0.06 s,
//! building that index 19 s, and reading a sealed table at least 0.04 s. The store has no sealed
//! table, because such a table could cover closed segments only. A segment has 256 MiB, or some
//! 700,000 such facts, and the open segment is half full on average. So a table would save about
//! half of the time at a million facts, and nothing at 500,000. It would save little for contents,
//! of which 1,000 (250 MB) open in 2 ms.

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use bytes::Bytes;
use divan::black_box;
use dormouse_actors::ports::{Batch, Store as _, WriteOp};
use dormouse_proto::id::{ContentHash, FactNumber, Pid};
use dormouse_proto::process::ProcessRow;
use dormouse_store::LogStore;
use tempfile::TempDir;

const FACT_BYTES: usize = 200;
const CONTENT_BYTES: usize = 256 << 10;
/// Fact records of one process: as many as a long session of an agent.
const FACTS_PER_PROCESS: u64 = 1_000;
const RECORDS_PER_COMMIT: usize = 500;

const HEADER_BYTES: usize = 168;
/// The bytes that a header's hash covers: the header without its hash, and the location.
const HASHED_BYTES: usize = 136 + 12;
/// Of a table: a key of at least 17 bytes, location, count.
const TABLE_ENTRY_BYTES: usize = 40;

/// The contents of a log: facts of some hundred bytes, or contents of some hundred kilobytes.
#[derive(Clone, Copy, Debug)]
enum Log {
    Facts(u64),
    Contents(u64),
}

const LOGS: [Log; 5] = [
    Log::Facts(10_000),
    Log::Facts(100_000),
    Log::Facts(1_000_000),
    Log::Contents(100),
    Log::Contents(1_000),
];

static FOLDERS: OnceLock<Vec<PathBuf>> = OnceLock::new();

fn main() {
    let folders: Vec<TempDir> = LOGS.iter().map(|log| log.make()).collect();
    FOLDERS
        .set(
            folders
                .iter()
                .map(|folder| folder.path().to_owned())
                .collect(),
        )
        .expect("they are made once");
    divan::main();
}

impl std::fmt::Display for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Facts(records) => write!(f, "{records} facts"),
            Self::Contents(records) => write!(f, "{records} contents"),
        }
    }
}

impl Log {
    fn make(self) -> TempDir {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let store = LogStore::open(folder.path()).expect("an empty folder opens");
        let owner = store.claim().expect("the store is ours");
        let mut ops = Vec::new();
        let commit = |ops: &mut Vec<WriteOp>| {
            store
                .commit(owner, Batch::durable(ops, 0))
                .expect("a commit is taken");
            ops.clear();
        };
        match self {
            Self::Facts(records) => {
                for number in 0..records {
                    let (pid, first) = (
                        Pid(1 + number / FACTS_PER_PROCESS),
                        number % FACTS_PER_PROCESS,
                    );
                    ops.push(match first {
                        0 => WriteOp::ProcessCreated {
                            row: Box::new(ProcessRow::started(pid, "bench")),
                            image: vec![0; FACT_BYTES],
                        },
                        first => WriteOp::Facts {
                            pid,
                            first: FactNumber(first),
                            facts: vec![vec![7; FACT_BYTES]],
                        },
                    });
                    if ops.len() == RECORDS_PER_COMMIT {
                        commit(&mut ops);
                    }
                }
            }
            Self::Contents(records) => {
                for number in 0..records {
                    let mut bytes = vec![7; CONTENT_BYTES];
                    bytes[..8].copy_from_slice(&number.to_le_bytes());
                    let hash = ContentHash(*blake3::hash(&bytes).as_bytes());
                    ops.push(WriteOp::Content {
                        hash,
                        bytes: Bytes::from(bytes),
                        index: Bytes::new(),
                    });
                    commit(&mut ops);
                }
            }
        }
        drop(store);
        folder
    }

    fn folder(self) -> &'static Path {
        let at = LOGS
            .iter()
            .position(|log| log.to_string() == self.to_string())
            .expect("it is one of them");
        &FOLDERS.get().expect("they were made first")[at]
    }

    fn records(self) -> usize {
        let (Self::Facts(records) | Self::Contents(records)) = self;
        records as usize
    }

    fn segments(self) -> impl Iterator<Item = File> {
        let names = fs::read_dir(self.folder().join("log")).expect("there is a log");
        names.map(|name| File::open(name.expect("it has a name").path()).expect("it opens"))
    }
}

#[divan::bench(args = LOGS, sample_count = 5, sample_size = 1)]
fn open_to_read(log: Log) -> LogStore {
    LogStore::read_only(log.folder()).expect("it opens")
}

#[divan::bench(args = LOGS, sample_count = 5, sample_size = 1)]
fn open_to_write(log: Log) -> LogStore {
    LogStore::open(log.folder()).expect("it opens")
}

#[divan::bench(args = LOGS, sample_count = 3, sample_size = 1)]
fn open_to_write_without_its_index(bencher: divan::Bencher<'_, '_>, log: Log) {
    let remove = || fs::remove_dir_all(log.folder().join("index")).expect("it is there");
    bencher
        .with_inputs(remove)
        .bench_values(|()| LogStore::open(log.folder()).expect("it opens"));
}

/// One read per header.
#[divan::bench(args = LOGS, sample_count = 5, sample_size = 1)]
fn bare_headers_one_by_one(log: Log) {
    for file in log.segments() {
        let length = file.metadata().expect("it has a length").len();
        let (mut at, mut header) = (0, [0; HEADER_BYTES]);
        while at < length {
            file.read_exact_at(&mut header, at)
                .expect("a header is there");
            at += hash_header(&header);
        }
    }
}

/// One read for as many headers as are close together.
#[divan::bench(args = LOGS, sample_count = 5, sample_size = 1)]
fn bare_headers_by_window(log: Log) {
    for file in log.segments() {
        let length = file.metadata().expect("it has a length").len();
        let (mut at, mut from, mut window) = (0, 0, Vec::new());
        while at < length {
            if at + HEADER_BYTES as u64 > from + window.len() as u64 {
                from = at;
                window.resize((length - at).min(64 << 10) as usize, 0);
                file.read_exact_at(&mut window, from)
                    .expect("a header is there");
            }
            at += hash_header(&window[(at - from) as usize..][..HEADER_BYTES]);
        }
    }
}

/// Computes the header's hash, as a verification does, and returns the length of the record.
fn hash_header(header: &[u8]) -> u64 {
    let mut hashed = [0; HASHED_BYTES];
    hashed[..136].copy_from_slice(&header[..136]);
    black_box(blake3::keyed_hash(&[1; 32], &hashed));
    HEADER_BYTES as u64
        + u64::from_le_bytes(*header[40..].first_chunk().expect("a header is longer"))
}

/// As many entries as the log has records, sorted and verified by one hash: no record of the log is
/// read.
#[divan::bench(args = LOGS, sample_count = 5, sample_size = 1)]
fn bare_sealed_table(bencher: divan::Bencher<'_, '_>, log: Log) {
    let file = tempfile::NamedTempFile::new().expect("a temporary file can be made");
    fs::write(file.path(), vec![3; log.records() * TABLE_ENTRY_BYTES]).expect("it can be written");
    bencher.bench(|| blake3::keyed_hash(&[1; 32], &fs::read(file.path()).expect("it can be read")));
}
