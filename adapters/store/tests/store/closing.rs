//! Compaction of the active segment, the one that commits are appended to: it is closed first, if
//! it has enough garbage.

use std::fs;
use std::ops::ControlFlow;

use dormouse_actors::ports::{MarkToken, Store, SweepLimits, SweepMode, SweepStep};
use dormouse_store::LogStore;

use crate::compaction::{answers, fill, held};
use crate::support::*;

/// Closes the active segment if anything in it is garbage.
const CLOSE_WITH_ANY_GARBAGE: SweepLimits = SweepLimits {
    live_percent: 99,
    step_bytes: 400,
    close_bytes: 1,
};

#[test]
fn the_active_segment_is_closed_and_compacted() {
    for options in [LogStore::options(), LogStore::options().key(secret(1))] {
        let folder = tempdir();
        let store = options.clone().open(folder.path()).unwrap();
        let owner = store.claim().unwrap();
        let contents = fill(&store, owner);
        let before = answers(&store);
        let live = keep_only(&[&contents[2], &contents[7]]);
        let limits = SweepLimits {
            close_bytes: 5_000,
            ..CLOSE_WITH_ANY_GARBAGE
        };
        let ask = |mark, mode| {
            let watch = &mut |_| ControlFlow::Continue(());
            sweep_with(
                &store,
                owner,
                &live,
                CollectionOptions { mark, mode, limits },
                watch,
            )
            .unwrap()
        };
        let foreseen = ask(MarkToken::default(), SweepMode::Count);
        let swept = ask(store.begin_mark(owner).unwrap(), SweepMode::Free);
        assert_eq!(
            (swept.freed_segments, swept.freed_contents),
            (1, 12),
            "ten of the first, and two behind them"
        );
        assert_eq!(
            (foreseen.freed_segments, foreseen.freed_contents),
            (swept.freed_segments, swept.freed_contents)
        );
        assert!(
            foreseen.bytes_after.abs_diff(swept.bytes_after) < 1_000,
            "{foreseen:?} {swept:?}"
        );
        let again = ask(store.begin_mark(owner).unwrap(), SweepMode::Free);
        assert_eq!(
            (again.freed_segments, again.bytes_after),
            (0, swept.bytes_after),
            "so little is not worth it"
        );
        drop(store);
        fs::remove_dir_all(folder.path().join("index")).unwrap();
        let store = options.open(folder.path()).unwrap();
        assert_eq!(answers(&store), before);
        assert_eq!(held(&store, &contents), [&contents[2], &contents[7]]);
        let owner = store.claim().unwrap();
        commit(&store, owner, &[content(&contents[0]), facts(1, 13..=13)]);
        assert_eq!(held(&store, &contents).len(), 3, "it is written on");
    }
}

#[test]
fn a_crash_during_the_compaction_of_the_active_segment_changes_no_answer() {
    let folder = tempdir();
    let store = LogStore::open(folder.path()).unwrap();
    let owner = store.claim().unwrap();
    let contents = fill(&store, owner);
    let right = answers(&store);
    let live = keep_only(&[&contents[2], &contents[7]]);
    let mark = store.begin_mark(owner).unwrap();
    let mut crashes = Vec::new();
    let watch = &mut |step: SweepStep| {
        let copy = tempdir();
        copy_folder(folder.path(), copy.path());
        crashes.push((step, copy));
        ControlFlow::Continue(())
    };
    sweep_with(
        &store,
        owner,
        &live,
        CollectionOptions {
            mark,
            mode: SweepMode::Free,
            limits: CLOSE_WITH_ANY_GARBAGE,
        },
        watch,
    )
    .unwrap();
    assert!(crashes.len() > 5, "{crashes:?}");
    for (step, copy) in &crashes {
        let store = LogStore::open(copy.path()).unwrap();
        assert_eq!(answers(&store), right, "a crash before {step:?}");
        let there = held(&store, &contents);
        assert!(
            there.contains(&&contents[2]) && there.contains(&&contents[7]),
            "a crash before {step:?}"
        );
        let owner = store.claim().unwrap();
        let mark = store.begin_mark(owner).unwrap();
        let watch = &mut |_| ControlFlow::Continue(());
        sweep_with(
            &store,
            owner,
            &live,
            CollectionOptions {
                mark,
                mode: SweepMode::Free,
                limits: CLOSE_WITH_ANY_GARBAGE,
            },
            watch,
        )
        .unwrap();
        assert_eq!(
            answers(&store),
            right,
            "a crash before {step:?}, and swept again"
        );
        assert_eq!(
            held(&store, &contents),
            [&contents[2], &contents[7]],
            "a crash before {step:?}, and swept again"
        );
    }
}
