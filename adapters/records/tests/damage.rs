//! How the store answers if its log changes, loses or swaps records, or loses acknowledgements.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::ops::{ControlFlow, RangeInclusive};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use dormouse_actors::ports::inventory::Inventory;
use dormouse_actors::ports::{
    Batch, BlobReader, InventoryUpdate, OwnerToken, Store, StoreError, Unreadable, WriteOp,
};
use dormouse_proto::id::{CheckpointId, CommitNumber, ContentHash, FactNumber, Pid};
use dormouse_records::{
    Compression, MemoryLog, MemoryStore, Record, RecordBatch, RecordLog, RecordStore, StoreSecret,
    Stream, StreamKind,
};
use dormouse_store_conformance::entries::*;

/// Damage to a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Changed,
    Cut,
    /// Another record of the same kind is returned.
    Swapped,
    Lost,
}

/// A log in memory whose answers can be wrong, and whose commits can fail after they were written.
#[derive(Default)]
struct FaultyLog {
    log: MemoryLog,
    fault: Mutex<Option<(Stream, u64, Fault)>>,
    loses_acknowledgements: AtomicBool,
    changes_contents: AtomicBool,
}

impl FaultyLog {
    /// Damages a record of process 1 or checkpoint 1.
    fn set_fault(&self, kind: StreamKind, number: u64, fault: Fault) {
        *self.fault.lock().unwrap() = Some((Stream { kind, id: 1 }, number, fault));
    }

    fn apply(&self, stream: Stream, mut record: Record) -> Option<Record> {
        let fault = *self.fault.lock().unwrap();
        let Some((_, _, fault)) = fault.filter(|at| (at.0, at.1) == (stream, record.number)) else {
            return Some(record);
        };
        match fault {
            Fault::Changed => {
                let mut bytes = record.bytes.to_vec();
                bytes[0] ^= 1;
                record.bytes = bytes.into();
            }
            Fault::Cut => record.bytes = record.bytes.slice(..record.bytes.len() / 2),
            Fault::Swapped => {
                let other = Stream {
                    id: stream.id + 1,
                    ..stream
                };
                record.bytes = self.log.latest(other, record.number).unwrap()?.bytes;
            }
            Fault::Lost => return None,
        }
        Some(record)
    }
}

impl RecordLog for FaultyLog {
    fn claim(&self) -> Result<OwnerToken, StoreError> {
        self.log.claim()
    }

    fn append(
        &self,
        owner: OwnerToken,
        batch: &RecordBatch<'_>,
    ) -> Result<CommitNumber, StoreError> {
        let written = self.log.append(owner, batch);
        if self.loses_acknowledgements.load(Ordering::Relaxed) {
            return Err(StoreError::Io {
                doing: "receive the acknowledgement of a commit".to_owned(),
                source: std::io::Error::other("the connection is gone"),
            });
        }
        written
    }

    fn read(
        &self,
        stream: Stream,
        numbers: RangeInclusive<u64>,
    ) -> Result<Vec<Record>, StoreError> {
        let records = self.log.read(stream, numbers)?.into_iter();
        Ok(records.filter_map(|it| self.apply(stream, it)).collect())
    }

    fn latest(&self, stream: Stream, up_to: u64) -> Result<Option<Record>, StoreError> {
        let record = self.log.latest(stream, up_to)?;
        Ok(record.and_then(|record| self.apply(stream, record)))
    }

    fn read_kind(&self, kind: StreamKind) -> Result<Vec<(u64, Record)>, StoreError> {
        let records = self.log.read_kind(kind)?.into_iter();
        let apply = |(id, record)| Some((id, self.apply(Stream { kind, id }, record)?));
        Ok(records.filter_map(apply).collect())
    }

    fn content(&self, hash: ContentHash) -> Result<Option<Arc<dyn BlobReader>>, StoreError> {
        let content = self.log.content(hash)?;
        if !self.changes_contents.load(Ordering::Relaxed) {
            return Ok(content);
        }
        Ok(content.map(|content| Arc::new(Changed(content)) as _))
    }

    fn contents(&self) -> Result<Vec<(ContentHash, u64)>, StoreError> {
        self.log.contents()
    }

