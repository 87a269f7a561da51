//! Calls that wait for a person, in whole kernels: they are listed wherever their process is, survive
//! restarts, and each verdict applies to one call of one process.

use std::future::IntoFuture;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use dormouse::id::{Pid, ProcessCallId};
use dormouse::model::{Reply, Request};
use dormouse::ports::{Model, Tool};
use dormouse::process::{ExitStatus, Waiting};
use dormouse::store::{LogStore, MemoryStore};
use dormouse::{
    Event, FnTool, HeldCall, Kernel, KernelBuilder, KernelError, Position, Process, ProcessError,
    ProcessView, Recovery, Verdict,
};
use dormouse_proto::message::Block;
use dormouse_proto::record::Phase;
use dormouse_tests::faulty::{Fate, Faulty, Operation};
use dormouse_tests::{FnModel, asks, events_until, program, says, within};
use serde_json::json;

const ASK_WRITE: &str = "[tools]\nenabled = [\"write\"]\nask = [\"write\"]\n";

/// Calls `write` once, then says what it was answered.
fn writes() -> impl Model {
    calls(&[("write", r#"{"n": 1}"#)])
}

fn calls(calls: &'static [(&'static str, &'static str)]) -> impl Model {
    FnModel(move |request: Request| async move { Ok(reply(&request, calls)) })
}

fn reply(request: &Request, calls: &[(&str, &str)]) -> Reply {
    let last = request.messages.last().unwrap();
    let answers = last.blocks.iter().filter_map(|block| match block {
        Block::ToolResult { text, .. } => Some(text.to_string()),
        _ => None,
    });
    let answers: Vec<_> = answers.collect();
    match answers.is_empty() {
        true => asks(calls),
        false => says(&answers.join("|")),
    }
}

/// The tool `write`, which counts its runs and answers with its arguments.
fn write(runs: &Arc<AtomicUsize>) -> impl Tool {
    let runs = runs.clone();
    let run = move |args: serde_json::Value| {
        runs.fetch_add(1, Ordering::SeqCst);
        async move { Ok::<_, String>(format!("wrote {args}")) }
    };
    FnTool::new("write", "Writes.", run)
}

fn open(folder: &Path, runs: &Arc<AtomicUsize>) -> KernelBuilder {
    Kernel::open(LogStore::open(folder).unwrap())
        .model("m", writes())
        .tool(write(runs))
}

async fn start(kernel: &Kernel, rest: &str) -> Process {
    let program = program(kernel, rest);
    kernel.start(program).input("go").await.unwrap()
}

/// Waits until a kernel holds this many calls.
async fn held(kernel: &Kernel, count: usize) -> Vec<HeldCall> {
    let all = async {
        loop {
            let pending = kernel.pending().await.unwrap();
            assert_eq!(pending.unreadable, []);
            if pending.calls.len() == count {
                return pending.calls;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    within(all).await
}

async fn status(kernel: &Kernel, pid: Pid) -> &'static str {
    let mut listed = kernel.processes().await.unwrap().into_iter();
    listed
        .find(|info| info.row.pid == pid)
        .unwrap()
        .status
        .word()
}

fn is_not_answered(result: Result<(), KernelError>) -> bool {
    matches!(
        result,
        Err(KernelError::Process(ProcessError::NotAnswered { .. }))
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_call_is_listed_and_answered_while_its_process_hibernates() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Arc::default();
    let kernel = open(folder.path(), &runs).build().await.unwrap();
    let process = start(&kernel, ASK_WRITE).await;
    let events = kernel.events();
    let [call] = &held(&kernel, 1).await[..] else {
        panic!("one call")
    };
    assert_eq!(
        (&*call.tool, &*call.args, call.expires_ms, &call.question),
        ("write", r#"{"n": 1}"#, None, &None)
    );
    assert_eq!(status(&kernel, process.pid()).await, "asking");
    within(process.hibernate()).await.unwrap();
    assert_eq!(status(&kernel, process.pid()).await, "asking");
    assert_eq!(held(&kernel, 1).await[0], *call, "from its journal");
    assert!(process.view().unwrap().hibernated, "it was not woken");

    let other = ProcessCallId {
        pid: Pid(99),
        ..call.id
    };
    assert!(matches!(
        kernel.approve(other).await,
        Err(KernelError::NotFound(_))
    ));
    let invalid = kernel.approve_with(call.id, "7").await;
    assert!(is_not_answered(invalid));
    within(kernel.approve_with(call.id, r#"{"n": 2}"#))
        .await
        .unwrap();
    assert!(is_not_answered(kernel.approve(call.id).await), "once");
    let exit = within(process.wait()).await.unwrap();
    assert!(
        exit.message.contains("<edited_arguments>") && exit.message.ends_with(r#"wrote {"n":2}"#),
        "{exit:?}"
    );
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    assert_eq!(kernel.pending().await.unwrap().calls, []);
    let answered = |event: &Event| matches!(event, Event::HeldCallAnswered { call: answered } if *answered == call.id);
    events_until(events, answered).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn held_calls_survive_a_restart_and_a_verdict_at_rest_runs_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Arc::default();
    let kernel = open(folder.path(), &runs).build().await.unwrap();
    let first = start(&kernel, ASK_WRITE).await.pid();
    let second = start(&kernel, ASK_WRITE).await.pid();
    let before = held(&kernel, 2).await;
    kernel.shutdown().await.unwrap();

    let kernel = open(folder.path(), &runs).build().await.unwrap();
    assert_eq!(kernel.pending().await.unwrap().calls, before);
    let verdict = Verdict::Approve { args: None };
    let call = before[0].id;
    within(kernel.record_verdict(call, verdict.clone()))
        .await
        .unwrap();
    // Two at once: one is too late, and neither loads the process.
    let (one, other) = tokio::join!(
        kernel.record_verdict(call, verdict.clone()),
        kernel.record_verdict(call, verdict)
    );
    assert!(is_not_answered(one) && is_not_answered(other));
    assert_eq!(status(&kernel, first).await, "held", "it was not loaded");
    assert_eq!(kernel.pending().await.unwrap().calls, before[1..]);
    kernel.shutdown().await.unwrap();

    let kernel = open(folder.path(), &runs)
        .recovery(Recovery::Resume)
        .build()
        .await
        .unwrap();
    let exit = within(kernel.process(first).await.unwrap().wait()).await;
    assert_eq!(&*exit.unwrap().message, r#"wrote {"n":1}"#);
    let why = "it is late";
    within(kernel.refuse(before[1].id, why)).await.unwrap();
    let exit = within(kernel.process(second).await.unwrap().wait()).await;
    assert!(exit.unwrap().message.contains(why));
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

/// What is approved in the original is not approved in a branch, a copy or an import.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_branch_and_a_copy_hold_anew() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Arc::default();
    let kernel = open(folder.path(), &runs).build().await.unwrap();
    let original = start(&kernel, ASK_WRITE).await;
    let call = held(&kernel, 1).await[0].id;
    let branch = within(kernel.branch(original.pid(), Position::Now).into_future())
        .await
        .unwrap();
    let copy = within(original.fork()).await.unwrap();
    let calls = held(&kernel, 3).await;
    within(kernel.approve(call)).await.unwrap();
    within(original.wait()).await.unwrap();
    assert_eq!(held(&kernel, 2).await, calls[1..]);
    let fact = kernel.inspect(original.pid()).await.unwrap().fact.0;
    // At each fact of the original, before and after the approval.
    for at in 0..fact {
        let at = dormouse::id::FactNumber(at);
        let again = within(kernel.branch(original.pid(), at).into_future())
            .await
            .unwrap();
        let is_over = |view: &ProcessView| view.rests || matches!(view.phase, Phase::Ended { .. });
        if again.exit().is_none() {
            within(again.wait_for(is_over)).await.unwrap();
        }
        // One that has ended needs no signal.
        let _ = again.kill().await;
        within(again.wait()).await.unwrap();
    }
    assert_eq!(runs.load(Ordering::SeqCst), 1, "only the original");
    for process in [&branch, &copy] {
        let mut held = kernel.pending().await.unwrap().calls.into_iter();
        let own = held.find(|call| call.id.pid == process.pid()).unwrap();
        within(kernel.approve(own.id)).await.unwrap();
        within(process.wait()).await.unwrap();
    }
    assert_eq!(runs.load(Ordering::SeqCst), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hibernated_process_wakes_when_its_call_expires() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Arc::default();
    let kernel = open(folder.path(), &runs)
        .hibernate_after(Duration::ZERO)
        .build()
        .await
        .unwrap();
    let events = kernel.events();
    let expiring = format!("{ASK_WRITE}ask_expires = \"2s\"\n");
    let process = start(&kernel, &expiring).await;
    let pid = process.pid();
    drop(process);
    events_until(events, |event| matches!(event, Event::Hibernated { .. })).await;
    assert_eq!(status(&kernel, pid).await, "asking");
    let events = kernel.events();
    events_until(events, |event| matches!(event, Event::Woke { .. })).await;
    let exit = within(kernel.process(pid).await.unwrap().wait()).await;
    assert!(
        exit.unwrap()
            .message
            .contains("nobody answered within the time")
    );
    assert_eq!(runs.load(Ordering::SeqCst), 0);
}

/// The parent of a process that waits for a person rests as well, and the end of the child wakes it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parent_of_a_child_that_asks_hibernates_too() {
    let folder = tempfile::tempdir().unwrap();
    let runs: Arc<AtomicUsize> = Arc::default();
    let model = FnModel(|request: Request| async move {
        let last = request.messages.last().unwrap();
        let is_child = last.blocks.iter().any(|block| {
            matches!(block, Block::ToolResult { text, .. } if text.starts_with("You are child"))
        });
        Ok(match is_child {
            true => asks(&[("write", "{}")]),
            false => reply(&request, &[("fork", r#"{"prompts": ["write"]}"#)]),
        })
    });
    let kernel = Kernel::open(LogStore::open(folder.path()).unwrap())
        .model("m", model)
        .tool(write(&runs))
        .build()
        .await
        .unwrap();
    let rest = "[tools]\nenabled = [\"write\", { name = \"fork\", access = \"read\" }]\nask = [\"write\"]\n[budget]\nwall_time = \
                \"1h\"\n";
    let parent = start(&kernel, rest).await;
    let call = held(&kernel, 1).await[0].id;
    let child = kernel.process(call.pid).await.unwrap();
    within(parent.wait_for(|view| view.rests)).await.unwrap();
    within(child.hibernate()).await.unwrap();
    within(parent.hibernate()).await.unwrap();
    within(kernel.approve(call)).await.unwrap();
    let exit = within(parent.wait()).await.unwrap();
    assert_eq!(exit.status, ExitStatus::Done, "{exit:?}");
    assert!(exit.message.contains("wrote {}"), "{exit:?}");
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_is_answered_with_a_value_that_its_schema_allows() {
    let folder = tempfile::tempdir().unwrap();
    const ASKS: &[(&str, &str)] = &[(
        "ask_user",
        r#"{"question": "Where?", "schema": {"type": "object", "required": ["host"]}}"#,
    )];
    let kernel = Kernel::open(LogStore::open(folder.path()).unwrap())
        .model("m", calls(ASKS))
        .build()
        .await
        .unwrap();
    let process = start(&kernel, "[tools]\nenabled = [\"ask_user\"]\n").await;
    let call = held(&kernel, 1).await.remove(0);
    assert_eq!(call.question.as_ref().unwrap().text, "Where?");
    assert!(is_not_answered(kernel.approve(call.id).await));
    let refused = kernel.answer(call.id, json!({ "port": 1 })).await;
    let error = refused.unwrap_err().to_string();
    assert!(error.contains("host"), "{error}");
    within(kernel.answer(call.id, json!({ "host": "h" })))
        .await
        .unwrap();
    let exit = within(process.wait()).await.unwrap();
    assert_eq!(&*exit.message, r#"{"host":"h"}"#);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interrupted_process_holds_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Arc::default();
    let kernel = open(folder.path(), &runs).build().await.unwrap();
    let process = start(&kernel, ASK_WRITE).await;
    let call = held(&kernel, 1).await[0].id;
    within(process.interrupt()).await.unwrap();
    within(process.wait()).await.unwrap();
    assert_eq!(kernel.pending().await.unwrap().calls, []);
    assert!(kernel.approve(call).await.is_err());
    assert_eq!(runs.load(Ordering::SeqCst), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_journals_of_processes_that_ask_are_read() {
    let inner = Arc::new(MemoryStore::new());
    let runs: Arc<AtomicUsize> = Arc::default();
    let kernel = Kernel::open(inner.clone())
        .model("m", writes())
        .tool(write(&runs))
        .build()
        .await
        .unwrap();
    let asking = start(&kernel, &format!("{ASK_WRITE}ask_expires = \"1h\"\n"))
        .await
        .pid();
    let session = kernel.start(program(&kernel, "")).await.unwrap().pid();
    let [call] = &held(&kernel, 1).await[..] else {
        panic!("one call")
    };
    let id = call.id;
    kernel.shutdown().await.unwrap();

    let reads: Arc<AtomicUsize> = Arc::default();
    let counter = reads.clone();
    let store = Faulty::new(inner, move |_, operation| {
        if operation == Operation::Journal {
            counter.fetch_add(1, Ordering::SeqCst);
        }
        Fate::Pass
    });
    let builder = Kernel::open(store).model("m", writes()).tool(write(&runs));
    let kernel = builder.recovery(Recovery::Hold).build().await.unwrap();
    let rows = kernel.processes().await.unwrap();
    let waiting = |pid: Pid| {
        rows.iter()
            .find(|info| info.row.pid == pid)
            .unwrap()
            .row
            .waiting
    };
    assert!(matches!(
        waiting(asking),
        Waiting::Person {
            expires_ms: Some(_)
        }
    ));
    assert_eq!(waiting(session), Waiting::Nothing);
    assert_eq!(held(&kernel, 1).await[0].id, id);
    assert_eq!(reads.load(Ordering::SeqCst), 1, "the session is not read");

    // To resume a process that only waits for a person reads nothing.
    kernel.resume_lazily([asking]).unwrap();
    assert_eq!(status(&kernel, asking).await, "asking");
    assert_eq!(reads.load(Ordering::SeqCst), 1);
    kernel.approve(id).await.unwrap();
    let process = kernel.process(asking).await.unwrap();
    let exit = within(process.wait()).await.unwrap();
    assert_eq!(
        (exit.status, runs.load(Ordering::SeqCst)),
        (ExitStatus::Done, 1)
    );
}

/// A call expires in a process that was resumed after a restart and never loaded.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_expires_while_its_process_is_not_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let runs = Arc::default();
    let kernel = open(folder.path(), &runs).build().await.unwrap();
    let expiring = format!("{ASK_WRITE}ask_expires = \"900ms\"\n");
    let pid = start(&kernel, &expiring).await.pid();
    held(&kernel, 1).await;
    kernel.shutdown().await.unwrap();

    let builder = open(folder.path(), &runs).recovery(Recovery::Resume);
    let kernel = builder.build().await.unwrap();
    let process = kernel.process(pid).await.unwrap();
    let exit = within(process.wait()).await.unwrap();
    assert_eq!(exit.status, ExitStatus::Done);
    assert!(
        exit.message.contains("nobody answered within the time"),
        "{}",
        exit.message
    );
    assert_eq!(runs.load(Ordering::SeqCst), 0);
    assert_eq!(held(&kernel, 0).await, []);
}

/// The call expires while the snapshot of its process is written: there is work to do again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_expires_on_the_way_to_hibernation_keeps_its_process_loaded() {
    let runs: Arc<AtomicUsize> = Arc::default();
    let is_slow = Arc::new(AtomicBool::new(false));
    let slow = is_slow.clone();
    let store = Faulty::new(MemoryStore::new(), move |_, operation| {
        let is_commit = matches!(operation, Operation::Commit { .. });
        if is_commit && slow.swap(false, Ordering::SeqCst) {
            std::thread::sleep(Duration::from_secs(3));
        }
        Fate::Pass
    });
    let builder = Kernel::open(store).model("m", writes()).tool(write(&runs));
    let kernel = builder.build().await.unwrap();
    let process = start(&kernel, &format!("{ASK_WRITE}ask_expires = \"2s\"\n")).await;
    held(&kernel, 1).await;
    is_slow.store(true, Ordering::SeqCst);
    let hibernated = within(process.hibernate()).await;
    assert!(
        matches!(
            hibernated,
            Err(KernelError::Process(ProcessError::Pending { .. }))
        ),
        "{hibernated:?}"
    );
    let exit = within(process.wait()).await.unwrap();
    assert!(
        exit.message.contains("nobody answered within the time"),
        "{exit:?}"
    );
}

/// A panic of the store while a verdict is recorded is an error, and the next attempt succeeds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_verdict_whose_journal_panics_can_be_given_again() {
    let inner = Arc::new(MemoryStore::new());
    let runs: Arc<AtomicUsize> = Arc::default();
    let builder = Kernel::open(inner.clone()).model("m", writes());
    let kernel = builder.tool(write(&runs)).build().await.unwrap();
    start(&kernel, ASK_WRITE).await;
    let call = held(&kernel, 1).await[0].id;
    within(kernel.shutdown()).await.unwrap();
    let is_broken = AtomicBool::new(true);
    let store = Faulty::new(inner, move |_, operation| match operation {
        Operation::Journal if is_broken.swap(false, Ordering::SeqCst) => {
            panic!("the index is broken")
        }
        _ => Fate::Pass,
    });
    let builder = Kernel::open(store).model("m", writes());
    let kernel = builder.tool(write(&runs)).build().await.unwrap();
    let refuse = || Verdict::Refuse { why: String::new() };
    let error = within(kernel.record_verdict(call, refuse()))
        .await
        .unwrap_err();
    assert!(error.to_string().contains("the index is broken"), "{error}");
    within(kernel.record_verdict(call, refuse())).await.unwrap();
}
