//! A process that has ended is asked one more thing: by its parent's model, and by the host, over
//! restarts and wherever the kernel is cut off.

use std::sync::Arc;

use dormouse::id::{FactNumber, Pid};
use dormouse::model::{ModelError, Reply, Request};
use dormouse::ports::Store as _;
use dormouse::process::ExitStatus;
use dormouse::store::{LogStore, MemoryStore};
use dormouse::{Event, Kernel, KernelBuilder, KernelError, ProcessError, Recovery};
use dormouse_tests::faulty::{Fate, Faulty, Operation};
use dormouse_tests::{FnModel, Requests, asks, check_histories, program, results, says, within};
use futures_util::StreamExt;

const TOOLS: &str = "max_iterations = 50\n[tools]\nenabled = [\"send_message\", \"wait\", \
\"list_processes\", \"fork\"]\n";

/// How often the conversation of a child holds a message of its parent.
fn asked(request: &Request) -> usize {
    let texts = request.messages.iter().map(|message| message.text());
    texts
        .filter(|text| text.contains("<process_message "))
        .count()
}

/// A parent forks a child, asks it one more thing twice, and says what it heard; the child counts
/// what it was asked.
fn family(request: Request) -> std::future::Ready<Result<Reply, ModelError>> {
    let is_child = request.pid == Pid(2);
    let answers: Vec<String> = (0..request.messages.len())
        .rev()
        .flat_map(|at| results(&request, at))
        .map(|(text, _)| text)
        .collect();
    std::future::ready(Ok(match (is_child, answers.len()) {
        (true, _) => says(&format!("asked {} times", asked(&request))),
        (false, 0) => asks(&[("fork", r#"{"prompts": ["look"]}"#)]),
        (false, 1 | 3) => asks(&[("send_message", r#"{"to": "2", "text": "and more?"}"#)]),
        (false, 2 | 4) => asks(&[("wait", "{}")]),
        (false, _) => says(&answers[1..].join("\n")),
    }))
}

fn builder(store: LogStore) -> KernelBuilder {
    Kernel::open(store).model("m", FnModel(family))
}

#[tokio::test]
async fn a_model_asks_its_finished_child_one_more_thing_and_hears_each_end_once() {
    let folder = tempfile::tempdir().unwrap();
    let requests = Requests::default();
    let kernel = Kernel::open(LogStore::open(folder.path()).unwrap())
        .model("m", requests.record(FnModel(family)))
        .build()
        .await
        .unwrap();
    let mut events = kernel.events();
    let root = kernel
        .start(program(
            &kernel,
            &format!("{TOOLS}[budget]\ninput_tokens = 100000\n"),
        ))
        .input("go")
        .await
        .unwrap();
    let exit = within(root.wait()).await.unwrap();
    assert_eq!(exit.status, ExitStatus::Done, "{exit:?}");
    for (text, times) in [
        (r#"<message_sent to="2" reopened="1"/>"#, 1),
        (r#"<message_sent to="2" reopened="2"/>"#, 1),
        (r#"<child_ended pid="2" status="done">"#, 2),
        ("asked 1 times", 1),
        ("asked 2 times", 1),
    ] {
        assert_eq!(exit.message.matches(text).count(), times, "{exit:?}");
    }
    let row = |pid| {
        let kernel = kernel.clone();
        async move {
            let processes = kernel.processes().await.unwrap();
            let info = processes.into_iter().find(|info| info.row.pid == pid);
            info.expect("it is listed").row
        }
    };
    assert_eq!(row(Pid(2)).await.reopenings, 2);
    assert_eq!(row(Pid(2)).await.exit.unwrap().reopenings, 2);
    let child: Vec<_> = kernel.log(Pid(2)).await.unwrap();
    let names = child.iter().map(|line| line.name);
    assert_eq!(names.filter(|name| *name == "reopened").count(), 2);
    drop(root);
    kernel.shutdown().await.unwrap();
    let mut reopened = 0;
    while let Some(event) = events.next().await {
        reopened += usize::from(matches!(event, Event::Reopened { pid: Pid(2), .. }));
    }
    assert_eq!(reopened, 2);
    check_histories(&requests);
    // A branch from a point before a reopening has the child ended.
    let kernel = builder(LogStore::open(folder.path()).unwrap())
        .build()
        .await
        .unwrap();
    let log = kernel.log(Pid(1)).await.unwrap();
    let before = log
        .iter()
        .find(|line| line.name == "child_reopened")
        .expect("the parent has opened it")
        .number;
    let branch = kernel
        .branch(Pid(1), FactNumber(before.0 - 2))
        .stopped()
        .await;
    let branch = branch.unwrap();
    let processes = kernel.processes().await.unwrap();
    let of_branch = processes
        .iter()
        .find(|info| info.row.parent == Some(branch.pid()))
        .expect("the child is part of the branch");
    assert_eq!(of_branch.row.reopenings, 0);
    assert_eq!(
        of_branch.row.exit.as_ref().unwrap().status,
        ExitStatus::Done
    );
    kernel.shutdown().await.unwrap();
}

/// A parent forks two children, and lists whom it can write to once they have ended.
fn lister(request: Request) -> std::future::Ready<Result<Reply, ModelError>> {
    let answered = (0..request.messages.len())
        .rev()
        .flat_map(|at| results(&request, at))
        .collect::<Vec<_>>();
    std::future::ready(Ok(match (request.pid, answered.last()) {
        (Pid(1), None) => asks(&[("fork", r#"{"prompts": ["one", "two"]}"#)]),
        (Pid(1), Some(_)) if answered.len() == 1 => asks(&[("list_processes", "{}")]),
        (Pid(1), Some((list, _))) => says(list),
        _ => says("ended"),
    }))
}

#[tokio::test]
async fn a_model_finds_its_ended_children_in_the_list_after_the_living_ones() {
    let folder = tempfile::tempdir().unwrap();
    let kernel = Kernel::open(LogStore::open(folder.path()).unwrap()).model("m", FnModel(lister));
    let kernel = kernel.build().await.unwrap();
    let root = kernel.start(program(&kernel, TOOLS)).input("go").await;
    let exit = within(root.unwrap().wait()).await.unwrap();
    let listed: Vec<_> = exit
        .message
        .lines()
        .filter(|line| line.contains("<process "))
        .collect();
    assert_eq!(listed.len(), 3, "{exit:?}");
    let is_child = |line: &str, pid: u64| {
        line.contains(&format!(r#"pid="{pid}" relation="child""#))
            && line.contains(r#"status="done""#)
    };
    assert!(listed[0].contains(r#"relation="self""#), "{listed:?}");
    assert!(
        is_child(listed[1], 3) && is_child(listed[2], 2),
        "{listed:?}"
    );
}

/// A task that says how often the user has spoken to it.
fn counting(request: Request) -> std::future::Ready<Result<Reply, ModelError>> {
    let spoken = request.messages.len().div_ceil(2);
    std::future::ready(Ok(says(&format!("turn {spoken}"))))
}

#[tokio::test]
async fn the_host_opens_a_finished_root_over_restarts() {
    let folder = tempfile::tempdir().unwrap();
    let open = || {
        Kernel::open(LogStore::open(folder.path()).unwrap())
            .model("m", FnModel(counting))
            .recovery(Recovery::Hold)
            .build()
    };
    let kernel = open().await.unwrap();
    let limited = "[limits]\nmax_reopenings = 3\n";
    let root = kernel
        .start(program(&kernel, limited))
        .input("go")
        .name("diary")
        .await
        .unwrap();
    let pid = root.pid();
    assert_eq!(&*within(root.wait()).await.unwrap().message, "turn 1");
    // A handle from before hears the next end.
    root.input("and then?").await.unwrap();
    let exit = within(root.wait()).await.unwrap();
    assert_eq!((&*exit.message, exit.reopenings), ("turn 2", 1));
    drop(root);
    kernel.shutdown().await.unwrap();
    for times in 2..=3 {
        let kernel = open().await.unwrap();
        let root = kernel.process(pid).await.unwrap();
        assert_eq!(root.exit().unwrap().reopenings, times - 1);
        let turn = within(root.turn("and then?")).await.unwrap();
        assert_eq!(&*turn.message, &*format!("turn {}", times + 1));
        let exit = within(root.wait()).await.unwrap();
        assert_eq!(exit.reopenings, times);
        drop(root);
        kernel.shutdown().await.unwrap();
    }
    let kernel = open().await.unwrap();
    let root = kernel.process(pid).await.unwrap();
    let facts = kernel.log(pid).await.unwrap().len();
    let refused = root.input("once more").await.unwrap_err();
    let KernelError::Process(ProcessError::NotReopened { reason, .. }) = &refused else {
        panic!("{refused}")
    };
    assert!(reason.contains("limits.max_reopenings"), "{refused}");
    assert_eq!(kernel.log(pid).await.unwrap().len(), facts);
    assert_eq!(root.exit().unwrap().reopenings, 3);
    kernel.shutdown().await.unwrap();
}

#[tokio::test]
async fn what_was_killed_and_what_has_no_journal_stays_ended() {
    let refusal = |result: Result<(), KernelError>| match result {
        Err(KernelError::Process(ProcessError::NotReopened { reason, .. })) => reason,
        other => panic!("{other:?}"),
    };
    let kernel = Kernel::open(Arc::new(MemoryStore::new()))
        .model("m", FnModel(counting))
        .build()
        .await
        .unwrap();
    let session = kernel.start(program(&kernel, "")).session().input("go");
    let session = session.await.unwrap();
    session.kill().await.unwrap();
    within(session.wait()).await.unwrap();
    let reason = refusal(session.input("go on").await);
    assert!(reason.contains("has ended as killed"), "{reason}");
    let task = kernel.start(program(&kernel, "")).input("go").name("n");
    let task = task.await.unwrap();
    within(task.wait()).await.unwrap();
    // Its name belongs to another one now.
    let other = kernel.start(program(&kernel, "")).session().name("n");
    let other = other.without_input().await.unwrap();
    let reason = refusal(task.input("go on").await);
    assert!(
        reason.contains("its name 'n' belongs to process 3"),
        "{reason}"
    );
    other.kill().await.unwrap();
    within(other.wait()).await.unwrap();
    task.input("go on").await.unwrap();
    assert_eq!(within(task.wait()).await.unwrap().reopenings, 1);
    assert!(task.kill().await.is_err(), "a signal opens nothing");
    kernel.shutdown().await.unwrap();

    let kernel = Kernel::builder().model("m", FnModel(counting));
    let kernel = kernel.build().await.unwrap();
    let task = kernel
        .start(program(&kernel, ""))
        .input("go")
        .await
        .unwrap();
    within(task.wait()).await.unwrap();
    let reason = refusal(task.input("go on").await);
    assert!(reason.contains("no store"), "{reason}");
    kernel.shutdown().await.unwrap();
}

#[tokio::test]
async fn inputs_that_come_together_open_a_process_once() {
    let kernel = Kernel::open(Arc::new(MemoryStore::new()))
        .model("m", FnModel(counting))
        .build()
        .await
        .unwrap();
    let task = kernel
        .start(program(&kernel, ""))
        .input("go")
        .await
        .unwrap();
    within(task.wait()).await.unwrap();
    let inputs = (0..8).map(|number| {
        let task = task.clone();
        async move { task.input(format!("{number}")).await }
    });
    for result in futures_util::future::join_all(inputs).await {
        result.unwrap();
    }
    within(async {
        // What comes after the end of a turn opens it anew.
        loop {
            let waits = task.wait().await.unwrap();
            let log = kernel.log(task.pid()).await.unwrap();
            let of = |name| log.iter().filter(|line| line.name == name).count();
            assert_eq!(of("reopened"), waits.reopenings as usize);
            assert_eq!(of("exited"), of("reopened") + 1);
            if of("message_queued") == 8 {
                break;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    kernel.shutdown().await.unwrap();
}

/// The kernel is cut off at each of its commits in turn, with the commit done or not, and goes on
/// with the store as it was left: everything is asked once and heard once.
#[tokio::test]
async fn wherever_the_kernel_is_cut_off_nothing_is_lost_or_done_twice() {
    let mut cut_offs = 0;
    for is_done in [false, true] {
        for last_commit in 2.. {
            let store = Arc::new(MemoryStore::new());
            let cut = Faulty::new(store.clone(), {
                let commits = std::sync::atomic::AtomicUsize::new(0);
                move |_, operation| {
                    let Operation::Commit { entries: 1.., .. } = operation else {
                        return Fate::Pass;
                    };
                    let commit = 1 + commits.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                    let lost = || dormouse::ports::StoreError::Failed("the power is gone".into());
                    match commit {
                        _ if commit < last_commit => Fate::Pass,
                        _ if commit == last_commit && is_done => Fate::Unheard(lost()),
                        _ => Fate::Fail(lost()),
                    }
                }
            });
            let kernel = Kernel::open(cut).model("m", FnModel(family));
            let kernel = kernel.build().await.unwrap();
            let start = kernel.start(program(&kernel, TOOLS)).input("go").await;
            let whole = match start {
                Ok(root) => within(root.wait()).await.is_ok(),
                Err(_) => false,
            };
            let _ = kernel.shutdown().await;
            if store.processes().unwrap().rows.is_empty() {
                continue;
            }
            let kernel = Kernel::open(store.clone())
                .model("m", FnModel(family))
                .recovery(Recovery::Resume)
                .build()
                .await
                .unwrap();
            let root = kernel.process(Pid(1)).await.unwrap();
            let exit = within(root.wait()).await.unwrap();
            let context = format!("commit {last_commit}, done: {is_done}: {exit:?}");
            assert_eq!(exit.message.matches("message_sent").count(), 2, "{context}");
            for text in ["asked 1 times", "asked 2 times"] {
                assert_eq!(exit.message.matches(text).count(), 1, "{context}");
            }
            let log = kernel.log(Pid(2)).await.unwrap();
            let of = |name| log.iter().filter(|line| line.name == name).count();
            let counts = (of("reopened"), of("message_received"), of("exited"));
            assert_eq!(counts, (2, 2, 3), "{context}");
            let log = kernel.log(Pid(1)).await.unwrap();
            let of = |name| log.iter().filter(|line| line.name == name).count();
            let counts = (of("child_reopened"), of("child_reported_again"));
            assert_eq!(counts, (2, 2), "{context}");
            kernel.shutdown().await.unwrap();
            if whole {
                break;
            }
            cut_offs += 1;
        }
    }
    assert!(cut_offs > 30, "{cut_offs}");
}
