//! Time travel and signals with real actors: going back, stopping and continuing one or a tree,
//! forks by the host, and when the children of a fork begin.

use std::future::ready;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use dormouse::host::{LocalHost, Permissions};
use dormouse::id::{FactNumber, Pid};
use dormouse::model::{Delta, ModelError, Reply, Request};
use dormouse::ports::Model;
use dormouse::process::{ExitStatus, Origin};
use dormouse::store::{LogStore, MemoryStore};
use dormouse::{
    FnTool, Kernel, KernelBuilder, KernelError, Process, ProcessError, ProcessView, StoreFailure,
};
use dormouse_tests::faulty::{Fate, Faulty, Operation, disk_full};
use dormouse_tests::{
    FnModel, Gate, Requests, asks, check_histories, program, results, says, turn, within,
};
use futures_util::future::{BoxFuture, FutureExt};
use tokio::sync::Semaphore;
use tokio::time::Instant;

const GOTO: &str = "[tools]\nenabled = [\"goto\"]\n";
const TOOL: &str = "[tools]\nenabled = [\"tool\"]\n";
const FORK: &str = "[tools]\nenabled = [\"fork\"]\n";

fn open(folder: &Path) -> KernelBuilder {
    Kernel::open(LogStore::open(folder).unwrap())
}

/// Says what was said to it last.
fn echo() -> impl Model {
    FnModel(|request: Request| async move { Ok(says(&request.messages.last().unwrap().text())) })
}

/// A tool that stands at the gate.
fn gated(gate: &Gate) -> impl dormouse::ports::Tool + use<> {
    let gate = gate.clone();
    FnTool::new("tool", "Waits.", move |()| {
        let gate = gate.clone();
        async move {
            gate.pass().await;
            Ok::<_, String>("done")
        }
    })
}

/// Calls `tool` once, then says what came of it.
fn once() -> impl Model {
    FnModel(|request: Request| async move {
        Ok(match results(&request, 0).as_slice() {
            [] => asks(&[("tool", "{}")]),
            answers => says(&format!("{answers:?}")),
        })
    })
}

/// Starts a process of the program `toml` with an input.
async fn start(kernel: &Kernel, toml: &str) -> Process {
    let start = kernel.start(program(kernel, toml));
    start.input("go").await.unwrap()
}

async fn status(kernel: &Kernel, pid: Pid) -> &'static str {
    let listed = kernel.processes().await.unwrap();
    listed
        .iter()
        .find(|info| info.row.pid == pid)
        .unwrap()
        .status
        .word()
}

#[tokio::test]
async fn a_host_sends_a_session_back_and_it_is_there_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let requests = Requests::default();
    let kernel = open(folder.path())
        .model("m", requests.record(echo()))
        .build()
        .await
        .unwrap();
    let session = kernel
        .start(program(&kernel, GOTO))
        .session()
        .without_input()
        .await
        .unwrap();
    for said in ["one", "two", "three"] {
        turn(&session, said).await;
    }
    let cases = [
        ("msg:7", "future_position"),
        ("msg:6", "current_position"),
        ("six", "unknown_position"),
    ];
    for (position, word) in cases {
        let answer = within(session.goto(position, "again")).await.unwrap();
        assert!(
            answer.is_error && answer.text.contains(word),
            "{position}: {answer:?}"
        );
    }
    let answer = within(session.goto("msg:2", "and now four")).await.unwrap();
    assert_eq!(&*answer.text, "<goto from=\"msg:6\" to=\"msg:2\"/>");
    within(session.wait_for(|view| view.is_idle() && view.messages == 4))
        .await
        .unwrap();
    let last = requests.all().pop().unwrap();
    let said: Vec<_> = last.messages.iter().map(|message| message.text()).collect();
    assert!(
        said[0].starts_with("one") && said[2].starts_with("<goto") && said[2].contains("four"),
        "{said:?}"
    );
    check_histories(&requests);
    let pid = session.pid();
    within(kernel.shutdown()).await.unwrap();

    let kernel = open(folder.path())
        .model("m", echo())
        .build()
        .await
        .unwrap();
    let session = within(kernel.resume(pid)).await.unwrap();
    assert_eq!(session.view().unwrap().messages, 4, "DUR-2");
    assert!(turn(&session, "five").await.contains("[msg:5]"));
}

