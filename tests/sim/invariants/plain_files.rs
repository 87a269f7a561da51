//! TEMP-1 to TEMP-3, against files as plain as can be: a list of bytes and versions, and what each
//! call was told.

use std::collections::BTreeMap;

use dormouse_content::Content;
use dormouse_kernel::temp_files::FileParts;
use dormouse_proto::temp_file::{
    TempFileChange, TempFileError, TempFileOp, TempFileOrigin, TempFileRecord, TempFileReply,
    TempId,
};

use super::{Held, ensure};
use crate::files::joined;

/// The files of a tree as they are durable.
#[derive(Clone, Default)]
pub(crate) struct PlainFiles {
    files: BTreeMap<TempId, (u64, Vec<u8>)>,
    told: BTreeMap<TempFileOrigin, (TempId, u64)>,
    last: u32,
}

type Result = std::result::Result<TempFileReply<FileParts<Content>>, TempFileError>;

impl PlainFiles {
    pub(crate) fn apply(&mut self, record: &TempFileRecord<Content>) {
        let TempFileRecord {
            id,
            version,
            origin,
            change,
            ..
        } = record;
        match change {
            TempFileChange::Created(content) | TempFileChange::Written(content) => {
                self.files.insert(
                    *id,
                    (
                        *version,
                        content
                            .unlimited_reader()
                            .bytes()
                            .expect("it is in memory")
                            .to_vec(),
                    ),
                );
            }
            TempFileChange::Appended(content) => {
                let (at, bytes) = self.files.entry(*id).or_default();
                *at = *version;
                bytes.extend_from_slice(
                    &content.unlimited_reader().bytes().expect("it is in memory"),
                );
            }
            TempFileChange::Deleted => drop(self.files.remove(id)),
        }
        self.told.insert(*origin, (*id, *version));
        self.last = self.last.max(id.0);
    }

    /// What was made of an operation, and answered.
    pub(crate) fn check(
        &self,
        origin: TempFileOrigin,
        op: &TempFileOp<Content>,
        made: &[TempFileRecord<Content>],
        result: &Result,
    ) -> Held {
        let changed = |id: TempId, version: u64| matches!(result, Ok(TempFileReply::Changed { id: told, version: at, .. }) if *told == id && *at == version);
        ensure(made.len() <= 1, "TEMP-1", || {
            format!("{origin:?} is done {} times", made.len())
        })?;
        if let Some((id, version)) = self.told.get(&origin) {
            let is_same = made.is_empty() && changed(*id, *version);
            return ensure(is_same, "TEMP-1", || {
                format!("{origin:?} comes again, and {made:?} is made: {result:?}")
            });
        }
        let newest = |id: &TempId| self.files.get(id).map(|(version, _)| *version);
        let record = made.first();
        match op {
            TempFileOp::Create { .. } => {
                let number = record.map_or(0, |record| record.id.0);
                ensure(number > self.last, "TEMP-3", || {
                    format!("temp:{number} is new after temp:{}", self.last)
                })
            }
            TempFileOp::Write { id, version, .. } => {
                let is_newest = newest(id) == Some(*version);
                let is_right =
                    is_newest == record.is_some() && (!is_newest || changed(*id, version + 1));
                ensure(is_right, "TEMP-2", || {
                    format!(
                        "{id} at {:?} is written from {version}: {result:?}",
                        newest(id)
                    )
                })
            }
            TempFileOp::Append { id, .. } => {
                let is_right =
                    newest(id).map_or(record.is_none(), |version| changed(*id, version + 1));
                ensure(is_right, "TEMP-1", || {
                    format!("{id} at {:?} is added to: {result:?}", newest(id))
                })
            }
            TempFileOp::Delete { id, version } => {
                let is_asked = newest(id).is_some()
                    && version.is_none_or(|version| newest(id) == Some(version));
                ensure(is_asked == record.is_some(), "TEMP-2", || {
                    format!("{id} is deleted: {result:?}")
                })
            }
            TempFileOp::Read { id } => {
                let bytes = match result {
                    Ok(TempFileReply::Contents { content, .. }) => Some(
                        joined(content)
                            .unlimited_reader()
                            .bytes()
                            .expect("it is in memory")
                            .to_vec(),
                    ),
                    _ => None,
                };
                let is_right = bytes.as_ref() == self.files.get(id).map(|(_, bytes)| bytes);
                ensure(is_right, "TEMP-1", || format!("{id} is read as {bytes:?}"))
            }
        }
    }
}
