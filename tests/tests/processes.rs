//! Whole kernels with scripted models and host tools: what a process does, what it sees, what can
//! be watched.

use std::sync::Arc;

use dormouse::host::{LocalHost, Permissions};
use dormouse::id::Pid;
use dormouse::model::Request;
use dormouse::models::Scripted;
use dormouse::process::{ExitStatus, Origin};
use dormouse::record::Phase;
use dormouse::store::MemoryStore;
use dormouse::tool::Access;
use dormouse::{Event, FnTool, Kernel, KernelBuilder, Process};
use dormouse_tests::{
    FnModel, Gate, Requests, asks, check_histories, events_until, program, results, says, turn,
    within,
};
use futures_util::StreamExt;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::sync::Barrier;

#[derive(Deserialize, JsonSchema)]
struct Text {
    text: String,
}

#[derive(Deserialize, JsonSchema)]
struct Lines {
    lines: usize,
}

/// A kernel with a scripted model `m` and the tools `echo` (gives its text back) and `lines` (that
/// many lines).
fn scripted(script: &str, requests: &Requests) -> KernelBuilder {
    let echo = FnTool::new(
        "echo",
        "Gives its text back.",
        |Text { text }: Text| async move { Ok::<_, String>(text) },
    );
    let lines = FnTool::new(
        "lines",
        "Gives lines.",
        |Lines { lines }: Lines| async move {
            Ok::<_, String>(
                (1..=lines)
                    .map(|number| format!("line {number} of it\n"))
                    .collect::<String>(),
            )
        },
    );
    let model = requests.record(Scripted::parse(script, "script").unwrap());
    Kernel::builder()
        .model("m", model)
        .tool(echo.access(Access::Read))
        .tool(lines)
}

async fn run(builder: KernelBuilder, rest: &str, input: &str) -> (Kernel, Process, String) {
    let kernel = builder.build().await.unwrap();
    let process = kernel
        .start(program(&kernel, rest))
        .input(input)
        .await
        .unwrap();
    let exit = within(process.wait()).await.unwrap();
    assert_eq!(exit.status, ExitStatus::Done, "{exit:?}");
    (kernel, process, exit.message.to_string())
}

#[tokio::test]
async fn a_tool_loop_goes_on_until_the_model_says_its_last_word() {
    let script = r#"
        [[turn]]
        when.round = 0
        text = "I ask."
        calls = [{ tool = "echo", args = { text = "one" } }]
        [[turn]]
        when.round = 1
        calls = [{ tool = "echo", args = { text = "{{ last }} two" } }]
        [[turn]]
        text = "{{ last }} three"
    "#;
    for store in [None, Some(MemoryStore::default())] {
        let requests = Requests::default();
        let mut builder = scripted(script, &requests);
        if let Some(store) = store {
            builder = builder.store(store);
        }
        let (_, process, said) = run(builder, "[tools]\nenabled = [\"echo\"]\n", "go").await;
        assert_eq!(said, "one two three");
        check_histories(&requests);
        let asked = requests.all();
        assert_eq!(asked.len(), 3);
        for pair in asked.windows(2) {
            assert_eq!(
                pair[0].messages[..],
                pair[1].messages[..pair[0].messages.len()],
                "HIST-1"
            );
            assert_eq!(
                (&pair[0].system, &pair[0].tools),
                (&pair[1].system, &pair[1].tools),
                "HIST-1"
            );
        }
        let view = process.view().unwrap();
        assert_eq!(
            (view.messages, view.descriptors, view.status().word()),
            (6, 0, "done")
        );
        assert_eq!(
            (
                view.output_totals.produced_chars,
                view.output_totals.entered_chars
            ),
            (10, 10)
        );
        assert!(view.usage.output_tokens > 0);
    }
}

