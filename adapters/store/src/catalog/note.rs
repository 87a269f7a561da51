//! What a record changes: in the process table, and in the index.

use dormouse_actors::ports::StoreError;
use dormouse_proto::checkpoint::Checkpoint;
use dormouse_proto::id::{CheckpointId, CommitNumber, FactNumber, Pid};

use super::{Catalog, CatalogError, PayloadOf, unencodable};
use crate::draft::{
    numbers_of, read_born, read_checkpoint, read_ended, read_losses, read_shortened,
};
use crate::envelope::{Header, Kind};
use crate::mark::Location;
use crate::table::{CheckpointLine, CheckpointState, End, Kept, Line, LossNote, Reach, Touched};

impl Catalog {
    /// Adds a record to the table and queues its index entries.
    ///
    /// # Errors
    /// What `payload` fails with, except damage, which is noted too.
    pub(crate) fn note(
        &mut self,
        at: Location,
        header: &Header,
        payload: PayloadOf<'_>,
    ) -> Result<(), CatalogError> {
        match header.kind {
            Kind::Opened | Kind::Swept => Ok(()),
            Kind::Content => {
                self.waiting.content(header.payload, at, self.table.key());
                Ok(())
            }
            Kind::ContentLost => {
                self.waiting
                    .content_lost(header.payload, at, self.table.key());
                Ok(())
            }
            Kind::Pids | Kind::CheckpointIds => self.note_numbers(header),
            Kind::Checkpoint => {
                let read = unless_damaged(payload().and_then(|bytes| read_checkpoint(&bytes)))?;
                // In its own record it cannot say in which commit it stands.
                let state = read.map_or(CheckpointState::Damaged, |read| {
                    CheckpointState::Kept(Checkpoint {
                        commit: CommitNumber(header.since),
                        ..read
                    })
                });
                self.note_checkpoint(CheckpointId(header.subject), CheckpointLine { state, at })
            }
            Kind::LossNoted => {
                // A note that cannot be read acknowledges nothing.
                let losses = unless_damaged(payload().and_then(|bytes| read_losses(&bytes)))?
                    .unwrap_or_default();
                let note = self
                    .table
                    .put_note(header.since, LossNote { at, losses })
                    .map_err(unencodable)?;
                self.waiting.note(header.since, note);
                Ok(())
            }
            Kind::CheckpointDropped => self.note_checkpoint(
                CheckpointId(header.subject),
                CheckpointLine {
                    state: CheckpointState::Dropped,
                    at,
                },
            ),
            Kind::Born
            | Kind::Facts
            | Kind::Snapshot
            | Kind::Ended
            | Kind::TempFile
            | Kind::Shortened
            | Kind::Forgotten
            | Kind::SnapshotDropped => self.note_process(at, header, payload),
        }
    }

    /// Costs a look at the line of each number; those that are known to be given up stay as they
    /// are.
    fn note_numbers(&mut self, header: &Header) -> Result<(), CatalogError> {
        let line = Line::forgotten(Location::START);
        for number in numbers_of(header) {
            let (pid, id) = (Pid(number), CheckpointId(number));
            let dropped = CheckpointLine {
                state: CheckpointState::Dropped,
                at: Location::START,
            };
            if header.kind == Kind::CheckpointIds
                && self.table.checkpoint_line(id) != Some(&dropped)
            {
                self.note_checkpoint(id, dropped)?;
            } else if header.kind == Kind::Pids && self.table.line(pid).as_ref() != Some(&line) {
                *self.table.line_mut(pid, || line.clone()) = line.clone();
            }
        }
        Ok(())
    }

    fn note_checkpoint(
        &mut self,
        id: CheckpointId,
        line: CheckpointLine,
    ) -> Result<(), CatalogError> {
        self.waiting.checkpoint(
            id,
            self.table.put_checkpoint(id, line).map_err(unencodable)?,
        );
        Ok(())
    }

    fn note_process(
        &mut self,
        at: Location,
        header: &Header,
        payload: PayloadOf<'_>,
    ) -> Result<(), CatalogError> {
        let (pid, first) = (Pid(header.subject), FactNumber(header.first));
        let touched = Touched::by(at, header);
        let key = *self.table.key();
        let line = self.table.line_mut(pid, || Line::begun(Touched::NEVER));
        if line.is_forgotten() && header.kind != Kind::Forgotten {
            return Ok(());
        }
        let changes = &mut self.waiting;
        match header.kind {
            Kind::Born => {
                changes.image(pid, FactNumber(0), at, &key);
                line.birth = unless_damaged(payload().and_then(|bytes| Ok(read_born(&bytes)?.0)))?
                    .or(line.birth.take());
                line.born_at = at;
                // Before its birth there are no files; of a process whose birth is lost, files may
                // be lost as well.
                line.temp_files.touched = line.temp_files.touched.max(touched);
            }
            Kind::Facts => {
                changes.facts(pid, first, at, header.count, &key);
                line.last = line
                    .last
                    .max(FactNumber(header.first + header.count.saturating_sub(1)));
            }
            // The fact that it follows existed, even if its record is lost.
            Kind::Snapshot => {
                changes.image(pid, first, at, &key);
                line.last = line.last.max(first);
            }
            Kind::SnapshotDropped => {
                changes.no_image(pid, first);
                line.last = line.last.max(first);
            }
            Kind::TempFile => {
                changes.temp_file(pid, header.first, at, &key);
                let last = line.temp_files.last.max(header.first);
                line.temp_files = Reach {
                    last,
                    touched: line.temp_files.touched.max(touched),
                };
            }
            Kind::Ended => {
                let end = End {
                    since: header.since,
                    at,
                    exit: None,
                    last: first,
                };
                if line
                    .end
                    .as_ref()
                    .is_none_or(|known| known.since <= end.since)
                {
                    let exit = unless_damaged(payload().and_then(|bytes| read_ended(&bytes)))?;
                    line.end = Some(End { exit, ..end });
                }
                line.last = line.last.max(first);
            }
            Kind::Shortened => {
                line.birth = unless_damaged(payload().and_then(|bytes| read_shortened(&bytes)))?
                    .or(line.birth.take());
                line.kept = Kept::From(first.max(line.since()), at);
                line.last = line.last.max(first);
            }
            Kind::Forgotten => *line = Line::forgotten(at),
            Kind::Opened
            | Kind::Swept
            | Kind::Content
            | Kind::ContentLost
            | Kind::Checkpoint
            | Kind::CheckpointDropped
            | Kind::Pids
            | Kind::CheckpointIds
            | Kind::LossNoted => return Ok(()),
        }
        // Facts go on without a gap, and nothing follows an end. An image may be of a fact long
        // before it.
        if matches!(header.kind, Kind::Born | Kind::Facts | Kind::Ended) {
            line.touched = line.touched.max(touched);
        }
        Ok(())
    }
}

fn unless_damaged<T>(read: Result<T, StoreError>) -> Result<Option<T>, StoreError> {
    match read {
        Err(StoreError::Damaged { what }) => {
            tracing::warn!(what, "a line of the process table is lost");
            Ok(None)
        }
        other => other.map(Some),
    }
}
