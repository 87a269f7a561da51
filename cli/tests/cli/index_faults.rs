//! Faults of the disk in the files of the index, one kind of call after the other: no command fails
//! or hangs, nothing is lost, and nothing is printed that an operator could take for a crash.

use std::path::Path;
use std::process::Command;

use crate::confinement::skip::skip;
use crate::dormouse::{Ran, command, run};

/// Calls that fail, with what, from which on.
const FAULTS: [(&str, &str, &str); 9] = [
    ("openat", "EIO", "1+"),
    ("pwrite64", "ENOSPC", "1+"),
    ("pwrite64", "ENOSPC", "3+"),
    ("pwrite64", "EIO", "2"),
    ("pread64", "EIO", "1+"),
    ("pread64", "EIO", "3"),
    ("fsync", "EIO", "1+"),
    ("fsync", "ENOSPC", "2+"),
    ("sync_file_range", "EIO", "1+"),
];

/// More than the index is behind at most, so that it is told in the middle of the run, not only at
/// its end.
const FACTS: usize = 1_100;

/// Runs the program under strace, which fails these calls on sled's file.
fn faulty(folder: &Path, words: &str, inject: &str) -> Ran {
    let program = command(folder);
    let mut strace = Command::new("timeout");
    strace
        .args(["60", "strace", "-f", "-qq", "-o", "/dev/null", "-P"])
        .arg(folder.join("store/index/db"));
    strace
        .args(["-e", &format!("inject={inject}")])
        .arg(program.get_program())
        .args(words.split_whitespace());
    // A backtrace is what is not to be seen.
    run(strace
        .current_dir(folder)
        .env("RUST_BACKTRACE", "1")
        .env_remove("DORMOUSE_LOG"))
}

#[test]
fn a_fault_of_the_disk_below_the_index_costs_no_command_and_prints_no_backtrace() {
    let folder = tempfile::tempdir().unwrap();
    if !faulty(folder.path(), "--version", "fsync:error=EIO")
        .out
        .starts_with("dormouse")
    {
        return skip("strace", "no strace that can inject faults");
    }
    let program =
        "[model]\nname = \"m\"\nprovider = \"scripted\"\n[tools]\nenabled = [\"list_fds\"]\n";
    std::fs::write(folder.path().join("p.toml"), program).unwrap();
    std::fs::write(
        folder.path().join("calls.jsonl"),
        "{\"tool\": \"list_fds\"}\n".repeat(FACTS),
    )
    .unwrap();
    const CALL: &str = "call p.toml --calls calls.jsonl --store store";
    let first = faulty(folder.path(), CALL, "fsync:error=EIO:when=60000");
    assert!(
        first.code == 0 && first.err.is_empty(),
        "without a fault: {first:?}"
    );
    let mut processes = 1;
    for (call, error, when) in FAULTS {
        let case = format!("{call}:error={error}:when={when}");
        let ran = faulty(folder.path(), CALL, &case);
        processes += 1;
        assert_eq!(ran.code, 0, "{case}: {ran:?}");
        // At most one line, in which the index is said to be kept in memory.
        let is_calm = ran.err.is_empty()
            || (ran.err.lines().count() == 1 && ran.err.contains("kept in memory"));
        assert!(is_calm, "{case}: {}", ran.err);
        let listed = run(command(folder.path()).args(["ps", "--store", "store"]));
        assert_eq!(
            (listed.code, listed.out.lines().count()),
            (0, 1 + processes),
            "{case}: {listed:?}"
        );
    }
    let looked = run(command(folder.path()).args(["fsck", "--store", "store"]));
    assert_eq!(looked.code, 0, "{looked:?}");
}
