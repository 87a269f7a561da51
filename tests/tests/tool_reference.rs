//! The reference of the kernel's tools, `docs/tools.md`: written from the registry, with answers of
//! a kernel that really runs each tool. `UPDATE_GOLDEN=1` writes the file anew.

use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

use dormouse::host::{LocalHost, Permissions};
use dormouse::message::Block;
use dormouse::model::{ModelError, Reply, Request};
use dormouse::program::Program;
use dormouse::store::MemoryStore;
use dormouse::tool::{Access, Answer};
use dormouse::{Kernel, Position, Process, ProcessView};
use dormouse_kernel::syscall::{Group, TOOL_SET, TOOLS, Tool, tool};
use dormouse_tests::{FnModel, asks, says, within};
use serde_json::Value;
use tokio::sync::Notify;

const PROGRAM: &str = r#"[model]
name = "m"
provider = "scripted"

[tools]
enabled = [ALL]

[file_descriptor]
default_page_size = 120

[linked_programs]
reviewer = { path = "reviewer.toml", description = "Reviews a text." }
"#;

/// The program of the process that submits a result.
const REPORTER: &str = r#"[model]
name = "m"
provider = "scripted"

[result]
schema = { type = "object", properties = { failed = { type = "array", items = { type = "string" } } }, required = ["failed"] }
"#;

const REVIEWER: &str = "[model]\nname = \"m\"\nprovider = \"scripted\"\n";

/// What `fd:1` holds.
const LOG: &str = "\
# Build
compiling parser v0.3.1
warning: unused variable `count`
compiling lexer v0.2.0
error: expected `;`, found `}`

# Tests
test parse ... ok
test numbers ... FAILED
test lines ... ok
2 passed; 1 failed
";

/// What `fd:2` holds: the same after a repair.
const REPAIRED: &str = "\
# Build
compiling parser v0.3.1
compiling lexer v0.2.0

# Tests
test parse ... ok
test numbers ... ok
test lines ... ok
3 passed; 0 failed
";