    fn delete_contents(&self, owner: OwnerToken, hashes: &[ContentHash]) -> Result<(), StoreError> {
        self.log.delete_contents(owner, hashes)
    }
}

/// A content whose byte 70,000 is changed.
struct Changed(Arc<dyn BlobReader>);

impl BlobReader for Changed {
    fn length(&self) -> u64 {
        self.0.length()
    }

    fn index(&self) -> Option<Bytes> {
        self.0.index()
    }

    fn slice(&self, range: std::ops::Range<u64>) -> Result<Bytes, Unreadable> {
        let mut bytes = self.0.slice(range.clone())?.to_vec();
        if range.contains(&70_000) {
            bytes[(70_000 - range.start) as usize] ^= 1;
        }
        Ok(bytes.into())
    }
}

/// A store that is not encrypted, and one that is.
fn stores() -> [RecordStore<FaultyLog>; 2] {
    let plain = RecordStore::new_on(FaultyLog::default());
    let sealed = RecordStore::new_on(FaultyLog::default());
    let sealed = sealed.key(StoreSecret::new([7; 32]));
    [plain, sealed.compression(Compression::Zstd(3))]
}

/// Commits two processes that differ only by their pids.
fn fill(store: &dyn Store) {
    let owner = store.claim().unwrap();
    commit(store, owner, &[created(1), created(2)]);
    for number in 1..=6 {
        for pid in [1, 2] {
            let both = [facts(pid, number..=number), temp_file(pid, number)];
            commit(store, owner, &both);
        }
    }
    commit(store, owner, &[snapshot(1, 4), snapshot(2, 4)]);
    commit(store, owner, &[checkpoint(1, &[1]), checkpoint(2, &[2])]);
}

/// Every answer about both processes, each under its query.
fn answers(store: &dyn Store) -> Vec<(String, Result<String, StoreError>)> {
    fn format_answer<T: std::fmt::Debug>(
        answer: Result<T, StoreError>,
    ) -> Result<String, StoreError> {
        answer.map(|answer| format!("{answer:?}"))
    }
    let mut answers = vec![
        ("table".to_owned(), format_answer(store.processes())),
        ("checkpoints".to_owned(), format_answer(store.checkpoints())),
        ("last".to_owned(), format_answer(store.last_checkpoint())),
    ];
    for pid in [1, 2].map(Pid) {
        for up_to in (0..=6).map(FactNumber) {
            let question = format!("journal of {pid} up to {up_to}");
            answers.push((question, format_answer(store.journal(pid, Some(up_to)))));
            let question = format!("facts of {pid} up to {up_to}");
            answers.push((
                question,
                format_answer(store.facts(pid, FactNumber(1), up_to)),
            ));
        }
        let files = store.temp_files(pid).map(records);
        answers.push((format!("files of {pid}"), format_answer(files)));
    }
    answers
}

fn stored_records() -> Vec<(Stream, u64)> {
    let place = |kind, number| (Stream { kind, id: 1 }, number);
    let mut stored_records = vec![
        place(StreamKind::Process, 0),
        place(StreamKind::Snapshot, 0),
        place(StreamKind::Checkpoint, 0),
    ];
    for number in 1..=6 {
        stored_records.push(place(StreamKind::Fact, number));
        stored_records.push(place(StreamKind::TempFile, number));
    }
    stored_records
}

#[test]
fn a_query_returns_what_was_written_or_an_error_that_names_the_damaged_record() {
    stores().iter().for_each(check_answers);
}

