//! `explore` in whole kernels: children propose their writes and never make them, also when the
//! kernel dies in the middle; a schema, a program or the first end decides (SPEC-1).

use std::future::IntoFuture;
use std::path::Path;
use std::sync::{Arc, Mutex};

use dormouse::message::Block;
use dormouse::model::{Reply, Request};
use dormouse::ports::{Model, Tool};
use dormouse::process::{ExitStatus, Origin};
use dormouse::program::Program;
use dormouse::store::LogStore;
use dormouse::{FnTool, Kernel, Process, Recovery};
use dormouse_tests::{FnModel, Requests, asks, check_histories, program, says, within};
use serde_json::{Value, json};
use tokio::sync::Notify;

const TOOLS: &str = "[tools]\nenabled = [\"append\", \"explore\"]\n";

type Written = Arc<Mutex<Vec<String>>>;

fn append(written: &Written) -> impl Tool + use<> {
    let written = written.clone();
    let run = move |args: Value| {
        let line = args["line"].as_str().unwrap_or_default().to_owned();
        written.lock().unwrap().push(line);
        async move { Ok::<_, String>("appended") }
    };
    FnTool::new("append", "Appends a line.", run)
}

fn last(request: &Request) -> String {
    let blocks = request.messages.last().unwrap().blocks.iter();
    let texts = blocks.filter_map(|block| match block {
        Block::ToolResult { text, .. } | Block::Text { text, .. } => Some(text.to_string()),
        _ => None,
    });
    texts.last().unwrap_or_default()
}

/// The parent explores as it is told, and says what it heard; a child `append X` wants to append,
/// another one says its prompt.
fn does(request: &Request) -> Reply {
    let text = last(request);
    if let Some((_, prompt)) = text.split_once("process 1.\n\n") {
        return match prompt.split_once(' ') {
            Some(("append", line)) => asks(&[("append", &json!({ "line": line }).to_string())]),
            _ => says(prompt),
        };
    }
    match text.starts_with('{') {
        true => asks(&[("explore", &text)]),
        false => says(&text),
    }
}

fn model() -> impl Model {
    FnModel(|request: Request| async move { Ok(does(&request)) })
}

