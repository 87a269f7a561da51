//! The temporary files of one process tree: content and version of each file, and the call that
//! made each change.
//!
//! The module is a pure state machine: [`decide`] computes the result of an operation, and
//! [`evolve`] applies a change after it was made durable. The caller performs all I/O.
//!
//! * TEMP-1: an operation is applied at most once. Each change records the call that made it; a
//!   repeated operation gets its first reply, even if the file has changed since.
//! * TEMP-2: a write with an outdated version changes nothing.
//! * TEMP-3: the number of a file is never reused.
//!
//! The state keeps the reply to each change, some dozens of bytes, for as long as the tree exists.

use dormouse_proto::temp_file::{
    TempFileChange, TempFileError, TempFileOp, TempFileOrigin, TempFileRecord, TempFileReply,
    TempId,
};
use imbl::{OrdMap, Vector};

use dormouse_content::Content;

/// Maximum number of files of a tree.
pub const MAX_FILES: usize = 1_000;

/// Maximum number of files that an error lists.
const MAX_LISTED: usize = 5;

/// A part of a file's content. The trait is generic over the representation of the bytes: a machine
/// holds contents, a store references to contents.
pub trait FilePart: Clone {
    /// Length in bytes. O(1).
    fn len_bytes(&self) -> u64;
}

impl FilePart for Content {
    fn len_bytes(&self) -> u64 {
        Self::len_bytes(self)
    }
}

/// The content of a file as a sequence of parts: the first write, then each appended content.
pub type FileParts<C> = Vector<C>;

/// The temporary files of a tree. Cloning costs O(1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TempFiles<C: Clone> {
    files: OrdMap<TempId, File<C>>,
    /// The reply to each call that changed something.
    receipts: OrdMap<TempFileOrigin, Receipt>,
    /// The last file number that was assigned.
    last_id: u32,
    /// The number of the latest change.
    last_change: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct File<C: Clone> {
    version: u64,
    total_bytes: u64,
    parts: FileParts<C>,
}

/// The reply to a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Receipt {
    id: TempId,
    version: u64,
    total_bytes: u64,
}

/// The result of an operation: its reply, and the change to make durable first.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "the record must be made durable before the reply is given"]
pub struct TempFileDecision<C: Clone> {
    /// The change; `None` for reads and repeated operations.
    pub record: Option<TempFileRecord<C>>,
    /// The reply, to be given once the change is durable.
    pub reply: TempFileReply<FileParts<C>>,
}

impl<C: Clone> Default for TempFiles<C> {
    fn default() -> Self {
        Self {
            files: OrdMap::new(),
            receipts: OrdMap::new(),
            last_id: 0,
            last_change: 0,
        }
    }
}

impl<C: Clone> TempFiles<C> {
    fn find(&self, id: TempId) -> Result<&File<C>, TempFileError> {
        self.files.get(&id).ok_or_else(|| {
            let known = self.files.keys().rev().take(MAX_LISTED).copied().collect();
            let was_assigned = (1..=self.last_id).contains(&id.0);
            if was_assigned {
                TempFileError::Deleted { id, known }
            } else {
                TempFileError::NotFound { id, known }
            }
        })
    }

    /// The file, if `version` is its newest version.
    fn find_at_version(&self, id: TempId, version: u64) -> Result<&File<C>, TempFileError> {
        match self.find(id)? {
            file if file.version == version => Ok(file),
            file => Err(TempFileError::Stale {
                id,
                given: version,
                current: file.version,
            }),
        }
    }
}

