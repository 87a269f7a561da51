//! Damages random bytes of a store. Every query must return the bytes that were written, or an
//! error.

use std::fs;
use std::path::Path;

use bytes::Bytes;
use dormouse_actors::ports::{Store, StoreError, WriteOp};
use dormouse_proto::id::{FactNumber, Pid};
use dormouse_proto::process::Waiting;
use dormouse_proto::record::codec;
use dormouse_store::{LogStore, MemoryStore, Options};

use crate::support::*;

const FACTS: u64 = 40;
const PIDS: u64 = 4;
/// The last processes have no temporary files.
const TREES: u64 = 2;

/// A seeded pseudo-random generator.
struct Rng(u64);

impl Rng {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % limit
    }
}

fn contents() -> Vec<Bytes> {
    [0, 10, 900, 70_000].map(|length| bytes(7, length)).to_vec()
}

fn commits() -> Vec<Vec<WriteOp>> {
    let births = (1..=PIDS).map(created).collect();
    let contents = contents().iter().map(content).collect();
    let work = (1..=FACTS).map(|number| {
        let changes = (1..=TREES).map(|root| temp_file(root, number));
        (1..=PIDS)
            .map(|pid| facts(pid, number..=number))
            .chain(changes)
            .collect()
    });
    let rest = vec![
        (1..=PIDS).map(|pid| snapshot(pid, 20)).collect(),
        vec![ended(1), ended(3)],
    ];
    [births, contents]
        .into_iter()
        .chain(work)
        .chain(rest)
        .collect()
}

fn fill(store: &dyn Store) {
    let owner = store.claim().unwrap();
    commits()
        .iter()
        .for_each(|entries| commit(store, owner, entries));
}

/// Checks that every query returns the expected answer or an error. Returns whether there was no
/// error.
fn check_answers(store: &LogStore, expected_store: &MemoryStore, case: &str) -> bool {
    let mut all = true;
    let mut note = |error: &StoreError| {
        assert!(
            matches!(error, StoreError::Damaged { .. }),
            "{case}: {error}"
        );
        all = false;
    };
    match store.processes() {
        Ok(listing) => {
            let all_rows = expected_store.processes().unwrap();
            for row in &listing.rows {
                let is_right = all_rows.rows.contains(row);
                // A process whose end is lost may still be running, as far as is known.
                let goes_on = row.exit.is_none()
                    && !listing.losses.is_empty()
                    && store.journal(row.pid, None).is_err();
                assert!(is_right || goes_on, "{case}: {row:?}");
            }
            assert!(
                listing.last_pid >= all_rows.last_pid,
                "{case}: a number could be given again"
            );
            if listing.rows != all_rows.rows {
                assert!(
                    !listing.losses.is_empty(),
                    "{case}: rows are missing without a word"
                );
                note(&StoreError::Damaged {
                    what: listing.losses.concat(),
                });
            }
        }
        Err(error) => note(&error),
    }
    for pid in (1..=PIDS).map(Pid) {
        for up_to in [
            None,
            Some(FactNumber(0)),
            Some(FactNumber(19)),
            Some(FactNumber(33)),
        ] {
            match store.journal(pid, up_to) {
                Ok(journal) => {
                    let mut expected = expected_store.journal(pid, up_to).unwrap();
                    if journal.row.exit.is_none() && store.journal(pid, None).is_err() {
                        // A process whose end is lost may still be running, as far as is known.
                        expected.row.exit = None;
                    }
                    has_same_history(&journal, &expected, expected_store, case);
                }
                Err(error) => note(&error),
            }
        }
    }
    for root in (1..=PIDS).map(Pid) {
        match store.temp_files(root) {
            Ok(changes) => assert_eq!(changes, expected_store.temp_files(root).unwrap(), "{case}"),
            Err(error) => note(&error),
        }
    }
    for expected in contents() {
        match read(store, hash(&expected)) {
            Ok(found) => assert!(
                found == expected,
                "{case}: a content of {} bytes",
                expected.len()
            ),
            Err(error) => note(&error),
        }
    }
    all
}

/// A journal may start at an earlier image than the expected one, but must lead to the same fact.
fn has_same_history(
    found: &dormouse_actors::ports::Journal,
    expected: &dormouse_actors::ports::Journal,
    store: &MemoryStore,
    case: &str,
) {
    if found.base == expected.base {
        return assert_eq!(found, expected, "{case}");
    }
    let earlier = store.journal(found.row.pid, Some(found.base)).unwrap();
    assert_eq!(
        (&found.row, &found.image),
        (&expected.row, &earlier.image),
        "{case}"
    );
    assert_eq!(
        found.base.plus(found.facts.len()),
        expected.base.plus(expected.facts.len()),
        "{case}"
    );
    assert!(found.facts.ends_with(&expected.facts), "{case}");
}

