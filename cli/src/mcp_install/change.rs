//! One change of a file: it is shown as a diff, and written as a whole, with a copy of what was
//! there.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use dormouse::diff::unified_diff;

/// Equal lines that are shown around each difference.
const CONTEXT_LINES: u32 = 3;

/// The change of one file.
pub(super) struct Change {
    pub(super) path: PathBuf,
    before: String,
    after: String,
}

/// Reads a file; an absent one is empty.
///
/// # Errors
/// It cannot be read, or is not UTF-8.
pub(super) fn read(path: &Path) -> io::Result<String> {
    match fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(String::new()),
        read => read,
    }
}

impl Change {
    /// `None` if nothing changes.
    pub(super) fn new(path: PathBuf, before: String, after: String) -> Option<Self> {
        (before != after).then_some(Self {
            path,
            before,
            after,
        })
    }

    /// The change as a unified diff.
    pub(super) fn diff(&self) -> String {
        let shown = unified_diff(&self.before, &self.after, CONTEXT_LINES);
        let path = self.path.display();
        format!("--- {path}\n+++ {path}\n{shown}")
    }

    /// Writes the file, and returns the path of the copy of what was there; `None` if nothing was.
    /// The file is replaced in one step. A link stays: the file that it leads to is replaced.
    ///
    /// # Errors
    /// The file cannot be written, or has changed since it was read. It is as it was before.
    pub(super) fn write(&self) -> io::Result<Option<PathBuf>> {
        let path = fs::canonicalize(&self.path).unwrap_or_else(|_| self.path.clone());
        if read(&path)? != self.before {
            return Err(io::Error::other(
                "it has changed since it was shown. Run this again",
            ));
        }
        let folder = path.parent().unwrap_or(Path::new("."));
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        file.write_all(self.after.as_bytes())?;
        file.as_file().sync_all()?;
        let backup = match fs::metadata(&path) {
            Ok(metadata) => {
                file.as_file().set_permissions(metadata.permissions())?;
                let backup = backup_path(&path);
                fs::copy(&path, &backup)?;
                Some(backup)
            }
            Err(_) => {
                let readable_by_all = fs::Permissions::from_mode(0o644);
                file.as_file().set_permissions(readable_by_all)?;
                None
            }
        };
        file.persist(&path)?;
        Ok(backup)
    }
}

/// The path of a copy: with the seconds since 1970, so that copies do not replace each other.
fn backup_path(path: &Path) -> PathBuf {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    let seconds = since_epoch.map_or(0, |elapsed| elapsed.as_secs());
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{seconds}.bak"));
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_headers_of_a_diff_state_the_lines_that_follow() {
        let lines: String = (1..=9).map(|line| format!("{line}\n")).collect();
        let fifth = "@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n";
        let open = "@@ -1,1 +1,1 @@\n-a\n\\ No newline at end of file\n+a\n";
        for (before, after, expected) in [
            ("", "a\nb\n", "@@ -0,0 +1,2 @@\n+a\n+b\n"),
            (&*lines, &*lines.replace('5', "five"), fifth),
            ("a", "a\n", open),
        ] {
            let change = Change::new("f".into(), before.to_owned(), after.to_owned()).unwrap();
            assert_eq!(change.diff(), format!("--- f\n+++ f\n{expected}"));
        }
    }
}
