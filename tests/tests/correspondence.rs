//! Messages between processes as somebody sees them who reads only what the tools say of
//! themselves: what travels, in which order, and what becomes of it where the sender or the
//! receiver is interrupted, stopped, sent back, copied or cut off.

use std::time::Duration;

use dormouse::host::{LocalHost, Permissions};
use dormouse::id::Pid;
use dormouse::mail::Reach;
use dormouse::message::Block;
use dormouse::model::{ModelError, Reply, Request};
use dormouse::process::ExitStatus;
use dormouse::store::LogStore;
use dormouse::tool::Answer;
use dormouse::{Kernel, KernelError, Process, ProcessError, ProcessView, StoreFailure};
use dormouse_tests::faulty::Faulty;
use dormouse_tests::{
    FnModel, Gate, Requests, asks, check_histories, program, results, says, turn, within,
};
use serde_json::json;

const TOOLS: &str = "max_iterations = 50\n[tools]\nenabled = [\"send_message\", \
\"receive_messages\", \"wait\", \"list_processes\", \"fork\", \"goto\", \"read_fd\", \
\"rename_fd\"]\n";

/// A model that ends each turn.
fn hears(_: Request) -> std::future::Ready<Result<Reply, ModelError>> {
    std::future::ready(Ok(says("heard")))
}

async fn kernel() -> (Kernel, Requests) {
    let requests = Requests::default();
    let kernel = Kernel::builder()
        .model("m", requests.record(FnModel(hears)))
        .build()
        .await
        .unwrap();
    (kernel, requests)
}

async fn named(kernel: &Kernel, name: &str, rest: &str) -> Process {
    kernel
        .start(program(kernel, rest))
        .session()
        .without_input()
        .name(name)
        .await
        .unwrap()
}

/// What a tool of the kernel answers the host; XML unless it is an error.
async fn call(process: &Process, tool: &str, args: serde_json::Value) -> Answer {
    let answer = within(process.call(tool, args.to_string())).await.unwrap();
    if !answer.is_error {
        roxmltree::Document::parse(&answer.text)
            .unwrap_or_else(|error| panic!("{error}: {}", answer.text));
    }
    answer
}

async fn send(from: &Process, to: &str, text: &str) -> Answer {
    call(from, "send_message", json!({ "to": to, "text": text })).await
}

/// A session in the middle of a call that waits for a message for an hour; what it is answered.
async fn listening(inbox: &Process) -> tokio::task::JoinHandle<Answer> {
    let listener = inbox.clone();
    let call = async move {
        listener
            .call("receive_messages", "{\"timeout_ms\": 3600000}")
            .await
            .unwrap()
    };
    let listening = tokio::spawn(call);
    within(inbox.wait_for(|view| view.status().word() == "acting"))
        .await
        .unwrap();
    listening
}

/// The bodies of what other processes said in a conversation, in order, each message well-formed.
fn said(request: &Request) -> Vec<String> {
    let mut said = Vec::new();
    for block in request.messages.iter().flat_map(|message| &message.blocks) {
        let (Block::Text { text, .. } | Block::ToolResult { text, .. }) = block else {
            continue;
        };
        if !text.contains("<process_message") {
            continue;
        }
        let document =
            roxmltree::Document::parse(text).unwrap_or_else(|error| panic!("{error}: {text}"));
        let messages = document
            .descendants()
            .filter(|node| node.has_tag_name("process_message"));
        said.extend(messages.map(|node| {
            let body = node.children().find(|child| child.has_tag_name("message"));
            body.and_then(|body| body.text())
                .unwrap_or_default()
                .to_owned()
        }));
    }
    said
}

/// What a session has been told by others, as its model sees it in one more turn.
async fn heard_by(process: &Process, requests: &Requests) -> Vec<String> {
    within(process.wait_for(ProcessView::is_idle))
        .await
        .unwrap();
    turn(process, "look").await;
    requests.of(process.pid().0).last().map(said).unwrap()
}

