//! Encrypted and compressed logs: which bytes the log sees, which keys are accepted, and how the
//! store answers if the log returns other bytes than it was given.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::ops::{Range, RangeInclusive};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use dormouse_actors::ports::{
    Batch, BlobReader, KeyFault, OwnerToken, Store, StoreError, Unreadable, WriteOp,
};
use dormouse_proto::id::{CommitNumber, ContentHash, FactNumber, Pid};
use dormouse_proto::process::{Exit, ExitStatus, ProcessRow};
use dormouse_records::{
    Compression, MemoryLog, NewContent, Record, RecordBatch, RecordLog, RecordOp, RecordStore,
    StoreSecret, Stream, StreamKind,
};
use dormouse_store_conformance::collection::{keep_only, sweep};
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

/// Texts that must not be visible without the key.
const CANARIES: [&str; 8] = [
    "the-program",
    "the-name",
    "the-image",
    "the-fact",
    "the-content",
    "the-text-index",
    "the-label",
    "the-exit",
];

fn secret(byte: u8) -> StoreSecret {
    StoreSecret::new([byte; 32])
}

fn encrypted_store<L: RecordLog>(log: L, compression: Compression) -> RecordStore<L> {
    RecordStore::new_on(log)
        .key(secret(1))
        .compression(compression)
}

/// All records of a log, and all contents by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Dump {
    records: Vec<(Stream, Record)>,
    contents: Vec<(ContentHash, Bytes, Bytes)>,
}

impl Dump {
    fn of(log: &MemoryLog) -> Self {
        let records = KINDS.into_iter().flat_map(|kind| {
            let records = log.read_kind(kind).unwrap().into_iter();
            records.map(move |(id, record)| (Stream { kind, id }, record))
        });
        let names = log.contents().unwrap().into_iter();
        let contents = names.map(|(name, length)| {
            let content = log.content(name).unwrap().unwrap();
            let bytes = content.slice(0..length).unwrap();
            (name, bytes, content.index().unwrap())
        });
        let mut contents: Vec<_> = contents.collect();
        contents.sort();
        Self {
            records: records.collect(),
            contents,
        }
    }

    fn contains_bytes(&self, what: &[u8]) -> bool {
        let records = self.records.iter().map(|(_, record)| &record.bytes[..]);
        let contents = self.contents.iter();
        let contents = contents.flat_map(|(name, bytes, index)| [&name.0[..], bytes, index]);
        records
            .chain(contents)
            .any(|bytes| bytes.windows(what.len()).any(|window| window == what))
    }

    fn length(&self) -> usize {
        let records = self.records.iter().map(|(_, record)| record.bytes.len());
        let contents = self.contents.iter();
        let contents = contents.map(|(_, bytes, index)| bytes.len() + index.len());
        records.chain(contents).sum()
    }
}

fn indexed(bytes: &Bytes) -> WriteOp {
    WriteOp::Content {
        hash: hash(bytes),
        bytes: bytes.clone(),
        index: "the-text-index".repeat(30).into(),
    }
}

/// Writes every canary, and contents of one and of several chunks. Returns the contents.
fn fill(store: &dyn Store) -> Vec<Bytes> {
    let owner = store.claim().unwrap();
    let row = ProcessRow {
        program: "the-program".into(),
        name: Some("the-name".into()),
        ..row(1)
    };
    let image = "the-image".repeat(50).into_bytes();
    commit(
        store,
        owner,
        &[WriteOp::ProcessCreated {
            row: Box::new(row),
            image,
        }],
    );
    let facts = vec![b"the-fact".to_vec(), b"the-fact".repeat(100)];
    let (pid, first) = (Pid(1), FactNumber(1));
    let label = WriteOp::Checkpoint {
        id: dormouse_proto::id::CheckpointId(1),
        label: "the-label".into(),
        pid,
        root: pid,
        scope: dormouse_proto::checkpoint::Scope::Tree,
        members: vec![pid],
    };
    let exit = Exit::new(ExitStatus::Done, "the-exit");
    let end = WriteOp::ProcessEnded { pid, exit };
    commit(store, owner, &[WriteOp::Facts { pid, first, facts }]);
    commit(store, owner, &[temp_file(1, 1), label, end]);
    let contents = [1, 30_000].map(|times| Bytes::from("the-content".repeat(times)));
    commit(store, owner, &contents.each_ref().map(indexed));
    contents.to_vec()
}

