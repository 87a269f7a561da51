//! Compaction: it frees garbage, keeps everything else, and a crash in the middle of it loses
//! nothing.

use std::collections::BTreeSet;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

use bytes::Bytes;
use dormouse_actors::ports::{
    Batch, OwnerToken, Store, StoreError, SweepLimits, SweepMode, SweepOutcome, SweepStep,
    SyncLevel, WriteOp,
};
use dormouse_proto::id::{CheckpointId, FactNumber, Pid};
use dormouse_store::{LogStore, MemoryStore, Repair, fsck};

use crate::support::*;

const SEGMENT_BYTES: u64 = 2_000;

fn open(folder: &Path) -> LogStore {
    LogStore::options()
        .segment_bytes(SEGMENT_BYTES)
        .open(folder)
        .unwrap()
}

/// Commits contents, and other records that fill a few segments.
pub(crate) fn fill(store: &dyn Store, owner: OwnerToken) -> Vec<Bytes> {
    let contents: Vec<_> = (0..12).map(|seed| bytes(seed, 600)).collect();
    commit(store, owner, &[created(1), created(2)]);
    for (number, bytes) in (1..).zip(&contents) {
        commit(
            store,
            owner,
            &[
                content(bytes),
                facts(1, number..=number),
                temp_file(1, number),
            ],
        );
        commit(store, owner, &[facts(2, number..=number)]);
    }
    commit(
        store,
        owner,
        &[
            snapshot(1, 6),
            snapshot(1, 12),
            checkpoint(1, &[1, 2]),
            checkpoint(2, &[1]),
        ],
    );
    commit(store, owner, &[ended(2)]);
    // The last segment is never compacted.
    commit(store, owner, &[content(&bytes(99, 3_000))]);
    commit(store, owner, &[content(&bytes(98, 10))]);
    contents
}

/// The answers to all queries of a store, except contents.
pub(crate) fn answers(store: &dyn Store) -> String {
    let mut said = format!("{:?}\n{:?}\n", store.processes(), store.checkpoints());
    for pid in (1..=6).map(Pid) {
        said += &format!("{:?} {:?}\n", store.history(pid), store.temp_files(pid));
        for up_to in (0..40).map(|number| Some(FactNumber(number))).chain([None]) {
            said += &format!("{:?}\n", store.journal(pid, up_to));
        }
    }
    said
}

pub(crate) fn held<'a>(store: &dyn Store, contents: &'a [Bytes]) -> Vec<&'a Bytes> {
    contents
        .iter()
        .filter(|content| read(store, hash(content)).is_ok_and(|found| found == **content))
        .collect()
}

#[test]
fn a_sweep_frees_unreferenced_contents_and_changes_no_other_answer() {
    let folder = tempdir();
    let store = open(folder.path());
    let owner = store.claim().unwrap();
    let contents = fill(&store, owner);
    let before = answers(&store);
    let live = keep_only(&[&contents[2], &contents[7], &bytes(99, 3_000)]);
    let foreseen = count_garbage(&store, owner, &live);
    assert_eq!(held(&store, &contents).len(), 12, "to count frees nothing");
    let swept = sweep(&store, owner, &live);
    assert_eq!(
        (swept.freed_contents, swept.freed_content_bytes),
        (10, 10 * (600 + 168))
    );
    assert_eq!(foreseen.freed_contents, swept.freed_contents);
    assert_eq!(
        (foreseen.live_bytes, foreseen.freed_segments),
        (swept.live_bytes, swept.freed_segments)
    );
    assert!(swept.bytes_after + 5_000 < swept.bytes_before, "{swept:?}");
    assert_eq!(answers(&store), before);
    assert_eq!(held(&store, &contents), [&contents[2], &contents[7]]);
    let gone = read(&store, hash(&contents[0]));
    assert!(
        matches!(gone, Err(StoreError::UnknownContent(_))),
        "{gone:?}"
    );
    drop(store);
    for with_index in [true, false] {
        if !with_index {
            fs::remove_dir_all(folder.path().join("index")).unwrap();
        }
        let store = open(folder.path());
        assert_eq!(answers(&store), before, "with index: {with_index}");
        assert_eq!(
            held(&store, &contents),
            [&contents[2], &contents[7]],
            "with index: {with_index}"
        );
    }
    let store = open(folder.path());
    let owner = store.claim().unwrap();
    commit(&store, owner, &[content(&contents[0])]);
    assert_eq!(
        read(&store, hash(&contents[0])).unwrap(),
        contents[0],
        "what was dropped can be committed again"
    );
}