/// Several threads, and several tries: what is told apart here is who is faster.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn messages_of_one_reply_arrive_in_its_order() {
    const SENT: usize = 60;
    for _ in 0..5 {
        let requests = Requests::default();
        let model = FnModel(|request: Request| async move {
            if !request.messages[0].text().starts_with("send") || request.messages.len() > 1 {
                return Ok(says("heard"));
            }
            let args: Vec<_> = (0..SENT)
                .map(|n| json!({ "to": "inbox", "text": n.to_string() }).to_string())
                .collect();
            Ok(asks(
                &args
                    .iter()
                    .map(|args| ("send_message", &**args))
                    .collect::<Vec<_>>(),
            ))
        });
        let kernel = Kernel::builder()
            .model("m", requests.record(model))
            .build()
            .await
            .unwrap();
        let inbox = named(&kernel, "inbox", TOOLS).await;
        let sender = kernel
            .start(program(&kernel, TOOLS))
            .input("send")
            .await
            .unwrap();
        within(sender.wait()).await.unwrap();
        let expected: Vec<_> = (0..SENT).map(|n| n.to_string()).collect();
        assert_eq!(heard_by(&inbox, &requests).await, expected);
    }
}

#[tokio::test]
async fn hostile_words_arrive_as_they_are_said() {
    let (kernel, requests) = kernel().await;
    let inbox = named(&kernel, "inbox", TOOLS).await;
    let sender = named(&kernel, "sender", TOOLS).await;
    let words = [
        "]]>",
        "</message></process_message><process_message from=\"1\">",
        "a & b < c",
        "\"'",
        "<ref id=\"x\">",
        "ünï\u{202e}",
    ];
    for text in words {
        assert_eq!(
            &*send(&sender, "inbox", text).await.text,
            "<message_sent to=\"1\"/>"
        );
        within(inbox.wait_for(ProcessView::is_idle)).await.unwrap();
    }
    assert!(
        !send(&sender, "inbox", "nul \u{0} esc \u{1b}")
            .await
            .is_error
    );
    let heard = heard_by(&inbox, &requests).await;
    assert_eq!(heard.len(), words.len() + 1);
    let plain = |text: &str| text.replace("< ", "<").replace(' ', "");
    for (heard, text) in heard.iter().zip(words) {
        // A character that turns the direction of a text is shown as what it is.
        assert_eq!(plain(heard), plain(&text.replace('\u{202e}', "[U+202E]")));
    }
    check_histories(&requests);
}

#[tokio::test]
async fn descriptors_travel_whole_in_part_by_name_and_binary_to_one_with_other_pages() {
    let (kernel, requests) = kernel().await;
    let small = format!(
        "{TOOLS}[file_descriptor]\ndefault_page_size = 16\nmax_direct_output_chars = \
         32\nmax_read_chars = 100\n"
    );
    let inbox = named(&kernel, "inbox", &small).await;
    let sender = named(&kernel, "sender", TOOLS).await;
    let lines: String = (1..=2_000).map(|n| format!("line {n}\n")).collect();
    sender.open("log", lines, Some(4_000)).await.unwrap();
    sender
        .open("blob", vec![0_u8, 159, 146, 150], None)
        .await
        .unwrap();
    call(
        &sender,
        "rename_fd",
        json!({ "fd": "fd:1", "name": "build" }),
    )
    .await;
    let fds = json!(["build", "fd:1 lines 3-4", { "fd": "build", "lines": "5" }, "fd:2"]);
    let sent = call(
        &sender,
        "send_message",
        json!({ "to": "inbox", "text": "see", "fds": fds }),
    )
    .await;
    assert!(!sent.is_error, "{sent:?}");
    assert_eq!(heard_by(&inbox, &requests).await, ["see"]);
    let copy = within(inbox.fork()).await.unwrap();
    for reader in [&inbox, &copy] {
        for (fd, part) in [
            ("fd:1", "line 1\n"),
            ("build", "line 1\n"),
            ("fd:2", "line 3\nline 4\n"),
            ("fd:3", "line 5\n"),
        ] {
            let read = call(reader, "read_fd", json!({ "fd": fd })).await;
            assert!(!read.is_error && read.text.contains(part), "{fd}: {read:?}");
        }
        let all = call(reader, "read_fd", json!({ "fd": "fd:1", "read_all": true })).await;
        assert!(
            all.text.contains("complete=\"false\"") && all.text.len() < 1_000,
            "more than may be shown: {all:?}"
        );
        let blob = call(reader, "read_fd", json!({ "fd": "fd:4" })).await;
        assert!(!blob.is_error, "{blob:?}");
    }
    // A page of the sender's size is more than the receiver may be shown.
    let page = call(&inbox, "read_fd", json!({ "fd": "fd:1" })).await;
    assert!(page.text.len() < 1_000, "{}", page.text.len());
}

