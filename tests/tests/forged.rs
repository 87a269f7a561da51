//! Exports and stores with right hashes and forged insides: a stranger can compute the hashes.
//! Whatever such a file claims, it is read or refused by name, and takes no more memory than a
//! multiple of its own bytes.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use dormouse::export::{ExportVisitor, Facts, Head, Member, Redaction, log_lines};
use dormouse::ports::{Batch, Store, WriteOp};
use dormouse::record::codec::{self, Allowance};
use dormouse::record::{ContentRef, Fact, Image, MailFact};
use dormouse::store::{LogStore, Repair, fsck};
use dormouse_kernel::export::{Checker, ExportError, Keep};
use dormouse_proto::checkpoint::Scope;
use dormouse_proto::id::{CheckpointId, CommitNumber, ContentHash, FactNumber, Pid};
use dormouse_proto::mail::Sender;
use dormouse_proto::message::Message;
use dormouse_proto::process::{Exit, ExitStatus, ProcessRow};
use dormouse_proto::temp_file::TempFileRecord;
use dormouse_tests::forge::export::{self, CODED, Record};
use dormouse_tests::forge::store::{FORGED, Forged};
use dormouse_tests::forge::{CLAIMS, claiming, number};
use peak_alloc::PeakAlloc;

#[global_allocator]
static ALLOC: PeakAlloc = PeakAlloc;

/// The memory is that of the whole program: one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// Beyond what the bytes of a file allow: what reading anything takes, such as the window of a file
/// and the tables of a hash.
const BESIDES_BYTES: usize = 4 << 20;

/// Asserts that `work` on a file of `bytes` bytes takes at most twice what its records may take: a
/// list that grows has its old place and its new one for a moment.
#[track_caller]
fn bounded<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    let before = ALLOC.current_usage();
    ALLOC.reset_peak_usage();
    let done = work();
    let taken = ALLOC.peak_usage().saturating_sub(before);
    let allowed = 2 * Allowance::of(bytes as u64).total() as usize + BESIDES_BYTES;
    assert!(
        taken <= allowed,
        "{taken} bytes of memory were taken for {bytes} bytes; up to {allowed} are valid"
    );
    done
}

/// Reads facts as a log of an export does.
struct Reader;

impl ExportVisitor for Reader {
    fn facts(&mut self, facts: Facts) {
        log_lines(&facts).for_each(drop);
    }
}

fn read(file: &[u8], keep: Keep) -> Result<(), ExportError> {
    let mut checker = Checker::new(keep);
    file.chunks(1 << 16)
        .try_for_each(|part| checker.feed(part, &mut Reader))?;
    checker.finish().map(drop)
}

fn golden() -> Vec<u8> {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernel/tests/golden/export-1.dormouse");
    std::fs::read(path).unwrap()
}

/// The golden process and head, and a fact that says something.
fn seed() -> (Head, Member, Vec<u8>) {
    let records = export::records(&golden());
    let of = |kind: u8| {
        records
            .iter()
            .find(|record| record.kind == kind)
            .unwrap()
            .payload
            .clone()
    };
    let said: Fact<ContentRef> = Fact::Mail(MailFact::Queued {
        from: Sender::Host,
        message: Message::user("a word").into(),
    });
    let head: Head = codec::decode(&of(1)).unwrap();
    assert_eq!(head.redaction, Redaction::Whole);
    (
        head,
        codec::decode(&of(2)).unwrap(),
        codec::encode(&said).unwrap(),
    )
}

#[test]
fn a_file_made_up_of_the_golden_one_is_the_golden_one() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    assert_eq!(export::file(&export::records(&golden())), golden());
}

#[test]
fn no_length_in_an_export_reserves_more_than_its_bytes_allow() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let records = export::records(&golden());
    let (mut whole, mut refused) = (0, 0);
    for (of, record) in records
        .iter()
        .enumerate()
        .filter(|(_, record)| CODED.contains(&record.kind))
    {
        for at in 0..record.payload.len() {
            for claim in CLAIMS {
                let Some(payload) = claiming(&record.payload, at, claim) else {
                    continue;
                };
                let mut forged = records.clone();
                forged[of].payload = payload;
                let file = export::file(&forged);
                for keep in [Keep::Programs, Keep::Processes] {
                    match bounded(file.len(), || read(&file, keep)) {
                        Ok(()) => whole += 1,
                        Err(ExportError::Invalid { .. }) => refused += 1,
                        Err(other) => panic!("{other}"),
                    }
                }
            }
        }
    }
    assert!(
        whole > 0 && refused > 3_000,
        "{whole} were whole, {refused} were refused"
    );
}

