//! Random sequences of commits, damage and recovery. Every query must return what was written, or
//! report a loss; no record that is in the log may be lost; and opening, reading and `fsck` must
//! agree about the state of the store.
//!
//! `SEQUENCES=2000 cargo test -p dormouse-store --release sequences` runs more sequences,
//! `SEQUENCE_SEED=…` repeats one of them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use dormouse_actors::ports::{Store, StoreError};
use dormouse_proto::id::{FactNumber, Pid};
use dormouse_store::{LogStore, Options, Repair, fsck};

use crate::support::*;

const STEPS: u64 = 14;

/// A seeded pseudo-random generator, so that a failing sequence can be repeated.
struct Rng(u64);

impl Rng {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// Damage to a segment, with the bytes that undo it.
enum Damage {
    Flipped {
        segment: PathBuf,
        at: usize,
        mask: u8,
        with: Vec<u8>,
    },
    Cut {
        segment: PathBuf,
        to: u64,
        rest: Vec<u8>,
    },
    Lost {
        segment: PathBuf,
        aside: PathBuf,
    },
    /// A segment was replaced by an older copy.
    Older {
        segment: PathBuf,
        older: Vec<u8>,
        newer: Vec<u8>,
    },
}

impl Damage {
    fn segment(&self) -> &Path {
        match self {
            Self::Flipped { segment, .. }
            | Self::Cut { segment, .. }
            | Self::Lost { segment, .. }
            | Self::Older { segment, .. } => segment,
        }
    }

    fn undo(&self) {
        match self {
            // If only garbage was damaged, the segment may be compacted by now.
            Self::Flipped {
                segment,
                at,
                mask,
                with,
            } => {
                if fs::read(segment).unwrap().starts_with(with) {
                    flip(segment, *at, *mask);
                }
            }
            Self::Cut { segment, to, rest } => {
                let mut bytes = fs::read(segment).unwrap();
                assert_eq!(
                    bytes.len() as u64,
                    *to,
                    "a segment with damage is left alone"
                );
                bytes.extend(rest);
                fs::write(segment, bytes).unwrap();
            }
            Self::Lost { segment, aside } => {
                assert!(
                    !segment.exists(),
                    "the number of a lost segment is not given again"
                );
                fs::rename(aside, segment).unwrap();
            }
            // An older copy that is whole is no damage, and may be compacted again.
            Self::Older {
                segment,
                older,
                newer,
            } => {
                if fs::read(segment).unwrap() == *older {
                    fs::write(segment, newer).unwrap();
                }
            }
        }
    }
}

/// Describes the result of opening a store in a word.
fn describe_result<T>(opened: &Result<T, StoreError>) -> String {
    opened.as_ref().err().map_or("opened".to_owned(), |error| {
        error.to_string().chars().take(50).collect()
    })
}

fn flip(segment: &Path, at: usize, mask: u8) {
    let mut bytes = fs::read(segment).unwrap();
    bytes[at] ^= mask;
    fs::write(segment, bytes).unwrap();
}

/// The store under test, and the last acknowledged fact of each process.
struct Sequence {
    random: Rng,
    folder: tempfile::TempDir,
    acknowledged: BTreeMap<u64, u64>,
    damage: Vec<Damage>,
    /// A copy of the whole undamaged store, and the last acknowledged fact of each process then.
    copy: Option<(tempfile::TempDir, BTreeMap<u64, u64>)>,
    /// The file of HEAD that is missing or outdated, until the next opening.
    stale: Option<&'static str>,
    /// The steps so far, for the message of a failing test.
    story: Vec<String>,
}

impl Sequence {
    fn new(seed: u64) -> Self {
        let (acknowledged, damage, story) =
            (BTreeMap::new(), Vec::new(), vec![format!("seed {seed}")]);
        let (copy, stale) = (None, None);
        Self {
            random: Rng(seed),
            folder: tempdir(),
            acknowledged,
            damage,
            copy,
            stale,
            story,
        }
    }