#[test]
fn an_encrypted_log_contains_no_plain_text_and_no_content_hash() {
    for compression in [Compression::None, Compression::Zstd(3)] {
        let store = encrypted_store(MemoryLog::default(), compression);
        let contents = fill(&store);
        let dump = Dump::of(store.log());
        for canary in CANARIES.iter().map(|canary| canary.as_bytes()) {
            assert!(
                !dump.contains_bytes(canary),
                "{}",
                String::from_utf8_lossy(canary)
            );
        }
        assert!(!dump.contains_bytes(&change(1, 1)) && !dump.contains_bytes(&[1; 32]));
        for bytes in &contents {
            assert!(
                !dump.contains_bytes(&hash(bytes).0),
                "a hash tells what a content is"
            );
            assert_eq!(read(&store, hash(bytes)).unwrap(), bytes);
            let index = store.content(hash(bytes)).unwrap().index().unwrap();
            assert!(index.starts_with(b"the-text-index"));
        }
        let row = &store.processes().unwrap().rows[0];
        assert_eq!(&*row.exit.as_ref().unwrap().message, "the-exit");
        assert_eq!(&*store.checkpoints().unwrap()[0].label, "the-label");
    }
    let plain = RecordStore::new_on(MemoryLog::default());
    let contents = fill(&plain);
    let dump = Dump::of(plain.log());
    let seen = |canary: &&str| dump.contains_bytes(canary.as_bytes());
    assert!(CANARIES.iter().all(seen) && dump.contains_bytes(&hash(&contents[0]).0));
}

#[test]
fn two_logs_with_the_same_key_share_no_record_and_no_content_name() {
    let dumps = [0, 1].map(|_| {
        let store = encrypted_store(MemoryLog::default(), Compression::None);
        fill(&store);
        Dump::of(store.log())
    });
    for (one, other) in dumps[0].records.iter().zip(&dumps[1].records) {
        assert_eq!(one.0, other.0);
        assert_ne!(one.1.bytes, other.1.bytes, "{:?}", one.0);
    }
    let names = |dump: &Dump| {
        dump.contents
            .iter()
            .map(|content| content.0)
            .collect::<Vec<_>>()
    };
    assert!(
        names(&dumps[0])
            .iter()
            .all(|name| !names(&dumps[1]).contains(name))
    );
}

/// Every operation of a store that must be refused without the expected key.
fn refusals(store: &dyn Store, owner: OwnerToken) -> Vec<StoreError> {
    let new = [created(9)];
    vec![
        store.claim().unwrap_err(),
        store
            .commit(owner, Batch::durable(&new, NOW_MS))
            .unwrap_err(),
        store.processes().unwrap_err(),
        store.journal(Pid(1), None).unwrap_err(),
        store.history(Pid(1)).unwrap_err(),
        store.checkpoints().unwrap_err(),
        store.last_checkpoint().unwrap_err(),
        store.temp_files(Pid(1)).unwrap_err(),
        store.content(hash(b"")).err().unwrap(),
    ]
}

#[test]
fn a_wrong_missing_or_needless_key_is_an_error_and_changes_nothing() {
    type Open = fn(Arc<MemoryLog>) -> RecordStore<Arc<MemoryLog>>;
    let plain: Open = RecordStore::new_on;
    let expected: Open = |log| RecordStore::new_on(log).key(secret(1));
    let wrong: Open = |log| RecordStore::new_on(log).key(secret(2));
    let cases = [
        (expected, plain, KeyFault::Missing),
        (expected, wrong, KeyFault::Wrong),
        (plain, expected, KeyFault::NotEncrypted),
    ];
    for (creating, opened, expected) in cases {
        let log = Arc::new(MemoryLog::default());
        let contents = fill(&creating(log.clone()));
        let owner = creating(log.clone()).claim().unwrap();
        let before = Dump::of(&log);
        for error in refusals(&opened(log.clone()), owner) {
            let StoreError::Key { fault, .. } = error else {
                panic!("{expected:?} is expected, and not {error}");
            };
            assert_eq!(fault, expected, "{error}");
        }
        assert_eq!(Dump::of(&log), before, "{expected:?}");
        let store = creating(log);
        commit(&store, owner, &[created(9)]);
        assert_eq!(read(&store, hash(&contents[1])).unwrap(), contents[1]);
    }
}

