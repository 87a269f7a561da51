//! Looks up where the log holds the records of contents, processes and temporary files.

use dormouse_proto::id::{FactNumber, Pid};

use super::{Index, losses};
use crate::location_index::{FactRun, IndexEntry, IndexFault, RecordKey};
use crate::log_position::{Hash, Location};

impl Index {
    /// Whether the log is known to contain a content. `false` may be wrong, which costs the space
    /// of a second copy.
    pub(crate) fn has_readable_content(&self, hash: Hash) -> bool {
        let entry = self.content_entry(hash).ok().flatten();
        entry.is_some_and(|entry| entry.count > 0)
    }

    /// Whether the log is known to contain a content, or to have contained it before it was lost. A
    /// `false` may be wrong.
    pub(crate) fn has_content_entry(&self, hash: Hash) -> bool {
        matches!(self.content_entry(hash), Ok(Some(_)))
    }

    /// The entry of a content, or of the record that declares it lost (with a count of 0); `None`
    /// if the log does not contain the content.
    ///
    /// # Errors
    /// [`IndexFault`].
    pub(crate) fn content(&self, hash: Hash) -> Result<Option<IndexEntry>, IndexFault> {
        let entry = self.content_entry(hash)?;
        self.check_absence(entry.is_some())?;
        Ok(entry)
    }

    /// The entry of a content; `None` also if an index from disk has lost it.
    fn content_entry(&self, hash: Hash) -> Result<Option<IndexEntry>, IndexFault> {
        let entry = self
            .locations()?
            .get(&RecordKey::Content(hash), &self.pending)?;
        Ok(entry.filter(|entry| !self.compacted.contains(entry.at.segment)))
    }

    /// Whether a key points to this location.
    ///
    /// # Errors
    /// [`IndexFault`].
    pub(crate) fn points_to(
        &self,
        index_key: &RecordKey,
        at: Location,
    ) -> Result<bool, IndexFault> {
        Ok(self
            .locations()?
            .get(index_key, &self.pending)?
            .is_some_and(|entry| entry.at == at))
    }

    /// Whether the index has an entry for a key.
    ///
    /// # Errors
    /// [`IndexFault`].
    pub(crate) fn contains_key(&self, index_key: &RecordKey) -> Result<bool, IndexFault> {
        Ok(self.locations()?.get(index_key, &self.pending)?.is_some())
    }

    /// The latest image of a process at or before fact `up_to`, and its location; `None` if it is
    /// lost.
    ///
    /// # Errors
    /// [`IndexFault`].
    pub(crate) fn image(
        &self,
        pid: Pid,
        up_to: FactNumber,
    ) -> Result<Option<(FactNumber, Location)>, IndexFault> {
        let entry = self
            .locations()?
            .image(pid, up_to, &self.pending)?
            .filter(|(_, at)| !self.compacted.contains(at.segment));
        self.check_absence(entry.is_some()).map(|()| entry)
    }

    /// The records that hold the facts of a process from `first` to `up_to`; `None` if some are
    /// lost.
    ///
    /// # Errors
    /// [`IndexFault`].
    pub(crate) fn facts(
        &self,
        pid: Pid,
        first: FactNumber,
        up_to: FactNumber,
    ) -> Result<Option<Vec<FactRun>>, IndexFault> {
        let runs = self.facts_with_gaps(pid, first, up_to)?;
        Ok(losses::cover_all_facts(&runs, first, up_to).then_some(runs))
    }

    /// The locations of the changes of a tree's temporary files, up to number `last`; `None` if
    /// some are lost.
    ///
    /// # Errors
    /// [`IndexFault`].
    pub(crate) fn temp_files(
        &self,
        root: Pid,
        last: u64,
    ) -> Result<Option<Vec<Location>>, IndexFault> {
        let locations = self.locations()?.temp_files(root, last, &self.pending)?;
        let locations = locations.filter(|locations| {
            locations
                .iter()
                .all(|at| !self.compacted.contains(at.segment))
        });
        self.check_absence(locations.is_some()).map(|()| locations)
    }
}
