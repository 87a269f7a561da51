//! What is known of processes of which something is lost.

use dormouse_actors::ports::StoreError;
use dormouse_proto::id::{CommitNumber, FactNumber, Pid};

use super::home::{Home, cannot_build};
use super::{Catalog, DECODED_LINES, PayloadOf, unencodable};
use crate::envelope::Header;
use crate::index::{Changes, Fault, Run};
use crate::log::Log;
use crate::mark::{Location, Mark};
use crate::scan::Lost;
use crate::table::{Table, Touched};

impl Catalog {
    /// A table of `log` without an index, in which nothing is noted yet.
    pub(crate) fn table_only(log: &Log) -> Self {
        let (waiting, mark, swept) = (Changes::default(), Mark::EMPTY, log.swept().clone());
        Self {
            table: Table::new(*log.key()),
            index: None,
            waiting,
            mark,
            home: Home::Memory,
            built_here: true,
            swept,
        }
    }

    /// Notes a record in the table only.
    ///
    /// # Errors
    /// As those of `payload`, except damage.
    pub(crate) fn note_for_table(
        &mut self,
        at: Location,
        header: &Header,
        payload: PayloadOf<'_>,
    ) -> Result<(), StoreError> {
        let mut noted = self.note(at, header, payload);
        self.waiting = Changes::default();
        if noted.is_ok() && self.table.changed_lines() >= DECODED_LINES {
            noted = self
                .table
                .encode_changed()
                .map(drop)
                .map_err(|error| unencodable(error).into());
        }
        noted.map_err(|error| cannot_build(&self.home, error))
    }

    /// Notes damage in the table.
    pub(crate) fn note_lost(&mut self, lost: Lost) {
        self.table.note_lost(lost);
    }

    /// The same, with gaps where facts are lost.
    ///
    /// # Errors
    /// [`Fault`].
    pub(crate) fn known_facts(
        &self,
        pid: Pid,
        first: FactNumber,
        upto: FactNumber,
    ) -> Result<Vec<Run>, Fault> {
        let mut runs = self.index()?.facts(pid, first, upto, &self.waiting)?;
        runs.retain(|run| !self.swept.contain(run.at.segment));
        self.believe(are_whole(&runs, first, upto)).map(|()| runs)
    }

    /// From which commit on what comes after `touched` may be lost in these parts; none where there
    /// is none.
    pub(crate) fn lost_since<'a>(
        &self,
        touched: Touched,
        parts: impl Iterator<Item = &'a Lost>,
    ) -> Option<CommitNumber> {
        // What a sweep moved into a part that is lost may be of any commit, but comes from a
        // segment that was swept.
        let may_be_moved = self.swept.reach_to(touched.at.segment);
        parts
            .map(|lost| if may_be_moved { 0 } else { lost.since })
            .min()
            .map(CommitNumber)
    }
}

/// Whether these runs hold all facts from `first` to `upto`.
pub(super) fn are_whole(runs: &[Run], first: FactNumber, upto: FactNumber) -> bool {
    let covered = runs.iter().try_fold(first, |next, run| {
        run.covers(next).then(|| run.first.plus(run.count))
    });
    covered.is_some_and(|next| next > upto)
}
