//! A batch as the columns that the database takes.
//!
//! The operations of a batch apply in order, and an SQL statement has no order: so the batch is
//! reduced to the deletions of each stream and the last version of each record. All deletions
//! precede all records.

use std::collections::{BTreeMap, HashSet};
use std::error::Error;

use bytes::{Bytes, BytesMut};
use dormouse_proto::id::ContentHash;
use dormouse_records::{NewContent, RecordOp, Stream};
use tokio_postgres::types::{IsNull, ToSql, Type, accepts, to_sql_checked};

use crate::number::to_ordered;

/// Bytes that are sent without a copy of their own.
#[derive(Clone, Debug)]
pub(crate) struct Blob(pub(crate) Bytes);

impl ToSql for Blob {
    fn to_sql(
        &self,
        ty: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        (&*self.0).to_sql(ty, out)
    }

    accepts!(BYTEA);
    to_sql_checked!();
}

/// The name of a content, as a parameter.
pub(crate) fn name_blob(name: ContentHash) -> Blob {
    Blob(Bytes::copy_from_slice(&name.0))
}

/// Deletions, a column for each field.
#[derive(Debug, Default)]
pub(crate) struct DeletionColumns {
    pub(crate) kinds: Vec<i16>,
    pub(crate) ids: Vec<i64>,
    pub(crate) up_to: Vec<i64>,
}

/// Records, a column for each field.
#[derive(Debug, Default)]
pub(crate) struct RecordColumns {
    pub(crate) kinds: Vec<i16>,
    pub(crate) ids: Vec<i64>,
    pub(crate) numbers: Vec<i64>,
    pub(crate) bytes: Vec<Blob>,
}

impl RecordColumns {
    /// The bytes of all records.
    pub(crate) fn byte_count(&self) -> usize {
        self.bytes.iter().map(|blob| blob.0.len()).sum()
    }

    /// Appends other records.
    pub(crate) fn extend(&mut self, other: &Self) {
        self.kinds.extend_from_slice(&other.kinds);
        self.ids.extend_from_slice(&other.ids);
        self.numbers.extend_from_slice(&other.numbers);
        self.bytes.extend_from_slice(&other.bytes);
    }
}

/// Reduces operations that apply in order to deletions, and the records to write after them.
pub(crate) fn reduce(ops: &[RecordOp]) -> (DeletionColumns, RecordColumns) {
    let mut deletions: BTreeMap<Stream, u64> = BTreeMap::new();
    let mut records: BTreeMap<(Stream, u64), &Bytes> = BTreeMap::new();
    for op in ops {
        match op {
            RecordOp::Put {
                stream,
                number,
                bytes,
            } => {
                records.insert((*stream, *number), bytes);
            }
            RecordOp::Delete { stream, up_to } => {
                let deleted = records.range((*stream, 0)..=(*stream, *up_to));
                let deleted: Vec<_> = deleted.map(|(key, _)| *key).collect();
                for key in deleted {
                    records.remove(&key);
                }
                let highest = deletions.entry(*stream).or_insert(*up_to);
                *highest = (*highest).max(*up_to);
            }
        }
    }
    (deletion_columns(&deletions), record_columns(&records))
}

fn deletion_columns(deletions: &BTreeMap<Stream, u64>) -> DeletionColumns {
    let mut columns = DeletionColumns::default();
    for (stream, up_to) in deletions {
        columns.kinds.push(i16::from(stream.kind as u8));
        columns.ids.push(to_ordered(stream.id));
        columns.up_to.push(to_ordered(*up_to));
    }
    columns
}

fn record_columns(records: &BTreeMap<(Stream, u64), &Bytes>) -> RecordColumns {
    let mut columns = RecordColumns::default();
    for ((stream, number), bytes) in records {
        columns.kinds.push(i16::from(stream.kind as u8));
        columns.ids.push(to_ordered(stream.id));
        columns.numbers.push(to_ordered(*number));
        columns.bytes.push(Blob((*bytes).clone()));
    }
    columns
}

/// The contents of a batch without those that repeat a name.
pub(crate) fn distinct_contents(contents: &[NewContent]) -> Vec<&NewContent> {
    let mut names = HashSet::new();
    contents
        .iter()
        .filter(|content| names.insert(content.name))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::number::from_ordered;
    use dormouse_records::StreamKind;

    const STREAM: Stream = Stream {
        kind: StreamKind::Fact,
        id: 7,
    };

    fn put(number: u64, text: &'static str) -> RecordOp {
        RecordOp::Put {
            stream: STREAM,
            number,
            bytes: Bytes::from_static(text.as_bytes()),
        }
    }

    fn delete(up_to: u64) -> RecordOp {
        RecordOp::Delete {
            stream: STREAM,
            up_to,
        }
    }

    #[test]
    fn operations_on_one_stream_keep_their_order() {
        for (ops, deleted, written) in [
            (vec![put(1, "a"), put(1, "b")], None, vec![(1, "b")]),
            (
                vec![put(5, "a"), delete(3), put(2, "b")],
                Some(3),
                vec![(2, "b"), (5, "a")],
            ),
            (
                vec![delete(3), put(2, "b"), delete(1)],
                Some(3),
                vec![(2, "b")],
            ),
            (vec![put(2, "a"), delete(3)], Some(3), vec![]),
            (
                vec![put(2, "a"), delete(u64::MAX), put(2, "b")],
                Some(u64::MAX),
                vec![(2, "b")],
            ),
        ] {
            let (deletions, records) = reduce(&ops);
            let numbers = records.numbers.iter().map(|number| from_ordered(*number));
            let texts = records.bytes.iter().map(|blob| blob.0.clone());
            let records: Vec<_> = numbers.zip(texts).collect();
            let expected = written
                .iter()
                .map(|(number, text)| (*number, Bytes::from_static(text.as_bytes())));
            assert_eq!(records, expected.collect::<Vec<_>>(), "{ops:?}");
            let up_to = deletions.up_to.first().map(|number| from_ordered(*number));
            assert_eq!(up_to, deleted, "{ops:?}");
        }
    }
}
