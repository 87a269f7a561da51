//! Checkpoints: a checkpoint has the last fact of each of its processes at the time of its commit.
//!
//! `entries.rs` makes the operations (`facts(1, 2..=3)` adds the facts 2 and 3 of process 1), and
//! `subject.rs` runs them on the store under test.

use dormouse_actors::ports::{StoreError, WriteOp};
use dormouse_proto::checkpoint::Checkpoint;
use dormouse_proto::id::{CheckpointId, Pid};

use crate::entries::*;
use crate::subject::*;

pub(crate) fn a_checkpoint_has_the_last_fact_of_each_member(subject: &mut Subject) {
    let owner = claim(subject);
    assert!(with_store(subject, |store| store.checkpoints().unwrap()).is_empty());
    commit_ops(subject, owner, &[created(1), created(2), facts(1, 1..=2)]);
    commit_ops(
        subject,
        owner,
        &[
            facts(2, 1..=1),
            checkpoint(1, &[1, 2, 9]),
            facts(2, 2..=2),
            facts(1, 3..=3),
        ],
    );
    commit_ops(subject, owner, &[checkpoint(5, &[2])]);
    let found = with_store(subject, |store| store.checkpoints().unwrap());
    let members = |found: &Checkpoint| {
        found
            .members
            .iter()
            .map(|member| (member.pid.0, member.at.0))
            .collect()
    };
    let seen: Vec<(u64, Vec<_>)> = found
        .iter()
        .map(|found| (found.id.0, members(found)))
        .collect();
    assert_eq!(seen, [(1, vec![(1, 2), (2, 1)]), (5, vec![(2, 2)])]);
    let history = with_store(subject, |store| store.history(Pid(1)).unwrap().commits);
    assert_eq!(
        found[0].commit,
        history.last().unwrap().commit,
        "a checkpoint has the number of the commit that wrote it"
    );
    assert_eq!(
        (&*found[0].label, found[0].pid, found[0].at_ms),
        ("before", Pid(1), NOW_MS)
    );
    for id in [0, 4, 5] {
        let text = expect_refusal(subject, owner, &[checkpoint(id, &[1])]).to_string();
        assert!(
            text.contains("a new checkpoint needs a number above cp:5"),
            "{text}"
        );
    }
    let drop = WriteOp::CheckpointDropped {
        id: CheckpointId(5),
    };
    let error = expect_refusal(subject, owner, &[drop.clone(), drop.clone()]);
    assert!(
        matches!(error, StoreError::UnknownCheckpoint(CheckpointId(5))),
        "the second drop finds nothing: {error}"
    );
    commit_ops(subject, owner, &[drop]);
    assert_eq!(
        with_store(subject, |store| store.checkpoints().unwrap()),
        found[..1]
    );
    let error = expect_refusal(
        subject,
        owner,
        &[WriteOp::CheckpointDropped {
            id: CheckpointId(5),
        }],
    );
    assert!(
        matches!(error, StoreError::UnknownCheckpoint(CheckpointId(5))),
        "{error}"
    );
    let text = expect_refusal(subject, owner, &[checkpoint(5, &[1])]).to_string();
    assert!(
        text.contains("a new checkpoint needs a number above cp:5"),
        "a number is never reused: {text}"
    );
    assert_eq!(
        with_store(subject, |store| store.last_checkpoint().unwrap()),
        5
    );
}

pub(crate) fn a_process_in_a_checkpoint_cannot_be_deleted(subject: &mut Subject) {
    let owner = claim(subject);
    commit_ops(
        subject,
        owner,
        &[created(1), facts(1, 1..=2), snapshot(1, 2)],
    );
    commit_ops(subject, owner, &[facts(1, 3..=3), checkpoint(1, &[1])]);
    commit_ops(subject, owner, &[facts(1, 4..=4), snapshot(1, 4)]);
    for op in [process_deleted(1), history_truncated(1, 4)] {
        let text = expect_refusal(subject, owner, std::slice::from_ref(&op)).to_string();
        assert!(
            text.contains("in a checkpoint") && text.contains("drop the checkpoint first"),
            "{op:?}: {text}"
        );
    }
    let drop = WriteOp::CheckpointDropped {
        id: CheckpointId(1),
    };
    for ops in [
        // The drop is not durable yet.
        vec![drop.clone(), process_deleted(1)],
        vec![drop.clone(), history_truncated(1, 4)],
        // The checkpoint is not stored yet.
        vec![created(2), checkpoint(2, &[2]), process_deleted(2)],
    ] {
        let text = expect_refusal(subject, owner, &ops).to_string();
        assert!(
            text.contains("drop the checkpoint first"),
            "{ops:?}: {text}"
        );
    }
    commit_ops(subject, owner, &[history_truncated(1, 2)]);
    commit_ops(subject, owner, &[drop]);
    commit_ops(subject, owner, &[history_truncated(1, 4)]);
    commit_ops(subject, owner, &[process_deleted(1)]);
}
