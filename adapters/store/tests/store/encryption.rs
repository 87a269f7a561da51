//! Encrypted and compressed stores: which bytes their files contain, which keys open them, and how
//! much space compression saves.

use std::fs;
use std::path::Path;

use bytes::Bytes;
use dormouse_actors::ports::{KeyFault, Store as _, StoreError, WriteOp};
use dormouse_proto::id::Pid;
use dormouse_proto::process::{Exit, ExitStatus, ProcessRow};
use dormouse_store::{Compression, LogStore, Options};

use crate::support::*;

/// Texts that must not be visible without the key.
const CANARIES: [&str; 8] = [
    "the-program",
    "the-name",
    "the-image",
    "the-fact",
    "the-content",
    "the-label",
    "the-exit",
    "the-temp-file",
];

fn encrypted() -> Options {
    LogStore::options().key(secret(1))
}

/// Writes every canary, and contents of one and of several chunks. Returns the contents.
fn fill(folder: &Path, options: &Options) -> Vec<Bytes> {
    let store = options.clone().segment_bytes(100_000).open(folder).unwrap();
    let owner = store.claim().unwrap();
    let row = ProcessRow {
        program: "the-program".into(),
        name: Some("the-name".into()),
        ..row(1)
    };
    let facts = vec![b"the-fact".to_vec(); 3];
    commit(
        &store,
        owner,
        &[WriteOp::ProcessCreated {
            row: Box::new(row),
            image: b"the-image".to_vec(),
        }],
    );
    let contents = [1, 30_000]
        .map(|times| Bytes::from("the-content".repeat(times)))
        .to_vec();
    for bytes in &contents {
        let index = Bytes::from_static(b"the-content");
        commit(
            &store,
            owner,
            &[WriteOp::Content {
                hash: hash(bytes),
                bytes: bytes.clone(),
                index,
            }],
        );
    }
    let (pid, first) = (Pid(1), dormouse_proto::id::FactNumber(1));
    let label = WriteOp::Checkpoint {
        id: dormouse_proto::id::CheckpointId(1),
        label: "the-label".into(),
        pid,
        root: pid,
        scope: dormouse_proto::checkpoint::Scope::Tree,
        members: vec![pid],
    };
    let temp_file = WriteOp::TempFile {
        root: pid,
        number: 1,
        record: b"the-temp-file".to_vec(),
    };
    let end = WriteOp::ProcessEnded {
        pid,
        exit: Exit::new(ExitStatus::Done, "the-exit"),
    };
    commit(
        &store,
        owner,
        &[WriteOp::Facts { pid, first, facts }, temp_file, label, end],
    );
    contents
}

fn files_containing(folder: &Path, what: &[u8]) -> Vec<String> {
    let has = |bytes: &[u8]| bytes.windows(what.len()).any(|window| window == what);
    let paths = files(folder);
    let found = paths.iter().filter(|path| has(&fs::read(path).unwrap()));
    found.map(|path| path.display().to_string()).collect()
}

#[test]
fn an_encrypted_store_contains_no_plain_text_and_no_content_hash() {
    for options in [encrypted(), encrypted().compression(Compression::Zstd(3))] {
        let folder = tempdir();
        let contents = fill(folder.path(), &options);
        for canary in CANARIES {
            assert_eq!(
                files_containing(folder.path(), canary.as_bytes()),
                [""; 0],
                "{canary}"
            );
        }
        for bytes in &contents {
            assert_eq!(
                files_containing(folder.path(), &hash(bytes).0),
                [""; 0],
                "the hash of a content tells which it is"
            );
        }
        assert_eq!(
            files_containing(folder.path(), &[1; 32]),
            [""; 0],
            "the secret itself"
        );
        let store = options.open(folder.path()).unwrap();
        assert!(
            contents
                .iter()
                .all(|bytes| read(&store, hash(bytes)).unwrap() == bytes)
        );
        assert_eq!(
            &*store.processes().unwrap().rows[0]
                .exit
                .as_ref()
                .unwrap()
                .message,
            "the-exit"
        );
        assert_eq!(&*store.checkpoints().unwrap()[0].label, "the-label");
    }
    let plain = tempdir();
    fill(plain.path(), &LogStore::options());
    for canary in CANARIES {
        assert!(
            !files_containing(plain.path(), canary.as_bytes()).is_empty(),
            "a store that is not encrypted shows {canary}"
        );
    }
}