/// Deletes the checkpoint and process 2 of [`fill`], and truncates the history of process 1.
fn delete_some(store: &LogStore, owner: OwnerToken) {
    commit(
        store,
        owner,
        &[WriteOp::CheckpointDropped {
            id: CheckpointId(1),
        }],
    );
    commit(store, owner, &[process_deleted(2), history_truncated(1, 6)]);
}

/// A long-lived store has many compacted segments, none of which may take an open file.
#[cfg(target_os = "linux")]
#[test]
fn the_file_of_a_compacted_segment_is_closed() {
    let folder = tempdir();
    let log = folder.path().canonicalize().unwrap().join("log");
    let open_files = || {
        let links = fs::read_dir("/proc/self/fd")
            .unwrap()
            .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
        links.filter(|link| link.starts_with(&log)).count()
    };
    let lengths = || {
        fs::read_dir(&log)
            .unwrap()
            .map(|file| file.unwrap().metadata().unwrap().len())
    };
    let store = open(folder.path());
    let owner = store.claim().unwrap();
    fill(&store, owner);
    let before = open_files();
    assert_eq!(before, lengths().count());
    let swept = sweep(&store, owner, &keep_only(&[]));
    assert!(swept.freed_segments > 3, "{swept:?}");
    let live = lengths().filter(|length| *length > 168).count();
    assert_eq!(open_files(), live, "beside those that hold something");
    let answers_before = answers(&store);
    drop(store);
    let store = open(folder.path());
    assert_eq!((open_files(), answers(&store)), (live, answers_before));
}

#[test]
fn a_second_sweep_finds_nothing_to_free() {
    let folder = tempdir();
    let store = open(folder.path());
    let owner = store.claim().unwrap();
    let contents = fill(&store, owner);
    delete_some(&store, owner);
    let live = keep_only(&[&contents[7]]);
    // Moved records follow the inspected segments, and are inspected by the next compaction.
    let sizes: Vec<_> = (0..6)
        .map(|_| sweep(&store, owner, &live).bytes_after)
        .collect();
    // Each compacted segment leaves one record of 168 bytes.
    assert!(sizes.is_sorted_by(|a, b| a + 4 * 168 >= *b), "{sizes:?}");
    assert_eq!(held(&store, &contents), [&contents[7]]);
    assert_eq!(store.journal(Pid(1), None).unwrap().base, FactNumber(12));
}

