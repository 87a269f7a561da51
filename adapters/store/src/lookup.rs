//! What the store answers: the catalog says where it stands, and the log is read there.
//!
//! What cannot be told apart from what is lost is answered as damage, never as absence.

use std::sync::Arc;

use dormouse_actors::ports::{History, Journal, LostHistory, StoreError, TempFileChange, Written};
use dormouse_proto::id::{CommitNumber, ContentHash, FactNumber, Pid};

use crate::catalog::Catalog;
use crate::error::damaged;
use crate::finding::Finding;
use crate::index::Run;
use crate::log_store::LogStore;
use crate::reader;
use crate::scan::Lost;
use crate::stored::Stored;
use crate::table::{Line, row_is_lost};
use dormouse_records::validator::{check_kept, clip};

impl LogStore {
    pub(crate) fn read_journal(
        &self,
        pid: Pid,
        upto: Option<FactNumber>,
    ) -> Result<Journal, StoreError> {
        self.noting(pid, || self.known_journal(pid, upto))
    }

    fn known_journal(&self, pid: Pid, upto: Option<FactNumber>) -> Result<Journal, StoreError> {
        let line = self.line(pid)?;
        let upto = self.limit(pid, &line, upto)?;
        let row = line.row().ok_or_else(|| row_is_lost(pid))?;
        let (base, image) = self.image(pid, line.since(), upto)?;
        if base == upto {
            return Ok(Journal {
                row,
                base,
                image,
                facts: Vec::new(),
            });
        }
        let first = base.plus(1);
        let runs = self.runs(pid, first, upto)?;
        Ok(Journal {
            row,
            base,
            image,
            facts: reader::facts(&self.log, pid, &runs, first, upto)?,
        })
    }

    pub(crate) fn read_facts(
        &self,
        pid: Pid,
        first: FactNumber,
        upto: FactNumber,
    ) -> Result<Vec<Vec<u8>>, StoreError> {
        self.noting(pid, || {
            let line = self.line(pid)?;
            let (first, upto) = (
                first.max(FactNumber(1)),
                self.limit(pid, &line, Some(upto))?,
            );
            check_kept(pid, first, line.since())?;
            if first > upto {
                return Ok(Vec::new());
            }
            let runs = self.runs(pid, first, upto)?;
            reader::facts(&self.log, pid, &runs, first, upto)
        })
    }

    pub(crate) fn read_history(&self, pid: Pid) -> Result<History, StoreError> {
        self.noting(pid, || self.known_history(pid))
    }

    fn known_history(&self, pid: Pid) -> Result<History, StoreError> {
        let line = self.line(pid)?;
        let (since, last) = (line.since(), line.last);
        let mut places = Vec::new();
        if since == FactNumber(0) {
            places.push(
                line.birth
                    .as_ref()
                    .map(|_| line.born_at)
                    .ok_or_else(|| row_is_lost(pid))?,
            );
        }
        if since < last {
            places.extend(
                self.ask(|catalog| catalog.known_facts(pid, since.plus(1), last))?
                    .iter()
                    .map(|run| run.at),
            );
        }
        let mut written = Vec::new();
        for at in places {
            match reader::written(&self.log, at) {
                // The index is older than the damage: there is a gap.
                Err(StoreError::Damaged { .. }) if !written.is_empty() => {}
                read => written.push(read?),
            }
        }
        written
            .iter_mut()
            .take(1)
            .for_each(|first| clip(first, since));
        let catalog = self.catalog();
        let lost_since = catalog.lost_since(line.touched, catalog.table().goes_on_in(&line));
        let mut lost = lost_since.map(|since| LostHistory {
            since,
            what: Self::may_go_on(&catalog, pid, &line),
        });
        if let Some(known) = written
            .last()
            .map(Written::last)
            .filter(|known| *known < last)
        {
            // A snapshot or an end names a fact whose record is lost.
            let since = written
                .last()
                .map_or(CommitNumber(0), |written| written.commit);
            let what = format!(
                "facts {} to {last} of process {pid} are lost",
                known.plus(1)
            );
            lost = Some(LostHistory { since, what });
        }
        Ok(History { pid, written, lost })
    }

