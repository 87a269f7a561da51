//! Processes that speak to each other: who may write to whom, what travels, and that each message
//! is heard once, wherever the kernel is cut off.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use dormouse::garbage::EncodedRecord;
use dormouse::id::FactNumber;
use dormouse::mail::Reach;
use dormouse::message::Block;
use dormouse::model::{Reply, Request};
use dormouse::ports::{Batch, Model, Store as _, WriteOp};
use dormouse::process::{ExitStatus, ProcessRow};
use dormouse::store::{LogStore, MemoryStore};
use dormouse::tool::Access;
use dormouse::{
    Kernel, KernelBuilder, KernelError, NameError, NotFound, Process, ProcessView, StoreFailure,
};
use dormouse_tests::faulty::{Fate, Faulty, Operation, disk_full};
use dormouse_tests::{
    FnModel, Gate, Requests, asks, check_histories, program, results, says, turn, within,
};

const TOOLS: &str = "max_iterations = 50\n[tools]\nenabled = [\"send_message\", \
\"receive_messages\", \"wait\", \"list_processes\", \"fork\", \"read_fd\"]\n";

/// What was said in the first message of the conversation.
fn task(request: &Request) -> String {
    request.messages[0].text()
}

/// The texts of a conversation that came from other processes, whether heard as a turn or shown by
/// a tool.
fn told(request: &Request) -> Vec<String> {
    let blocks = request.messages.iter().flat_map(|message| &message.blocks);
    let text = |block: &Block| match block {
        Block::Text { text, .. } | Block::ToolResult { text, .. } => text.to_string(),
        _ => String::new(),
    };
    blocks
        .map(text)
        .filter(|text| text.contains("<process_message "))
        .collect()
}

/// A process that is told a tool and its arguments calls it, and says what it was answered. A child
/// of a fork is told by the answer.
fn obedient(request: Request) -> std::future::Ready<Result<Reply, dormouse::model::ModelError>> {
    let said = request
        .messages
        .last()
        .map(|message| message.text())
        .unwrap_or_default();
    let answer = results(&request, 0)
        .into_iter()
        .next()
        .map(|(answer, _)| answer);
    let prompt = answer
        .as_deref()
        .filter(|answer| answer.starts_with("You are child "));
    let task = prompt
        .or(answer.is_none().then_some(&*said))
        .and_then(|told| told.lines().last()?.split_once(' '));
    let reply = match (task, &answer) {
        (Some((tool, args)), _) if args.starts_with('{') => asks(&[(tool, args)]),
        (_, Some(answer)) => says(answer),
        (_, None) => says("heard"),
    };
    std::future::ready(Ok(reply))
}

async fn session(kernel: &Kernel, name: Option<&str>) -> Process {
    let start = kernel
        .start(program(kernel, TOOLS))
        .session()
        .without_input();
    let start = if let Some(name) = name {
        start.name(name)
    } else {
        start
    };
    start.await.unwrap()
}

