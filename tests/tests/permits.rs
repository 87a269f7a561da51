//! Who asks a provider, and when: bounds, turns, priorities, and rate limits. Time stands still in
//! these tests until nothing else can happen, so that a moment is enough for everything to have
//! come as far as it can.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dormouse::id::Pid;
use dormouse::model::{ModelError, ModelErrorKind, Reply, Request, Usage};
use dormouse::ports::Model;
use dormouse::process::{ExitStatus, Priority};
use dormouse::record::Phase;
use dormouse::store::LogStore;
use dormouse::{Kernel, ModelPermits, Process, ProcessView};
use dormouse_tests::{FnModel, Gate, asks, program, results, says, within};
use tokio::time::Instant;

const MOMENT: Duration = Duration::from_millis(10);

/// A model that notes who asks and when, and keeps those who say "hold" at its gate.
#[derive(Clone)]
struct Watched {
    gate: Gate,
    start: Instant,
    asked: Arc<Mutex<Vec<(Pid, Duration)>>>,
}

impl Watched {
    fn new() -> Self {
        Self {
            gate: Gate::default(),
            start: Instant::now(),
            asked: Arc::default(),
        }
    }

    fn model<A, R>(&self, answer: A) -> impl Model + use<A, R>
    where
        A: Fn(Request) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Reply, ModelError>> + Send + 'static,
    {
        let (watched, answer) = (self.clone(), Arc::new(answer));
        FnModel(move |request: Request| {
            let (watched, answer) = (watched.clone(), answer.clone());
            async move {
                watched
                    .asked
                    .lock()
                    .unwrap()
                    .push((request.pid, watched.start.elapsed()));
                let said = request.messages.last().unwrap().text();
                // A forked child reads its prompt as the answer to the fork.
                if said.contains("hold")
                    || results(&request, 0)
                        .iter()
                        .any(|(told, _)| told.ends_with("hold"))
                {
                    watched.gate.pass().await;
                }
                answer(request).await
            }
        })
    }

    /// A model that says the same to everybody.
    fn speaker(&self) -> impl Model + use<> {
        self.model(|_| async { Ok(says("done")) })
    }

    fn asked(&self) -> Vec<(Pid, Duration)> {
        self.asked.lock().unwrap().clone()
    }

    fn pids(&self) -> Vec<Pid> {
        self.asked().into_iter().map(|(pid, _)| pid).collect()
    }
}

async fn session(kernel: &Kernel, priority: Priority) -> Process {
    kernel
        .start(program(kernel, ""))
        .session()
        .without_input()
        .priority(priority)
        .await
        .unwrap()
}

/// Says something, and lets the call that follows come as far as it can.
async fn tell(process: &Process, text: &str) {
    within(process.input(text)).await.unwrap();
    within(process.wait_for(|view| matches!(view.phase, Phase::Thinking { .. })))
        .await
        .unwrap();
    tokio::time::sleep(MOMENT).await;
}

