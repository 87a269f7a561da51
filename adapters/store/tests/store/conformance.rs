//! What every store does, written against the trait and run on all of them.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use dormouse_actors::ports::{
    Backing, Batch, Entry, History, Journal, Listing, MarkToken, OwnerToken, StockTaken,
    StockTaking, Store, StoreError, Sweep, Swept, TempFileChange, Until,
};
use dormouse_proto::checkpoint::Checkpoint;
use dormouse_proto::id::{CheckpointId, CommitNumber, ContentHash, FactNumber, Pid};
use dormouse_store::{Compression, LogStore, MemoryStore};

use crate::support::*;

/// Runs one operation on a store. Between two of them, anything may happen that must not change an
/// answer.
type Subject<'a> = &'a mut dyn FnMut(&mut dyn FnMut(&dyn Store));

#[test]
fn the_memory_store_conforms() {
    conforms(&mut || {
        let store = MemoryStore::new();
        Box::new(move |operation| operation(&store))
    });
}

/// The only one of these that waits for a disk.
#[test]
fn the_log_store_conforms() {
    conforms(&mut || {
        let folder = tempfile::tempdir().unwrap();
        let store = LogStore::open(folder.path()).unwrap();
        Box::new(move |operation| {
            let _in_use = &folder;
            operation(&store);
        })
    });
}

#[test]
fn the_log_store_conforms_reopened_without_its_index_between_any_two_operations() {
    conforms(&mut || {
        let folder = tempdir();
        Box::new(move |operation| {
            operation(&LogStore::open(folder.path()).unwrap());
            fs::remove_dir_all(folder.path().join("index")).unwrap();
        })
    });
}

#[test]
fn the_log_store_conforms_reopened_in_small_segments() {
    conforms(&mut || {
        let folder = tempdir();
        Box::new(move |operation| {
            operation(
                &LogStore::options()
                    .segment_bytes(700)
                    .open(folder.path())
                    .unwrap(),
            )
        })
    });
}

#[test]
fn the_log_store_conforms_though_its_index_is_deleted_while_it_is_open() {
    conforms(&mut || {
        let folder = tempdir();
        let store = LogStore::open(folder.path()).unwrap();
        Box::new(move |operation| {
            operation(&store);
            let index: PathBuf = folder.path().join("index");
            if index.exists() {
                fs::remove_dir_all(index).unwrap();
            }
        })
    });
}

/// A sweep needs an owner, and claims that make one would make those of the suite stale: so it
/// sweeps under theirs.
fn newest(store: &LogStore) -> Option<OwnerToken> {
    (0..64)
        .map(OwnerToken)
        .find(|owner| store.begin_mark(*owner).is_ok())
}

#[test]
fn the_log_store_conforms_swept_between_any_two_operations() {
    let sealed = LogStore::options()
        .compression(Compression::Zstd(3))
        .key(secret(1));
    let cases = [
        (LogStore::options(), false),
        (LogStore::options(), true),
        (sealed, true),
    ];
    for (options, reopened) in cases {
        conforms(&mut || {
            let (folder, mut store, options) = (tempdir(), None, options.clone());
            Box::new(move |operation| {
                let open = || {
                    options
                        .clone()
                        .segment_bytes(700)
                        .open(folder.path())
                        .unwrap()
                };
                let held = store.take().unwrap_or_else(open);
                operation(&held);
                if let Some(owner) = newest(&held) {
                    let swept = sweep(&held, owner, &Live::default());
                    assert!(swept.damaged_parts.is_empty(), "{swept:?}");
                }
                if reopened {
                    drop(held);
                    fs::remove_dir_all(folder.path().join("index")).unwrap();
                } else {
                    store = Some(held);
                }
            })
        });
    }
}

#[test]
fn a_store_that_is_encrypted_or_compressed_conforms() {
    for (name, options) in coded() {
        conforms(&mut || {
            let (folder, options) = (tempdir(), options.clone());
            Box::new(move |operation| {
                let store = options.clone().segment_bytes(700).open(folder.path());
                operation(&store.unwrap_or_else(|error| panic!("{name}: {error}")));
            })
        });
    }
}

