//! Scrubbing: a check that reads the whole store at a rate that the caller sets, next to a writer.

use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use dormouse_actors::ports::{OwnerToken, Store as _, StoreError};
use dormouse_store::{FsckReport, LogStore, Options, Repair, fsck};

use crate::support::*;

const CONTENT_BYTES: usize = 3 << 20;

/// Commits facts, and a content that is longer than one read.
fn fill(store: &LogStore) -> OwnerToken {
    let owner = store.claim().unwrap();
    commit(
        store,
        owner,
        &[created(1), content(&bytes(3, CONTENT_BYTES))],
    );
    (1..=50).for_each(|number| commit(store, owner, &[facts(1, number..=number)]));
    owner
}

fn fact_bytes(number: u64) -> bytes::Bytes {
    bytes(number as u8, 6_000)
}

fn check(folder: &std::path::Path, options: &Options) -> Result<FsckReport, StoreError> {
    fsck(folder, options, Repair::No, &mut |_, _| {})
}

#[test]
fn the_throttle_is_called_for_every_byte_before_it_is_read() {
    let folder = tempdir();
    let store = LogStore::open(folder.path()).unwrap();
    fill(&store);
    let (asked, most) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (all, at_once) = (asked.clone(), most.clone());
    let options = LogStore::options().throttle(move |bytes| {
        all.fetch_add(bytes, Ordering::Relaxed);
        at_once.fetch_max(bytes, Ordering::Relaxed);
        ControlFlow::Continue(())
    });
    let report = check(folder.path(), &options).unwrap();
    assert!(
        report.issues.is_empty() && report.bytes > CONTENT_BYTES as u64,
        "{report:?}"
    );
    let asked = asked.load(Ordering::Relaxed);
    assert!(
        asked >= report.bytes,
        "{asked} bytes were asked for, of a log of {}",
        report.bytes
    );
    assert!(most.load(Ordering::Relaxed) <= 1 << 20);
    assert!(
        options.read_only(folder.path()).is_ok(),
        "a reader asks as well"
    );
}

#[test]
fn a_check_can_be_cancelled_at_any_read_and_changes_nothing() {
    let folder = tempdir();
    fill(&LogStore::open(folder.path()).unwrap());
    let state = || {
        files(folder.path())
            .into_iter()
            .map(|path| (std::fs::read(&path).unwrap(), path))
            .collect::<Vec<_>>()
    };
    let before = state();
    let mut reads = 0;
    loop {
        let left = AtomicU64::new(reads);
        let options = LogStore::options().throttle(move |_| {
            let is_enough = left
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                    left.checked_sub(1)
                })
                .is_err();
            if is_enough {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        match check(folder.path(), &options) {
            Err(StoreError::Io { source, .. }) => {
                assert_eq!(source.kind(), ErrorKind::Interrupted, "after {reads} reads")
            }
            looked => break assert!(looked.unwrap().issues.is_empty()),
        }
        reads += 1 + reads / 4;
    }
    assert!(reads > 50, "there were {reads} reads");
    assert!(before == state(), "a file was changed");
}

/// The writer commits before each read of a slow check: it starts segments, and truncates reserved
/// space at the end of finished ones.
#[test]
fn a_slow_check_is_not_restarted_by_commits() {
    let folder = tempdir();
    let store = LogStore::options()
        .segment_bytes(CONTENT_BYTES as u64 + 20_000)
        .open(folder.path())
        .unwrap();
    let owner = fill(&store);
    let bytes_before: u64 = files(&folder.path().join("log"))
        .iter()
        .map(|path| records_end(path))
        .sum();
    let (number, asked) = (Mutex::new(50), Arc::new(AtomicU64::new(0)));
    let store = Arc::new(store);
    let (writes, count) = (store.clone(), asked.clone());
    let options = LogStore::options().throttle(move |bytes| {
        let mut number = number.lock().unwrap();
        // HEAD and the first records: a segment that is started then makes the check start again.
        if count.fetch_add(bytes, Ordering::Relaxed) > 10_000 {
            *number += 1;
            // Longer than a header, so that the unused end of a segment is reserved space that is
            // truncated.
            commit(
                &*writes,
                owner,
                &[facts(1, *number..=*number), content(&fact_bytes(*number))],
            );
        }
        ControlFlow::Continue(())
    });
    let report = check(folder.path(), &options).unwrap();
    assert!(report.issues.is_empty(), "{report:?}");
    let segments = files(&folder.path().join("log")).len();
    assert!(segments > 1, "the writer has begun a segment meanwhile");
    let asked = asked.load(Ordering::Relaxed);
    assert!(
        asked < 2 * bytes_before + (1 << 20),
        "{asked} bytes were read of a log of {bytes_before}"
    );
}