/// A record of many small parts, each of which takes far more memory than its byte.
#[test]
fn what_expands_is_refused_before_it_takes_the_memory() {
    const MANY: usize = 20 << 20;
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (_, member, _) = seed();
    let records = export::records(&golden());
    let told = Facts {
        pid: member.row.pid,
        commit: CommitNumber(1),
        at_ms: 1,
        first: FactNumber(1),
        facts: Vec::new(),
    };
    let mut empty = codec::encode(&told).unwrap();
    empty.pop();
    empty.extend([number(MANY as u64), vec![0; MANY]].concat());
    let facts = [
        records[0].clone(),
        records[1].clone(),
        Record::new(3, empty),
    ];

    let plain = codec::encode(&member.image).unwrap();
    let mut longer = member.clone();
    longer.image.messages.push_back(
        Message {
            blocks: Vec::new(),
            ..Message::user("")
        }
        .into(),
    );
    let longer = codec::encode(&longer.image).unwrap();
    // Where the number of messages stands: the first byte that one message more changes. A message
    // of nothing takes two.
    let at = plain
        .iter()
        .zip(&longer)
        .position(|(one, other)| one != other)
        .unwrap();
    let mut payload = codec::encode(&(&member.row, member.at)).unwrap();
    payload.extend(
        [
            // Both are one record, which has one version.
            &plain[1..at],
            &number(MANY as u64 / 2),
            &vec![0; MANY],
            &plain[at + 1..],
        ]
        .concat(),
    );
    let messages = [records[0].clone(), Record::new(2, payload)];

    for (what, records) in [("facts", &facts[..]), ("messages", &messages[..])] {
        let file = export::file(records);
        for keep in [Keep::Programs, Keep::Processes] {
            let error = bounded(file.len(), || read(&file, keep))
                .unwrap_err()
                .to_string();
            assert!(
                error.contains("of memory that its length allows"),
                "{what}: {error}"
            );
        }
    }
}

/// Many processes, each small, are refused together where they are kept, and pass by where they are
/// not.
#[test]
fn an_export_that_is_looked_into_is_not_held() {
    const FACTS: u64 = 20_000;
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (head, mut member, fact) = seed();
    let mut records = vec![Record::new(1, codec::encode(&head).unwrap())];
    member.at = FactNumber(FACTS);
    member.image.messages = (0..FACTS)
        .map(|_| Message::user("a word of some length").into())
        .collect();
    records.push(Record::new(2, codec::encode(&member).unwrap()));
    for first in 1..=FACTS {
        let (pid, commit, facts) = (member.row.pid, CommitNumber(first), vec![fact.clone()]);
        let facts = Facts {
            pid,
            commit,
            at_ms: 1,
            first: FactNumber(first),
            facts,
        };
        records.push(Record::new(3, codec::encode(&facts).unwrap()));
    }
    records.extend(
        export::records(&golden())
            .into_iter()
            .filter(|record| record.kind == 5)
            .take(2),
    );
    let file = export::file(&records);
    let before = ALLOC.current_usage();
    ALLOC.reset_peak_usage();
    read(&file, Keep::Programs).unwrap();
    let taken = ALLOC.peak_usage() - before;
    let largest = records
        .iter()
        .map(|record| record.payload.len())
        .max()
        .unwrap();
    assert!(
        taken < 12 * largest + (1 << 20),
        "{taken} bytes for a largest record of {largest}"
    );
    read(&file, Keep::Processes).unwrap();
}

fn store_with_images(dir: &Path) -> Forged {
    let (_, member, fact) = seed();
    let image = codec::encode(&member.image).unwrap();
    let change = export::records(&golden())
        .into_iter()
        .find(|record| record.kind == 4)
        .unwrap()
        .payload;
    let created = |pid| WriteOp::ProcessCreated {
        row: Box::new(ProcessRow::started(Pid(pid), "p")),
        image: image.clone(),
    };
    let exit = Exit::new(ExitStatus::Done, "done");
    let contents = export::records(&golden())
        .into_iter()
        .filter(|record| record.kind == 5);
    let contents = contents.map(|Record { payload, .. }| {
        let hash = ContentHash(*blake3::hash(&payload).as_bytes());
        WriteOp::Content {
            hash,
            index: Bytes::new(),
            bytes: payload.into(),
        }
    });
    let (id, root) = (CheckpointId(1), Pid(1));
    let commits: [Vec<WriteOp>; 6] = [
        contents.chain([created(1), created(2)]).collect(),
        vec![WriteOp::Facts {
            pid: Pid(1),
            first: FactNumber(1),
            facts: vec![fact; 3],
        }],
        vec![WriteOp::Snapshot {
            pid: Pid(1),
            at: FactNumber(3),
            image: image.clone(),
        }],
        vec![WriteOp::TempFile {
            root,
            number: 1,
            record: change,
        }],
        vec![WriteOp::Checkpoint {
            id,
            label: "l".into(),
            pid: root,
            root,
            scope: Scope::Tree,
            members: vec![root, Pid(2)],
        }],
        vec![WriteOp::ProcessEnded { pid: Pid(2), exit }],
    ];
    let store = LogStore::open(dir).unwrap();
    let owner = store.claim().unwrap();
    commits.iter().for_each(|entries| {
        store.commit(owner, Batch::durable(entries, 1)).unwrap();
    });
    drop(store);
    Forged::read(dir).unwrap()
}