#[test]
fn a_log_without_its_header_refuses_commits() {
    let log = Arc::new(MemoryLog::default());
    fill(&encrypted_store(log.clone(), Compression::None));
    let owner = log.claim().unwrap();
    let kind = StreamKind::LogHeader;
    let stream = Stream { kind, id: 0 };
    append(&log, owner, &[], &[RecordOp::Delete { stream, up_to: 0 }]);
    let before = Dump::of(&log);
    for store in [
        RecordStore::new_on(log.clone()),
        encrypted_store(log.clone(), Compression::None),
    ] {
        let claimed = store.claim().unwrap_err();
        assert!(
            claimed.to_string().contains("header of the log"),
            "{claimed}"
        );
        let owner = log.claim().unwrap();
        let new = [created(9)];
        let refused = store.commit(owner, Batch::durable(&new, NOW_MS));
        let refused = refused.unwrap_err();
        assert!(matches!(refused, StoreError::Damaged { .. }), "{refused}");
        let read = store.journal(Pid(1), None).unwrap_err();
        assert!(matches!(read, StoreError::Damaged { .. }), "{read}");
    }
    assert_eq!(Dump::of(&log), before);
}

#[test]
fn the_first_commit_determines_the_key_and_a_claim_does_not() {
    let log = Arc::new(MemoryLog::default());
    RecordStore::new_on(log.clone()).claim().unwrap();
    assert_eq!(Dump::of(&log), Dump::default());
    let store = encrypted_store(log.clone(), Compression::None);
    let owner = store.claim().unwrap();
    commit(&store, owner, &[created(1)]);
    let header = log.read_kind(StreamKind::LogHeader).unwrap();
    assert_eq!(header.len(), 1);
    assert_eq!(
        header[0].1.commit,
        CommitNumber(1),
        "it is part of the first commit"
    );
}

/// A log in memory that counts the reads of contents, and can lose an acknowledgement.
#[derive(Default)]
struct CountingLog {
    log: Arc<MemoryLog>,
    read_bytes: Arc<AtomicU64>,
    reads: Arc<AtomicU64>,
    loses_acknowledgement: AtomicBool,
    /// Runs once, after the header of the log was read.
    after_header: Mutex<Option<Hook>>,
}

type Hook = Box<dyn FnOnce(&Arc<MemoryLog>) + Send>;

impl RecordLog for CountingLog {
    fn claim(&self) -> Result<OwnerToken, StoreError> {
        self.log.claim()
    }

    fn append(
        &self,
        owner: OwnerToken,
        batch: &RecordBatch<'_>,
    ) -> Result<CommitNumber, StoreError> {
        let written = self.log.append(owner, batch)?;
        if !batch.is_empty() && self.loses_acknowledgement.swap(false, Ordering::Relaxed) {
            return Err(StoreError::Io {
                doing: "receive the acknowledgement of a commit".to_owned(),
                source: std::io::Error::other("the connection is gone"),
            });
        }
        Ok(written)
    }

    fn read(
        &self,
        stream: Stream,
        numbers: RangeInclusive<u64>,
    ) -> Result<Vec<Record>, StoreError> {
        self.log.read(stream, numbers)
    }

    fn latest(&self, stream: Stream, up_to: u64) -> Result<Option<Record>, StoreError> {
        let latest = self.log.latest(stream, up_to);
        if stream.kind == StreamKind::LogHeader
            && let Some(hook) = self.after_header.lock().unwrap().take()
        {
            hook(&self.log);
        }
        latest
    }