/// Computes the result of the operation `op`, which the call `origin` requested. `max_bytes` limits
/// the size of a file. O(log n) in the number of files and changes.
///
/// # Errors
/// Every [`TempFileError`] except `Unavailable`; then nothing changes.
pub fn decide<C: FilePart>(
    files: &TempFiles<C>,
    origin: TempFileOrigin,
    op: TempFileOp<C>,
    max_bytes: u64,
) -> Result<TempFileDecision<C>, TempFileError> {
    if let Some(receipt) = files.receipts.get(&origin) {
        return Ok(TempFileDecision {
            record: None,
            reply: receipt.reply(),
        });
    }
    let (receipt, change) = match op {
        TempFileOp::Read { id } => return files.find(id).map(|file| read(id, file)),
        TempFileOp::Create { content } => create(files, content)?,
        TempFileOp::Write {
            id,
            content,
            version,
        } => {
            let file = files.find_at_version(id, version)?;
            (
                file.next_receipt(id, content.len_bytes()),
                TempFileChange::Written(content),
            )
        }
        TempFileOp::Append { id, content } => {
            let file = files.find(id)?;
            let total_bytes = file.total_bytes.saturating_add(content.len_bytes());
            (
                file.next_receipt(id, total_bytes),
                TempFileChange::Appended(content),
            )
        }
        TempFileOp::Delete { id, version } => {
            let file = version.map_or_else(
                || files.find(id),
                |version| files.find_at_version(id, version),
            )?;
            (file.receipt(id), TempFileChange::Deleted)
        }
    };
    check_size(&receipt, &change, max_bytes)?;
    let Receipt {
        id,
        version,
        total_bytes,
    } = receipt;
    let record = TempFileRecord {
        number: files.last_change + 1,
        origin,
        id,
        version,
        total_bytes,
        change,
    };
    Ok(TempFileDecision {
        record: Some(record),
        reply: receipt.reply(),
    })
}

/// Applies a durable change. Never fails. O(log n).
pub fn evolve<C: FilePart>(files: &mut TempFiles<C>, record: &TempFileRecord<C>) {
    let TempFileRecord {
        number,
        origin,
        id,
        version,
        total_bytes,
        change,
    } = record;
    let version = *version;
    let total_bytes = *total_bytes;
    let new_file = |content: &C| File {
        version,
        total_bytes,
        parts: FileParts::unit(content.clone()),
    };
    match change {
        TempFileChange::Created(content) | TempFileChange::Written(content) => {
            files.files.insert(*id, new_file(content));
        }
        TempFileChange::Appended(content) => {
            let mut file = files.files.get(id).cloned().unwrap_or_else(|| File {
                parts: FileParts::new(),
                ..new_file(content)
            });
            file.parts.push_back(content.clone());
            files.files.insert(
                *id,
                File {
                    version,
                    total_bytes,
                    ..file
                },
            );
        }
        TempFileChange::Deleted => {
            files.files.remove(id);
        }
    }
    files.receipts.insert(
        *origin,
        Receipt {
            id: *id,
            version,
            total_bytes,
        },
    );
    files.last_id = files.last_id.max(id.0);
    files.last_change = *number;
}

fn create<C: FilePart>(
    files: &TempFiles<C>,
    content: C,
) -> Result<(Receipt, TempFileChange<C>), TempFileError> {
    if files.files.len() >= MAX_FILES {
        return Err(TempFileError::TooMany {
            max_files: MAX_FILES,
        });
    }
    let receipt = Receipt {
        id: TempId(files.last_id + 1),
        version: 1,
        total_bytes: content.len_bytes(),
    };
    Ok((receipt, TempFileChange::Created(content)))
}

fn read<C: Clone>(id: TempId, file: &File<C>) -> TempFileDecision<C> {
    let reply = TempFileReply::Contents {
        id,
        version: file.version,
        content: file.parts.clone(),
    };
    TempFileDecision {
        record: None,
        reply,
    }
}

/// Checks the size of a file after a change. A file that is too large can still be deleted, since
/// the program of another process may have permitted its size.
fn check_size<C>(
    receipt: &Receipt,
    change: &TempFileChange<C>,
    max_bytes: u64,
) -> Result<(), TempFileError> {
    match change {
        TempFileChange::Deleted => Ok(()),
        _ if receipt.total_bytes <= max_bytes => Ok(()),
        _ => Err(TempFileError::TooLarge {
            total_bytes: receipt.total_bytes,
            max_bytes,
        }),
    }
}

impl<C: Clone> File<C> {
    fn receipt(&self, id: TempId) -> Receipt {
        Receipt {
            id,
            version: self.version,
            total_bytes: self.total_bytes,
        }
    }

    fn next_receipt(&self, id: TempId, total_bytes: u64) -> Receipt {
        Receipt {
            id,
            version: self.version + 1,
            total_bytes,
        }
    }
}

impl Receipt {
    fn reply<B>(self) -> TempFileReply<B> {
        let Self {
            id,
            version,
            total_bytes,
        } = self;
        TempFileReply::Changed {
            id,
            version,
            total_bytes,
        }
    }
}

#[cfg(test)]
mod tests;
