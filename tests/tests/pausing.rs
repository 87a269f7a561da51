//! Limits that ask, in whole kernels: a tree that is paused goes on where it was, over restarts,
//! and nothing of it begins before.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use dormouse::id::Pid;
use dormouse::model::{Reply, Request, Usage};
use dormouse::ports::Model;
use dormouse::process::ExitStatus;
use dormouse::store::{LogStore, MemoryStore};
use dormouse::tool::Access;
use dormouse::{
    Amount, Budget, Event, FnTool, Kernel, KernelBuilder, KernelError, Paused, Process,
    ProcessError, ProcessInfo, ProcessView, RaiseSource, Recovery,
};
use dormouse_tests::faulty::Faulty;
use dormouse_tests::{
    FnModel, Requests, asks, check_histories, events_until, program, results, says, within,
};

const TOOLS: &str = "max_iterations = 50\n[tools]\nenabled = [\"fork\"]\n";
const PAUSE: &str = "[budget]\noutput_tokens = 100\nat_limit = \"pause\"\n";

/// A reply of ten output tokens.
fn ten(reply: Reply) -> Reply {
    Reply {
        usage: Usage {
            output_tokens: 10,
            ..Usage::default()
        },
        ..reply
    }
}

fn tokens(output_tokens: u64) -> Budget {
    Budget::default().with(Amount::OutputTokens, Some(output_tokens))
}

fn open(folder: &Path) -> KernelBuilder {
    Kernel::open(LogStore::open(folder).unwrap())
}

/// Says how often it was asked.
fn counter(output_tokens: u64) -> impl Model {
    FnModel(move |request: Request| async move {
        let usage = Usage {
            output_tokens,
            ..Usage::default()
        };
        let text = format!("reply {}", request.messages.len().div_ceil(2));
        Ok(Reply {
            usage,
            ..says(&text)
        })
    })
}

async fn raise(kernel: &Kernel, pid: Pid, by: u64) -> Result<Option<Paused>, KernelError> {
    let process = kernel.process(pid).await?;
    within(process.raise(tokens(by))).await
}

async fn status(kernel: &Kernel, pid: u64) -> &'static str {
    let processes = kernel.processes().await.unwrap();
    let mut found = processes.iter().filter(|info| info.row.pid == Pid(pid));
    found.next().expect("it is listed").status.word()
}

async fn paused(process: &Process) -> ProcessView {
    within(process.wait_for(|view: &ProcessView| view.paused.is_some()))
        .await
        .unwrap()
}

#[tokio::test]
async fn a_session_at_its_limit_waits_and_goes_on_after_a_raise() {
    let kernel = Kernel::builder()
        .model("m", counter(60))
        .build()
        .await
        .unwrap();
    let events = kernel.events();
    let program = program(&kernel, &format!("{TOOLS}{PAUSE}"));
    let session = kernel.start(program).session().input("one").await.unwrap();
    within(session.wait_for(ProcessView::is_idle))
        .await
        .unwrap();
    let turn = within(session.turn("two")).await.unwrap();
    assert_eq!(&*turn.message, "reply 2");
    session.input("three").await.unwrap();
    let view = paused(&session).await;
    assert_eq!((view.status().word(), view.rests), ("paused", true));
    assert_eq!(view.paused.unwrap().to_string(), "output_tokens 120 of 100");
    assert!(session.raise(tokens(10)).await.unwrap().is_some());
    let refused = session
        .raise(Budget::default().with(Amount::Cost, Some(1)))
        .await;
    assert!(
        matches!(
            refused,
            Err(KernelError::Process(ProcessError::NotRaised { .. }))
        ),
        "{refused:?}"
    );
    assert_eq!(session.raise(tokens(20)).await.unwrap(), None);
    within(session.wait_for(ProcessView::is_idle))
        .await
        .unwrap();
    let replies = session.view().unwrap().messages;
    assert_eq!(replies, 6, "the third turn has ended");
    let is_last = |event: &Event| match event {
        Event::LimitRaised { by, .. } => *by == tokens(20),
        _ => false,
    };
    let mut seen = Vec::new();
    for event in events_until(events, is_last).await {
        match event {
            Event::LimitReached { paused, .. } => seen.push(paused.to_string()),
            Event::LimitRaised { by, source, .. } => {
                assert_eq!(source, RaiseSource::Person);
                seen.push(by.to_string());
            }
            _ => {}
        }
    }
    let expected = [
        "output_tokens 120 of 100",
        "output_tokens 10",
        "output_tokens 20",
    ];
    assert_eq!(seen, expected);
}