#[test]
fn deleted_pids_and_checkpoints_are_merged_and_stay_deleted() {
    let folder = tempdir();
    let open = || {
        LogStore::options()
            .segment_bytes(100_000)
            .open(folder.path())
            .unwrap()
    };
    let store = open();
    let owner = store.claim().unwrap();
    commit(&store, owner, &[created(1)]);
    let mut sizes = Vec::new();
    for round in 0..6 {
        let pids = 2 + round * 100..102 + round * 100;
        for pid in pids.clone() {
            commit(
                &store,
                owner,
                &[
                    created(pid),
                    facts(pid, 1..=3),
                    checkpoint(pid, &[pid]),
                    ended(pid),
                ],
            );
        }
        // One process in the middle of each round is not deleted.
        for pid in pids.filter(|pid| pid % 100 != 50) {
            commit(
                &store,
                owner,
                &[WriteOp::CheckpointDropped {
                    id: CheckpointId(pid),
                }],
            );
            commit(&store, owner, &[process_deleted(pid)]);
        }
        let mark = store.begin_mark(owner).unwrap();
        let limits = SweepLimits {
            live_percent: 99,
            close_bytes: 1,
            ..SweepLimits::default()
        };
        let options = CollectionOptions {
            mark,
            mode: SweepMode::Free,
            limits,
        };
        let swept = sweep_with(
            &store,
            owner,
            &LiveContents::default(),
            options,
            &mut |_| ControlFlow::Continue(()),
        )
        .unwrap();
        // Each segment that ever existed leaves one record of 168 bytes.
        sizes.push(swept.bytes_after - 168 * files(&folder.path().join("log")).len() as u64);
    }
    // The active segment may still contain records that list deleted numbers.
    let growth = (sizes[4].min(sizes[5]) - sizes[0]) / 4;
    assert!(
        growth < 10 * 168,
        "99 processes and checkpoints are given up in a round: {sizes:?}"
    );
    let expected_store = [1, 50, 150, 250, 350, 450, 550].map(Pid).to_vec();
    let check = |store: &LogStore, case: &str| {
        let listing = store.processes().unwrap();
        assert_eq!(
            listing.rows.iter().map(|row| row.pid).collect::<Vec<_>>(),
            expected_store,
            "{case}"
        );
        assert_eq!(
            (listing.last_pid, store.last_checkpoint().unwrap()),
            (601, 601),
            "{case}: no number is given again"
        );
        assert!(listing.losses.is_empty(), "{case}: {listing:?}");
        let kept: Vec<_> = store
            .checkpoints()
            .unwrap()
            .iter()
            .map(|it| it.id.0)
            .collect();
        assert_eq!(kept, [50, 150, 250, 350, 450, 550], "{case}");
        for pid in [2, 49, 51, 300, 601].map(Pid) {
            let journal = store.journal(pid, None);
            assert!(
                matches!(journal, Err(StoreError::UnknownProcess(_))),
                "{case}: {journal:?}"
            );
        }
    };
    check(&store, "at once");
    let again = store
        .commit(owner, Batch::durable(&[created(300)], NOW_MS))
        .unwrap_err();
    assert!(again.to_string().contains("already exists"), "{again}");
    drop(store);
    check(&open(), "reopened");
    fs::remove_dir_all(folder.path().join("index")).unwrap();
    let store = open();
    check(&store, "with an index that is built again");
    let owner = store.claim().unwrap();
    assert!(
        store
            .commit(owner, Batch::durable(&[created(300)], NOW_MS))
            .is_err()
    );
    drop(store);
    let report = fsck(
        folder.path(),
        &LogStore::options(),
        Repair::No,
        &mut |_, _| {},
    )
    .unwrap();
    assert!(report.issues.is_empty(), "{report:?}");
}

#[test]
fn a_content_that_a_commit_references_after_the_mark_began_survives() {
    let moments = [None, Some("inspect"), Some("move"), Some("clean")];
    let all = [("plain", LogStore::options())]
        .into_iter()
        .chain(encoding_options());
    for ((name, options), at) in all.flat_map(|options| moments.map(|at| (options.clone(), at))) {
        let folder = tempdir();
        let open = || {
            options
                .clone()
                .segment_bytes(SEGMENT_BYTES)
                .open(folder.path())
                .unwrap()
        };
        let store = open();
        let owner = store.claim().unwrap();
        let contents = fill(&store, owner);
        let mark = store.begin_mark(owner).unwrap();
        let refer = || {
            commit(
                &store,
                owner,
                &[
                    content(&contents[3]),
                    WriteOp::ContentReferenced {
                        hash: hash(&contents[5]),
                    },
                ],
            )
        };
        if at.is_none() {
            refer();
        }
        let mut seen = BTreeSet::new();
        let watch = &mut |step: SweepStep| {
            let kind = match step {
                SweepStep::Inspect(_) => "inspect",
                SweepStep::Move(_) => "move",
                SweepStep::Clean(_) => "clean",
                // No commit can be made during these steps.
                SweepStep::Sync(_) | SweepStep::Write(_) | SweepStep::Replace(_) => "sealing",
            };
            if at == Some(kind) && seen.insert(kind) {
                refer();
            }
            ControlFlow::Continue(())
        };
        sweep_watched(&store, owner, mark, &keep_only(&[&contents[1]]), watch).unwrap();
        assert_eq!(
            held(&store, &contents),
            [&contents[1], &contents[3], &contents[5]],
            "{name}, {at:?}"
        );
        drop(store);
        fs::remove_dir_all(folder.path().join("index")).unwrap();
        let kept = [&contents[1], &contents[3], &contents[5]];
        assert_eq!(held(&open(), &contents), kept, "{name}, {at:?}, reopened");
    }
}