    fn read_kind(&self, kind: StreamKind) -> Result<Vec<(u64, Record)>, StoreError> {
        self.log.read_kind(kind)
    }

    fn content(&self, name: ContentHash) -> Result<Option<Arc<dyn BlobReader>>, StoreError> {
        let (read_bytes, reads) = (self.read_bytes.clone(), self.reads.clone());
        let found = self.log.content(name)?;
        Ok(found.map(|found| Arc::new(CountedReader(found, read_bytes, reads)) as _))
    }

    fn contents(&self) -> Result<Vec<(ContentHash, u64)>, StoreError> {
        self.log.contents()
    }

    fn delete_contents(&self, owner: OwnerToken, names: &[ContentHash]) -> Result<(), StoreError> {
        self.log.delete_contents(owner, names)
    }
}

struct CountedReader(Arc<dyn BlobReader>, Arc<AtomicU64>, Arc<AtomicU64>);

impl BlobReader for CountedReader {
    fn length(&self) -> u64 {
        self.0.length()
    }

    fn index(&self) -> Option<Bytes> {
        self.0.index()
    }

    fn slice(&self, range: Range<u64>) -> Result<Bytes, Unreadable> {
        self.1.fetch_add(range.end - range.start, Ordering::Relaxed);
        self.2.fetch_add(1, Ordering::Relaxed);
        self.0.slice(range)
    }
}

#[test]
fn a_first_commit_that_was_not_acknowledged_keeps_the_key_that_it_was_written_with() {
    let store = encrypted_store(CountingLog::default(), Compression::None);
    let owner = store.claim().unwrap();
    store
        .log()
        .loses_acknowledgement
        .store(true, Ordering::Relaxed);
    let new = [created(1)];
    store
        .commit(owner, Batch::durable(&new, NOW_MS))
        .unwrap_err();
    commit(&store, owner, &[created(2)]);
    assert_eq!(store.processes().unwrap().rows.len(), 2);
    let headers = store.log().read_kind(StreamKind::LogHeader).unwrap();
    assert_eq!(headers[0].1.commit, CommitNumber(1));
}

#[test]
fn a_first_commit_during_a_query_of_another_program_is_not_reported_as_damage() {
    type Query = fn(&dyn Store) -> Result<(), StoreError>;
    let queries: [Query; 7] = [
        |store| {
            let lost = store.processes()?.losses;
            assert_eq!(lost, [""; 0]);
            Ok(())
        },
        |store| store.journal(Pid(1), None).map(drop),
        |store| store.facts(Pid(1), FactNumber(1), FactNumber(1)).map(drop),
        |store| store.checkpoints().map(drop),
        |store| store.last_checkpoint().map(drop),
        |store| store.temp_files(Pid(1)).map(drop),
        |store| store.content(hash(b"the-content")).map(drop),
    ];
    for (number, query) in queries.iter().enumerate() {
        let counting_log = CountingLog::default();
        let first_commits: Hook = Box::new(|log| {
            fill(&encrypted_store(log.clone(), Compression::None));
        });
        *counting_log.after_header.lock().unwrap() = Some(first_commits);
        let store = encrypted_store(counting_log, Compression::None);
        match query(&store) {
            Ok(()) | Err(StoreError::UnknownProcess(_) | StoreError::UnknownContent(_)) => {}
            Err(error) => panic!("query {number}: {error}"),
        }
        query(&store).unwrap();
    }
}

