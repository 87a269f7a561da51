//! Labels: each has its latest record, which changes with the other operations of its commit.

use dormouse_actors::ports::{StoreError, WriteOp};

use crate::collection::{LiveContents, sweep};
use crate::entries::*;
use crate::subject::*;

fn label(number: u64, record: &str) -> WriteOp {
    WriteOp::Label {
        number,
        record: record.into(),
    }
}

fn labels(subject: &mut Subject) -> Vec<(u64, String)> {
    let found = with_store(subject, |store| store.labels().unwrap());
    let read = |(number, record)| (number, String::from_utf8(record).unwrap());
    found.into_iter().map(read).collect()
}

pub(crate) fn a_label_has_its_latest_record(subject: &mut Subject) {
    let owner = claim(subject);
    assert_eq!(labels(subject), []);
    commit_ops(subject, owner, &[label(7, "seven"), label(2, "two")]);
    commit_ops(
        subject,
        owner,
        &[created(1), facts(1, 1..=2), label(7, "seven more")],
    );
    commit_ops(subject, owner, &[label(9, ""), label(2, "2")]);
    let expected = [(2, "2"), (7, "seven more"), (9, "")];
    let expected: Vec<_> = expected
        .map(|(number, text)| (number, text.to_owned()))
        .into();
    assert_eq!(labels(subject), expected);
    commit_ops(subject, owner, &[process_deleted(1)]);
    with_store(subject, |store| {
        sweep(store, owner, &LiveContents::default())
    });
    assert_eq!(labels(subject), expected, "no collection frees a label");
}

pub(crate) fn a_refused_commit_leaves_the_record_of_a_label(subject: &mut Subject) {
    let owner = claim(subject);
    commit_ops(subject, owner, &[created(1), label(1, "before")]);
    let error = expect_refusal(subject, owner, &[label(1, "after"), facts(2, 1..=1)]);
    assert!(matches!(error, StoreError::UnknownProcess(_)), "{error}");
    assert_eq!(labels(subject), [(1, "before".to_owned())]);
}
