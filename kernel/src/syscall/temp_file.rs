//! Shared code of the tools for temporary files: parses the file, the version and the content of a
//! call.
//!
//! The tools only describe operations (`dormouse_proto::temp_file`), since the files belong to the
//! whole process tree. The shell performs the operations, by the decisions of
//! `kernel/machine/src/temp_files.rs`.

use dormouse_proto::descriptor::{DescriptorSettings, FdError, FdErrorKind};
use dormouse_proto::temp_file::{TempFileOp, TempId};

use super::args::Args;
use super::{Outcome, PendingTempFile};
use crate::table::Table;
use dormouse_content::Content;

/// Other names of the parameter that takes a file.
pub(super) const FILE_NAMES: [&str; 5] = ["temp_file", "temp_id", "file_id", "id", "file"];

/// Other names of the parameter that takes the text of a file.
pub(super) const CONTENT_NAMES: [&str; 5] = ["text", "file_text", "contents", "data", "body"];

/// Creates the outcome that requests the operation `op`.
pub(super) fn pending_operation(
    args: &Args,
    op: TempFileOp<Content>,
    settings: &DescriptorSettings,
) -> Outcome {
    let requested_file = args.text("temp_file_id").map(str::to_owned);
    Outcome::TempFile(PendingTempFile {
        op,
        max_bytes: settings.max_content_bytes,
        requested_file,
    })
}

/// Parses the file argument.
///
/// # Errors
/// `invalid_parameter` if it is missing or not the name of a file.
pub(super) fn parse_id(args: &Args) -> Result<TempId, FdError> {
    let name = args.required_text("temp_file_id", "the temporary file, such as \"temp:1\"")?;
    parse_name(name).ok_or_else(|| {
        args.invalid_error(format!(
            "'{name}' is not a temporary file: expected the id of a temporary file, temp:N."
        ))
    })
}

/// Parses the name of a file. Models also write `temp_1`, and the number alone.
fn parse_name(name: &str) -> Option<TempId> {
    let name = name.trim();
    let number = name.strip_prefix("temp").unwrap_or(name);
    let number = number.trim_start_matches([':', '-', '_']);
    format!("temp:{number}").parse().ok()
}

/// Parses the optional version argument.
///
/// # Errors
/// `invalid_range`: versions count from 1.
pub(super) fn parse_version(args: &Args) -> Result<Option<u64>, FdError> {
    let Some(version) = args.integer("version") else {
        return Ok(None);
    };
    let valid = u64::try_from(version)
        .ok()
        .filter(|version| *version > 0)
        .map(Some);
    valid.ok_or_else(|| {
        let message = format!(
            "Invalid version {version}: versions count from 1. Give the one that you read."
        );
        args.error(FdErrorKind::InvalidRange, message)
    })
}

/// Parses the content for a file: a text, or a descriptor, whose content is not copied.
///
/// # Errors
/// `invalid_parameter` unless exactly one of them is given; `not_found` for an unknown descriptor.
pub(super) fn parse_content(args: &Args, table: &Table) -> Result<Content, FdError> {
    match (args.text("content"), args.text("fd")) {
        (Some(text), None) => Ok(Content::new(text.to_owned())),
        (None, Some(fd)) => table
            .resolve_argument(fd)
            .map(|(_, entry)| entry.content.clone()),
        (Some(_), Some(_)) => Err(args.invalid_error("Give either 'content' or 'fd', not both.")),
        (None, None) => Err(args.missing_error(
            "content",
            "the text of the file, or 'fd', a descriptor with that text",
        )),
    }
}

#[cfg(test)]
pub(in crate::syscall) mod tests;
