//! Walks over the log from record to record, and reports each record, each commit and each damaged
//! range. The walk also finds where the log ends.
//!
//! **How a torn tail is distinguished from damage.** Each record contains the number of the latest
//! commit that was synced when the record was written. If a bad record is found where commit *n+1*
//! should be, it is
//! * damage, if it precedes HEAD's position, because HEAD covers it (LOG-3);
//! * damage, if it follows HEAD's position and a later record says that *n+1* was synced. Other
//!   later records prove nothing: the disk may have kept the end of a write and lost its beginning;
//! * otherwise the torn tail of a commit that was never acknowledged. The walk ends before it
//!   (LOG-2).
//!
//! After damage, the walk continues at the next header that verifies. Such a header is genuine
//! (`record_header`), so the search cannot be misled by bytes inside a content.
//!
//! A compacted segment is one record, the stub. The stub contains the hash of the last record that
//! the segment had, so that the hash chain continues after it.
//!
//! The walk reads headers, and payloads only after HEAD's position. It changes nothing.

use dormouse_actors::ports::StoreError;

use crate::error::damaged;
use crate::header_window::HeaderWindow;
use crate::log::{Log, record_end};
use crate::log_position::{Hash, Location, LogPosition};
use crate::record_header::{CheckedHeader, HEADER_BYTES, PlaceInCommit, RecordHeader, RecordKind};
use crate::search;

/// The greatest length at which a segment is started. It bounds how many records a missing segment
/// can have contained.
pub(crate) const MAX_SEGMENT_BYTES: u64 = 8 << 30;
/// As many records as a segment can contain, since each has a header.
const SEGMENT_RECORDS: u64 = MAX_SEGMENT_BYTES / HEADER_BYTES as u64;

/// A range of the log without a recognisable record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LostRange {
    /// The first byte of the range.
    pub(crate) start: Location,
    /// Where the next recognisable record starts.
    pub(crate) end: Location,
    /// No record in the range was first written before this commit, unless it was moved there.
    pub(crate) first_commit: u64,
    /// No record in the range belongs to a later commit than this.
    pub(crate) last_commit: u64,
}

impl LostRange {
    /// An upper bound of the records in the range. The length of a missing segment is unknown.
    pub(crate) fn max_records(&self) -> u64 {
        let spanned =
            u64::from(self.end.segment.saturating_sub(self.start.segment)) * SEGMENT_RECORDS;
        spanned
            + self
                .end
                .offset
                .saturating_sub(if spanned > 0 { 0 } else { self.start.offset })
                / HEADER_BYTES as u64
    }
}

/// An item that the walk reports.
#[derive(Debug)]
pub(crate) enum WalkItem {
    /// A record of a complete commit.
    Record(Location, RecordHeader),
    /// The end of a commit whose records were all reported: the log is undamaged up to here.
    Commit(LogPosition),
    /// Damage.
    LostRange(LostRange),
}

/// Walks the log from `from` to its end, and passes each item to `visit`, commit by commit. Returns
/// the position of the last complete commit. Bytes after it are a torn tail.
///
/// # Errors
/// [`StoreError::Damaged`] if the log is not the one that `head` belongs to, and the errors of
/// `visit`.
pub(crate) fn walk<E: From<StoreError>>(
    log: &Log,
    from: LogPosition,
    head: LogPosition,
    visit: &mut dyn FnMut(WalkItem) -> Result<(), E>,
) -> Result<LogPosition, E> {
    let mut walk = Walk::new(log, from, head);
    walk.run(visit)?;
    walk.check_end()?;
    Ok(walk.last_good)
}

/// Where a log ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogEnd {
    /// The last complete commit.
    pub(crate) last_good: LogPosition,
    /// The highest commit of which a record was found.
    pub(crate) highest_commit: u64,
    /// Whether damage follows the last complete commit, so that the true end is unknown.
    pub(crate) is_end_unknown: bool,
}