#[test]
fn a_read_of_a_range_reads_only_the_chunks_of_the_range() {
    for compression in [Compression::None, Compression::Zstd(1)] {
        let store = encrypted_store(CountingLog::default(), compression);
        let owner = store.claim().unwrap();
        let bytes = bytes(5, 5_000_000);
        commit(&store, owner, &[content(&bytes)]);
        for (range, most_bytes, most_reads) in [
            (3_000_000..3_000_100, 2 * 65_576, 1),
            (65_530..65_540, 131_152, 1),
            (1_000_000..1_500_000, 9 * 65_576, 1),
            (0..5_000_000, 77 * 65_576, 2),
        ] {
            store.log().read_bytes.store(0, Ordering::Relaxed);
            store.log().reads.store(0, Ordering::Relaxed);
            let opened = store.content(hash(&bytes)).unwrap();
            let read = opened.slice(range.clone()).unwrap();
            assert_eq!(read, bytes[range.start as usize..range.end as usize]);
            let cost = store.log().read_bytes.load(Ordering::Relaxed);
            let reads = store.log().reads.load(Ordering::Relaxed);
            assert!(
                cost <= most_bytes && reads <= most_reads,
                "{range:?}: {cost}, {reads}"
            );
        }
    }
}

#[test]
fn repetitive_bytes_are_compressed_and_random_bytes_take_no_more_space() {
    let lines = Bytes::from("a line that comes again and again\n".repeat(20_000));
    let random = std::iter::successors(Some(1_u64), |state| {
        Some(state.wrapping_mul(6_364_136_223_846_793_005) + 1)
    });
    let random: Bytes = random
        .map(|state| (state >> 56) as u8)
        .take(200_000)
        .collect();
    for secret in [None, Some(secret(1))] {
        let open = |compression| {
            let store = RecordStore::new_on(MemoryLog::default()).compression(compression);
            match &secret {
                Some(secret) => store.key(secret.clone()),
                None => store,
            }
        };
        let length = |compression, op: &[WriteOp]| {
            let store = open(compression);
            let owner = store.claim().unwrap();
            commit(&store, owner, &[created(1)]);
            let before = Dump::of(store.log()).length();
            commit(&store, owner, op);
            Dump::of(store.log()).length() - before
        };
        let fact = |bytes: &Bytes| WriteOp::Facts {
            pid: Pid(1),
            first: FactNumber(1),
            facts: vec![bytes.to_vec()],
        };
        for (name, op) in [
            ("content", content as fn(&Bytes) -> WriteOp),
            ("text index", |lines| WriteOp::Content {
                hash: hash(b"x"),
                bytes: Bytes::from_static(b"x"),
                index: lines.clone(),
            }),
            ("fact", fact),
        ] {
            let length = |compression, bytes| length(compression, &[op(bytes)]);
            let (plain, packed) = (
                length(Compression::None, &lines),
                length(Compression::Zstd(3), &lines),
            );
            assert!(packed * 20 < plain, "{name}: {packed} of {plain} bytes");
            assert_eq!(
                length(Compression::None, &random),
                length(Compression::Zstd(3), &random),
                "{name}"
            );
        }
    }
}

#[test]
fn a_collection_frees_unreferenced_contents_of_an_encrypted_log() {
    for compression in [Compression::None, Compression::Zstd(3)] {
        let store = encrypted_store(MemoryLog::default(), compression);
        let owner = store.claim().unwrap();
        let [kept, dropped] = [1, 2].map(|seed| bytes(seed, 100_000));
        commit(
            &store,
            owner,
            &[created(1), content(&kept), content(&dropped)],
        );
        let swept = sweep(&store, owner, &keep_only(&[&kept]));
        assert_eq!(swept.freed_contents, 1);
        assert_eq!(read(&store, hash(&kept)).unwrap(), kept);
        let unknown = store.content(hash(&dropped)).err().unwrap();
        assert!(
            matches!(unknown, StoreError::UnknownContent(_)),
            "{unknown}"
        );
        assert_eq!(store.log().contents().unwrap().len(), 1);
    }
}

fn append(log: &MemoryLog, owner: OwnerToken, contents: &[NewContent], ops: &[RecordOp]) {
    let batch = RecordBatch {
        contents,
        ops,
        at_ms: NOW_MS,
        sync_level: dormouse_actors::ports::SyncLevel::Synced,
    };
    log.append(owner, &batch).unwrap();
}

