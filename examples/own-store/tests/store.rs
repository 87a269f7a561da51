//! Tests the store: by the conformance suite, by changed bytes, and by killing a program that
//! writes.

use std::path::Path;
use std::process::{Command, Stdio};

use bytes::Bytes;
use dormouse::id::{FactNumber, Pid};
use dormouse::ports::{Store, StoreError};
use dormouse::records::{Compression, RecordStore, StoreSecret};
use dormouse_own_store::SqliteLog;
use dormouse_store_conformance::check_store;
use dormouse_store_conformance::entries::{commit, content, created, facts, hash, read};

#[test]
fn the_store_conforms() {
    check_store(|| {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteLog::open(&folder.path().join("store.db")).unwrap();
        Box::new(move |operation| {
            let _in_use = &folder;
            operation(&store);
        })
    });
}

#[test]
fn a_store_that_is_reopened_for_each_operation_conforms() {
    check_store(|| {
        let folder = tempfile::tempdir().unwrap();
        Box::new(move |operation| {
            operation(&SqliteLog::open(&folder.path().join("store.db")).unwrap());
        })
    });
}

#[test]
fn an_encrypted_and_compressed_store_conforms_and_its_file_contains_no_plain_text() {
    check_store(|| {
        let folder = tempfile::tempdir().unwrap();
        Box::new(move |operation| operation(&open_encrypted(&folder.path().join("store.db"))))
    });
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("store.db");
    let text = Bytes::from("what nobody else may read ".repeat(10_000));
    let store = open_encrypted(&file);
    let owner = store.claim().unwrap();
    commit(
        &store,
        owner,
        &[created(1), facts(1, 1..=3), content(&text)],
    );
    drop(store);
    let bytes = std::fs::read(&file).unwrap();
    let contains_bytes = |what: &[u8]| bytes.windows(what.len()).any(|window| window == what);
    for what in [
        &b"image of 1"[..],
        b"fact 2 of 1",
        &text[..20],
        &hash(&text).0,
    ] {
        assert!(!contains_bytes(what), "{}", String::from_utf8_lossy(what));
    }
    let refused = SqliteLog::open(&file).unwrap().claim().unwrap_err();
    assert!(matches!(refused, StoreError::Key { .. }), "{refused}");
    assert_eq!(read(&open_encrypted(&file), hash(&text)).unwrap(), text);
}

fn open_encrypted(file: &Path) -> RecordStore<SqliteLog> {
    let store = SqliteLog::open(file).expect("the file can be opened");
    store
        .key(StoreSecret::new([7; 32]))
        .compression(Compression::Zstd(3))
}

#[test]
fn a_changed_record_is_named_in_the_error() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("store.db");
    let store = SqliteLog::open(&file).unwrap();
    let owner = store.claim().unwrap();
    commit(&store, owner, &[created(1), facts(1, 1..=3)]);
    drop(store);
    rusqlite::Connection::open(&file)
        .unwrap()
        .execute(
            "UPDATE record SET bytes = zeroblob(40) WHERE kind = 3 AND number = ?1",
            [2 ^ i64::MIN],
        )
        .unwrap();
    let store = SqliteLog::open(&file).unwrap();
    let whole = store.journal(Pid(1), Some(FactNumber(1))).unwrap();
    assert_eq!(whole.facts.len(), 1);
    let error = store.journal(Pid(1), None).unwrap_err();
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
    assert!(error.to_string().contains("fact 2 of process 1"), "{error}");
}

fn session(file: &Path, text: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dormouse-own-store"));
    command.arg(file).arg(text);
    command
}

#[test]
fn a_conversation_continues_after_its_program_was_killed_at_any_time() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("session.db");
    let mut turns = 0;
    for round in 0..12 {
        let mut killed = session(&file, "Hello?")
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(std::time::Duration::from_millis(round * 7));
        killed.kill().unwrap();
        killed.wait().unwrap();
        let output = session(&file, "Are you there?").output().unwrap();
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let error = String::from_utf8_lossy(&output.stderr);
        let turn = printed
            .split_whitespace()
            .nth(3)
            .and_then(|turn| turn.parse::<u64>().ok());
        let turn = turn.unwrap_or_else(|| panic!("{printed}{error}"));
        assert!(turn >= turns, "turn {turn} after turn {turns}");
        turns = turn;
    }
    assert!(turns >= 11, "{turns} turns");
}