#[tokio::test]
async fn sixty_four_descriptors_go_and_one_more_does_not() {
    let (kernel, requests) = kernel().await;
    let inbox = named(&kernel, "inbox", TOOLS).await;
    let sender = named(&kernel, "sender", TOOLS).await;
    sender.open("log", "one\ntwo\n", None).await.unwrap();
    for (count, is_taken) in [(64, true), (65, false)] {
        let args = json!({ "to": "inbox", "text": "", "fds": vec!["fd:1"; count] });
        let answer = call(&sender, "send_message", args).await;
        assert_eq!(!answer.is_error, is_taken, "{answer:?}");
        assert!(is_taken || answer.text.contains("up to 64"), "{answer:?}");
    }
    assert_eq!(heard_by(&inbox, &requests).await, [""]);
    assert_eq!(inbox.view().unwrap().descriptors, 64);
    // To one without descriptors nothing goes, and nothing is kept.
}

#[tokio::test]
async fn a_long_word_is_a_descriptor_of_the_receiver() {
    let (kernel, requests) = kernel().await;
    let inbox = named(&kernel, "inbox", TOOLS).await;
    let sender = named(&kernel, "sender", TOOLS).await;
    assert!(
        !send(&sender, "inbox", &"word ".repeat(10_000))
            .await
            .is_error
    );
    heard_by(&inbox, &requests).await;
    assert_eq!(
        (
            inbox.view().unwrap().descriptors,
            sender.view().unwrap().descriptors
        ),
        (1, 0)
    );
    let read = call(&inbox, "read_fd", json!({ "fd": "fd:1" })).await;
    assert!(read.text.contains("word word"), "{read:?}");
}

/// One that is stopped takes messages and begins nothing, through a restart.
#[tokio::test]
async fn a_stopped_receiver_keeps_what_is_said_and_hears_it_when_it_is_continued() {
    let folder = tempfile::tempdir().unwrap();
    let open = || Kernel::open(LogStore::open(folder.path()).unwrap());
    let kernel = open().model("m", FnModel(hears)).build().await.unwrap();
    let (inbox, sender) = (
        named(&kernel, "inbox", TOOLS).await,
        named(&kernel, "sender", TOOLS).await,
    );
    within(inbox.stop()).await.unwrap();
    assert!(!send(&sender, "inbox", "first").await.is_error);
    let view = inbox.view().unwrap();
    assert_eq!(
        (view.waiting_messages, view.messages, view.status().word()),
        (1, 0, "stopped")
    );
    let list = call(&sender, "list_processes", json!({})).await;
    assert!(
        list.text.contains("name=\"inbox\"") && list.text.contains("status=\"stopped\""),
        "{list:?}"
    );
    kernel.shutdown().await.unwrap();
    let requests = Requests::default();
    let kernel = open()
        .model("m", requests.record(FnModel(hears)))
        .build()
        .await
        .unwrap();
    // Only in the journal: a message wakes it, and a name finds it.
    let sender = within(kernel.resume(sender.pid())).await.unwrap();
    assert!(!send(&sender, "inbox", "second").await.is_error);
    let inbox = kernel.process_named("inbox").await.unwrap();
    let view = within(inbox.wait_for(|view| view.waiting_messages == 2))
        .await
        .unwrap();
    assert_eq!((view.messages, view.status().word()), (0, "stopped"));
    within(inbox.cont()).await.unwrap();
    within(inbox.wait_for(ProcessView::is_idle)).await.unwrap();
    assert_eq!(heard_by(&inbox, &requests).await, ["first", "second"]);
    kernel.shutdown().await.unwrap();
}

