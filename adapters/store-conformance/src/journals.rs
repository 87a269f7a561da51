//! Journals: images, facts and histories.
//!
//! `entries.rs` makes the operations (`facts(1, 2..=3)` adds the facts 2 and 3 of process 1), and
//! `subject.rs` runs them on the store under test.

use dormouse_actors::ports::{Batch, CommittedFacts, Store, StoreError, SyncLevel, WriteOp};
use dormouse_proto::id::{FactNumber, Pid};

use crate::entries::*;
use crate::subject::*;
use crate::temp_files::check_temp_files;

pub(crate) fn an_empty_store_contains_nothing(subject: &mut Subject) {
    assert!(with_store(subject, |store| store.processes().unwrap().rows).is_empty());
    let journal = with_store(subject, |store| store.journal(Pid(1), None));
    assert!(
        matches!(journal, Err(StoreError::UnknownProcess(Pid(1)))),
        "{journal:?}"
    );
    let content = with_store(subject, |store| read(store, hash(b"?")));
    assert!(
        matches!(content, Err(StoreError::UnknownContent(unknown)) if unknown == hash(b"?")),
        "{content:?}"
    );
}

pub(crate) fn a_journal_is_the_latest_image_and_the_facts_after_it(subject: &mut Subject) {
    let owner = claim(subject);
    commit_ops(subject, owner, &[created(1)]);
    check_journal(subject, 1, None, "image of 1", 0, 0);
    commit_ops(subject, owner, &[facts(1, 1..=4), facts(1, 5..=5)]);
    commit_ops(
        subject,
        owner,
        &[facts(1, 6..=9), snapshot(1, 7), snapshot(1, 3)],
    );
    let cases = [
        (None, "image of 1 at 7", 7, 9),
        (Some(9), "image of 1 at 7", 7, 9),
        (Some(8), "image of 1 at 7", 7, 8),
        (Some(7), "image of 1 at 7", 7, 7),
        (Some(6), "image of 1 at 3", 3, 6),
        (Some(3), "image of 1 at 3", 3, 3),
        (Some(2), "image of 1", 0, 2),
        (Some(0), "image of 1", 0, 0),
    ];
    for (up_to, image, base, last) in cases {
        check_journal(subject, 1, up_to, image, base, last);
    }
    let beyond = with_store(subject, |store| store.journal(Pid(1), Some(FactNumber(10))));
    let expected = matches!(
        beyond,
        Err(StoreError::UnknownFact {
            last: FactNumber(9),
            requested: FactNumber(10),
            ..
        })
    );
    assert!(expected, "{beyond:?}");
}

pub(crate) fn a_commit_is_all_or_nothing(subject: &mut Subject) {
    let owner = claim(subject);
    let new_content = bytes(1, 100);
    commit_ops(subject, owner, &[created(1)]);
    let error = expect_refusal(
        subject,
        owner,
        &[
            content(&new_content),
            created(2),
            facts(1, 1..=3),
            facts(1, 5..=5),
        ],
    );
    assert!(
        error
            .to_string()
            .contains("is at fact 3: the next is 4, but 5 was given"),
        "{error}"
    );
    check_journal(subject, 1, None, "image of 1", 0, 0);
    assert_eq!(
        with_store(subject, |store| store.processes().unwrap().rows),
        [row(1)]
    );
    assert!(with_store(subject, |store| read(store, hash(&new_content))).is_err());
    commit_ops(subject, owner, &[]);
    commit_ops(
        subject,
        owner,
        &[WriteOp::Facts {
            pid: Pid(1),
            first: FactNumber(1),
            facts: Vec::new(),
        }],
    );
}

