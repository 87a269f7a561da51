//! A store that a kernel of format version 1 wrote: every later version opens it, reads the same
//! facts and conversations in it, and continues its processes.
//!
//! `tests/golden/store-1` has the store, without lock and index, and `store-1.txt` what it holds.
//! Users have stores of this version, so nothing writes it anew. A new version of the format gets a
//! store of its own next to it: `UPDATE_GOLDEN=1` writes one that is not there.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use dormouse::models::Scripted;
use dormouse::store::LogStore;
use dormouse::{Budget, FnTool, Kernel, KernelBuilder, Position, ProcessView, Recovery};
use dormouse_tests::{copy_folder, turn, within};

/// Files of a store that an opening creates.
const DERIVED: [&str; 2] = ["LOCK", "index"];

/// Linked to itself: a spawn needs a program.
const PROGRAM: &str = "
[model]
name = 'm'
provider = 'scripted'
[prompt]
system = 'You are an example.'
[tools]
enabled = [
    'log', 'read_fd', 'search_fd', 'rename_fd', 'mark_fd_section', 'fork', 'spawn', 'send_message',
    'checkpoint_process', 'create_temp_file', 'append_temp_file', 'list_fds',
]
[file_descriptor]
enable_references = true
[linked_programs]
other = { path = 'program.toml', description = 'The same.' }
";

/// A turn for each kind of fact.
const SCRIPT: &str = r#"
[[turn]]
when.prompt = "^child (one|two)"
when.round = 0
calls = [{ tool = "append_temp_file", args = { temp_file_id = "temp:1", content = "a child was here\n" } }]
[[turn]]
when.prompt = "^child (one|two)"
text = "I am a child."
[[turn]]
when.prompt = "^spawned"
text = "I was spawned."
[[turn]]
when.prompt = "^descriptors"
when.round = 0
calls = [{ tool = "log", args = {} }]
[[turn]]
when.prompt = "^descriptors"
when.round = 1
calls = [
    { tool = "rename_fd", args = { fd = "fd:1", name = "log" } },
    { tool = "search_fd", args = { fd = "fd:1", query = "line 777" } },
    { tool = "mark_fd_section", args = { fd = "fd:1", ref_id = "end", start_line = 900, end_line = 1000 } },
]
[[turn]]
when.prompt = "^descriptors"
text = 'Noted. <ref id="plan">First the log.</ref>'
[[turn]]
when.prompt = "^children"
when.round = 0
calls = [{ tool = "create_temp_file", args = { content = "notes\n" } }]
[[turn]]
when.prompt = "^children"
when.round = 1
calls = [{ tool = "fork", args = { prompts = ["child one", "child two"] } }]
[[turn]]
when.prompt = "^children"
when.round = 2
calls = [{ tool = "spawn", args = { program_name = "other", query = "spawned", additional_preload_fds = ["fd:1 lines 1-2"] } }]
[[turn]]
when.prompt = "^children"
when.round = 3
calls = [{ tool = "checkpoint_process", args = { label = "after the children" } }]
[[turn]]
when.prompt = "^write"
when.round = 0
calls = [{ tool = "send_message", args = { to = "friend", text = "Hello.", fds = ["fd:1"] } }]
[[turn]]
text = "This is turn {{ turn }}."
"#;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("golden")
}

fn builder(store: &Path) -> KernelBuilder {
    let log = FnTool::new("log", "A log.", |(): ()| async {
        let lines = (1..=1_000).map(|line| format!("line {line}\n"));
        Ok::<_, String>(lines.collect::<String>())
    });
    let model = Scripted::parse(SCRIPT, "golden").unwrap();
    let store = LogStore::open(store).unwrap();
    Kernel::open(store).model("m", model).tool(log.idempotent())
}

/// Everything that a store says of its processes, but for times.
async fn described(kernel: &Kernel) -> String {
    let mut text = String::new();
    for info in kernel.processes().await.unwrap() {
        let row = info.row;
        let exit = row.exit.as_ref().map(|exit| exit.status.word());
        writeln!(
            text,
            "process {} of {} parent {:?} name {:?} origin {:?} exit {exit:?}",
            row.pid, row.program, row.parent, row.name, row.origin
        )
        .unwrap();
        for line in kernel.log(row.pid).await.unwrap() {
            writeln!(text, "  {} {}: {}", line.number, line.name, line.summary).unwrap();
        }
        let conversation = kernel.conversation(row.pid, Position::Now).await.unwrap();
        for message in conversation.messages {
            writeln!(text, "  {message:?}").unwrap();
        }
    }
    for kept in kernel.checkpoints().await.unwrap() {
        writeln!(text, "{} {:?} {:?}", kept.id, kept.label, kept.members).unwrap();
    }
    text
}

/// A life with each kind of fact in it.
async fn live(store: &Path) -> String {
    let kernel = builder(store).build().await.unwrap();
    let program = kernel.parse(PROGRAM).unwrap().program;
    let budget = Budget {
        output_tokens: Some(1_000_000),
        processes: Some(8),
        ..Budget::default()
    };
    let start = kernel.start(program.clone()).session().budget(budget);
    let session = start.name("session").without_input().await.unwrap();
    let start = kernel.start(program).session().name("friend");
    let friend = start.without_input().await.unwrap();
    for text in ["descriptors", "children", "write to a friend", "the end"] {
        turn(&session, text).await;
    }
    within(friend.wait_for(ProcessView::is_idle)).await.unwrap();
    within(session.call("list_fds", "{}")).await.unwrap();
    let answer = session.goto("msg:1", "Begin again here.").await.unwrap();
    assert!(!answer.is_error, "{}", answer.text);
    within(session.wait_for(ProcessView::is_idle))
        .await
        .unwrap();
    let branch = kernel.branch(session.pid(), Position::Now).await.unwrap();
    branch.stop().await.unwrap();
    branch.kill().await.unwrap();
    within(branch.wait()).await.unwrap();
    let text = described(&kernel).await;
    kernel.shutdown().await.unwrap();
    text
}

#[tokio::test]
async fn a_store_of_version_1_is_read_and_its_processes_continue() {
    let golden = folder().join("store-1");
    let text = folder().join("store-1.txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() && !golden.exists() {
        let fresh = tempfile::tempdir().unwrap();
        let described = live(fresh.path()).await;
        copy_folder(fresh.path(), &golden, &DERIVED).unwrap();
        std::fs::write(&text, described).unwrap();
    }
    let store = tempfile::tempdir().unwrap();
    copy_folder(&golden, store.path(), &DERIVED).unwrap();
    let kernel = builder(store.path())
        .recovery(Recovery::Resume)
        .build()
        .await
        .unwrap();
    let expected = std::fs::read_to_string(text).unwrap();
    let found = described(&kernel).await;
    for (found, expected) in found.lines().zip(expected.lines()) {
        assert_eq!(
            found, expected,
            "the format has changed: see this file's head"
        );
    }
    assert_eq!(found.lines().count(), expected.lines().count());
    let session = kernel.process_named("session").await.unwrap();
    assert!(turn(&session, "go on").await.starts_with("This is turn"));
    let read = session
        .call("read_fd", r#"{"fd": "log", "page": 2}"#)
        .await
        .unwrap();
    assert!(read.text.contains("<fd_content"), "{}", read.text);
    kernel.shutdown().await.unwrap();
}
