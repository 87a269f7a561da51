//! What a kernel on disk still knows after it went away: in the middle of tools, models and forks,
//! and at every fact.

use dormouse::record::{CallFact, ChildFact};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use dormouse::host::{LocalHost, Permissions};
use dormouse::id::{FactNumber, Pid};
use dormouse::model::{Reply, Request, StopReason};
use dormouse::models::Scripted;
use dormouse::ports::StoreError;
use dormouse::process::{ExitStatus, Origin};
use dormouse::store::LogStore;
use dormouse::{
    Event, Fact, FnTool, Kernel, KernelBuilder, KernelError, NotFound, Process, ProcessError,
    StoreFailure,
};
use dormouse_tests::{
    FnModel, Gate, Requests, asks, check_histories, events_until, fault_of, program, results, says,
    within,
};
use futures_util::StreamExt;
use schemars::JsonSchema;
use serde::Deserialize;

fn open(folder: &Path) -> KernelBuilder {
    Kernel::open(LogStore::open(folder).unwrap())
}

/// Two calls of `tool`, one after the other, then what came of each.
fn twice() -> impl dormouse::ports::Model {
    FnModel(|request: Request| async move {
        let answers: Vec<_> = (0..request.messages.len())
            .rev()
            .flat_map(|at| results(&request, at))
            .collect();
        Ok(match answers.len() {
            0 => asks(&[("tool", r#"{"number": 1}"#)]),
            1 => asks(&[("tool", r#"{"number": 2}"#)]),
            _ => says(&format!("{answers:?}")),
        })
    })
}

#[derive(Deserialize, JsonSchema)]
struct Number {
    number: usize,
}

/// A tool that counts its runs; the second call stands at the gate.
fn counting(
    runs: &Arc<Mutex<Vec<usize>>>,
    gate: &Gate,
) -> FnTool<impl Fn(Number) -> ToolRun + use<>, Number> {
    let (runs, gate) = (runs.clone(), gate.clone());
    FnTool::new(
        "tool",
        "Counts.",
        move |Number { number }: Number| -> ToolRun {
            let (runs, gate) = (runs.clone(), gate.clone());
            Box::pin(async move {
                runs.lock().unwrap().push(number);
                if number == 2 {
                    gate.pass().await;
                }
                Ok(format!("done {number}"))
            })
        },
    )
}

type ToolRun = std::pin::Pin<Box<dyn Future<Output = Result<String, String>> + Send>>;

const TOOL: &str = "[tools]\nenabled = [\"tool\"]\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tool_in_flight_is_run_again_only_where_it_is_idempotent() {
    for is_idempotent in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let (runs, gate, requests) = (Arc::default(), Gate::default(), Requests::default());
        let kernel = |gate: &Gate| {
            let tool = counting(&runs, gate);
            let tool = if is_idempotent {
                tool.idempotent()
            } else {
                tool
            };
            open(folder.path())
                .model("m", requests.record(twice()))
                .tool(tool)
                .build()
        };
        let first = kernel(&gate).await.unwrap();
        let process = first
            .start(program(&first, TOOL))
            .input("go")
            .await
            .unwrap();
        gate.entered().await;
        drop(process);
        within(first.shutdown()).await.unwrap();

        let passing = Gate::default();
        passing.open();
        let second = kernel(&passing).await.unwrap();
        let listed = second.processes().await.unwrap();
        assert_eq!(
            (
                listed.len(),
                listed[0].status.word(),
                listed[0].view.is_none()
            ),
            (1, "held", true)
        );
        assert_eq!(
            *runs.lock().unwrap(),
            [1, 2],
            "nothing runs before it is resumed"
        );
        assert_eq!(
            second.inspect(Pid(1)).await.unwrap().status().word(),
            "acting"
        );
        let resumed = second.resume_all().await.unwrap();
        assert_eq!(resumed.len(), 1);
        let exit = within(resumed[0].wait()).await.unwrap();
        assert_eq!(exit.status, ExitStatus::Done, "{exit:?}");
        assert!(exit.message.contains("(\"done 1\", false)"), "{exit:?}");
        if is_idempotent {
            assert_eq!(*runs.lock().unwrap(), [1, 2, 2]);
            assert!(exit.message.contains("(\"done 2\", false)"), "{exit:?}");
        } else {
            assert_eq!(*runs.lock().unwrap(), [1, 2], "CALL-2");
            assert!(
                exit.message.contains("effect is unknown") && exit.message.contains(", true)"),
                "{exit:?}"
            );
        }
        check_histories(&requests);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_call_that_was_pending_is_made_again_with_the_same_request() {
    let folder = tempfile::tempdir().unwrap();
    let (gate, requests) = (Gate::default(), Requests::default());
    let inside = gate.clone();
    let model = FnModel(move |_| {
        let inside = inside.clone();
        async move {
            inside.pass().await;
            Ok(says("never"))
        }
    });
    let first = open(folder.path())
        .model("m", requests.record(model))
        .build()
        .await
        .unwrap();
    first
        .start(program(&first, "[prompt]\nsystem = \"S\"\n"))
        .input("go")
        .await
        .unwrap();
    gate.entered().await;
    within(first.shutdown()).await.unwrap();
    let model = requests.record(FnModel(|_| async { Ok(says("answered")) }));
    let second = open(folder.path()).model("m", model).build().await.unwrap();
    let process = second.resume(Pid(1)).await.unwrap();
    assert_eq!(&*within(process.wait()).await.unwrap().message, "answered");
    let [before, after] = &requests.all()[..] else {
        panic!("two calls")
    };
    assert_eq!(
        (&before.messages, &before.system, &before.tools),
        (&after.messages, &after.system, &after.tools)
    );
}

/// Two children; what each says depends on its prompt. The one that is told to wait does so in a
/// tool.
const FORK: &str = r#"
    [[capture]]
    name = "found"
    pattern = 'found (\w+)'
    take = "all"
    unique = true
    default = []
    [[turn]]
    when = { prompt = "^go", round = 0 }
    calls = [{ tool = "big" }]
    [[turn]]
    when = { prompt = "^go", round = 1 }
    calls = [{ tool = "read_fd", args = { fd = "fd:1", page = 2 } }, { tool = "once" }]
    [[turn]]
    when = { prompt = "^go", round = 2 }
    calls = [{ tool = "fork", args = { prompts = ["look for a", "look for b"] } }]
    [[turn]]
    when = { prompt = "^go" }
    text = "finished: {{ found | sort | join(' ') }}"
    [[turn]]
    when = { prompt = "look for a", round = 0 }
    calls = [{ tool = "read_fd", args = { fd = "fd:1" } }]
    [[turn]]
    when = { prompt = "look for a" }
    text = "found alpha"
    [[turn]]
    when = { prompt = "look for b", round = 0 }
    calls = [{ tool = "stand" }]
    [[turn]]
    when = { prompt = "look for b" }
    text = "found beta"
    [[turn]]
    text = "heard {{ prompt }}"
"#;

const FORKING: &str = "[tools]\neffects = \"run\"\nenabled = [\"read_fd\", \"fork\", \"big\", \"once\", \
\"stand\"]\n[file_descriptor]\nmax_direct_output_chars = 600\ndefault_page_size = 50\n";

fn with_fork_tools(builder: KernelBuilder, gate: &Gate, once: &Arc<AtomicUsize>) -> KernelBuilder {
    let (gate, once) = (gate.clone(), once.clone());
    let big = FnTool::new("big", "Much.", |()| async {
        Ok::<_, String>("a line of text\n".repeat(100))
    })
    .idempotent();
    let stand = FnTool::new("stand", "Waits.", move |()| {
        let gate = gate.clone();
        async move {
            gate.pass().await;
            Ok::<_, String>("waited")
        }
    });
    let once = FnTool::new("once", "Counts.", move |()| {
        once.fetch_add(1, Ordering::SeqCst);
        async { Ok::<_, String>("counted") }
    });
    builder.tool(big).tool(stand.idempotent()).tool(once)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fork_in_flight_finds_its_children_again() {
    let folder = tempfile::tempdir().unwrap();
    let (gate, once, requests) = (Gate::default(), Arc::default(), Requests::default());
    let kernel = |gate: &Gate| {
        let model = requests.record(Scripted::parse(FORK, "fork").unwrap());
        with_fork_tools(open(folder.path()).model("m", model), gate, &once).build()
    };
    let first = kernel(&gate).await.unwrap();
    let events = first.events();
    first
        .start(program(&first, FORKING))
        .input("go")
        .await
        .unwrap();
    events_until(events, |event| matches!(event, Event::Exited { .. })).await;
    gate.entered().await;
    let asked_before = requests.of(2).len();
    within(first.shutdown()).await.unwrap();

    let passing = Gate::default();
    passing.open();
    let second = kernel(&passing).await.unwrap();
    let before = second.processes().await.unwrap();
    let status = |infos: &[dormouse::ProcessInfo]| -> Vec<&str> {
        infos.iter().map(|info| info.status.word()).collect()
    };
    assert_eq!(status(&before), ["held", "done", "held"]);
    let resumed = second.resume_all().await.unwrap();
    assert_eq!(
        resumed.iter().map(Process::pid).collect::<Vec<_>>(),
        [Pid(1), Pid(3)]
    );
    let exit = within(resumed[0].wait()).await.unwrap();
    assert_eq!(
        (&*exit.message, exit.status),
        ("finished: alpha beta", ExitStatus::Done)
    );
    let after = second.processes().await.unwrap();
    assert_eq!(
        status(&after),
        ["done", "done", "done"],
        "no child is made twice"
    );
    assert_eq!(
        requests.of(2).len(),
        asked_before,
        "a child that has ended is not run again"
    );
    assert_eq!(once.load(Ordering::SeqCst), 1);
    let origins: Vec<_> = after
        .iter()
        .map(|info| (info.row.parent, info.row.origin.clone()))
        .collect();
    assert!(matches!(origins[0], (None, Origin::Started)), "{origins:?}");
    assert!(
        matches!(origins[1], (Some(Pid(1)), Origin::Forked { index: 0, .. })),
        "{origins:?}"
    );
    assert!(
        matches!(origins[2], (Some(Pid(1)), Origin::Forked { index: 1, .. })),
        "{origins:?}"
    );
    check_histories(&requests);
}

/// The facts of every process of a finished run.
async fn finished_run(kernel: &Kernel, text: &str) -> BTreeMap<u64, Vec<Arc<Fact>>> {
    let events = kernel.events();
    let root = kernel
        .start(program(kernel, text))
        .input("go")
        .await
        .unwrap()
        .pid();
    let mut facts = BTreeMap::<u64, Vec<_>>::new();
    let all = events_until(
        events,
        |event| matches!(event, Event::Exited { pid, .. } if *pid == root),
    )
    .await;
    for event in all {
        if let Event::Fact { pid, number, fact } = event {
            let facts = facts.entry(pid.0).or_default();
            facts.push(fact);
            assert_eq!(number.0, facts.len() as u64, "numbers without a gap");
        }
    }
    facts
}

/// How a restored process ends; one that had ended waits, and ends when something is said to it.
async fn end_of(process: &Process, had_ended: bool) -> String {
    if had_ended {
        within(process.input("more")).await.unwrap();
    }
    let exit = within(process.wait()).await.unwrap();
    assert_eq!(
        exit.status,
        ExitStatus::Done,
        "process {}: {exit:?}",
        process.pid()
    );
    exit.message.to_string()
}

/// Whose copy a process is, and from which fact on.
async fn copied_from(kernel: &Kernel, copy: &Process) -> (Pid, u64) {
    let infos = kernel.processes().await.unwrap();
    let row = &infos
        .iter()
        .find(|info| info.row.pid == copy.pid())
        .unwrap()
        .row;
    let Origin::Copied { from, at } = row.origin else {
        panic!("{row:?}")
    };
    (from, at.0)
}

fn is_reply(fact: &Fact) -> bool {
    matches!(fact, Fact::Call(CallFact::ModelReplied { .. }))
}

/// Restores every fact of every process of one run; what each came to.
async fn restore_all(snapshot_after: u64) -> BTreeMap<(u64, u64), String> {
    let folder = tempfile::tempdir().unwrap();
    let (gate, once, requests) = (Gate::default(), Arc::default(), Requests::default());
    gate.open();
    let model = requests.record(Scripted::parse(FORK, "fork").unwrap());
    let builder = open(folder.path())
        .model("m", model)
        .snapshot_after_facts(snapshot_after);
    let kernel = with_fork_tools(builder, &gate, &once)
        .build()
        .await
        .unwrap();
    let facts = finished_run(&kernel, FORKING).await;
    assert_eq!(facts.len(), 3);
    let mut ends = BTreeMap::new();
    for (pid, facts) in &facts {
        let last = facts.len() as u64;
        for at in 0..=last {
            // The copy may make the call as soon as it is there.
            let runs = once.load(Ordering::SeqCst);
            let restored = kernel.copy(Pid(*pid), Some(FactNumber(at))).await.unwrap();
            let (from, point) = copied_from(&kernel, &restored).await;
            assert!(
                from == Pid(*pid) && (at..=last).contains(&point),
                "process {pid} at {at}: {point}"
            );
            let has_ended = point == last;
            let fact = at.checked_sub(1).map(|at| &*facts[at as usize]);
            let end = end_of(&restored, has_ended).await;
            let expected = match (pid, has_ended) {
                (_, true) => "heard more",
                (1, _) => "finished: alpha beta",
                (2, _) => "found alpha",
                _ => "found beta",
            };
            assert_eq!(
                end, expected,
                "process {pid} restored at fact {at}, {fact:?}"
            );
            // Once the reply is there that calls it, the call has begun: it is in the same commit.
            let has_begun = *pid != 1
                || facts[..at as usize]
                    .iter()
                    .filter(|fact| is_reply(fact))
                    .count()
                    >= 2;
            let more = once.load(Ordering::SeqCst) - runs;
            assert_eq!(
                more,
                usize::from(!has_begun),
                "process {pid} restored at fact {at}, {fact:?}"
            );
            ends.insert((*pid, at), end);
        }
        let beyond = kernel.copy(Pid(*pid), Some(FactNumber(last + 1))).await;
        assert!(
            matches!(beyond, Err(KernelError::Store(StoreFailure::Load(_)))),
            "{beyond:?}"
        );
    }
    assert!(matches!(
        kernel.copy(Pid(9_999), None).await,
        Err(KernelError::Store(StoreFailure::Load(_)))
    ));
    for request in requests.all() {
        assert_eq!(
            fault_of(&request),
            None,
            "process {}: {:#?}",
            request.pid,
            request.messages
        );
    }
    ends
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_fact_of_a_run_can_be_restored_and_comes_to_its_end_with_or_without_snapshots() {
    let with_snapshots = restore_all(1).await;
    let without = restore_all(1_000_000).await;
    assert_eq!(with_snapshots, without);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restored_fork_does_not_run_the_children_again_that_had_ended() {
    let folder = tempfile::tempdir().unwrap();
    let (gate, once, requests) = (Gate::default(), Arc::default(), Requests::default());
    gate.open();
    let model = requests.record(Scripted::parse(FORK, "fork").unwrap());
    let kernel = with_fork_tools(open(folder.path()).model("m", model), &gate, &once)
        .build()
        .await
        .unwrap();
    let facts = finished_run(&kernel, FORKING).await;
    let ended = |fact: &Arc<Fact>| matches!(**fact, Fact::Child(ChildFact::Ended { .. }));
    let numbers: Vec<u64> = (1..)
        .zip(&facts[&1])
        .filter(|(_, fact)| ended(fact))
        .map(|(number, _)| number)
        .collect();
    assert_eq!(numbers.len(), 2);
    for number in numbers.clone() {
        let before = kernel.processes().await.unwrap().len();
        let restored = kernel.copy(Pid(1), Some(FactNumber(number))).await.unwrap();
        assert_eq!(
            &*within(restored.wait()).await.unwrap().message,
            "finished: alpha beta"
        );
        let made = kernel.processes().await.unwrap().len() - before - 1;
        // Both may have ended in one commit.
        let (_, point) = copied_from(&kernel, &restored).await;
        let running = numbers.iter().filter(|ended| **ended > point).count();
        assert_eq!(
            made, running,
            "restored at fact {number}, which is at {point}"
        );
    }
}

/// A reply that was cut, declined or paused is restored as what it was: its tool uses do not run,
/// its end is not `done`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reply_that_was_not_complete_is_restored_as_what_it_was() {
    let cases = [
        (StopReason::MaxTokens, false, ExitStatus::Truncated),
        (StopReason::Refusal, false, ExitStatus::Refused),
        (StopReason::ContextWindow, false, ExitStatus::ModelFailed),
        (StopReason::Refusal, true, ExitStatus::Refused),
        (StopReason::MaxTokens, true, ExitStatus::Done),
        (StopReason::Pause, false, ExitStatus::Done),
    ];
    for (stop, with_call, status) in cases {
        let folder = tempfile::tempdir().unwrap();
        let runs = Arc::new(AtomicUsize::new(0));
        let count = runs.clone();
        let tool = FnTool::new("tool", "Counts.", move |()| {
            count.fetch_add(1, Ordering::SeqCst);
            async { Ok::<_, String>("ran") }
        });
        let model = FnModel(move |request: Request| async move {
            let first = if with_call {
                asks(&[("tool", "null")])
            } else {
                says("cut")
            };
            Ok(if request.messages.len() == 1 {
                Reply { stop, ..first }
            } else {
                says("at the end")
            })
        });
        let kernel = open(folder.path())
            .model("m", model)
            .tool(tool)
            .build()
            .await
            .unwrap();
        let facts = finished_run(&kernel, TOOL).await;
        for at in 0..facts[&1].len() as u64 {
            let restored = kernel.copy(Pid(1), Some(FactNumber(at))).await.unwrap();
            // With the reply came the end, in the same commit: the copy waits for what it is told
            // next.
            let has_ended = copied_from(&kernel, &restored).await.1 == facts[&1].len() as u64;
            if has_ended {
                within(restored.input("more")).await.unwrap();
            }
            let exit = within(restored.wait()).await.unwrap();
            let status = if has_ended { ExitStatus::Done } else { status };
            assert_eq!(
                exit.status, status,
                "{stop:?}, with a call: {with_call}, at fact {at}: {exit:?}"
            );
            assert_eq!(
                runs.load(Ordering::SeqCst),
                0,
                "{stop:?} at fact {at}: a cut call never runs"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_kernel_at_a_time_has_a_store() {
    let folder = tempfile::tempdir().unwrap();
    let kernel = open(folder.path())
        .model("m", Scripted::without_script())
        .build()
        .await
        .unwrap();
    let error = LogStore::open(folder.path()).unwrap_err();
    assert!(matches!(error, StoreError::InUse { .. }), "{error}");
    within(kernel.shutdown()).await.unwrap();
    drop(LogStore::open(folder.path()).unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kernel_looks_into_a_store_that_another_one_writes_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let kernel = open(folder.path())
        .model("m", Scripted::without_script())
        .build()
        .await
        .unwrap();
    let process = kernel
        .start(program(&kernel, ""))
        .without_input()
        .session()
        .await
        .unwrap();
    let looking = Kernel::open(LogStore::read_only(folder.path()).unwrap())
        .model("m", Scripted::without_script());
    let looking = looking.build().await.unwrap();
    let seen = looking.processes().await.unwrap();
    assert_eq!(
        seen.iter().map(|info| info.row.pid).collect::<Vec<_>>(),
        [process.pid()]
    );
    looking.inspect(process.pid()).await.unwrap();
    let refused = looking
        .start(program(&looking, ""))
        .without_input()
        .session()
        .await
        .unwrap_err();
    assert!(
        refused.to_string().contains("is open for reading only"),
        "{refused}"
    );
    within(looking.shutdown()).await.unwrap();
    assert_eq!(kernel.processes().await.unwrap().len(), 1);
    within(kernel.shutdown()).await.unwrap();
}

/// Not now and then: every time, whatever was in flight.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_is_free_when_its_kernel_has_shut_down() {
    let folder = tempfile::tempdir().unwrap();
    for round in 0..20 {
        let gate = Gate::default();
        let inside = gate.clone();
        let model = FnModel(move |_| {
            let inside = inside.clone();
            async move {
                inside.pass().await;
                Ok(says("never"))
            }
        });
        let store =
            LogStore::open(folder.path()).unwrap_or_else(|error| panic!("round {round}: {error}"));
        let kernel = Kernel::open(store).model("m", model).build().await.unwrap();
        kernel
            .start(program(&kernel, ""))
            .input("go")
            .await
            .unwrap();
        gate.entered().await;
        within(kernel.shutdown()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_table_and_the_numbers_go_on_after_a_reopening() {
    let folder = tempfile::tempdir().unwrap();
    let heard = || {
        FnModel(|request: Request| async move {
            Ok(says(&format!(
                "heard {}",
                request
                    .messages
                    .iter()
                    .filter(|m| m.text().starts_with("say"))
                    .count()
            )))
        })
    };
    let first = open(folder.path())
        .model("m", heard())
        .build()
        .await
        .unwrap();
    let done = first
        .start(program(&first, ""))
        .input("say 1")
        .await
        .unwrap();
    within(done.wait()).await.unwrap();
    let session = first
        .start(program(&first, ""))
        .without_input()
        .session()
        .await
        .unwrap();
    assert_eq!(dormouse_tests::turn(&session, "say 1").await, "heard 1");
    let last = session.view().unwrap().fact;
    let rows: Vec<_> = first
        .processes()
        .await
        .unwrap()
        .into_iter()
        .map(|info| info.row)
        .collect();
    drop((done, session));
    within(first.shutdown()).await.unwrap();

    let second = open(folder.path())
        .model("m", heard())
        .build()
        .await
        .unwrap();
    let listed = second.processes().await.unwrap();
    assert_eq!(
        listed
            .iter()
            .map(|info| info.row.clone())
            .collect::<Vec<_>>(),
        rows
    );
    assert_eq!(
        listed
            .iter()
            .map(|info| info.status.word())
            .collect::<Vec<_>>(),
        ["done", "held"]
    );
    let done = second.process(Pid(1)).await.unwrap();
    assert_eq!(&*within(done.wait()).await.unwrap().message, "heard 1");
    assert!(matches!(
        done.kill().await,
        Err(KernelError::Process(ProcessError::Ended(Pid(1))))
    ));
    assert!(matches!(
        second.process(Pid(3)).await,
        Err(KernelError::NotFound(NotFound::Process(Pid(3))))
    ));
    // A message wakes a session that is only its journal, and its facts go on from where they were.
    let session = second.process(Pid(2)).await.unwrap();
    assert!(session.view().is_none());
    let mut events = session.events();
    within(session.input("say 2")).await.unwrap();
    let (mut numbers, mut started) = (Vec::new(), 0);
    let outcome = within(async {
        loop {
            match events.next().await.unwrap() {
                Event::Started { .. } => started += 1,
                Event::Fact { number, .. } => numbers.push(number.0),
                Event::TurnEnded { outcome, .. } => return outcome,
                _ => {}
            }
        }
    });
    assert_eq!((&*outcome.await.message, started), ("heard 2", 1));
    assert_eq!(
        numbers,
        (last.0 + 1..=last.0 + numbers.len() as u64).collect::<Vec<_>>()
    );
    let next = second
        .start(program(&second, ""))
        .without_input()
        .await
        .unwrap();
    assert_eq!(next.pid(), Pid(3), "a pid is never used again");
}

const CANARY: &str = "sk-canary-5f2b7c1e9d";

fn files_below(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files_below(&path, found)
        } else {
            found.push(path)
        }
    }
}

/// The run with the key in its environment is a process of its own, since a test cannot set
/// variables for itself alone.
#[test]
fn the_key_of_the_provider_is_in_no_byte_of_the_store() {
    let folder = tempfile::tempdir().unwrap();
    let run = std::process::Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "durability::run_with_a_key_in_the_environment",
            "--nocapture",
        ])
        .envs([
            ("ANTHROPIC_API_KEY", CANARY),
            ("DORMOUSE_TEST_STORE", folder.path().to_str().unwrap()),
        ])
        .output()
        .unwrap();
    assert!(
        run.status.success(),
        "{}",
        String::from_utf8_lossy(&run.stdout)
    );
    let mut files = Vec::new();
    files_below(folder.path(), &mut files);
    let bytes: Vec<_> = files
        .iter()
        .map(|file| std::fs::read(file).unwrap())
        .collect();
    let holds = |bytes: &[u8], text: &str| {
        bytes
            .windows(text.len())
            .any(|window| window == text.as_bytes())
    };
    assert!(
        bytes.iter().any(|bytes| holds(bytes, "the turn is over")),
        "the run stands in the store"
    );
    assert!(
        bytes.iter().any(|bytes| holds(bytes, "PATH=")),
        "what the command printed stands in the store"
    );
    for (file, bytes) in files.iter().zip(&bytes) {
        assert!(!holds(bytes, CANARY), "{} holds the key", file.display());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_with_a_key_in_the_environment() {
    let Some(folder) = std::env::var_os("DORMOUSE_TEST_STORE") else {
        return;
    };
    assert_eq!(std::env::var("ANTHROPIC_API_KEY").as_deref(), Ok(CANARY));
    let script = "[[turn]]\nwhen.round = 0\ncalls = [{ tool = \"environment\" }, { tool = \
         \"create_temp_file\", args = { content = \"begun\" } }]\n[[turn]]\ntext = \"the turn is \
         over\"\n";
    let host = LocalHost::new(Permissions::none().allow_run("env"), ".").unwrap();
    let builder = open(Path::new(&folder))
        .model("m", Scripted::parse(script, "s").unwrap())
        .host(host);
    let kernel = builder.snapshot_after_facts(1).build().await.unwrap();
    let rest = "[tools]\nenabled = [\"create_temp_file\"]\n[env_info]\nvariables = \
         \"all\"\n[[tools.command]]\nname = \"environment\"\ndescription = \"Prints it.\"\nargv = \
         [\"env\"]\n";
    let process = kernel
        .start(program(&kernel, rest))
        .input("go")
        .await
        .unwrap();
    assert_eq!(
        &*within(process.wait()).await.unwrap().message,
        "the turn is over"
    );
    drop(process);
    within(kernel.shutdown()).await.unwrap();
}
