//! Processes that sleep: who may, what wakes them, and that nothing is lost in between.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use dormouse::host::{LocalHost, Permissions};
use dormouse::id::Pid;
use dormouse::model::Request;
use dormouse::ports::Model;
use dormouse::process::ExitStatus;
use dormouse::store::{LogStore, MemoryStore};
use dormouse::{
    Event, FnTool, Kernel, KernelBuilder, KernelError, Process, ProcessError, ProcessView,
    Recovery, RecoveryAction, StoreFailure,
};
use dormouse_tests::faulty::{Fate, Faulty, Operation, disk_full};
use dormouse_tests::{
    FnModel, Gate, Requests, asks, check_histories, events_until, program, says, turn, within,
};

fn open(folder: &Path) -> KernelBuilder {
    Kernel::open(LogStore::open(folder).unwrap())
}

fn in_memory() -> KernelBuilder {
    Kernel::open(MemoryStore::new())
}

/// Says how many messages the conversation has.
fn counts() -> impl Model {
    FnModel(|request: Request| async move { Ok(says(&request.messages.len().to_string())) })
}

async fn session(kernel: &Kernel) -> Process {
    kernel
        .start(program(kernel, ""))
        .session()
        .without_input()
        .await
        .unwrap()
}

async fn status(kernel: &Kernel, pid: Pid) -> &'static str {
    let listed = kernel.processes().await.unwrap();
    listed
        .into_iter()
        .find(|info| info.row.pid == pid)
        .unwrap()
        .status
        .word()
}

