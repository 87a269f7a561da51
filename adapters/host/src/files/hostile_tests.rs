//! Tests with hostile paths: paths that lead out of the permitted folder, entries that are not
//! regular files, and a folder that is swapped with a symbolic link while it is accessed.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use std::sync::Arc;

use bytes::Bytes;
use dormouse_proto::file::{FileError, FileErrorKind, FileWrite, Presence, WriteMode};
use rustix::fs::{CWD, FileType, Mode, RenameFlags, mknodat, renameat_with};
use tempfile::TempDir;

use super::Files;
use crate::permissions::Permissions;

/// A permitted folder `in` next to a forbidden folder `out`, with every kind of trap in the first.
struct TrapFolder {
    dir: TempDir,
    files: Files,
}

impl TrapFolder {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (inside, outside) = (dir.path().join("in"), dir.path().join("out"));
        fs::create_dir_all(inside.join("folder")).unwrap();
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("secret"), "secret").unwrap();
        fs::write(inside.join("plain"), "plain").unwrap();
        symlink("../out/secret", inside.join("link-out")).unwrap();
        symlink("../out", inside.join("folder-link-out")).unwrap();
        symlink("plain", inside.join("link-in")).unwrap();
        symlink("folder", inside.join("folder-link-in")).unwrap();
        symlink("../out/absent", inside.join("link-dangling")).unwrap();
        symlink("/proc/self", inside.join("link-proc")).unwrap();
        fs::hard_link(outside.join("secret"), inside.join("hard")).unwrap();
        mknodat(
            CWD,
            inside.join("fifo"),
            FileType::Fifo,
            Mode::RUSR | Mode::WUSR,
            0,
        )
        .unwrap();
        mknodat(
            CWD,
            inside.join("socket"),
            FileType::Socket,
            Mode::RUSR | Mode::WUSR,
            0,
        )
        .unwrap();
        let inside = inside.canonicalize().unwrap();
        let files = Files::open(
            &Permissions::none().allow_read(".").allow_write("."),
            &Arc::default(),
            &inside,
        )
        .unwrap();
        Self { dir, files }
    }

    fn write(&self, path: &str, mode: WriteMode) -> Result<(), FileError> {
        let bytes = Bytes::from_static(b"NEW");
        self.files.write(&FileWrite {
            path: path.into(),
            bytes,
            mode,
            presence: Presence::Any,
        })
    }

    fn outside(&self) -> Vec<(String, String)> {
        let read = |entry: fs::DirEntry| {
            (
                entry.file_name().into_string().unwrap(),
                fs::read_to_string(entry.path()).unwrap(),
            )
        };
        fs::read_dir(self.dir.path().join("out"))
            .unwrap()
            .map(|entry| read(entry.unwrap()))
            .collect()
    }
}

const TRAPS: [(&str, FileErrorKind); 29] = {
    use FileErrorKind::{AccessDenied, WriteError};
    [
        ("../out/secret", AccessDenied),
        ("../out/new", AccessDenied),
        ("folder/../../out/secret", AccessDenied),
        ("../in-not/x", AccessDenied),
        ("/etc/passwd", AccessDenied),
        ("/etc/dormouse-test", AccessDenied),
        ("/proc/self/environ", AccessDenied),
        ("/dev/null", AccessDenied),
        ("link-out", AccessDenied),
        ("link-in", AccessDenied),
        ("link-dangling", AccessDenied),
        ("folder-link-out", AccessDenied),
        ("folder-link-out/secret", AccessDenied),
        ("folder-link-out/new", AccessDenied),
        ("folder-link-out/deep/new", AccessDenied),
        ("folder-link-in/new", AccessDenied),
        ("link-proc/environ", AccessDenied),
        ("link-proc/root/etc/passwd", AccessDenied),
        ("hard", AccessDenied),
        ("fifo", WriteError),
        ("socket", WriteError),
        ("folder", WriteError),
        ("folder/", WriteError),
        (".", WriteError),
        ("..", WriteError),
        ("", WriteError),
        ("a\0b", WriteError),
        ("plain/x", WriteError),
        ("plain/x/y", WriteError),
    ]
};

#[test]
fn every_trap_is_refused_with_its_kind_without_blocking() {
    let traps = TrapFolder::new();
    let before = traps.outside();
    let began = Instant::now();
    for (path, kind) in TRAPS {
        for mode in [
            WriteMode::Write,
            WriteMode::Append,
            WriteMode::Insert { at_line: 1 },
        ] {
            let error = traps.write(path, mode).expect_err(path);
            assert_eq!(error.kind, kind, "{path:?} {mode:?}: {error}");
        }
        let error = traps.files.read(Path::new(path)).expect_err(path);
        assert_eq!(error.kind, kind, "{path:?} read: {error}");
    }
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(traps.outside(), before);
}

#[test]
fn an_error_names_the_type_of_an_entry_that_is_no_file() {
    let traps = TrapFolder::new();
    let cases = [
        ("folder", "a directory"),
        ("fifo", "a FIFO"),
        ("socket", "a socket"),
        ("plain/below", "a part of its way is a file"),
        ("link-in", "a symbolic link"),
    ];
    for (path, what) in cases {
        let error = traps.files.read(Path::new(path)).unwrap_err();
        assert!(error.message.contains(what), "{path}: {error}");
    }
}

#[test]
fn names_that_are_too_long_are_refused() {
    let traps = TrapFolder::new();
    for path in [
        "x".repeat(256),
        "x/".repeat(2500) + "x",
        format!("folder/{}", "é".repeat(128)),
    ] {
        assert_eq!(
            traps.write(&path, WriteMode::Write).unwrap_err().kind,
            FileErrorKind::WriteError
        );
    }
    let longest = "x".repeat(255);
    traps.write(&longest, WriteMode::Write).unwrap();
}