pub(crate) fn journals_have_no_gaps(subject: &mut Subject) {
    let owner = claim(subject);
    commit_ops(subject, owner, &[created(1), facts(1, 1..=2)]);
    let cases = [
        (facts(1, 4..=4), "the next is 3, but 4 was given"),
        (facts(1, 2..=2), "the next is 3, but 2 was given"),
        (created(1), "process 1 already exists"),
        (facts(9, 1..=1), "no process 9"),
        (snapshot(9, 0), "no process 9"),
        (ended(9), "no process 9"),
        (snapshot(1, 3), "no fact 3"),
        (
            snapshot(1, 0),
            "at fact 0 is the one that it was created with",
        ),
    ];
    for (op, expected_text) in cases {
        let error = expect_refusal(subject, owner, std::slice::from_ref(&op));
        let text = format!("{error}");
        assert!(text.contains(expected_text), "{op:?}: {text}");
    }
    commit_ops(
        subject,
        owner,
        &[facts(1, 3..=3), created(2), facts(2, 1..=1), snapshot(2, 1)],
    );
    check_journal(subject, 1, None, "image of 1", 0, 3);
    check_journal(subject, 2, None, "image of 2 at 1", 1, 1);
}

pub(crate) fn each_process_has_its_own_facts(subject: &mut Subject) {
    let owner = claim(subject);
    let pids = [1, 2, 255, 256, 257, u64::MAX];
    commit_ops(subject, owner, &pids.map(created));
    for number in 1..=5 {
        commit_ops(subject, owner, &pids.map(|pid| facts(pid, number..=number)));
    }
    for pid in pids {
        check_journal(subject, pid, None, &format!("image of {pid}"), 0, 5);
        check_journal(subject, pid, Some(3), &format!("image of {pid}"), 0, 3);
    }
}

pub(crate) fn facts_before_a_snapshot_can_still_be_read(subject: &mut Subject) {
    let owner = claim(subject);
    commit_ops(subject, owner, &[created(1), facts(1, 1..=3)]);
    commit_ops(
        subject,
        owner,
        &[facts(1, 4..=6), snapshot(1, 5), facts(1, 7..=7)],
    );
    for (first, up_to) in [(1, 7), (2, 3), (5, 5), (4, 6), (7, 7), (6, 5)] {
        let found = with_store(subject, |store| {
            store
                .facts(Pid(1), FactNumber(first), FactNumber(up_to))
                .unwrap()
        });
        let expected: Vec<_> = (first..=up_to).map(|number| fact(1, number)).collect();
        assert_eq!(found, expected, "facts {first} to {up_to}");
    }
    let beyond = with_store(subject, |store| {
        store.facts(Pid(1), FactNumber(1), FactNumber(8))
    });
    assert!(
        matches!(
            beyond,
            Err(StoreError::UnknownFact {
                last: FactNumber(7),
                ..
            })
        ),
        "{beyond:?}"
    );
    let unknown = with_store(subject, |store| {
        store.facts(Pid(9), FactNumber(1), FactNumber(1))
    });
    assert!(
        matches!(unknown, Err(StoreError::UnknownProcess(Pid(9)))),
        "{unknown:?}"
    );
}

pub(crate) fn unsynced_commits_are_readable(subject: &mut Subject) {
    let owner = claim(subject);
    let written = |ops: &[WriteOp]| {
        let ops = ops.to_vec();
        move |store: &dyn Store| {
            store
                .commit(
                    owner,
                    Batch {
                        ops: &ops,
                        at_ms: NOW_MS,
                        sync_level: SyncLevel::Written,
                    },
                )
                .unwrap();
        }
    };
    with_store(subject, written(&[created(1), facts(1, 1..=2)]));
    with_store(subject, written(&[facts(1, 3..=3), temp_file(1, 1)]));
    check_journal(subject, 1, None, "image of 1", 0, 3);
    commit_ops(subject, owner, &[]);
    commit_ops(subject, owner, &[facts(1, 4..=4)]);
    with_store(subject, written(&[facts(1, 5..=5)]));
    check_journal(subject, 1, None, "image of 1", 0, 5);
    check_temp_files(subject, 1, 1);
}

