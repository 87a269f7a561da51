//! Checks a store: reads every record with its payload, and reports each damage with its
//! consequences. A repair removes or acknowledges the damage.
//!
//! `log_scan.rs` reads the log, with the help of `log_walk.rs`, which finds damaged ranges and the
//! log's end; `issue.rs` lists the kinds of damage. A check changes nothing, and builds the same
//! process table as an opening does. A repair never loses anything that can still be read:
//! * the index is rebuilt;
//! * a damaged snapshot is dropped if an earlier one leads to the same state;
//! * a damaged content is recorded as lost, so that a reader gets the error at once and the next
//!   commit of the content stores it again;
//! * HEAD is rewritten from its other file;
//! * if the log ends before HEAD's position, a new segment takes the place of the missing end, and
//!   the log continues in it. Its first record follows the commit that HEAD names, so that the
//!   missing segments can still be restored later;
//! * if both files of HEAD are lost, or damage follows the last whole commit, the end of the log is
//!   unknown. The new segment then has no predecessor in the hash chain, which shows permanently
//!   that records may be missing before it;
//! * every other loss is acknowledged: a query for a lost record still fails, but the loss is no
//!   longer listed among the unacknowledged ones when the store is opened.
//!
//! Segments with damage are never changed, so that a copy can still be restored over them.

use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::Path;
use std::sync::Arc;

use dormouse_actors::garbage::EncodedRecord;
use dormouse_actors::ports::{StoreError, SyncLevel};
use dormouse_proto::id::Pid;

use crate::disk::{OsDisk, ReadOnlyDisk};
use crate::error::{damaged, io};
use crate::head::{Head, HeadFiles};
use crate::issue::Issue;
use crate::location_index::LocationIndex;
use crate::lock::StoreLock;
use crate::log::{Log, segment_numbers};
use crate::log_position::{Hash, Location, LogPosition};
use crate::log_scan::{Health, LogScan, ProcessRecords, ScannedContent};
use crate::log_store::LogStore;
use crate::log_walk::LogEnd;
use crate::options::Options;
use crate::read_only::{Attempt, open_consistent, retry_during_writes};
use crate::record_builder::RecordBuilder;
use crate::record_header::{HEADER_BYTES, RecordHeader};
use crate::recovery::{check_log, check_secret, check_tail, is_truncated};
use crate::segment::Segment;
use dormouse_records::secret::{NO_CHECK, StoreKey, StoreSecret, secret_check};

/// The owner number of a store whose HEAD was lost: higher than any that was ever claimed.
const OWNER_AFTER_LOST_HEAD: u64 = 1 << 40;

/// Whether damage is repaired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    /// Damage is only reported.
    No,
    /// Repairable damage is repaired, and the rest is acknowledged.
    Yes,
}

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FsckReport {
    /// How many records were read.
    pub records: u64,
    /// The size of the log.
    pub bytes: u64,
    /// The damage.
    pub issues: Vec<Issue>,
    /// Damage that an earlier repair acknowledged.
    pub acknowledged: Vec<Issue>,
}