async fn start(kernel: &Kernel, args: Value) -> Process {
    let start = kernel.start(program(kernel, TOOLS));
    within(start.input(args.to_string()).into_future())
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn children_propose_their_writes_and_a_schema_decides() {
    let folder = tempfile::tempdir().unwrap();
    let (written, requests) = (Written::default(), Requests::default());
    let kernel = Kernel::open(LogStore::open(folder.path()).unwrap())
        .model("m", requests.record(model()))
        .tool(append(&written))
        .build()
        .await
        .unwrap();
    let args = json!({
        "prompts": ["append 1", "append 2", "three"],
        "judge": { "schema": { "type": "object", "properties": { "line": { "const": "2" } } } },
    });
    let parent = start(&kernel, args).await;
    let exit = within(parent.wait()).await.unwrap();
    assert_eq!(exit.status, ExitStatus::Done);
    let message = exit.message.to_string();
    assert!(message.contains("children=\"3\" winner=\"2\""), "{message}");
    assert!(written.lock().unwrap().is_empty(), "a proposal is no call");
    let children = parent.children().await.unwrap();
    assert_eq!(children.len(), 3);
    for child in children {
        let effects = kernel.effects(child.row.pid, None).await.unwrap();
        assert_eq!(effects.effects, []);
    }
    check_histories(&requests);
    let of_parent = requests.of(parent.pid().0);
    for request in requests
        .all()
        .iter()
        .filter(|request| request.pid != parent.pid())
    {
        let shared = of_parent[0].messages.len();
        assert_eq!(request.messages[..shared], of_parent[0].messages[..]);
        assert_eq!(request.tools, of_parent[0].tools);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_judge_the_first_child_that_is_done_wins() {
    let folder = tempfile::tempdir().unwrap();
    let written = Written::default();
    let slow = FnModel(|request: Request| async move {
        if last(&request).ends_with("\n\nnever") {
            std::future::pending::<()>().await;
        }
        Ok(does(&request))
    });
    let kernel = Kernel::open(LogStore::open(folder.path()).unwrap())
        .model("m", slow)
        .tool(append(&written))
        .build()
        .await
        .unwrap();
    let prompts = json!({ "prompts": ["append 1", "never", "never"] });
    let exit = within(start(&kernel, prompts).await.wait()).await.unwrap();
    assert!(exit.message.contains("winner=\"1\""), "{exit:?}");
    assert!(exit.message.contains("it ended as killed"), "{exit:?}");
    let none = json!({ "prompts": ["a", "b"], "judge": { "schema": { "type": "integer" } } });
    let exit = within(start(&kernel, none).await.wait()).await.unwrap();
    assert!(!exit.message.contains("winner="), "{exit:?}");
    assert!(exit.message.contains("its answer is not JSON"), "{exit:?}");
    assert!(written.lock().unwrap().is_empty());
}

/// The kernel dies while the children think, and once more when one of them is done.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_exploration_survives_the_end_of_its_kernel() {
    let folder = tempfile::tempdir().unwrap();
    let written = Written::default();
    let thinks = Arc::new(Notify::new());
    let open = |folder: &Path, thinks: Option<Arc<Notify>>| {
        let waits = FnModel(move |request: Request| {
            let thinks = thinks.clone();
            async move {
                if let Some(thinks) = thinks.filter(|_| last(&request).contains("You are child")) {
                    thinks.notify_one();
                    std::future::pending::<()>().await;
                }
                Ok(does(&request))
            }
        });
        Kernel::open(LogStore::open(folder).unwrap())
            .model("m", waits)
            .tool(append(&written))
            .recovery(Recovery::Resume)
    };
    let kernel = open(folder.path(), Some(thinks.clone()))
        .build()
        .await
        .unwrap();
    let pid = start(&kernel, json!({ "prompts": ["append 1", "append 2"] }))
        .await
        .pid();
    within(thinks.notified()).await;
    // As after a kill: nothing is shut down.
    let copy = tempfile::tempdir().unwrap();
    dormouse_tests::copy_folder(folder.path(), copy.path(), &["LOCK"]).unwrap();
    kernel.shutdown().await.unwrap();

    for folder in [folder.path(), copy.path()] {
        let kernel = open(folder, None).build().await.unwrap();
        let parent = kernel.process(pid).await.unwrap();
        let exit = within(parent.wait()).await.unwrap();
        assert!(exit.message.contains("winner="), "{exit:?}");
        assert_eq!(parent.children().await.unwrap().len(), 2);
        assert!(written.lock().unwrap().is_empty());
        kernel.shutdown().await.unwrap();
    }
}

/// A program whose linked program `critic` judges.
fn judged_program(kernel: &Kernel) -> Program {
    let model = "[model]\nname = \"m\"\nprovider = \"scripted\"\n";
    let main = format!(
        "{model}[tools]\nenabled = [\"append\", \"explore\", \"spawn\"]\n[linked_programs]\n\
         critic = \"critic.toml\"\n"
    );
    let critic =
        format!("{model}[result]\nschema = {{ type = \"object\", required = [\"pass\"] }}\n");
    let files = [("main.toml", main), ("critic.toml", critic)];
    let files = files.map(|(name, text)| (name.to_owned(), text.into()));
    kernel.compile("main.toml", &files.into()).unwrap().program
}

/// Passes the child that would append 2, or does what the others do.
fn judges_or_does(request: &Request) -> Reply {
    let text = last(request);
    if !is_judged(&text) {
        return does(request);
    }
    let value = json!({ "value": { "pass": text.contains(r#""line":"2""#) } });
    asks(&[("submit_result", &value.to_string())])
}

/// Whether this is what a judge reads.
fn is_judged(text: &str) -> bool {
    text.contains(r#""status":"at_write""#)
}

/// The kernel dies while the first judge thinks. Each child is judged by one process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_judges_also_if_the_kernel_ends_meanwhile() {
    let folder = tempfile::tempdir().unwrap();
    let written = Written::default();
    let judges = Arc::new(Notify::new());
    let open = |folder: &Path, judges: Option<Arc<Notify>>| {
        let waits = FnModel(move |request: Request| {
            let judges = judges.clone();
            async move {
                if let Some(judges) = judges.filter(|_| is_judged(&last(&request))) {
                    judges.notify_one();
                    std::future::pending::<()>().await;
                }
                Ok(judges_or_does(&request))
            }
        });
        Kernel::open(LogStore::open(folder).unwrap())
            .model("m", waits)
            .tool(append(&written))
            .recovery(Recovery::Resume)
    };
    let kernel = open(folder.path(), Some(judges.clone()))
        .build()
        .await
        .unwrap();
    let args = json!({ "prompts": ["append 1", "append 2"], "judge": { "program": "critic" } });
    let start = kernel
        .start(judged_program(&kernel))
        .input(args.to_string());
    let pid = within(start.into_future()).await.unwrap().pid();
    within(judges.notified()).await;
    // As after a kill: nothing is shut down.
    let copy = tempfile::tempdir().unwrap();
    dormouse_tests::copy_folder(folder.path(), copy.path(), &["LOCK"]).unwrap();
    kernel.shutdown().await.unwrap();

    for folder in [folder.path(), copy.path()] {
        let kernel = open(folder, None).build().await.unwrap();
        let parent = kernel.process(pid).await.unwrap();
        let exit = within(parent.wait()).await.unwrap();
        assert!(exit.message.contains("winner=\"2\""), "{exit:?}");
        assert!(written.lock().unwrap().is_empty());
        let children = parent.children().await.unwrap();
        let judges = children.iter().filter_map(|child| match child.row.origin {
            Origin::Judge { index, .. } => Some(index),
            _ => None,
        });
        let mut judges: Vec<_> = judges.collect();
        judges.sort_unstable();
        assert!(matches!(&judges[..], [3] | [2, 3]), "{judges:?}");
        kernel.shutdown().await.unwrap();
    }
}