/// Reads whatever can be read. Answers with how many records had a meaning.
fn look(dir: &Path) -> usize {
    let mut read = 0;
    if let Ok(store) = LogStore::read_only(dir) {
        for row in store
            .processes()
            .map(|listing| listing.rows)
            .unwrap_or_default()
        {
            for upto in [None, Some(FactNumber(1))] {
                let Ok(journal) = store.journal(row.pid, upto) else {
                    continue;
                };
                read += usize::from(codec::decode::<Image<ContentRef>>(&journal.image).is_ok());
                read += journal
                    .facts
                    .iter()
                    .filter(|fact| codec::decode::<Fact<ContentRef>>(fact).is_ok())
                    .count();
            }
            let _ = store.history(row.pid);
            for change in store.temp_files(row.pid).unwrap_or_default() {
                read += usize::from(
                    codec::decode::<TempFileRecord<ContentRef>>(&change.record).is_ok(),
                );
            }
        }
        read += store
            .checkpoints()
            .map_or(0, |checkpoints| checkpoints.len());
    }
    let _ = fsck(dir, &LogStore::options(), Repair::No, &mut |_, _| {});
    read
}

#[test]
fn no_number_in_a_store_reserves_more_than_its_bytes_allow() {
    const AN_OPEN_STORE: usize = 1 << 20;
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (made, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let store = store_with_images(made.path());
    store.write(dir.path()).unwrap();
    assert_eq!(look(dir.path()), 6, "a store that was not forged is read");
    let check = |store: &Forged| {
        store.write(dir.path()).unwrap();
        bounded(AN_OPEN_STORE, || look(dir.path()));
    };
    for (of, record) in store.records.iter().enumerate() {
        let mut forged = store.clone();
        // A record's commit and length are its place in the chain.
        for which in [1, 2, 3, 5, 6, 7] {
            for claim in [1 << 60, u64::MAX] {
                forged.records[of].numbers[which] = claim;
                check(&forged);
            }
            forged.records[of].numbers = record.numbers;
        }
        if !FORGED.contains(&record.kind()) {
            continue;
        }
        // Rows, exits and checkpoints byte by byte; an image is read as that of an export is, at
        // every place of it.
        for at in (0..record.payload.len()).filter(|at| *at < 64 || at % 64 == 0) {
            let Some(payload) = claiming(&record.payload, at, 1 << 60) else {
                continue;
            };
            forged.records[of].payload = payload;
            check(&forged);
        }
    }
}

/// Pids rise: a row that says otherwise would make whoever looks for the beginning of its tree look
/// for ever.
#[test]
fn processes_that_are_each_others_parents_are_damage() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let (made, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut store = store_with_images(made.path());
    for record in store.records.iter_mut().filter(|record| record.kind() == 3) {
        let (length, rest) = record.payload.split_first_chunk::<4>().unwrap();
        let (row, image) = rest.split_at(u32::from_le_bytes(*length) as usize);
        let row: ProcessRow = codec::decode(row).unwrap();
        let row = codec::encode(&ProcessRow {
            parent: Some(Pid(3 - row.pid.0)),
            ..row
        })
        .unwrap();
        record.payload = [&(row.len() as u32).to_le_bytes(), &row[..], image].concat();
    }
    store.write(dir.path()).unwrap();
    let listing = LogStore::read_only(dir.path())
        .unwrap()
        .processes()
        .unwrap();
    let pids: Vec<_> = listing.rows.iter().map(|row| row.pid).collect();
    assert_eq!(
        (pids, listing.losses.len()),
        (vec![Pid(2)], 1),
        "{:?}",
        listing.losses
    );
}