/// Checks the store in `dir` with `options`, and repairs it afterwards if `repair` is
/// [`Repair::Yes`]. `visit` receives every readable image, fact and change of temporary files,
/// possibly more than once, so that the caller can decode which contents they reference. Costs a
/// pass over the whole log; a repair costs two or three.
///
/// A check without a repair takes no lock and changes no byte. It works on a read-only file system.
/// If another program writes the store, the check sees the store as it was at one moment. A repair
/// takes the store's lock, and acknowledges the damage that it cannot repair.
///
/// # Errors
/// [`StoreError::InUse`] for a repair; [`StoreError::Key`] if the store is encrypted with another
/// key, or is not encrypted; [`StoreError::Damaged`] if log and HEAD do not belong together, or
/// nothing contains the key of the store: nothing is changed in these cases. [`StoreError::Io`].
pub fn fsck(
    dir: &Path,
    options: &Options,
    repair: Repair,
    visit: &mut dyn FnMut(Pid, EncodedRecord<'_>),
) -> Result<FsckReport, StoreError> {
    let log = dir.join("log");
    match log.metadata() {
        Ok(found) if !found.is_dir() => {
            return Err(damaged(format!(
                "{} is not a store: its log is not a folder",
                dir.display()
            )));
        }
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(io(format!("look into {}", log.display()))(error));
        }
        // A missing log folder is reported as a log without segments.
        _ => {}
    }
    // The secret is checked before the lock is taken: a caller with the wrong key changes nothing,
    // not even LOCK.
    if let Some(head) = read_head(dir)?.best {
        check_secret(&head, options.secret.as_ref(), dir)?;
    }
    if repair == Repair::No {
        return inspect(dir, options, visit).map(|inspection| inspection.report());
    }
    // The repair opens the folder several times under one lock, so symbolic links are resolved once.
    let dir = &std::fs::canonicalize(dir).map_err(io(format!("find {}", dir.display())))?;
    let lock = StoreLock::acquire(dir)?;
    let inspection = inspect(dir, options, visit)?;
    let mut report = inspection.report();
    if report.issues.iter().any(Issue::blocks_repair) {
        return Ok(report);
    }
    let segment_added = inspection.add_segment(dir, options.secret.as_ref())?;
    LocationIndex::remove(&dir.join("index")).map_err(io("remove the index"))?;
    let at_ms = inspection.scan.end_ms;
    drop(inspection);
    let mut store = LogStore::open_locked(dir, options, lock)?;
    if segment_added == SegmentAdded::Yes {
        store.start_segment(at_ms)?;
        // Opened anew, the store sees the lost range before the new segment. The lock stays taken.
        store = store.reopen(options)?;
    }
    let found = repair_issues(&store)?;
    if segment_added == SegmentAdded::Yes {
        // The new segment makes the missing end visible as a lost range.
        let new: Vec<_> = found
            .into_iter()
            .filter(|issue| !report.issues.contains(issue))
            .collect();
        report
            .issues
            .retain(|issue| !matches!(issue, Issue::LostRange { .. }));
        report.issues.extend(new);
    }
    Ok(report)
}

/// Reads the files of HEAD. Damage to both is not an error here.
fn read_head(dir: &Path) -> Result<HeadFiles, StoreError> {
    Head::read_files(&ReadOnlyDisk::default(), dir)
}

/// The state of a store at one moment.
struct Inspection {
    /// `None` if HEAD is lost.
    head: Option<Head>,
    /// The files of HEAD that are missing or damaged.
    faulty_files: Vec<&'static str>,
    log: Log,
    scan: LogScan,
    end_of_log: LogEnd,
}

/// Whether a repair started a segment in place of the missing end of the log.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SegmentAdded {
    No,
    Yes,
}

