//! Stores of format version 1: every later version must open them and give the same answers.
//!
//! `tests/golden` contains a store for each combination of options: HEAD and the log, without lock
//! and index. If `DORMOUSE_GOLDEN` is `write`, this test writes all of them again; if it is the
//! name of a store, only that one. Do that only before a release, or together with a new format
//! version: then the old stores stay, and the new ones are added next to them.

use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use dormouse_actors::ports::{Store, StoreError, WriteOp};
use dormouse_proto::id::{CallId, CheckpointId, FactNumber, Pid};
use dormouse_proto::process::{BranchOrigin, Origin, ProcessRow};
use dormouse_store::{Compression, LogStore, MemoryStore, Options, Repair, fsck};

use crate::support::*;

const PIDS: u64 = 3;

fn stores() -> [(&'static str, Options); 7] {
    let compressed = LogStore::options().compression(Compression::Zstd(3));
    let encrypted = compressed.clone().key(secret(1));
    [
        ("plain", LogStore::options()),
        ("compressed", compressed.clone()),
        ("encrypted", encrypted.clone()),
        ("swept", compressed.clone()),
        ("swept-encrypted", encrypted.clone()),
        ("mended", compressed),
        ("mended-encrypted", encrypted),
    ]
}

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden/version-1")
        .join(name)
}

/// Only one content has several chunks, to keep the store small.
fn contents(name: &str) -> Vec<Bytes> {
    let long = Bytes::from("golden, line by line\n".repeat(7_000));
    let short = [0, 10, 900].map(|length| bytes(7, length)).to_vec();
    if name == "plain" {
        short
    } else {
        [short, vec![long]].concat()
    }
}

/// Every kind of record that a commit writes, and every origin of a process.
fn commits(name: &str) -> Vec<Vec<WriteOp>> {
    let call = CallId { epoch: 1, seq: 2 };
    let forked = ProcessRow {
        parent: Some(Pid(1)),
        name: Some("second".into()),
        origin: Origin::Forked { call, index: 300 },
        ..row(2)
    };
    let branched_from = Some(BranchOrigin {
        pid: Pid(1),
        fact: FactNumber(2),
        local_id: Pid(1),
        import: None,
    });
    let forked = ProcessRow {
        branched_from,
        ..forked
    };
    let branched_from = ProcessRow {
        origin: Origin::Copied {
            from: Pid(1),
            at: FactNumber(2),
        },
        ..row(3)
    };
    let index = Bytes::from_static(b"an index");
    let entry = |bytes: &Bytes| WriteOp::Content {
        hash: hash(bytes),
        bytes: bytes.clone(),
        index: index.clone(),
    };
    vec![
        vec![created(1)],
        contents(name).iter().map(entry).collect(),
        vec![
            facts(1, 1..=3),
            WriteOp::ProcessCreated {
                row: Box::new(forked),
                image: vec![2; 20],
            },
        ],
        vec![snapshot(1, 2), facts(1, 4..=4), temp_file(1, 1)],
        vec![
            checkpoint(1, &[1, 2]),
            WriteOp::ProcessCreated {
                row: Box::new(branched_from),
                image: Vec::new(),
            },
        ],
        vec![temp_file(1, 2), facts(2, 1..=2), checkpoint(7, &[1])],
        vec![
            WriteOp::CheckpointDropped {
                id: CheckpointId(7),
            },
            ended(2),
        ],
        vec![
            created(4),
            created(5),
            facts(5, 1..=6),
            snapshot(5, 2),
            snapshot(5, 4),
        ],
        vec![
            process_deleted(4),
            WriteOp::ContentReferenced {
                hash: hash(&contents(name)[2]),
            },
        ],
        vec![history_truncated(5, 4)],
    ]
}

fn fill(store: &dyn Store, name: &str) {
    let owner = store.claim().unwrap();
    commits(name)
        .iter()
        .for_each(|entries| commit(store, owner, entries));
}

fn write_golden_store(name: &str, options: &Options) {
    let folder = tempfile::tempdir().unwrap();
    let store = options
        .clone()
        .segment_bytes(2_500)
        .open(folder.path())
        .unwrap();
    fill(&store, name);
    if name.starts_with("swept") {
        // Moved records are appended at the end, and each earlier segment becomes one record.
        let swept = sweep(&store, store.claim().unwrap(), &LiveContents::default());
        assert!(
            swept.freed_segments > 0 && swept.moved_bytes > 0,
            "{name}: {swept:?}"
        );
    }
    drop(store);
    if is_repaired(name) {
        // The one content of this length, and the snapshot that is not needed.
        damage(folder.path(), |kind, _, count| {
            kind == 2 && count == LOST as u64
        });
        damage(folder.path(), |kind, subject, _| kind == 5 && subject == 1);
        let report = fsck(folder.path(), options, Repair::Yes, &mut |_, _| {}).unwrap();
        assert_eq!(report.issues.len(), 2, "{name}: {report:?}");
    }
    let golden = golden(name);
    let _ = fs::remove_dir_all(&golden);
    copy_folder(&folder.path().join("log"), &golden.join("log"));
    fs::copy(folder.path().join("HEAD"), golden.join("HEAD")).unwrap();
}

