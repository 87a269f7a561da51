//! Budgets from end to end: bombs that stay within their root's, time that runs out, and shares
//! that come back whatever happened in between (TREE-1).

use std::future::pending;
use std::path::Path;

use dormouse::id::Pid;
use dormouse::model::{Reply, Request, Usage};
use dormouse::process::{Exit, ExitStatus};
use dormouse::store::LogStore;
use dormouse::{Amount, Budget, Event, Kernel, KernelError, Price, Process, StartError};
use dormouse_tests::faulty::Faulty;
use dormouse_tests::{
    FnModel, Gate, Requests, asks, check_histories, events_until, fault_of, program, results, says,
    within,
};

/// The reply, of ten output tokens.
fn ten(reply: Reply) -> Reply {
    Reply {
        usage: Usage {
            output_tokens: 10,
            input_tokens: 1,
            ..Usage::default()
        },
        ..reply
    }
}

/// A folder with `main.toml`, which links itself and goes on with `rest`.
fn folder(rest: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let main = format!(
        "[model]\nname = \"m\"\nprovider = \"scripted\"\nmax_iterations = 1000\n[tools]\nenabled = \
         [{{ name = \"fork\", access = \"write\" }}, \"spawn\"]\n[linked_programs]\nmain = \
         \"main.toml\"\n[limits]\nmax_depth = 64\nmax_children = 64\n{rest}"
    );
    std::fs::write(folder.path().join("main.toml"), main).unwrap();
    folder
}

/// Where programs are read: a host that permits nothing reads them all the same.
fn host(folder: &Path) -> dormouse::host::LocalHost {
    dormouse::host::LocalHost::new(dormouse::host::Permissions::none(), folder).unwrap()
}