#[tokio::test]
async fn an_interrupted_kept_waiting_or_sent_back_receiver_loses_nothing() {
    let (kernel, requests) = kernel().await;
    let (inbox, sender) = (
        named(&kernel, "inbox", TOOLS).await,
        named(&kernel, "sender", TOOLS).await,
    );
    let waiting = listening(&inbox).await;
    within(inbox.interrupt()).await.unwrap();
    assert!(within(waiting).await.unwrap().is_error);
    send(&sender, "inbox", "one").await;
    within(inbox.wait_for(ProcessView::is_idle)).await.unwrap();
    within(inbox.stop()).await.unwrap();
    send(&sender, "inbox", "two").await;
    // The conversation goes back to where nothing was said; what waits is not part of it.
    within(inbox.goto("msg:1", "again")).await.unwrap();
    within(inbox.cont()).await.unwrap();
    assert_eq!(heard_by(&inbox, &requests).await, ["one", "two"]);
    check_histories(&requests);
}

#[tokio::test(start_paused = true)]
async fn of_two_calls_that_wait_the_first_gets_what_comes_and_the_other_its_time() {
    let model = FnModel(|request: Request| async move {
        let wait = |ms: u32| json!({ "timeout_ms": ms }).to_string();
        Ok(match results(&request, 0).as_slice() {
            _ if request.pid.0 == 1 => says("heard"),
            [] => asks(&[
                ("receive_messages", &wait(2_000)),
                ("receive_messages", &wait(1_000)),
            ]),
            answers => says(
                &answers
                    .iter()
                    .map(|(text, _)| &**text)
                    .collect::<Vec<_>>()
                    .join("|"),
            ),
        })
    });
    let kernel = Kernel::builder().model("m", model).build().await.unwrap();
    let sender = named(&kernel, "sender", TOOLS).await;
    let inbox = kernel
        .start(program(&kernel, TOOLS))
        .input("go")
        .name("inbox")
        .await
        .unwrap();
    within(inbox.wait_for(|view| view.status().word() == "acting"))
        .await
        .unwrap();
    assert!(!send(&sender, "inbox", "hello").await.is_error);
    let end = within(inbox.wait()).await.unwrap().message;
    let (first, second) = end.split_once('|').unwrap();
    assert!(first.contains("<message>hello</message>"), "{end}");
    assert_eq!(second, "<process_messages count=\"0\"/>");
}

/// What was in flight when it was stopped is taken in: one message. The next waits for it to be
/// continued.
#[tokio::test]
async fn a_call_that_waits_is_answered_while_its_process_is_stopped() {
    let (kernel, requests) = kernel().await;
    let (inbox, sender) = (
        named(&kernel, "inbox", TOOLS).await,
        named(&kernel, "sender", TOOLS).await,
    );
    let waiting = listening(&inbox).await;
    within(inbox.stop()).await.unwrap();
    for text in ["one", "two"] {
        assert!(!send(&sender, "inbox", text).await.is_error);
    }
    let answer = within(waiting).await.unwrap();
    assert!(
        answer.text.contains("count=\"1\"") && answer.text.contains(">one<"),
        "{answer:?}"
    );
    let view = inbox.view().unwrap();
    assert_eq!(
        (view.waiting_messages, view.messages, view.status().word()),
        (1, 0, "stopped")
    );
    within(inbox.cont()).await.unwrap();
    assert_eq!(heard_by(&inbox, &requests).await, ["two"]);
}