pub(crate) fn a_history_says_when_each_fact_was_written(subject: &mut Subject) {
    let owner = claim(subject);
    let unknown = with_store(subject, |store| store.history(Pid(1)));
    assert!(
        matches!(unknown, Err(StoreError::UnknownProcess(Pid(1)))),
        "{unknown:?}"
    );
    let at = |at_ms, ops: &[WriteOp]| {
        let ops = ops.to_vec();
        move |store: &dyn Store| {
            store
                .commit(
                    owner,
                    Batch {
                        ops: &ops,
                        at_ms,
                        sync_level: SyncLevel::Synced,
                    },
                )
                .unwrap();
        }
    };
    with_store(subject, at(10, &[created(2), created(1)]));
    with_store(subject, at(20, &[facts(1, 1..=3), snapshot(1, 2)]));
    with_store(subject, at(30, &[facts(2, 1..=1)]));
    with_store(
        subject,
        at(25, &[facts(1, 4..=4), facts(1, 5..=6), temp_file(1, 1)]),
    );
    let history = with_store(subject, |store| store.history(Pid(1)).unwrap().commits);
    let seen: Vec<_> = by_commit(&history)
        .iter()
        .map(|written| (written.at_ms, written.first.0, written.count))
        .collect();
    assert_eq!(seen, [(10, 0, 1), (20, 1, 3), (25, 4, 3)]);
    let other = with_store(subject, |store| store.history(Pid(2)).unwrap().commits);
    let change = with_store(subject, |store| store.temp_files(Pid(1)).unwrap()[0].commit);
    let commits = [
        history[0].commit,
        history[1].commit,
        other[1].commit,
        history[2].commit,
    ];
    assert!(commits.is_sorted_by(|a, b| a < b), "{commits:?}");
    assert_eq!((other[0].commit, change), (commits[0], commits[3]));
}

/// A commit returns the number that the history has, and the end of a history is that of the whole.
pub(crate) fn a_history_can_be_read_from_a_commit_on(subject: &mut Subject) {
    let owner = claim(subject);
    let commit = |subject: &mut Subject, ops: &[WriteOp]| {
        let batch = Batch::durable(ops, NOW_MS);
        with_store(subject, |store| store.commit(owner, batch).unwrap())
    };
    let empty = commit(subject, &[]);
    let mut numbers = vec![commit(subject, &[created(1), created(2)])];
    assert!(numbers[0] > empty);
    let mut last = 0;
    for count in (1..=12).chain([1, 100, 1]) {
        let more = facts(1, last + 1..=last + count);
        numbers.push(commit(subject, &[more, facts(2, last + 1..=last + count)]));
        last += count;
    }
    assert!(
        numbers.is_sorted_by(|left, right| left < right),
        "{numbers:?}"
    );
    let nothing = commit(subject, &[]);
    assert!(nothing >= *numbers.last().unwrap_or(&empty));
    for pid in [Pid(1), Pid(2)] {
        let whole = with_store(subject, |store| store.history(pid).unwrap());
        let committed: Vec<_> = by_commit(&whole.commits);
        let found: Vec<_> = committed.iter().map(|facts| facts.commit).collect();
        assert_eq!(found, numbers, "{pid}");
        for after in [empty].iter().chain(&numbers) {
            let end = with_store(subject, |store| store.history_after(pid, *after).unwrap());
            let expected = committed.iter().filter(|facts| facts.commit > *after);
            let expected: Vec<_> = expected.copied().collect();
            assert_eq!(by_commit(&end.commits), expected, "{pid} after {after:?}");
            assert_eq!(end.lost, None);
        }
    }
    let unknown = with_store(subject, |store| store.history_after(Pid(9), empty));
    assert!(
        matches!(unknown, Err(StoreError::UnknownProcess(Pid(9)))),
        "{unknown:?}"
    );
}

/// Groups a history by commits: a store may report the facts of one commit in several parts.
fn by_commit(history: &[CommittedFacts]) -> Vec<CommittedFacts> {
    let mut commits: Vec<CommittedFacts> = Vec::new();
    for written in history {
        match commits.last_mut() {
            Some(last) if last.commit == written.commit => last.count += written.count,
            _ => commits.push(*written),
        }
    }
    commits
}
