//! Shared code of the temporary file tools: parsing of files and contents.
//!
//! The tools only describe operations; the files belong to the tree of processes and not to one of
//! them.

use dormouse_proto::descriptor::{DescriptorSettings, FdError, FdErrorKind};
use dormouse_proto::temp_file::{TempFileOp, TempId};

use super::args::Args;
use super::{Outcome, PendingTempFile};
use crate::table::Table;
use dormouse_content::Content;

/// The outcome that asks for `op`.
pub(super) fn pending(
    args: &Args,
    op: TempFileOp<Content>,
    settings: &DescriptorSettings,
) -> Outcome {
    let asked = args.text("temp_file_id").map(str::to_owned);
    Outcome::TempFile(PendingTempFile {
        op,
        max_bytes: settings.max_content_bytes,
        asked,
    })
}

/// Parses the file argument.
///
/// # Errors
/// `invalid_parameter` if it is missing or not the name of a file.
pub(super) fn file(args: &Args) -> Result<TempId, FdError> {
    let name = args.required_text("temp_file_id", "the temporary file, such as \"temp:1\"")?;
    name.parse().map_err(|_| {
        args.invalid(format!(
            "'{name}' is not a temporary file: expected the temp_file_id that create_temp_file \
             gave, temp:N."
        ))
    })
}

/// Parses the optional version argument.
///
/// # Errors
/// `invalid_range`: versions count from 1.
pub(super) fn version(args: &Args) -> Result<Option<u64>, FdError> {
    let Some(version) = args.integer("version") else {
        return Ok(None);
    };
    let counted = u64::try_from(version)
        .ok()
        .filter(|version| *version > 0)
        .map(Some);
    counted.ok_or_else(|| {
        let message = format!(
            "Invalid version {version}: versions count from 1. Give the one that you read."
        );
        args.error(FdErrorKind::InvalidRange, message)
    })
}

/// The content for a file: a text, or the content of a descriptor, which is not copied.
///
/// # Errors
/// `invalid_parameter` unless exactly one is given; `not_found`.
pub(super) fn content(args: &Args, table: &Table) -> Result<Content, FdError> {
    match (args.text("content"), args.text("fd")) {
        (Some(text), None) => Ok(Content::new(text.to_owned())),
        (None, Some(fd)) => table.resolve(fd).map(|(_, entry)| entry.content.clone()),
        (Some(_), Some(_)) => Err(args.invalid("Give either 'content' or 'fd', not both.")),
        (None, None) => Err(args.missing(
            "content",
            "the text that the file is to hold, or 'fd', a descriptor that holds it",
        )),
    }
}

#[cfg(test)]
pub(in crate::syscall) mod tests;