/// Walks the whole log, and accepts a log whose end is damaged.
///
/// # Errors
/// As [`walk`], but damage at the end is no error.
pub(crate) fn walk_all<E: From<StoreError>>(
    log: &Log,
    head: LogPosition,
    visit: &mut dyn FnMut(WalkItem) -> Result<(), E>,
) -> Result<LogEnd, E> {
    let mut walk = Walk::new(log, LogPosition::EMPTY, head);
    walk.run(visit)?;
    Ok(LogEnd {
        last_good: walk.last_good,
        highest_commit: walk.highest_commit,
        is_end_unknown: walk.trailing_damage.is_some(),
    })
}

/// Refuses a log that was not written by the store that `head` belongs to. Reads all headers. The
/// caller has found the record that HEAD names unreadable, and distinguishes damage from the log of
/// another store.
///
/// # Errors
/// [`StoreError::Damaged`].
pub(crate) fn check_written_by_store(log: &Log, head: LogPosition) -> Result<(), StoreError> {
    let mut recognised = false;
    walk(log, LogPosition::EMPTY, head, &mut |found| {
        recognised |= matches!(found, WalkItem::Record(at, _) if at < head.end);
        Ok::<_, StoreError>(())
    })?;
    if recognised {
        return Ok(());
    }
    Err(damaged(format!(
        "nothing in the log was written by the store that HEAD belongs to, which had reached {}. \
         Restore the log of this store, or a copy of HEAD and log together",
        head.end
    )))
}

/// The state of a walk.
struct Walk<'a> {
    log: &'a Log,
    window: HeaderWindow<'a>,
    head: LogPosition,
    at: Location,
    /// The end of the record before `at`; in an earlier segment if `at` is the start of one.
    previous_end: Location,
    /// The hash of the record before `at`; `None` after damage.
    chain: Option<Hash>,
    last_good: LogPosition,
    /// Good records of a commit whose last record has not been reached.
    pending: Vec<(Location, RecordHeader)>,
    /// The highest commit of which a record was accepted.
    highest_commit: u64,
    /// The latest commit that is synced, according to the later records read so far.
    latest_synced: u64,
    /// Damage after the last good commit.
    trailing_damage: Option<LostRange>,
}

impl<'a> Walk<'a> {
    fn new(log: &'a Log, from: LogPosition, head: LogPosition) -> Self {
        let at = from.end;
        let previous_end = from.end;
        let chain = Some(from.chain);
        let window = HeaderWindow::new(log);
        let highest_commit = from.commit;
        let pending = Vec::new();
        Self {
            log,
            window,
            head,
            at,
            previous_end,
            chain,
            last_good: from,
            pending,
            highest_commit,
            latest_synced: 0,
            trailing_damage: None,
        }
    }

    fn run<E: From<StoreError>>(
        &mut self,
        visit: &mut dyn FnMut(WalkItem) -> Result<(), E>,
    ) -> Result<(), E> {
        while self.enter_segment() {
            self.report_gap_before_head(visit)?;
            let header = self.window.header(self.at)?;
            let is_covered_by_head = self.at < self.head.end;
            match header {
                Some(checked) if is_covered_by_head => {
                    self.check_against_head(&checked)?;
                    self.accept_record(checked, visit)?;
                }
                Some(checked) if self.is_trusted(&checked)? => {
                    self.accept_record(checked, visit)?
                }
                None if is_covered_by_head => self.skip_before_head(visit)?,
                None if self.was_next_commit_synced()? => {
                    match search::find_next_header(self.log, self.at)? {
                        Some(next) => self.skip_to(next, self.commit_at(next)?, visit)?,
                        None => break,
                    }
                }
                _ => break,
            }
        }
        self.report_gap_before_head(visit)
    }

    /// Reports a lost range if the walk has passed HEAD's position without finding the commit that
    /// ends there, for instance because a segment was cut between two records.
    fn report_gap_before_head<E: From<StoreError>>(
        &mut self,
        visit: &mut dyn FnMut(WalkItem) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.at < self.head.end || self.last_good.end >= self.head.end {
            return Ok(());
        }
        self.report_pending(visit)?;
        visit(WalkItem::LostRange(self.lost_range(
            self.previous_end,
            self.head.end,
            self.head.commit,
        )))?;
        self.continue_at_head(visit)
    }