/// The root of everything is permitted here, and still these are not.
#[test]
fn devices_and_system_files_are_refused() {
    let all = Files::open(
        &Permissions::none().allow_read("/").allow_write("/"),
        &Arc::default(),
        Path::new("/"),
    )
    .unwrap();
    let cases = [
        ("/proc/self/environ", FileErrorKind::AccessDenied),
        ("/proc/sys/kernel/hostname", FileErrorKind::AccessDenied),
        ("/sys/kernel/uevent_seqnum", FileErrorKind::AccessDenied),
        ("/dev/null", FileErrorKind::WriteError),
        ("/dev/zero", FileErrorKind::WriteError),
        ("/dev/tty", FileErrorKind::WriteError),
    ];
    for (path, kind) in cases {
        let bytes = Bytes::from_static(b"x");
        let write = FileWrite {
            path: path.into(),
            bytes,
            mode: WriteMode::Write,
            presence: Presence::Any,
        };
        assert_eq!(all.write(&write).expect_err(path).kind, kind, "{path}");
        assert_eq!(
            all.read(Path::new(path)).expect_err(path).kind,
            kind,
            "{path}"
        );
    }
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("plain"), "plain").unwrap();
    assert_eq!(
        all.read(&dir.path().canonicalize().unwrap().join("plain"))
            .unwrap(),
        "plain"
    );
}

#[test]
fn read_and_write_permissions_are_independent() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    fs::write(root.join("f"), "x").unwrap();
    let reader = Files::open(&Permissions::none().allow_read("."), &Arc::default(), &root).unwrap();
    let writer = Files::open(
        &Permissions::none().allow_write("."),
        &Arc::default(),
        &root,
    )
    .unwrap();
    let bytes = Bytes::from_static(b"y");
    let write = FileWrite {
        path: "f".into(),
        bytes,
        mode: WriteMode::Write,
        presence: Presence::Any,
    };
    assert!(reader.read(Path::new("f")).is_ok());
    let error = reader.write(&write).unwrap_err();
    assert!(
        error.kind == FileErrorKind::AccessDenied && error.message.contains("--allow-write"),
        "{error}"
    );
    assert!(writer.write(&write).is_ok());
    let error = writer.read(Path::new("f")).unwrap_err();
    assert!(
        error.kind == FileErrorKind::AccessDenied && error.message.contains("--allow-read"),
        "{error}"
    );
}

#[test]
fn permitted_paths_work_in_every_spelling() {
    let traps = TrapFolder::new();
    let inside = traps.dir.path().join("in");
    symlink("in", traps.dir.path().join("spelled")).unwrap();
    let spelled = traps.dir.path().join("spelled");
    let permissions = Permissions::none()
        .allow_read(&spelled)
        .allow_read(inside.join("folder"));
    let files = Files::open(
        &permissions,
        &Arc::default(),
        &traps.dir.path().canonicalize().unwrap(),
    )
    .unwrap();
    for path in [
        inside.join("plain"),
        spelled.join("plain"),
        "in/plain".into(),
        "in/folder/../plain".into(),
    ] {
        assert_eq!(
            files.read(&path).expect("it is inside"),
            "plain",
            "{}",
            path.display()
        );
    }
    assert_eq!(
        files.read(Path::new("in/absent")).unwrap_err().kind,
        FileErrorKind::FileNotFound
    );
    assert_eq!(
        files.read(Path::new("in/no/absent")).unwrap_err().kind,
        FileErrorKind::FileNotFound
    );
}

#[test]
fn an_error_names_a_root_that_is_no_folder() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "x").unwrap();
    for root in ["file", "file/in"] {
        let error = Files::open(
            &Permissions::none().allow_write(root),
            &Arc::default(),
            dir.path(),
        )
        .unwrap_err();
        assert!(
            error.to_string().contains(&format!("--allow-write={root}")),
            "{error}"
        );
    }
}

/// Exchanges `swap` between a folder and a link out for as long as `run` takes. It is always one of
/// both.
fn while_swapping(inside: &Path, run: impl FnOnce()) {
    let done = AtomicBool::new(false);
    let (swap, other) = (inside.join("swap"), inside.join("other"));
    fs::create_dir(&swap).unwrap();
    symlink("../out", &other).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                renameat_with(CWD, &swap, CWD, &other, RenameFlags::EXCHANGE).unwrap();
            }
        });
        run();
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn no_access_escapes_through_a_folder_that_is_swapped_with_a_link() {
    const TRIES: usize = 20_000;
    let traps = TrapFolder::new();
    let before = traps.outside();
    let (mut served, mut refused) = (0, 0);
    while_swapping(&traps.dir.path().join("in"), || {
        for attempt in 0..TRIES {
            // An existing file outside, a new file outside, and a new file in a new folder outside.
            let path = ["swap/secret", "swap/new", "swap/deep/new"][attempt % 3];
            let done = traps.write(path, WriteMode::Write);
            let read = traps.files.read(Path::new("swap/secret"));
            assert!(
                read.as_ref().map_or(true, |bytes| bytes == "NEW"),
                "the secret was read"
            );
            *if done.is_ok() {
                &mut served
            } else {
                &mut refused
            } += 1;
        }
    });
    assert_eq!(
        traps.outside(),
        before,
        "{served} served, {refused} refused"
    );
    assert!(
        served > 0 && refused > 0,
        "no race took place: {served} served, {refused} refused"
    );
}