    fn store(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    fn options(&self) -> Options {
        LogStore::options().segment_bytes(1_500)
    }

    fn segments(&self) -> Vec<PathBuf> {
        files(&self.store().join("log"))
    }

    /// Opens the store as a kernel does, and calls `act` if it can be opened.
    fn with_open_store(&mut self, what: &str, operate: impl FnOnce(&mut Self, &LogStore)) {
        let opened = self.options().open(self.store());
        self.story
            .push(format!("{what}: {}", describe_result(&opened)));
        match opened {
            Ok(store) => {
                self.stale = None;
                operate(self, &store);
            }
            Err(StoreError::Damaged { .. }) => assert!(!self.damage.is_empty(), "{:?}", self.story),
            Err(error) => panic!("{error}: {:?}", self.story),
        }
    }

    /// Commits facts of readable processes, and sometimes a new process.
    fn write(&mut self) {
        self.with_open_store("write", |this, store| {
            let owner = store.claim().unwrap();
            for _ in 0..1 + this.random.below(4) {
                let pid = 1 + this.random.below(4 + this.acknowledged.len() as u64);
                match this.acknowledged.get(&pid).copied() {
                    None => {
                        // A pid is never reused, whether its process is listed or not.
                        let pid = store.processes().unwrap().last_pid + 1;
                        commit(store, owner, &[created(pid), facts(pid, 1..=1)]);
                        this.acknowledged.insert(pid, 1);
                    }
                    Some(last) => {
                        if store.journal(Pid(pid), None).is_ok() {
                            let entries =
                                [facts(pid, last + 1..=last + 2), snapshot(pid, last + 2)];
                            commit(store, owner, &entries[..1 + this.random.below(2) as usize]);
                            this.acknowledged.insert(pid, last + 2);
                        }
                    }
                }
            }
        });
    }

    fn damage_segment(&mut self) {
        let segments: Vec<_> = self.segments();
        let unharmed = |segment: &&PathBuf| {
            self.damage
                .iter()
                .all(|damage| damage.segment() != segment.as_path())
        };
        let Some(segment) = segments
            .iter()
            .filter(unharmed)
            .nth(self.random.below(6) as usize)
            .cloned()
        else {
            return;
        };
        let length = records_end(&segment);
        let damage = match self.random.below(3) {
            _ if length == 0 => return,
            0 => {
                let (at, mask) = (
                    self.random.below(length) as usize,
                    1 << self.random.below(8),
                );
                flip(&segment, at, mask);
                let with = fs::read(&segment).unwrap()[..length as usize].to_vec();
                Damage::Flipped {
                    segment,
                    at,
                    mask,
                    with,
                }
            }
            1 => {
                let bytes = fs::read(&segment).unwrap();
                let to = length - 1 - self.random.below(length.min(300));
                fs::write(&segment, &bytes[..to as usize]).unwrap();
                Damage::Cut {
                    segment,
                    to,
                    rest: bytes[to as usize..].to_vec(),
                }
            }
            _ => {
                let aside = self.folder.path().join(segment.file_name().unwrap());
                fs::rename(&segment, &aside).unwrap();
                Damage::Lost { segment, aside }
            }
        };
        self.story.push(match &damage {
            Damage::Flipped { segment, at, .. } => format!("flip {} at {at}", segment.display()),
            Damage::Cut { segment, to, .. } => format!("cut {} to {to}", segment.display()),
            Damage::Lost { segment, .. } => format!("lose {}", segment.display()),
            Damage::Older { .. } => unreachable!("that is another step"),
        });
        self.damage.push(damage);
    }

    fn undo_damage(&mut self) {
        if !self.damage.is_empty() {
            let damage = self
                .damage
                .remove(self.random.below(self.damage.len() as u64) as usize);
            self.story
                .push(format!("put back {}", damage.segment().display()));
            damage.undo();
        }
    }

    fn run_fsck(&mut self, repair: Repair) -> Option<Vec<String>> {
        let report = fsck(&self.store(), &self.options(), repair, &mut |_, _| {});
        let found = report.as_ref().map(|report| report.issues.len());
        self.story.push(format!("repair {repair:?}: {found:?}"));
        let report = report.ok()?;
        Some(
            report
                .issues
                .iter()
                .chain(&report.acknowledged)
                .map(ToString::to_string)
                .collect(),
        )
    }

    fn collect_garbage(&mut self) {
        self.with_open_store("collect", |this, store| {
            if store.processes().unwrap().all_losses().next().is_none() {
                let owner = store.claim().unwrap();
                let swept = sweep(store, owner, &keep_only(&[]));
                this.story.push(format!("{swept:?}"));
            }
        });
    }

    fn copy_store(&mut self) {
        if self.damage.is_empty() {
            let copy = tempdir();
            copy_folder(&self.store(), copy.path());
            self.story.push("copy".to_owned());
            self.copy = Some((copy, self.acknowledged.clone()));
        }
    }

    /// Replaces the whole store by an older copy. Later answers must match that copy.
    fn restore_older_store(&mut self) {
        let Some((copy, acknowledged)) = &self.copy else {
            return;
        };
        fs::remove_dir_all(self.store()).unwrap();
        copy_folder(copy.path(), &self.store());
        (self.acknowledged, self.stale) = (acknowledged.clone(), None);
        self.damage.clear();
        self.story.push("an older store".to_owned());
    }

    /// Removes one file of HEAD, or replaces it by an older one.
    fn restore_older_head(&mut self) {
        let file = ["HEAD", "HEAD2"][self.random.below(2) as usize];
        if self.stale.is_some_and(|stale| stale != file) {
            return;
        }
        let older = self
            .copy
            .as_ref()
            .and_then(|(copy, _)| fs::read(copy.path().join(file)).ok());
        self.story.push(format!(
            "{file}: {}",
            if older.is_some() { "older" } else { "gone" }
        ));
        self.stale = Some(file);
        let path = self.store().join(file);
        match older {
            // The older copy of a store that was replaced has the same key, but other commits.
            Some(older) if self.random.below(2) == 0 => fs::write(path, older).unwrap(),
            _ => drop(fs::remove_file(path)),
        }
    }

    fn restore_older_segment(&mut self) {
        let Some((copy, _)) = &self.copy else { return };
        let segments = self.segments();
        let unharmed = |segment: &&PathBuf| {
            self.damage
                .iter()
                .all(|damage| damage.segment() != segment.as_path())
        };
        let unharmed: Vec<_> = segments.iter().filter(unharmed).cloned().collect();
        let older = |segment: &PathBuf| {
            fs::read(copy.path().join("log").join(segment.file_name().unwrap())).ok()
        };
        let candidates = unharmed
            .into_iter()
            .filter_map(|segment| Some((older(&segment)?, segment)));
        let differs = |(older, segment): &(Vec<u8>, PathBuf)| *older != fs::read(segment).unwrap();
        let candidates: Vec<_> = candidates.filter(differs).collect();
        if candidates.is_empty() {
            return;
        }
        let (older, segment) =
            candidates[self.random.below(candidates.len() as u64) as usize].clone();
        let newer = fs::read(&segment).unwrap();
        fs::write(&segment, &older).unwrap();
        self.story.push(format!("an older {}", segment.display()));
        self.damage.push(Damage::Older {
            segment,
            older,
            newer,
        });
    }

    fn step(&mut self) {
        match self.random.below(14) {
            0..=2 => self.write(),
            3 | 4 => self.damage_segment(),
            5 | 6 => self.undo_damage(),
            7 => drop(self.run_fsck(Repair::Yes)),
            8 => self.collect_garbage(),
            10 => self.copy_store(),
            11 => self.restore_older_store(),
            12 => self.restore_older_head(),
            13 => self.restore_older_segment(),
            _ => {
                self.story.push("the index is lost".to_owned());
                let _ = fs::remove_dir_all(self.store().join("index"));
            }
        }
    }

    /// Checks that every query returns the acknowledged records, or reports a loss. Returns whether
    /// everything can be read.
    fn check_answers(&self, store: &LogStore) -> bool {
        let listing = store.processes().unwrap();
        let mut whole = listing.all_losses().next().is_none();
        for (pid, last) in &self.acknowledged {
            let is_listed = listing.rows.iter().any(|row| row.pid.0 == *pid);
            assert!(
                is_listed || listing.all_losses().next().is_some(),
                "process {pid} is not listed: {:?}",
                self.story
            );
            match store.journal(Pid(*pid), None) {
                Ok(journal) => {
                    let end = journal.base.plus(journal.facts.len());
                    assert_eq!(end, FactNumber(*last), "process {pid}: {:?}", self.story);
                    let expected: Vec<_> = (journal.base.0 + 1..=*last)
                        .map(|number| fact(*pid, number))
                        .collect();
                    assert_eq!(journal.facts, expected, "process {pid}: {:?}", self.story);
                }
                Err(StoreError::Damaged { .. } | StoreError::Lost { .. }) => whole = false,
                Err(error) => panic!("process {pid}: {error}: {:?}", self.story),
            }
            whole &= store
                .facts(Pid(*pid), FactNumber(1), FactNumber(*last))
                .is_ok();
        }
        assert!(
            listing
                .rows
                .iter()
                .all(|row| self.acknowledged.contains_key(&row.pid.0)),
            "{:?}",
            self.story
        );
        whole
    }

    /// `fsck` must find nothing if and only if everything can be read.
    fn check(&mut self) {
        let before: Vec<_> = files(&self.store())
            .iter()
            .map(|file| fs::read(file).unwrap())
            .collect();
        let found = self.run_fsck(Repair::No);
        let read = self.options().read_only(self.store());
        self.story.push(format!("read: {}", describe_result(&read)));
        let whole = read.as_ref().is_ok_and(|store| self.check_answers(store));
        let after: Vec<_> = files(&self.store())
            .iter()
            .map(|file| fs::read(file).unwrap())
            .collect();
        assert!(before == after, "to look changes nothing: {:?}", self.story);
        if found.as_ref().is_some_and(Vec::is_empty) {
            assert!(
                whole,
                "fsck finds nothing, and not all can be read: {:?}",
                self.story
            );
        }
        if self.damage.is_empty() {
            let only_head =
                |finding: &String| self.stale.is_some_and(|file| finding.starts_with(file));
            let found = found.map(|found| {
                found
                    .into_iter()
                    .filter(|found| !only_head(found))
                    .collect::<Vec<_>>()
            });
            assert_eq!(
                found,
                Some(Vec::new()),
                "all was put back: {:?}",
                self.story
            );
        }
        self.with_open_store("look", |this, store| {
            // An index that was flushed before the damage may have entries that a rebuilt index
            // lacks, but not the reverse.
            let opened = this.check_answers(store);
            assert!(
                opened || !whole,
                "a reader finds all, and who writes does not: {:?}",
                this.story
            );
        });
    }

    fn run(&mut self) {
        self.write();
        for _ in 0..STEPS {
            self.step();
            self.check();
        }
        while !self.damage.is_empty() {
            self.undo_damage();
            self.check();
        }
    }
}

#[test]
fn no_sequence_of_damage_and_recovery_loses_data_of_the_log() {
    let number = |name: &str| {
        std::env::var(name)
            .ok()
            .and_then(|number| number.parse::<u64>().ok())
    };
    let (first, many) = match number("SEQUENCE_SEED") {
        Some(seed) => (seed, 1),
        None => (1, number("SEQUENCES").unwrap_or(25)),
    };
    for seed in first..first + many {
        Sequence::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1).run();
    }
}
