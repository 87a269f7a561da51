//! One verdict on a damaged store: `fsck` and each command name the same, and exit alike. What was
//! acknowledged by a repair is no longer told to who does not ask for it, and is answered as lost
//! to who does.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

use dormouse::store::LogStore;
use dormouse::{Kernel, models::Scripted};

use crate::dormouse::{Ran, command, run};

fn dormouse(words: &str, store: &Path) -> (i32, String) {
    let mut command = command(Path::new("."));
    command
        .args(words.split_whitespace())
        .arg("--store")
        .arg(store);
    let Ran { code, out, err } = run(&mut command);
    (code, out + &err)
}

/// A store with two processes that have ended, one after the other.
fn store(folder: &Path) -> PathBuf {
    let (program, calls, store) = (
        folder.join("p.toml"),
        folder.join("calls.jsonl"),
        folder.join("store"),
    );
    std::fs::write(
        &program,
        "[model]\nname = \"m\"\nprovider = \"scripted\"\n[tools]\nenabled = [\"list_fds\"]\n",
    )
    .unwrap();
    std::fs::write(&calls, "{\"tool\": \"list_fds\"}\n").unwrap();
    for _ in 0..2 {
        let words = format!("call {} --calls {}", program.display(), calls.display());
        let (code, said) = dormouse(&words, &store);
        assert_eq!(code, 0, "{said}");
    }
    store
}

/// The kinds of records in the log.
const BORN: u8 = 3;
const FACTS: u8 = 4;
const ENDED: u8 = 6;

/// Flips a bit of the last record of a kind and a process: of its payload, or of its header.
fn flip(store: &Path, kind: u8, pid: u64, part: Part) {
    let path = store.join("log/00000001.seg");
    let (mut log, mut at, mut found) = (std::fs::read(&path).unwrap(), 0, None);
    while at < log.len() {
        let number = |from: usize| u64::from_le_bytes(log[at + from..][..8].try_into().unwrap());
        let end = at + 168 + number(40) as usize;
        if (log[at + 5], number(48)) == (kind, pid) {
            found = Some(if part == Part::Payload {
                end - 1
            } else {
                at + 20
            });
        }
        at = end;
    }
    log[found.expect("there is such a record")] ^= 1;
    std::fs::write(path, log).unwrap();
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Header,
    Payload,
}

fn cut(store: &Path) {
    let path = store.join("log/00000001.seg");
    let log = std::fs::read(&path).unwrap();
    std::fs::write(path, &log[..log.len() - 1]).unwrap();
}

fn lose(store: &Path, files: &[&str]) {
    files
        .iter()
        .for_each(|file| std::fs::remove_file(store.join(file)).unwrap());
}

/// What is done to a store, what is said of it, and the exit codes.
struct Case {
    name: &'static str,
    harm: fn(&Path),
    /// What `fsck` and all that exit with 3 before the repair name.
    named: &'static str,
    before: [i32; COMMANDS.len()],
    /// After `fsck --repair`.
    after: [i32; COMMANDS.len()],
}

/// `fsck` first. Process 2 is the one that is damaged, process 1 its neighbour.
const COMMANDS: [&str; 9] = [
    "fsck",
    "ps",
    "log 1",
    "log 2",
    "diff 1@0 1",
    "export 1 FILE --force",
    "export 2 FILE --force",
    "checkpoints",
    "gc --dry-run",
];

const NOTHING: [i32; 9] = [0; 9];
const REFUSED: [i32; 9] = [3; 9];
/// What is lost concerns process 2 alone.
const ONLY_2: [i32; 9] = [0, 0, 0, 3, 0, 0, 3, 0, 0];

