//! Answers queries: finds records by the index (`index.rs`), and reads them from the log
//! (`record_read.rs`).
//!
//! If a record is not found and may be lost, the query fails with [`StoreError::Damaged`], or with
//! [`StoreError::Lost`] if a repair has acknowledged the loss. It never reports a record that may
//! be lost as one that never existed. Lost ranges are the parts of the log without a recognisable
//! record (`log_walk.rs`).

use std::sync::Arc;

use dormouse_actors::ports::{
    CommittedFacts, History, Journal, LostHistory, StoreError, TempFileChange,
};
use dormouse_proto::id::{CommitNumber, ContentHash, FactNumber, Pid};

use crate::error::damaged;
use crate::index::Index;
use crate::issue::Issue;
use crate::location_index::FactRun;
use crate::log_store::LogStore;
use crate::log_walk::LostRange;
use crate::process_table::{ProcessEntry, row_is_lost};
use crate::record_read;
use crate::stored_content::StoredContent;
use dormouse_records::validator::{check_not_deleted, remove_deleted_facts};

impl LogStore {
    pub(crate) fn read_journal(
        &self,
        pid: Pid,
        up_to: Option<FactNumber>,
    ) -> Result<Journal, StoreError> {
        self.with_acknowledged_losses(pid, || self.load_journal(pid, up_to))
    }

    fn load_journal(&self, pid: Pid, up_to: Option<FactNumber>) -> Result<Journal, StoreError> {
        let entry = self.entry(pid)?;
        let up_to = self.check_upto(pid, &entry, up_to)?;
        let row = entry.row().ok_or_else(|| row_is_lost(pid))?;
        let (base, image) = self.image(pid, entry.oldest_image_at(), up_to)?;
        if base == up_to {
            return Ok(Journal {
                row,
                base,
                image,
                facts: Vec::new(),
            });
        }
        let first = base.plus(1);
        let fact_runs = self.fact_runs(pid, first, up_to)?;
        Ok(Journal {
            row,
            base,
            image,
            facts: record_read::read_facts(&self.log, pid, &fact_runs, first, up_to)?,
        })
    }

    pub(crate) fn read_facts(
        &self,
        pid: Pid,
        first: FactNumber,
        up_to: FactNumber,
    ) -> Result<Vec<Vec<u8>>, StoreError> {
        self.with_acknowledged_losses(pid, || {
            let entry = self.entry(pid)?;
            let first = first.max(FactNumber(1));
            let up_to = self.check_upto(pid, &entry, Some(up_to))?;
            check_not_deleted(pid, first, entry.oldest_image_at())?;
            if first > up_to {
                return Ok(Vec::new());
            }
            let fact_runs = self.fact_runs(pid, first, up_to)?;
            record_read::read_facts(&self.log, pid, &fact_runs, first, up_to)
        })
    }

    pub(crate) fn read_history(
        &self,
        pid: Pid,
        after: CommitNumber,
    ) -> Result<History, StoreError> {
        self.with_acknowledged_losses(pid, || self.load_history(pid, after))
    }

    /// The history without the commits up to `after`. Reads the latest commits first, so that it
    /// stops at the first one that is left out.
    fn load_history(&self, pid: Pid, after: CommitNumber) -> Result<History, StoreError> {
        let entry = self.entry(pid)?;
        let oldest_snapshot = entry.oldest_image_at();
        let last = entry.last;
        let mut locations = Vec::new();
        if oldest_snapshot == FactNumber(0) {
            locations.push(
                entry
                    .creation_row
                    .as_ref()
                    .map(|_| entry.creation_at)
                    .ok_or_else(|| row_is_lost(pid))?,
            );
        }
        if oldest_snapshot < last {
            locations.extend(
                self.query_index(|index| {
                    index.facts_with_gaps(pid, oldest_snapshot.plus(1), last)
                })?
                .iter()
                .map(|run| run.at),
            );
        }
        let mut commits = Vec::new();
        let mut damage = None;
        for at in locations.into_iter().rev() {
            match record_read::read_committed_facts(&self.log, at) {
                // The record was damaged after the index was built: the history has a gap here,
                // unless this is its beginning.
                Err(error @ StoreError::Damaged { .. }) => damage = Some(error),
                read => {
                    let committed: CommittedFacts = read?;
                    damage = None;
                    if committed.commit <= after {
                        break;
                    }
                    commits.push(committed);
                }
            }
        }
        if let Some(damage) = damage {
            return Err(damage);
        }
        commits.reverse();
        commits
            .iter_mut()
            .take(1)
            .for_each(|first| remove_deleted_facts(first, oldest_snapshot));
        let index = self.index();
        let first_lost_commit = index.first_lost_commit(
            entry.last_record,
            index.processes().lost_ranges_after(&entry),
        );
        let mut lost = first_lost_commit.map(|first_commit| LostHistory {
            first_commit,
            what: Self::describe_possible_end(&index, pid, &entry),
        });
        if let Some(last_readable) = commits
            .last()
            .map(CommittedFacts::last)
            .filter(|last_readable| *last_readable < last)
        {
            // A snapshot or an end names a fact whose record is lost.
            let first_commit = commits.last().map_or(CommitNumber(0), |last| last.commit);
            let what = format!(
                "facts {} to {last} of process {pid} are lost",
                last_readable.plus(1)
            );
            lost = Some(LostHistory { first_commit, what });
        }
        Ok(History { pid, commits, lost })
    }

