//! Changes of temporary files: each process tree has a numbered series of them, separate from the
//! journals.
//!
//! `entries.rs` makes the operations (`facts(1, 2..=3)` adds the facts 2 and 3 of process 1), and
//! `subject.rs` runs them on the store under test.

use dormouse_actors::ports::StoreError;
use dormouse_proto::id::Pid;

use crate::entries::*;
use crate::subject::*;

pub(crate) fn check_temp_files(subject: &mut Subject, root: u64, last: u64) {
    let found = with_store(subject, |store| {
        records(store.temp_files(Pid(root)).unwrap())
    });
    let expected: Vec<_> = (1..=last).map(|number| change(root, number)).collect();
    assert_eq!(found, expected, "the temporary files of process {root}");
}

pub(crate) fn changes_of_temporary_files_are_kept_for_each_tree(subject: &mut Subject) {
    let owner = claim(subject);
    let roots = [1, 2, 255, 256, u64::MAX];
    let unknown = with_store(subject, |store| store.temp_files(Pid(1)));
    assert!(
        matches!(unknown, Err(StoreError::UnknownProcess(Pid(1)))),
        "{unknown:?}"
    );
    commit_ops(subject, owner, &roots.map(created));
    roots
        .iter()
        .for_each(|root| check_temp_files(subject, *root, 0));
    let many: Vec<_> = (1..=300).map(|number| temp_file(256, number)).collect();
    commit_ops(subject, owner, &many);
    let new_content = bytes(4, 90);
    commit_ops(
        subject,
        owner,
        &[
            content(&new_content),
            temp_file(1, 1),
            facts(1, 1..=2),
            temp_file(1, 2),
            temp_file(2, 1),
        ],
    );
    commit_ops(
        subject,
        owner,
        &[
            snapshot(1, 2),
            temp_file(u64::MAX, 1),
            ended(1),
            facts(2, 1..=1),
        ],
    );
    commit_ops(subject, owner, &[temp_file(1, 3)]);
    for (root, last) in [(1, 3), (2, 1), (255, 0), (256, 300), (u64::MAX, 1)] {
        check_temp_files(subject, root, last);
    }
    check_journal(subject, 1, None, "image of 1 at 2", 2, 2);
    check_journal(subject, 2, None, "image of 2", 0, 1);
    check_journal(subject, 256, None, "image of 256", 0, 0);
    assert_eq!(
        with_store(subject, |store| read(store, hash(&new_content)).unwrap()),
        new_content
    );
}

pub(crate) fn changes_of_temporary_files_have_no_gaps(subject: &mut Subject) {
    let owner = claim(subject);
    commit_ops(subject, owner, &[created(1), temp_file(1, 1)]);
    let cases = [
        (
            temp_file(1, 1),
            "are at change 1: the next is 2, but 1 was given",
        ),
        (
            temp_file(1, 3),
            "are at change 1: the next is 2, but 3 was given",
        ),
        (
            temp_file(1, 0),
            "are at change 1: the next is 2, but 0 was given",
        ),
        (temp_file(9, 1), "no process 9"),
    ];
    for (op, complaint) in cases {
        let text = expect_refusal(subject, owner, std::slice::from_ref(&op)).to_string();
        assert!(text.contains(complaint), "{op:?}: {text}");
    }
    let text = expect_refusal(subject, owner, &[temp_file(1, 2), temp_file(1, 4)]).to_string();
    assert!(text.contains("are at change 2: the next is 3"), "{text}");
    check_temp_files(subject, 1, 1);
    commit_ops(
        subject,
        owner,
        &[
            temp_file(1, 2),
            created(2),
            temp_file(2, 1),
            temp_file(1, 3),
        ],
    );
    check_temp_files(subject, 1, 3);
    check_temp_files(subject, 2, 1);
}
