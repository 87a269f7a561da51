//! The labels of the process table: the latest record of each.

use dormouse_proto::record::codec;
use serde::{Deserialize, Serialize};

use super::{EncodeResult, ProcessTable};
use crate::issue::Issue;
use crate::location_index::label_key;
use crate::log_position::Location;

/// A label in the table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LabelEntry {
    /// The commit in which the record was first written.
    pub(crate) first_commit: u64,
    /// The location of the record.
    pub(crate) at: Location,
    /// The record; `None` if it is damaged.
    pub(crate) record: Option<Vec<u8>>,
}

impl ProcessTable {
    /// The readable records, each with the number of its label.
    pub(crate) fn labels(&self) -> impl Iterator<Item = (u64, &Vec<u8>)> {
        let entries = self.labels.iter();
        entries.filter_map(|(number, entry)| Some((*number, entry.record.as_ref()?)))
    }

    /// The entry of a label.
    pub(crate) fn label_entry(&self, number: u64) -> Option<&LabelEntry> {
        self.labels.get(&number)
    }

    /// All labels, encoded as by [`ProcessTable::put_label`].
    pub(crate) fn encoded_labels(&self) -> impl Iterator<Item = (u64, EncodeResult)> {
        let entries = self.labels.iter();
        entries.map(|(number, entry)| (*number, codec::encode(entry)))
    }

    /// Sets the entry of a label. Returns its encoded bytes, for the index.
    ///
    /// # Errors
    /// If it cannot be encoded.
    pub(crate) fn put_label(&mut self, number: u64, entry: LabelEntry) -> EncodeResult {
        let bytes = codec::encode(&entry)?;
        let old = self.labels.insert(number, entry);
        let old = old.map(|old| codec::encode(&old)).transpose()?;
        self.digest
            .replace(&self.key, &label_key(number), old.as_deref(), Some(&bytes));
        Ok(bytes)
    }

    /// The labels whose latest record is damaged.
    pub(super) fn damaged_labels(&self) -> impl Iterator<Item = Issue> {
        let entries = self.labels.iter();
        let damaged = entries.filter(|(_, entry)| entry.record.is_none());
        damaged.map(|(number, _)| Issue::Label { number: *number })
    }
}
