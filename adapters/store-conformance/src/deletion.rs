//! Deleted processes and truncated histories. A truncated history begins at an image; the facts up
//! to that image are gone.
//!
//! `entries.rs` makes the operations (`facts(1, 2..=3)` adds the facts 2 and 3 of process 1), and
//! `subject.rs` runs them on the store under test.

use dormouse_actors::ports::{Store, StoreError};
use dormouse_proto::id::{FactNumber, Pid};

use crate::entries::*;
use crate::subject::*;

pub(crate) fn a_deleted_process_is_unknown_and_its_pid_is_not_reused(subject: &mut Subject) {
    let owner = claim(subject);
    commit_ops(
        subject,
        owner,
        &[
            created(1),
            created(2),
            facts(2, 1..=3),
            temp_file(2, 1),
            snapshot(2, 2),
            ended(2),
        ],
    );
    commit_ops(subject, owner, &[facts(1, 1..=2)]);
    commit_ops(subject, owner, &[process_deleted(2)]);
    commit_ops(subject, owner, &[facts(1, 3..=3)]);
    let listing = with_store(subject, |store| store.processes().unwrap());
    assert_eq!(
        (&listing.rows[..], listing.last_pid, listing.losses),
        (&[row(1)][..], 2, vec![])
    );
    let unknown =
        |error: Option<StoreError>| matches!(error, Some(StoreError::UnknownProcess(Pid(2))));
    assert!(unknown(with_store(subject, |store| store
        .journal(Pid(2), None)
        .err())));
    assert!(unknown(with_store(subject, |store| store
        .journal(Pid(2), Some(FactNumber(0)))
        .err())));
    assert!(unknown(with_store(subject, |store| store
        .history(Pid(2))
        .err())));
    assert!(unknown(with_store(subject, |store| store
        .temp_files(Pid(2))
        .err())));
    for op in [
        facts(2, 4..=4),
        ended(2),
        process_deleted(2),
        history_truncated(2, 2),
        temp_file(2, 2),
    ] {
        let error = expect_refusal(subject, owner, std::slice::from_ref(&op));
        assert!(
            matches!(error, StoreError::UnknownProcess(Pid(2))),
            "{op:?}: {error}"
        );
    }
    let reuse_error = expect_refusal(subject, owner, &[created(2)]).to_string();
    assert!(
        reuse_error.contains("a pid is never reused"),
        "{reuse_error}"
    );
    check_journal(subject, 1, None, "image of 1", 0, 3);
    commit_ops(subject, owner, &[process_deleted(1)]);
    commit_ops(subject, owner, &[created(3)]);
    let listing = with_store(subject, |store| store.processes().unwrap());
    assert_eq!((&listing.rows[..], listing.last_pid), (&[row(3)][..], 3));
}

pub(crate) fn a_truncated_history_begins_with_an_image(subject: &mut Subject) {
    let owner = claim(subject);
    commit_ops(
        subject,
        owner,
        &[created(1), facts(1, 1..=3), snapshot(1, 3)],
    );
    commit_ops(subject, owner, &[facts(1, 4..=6), ended(1)]);
    commit_ops(subject, owner, &[facts(1, 7..=7), snapshot(1, 5)]);
    commit_ops(subject, owner, &[facts(1, 8..=8)]);
    let error = expect_refusal(subject, owner, &[history_truncated(1, 4)]).to_string();
    assert!(error.contains("it has no image there"), "{error}");
    let error = expect_refusal(subject, owner, &[history_truncated(1, 9)]);
    assert!(matches!(error, StoreError::UnknownFact { .. }), "{error}");
    commit_ops(subject, owner, &[history_truncated(1, 3)]);
    check_journal(subject, 1, Some(4), "image of 1 at 3", 3, 4);
    commit_ops(subject, owner, &[history_truncated(1, 5)]);
    commit_ops(subject, owner, &[facts(1, 9..=9)]);
    check_journal(subject, 1, None, "image of 1 at 5", 5, 9);
    check_journal(subject, 1, Some(5), "image of 1 at 5", 5, 5);
    for requested in [0, 3, 4] {
        let error = with_store(subject, |store| {
            store.journal(Pid(1), Some(FactNumber(requested)))
        });
        assert!(
            matches!(
                error,
                Err(StoreError::DeletedFact {
                    first_kept: FactNumber(5),
                    ..
                })
            ),
            "{error:?}"
        );
    }
    let history = with_store(subject, |store| store.history(Pid(1)).unwrap().commits);
    let seen: Vec<_> = history
        .iter()
        .map(|written| (written.first.0, written.count))
        .collect();
    assert_eq!(seen, [(6, 1), (7, 1), (8, 1), (9, 1)]);
    let read = |first, up_to| {
        move |store: &dyn Store| store.facts(Pid(1), FactNumber(first), FactNumber(up_to))
    };
    assert_eq!(with_store(subject, read(6, 9)).unwrap().len(), 4);
    for (first, up_to, first_kept) in [(0, 9, 6), (1, 9, 6), (5, 9, 6), (5, 5, 6), (1, 4, 5)] {
        match with_store(subject, read(first, up_to)) {
            Err(StoreError::DeletedFact {
                first_kept: FactNumber(returned),
                ..
            }) => assert_eq!(returned, first_kept),
            other => panic!("{first} to {up_to}: {other:?}"),
        }
    }
    let mut ended_row = row(1);
    ended_row.exit = Some(exit());
    assert_eq!(
        with_store(subject, |store| store.processes().unwrap()).rows,
        [ended_row]
    );
    let error = expect_refusal(subject, owner, &[history_truncated(1, 3)]);
    assert!(
        matches!(
            error,
            StoreError::DeletedFact {
                first_kept: FactNumber(5),
                ..
            }
        ),
        "{error}"
    );
}