const CASES: [Case; 10] = [
    Case {
        name: "nothing",
        harm: |_| {},
        named: "",
        before: NOTHING,
        after: NOTHING,
    },
    Case {
        name: "one file of HEAD",
        harm: |store| lose(store, &["HEAD"]),
        named: "HEAD",
        before: [1, 0, 0, 0, 0, 0, 0, 0, 0],
        after: NOTHING,
    },
    Case {
        name: "HEAD",
        harm: |store| lose(store, &["HEAD", "HEAD2"]),
        named: "HEAD",
        before: REFUSED,
        // Both have ended for certain.
        after: NOTHING,
    },
    Case {
        name: "the last byte",
        harm: cut,
        named: "byte",
        before: REFUSED,
        after: ONLY_2,
    },
    Case {
        name: "HEAD and the last byte",
        harm: |store| {
            cut(store);
            lose(store, &["HEAD", "HEAD2"]);
        },
        named: "HEAD",
        before: REFUSED,
        after: ONLY_2,
    },
    Case {
        name: "the only segment",
        harm: |store| lose(store, &["log/00000001.seg"]),
        named: "00000001.seg is missing",
        before: REFUSED,
        after: REFUSED,
    },
    Case {
        name: "a segment of another log",
        harm: |store| {
            std::fs::copy(
                store.join("log/00000001.seg"),
                store.join("log/00000009.seg"),
            )
            .unwrap();
        },
        named: "segment 00000009",
        before: REFUSED,
        after: REFUSED,
    },
    Case {
        name: "the birth of process 2",
        harm: |store| flip(store, BORN, 2, Part::Payload),
        named: "process 2",
        before: [3, 3, 0, 3, 0, 0, 3, 3, 3],
        after: ONLY_2,
    },
    Case {
        name: "facts of process 2",
        harm: |store| flip(store, FACTS, 2, Part::Payload),
        named: "process 2",
        before: [3, 3, 0, 3, 0, 0, 3, 0, 3],
        after: ONLY_2,
    },
    Case {
        name: "the end of process 2, which cannot be recognised",
        harm: |store| flip(store, ENDED, 2, Part::Header),
        named: "byte",
        before: [3, 3, 0, 3, 0, 0, 3, 3, 3],
        after: ONLY_2,
    },
];

#[test]
fn fsck_and_each_command_judge_a_damaged_store_alike() {
    let folder = tempfile::tempdir().unwrap();
    let whole = store(folder.path());
    for Case {
        name,
        harm,
        named,
        before,
        after,
    } in &CASES
    {
        let store = folder.path().join("damaged");
        let _ = std::fs::remove_dir_all(&store);
        copy(&whole, &store);
        harm(&store);
        check(&format!("{name}, before"), &store, before, named);
        let (code, said) = dormouse("fsck --repair", &store);
        assert_eq!(code, before[0], "{name}: {said}");
        check(&format!("{name}, after"), &store, after, "");
    }
}

