//! Commands on stores: with and without a key, on folders that are not stores, and garbage
//! collection.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use dormouse::store::LogStore;

use crate::dormouse::{Ran, command, run};

const KEY: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// The exit code and all that the program prints, with `key` in `DORMOUSE_STORE_KEY`.
fn dormouse(words: &str, store: &Path, key: Option<&str>) -> (i32, String) {
    let mut command = command(Path::new("."));
    command
        .args(words.split_whitespace())
        .arg("--store")
        .arg(store);
    let Ran { code, out, err } = run(command.envs(key.map(|key| ("DORMOUSE_STORE_KEY", key))));
    (code, out + &err)
}

/// A store with one process that has ended.
fn store(folder: &Path, name: &str, words: &str, key: Option<&str>) -> PathBuf {
    let (program, calls, store) = (
        folder.join("p.toml"),
        folder.join("calls.jsonl"),
        folder.join(name),
    );
    std::fs::write(
        &program,
        "[model]\nname = \"m\"\nprovider = \"scripted\"\n[tools]\nenabled = [\"list_fds\"]\n",
    )
    .unwrap();
    std::fs::write(&calls, "{\"tool\": \"list_fds\"}\n").unwrap();
    let words = format!(
        "call {} --calls {} {words}",
        program.display(),
        calls.display()
    );
    let (code, said) = dormouse(&words, &store, key);
    assert_eq!(code, 0, "{said}");
    store
}

/// Every command that opens a store that is there, and its exit code where the key is wrong.
const COMMANDS: [(&str, i32); 11] = [
    ("ps", 3),
    ("log 1", 3),
    ("diff 1@1 1", 3),
    ("checkpoint 1", 3),
    ("checkpoints", 3),
    ("gc --dry-run", 3),
    ("gc", 3),
    ("fsck", 3),
    ("fsck --repair", 3),
    ("resume", 3),
    ("branch 1", 3),
];

#[test]
fn every_command_opens_an_encrypted_store_with_its_key_and_with_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let (file, other) = (folder.path().join("key"), folder.path().join("other"));
    std::fs::write(&file, format!("{KEY}\n")).unwrap();
    std::fs::write(&other, [7; 32]).unwrap();
    let store = store(
        folder.path(),
        "encrypted",
        &format!("--key-file {}", file.display()),
        None,
    );
    let head = std::fs::read(store.join("HEAD")).unwrap();
    let log = std::fs::read(store.join("log/00000001.seg")).unwrap();
    for (words, wrong) in COMMANDS {
        let (code, said) = dormouse(words, &store, None);
        assert!(
            code == wrong && said.contains("no key was given") && said.contains("--key-file"),
            "{words}: {said}"
        );
        let (code, said) = dormouse(
            &format!("{words} --key-file {}", other.display()),
            &store,
            Some(KEY),
        );
        assert!(
            code == wrong && said.contains("another key"),
            "{words}: {said}"
        );
        let (code, said) = dormouse(words, &store, Some("swordfish"));
        assert!(
            code == 2 && said.contains("DORMOUSE_STORE_KEY") && !said.contains("swordfish"),
            "{words}: {said}"
        );
    }
    assert_eq!(
        std::fs::read(store.join("HEAD")).unwrap(),
        head,
        "without the key nothing is changed"
    );
    assert_eq!(std::fs::read(store.join("log/00000001.seg")).unwrap(), log);
    for (words, _) in COMMANDS {
        let by_file = dormouse(
            &format!("{words} --key-file {}", file.display()),
            &store,
            Some("nonsense"),
        );
        let by_variable = dormouse(words, &store, Some(KEY));
        for (code, said) in [by_file, by_variable] {
            // The only process was killed when its calls were answered.
            assert!(code == 0 || code == 1, "{words}: {code}: {said}");
            assert!(!said.contains("key"), "{words}: {said}");
        }
    }
}

