//! The process table, and the owner.

use dormouse_actors::ports::{OwnerToken, StoreError};
use dormouse_proto::id::Pid;

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
