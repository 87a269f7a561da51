//! The process table, which has a row for each process, and the owner, who alone may write.
//!
//! `entries.rs` makes the operations (`facts(1, 2..=3)` adds the facts 2 and 3 of process 1), and
//! `subject.rs` runs them on the store under test.

use dormouse_actors::ports::{OwnerToken, StoreError, WriteOp};
use dormouse_proto::id::Pid;
use dormouse_proto::process::{ProcessRow, Waiting};

use crate::entries::*;
use crate::subject::*;

pub(crate) fn only_the_newest_owner_writes(subject: &mut Subject) {
    let old = claim(subject);
    let new = claim(subject);
    assert!(old < new);
    for stale in [old, OwnerToken(0), OwnerToken(new.0 + 1)] {
        let error = expect_refusal(subject, stale, &[created(1)]);
        assert!(
            matches!(error, StoreError::Stale { newest, .. } if newest == new),
            "{error}"
        );
    }
    assert!(with_store(subject, |store| store.processes().unwrap().rows).is_empty());
    commit_ops(subject, new, &[created(1)]);
}

pub(crate) fn the_table_lists_created_and_ended_processes(subject: &mut Subject) {
    let owner = claim(subject);
    commit_ops(subject, owner, &[created(300), created(2)]);
    commit_ops(
        subject,
        owner,
        &[created(10), ended(300), facts(300, 1..=1)],
    );
    let mut ended_row = row(300);
    ended_row.exit = Some(exit());
    assert_eq!(
        with_store(subject, |store| store.processes().unwrap().rows),
        [row(2), row(10), ended_row.clone()]
    );
    assert_eq!(
        with_store(subject, |store| store.journal(Pid(300), None).unwrap().row),
        ended_row
    );
}

pub(crate) fn the_table_has_what_each_process_waits_for(subject: &mut Subject) {
    let owner = claim(subject);
    let born_asleep = ProcessRow {
        waiting: alarm(500),
        ..row(2)
    };
    let created_asleep = WriteOp::ProcessCreated {
        row: Box::new(born_asleep.clone()),
        image: b"image".to_vec(),
    };
    commit_ops(subject, owner, &[created(1), created_asleep, created(3)]);
    let in_rows = |subject: &mut Subject| {
        let rows = with_store(subject, |store| store.processes().unwrap().rows);
        let in_rows: Vec<_> = rows.iter().map(|row| row.waiting).collect();
        in_rows
    };
    let nothing = Waiting::Nothing;
    assert_eq!(in_rows(subject), [nothing, alarm(500), nothing]);
    // One commit holds the facts and what they lead to; the last record counts.
    let ops = [
        facts(1, 1..=1),
        waiting(1, alarm(900)),
        facts(1, 2..=2),
        waiting(1, alarm(700)),
        waiting(2, nothing),
    ];
    commit_ops(subject, owner, &ops);
    assert_eq!(in_rows(subject), [alarm(700), nothing, nothing]);
    let refused = [facts(1, 3..=3), waiting(9, alarm(1))];
    expect_refusal(subject, owner, &refused);
    assert_eq!(in_rows(subject), [alarm(700), nothing, nothing]);
    commit_ops(subject, owner, &[waiting(3, alarm(1)), ended(3)]);
    assert_eq!(in_rows(subject), [alarm(700), nothing, nothing]);
    let others = [
        Waiting::Unknown,
        Waiting::Person { expires_ms: None },
        Waiting::Person {
            expires_ms: Some(u64::MAX),
        },
        alarm(800),
    ];
    for other in others {
        commit_ops(subject, owner, &[waiting(1, other)]);
        assert_eq!(in_rows(subject), [other, nothing, nothing]);
        let journal_row = with_store(subject, |store| store.journal(Pid(1), None).unwrap().row);
        assert_eq!(journal_row.waiting, other);
    }
    commit_ops(subject, owner, &[process_deleted(1)]);
    assert_eq!(in_rows(subject), [nothing, nothing]);
}

pub(crate) fn the_table_says_which_processes_are_paused(subject: &mut Subject) {
    let owner = claim(subject);
    let created_paused = WriteOp::ProcessCreated {
        row: Box::new(ProcessRow {
            is_paused: true,
            ..row(2)
        }),
        image: b"image".to_vec(),
    };
    let ops = [created(1), created_paused, created(3)];
    commit_ops(subject, owner, &ops);
    let are_paused = |subject: &mut Subject| {
        let rows = with_store(subject, |store| store.processes().unwrap().rows);
        let paused: Vec<_> = rows.iter().map(|row| row.is_paused).collect();
        paused
    };
    assert_eq!(are_paused(subject), [false, true, false]);
    let ops = [facts(1, 1..=1), paused(1, true), paused(2, false)];
    commit_ops(subject, owner, &ops);
    assert_eq!(are_paused(subject), [true, false, false]);
    let journal_row = with_store(subject, |store| store.journal(Pid(1), None).unwrap().row);
    assert!(journal_row.is_paused);
    // An ended process is paused no more, and neither is one that is opened again.
    commit_ops(subject, owner, &[facts(1, 2..=2), ended(1)]);
    assert_eq!(are_paused(subject), [false, false, false]);
    commit_ops(subject, owner, &[reopened(1, 1), facts(1, 3..=3)]);
    assert_eq!(are_paused(subject), [false, false, false]);
    commit_ops(subject, owner, &[paused(1, true)]);
    assert_eq!(are_paused(subject), [true, false, false]);
}