#[test]
fn a_key_for_a_store_that_is_not_encrypted_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path(), "plain", "", None);
    for (words, wrong) in COMMANDS {
        let (code, said) = dormouse(words, &store, Some(KEY));
        assert!(
            code == wrong
                && said.contains("is not encrypted")
                && said.contains("DORMOUSE_STORE_KEY"),
            "{words}: {said}"
        );
    }
    assert_eq!(dormouse("fsck", &store, None).0, 0);
}

#[test]
fn a_folder_that_is_no_store_is_not_called_damaged() {
    let folder = tempfile::tempdir().unwrap();
    for (words, _) in COMMANDS {
        let (code, said) = dormouse(words, &folder.path().join("none"), None);
        assert!(
            code == 2 && said.contains("is not a store") && !said.contains("damaged"),
            "{words}: {said}"
        );
    }
    let store = store(folder.path(), "headless", "", None);
    std::fs::remove_file(store.join("HEAD")).unwrap();
    let (code, said) = dormouse("fsck", &store, None);
    assert!(code == 1 && said.contains("--repair repairs 1"), "{said}");
    assert_eq!(
        dormouse("ps", &store, None).0,
        0,
        "the other file is enough"
    );
    let (code, said) = dormouse("fsck --repair", &store, None);
    assert!(
        code == 1 && said.contains("All of it was repaired"),
        "{said}"
    );
    assert_eq!(dormouse("fsck", &store, None).0, 0);
    ["HEAD", "HEAD2"]
        .iter()
        .for_each(|file| std::fs::remove_file(store.join(file)).unwrap());
    for (words, _) in COMMANDS
        .iter()
        .filter(|(words, _)| !words.starts_with("fsck"))
    {
        let (code, said) = dormouse(words, &store, None);
        assert!(
            code == 3 && said.contains("dormouse fsck"),
            "{words}: {said}"
        );
    }
    let (code, said) = dormouse("fsck", &store, None);
    assert!(
        code == 3 && said.contains("it is unknown whether more followed commit"),
        "{said}"
    );
    let (code, said) = dormouse("fsck --repair", &store, None);
    assert!(code == 3 && said.contains("acknowledged now"), "{said}");
    assert_eq!(dormouse("fsck", &store, None).0, 0);
    assert_eq!(dormouse("ps", &store, None).0, 0);
}

#[test]
fn room_is_given_back_by_a_store_of_any_size_and_said_before() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path(), "s", "", None);
    let (program, calls, text) = (
        folder.path().join("p.toml"),
        folder.path().join("c"),
        folder.path().join("text"),
    );
    std::fs::write(
        &text,
        (0..20_000)
            .map(|line| format!("line {line}\n"))
            .collect::<String>(),
    )
    .unwrap();
    std::fs::write(
        &calls,
        format!("{{\"open\": {{\"file\": \"{}\"}}}}\n", text.display()),
    )
    .unwrap();
    let (code, said) = dormouse(
        &format!("call {} --calls {}", program.display(), calls.display()),
        &store,
        None,
    );
    assert_eq!(code, 0, "{said}");
    let (_, said) = dormouse("gc --dry-run --drop-ended 0s", &store, None);
    assert!(
        said.contains("2 processes") && said.contains("would free  1 of 1 segments; "),
        "{said}"
    );
    let (code, said) = dormouse("gc --drop-ended 0s", &store, None);
    assert!(
        code == 0 && said.contains("freed  1 of 1 segments; "),
        "{said}"
    );
    assert!(
        std::fs::metadata(store.join("log/00000001.seg"))
            .unwrap()
            .len()
            < 1_000
    );
    assert_eq!(dormouse("fsck", &store, None).0, 0);
    let (code, said) = dormouse("gc --pin kept", &store, None);
    assert!(code == 2 && said.contains("--keep-checkpoints"), "{said}");
}