const FORK: (&str, &str) = ("fork", r#"{"prompts": ["a", "b"]}"#);
const SPAWN: (&str, &str) = ("spawn", r#"{"program_name": "main", "query": "go"}"#);
const SPAWN_AND_GO_ON: (&str, &str) = (
    "spawn",
    r#"{"program_name": "main", "query": "go", "wait": false}"#,
);

/// How many processes lived at most, from what was seen of them.
fn most_living(events: &[Event]) -> i64 {
    let (mut living, mut most) = (0, 0);
    for event in events {
        match event {
            Event::Started { .. } => living += 1,
            Event::Exited { .. } => living -= 1,
            Event::Lagged { missed } => panic!("{missed} events were missed"),
            _ => {}
        }
        most = most.max(living);
    }
    most
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bomb_ends_at_its_roots_budget_with_an_answer_at_each_level() {
    for bomb in [SPAWN, FORK, SPAWN_AND_GO_ON] {
        let (folder, requests) = (
            folder("[budget]\noutput_tokens = 600\nprocesses = 10\n"),
            Requests::default(),
        );
        let model = requests.record(FnModel(move |_| async move { Ok(ten(asks(&[bomb]))) }));
        let kernel = Kernel::builder()
            .model("m", model)
            .host(host(folder.path()))
            .build()
            .await
            .unwrap();
        let main = kernel
            .load(folder.path().join("main.toml"))
            .unwrap()
            .program;
        let events = kernel.events();
        let root = kernel.start(main).input("go").await.unwrap();
        let root_ends = |event: &Event| matches!(event, Event::Exited { pid: Pid(1), .. });
        let seen = events_until(events, root_ends).await;
        let exit = within(root.wait()).await.unwrap();
        assert_eq!(
            exit.status,
            ExitStatus::BudgetExhausted,
            "{bomb:?}: {exit:?}"
        );
        assert!(
            exit.message.contains("output_tokens is used up: 6"),
            "{bomb:?}: {}",
            exit.message
        );
        let most = most_living(&seen);
        assert!(
            (2..=10).contains(&most),
            "{bomb:?}: {most} lived at the same time"
        );
        let rows = kernel.processes().await.unwrap();
        for info in &rows {
            within(kernel.process(info.row.pid).await.unwrap().wait())
                .await
                .unwrap();
        }
        assert!(rows.len() > 2, "{bomb:?}: {} processes", rows.len());
        // Each process overshoots by one call at most.
        let all = requests.all().len() as u64 * 10;
        assert!(
            all <= 600 + 10 * rows.len() as u64,
            "{bomb:?}: {all} tokens"
        );
        let answers: Vec<_> = requests
            .all()
            .iter()
            .flat_map(|request| results(request, 0))
            .collect();
        assert!(
            answers
                .iter()
                .any(|(text, _)| text.contains("No further children")),
            "{bomb:?}: nobody was refused"
        );
        let ended = "ended as budget_exhausted: the budget of output_tokens is used up";
        let is_told = answers
            .iter()
            .any(|(text, is_error)| *is_error && text.contains(ended));
        assert!(
            is_told || bomb != SPAWN,
            "a parent is answered with its child's end"
        );
        check_histories(&requests);
        within(kernel.shutdown()).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn when_the_time_is_up_a_hung_tree_ends() {
    let folder = folder("[budget]\nwall_time = \"5s\"\n");
    let model = FnModel(|request: Request| async move {
        match request.messages.len() {
            1 if request.pid == Pid(1) => Ok(ten(asks(&[SPAWN]))),
            _ => pending().await,
        }
    });
    let kernel = Kernel::builder()
        .model("m", model)
        .host(host(folder.path()))
        .build()
        .await
        .unwrap();
    let main = kernel
        .load(folder.path().join("main.toml"))
        .unwrap()
        .program;
    let session = kernel.start(main).session().input("go").await.unwrap();
    let exit = within(session.wait()).await.unwrap();
    assert_eq!(exit.status, ExitStatus::BudgetExhausted);
    assert!(
        exit.message.contains("wall_time is used up: 5s of 5s"),
        "{}",
        exit.message
    );
    let child = within(kernel.process(Pid(2)).await.unwrap().wait())
        .await
        .unwrap();
    assert!(
        matches!(
            child.status,
            ExitStatus::BudgetExhausted | ExitStatus::Killed
        ),
        "{child:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shares_come_back_after_an_interrupt_and_the_session_goes_on() {
    let (folder, gate) = (folder("[budget]\noutput_tokens = 100\n"), Gate::default());
    let hung = gate.clone();
    let model = FnModel(move |request: Request| {
        let gate = hung.clone();
        async move {
            match (request.pid, request.messages.len()) {
                (Pid(1), 1) => Ok(ten(asks(&[FORK]))),
                (Pid(1), _) => Ok(ten(says("well"))),
                _ => {
                    gate.pass().await;
                    Ok(says("never"))
                }
            }
        }
    });
    let kernel = Kernel::builder()
        .model("m", model)
        .host(host(folder.path()))
        .build()
        .await
        .unwrap();
    let main = kernel
        .load(folder.path().join("main.toml"))
        .unwrap()
        .program;
    let session = kernel.start(main).session().input("go").await.unwrap();
    within(gate.entered()).await;
    assert_eq!(
        session
            .view()
            .unwrap()
            .budget
            .reserved(Amount::OutputTokens),
        60
    );
    within(session.interrupt()).await.unwrap();
    let view = within(session.wait_for(|view| view.budget.shares().count() == 0))
        .await
        .unwrap();
    assert_eq!(view.budget.remaining(Amount::OutputTokens), Some(90));
    session.input("more").await.unwrap();
    within(session.wait_for(|view| {
        view.is_idle() && view.budget.remaining(Amount::OutputTokens) == Some(80)
    }))
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_commit_was_the_last_the_tree_knows_what_it_used() {
    let model = || {
        FnModel(|request: Request| async move {
            Ok(ten(match (request.pid, request.messages.len()) {
                (Pid(1), 1) => asks(&[SPAWN_AND_GO_ON, FORK]),
                _ => says("found"),
            }))
        })
    };
    let folder =
        folder("[budget]\noutput_tokens = 500\ncost = 1\n[prices.m]\ninput = 1\noutput = 1\n");
    let mut crashes = 0;
    for commits in 1.. {
        let store = tempfile::tempdir().unwrap();
        let crashing = Faulty::crashing_after(commits, LogStore::open(store.path()).unwrap());
        let kernel = Kernel::open(crashing)
            .model("m", model())
            .host(host(folder.path()))
            .build()
            .await
            .unwrap();
        let main = kernel
            .load(folder.path().join("main.toml"))
            .unwrap()
            .program;
        let process = kernel.start(main).input("go").await.unwrap();
        let first = within(process.wait()).await;
        drop(process);
        within(kernel.shutdown()).await.unwrap();
        let builder = Kernel::open(LogStore::open(store.path()).unwrap()).model("m", model());
        let kernel = builder.host(host(folder.path())).build().await.unwrap();
        kernel.resume_all().await.unwrap();
        let exit = within(kernel.process(Pid(1)).await.unwrap().wait())
            .await
            .unwrap();
        let (mut used, rows) = (Usage::default(), kernel.processes().await.unwrap());
        for info in &rows {
            used += kernel.inspect(info.row.pid).await.unwrap().usage;
        }
        let whole = Exit::new(exit.status, exit.message.clone()).with_usage(used);
        assert_eq!(
            (exit.status, &exit),
            (ExitStatus::Done, &whole),
            "{commits} commits"
        );
        assert_eq!(
            (rows.len(), used.output_tokens % 10, used.cost_nanos > 0),
            (4, 0, true),
            "{commits} commits"
        );
        assert_eq!(
            kernel
                .inspect(Pid(1))
                .await
                .unwrap()
                .budget
                .shares()
                .count(),
            0,
            "{commits} commits"
        );
        within(kernel.shutdown()).await.unwrap();
        if first.is_ok_and(|exit| exit.status == ExitStatus::Done) {
            break;
        }
        crashes += 1;
    }
    assert!(crashes > 3, "it was cut off at {crashes} places");
}

#[tokio::test]
async fn the_host_sets_the_budget_of_a_root_and_names_the_prices() {
    let kernel = |prices: &[&str]| {
        let model = FnModel(|request: Request| async move {
            assert_eq!(fault_of(&request), None);
            Ok(ten(if request.messages.len() == 1 {
                asks(&[("nothing", "{}")])
            } else {
                says("done")
            }))
        });
        let builder = Kernel::builder().model("m", model);
        prices
            .iter()
            .fold(builder, |builder, name| {
                builder.price(*name, Price::new(0, 1_000_000))
            })
            .build()
    };
    let cost = Budget {
        cost_nanos: Some(10),
        ..Budget::default()
    };
    let start = |kernel: &Kernel, budget| {
        kernel
            .start(program(kernel, ""))
            .budget(budget)
            .input("go")
            .into_future()
    };
    let unpriced = kernel(&[]).await.unwrap();
    let error = start(&unpriced, cost).await.err();
    assert!(
        matches!(&error, Some(KernelError::Start(StartError::Unpriced(_)))),
        "{error:?}"
    );
    let text = error.map(|error| error.to_string()).unwrap_or_default();
    assert!(
        text.contains("the model 'm', which has no price") && text.contains("[prices.\"m\"]"),
        "{text}"
    );
    let loaded =
        unpriced.parse("[model]\nname = \"m\"\nprovider = \"scripted\"\n[budget]\ncost = 1\n");
    assert!(
        loaded
            .unwrap_err()
            .to_string()
            .contains("the model `m`, which `program` calls, has no price")
    );
    let priced = kernel(&["m"]).await.unwrap();
    let process: Process = start(&priced, cost).await.unwrap();
    let exit = within(process.wait()).await.unwrap();
    assert_eq!(exit.status, ExitStatus::BudgetExhausted);
    assert!(
        exit.message
            .contains("cost is used up: 0.00000001 of 0.00000001"),
        "{}",
        exit.message
    );
    let process = start(
        &priced,
        Budget {
            cost_nanos: Some(11),
            ..Budget::default()
        },
    )
    .await
    .unwrap();
    assert_eq!(
        within(process.wait()).await.unwrap().status,
        ExitStatus::Done
    );
}