pub(crate) fn a_process_that_is_opened_again_is_alive_until_it_ends_again(subject: &mut Subject) {
    let owner = claim(subject);
    let alive = |reopenings| ProcessRow {
        reopenings,
        ..row(1)
    };
    let dead = |reopenings| ProcessRow {
        exit: Some(exit()),
        ..alive(reopenings)
    };
    let check = |subject: &mut Subject, expected: ProcessRow| check_row(subject, &expected);
    commit_ops(
        subject,
        owner,
        &[created(1), facts(1, 1..=1), waiting(1, alarm(900))],
    );
    commit_ops(subject, owner, &[facts(1, 2..=2), ended(1)]);
    check(subject, dead(0));
    // Its alarms ended with it.
    commit_ops(subject, owner, &[reopened(1, 1), facts(1, 3..=4)]);
    check(subject, alive(1));
    let refused = expect_refusal(subject, owner, &[process_deleted(1)]);
    assert!(matches!(refused, StoreError::Refused { .. }), "{refused}");
    commit_ops(subject, owner, &[waiting(1, alarm(1_000))]);
    check(
        subject,
        ProcessRow {
            waiting: alarm(1_000),
            ..alive(1)
        },
    );
    commit_ops(subject, owner, &[facts(1, 5..=5), ended(1)]);
    check(subject, dead(1));
    commit_ops(subject, owner, &[reopened(1, 2), facts(1, 6..=6)]);
    check(subject, alive(2));
    let journal = with_store(subject, |store| store.journal(Pid(1), None).unwrap());
    assert_eq!(journal.facts.len(), 6);
    commit_ops(subject, owner, &[ended(1)]);
    // One that was opened and deleted in the meantime is unknown.
    commit_ops(subject, owner, &[process_deleted(1)]);
    for unknown in [1, 9] {
        let ops = [reopened(unknown, 3), facts(unknown, 7..=7)];
        let refused = expect_refusal(subject, owner, &ops);
        let is_unknown = matches!(refused, StoreError::UnknownProcess(pid) if pid == Pid(unknown));
        assert!(is_unknown, "{refused}");
    }
}

pub(crate) fn a_process_that_is_truncated_and_then_opened_again_is_alive(subject: &mut Subject) {
    let owner = claim(subject);
    let alive = |reopenings| ProcessRow {
        reopenings,
        ..row(1)
    };
    let dead = |reopenings| ProcessRow {
        exit: Some(exit()),
        ..alive(reopenings)
    };
    commit_ops(
        subject,
        owner,
        &[created(1), facts(1, 1..=2), snapshot(1, 2), ended(1)],
    );
    check_row(subject, &dead(0));
    // A history that begins with its last image, as a collection leaves it.
    commit_ops(subject, owner, &[history_truncated(1, 2)]);
    check_row(subject, &dead(0));
    commit_ops(subject, owner, &[reopened(1, 1), facts(1, 3..=3)]);
    check_row(subject, &alive(1));
    let refused = expect_refusal(subject, owner, &[process_deleted(1)]);
    assert!(matches!(refused, StoreError::Refused { .. }), "{refused}");
    check_journal(subject, 1, None, "image of 1 at 2", 2, 3);
    // The same once more, for a process whose row has been stored by a truncation before.
    commit_ops(subject, owner, &[facts(1, 4..=4), snapshot(1, 4), ended(1)]);
    check_row(subject, &dead(1));
    commit_ops(subject, owner, &[history_truncated(1, 4)]);
    check_row(subject, &dead(1));
    commit_ops(subject, owner, &[reopened(1, 2), facts(1, 5..=5)]);
    check_row(subject, &alive(2));
    // A process that is alive when its history is truncated, and then ends, has ended.
    commit_ops(subject, owner, &[snapshot(1, 5)]);
    commit_ops(subject, owner, &[history_truncated(1, 5)]);
    check_row(subject, &alive(2));
    commit_ops(subject, owner, &[facts(1, 6..=6), ended(1)]);
    check_row(subject, &dead(2));
    commit_ops(subject, owner, &[process_deleted(1)]);
    assert!(with_store(subject, |store| store.processes().unwrap().rows).is_empty());
}

pub(crate) fn a_process_that_waits_when_it_is_truncated_waits_for_nothing_once_it_is_opened_again(
    subject: &mut Subject,
) {
    let owner = claim(subject);
    let asleep = WriteOp::Waiting {
        pid: Pid(1),
        waiting: alarm(900),
        is_paused: true,
    };
    let asleep_row = ProcessRow {
        waiting: alarm(900),
        is_paused: true,
        ..row(1)
    };
    commit_ops(
        subject,
        owner,
        &[created(1), facts(1, 1..=2), snapshot(1, 2), asleep],
    );
    commit_ops(subject, owner, &[history_truncated(1, 2)]);
    check_row(subject, &asleep_row);
    commit_ops(subject, owner, &[facts(1, 3..=3), ended(1)]);
    let dead = ProcessRow {
        exit: Some(exit()),
        ..row(1)
    };
    check_row(subject, &dead);
    commit_ops(subject, owner, &[reopened(1, 1), facts(1, 4..=4)]);
    let alive = ProcessRow {
        reopenings: 1,
        ..row(1)
    };
    check_row(subject, &alive);
}

/// Checks that the table contains this row and no other, and that the journal has the same row.
fn check_row(subject: &mut Subject, expected: &ProcessRow) {
    let rows = with_store(subject, |store| store.processes().unwrap().rows);
    assert_eq!(rows, std::slice::from_ref(expected));
    let journal = with_store(subject, |store| store.journal(expected.pid, None).unwrap());
    assert_eq!(journal.row, *expected);
}
