//! The process table as an index gives it back: believed if all of it came.

use dormouse_proto::id::{CheckpointId, Pid};
use dormouse_proto::record::codec;

use super::{CheckpointLine, Digest, Line, Table};

/// A table whose lines come in one by one. Nothing of it is believed before all have.
#[derive(Debug)]
pub(crate) struct Loading {
    table: Table,
    /// The digest that the lines were made over.
    digest: Digest,
    is_whole: bool,
}

impl Loading {
    /// One without a line, to become the table that `digest` was made over.
    pub(super) fn new(table: Table, digest: Digest) -> Self {
        Self {
            table,
            digest,
            is_whole: true,
        }
    }

    /// A line, by its name in the index.
    pub(crate) fn take(&mut self, name: &[u8], line: &[u8]) {
        let taken = self.try_take(name, line);
        self.is_whole &= taken.is_some();
    }

    fn try_take(&mut self, name: &[u8], line: &[u8]) -> Option<()> {
        let name: &[u8; 9] = name.try_into().ok()?;
        self.table
            .digest
            .combine(Digest::of(&self.table.key, name, line), u64::wrapping_add);
        let number = u64::from_be_bytes(*name.last_chunk()?);
        match name[0] {
            b'k' => drop(
                self.table
                    .checkpoints
                    .insert(CheckpointId(number), CheckpointLine::from_bytes(line)?),
            ),
            b'l' => drop(self.table.notes.insert(number, codec::decode(line).ok()?)),
            _ => drop(self.table.lines.insert(Pid(number), line.into())),
        }
        Some(())
    }

    /// The table; none where its lines are not those that the digest was made over, or one cannot
    /// be read.
    pub(crate) fn finish(self) -> Option<Table> {
        let is_whole = self.is_whole && self.table.digest == self.digest;
        let is_readable = || {
            self.table
                .lines
                .iter()
                .all(|(_, line)| Line::from_bytes(line).is_some())
        };
        (is_whole && is_readable()).then_some(self.table)
    }
}