/// Replaces the stored bytes of a content.
fn replace(log: &MemoryLog, owner: OwnerToken, name: ContentHash, bytes: &[u8], index: &[u8]) {
    log.delete_contents(owner, &[name]).unwrap();
    let content = NewContent {
        name,
        bytes: Bytes::copy_from_slice(bytes),
        index: Bytes::copy_from_slice(index),
    };
    append(log, owner, &[content], &[]);
}

#[test]
fn a_content_that_the_log_changed_cut_or_swapped_is_never_returned() {
    for compression in [Compression::None, Compression::Zstd(3)] {
        for secret in [None, Some(secret(1))] {
            let store = RecordStore::new_on(MemoryLog::default()).compression(compression);
            let store = match secret {
                Some(secret) => store.key(secret),
                None => store,
            };
            let owner = store.claim().unwrap();
            let contents = [1, 2].map(|seed| bytes(seed, 150_000));
            for bytes in &contents {
                commit(&store, owner, &[indexed(bytes)]);
            }
            check_changed_contents(&store, owner, &contents[0]);
        }
    }
}

fn check_changed_contents(store: &RecordStore<MemoryLog>, owner: OwnerToken, expected: &Bytes) {
    let dump = Dump::of(store.log());
    let contents = &dump.contents;
    let is_readable = |(name, ..): &&(ContentHash, Bytes, Bytes)| {
        let before = store.log().content(*name).unwrap().unwrap();
        store.log().delete_contents(owner, &[*name]).unwrap();
        let gone = store.content(hash(expected)).is_err();
        let bytes = before.slice(0..before.length()).unwrap();
        replace(store.log(), owner, *name, &bytes, &before.index().unwrap());
        gone
    };
    let (name, bytes, index) = contents.iter().find(is_readable).unwrap();
    let (_, other_bytes, other_index) = contents.iter().find(|other| other.0 != *name).unwrap();
    assert_eq!(read(store, hash(expected)).unwrap(), expected);
    let flipped = |bytes: &[u8], at: usize| {
        let mut bytes = bytes.to_vec();
        bytes[at] ^= 1;
        bytes
    };
    let mut changed_contents = vec![
        (other_bytes.to_vec(), other_index.to_vec()),
        (other_bytes.to_vec(), index.to_vec()),
        (bytes.to_vec(), other_index.to_vec()),
        (bytes[..bytes.len() - 1].to_vec(), index.to_vec()),
        (bytes[..bytes.len() / 2].to_vec(), index.to_vec()),
        (Vec::new(), index.to_vec()),
        (bytes.to_vec(), Vec::new()),
        (bytes.to_vec(), index[..index.len() / 2].to_vec()),
    ];
    changed_contents.extend(
        (0..index.len())
            .step_by(5)
            .map(|at| (bytes.to_vec(), flipped(index, at))),
    );
    changed_contents.extend(
        (0..bytes.len())
            .step_by(7_919)
            .map(|at| (flipped(bytes, at), index.to_vec())),
    );
    if bytes.len() > 3 * 65_536 / 2 {
        // The first two chunks change places.
        let chunk = 65_536 + (bytes.len() - expected.len()) / 3;
        let swapped = [
            &bytes[chunk..2 * chunk],
            &bytes[..chunk],
            &bytes[2 * chunk..],
        ]
        .concat();
        changed_contents.push((swapped, index.to_vec()));
    }
    for (case, (bytes, index)) in changed_contents.iter().enumerate() {
        replace(store.log(), owner, *name, bytes, index);
        let Ok(opened) = store.content(hash(expected)) else {
            continue;
        };
        let length = opened.length();
        let text_index = opened.index();
        let is_whole = text_index.is_none_or(|index| index == "the-text-index".repeat(30));
        assert!(is_whole, "case {case}");
        if let Ok(read) = opened.slice(0..length) {
            assert_eq!(read, expected, "case {case}");
        }
    }
    let with_changed_bytes = changed_contents
        .iter()
        .filter(|changed| changed.0 != *bytes && changed.1 == *index);
    for (bytes, index) in with_changed_bytes {
        replace(store.log(), owner, *name, bytes, index);
        let error = read(store, hash(expected)).unwrap_err();
        assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
    }
}
