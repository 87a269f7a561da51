//! Tests the result of a write for every mode, every presence, and an existing or absent file.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use std::sync::Arc;

use bytes::Bytes;
use dormouse_proto::file::{EntryKind, FileError, FileErrorKind, FileWrite, Presence, WriteMode};
use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};

use super::Files;
use crate::permissions::Permissions;

const INSERT_2: WriteMode = WriteMode::Insert { at_line: 2 };
const INSERT_1: WriteMode = WriteMode::Insert { at_line: 1 };

fn files(dir: &Path) -> Files {
    let dir = dir.canonicalize().unwrap();
    Files::open(
        &Permissions::none().allow_read(".").allow_write("."),
        &Arc::default(),
        &dir,
    )
    .unwrap()
}

fn write(
    files: &Files,
    path: &str,
    text: &str,
    mode: WriteMode,
    presence: Presence,
) -> Result<(), FileError> {
    files.write(&FileWrite {
        path: path.into(),
        bytes: Bytes::copy_from_slice(text.as_bytes()),
        mode,
        presence,
    })
}

/// Everything in the folder, so that a temporary file left behind is seen.
fn listing(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = entries.collect();
    names.sort();
    names
}

/// Mode, presence, the text of the file before (`None`: absent), and the expected result: the text
/// after the write, or the kind of error, which leaves the file unchanged.
type Row = (
    WriteMode,
    Presence,
    Option<&'static str>,
    Result<&'static str, FileErrorKind>,
);

const ROWS: [Row; 27] = {
    use FileErrorKind::{FileExists, FileNotFound, InvalidRange};
    use Presence::{Absent, Any, Neither, Present};
    use WriteMode::{Append, Write};
    [
        (Write, Any, None, Ok("NEW")),
        (Write, Any, Some("OLD"), Ok("NEW")),
        (Write, Absent, None, Ok("NEW")),
        (Write, Absent, Some("OLD"), Err(FileExists)),
        (Write, Present, None, Err(FileNotFound)),
        (Write, Present, Some("OLD"), Ok("NEW")),
        (Write, Neither, None, Err(FileNotFound)),
        (Write, Neither, Some("OLD"), Err(FileExists)),
        (Append, Any, None, Ok("NEW")),
        (Append, Any, Some("OLD"), Ok("OLDNEW")),
        (Append, Absent, None, Ok("NEW")),
        (Append, Absent, Some("OLD"), Err(FileExists)),
        (Append, Present, None, Err(FileNotFound)),
        (Append, Present, Some("OLD"), Ok("OLDNEW")),
        (Append, Neither, None, Err(FileNotFound)),
        (Append, Neither, Some("OLD"), Err(FileExists)),
        (INSERT_1, Any, None, Ok("NEW")),
        (INSERT_1, Any, Some("OLD"), Ok("NEW\nOLD")),
        (INSERT_1, Absent, None, Ok("NEW")),
        (INSERT_1, Absent, Some("OLD"), Err(FileExists)),
        (INSERT_1, Present, None, Err(FileNotFound)),
        (INSERT_2, Present, Some("OLD"), Ok("OLD\nNEW")),
        (INSERT_1, Neither, None, Err(FileNotFound)),
        (INSERT_1, Neither, Some("OLD"), Err(FileExists)),
        (INSERT_2, Any, None, Err(InvalidRange)),
        (INSERT_2, Any, Some(""), Err(InvalidRange)),
        (
            WriteMode::Insert { at_line: 0 },
            Any,
            Some("OLD"),
            Err(InvalidRange),
        ),
    ]
};