#[test]
fn a_wrong_key_is_an_error_and_changes_no_file() {
    let cases = [
        (encrypted(), LogStore::options(), KeyFault::Missing),
        (
            encrypted(),
            LogStore::options().key(secret(2)),
            KeyFault::Wrong,
        ),
        (LogStore::options(), encrypted(), KeyFault::NotEncrypted),
    ];
    for (made, opened, expected) in cases {
        let folder = tempdir();
        fill(folder.path(), &made);
        fs::write(folder.path().join("LOCK"), "someone before").unwrap();
        let before: Vec<_> = files(folder.path())
            .into_iter()
            .map(|path| (fs::read(&path).unwrap(), path))
            .collect();
        for refused in [
            opened.clone().open(folder.path()),
            opened.clone().read_only(folder.path()),
        ] {
            match refused {
                Err(StoreError::Key { path, fault }) => {
                    assert_eq!(
                        (path, fault),
                        (folder.path().display().to_string(), expected)
                    );
                }
                other => panic!("{expected:?} must be told, not {other:?}"),
            }
        }
        let after: Vec<_> = files(folder.path())
            .into_iter()
            .map(|path| (fs::read(&path).unwrap(), path))
            .collect();
        assert!(before == after, "{expected:?}: a file was changed");
        made.open(folder.path()).unwrap();
    }
}

#[test]
fn contents_are_compressed_if_that_saves_an_eighth() {
    let compressible = Bytes::from("a line that comes again and again\n".repeat(20_000));
    let random: Bytes = std::iter::successors(Some(1_u64), |state| {
        Some(state.wrapping_mul(6_364_136_223_846_793_005) + 1)
    })
    .map(|state| (state >> 56) as u8)
    .take(200_000)
    .collect();
    let mixed = Bytes::from([&compressible[..400_000], &random].concat());
    let tiny = Bytes::from_static(b"x");
    let folder = tempdir();
    let size = || records_end(&folder.path().join("log/00000001.seg"));
    let options = LogStore::options().compression(Compression::Zstd(3));
    let store = options.open(folder.path()).unwrap();
    let owner = store.claim().unwrap();
    let cases = [
        (&compressible, 0..20_000),
        (&random, 200_000..202_000),
        (&mixed, 200_000..220_000),
        (&tiny, 1..400),
    ];
    for (bytes, expected) in cases {
        let before = size();
        commit(&store, owner, &[content(bytes)]);
        let kept = size() - before;
        assert!(
            expected.contains(&kept),
            "{} bytes are kept as {kept}",
            bytes.len()
        );
        assert_eq!(read(&store, hash(bytes)).unwrap(), bytes);
    }
    drop(store);
    let store = LogStore::open(folder.path()).unwrap();
    assert!(
        [&compressible, &random, &mixed, &tiny]
            .iter()
            .all(|bytes| read(&store, hash(bytes)).unwrap() == **bytes)
    );
}

#[test]
fn a_damaged_chunk_of_a_packed_content_leaves_the_others_readable() {
    for (name, options) in encoding_options() {
        let folder = tempdir();
        let bytes: Bytes = (0..300_000_u32)
            .flat_map(|number| (number / 7).to_le_bytes())
            .collect();
        let store = options.clone().open(folder.path()).unwrap();
        let owner = store.claim().unwrap();
        commit(&store, owner, &[content(&bytes)]);
        drop(store);
        let path = folder.path().join("log/00000001.seg");
        let mut log = fs::read(&path).unwrap();
        // The last chunk is the end of the log.
        let last = log.len() - 20;
        log[last] ^= 1;
        fs::write(&path, log).unwrap();
        let store = options.open(folder.path()).unwrap();
        let backing = store.content(hash(&bytes)).unwrap();
        assert_eq!(backing.slice(0..70_000).unwrap(), bytes[..70_000], "{name}");
        let end = bytes.len() as u64;
        let text = backing.slice(end - 10..end).unwrap_err().to_string();
        assert!(
            text.contains("are damaged on disk. Its other bytes can still be read"),
            "{name}: {text}"
        );
        let owner = store.claim().unwrap();
        commit(&store, owner, &[content(&bytes)]);
        assert_eq!(
            read(&store, hash(&bytes)).unwrap(),
            bytes,
            "{name}: committed again it is whole again"
        );
    }
}