/// The root forks two children and says what they found; a child calls its model until it is
/// stopped.
fn family(request: Request) -> std::future::Ready<Result<Reply, dormouse::model::ModelError>> {
    let is_root = request.pid == Pid(1);
    let answers: Vec<_> = (0..request.messages.len())
        .flat_map(|at| results(&request, at))
        .collect();
    std::future::ready(Ok(ten(match (is_root, answers.len()) {
        (true, 0) => asks(&[("fork", r#"{"prompts": ["a", "b"]}"#)]),
        (true, _) => says(&answers[0].0),
        // It asks for a tool that it does not have, again and again.
        (false, 0..6) => asks(&[("look", "{}")]),
        (false, _) => says("found"),
    })))
}

#[tokio::test]
async fn children_that_are_paused_are_raised_from_their_parents_share_over_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let requests = Requests::default();
    let kernel = open(folder.path())
        .model("m", requests.record(FnModel(family)))
        .build()
        .await
        .unwrap();
    let main = program(&kernel, &format!("{TOOLS}{PAUSE}"));
    let root = kernel.start(main).input("go").await.unwrap();
    // A hundred for three, less ten that are used: each child has thirty.
    for pid in [Pid(2), Pid(3)] {
        let child = within(async {
            loop {
                match kernel.process(pid).await {
                    Ok(child) => break child,
                    Err(_) => tokio::task::yield_now().await,
                }
            }
        })
        .await;
        assert_eq!(
            paused(&child).await.paused.unwrap().to_string(),
            "output_tokens 30 of 30"
        );
    }
    let before = requests.all().len();
    drop(root);
    kernel.shutdown().await.unwrap();

    // Nothing runs while the raises are recorded.
    let kernel = open(folder.path())
        .model("m", requests.record(FnModel(family)))
        .build()
        .await
        .unwrap();
    let rows = kernel.processes().await.unwrap();
    let is_paused: Vec<_> = rows.iter().map(|info| info.row.is_paused).collect();
    assert_eq!(is_paused, [false, true, true]);
    let refused = raise(&kernel, Pid(2), 50).await;
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("Raise process 1 first"), "{text}");
    assert_eq!(raise(&kernel, Pid(1), 200).await.unwrap(), None);
    assert_eq!(raise(&kernel, Pid(2), 50).await.unwrap(), None);
    assert_eq!(requests.all().len(), before);
    kernel.shutdown().await.unwrap();

    let kernel = open(folder.path())
        .model("m", requests.record(FnModel(family)))
        .recovery(Recovery::Resume)
        .build()
        .await
        .unwrap();
    let second = kernel.process(Pid(3)).await.unwrap();
    // The other is raised while it runs.
    paused(&second).await;
    assert_eq!(within(second.raise(tokens(50))).await.unwrap(), None);
    let root = kernel.process(Pid(1)).await.unwrap();
    let exit = within(root.wait()).await.unwrap();
    assert_eq!(exit.status, ExitStatus::Done, "{exit:?}");
    assert_eq!(exit.message.matches("found").count(), 2, "{exit:?}");
    check_histories(&requests);
}

/// The root works beside its child, which it does not wait for, and reaches its limit first.
fn impatient(request: Request) -> std::future::Ready<Result<Reply, dormouse::model::ModelError>> {
    let is_root = request.pid == Pid(1);
    let answers = (0..request.messages.len())
        .flat_map(|at| results(&request, at))
        .count();
    std::future::ready(Ok(match (is_root, answers) {
        (true, 0) => ten(asks(&[(
            "spawn",
            r#"{"program_name": "small", "query": "go", "wait": false}"#,
        )])),
        (true, 1..30) => ten(asks(&[("look", "{}")])),
        (true, _) => says("done"),
        // It costs nothing, and never ends by itself.
        (false, 0..40) => asks(&[("look", "{}")]),
        (false, _) => says("found"),
    }))
}

/// Wherever the kernel is cut off, what is below a paused process begins nothing after it, and goes
/// on after the raise.
#[tokio::test]
async fn what_is_below_a_paused_process_stays_so_over_every_cut() {
    let folder = tempfile::tempdir().unwrap();
    let model = "[model]\nname = \"m\"\nprovider = \"scripted\"\nmax_iterations = 100\n";
    let spawn = "[tools]\nenabled = [\"spawn\"]\n[linked_programs]\nsmall = \"small.toml\"\n";
    let path = folder.path().join("main.toml");
    std::fs::write(&path, format!("{model}{spawn}{PAUSE}")).unwrap();
    let small = format!("{model}[budget]\noutput_tokens = 1\n");
    std::fs::write(folder.path().join("small.toml"), small).unwrap();
    let host = || {
        dormouse::host::LocalHost::new(dormouse::host::Permissions::none(), folder.path()).unwrap()
    };
    let mut suspended = 0;
    for cut in (6..60).step_by(2) {
        let store = Arc::new(MemoryStore::new());
        let kernel = Kernel::open(Faulty::crashing_after(cut, store.clone()))
            .model("m", FnModel(impatient))
            .host(host())
            .build()
            .await
            .unwrap();
        let program = kernel.load(&path).unwrap().program;
        if let Ok(root) = kernel.start(program).input("go").await {
            let pause = root.wait_for(|view: &ProcessView| view.paused.is_some());
            tokio::select! {
                // The store fails.
                _ = within(root.wait()) => {}
                _ = within(pause) => {}
            }
        }
        let _ = kernel.shutdown().await;

        let requests = Requests::default();
        let kernel = Kernel::open(store.clone())
            .model("m", requests.record(FnModel(impatient)))
            .host(host())
            .recovery(Recovery::Resume)
            .build()
            .await
            .unwrap();
        let Ok(root) = kernel.process(Pid(1)).await else {
            continue;
        };
        paused(&root).await;
        let child = kernel.process(Pid(2)).await.unwrap();
        within(child.wait_for(|view: &ProcessView| view.suspended))
            .await
            .unwrap();
        suspended += 1;
        let before = requests.all().len();
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        assert_eq!(requests.all().len(), before, "cut {cut}");
        assert_eq!(status(&kernel, 2).await, "suspended", "cut {cut}");
        within(async {
            while child.hibernate().await.is_err() {
                tokio::task::yield_now().await;
            }
        })
        .await;
        assert_eq!(status(&kernel, 2).await, "suspended", "cut {cut}");
        assert_eq!(
            child.view().unwrap().status().word(),
            "suspended",
            "cut {cut}"
        );
        within(root.raise(tokens(1_000))).await.unwrap();
        let exit = within(root.wait()).await.unwrap();
        assert_eq!(exit.status, ExitStatus::Done, "cut {cut}: {exit:?}");
        check_histories(&requests);
    }
    assert!(suspended > 5, "{suspended}");
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Nothing {}

/// A process whose time is up while one of its calls waits for a person: both are asked about, also
/// where it hibernates.
#[tokio::test]
async fn a_paused_process_that_hibernates_is_still_asked_about_the_calls_that_it_holds() {
    let slow = FnTool::new("slow", "Takes its time.", |Nothing {}| async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        Ok::<_, String>("seen".to_owned())
    });
    let write = FnTool::new("write", "Writes.", |Nothing {}| async {
        Ok::<_, String>("written".to_owned())
    });
    let model = FnModel(|request: Request| async move {
        Ok(match request.messages.len() {
            1 => asks(&[("slow", "{}"), ("write", "{}")]),
            _ => says("done"),
        })
    });
    let folder = tempfile::tempdir().unwrap();
    let kernel = open(folder.path())
        .model("m", model)
        .tool(slow.access(Access::Read))
        .tool(write)
        .build()
        .await
        .unwrap();
    let text = "[tools]\nenabled = [\"slow\", \"write\"]\nask = [\"write\"]\n[budget]\nwall_time = \
                \"100ms\"\nat_limit = \"pause\"\n";
    let process = kernel
        .start(program(&kernel, text))
        .input("go")
        .await
        .unwrap();
    paused(&process).await;
    // The call in flight ends first.
    within(process.wait_for(|view: &ProcessView| view.phase.asks()))
        .await
        .unwrap();
    within(async {
        while process.hibernate().await.is_err() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let pending = kernel.pending().await.unwrap();
    assert_eq!(pending.calls.len(), 1, "{pending:?}");
    kernel.approve(pending.calls[0].id).await.unwrap();
    let more = Budget::default().with(Amount::WallTime, Some(60_000));
    assert_eq!(within(process.raise(more)).await.unwrap(), None);
    let exit = within(process.wait()).await.unwrap();
    assert_eq!((exit.status, &*exit.message), (ExitStatus::Done, "done"));
}

/// A store with a root and two children, each of which is paused at its share of thirty.
async fn paused_family(folder: &Path, requests: &Requests) {
    let kernel = open(folder)
        .model("m", requests.record(FnModel(family)))
        .build()
        .await
        .unwrap();
    let main = program(&kernel, &format!("{TOOLS}{PAUSE}"));
    let root = kernel.start(main).input("go").await.unwrap();
    within(async {
        let is_paused = |info: &ProcessInfo| info.row.is_paused;
        while kernel
            .processes()
            .await
            .unwrap()
            .iter()
            .filter(|info| is_paused(info))
            .count()
            < 2
        {
            tokio::task::yield_now().await;
        }
    })
    .await;
    drop(root);
    kernel.shutdown().await.unwrap();
}

async fn limit(kernel: &Kernel, pid: u64) -> u64 {
    let view = kernel.inspect(Pid(pid)).await.unwrap();
    view.budget.limits().output_tokens.unwrap()
}

/// A raise changes limits, and loads nothing that is held: however many come at once, and whatever
/// else of the tree is loaded.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_raise_loads_nothing_that_is_held() {
    let folder = tempfile::tempdir().unwrap();
    let requests = Requests::default();
    paused_family(folder.path(), &requests).await;
    let before = requests.all().len();
    let open = || {
        open(folder.path())
            .model("m", requests.record(FnModel(family)))
            .build()
    };
    let kernel = open().await.unwrap();
    let (root, child) = (limit(&kernel, 1).await, limit(&kernel, 2).await);
    // At once, of one process and of a child and its parent.
    let raises = [(1, 10), (2, 1), (1, 20), (2, 2), (3, 3), (2, 4)];
    let raises = raises.map(|(pid, by)| raise(&kernel, Pid(pid), by));
    for raised in futures_util::future::join_all(raises).await {
        raised.unwrap();
    }
    assert_eq!(limit(&kernel, 1).await, root + 30);
    assert_eq!(limit(&kernel, 2).await, child + 7);
    for pid in 1..=3 {
        assert_eq!(status(&kernel, pid).await, "held", "{pid}");
    }
    assert_eq!(requests.all().len(), before);
    kernel.shutdown().await.unwrap();

    // The parent is held, and its child is loaded: the parent stays held.
    let kernel = open().await.unwrap();
    let second = within(kernel.resume(Pid(2))).await.unwrap();
    let limit_before = second.view().unwrap().budget.limits().output_tokens;
    assert!(within(second.raise(tokens(5))).await.is_ok());
    let raised = |view: &ProcessView| view.budget.limits().output_tokens > limit_before;
    within(second.wait_for(raised)).await.unwrap();
    assert_eq!(status(&kernel, 1).await, "held");
    assert_eq!(status(&kernel, 3).await, "held");
    kernel.shutdown().await.unwrap();
}

/// A child that is held below a parent that is stopped, and so loaded or hibernates.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_child_is_raised_below_a_parent_that_is_loaded_or_hibernates() {
    let folder = tempfile::tempdir().unwrap();
    let requests = Requests::default();
    paused_family(folder.path(), &requests).await;
    let before = requests.all().len();
    let kernel = open(folder.path())
        .model("m", requests.record(FnModel(family)))
        .build()
        .await
        .unwrap();
    // A stop comes before it resumes, so that it looks for no child.
    let root = kernel.process(Pid(1)).await.unwrap();
    within(root.stop()).await.unwrap();
    assert_eq!(status(&kernel, 1).await, "stopped");
    for hibernates in [false, true] {
        if hibernates {
            within(root.hibernate()).await.unwrap();
            assert_eq!(status(&kernel, 1).await, "stopped");
        }
        let child = limit(&kernel, 2).await;
        raise(&kernel, Pid(2), 7).await.unwrap();
        assert_eq!(limit(&kernel, 2).await, child + 7);
        assert_eq!(status(&kernel, 2).await, "held");
    }
    assert_eq!(requests.all().len(), before);
    kernel.shutdown().await.unwrap();
}

/// Looks again and again, until it reads that its limit was raised.
fn looks_until_raised() -> impl Model {
    FnModel(|request: Request| async move {
        let last = request.messages.last().unwrap().text();
        Ok(ten(match last.contains("was raised") {
            true => says("done"),
            false => asks(&[("look", "{}")]),
        }))
    })
}

#[tokio::test]
async fn a_root_that_ended_at_its_limit_is_opened_by_a_raise_and_held_until_it_is_resumed() {
    let folder = tempfile::tempdir().unwrap();
    let opened = || {
        let look = |_: serde_json::Value| async { Ok::<_, String>("seen") };
        open(folder.path())
            .model("m", looks_until_raised())
            .tool(FnTool::new("look", "Looks.", look))
            .build()
    };
    let kernel = opened().await.unwrap();
    let text = "max_iterations = 50\n[tools]\nenabled = [\"look\"]\n[budget]\noutput_tokens = 20\n";
    let start = kernel.start(program(&kernel, text)).input("go");
    let process = start.await.unwrap();
    let pid = process.pid();
    let exit = within(process.wait()).await.unwrap();
    assert_eq!(exit.status, ExitStatus::BudgetExhausted);
    let too_little = raise(&kernel, pid, 0).await.unwrap_err().to_string();
    assert!(too_little.contains("20 of 20"), "{too_little}");
    assert_eq!(raise(&kernel, pid, 100).await.unwrap(), None);
    assert_eq!(status(&kernel, pid.0).await, "held");
    within(kernel.shutdown()).await.unwrap();

    let kernel = opened().await.unwrap();
    assert_eq!(status(&kernel, pid.0).await, "held");
    let process = within(kernel.resume(pid)).await.unwrap();
    let exit = within(process.wait()).await.unwrap();
    assert_eq!((exit.status, &*exit.message), (ExitStatus::Done, "done"));
    assert_eq!(exit.reopenings, 1);
    let done = raise(&kernel, pid, 1).await.unwrap_err().to_string();
    assert!(done.contains("ended as done, and not at a limit"), "{done}");
    within(kernel.shutdown()).await.unwrap();
}

/// A process that was done with its last tokens can be asked one more thing after a raise.
#[tokio::test]
async fn a_root_that_was_done_when_it_reached_its_limit_is_raised_and_asked_again() {
    let folder = tempfile::tempdir().unwrap();
    let kernel = open(folder.path()).model("m", counter(10));
    let kernel = kernel.build().await.unwrap();
    let text = "max_iterations = 50\n[budget]\noutput_tokens = 10\n";
    let start = kernel.start(program(&kernel, text)).input("go");
    let process = start.await.unwrap();
    let exit = within(process.wait()).await.unwrap();
    assert_eq!(exit.status, ExitStatus::Done);
    let refused = within(process.input("more")).await.unwrap_err().to_string();
    assert!(refused.contains("Once the limit is raised"), "{refused}");
    assert_eq!(raise(&kernel, process.pid(), 100).await.unwrap(), None);
    let process = kernel.process(process.pid()).await.unwrap();
    within(process.input("more")).await.unwrap();
    let exit = within(process.wait()).await.unwrap();
    assert_eq!((exit.status, exit.reopenings), (ExitStatus::Done, 1));
    within(kernel.shutdown()).await.unwrap();
}
