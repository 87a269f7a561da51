//! Tests what the rules of retention delete.

use dormouse_proto::checkpoint::{Member, Scope};
use dormouse_proto::id::CommitNumber;
use dormouse_proto::process::{BranchOrigin, Exit, ExitStatus, Origin};

use super::*;

fn checkpoint(id: u64, of: u64, at_ms: u64, label: &str) -> Checkpoint {
    Checkpoint {
        id: CheckpointId(id),
        label: label.into(),
        pid: Pid(of),
        root: Pid(of),
        scope: Scope::Process,
        members: vec![Member {
            pid: Pid(of),
            at: FactNumber(id * 10),
        }],
        commit: CommitNumber(id),
        at_ms,
    }
}

fn row(pid: u64, parent: Option<u64>, has_ended: Option<()>) -> ProcessRow {
    ProcessRow {
        parent: parent.map(Pid),
        exit: has_ended.map(|()| Exit::new(ExitStatus::Done, "")),
        ..ProcessRow::started(Pid(pid), "p")
    }
}

fn select_deletions(
    retention: &Retention,
    rows: &[ProcessRow],
    checkpoints: &[Checkpoint],
    ended_ms: impl Fn(Pid) -> Option<u64>,
    now_ms: u64,
) -> Deletions {
    retention.deletions(
        rows,
        checkpoints.to_vec(),
        &BTreeSet::new(),
        ended_ms,
        |_, floor| Some(floor),
        now_ms,
    )
}

#[test]
fn a_checkpoint_of_an_ended_tree_is_deleted_with_it_unless_pinned_or_young() {
    let deletable = Some(());
    let rows = [
        row(1, None, deletable),
        row(2, Some(1), deletable),
        row(3, None, deletable),
        row(4, None, None),
    ];
    let spanning = |id, at_ms, members: &[u64]| Checkpoint {
        members: members
            .iter()
            .map(|pid| Member {
                pid: Pid(*pid),
                at: FactNumber(1),
            })
            .collect(),
        ..checkpoint(id, members[0], at_ms, "")
    };
    let rules = |last, younger_ms| CheckpointRules {
        last,
        younger_ms,
        pinned: ["release".into()].into(),
    };
    type Case = (
        CheckpointRules,
        Vec<Checkpoint>,
        &'static [u64],
        &'static [u64],
    );
    let cases: [Case; 7] = [
        (
            rules(None, None),
            vec![checkpoint(1, 1, 0, ""), checkpoint(2, 4, 0, "")],
            &[1, 2, 3],
            &[1],
        ),
        (
            rules(Some(5), None),
            vec![checkpoint(1, 1, 0, ""), checkpoint(2, 4, 0, "")],
            &[1, 2, 3],
            &[1],
        ),
        (
            rules(None, None),
            vec![checkpoint(1, 2, 0, "release")],
            &[3],
            &[],
        ),
        (
            rules(None, Some(50)),
            vec![checkpoint(1, 1, 951, ""), checkpoint(2, 3, 950, "")],
            &[3],
            &[2],
        ),
        // A checkpoint with members in a kept tree is kept, and keeps the trees of its other
        // members.
        (
            rules(None, None),
            vec![spanning(1, 0, &[3, 4])],
            &[1, 2],
            &[],
        ),
        (
            rules(None, None),
            vec![spanning(1, 0, &[3, 4]), spanning(2, 0, &[1, 3])],
            &[],
            &[],
        ),
        (
            rules(None, None),
            vec![spanning(1, 0, &[1, 2, 3])],
            &[1, 2, 3],
            &[1],
        ),
    ];
    for (checkpoints, stored, processes, dropped) in cases {
        let retention = Retention {
            checkpoints,
            ended: EndedRule::ForMs(0),
            ..Retention::default()
        };
        let deletions = select_deletions(&retention, &rows, &stored, |_| Some(0), 1_000);
        assert_eq!(
            deletions.processes,
            processes.iter().copied().map(Pid).collect(),
            "{retention:?} {stored:?}"
        );
        assert_eq!(
            deletions.checkpoints,
            dropped.iter().copied().map(CheckpointId).collect(),
            "{stored:?}"
        );
        let kept = Retention {
            ended: EndedRule::Forever,
            ..retention
        };
        assert!(
            kept.deletions(&rows, stored, &BTreeSet::new(), |_| Some(0), |_, _| None, 0)
                .processes
                .is_empty()
        );
    }
}

#[test]
fn a_checkpoint_is_kept_by_any_of_the_rules() {
    let stored = [
        checkpoint(1, 1, 100, ""),
        checkpoint(2, 1, 200, "release"),
        checkpoint(3, 2, 300, ""),
        checkpoint(4, 1, 400, ""),
        checkpoint(5, 1, 500, ""),
    ];
    type Case = (
        Option<usize>,
        Option<u64>,
        &'static [&'static str],
        &'static [u64],
    );
    let cases: [Case; 7] = [
        (None, None, &[], &[]),
        (None, None, &["release"], &[]),
        (Some(1), None, &[], &[1, 2, 4]),
        (Some(2), None, &[], &[1, 2]),
        (Some(1), None, &["release"], &[1, 4]),
        (None, Some(250), &[], &[1, 2, 3]),
        (Some(1), Some(650), &[], &[1, 2]),
    ];
    for (last, younger_ms, pinned, dropped) in cases {
        let pinned = pinned.iter().map(|label| Arc::from(*label)).collect();
        let rules = CheckpointRules {
            last,
            younger_ms,
            pinned,
        };
        let retention = Retention {
            checkpoints: rules,
            ..Retention::default()
        };
        let now_ms = if younger_ms == Some(650) { 950 } else { 600 };
        let expected = dropped.iter().copied().map(CheckpointId).collect();
        assert_eq!(
            retention.dropped_checkpoints(&stored, &BTreeSet::new(), now_ms),
            expected,
            "{retention:?}"
        );
        let in_use: BTreeSet<_> = dropped.iter().copied().take(1).map(CheckpointId).collect();
        let others: BTreeSet<_> = &expected - &in_use;
        assert_eq!(
            retention.dropped_checkpoints(&stored, &in_use, now_ms),
            others,
            "{retention:?}: {in_use:?}"
        );
    }
}