#[tokio::test]
async fn a_reply_that_comes_after_its_process_was_sent_back_is_dropped() {
    let gate = Gate::default();
    let hold = gate.clone();
    let model = FnModel(move |request: Request| {
        let hold = hold.clone();
        async move {
            let said = request.messages.last().unwrap().text();
            if said.starts_with("slow") {
                hold.pass().await;
            }
            Ok(says(&said))
        }
    });
    let kernel = Kernel::builder().model("m", model).build().await.unwrap();
    let session = kernel
        .start(program(&kernel, GOTO))
        .session()
        .without_input()
        .await
        .unwrap();
    turn(&session, "quick").await;
    session.input("slow").await.unwrap();
    within(gate.entered()).await;
    let answer = within(session.goto("msg:1", "otherwise")).await.unwrap();
    assert!(
        !answer.is_error,
        "a model that hangs delays nothing: {answer:?}"
    );
    gate.open();
    let view = within(session.wait_for(|view| view.is_idle() && view.messages == 3))
        .await
        .unwrap();
    assert_eq!(view.messages, 3, "CALL-1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_process_stays_stopped_through_a_restart_and_goes_on_when_it_is_continued() {
    let folder = tempfile::tempdir().unwrap();
    let (gate, opened) = (Gate::default(), Gate::default());
    let hold = gate.clone();
    let model = FnModel(move |request: Request| {
        let hold = hold.clone();
        async move {
            hold.pass().await;
            Ok(match results(&request, 0).as_slice() {
                [] => asks(&[("tool", "{}")]),
                answers => says(&format!("{answers:?}")),
            })
        }
    });
    let requests = Requests::default();
    let kernel = open(folder.path())
        .model("m", requests.record(model))
        .tool(gated(&opened))
        .build()
        .await
        .unwrap();
    let process = start(&kernel, TOOL).await;
    let pid = process.pid();
    within(gate.entered()).await;
    within(process.stop()).await.unwrap();
    assert_eq!(
        status(&kernel, pid).await,
        "stopped",
        "a model that hangs does not delay it"
    );
    gate.open();
    let view = within(process.wait_for(|view| view.messages == 2))
        .await
        .unwrap();
    assert!(view.stopped, "its reply is recorded");
    within(process.input("more")).await.unwrap();
    within(kernel.shutdown()).await.unwrap();

    let kernel = open(folder.path())
        .model("m", requests.record(once()))
        .tool(gated(&opened))
        .build()
        .await
        .unwrap();
    assert_eq!(
        within(kernel.inspect(pid)).await.unwrap().status().word(),
        "stopped"
    );
    let process = within(kernel.resume(pid)).await.unwrap();
    let view = within(process.wait_for(|view| view.stopped)).await.unwrap();
    assert_eq!(
        (
            view.status().word(),
            view.waiting_messages,
            requests.all().len()
        ),
        ("stopped", 1, 1)
    );
    opened.open();
    within(process.cont()).await.unwrap();
    let exit = within(process.wait()).await.unwrap();
    assert_eq!(exit.status, ExitStatus::Done, "{exit:?}");
    assert!(
        results(&requests.all()[1], 0)[0].0.contains("done"),
        "the tool ran once it was continued"
    );
    assert!(matches!(
        process.stop().await,
        Err(KernelError::Process(ProcessError::Ended(_)))
    ));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stop_reaches_one_that_sleeps_before_it_begins_anything() {
    let folder = tempfile::tempdir().unwrap();
    let (gate, requests) = (Gate::default(), Requests::default());
    let hold = gate.clone();
    let model = FnModel(move |_| {
        let hold = hold.clone();
        async move {
            hold.pass().await;
            Ok(says("done"))
        }
    });
    let kernel = open(folder.path()).model("m", model).build().await.unwrap();
    let pid = start(&kernel, "").await.pid();
    within(gate.entered()).await;
    within(kernel.shutdown()).await.unwrap();

    let kernel = open(folder.path())
        .model("m", requests.record(echo()))
        .build()
        .await
        .unwrap();
    let process = kernel.process(pid).await.unwrap();
    within(process.stop()).await.unwrap();
    within(process.wait_for(|view| view.stopped)).await.unwrap();
    assert!(requests.all().is_empty());
    within(process.cont()).await.unwrap();
    assert_eq!(
        within(process.wait()).await.unwrap().status,
        ExitStatus::Done
    );
    assert_eq!(
        requests.all().len(),
        1,
        "what had been in flight is asked again"
    );
}

/// Forks three children; each stands at the gate before it replies.
fn forking(gate: &Gate) -> impl Model + use<> {
    let gate = gate.clone();
    FnModel(move |request: Request| {
        let gate = gate.clone();
        async move {
            if request.pid != Pid(1) {
                gate.pass().await;
                return Ok(says("a child's word"));
            }
            Ok(match results(&request, 0).as_slice() {
                [] => asks(&[("fork", r#"{"prompts": ["a", "b", "c"]}"#)]),
                [(text, _)] => says(text),
                _ => says("?"),
            })
        }
    })
}

async fn children(kernel: &Kernel) -> Vec<Process> {
    let mut children = Vec::new();
    for pid in 2..=4 {
        children.push(kernel.process(Pid(pid)).await.unwrap());
    }
    children
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tree_is_stopped_continued_interrupted_and_killed_as_one() {
    for end in [
        None,
        Some(ExitStatus::Interrupted),
        Some(ExitStatus::Killed),
    ] {
        let (gate, requests) = (Gate::default(), Requests::default());
        let kernel = Kernel::builder()
            .model("m", requests.record(forking(&gate)))
            .build()
            .await
            .unwrap();
        let parent = start(&kernel, FORK).await;
        within(gate.entered()).await;
        let children = children(&kernel).await;
        within(parent.tree().stop()).await.unwrap();
        let listed = kernel.processes().await.unwrap();
        let table: Vec<_> = listed
            .iter()
            .map(|info| (info.row.pid.0, info.status.word()))
            .collect();
        assert_eq!(
            table,
            [
                (1, "stopped"),
                (2, "stopped"),
                (3, "stopped"),
                (4, "stopped")
            ]
        );
        match end {
            None => {
                within(parent.tree().cont()).await.unwrap();
                gate.open();
                let exit = within(parent.wait()).await.unwrap();
                assert_eq!(
                    exit.message.matches("a child's word").count(),
                    3,
                    "{exit:?}"
                );
            }
            Some(ExitStatus::Interrupted) => within(parent.tree().interrupt()).await.unwrap(),
            Some(_) => within(parent.tree().kill()).await.unwrap(),
        }
        assert_eq!(
            within(parent.wait()).await.unwrap().status,
            end.unwrap_or(ExitStatus::Done)
        );
        for child in children {
            let exit = within(child.wait()).await.unwrap();
            assert!(
                end.is_none() == (exit.status == ExitStatus::Done),
                "{exit:?}"
            );
        }
        check_histories(&requests);
        assert!(matches!(
            parent.tree().stop().await,
            Err(KernelError::Process(ProcessError::Ended(Pid(1))))
        ));
    }
}

/// No process of the tree can make the signal durable: each stops, and answers nothing.
#[tokio::test]
async fn a_signal_that_a_tree_does_not_keep_is_an_error_of_the_first_that_did_not() {
    let (gate, is_full) = (Gate::default(), Arc::new(Mutex::new(false)));
    let full = is_full.clone();
    let store = Faulty::new(MemoryStore::new(), move |_, operation| match operation {
        Operation::Commit { .. } if *full.lock().unwrap() => Fate::Fail(disk_full()),
        _ => Fate::Pass,
    });
    let kernel = Kernel::open(store)
        .model("m", forking(&gate))
        .build()
        .await
        .unwrap();
    let parent = start(&kernel, FORK).await;
    within(gate.entered()).await;
    children(&kernel).await;
    *is_full.lock().unwrap() = true;
    let error = within(parent.tree().stop()).await.unwrap_err();
    assert!(
        matches!(
            error,
            KernelError::Process(ProcessError::Unanswered(Pid(1)))
        ),
        "{error}"
    );
}

/// A store whose commits and journals stand still while it is held.
#[derive(Clone, Default)]
struct Held {
    inner: Arc<MemoryStore>,
    door: Door,
}

#[derive(Clone, Default)]
struct Door {
    held: Arc<(Mutex<bool>, Condvar)>,
    entered: Arc<std::sync::OnceLock<Arc<Semaphore>>>,
}

impl Held {
    fn store(&self) -> Faulty<Arc<MemoryStore>> {
        let door = self.door.clone();
        Faulty::new(self.inner.clone(), move |_, operation| {
            if matches!(operation, Operation::Commit { .. } | Operation::Journal) {
                door.stand();
            }
            Fate::Pass
        })
    }
}

impl Door {
    fn entered(&self) -> Arc<Semaphore> {
        self.entered
            .get_or_init(|| Arc::new(Semaphore::new(0)))
            .clone()
    }

    fn hold(&self, is_held: bool) {
        *self.held.0.lock().unwrap() = is_held;
        self.held.1.notify_all();
    }

    fn stand(&self) {
        let mut held = self.held.0.lock().unwrap();
        if *held {
            self.entered().add_permits(1);
        }
        while *held {
            held = self.held.1.wait(held).unwrap();
        }
    }
}

#[tokio::test]
async fn children_that_are_on_their_way_while_their_tree_is_stopped_are_born_stopped() {
    let (gate, first, requests) = (Gate::default(), Gate::default(), Requests::default());
    gate.open();
    let (hold, inner) = (first.clone(), Arc::new(forking(&gate)));
    let model = FnModel(move |request: Request| {
        let (hold, inner) = (hold.clone(), inner.clone());
        async move {
            hold.pass().await;
            inner.call(request, &|_| {}).await
        }
    });
    let store = Held::default();
    let kernel = Kernel::open(store.store())
        .model("m", requests.record(model))
        .build()
        .await
        .unwrap();
    let parent = start(&kernel, FORK).await;
    within(first.entered()).await;
    store.door.hold(true);
    first.open();
    within(store.door.entered().acquire_owned())
        .await
        .unwrap()
        .forget();
    let tree = parent.tree();
    let mut stop = std::pin::pin!(tree.stop());
    // The facts of the fork are not durable: no child is in the table yet.
    assert!(stop.as_mut().now_or_never().is_none());
    assert_eq!(kernel.processes().await.unwrap().len(), 1);
    store.door.hold(false);
    within(stop).await.unwrap();
    within(async {
        while kernel.processes().await.unwrap().len() < 4 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    for child in children(&kernel).await {
        within(child.wait_for(|view| view.stopped)).await.unwrap();
    }
    assert_eq!(requests.all().len(), 1, "no child asked a model");
    within(parent.tree().cont()).await.unwrap();
    assert_eq!(
        within(parent.wait()).await.unwrap().status,
        ExitStatus::Done
    );
}

#[tokio::test]
async fn a_shutdown_waits_for_whoever_still_reads_the_store() {
    let store = Held::default();
    let kernel = Kernel::open(store.store())
        .model("m", echo())
        .build()
        .await
        .unwrap();
    let pid = kernel
        .start(program(&kernel, ""))
        .session()
        .without_input()
        .await
        .unwrap()
        .pid();
    within(kernel.shutdown()).await.unwrap();
    let kernel = Kernel::open(store.store())
        .model("m", echo())
        .build()
        .await
        .unwrap();
    store.door.hold(true);
    let resuming = tokio::spawn({
        let kernel = kernel.clone();
        async move { kernel.resume(pid).await.map(drop) }
    });
    within(store.door.entered().acquire_owned())
        .await
        .unwrap()
        .forget();
    let shutdown = tokio::spawn(kernel.shutdown());
    assert!(
        within(resuming).await.unwrap().is_err(),
        "the supervisor is gone"
    );
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    let is_early = shutdown.is_finished();
    store.door.hold(false);
    within(shutdown).await.unwrap().unwrap();
    assert!(
        !is_early,
        "a journal was being read: no other kernel could open the store"
    );
    assert_eq!(Arc::strong_count(&store.inner), 1, "nobody holds the store");
}

#[tokio::test]
async fn a_fork_by_the_host_goes_on_alone_and_neither_side_sees_the_other() {
    let store: fn() -> KernelBuilder = || Kernel::open(MemoryStore::new());
    for builder in [Kernel::builder, store] {
        let kernel = builder().model("m", echo()).build().await.unwrap();
        let rest = "[tools]\nenabled = [\"read_fd\"]\n";
        let session = kernel
            .start(program(&kernel, rest))
            .session()
            .without_input()
            .await
            .unwrap();
        turn(&session, "one").await;
        session.open("a", "text", None).await.unwrap();
        session.stop().await.unwrap();
        let copy = within(session.fork()).await.unwrap();
        let row = kernel.processes().await.unwrap().pop().unwrap().row;
        assert_eq!((row.pid, row.parent), (copy.pid(), None));
        assert!(matches!(row.origin, Origin::Copied { from, .. } if from == session.pid()));
        assert_eq!(turn(&copy, "two").await, "two", "it runs");
        assert!(
            copy.call("read_fd", r#"{"fd": "fd:1"}"#)
                .await
                .unwrap()
                .text
                .contains("text")
        );
        let (here, there) = (session.view().unwrap(), copy.view().unwrap());
        assert_eq!(
            (here.messages, here.stopped, there.messages),
            (2, true, 4),
            "FORK-1"
        );
        session.kill().await.unwrap();
        within(session.wait()).await.unwrap();
        assert_eq!(turn(&copy, "three").await, "three");
    }
}

#[tokio::test]
async fn a_fork_by_the_host_in_the_middle_of_a_call_is_told_that_it_was_interrupted() {
    let (gate, requests) = (Gate::default(), Requests::default());
    let kernel = Kernel::builder()
        .model("m", requests.record(once()))
        .tool(gated(&gate))
        .build()
        .await
        .unwrap();
    let process = start(&kernel, TOOL).await;
    within(gate.entered()).await;
    let copy = within(process.fork()).await.unwrap();
    let exit = within(copy.wait()).await.unwrap();
    assert!(
        exit.message.contains("effect is unknown"),
        "CALL-2: {exit:?}"
    );
    gate.open();
    assert_eq!(
        &*within(process.wait()).await.unwrap().message,
        r#"[("done", false)]"#
    );
    check_histories(&requests);
    let error = within(process.fork()).await.unwrap_err();
    assert!(
        matches!(error, KernelError::Store(StoreFailure::NoStore)),
        "one that has ended is only its journal: {error}"
    );
}

/// What the first child of a fork does before it replies; the others reply at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum First {
    Speaks,
    IsSilent,
    Replies,
}

/// Keeps which process asked when.
#[derive(Clone)]
struct Forking {
    first: First,
    gate: Gate,
    asked: Arc<Mutex<Vec<(u64, Duration)>>>,
    began: Instant,
}

impl Forking {
    fn new(first: First) -> Self {
        Self {
            first,
            gate: Gate::default(),
            asked: Arc::default(),
            began: Instant::now(),
        }
    }

    fn asked(&self) -> Vec<(u64, Duration)> {
        let mut asked = self.asked.lock().unwrap().clone();
        asked.sort_unstable();
        asked
    }

    /// Awaits that so many children have asked.
    async fn wait_for(&self, count: usize) {
        within(async {
            while self.asked().len() < count {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await;
    }
}

impl Model for Forking {
    fn call<'a>(
        &'a self,
        request: Request,
        deltas: &'a (dyn Fn(Delta) + Send + Sync),
    ) -> BoxFuture<'a, Result<Reply, ModelError>> {
        if request.pid == Pid(1) {
            let reply = match results(&request, 0).as_slice() {
                [] => asks(&[("fork", r#"{"prompts": ["a", "b", "c"]}"#)]),
                _ => says("all"),
            };
            return ready(Ok(reply)).boxed();
        }
        self.asked
            .lock()
            .unwrap()
            .push((request.pid.0, self.began.elapsed()));
        let is_first = request.pid == Pid(2);
        if is_first && self.first == First::Speaks {
            deltas(Delta::Text("w".to_owned()));
        }
        async move {
            if is_first && self.first != First::Replies {
                self.gate.pass().await;
            }
            Ok(says("word"))
        }
        .boxed()
    }
}

async fn fork_of_three(model: &Forking, limits: &str) -> (Kernel, Process) {
    let kernel = Kernel::builder()
        .model("m", model.clone())
        .build()
        .await
        .unwrap();
    let parent = start(&kernel, &format!("{FORK}{limits}")).await;
    (kernel, parent)
}

/// Time stands still in these tests until nothing else can happen: what is measured is what was
/// waited for.
#[tokio::test(start_paused = true)]
async fn the_others_of_a_fork_begin_when_something_has_come_of_the_first() {
    let hold = Duration::from_secs(2);
    let all = "[limits]\nfork_release = \"all\"\n";
    let cases = [
        (First::Speaks, "", false),
        (First::Replies, "", false),
        (First::IsSilent, all, false),
        (First::IsSilent, "", true),
        (
            First::IsSilent,
            "[limits]\nfork_release = \"first\"\n",
            true,
        ),
    ];
    for (first, limits, waits) in cases {
        let model = Forking::new(first);
        let (_kernel, parent) = fork_of_three(&model, limits).await;
        model.wait_for(3).await;
        let asked = model.asked();
        assert_eq!(
            asked.iter().map(|(pid, _)| *pid).collect::<Vec<_>>(),
            [2, 3, 4]
        );
        assert!(asked[0].1 < hold, "{first:?}: {asked:?}");
        for (_, after) in &asked[1..] {
            assert_eq!(*after >= hold, waits, "{first:?} {limits}: {asked:?}");
        }
        model.gate.open();
        assert_eq!(
            within(parent.wait()).await.unwrap().status,
            ExitStatus::Done
        );
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_is_held_back_is_released_by_the_end_of_the_first_and_by_a_signal_of_its_own() {
    let model = Forking::new(First::IsSilent);
    let (kernel, parent) = fork_of_three(&model, "").await;
    within(model.gate.entered()).await;
    let held = kernel.process(Pid(3)).await.unwrap();
    within(held.kill()).await.unwrap();
    assert_eq!(
        within(held.wait()).await.unwrap().status,
        ExitStatus::Killed
    );
    assert_eq!(
        model.asked().len(),
        1,
        "it asked nothing, and the last is still held back"
    );
    within(kernel.process(Pid(2)).await.unwrap().kill())
        .await
        .unwrap();
    assert_eq!(
        within(parent.wait()).await.unwrap().status,
        ExitStatus::Done
    );
    let asked = model.asked();
    assert_eq!(
        asked.iter().map(|(pid, _)| *pid).collect::<Vec<_>>(),
        [2, 4]
    );
    assert!(asked[1].1 < Duration::from_secs(2), "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn a_first_child_that_waits_for_a_model_permit_holds_nobody_back_for_ever() {
    let (blocking, parents) = (Gate::default(), Gate::default());
    let (block, pass, inner) = (
        blocking.clone(),
        parents.clone(),
        Forking::new(First::Replies),
    );
    let model = FnModel(move |request: Request| {
        let (block, pass, inner) = (block.clone(), pass.clone(), inner.clone());
        async move {
            match request.messages[0].text().as_str() {
                "block" => block.pass().await,
                _ if request.pid == Pid(1) => pass.pass().await,
                _ => {}
            }
            if request.pid == Pid(2) {
                Ok(says("blocked"))
            } else {
                inner.call(request, &|_| {}).await
            }
        }
    });
    let kernel = Kernel::builder()
        .model("m", model)
        .model_calls(1)
        .build()
        .await
        .unwrap();
    let parent = start(&kernel, FORK).await;
    within(parents.entered()).await;
    // It is the next to get the permit when the parent has replied.
    let blocker = kernel
        .start(program(&kernel, ""))
        .input("block")
        .await
        .unwrap();
    parents.open();
    within(blocking.entered()).await;
    for pid in 3..=5 {
        within(async {
            while kernel
                .processes()
                .await
                .unwrap()
                .iter()
                .all(|info| info.row.pid != Pid(pid) || info.view.is_none())
            {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await;
    }
    blocking.open();
    assert_eq!(
        within(parent.wait()).await.unwrap().status,
        ExitStatus::Done
    );
    assert_eq!(
        within(blocker.wait()).await.unwrap().status,
        ExitStatus::Done
    );
}

#[tokio::test]
async fn a_process_keeps_the_program_that_it_was_born_with_whatever_becomes_of_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let (file, state) = (folder.path().join("main.toml"), folder.path().join("state"));
    let write = |system: &str, tokens: u32, tools: &str| {
        let text = format!(
            "[model]\nname = \"m\"\nprovider = \"scripted\"\n[prompt]\nsystem = \
             \"{system}\"\n[parameters]\nmax_tokens = {tokens}\n[tools]\nenabled = [{tools}]\n"
        );
        std::fs::write(&file, text).unwrap();
    };
    let kernel = |requests: &Requests| {
        let host = LocalHost::new(Permissions::none(), folder.path()).unwrap();
        open(&state)
            .host(host)
            .model("m", requests.record(echo()))
            .build()
    };
    let requests = Requests::default();
    write("The first.", 10, "\"read_fd\"");
    let first = kernel(&requests).await.unwrap();
    let loaded = first.load(&file).unwrap().program;
    let session = first.start(loaded).session().without_input().await.unwrap();
    turn(&session, "one").await;
    write("The second.", 20, "\"read_fd\", \"goto\"");
    turn(&session, "two").await;
    let pid = session.pid();
    within(first.shutdown()).await.unwrap();

    let second = kernel(&requests).await.unwrap();
    turn(&within(second.resume(pid)).await.unwrap(), "three").await;
    let restored = within(second.copy(pid, Some(FactNumber(2)))).await.unwrap();
    within(restored.wait_for(ProcessView::is_idle))
        .await
        .unwrap();
    let forked = within(restored.fork()).await.unwrap();
    turn(&forked, "four").await;
    std::fs::remove_file(&file).unwrap();
    turn(&forked, "five").await;
    let asked = requests.all();
    assert!(asked.len() >= 6, "{asked:?}");
    for request in &asked {
        assert_eq!(
            (&request.system, &request.tools),
            (&asked[0].system, &asked[0].tools),
            "HIST-1"
        );
        assert_eq!(request.parameters, asked[0].parameters);
        assert!(request.system.starts_with("The first."));
    }
}
