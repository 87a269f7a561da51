//! Opening a store for reading while another program writes it.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};

use dormouse_actors::ports::{Batch, OwnerToken, Store as _, StoreError};
use dormouse_proto::id::Pid;
use dormouse_store::LogStore;

use crate::support::*;

const WRITTEN: &str = "DORMOUSE_TEST_WRITTEN";

fn bytes_of(folder: &std::path::Path) -> Vec<(std::path::PathBuf, Vec<u8>)> {
    files(folder)
        .into_iter()
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect()
}

#[test]
fn a_read_only_store_refuses_writes_and_changes_no_file() {
    let folder = tempdir();
    let store = LogStore::options()
        .segment_bytes(2_000)
        .open(folder.path())
        .unwrap();
    let owner = store.claim().unwrap();
    commit(&store, owner, &[created(1), content(&bytes(1, 300_000))]);
    drop(store);
    let before = bytes_of(folder.path());
    let reading = LogStore::read_only(folder.path()).unwrap();
    let refused = [
        reading.claim().err(),
        reading
            .commit(OwnerToken(9), Batch::durable(&[created(2)], NOW_MS))
            .err(),
    ];
    for error in refused {
        assert!(
            matches!(error, Some(StoreError::ReadOnly { .. })),
            "{error:?}"
        );
    }
    assert_eq!(
        read(&reading, hash(&bytes(1, 300_000))).unwrap(),
        bytes(1, 300_000)
    );
    drop(reading);
    assert!(before == bytes_of(folder.path()), "a file was changed");
}

#[test]
fn opening_a_missing_store_for_reading_creates_nothing() {
    let folder = tempdir();
    let error = LogStore::read_only(folder.path().join("nowhere")).unwrap_err();
    assert!(
        error.to_string().contains("it is empty or does not exist"),
        "{error}"
    );
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn a_read_only_store_ignores_a_torn_tail() {
    let folder = tempdir();
    let store = LogStore::open(folder.path()).unwrap();
    let owner = store.claim().unwrap();
    commit(&store, owner, &[created(1)]);
    commit(&store, owner, &[facts(1, 1..=1)]);
    // Simulates a writer in the middle of its next commit.
    let log = folder.path().join("log/00000001.seg");
    let mut segment = fs::File::options().append(true).open(&log).unwrap();
    segment.write_all(&fs::read(&log).unwrap()[..250]).unwrap();
    let length = fs::metadata(&log).unwrap().len();
    let reading = LogStore::read_only(folder.path()).unwrap();
    assert_eq!(reading.journal(Pid(1), None).unwrap().facts, [fact(1, 1)]);
    drop(reading);
    assert_eq!(fs::metadata(&log).unwrap().len(), length);
}

#[test]
fn a_reader_sees_the_store_at_one_moment_while_another_program_writes() {
    let folder = tempdir();
    let mut writer = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "reading::write_for_another_test",
            "--ignored",
            "--nocapture",
        ])
        .env(WRITTEN, folder.path())
        .stdout(Stdio::piped())
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(writer.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok);
    let mut acknowledged = || {
        lines
            .by_ref()
            .find_map(|line| Some(line.rsplit_once("written ")?.1.parse::<u64>().unwrap()))
    };
    let (mut least, mut moments) = (0, 0);
    while least < 400 {
        least = acknowledged().expect("the other process writes on");
        if least % 20 != 0 {
            continue;
        }
        moments += 1;
        let reading = LogStore::read_only(folder.path()).unwrap();
        let seen = reading.journal(Pid(1), None).unwrap().facts.len() as u64;
        assert!(
            seen >= least,
            "{least} facts were acknowledged, {seen} are seen"
        );
        let expected = bytes(seen as u8, 300);
        assert_eq!(
            read(&reading, hash(&expected)).unwrap(),
            expected,
            "what belongs to fact {seen}"
        );
        assert!(
            matches!(LogStore::open(folder.path()), Err(StoreError::InUse { .. })),
            "the writer has it open"
        );
    }
    writer.kill().unwrap();
    writer.wait().unwrap();
    assert!(moments > 10);
    let seen = LogStore::read_only(folder.path())
        .unwrap()
        .journal(Pid(1), None)
        .unwrap()
        .facts;
    assert_eq!(
        LogStore::open(folder.path())
            .unwrap()
            .journal(Pid(1), None)
            .unwrap()
            .facts,
        seen
    );
}

#[test]
#[ignore = "runs in a process of its own, started by the test above"]
#[expect(
    clippy::print_stdout,
    reason = "the test that started it waits for the lines"
)]
fn write_for_another_test() {
    let Ok(folder) = std::env::var(WRITTEN) else {
        return;
    };
    let store = LogStore::options()
        .segment_bytes(20_000)
        .open(folder)
        .unwrap();
    let owner = store.claim().unwrap();
    commit(&store, owner, &[created(1)]);
    for number in 1.. {
        commit(
            &store,
            owner,
            &[
                content(&bytes(number as u8, 300)),
                facts(1, number..=number),
            ],
        );
        println!("written {number}");
    }
}