fn check(case: &str, store: &Path, expected: &[i32; COMMANDS.len()], named: &str) {
    let out = store.with_extension("dormouse");
    for (words, expected) in COMMANDS.iter().zip(expected) {
        let (code, said) = dormouse(&words.replace("FILE", &out.display().to_string()), store);
        assert_eq!(code, *expected, "{case}: {words}: {said}");
        assert!(
            code != 3 || said.contains(named),
            "{case}: {words} does not name {named:?}: {said}"
        );
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// A store whose maker was killed before its first commit holds nothing, and is whole.
#[test]
fn a_store_that_was_only_begun_is_whole_and_empty() {
    let folder = tempfile::tempdir().unwrap();
    let whole = folder.path().join("whole");
    drop(dormouse::store::LogStore::open(&whole).unwrap());
    let made: [&[&str]; 3] = [
        &["log", "index", "HEAD2"],
        &["log/00000001.seg", "index", "HEAD2"],
        &["index", "HEAD2"],
    ];
    for missing in made {
        let store = folder.path().join("begun");
        let _ = std::fs::remove_dir_all(&store);
        copy(&whole, &store);
        for name in missing {
            let path = store.join(name);
            if path.is_dir() {
                std::fs::remove_dir_all(path)
            } else {
                std::fs::remove_file(path)
            }
            .unwrap();
        }
        for words in [
            "fsck",
            "ps",
            "checkpoints",
            "gc --dry-run",
            "fsck --repair",
            "gc",
            "ps",
            "fsck",
        ] {
            let (code, said) = dormouse(words, &store);
            assert_eq!(code, 0, "without {missing:?}: {words}: {said}");
        }
    }
}

/// What can be read of a process is listed and exported, and what is lost is said behind it.
#[test]
fn what_can_be_read_of_a_process_is_listed_and_exported() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    let facts = |words: &str| {
        let (code, said) = dormouse(words, &store);
        (
            code,
            said.lines()
                .filter(|line| line.starts_with("     "))
                .count() as u64,
            said,
        )
    };
    let all = facts("log 2").1;
    flip(&store, FACTS, 2, Part::Payload);
    let (code, readable, said) = facts("log 2");
    assert!(
        code == 3 && readable > 1 && readable < all && said.contains("does not match its hash"),
        "{said}"
    );
    let (code, said) = dormouse("fsck", &store);
    assert!(
        code == 3 && said.contains(&format!("it can be read up to {}", readable - 1)),
        "{said}"
    );
    for repaired in [false, true] {
        if repaired {
            assert_eq!(dormouse("fsck --repair", &store).0, 3);
        }
        let last = readable - 1;
        assert_eq!(facts(&format!("log 2 --to {last}")).0, 0);
        let out = folder.path().join("out.dormouse");
        let (code, said) = dormouse(
            &format!("export 2@{last} {} --force", out.display()),
            &store,
        );
        assert_eq!(code, 0, "{said}");
        let (code, said) = dormouse(
            &format!("export 2@{readable} {} --force", out.display()),
            &store,
        );
        assert_eq!(code, 3, "{said}");
    }
}

/// A process that may have been opened again in what is lost is not opened a second time: it would
/// repeat what it did since.
#[test]
fn a_process_that_may_have_been_opened_again_in_what_is_lost_stays_ended() {
    let folder = tempfile::tempdir().unwrap();
    let (program, store) = (folder.path().join("p.toml"), folder.path().join("store"));
    std::fs::write(
        &program,
        "[model]\nname = \"m\"\nprovider = \"scripted\"\nscript = \"script.toml\"\n",
    )
    .unwrap();
    let script = folder.path().join("script.toml");
    std::fs::write(script, "[[turn]]\ntext = \"said\"\n").unwrap();
    let words = format!("run {} --input one", program.display());
    assert_eq!(dormouse(&words, &store).0, 0);
    let log = store.join("log/00000001.seg");
    let ended = std::fs::metadata(&log).unwrap().len();
    assert_eq!(dormouse("send 1 two", &store).0, 0);
    let file = std::fs::OpenOptions::new().write(true).open(&log).unwrap();
    file.set_len(ended).unwrap();
    let (code, said) = dormouse("fsck --repair", &store);
    assert_eq!(code, 3, "{said}");
    // What is there can be read.
    assert_eq!(dormouse("log 1", &store).0, 0);
    let (code, said) = dormouse("send 1 three", &store);
    assert!(
        code == 3 && said.contains("may have been opened again"),
        "{code}: {said}"
    );
    // A branch ended there too, after the loss: an input opens it.
    assert_eq!(dormouse("branch 1 --input three", &store).0, 0);
}

/// `gc` says whether it keeps what an unreadable record may refer to.
#[test]
fn gc_says_what_it_does_about_records_that_cannot_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    flip(&store, FACTS, 2, Part::Payload);
    let (keeps, discards) = (
        "so all contents are kept",
        "even if an unreadable one may refer",
    );
    for (words, expected, other) in [
        ("gc --dry-run", keeps, discards),
        ("gc --dry-run --despite-damage", discards, keeps),
        ("gc --despite-damage", discards, keeps),
    ] {
        let (code, said) = dormouse(words, &store);
        assert!(
            code == 3 && said.contains(expected) && !said.contains(other),
            "{words}: {code}: {said}"
        );
    }
}

/// Who may not read a store is told so, and not that there is none.
#[test]
fn a_store_that_may_not_be_read_is_said_to_be_one() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path());
    let program = folder.path().join("dormouse");
    // By another process: a program that this one has open for writing cannot be started, and other
    // tests start processes, which have its open files for a moment.
    let copied = std::process::Command::new("cp")
        .args([Path::new(env!("CARGO_BIN_EXE_dormouse")), &program])
        .status();
    assert!(copied.unwrap().success());
    let open = |path: &Path, mode: u32| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap()
    };
    open(folder.path(), 0o755);
    open(&program, 0o755);
    let is_root = std::fs::metadata("/proc/self")
        .is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0);
    for mode in [0o700, 0o755] {
        open(&store, if is_root { mode } else { 0 });
        for words in ["ps", "fsck", "log 1", "gc", "resume"] {
            let mut command = std::process::Command::new(&program);
            command
                .current_dir("/")
                .env_remove("DORMOUSE_STORE_KEY")
                .args(words.split(' '))
                .arg("--store")
                .arg(&store);
            if is_root {
                // Nobody.
                command.uid(65_534);
            }
            let Ran { code, out, err } = run(&mut command);
            let said = out + &err;
            assert!(
                code == 3 && said.contains("Permission denied"),
                "{words}: {code}: {said}"
            );
        }
    }
    open(&store, 0o700);
}

