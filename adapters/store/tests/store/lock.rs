//! Only one program has a store open for writing.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use dormouse_actors::ports::{Store as _, StoreError};
use dormouse_store::LogStore;

const HOLD: &str = "DORMOUSE_TEST_HOLD";

fn check_in_use(folder: &Path, holder: u32) {
    match LogStore::open(folder) {
        Err(StoreError::InUse {
            path,
            holder: named,
        }) => {
            assert_eq!(
                (path, named),
                (folder.display().to_string(), format!("process {holder}"))
            );
        }
        other => panic!("a second opening must be refused, not {other:?}"),
    }
}

#[test]
fn a_second_opening_fails_until_the_first_store_is_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let first = LogStore::open(folder.path()).unwrap();
    assert_eq!(first.folder(), Some(folder.path()), "what a kernel seals");
    check_in_use(folder.path(), std::process::id());
    drop(first);
    LogStore::open(folder.path()).unwrap().claim().unwrap();
}

#[test]
fn an_opening_fails_until_the_other_program_with_the_store_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let mut holder = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "lock::hold_the_store_for_another_test",
            "--ignored",
            "--nocapture",
        ])
        .env(HOLD, folder.path())
        .stdout(Stdio::piped())
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(holder.stdout.take().unwrap()).lines();
    let held = lines
        .map_while(Result::ok)
        .any(|line| line.contains("held"));
    assert!(held, "the other process opens the store");
    check_in_use(folder.path(), holder.id());
    holder.kill().unwrap();
    holder.wait().unwrap();
    LogStore::open(folder.path()).unwrap();
}

#[test]
#[ignore = "runs in a process of its own, started by the test above"]
#[expect(
    clippy::print_stdout,
    reason = "the test that started it waits for the line"
)]
fn hold_the_store_for_another_test() {
    let Ok(folder) = std::env::var(HOLD) else {
        return;
    };
    let _store = LogStore::open(folder).unwrap();
    println!("held");
    let _ = std::io::stdin().read_line(&mut String::new());
}