/// Commands that only look, beside a writer and beside nobody.
#[test]
fn who_looks_into_a_store_takes_no_lock_and_leaves_no_trace() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path(), "looked-at", "", None);
    let state = |is_held: bool| -> Vec<_> {
        let files = ["HEAD", "HEAD2", "LOCK", "log/00000001.seg"].map(|file| store.join(file));
        let index = std::fs::read_dir(store.join("index"))
            .unwrap()
            .map(|entry| entry.unwrap().path());
        // While somebody has the store open, sled writes the index when it likes.
        let index = index.filter(|path| path.is_file() && !is_held);
        files
            .into_iter()
            .chain(index)
            .map(|path| (std::fs::read(&path).unwrap(), path))
            .collect()
    };
    let look = |is_held: bool| {
        let before = state(is_held);
        for words in [
            "ps",
            "ps --json",
            "log 1",
            "diff 1@1 1",
            "checkpoints",
            "fsck",
        ] {
            let (code, said) = dormouse(words, &store, None);
            assert_eq!(code, 0, "{words}: {said}");
        }
        for ((now, path), (before, _)) in state(is_held).into_iter().zip(before) {
            assert!(now == before, "{} is touched", path.display());
        }
    };
    let held = LogStore::open(&store).unwrap();
    look(true);
    let (code, said) = dormouse("fsck --repair", &store, None);
    assert!(code == 3 && said.contains("in use"), "{said}");
    drop(held);
    look(false);
}

/// A check at a rate at which it would take days ends at once when it is asked to.
#[test]
fn a_check_at_a_low_rate_can_be_stopped() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path(), "checked", "", None);
    let (code, said) = dormouse("fsck --rate 100MB/s", &store, None);
    assert!(code == 0 && said.contains("whole"), "{said}");
    let mut slow = command(Path::new("."));
    slow.args(["fsck", "--rate", "1B/s", "--store"])
        .arg(&store)
        .stderr(Stdio::piped());
    let checking = slow.spawn().unwrap();
    let status = format!("/proc/{}/status", checking.id());
    // SIGINT is number 2. Before the program catches it, it would end the program.
    let catches_it = || {
        let status = std::fs::read_to_string(&status).unwrap();
        let caught = status
            .lines()
            .find_map(|line| line.strip_prefix("SigCgt:"))
            .unwrap()
            .trim()
            .to_owned();
        u64::from_str_radix(&caught, 16).unwrap() & 0b10 != 0
    };
    while !catches_it() {
        std::thread::sleep(Duration::from_millis(5));
    }
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&checking),
        rustix::process::Signal::INT,
    )
    .unwrap();
    let output = checking.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        output.status.code() == Some(130) && said.contains("stopped after"),
        "{:?}: {said}",
        output.status
    );
}

/// A process that is missing is said to be, in each form, and the exit code says so as well.
#[test]
fn a_process_that_is_missing_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path(), "damaged", "", None);
    let path = store.join("log/00000001.seg");
    let mut log = std::fs::read(&path).unwrap();
    // The program's name, in the row of the birth, which stands behind the contents that it refers
    // to.
    let at = log.windows(2).rposition(|bytes| bytes == b"\x01p").unwrap();
    log[at + 1] ^= 1;
    std::fs::write(&path, log).unwrap();
    std::fs::remove_dir_all(store.join("index")).unwrap();
    let cases = [
        ("ps", "missing: "),
        ("ps --json", "{\"lost\":"),
        ("send 1 hello", "among the lost records"),
        ("resume", "no process that can be read"),
        ("resume 1", "no process that can be read"),
    ];
    for (words, expected) in cases {
        let (code, said) = dormouse(words, &store, None);
        assert!(
            code == 3 && said.contains(expected),
            "{words}: {code}: {said}"
        );
    }
}