/// Awaits that a process has fallen asleep; its handle knows.
#[track_caller]
fn asleep(process: &Process) -> impl Future<Output = ProcessView> {
    let process = process.clone();
    within(async move { process.wait_for(|view| view.hibernated).await.unwrap() })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_sleeps_on_demand_and_a_message_wakes_it_with_all_it_knew() {
    let folder = tempfile::tempdir().unwrap();
    let kernel = open(folder.path())
        .model("m", counts())
        .build()
        .await
        .unwrap();
    let tools = "[tools]\nenabled = [\"read_fd\"]\n";
    let session = kernel
        .start(program(&kernel, tools))
        .session()
        .without_input()
        .await
        .unwrap();
    let (pid, events) = (session.pid(), kernel.events());
    assert_eq!(turn(&session, "one").await, "1");
    session.open("note", "what was noted", None).await.unwrap();
    within(session.hibernate()).await.unwrap();
    within(session.hibernate())
        .await
        .expect("once more changes nothing");
    assert_eq!(status(&kernel, pid).await, "hibernated");
    let view = session.view().unwrap();
    assert_eq!(
        (
            view.hibernated,
            view.descriptors,
            view.list_descriptors().len()
        ),
        (true, 1, 0)
    );
    assert_eq!(
        kernel.inspect(pid).await.unwrap().list_descriptors().len(),
        1
    );

    assert_eq!(turn(&session, "two").await, "3");
    within(session.hibernate()).await.unwrap();
    drop(session);
    // Nothing of it is in memory now.
    let session = kernel.process(pid).await.unwrap();
    assert_eq!(
        (session.view(), status(&kernel, pid).await),
        (None, "hibernated")
    );
    assert_eq!(turn(&session, "three").await, "5");
    let answer = session
        .call("read_fd", r#"{"fd": "fd:1", "read_all": true}"#)
        .await
        .unwrap();
    assert!(answer.text.contains("what was noted"), "{answer:?}");
    within(session.kill()).await.unwrap();
    let seen = events_until(events, |event| matches!(event, Event::Exited { .. })).await;
    let word = |event: &Event| match event {
        Event::Hibernated { .. } => Some("hibernated"),
        Event::Woke { .. } => Some("woke"),
        Event::Started { .. } => Some("started"),
        _ => None,
    };
    assert_eq!(
        seen.iter().filter_map(word).collect::<Vec<_>>(),
        ["hibernated", "woke", "hibernated", "woke"]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_that_is_pending_keeps_a_process_awake() {
    let gate = Gate::default();
    let model = |gate: Gate| {
        FnModel(move |_| {
            let gate = gate.clone();
            async move {
                gate.pass().await;
                Ok(says("done"))
            }
        })
    };
    let refused = |error: Result<(), KernelError>, why: &str| {
        let error = error.unwrap_err();
        assert!(
            matches!(&error, KernelError::Process(ProcessError::Pending { .. }))
                && error.to_string().contains(why),
            "{why}: {error}"
        );
    };
    let kernel = in_memory()
        .model("m", model(gate.clone()))
        .build()
        .await
        .unwrap();
    let thinking = session(&kernel).await;
    thinking.input("go").await.unwrap();
    within(gate.entered()).await;
    refused(within(thinking.hibernate()).await, "middle of a turn");
    thinking.stop().await.unwrap();
    refused(within(thinking.hibernate()).await, "calls are in flight");
    thinking.input("and more").await.unwrap();
    refused(within(thinking.hibernate()).await, "messages wait");
    gate.open();
    thinking.cont().await.unwrap();
    within(thinking.wait_for(|view| view.is_idle() && view.messages == 4))
        .await
        .unwrap();
    within(thinking.hibernate()).await.unwrap();

    let timed = program(&kernel, "[budget]\nwall_time = \"1h\"\n");
    let timed = kernel.start(timed).session().without_input().await.unwrap();
    assert_eq!(turn(&timed, "go").await, "done");
    within(timed.hibernate())
        .await
        .expect("its wall time stands still");
    timed.kill().await.unwrap();
    within(timed.wait()).await.unwrap();
    assert!(matches!(
        within(timed.hibernate()).await,
        Err(KernelError::Process(ProcessError::Ended(_)))
    ));

    let kernel = Kernel::builder()
        .model("m", model(gate))
        .hibernate_after(Duration::ZERO)
        .build()
        .await
        .unwrap();
    let unkept = session(&kernel).await;
    assert!(matches!(
        within(unkept.hibernate()).await,
        Err(KernelError::Store(StoreFailure::NoStore))
    ));
    assert_eq!(turn(&unkept, "go").await, "done");
    assert_eq!(status(&kernel, unkept.pid()).await, "idle");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_was_stopped_sleeps_in_the_middle_of_its_turn_and_goes_on_when_it_is_continued() {
    let gate = Gate::default();
    let requests = Requests::default();
    let model = FnModel(|request: Request| async move {
        Ok(if request.messages.len() == 1 {
            asks(&[("tool", "{}")])
        } else {
            says("done")
        })
    });
    let tool = {
        let gate = gate.clone();
        FnTool::new("tool", "Waits.", move |()| {
            let gate = gate.clone();
            async move {
                gate.pass().await;
                Ok::<_, String>("found")
            }
        })
    };
    let kernel = in_memory()
        .model("m", requests.record(model))
        .tool(tool)
        .build()
        .await
        .unwrap();
    let session = kernel
        .start(program(&kernel, "[tools]\nenabled = [\"tool\"]\n"))
        .session()
        .input("go")
        .await
        .unwrap();
    within(gate.entered()).await;
    session.stop().await.unwrap();
    gate.open();
    within(session.wait_for(|view| view.messages == 3))
        .await
        .unwrap();
    within(session.hibernate()).await.unwrap();
    assert_eq!(
        status(&kernel, session.pid()).await,
        "stopped",
        "which says more than that it sleeps"
    );
    assert!(session.view().is_some_and(|view| view.stopped));
    assert_eq!(requests.all().len(), 1);
    session.cont().await.unwrap();
    within(session.wait_for(|view| view.is_idle() && view.messages == 4))
        .await
        .unwrap();
    check_histories(&requests);
}

#[tokio::test(start_paused = true)]
async fn what_rests_for_long_goes_to_sleep_and_a_wait_wakes_it() {
    let hour = Duration::from_secs(3600);
    let kernel = in_memory()
        .model("m", counts())
        .hibernate_after(hour)
        .build()
        .await
        .unwrap();
    let (early, late) = (session(&kernel).await, session(&kernel).await);
    tokio::time::sleep(hour / 2).await;
    assert_eq!(turn(&late, "one").await, "1");
    tokio::time::sleep(hour * 3 / 4).await;
    assert_eq!(status(&kernel, early.pid()).await, "hibernated");
    assert_eq!(status(&kernel, late.pid()).await, "idle");
    tokio::time::sleep(hour / 2).await;
    assert_eq!(status(&kernel, late.pid()).await, "hibernated");

    // A handle that knows nothing of it has to look; so has one that waits for its end.
    let pid = late.pid();
    assert!(
        late.wait_for(ProcessView::is_idle)
            .await
            .unwrap()
            .hibernated,
        "this one knows"
    );
    drop(late);
    let seen = kernel
        .process(pid)
        .await
        .unwrap()
        .wait_for(ProcessView::is_idle)
        .await
        .unwrap();
    assert_eq!((seen.hibernated, seen.messages), (false, 2));
    let mut events = kernel.events();
    let waits = tokio::spawn(async move { early.wait().await });
    while !matches!(
        futures_util::StreamExt::next(&mut events).await,
        Some(Event::Woke { pid: Pid(1) })
    ) {}
    assert!(!waits.is_finished());
    tokio::time::sleep(hour * 2).await;
    assert_eq!(
        status(&kernel, Pid(1)).await,
        "hibernated",
        "who waits does not keep it awake"
    );
    kernel.process(Pid(1)).await.unwrap().kill().await.unwrap();
    assert_eq!(waits.await.unwrap().unwrap().status, ExitStatus::Killed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_the_bound_those_sleep_that_rest_longest_and_never_one_that_works() {
    let gate = Gate::default();
    let hold = gate.clone();
    let model = FnModel(move |request: Request| {
        let hold = hold.clone();
        async move {
            if request.messages.last().unwrap().text() == "work" {
                hold.pass().await;
            }
            Ok(says("done"))
        }
    });
    let kernel = in_memory()
        .model("m", model)
        .max_loaded(2)
        .build()
        .await
        .unwrap();
    let works = session(&kernel).await;
    works.input("work").await.unwrap();
    within(gate.entered()).await;
    let [one, other] = [session(&kernel).await, session(&kernel).await];
    // Which of them was durable first, and so came to rest first, is the store's affair.
    let is_one = tokio::select! { _ = asleep(&one) => true, _ = asleep(&other) => false };
    let (first, second) = if is_one { (one, other) } else { (other, one) };
    assert_eq!(status(&kernel, second.pid()).await, "idle");
    assert_eq!(turn(&first, "go").await, "done");
    asleep(&second).await;
    assert_eq!(status(&kernel, works.pid()).await, "thinking");
    assert_eq!(status(&kernel, first.pid()).await, "idle");
    gate.open();
    within(works.wait_for(ProcessView::is_idle)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn over_the_bound_one_without_an_input_is_not_loaded_before_it_gets_one() {
    let gate = Gate::default();
    let hold = gate.clone();
    let model = FnModel(move |request: Request| {
        let hold = hold.clone();
        async move {
            hold.pass().await;
            Ok(says(&request.messages.len().to_string()))
        }
    });
    let kernel = in_memory().model("m", model).max_loaded(1);
    let kernel = kernel.build().await.unwrap();
    let first = session(&kernel).await;
    // It is in a turn, so that it cannot make room.
    first.input("go").await.unwrap();
    within(gate.entered()).await;
    let second = session(&kernel).await;
    assert!(second.view().is_some_and(|view| view.hibernated));
    assert_eq!(status(&kernel, second.pid()).await, "hibernated");
    gate.open();
    assert_eq!(turn(&second, "go").await, "1");
    asleep(&first).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_storm_of_messages_to_processes_that_fall_asleep_at_once_is_heard_once_and_in_order() {
    const EACH: usize = 40;
    let folder = tempfile::tempdir().unwrap();
    let requests = Requests::default();
    let builder = open(folder.path())
        .model("m", requests.record(counts()))
        .hibernate_after(Duration::ZERO);
    let kernel = builder.build().await.unwrap();
    let mut events = kernel.events();
    let slept = tokio::spawn(async move {
        let mut slept = 0;
        while let Some(event) = futures_util::StreamExt::next(&mut events).await {
            slept += usize::from(matches!(event, Event::Hibernated { .. }));
        }
        slept
    });
    let mut senders = Vec::new();
    for _ in 0..4 {
        let session = session(&kernel).await;
        senders.push(tokio::spawn(async move {
            for number in 0..EACH {
                session.input(format!("<{number}>")).await.unwrap();
                // Now and then it comes to rest, and the next message meets it on its way to sleep.
                if number % 3 == 0 {
                    within(session.wait_for(ProcessView::is_idle))
                        .await
                        .unwrap();
                }
                if number % 7 == 0 {
                    asleep(&session).await;
                }
            }
            // A message for each, and a reply at least for the last of them.
            within(session.wait_for(|view| view.is_idle() && view.messages > EACH))
                .await
                .unwrap();
            session.pid()
        }));
    }
    for sender in senders {
        let pid = sender.await.unwrap();
        let last = requests.of(pid.0).pop().unwrap();
        let said: Vec<String> = last.messages.iter().map(|message| message.text()).collect();
        let said: String = said
            .concat()
            .split_inclusive('>')
            .filter_map(|text| Some(&text[text.find('<')?..]))
            .collect();
        assert_eq!(
            said,
            (0..EACH)
                .map(|number| format!("<{number}>"))
                .collect::<String>()
        );
    }
    check_histories(&requests);
    kernel.shutdown().await.unwrap();
    assert!(slept.await.unwrap() > 8, "they have slept in between");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_a_child_wakes_the_parent_that_sleeps_and_finding_a_child_does_not_wake_it() {
    let gate = Gate::default();
    let hold = gate.clone();
    let requests = Requests::default();
    let model = FnModel(move |request: Request| {
        let hold = hold.clone();
        async move {
            let said = request.messages.last().unwrap().text();
            Ok(match (request.pid, said) {
                (Pid(1), said) if said == "go" => asks(&[
                    (
                        "spawn",
                        r#"{"program_name": "p", "query": "first", "wait": false}"#,
                    ),
                    (
                        "spawn",
                        r#"{"program_name": "p", "query": "second", "wait": false}"#,
                    ),
                ]),
                (Pid(1), said) if said.contains("child_ended") => says("I heard of it"),
                (Pid(1), _) => says("I wait"),
                (_, said) => {
                    hold.pass().await;
                    says(&format!("{said} is done"))
                }
            })
        }
    });
    let folder = tempfile::tempdir().unwrap();
    let text = "[model]\nname = \"m\"\nprovider = \"scripted\"\n[tools]\nenabled = [\"spawn\"]\n\
                [linked_programs]\np = { path = \"p.toml\", description = \"The same.\" }\n";
    std::fs::write(folder.path().join("p.toml"), text).unwrap();
    let host = LocalHost::new(Permissions::none(), folder.path()).unwrap();
    let builder = in_memory()
        .model("m", requests.record(model))
        .host(host)
        .hibernate_after(Duration::ZERO);
    let kernel = builder.build().await.unwrap();
    let main = kernel.load(folder.path().join("p.toml")).unwrap().program;
    let parent = kernel.start(main).session().input("go").await.unwrap();
    within(gate.entered()).await;
    within(gate.entered()).await;
    let view = asleep(&parent).await;
    assert_eq!((view.background_children, view.children), (2, 2));
    gate.open();
    within(parent.wait_for(|view| view.background_children == 0 && view.is_idle()))
        .await
        .unwrap();
    let heard = requests.of(1).pop().unwrap();
    let heard: String = heard
        .messages
        .iter()
        .map(|message| message.text())
        .collect();
    assert!(
        heard.contains("first is done") && heard.contains("second is done"),
        "{heard}"
    );
    assert_eq!(
        heard.matches("<child_ended").count(),
        2,
        "each is heard of once: {heard}"
    );
    check_histories(&requests);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_sleepers_are_listed_and_any_one_wakes() {
    let folder = tempfile::tempdir().unwrap();
    let kernel = open(folder.path())
        .model("m", counts())
        .max_loaded(64)
        .build()
        .await
        .unwrap();
    let program = program(&kernel, "");
    for _ in 0..100 {
        let starts = (0..100).map(|_| {
            let start = kernel.start(program.clone()).session().without_input();
            async move { drop(start.await.unwrap()) }
        });
        within(futures_util::future::join_all(starts)).await;
    }
    let asleep = async || {
        kernel
            .processes()
            .await
            .unwrap()
            .iter()
            .filter(|info| info.status.word() == "hibernated")
            .count()
    };
    within(async {
        while asleep().await < 10_000 - 64 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    for pid in [1, 4_095, 4_096, 7_777] {
        let process = kernel.process(Pid(pid)).await.unwrap();
        assert_eq!(turn(&process, "one").await, "1");
    }
    within(kernel.shutdown()).await.unwrap();

    let kernel = open(folder.path())
        .model("m", counts())
        .build()
        .await
        .unwrap();
    let listed = kernel.processes().await.unwrap();
    assert!(listed.iter().map(|info| info.row.pid.0).eq(1..=10_000));
    assert!(
        listed
            .iter()
            .all(|info| info.status.word() == "held" && info.view.is_none())
    );
    let process = kernel.process(Pid(7_777)).await.unwrap();
    assert_eq!(turn(&process, "two").await, "3");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_runs_again_after_a_restart_is_said_by_the_policy() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::default();
    let model = |gate: &Gate, asked: &Arc<AtomicUsize>| {
        let (gate, asked) = (gate.clone(), asked.clone());
        FnModel(move |_| {
            let (gate, asked) = (gate.clone(), asked.clone());
            async move {
                asked.fetch_add(1, Ordering::SeqCst);
                gate.pass().await;
                Ok(says("done"))
            }
        })
    };
    let asked = Arc::new(AtomicUsize::new(0));
    let kernel = open(folder.path())
        .model("m", model(&gate, &asked))
        .build()
        .await
        .unwrap();
    let (thinks, sleeps, ended) = (
        session(&kernel).await,
        session(&kernel).await,
        session(&kernel).await,
    );
    within(sleeps.hibernate()).await.unwrap();
    ended.kill().await.unwrap();
    within(ended.wait()).await.unwrap();
    thinks.input("go").await.unwrap();
    within(gate.entered()).await;
    within(kernel.shutdown()).await.unwrap();

    let only_the_first = Recovery::decide(|info| match (info.row.pid, info.status.word()) {
        (Pid(1), "held") => RecoveryAction::Resume,
        _ => RecoveryAction::Hold,
    });
    let policies = [
        (Recovery::Hold, ["held", "held", "killed"]),
        (only_the_first, ["thinking", "held", "killed"]),
        (Recovery::Resume, ["thinking", "idle", "killed"]),
    ];
    for (policy, expected) in policies {
        let (name, gate, asked) = (
            format!("{policy:?}"),
            Gate::default(),
            Arc::new(AtomicUsize::new(0)),
        );
        let builder = open(folder.path())
            .model("m", model(&gate, &asked))
            .recovery(policy);
        let kernel = builder.build().await.unwrap();
        within(async {
            while kernel
                .processes()
                .await
                .unwrap()
                .iter()
                .map(|info| info.status.word())
                .ne(expected)
            {
                tokio::task::yield_now().await;
            }
        })
        .await;
        if expected[0] == "thinking" {
            within(gate.entered()).await;
        }
        let calls = asked.load(Ordering::SeqCst);
        assert_eq!(
            calls,
            usize::from(expected[0] == "thinking"),
            "{name}: a pending model call is made again, once"
        );
        within(kernel.shutdown()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_takes_up_more_processes_than_are_read_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let kernel = open(folder.path())
        .model("m", counts())
        .build()
        .await
        .unwrap();
    for _ in 0..100 {
        session(&kernel).await;
    }
    within(kernel.shutdown()).await.unwrap();
    let builder = open(folder.path())
        .model("m", counts())
        .recovery(Recovery::Resume)
        .max_loaded(8);
    let kernel = builder.build().await.unwrap();
    let count = async |word| {
        kernel
            .processes()
            .await
            .unwrap()
            .iter()
            .filter(|info| info.status.word() == word)
            .count()
    };
    within(async {
        while (count("idle").await, count("hibernated").await) != (8, 92) {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// A store whose commits fail while `is_full`, once `is_released`.
#[derive(Clone, Default)]
struct FullDisk {
    is_full: Arc<AtomicBool>,
    is_released: Arc<AtomicBool>,
    failures: Arc<AtomicUsize>,
}

impl FullDisk {
    fn store(&self) -> Faulty<Arc<MemoryStore>> {
        let disk = self.clone();
        Faulty::new(Arc::default(), move |_, operation| {
            let is_commit = matches!(operation, Operation::Commit { .. });
            if !is_commit || !disk.is_full.load(Ordering::SeqCst) {
                return Fate::Pass;
            }
            while !disk.is_released.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
            disk.failures.fetch_add(1, Ordering::SeqCst);
            Fate::Fail(disk_full())
        })
    }
}

/// Lets all tasks that are ready run before this one.
async fn let_others_run() {
    let mut is_first = true;
    std::future::poll_fn(|context| {
        if std::mem::take(&mut is_first) {
            context.waker().wake_by_ref();
            return std::task::Poll::Pending;
        }
        std::task::Poll::Ready(())
    })
    .await;
}

#[tokio::test]
async fn one_whose_commit_fails_while_it_is_asked_to_sleep_is_resumed_later() {
    // The request comes at each step between the failure of the commit and its report.
    for steps in 0..80 {
        let disk = FullDisk::default();
        let kernel = Kernel::open(disk.store()).model("m", counts());
        let kernel = kernel.build().await.unwrap();
        let session = session(&kernel).await;
        disk.is_full.store(true, Ordering::SeqCst);
        let input = tokio::spawn({
            let session = session.clone();
            async move { session.input("one").await }
        });
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        disk.is_released.store(true, Ordering::SeqCst);
        while disk.failures.load(Ordering::SeqCst) == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(1));
        let request = tokio::spawn({
            let session = session.clone();
            async move {
                for _ in 0..steps {
                    let_others_run().await;
                }
                session.hibernate().await
            }
        });
        let _ = within(request).await.expect("it is answered");
        assert!(within(input).await.unwrap().is_err());
        disk.is_full.store(false, Ordering::SeqCst);
        let session = within(kernel.resume(session.pid())).await.unwrap();
        assert_eq!(turn(&session, "two").await, "1", "{steps}");
        kernel.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_whose_snapshot_failed_falls_asleep_once_the_disk_has_room() {
    let disk = FullDisk::default();
    disk.is_released.store(true, Ordering::SeqCst);
    let kernel = Kernel::open(disk.store())
        .model("m", counts())
        .hibernate_after(Duration::from_secs(1));
    let kernel = kernel.build().await.unwrap();
    let session = session(&kernel).await;
    // So many facts are worth a snapshot.
    for _ in 0..30 {
        turn(&session, "go").await;
    }
    disk.is_full.store(true, Ordering::SeqCst);
    within(async {
        while disk.failures.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(status(&kernel, session.pid()).await, "idle");
    disk.is_full.store(false, Ordering::SeqCst);
    asleep(&session).await;
    kernel.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_could_not_be_read_for_a_while_goes_on_by_itself() {
    let is_cut_off = Arc::new(AtomicBool::new(false));
    let reads = Arc::new(AtomicUsize::new(0));
    let store = Faulty::new(MemoryStore::new(), {
        let (is_cut_off, reads) = (is_cut_off.clone(), reads.clone());
        move |_, operation| match operation {
            Operation::Journal if is_cut_off.load(Ordering::SeqCst) => {
                reads.fetch_add(1, Ordering::SeqCst);
                Fate::Fail(disk_full())
            }
            _ => Fate::Pass,
        }
    });
    let kernel = Kernel::open(store).model("m", counts());
    let kernel = kernel.build().await.unwrap();
    let session = session(&kernel).await;
    assert_eq!(turn(&session, "one").await, "1");
    session.hibernate().await.unwrap();
    is_cut_off.store(true, Ordering::SeqCst);
    // Who waits now is told, and nothing is lost.
    let error = within(session.input("lost")).await.unwrap_err();
    assert!(
        error.to_string().contains("stopped before it could answer"),
        "{error}"
    );
    assert_eq!(status(&kernel, session.pid()).await, "held");
    within(async {
        while reads.load(Ordering::SeqCst) < 2 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    assert_eq!(status(&kernel, session.pid()).await, "held");
    is_cut_off.store(false, Ordering::SeqCst);
    within(async {
        while status(&kernel, session.pid()).await != "idle" {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    assert_eq!(turn(&session, "two").await, "3");
    kernel.shutdown().await.unwrap();
}