fn check_answers(store: &RecordStore<FaultyLog>) {
    fill(store);
    let whole = answers(store);
    for (stream, number) in stored_records() {
        for fault in [Fault::Changed, Fault::Cut, Fault::Swapped] {
            let case = format!("{stream:?} {number} {fault:?}");
            *store.log().fault.lock().unwrap() = Some((stream, number, fault));
            let mut damaged = 0;
            for ((question, answer), (_, right)) in answers(store).into_iter().zip(&whole) {
                match answer {
                    Ok(answer) if question == "table" && stream.kind == StreamKind::Process => {
                        assert!(answer.contains("row of process 1"), "{case}: {answer}");
                        damaged += 1;
                    }
                    Ok(answer) => {
                        assert_eq!(&answer, right.as_ref().unwrap(), "{case}: {question}")
                    }
                    Err(StoreError::Damaged { what }) => {
                        assert!(
                            what.contains("process 1") || what.contains("cp:1"),
                            "{what}"
                        );
                        assert!(!question.contains("of 2"), "{case}: {question}: {what}");
                        damaged += 1;
                    }
                    Err(other) => panic!("{case}: {question}: {other}"),
                }
            }
            assert!(damaged > 0, "{case} is noticed");
        }
    }
}

#[test]
fn a_damaged_snapshot_is_skipped_for_an_earlier_one() {
    for store in stores() {
        fill(&store);
        for fault in [Fault::Changed, Fault::Cut, Fault::Swapped] {
            store.log().set_fault(StreamKind::Snapshot, 4, fault);
            let journal = store.journal(Pid(1), None).unwrap();
            assert_eq!((journal.base, journal.facts.len()), (FactNumber(0), 6));
        }
    }
}

#[test]
fn a_missing_record_between_others_is_detected() {
    let store = RecordStore::new_on(FaultyLog::default());
    fill(&store);
    let lost = |kind, number| store.log().set_fault(kind, number, Fault::Lost);
    lost(StreamKind::Fact, 3);
    let early = store.journal(Pid(1), Some(FactNumber(3))).unwrap_err();
    assert!(
        early.to_string().contains("fact 3 of process 1 is lost"),
        "{early}"
    );
    assert_eq!(store.journal(Pid(1), None).unwrap().base, FactNumber(4));
    let history = store.history(Pid(1)).unwrap();
    assert!(history.readable().is_err());
    lost(StreamKind::TempFile, 2);
    let files = store.temp_files(Pid(1)).unwrap_err().to_string();
    assert!(files.contains("change 2 of the temporary files"), "{files}");
}

#[test]
fn an_inventory_reports_the_records_that_are_lost() {
    let store = RecordStore::new_on(FaultyLog::default());
    fill(&store);
    let owner = store.claim().unwrap();
    assert_eq!(inventory(&store), [""; 0]);
    for (kind, number, name) in [
        (StreamKind::Snapshot, 0, "the image of process 1 at fact 0"),
        (StreamKind::Fact, 1, "fact 1 of process 1"),
        (StreamKind::Fact, 5, "fact 5 of process 1"),
        (
            StreamKind::TempFile,
            2,
            "change 2 of the temporary files of process 1",
        ),
    ] {
        store.log().set_fault(kind, number, Fault::Lost);
        let unreadable = inventory(&store);
        assert_eq!(unreadable.len(), 1, "{unreadable:?}");
        assert!(unreadable[0].contains(name), "{unreadable:?}");
    }
    store.log().set_fault(StreamKind::Fact, 1, Fault::Lost);
    commit(
        &store,
        owner,
        &[WriteOp::CheckpointDropped {
            id: CheckpointId(1),
        }],
    );
    commit(&store, owner, &[history_truncated(1, 4)]);
    assert_eq!(inventory(&store), [""; 0], "no fact before 4 is missed");
    store.log().set_fault(StreamKind::Snapshot, 4, Fault::Lost);
    let unreadable = inventory(&store);
    assert!(unreadable[0].contains("at fact 4"), "{unreadable:?}");
}

fn inventory(store: &dyn Store) -> Vec<String> {
    let inventory = &mut Inventory::default();
    store
        .update_inventory(InventoryUpdate {
            inventory,
            references: &mut |_| Ok(Vec::new()),
            watch: &mut || ControlFlow::Continue(()),
        })
        .unwrap();
    inventory.unreadable()
}