    /// Continues from HEAD's position, even if the records before it are damaged.
    fn continue_at_head<E>(
        &mut self,
        visit: &mut dyn FnMut(WalkItem) -> Result<(), E>,
    ) -> Result<(), E> {
        self.chain = Some(self.head.chain);
        self.last_good = self.head;
        self.trailing_damage = None;
        self.previous_end = self.head.end;
        self.highest_commit = self.head.commit;
        visit(WalkItem::Commit(self.head))
    }

    /// The lost range from `start` to `end`, whose records belong to commits up to `last_commit`.
    fn lost_range(&self, start: Location, end: Location, last_commit: u64) -> LostRange {
        let has_begun = self.last_good.commit != self.highest_commit;
        let first_commit = if has_begun {
            self.highest_commit
        } else {
            self.highest_commit + 1
        };
        LostRange {
            start,
            end,
            first_commit,
            last_commit,
        }
    }

    /// Refuses a log whose last complete commit is followed by damage: cutting the rest as a torn
    /// tail would hide the damage.
    fn check_end(&self) -> Result<(), StoreError> {
        let Some(lost) = self.trailing_damage else {
            return Ok(());
        };
        Err(damaged(format!(
            "the log cannot be read from {} on, and no whole commit follows. Cutting it there \
             could lose acknowledged commits. Restore a copy of HEAD and log together",
            lost.start
        )))
    }

    /// Moves to the next segment at the end of one. Returns `false` at the end of the log.
    fn enter_segment(&mut self) -> bool {
        let last = self.log.numbers().last().copied().unwrap_or(0);
        let end = self
            .log
            .segment(self.at.segment)
            .map(|segment| segment.end());
        // HEAD proves that a commit ended here, even if the segment is shorter now or missing.
        let is_over = end == Some(self.at.offset)
            || (self.at == self.head.end && end.is_none_or(|end| end < self.at.offset));
        if is_over && self.at.segment < last {
            self.at = Location::start_of(self.at.segment + 1);
        }
        self.at.segment < last || end.is_some_and(|end| self.at.offset < end)
    }

    /// Whether a record after HEAD's position is part of the log: its payload is whole, or a later
    /// record shows that its commit was synced.
    fn is_trusted(&mut self, checked: &CheckedHeader) -> Result<bool, StoreError> {
        Ok(self.log.is_whole(self.at, &checked.header)? || self.was_next_commit_synced()?)
    }

    fn check_against_head(&self, checked: &CheckedHeader) -> Result<(), StoreError> {
        let end = record_end(self.at, &checked.header);
        let is_other_log = end > self.head.end && end.segment == self.head.end.segment;
        if is_other_log || (end == self.head.end && checked.hash != self.head.chain) {
            return Err(damaged(format!(
                "the log is not the one that HEAD belongs to: they differ at {}. Restore a copy of \
                 HEAD and log together",
                self.at
            )));
        }
        Ok(())
    }

    /// Refuses a commit number that does not rise: the log consists of two copies of the store.
    fn check_order(&self, header: &RecordHeader) -> Result<(), StoreError> {
        if header.commit > self.highest_commit {
            return Ok(());
        }
        Err(damaged(format!(
            "the segments before {:08} hold commits up to {}, and it continues with commit {}: \
             they come from two copies of the store that were written independently. Restore \
             HEAD, HEAD2 and the log of one of them together",
            self.at.segment, self.highest_commit, header.commit
        )))
    }

    fn accept_record<E: From<StoreError>>(
        &mut self,
        checked: CheckedHeader,
        visit: &mut dyn FnMut(WalkItem) -> Result<(), E>,
    ) -> Result<(), E> {
        let at = self.at;
        let CheckedHeader { header, hash } = checked;
        if self.chain.is_some_and(|chain| chain != header.previous) {
            self.check_order(&header)?;
            self.report_pending(visit)?;
            visit(WalkItem::LostRange(self.lost_range(
                self.previous_end,
                at,
                header.commit,
            )))?;
        }
        if header.kind == RecordKind::SegmentCompacted {
            return self.skip_compacted(header, visit);
        }
        if self
            .pending
            .first()
            .is_some_and(|(_, first)| first.commit != header.commit)
        {
            self.report_pending(visit)?;
        }
        self.at = record_end(at, &header);
        self.previous_end = self.at;
        self.chain = Some(hash);
        self.highest_commit = self.highest_commit.max(header.commit);
        let ended_commit = (header.place == PlaceInCommit::Last).then_some(header.commit);
        self.pending.push((at, header));
        if let Some(commit) = ended_commit {
            self.report_pending(visit)?;
            self.last_good = LogPosition {
                end: self.at,
                last: at.offset,
                chain: hash,
                commit,
            };
            self.trailing_damage = None;
            visit(WalkItem::Commit(self.last_good))?;
        }
        Ok(())
    }

