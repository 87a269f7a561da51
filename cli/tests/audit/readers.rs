//! All commands that only read, in a loop, beside audits that run one after the other on one store,
//! with collections of garbage between them: nobody refuses anybody. And on a snapshot of that
//! store and on a read-only file system: no byte is changed.
//!
//! `DORMOUSE_READERS` says how many seconds this lasts (`.ci/readers`: a minute).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::skip::skip;
use crate::support::{Bench, shown};

fn duration() -> Duration {
    let seconds = std::env::var("DORMOUSE_READERS")
        .ok()
        .and_then(|seconds| seconds.parse().ok());
    Duration::from_secs(seconds.unwrap_or(4))
}

/// All of them; `{export}` is the file of an export.
const READERS: [&str; 9] = [
    "ps",
    "ps --json",
    "log 1",
    "log 1 --json",
    "diff 1@1 1",
    "checkpoints",
    "fsck",
    "fsck --rate 50MB/s",
    "show {export}",
];

fn dormouse(words: &str, store: &Path, export: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dormouse"));
    command.args(
        words
            .replace("{export}", &export.display().to_string())
            .split_whitespace(),
    );
    if !words.contains("{export}") {
        command.arg("--store").arg(store);
    }
    command.output().unwrap()
}

/// Runs all readers once.
fn look(store: &Path, export: &Path, place: &str) {
    for words in READERS {
        let output = dormouse(words, store, export);
        let is_calm =
            output.status.success() && output.stderr.is_empty() && !output.stdout.is_empty();
        // There is no checkpoint.
        assert!(
            is_calm || (words == "checkpoints" && output.status.success()),
            "{words} {place}: {}",
            shown(&output)
        );
    }
}

/// Every file below a folder, and its bytes.
fn state(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(state(&path));
        } else {
            found.push((path.clone(), fs::read(path).unwrap()));
        }
    }
    found.sort();
    found
}

/// Copies HEAD and then the log, which reaches what HEAD says, while the store is written.
fn snapshot(store: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for part in ["HEAD", "LOCK", "log", "index"] {
        let copied = Command::new("cp")
            .args(["-a", "--reflink=auto"])
            .arg(store.join(part))
            .arg(to)
            .output()
            .unwrap();
        // sled may remove files of its own meanwhile.
        assert!(
            copied.status.success() || part == "index",
            "{}",
            shown(&copied)
        );
    }
}

/// A folder as it can be seen at another place, where nobody can write.
struct ReadOnly(PathBuf);

impl ReadOnly {
    fn view(of: &Path, at: PathBuf) -> Result<Self, String> {
        fs::create_dir(&at).unwrap();
        let mount = |words: &[&str]| {
            Command::new("mount")
                .args(words)
                .arg(of)
                .arg(&at)
                .output()
                .unwrap()
        };
        let bound = mount(&["--bind"]);
        if !bound.status.success() {
            return Err(shown(&bound));
        }
        let view = Self(at.clone());
        let remounted = mount(&["-o", "remount,bind,ro"]);
        let is_closed = fs::write(at.join("probe"), "").is_err();
        if remounted.status.success() && is_closed {
            Ok(view)
        } else {
            Err(shown(&remounted))
        }
    }
}

impl Drop for ReadOnly {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

#[test]
fn readers_and_a_writer_never_refuse_one_another_and_readers_change_nothing() {
    let bench = Bench::captured();
    let (store, export) = (bench.path("store"), bench.path("audit.dormouse"));
    let output = bench.run().wait_with_output().unwrap();
    assert!(output.status.success(), "{}", shown(&output));
    let exported = dormouse(
        &format!("export 1 {} --tree", export.display()),
        &store,
        &export,
    );
    assert!(exported.status.success(), "{}", shown(&exported));
    let view = ReadOnly::view(&store, bench.path("view"));
    let (is_over, sweeping) = (AtomicBool::new(false), Mutex::new(()));
    let (mut looks, mut audits) = (0, 0);
    std::thread::scope(|threads| {
        let writer = threads.spawn(|| {
            let mut audits = 0;
            while !is_over.load(Ordering::Relaxed) {
                let report = bench.path(&format!("out/report-{audits}.md"));
                let output = bench.run_into(&report).wait_with_output().unwrap();
                assert!(
                    output.status.success() && report.is_file(),
                    "audit {audits}: {}",
                    shown(&output)
                );
                let _no_snapshot = sweeping.lock().unwrap_or_else(PoisonError::into_inner);
                let output = dormouse("gc", &store, &export);
                assert!(output.status.success(), "gc {audits}: {}", shown(&output));
                audits += 1;
            }
            audits
        });
        let began = Instant::now();
        // Whatever fails here, the writer ends.
        let looked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            while looks < 2 || began.elapsed() < duration() {
                look(&store, &export, "beside a writer");
                if let Ok(ReadOnly(view)) = &view {
                    look(view, &export, "on a read-only file system beside a writer");
                }
                let copy = bench.path(&format!("snapshot-{looks}"));
                {
                    let _no_sweep = sweeping.lock().unwrap_or_else(PoisonError::into_inner);
                    snapshot(&store, &copy);
                }
                let before = state(&copy);
                look(&copy, &export, "on a snapshot");
                assert!(
                    state(&copy) == before,
                    "a reader changed a byte of a snapshot"
                );
                fs::remove_dir_all(copy).unwrap();
                looks += 1;
            }
        }));
        is_over.store(true, Ordering::Relaxed);
        audits = writer.join().unwrap();
        looked.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    println!(
        "{looks} times all {} readers beside {audits} audits",
        READERS.len()
    );
    let before = state(&store);
    look(&store, &export, "beside nobody");
    if let Ok(ReadOnly(view)) = &view {
        look(view, &export, "on a read-only file system");
    }
    assert!(state(&store) == before, "a reader changed a byte");
    if let Err(why) = view {
        skip(
            "root",
            &format!("no read-only file system can be mounted: {why}"),
        );
    }
}