#[test]
fn a_tree_is_deleted_as_a_whole_when_all_of_its_processes_have_ended() {
    let deletable = Some(());
    let trees = [
        row(1, None, deletable),
        row(2, Some(1), deletable),
        row(3, None, None),
        row(4, Some(3), deletable),
        row(5, None, deletable),
    ];
    let orphans = [row(7, Some(6), deletable)];
    let rows = [&trees[..], &orphans].concat();
    let retention = |ended| Retention {
        ended,
        ..Retention::default()
    };
    let ended_ms = |pid: Pid| Some(pid.0 * 100);
    let checkpoints = [checkpoint(1, 5, 0, "")];
    let cases: [(EndedRule, &[Checkpoint], u64, &[u64]); 6] = [
        (EndedRule::Forever, &[], 10_000, &[]),
        (EndedRule::ForMs(1_000), &[], 10_000, &[1, 2, 5, 7]),
        (EndedRule::ForMs(1_000), &checkpoints, 10_000, &[1, 2, 5, 7]),
        (EndedRule::ForMs(1_000), &[], 1_150, &[]),
        (EndedRule::ForMs(1_000), &[], 1_200, &[1, 2]),
        (EndedRule::ForMs(0), &[], 0, &[]),
    ];
    for (ended, kept, now_ms, deletions) in cases {
        let expected: BTreeSet<_> = deletions.iter().copied().map(Pid).collect();
        let ended_at = |pid| if now_ms == 0 { None } else { ended_ms(pid) };
        assert_eq!(
            select_deletions(&retention(ended), &rows, kept, ended_at, now_ms).processes,
            expected,
            "{ended:?} at {now_ms}"
        );
    }
}

#[test]
fn processes_are_grouped_by_their_tree() {
    let rows = [
        row(1, None, None),
        row(2, Some(1), None),
        row(3, None, None),
        row(4, Some(2), None),
        row(5, Some(9), None),
    ];
    let requested = [2, 3, 4, 5].map(Pid).into();
    assert_eq!(
        by_tree(&rows, &requested),
        [
            [2, 4].map(Pid).into(),
            BTreeSet::from([Pid(3)]),
            BTreeSet::from([Pid(5)])
        ]
    );
}

#[test]
fn the_original_of_a_kept_copy_or_branch_is_kept_with_its_tree() {
    let (deletable, at) = (Some(()), FactNumber(1));
    let copy = |pid, from, has_ended| ProcessRow {
        origin: Origin::Copied {
            from: Pid(from),
            at,
        },
        ..row(pid, None, has_ended)
    };
    let branch = |pid, from, has_ended| ProcessRow {
        branched_from: Some(BranchOrigin {
            pid: Pid(from),
            fact: at,
            local_id: Pid(from),
            import: None,
        }),
        ..row(pid, None, has_ended)
    };
    let tree = [
        row(1, None, deletable),
        row(2, Some(1), deletable),
        row(3, None, deletable),
    ];
    let cases: [(Vec<ProcessRow>, &[u64]); 4] = [
        (vec![branch(4, 2, None)], &[3]),
        (vec![branch(4, 2, deletable), copy(5, 4, None)], &[3]),
        (
            vec![branch(4, 2, deletable), copy(5, 4, deletable)],
            &[1, 2, 3, 4, 5],
        ),
        (vec![copy(4, 3, None)], &[1, 2]),
    ];
    let retention = Retention {
        ended: EndedRule::ForMs(0),
        ..Retention::default()
    };
    for (others, deletions) in cases {
        let rows = [&tree[..], &others].concat();
        let expected: BTreeSet<_> = deletions.iter().copied().map(Pid).collect();
        assert_eq!(
            select_deletions(&retention, &rows, &[], |_| Some(0), 1).processes,
            expected,
            "{others:?}"
        );
    }
}

#[test]
fn a_history_starts_at_the_oldest_kept_checkpoint() {
    let kept = [
        checkpoint(2, 1, 0, ""),
        checkpoint(3, 1, 0, ""),
        checkpoint(4, 2, 0, ""),
    ];
    let from = Retention {
        history: HistoryRule::FromOldestCheckpoint,
        ..Retention::default()
    };
    assert_eq!(
        from.first_needed_facts(&kept),
        BTreeMap::from([(Pid(1), FactNumber(20)), (Pid(2), FactNumber(40))])
    );
    assert!(Retention::default().first_needed_facts(&kept).is_empty());
}