/// Commits can be made between the steps, so no step moves more than `step_bytes`.
#[test]
fn contents_that_are_pinned_during_a_sweep_are_moved_in_steps() {
    let folder = tempdir();
    let store = LogStore::options()
        .segment_bytes(20_000)
        .open(folder.path())
        .unwrap();
    let owner = store.claim().unwrap();
    let contents: Vec<_> = (0..12).map(|seed| bytes(seed, 600)).collect();
    commit(&store, owner, &[created(1)]);
    for content_bytes in &contents {
        commit(&store, owner, &[content(content_bytes)]);
    }
    // The last segment is never compacted.
    commit(&store, owner, &[content(&bytes(99, 30_000))]);
    let mark = store.begin_mark(owner).unwrap();
    let mut moves = 0;
    let watch = &mut |step: SweepStep| {
        if matches!(step, SweepStep::Move(1)) {
            moves += 1;
            if moves == 1 {
                let references = contents
                    .iter()
                    .map(|bytes| WriteOp::ContentReferenced { hash: hash(bytes) });
                commit(&store, owner, &references.collect::<Vec<_>>());
            }
        }
        ControlFlow::Continue(())
    };
    let swept = sweep_watched(&store, owner, mark, &keep_only(&[]), watch).unwrap();
    assert_eq!(
        (swept.freed_segments, swept.freed_contents),
        (1, 0),
        "{swept:?}"
    );
    assert!(moves > contents.len(), "{moves} steps");
    assert_eq!(held(&store, &contents).len(), contents.len());
}

#[test]
fn an_open_content_can_be_read_after_it_was_swept() {
    let folder = tempdir();
    let store = open(folder.path());
    let owner = store.claim().unwrap();
    let contents = fill(&store, owner);
    let (kept, dropped) = (
        store.content(hash(&contents[1])).unwrap(),
        store.content(hash(&contents[2])).unwrap(),
    );
    sweep(&store, owner, &keep_only(&[&contents[1]]));
    for (content, backing) in [(&contents[1], kept), (&contents[2], dropped)] {
        assert_eq!(backing.slice(0..600).unwrap(), *content);
    }
}

#[test]
fn an_interrupted_sweep_changes_no_answer_and_can_be_repeated() {
    let folder = tempdir();
    let store = open(folder.path());
    let owner = store.claim().unwrap();
    let contents = fill(&store, owner);
    let before = answers(&store);
    let live = keep_only(&[&contents[2], &contents[7]]);
    for steps in 0..40 {
        let mark = store.begin_mark(owner).unwrap();
        let mut left = steps;
        let swept = sweep_watched(&store, owner, mark, &live, &mut |_| match left {
            0 => ControlFlow::Break(()),
            _ => {
                left -= 1;
                ControlFlow::Continue(())
            }
        });
        let swept = swept.unwrap();
        assert_eq!(answers(&store), before, "after {steps} steps");
        assert!(held(&store, &contents).len() >= 2, "after {steps} steps");
        if swept.outcome == SweepOutcome::Done {
            return assert_eq!(held(&store, &contents).len(), 2);
        }
    }
    panic!("a sweep of so few segments has an end");
}