async fn idle(process: &Process) {
    within(process.wait_for(ProcessView::is_idle))
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn each_provider_has_a_bound_of_its_own() {
    let watched = Watched::new();
    let builder = Kernel::builder()
        .model("m", watched.speaker())
        .model_calls(2)
        .provider_calls("anthropic", 1);
    let kernel = builder.build().await.unwrap();
    let other = kernel
        .parse("[model]\nname = \"m\"\nprovider = \"anthropic\"\n")
        .unwrap()
        .program;
    let mut of_provider = BTreeMap::new();
    for (name, program) in [("scripted", program(&kernel, "")), ("anthropic", other)] {
        for _ in 0..4 {
            let process = kernel.start(program.clone()).input("hold").await.unwrap();
            of_provider.insert(process.pid(), (name, process));
        }
    }
    tokio::time::sleep(MOMENT).await;
    let mut running: Vec<_> = watched
        .pids()
        .iter()
        .map(|pid| of_provider[pid].0)
        .collect();
    running.sort_unstable();
    assert_eq!(running, ["anthropic", "scripted", "scripted"]);
    watched.gate.open();
    for (_, process) in of_provider.values() {
        assert_eq!(
            within(process.wait()).await.unwrap().status,
            ExitStatus::Done
        );
    }
    assert_eq!(watched.asked().len(), 8);
}

#[tokio::test(start_paused = true)]
async fn kernels_that_share_permits_share_a_bound_and_take_turns() {
    let watched = Watched::new();
    let permits = Arc::new(ModelPermits::new(1, []));
    let mut kernels = Vec::new();
    for first in [1, 1001] {
        let builder = Kernel::builder()
            .model("m", watched.speaker())
            .model_calls(9)
            .model_permits(permits.clone())
            .pids(Pid(first)..=Pid(first + 999));
        kernels.push(builder.build().await.unwrap());
    }
    let mut processes = Vec::new();
    // The calls of the two trees of the first kernel came before that of the second.
    for (kernel, input) in [
        (&kernels[0], "hold"),
        (&kernels[0], "go"),
        (&kernels[1], "go"),
    ] {
        let start = kernel.start(program(kernel, "")).input(input);
        processes.push(start.await.unwrap());
        tokio::time::sleep(MOMENT).await;
    }
    assert_eq!(watched.pids(), [Pid(1)]);
    watched.gate.open();
    for process in &processes {
        let exit = within(process.wait()).await.unwrap();
        assert_eq!(exit.status, ExitStatus::Done);
    }
    assert_eq!(watched.pids(), [Pid(1), Pid(2), Pid(1001)]);
}

#[tokio::test(start_paused = true)]
async fn a_tree_with_many_calls_that_wait_does_not_hold_up_one_with_a_single_call() {
    let watched = Watched::new();
    let model = watched.model(|request: Request| async move {
        Ok(match (request.pid, results(&request, 0).as_slice()) {
            (Pid(1), []) => {
                let prompts = ["hold"; 51].map(|prompt| format!("\"{prompt}\"")).join(",");
                asks(&[("fork", &format!("{{\"prompts\": [{prompts}]}}"))])
            }
            _ => says("done"),
        })
    });
    let kernel = Kernel::builder()
        .model("m", model)
        .model_calls(1)
        .build()
        .await
        .unwrap();
    let rest = "[tools]\nenabled = [\"fork\"]\n[limits]\nmax_fork_children = 51\nmax_children = \
         51\nfork_release = \"all\"\n";
    let many = kernel
        .start(program(&kernel, rest))
        .input("go")
        .await
        .unwrap();
    within(watched.gate.entered()).await;
    tokio::time::sleep(MOMENT).await;
    let single = kernel
        .start(program(&kernel, ""))
        .input("go")
        .await
        .unwrap();
    tokio::time::sleep(MOMENT).await;
    assert_eq!(
        watched.asked().len(),
        2,
        "the parent and its first child: all else waits"
    );
    watched.gate.open();
    assert_eq!(within(many.wait()).await.unwrap().status, ExitStatus::Done);
    assert_eq!(
        within(single.wait()).await.unwrap().status,
        ExitStatus::Done
    );
    assert_eq!(
        (watched.pids()[2], watched.asked().len()),
        (single.pid(), 54)
    );
}

#[tokio::test(start_paused = true)]
async fn who_waits_is_served_by_priority_which_forks_and_restarts_keep() {
    let folder = tempfile::tempdir().unwrap();
    let open = |watched: &Watched| {
        Kernel::open(LogStore::open(folder.path()).unwrap())
            .model("m", watched.speaker())
            .model_calls(1)
            .build()
    };
    let kernel = open(&Watched::new()).await.unwrap();
    let mut started = Vec::new();
    for priority in [Priority::Low, Priority::Normal, Priority::High] {
        started.push(session(&kernel, priority).await.pid());
    }
    within(kernel.shutdown()).await.unwrap();

    let watched = Watched::new();
    let kernel = open(&watched).await.unwrap();
    let blocker = session(&kernel, Priority::Normal).await;
    tell(&blocker, "hold").await;
    let mut all = Vec::new();
    for pid in started {
        let resumed = within(kernel.resume(pid)).await.unwrap();
        let forked = within(resumed.fork()).await.unwrap();
        for process in [resumed, forked] {
            tell(&process, "go").await;
            all.push(process);
        }
    }
    watched.gate.open();
    for process in &all {
        idle(process).await;
    }
    let [low, low_fork, normal, normal_fork, high, high_fork] = &all[..] else {
        panic!("three and their forks")
    };
    let expected = [
        &blocker,
        high,
        high_fork,
        normal,
        normal_fork,
        low,
        low_fork,
    ]
    .map(Process::pid);
    assert_eq!(watched.pids(), expected);
}

/// Says that it is overloaded when it is first asked to hold; for so long, if it says that.
fn overloaded_once(watched: &Watched, hint: Option<Duration>) -> impl Model + use<> {
    let failed = Mutex::new(false);
    watched.model(move |request: Request| {
        let fails = request.messages.last().unwrap().text() == "hold"
            && !std::mem::replace(&mut failed.lock().unwrap(), true);
        let error = ModelError {
            retry_after: hint,
            ..ModelError::new(ModelErrorKind::Overloaded, "not now")
        };
        async move { if fails { Err(error) } else { Ok(says("done")) } }
    })
}

#[tokio::test(start_paused = true)]
async fn a_rate_limit_pauses_its_provider_for_all_and_their_mailboxes_for_nobody() {
    let hint = Duration::from_secs(30);
    let watched = Watched::new();
    let builder = Kernel::builder()
        .model("m", overloaded_once(&watched, Some(hint)))
        .model_calls(1);
    let kernel = builder.build().await.unwrap();
    let (limited, interrupted, waits) = (
        session(&kernel, Priority::Normal).await,
        session(&kernel, Priority::High).await,
        session(&kernel, Priority::Low).await,
    );
    tell(&limited, "hold").await;
    tell(&interrupted, "go").await;
    tell(&waits, "go").await;
    let paused = watched.start.elapsed();
    watched.gate.open();
    tokio::time::sleep(MOMENT).await;
    // One that comes within the pause waits like the others.
    let late = session(&kernel, Priority::High).await;
    tell(&late, "go").await;
    within(interrupted.interrupt()).await.unwrap();
    idle(&interrupted).await;
    within(waits.input("more")).await.unwrap();
    assert_eq!(
        waits.view().unwrap().waiting_messages,
        1,
        "it is acknowledged and waits for the next turn"
    );
    assert!(
        watched.start.elapsed() < paused + Duration::from_secs(1),
        "none of this waited for the provider"
    );
    assert_eq!(watched.pids(), [limited.pid()]);
    // Longer than `within` has patience, since time jumps over the pause.
    tokio::time::sleep(hint).await;
    for process in [&limited, &waits, &late] {
        idle(process).await;
    }
    let asked = watched.asked();
    assert!(
        asked[1..].iter().all(|(_, at)| *at >= paused + hint),
        "{asked:?}"
    );
    let mut pids: Vec<_> = asked[1..].iter().map(|(pid, _)| *pid).collect();
    pids.sort_unstable();
    assert_eq!(
        pids,
        [limited.pid(), waits.pid(), waits.pid(), late.pid()],
        "the interrupted call was never made"
    );
}

#[tokio::test(start_paused = true)]
async fn a_rate_limit_of_one_server_pauses_no_other_of_its_kind() {
    let watched = Watched::new();
    let hint = Some(Duration::from_secs(600));
    let model = Arc::new(overloaded_once(&watched, hint));
    let kernel = Kernel::builder()
        .provider("openai-chat", model)
        .model_calls(1)
        .build()
        .await
        .unwrap();
    let at = |server: &str| {
        let text =
            format!("[model]\nname = \"m\"\nprovider = \"openai-chat\"\nbase_url = \"{server}\"\n");
        kernel.start(kernel.parse(text).unwrap().program).session()
    };
    let limited = at("http://one.example").without_input().await.unwrap();
    tell(&limited, "hold").await;
    watched.gate.open();
    let other = at("http://two.example").without_input().await.unwrap();
    let same = at("http://one.example").without_input().await.unwrap();
    tell(&same, "go").await;
    within(other.input("go")).await.unwrap();
    within(other.wait_for(|view| view.is_idle() && view.messages == 2))
        .await
        .unwrap();
    assert_eq!(
        watched.pids(),
        [limited.pid(), other.pid()],
        "the server that is overloaded is left alone"
    );
}

#[tokio::test(start_paused = true)]
async fn without_a_hint_only_the_call_that_failed_backs_off_and_holds_no_permit_meanwhile() {
    for hint in [None, Some(Duration::ZERO)] {
        let watched = Watched::new();
        let kernel = Kernel::builder()
            .model("m", overloaded_once(&watched, hint))
            .model_calls(1)
            .build()
            .await
            .unwrap();
        let (failing, other) = (
            session(&kernel, Priority::Normal).await,
            session(&kernel, Priority::Low).await,
        );
        tell(&failing, "hold").await;
        tell(&other, "go").await;
        let failed = watched.start.elapsed();
        watched.gate.open();
        idle(&other).await;
        idle(&failing).await;
        let asked = watched.asked();
        assert_eq!(watched.pids(), [failing.pid(), other.pid(), failing.pid()]);
        assert!(
            asked[1].1 < failed + MOMENT && asked[2].1 >= failed + Duration::from_millis(500),
            "{asked:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_interrupted_while_it_waits_leaves_no_ticket_behind() {
    let watched = Watched::new();
    let kernel = Kernel::builder()
        .model("m", watched.speaker())
        .model_calls(1)
        .build()
        .await
        .unwrap();
    let (holds, gives_up, next) = (
        session(&kernel, Priority::Normal).await,
        session(&kernel, Priority::High).await,
        session(&kernel, Priority::Normal).await,
    );
    tell(&holds, "hold").await;
    tell(&gives_up, "go").await;
    within(gives_up.interrupt()).await.unwrap();
    idle(&gives_up).await;
    tell(&next, "go").await;
    watched.gate.open();
    idle(&next).await;
    assert_eq!(
        watched.pids(),
        [holds.pid(), next.pid()],
        "the permit went past the one that gave up"
    );
}

#[tokio::test(start_paused = true)]
async fn a_summary_takes_a_permit_like_any_other_call() {
    let watched = Watched::new();
    let kernel = Kernel::builder()
        .model("m", watched.speaker())
        .model_calls(1)
        .build()
        .await
        .unwrap();
    let tools = program(&kernel, "[tools]\nenabled = [\"summarize_fd\"]\n");
    let reader = kernel.start(tools).session().without_input().await.unwrap();
    within(reader.open("host", "a text", None)).await.unwrap();
    let holds = session(&kernel, Priority::Normal).await;
    tell(&holds, "hold").await;
    let asking = reader.clone();
    let summary =
        tokio::spawn(async move { asking.call("summarize_fd", r#"{"fd": "fd:1"}"#).await });
    tokio::time::sleep(MOMENT).await;
    assert_eq!(watched.pids(), [holds.pid()]);
    watched.gate.open();
    assert!(!within(summary).await.unwrap().unwrap().is_error);
    assert_eq!(watched.pids(), [holds.pid(), reader.pid()]);
}

#[tokio::test(start_paused = true)]
async fn a_call_waits_until_the_last_minute_leaves_room_for_its_tokens() {
    let watched = Watched::new();
    let usage = Usage {
        output_tokens: 50_000,
        ..Usage::default()
    };
    let model = watched.model(move |_| async move {
        Ok(Reply {
            usage,
            ..says("done")
        })
    });
    let kernel = Kernel::builder().model("m", model).build().await.unwrap();
    let limited = program(&kernel, "tokens_per_minute = 90_000\n");
    for _ in 0..3 {
        let process = kernel.start(limited.clone()).input("now").await.unwrap();
        let exit = process.wait().await.unwrap();
        assert_eq!(exit.status, ExitStatus::Done);
    }
    let asked: Vec<Duration> = watched.asked().into_iter().map(|(_, at)| at).collect();
    let minute = Duration::from_secs(60);
    assert!(asked[1] < minute, "there is room for the second: {asked:?}");
    assert!(
        asked[2] >= minute && asked[2] < minute + MOMENT,
        "the third waits for the first to leave the window: {asked:?}"
    );
}