fn check((mode, presence, before, expected): Row) {
    let case = format!("{mode:?} {presence:?} {before:?}");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f.txt");
    if let Some(text) = before {
        fs::write(&path, text).unwrap();
    }
    let done = write(&files(dir.path()), "f.txt", "NEW", mode, presence);
    assert_eq!(
        done.as_ref().map_err(|error| error.kind).err(),
        expected.err(),
        "{case}: {done:?}"
    );
    let after = fs::read_to_string(&path).ok();
    assert_eq!(after.as_deref(), expected.ok().or(before), "{case}");
    let left = if after.is_some() {
        vec!["f.txt".to_owned()]
    } else {
        Vec::new()
    };
    assert_eq!(listing(dir.path()), left, "{case}");
}

#[test]
fn every_mode_and_presence_has_its_expected_result() {
    ROWS.into_iter().for_each(check);
}

#[test]
fn bytes_are_kept_exactly() {
    let dir = tempfile::tempdir().unwrap();
    let files = files(dir.path());
    for text in [
        "",
        "a\r\nb\r\n",
        "é😀",
        "\0\u{1b}\u{fffe}",
        &"x".repeat(3 << 20),
    ] {
        write(&files, "f", text, WriteMode::Write, Presence::Any).unwrap();
        assert_eq!(files.read(Path::new("f")).unwrap(), text.as_bytes());
    }
}

#[test]
fn a_file_is_read_up_to_a_cap_and_the_rest_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    let files = files(dir.path());
    fs::write(dir.path().join("f"), "x".repeat(100)).unwrap();
    for (cap_bytes, kept, cut) in [
        (10, 10, 90),
        (99, 99, 1),
        (100, 100, 0),
        (1000, 100, 0),
        (0, 0, 100),
    ] {
        let collected = files.read_capped(Path::new("f"), cap_bytes).unwrap();
        assert_eq!(
            (collected.bytes.len(), collected.cut_bytes),
            (kept, cut),
            "{cap_bytes}"
        );
    }
}

#[test]
fn a_folder_is_listed_by_name_with_the_type_of_each_entry() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("b"), "four").unwrap();
    fs::create_dir(dir.path().join("a")).unwrap();
    std::os::unix::fs::symlink("b", dir.path().join("c")).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(dir.path().join("d")).unwrap();
    let listing = files(dir.path()).list(Path::new(".")).unwrap();
    let found: Vec<_> = listing
        .entries
        .iter()
        .map(|entry| (&*entry.name, entry.kind))
        .collect();
    let expected = [
        ("a", EntryKind::Directory),
        ("b", EntryKind::File { bytes: 4 }),
        ("c", EntryKind::Link),
        ("d", EntryKind::Other),
    ];
    assert_eq!((&found[..], listing.left_out), (&expected[..], 0));
}

#[test]
fn a_folder_that_may_be_read_and_not_searched_is_not_listed_as_empty() {
    let dir = tempfile::tempdir().unwrap();
    let locked = dir.path().join("locked");
    fs::create_dir(&locked).unwrap();
    fs::write(locked.join("f"), "x").unwrap();
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o444)).unwrap();
    let files = files(dir.path());
    // A user without the rights of root, which only this thread gives up.
    let listed = std::thread::spawn(move || {
        let none = CapabilitySet::empty();
        let sets = CapabilitySets {
            effective: none,
            permitted: none,
            inheritable: none,
        };
        set_capabilities(None, sets).unwrap();
        files.list(Path::new("locked"))
    });
    let error = listed.join().unwrap().unwrap_err();
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(error.kind, FileErrorKind::PermissionError);
}

#[test]
fn parents_are_made_only_for_a_write_that_happens() {
    let cases = [
        (WriteMode::Write, Presence::Any, true),
        (WriteMode::Append, Presence::Absent, true),
        (WriteMode::Write, Presence::Present, false),
        (WriteMode::Write, Presence::Neither, false),
        (INSERT_2, Presence::Any, false),
    ];
    for (mode, presence, made) in cases {
        let dir = tempfile::tempdir().unwrap();
        let done = write(&files(dir.path()), "n1/n2/f.txt", "deep", mode, presence);
        assert_eq!(done.is_ok(), made, "{mode:?} {presence:?} {done:?}");
        let read = fs::read_to_string(dir.path().join("n1/n2/f.txt")).ok();
        assert_eq!(read, made.then(|| "deep".into()), "{mode:?} {presence:?}");
        assert_eq!(
            dir.path().join("n1").exists(),
            made,
            "{mode:?} {presence:?}"
        );
    }
}