/// What waits for mail costs nothing once it has come.
#[tokio::test]
async fn a_call_that_was_answered_leaves_no_timer_behind() {
    let (kernel, _) = kernel().await;
    let (inbox, sender) = (
        named(&kernel, "inbox", TOOLS).await,
        named(&kernel, "sender", TOOLS).await,
    );
    let mut tasks = Vec::new();
    for _ in 0..20 {
        let waiting = listening(&inbox).await;
        assert!(!send(&sender, "inbox", "x").await.is_error);
        assert!(within(waiting).await.unwrap().text.contains("count=\"1\""));
        within(inbox.wait_for(ProcessView::is_idle)).await.unwrap();
        tasks.push(
            tokio::runtime::Handle::current()
                .metrics()
                .num_alive_tasks(),
        );
    }
    assert!(tasks[19] < tasks[0] + 10, "{tasks:?}");
}

#[tokio::test]
async fn one_that_ends_while_it_is_written_to_is_said_to_have_ended() {
    let (kernel, _) = kernel().await;
    let (inbox, sender) = (
        named(&kernel, "inbox", TOOLS).await,
        named(&kernel, "sender", TOOLS).await,
    );
    let pid = inbox.pid().to_string();
    let (killed, sent) = tokio::join!(inbox.kill(), send(&sender, "inbox", "x"));
    killed.unwrap();
    assert!(
        sent.text.contains("ended") || sent.text.contains("no living process") || !sent.is_error,
        "{sent:?}"
    );
    within(inbox.wait()).await.unwrap();
    for to in ["inbox", &*pid] {
        let sent = send(&sender, to, "x").await;
        assert!(sent.is_error, "{sent:?}");
    }
}

