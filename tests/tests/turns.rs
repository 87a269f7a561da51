//! `Process::turn`: an input, and how the turn with it ended, whatever happens in between.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use dormouse::command::Command;
use dormouse::file::{FileError, FileErrorKind, FileWrite};
use dormouse::id::Pid;
use dormouse::message::Role;
use dormouse::model::{ModelError, ModelErrorKind, Request};
use dormouse::models::Scripted;
use dormouse::ports::{Host, Model, NoHost, Tool};
use dormouse::process::{Exit, ExitStatus};
use dormouse::store::{LogStore, MemoryStore};
use dormouse::user_input::{InputPart, UserInput};
use dormouse::{FnTool, Kernel, KernelBuilder, KernelError, Process, ProcessError};
use dormouse_tests::{FnModel, Gate, asks, program, results, says, within};
use futures_util::future::{BoxFuture, FutureExt};

/// Repeats the last message; waits at the gate if the message begins with `slow`.
fn echo(gate: &Gate) -> impl Model + use<> {
    let gate = gate.clone();
    FnModel(move |request: Request| {
        let gate = gate.clone();
        async move {
            let text = request.messages.last().unwrap().text();
            if text.starts_with("slow") {
                gate.pass().await;
            }
            Ok(says(&text))
        }
    })
}

fn in_memory() -> KernelBuilder {
    Kernel::open(MemoryStore::new())
}

async fn session(kernel: &Kernel) -> Process {
    let start = kernel.start(program(kernel, ""));
    start.session().without_input().await.unwrap()
}

/// Sends an input in a task, and returns once its turn waits at the gate.
async fn begin(
    process: &Process,
    gate: &Gate,
    input: &'static str,
) -> tokio::task::JoinHandle<Result<Exit, KernelError>> {
    let entered = gate.entered();
    let turn = send(process, input);
    entered.await;
    turn
}

fn send(
    process: &Process,
    input: &'static str,
) -> tokio::task::JoinHandle<Result<Exit, KernelError>> {
    let process = process.clone();
    tokio::spawn(async move { process.turn(input).await })
}

async fn end(
    turn: tokio::task::JoinHandle<Result<Exit, KernelError>>,
) -> Result<Exit, KernelError> {
    within(turn).await.unwrap()
}

fn outcome(exit: &Exit) -> (ExitStatus, &str) {
    (exit.status, &*exit.message)
}

/// Expects that the turn ends as done, with `reply` as the last reply.
async fn assert_done(turn: tokio::task::JoinHandle<Result<Exit, KernelError>>, reply: &str) {
    assert_eq!(
        outcome(&end(turn).await.unwrap()),
        (ExitStatus::Done, reply)
    );
}

/// Waits until `count` inputs are in the mailbox.
async fn wait_for_inputs(process: &Process, count: usize) {
    within(process.wait_for(|view| view.waiting_messages == count))
        .await
        .unwrap();
}

#[tokio::test]
async fn a_turn_answers_with_the_last_words_of_the_model() {
    let script = "[[turn]]\nwhen.round = 0\ntext = 'I look.'\n\
                  calls = [{ tool = 'look', args = {} }]\n[[turn]]\ntext = 'It is {{ last }}.'";
    let look = FnTool::new("look", "Looks.", |(): ()| async { Ok::<_, String>("late") });
    let kernel = in_memory()
        .model("m", Scripted::parse(script, "m").unwrap())
        .tool(look)
        .build()
        .await
        .unwrap();
    let start = kernel.start(program(&kernel, "[tools]\nenabled = ['look']"));
    let session = start.session().without_input().await.unwrap();
    for _ in 0..2 {
        let exit = within(session.turn("What time is it?")).await.unwrap();
        assert_eq!(outcome(&exit), (ExitStatus::Done, "It is late."));
        assert!(exit.spent.is_some(), "{exit:?}");
    }
    assert_eq!(session.view().unwrap().messages, 8);
    assert!(session.view().unwrap().is_idle(), "the view is up to date");
}