#[test]
fn a_replaced_file_keeps_its_mode_and_a_new_one_gets_the_usual() {
    let dir = tempfile::tempdir().unwrap();
    let files = files(dir.path());
    let mode = |name: &str| {
        fs::metadata(dir.path().join(name))
            .unwrap()
            .permissions()
            .mode()
            & 0o7777
    };
    fs::write(dir.path().join("old"), "x").unwrap();
    for bits in [0o600, 0o755, 0o640] {
        fs::set_permissions(dir.path().join("old"), fs::Permissions::from_mode(bits)).unwrap();
        for how in [WriteMode::Write, WriteMode::Append, INSERT_1] {
            write(&files, "old", "y", how, Presence::Any).unwrap();
            assert_eq!(mode("old"), bits, "{how:?}");
        }
    }
    write(&files, "new", "y", WriteMode::Write, Presence::Absent).unwrap();
    assert_eq!(mode("new") & 0o133, 0, "no more than 0644");
    assert_eq!(mode("new") & 0o600, 0o600);
}

#[test]
fn a_reader_of_the_old_file_keeps_the_old_file() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("f"), "old").unwrap();
    let mut reader = fs::File::open(dir.path().join("f")).unwrap();
    write(
        &files(dir.path()),
        "f",
        "new",
        WriteMode::Append,
        Presence::Any,
    )
    .unwrap();
    let mut text = String::new();
    std::io::Read::read_to_string(&mut reader, &mut text).unwrap();
    assert_eq!(text, "old");
}

#[test]
fn appends_from_many_threads_all_arrive() {
    let dir = tempfile::tempdir().unwrap();
    let files = files(dir.path());
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let files = &files;
            scope.spawn(move || {
                for n in 0..25 {
                    write(
                        files,
                        "log",
                        &format!("{thread}-{n}\n"),
                        WriteMode::Append,
                        Presence::Any,
                    )
                    .unwrap();
                }
            });
        }
    });
    assert_eq!(
        fs::read_to_string(dir.path().join("log"))
            .unwrap()
            .lines()
            .count(),
        100
    );
}

#[test]
fn of_concurrent_creations_of_one_file_one_succeeds() {
    let dir = tempfile::tempdir().unwrap();
    // Two hosts, so that the locks of one host do not order the two.
    let hosts = [files(dir.path()), files(dir.path())];
    for round in 0..50 {
        let name = format!("f{round}");
        let done: Vec<_> = std::thread::scope(|scope| {
            let create = |host| write(host, &name, "x", WriteMode::Write, Presence::Absent);
            let threads: Vec<_> = hosts
                .iter()
                .map(|host| scope.spawn(move || create(host)))
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        });
        assert_eq!(
            done.iter().filter(|done| done.is_ok()).count(),
            1,
            "{done:?}"
        );
        let failed = done.into_iter().find_map(Result::err).unwrap();
        assert_eq!(failed.kind, FileErrorKind::FileExists);
    }
}

/// A rename could replace the file. Root may write to it in spite of its mode.
#[test]
fn a_write_protected_file_is_not_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    fs::write(&path, "old").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
    let may_write = fs::OpenOptions::new().write(true).open(&path).is_ok();
    let done = write(
        &files(dir.path()),
        "f",
        "new",
        WriteMode::Write,
        Presence::Any,
    );
    let kind = done.map_err(|error| error.kind).err();
    assert_eq!(kind, (!may_write).then_some(FileErrorKind::PermissionError));
    assert_eq!(
        fs::read_to_string(&path).unwrap(),
        if may_write { "new" } else { "old" }
    );
}