#[tokio::test]
async fn tools_of_one_reply_run_in_parallel_and_are_answered_in_order() {
    let barrier = Arc::new(Barrier::new(3));
    let meet = FnTool::new(
        "meet",
        "Waits for two others.",
        move |Text { text }: Text| {
            let barrier = barrier.clone();
            async move {
                barrier.wait().await;
                Ok::<_, String>(text)
            }
        },
    );
    let model = FnModel(|request: Request| async move {
        Ok(match results(&request, 0).as_slice() {
            [] => asks(&[
                ("meet", r#"{"text": "a"}"#),
                ("meet", r#"{"text": "b"}"#),
                ("meet", r#"{"text": "c"}"#),
            ]),
            answers => says(
                &answers
                    .iter()
                    .map(|(text, _)| text.as_str())
                    .collect::<String>(),
            ),
        })
    });
    let builder = Kernel::builder().model("m", model).tool(meet);
    let (_, _, said) = run(builder, "[tools]\nenabled = [\"meet\"]\n", "go").await;
    assert_eq!(said, "abc");
}

const PAGED: &str = "[tools]\nenabled = [\"read_fd\", \"search_fd\", \
\"lines\"]\n[file_descriptor]\nmax_direct_output_chars = 100\ndefault_page_size = \
64\nmax_input_chars = 100\n";

#[tokio::test]
async fn a_large_output_becomes_a_descriptor_that_is_read_and_searched() {
    let script = r#"
        [[turn]]
        when.round = 0
        calls = [{ tool = "lines", args = { lines = 500 } }]
        [[turn]]
        when.round = 1
        calls = [
            { tool = "read_fd", args = { fd = "fd:1", page = 2 } },
            { tool = "search_fd", args = { fd = "fd:1", query = "line 321 of" } },
        ]
        [[turn]]
        text = "done"
    "#;
    let requests = Requests::default();
    let (_, process, _) = run(scripted(script, &requests), PAGED, "go").await;
    check_histories(&requests);
    let asked = requests.all();
    let preview = &results(&asked[1], 0)[0].0;
    assert!(
        preview.starts_with("<fd_result fd=\"fd:1\" source=\"tool:lines\""),
        "{preview}"
    );
    assert!(
        preview.contains("line 1 of it") && !preview.contains("line 9 of it"),
        "{preview}"
    );
    let answers = results(&asked[2], 0);
    assert!(
        answers[0].0.contains("page=\"2\"") && answers[0].0.contains("line 5 of it"),
        "{}",
        answers[0].0
    );
    assert!(
        answers[1].0.contains("line 321 of it") && !answers[1].1,
        "{}",
        answers[1].0
    );
    let view = process.view().unwrap();
    assert_eq!(view.descriptors, 1);
    assert!(
        view.output_totals.produced_chars > 7_000 && view.output_totals.entered_chars < 2_500,
        "{:?}",
        view.output_totals
    );
    assert!(
        asked[0].system.contains("read_fd"),
        "instructions stand in the system prompt: {}",
        asked[0].system
    );
}

#[tokio::test]
async fn a_large_input_becomes_a_descriptor_before_it_is_sent() {
    let requests = Requests::default();
    let script = "[[turn]]\nwhen.round = 0\ncalls = [{ tool = \"read_fd\", args = { fd = \"fd:1\", \
         read_all = true } }]\n[[turn]]\ntext = 'done'\n";
    let input = "a < b & c\n".repeat(50);
    run(scripted(script, &requests), PAGED, &input).await;
    let asked = requests.all();
    let said = asked[0].messages[0].text();
    assert!(
        said.starts_with("<fd_result fd=\"fd:1\" source=\"user_input\"") && said.len() < 500,
        "{said}"
    );
    let whole = &results(&asked[1], 0)[0].0;
    let document = roxmltree::Document::parse(whole).unwrap();
    let text: String = document
        .descendants()
        .filter(|n| n.is_text())
        .filter_map(|n| n.text())
        .collect();
    assert_eq!(text, input, "XML-1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn children_of_a_fork_run_in_parallel_and_a_failure_is_the_own_answer_of_one() {
    let barrier = Arc::new(Barrier::new(3));
    let model = FnModel(move |request: Request| {
        let barrier = barrier.clone();
        async move {
            if request.pid == Pid(1) {
                return Ok(match results(&request, 0).as_slice() {
                    [] => asks(&[
                        ("echo", r#"{"text": "beside"}"#),
                        ("fork", r#"{"prompts": ["first <&>", "second", "third"]}"#),
                    ]),
                    answers => says(&format!("{answers:?}")),
                });
            }
            barrier.wait().await;
            let told = results(&request, 0);
            assert!(told[0].1 && told[0].0.contains("Interrupted"), "{told:?}");
            match told[1].0.as_str() {
                text if text.contains("child 1 of 3") && text.contains("first <&>") => {
                    Ok(says("one ]]> <child>"))
                }
                text if text.contains("child 2 of 3") && text.contains("second") => {
                    let kind = dormouse::model::ModelErrorKind::Authentication;
                    Err(dormouse::model::ModelError::new(kind, "no key"))
                }
                _ => Ok(says("three")),
            }
        }
    });
    let requests = Requests::default();
    let gate = Gate::default();
    let inside = gate.clone();
    // The sibling call ends after the fork, so that the parent's turn holds both.
    let echo = FnTool::new("echo", "Waits.", move |Text { text }: Text| {
        let inside = inside.clone();
        async move {
            inside.pass().await;
            Ok::<_, String>(text)
        }
    });
    let kernel = Kernel::builder()
        .model("m", requests.record(model))
        .tool(echo)
        .build()
        .await
        .unwrap();
    let events = kernel.events();
    let rest = "[tools]\nenabled = [\"echo\", \"fork\"]\n[limits]\nfork_release = \"all\"\n";
    let parent = kernel
        .start(program(&kernel, rest))
        .input("go")
        .await
        .unwrap();
    let exits = std::cell::Cell::new(0);
    events_until(events, |event| {
        exits.set(exits.get() + usize::from(matches!(event, Event::Exited { .. })));
        exits.get() == 3
    })
    .await;
    assert!(
        parent.exit().is_none(),
        "the parent waits for its other tool"
    );
    gate.open();
    assert_eq!(
        within(parent.wait()).await.unwrap().status,
        ExitStatus::Done
    );
    check_histories(&requests);
    let last = requests.of(1).pop().unwrap();
    let answers = results(&last, 0);
    assert_eq!(answers[0], ("beside".to_owned(), false));
    assert!(
        !answers[1].1,
        "the failure of one child is not that of the fork: {}",
        answers[1].0
    );
    let document = roxmltree::Document::parse(&answers[1].0).unwrap();
    let children: Vec<_> = document
        .descendants()
        .filter(|node| node.has_tag_name("child"))
        .collect();
    let status: Vec<_> = children
        .iter()
        .map(|child| child.attribute("status").unwrap())
        .collect();
    assert_eq!(status, ["done", "model_failed", "done"], "{}", answers[1].0);
    let text = |at: usize| {
        children[at]
            .descendants()
            .filter(|n| n.is_text())
            .filter_map(|n| n.text())
            .collect::<String>()
    };
    assert_eq!(
        (text(0).as_str(), text(2).as_str()),
        ("one ]]> <child>", "three")
    );
    assert!(text(1).contains("no key"), "{}", text(1));
    // FORK-2: the request of a child starts with that of its parent, and the tools are the same.
    let parent_first = &requests.of(1)[0];
    for pid in 2..=4 {
        let child = &requests.of(pid)[0];
        assert_eq!(
            child.messages[..parent_first.messages.len()],
            parent_first.messages[..],
            "FORK-2"
        );
        assert_eq!(
            (&child.system, &child.tools),
            (&parent_first.system, &parent_first.tools),
            "FORK-2"
        );
    }
    let rows: Vec<_> = kernel
        .processes()
        .await
        .unwrap()
        .into_iter()
        .map(|info| info.row)
        .collect();
    assert_eq!(
        rows.iter().map(|row| row.parent).collect::<Vec<_>>(),
        [None, Some(Pid(1)), Some(Pid(1)), Some(Pid(1))]
    );
    assert!((1..).zip(0..3).all(|(at, child): (usize, u32)| {
        matches!(rows[at].origin, Origin::Forked { index, .. } if index == child)
    }));
}

#[tokio::test]
async fn a_child_may_not_fork_unless_the_program_grants_it_and_then_only_so_deep() {
    let script = r#"
        [[turn]]
        when.round = 0
        calls = [{ tool = "fork", args = { prompts = ["on"] } }]
        [[turn]]
        text = "{{ last }}"
    "#;
    let cases = [
        (
            "\"fork\"",
            "",
            2,
            "needs admin access, and this process has write",
        ),
        (
            "{ name = \"fork\", access = \"write\" }",
            "[limits]\nmax_depth = 2\n",
            3,
            "allows 2",
        ),
    ];
    for (fork, limits, processes, refusal) in cases {
        let requests = Requests::default();
        let rest = format!("[tools]\nenabled = [{fork}]\n{limits}");
        let (kernel, _, said) = run(scripted(script, &requests), &rest, "go").await;
        assert!(said.contains(refusal), "{said}");
        assert_eq!(kernel.processes().await.unwrap().len(), processes);
        check_histories(&requests);
    }
}

/// A folder with `main.toml`, which links `helper.toml`, and a kernel that may read it.
fn linked(script: &str, requests: &Requests) -> (KernelBuilder, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let model = "[model]\nname = \"m\"\nprovider = \"scripted\"\n";
    let main = format!(
        "{model}[tools]\nenabled = [\"read_fd\", \"lines\", \
         \"spawn\"]\n[file_descriptor]\nmax_direct_output_chars = 100\ndefault_page_size = \
         64\n[linked_programs]\nhelper = {{ path = \"helper.toml\", description = \"Helps.\" }}\n"
    );
    let helper =
        format!("{model}[prompt]\nsystem = \"You help.\"\n[tools]\nenabled = [\"read_fd\"]\n");
    std::fs::write(folder.path().join("main.toml"), main).unwrap();
    std::fs::write(folder.path().join("helper.toml"), helper).unwrap();
    let host = LocalHost::new(Permissions::none(), folder.path()).unwrap();
    (scripted(script, requests).host(host), folder)
}

#[tokio::test]
async fn a_spawned_process_gets_descriptors_under_their_ids_and_in_its_system_prompt() {
    let script = r#"
        [[turn]]
        when = { program = "main", round = 0 }
        calls = [{ tool = "lines", args = { lines = 30 } }, { tool = "lines", args = { lines = 40 } }]
        [[turn]]
        when = { program = "main", round = 1 }
        calls = [
            { tool = "spawn", args = { program_name = "helper", query = "count", additional_preload_fds = ["fd:2", "fd:9"] } },
            { tool = "spawn", args = { program_name = "nobody", query = "count" } },
        ]
        [[turn]]
        when = { program = "main", round = 2 }
        calls = [{ tool = "spawn", args = { program_name = "helper", query = "count", additional_preload_fds = ["fd:2"] } }]
        [[turn]]
        when = { program = "helper", round = 0 }
        calls = [{ tool = "read_fd", args = { fd = "fd:1" } }, { tool = "read_fd", args = { fd = "fd:2", read_all = true } }]
        [[turn]]
        text = "{{ last }}"
    "#;
    let requests = Requests::default();
    let (builder, folder) = linked(script, &requests);
    let kernel = builder.build().await.unwrap();
    let main = kernel
        .load(folder.path().join("main.toml"))
        .unwrap()
        .program;
    let process = kernel.start(main).input("go").await.unwrap();
    assert_eq!(
        within(process.wait()).await.unwrap().status,
        ExitStatus::Done
    );
    check_histories(&requests);
    let refusals = results(&requests.of(1)[2], 0);
    assert!(
        refusals[0].1 && refusals[0].0.contains("'fd:9'") && refusals[0].0.contains("fd:1, fd:2"),
        "{refusals:?}"
    );
    assert!(
        refusals[1].1 && refusals[1].0.contains("'nobody'") && refusals[1].0.contains("helper"),
        "{refusals:?}"
    );
    let child = requests.of(2);
    assert!(
        child[0].system.starts_with("You help."),
        "{}",
        child[0].system
    );
    assert!(
        child[0].system.contains("line 40 of it") && child[0].system.contains("fd:2"),
        "{}",
        child[0].system
    );
    assert_eq!(child[0].messages[0].text(), "count");
    let reads = results(&child[1], 0);
    assert!(
        reads[0].1 && reads[0].0.contains("not_found"),
        "it was not handed fd:1 (FD-3): {}",
        reads[0].0
    );
    assert!(
        !reads[1].1 && reads[1].0.contains("line 40 of it"),
        "{}",
        reads[1].0
    );
    let rows = kernel.processes().await.unwrap();
    assert_eq!(
        (rows.len(), &*rows[1].row.program),
        (2, "helper"),
        "a refused spawn makes nothing"
    );
}

#[tokio::test]
async fn a_turn_ends_at_its_iteration_limit_and_a_session_may_go_on() {
    let script = r#"
        [[turn]]
        when.prompt = "^stop"
        text = "stopped"
        [[turn]]
        calls = [{ tool = "echo", args = { text = "again" } }]
    "#;
    let requests = Requests::default();
    let kernel = scripted(script, &requests).build().await.unwrap();
    let rest = "max_iterations = 3\n[tools]\nenabled = [\"echo\"]\n";
    let task = kernel
        .start(program(&kernel, rest))
        .input("go")
        .await
        .unwrap();
    let exit = within(task.wait()).await.unwrap();
    assert_eq!(exit.status, ExitStatus::IterationLimit);
    assert!(
        exit.message.contains("max_iterations") && requests.all().len() == 3,
        "{exit:?}"
    );
    let session = kernel
        .start(program(&kernel, rest))
        .without_input()
        .session()
        .await
        .unwrap();
    assert!(turn(&session, "go").await.contains("limit of 3"));
    assert_eq!(turn(&session, "stop").await, "stopped");
    check_histories(&requests);
}

#[tokio::test]
async fn a_session_hears_one_input_after_the_other_and_its_history_only_grows() {
    let requests = Requests::default();
    let kernel = scripted(
        "[[turn]]\ntext = 'turn {{ turn }}: {{ prompt }}'",
        &requests,
    )
    .build()
    .await
    .unwrap();
    let session = kernel
        .start(program(&kernel, ""))
        .without_input()
        .session()
        .await
        .unwrap();
    for (number, input) in (0..).zip(["a", "b", "c"]) {
        assert_eq!(
            turn(&session, input).await,
            format!("turn {number}: {input}")
        );
    }
    for pair in requests.all().windows(2) {
        assert_eq!(
            pair[0].messages[..],
            pair[1].messages[..pair[0].messages.len()],
            "HIST-1"
        );
    }
    assert!(session.exit().is_none());
}

#[tokio::test]
async fn an_input_during_a_turn_is_heard_at_its_end() {
    for is_session in [false, true] {
        let (gate, requests) = (Gate::default(), Requests::default());
        let inside = gate.clone();
        let model = FnModel(move |request: Request| {
            let inside = inside.clone();
            async move {
                inside.pass().await;
                let last = request.messages.last().unwrap();
                let heard: Vec<_> = last
                    .blocks
                    .iter()
                    .map(|block| format!("{block:?}"))
                    .collect();
                Ok(says(&format!("heard {}: {}", heard.len(), last.text())))
            }
        });
        let kernel = Kernel::builder()
            .model("m", requests.record(model))
            .build()
            .await
            .unwrap();
        let start = kernel.start(program(&kernel, "")).input("first");
        let process = if is_session { start.session() } else { start }
            .await
            .unwrap();
        gate.entered().await;
        within(process.input("second,")).await.unwrap();
        within(process.input("third")).await.unwrap();
        assert_eq!(requests.all().len(), 1, "the turn goes on as it began");
        gate.open();
        let last = events_until(process.events(), |event| match event {
            Event::TurnEnded { outcome, .. } => &*outcome.message != "heard 1: first",
            Event::Exited { .. } => true,
            _ => false,
        });
        let events = last.await;
        let Some(Event::TurnEnded { outcome: end, .. } | Event::Exited { exit: end, .. }) =
            events.last()
        else {
            panic!("{events:#?}")
        };
        assert_eq!(&*end.message, "heard 2: second,third");
        check_histories(&requests);
    }
}

#[tokio::test]
async fn events_end_with_the_kernel_whatever_handles_are_held() {
    let script = "[[turn]]\ntext = 'done'\n";
    let kernel = scripted(script, &Requests::default())
        .build()
        .await
        .unwrap();
    let (all, held) = (kernel.events(), kernel.clone());
    let process = kernel
        .start(program(&kernel, ""))
        .input("go")
        .await
        .unwrap();
    process.wait().await.unwrap();
    let own = process.events();
    kernel.shutdown().await.unwrap();
    for mut events in [all, own, held.events(), process.events()] {
        within(async { while events.next().await.is_some() {} }).await;
    }
}

#[tokio::test]
async fn events_tell_everything_in_order() {
    let script = r#"
        [[turn]]
        when.round = 0
        text = "I look at it."
        calls = [{ tool = "echo", args = { text = "x" } }]
        [[turn]]
        text = "It is seen."
    "#;
    let kernel = scripted(script, &Requests::default())
        .build()
        .await
        .unwrap();
    let all = kernel.events();
    let process = kernel
        .start(program(&kernel, "[tools]\nenabled = [\"echo\"]\n"))
        .input("go")
        .await
        .unwrap();
    let is_last = |event: &Event| matches!(event, Event::Exited { .. });
    let events = events_until(process.events(), is_last).await;
    assert_eq!(
        events_until(all, is_last).await.len(),
        events.len(),
        "nothing is lost for who came later"
    );
    let word = |event: &Event| match event {
        Event::Started { .. } => "started".to_owned(),
        Event::Text { .. } => "text".to_owned(),
        Event::ToolCalled { tool, args, .. } => format!("call {tool} {args}"),
        Event::Fact { number, fact, .. } => format!("{number} {}", fact.name()),
        Event::Exited { exit, .. } => format!("exited {}", exit.message),
        other => panic!("{other:?}"),
    };
    let mut words: Vec<_> = events.iter().map(word).collect();
    words.dedup();
    let expected = [
        "started",
        "1 turn_began",
        "2 model_called",
        "text",
        "3 model_replied",
        "4 tool_called",
        "call echo {\"text\":\"x\"}",
        "5 tool_returned",
        "6 model_called",
        "text",
        "7 model_replied",
        "8 exited",
        "exited It is seen.",
    ];
    assert_eq!(words, expected);
    let text = |event: &Event| match event {
        Event::Text { text, .. } => text.clone(),
        _ => String::new(),
    };
    assert_eq!(
        events.iter().map(text).collect::<String>(),
        "I look at it.It is seen."
    );
}

#[tokio::test]
async fn the_process_table_shows_who_stands_where() {
    let (gate, tool_gate) = (Gate::default(), Gate::default());
    let (inside, inside_tool) = (gate.clone(), tool_gate.clone());
    let model = FnModel(move |request: Request| {
        let inside = inside.clone();
        async move {
            match request.messages[0].text().as_str() {
                "think" => {
                    inside.pass().await;
                    Ok(says("thought"))
                }
                "act" if request.messages.len() == 1 => Ok(asks(&[("tool", "{}")])),
                _ => Ok(says("acted")),
            }
        }
    });
    let tool = FnTool::new("tool", "Waits.", move |()| {
        let inside = inside_tool.clone();
        async move {
            inside.pass().await;
            Ok::<_, String>("")
        }
    });
    let kernel = Kernel::builder()
        .model("m", model)
        .tool(tool)
        .build()
        .await
        .unwrap();
    let rest = "[tools]\nenabled = [\"tool\"]\n";
    let start = |input: &str| kernel.start(program(&kernel, rest)).input(input);
    start("think").await.unwrap();
    start("act").await.unwrap();
    kernel
        .start(program(&kernel, rest))
        .without_input()
        .session()
        .await
        .unwrap();
    let done = start("end").await.unwrap();
    gate.entered().await;
    tool_gate.entered().await;
    within(done.wait()).await.unwrap();
    let listed = kernel.processes().await.unwrap();
    let table: Vec<_> = listed
        .iter()
        .map(|info| (info.row.pid.0, info.status.word()))
        .collect();
    assert_eq!(
        table,
        [(1, "thinking"), (2, "acting"), (3, "idle"), (4, "done")]
    );
    assert_eq!(listed[1].view.as_ref().unwrap().messages, 2);
    assert_eq!(
        listed[3].row.exit.as_ref().unwrap().status,
        ExitStatus::Done
    );
    assert!(
        listed.iter().all(|info| *info.row.program == *"program"),
        "{listed:?}"
    );
}

#[tokio::test]
async fn a_view_shows_descriptors_calls_and_children_without_disturbing_the_process() {
    let gate = Gate::default();
    let held = gate.clone();
    let model = FnModel(move |request: Request| {
        let gate = held.clone();
        async move {
            if request.pid.0 > 1 {
                gate.pass().await;
                return Ok(says("done"));
            }
            Ok(match request.messages.len() {
                1 => asks(&[("rename_fd", r#"{"fd": "fd:1", "name": "log"}"#)]),
                3 => asks(&[("fork", r#"{"prompts": ["a", "b"]}"#)]),
                _ => says("all"),
            })
        }
    });
    let kernel = Kernel::open(MemoryStore::new())
        .model("m", model)
        .build()
        .await
        .unwrap();
    let rest = "[tools]\nenabled = [\"rename_fd\", \"fork\"]\n[limits]\nfork_release = \"all\"\n";
    let process = kernel
        .start(program(&kernel, rest))
        .without_input()
        .await
        .unwrap();
    process.open("build.log", "one\ntwö\n", None).await.unwrap();
    process.input("go").await.unwrap();
    gate.entered().await;
    gate.entered().await;
    let view = process.view().unwrap();
    let Phase::Acting { pending_calls, .. } = &view.phase else {
        panic!("{:?}", view.phase)
    };
    assert_eq!(
        (&*pending_calls[0].tool, view.children, view.descriptors),
        ("fork", 2, 1)
    );
    let [log] = &view.list_descriptors()[..] else {
        panic!("one descriptor")
    };
    assert_eq!(
        (log.id.to_string(), log.name.as_deref(), &*log.source),
        ("fd:1".to_owned(), Some("log"), "build.log")
    );
    assert_eq!((log.bytes, log.chars, log.lines), (9, Some(8), Some(2)));
    let children = process.children().await.unwrap();
    let seen: Vec<_> = children
        .iter()
        .map(|child| (child.row.pid, child.row.parent, child.status.word()))
        .collect();
    assert_eq!(
        seen,
        [
            (Pid(2), Some(Pid(1)), "thinking"),
            (Pid(3), Some(Pid(1)), "thinking")
        ]
    );
    gate.open();
    within(process.wait()).await.unwrap();
    let view = process.view().unwrap();
    assert_eq!(
        (view.children, view.descriptors, view.list_descriptors()),
        (0, 1, Vec::new()),
        "contents are let go"
    );
    let read = kernel.inspect(Pid(1)).await.unwrap();
    assert!(
        read.list_descriptors().len() == 1 && read.content(&log.id).is_some(),
        "its journal has them"
    );
    assert_eq!(
        process.children().await.unwrap().len(),
        2,
        "those that have ended are known"
    );
}
