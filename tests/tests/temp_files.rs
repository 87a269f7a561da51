//! Temporary files from end to end: shared by a tree and hidden from others, done once whatever
//! happens in between.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dormouse::id::Pid;
use dormouse::model::{Reply, Request};
use dormouse::models::Scripted;
use dormouse::ports::Model;
use dormouse::process::ExitStatus;
use dormouse::store::{LogStore, MemoryStore};
use dormouse::tool::Access;
use dormouse::{FnTool, Kernel, KernelBuilder, Process};
use dormouse_tests::faulty::{Fate, Faulty, Operation};
use dormouse_tests::{
    FnModel, Gate, Requests, asks, check_histories, program, results, says, within,
};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

const TOOLS: &str = "[tools]\nenabled = [\"create_temp_file\", \"read_temp_file\", \
\"write_temp_file\", \"append_temp_file\", \"delete_temp_file\", \"fork\"]\n";

#[derive(Deserialize, JsonSchema)]
struct Meet {
    opens: Option<String>,
    waits_for: Option<String>,
}

/// A tool `meet` that opens one gate and waits at another.
fn with_gates(builder: KernelBuilder) -> KernelBuilder {
    let gates: Arc<BTreeMap<&str, Gate>> = Arc::new(
        ["read", "appended"]
            .map(|name| (name, Gate::default()))
            .into(),
    );
    builder.tool(FnTool::new(
        "meet",
        "Meets.",
        move |Meet { opens, waits_for }: Meet| {
            let gates = gates.clone();
            async move {
                if let Some(gate) = opens {
                    gates[&*gate].open();
                }
                if let Some(gate) = waits_for {
                    gates[&*gate].pass().await;
                }
                Ok::<_, String>("met")
            }
        },
    ))
}

/// Two children change what their parent made. The second has read before the first appends, and
/// writes after it.
const SHARING: &str = r#"
    [[turn]]
    when = { prompt = "^go", round = 0 }
    calls = [{ tool = "create_temp_file", args = { content = "begun\n" } }]
    [[turn]]
    when = { prompt = "^go", round = 1 }
    calls = [{ tool = "fork", args = { prompts = ["you append", "you write"] } }]
    [[turn]]
    when = { prompt = "^go", round = 2 }
    calls = [{ tool = "read_temp_file", args = { temp_file_id = "temp:1" } }]
    [[turn]]
    when = { prompt = "^go" }
    text = "{{ last }}"

    [[turn]]
    when = { prompt = "you append", round = 0 }
    calls = [{ tool = "meet", args = { waits_for = "read" } }]
    [[turn]]
    when = { prompt = "you append", round = 1 }
    calls = [{ tool = "append_temp_file", args = { temp_file_id = "temp:1", content = "appended\n" } }]
    [[turn]]
    when = { prompt = "you append", round = 2 }
    calls = [{ tool = "meet", args = { opens = "appended" } }]
    [[turn]]
    when = { prompt = "you append" }
    text = "appended"

    [[turn]]
    when = { prompt = "you write", round = 0 }
    calls = [{ tool = "read_temp_file", args = { temp_file_id = "temp:1" } }]
    [[turn]]
    when = { prompt = "you write", round = 1 }
    calls = [{ tool = "meet", args = { opens = "read", waits_for = "appended" } }]
    [[turn]]
    when = { prompt = "you write", round = 2 }
    calls = [{ tool = "write_temp_file", args = { temp_file_id = "temp:1", content = "written\n", version = 1 } }]
    [[turn]]
    when = { prompt = "you write", round = 3 }
    calls = [{ tool = "read_temp_file", args = { temp_file_id = "temp:1" } }]
    [[turn]]
    when = { prompt = "you write", round = 4 }
    calls = [{ tool = "write_temp_file", args = { temp_file_id = "temp:1", content = "begun\nappended\nwritten\n", version = 2 } }]
    [[turn]]
    when = { prompt = "you write" }
    text = "written"
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_of_a_tree_change_a_file_and_none_overwrites_what_it_has_not_read() {
    for store in [None, Some(MemoryStore::new())] {
        let requests = Requests::default();
        let mut builder =
            Kernel::builder().model("m", requests.record(Scripted::parse(SHARING, "s").unwrap()));
        if let Some(store) = store {
            builder = builder.store(store);
        }
        let kernel = with_gates(builder).build().await.unwrap();
        let tools = TOOLS.replace("\"fork\"", "\"fork\", \"meet\"");
        let parent = kernel
            .start(program(&kernel, &tools))
            .input("go")
            .await
            .unwrap();
        let exit = within(parent.wait()).await.unwrap();
        let whole = "<temp_file id=\"temp:1\" version=\"3\" \
             total_chars=\"23\">begun\nappended\nwritten\n</temp_file>";
        assert_eq!((exit.status, &*exit.message), (ExitStatus::Done, whole));
        check_histories(&requests);
        let asked = requests.of(3);
        let (stale, is_error) = &results(&asked[3], 0)[0];
        assert!(
            *is_error && stale.contains("type=\"stale_version\"") && stale.contains("version=2"),
            "{stale}"
        );
        let (again, _) = &results(&asked[4], 0)[0];
        assert!(
            again.contains("version=\"2\"") && again.contains("begun\nappended\n"),
            "{again}"
        );
    }
}

