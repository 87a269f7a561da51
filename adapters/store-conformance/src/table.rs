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
        let error = refused(subject, stale, &[created(1)]);
        assert!(
            matches!(error, StoreError::Stale { newest, .. } if newest == new),
            "{error}"
        );
    }
    assert!(ask(subject, |store| store.processes().unwrap().rows).is_empty());
    write(subject, new, &[created(1)]);
}

pub(crate) fn the_table_shows_births_and_ends(subject: &mut Subject) {
    let owner = claim(subject);
    write(subject, owner, &[created(300), created(2)]);
    write(
        subject,
        owner,
        &[created(10), ended(300), facts(300, 1..=1)],
    );
    let mut over = row(300);
    over.exit = Some(exit());
    assert_eq!(
        ask(subject, |store| store.processes().unwrap().rows),
        [row(2), row(10), over.clone()]
    );
    assert_eq!(
        ask(subject, |store| store.journal(Pid(300), None).unwrap().row),
        over
    );
}