#[test]
fn what_is_open_for_reading_only_answers_like_the_store_that_it_stands_beside() {
    for options in [LogStore::options()]
        .into_iter()
        .chain(coded().into_iter().map(|(_, options)| options))
    {
        conforms(&mut || {
            let folder = tempdir();
            let store = Arc::new(
                options
                    .clone()
                    .segment_bytes(700)
                    .open(folder.path())
                    .unwrap(),
            );
            let options = options.clone();
            Box::new(move |operation| {
                let beside = options.clone().read_only(folder.path()).unwrap();
                operation(&Beside {
                    reads: beside,
                    writes: Arc::clone(&store),
                });
            })
        });
    }
}

/// Writes one store and reads from another that looks at it.
struct Beside {
    reads: LogStore,
    writes: Arc<LogStore>,
}

impl Store for Beside {
    fn claim(&self) -> Result<OwnerToken, StoreError> {
        self.writes.claim()
    }
    fn commit(&self, owner: OwnerToken, batch: Batch<'_>) -> Result<(), StoreError> {
        self.writes.commit(owner, batch)
    }
    fn processes(&self) -> Result<Listing, StoreError> {
        self.reads.processes()
    }
    fn journal(&self, pid: Pid, upto: Option<FactNumber>) -> Result<Journal, StoreError> {
        self.reads.journal(pid, upto)
    }
    fn history(&self, pid: Pid) -> Result<History, StoreError> {
        self.reads.history(pid)
    }
    fn facts(
        &self,
        pid: Pid,
        first: FactNumber,
        upto: FactNumber,
    ) -> Result<Vec<Vec<u8>>, StoreError> {
        self.reads.facts(pid, first, upto)
    }
    fn checkpoints(&self) -> Result<Vec<Checkpoint>, StoreError> {
        self.reads.checkpoints()
    }
    fn last_checkpoint(&self) -> Result<u64, StoreError> {
        self.reads.last_checkpoint()
    }
    fn content(&self, hash: ContentHash) -> Result<Arc<dyn Backing>, StoreError> {
        self.reads.content(hash)
    }
    fn temp_files(&self, root: Pid) -> Result<Vec<TempFileChange>, StoreError> {
        self.reads.temp_files(root)
    }
    fn temp_files_by(
        &self,
        root: Pid,
        commit: CommitNumber,
    ) -> Result<Vec<TempFileChange>, StoreError> {
        self.reads.temp_files_by(root, commit)
    }
    fn begin_mark(&self, owner: OwnerToken) -> Result<MarkToken, StoreError> {
        self.writes.begin_mark(owner)
    }
    fn end_mark(&self, mark: MarkToken) {
        self.writes.end_mark(mark);
    }
    fn take_stock(&self, order: StockTaking<'_>) -> Result<StockTaken, StoreError> {
        self.writes.take_stock(order)
    }

    fn sweep(&self, owner: OwnerToken, sweep: Sweep<'_>) -> Result<Swept, StoreError> {
        self.writes.sweep(owner, sweep)
    }
}

type Opened = Box<dyn FnMut(&mut dyn FnMut(&dyn Store))>;

