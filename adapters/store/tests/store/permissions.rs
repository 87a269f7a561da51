//! The files of a store are accessible to their owner only, under any umask.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use dormouse_actors::ports::Store as _;
use dormouse_store::LogStore;

use crate::support::*;

const FOLDER: &str = "DORMOUSE_TEST_UMASK";

fn check(path: &Path, when: &str) {
    let metadata = fs::metadata(path).unwrap();
    let expected = if metadata.is_dir() { 0o700 } else { 0o600 };
    assert_eq!(
        metadata.permissions().mode() & 0o777,
        expected,
        "{} {when}",
        path.display()
    );
    if metadata.is_dir() {
        fs::read_dir(path)
            .unwrap()
            .for_each(|entry| check(&entry.unwrap().path(), when));
    }
}

#[test]
fn all_files_are_accessible_to_their_owner_only_under_any_umask() {
    let folder = tempdir();
    let test = std::env::current_exe().unwrap();
    let status = Command::new("sh")
        .args([
            "-c",
            "umask 0; exec \"$0\" --exact permissions::fill_without_a_umask --ignored",
        ])
        .arg(test)
        .env(FOLDER, folder.path().join("store"))
        .status()
        .unwrap();
    assert!(status.success());
}

#[test]
#[ignore = "runs in a process of its own, started by the test above"]
fn fill_without_a_umask() {
    let Ok(folder) = std::env::var(FOLDER) else {
        return;
    };
    let folder = Path::new(&folder);
    for round in 0..3_u64 {
        let store = LogStore::options()
            .segment_bytes(2_000)
            .open(folder)
            .unwrap();
        let owner = store.claim().unwrap();
        check(folder, "while it is open");
        commit(
            &store,
            owner,
            &[created(round + 1), content(&bytes(round as u8, 300_000))],
        );
        // Enough commits to flush the index.
        (1..=1_100).for_each(|number| commit(&store, owner, &[facts(round + 1, number..=number)]));
        store.processes().unwrap();
        drop(store);
        check(folder, "after it was closed");
    }
}