    /// Continues after a compacted segment. No commit ends here: HEAD's position is always in a
    /// later segment.
    fn skip_compacted<E>(
        &mut self,
        header: RecordHeader,
        visit: &mut dyn FnMut(WalkItem) -> Result<(), E>,
    ) -> Result<(), E> {
        self.report_pending(visit)?;
        let at = self.at;
        self.at = record_end(at, &header);
        self.chain = Some(header.payload_hash);
        self.previous_end = self.at;
        self.highest_commit = self.highest_commit.max(header.commit);
        visit(WalkItem::Record(at, header))
    }

    /// Passes the pending records to `visit`.
    fn report_pending<E>(
        &mut self,
        visit: &mut dyn FnMut(WalkItem) -> Result<(), E>,
    ) -> Result<(), E> {
        self.pending
            .drain(..)
            .try_for_each(|(at, header)| visit(WalkItem::Record(at, header)))
    }

    /// Reports the lost range up to `to`, and continues there.
    fn skip_to<E>(
        &mut self,
        to: Location,
        up_to: u64,
        visit: &mut dyn FnMut(WalkItem) -> Result<(), E>,
    ) -> Result<(), E> {
        self.report_pending(visit)?;
        let lost = self.lost_range(self.at, to, up_to);
        visit(WalkItem::LostRange(lost))?;
        self.at = to;
        self.previous_end = to;
        self.chain = None;
        self.trailing_damage = Some(lost);
        Ok(())
    }

    fn commit_at(&self, at: Location) -> Result<u64, StoreError> {
        Ok(self
            .log
            .header(at)?
            .map_or(u64::MAX, |checked| checked.header.commit))
    }

    /// Continues after damage at the next record or at HEAD's position, whichever comes first. At
    /// HEAD's position a record is known to end.
    fn skip_before_head<E: From<StoreError>>(
        &mut self,
        visit: &mut dyn FnMut(WalkItem) -> Result<(), E>,
    ) -> Result<(), E> {
        match search::find_next_header(self.log, self.at)? {
            Some(next) if next < self.head.end => self.skip_to(next, self.commit_at(next)?, visit),
            _ => {
                self.skip_to(self.head.end, self.head.commit, visit)?;
                self.continue_at_head(visit)
            }
        }
    }

    /// Whether a later record shows that the commit expected here was synced.
    fn was_next_commit_synced(&mut self) -> Result<bool, StoreError> {
        // If a commit has begun, the bad record belongs to it.
        let has_begun = self.last_good.commit != self.highest_commit;
        let wanted = if has_begun {
            self.highest_commit
        } else {
            self.highest_commit + 1
        };
        let mut at = self.at;
        while self.latest_synced < wanted {
            let Some(next) = search::find_next_header(self.log, at)? else {
                break;
            };
            let Some(checked) = self.log.header(next)? else {
                break;
            };
            self.latest_synced = self.latest_synced.max(checked.header.synced);
            at = record_end(next, &checked.header);
        }
        Ok(self.latest_synced >= wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log_store::LogStore;

    /// The estimate of the last pid depends on it: no pid may be used twice.
    #[test]
    fn a_missing_segment_contained_no_more_records_than_are_assumed() {
        let missing = LostRange {
            start: Location::start_of(1),
            end: Location::start_of(2),
            first_commit: 1,
            last_commit: 2,
        };
        for bytes in [256 << 20, 1 << 30, MAX_SEGMENT_BYTES, u64::MAX] {
            let longest = LogStore::options().segment_bytes(bytes).segment_bytes;
            assert!(
                missing.max_records() >= longest / HEADER_BYTES as u64,
                "{bytes}"
            );
        }
    }
}