/// A model that asks for damaged content reads an error and goes on; whoever runs it is told, and
/// the exit code says so.
#[test]
fn a_content_that_cannot_be_read_is_told_to_who_resumes() {
    let folder = tempfile::tempdir().unwrap();
    let (program, script) = (
        folder.path().join("p.toml"),
        folder.path().join("script.toml"),
    );
    let text: String = (0..2_000)
        .map(|line| format!("line {line} of what is read\n"))
        .collect();
    std::fs::write(folder.path().join("long.txt"), text).unwrap();
    std::fs::write(
        &program,
        "[model]\nname = \"m\"\nprovider = \"scripted\"\nscript = \
         \"script.toml\"\n[tools]\nenabled = [\"read_fd\"]\n",
    )
    .unwrap();
    let turns = "[[turn]]\nwhen = { round = 0 }\ncalls = [{ tool = \"read_fd\", args = { fd = \
         \"fd:1\", start_line = 1990, end_line = 1990 } }]\n[[turn]]\ntext = \"read it\"\n";
    std::fs::write(script, turns).unwrap();
    let store = folder.path().join("store");
    let words = format!(
        "run {} --input-file {}",
        program.display(),
        folder.path().join("long.txt").display()
    );
    let (code, said) = dormouse(&words, &store, None);
    assert!(code == 0 && said.contains("read it"), "{said}");
    // Whoever stood at the first question asks again.
    let again = |expected: i32| {
        let (code, said) = dormouse("branch 1@0", &store, None);
        assert!(
            code == expected && said.contains("read it"),
            "{code}: {said}"
        );
        said
    };
    assert!(!again(0).contains("unreadable"));
    let path = store.join("log/00000001.seg");
    let mut log = std::fs::read(&path).unwrap();
    let needle = b"line 1989 of what";
    let at = log
        .windows(needle.len())
        .position(|bytes| bytes == needle)
        .unwrap();
    log[at] ^= 1;
    std::fs::write(&path, log).unwrap();
    let said = again(3);
    assert!(
        said.contains("unreadable: content ") && said.contains("cannot be read"),
        "{said}"
    );
}

/// A text in which nothing is said is a mistake on the command line, wherever it is given.
#[test]
fn an_empty_text_is_a_wrong_command_line() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path(), "s", "", None);
    let program = folder.path().join("program.toml");
    std::fs::write(&program, "[model]\nname = \"m\"\nprovider = \"scripted\"\n").unwrap();
    let blank = folder.path().join("blank");
    std::fs::write(&blank, " \n").unwrap();
    let (program, blank) = (program.to_str().unwrap(), blank.to_str().unwrap());
    let cases: [&[&str]; 7] = [
        &["send", "1", ""],
        &["send", "1", " \n"],
        &["send", "1", "--input-file", blank],
        &["run", program, "--input", ""],
        &["run", program, "--input", " ", "--input-file", blank],
        &["branch", "1", "--input", ""],
        &["race", "1", "--input", "", "--judge-command", "true"],
    ];
    for words in cases {
        let mut command = command(folder.path());
        command.args(words).arg("--store").arg(&store);
        let Ran { code, err, .. } = run(&mut command);
        assert!(
            code == 2 && err.contains("empty"),
            "{words:?}: {code}: {err}"
        );
    }
}

/// A process, fact or checkpoint that does not exist is a mistake on the command line. The store is
/// not to blame.
#[test]
fn an_argument_that_names_nothing_is_a_wrong_command_line() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(folder.path(), "s", "", None);
    for number in [1, 2] {
        let made = dormouse("checkpoint 1", &store, None);
        assert_eq!(made, (0, format!("cp:{number}\n")));
    }
    let (code, said) = dormouse("gc --keep-checkpoints 1", &store, None);
    assert_eq!(code, 0, "{said}");
    let export = folder.path().join("x.dormouse");
    let export = format!("export 1@99 {}", export.display());
    let cases = [
        ("branch 9", "process 9"),
        ("checkpoint 9", "process 9"),
        ("log 9", "process 9"),
        ("messages 9", "process 9"),
        ("resume 9", "process 9"),
        ("branch 1@99", "fact 99"),
        ("diff 1@99 1", "fact 99"),
        ("messages 1@99", "fact 99"),
        (&export, "fact 99"),
        ("branch 1@cp:9", "checkpoint cp:9"),
        ("restore cp:9", "checkpoint cp:9"),
        ("messages 1@cp:1", "checkpoint cp:1"),
        ("restore cp:1", "checkpoint cp:1"),
    ];
    for (words, named) in cases {
        let (code, said) = dormouse(words, &store, None);
        assert!(code == 2 && said.contains(named), "{words}: {code}: {said}");
    }
}