/// A process that may have gone on in what is lost would repeat its calls: it is not resumed, and
/// its log up to there is read.
#[test]
fn a_process_that_may_have_gone_on_is_not_resumed() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let program = "[model]\nname = \"m\"\nprovider = \"scripted\"\nscript = \
         \"s.toml\"\n[tools]\nenabled = [\"list_fds\"]\n";
    let script = "[[turn]]\nwhen.round = 3\ntext = \"done\"\ndelay_ms = 600000\n\
                  [[turn]]\ncalls = [{ tool = \"list_fds\", args = {} }]\n";
    std::fs::write(folder.path().join("p.toml"), program).unwrap();
    std::fs::write(folder.path().join("s.toml"), script).unwrap();
    let words = ["run", "p.toml", "--input", "hi", "--store", "store"];
    let mut running = command(folder.path())
        .args(words)
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    while !dormouse("log 1", &store).1.contains("    11  ") {
        assert!(
            running.try_wait().unwrap().is_none(),
            "it waits for its model"
        );
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    running.kill().unwrap();
    running.wait().unwrap();
    let path = store.join("log/00000001.seg");
    let log = std::fs::read(&path).unwrap();
    let end = log.iter().rposition(|byte| *byte != 0).unwrap();
    std::fs::write(path, &log[..end]).unwrap();
    for words in ["ps", "resume", "log 1"] {
        let (code, said) = dormouse(words, &store);
        assert!(
            code == 3 && said.contains("shorter than HEAD says"),
            "{words}: {said}"
        );
    }
    let (code, said) = dormouse("fsck --repair", &store);
    assert!(code == 3 && said.contains("Missing commits: 1"), "{said}");
    assert_eq!(
        (dormouse("fsck", &store).0, dormouse("ps", &store).0),
        (0, 0)
    );
    let (code, said) = dormouse("resume", &store);
    assert!(
        code == 3 && said.contains("is not resumed") && said.contains("acknowledged"),
        "{said}"
    );
    let (code, said) = dormouse("log 1 --to 8", &store);
    assert!(code == 0 && said.contains("     8  "), "{said}");
    let (code, said) = dormouse(
        &format!("export 1@8 {}", folder.path().join("x").display()),
        &store,
    );
    assert_eq!(code, 0, "{said}");
}

/// A store of small segments, the first of which holds the contents of a process that has ended, and
/// one of a process that has not.
fn store_of_small_segments(folder: &Path) -> PathBuf {
    let path = folder.join("small");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let store = LogStore::options().segment_bytes(32 << 10).open(&path);
        let kernel = Kernel::open(store.unwrap())
            .model("m", Scripted::without_script())
            .build()
            .await
            .unwrap();
        let text = "[model]\nname = \"m\"\nprovider = \"scripted\"\n[tools]\nenabled = \
                    [\"read_fd\"]\n";
        let program = kernel.parse(text.to_owned()).unwrap().program;
        let start = || kernel.start(program.clone()).session().without_input();
        let (ends, lives) = (start().await.unwrap(), start().await.unwrap());
        lives
            .open("file:k", "kept".repeat(500), None)
            .await
            .unwrap();
        for number in 0..16 {
            let text = format!("{number:04}").repeat(800);
            ends.open("file:d", text, None).await.unwrap();
        }
        ends.kill().await.unwrap();
        ends.wait().await.unwrap();
        drop((ends, lives));
        kernel.shutdown().await.unwrap();
    });
    path
}

/// A content that is lost shows only when its segment is to be freed.
#[test]
fn gc_judges_a_damaged_segment_as_fsck_does() {
    let folder = tempfile::tempdir().unwrap();
    let whole = store_of_small_segments(folder.path());
    let store = folder.path().join("damaged");
    copy(&whole, &store);
    let path = store.join("log/00000001.seg");
    let mut log = std::fs::read(&path).unwrap();
    let place = log.windows(8).position(|window| window == b"keptkept");
    log[place.expect("it is in the first segment") + 100] ^= 1;
    std::fs::write(&path, log).unwrap();
    for words in ["gc --drop-ended 0s", "gc", "fsck"] {
        let (code, said) = dormouse(words, &store);
        assert_eq!(code, 3, "{words}: {said}");
        assert!(
            words == "fsck" || said.contains("segment 00000001 is damaged"),
            "{words}: {said}"
        );
    }
    assert_eq!(dormouse("fsck --repair", &store).0, 3);
    for words in ["gc", "fsck"] {
        let (code, said) = dormouse(words, &store);
        assert_eq!(code, 0, "{words}: {said}");
    }
    assert_eq!(dormouse("gc --drop-ended 0s", &whole).0, 0);
}