/// Flips a bit in the payload of the only record of this kind, subject and count.
fn damage(folder: &Path, wanted: impl Fn(u8, u64, u64) -> bool) {
    let mut harmed = 0;
    for path in files(&folder.join("log")) {
        let (mut bytes, mut at) = (fs::read(&path).unwrap(), 0);
        while at < bytes.len() {
            let number =
                |from: usize| u64::from_le_bytes(bytes[at + from..][..8].try_into().unwrap());
            let (kind, length, subject, count) =
                (bytes[at + 5], number(40), number(48), number(64));
            at += 168 + length as usize;
            if wanted(kind, subject, count) {
                bytes[at - 1] ^= 1;
                harmed += 1;
            }
        }
        fs::write(path, bytes).unwrap();
    }
    assert_eq!(harmed, 1);
}

/// The length of the content that is lost in a repaired store.
const LOST: usize = 900;

fn is_repaired(name: &str) -> bool {
    name.starts_with("mended")
}

/// The expected answers: a dropped snapshot is as if it had never been written.
fn expected_store(name: &str) -> MemoryStore {
    let expected_store = MemoryStore::new();
    let owner = expected_store.claim().unwrap();
    for mut entries in commits(name) {
        entries.retain(|entry| {
            !(is_repaired(name) && matches!(entry, WriteOp::Snapshot { pid: Pid(1), .. }))
        });
        commit(&expected_store, owner, &entries);
    }
    expected_store
}

fn check(store: &LogStore, name: &str) {
    let expected_store = expected_store(name);
    assert_eq!(
        store.processes().unwrap(),
        expected_store.processes().unwrap(),
        "{name}"
    );
    assert_eq!(
        store.checkpoints().unwrap(),
        expected_store.checkpoints().unwrap(),
        "{name}"
    );
    for pid in (1..=PIDS).map(Pid) {
        let last = expected_store.journal(pid, None).unwrap();
        for number in 0..=last.base.plus(last.facts.len()).0 {
            let up_to = Some(FactNumber(number));
            assert_eq!(
                store.journal(pid, up_to).unwrap(),
                expected_store.journal(pid, up_to).unwrap(),
                "{name}: {pid} at {number}"
            );
        }
        assert_eq!(
            store.history(pid).unwrap(),
            expected_store.history(pid).unwrap(),
            "{name}: {pid}"
        );
        assert_eq!(
            store.temp_files(pid).unwrap(),
            expected_store.temp_files(pid).unwrap(),
            "{name}: {pid}"
        );
    }
    for at in (0..=6).map(|at| Some(FactNumber(at))) {
        let (kept, expected_store) = (
            store.journal(Pid(5), at),
            expected_store.journal(Pid(5), at),
        );
        assert_eq!(
            kept.map_err(|error| error.to_string()),
            expected_store.map_err(|error| error.to_string()),
            "{name}: {at:?}"
        );
    }
    assert!(
        matches!(
            store.journal(Pid(4), None),
            Err(StoreError::UnknownProcess(_))
        ),
        "{name}"
    );
    for bytes in contents(name) {
        match read(store, hash(&bytes)) {
            Err(error) if is_repaired(name) && bytes.len() == LOST => {
                assert!(
                    error.to_string().contains("is lost. It is stored again"),
                    "{name}: {error}"
                );
            }
            read => assert_eq!(read.unwrap(), bytes, "{name}"),
        }
    }
}

#[test]
fn a_store_of_format_version_1_gives_the_expected_answers() {
    for (name, options) in stores() {
        if std::env::var("DORMOUSE_GOLDEN").is_ok_and(|wanted| wanted == "write" || wanted == name)
        {
            write_golden_store(name, &options);
        }
        // Opening for reading changes nothing, so no copy is needed.
        check(&options.clone().read_only(golden(name)).unwrap(), name);
        let copy = tempfile::tempdir().unwrap();
        copy_folder(&golden(name), copy.path());
        let store = options.open(copy.path()).unwrap();
        check(&store, name);
        let owner = store.claim().unwrap();
        commit(&store, owner, &[facts(1, 5..=5)]);
        assert_eq!(
            store.journal(Pid(1), None).unwrap().facts.last(),
            Some(&fact(1, 5)),
            "{name}: it is written on"
        );
    }
}