    /// What of a process is lost and was acknowledged is answered so.
    fn noting<T>(
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

    /// Whether what a process lacks was acknowledged; of one that is not known at all, whether all
    /// parts were in which it may be.
    fn is_acknowledged(&self, pid: Pid) -> bool {
        let catalog = self.catalog();
        let table = catalog.table();
        if table.line(pid).is_some() {
            return table.is_noted(pid);
        }
        let acknowledged = table.acknowledged();
        table.lost().iter().all(|lost| {
            acknowledged.contains(&Finding::Part {
                from: lost.from,
                to: lost.to,
            })
        })
    }

    pub(crate) fn open_content(&self, hash: ContentHash) -> Result<Stored, StoreError> {
        let name = self.log.keys().name(hash);
        let Some(place) = self.ask(|catalog| catalog.content(name))? else {
            return Err(match self.catalog().table().lost() {
                [] => StoreError::UnknownContent(hash),
                _ => damaged(format!(
                    "the content {hash} is not known, and may be among records that are lost"
                )),
            });
        };
        if place.count == 0 {
            return Err(damaged(format!(
                "the content {hash} was damaged on disk and is given up. It is kept again when it \
                 is committed again"
            )));
        }
        let header = reader::known_header(&self.log, place.at)?;
        Stored::open(&self.log, place.at, &header, Arc::clone(&self.suspects))
    }

    pub(crate) fn read_temp_files(
        &self,
        root: Pid,
        by: CommitNumber,
    ) -> Result<Vec<TempFileChange>, StoreError> {
        self.noting(root, || self.known_temp_files(root, by))
    }

    fn known_temp_files(
        &self,
        root: Pid,
        by: CommitNumber,
    ) -> Result<Vec<TempFileChange>, StoreError> {
        let reach = self.line(root)?.temp_files;
        let places = self.ask(|catalog| catalog.temp_files(root, reach.last))?;
        let places = places.ok_or_else(|| {
            damaged(format!(
                "changes of the temporary files of process {root} are lost"
            ))
        })?;
        let known = places
            .into_iter()
            .map(|at| reader::temp_file(&self.log, at));
        let mut changes = known.collect::<Result<Vec<_>, _>>()?;
        let known = changes.len();
        changes.retain(|change| change.commit <= by);
        let catalog = self.catalog();
        let table = catalog.table();
        let lost = || {
            table
                .lost()
                .iter()
                .filter(|lost| reach.touched.may_go_on_in(lost))
        };
        let by = table.end_of_tree(root).map_or(by, |ended| ended.min(by));
        let lost_since = catalog
            .lost_since(reach.touched, lost())
            .filter(|since| *since <= by);
        if changes.len() == known && lost_since.is_some() {
            return Err(damaged(format!(
                "the temporary files of process {root} may go on behind change {}: {}",
                reach.last,
                parts(lost())
            )));
        }
        Ok(changes)
    }

    pub(crate) fn line(&self, pid: Pid) -> Result<Line, StoreError> {
        let catalog = self.catalog();
        match (catalog.table().line(pid), catalog.table().lost()) {
            (Some(line), _) if line.is_forgotten() => Err(StoreError::UnknownProcess(pid)),
            (Some(line), _) => Ok(line),
            (None, []) => Err(StoreError::UnknownProcess(pid)),
            (None, lost) => Err(damaged(format!(
                "process {pid} is not known, and may be lost: {}",
                parts(lost.iter())
            ))),
        }
    }

    /// The number that a journal is wanted up to, if it can be had.
    fn limit(
        &self,
        pid: Pid,
        line: &Line,
        upto: Option<FactNumber>,
    ) -> Result<FactNumber, StoreError> {
        let (asked, since) = (upto.unwrap_or(line.last), line.since());
        if asked < since {
            return Err(StoreError::ForgottenFact { pid, asked, since });
        }
        let catalog = self.catalog();
        let goes_on = catalog.table().goes_on_in(line).next().is_some();
        match (asked <= line.last, goes_on) {
            (true, false) => Ok(asked),
            (true, true) if upto.is_some() => Ok(asked),
            (false, false) => Err(StoreError::UnknownFact {
                pid,
                asked,
                last: line.last,
            }),
            (_, true) => Err(damaged(Self::may_go_on(&catalog, pid, line))),
        }
    }

    fn may_go_on(catalog: &Catalog, pid: Pid, line: &Line) -> String {
        format!(
            "the journal of process {pid} may go on behind fact {}: {}. Up to that fact it can be \
             read, by asking for it",
            line.last,
            parts(catalog.table().goes_on_in(line))
        )
    }

    /// Where the facts of a process from `first` to `upto` stand.
    fn runs(&self, pid: Pid, first: FactNumber, upto: FactNumber) -> Result<Vec<Run>, StoreError> {
        let runs = self.ask(|catalog| catalog.facts(pid, first, upto))?;
        runs.ok_or_else(|| {
            damaged(format!(
                "facts of process {pid} between {first} and {upto} are lost"
            ))
        })
    }

    /// The latest image from `since` to `upto` that can be read.
    fn image(
        &self,
        pid: Pid,
        since: FactNumber,
        upto: FactNumber,
    ) -> Result<(FactNumber, Vec<u8>), StoreError> {
        let (mut below, mut first_error) = (Some(upto), None);
        while let Some(limit) = below {
            let Some((base, at)) = self.ask(|catalog| catalog.image(pid, limit))? else {
                break;
            };
            match reader::image(&self.log, at) {
                Ok(image) => return Ok((base, image)),
                Err(error @ StoreError::Damaged { .. }) => {
                    tracing::warn!(%pid, %base, %error, "an image is damaged; an earlier one is \
                         tried");
                    first_error.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
            below = base
                .0
                .checked_sub(1)
                .map(FactNumber)
                .filter(|below| *below >= since);
        }
        Err(first_error.unwrap_or_else(|| {
            damaged(format!(
                "no image of process {pid} is left at or before fact {upto}"
            ))
        }))
    }
}

/// What is lost, in words.
fn parts<'a>(lost: impl Iterator<Item = &'a Lost>) -> String {
    let parts: Vec<_> = lost
        .map(|lost| format!("records are lost from {} to {}", lost.from, lost.to))
        .collect();
    parts.join(", ")
}