#[tokio::test]
async fn a_turn_that_fails_is_an_outcome() {
    let model = FnModel(|_| async {
        let refused = ModelErrorKind::Authentication;
        Err(ModelError::new(refused, "the key has expired"))
    });
    let kernel = in_memory().model("m", model).build().await.unwrap();
    let exit = within(session(&kernel).await.turn("go")).await.unwrap();
    assert_eq!(exit.status, ExitStatus::ModelFailed);
    assert!(exit.message.contains("the key has expired"), "{exit:?}");
}

#[tokio::test]
async fn inputs_during_a_turn_share_the_next_one() {
    let gate = Gate::default();
    let kernel = in_memory().model("m", echo(&gate)).build().await.unwrap();
    let session = session(&kernel).await;
    let first = begin(&session, &gate, "slow").await;
    let second = send(&session, "two");
    wait_for_inputs(&session, 1).await;
    let third = send(&session, "three");
    wait_for_inputs(&session, 2).await;
    gate.open();
    assert_done(first, "slow").await;
    for turn in [second, third] {
        let exit = end(turn).await.unwrap();
        assert_eq!(outcome(&exit), (ExitStatus::Done, "twothree"));
    }
}

#[tokio::test]
async fn a_task_that_goes_on_with_a_second_input_answers_the_first() {
    let gate = Gate::default();
    let kernel = in_memory().model("m", echo(&gate)).build().await.unwrap();
    let start = kernel.start(program(&kernel, ""));
    let task = start.without_input().await.unwrap();
    let first = begin(&task, &gate, "slow").await;
    let second = send(&task, "two");
    wait_for_inputs(&task, 1).await;
    gate.open();
    assert_done(first, "slow").await;
    assert_done(second, "two").await;
    assert_eq!(&*task.exit().expect("it has ended").message, "two");
    // An input after the end opens the task again, and has a turn of its own.
    let late = within(task.turn("three")).await.unwrap();
    assert_eq!(outcome(&late), (ExitStatus::Done, "three"));
    assert_eq!(within(task.wait()).await.unwrap().reopenings, 1);
}

