//! Names of a program's files: normalized paths relative to the entry's folder.
//!
//! A name is a path with `/`, normalized lexically (no link is followed, no folder is read):
//! `prompts/system.md` or `../shared/editor.toml` relative to the entry's folder, `/etc/motd` for
//! an absolute path, and `./notes.md` for a path that starts in the working directory. A name
//! depends neither on the machine nor on the location of the entry's folder, so that a bundle can
//! be moved.

use std::path::{Path, PathBuf};

/// Prefix of a name that starts in the working directory. No other name starts with it, since
/// normalization removes `.`.
const WORKING_DIRECTORY: &str = "./";
const MAX_PATH_BYTES: usize = 4096;

/// The name in a bundle of the file at the path `written` in the program file `from`; `None` if the
/// path cannot name a file.
#[must_use]
pub fn relative_to_file(from: &str, written: &str) -> Option<String> {
    if Path::new(written).has_root() {
        return normalise(written);
    }
    match from.rsplit_once('/') {
        Some((folder, _)) => normalise(&format!("{folder}/{written}")),
        None => normalise(written),
    }
}

/// The name of the file `written`, relative to the working directory.
pub(super) fn in_working_directory(written: &str) -> Option<String> {
    let name = normalise(written)?;
    Some(if Path::new(written).has_root() {
        name
    } else {
        format!("{WORKING_DIRECTORY}{name}")
    })
}

/// The path of the file with this name, if the entry is in `folder`.
pub(super) fn to_path(folder: &Path, name: &str) -> PathBuf {
    match name.strip_prefix(WORKING_DIRECTORY) {
        Some(path) => PathBuf::from(path),
        None if Path::new(name).has_root() => PathBuf::from(name),
        None => match folder.to_str().map(|folder| format!("{folder}/{name}")) {
            Some(path) if !folder.as_os_str().is_empty() => {
                PathBuf::from(normalise(&path).unwrap_or(path))
            }
            Some(_) => PathBuf::from(name),
            None => folder.join(name),
        },
    }
}

fn ends_in_file_name(written: &str) -> bool {
    !matches!(written.rsplit('/').next(), Some("" | "." | "..") | None)
}

fn normalise(path: &str) -> Option<String> {
    if !ends_in_file_name(path) || path.contains('\0') || path.len() > MAX_PATH_BYTES {
        return None;
    }
    let root = if path.starts_with('/') { "/" } else { "" };
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => drop(parts.pop()),
            ".." if !root.is_empty() => {}
            part => parts.push(part),
        }
    }
    Some(format!("{root}{}", parts.join("/")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_in_a_program_file_becomes_a_bundle_name() {
        let cases = [
            ("main.toml", "a.md", Some("a.md")),
            ("main.toml", "./x/../a.md", Some("a.md")),
            ("main.toml", "../shared/a.md", Some("../shared/a.md")),
            ("../shared/b.toml", "a.md", Some("../shared/a.md")),
            ("sub/b.toml", "../main.toml", Some("main.toml")),
            ("sub/b.toml", "../../x.toml", Some("../x.toml")),
            ("sub/b.toml", "/etc//a/../b.md", Some("/etc/b.md")),
            ("/etc/b.toml", "../../../a.md", Some("/a.md")),
            ("main.toml", "", None),
            ("sub/b.toml", "", None),
            ("main.toml", ".", None),
            ("sub/b.toml", "..", None),
            ("main.toml", "folder/", None),
            ("main.toml", "a\0b", None),
        ];
        for (from, written, expected) in cases {
            assert_eq!(
                relative_to_file(from, written).as_deref(),
                expected,
                "{written:?} from {from}"
            );
        }
        assert_eq!(relative_to_file("main.toml", &"x/".repeat(5000)), None);
    }

    #[test]
    fn a_name_becomes_a_path_relative_to_the_folder_of_the_entry() {
        let cases = [
            ("", "a.md", "a.md"),
            ("demo", "sub/a.md", "demo/sub/a.md"),
            ("demo", "../a.md", "a.md"),
            ("..", "../a.md", "../../a.md"),
            ("/srv/demo", "../a.md", "/srv/a.md"),
            ("demo", "/etc/a.md", "/etc/a.md"),
        ];
        for (folder, name, expected) in cases {
            assert_eq!(
                to_path(Path::new(folder), name),
                Path::new(expected),
                "{name} in {folder}"
            );
        }
        let name = in_working_directory("x/../a.md").unwrap();
        assert_eq!(to_path(Path::new("/srv/demo"), &name), Path::new("a.md"));
        assert_ne!(relative_to_file("main.toml", "./a.md").unwrap(), name);
        assert_eq!(
            in_working_directory("/etc/a.md").as_deref(),
            Some("/etc/a.md")
        );
    }
}
