//! The store under test, with shorthands to write and query it.

use dormouse_actors::ports::{Batch, OwnerToken, Store, StoreError, WriteOp};
use dormouse_proto::id::{FactNumber, Pid};

use crate::entries::{NOW_MS, commit, fact};

/// Runs one operation on the store under test. Between two operations, the subject may close and
/// reopen the store, or read it from another program, because neither may change an answer.
pub type Subject = Box<dyn FnMut(&mut dyn FnMut(&dyn Store))>;

/// Runs `operation` on the store under test, and returns what it returns.
pub(crate) fn with_store<T>(subject: &mut Subject, operation: impl Fn(&dyn Store) -> T) -> T {
    let mut answer = None;
    subject(&mut |store| answer = Some(operation(store)));
    answer.expect("the subject runs the operation")
}

pub(crate) fn claim(subject: &mut Subject) -> OwnerToken {
    with_store(subject, |store| store.claim().unwrap())
}

pub(crate) fn commit_ops(subject: &mut Subject, owner: OwnerToken, ops: &[WriteOp]) {
    with_store(subject, |store| commit(store, owner, ops));
}

/// Commits operations that the store must refuse. Returns the error.
pub(crate) fn expect_refusal(
    subject: &mut Subject,
    owner: OwnerToken,
    ops: &[WriteOp],
) -> StoreError {
    with_store(subject, |store| {
        store
            .commit(owner, Batch::durable(ops, NOW_MS))
            .expect_err("the commit breaks a rule")
    })
}

/// Checks that the journal starts with `image` at fact `base`, and leads to fact `last`.
pub(crate) fn check_journal(
    subject: &mut Subject,
    pid: u64,
    up_to: Option<u64>,
    image: &str,
    base: u64,
    last: u64,
) {
    let journal = with_store(subject, |store| {
        store.journal(Pid(pid), up_to.map(FactNumber)).unwrap()
    });
    let facts: Vec<_> = (base + 1..=last).map(|number| fact(pid, number)).collect();
    assert_eq!(
        journal.base,
        FactNumber(base),
        "base of process {pid} up to {up_to:?}"
    );
    assert_eq!(
        String::from_utf8_lossy(&journal.image),
        image,
        "image of process {pid} up to {up_to:?}"
    );
    assert_eq!(
        journal.facts, facts,
        "facts of process {pid} up to {up_to:?}"
    );
}