/// The suite. `open` makes an empty store.
fn conforms(open: &mut dyn FnMut() -> Opened) {
    let suite: [fn(Subject<'_>); 19] = [
        an_empty_store_knows_nothing,
        a_journal_is_the_latest_image_and_what_follows,
        a_commit_is_all_or_nothing,
        only_the_newest_owner_writes,
        contents_are_kept_by_hash,
        journals_have_no_gaps,
        the_table_shows_births_and_ends,
        processes_do_not_mix,
        temporary_files_are_a_journal_of_their_own,
        changes_of_temporary_files_have_no_gaps,
        facts_are_read_where_a_snapshot_stands_for_them_too,
        what_is_only_written_is_read_like_any_other,
        a_history_says_when_each_fact_was_written,
        a_checkpoint_is_a_cut_through_the_journals,
        contents_are_read_in_parts_and_bring_their_index,
        what_is_forgotten_leaves_its_number,
        what_a_checkpoint_needs_is_not_forgotten,
        a_content_that_is_said_to_be_held_is,
        a_history_that_is_shortened_begins_with_an_image,
    ];
    for case in suite {
        case(&mut *open());
    }
}

fn ask<T>(subject: Subject<'_>, question: impl Fn(&dyn Store) -> T) -> T {
    let mut answer = None;
    subject(&mut |store| answer = Some(question(store)));
    answer.expect("the subject runs the operation")
}

fn claim(subject: Subject<'_>) -> OwnerToken {
    ask(subject, |store| store.claim().unwrap())
}

fn write(subject: Subject<'_>, owner: OwnerToken, entries: &[Entry]) {
    ask(subject, |store| commit(store, owner, entries));
}

fn refused(subject: Subject<'_>, owner: OwnerToken, entries: &[Entry]) -> StoreError {
    ask(subject, |store| {
        store
            .commit(owner, Batch::durable(entries, NOW_MS))
            .expect_err("the commit breaks a rule")
    })
}

/// The journal must stand on `image` at fact `base`, and lead to fact `last`.
fn check_journal(
    subject: Subject<'_>,
    pid: u64,
    upto: Option<u64>,
    image: &str,
    base: u64,
    last: u64,
) {
    let journal = ask(subject, |store| {
        store.journal(Pid(pid), upto.map(FactNumber)).unwrap()
    });
    let facts: Vec<_> = (base + 1..=last).map(|number| fact(pid, number)).collect();
    assert_eq!(
        journal.base,
        FactNumber(base),
        "base of process {pid} up to {upto:?}"
    );
    assert_eq!(
        String::from_utf8_lossy(&journal.image),
        image,
        "image of process {pid} up to {upto:?}"
    );
    assert_eq!(
        journal.facts, facts,
        "facts of process {pid} up to {upto:?}"
    );
}

fn an_empty_store_knows_nothing(subject: Subject<'_>) {
    assert!(ask(subject, |store| store.processes().unwrap().rows).is_empty());
    let journal = ask(subject, |store| store.journal(Pid(1), None));
    assert!(
        matches!(journal, Err(StoreError::UnknownProcess(Pid(1)))),
        "{journal:?}"
    );
    let content = ask(subject, |store| read(store, hash(b"?")));
    assert!(
        matches!(content, Err(StoreError::UnknownContent(unknown)) if unknown == hash(b"?")),
        "{content:?}"
    );
}

fn a_journal_is_the_latest_image_and_what_follows(subject: Subject<'_>) {
    let owner = claim(subject);
    write(subject, owner, &[born(1)]);
    check_journal(subject, 1, None, "image of 1", 0, 0);
    write(subject, owner, &[facts(1, 1..=4), facts(1, 5..=5)]);
    write(
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
    for (upto, image, base, last) in cases {
        check_journal(subject, 1, upto, image, base, last);
    }
    let beyond = ask(subject, |store| store.journal(Pid(1), Some(FactNumber(10))));
    let expected = matches!(
        beyond,
        Err(StoreError::UnknownFact {
            last: FactNumber(9),
            asked: FactNumber(10),
            ..
        })
    );
    assert!(expected, "{beyond:?}");
}

fn a_commit_is_all_or_nothing(subject: Subject<'_>) {
    let owner = claim(subject);
    let brought = bytes(1, 100);
    write(subject, owner, &[born(1)]);
    let error = refused(
        subject,
        owner,
        &[content(&brought), born(2), facts(1, 1..=3), facts(1, 5..=5)],
    );
    assert!(
        error
            .to_string()
            .contains("stands at fact 3: the next is 4, but 5 was given"),
        "{error}"
    );
    check_journal(subject, 1, None, "image of 1", 0, 0);
    assert_eq!(
        ask(subject, |store| store.processes().unwrap().rows),
        [row(1)]
    );
    assert!(ask(subject, |store| read(store, hash(&brought))).is_err());
    write(subject, owner, &[]);
    write(
        subject,
        owner,
        &[Entry::Facts {
            pid: Pid(1),
            first: FactNumber(1),
            facts: Vec::new(),
        }],
    );
}

fn only_the_newest_owner_writes(subject: Subject<'_>) {
    let (old, new) = (claim(subject), claim(subject));
    assert!(old < new);
    for stale in [old, OwnerToken(0), OwnerToken(new.0 + 1)] {
        let error = refused(subject, stale, &[born(1)]);
        assert!(
            matches!(error, StoreError::Stale { newest, .. } if newest == new),
            "{error}"
        );
    }
    assert!(ask(subject, |store| store.processes().unwrap().rows).is_empty());
    write(subject, new, &[born(1)]);
}

fn contents_are_kept_by_hash(subject: Subject<'_>) {
    let owner = claim(subject);
    let lengths = [0, 1, 65_535, 65_536, 65_537, 200_000];
    let contents: Vec<_> = lengths.iter().map(|length| bytes(3, *length)).collect();
    let entries: Vec<_> = contents.iter().chain(&contents[..2]).map(content).collect();
    write(subject, owner, &entries);
    write(subject, owner, &entries[2..]);
    for expected in &contents {
        let found = ask(subject, |store| read(store, hash(expected)).unwrap());
        assert!(
            found == expected,
            "a content of {} bytes comes back otherwise",
            expected.len()
        );
    }
    let lie = Entry::Content {
        hash: hash(b"another"),
        bytes: contents[1].clone(),
        index: Bytes::new(),
    };
    let error = refused(subject, owner, &[born(1), lie]);
    assert!(
        error.to_string().contains("does not have this hash"),
        "{error}"
    );
}

fn journals_have_no_gaps(subject: Subject<'_>) {
    let owner = claim(subject);
    write(subject, owner, &[born(1), facts(1, 1..=2)]);
    let cases = [
        (facts(1, 4..=4), "the next is 3, but 4 was given"),
        (facts(1, 2..=2), "the next is 3, but 2 was given"),
        (born(1), "process 1 was born before"),
        (facts(9, 1..=1), "no process 9"),
        (snapshot(9, 0), "no process 9"),
        (ended(9), "no process 9"),
        (snapshot(1, 3), "no fact 3"),
        (snapshot(1, 0), "at fact 0 is the one that it was born with"),
    ];
    for (entry, complaint) in cases {
        let error = refused(subject, owner, std::slice::from_ref(&entry));
        let text = format!("{error}");
        assert!(text.contains(complaint), "{entry:?}: {text}");
    }
    write(
        subject,
        owner,
        &[facts(1, 3..=3), born(2), facts(2, 1..=1), snapshot(2, 1)],
    );
    check_journal(subject, 1, None, "image of 1", 0, 3);
    check_journal(subject, 2, None, "image of 2 at 1", 1, 1);
}

fn the_table_shows_births_and_ends(subject: Subject<'_>) {
    let owner = claim(subject);
    write(subject, owner, &[born(300), born(2)]);
    write(subject, owner, &[born(10), ended(300), facts(300, 1..=1)]);
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

fn processes_do_not_mix(subject: Subject<'_>) {
    let owner = claim(subject);
    let pids = [1, 2, 255, 256, 257, u64::MAX];
    write(subject, owner, &pids.map(born));
    for number in 1..=5 {
        write(subject, owner, &pids.map(|pid| facts(pid, number..=number)));
    }
    for pid in pids {
        check_journal(subject, pid, None, &format!("image of {pid}"), 0, 5);
        check_journal(subject, pid, Some(3), &format!("image of {pid}"), 0, 3);
    }
}

fn check_temp_files(subject: Subject<'_>, root: u64, last: u64) {
    let found = ask(subject, |store| {
        records(store.temp_files(Pid(root)).unwrap())
    });
    let expected: Vec<_> = (1..=last).map(|number| change(root, number)).collect();
    assert_eq!(found, expected, "the temporary files of process {root}");
}

fn temporary_files_are_a_journal_of_their_own(subject: Subject<'_>) {
    let owner = claim(subject);
    let roots = [1, 2, 255, 256, u64::MAX];
    let unknown = ask(subject, |store| store.temp_files(Pid(1)));
    assert!(
        matches!(unknown, Err(StoreError::UnknownProcess(Pid(1)))),
        "{unknown:?}"
    );
    write(subject, owner, &roots.map(born));
    roots
        .iter()
        .for_each(|root| check_temp_files(subject, *root, 0));
    let many: Vec<_> = (1..=300).map(|number| temp_file(256, number)).collect();
    write(subject, owner, &many);
    let brought = bytes(4, 90);
    write(
        subject,
        owner,
        &[
            content(&brought),
            temp_file(1, 1),
            facts(1, 1..=2),
            temp_file(1, 2),
            temp_file(2, 1),
        ],
    );
    write(
        subject,
        owner,
        &[
            snapshot(1, 2),
            temp_file(u64::MAX, 1),
            ended(1),
            facts(2, 1..=1),
        ],
    );
    write(subject, owner, &[temp_file(1, 3)]);
    for (root, last) in [(1, 3), (2, 1), (255, 0), (256, 300), (u64::MAX, 1)] {
        check_temp_files(subject, root, last);
    }
    check_journal(subject, 1, None, "image of 1 at 2", 2, 2);
    check_journal(subject, 2, None, "image of 2", 0, 1);
    check_journal(subject, 256, None, "image of 256", 0, 0);
    assert_eq!(
        ask(subject, |store| read(store, hash(&brought)).unwrap()),
        brought
    );
}

fn changes_of_temporary_files_have_no_gaps(subject: Subject<'_>) {
    let owner = claim(subject);
    write(subject, owner, &[born(1), temp_file(1, 1)]);
    let cases = [
        (
            temp_file(1, 1),
            "stand at change 1: the next is 2, but 1 was given",
        ),
        (
            temp_file(1, 3),
            "stand at change 1: the next is 2, but 3 was given",
        ),
        (
            temp_file(1, 0),
            "stand at change 1: the next is 2, but 0 was given",
        ),
        (temp_file(9, 1), "no process 9"),
    ];
    for (entry, complaint) in cases {
        let text = refused(subject, owner, std::slice::from_ref(&entry)).to_string();
        assert!(text.contains(complaint), "{entry:?}: {text}");
    }
    let text = refused(subject, owner, &[temp_file(1, 2), temp_file(1, 4)]).to_string();
    assert!(text.contains("stand at change 2: the next is 3"), "{text}");
    check_temp_files(subject, 1, 1);
    write(
        subject,
        owner,
        &[temp_file(1, 2), born(2), temp_file(2, 1), temp_file(1, 3)],
    );
    check_temp_files(subject, 1, 3);
    check_temp_files(subject, 2, 1);
}

fn facts_are_read_where_a_snapshot_stands_for_them_too(subject: Subject<'_>) {
    let owner = claim(subject);
    write(subject, owner, &[born(1), facts(1, 1..=3)]);
    write(
        subject,
        owner,
        &[facts(1, 4..=6), snapshot(1, 5), facts(1, 7..=7)],
    );
    for (first, upto) in [(1, 7), (2, 3), (5, 5), (4, 6), (7, 7), (6, 5)] {
        let found = ask(subject, |store| {
            store
                .facts(Pid(1), FactNumber(first), FactNumber(upto))
                .unwrap()
        });
        let expected: Vec<_> = (first..=upto).map(|number| fact(1, number)).collect();
        assert_eq!(found, expected, "facts {first} to {upto}");
    }
    let beyond = ask(subject, |store| {
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
    let unknown = ask(subject, |store| {
        store.facts(Pid(9), FactNumber(1), FactNumber(1))
    });
    assert!(
        matches!(unknown, Err(StoreError::UnknownProcess(Pid(9)))),
        "{unknown:?}"
    );
}

fn what_is_only_written_is_read_like_any_other(subject: Subject<'_>) {
    let owner = claim(subject);
    let written = |entries: &[Entry]| {
        let entries = entries.to_vec();
        move |store: &dyn Store| {
            store
                .commit(
                    owner,
                    Batch {
                        entries: &entries,
                        at_ms: NOW_MS,
                        until: Until::Written,
                    },
                )
                .unwrap();
        }
    };
    ask(subject, written(&[born(1), facts(1, 1..=2)]));
    ask(subject, written(&[facts(1, 3..=3), temp_file(1, 1)]));
    check_journal(subject, 1, None, "image of 1", 0, 3);
    write(subject, owner, &[]);
    write(subject, owner, &[facts(1, 4..=4)]);
    ask(subject, written(&[facts(1, 5..=5)]));
    check_journal(subject, 1, None, "image of 1", 0, 5);
    check_temp_files(subject, 1, 1);
}

fn a_history_says_when_each_fact_was_written(subject: Subject<'_>) {
    let owner = claim(subject);
    let unknown = ask(subject, |store| store.history(Pid(1)));
    assert!(
        matches!(unknown, Err(StoreError::UnknownProcess(Pid(1)))),
        "{unknown:?}"
    );
    let at = |at_ms, entries: &[Entry]| {
        let entries = entries.to_vec();
        move |store: &dyn Store| {
            store
                .commit(
                    owner,
                    Batch {
                        entries: &entries,
                        at_ms,
                        until: Until::Synced,
                    },
                )
                .unwrap();
        }
    };
    ask(subject, at(10, &[born(2), born(1)]));
    ask(subject, at(20, &[facts(1, 1..=3), snapshot(1, 2)]));
    ask(subject, at(30, &[facts(2, 1..=1)]));
    ask(
        subject,
        at(25, &[facts(1, 4..=4), facts(1, 5..=6), temp_file(1, 1)]),
    );
    let history = ask(subject, |store| store.history(Pid(1)).unwrap().written);
    let seen: Vec<_> = history
        .iter()
        .map(|written| (written.at_ms, written.first.0, written.count))
        .collect();
    assert_eq!(seen, [(10, 0, 1), (20, 1, 3), (25, 4, 1), (25, 5, 2)]);
    let other = ask(subject, |store| store.history(Pid(2)).unwrap().written);
    let change = ask(subject, |store| store.temp_files(Pid(1)).unwrap()[0].commit);
    let commits = [
        history[0].commit,
        history[1].commit,
        other[1].commit,
        history[2].commit,
    ];
    assert!(commits.is_sorted_by(|a, b| a < b), "{commits:?}");
    assert_eq!(
        (other[0].commit, history[3].commit, change),
        (commits[0], commits[3], commits[3])
    );
}

fn a_checkpoint_is_a_cut_through_the_journals(subject: Subject<'_>) {
    let owner = claim(subject);
    assert!(ask(subject, |store| store.checkpoints().unwrap()).is_empty());
    write(subject, owner, &[born(1), born(2), facts(1, 1..=2)]);
    write(
        subject,
        owner,
        &[
            facts(2, 1..=1),
            checkpoint(1, &[1, 2, 9]),
            facts(2, 2..=2),
            facts(1, 3..=3),
        ],
    );
    write(subject, owner, &[checkpoint(5, &[2])]);
    let found = ask(subject, |store| store.checkpoints().unwrap());
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
    let history = ask(subject, |store| store.history(Pid(1)).unwrap().written);
    assert_eq!(
        found[0].commit,
        history.last().unwrap().commit,
        "it stands in the commit that it was made in"
    );
    assert_eq!(
        (&*found[0].label, found[0].of, found[0].at_ms),
        ("before", Pid(1), NOW_MS)
    );
    for id in [0, 4, 5] {
        let text = refused(subject, owner, &[checkpoint(id, &[1])]).to_string();
        assert!(text.contains("the next checkpoint is cp:6"), "{text}");
    }
    write(
        subject,
        owner,
        &[Entry::CheckpointDropped {
            id: CheckpointId(5),
        }],
    );
    assert_eq!(
        ask(subject, |store| store.checkpoints().unwrap()),
        found[..1]
    );
    let gone = refused(
        subject,
        owner,
        &[Entry::CheckpointDropped {
            id: CheckpointId(5),
        }],
    );
    assert!(
        matches!(gone, StoreError::UnknownCheckpoint(CheckpointId(5))),
        "{gone}"
    );
    let text = refused(subject, owner, &[checkpoint(5, &[1])]).to_string();
    assert!(
        text.contains("the next checkpoint is cp:6"),
        "a number is never used again: {text}"
    );
    assert_eq!(ask(subject, |store| store.last_checkpoint().unwrap()), 5);
}

fn contents_are_read_in_parts_and_bring_their_index(subject: Subject<'_>) {
    let owner = claim(subject);
    for (length, index) in [
        (100, &b""[..]),
        (65_537, b""),
        (400_000, b"an index"),
        (65_537, b"another"),
    ] {
        let bytes = bytes(length as u8 ^ index.len() as u8, length);
        let index = Bytes::from_static(index);
        let entry = Entry::Content {
            hash: hash(&bytes),
            bytes: bytes.clone(),
            index: index.clone(),
        };
        write(subject, owner, std::slice::from_ref(&entry));
        let kept = ask(subject, |store| {
            store.content(hash(&bytes)).unwrap().index()
        });
        assert_eq!(kept, (!index.is_empty()).then_some(index), "{length}");
        let length = length as u64;
        let ranges = [
            0..0,
            0..1,
            length - 1..length,
            length..length,
            0..length,
            7..length / 2,
            65_535..65_537,
            60_000..200_000,
        ];
        for range in ranges {
            let part = ask(subject, |store| {
                store.content(hash(&bytes)).unwrap().slice(range.clone())
            });
            let expected = (range.end <= length)
                .then(|| bytes.slice(range.start as usize..range.end as usize));
            assert_eq!(part.ok(), expected, "{range:?} of {length}");
        }
    }
}

fn what_is_forgotten_leaves_its_number(subject: Subject<'_>) {
    let owner = claim(subject);
    write(
        subject,
        owner,
        &[
            born(1),
            born(2),
            facts(2, 1..=3),
            temp_file(2, 1),
            snapshot(2, 2),
            ended(2),
        ],
    );
    write(subject, owner, &[facts(1, 1..=2)]);
    write(subject, owner, &[forgotten(2)]);
    write(subject, owner, &[facts(1, 3..=3)]);
    let listing = ask(subject, |store| store.processes().unwrap());
    assert_eq!(
        (&listing.rows[..], listing.last, listing.lost),
        (&[row(1)][..], 2, vec![])
    );
    let unknown =
        |error: Option<StoreError>| matches!(error, Some(StoreError::UnknownProcess(Pid(2))));
    assert!(unknown(ask(subject, |store| store
        .journal(Pid(2), None)
        .err())));
    assert!(unknown(ask(subject, |store| store
        .journal(Pid(2), Some(FactNumber(0)))
        .err())));
    assert!(unknown(ask(subject, |store| store.history(Pid(2)).err())));
    assert!(unknown(ask(subject, |store| store
        .temp_files(Pid(2))
        .err())));
    for entry in [
        facts(2, 4..=4),
        ended(2),
        forgotten(2),
        shortened(2, 2),
        temp_file(2, 2),
    ] {
        let error = refused(subject, owner, std::slice::from_ref(&entry));
        assert!(
            matches!(error, StoreError::UnknownProcess(Pid(2))),
            "{entry:?}: {error}"
        );
    }
    let again = refused(subject, owner, &[born(2)]).to_string();
    assert!(again.contains("a pid is never used again"), "{again}");
    check_journal(subject, 1, None, "image of 1", 0, 3);
    write(subject, owner, &[forgotten(1)]);
    write(subject, owner, &[born(3)]);
    let listing = ask(subject, |store| store.processes().unwrap());
    assert_eq!((&listing.rows[..], listing.last), (&[row(3)][..], 3));
}

fn what_a_checkpoint_needs_is_not_forgotten(subject: Subject<'_>) {
    let owner = claim(subject);
    write(subject, owner, &[born(1), facts(1, 1..=2), snapshot(1, 2)]);
    write(subject, owner, &[facts(1, 3..=3), checkpoint(1, &[1])]);
    write(subject, owner, &[facts(1, 4..=4), snapshot(1, 4)]);
    for entry in [forgotten(1), shortened(1, 4)] {
        let text = refused(subject, owner, std::slice::from_ref(&entry)).to_string();
        assert!(
            text.contains("in a checkpoint") && text.contains("drop that first"),
            "{entry:?}: {text}"
        );
    }
    write(subject, owner, &[shortened(1, 2)]);
    write(
        subject,
        owner,
        &[Entry::CheckpointDropped {
            id: CheckpointId(1),
        }],
    );
    write(subject, owner, &[shortened(1, 4)]);
    write(subject, owner, &[forgotten(1)]);
}

fn a_content_that_is_said_to_be_held_is(subject: Subject<'_>) {
    let owner = claim(subject);
    let (one, two) = (bytes(1, 10), bytes(2, 10));
    let held = |bytes: &Bytes| Entry::Held { hash: hash(bytes) };
    let unknown = refused(subject, owner, &[held(&one)]);
    assert!(
        matches!(unknown, StoreError::UnknownContent(_)),
        "{unknown}"
    );
    write(subject, owner, &[content(&one), held(&one)]);
    write(subject, owner, &[held(&one)]);
    let unknown = refused(subject, owner, &[held(&one), held(&two)]);
    assert!(
        matches!(unknown, StoreError::UnknownContent(_)),
        "{unknown}"
    );
}

fn a_history_that_is_shortened_begins_with_an_image(subject: Subject<'_>) {
    let owner = claim(subject);
    write(subject, owner, &[born(1), facts(1, 1..=3), snapshot(1, 3)]);
    write(subject, owner, &[facts(1, 4..=6), ended(1)]);
    write(subject, owner, &[facts(1, 7..=7), snapshot(1, 5)]);
    write(subject, owner, &[facts(1, 8..=8)]);
    let complaint = refused(subject, owner, &[shortened(1, 4)]).to_string();
    assert!(
        complaint.contains("no image of it stands there"),
        "{complaint}"
    );
    let complaint = refused(subject, owner, &[shortened(1, 9)]);
    assert!(
        matches!(complaint, StoreError::UnknownFact { .. }),
        "{complaint}"
    );
    write(subject, owner, &[shortened(1, 3)]);
    check_journal(subject, 1, Some(4), "image of 1 at 3", 3, 4);
    write(subject, owner, &[shortened(1, 5)]);
    write(subject, owner, &[facts(1, 9..=9)]);
    check_journal(subject, 1, None, "image of 1 at 5", 5, 9);
    check_journal(subject, 1, Some(5), "image of 1 at 5", 5, 5);
    for asked in [0, 3, 4] {
        let gone = ask(subject, |store| {
            store.journal(Pid(1), Some(FactNumber(asked)))
        });
        assert!(
            matches!(
                gone,
                Err(StoreError::ForgottenFact {
                    since: FactNumber(5),
                    ..
                })
            ),
            "{gone:?}"
        );
    }
    let history = ask(subject, |store| store.history(Pid(1)).unwrap().written);
    let seen: Vec<_> = history
        .iter()
        .map(|written| (written.first.0, written.count))
        .collect();
    assert_eq!(seen, [(6, 1), (7, 1), (8, 1), (9, 1)]);
    let read = |first, upto| {
        move |store: &dyn Store| store.facts(Pid(1), FactNumber(first), FactNumber(upto))
    };
    assert_eq!(ask(subject, read(6, 9)).unwrap().len(), 4);
    for (first, upto, since) in [(0, 9, 6), (1, 9, 6), (5, 9, 6), (5, 5, 6), (1, 4, 5)] {
        match ask(subject, read(first, upto)) {
            Err(StoreError::ForgottenFact {
                since: FactNumber(told),
                ..
            }) => assert_eq!(told, since),
            other => panic!("{first} to {upto}: {other:?}"),
        }
    }
    let mut over = row(1);
    over.exit = Some(exit());
    assert_eq!(
        ask(subject, |store| store.processes().unwrap()).rows,
        [over]
    );
    let backwards = refused(subject, owner, &[shortened(1, 3)]);
    assert!(
        matches!(
            backwards,
            StoreError::ForgottenFact {
                since: FactNumber(5),
                ..
            }
        ),
        "{backwards}"
    );
}