#[test]
fn a_crash_at_any_step_of_a_sweep_changes_no_answer() {
    let folder = tempdir();
    let store = open(folder.path());
    let owner = store.claim().unwrap();
    let contents = fill(&store, owner);
    delete_some(&store, owner);
    let expected_answers = answers(&store);
    let live = keep_only(&[&contents[2], &contents[7]]);
    let mark = store.begin_mark(owner).unwrap();
    let mut crashes = Vec::new();
    let watch = &mut |step: SweepStep| {
        // Crashes are tested at the steps of some segments only, to save time.
        let chosen = if step.segment() % 4 == 2 {
            &[true, false][..]
        } else {
            &[]
        };
        for with_index in chosen.iter().copied() {
            let copy = tempdir();
            copy_folder(folder.path(), copy.path());
            crashes.push((step, with_index, copy));
        }
        ControlFlow::Continue(())
    };
    sweep_watched(&store, owner, mark, &live, watch).unwrap();
    let kinds: BTreeSet<_> = crashes
        .iter()
        .map(|(step, ..)| format!("{step:?}").split('(').next().unwrap().to_owned())
        .collect();
    assert_eq!(kinds.len(), 6, "each step is seen: {kinds:?}");
    for (step, with_index, copy) in &crashes {
        let case = format!("a crash before {step:?}, with index: {with_index}");
        if !*with_index {
            fs::remove_dir_all(copy.path().join("index")).unwrap();
        }
        let store = open(copy.path());
        assert_eq!(answers(&store), expected_answers, "{case}");
        let there = held(&store, &contents);
        assert!(
            there.contains(&&contents[2]) && there.contains(&&contents[7]),
            "{case}"
        );
        let owner = store.claim().unwrap();
        sweep(&store, owner, &live);
        assert_eq!(answers(&store), expected_answers, "{case}, and swept again");
        assert_eq!(
            held(&store, &contents),
            [&contents[2], &contents[7]],
            "{case}, and swept again"
        );
        // A content that was kept only because the index wrongly listed it would be missing now.
        contents
            .iter()
            .for_each(|bytes| commit(&store, owner, &[content(bytes)]));
        assert_eq!(
            held(&store, &contents).len(),
            contents.len(),
            "{case}, and committed again"
        );
    }
}

#[test]
fn a_damaged_segment_is_not_compacted() {
    let folder = tempdir();
    let store = open(folder.path());
    let owner = store.claim().unwrap();
    let contents = fill(&store, owner);
    drop(store);
    let path = |number: u32| folder.path().join(format!("log/{number:08}.seg"));
    let place = |number| {
        fs::read(path(number))
            .unwrap()
            .windows(600)
            .position(|window| window == contents[2])
    };
    let (number, at) = (1..5)
        .find_map(|number| Some((number, place(number)?)))
        .expect("it is in one of them");
    let whole = fs::read(path(number)).unwrap();
    let mut damaged = whole.clone();
    damaged[at + 300] ^= 1;
    fs::write(path(number), &damaged).unwrap();
    let store = open(folder.path());
    let owner = store.claim().unwrap();
    let swept = sweep(&store, owner, &keep_only(&[&contents[2]]));
    assert_eq!(swept.damaged_segments, [number]);
    assert!(swept.freed_segments > 1, "{swept:?}");
    assert_eq!(fs::read(path(number)).unwrap(), damaged);
    drop(store);
    fs::write(path(number), &whole).unwrap();
    assert_eq!(
        read(&open(folder.path()), hash(&contents[2])).unwrap(),
        contents[2],
        "a copy of the segment heals it"
    );
}

#[test]
fn an_older_owner_cannot_sweep() {
    let folder = tempdir();
    let store = open(folder.path());
    let old = store.claim().unwrap();
    let contents = fill(&store, old);
    let new = store.claim().unwrap();
    assert!(matches!(
        store.begin_mark(old),
        Err(StoreError::Stale { .. })
    ));
    let mark = store.begin_mark(new).unwrap();
    let refused = sweep_watched(&store, old, mark, &keep_only(&[]), &mut |_| {
        ControlFlow::Continue(())
    });
    assert!(
        matches!(refused, Err(StoreError::Stale { .. })),
        "{refused:?}"
    );
    assert_eq!(held(&store, &contents).len(), 12);
}

#[test]
fn a_new_mark_ends_a_running_sweep_before_it_frees_more() {
    let folder = tempdir();
    let store = open(folder.path());
    let owner = store.claim().unwrap();
    let contents = fill(&store, owner);
    let mark = store.begin_mark(owner).unwrap();
    commit(
        &store,
        owner,
        &[
            WriteOp::ContentReferenced {
                hash: hash(&contents[5]),
            },
            facts(1, 13..=13),
        ],
    );
    let mut begun = None;
    let watch = &mut |step: SweepStep| {
        if matches!(step, SweepStep::Move(_)) && begun.is_none() {
            begun = Some(store.begin_mark(owner).unwrap());
        }
        ControlFlow::Continue(())
    };
    let refused = sweep_watched(&store, owner, mark, &keep_only(&[]), watch).unwrap_err();
    assert!(refused.to_string().contains("once at a time"), "{refused}");
    assert_eq!(held(&store, &contents).len(), 12);
}

