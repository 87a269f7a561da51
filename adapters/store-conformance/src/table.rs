//! The process table, and the owner.

use dormouse_actors::ports::{OwnerToken, StoreError, WriteOp};
use dormouse_proto::id::Pid;
use dormouse_proto::process::ProcessRow;

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

pub(crate) fn the_table_has_the_next_alarm_of_each_process(subject: &mut Subject) {
    let owner = claim(subject);
    let born_asleep = ProcessRow {
        next_alarm_ms: Some(500),
        ..row(2)
    };
    let created_asleep = WriteOp::ProcessCreated {
        row: born_asleep.clone(),
        image: b"image".to_vec(),
    };
    commit_ops(subject, owner, &[created(1), created_asleep, created(3)]);
    let next_alarms = |subject: &mut Subject| {
        let rows = with_store(subject, |store| store.processes().unwrap().rows);
        let next_alarms: Vec<_> = rows.iter().map(|row| row.next_alarm_ms).collect();
        next_alarms
    };
    assert_eq!(next_alarms(subject), [None, Some(500), None]);
    // One commit holds the facts and the time that they lead to; the last time counts.
    let ops = [
        facts(1, 1..=1),
        next_alarm(1, Some(900)),
        facts(1, 2..=2),
        next_alarm(1, Some(700)),
        next_alarm(2, None),
    ];
    commit_ops(subject, owner, &ops);
    assert_eq!(next_alarms(subject), [Some(700), None, None]);
    let refused = [facts(1, 3..=3), next_alarm(9, Some(1))];
    expect_refusal(subject, owner, &refused);
    assert_eq!(next_alarms(subject), [Some(700), None, None]);
    commit_ops(subject, owner, &[next_alarm(3, Some(1)), ended(3)]);
    assert_eq!(next_alarms(subject), [Some(700), None, None]);
    commit_ops(subject, owner, &[next_alarm(1, Some(800))]);
    assert_eq!(next_alarms(subject), [Some(800), None, None]);
    let journal_row = with_store(subject, |store| store.journal(Pid(1), None).unwrap().row);
    assert_eq!(journal_row.next_alarm_ms, Some(800));
    commit_ops(subject, owner, &[process_deleted(1)]);
    assert_eq!(next_alarms(subject), [None, None]);
}
