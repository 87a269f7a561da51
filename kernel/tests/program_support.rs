//! Program files in memory, and the compiler over them.

use std::path::Path;

use crate::program_schema::check_against_schema;
use bytes::Bytes;
use dormouse_kernel::program::{Compiled, ProgramErrors, compile};
use dormouse_proto::file::{FileError, FileErrorKind};

/// A file: its path and its text.
pub(crate) type File<'a> = (&'a str, &'a str);

/// Compiles the first of these files; the host has the tools `grep` and `http-get`.
pub(crate) fn compile_files(files: &[File<'_>]) -> Result<Compiled, ProgramErrors> {
    for (_, text) in files {
        check_against_schema(text);
    }
    let mut read = |path: &Path| {
        let found = files.iter().find(|(name, _)| Path::new(name) == path);
        found
            .map(|(_, text)| Bytes::copy_from_slice(text.as_bytes()))
            .ok_or_else(|| missing(path))
    };
    compile(Path::new(files[0].0), &mut read, &["grep", "http-get"])
}

fn missing(path: &Path) -> FileError {
    FileError {
        kind: FileErrorKind::FileNotFound,
        message: format!("{} is not there", path.display()),
    }
}