#[test]
fn a_commit_over_the_quota_is_refused_until_a_sweep_frees_space() {
    let folder = tempdir();
    let store = open(folder.path());
    let owner = store.claim().unwrap();
    let contents = fill(&store, owner);
    let quota = count_garbage(&store, owner, &keep_only(&[])).bytes_before + 3_000;
    drop(store);
    let store = LogStore::options()
        .segment_bytes(SEGMENT_BYTES)
        .quota_bytes(quota)
        .open(folder.path())
        .unwrap();
    let owner = store.claim().unwrap();
    let large = bytes(50, 5_000);
    let error = store
        .commit(
            owner,
            Batch::durable(&[facts(1, 13..=13), content(&large)], NOW_MS),
        )
        .unwrap_err();
    assert!(
        matches!(
            error,
            StoreError::Full {
                needed: 5_000..,
                ..
            }
        ),
        "{error}"
    );
    assert!(
        store.journal(Pid(1), Some(FactNumber(13))).is_err(),
        "nothing of it was written"
    );
    commit(&store, owner, &[ended(1)]);
    sweep(&store, owner, &keep_only(&[&contents[0]]));
    commit(&store, owner, &[facts(1, 13..=13), content(&large)]);
    assert_eq!(read(&store, hash(&large)).unwrap(), large);
}

/// A seeded pseudo-random generator.
struct Rng(u64);