    /// Returns damage as [`StoreError::Lost`] if the loss is acknowledged.
    fn with_acknowledged_losses<T>(
        &self,
        pid: Pid,
        read: impl FnOnce() -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        match read() {
            Err(StoreError::Damaged { what }) if self.is_acknowledged(pid) => {
                Err(StoreError::Lost { what })
            }
            other => other,
        }
    }

    /// Whether the loss of records of a process is acknowledged. An unknown process may be in any
    /// lost range, so its loss is acknowledged if all lost ranges are.
    fn is_acknowledged(&self, pid: Pid) -> bool {
        let index = self.index();
        let table = index.processes();
        if table.entry(pid).is_some() {
            return table.has_acknowledged_loss(pid);
        }
        let acknowledged = table.acknowledged_losses();
        table.lost_ranges().iter().all(|lost| {
            acknowledged.contains(&Issue::LostRange {
                from: lost.start,
                to: lost.end,
            })
        })
    }

    /// Opens a content for reading.
    pub(crate) fn open_content(&self, hash: ContentHash) -> Result<StoredContent, StoreError> {
        let name = self.log.keys().content_name(hash);
        let Some(entry) = self.query_index(|index| index.content(name))? else {
            return Err(match self.index().processes().lost_ranges() {
                [] => StoreError::UnknownContent(hash),
                _ => damaged(format!(
                    "the content {hash} is unknown, and may be in a lost range of the log"
                )),
            });
        };
        if entry.count == 0 {
            return Err(damaged(format!(
                "the content {hash} was damaged on disk and is lost. It is stored again when it is \
                 committed again"
            )));
        }
        let header = record_read::read_header(&self.log, entry.at)?;
        StoredContent::open(
            &self.log,
            entry.at,
            &header,
            Arc::clone(&self.corrupt_contents),
        )
    }

    pub(crate) fn read_temp_files(
        &self,
        root: Pid,
        upto_commit: CommitNumber,
    ) -> Result<Vec<TempFileChange>, StoreError> {
        self.with_acknowledged_losses(root, || self.load_temp_files(root, upto_commit))
    }

    fn load_temp_files(
        &self,
        root: Pid,
        upto_commit: CommitNumber,
    ) -> Result<Vec<TempFileChange>, StoreError> {
        let recorded_changes = self.entry(root)?.temp_files;
        let locations = self.query_index(|index| index.temp_files(root, recorded_changes.last))?;
        let locations = locations.ok_or_else(|| {
            damaged(format!(
                "changes of the temporary files of process {root} are lost"
            ))
        })?;
        let readable = locations
            .into_iter()
            .map(|at| record_read::read_temp_file_change(&self.log, at));
        let mut changes = readable.collect::<Result<Vec<_>, _>>()?;
        let readable = changes.len();
        changes.retain(|change| change.commit <= upto_commit);
        let index = self.index();
        let table = index.processes();
        let lost = || {
            table
                .lost_ranges()
                .iter()
                .filter(|lost| recorded_changes.last_record.may_be_followed_in(lost))
        };
        let upto_commit = table
            .end_of_tree(root)
            .map_or(upto_commit, |last_end| last_end.min(upto_commit));
        let first_lost_commit = index
            .first_lost_commit(recorded_changes.last_record, lost())
            .filter(|first_commit| *first_commit <= upto_commit);
        if changes.len() == readable && first_lost_commit.is_some() {
            return Err(damaged(format!(
                "the temporary files of process {root} may continue after change {}: {}",
                recorded_changes.last,
                describe_ranges(lost())
            )));
        }
        Ok(changes)
    }