/// The calls that are shown, in this order: later ones find what earlier ones left.
const CALLS: [(&str, &str); 34] = [
    ("read_fd", r#"{"fd": "fd:1", "page": 2}"#),
    (
        "read_fd",
        r#"{"fd": "fd:1", "unit": "section", "name": "Tests"}"#,
    ),
    (
        "search_fd",
        r#"{"fd": "fd:1", "query": "warning|error", "regex": true}"#,
    ),
    ("diff_fd", r#"{"a": "fd:1", "b": "fd:2"}"#),
    ("fd_to_file", r#"{"fd": "fd:1", "file_path": "build.log"}"#),
    ("summarize_fd", r#"{"fd": "fd:1"}"#),
    ("rename_fd", r#"{"fd": "fd:1", "name": "build"}"#),
    (
        "mark_fd_section",
        r#"{"fd": "fd:1", "start_line": 7, "end_line": 11, "ref_id": "tests"}"#,
    ),
    ("get_fd_section", r#"{"fd": "fd:1", "ref_id": "tests"}"#),
    ("list_fd_sections", r#"{"fd": "fd:1"}"#),
    ("list_fds", "{}"),
    ("delete_fd_section", r#"{"fd": "fd:1", "ref_id": "tests"}"#),
    (
        "fork",
        r#"{"prompts": ["Count the warnings.", "Count the failed tests."]}"#,
    ),
    (
        "spawn",
        r#"{"program_name": "reviewer", "query": "Is the repair complete?", "additional_preload_fds": ["fd:1 lines 7-11", "fd:2"]}"#,
    ),
    (
        "spawn",
        r#"{"program_name": "reviewer", "query": "Watch the build.", "wait": false}"#,
    ),
    ("wait", r#"{"pids": [6]}"#),
    (
        "send_message",
        r#"{"to": "planner", "text": "The build is repaired.", "fds": ["fd:2"]}"#,
    ),
    ("receive_messages", r#"{"timeout_ms": 60000}"#),
    ("list_processes", "{}"),
    ("ask_user", ASK),
    ("submit_result", r#"{"value": {"failed": "numbers"}}"#),
    ("submit_result", r#"{"value": {"failed": ["numbers"]}}"#),
    (
        "wake_at",
        r#"{"time": "2099-12-24T18:00", "zone": "Europe/Berlin", "note": "Is the build green?"}"#,
    ),
    ("cancel_alarm", r#"{"alarm": "alarm:1"}"#),
    ("create_temp_file", r#"{"content": "- numbers fails\n"}"#),
    (
        "append_temp_file",
        r#"{"temp_file_id": "temp:1", "content": "- count is unused\n"}"#,
    ),
    ("read_temp_file", r#"{"temp_file_id": "temp:1"}"#),
    (
        "write_temp_file",
        r#"{"temp_file_id": "temp:1", "content": "nothing left\n", "version": 2}"#,
    ),
    ("delete_temp_file", r#"{"temp_file_id": "temp:1"}"#),
    (
        "explore",
        r#"{"prompts": ["Repair the code.", "Repair the test."], "judge": {"schema": {"type": "object", "required": ["file_path"]}}}"#,
    ),
    ("checkpoint_process", r#"{"label": "before the repair"}"#),
    ("list_checkpoints", "{}"),
    (
        "goto",
        r#"{"position": "msg:1", "message": "Begin again."}"#,
    ),
    ("restore_process", r#"{"checkpoint_id": "cp:1"}"#),
];

/// A question, which only the model of a process can ask.
const ASK: &str = r#"{"question": "Repair the test or the code?", "choices": ["test", "code"]}"#;

/// What a child of an exploration proposes.
const REPAIR: &str = r#"{"fd": "fd:2", "file_path": "parser.rs"}"#;

/// The tools that the program of the examples enables: `submit_result` needs not be enabled.
fn enabled_tools() -> impl Iterator<Item = &'static Tool> {
    TOOLS.iter().filter(|tool| tool.name != "submit_result")
}

/// The program of the examples, compiled.
fn program(kernel: &Kernel) -> Program {
    let names: Vec<_> = enabled_tools()
        .map(|tool| format!("{:?}", tool.name))
        .collect();
    let text = PROGRAM.replace("ALL", &names.join(", "));
    let files = [("main.toml", text), ("reviewer.toml", REVIEWER.to_owned())];
    let files = files.map(|(name, text)| (name.to_owned(), text.into()));
    kernel.compile("main.toml", &files.into()).unwrap().program
}

/// A process that has all tools, and the two logs as descriptors.
async fn process(kernel: &Kernel) -> Process {
    let start = kernel.start(program(kernel)).input("The build is red.");
    let process = start.session().access(Access::Admin).await.unwrap();
    within(process.wait_for(ProcessView::is_idle))
        .await
        .unwrap();
    for log in [LOG, REPAIRED] {
        within(process.open("tool:build", log, None)).await.unwrap();
    }
    process
}

/// Answers what the examples need; the child in the background only once it is waited for.
async fn answer(request: Request, waited_for: Arc<Notify>) -> Result<Reply, ModelError> {
    let asked = request.messages.last().unwrap().text();
    if asked.starts_with("Ask the user.") {
        return Ok(asks(&[("ask_user", ASK)]));
    }
    if let Some(args) = asked.strip_prefix("Submit ") {
        return Ok(asks(&[("submit_result", args)]));
    }
    if asked.contains("Repair the code.") {
        return Ok(asks(&[("fd_to_file", REPAIR)]));
    }
    if asked.contains("Watch the build.") {
        waited_for.notified().await;
    }
    // It is ended, since the other child of the exploration wins.
    if asked.contains("Repair the test.") {
        std::future::pending::<()>().await;
    }
    Ok(says(match asked {
        asked if asked.contains("Count the warnings.") => "There is one warning.",
        asked if asked.contains("Count the failed tests.") => "One test failed: numbers.",
        asked if asked.contains("Is the repair complete?") => "It is: no test fails.",
        asked if asked.contains("Watch the build.") => "The build is green.",
        asked if asked.contains("Summarize") => "A build with one error; the test numbers fails.",
        _ => "I look at it.",
    }))
}

/// What a model is answered that submits a result.
async fn submitted(kernel: &Kernel, args: &str) -> String {
    let program = kernel.parse(REPORTER).unwrap().program;
    let process = kernel.start(program).input(format!("Submit {args}"));
    let process = process.await.unwrap();
    within(process.wait()).await.unwrap();
    let conversation = kernel.conversation(process.pid(), Position::Now);
    let messages = conversation.await.unwrap().messages;
    let mut blocks = messages.iter().flat_map(|message| &message.blocks);
    let answer = blocks.find_map(|block| match block {
        Block::ToolResult { text, .. } => Some(text.to_string()),
        _ => None,
    });
    answer.unwrap()
}

/// What each call was answered.
async fn answers(kernel: &Kernel, waited_for: &Notify) -> Vec<String> {
    let process = process(kernel).await;
    let planner = kernel.start(program(kernel)).session().without_input();
    let planner = planner.name("planner").await.unwrap();
    let mut answers = Vec::new();
    for (name, args) in CALLS {
        if name == "submit_result" {
            answers.push(submitted(kernel, args).await);
            continue;
        }
        let is_acting = |view: &ProcessView| view.status().word() == "acting";
        within(process.wait_for(|view| !is_acting(view)))
            .await
            .unwrap();
        let meanwhile = async {
            within(process.wait_for(is_acting)).await.unwrap();
            match name {
                "wait" => waited_for.notify_one(),
                _ => process
                    .message(planner.pid(), "What failed?")
                    .await
                    .unwrap(),
            }
        };
        let call = within(process.call(name, args));
        let answer = match name {
            "ask_user" => Ok(answer_of_question(kernel).await),
            "wait" | "receive_messages" => tokio::join!(call, meanwhile).0,
            _ => call.await,
        };
        answers.push(without_times(&answer.unwrap().text));
    }
    answers
}

/// What the model of a process is answered that asks the question.
async fn answer_of_question(kernel: &Kernel) -> Answer {
    let asking = kernel.start(program(kernel)).input("Ask the user.");
    let asking = asking.session().access(Access::Admin).await.unwrap();
    let held = |view: &ProcessView| view.phase.held_calls().next().is_some();
    within(asking.wait_for(held)).await.unwrap();
    let call = kernel.pending().await.unwrap().calls[0].id;
    within(kernel.answer(call, "code".into())).await.unwrap();
    within(asking.wait_for(ProcessView::is_idle)).await.unwrap();
    let conversation = kernel.conversation(asking.pid(), Position::Now).await;
    let messages = conversation.unwrap().messages;
    let mut blocks = messages.iter().flat_map(|message| &message.blocks);
    let text = blocks.find_map(|block| match block {
        Block::ToolResult { text, .. } => Some(text.clone()),
        _ => None,
    });
    within(asking.kill()).await.unwrap();
    within(asking.wait()).await.unwrap();
    Answer::shown(&*text.unwrap())
}

/// The same with one time in place of each other.
fn without_times(answer: &str) -> String {
    ["opened=\"", " now=\""]
        .iter()
        .fold(answer.to_owned(), |answer, attribute| {
            let mut parts = answer.split(attribute);
            let mut text = parts.next().unwrap_or_default().to_owned();
            for part in parts {
                let rest = part.split_once('"').map_or("", |(_, rest)| rest);
                text += &format!("{attribute}2026-01-31T12:00:00Z\"{rest}");
            }
            text
        })
}

/// Breaks a text into lines of the width of this repository's pages.
fn wrapped(text: &str) -> String {
    let mut lines = String::new();
    for line in text.lines() {
        let mut columns = 0;
        for word in line.split(' ') {
            let width = word.chars().count() + 1;
            match columns {
                0 => {}
                columns if columns + width > 140 => lines.push('\n'),
                _ => lines.push(' '),
            }
            columns = match columns + width > 140 {
                true => width,
                false => columns + width,
            };
            lines += word;
        }
        lines.push('\n');
    }
    lines.trim_end().to_owned()
}

/// What a parameter takes.
fn accepted(parameter: &Value) -> String {
    let item = || match &parameter["items"]["type"] {
        Value::String(kind) => kind.clone(),
        _ => "string or object".to_owned(),
    };
    let kind = match parameter["type"].as_str().unwrap_or("any") {
        "array" => format!("array of {}", item()),
        kind => kind.to_owned(),
    };
    let choices: Vec<_> = parameter["enum"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|choice| format!("`{}`", choice.as_str().unwrap_or_default()))
        .collect();
    match (choices.is_empty(), parameter["minimum"].as_u64()) {
        (false, _) => format!("{kind}: {}", choices.join(", ")),
        (true, Some(least)) => format!("{kind}, at least {least}"),
        (true, None) => kind,
    }
}

/// When a call that may have been made is made again after a crash.
fn repeated(tool: &Tool) -> &'static str {
    let modes = [
        "{}",
        r#"{"mode": "append"}"#,
        r#"{"mode": "insert", "insert_at_line": 1}"#,
    ];
    match modes.map(|args| (tool.may_repeat)(args)) {
        [true, true, true] => "yes",
        [true, false, false] => "in mode `write`; not in the modes `append` and `insert`",
        other => panic!(
            "say in docs/tools.md when {} is repeated: {other:?}",
            tool.name
        ),
    }
}

fn parameters(tool: &Tool) -> String {
    let schema = tool.schema();
    let Some(properties) = schema["properties"]
        .as_object()
        .filter(|all| !all.is_empty())
    else {
        return "No parameters.\n".to_owned();
    };
    let required: Vec<_> = schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let mut table = "| parameter | type | required | description |\n|---|---|---|---|\n".to_owned();
    for (name, parameter) in properties {
        let is_required = if required.contains(&name.as_str()) {
            "yes"
        } else {
            ""
        };
        let description = parameter["description"].as_str().unwrap_or_default();
        let description = description.replace('|', "\\|");
        writeln!(
            table,
            "| `{name}` | {} | {is_required} | {description} |",
            accepted(parameter)
        )
        .unwrap();
    }
    table
}

fn section(tool: &Tool, program: &Program, answers: &[String]) -> String {
    let mut section = format!(
        "### {}\n\n{}\n\nAccess: {}. Made again after a crash: {}.\n\n{}\n",
        tool.name,
        wrapped(&tool.spec(program, &TOOL_SET).description),
        tool.access.word(),
        repeated(tool),
        parameters(tool)
    );
    let mut is_shown = false;
    for ((name, args), answer) in CALLS.iter().zip(answers) {
        if *name == tool.name {
            is_shown = true;
            let tag = if answer.starts_with('<') {
                "xml"
            } else {
                "text"
            };
            write!(
                section,
                "```text\n{name}({args})\n```\n\n```{tag}\n{}\n```\n\n",
                answer.trim_end()
            )
            .unwrap();
        }
    }
    assert!(is_shown, "add a call of {} to CALLS", tool.name);
    section
}

fn reference(program: &Program, answers: &[String]) -> String {
    let heads = [
        (Group::Descriptors, "Descriptors"),
        (Group::Processes, "Processes"),
        (Group::TempFiles, "Temporary files"),
    ];
    let mut text = format!(
        "{HEAD}\n```toml\n{}```\n\n```text\n{LOG}```\n\n",
        example_program()
    );
    for (group, head) in heads {
        writeln!(text, "## {head}\n").unwrap();
        for tool in TOOLS.iter().filter(|tool| tool.group == group) {
            text += &section(tool, program, answers);
        }
    }
    text.trim_end().to_owned() + "\n"
}

/// The program of the examples, as the reference shows it.
fn example_program() -> String {
    let of = |group| enabled_tools().filter(move |tool| tool.group == group);
    let line = |group| {
        let names: Vec<_> = of(group).map(|tool| format!("{:?}", tool.name)).collect();
        let lines = names
            .chunks(6)
            .map(|names| format!("    {},", names.join(", ")));
        lines.collect::<Vec<_>>().join("\n")
    };
    let lines = [Group::Descriptors, Group::Processes, Group::TempFiles].map(line);
    PROGRAM.replace("ALL", &format!("\n{}\n", lines.join("\n")))
}

const HEAD: &str = "\
# Tool reference

<!-- Written by tests/tests/tool_reference.rs; edit that file and the tools, not this page:
     UPDATE_GOLDEN=1 cargo test -p dormouse-tests --test kernel tool_reference -->

This page lists the tools of the kernel, generated from the registry `syscall::TOOLS` of `dormouse-kernel`. A program enables a tool by its
name in `[tools] enabled`; a model gets the descriptions and parameters below, except those parameters that its program has no use for (a
program without temporary files has no parameter for them). The host's own tools, `read_file` and `list_dir`, are described in the
[program guide](program-guide.md).

*Access* is the level that a process needs to call the tool: read, write or admin. *Made again after a crash* says whether the kernel makes a
call again if the call was in flight when the kernel ended. A call that is not made again is answered with \"effect unknown\".

What models write on their own is accepted where it can mean one thing only, and is not in the schemas: null for a parameter that is left
out; numbers, booleans and lists as strings; names such as `startLine`; other names of a parameter (`pattern` and `limit` of a search,
`path` for `file_path`); and of a part `offset` with `limit` (lines, unless `mode` says otherwise), `start_line` or `page` with a count, and
ranges: `lines=\"10-40\"`, `view_range=[10, 40]`. A descriptor may be written as `fd_1`, and by the path that it came from. Anything else is
answered with an error that names the nearest parameter or descriptor.

A kernel ran the calls below and gave the answers below them; only times are replaced. The host made the calls in the name of a process of
this program. Its descriptor `fd:1` holds the log below the program, and `fd:2` the same log after a repair. Another process, which the host
named `planner`, exists in the kernel. `submit_result` is called by the model of a process whose program has a
[result schema](program-guide.md#results).
";

#[tokio::test]
async fn the_reference_of_the_tools_is_what_they_say_and_do() {
    let folder = tempfile::tempdir().unwrap();
    let permissions = Permissions::none().allow_write(folder.path());
    let waited_for = Arc::new(Notify::new());
    let notified = waited_for.clone();
    let kernel = Kernel::open(MemoryStore::new())
        .model(
            "m",
            FnModel(move |request| answer(request, notified.clone())),
        )
        .host(LocalHost::new(permissions, folder.path()).unwrap())
        .build()
        .await
        .unwrap();
    for (name, _) in CALLS {
        assert!(tool(name).is_some(), "{name}");
    }
    let program = program(&kernel);
    let found = reference(&program, &answers(&kernel, &waited_for).await);
    kernel.shutdown().await.unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/tools.md");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &found).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == written,
        "docs/tools.md is not what the tools say and do; read the difference after\n  \
         UPDATE_GOLDEN=1 cargo test -p dormouse-tests --test kernel tool_reference\n\n{found}"
    );
}