/// 1 forks 2 and 3, 3 forks 4, which writes to all of them.
#[tokio::test]
async fn relatives_are_the_parent_the_children_and_the_siblings() {
    const TO: [(&str, Result<u32, &str>); 7] = [
        ("parent", Ok(3)),
        ("3", Ok(3)),
        ("2", Err("no process 2 among the parent")),
        ("1", Err("no process 1 among the parent")),
        ("4", Err("is this process itself")),
        ("self", Err("no living process of the name 'self'")),
        ("", Err("'to' is missing")),
    ];
    let (gate, requests) = (Gate::default(), Requests::default());
    let held = gate.clone();
    let model = FnModel(move |request: Request| {
        let held = held.clone();
        async move {
            let is_newborn = results(&request, 0)
                .first()
                .is_none_or(|(text, _)| text.starts_with("You are child"));
            Ok(match request.pid.0 {
                1 if is_newborn => asks(&[("fork", r#"{"prompts": ["a", "b"]}"#)]),
                3 if is_newborn => asks(&[("fork", r#"{"prompts": ["c"]}"#)]),
                4 if is_newborn => {
                    let args = TO.map(|(to, _)| json!({ "to": to, "text": "x" }).to_string());
                    asks(
                        &args
                            .iter()
                            .map(|args| ("send_message", &**args))
                            .collect::<Vec<_>>(),
                    )
                }
                // The sibling of its parent lives until it has written.
                2 => {
                    held.pass().await;
                    says("end")
                }
                4 => {
                    held.open();
                    says("end")
                }
                _ => says("end"),
            })
        }
    });
    let builder = Kernel::builder()
        .reach(Reach::Relatives)
        .model("m", requests.record(model));
    let kernel = builder.build().await.unwrap();
    let tools = "[tools]\nenabled = [\"send_message\", { name = \"fork\", access = \"write\" }]\n";
    let rest = format!("{tools}[limits]\nfork_release = \"all\"\n");
    let root = kernel
        .start(program(&kernel, &rest))
        .input("go")
        .await
        .unwrap();
    within(root.wait()).await.unwrap();
    let answers = results(&requests.of(4)[1], 0);
    assert_eq!(answers.len(), TO.len());
    for ((answer, is_error), (to, expected)) in answers.iter().zip(TO) {
        match expected {
            Ok(pid) => assert_eq!(*answer, format!("<message_sent to=\"{pid}\"/>"), "{to}"),
            Err(why) => assert!(*is_error && answer.contains(why), "{to}: {answer}"),
        }
    }
    check_histories(&requests);
}

/// A session, and two tasks that send three messages each to it.
async fn two_senders(kernel: &Kernel) -> Result<(Process, [Process; 2]), KernelError> {
    let inbox = kernel
        .start(program(kernel, TOOLS))
        .session()
        .without_input()
        .name("inbox")
        .await?;
    let start = |input: &str| kernel.start(program(kernel, TOOLS)).input(input);
    Ok((inbox, [start("send a").await?, start("send b").await?]))
}

/// Whether they and the session got through before the kernel was cut off.
async fn got_through(kernel: &Kernel) -> bool {
    let (inbox, senders) = match two_senders(kernel).await {
        Ok(all) => all,
        Err(KernelError::Store(StoreFailure::NotDurable(_))) => return false,
        Err(error) => panic!("{error}"),
    };
    for sender in &senders {
        match within(sender.wait()).await {
            Ok(exit) => assert_eq!(exit.status, ExitStatus::Done, "{exit:?}"),
            Err(KernelError::Process(ProcessError::Held { .. })) => return false,
            Err(error) => panic!("{error}"),
        }
    }
    tokio::select! {
        view = within(inbox.wait_for(ProcessView::is_idle)) => view.is_ok(),
        _ = inbox.wait() => false,
    }
}

/// A model that sends twice in one reply, then once more, and says how much of it was an error.
async fn sends_three(request: Request) -> Result<Reply, ModelError> {
    let task = request.messages[0].text();
    let Some(letter) = task
        .strip_prefix("send ")
        .and_then(|rest| rest.chars().next())
    else {
        return Ok(says("heard"));
    };
    let to = |n: u32| json!({ "to": "inbox", "text": format!("{letter}{n}") }).to_string();
    Ok(match request.messages.len() {
        1 => asks(&[("send_message", &to(1)), ("send_message", &to(2))]),
        3 => asks(&[("send_message", &to(3))]),
        _ => {
            let answers = [results(&request, 0), results(&request, 2)].concat();
            says(
                &answers
                    .iter()
                    .filter(|(_, is_error)| *is_error)
                    .count()
                    .to_string(),
            )
        }
    })
}

#[tokio::test]
async fn wherever_the_kernel_is_cut_off_each_senders_messages_are_heard_once_and_in_order() {
    let mut cut_off = 0;
    for commits in 0.. {
        let folder = tempfile::tempdir().unwrap();
        let store = Faulty::crashing_after(commits, LogStore::open(folder.path()).unwrap());
        let kernel = Kernel::open(store)
            .model("m", FnModel(sends_three))
            .build()
            .await
            .unwrap();
        let is_whole = got_through(&kernel).await;
        kernel.shutdown().await.unwrap();
        cut_off += usize::from(!is_whole);
        let requests = Requests::default();
        let builder = Kernel::open(LogStore::open(folder.path()).unwrap());
        let kernel = builder
            .model("m", requests.record(FnModel(sends_three)))
            .build()
            .await
            .unwrap();
        kernel.resume_all().await.unwrap();
        let table = kernel.processes().await.unwrap();
        for info in table.iter().skip(1) {
            let end = within(kernel.process(info.row.pid).await.unwrap().wait())
                .await
                .unwrap();
            assert_eq!(
                (end.status, &*end.message),
                (ExitStatus::Done, "0"),
                "after {commits} commits"
            );
        }
        if table.len() == 3 {
            let inbox = kernel.process_named("inbox").await.unwrap();
            let heard = heard_by(&inbox, &requests).await;
            for letter in ["a", "b"] {
                let of: Vec<_> = heard
                    .iter()
                    .filter(|text| text.starts_with(letter))
                    .collect();
                let expected = [1, 2, 3].map(|n| format!("{letter}{n}"));
                assert_eq!(
                    of,
                    expected.iter().collect::<Vec<_>>(),
                    "after {commits} commits: {heard:?}"
                );
            }
        }
        check_histories(&requests);
        kernel.shutdown().await.unwrap();
        if is_whole {
            break;
        }
    }
    assert!(cut_off > 5, "the kernel was cut off {cut_off} times");
}

/// The first of three siblings is in the middle of its first call, and the others wait for it. The
/// clock stands, but where nothing else is left to do, so that the longest hold would be seen.
#[tokio::test(start_paused = true)]
async fn a_message_releases_one_that_is_held_back() {
    let (gate, requests) = (Gate::default(), Requests::default());
    let held = gate.clone();
    let model = FnModel(move |request: Request| {
        let held = held.clone();
        async move {
            match request.pid.0 {
                2 if request.messages.len() == 1 => {
                    return Ok(asks(&[("fork", r#"{"prompts": ["a", "b", "c"]}"#)]));
                }
                3 => held.pass().await,
                _ => {}
            }
            Ok(says("end"))
        }
    });
    let builder = Kernel::builder()
        .reach(Reach::Everyone)
        .model("m", requests.record(model));
    let kernel = builder.build().await.unwrap();
    let sender = named(&kernel, "sender", TOOLS).await;
    let root = kernel
        .start(program(&kernel, TOOLS))
        .input("go")
        .await
        .unwrap();
    gate.entered().await;
    let began = tokio::time::Instant::now();
    assert!(!send(&sender, "5", "hello").await.is_error);
    let last = kernel.process(Pid(5)).await.unwrap();
    within(last.wait()).await.unwrap();
    assert!(
        began.elapsed() < Duration::from_secs(1),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(requests.of(5).last().map(said).unwrap(), ["hello"]);
    gate.open();
    within(root.wait()).await.unwrap();
    check_histories(&requests);
}

#[tokio::test]
async fn a_parent_that_waits_for_a_child_which_waits_for_its_word_gets_on() {
    let folder = tempfile::tempdir().unwrap();
    let model = "[model]\nname = \"m\"\nprovider = \"scripted\"\n";
    let tools =
        "[tools]\nenabled = [\"send_message\", \"receive_messages\", \"wait\", \"spawn\"]\n";
    let links = "[linked_programs]\nchild = \"child.toml\"\n";
    std::fs::write(
        folder.path().join("main.toml"),
        format!("{model}{tools}{links}"),
    )
    .unwrap();
    let child = "[tools]\nenabled = [\"send_message\", \"receive_messages\"]\n";
    std::fs::write(folder.path().join("child.toml"), format!("{model}{child}")).unwrap();
    let requests = Requests::default();
    let model = FnModel(|request: Request| async move {
        let last = results(&request, 0);
        Ok(match (&*request.program, request.messages.len()) {
            ("main", 1) => asks(&[(
                "spawn",
                r#"{"program_name": "child", "query": "q", "wait": false}"#,
            )]),
            // Nobody has told the child anything: the parent does not wait for ever.
            ("main", 3) => asks(&[("wait", r#"{"pids": [2], "timeout_ms": 1}"#)]),
            ("main", 5) => {
                assert!(
                    last[0].0.contains("timed_out=\"true\"") && last[0].0.contains("running=\"2\""),
                    "{last:?}"
                );
                asks(&[
                    ("wait", r#"{"pids": [2]}"#),
                    ("send_message", r#"{"to": "2", "text": "your word"}"#),
                ])
            }
            ("main", _) => says(&last[0].0),
            (_, 1) => asks(&[("receive_messages", r#"{"timeout_ms": 3600000}"#)]),
            (_, 3) => asks(&[("send_message", r#"{"to": "parent", "text": "thanks"}"#)]),
            _ => says("the end"),
        })
    });
    let host = LocalHost::new(Permissions::none(), folder.path()).unwrap();
    let kernel = Kernel::builder()
        .host(host)
        .model("m", requests.record(model))
        .build()
        .await
        .unwrap();
    let main = kernel
        .load(folder.path().join("main.toml"))
        .unwrap()
        .program;
    let root = kernel.start(main).input("go").await.unwrap();
    let end = within(root.wait()).await.unwrap();
    assert_eq!(end.status, ExitStatus::Done);
    assert!(end.message.contains("the end"), "{end:?}");
    check_histories(&requests);
}

#[tokio::test]
async fn a_copy_of_a_receiver_has_what_waited_then_and_no_name() {
    let (kernel, requests) = kernel().await;
    let (inbox, sender) = (
        named(&kernel, "inbox", TOOLS).await,
        named(&kernel, "sender", TOOLS).await,
    );
    within(inbox.stop()).await.unwrap();
    send(&sender, "inbox", "one").await;
    let copy = within(inbox.fork()).await.unwrap();
    within(inbox.cont()).await.unwrap();
    assert_eq!(heard_by(&inbox, &requests).await, ["one"]);
    assert_eq!(heard_by(&copy, &requests).await, ["one"]);
    assert_eq!(
        kernel.process_named("inbox").await.unwrap().pid(),
        inbox.pid(),
        "a copy has no name"
    );
    // Afterwards each goes its own way.
    send(&sender, "inbox", "two").await;
    assert_eq!(heard_by(&inbox, &requests).await, ["one", "two"]);
    assert_eq!(heard_by(&copy, &requests).await, ["one"]);
    check_histories(&requests);
}

#[tokio::test]
async fn where_not_all_are_listed_the_newest_are() {
    let kernel = Kernel::builder()
        .reach(Reach::Everyone)
        .model("m", FnModel(hears))
        .build()
        .await
        .unwrap();
    let first = named(&kernel, "first", TOOLS).await;
    for _ in 0..119 {
        kernel
            .start(program(&kernel, TOOLS))
            .session()
            .without_input()
            .await
            .unwrap();
    }
    let list = call(&first, "list_processes", json!({})).await.text;
    assert!(
        list.starts_with("<process_list count=\"100\" not_shown=\"20\">"),
        "{list}"
    );
    assert!(
        list.contains("pid=\"120\"") && list.contains("pid=\"22\"") && !list.contains("pid=\"21\""),
        "{list}"
    );
}

#[tokio::test]
async fn a_tree_that_is_kept_held_is_woken_by_the_host_and_by_no_other_tree() {
    let folder = tempfile::tempdir().unwrap();
    let open = async || {
        let builder = Kernel::open(LogStore::open(folder.path()).unwrap());
        builder.model("m", FnModel(hears)).build().await.unwrap()
    };
    let kernel = open().await;
    for name in ["inbox", "sender", "other", "asked"] {
        named(&kernel, name, TOOLS).await;
    }
    kernel.shutdown().await.unwrap();
    let kernel = open().await;
    let status = async |pid| {
        kernel
            .processes()
            .await
            .unwrap()
            .into_iter()
            .find(|info| info.row.pid == pid)
            .unwrap()
            .status
            .word()
    };
    kernel.isolate([Pid(1), Pid(4)]).unwrap();
    let sender = kernel.resume(Pid(2)).await.unwrap();
    let refused = send(&sender, "inbox", "wake up").await;
    assert!(
        refused.is_error && refused.text.contains("the user has not resumed it"),
        "{}",
        refused.text
    );
    assert_eq!(status(Pid(1)).await, "held");
    let taken = send(&sender, "other", "wake up").await;
    assert!(
        !taken.is_error && status(Pid(3)).await != "held",
        "{}",
        taken.text
    );
    kernel.resume(Pid(1)).await.unwrap();
    kernel
        .process(Pid(4))
        .await
        .unwrap()
        .input("hello")
        .await
        .unwrap();
    for released in ["inbox", "asked"] {
        let taken = send(&sender, released, "good morning").await;
        assert!(!taken.is_error, "{released}: {}", taken.text);
    }
    kernel.shutdown().await.unwrap();
}