#[tokio::test]
async fn siblings_find_each_other_and_hand_over_what_they_found() {
    let requests = Requests::default();
    let model = FnModel(|request: Request| async move {
        let answers: Vec<_> = (0..request.messages.len())
            .rev()
            .flat_map(|at| results(&request, at))
            .collect();
        Ok(match (request.pid.0, answers.len()) {
            (1, 0) => asks(&[("fork", r#"{"prompts": ["find", "use"]}"#)]),
            (2, 1) => asks(&[("list_processes", "{}")]),
            (2, 2) => asks(&[(
                "send_message",
                r#"{"to": 3, "text": "here", "fds": ["fd:1 lines 2-2"]}"#,
            )]),
            (3, 1) => asks(&[("receive_messages", r#"{"timeout_ms": 60000}"#)]),
            (3, 2) => asks(&[("read_fd", r#"{"fd": "fd:2"}"#)]),
            (3, 3) => asks(&[("send_message", r#"{"to": "parent", "text": "thanks"}"#)]),
            _ => says(&answers.last().unwrap().0),
        })
    });
    let builder = Kernel::builder().model("m", requests.record(model));
    let kernel = builder.build().await.unwrap();
    let parent = kernel
        .start(program(&kernel, TOOLS))
        .session()
        .without_input()
        .await
        .unwrap();
    parent.open("log", "one\ntwo\nthree\n", None).await.unwrap();
    let said = turn(&parent, "go").await;
    assert!(
        said.contains("status=\"done\"") && said.contains("message_sent to=\"1\""),
        "{said}"
    );
    let finder = requests.of(2);
    let list = &results(&finder[1], 0)[0].0;
    assert!(
        list.contains("<process pid=\"3\" relation=\"sibling\""),
        "{list}"
    );
    assert!(
        list.contains("<process pid=\"1\" relation=\"parent\""),
        "{list}"
    );
    let user = requests.of(3);
    let received = &results(&user[1], 0)[0].0;
    assert!(
        received.contains("from=\"2\"") && received.contains("source=\"process:2 lines 2-2\""),
        "{received}"
    );
    assert!(
        results(&user[2], 0)[0].0.contains(">two\n<"),
        "{:?}",
        results(&user[2], 0)
    );
    within(parent.wait_for(|view| view.is_idle() && view.waiting_messages == 0))
        .await
        .unwrap();
    let heard = requests.of(1).last().map(told).unwrap();
    assert!(heard[0].contains("<message>thanks</message>"), "{heard:?}");
    check_histories(&requests);
}

/// What a session says after it was told to send.
async fn sends(from: &Process, to: &str) -> String {
    turn(
        from,
        &format!("send_message {{\"to\": \"{to}\", \"text\": \"hello\"}}"),
    )
    .await
}

#[tokio::test]
async fn who_can_be_written_to_is_decided_by_the_tree_and_by_names() {
    for (reach, stranger) in [
        (Reach::Relatives, false),
        (Reach::Tree, false),
        (Reach::Everyone, true),
    ] {
        let kernel = Kernel::builder()
            .reach(reach)
            .model("m", FnModel(obedient))
            .build()
            .await
            .unwrap();
        let one = session(&kernel, None).await;
        let other = session(&kernel, None).await;
        let planner = session(&kernel, Some("planner")).await;
        let said = sends(&one, &other.pid().to_string()).await;
        assert_eq!(said == "<message_sent to=\"2\"/>", stranger, "{said}");
        assert!(stranger || said.contains("There is no process 2"), "{said}");
        assert_eq!(sends(&one, "planner").await, "<message_sent to=\"3\"/>");
        within(planner.wait_for(ProcessView::is_idle))
            .await
            .unwrap();
        assert_eq!(
            sends(&planner, "1").await,
            "<message_sent to=\"1\"/>",
            "who has written can be answered"
        );
        within(one.wait_for(|view| view.is_idle())).await.unwrap();
        assert!(sends(&one, "parent").await.contains("has no parent"));
        assert!(
            sends(&one, "nobody")
                .await
                .contains("no living process of the name 'nobody'")
        );
        assert!(sends(&one, "1").await.contains("is this process itself"));
        let list = turn(&one, "list_processes {}").await;
        assert!(list.contains("name=\"planner\""), "{list}");
        assert_eq!(list.contains("pid=\"2\""), stranger, "{list}");
        planner.kill().await.unwrap();
        within(planner.wait()).await.unwrap();
        assert!(
            sends(&one, "planner")
                .await
                .contains("no living process of the name")
        );
        if stranger {
            assert!(
                sends(&one, "3")
                    .await
                    .contains("Process 3 has ended as killed")
            );
        }
    }
}

/// Whoever wrote to a process may be answered by it. A child of a fork did not hear the message,
/// though it reads it in what it was forked from.
#[tokio::test]
async fn a_forked_child_may_not_answer_who_has_written_to_its_parent() {
    let kernel = Kernel::builder()
        .reach(Reach::Relatives)
        .model("m", FnModel(obedient))
        .build()
        .await
        .unwrap();
    let stranger = session(&kernel, None).await;
    let parent = session(&kernel, Some("parent-to-be")).await;
    let answer = r#"send_message {"to": "1", "text": "well"}"#;
    assert!(
        turn(&parent, answer)
            .await
            .contains("There is no process 1 among"),
        "it has not heard of it yet"
    );
    assert_eq!(
        sends(&stranger, "parent-to-be").await,
        "<message_sent to=\"2\"/>"
    );
    within(parent.wait_for(ProcessView::is_idle)).await.unwrap();
    let fork = serde_json::json!({ "prompts": [answer] });
    let child = turn(&parent, &format!("fork {fork}")).await;
    assert!(
        child.contains("There is no process 1 among the parent, the children and the siblings"),
        "{child}"
    );
    assert_eq!(turn(&parent, answer).await, "<message_sent to=\"1\"/>");
    kernel.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_name_is_one_living_process() {
    let kernel = Kernel::builder()
        .model("m", FnModel(obedient))
        .build()
        .await
        .unwrap();
    let first = session(&kernel, Some("planner")).await;
    let again = kernel
        .start(program(&kernel, TOOLS))
        .session()
        .without_input()
        .name("planner")
        .await;
    assert!(
        matches!(again, Err(KernelError::Name(NameError::Taken { pid, .. })) if pid == first.pid()),
        "{again:?}"
    );
    for name in ["", "7", "parent", "a b"] {
        let invalid = kernel.start(program(&kernel, TOOLS)).name(name).await;
        assert!(
            matches!(invalid, Err(KernelError::Name(NameError::Invalid(_)))),
            "{invalid:?}"
        );
    }
    assert_eq!(
        kernel.process_named("planner").await.unwrap().pid(),
        first.pid()
    );
    first.kill().await.unwrap();
    within(first.wait()).await.unwrap();
    assert!(matches!(
        kernel.process_named("planner").await,
        Err(KernelError::NotFound(NotFound::Name(_)))
    ));
    assert_ne!(session(&kernel, Some("planner")).await.pid(), first.pid());
}

#[tokio::test]
async fn a_reader_may_listen_and_not_speak() {
    let kernel = Kernel::builder()
        .model("m", FnModel(obedient))
        .build()
        .await
        .unwrap();
    session(&kernel, Some("planner")).await;
    let start = kernel
        .start(program(&kernel, TOOLS))
        .session()
        .without_input()
        .access(Access::Read);
    let reader = start.await.unwrap();
    let said = sends(&reader, "planner").await;
    assert!(
        said.contains("'send_message' needs write access, and this process has read"),
        "{said}"
    );
    assert_eq!(
        turn(&reader, "receive_messages {}").await,
        "<process_messages count=\"0\"/>"
    );
}

/// A task that sends one message to `inbox`, and a session that hears it.
async fn correspondence(builder: KernelBuilder) -> Result<(Kernel, Process, Process), KernelError> {
    let kernel = builder.build().await?;
    let inbox = kernel
        .start(program(&kernel, TOOLS))
        .session()
        .without_input()
        .name("inbox")
        .await?;
    let said = "send_message {\"to\": \"inbox\", \"text\": \"hello\"}";
    let sender = kernel.start(program(&kernel, TOOLS)).input(said).await?;
    Ok((kernel, inbox, sender))
}

fn recorded(requests: &Requests) -> impl Model + use<> {
    requests.record(FnModel(obedient))
}

#[tokio::test]
async fn wherever_the_kernel_is_cut_off_a_message_is_heard_once() {
    let mut cut_off = 0;
    for commits in 2.. {
        let folder = tempfile::tempdir().unwrap();
        let store = Faulty::crashing_after(commits, LogStore::open(folder.path()).unwrap());
        let born = correspondence(Kernel::open(store).model("m", FnModel(obedient))).await;
        let is_whole = match born {
            Ok((kernel, inbox, sender)) => {
                let end = within(sender.wait()).await;
                let is_whole = end.is_ok_and(|end| end.status == ExitStatus::Done) && {
                    let view =
                        within(inbox.wait_for(|view| view.messages == 2 || inbox.exit().is_some()));
                    tokio::select! {
                        view = view => view.is_ok_and(|view| view.messages == 2),
                        _ = inbox.wait() => false,
                    }
                };
                kernel.shutdown().await.unwrap();
                is_whole
            }
            Err(KernelError::Store(StoreFailure::NotDurable(_))) => false,
            Err(error) => panic!("{error}"),
        };
        cut_off += usize::from(!is_whole);
        let requests = Requests::default();
        let builder =
            Kernel::open(LogStore::open(folder.path()).unwrap()).model("m", recorded(&requests));
        let kernel = builder.build().await.unwrap();
        kernel.resume_all().await.unwrap();
        let table = kernel.processes().await.unwrap();
        if let [inbox, sender] = &table[..] {
            let end = within(kernel.process(sender.row.pid).await.unwrap().wait())
                .await
                .unwrap();
            assert_eq!(
                (end.status, &*end.message),
                (ExitStatus::Done, "<message_sent to=\"1\"/>"),
                "{commits}"
            );
            let inbox = kernel.process(inbox.row.pid).await.unwrap();
            within(inbox.wait_for(|view| view.is_idle() && view.messages == 2))
                .await
                .unwrap();
            // One more turn shows its whole conversation.
            turn(&inbox, "look").await;
            let heard = requests.of(1).last().map(told).unwrap();
            assert_eq!(heard.len(), 1, "after {commits} commits: {heard:?}");
        }
        check_histories(&requests);
        kernel.shutdown().await.unwrap();
        if is_whole {
            break;
        }
    }
    assert!(cut_off > 5, "the kernel was cut off {cut_off} times");
}

#[tokio::test]
async fn a_message_wakes_one_that_sleeps() {
    let folder = tempfile::tempdir().unwrap();
    let (kernel, inbox, sender) = {
        let gate = Gate::default();
        let held = gate.clone();
        let model = FnModel(move |request: Request| {
            let gate = held.clone();
            async move {
                gate.pass().await;
                obedient(request).await
            }
        });
        let builder = Kernel::open(LogStore::open(folder.path()).unwrap()).model("m", model);
        let started = correspondence(builder).await.unwrap();
        gate.entered().await;
        started
    };
    let (inbox, sender) = (inbox.pid(), sender.pid());
    kernel.shutdown().await.unwrap();
    let builder =
        Kernel::open(LogStore::open(folder.path()).unwrap()).model("m", FnModel(obedient));
    let kernel = builder.build().await.unwrap();
    let sender = kernel.resume(sender).await.unwrap();
    assert_eq!(
        &*within(sender.wait()).await.unwrap().message,
        "<message_sent to=\"1\"/>"
    );
    let inbox = kernel.process(inbox).await.unwrap();
    within(inbox.wait_for(|view| view.is_idle() && view.messages == 2))
        .await
        .unwrap();
    kernel.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_flood_stands_before_a_full_mailbox_and_is_told_so() {
    const SENT: usize = 40;
    let gate = Gate::default();
    let held = gate.clone();
    let flood = Arc::new(vec![
        ("send_message", r#"{"to": "inbox", "text": "x"}"#);
        SENT
    ]);
    let model = FnModel(move |request: Request| {
        let (gate, flood) = (held.clone(), flood.clone());
        async move {
            if task(&request) == "flood" {
                return Ok(match results(&request, 0) {
                    answers if answers.is_empty() => asks(&flood),
                    answers => says(
                        &answers
                            .iter()
                            .filter(|(_, is_error)| *is_error)
                            .count()
                            .to_string(),
                    ),
                });
            }
            gate.pass().await;
            Ok(says("heard"))
        }
    });
    let requests = Requests::default();
    let kernel = Kernel::builder()
        .model("m", requests.record(model))
        .build()
        .await
        .unwrap();
    let bounded = program(&kernel, &format!("{TOOLS}[limits]\nmax_mailbox = 16\n"));
    let inbox = kernel
        .start(bounded)
        .session()
        .input("work")
        .name("inbox")
        .await
        .unwrap();
    gate.entered().await;
    let sender = kernel
        .start(program(&kernel, TOOLS))
        .input("flood")
        .await
        .unwrap();
    assert_eq!(
        *within(sender.wait()).await.unwrap().message,
        *(SENT - 16).to_string()
    );
    assert_eq!(inbox.view().unwrap().waiting_messages, 16);
    gate.open();
    within(inbox.wait_for(|view| view.is_idle() && view.messages == 4))
        .await
        .unwrap();
    assert_eq!(requests.of(1).last().unwrap().messages[2].blocks.len(), 16);
    check_histories(&requests);
}

/// What a store holds of its processes, up to these facts: as if the power had gone then. One that
/// is cut off had not ended.
fn cut(store: &MemoryStore, upto: &[Option<FactNumber>]) -> MemoryStore {
    let copy = MemoryStore::new();
    let owner = copy.claim().unwrap();
    let commit = |entry: WriteOp| copy.commit(owner, Batch::durable(&[entry], 0)).unwrap();
    for (row, upto) in store.processes().unwrap().rows.into_iter().zip(upto) {
        let image = store.journal(row.pid, Some(FactNumber(0))).unwrap().image;
        let last = upto.unwrap_or_else(|| store.history(row.pid).unwrap().last());
        let facts = store.facts(row.pid, FactNumber(1), last).unwrap();
        let pieces = facts
            .iter()
            .map(|fact| EncodedRecord::Fact(fact))
            .chain([EncodedRecord::Image(&image)]);
        for hash in pieces.flat_map(|piece| piece.contents().unwrap()) {
            let content = store.content(hash).unwrap();
            commit(WriteOp::Content {
                hash,
                bytes: content.slice(0..content.length()).unwrap(),
                index: Bytes::new(),
            });
        }
        let (pid, exit) = (row.pid, row.exit.clone());
        commit(WriteOp::ProcessCreated {
            row: Box::new(ProcessRow { exit: None, ..row }),
            image,
        });
        commit(WriteOp::Facts {
            pid,
            first: FactNumber(1),
            facts,
        });
        if let (Some(exit), None) = (exit, upto) {
            commit(WriteOp::ProcessEnded { pid, exit });
        }
    }
    copy
}

#[tokio::test]
async fn who_sends_again_to_one_that_has_ended_learns_whether_it_took_the_message() {
    let open = |store: Arc<MemoryStore>| {
        Kernel::open(store)
            .model("m", FnModel(obedient))
            .reach(Reach::Everyone)
    };
    let whole = Arc::new(MemoryStore::new());
    let kernel = open(whole.clone()).build().await.unwrap();
    let task = |input: &str| {
        kernel
            .start(program(&kernel, TOOLS))
            .input(input)
            .into_future()
    };
    let receiver = task("receive_messages {\"timeout_ms\": 60000}")
        .await
        .unwrap();
    let sender = task("send_message {\"to\": 1, \"text\": \"hello\"}")
        .await
        .unwrap();
    let sent = within(sender.wait()).await.unwrap().message;
    assert!(sent.starts_with("<message_sent "), "{sent}");
    assert!(
        within(receiver.wait())
            .await
            .unwrap()
            .message
            .contains("hello")
    );
    let log = kernel.log(sender.pid()).await.unwrap();
    let posted = log
        .iter()
        .find(|line| line.name == "tool_called")
        .unwrap()
        .number;
    let before = log
        .iter()
        .find(|line| line.name == "exited")
        .unwrap()
        .number;
    assert!(posted < before);
    kernel.shutdown().await.unwrap();

    // The receiver ended, and the power went before the sender knew.
    let kernel = open(Arc::new(cut(&whole, &[None, Some(posted)])))
        .build()
        .await
        .unwrap();
    kernel.resume_all().await.unwrap();
    let sender = kernel.process(sender.pid()).await.unwrap();
    assert_eq!(within(sender.wait()).await.unwrap().message, sent);
    // A message that it never took is refused as before.
    let late = kernel
        .start(program(&kernel, TOOLS))
        .input("send_message {\"to\": 1, \"text\": \"late\"}");
    let said = within(late.await.unwrap().wait()).await.unwrap().message;
    assert!(said.contains("Process 1 has ended as done"), "{said}");
    kernel.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn who_writes_to_one_whose_journal_cannot_be_read_is_not_told_that_it_was_refused() {
    let is_unreadable = Arc::new(AtomicBool::new(false));
    let store = Faulty::new(Arc::new(MemoryStore::new()), {
        let is_unreadable = is_unreadable.clone();
        move |_, operation| match operation {
            Operation::Journal if is_unreadable.load(Ordering::SeqCst) => Fate::Fail(disk_full()),
            _ => Fate::Pass,
        }
    });
    let kernel = Kernel::open(store).model("m", FnModel(obedient));
    let kernel = kernel.reach(Reach::Everyone).build().await.unwrap();
    let receiver = session(&kernel, None).await;
    receiver.kill().await.unwrap();
    within(receiver.wait()).await.unwrap();
    let sender = session(&kernel, None).await;
    let to = receiver.pid().to_string();
    let said = sends(&sender, &to).await;
    assert!(said.contains("has ended as killed"), "{said}");
    is_unreadable.store(true, Ordering::SeqCst);
    let said = sends(&sender, &to).await;
    assert!(said.contains("is unknown"), "{said}");
    kernel.shutdown().await.unwrap();
}