#[derive(Debug)]
enum DamageKind {
    Flip,
    Zero,
    Cut,
}

fn damage_file(path: &Path, kind: &DamageKind, rng: &mut Rng) -> String {
    let mut bytes = fs::read(path).unwrap();
    if bytes.is_empty() {
        return "nothing".to_owned();
    }
    let at = rng.below(bytes.len());
    match kind {
        DamageKind::Flip => bytes[at] ^= 1 << rng.below(8),
        DamageKind::Zero => bytes[at..].iter_mut().take(512).for_each(|byte| *byte = 0),
        DamageKind::Cut => bytes.truncate(at),
    }
    fs::write(path, bytes).unwrap();
    format!("{kind:?} at byte {at}")
}

#[test]
fn any_damage_is_reported_and_a_damaged_index_is_rebuilt() {
    check_damage("plain", &LogStore::options(), 300);
}

#[test]
fn any_damage_to_an_encrypted_or_compressed_store_is_reported() {
    encoding_options()
        .iter()
        .for_each(|(name, options)| check_damage(name, options, 100));
}

fn check_damage(name: &str, options: &Options, trials: u64) {
    let seed = std::env::var("DORMOUSE_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(1);
    let trials = std::env::var("DORMOUSE_TRIALS")
        .ok()
        .and_then(|trials| trials.parse().ok())
        .unwrap_or(trials);
    let (folder, expected_store) = (tempdir(), MemoryStore::new());
    fill(&expected_store);
    fill(
        &options
            .clone()
            .segment_bytes(20_000)
            .open(folder.path())
            .unwrap(),
    );
    let mut rng = Rng(seed);
    let mut outcomes = [0; 3];
    for trial in 0..trials {
        let copy = tempdir();
        copy_folder(folder.path(), copy.path());
        let paths = files(copy.path());
        let path = &paths[rng.below(paths.len())];
        let kind = [
            DamageKind::Flip,
            DamageKind::Flip,
            DamageKind::Zero,
            DamageKind::Cut,
        ]
        .into_iter()
        .nth(rng.below(4))
        .unwrap();
        let done = damage_file(path, &kind, &mut rng);
        let place = path.strip_prefix(copy.path()).unwrap();
        let case = format!(
            "{name}, seed {seed}, trial {trial}: {} {done}",
            place.display()
        );
        let harmless = place.starts_with("index") || place == Path::new("LOCK");
        match options.clone().open(copy.path()) {
            Ok(store) => {
                let all = check_answers(&store, &expected_store, &case);
                assert!(
                    all || !harmless,
                    "{case}: an answer is missing, though the log is whole"
                );
                outcomes[usize::from(!all)] += 1;
            }
            Err(StoreError::Damaged { .. }) if !harmless => outcomes[2] += 1,
            Err(error) => panic!("{case}: {error}"),
        }
    }
    assert!(
        outcomes.iter().all(|count| *count > 0),
        "{name}, seed {seed}: healed, partly readable, refused: {outcomes:?}"
    );
}

/// What a process waits for is in its facts as well, so that its journal is read.
#[test]
fn what_a_process_waits_for_is_unknown_if_the_record_is_damaged() {
    let folder = tempdir();
    let store = LogStore::open(folder.path()).unwrap();
    let owner = store.claim().unwrap();
    let ops = [created(1), created(2), waiting(1, alarm(1_234_567))];
    commit(&store, owner, &ops);
    commit(&store, owner, &[waiting(2, alarm(7_654_321))]);
    drop(store);
    let written = codec::encode(&(alarm(1_234_567), false)).unwrap();
    let segment = files(&folder.path().join("log")).remove(0);
    let mut log = fs::read(&segment).unwrap();
    let at = log.windows(written.len()).position(|part| part == written);
    log[at.unwrap() + 2] ^= 1;
    fs::write(&segment, log).unwrap();
    fs::remove_dir_all(folder.path().join("index")).unwrap();
    let store = LogStore::open(folder.path()).unwrap();
    let listing = store.processes().unwrap();
    let in_rows: Vec<_> = listing.rows.iter().map(|row| row.waiting).collect();
    assert_eq!(in_rows, [Waiting::Unknown, alarm(7_654_321)]);
    assert!(listing.losses.is_empty(), "{:?}", listing.losses);
}