async fn session(kernel: &Kernel, rest: &str) -> Process {
    kernel
        .start(program(kernel, rest))
        .session()
        .without_input()
        .await
        .unwrap()
}

async fn call(process: &Process, tool: &str, args: serde_json::Value) -> String {
    within(process.call(tool, args.to_string()))
        .await
        .unwrap()
        .text
        .to_string()
}

async fn read(process: &Process, id: &str) -> String {
    call(process, "read_temp_file", json!({ "temp_file_id": id })).await
}

fn silent(folder: &Path) -> KernelBuilder {
    Kernel::open(LogStore::open(folder).unwrap()).model("m", Scripted::without_script())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tree_sees_its_own_files_only_and_after_a_restart_too() {
    let folder = tempfile::tempdir().unwrap();
    let kernel = silent(folder.path()).build().await.unwrap();
    let (one, other) = (session(&kernel, TOOLS).await, session(&kernel, TOOLS).await);
    let created = call(&one, "create_temp_file", json!({ "content": "of one" })).await;
    assert!(
        created.starts_with("<temp_file id=\"temp:1\" version=\"1\" total_bytes=\"6\">"),
        "{created}"
    );
    let (hidden, none) = ("There is no temporary file temp:1", "There are none now.");
    let answer = read(&other, "temp:1").await;
    assert!(
        answer.contains("type=\"not_found\"") && answer.contains(hidden) && answer.contains(none),
        "{answer}"
    );
    call(
        &one,
        "append_temp_file",
        json!({ "temp_file_id": "temp:1", "content": ", and more" }),
    )
    .await;
    call(&one, "create_temp_file", json!({ "content": "second" })).await;
    call(
        &one,
        "delete_temp_file",
        json!({ "temp_file_id": "temp:2" }),
    )
    .await;
    call(
        &other,
        "create_temp_file",
        json!({ "content": "of the other" }),
    )
    .await;
    let (one, other) = (one.pid(), other.pid());
    within(kernel.shutdown()).await.unwrap();

    std::fs::remove_dir_all(folder.path().join("index")).unwrap();
    let kernel = silent(folder.path()).build().await.unwrap();
    let (one, other) = (
        kernel.resume(one).await.unwrap(),
        kernel.resume(other).await.unwrap(),
    );
    let whole =
        "<temp_file id=\"temp:1\" version=\"2\" total_chars=\"16\">of one, and more</temp_file>";
    assert_eq!(read(&one, "temp:1").await, whole);
    assert!(
        read(&other, "temp:1")
            .await
            .ends_with(">of the other</temp_file>")
    );
    assert!(read(&one, "temp:2").await.contains("temp:2 was deleted"));
    let args = json!({ "temp_file_id": "temp:1", "content": "new", "version": 2 });
    assert!(
        call(&one, "write_temp_file", args.clone())
            .await
            .contains("version=\"3\"")
    );
    assert!(
        call(&one, "write_temp_file", args)
            .await
            .contains("type=\"stale_version\"")
    );
    let third = call(&one, "create_temp_file", json!({ "content": "third" })).await;
    assert!(
        third.contains("id=\"temp:3\""),
        "a number is not used again: {third}"
    );
    let restored = kernel.copy(one.pid(), None).await.unwrap();
    assert!(
        read(&restored, "temp:1").await.contains(hidden),
        "a restored process begins a tree of its own"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_file_is_read_as_a_descriptor_that_stays_as_it_is() {
    let kernel = Kernel::builder()
        .model("m", Scripted::without_script())
        .build()
        .await
        .unwrap();
    let rest = TOOLS.replace("\"fork\"", "\"read_fd\"")
        + "[file_descriptor]\nmax_direct_output_chars = 100\ndefault_page_size = \
             50\nmax_content_bytes = 3000\n";
    let process = session(&kernel, &rest).await;
    let text = "a line of it\n".repeat(100);
    within(process.open("host", text.clone(), None))
        .await
        .unwrap();
    let created = call(&process, "create_temp_file", json!({ "fd": "fd:1" })).await;
    assert!(
        created.contains("id=\"temp:1\" version=\"1\" total_bytes=\"1300\""),
        "{created}"
    );
    let preview = read(&process, "temp:1").await;
    assert!(
        preview.starts_with("<fd_result fd=\"fd:2\" source=\"temp:1\""),
        "{preview}"
    );
    assert!(
        preview.contains("Version 1 of temp:1 exceeds 100 characters"),
        "{preview}"
    );
    call(
        &process,
        "append_temp_file",
        json!({ "temp_file_id": "temp:1", "fd": "fd:2" }),
    )
    .await;
    let refused = call(
        &process,
        "append_temp_file",
        json!({ "temp_file_id": "temp:1", "fd": "fd:2" }),
    )
    .await;
    assert!(
        refused.contains("type=\"write_error\"") && refused.contains("3000 are the most"),
        "{refused}"
    );
    let args = json!({ "temp_file_id": "temp:1", "content": "small", "version": 1 });
    assert!(
        call(&process, "write_temp_file", args)
            .await
            .contains("stale_version")
    );
    let snapshot = call(
        &process,
        "read_fd",
        json!({ "fd": "fd:2", "read_all": true }),
    )
    .await;
    assert!(
        snapshot.contains(&text),
        "the reader's copy is what it read: {snapshot}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_may_only_read_changes_nothing() {
    let kernel = Kernel::builder()
        .model("m", Scripted::without_script())
        .build()
        .await
        .unwrap();
    let start = kernel
        .start(program(&kernel, TOOLS))
        .session()
        .without_input()
        .access(Access::Read);
    let process = start.await.unwrap();
    let file = json!({ "temp_file_id": "temp:1" });
    for (tool, args) in [
        ("create_temp_file", json!({ "content": "x" })),
        ("delete_temp_file", file.clone()),
    ] {
        assert!(
            call(&process, tool, args)
                .await
                .contains("needs write access"),
            "{tool}"
        );
    }
    assert!(
        read(&process, "temp:1")
            .await
            .contains("type=\"not_found\""),
        "it may look"
    );
}

/// What one reply asks for is done in its order, though the calls run side by side.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_of_one_reply_see_each_other_in_order() {
    let model = FnModel(|request: Request| async move {
        Ok(match results(&request, 0).last() {
            None => asks(&[
                ("create_temp_file", r#"{"content": "a"}"#),
                (
                    "append_temp_file",
                    r#"{"temp_file_id": "temp:1", "content": "b"}"#,
                ),
                ("read_temp_file", r#"{"temp_file_id": "temp:1"}"#),
                (
                    "write_temp_file",
                    r#"{"temp_file_id": "temp:1", "content": "c", "version": 2}"#,
                ),
                ("read_temp_file", r#"{"temp_file_id": "temp:1"}"#),
            ]),
            Some(_) => says(
                &results(&request, 0)
                    .iter()
                    .map(|(text, _)| text.as_str())
                    .collect::<Vec<_>>()
                    .join("\n"),
            ),
        })
    });
    let folder = tempfile::tempdir().unwrap();
    let kernel = Kernel::open(LogStore::open(folder.path()).unwrap())
        .model("m", model)
        .build()
        .await
        .unwrap();
    let process = kernel
        .start(program(&kernel, TOOLS))
        .input("go")
        .await
        .unwrap();
    let said = within(process.wait()).await.unwrap().message;
    assert!(
        said.contains("version=\"2\" total_chars=\"2\">ab</temp_file>"),
        "{said}"
    );
    assert!(
        said.ends_with("version=\"3\" total_chars=\"1\">c</temp_file>"),
        "{said}"
    );
}

/// A parent makes a file and forks; one child appends twice, two read and write until they were not
/// overtaken; the parent says what the file holds.
fn writers() -> impl Model {
    FnModel(|request: Request| async move { Ok(next(&request)) })
}

fn next(request: &Request) -> Reply {
    let last = results(request, 0)
        .first()
        .map(|(text, _)| text.clone())
        .unwrap_or_default();
    let told = request.messages.iter().rev().find_map(|message| {
        let text = message
            .blocks
            .iter()
            .map(|block| format!("{block:?}"))
            .collect::<String>();
        ["as appender", "as writer 1", "as writer 2"]
            .into_iter()
            .find(|name| text.contains(name) && text.contains("You are child"))
    });
    let append = |text: &str| {
        (
            "append_temp_file",
            json!({ "temp_file_id": "temp:1", "content": text }),
        )
    };
    let read = ("read_temp_file", json!({ "temp_file_id": "temp:1" }));
    let (tool, args) = match told {
        None if request.messages.len() == 1 => {
            ("create_temp_file", json!({ "content": "begun\n" }))
        }
        None if last.contains("Created.") => (
            "fork",
            json!({ "prompts": ["as appender", "as writer 1", "as writer 2"] }),
        ),
        None if last.starts_with("<fork_result") => read,
        None => return says(&last),
        Some("as appender") => match results(request, 2).first() {
            _ if last.contains("You are child") => append("appender 1\n"),
            Some((before, _)) if before.contains("You are child") && last.contains("Appended.") => {
                append("appender 2\n")
            }
            _ => return says(&last),
        },
        Some(name) => match holds(&last) {
            _ if last.contains("Written.") => return says(&last),
            Some((version, text)) => {
                let content = format!("{text}{}\n", &name[3..]);
                (
                    "write_temp_file",
                    json!({ "temp_file_id": "temp:1", "content": content, "version": version }),
                )
            }
            None => read,
        },
    };
    asks(&[(tool, &args.to_string())])
}

/// The version and the text of a file that was read.
fn holds(answer: &str) -> Option<(u64, String)> {
    let document = roxmltree::Document::parse(answer).ok()?;
    let root = document.root_element();
    root.attribute("total_chars")?;
    Some((
        root.attribute("version")?.parse().ok()?,
        root.text().unwrap_or_default().to_owned(),
    ))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_commit_was_the_last_nothing_is_lost_and_nothing_is_done_twice() {
    let mut crashes = 0;
    for commits in 1.. {
        let folder = tempfile::tempdir().unwrap();
        let store = Faulty::crashing_after(commits, LogStore::open(folder.path()).unwrap());
        let kernel = Kernel::open(store)
            .model("m", writers())
            .build()
            .await
            .unwrap();
        let parent = kernel
            .start(program(&kernel, TOOLS))
            .input("go")
            .await
            .unwrap();
        let first = within(parent.wait()).await;
        drop(parent);
        within(kernel.shutdown()).await.unwrap();
        if commits.is_multiple_of(2) {
            std::fs::remove_dir_all(folder.path().join("index")).unwrap();
        }
        let requests = Requests::default();
        let kernel = Kernel::open(LogStore::open(folder.path()).unwrap())
            .model("m", requests.record(writers()));
        let kernel = kernel.build().await.unwrap();
        kernel.resume_all().await.unwrap();
        let exit = within(kernel.process(Pid(1)).await.unwrap().wait())
            .await
            .unwrap();
        assert_eq!(exit.status, ExitStatus::Done, "{commits} commits: {exit:?}");
        check_histories(&requests);
        let (version, text) =
            holds(&exit.message).unwrap_or_else(|| panic!("{commits} commits: {exit:?}"));
        let mut lines: Vec<_> = text.lines().collect();
        assert!(
            text.find("appender 1") < text.find("appender 2"),
            "{commits} commits: {text}"
        );
        assert_eq!(
            (lines.remove(0), version),
            ("begun", 5),
            "{commits} commits: {text}"
        );
        lines.sort_unstable();
        assert_eq!(
            lines,
            ["appender 1", "appender 2", "writer 1", "writer 2"],
            "{commits} commits"
        );
        within(kernel.shutdown()).await.unwrap();
        if first.is_ok_and(|exit| exit.status == ExitStatus::Done) {
            break;
        }
        crashes += 1;
    }
    assert!(
        crashes > 15,
        "{crashes} crashes are fewer than the run has commits"
    );
}

/// A panic of the store while the files of a tree are read is an answer, and the next request reads
/// them again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_whose_read_panics_are_unavailable_and_read_again() {
    let is_broken = AtomicBool::new(true);
    let store = Faulty::new(MemoryStore::new(), move |_, operation| match operation {
        Operation::TempFiles if is_broken.swap(false, Ordering::SeqCst) => {
            panic!("the index is broken")
        }
        _ => Fate::Pass,
    });
    let kernel = Kernel::open(store).build().await.unwrap();
    let session = session(&kernel, TOOLS).await;
    let create = async || call(&session, "create_temp_file", json!({ "content": "x" })).await;
    let refused = create().await;
    assert!(refused.contains("the index is broken"), "{refused}");
    let created = create().await;
    assert!(created.contains("temp:1"), "{created}");
}
