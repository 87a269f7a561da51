//! What the store answers: the catalog says where it stands, and the log is read there.
//!
//! What cannot be told apart from what is lost is answered as damage, never as absence.

use std::sync::Arc;

use dormouse_actors::ports::{Journal, StoreError, TempFileChange, Written};
use dormouse_proto::id::{ContentHash, FactNumber, Pid};

use crate::error::damaged;
use crate::index::Run;
use crate::log_store::LogStore;
use crate::reader;
use crate::rules::{check_kept, clip};
use crate::stored::Stored;
use crate::table::{Line, row_is_lost};

impl LogStore {
    pub(crate) fn read_journal(&self, pid: Pid, upto: Option<FactNumber>) -> Result<Journal, StoreError> {
        let line = self.line(pid)?;
        let upto = self.limit(pid, &line, upto)?;
        let row = line.row().ok_or_else(|| row_is_lost(pid))?;
        let (base, image) = self.image(pid, line.since(), upto)?;
        if base == upto {
            return Ok(Journal { row, base, image, facts: Vec::new() });
        }
        let first = base.plus(1);
        let runs = self.runs(pid, first, upto)?;
        Ok(Journal { row, base, image, facts: reader::facts(&self.log, pid, &runs, first, upto)? })
    }

    pub(crate) fn read_facts(&self, pid: Pid, first: FactNumber, upto: FactNumber) -> Result<Vec<Vec<u8>>, StoreError> {
        let line = self.line(pid)?;
        let (first, upto) = (first.max(FactNumber(1)), self.limit(pid, &line, Some(upto))?);
        check_kept(pid, first, line.since())?;
        if first > upto {
            return Ok(Vec::new());
        }
        let runs = self.runs(pid, first, upto)?;
        reader::facts(&self.log, pid, &runs, first, upto)
    }

    pub(crate) fn read_history(&self, pid: Pid) -> Result<Vec<Written>, StoreError> {
        let line = self.line(pid)?;
        let (since, last) = (line.since(), self.limit(pid, &line, None)?);
        let mut places = Vec::new();
        if since == FactNumber(0) {
            places.push(line.birth.as_ref().map(|_| line.born_at).ok_or_else(|| row_is_lost(pid))?);
        }
        if since < last {
            places.extend(self.runs(pid, since.plus(1), last)?.iter().map(|run| run.at));
        }
        let mut history = places.into_iter().map(|at| reader::written(&self.log, at)).collect::<Result<Vec<_>, _>>()?;
        history.iter_mut().take(1).for_each(|first| clip(first, since));
        Ok(history)
    }

    pub(crate) fn open_content(&self, hash: ContentHash) -> Result<Stored, StoreError> {
        let name = self.log.keys().name(hash);
        let Some(place) = self.ask(|catalog| catalog.content(name))? else {
            return Err(match self.catalog().table().lost() {
                None => StoreError::UnknownContent(hash),
                Some(_) => damaged(format!("the content {hash} is not known, and may be among records that are lost")),
            });
        };
        if place.count == 0 {
            return Err(damaged(format!(
                "the content {hash} was damaged on disk and is given up. It is kept again when it is committed again"
            )));
        }
        let header = reader::known_header(&self.log, place.at)?;
        Stored::open(&self.log, place.at, &header, Arc::clone(&self.suspects))
    }

    pub(crate) fn read_temp_files(&self, root: Pid) -> Result<Vec<TempFileChange>, StoreError> {
        let reach = self.line(root)?.temp_files;
        if let Some(lost) = self.catalog().table().lost().filter(|lost| reach.touched.may_go_on_in(lost)) {
            return Err(damaged(format!(
                "the temporary files of process {root} may go on behind change {}: records are lost from {} to {}",
                reach.last, lost.from, lost.to
            )));
        }
        let places = self.ask(|catalog| catalog.temp_files(root, reach.last))?;
        let places =
            places.ok_or_else(|| damaged(format!("changes of the temporary files of process {root} are lost")))?;
        places.into_iter().map(|at| reader::temp_file(&self.log, at)).collect()
    }

    pub(crate) fn line(&self, pid: Pid) -> Result<Line, StoreError> {
        let catalog = self.catalog();
        match (catalog.table().line(pid), catalog.table().lost()) {
            (Some(line), _) if line.is_forgotten() => Err(StoreError::UnknownProcess(pid)),
            (Some(line), _) => Ok(line),
            (None, None) => Err(StoreError::UnknownProcess(pid)),
            (None, Some(lost)) => Err(damaged(format!(
                "process {pid} is not known, and may be among the records lost from {} to {}",
                lost.from, lost.to
            ))),
        }
    }

    /// The number that a journal is wanted up to, if it can be had.
    fn limit(&self, pid: Pid, line: &Line, upto: Option<FactNumber>) -> Result<FactNumber, StoreError> {
        let (asked, since) = (upto.unwrap_or(line.last), line.since());
        if asked < since {
            return Err(StoreError::ForgottenFact { pid, asked, since });
        }
        let lost = self.catalog().table().lost().filter(|lost| line.touched.may_go_on_in(lost));
        match (asked <= line.last, lost) {
            (true, None) => Ok(asked),
            (true, Some(_)) if upto.is_some() => Ok(asked),
            (false, None) => Err(StoreError::UnknownFact { pid, asked, last: line.last }),
            (_, Some(lost)) => Err(damaged(format!(
                "the journal of process {pid} may go on behind fact {}: records are lost from {} to {}. Up to that fact it \
                 can be read, by asking for it",
                line.last, lost.from, lost.to
            ))),
        }
    }

    /// Where the facts of a process from `first` to `upto` stand.
    fn runs(&self, pid: Pid, first: FactNumber, upto: FactNumber) -> Result<Vec<Run>, StoreError> {
        let runs = self.ask(|catalog| catalog.facts(pid, first, upto))?;
        runs.ok_or_else(|| damaged(format!("facts of process {pid} between {first} and {upto} are lost")))
    }

    /// The latest image from `since` to `upto` that can be read.
    fn image(&self, pid: Pid, since: FactNumber, upto: FactNumber) -> Result<(FactNumber, Vec<u8>), StoreError> {
        let (mut below, mut first_error) = (Some(upto), None);
        while let Some(limit) = below {
            let Some((base, at)) = self.ask(|catalog| catalog.image(pid, limit))? else { break };
            match reader::image(&self.log, at) {
                Ok(image) => return Ok((base, image)),
                Err(error @ StoreError::Damaged { .. }) => {
                    tracing::warn!(%pid, %base, %error, "an image is damaged; an earlier one is tried");
                    first_error.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
            below = base.0.checked_sub(1).map(FactNumber).filter(|below| *below >= since);
        }
        Err(first_error
            .unwrap_or_else(|| damaged(format!("no image of process {pid} is left at or before fact {upto}"))))
    }
}