impl Rng {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// The operations of a random commit, which may be invalid.
fn entries(rng: &mut Rng, expected_store: &MemoryStore, contents: &[Bytes]) -> Vec<WriteOp> {
    (0..=rng.below(3))
        .map(|_| {
            let pid = 1 + rng.below(6);
            let last = expected_store
                .journal(Pid(pid), None)
                .map_or(0, |journal| journal.base.plus(journal.facts.len()).0);
            match rng.below(20) {
                0..3 => created(pid),
                3..9 => facts(pid, last + 1..=last + 1 + rng.below(3)),
                9..12 => content(&contents[rng.below(contents.len() as u64) as usize]),
                12 | 13 => snapshot(pid, last),
                14 | 15 => temp_file(
                    pid,
                    expected_store
                        .temp_files(Pid(pid))
                        .map_or(1, |changes| changes.len() as u64 + 1),
                ),
                16 => ended(pid),
                17 => checkpoint(
                    expected_store
                        .checkpoints()
                        .unwrap()
                        .last()
                        .map_or(1, |last| last.id.0 + 1),
                    &[1, 2, pid],
                ),
                18 => WriteOp::CheckpointDropped {
                    id: CheckpointId(1 + rng.below(4)),
                },
                _ if rng.below(3) == 0 => process_deleted(pid),
                _ => history_truncated(
                    pid,
                    expected_store
                        .journal(Pid(pid), Some(FactNumber(last / 2)))
                        .map_or(0, |it| it.base.0),
                ),
            }
        })
        .collect()
}

#[test]
fn random_operations_have_the_same_answers_with_and_without_sweeps() {
    let seed: u64 = std::env::var("DORMOUSE_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(1);
    let rounds: u64 = std::env::var("DORMOUSE_TRIALS")
        .ok()
        .and_then(|trials| trials.parse().ok())
        .unwrap_or(12);
    let mut freed = 0;
    for seed in seed..seed + rounds {
        let (folder, expected_store, mut rng) = (tempdir(), MemoryStore::new(), Rng(seed));
        let contents: Vec<_> = (0..10).map(|number| bytes(number, 40 << number)).collect();
        let mut store = open(folder.path());
        let mut owners = (store.claim().unwrap(), expected_store.claim().unwrap());
        for step in 0..160 {
            let case = format!("seed {seed}, step {step}");
            let batch = entries(&mut rng, &expected_store, &contents);
            let sync_level = if rng.below(2) == 0 {
                SyncLevel::Written
            } else {
                SyncLevel::Synced
            };
            let outcome = |store: &dyn Store, owner| {
                let taken = store.commit(
                    owner,
                    Batch {
                        ops: &batch,
                        at_ms: NOW_MS + step,
                        sync_level,
                    },
                );
                // A sweep makes commits of its own, so the numbers differ.
                taken.map(drop).map_err(|error| error.to_string())
            };
            assert_eq!(
                outcome(&store, owners.0),
                outcome(&expected_store, owners.1),
                "{case}: {batch:?}"
            );
            if rng.below(6) == 0 {
                let named: Vec<_> = contents.iter().filter(|_| rng.below(3) > 0).collect();
                let live = if rng.below(3) == 0 {
                    LiveContents::default()
                } else {
                    keep_only(&named)
                };
                let mut left = if rng.below(2) == 0 {
                    rng.below(20)
                } else {
                    1_000
                };
                let mark = store.begin_mark(owners.0).unwrap();
                let swept = sweep_watched(&store, owners.0, mark, &live, &mut |_| {
                    left = left.saturating_sub(1);
                    if left == 0 {
                        ControlFlow::Break(())
                    } else {
                        ControlFlow::Continue(())
                    }
                });
                freed += swept.unwrap().freed_segments;
                // From here on the expected store has the same contents, whatever a segment still
                // contains. Without a process nothing references any.
                let is_referred_to = |hash| {
                    live.contains(hash) && !expected_store.processes().unwrap().rows.is_empty()
                };
                for bytes in &contents {
                    let (here, there) = (
                        read(&store, hash(bytes)),
                        read(&expected_store, hash(bytes)),
                    );
                    if is_referred_to(hash(bytes)) && there.is_ok() {
                        assert_eq!(
                            here.ok(),
                            there.ok(),
                            "{case}: a content of {} bytes",
                            bytes.len()
                        );
                    }
                }
                sweep(&expected_store, owners.1, &live);
            }
            if rng.below(12) == 0 {
                drop(store);
                if rng.below(2) == 0 {
                    fs::remove_dir_all(folder.path().join("index")).unwrap();
                }
                store = open(folder.path());
                owners = (store.claim().unwrap(), expected_store.claim().unwrap());
            }
            for pid in (1..=6).map(Pid) {
                let journals = [store.journal(pid, None), expected_store.journal(pid, None)]
                    .map(|journal| format!("{journal:?}"));
                assert_eq!(journals[0], journals[1], "{case}");
                let changes = (
                    store.temp_files(pid).map(records),
                    expected_store.temp_files(pid).map(records),
                );
                assert_eq!(changes.0.ok(), changes.1.ok(), "{case}");
            }
            assert_eq!(
                store.processes().unwrap(),
                expected_store.processes().unwrap(),
                "{case}"
            );
        }
        let members = |store: &dyn Store| {
            let found = store.checkpoints().unwrap();
            found
                .iter()
                .map(|it| (it.id, it.members.clone(), it.at_ms))
                .collect::<Vec<_>>()
        };
        assert_eq!(members(&store), members(&expected_store), "seed {seed}");
    }
    assert!(freed > 20, "sweeps freed {freed} segments only");
}

/// A file is in the way of the index's folder, so that the index is in memory.
#[test]
fn a_freed_content_can_be_committed_again_with_an_index_in_memory() {
    let folder = tempdir();
    let index = folder.path().join("index");
    drop(open(folder.path()));
    fs::remove_dir_all(&index).unwrap();
    fs::write(&index, "in the way").unwrap();
    let store = open(folder.path());
    let owner = store.claim().unwrap();
    let contents = fill(&store, owner);
    sweep(&store, owner, &keep_only(&[&contents[3]]));
    assert_eq!(held(&store, &contents), [&contents[3]]);

    let freed = &contents[0];
    let reference = WriteOp::ContentReferenced { hash: hash(freed) };
    let refused = store.commit(owner, Batch::durable(&[reference], NOW_MS));
    assert!(
        matches!(refused, Err(StoreError::UnknownContent(_))),
        "{refused:?}"
    );
    commit(&store, owner, &[content(freed)]);
    assert_eq!(held(&store, &contents), [freed, &contents[3]]);
    assert_eq!(fs::read(&index).unwrap(), b"in the way");
}
