//! Compares the figures that a compaction reports with figures computed from the operations.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

use dormouse_actors::ports::{
    MarkToken, Store as _, SweepLimits, SweepMode, SweepOutcome, WriteOp,
};
use dormouse_proto::record::codec;
use dormouse_store::LogStore;

use crate::support::*;

const HEADER_BYTES: u64 = 168;
/// The length of a segment's first record.
const SEGMENT_OPENED_BYTES: u64 = HEADER_BYTES + 32;

/// The length of an operation's record.
fn record_bytes(entry: &WriteOp) -> u64 {
    let payload = match entry {
        WriteOp::Content { bytes, .. } => bytes.len(),
        WriteOp::ProcessCreated { row, image } => {
            4 + codec::encode(row).unwrap().len() + image.len()
        }
        WriteOp::Facts { facts, .. } => facts.iter().map(|fact| 4 + fact.len()).sum(),
        WriteOp::Snapshot { image, .. } => image.len(),
        WriteOp::ProcessDeleted { .. } => 0,
        other => panic!("{other:?} is not in this test"),
    };
    HEADER_BYTES + payload as u64
}

/// Where the records of a segment end. Computed from the records, because the last byte of one may
/// be zero like the reserved space after it.
fn records_end(segment: &Path) -> u64 {
    let bytes = fs::read(segment).unwrap();
    let mut end = 0;
    while bytes[end..].starts_with(b"DMLG") {
        let length = u64::from_le_bytes(*bytes[end + 40..].first_chunk().unwrap());
        end += (HEADER_BYTES + length) as usize;
    }
    end as u64
}

/// Operations that are committed together, and whether each is live at the end.
type Commit = Vec<(WriteOp, bool)>;

fn commits() -> Vec<Commit> {
    let large = |seed| content(&bytes(seed, 2_000));
    vec![
        vec![(created(1), true), (created(2), false)],
        vec![(large(1), true), (facts(1, 1..=2), true)],
        vec![(large(2), false), (facts(1, 3..=3), true)],
        vec![(large(3), false), (large(4), true), (facts(1, 4..=9), true)],
        vec![(facts(2, 1..=5), false), (snapshot(2, 5), false)],
        vec![
            (large(5), false),
            (large(6), false),
            (facts(2, 6..=6), false),
            (snapshot(1, 9), true),
        ],
        vec![(process_deleted(2), true)],
        // The last commit is in a later segment than those that are compacted.
        vec![(facts(1, 10..=10), true)],
    ]
}

#[test]
fn the_figures_of_a_sweep_equal_those_computed_from_its_records() {
    for live_percent in [0, 20, 40, 50, 60, 99] {
        let folder = tempdir();
        // One segment per commit.
        let store = LogStore::options()
            .segment_bytes(1)
            .open(folder.path())
            .unwrap();
        let owner = store.claim().unwrap();
        let commits = commits();
        for entries in &commits {
            commit(
                &store,
                owner,
                &entries
                    .iter()
                    .map(|(entry, _)| entry.clone())
                    .collect::<Vec<_>>(),
            );
        }
        let total = |entries: &[(WriteOp, bool)]| {
            SEGMENT_OPENED_BYTES
                + entries
                    .iter()
                    .map(|(entry, _)| record_bytes(entry))
                    .sum::<u64>()
        };
        let live_bytes = |entries: &[(WriteOp, bool)]| {
            entries
                .iter()
                .filter(|it| it.1)
                .map(|it| record_bytes(&it.0))
                .sum::<u64>()
        };
        let looked_at = &commits[..commits.len() - 1];
        let (freed, left): (Vec<_>, Vec<_>) = looked_at
            .iter()
            .map(|entries| (total(entries), live_bytes(entries), entries))
            .partition(|(total, live, _)| live * 100 <= total * u64::from(live_percent));
        let dropped: Vec<_> = freed
            .iter()
            .flat_map(|(_, _, entries)| entries.iter())
            .filter(|(entry, is_live)| matches!(entry, WriteOp::Content { .. }) && !is_live)
            .map(|(entry, _)| record_bytes(entry))
            .collect();

        let live = keep_only(&[&bytes(1, 2_000), &bytes(4, 2_000)]);
        let limits = SweepLimits {
            live_percent,
            step_bytes: 1 << 20,
            close_bytes: u64::MAX,
        };
        let ask = |mark, mode| {
            sweep_with(
                &store,
                owner,
                &live,
                CollectionOptions { mark, mode, limits },
                &mut |_| ControlFlow::Continue(()),
            )
            .unwrap()
        };
        let foreseen = ask(MarkToken::default(), SweepMode::Count);
        let on_disk = || {
            files(&folder.path().join("log"))
                .iter()
                .map(|path| records_end(path))
                .sum::<u64>()
        };
        let before = on_disk();
        let swept = ask(store.begin_mark(owner).unwrap(), SweepMode::Free);
        for (what, found) in [("foreseen", &foreseen), ("done", &swept)] {
            let case = format!("{what} at {live_percent} %");
            assert_eq!(found.outcome, SweepOutcome::Done, "{case}");
            assert_eq!(
                found.bytes_before,
                commits.iter().map(|entries| total(entries)).sum::<u64>(),
                "{case}"
            );
            assert_eq!(found.bytes_before, before, "{case}");
            assert_eq!(
                (found.segments, found.freed_segments),
                (looked_at.len() as u64, freed.len() as u64),
                "{case}"
            );
            assert_eq!(
                found.live_bytes,
                looked_at
                    .iter()
                    .map(|entries| live_bytes(entries))
                    .sum::<u64>(),
                "{case}"
            );
            assert_eq!(
                found.moved_bytes,
                freed.iter().map(|(_, live, _)| live).sum::<u64>(),
                "{case}"
            );
            assert_eq!(
                found.kept_garbage_bytes,
                left.iter()
                    .map(|(total, live, _)| total - live)
                    .sum::<u64>(),
                "{case}"
            );
            assert_eq!(found.freed_contents, dropped.len() as u64, "{case}");
            assert_eq!(
                found.freed_content_bytes,
                dropped.iter().sum::<u64>(),
                "{case}"
            );
            assert_eq!(found.damaged_segments, Vec::<u32>::new(), "{case}");
            let records: usize = freed.iter().map(|(_, _, entries)| 1 + entries.len()).sum();
            assert_eq!(
                found.inspected_records, records as u64,
                "{case}: a look at what is freed, and at nothing else"
            );
        }
        let kept: u64 = freed
            .iter()
            .map(|(total, live, _)| total - live - HEADER_BYTES)
            .sum();
        assert_eq!(
            foreseen.bytes_after,
            foreseen.bytes_before - kept,
            "foreseen at {live_percent} %"
        );
        assert_eq!(swept.bytes_after, on_disk(), "done at {live_percent} %");
        // Each segment that records were moved to starts with a record of its own.
        let moved_from = freed.iter().filter(|(_, live, _)| *live > 0).count() as u64;
        assert_eq!(
            swept.bytes_after,
            foreseen.bytes_after + moved_from * SEGMENT_OPENED_BYTES,
            "done at {live_percent} %"
        );
        drop(store);
        fs::remove_dir_all(folder.path().join("index")).unwrap();
        assert!(LogStore::open(folder.path()).is_ok());
    }
}
