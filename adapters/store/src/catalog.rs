//! What the log holds, kept up with it: the process table in memory and the index on disk.
//!
//! Live commits and recovery note records by the same function, so that both see the log alike.
//! What is noted waits in memory until there is enough of it, and is read from there meanwhile:
//! sled is no part of what a commit waits for.

mod home;
mod losses;
mod note;

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use dormouse_actors::ports::StoreError;
use dormouse_proto::id::{FactNumber, Pid};
use dormouse_proto::record::codec::CodecError;

use crate::envelope::HEADER_BYTES;
use crate::index::{Applied, Changes, Fault, Index, Name, Place, Run};
use crate::log::{Log, SweptSegments};
use crate::mark::{Hash, Location, Mark};
use crate::progress::Progress;
use crate::scan::{Found, walk};
use crate::table::Table;

use home::{Home, cannot_build};

/// Records that the index is behind at most.
const BATCH_RECORDS: usize = 1024;
/// Lines of the table that are kept decoded, where the index is in memory.
const DECODED_LINES: usize = 1 << 14;

/// What goes wrong while the log is read into the index.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CatalogError {
    /// The log's fault.
    #[error(transparent)]
    Log(#[from] StoreError),
    /// The index's, which can be built again.
    #[error(transparent)]
    Index(#[from] Fault),
}

/// How to come by a record's payload, should it be needed.
pub(crate) type PayloadOf<'a> = &'a dyn Fn() -> Result<Bytes, StoreError>;

/// The table and the index, at the same mark.
#[derive(Debug)]
pub(crate) struct Catalog {
    table: Table,
    index: Option<Index>,
    /// What the index has yet to be told, and where it will be then.
    waiting: Changes,
    mark: Mark,
    home: Home,
    /// Built from the log in this session: what such an index does not know does not exist.
    built_here: bool,
    /// Places in these lead nowhere.
    swept: Arc<SweptSegments>,
}

impl Catalog {
    /// Opens the index in `folder` and brings it up to the log's end; builds it from the log where
    /// it is missing or cannot be right. Answers with the mark of the log's last commit.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] of the log, [`StoreError::Io`].
    pub(crate) fn open(folder: &Path, log: &Log, head: Mark) -> Result<(Self, Mark), StoreError> {
        match Self::catch_up(folder, log, head) {
            Ok(caught_up) => Ok(caught_up),
            Err(CatalogError::Log(error)) => Err(error),
            Err(CatalogError::Index(fault)) => {
                tracing::info!(%fault, "building the index from the log");
                Self::build_anywhere(&Home::Folder(folder.to_owned()), log, head)
            }
        }
    }

    /// Builds an index in memory from the log, and writes nothing. Costs a pass over the log's
    /// headers, and some 150 bytes of memory for each record.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] of the log, [`StoreError::Io`].
    pub(crate) fn in_memory(log: &Log, head: Mark) -> Result<(Self, Mark), StoreError> {
        Self::build(&Home::Memory, log, head).map_err(|error| cannot_build(&Home::Memory, error))
    }

    /// Builds the index again from the log, which ends at `head`; in memory, if its folder does not
    /// take it. The table stays: it was right before, and knows of records that may since have been
    /// damaged.
    ///
    /// # Errors
    /// [`StoreError::Io`], [`StoreError::Damaged`]. There is no index then, and the next question
    /// tries again.
    pub(crate) fn rebuild(&mut self, log: &Log, head: Mark) -> Result<(), StoreError> {
        self.index = None;
        let (built, _) = Self::build_anywhere(&self.home, log, head)?;
        let Self {
            index,
            waiting,
            home,
            ..
        } = built;
        (
            self.index,
            self.waiting,
            self.home,
            self.mark,
            self.built_here,
        ) = (index, waiting, home, head, true);
        if let Err(fault) = self.tell_whole_table(log) {
            self.home.give_up(&fault);
            return self.rebuild(log, head);
        }
        Ok(())
    }

    /// Tells an index in a folder every line of the table, which it may have been built with other
    /// lines.
    fn tell_whole_table(&mut self, log: &Log) -> Result<(), Fault> {
        self.table.encode_changed().map_err(unencodable)?;
        if self.home == Home::Memory {
            return Ok(());
        }
        let mut changes = Changes::default();
        for (pid, line) in self.table.encoded() {
            changes.line(pid, line);
        }
        for (id, line) in self.table.encoded_checkpoints() {
            changes.checkpoint(id, line.map_err(unencodable)?);
        }
        for (number, note) in self.table.encoded_notes() {
            changes.note(number, note.map_err(unencodable)?);
        }
        let applied = self.applied(log);
        self.index
            .as_mut()
            .ok_or_else(|| Fault("was not built".to_owned()))?
            .apply(changes, &applied)
    }

    fn catch_up(folder: &Path, log: &Log, head: Mark) -> Result<(Self, Mark), CatalogError> {
        let index = Index::open(folder, log.keys().clone())?;
        let applied = index
            .applied()?
            .ok_or_else(|| Fault("is new, or of another store".to_owned()))?;
        if applied.mark != head && !log.holds(&applied.mark)? {
            return Err(Fault("speaks of records that the log does not have".to_owned()).into());
        }
        if applied.mark.commit > head.commit && !leads_to(log, head, applied.mark)? {
            return Err(Fault("speaks of records that a loss of power took".to_owned()).into());
        }
        if applied.lengths != log.lengths_before(applied.mark.end.segment) {
            return Err(Fault("was built from a log with other segments".to_owned()).into());
        }
        let table = index.table(&applied)?;
        if table.lacks_something() {
            // The missing part may have been put back, and the index cannot tell.
            return Err(Fault("was built from a log that was damaged".to_owned()).into());
        }
        let (waiting, home) = (Changes::default(), Home::Folder(folder.to_owned()));
        let (mark, index, swept) = (applied.mark, Some(index), log.swept().clone());
        let catalog = Self {
            table,
            index,
            waiting,
            mark,
            home,
            built_here: false,
            swept,
        };
        catalog.follow(log, head)
    }

    /// Builds an index from the log. If its folder does not take it, it is built in memory: what is
    /// in the log can be used, whatever the index's files are like.
    fn build_anywhere(home: &Home, log: &Log, head: Mark) -> Result<(Self, Mark), StoreError> {
        match Self::build(home, log, head) {
            Err(CatalogError::Index(fault)) if *home != Home::Memory => {
                let mut home = home.clone();
                home.give_up(&fault);
                Self::build(&home, log, head).map_err(|error| cannot_build(&home, error))
            }
            other => other.map_err(|error| cannot_build(home, error)),
        }
    }

    fn build(home: &Home, log: &Log, head: Mark) -> Result<(Self, Mark), CatalogError> {
        let index = Some(home.begin(log.keys())?);
        let table = Table::new(*log.key());
        let (waiting, home) = (Changes::default(), home.clone());
        let (mark, swept) = (Mark::EMPTY, log.swept().clone());
        Self {
            table,
            index,
            waiting,
            mark,
            home,
            built_here: true,
            swept,
        }
        .follow(log, head)
    }

    fn follow(mut self, log: &Log, head: Mark) -> Result<(Self, Mark), CatalogError> {
        let mut progress = Progress::over(log.bytes_behind(self.mark.end));
        let end = walk::<CatalogError>(log, self.mark, head, &mut |found| {
            match found {
                Found::Record(at, header) => {
                    let payload = || log.payload(at, &header).map(Bytes::from);
                    self.note(at, &header, &payload)?;
                    progress.passed(HEADER_BYTES as u64 + header.length);
                }
                Found::Lost(lost) => {
                    tracing::warn!(from = %lost.from, to = %lost.to, "a part of the log cannot be \
                         recognised");
                    self.note_lost(lost);
                }
                Found::Commit(mark) => self.reach(mark, log)?,
            }
            Ok(())
        })?;
        self.mark = end;
        self.settle(log)?;
        Ok((self, end))
    }

    /// All records of the log up to `mark` have been noted. Tells the index now and then.
    ///
    /// # Errors
    /// [`Fault`].
    pub(crate) fn reach(&mut self, mark: Mark, log: &Log) -> Result<(), Fault> {
        self.mark = mark;
        let is_enough = match self.home {
            Home::Folder(_) => {
                self.waiting.records().max(self.table.changed_lines()) >= BATCH_RECORDS
            }
            Home::Memory => self.table.changed_lines() >= DECODED_LINES,
        };
        if is_enough { self.settle(log) } else { Ok(()) }
    }

    /// Whether the index can be asked, whatever it has yet to be told.
    pub(crate) fn can_be_asked(&self) -> bool {
        self.home == Home::Memory || self.waiting.can_wait()
    }

    /// Whether there is something that the index has yet to be told.
    pub(crate) fn is_ahead(&self) -> bool {
        self.waiting.records() > 0 || self.table.changed_lines() > 0
    }

    /// Tells the index everything that was noted. Where that fails there is no index until it is
    /// rebuilt.
    ///
    /// # Errors
    /// [`Fault`].
    pub(crate) fn settle(&mut self, log: &Log) -> Result<(), Fault> {
        let outcome = self.tell_index(log);
        if outcome.is_err() {
            self.index = None;
        }
        outcome
    }

    fn tell_index(&mut self, log: &Log) -> Result<(), Fault> {
        let lines = self.table.encode_changed().map_err(unencodable)?;
        if self.home == Home::Memory {
            return Ok(());
        }
        let (mut changes, applied) = (std::mem::take(&mut self.waiting), self.applied(log));
        lines
            .into_iter()
            .for_each(|(pid, line)| changes.line(pid, line));
        self.index
            .as_mut()
            .ok_or_else(|| Fault("is being built".to_owned()))?
            .apply(changes, &applied)
    }

    /// What a fault of sled does.
    #[cfg(test)]
    pub(crate) fn lose_index(&mut self) {
        self.index = None;
    }

    /// Whether the index was built from the log since the store was opened.
    #[cfg(test)]
    pub(crate) fn is_built_here(&self) -> bool {
        self.built_here
    }

    fn applied(&self, log: &Log) -> Applied {
        let (mark, digest, lost) = (
            self.mark,
            self.table.digest(),
            self.table.lost().last().copied(),
        );
        Applied {
            mark,
            digest,
            lengths: log.lengths_before(mark.end.segment),
            lost,
        }
    }

    fn index(&self) -> Result<&Index, Fault> {
        self.index
            .as_ref()
            .ok_or_else(|| Fault("is being built".to_owned()))
    }

    /// The process table.
    pub(crate) fn table(&self) -> &Table {
        &self.table
    }

    /// Whether a content is known to stand in the log. A no may be wrong, and costs a second copy
    /// then.
    pub(crate) fn holds_content(&self, hash: Hash) -> bool {
        let held = |place: Place| place.count > 0 && !self.swept.contain(place.at.segment);
        self.waiting.tell_of(hash)
            || self
                .index()
                .and_then(|index| index.stands(&Name::Content(hash), &self.waiting))
                .is_ok_and(|place| place.is_some_and(held))
    }

    /// Whether a content is known to stand in the log, or to have stood there before it was lost. A
    /// no may be wrong.
    pub(crate) fn knows_content(&self, hash: Hash) -> bool {
        let stands = |place: &Place| !self.swept.contain(place.at.segment);
        let place = self
            .index()
            .and_then(|index| index.stands(&Name::Content(hash), &self.waiting));
        self.waiting.tell_of(hash) || place.is_ok_and(|place| place.as_ref().is_some_and(stands))
    }

    /// Where a content stands, or the note that it is lost (with a count of 0); none where the log
    /// does not hold it.
    ///
    /// # Errors
    /// [`Fault`].
    pub(crate) fn content(&self, hash: Hash) -> Result<Option<Place>, Fault> {
        let place = self
            .index()?
            .stands(&Name::Content(hash), &self.waiting)?
            .filter(|place| !self.swept.contain(place.at.segment));
        self.believe(place.is_some()).map(|()| place)
    }

    /// Whether a name leads to this place, as far as it is known now.
    ///
    /// # Errors
    /// [`Fault`].
    pub(crate) fn leads_to(&self, name: &Name, at: Location) -> Result<bool, Fault> {
        Ok(self
            .index()?
            .stands(name, &self.waiting)?
            .is_some_and(|place| place.at == at))
    }

    /// Whether a name leads anywhere, as far as it is known now.
    ///
    /// # Errors
    /// [`Fault`].
    pub(crate) fn leads_somewhere(&self, name: &Name) -> Result<bool, Fault> {
        Ok(self.index()?.stands(name, &self.waiting)?.is_some())
    }

    /// Removes these names if they point into swept segments. The index learns it when this catalog
    /// is settled next.
    ///
    /// # Errors
    /// [`Fault`].
    pub(crate) fn clean(&mut self, names: &[Name], log: &Log) -> Result<(), Fault> {
        self.settle(log)?;
        for name in names {
            if self
                .index()?
                .stands(name, &self.waiting)?
                .is_some_and(|place| self.swept.contain(place.at.segment))
            {
                self.waiting.remove(&name.to_bytes());
            }
        }
        Ok(())
    }

    /// The latest image of a process at or before fact `upto`, and where it stands; none where it
    /// is lost.
    ///
    /// # Errors
    /// [`Fault`].
    pub(crate) fn image(
        &self,
        pid: Pid,
        upto: FactNumber,
    ) -> Result<Option<(FactNumber, Location)>, Fault> {
        let place = self
            .index()?
            .image(pid, upto, &self.waiting)?
            .filter(|(_, at)| !self.swept.contain(at.segment));
        self.believe(place.is_some()).map(|()| place)
    }

    /// Where the facts of a process from `first` to `upto` stand; none where some are lost.
    ///
    /// # Errors
    /// [`Fault`].
    pub(crate) fn facts(
        &self,
        pid: Pid,
        first: FactNumber,
        upto: FactNumber,
    ) -> Result<Option<Vec<Run>>, Fault> {
        let runs = self.known_facts(pid, first, upto)?;
        Ok(losses::are_whole(&runs, first, upto).then_some(runs))
    }

    /// Where the changes of a tree's temporary files stand, up to number `last`; none where some
    /// are lost.
    ///
    /// # Errors
    /// [`Fault`].
    pub(crate) fn temp_files(&self, root: Pid, last: u64) -> Result<Option<Vec<Location>>, Fault> {
        let places = self.index()?.temp_files(root, last, &self.waiting)?;
        let places =
            places.filter(|places| places.iter().all(|at| !self.swept.contain(at.segment)));
        self.believe(places.is_some()).map(|()| places)
    }

    /// A no is believed only of an index that was built here: an older one may have lost something.
    fn believe(&self, known: bool) -> Result<(), Fault> {
        if known || self.built_here {
            Ok(())
        } else {
            Err(Fault("may have lost something".to_owned()))
        }
    }
}

/// Whether all of the log from `head` up to `mark` is whole. Behind HEAD a loss of power may have
/// taken something and left what came after it.
fn leads_to(log: &Log, head: Mark, mark: Mark) -> Result<bool, StoreError> {
    let (mut reached, mut lost) = (false, false);
    walk(log, head, head, &mut |found| {
        match found {
            Found::Commit(at) => reached |= at == mark,
            Found::Lost(_) => lost |= !reached,
            Found::Record(..) => {}
        }
        Ok::<_, StoreError>(())
    })?;
    Ok(reached && !lost)
}

fn unencodable(error: CodecError) -> Fault {
    Fault(format!("cannot take a line of the process table: {error}"))
}

#[cfg(test)]
mod tests;