/// A child works without anyone who reads its events or holds its handle.
#[tokio::test]
async fn a_child_answers_an_input_after_its_own_task() {
    let gate = Gate::default();
    let hold = gate.clone();
    let model = FnModel(move |request: Request| {
        let hold = hold.clone();
        async move {
            let text = request.messages.last().unwrap().text();
            Ok(match (request.pid, results(&request, 0).as_slice()) {
                (Pid(1), []) => asks(&[("fork", r#"{"prompts": ["slow"]}"#)]),
                (Pid(1), answers) => says(&format!("{answers:?}")),
                (_, []) => says(&text),
                _ => {
                    hold.pass().await;
                    says("forked")
                }
            })
        }
    });
    let kernel = in_memory().model("m", model).build().await.unwrap();
    let start = kernel.start(program(&kernel, "[tools]\nenabled = ['fork']"));
    let parent = start.input("go").await.unwrap();
    gate.entered().await;
    let child = within(kernel.process(Pid(2))).await.unwrap();
    let turn = send(&child, "more");
    wait_for_inputs(&child, 1).await;
    gate.open();
    assert_done(turn, "more").await;
    let exit = within(parent.wait()).await.unwrap();
    assert!(exit.message.contains("more"), "{exit:?}");
}

#[tokio::test]
async fn an_interrupt_ends_the_turn_and_the_next_input_gets_its_own() {
    let gate = Gate::default();
    let kernel = in_memory().model("m", echo(&gate)).build().await.unwrap();
    let session = session(&kernel).await;
    let first = begin(&session, &gate, "slow").await;
    let second = send(&session, "two");
    wait_for_inputs(&session, 1).await;
    within(session.interrupt()).await.unwrap();
    let exit = end(first).await.unwrap();
    let interrupted = (ExitStatus::Interrupted, "the turn was interrupted");
    assert_eq!(outcome(&exit), interrupted);
    let exit = end(second).await.unwrap();
    assert_eq!(exit.status, ExitStatus::Done);
    assert!(exit.message.ends_with("two"), "{exit:?}");
}

#[tokio::test]
async fn a_kill_answers_all_who_wait() {
    for store in [true, false] {
        let gate = Gate::default();
        let builder = if store {
            in_memory()
        } else {
            Kernel::builder()
        };
        let kernel = builder.model("m", echo(&gate)).build().await.unwrap();
        let session = session(&kernel).await;
        let first = begin(&session, &gate, "slow").await;
        let second = send(&session, "two");
        wait_for_inputs(&session, 1).await;
        within(session.kill()).await.unwrap();
        for turn in [first, second] {
            let exit = end(turn).await.unwrap();
            assert_eq!(
                outcome(&exit),
                (ExitStatus::Killed, "the process was killed")
            );
            assert_eq!(session.exit(), Some(exit), "its exit is known by then");
        }
    }
}

#[tokio::test]
async fn a_host_that_takes_the_conversation_back_ends_the_turn() {
    let gate = Gate::default();
    let kernel = in_memory().model("m", echo(&gate)).build().await.unwrap();
    let session = session(&kernel).await;
    within(session.turn("one")).await.unwrap();
    let checkpoint = within(session.checkpoint("one")).await.unwrap();
    let first = begin(&session, &gate, "slow one").await;
    within(session.goto("msg:2", "two")).await.unwrap();
    let exit = end(first).await.unwrap();
    assert_eq!(exit.status, ExitStatus::Interrupted);
    assert!(
        exit.message.contains("took the conversation back"),
        "{exit:?}"
    );
    let second = begin(&session, &gate, "slow two").await;
    within(session.restore(checkpoint.id)).await.unwrap();
    let exit = end(second).await.unwrap();
    assert_eq!(exit.status, ExitStatus::Interrupted);
    assert!(
        exit.message.contains("took the conversation back"),
        "{exit:?}"
    );
    let exit = within(session.turn("three")).await.unwrap();
    assert!(exit.message.ends_with("three"), "{exit:?}");
}

#[tokio::test]
async fn a_hibernated_session_wakes_for_a_turn() {
    let folder = tempfile::tempdir().unwrap();
    let kernel = Kernel::open(LogStore::open(folder.path()).unwrap())
        .model("m", echo(&Gate::default()))
        .build()
        .await
        .unwrap();
    let session = session(&kernel).await;
    within(session.turn("one")).await.unwrap();
    within(session.hibernate()).await.unwrap();
    let exit = within(session.turn("two")).await.unwrap();
    assert_eq!(outcome(&exit), (ExitStatus::Done, "two"));
}

#[tokio::test]
async fn a_turn_of_a_stopped_session_outlives_its_hibernation() {
    let gate = Gate::default();
    let kernel = in_memory().model("m", echo(&gate)).build().await.unwrap();
    let session = session(&kernel).await;
    let turn = begin(&session, &gate, "slow").await;
    within(session.stop()).await.unwrap();
    gate.open();
    within(session.wait_for(|view| view.status().word() == "stopped" && view.messages == 2))
        .await
        .unwrap();
    within(session.hibernate()).await.unwrap();
    within(session.cont()).await.unwrap();
    assert_done(turn, "slow").await;
}

#[tokio::test]
async fn a_shutdown_ends_the_wait_and_the_turn_goes_on_with_the_next_kernel() {
    let (gate, folder) = (Gate::default(), tempfile::tempdir().unwrap());
    let open = |gate: &Gate| {
        let store = LogStore::open(folder.path()).unwrap();
        Kernel::open(store).model("m", echo(gate)).build()
    };
    let kernel = open(&gate).await.unwrap();
    let session = session(&kernel).await;
    let turn = begin(&session, &gate, "slow").await;
    let pid = session.pid();
    drop(session);
    within(kernel.shutdown()).await.unwrap();
    let lost = end(turn).await;
    assert!(matches!(lost, Err(KernelError::Closed)), "{lost:?}");
    gate.open();
    let kernel = open(&gate).await.unwrap();
    let session = within(kernel.resume(pid)).await.unwrap();
    let view = within(session.wait_for(dormouse::ProcessView::is_idle)).await;
    assert_eq!(view.unwrap().messages, 2);
}

#[tokio::test]
async fn a_dropped_turn_takes_nothing_back() {
    let gate = Gate::default();
    let kernel = in_memory().model("m", echo(&gate)).build().await.unwrap();
    let session = session(&kernel).await;
    let turn = begin(&session, &gate, "slow").await;
    turn.abort();
    assert!(within(turn).await.unwrap_err().is_cancelled());
    gate.open();
    let exit = within(session.turn("two")).await.unwrap();
    assert_eq!(outcome(&exit), (ExitStatus::Done, "two"));
    assert_eq!(session.view().unwrap().messages, 4);
}

#[tokio::test]
async fn a_large_input_gets_its_turn_too() {
    let kernel = in_memory()
        .model("m", echo(&Gate::default()))
        .build()
        .await
        .unwrap();
    let start = kernel.start(program(&kernel, "[tools]\nenabled = ['read_fd']"));
    let session = start.session().without_input().await.unwrap();
    let large = InputPart::new("file:large", vec![b'x'; 4 << 20]);
    let exit = within(session.turn(large)).await.unwrap();
    assert!(exit.message.contains("file:large"), "{exit:?}");
    let empty = within(session.turn(UserInput { parts: Vec::new() })).await;
    assert!(
        matches!(
            empty,
            Err(KernelError::Process(ProcessError::EmptyInput(_)))
        ),
        "{empty:?}"
    );
}

/// A host that panics in the actor of the process at the first write.
struct Faulting(Arc<AtomicBool>);

impl Host for Faulting {
    fn command(&self, command: &Command) -> Arc<dyn Tool> {
        NoHost.command(command)
    }

    fn write(&self, _write: FileWrite) -> BoxFuture<'static, Result<(), FileError>> {
        assert!(self.0.swap(true, Ordering::SeqCst), "the first write fails");
        std::future::ready(Ok(())).boxed()
    }

    fn read(&self, path: &Path) -> Result<Bytes, FileError> {
        Err(FileError {
            kind: FileErrorKind::FileNotFound,
            message: path.display().to_string(),
        })
    }
}

/// Writes the descriptor of the input to a file, then says how often it spoke.
fn writer() -> impl Model {
    FnModel(|request: Request| async move {
        let replies = request.messages.iter();
        let replies = replies.filter(|message| message.role == Role::Assistant);
        let count = replies.count();
        Ok(match results(&request, 0).as_slice() {
            [] => asks(&[("fd_to_file", r#"{"fd": "fd:1", "file_path": "out.txt"}"#)]),
            _ => says(&format!("reply {}", count + 1)),
        })
    })
}

async fn faulting_session(builder: KernelBuilder) -> Process {
    let kernel = builder
        .host(Faulting(Arc::default()))
        .model("m", writer())
        .build()
        .await
        .unwrap();
    let tools = "[tools]\nenabled = [{ name = 'fd_to_file', access = 'read' }]\n";
    let start = kernel.start(program(&kernel, tools)).session();
    let session = start.without_input().await.unwrap();
    session.open("log", "one\n", None).await.unwrap();
    session
}

#[tokio::test(start_paused = true)]
async fn a_turn_outlives_a_fault_of_its_process() {
    let session = faulting_session(in_memory()).await;
    for replies in ["reply 2", "reply 4"] {
        let exit = session.turn("write").await.unwrap();
        assert_eq!(outcome(&exit), (ExitStatus::Done, replies));
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_store_a_fault_is_an_error_of_the_turn() {
    let session = faulting_session(Kernel::builder()).await;
    let held = session.turn("write").await;
    assert!(
        matches!(held, Err(KernelError::Process(ProcessError::Held { .. }))),
        "{held:?}"
    );
}