/// Reads the whole store without changing it.
fn inspect(
    dir: &Path,
    options: &Options,
    visit: &mut dyn FnMut(Pid, EncodedRecord<'_>),
) -> Result<Inspection, StoreError> {
    let secret = options.secret.as_ref();
    retry_during_writes(|| {
        let HeadFiles {
            best, faulty_files, ..
        } = read_head(dir)?;
        let (head, log) = match best {
            Some(_) => {
                let (head, log) = open_consistent(dir, options)?;
                (Some(head), log)
            }
            None => {
                let keys = check_secret(&recover_head(dir, secret)?, secret, dir)?;
                let disk = Arc::new(ReadOnlyDisk::throttled(options.throttle.clone()));
                (None, Log::open(disk, &dir.join("log"), keys)?)
            }
        };
        let position = head.map_or(LogPosition::EMPTY, |head| head.position);
        let (scan, end_of_log) = match is_truncated(&log, position) {
            false => {
                check_log(&log, position)?;
                LogScan::read(&log, position, visit)?
            }
            true => {
                let (scan, end_of_log) = LogScan::read(&log, position, visit)?;
                if scan.records == 0 {
                    check_log(&log, position)?;
                }
                (scan, end_of_log)
            }
        };
        let may_be_in_progress =
            head.is_some() && scan.index.processes().has_loss_after(position.end);
        let inspection = Inspection {
            head,
            faulty_files,
            log,
            scan,
            end_of_log,
        };
        Ok(match may_be_in_progress {
            true => Attempt::DamagedAfterHead(Ok(inspection)),
            false => Attempt::Certain(inspection),
        })
    })
}

impl Inspection {
    fn report(&self) -> FsckReport {
        let table = self.scan.index.processes();
        let acknowledged = table.acknowledged_losses();
        let (acknowledged, rest) = issues(&self.scan)
            .into_iter()
            .partition(|issue| acknowledged.contains(&issue.clone().identity()));
        let head = self.faulty_files.iter().map(|file| Issue::Head {
            file: (*file).to_owned(),
        });
        let issues = head.chain(self.end_issues()).chain(rest).collect();
        FsckReport {
            records: self.scan.records,
            bytes: self.log.bytes(),
            issues,
            acknowledged,
        }
    }

    /// Issues with the end of the log.
    fn end_issues(&self) -> Vec<Issue> {
        let last_whole = self.scan.last_whole;
        let mut issues = Vec::new();
        match self.head {
            Some(head) if is_truncated(&self.log, head.position) => {
                let commits = head.position.commit.saturating_sub(last_whole.commit);
                issues.push(Issue::LogTooShort {
                    end: last_whole.end,
                    head: head.position.end,
                    commits,
                });
            }
            Some(_) if !self.end_of_log.is_end_unknown => {}
            _ => issues.push(Issue::UnknownEnd {
                end: last_whole.end,
                commit: last_whole.commit,
            }),
        }
        if check_tail(&self.log, self.end_of_log.last_good).is_err() {
            let segment = self.log.numbers().last().copied().unwrap_or_default();
            issues.push(Issue::StraySegment {
                end: self.end_of_log.last_good.end,
                segment,
            });
        }
        issues
    }

    /// Starts a new segment if the log does not end with a whole commit that HEAD covers. Rewrites
    /// HEAD if one of its files is damaged.
    fn add_segment(
        &self,
        dir: &Path,
        secret: Option<&StoreSecret>,
    ) -> Result<SegmentAdded, StoreError> {
        let last = self.log.numbers().last().copied().unwrap_or_default();
        let (head, number) = match self.head {
            Some(head) if is_truncated(&self.log, head.position) => {
                (head, Some(head.position.end.segment + 1))
            }
            Some(head) if !self.end_of_log.is_end_unknown => (head, None),
            head => {
                let head = match head {
                    Some(head) => head,
                    None => Head {
                        owner: OWNER_AFTER_LOST_HEAD,
                        ..recover_head(dir, secret)?
                    },
                };
                let end = Location::start_of(last + 1);
                // No record has this hash, so the chain stays visibly broken here.
                let position = LogPosition {
                    end,
                    last: 0,
                    chain: [0; 32],
                    commit: self.end_of_log.highest_commit,
                };
                (Head { position, ..head }, Some(last + 1))
            }
        };
        if let Some(number) = number {
            let log = Log::open(Arc::new(OsDisk), &dir.join("log"), self.log.keys().clone())?;
            log.add_segment(number)
                .map_err(io("start a segment after the lost range"))?;
        }
        if number.is_some() || !self.faulty_files.is_empty() {
            head.write_both(&OsDisk, dir).map_err(io("write HEAD"))?;
        }
        Ok(if number.is_some() {
            SegmentAdded::Yes
        } else {
            SegmentAdded::No
        })
    }
}

/// The most losses in one record.
const LOSSES_PER_RECORD: usize = 1_000;

/// Writes records that drop damaged snapshots, declare damaged contents lost, and acknowledge all
/// other losses. Returns the issues found.
fn repair_issues(store: &LogStore) -> Result<Vec<Issue>, StoreError> {
    let position = store.writer().position();
    let (scan, _) = LogScan::read(&store.log, position, &mut |_, _| {})?;
    let acknowledged = scan.index.processes().acknowledged_losses();
    let found = issues(&scan);
    let mut records = Vec::new();
    let mut losses = Vec::new();
    records.extend(damaged_contents(&scan).map(|(name, _)| RecordBuilder::content_lost(*name)));
    for issue in &found {
        match issue.clone().identity() {
            Issue::Snapshot { pid, at } => records.push(RecordBuilder::snapshot_dropped(pid, at)),
            Issue::Content { .. } => {}
            loss if acknowledged.contains(&loss) => {}
            loss => losses.push(loss),
        }
    }
    store.write_repair_records(records, scan.end_ms)?;
    store.acknowledge_losses(&losses, LOSSES_PER_RECORD, scan.end_ms)?;
    Ok(found)
}

impl LogStore {
    /// Starts an empty segment durably, and covers it by HEAD.
    ///
    /// # Errors
    /// As those of a commit.
    fn start_segment(&self, at_ms: u64) -> Result<(), StoreError> {
        let mut writer = self.writer();
        let written = writer.start_segment(at_ms)?;
        self.apply_commit(&writer, &written);
        writer.sync_head().map_err(io("write HEAD"))
    }

    /// Acknowledges losses durably, with at most `per_record` of them in one record. Each record is
    /// a commit of its own, because the process table has one list of losses for each commit. If
    /// this is interrupted, the next repair acknowledges the rest.
    ///
    /// # Errors
    /// As those of a commit.
    pub(crate) fn acknowledge_losses(
        &self,
        losses: &[Issue],
        per_record: usize,
        at_ms: u64,
    ) -> Result<(), StoreError> {
        losses.chunks(per_record).try_for_each(|losses| {
            self.write_repair_records(vec![RecordBuilder::losses_acknowledged(losses)?], at_ms)
        })
    }

    /// Writes the records of a repair as one durable commit.
    ///
    /// # Errors
    /// As those of a commit.
    pub(crate) fn write_repair_records(
        &self,
        builders: Vec<RecordBuilder>,
        at_ms: u64,
    ) -> Result<(), StoreError> {
        let mut writer = self.writer();
        if !builders.is_empty() {
            let encoded = writer.encode(builders, at_ms)?;
            let written = writer.append(encoded, SyncLevel::Synced)?;
            self.apply_commit(&writer, &written);
        }
        Ok(())
    }
}

fn issues(scan: &LogScan) -> Vec<Issue> {
    let table = scan.index.processes();
    let damaged_starts = scan
        .damaged_starts
        .iter()
        .map(|segment| Issue::SegmentStart { segment: *segment });
    let processes = scan
        .processes
        .iter()
        .flat_map(|(pid, records)| process_issues(*pid, records));
    let contents = damaged_contents(scan).map(|(_, content)| Issue::Content { hash: content.hash });
    let losses = table
        .losses()
        .into_iter()
        .chain(damaged_starts)
        .chain(table.may_continue_in_loss());
    losses.chain(processes).chain(contents).collect()
}

fn damaged_contents(scan: &LogScan) -> impl Iterator<Item = (&Hash, &ScannedContent)> {
    scan.contents
        .iter()
        .filter(|(_, content)| content.health == Some(Health::Damaged))
}

/// The most lost changes that are listed per tree: a forged header can claim any number of them.
const MAX_LISTED_LOST_CHANGES: usize = 1_000;

fn process_issues(pid: Pid, records: &ProcessRecords) -> Vec<Issue> {
    let mut issues = Vec::new();
    if records.snapshots.get(&records.oldest_image_at) != Some(&Health::Whole) {
        issues.push(Issue::FirstSnapshot {
            pid,
            readable_from: records.first_image_from(records.oldest_image_at),
        });
    }
    issues.extend(
        records
            .damaged_images()
            .into_iter()
            .map(|at| Issue::Snapshot { pid, at }),
    );
    let facts = records.lost_facts().into_iter();
    issues.extend(facts.map(|(first, last)| Issue::Facts {
        pid,
        first,
        last,
        readable_from: records.first_image_from(last),
    }));
    let last = records
        .temp_files
        .last_key_value()
        .map_or(0, |(number, _)| *number);
    let is_lost = |number: &u64| records.temp_files.get(number) != Some(&Health::Whole);
    let lost = (1..=last).filter(is_lost).take(MAX_LISTED_LOST_CHANGES);
    issues.extend(lost.map(|number| Issue::TempFile { root: pid, number }));
    issues
}

/// Reconstructs a lost HEAD. The first record of each segment contains the store's key, and its
/// header verifies with that key, or with one derived from the key and the secret. A compacted
/// segment has no such record.
fn recover_head(dir: &Path, secret: Option<&StoreSecret>) -> Result<Head, StoreError> {
    let folder = dir.join("log");
    let numbers = segment_numbers(&OsDisk, &folder).map_err(io("look for a log"))?;
    for number in numbers.into_iter().rev() {
        let mut start = Vec::new();
        let file =
            File::open(folder.join(Segment::file_name(number))).map_err(io("open a segment"))?;
        file.take((HEADER_BYTES + size_of::<Hash>()) as u64)
            .read_to_end(&mut start)
            .map_err(io("read a segment"))?;
        let payload = start.get(HEADER_BYTES..HEADER_BYTES + size_of::<Hash>());
        let Some(key) = payload
            .and_then(|bytes| bytes.first_chunk())
            .map(|key| StoreKey(*key))
        else {
            continue;
        };
        let at = Location::start_of(number);
        let check = secret.map_or(NO_CHECK, |secret| secret_check(secret, key));
        let head = Head {
            key,
            owner: 0,
            position: LogPosition::EMPTY,
            check,
        };
        let keys = check_secret(&head, secret, dir)?;
        let verifies =
            |bytes| matches!(RecordHeader::verify(bytes, keys.headers(), at), Ok(Some(_)));
        if start.first_chunk().is_some_and(verifies) {
            return Ok(head);
        }
    }
    Err(damaged(
        "HEAD is lost, and no segment contains the key of the store; if the store is encrypted, \
         only its own secret finds it. Restore a copy of HEAD",
    ))
}