#[test]
fn a_damaged_checkpoint_blocks_only_the_deletion_of_facts() {
    for fault in [Fault::Changed, Fault::Cut] {
        let store = RecordStore::new_on(FaultyLog::default());
        fill(&store);
        let owner = store.claim().unwrap();
        store.log().set_fault(StreamKind::Checkpoint, 0, fault);
        commit(&store, owner, &[facts(1, 7..=7), snapshot(1, 7)]);
        commit(&store, owner, &[checkpoint(3, &[1])]);
        let dropped = |id| WriteOp::CheckpointDropped {
            id: CheckpointId(id),
        };
        commit(&store, owner, &[dropped(2)]);
        for deletion in [process_deleted(2), history_truncated(1, 4)] {
            let batch = Batch::durable(std::slice::from_ref(&deletion), NOW_MS);
            let refused = store.commit(owner, batch).unwrap_err();
            assert!(matches!(refused, StoreError::Refused { .. }), "{refused}");
            assert!(refused.to_string().contains("drop cp:1 first"), "{refused}");
        }
        commit(&store, owner, &[dropped(1)]);
        commit(
            &store,
            owner,
            &[process_deleted(2), history_truncated(1, 4)],
        );
        let kept = store.checkpoints().unwrap();
        assert_eq!(kept.len(), 1);
        assert_eq!(kept[0].id, CheckpointId(3));
    }
}

#[test]
fn a_commit_that_was_written_and_not_acknowledged_is_neither_lost_nor_written_twice() {
    let store = RecordStore::new_on(FaultyLog::default());
    fill(&store);
    let owner = store.claim().unwrap();
    store
        .log()
        .loses_acknowledgements
        .store(true, Ordering::Relaxed);
    let next = [facts(1, 7..=7)];
    let lost = store
        .commit(owner, Batch::durable(&next, NOW_MS))
        .unwrap_err();
    assert!(matches!(lost, StoreError::Io { .. }), "{lost}");
    store
        .log()
        .loses_acknowledgements
        .store(false, Ordering::Relaxed);
    let again = store
        .commit(owner, Batch::durable(&next, NOW_MS))
        .unwrap_err();
    assert!(again.to_string().contains("is at fact 7"), "{again}");
    commit(&store, owner, &[facts(1, 8..=8)]);
    assert_eq!(
        store
            .facts(Pid(1), FactNumber(1), FactNumber(8))
            .unwrap()
            .len(),
        8
    );
}

#[test]
fn the_undamaged_chunks_of_a_damaged_content_can_be_read() {
    for store in stores() {
        let store = store.compression(Compression::None);
        let owner = store.claim().unwrap();
        let bytes = bytes(1, 200_000);
        commit(&store, owner, &[content(&bytes)]);
        store.log().changes_contents.store(true, Ordering::Relaxed);
        let content = store.content(hash(&bytes)).unwrap();
        assert_eq!(content.slice(0..65_536).unwrap(), bytes.slice(0..65_536));
        assert_eq!(
            content.slice(131_072..200_000).unwrap(),
            bytes.slice(131_072..)
        );
        let error = content.slice(65_000..66_000).unwrap_err().to_string();
        assert!(error.contains("bytes 65536 to 131072"), "{error}");
    }
}

#[test]
fn reads_during_a_truncation_report_no_damage() {
    let store = Arc::new(MemoryStore::new());
    let owner = store.claim().unwrap();
    commit(&*store, owner, &[created(1)]);
    let is_over = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..3)
        .map(|_| {
            let (store, is_over) = (Arc::clone(&store), Arc::clone(&is_over));
            std::thread::spawn(move || {
                let mut read = 0;
                loop {
                    let journal = store.journal(Pid(1), None).unwrap();
                    let last = journal.base.plus(journal.facts.len());
                    match store.facts(Pid(1), FactNumber(1), last) {
                        Ok(_) | Err(StoreError::DeletedFact { .. }) => read += 1,
                        Err(error) => panic!("{error}"),
                    }
                    if is_over.load(Ordering::Relaxed) {
                        return read;
                    }
                }
            })
        })
        .collect();
    for number in 1..=400 {
        commit(
            &*store,
            owner,
            &[facts(1, number..=number), snapshot(1, number)],
        );
        commit(&*store, owner, &[history_truncated(1, number)]);
    }
    is_over.store(true, Ordering::Relaxed);
    for reader in readers {
        assert!(reader.join().unwrap() > 0);
    }
}