    /// Fails if a lost range may hold the record that opened an ended process again.
    pub(crate) fn check_not_reopened_in_loss(&self, pid: Pid) -> Result<(), StoreError> {
        self.with_acknowledged_losses(pid, || {
            let entry = self.entry(pid)?;
            let index = self.index();
            let lost = || {
                let lost = index.processes().lost_ranges().iter();
                lost.filter(|lost| entry.last_record.may_be_followed_in(lost))
            };
            match lost().next() {
                None => Ok(()),
                Some(_) => Err(damaged(format!(
                    "process {pid} has ended, and may have been opened again in what is lost: {}",
                    describe_ranges(lost())
                ))),
            }
        })
    }

    /// The entry of a process that is not deleted.
    pub(crate) fn entry(&self, pid: Pid) -> Result<ProcessEntry, StoreError> {
        let index = self.index();
        match (
            index.processes().entry(pid),
            index.processes().lost_ranges(),
        ) {
            (Some(entry), _) if entry.is_deleted() => Err(StoreError::UnknownProcess(pid)),
            (Some(entry), _) => Ok(entry),
            (None, []) => Err(StoreError::UnknownProcess(pid)),
            (None, lost) => Err(damaged(format!(
                "process {pid} is unknown, and may be lost: {}",
                describe_ranges(lost.iter())
            ))),
        }
    }

    /// The last fact of a journal that was requested up to `up_to`. Fails if the store does not
    /// have that fact, or if it is unknown which fact is the last.
    fn check_upto(
        &self,
        pid: Pid,
        entry: &ProcessEntry,
        up_to: Option<FactNumber>,
    ) -> Result<FactNumber, StoreError> {
        let requested = up_to.unwrap_or(entry.last);
        let oldest_snapshot = entry.oldest_image_at();
        if requested < oldest_snapshot {
            return Err(StoreError::DeletedFact {
                pid,
                requested,
                first_kept: oldest_snapshot,
            });
        }
        let index = self.index();
        let may_continue = index.processes().lost_ranges_after(entry).next().is_some();
        match (requested <= entry.last, may_continue) {
            (true, false) => Ok(requested),
            (true, true) if up_to.is_some() => Ok(requested),
            (false, false) => Err(StoreError::UnknownFact {
                pid,
                requested,
                last: entry.last,
            }),
            (_, true) => Err(damaged(Self::describe_possible_end(&index, pid, entry))),
        }
    }

    fn describe_possible_end(index: &Index, pid: Pid, entry: &ProcessEntry) -> String {
        format!(
            "the journal of process {pid} may continue after fact {}: {}. It can be read up to \
             that fact",
            entry.last,
            describe_ranges(index.processes().lost_ranges_after(entry))
        )
    }

    /// The records that hold the facts of a process from `first` to `up_to`.
    fn fact_runs(
        &self,
        pid: Pid,
        first: FactNumber,
        up_to: FactNumber,
    ) -> Result<Vec<FactRun>, StoreError> {
        let fact_runs = self.query_index(|index| index.facts(pid, first, up_to))?;
        fact_runs.ok_or_else(|| {
            damaged(format!(
                "facts of process {pid} between {first} and {up_to} are lost"
            ))
        })
    }

    /// The latest readable image between `history_start` and `up_to`.
    fn image(
        &self,
        pid: Pid,
        history_start: FactNumber,
        up_to: FactNumber,
    ) -> Result<(FactNumber, Vec<u8>), StoreError> {
        let mut below = Some(up_to);
        let mut first_error = None;
        while let Some(limit) = below {
            let Some((base, at)) = self.query_index(|index| index.image(pid, limit))? else {
                break;
            };
            match record_read::read_image(&self.log, at) {
                Ok(image) => return Ok((base, image)),
                Err(error @ StoreError::Damaged { .. }) => {
                    tracing::warn!(%pid, %base, %error, "an image is damaged; trying an earlier \
                     one");
                    first_error.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
            below = base
                .0
                .checked_sub(1)
                .map(FactNumber)
                .filter(|below| *below >= history_start);
        }
        Err(first_error.unwrap_or_else(|| {
            damaged(format!(
                "process {pid} has no image at or before fact {up_to} any more"
            ))
        }))
    }
}

/// The lost ranges, for an error.
fn describe_ranges<'a>(lost: impl Iterator<Item = &'a LostRange>) -> String {
    let parts: Vec<_> = lost
        .map(|lost| format!("records are lost from {} to {}", lost.start, lost.end))
        .collect();
    parts.join(", ")
}
