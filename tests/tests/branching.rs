//! Branches: a whole tree goes on from any point under new pids, with its messages and files, and
//! the others do not notice.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use dormouse::checkpoint::Scope;
use dormouse::effect::EffectPolicy;
use dormouse::id::{CheckpointId, FactNumber, Pid};
use dormouse::message::Block;
use dormouse::model::{Reply, Request};
use dormouse::ports::{Store, StoreError};
use dormouse::process::{ExitStatus, ProcessRow};
use dormouse::store::{LogStore, MemoryStore};
use dormouse::{Kernel, KernelBuilder, KernelError, NotFound, Position, ProcessView, StoreFailure};
use dormouse_tests::faulty::{Fate, Faulty, Operation, disk_full};
use dormouse_tests::pair::{TOOLS, answers, check_end, model, root_of, rows, swarm};
use dormouse_tests::{FnModel, Gate, Requests, asks, check_histories, program, says, turn, within};

fn open(folder: &Path, requests: &Requests) -> KernelBuilder {
    Kernel::open(LogStore::open(folder).unwrap()).model("m", requests.record(model()))
}

/// Whole journals as they stand in a store.
type Journals = BTreeMap<Pid, (Vec<u8>, Vec<Vec<u8>>)>;

fn journals(store: &dyn Store, pids: impl Iterator<Item = u64>) -> Journals {
    let journal = |pid| {
        let pid = Pid(pid);
        let last = store.history(pid).unwrap().last();
        let birth = store.journal(pid, Some(FactNumber(0))).unwrap();
        (
            pid,
            (birth.image, store.facts(pid, FactNumber(1), last).unwrap()),
        )
    };
    pids.map(journal).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn from_every_fact_of_a_swarm_a_branch_runs_to_its_end_and_the_swarm_stays_as_it_was() {
    let store = Arc::new(MemoryStore::new());
    let requests = Requests::default();
    let kernel = Kernel::open(store.clone())
        .model("m", requests.record(model()))
        .build()
        .await
        .unwrap();
    let process = kernel
        .start(program(&kernel, TOOLS))
        .input("go")
        .await
        .unwrap();
    check_end(&within(process.wait()).await.unwrap(), "the swarm itself");
    let before = journals(&*store, 1..=3);
    for pid in 1..=3 {
        for at in 0..=before[&Pid(pid)].1.len() as u64 {
            let of = format!("the branch at fact {at} of {pid}");
            // Each branch does all of it again.
            let branch = kernel.branch(Pid(pid), FactNumber(at));
            let branch = within(branch.effects(EffectPolicy::Run).into_future())
                .await
                .unwrap();
            let rows = rows(&kernel).await;
            let restored = rows[&branch.pid()].branched_from.unwrap();
            assert!(
                restored.pid == Pid(pid) && restored.fact >= FactNumber(at),
                "{of}: {restored:?}"
            );
            let root = root_of(&kernel, branch.pid()).await;
            assert_eq!(rows[&root.pid()].local_id(), Pid(1), "{of}");
            check_end(&within(root.wait()).await.unwrap(), &of);
        }
    }
    assert_eq!(journals(&*store, 1..=3), before);
    check_histories(&requests);
    kernel.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_branches_of_one_point_go_different_ways_and_a_branch_can_be_branched() {
    let model = FnModel(|request: Request| async move {
        let said: Vec<_> = request
            .messages
            .iter()
            .map(|message| message.text())
            .collect();
        Ok(says(&format!("after {}", said.join("|"))))
    });
    let kernel = Kernel::open(MemoryStore::new())
        .model("m", model)
        .build()
        .await
        .unwrap();
    let session = kernel
        .start(program(&kernel, ""))
        .session()
        .without_input()
        .await
        .unwrap();
    assert_eq!(turn(&session, "one").await, "after one");
    let before = session.view().unwrap();
    let point = before.fact;
    assert_eq!(turn(&session, "two").await, "after one|after one|two");
    let left = within(kernel.branch(session.pid(), point).into_future())
        .await
        .unwrap();
    let right = within(kernel.branch(session.pid(), point).into_future())
        .await
        .unwrap();
    assert_eq!(turn(&left, "left").await, "after one|after one|left");
    assert_eq!(turn(&right, "right").await, "after one|after one|right");
    let deeper = within(kernel.branch(left.pid(), Position::Now).into_future())
        .await
        .unwrap();
    assert_eq!(
        turn(&deeper, "on").await,
        "after one|after one|left|after one|after one|left|on"
    );
    assert!(
        kernel.checkpoints().await.unwrap().is_empty(),
        "what was made for a branch only is gone"
    );
    let rows = rows(&kernel).await;
    assert_eq!(rows[&deeper.pid()].branched_from.unwrap().pid, left.pid());
    assert_eq!(rows[&deeper.pid()].local_id(), session.pid());
    let said = "after one|after one|two|after one|after one|two|three";
    assert_eq!(
        turn(&session, "three").await,
        said,
        "the other heard nothing of it"
    );
    let diff = kernel
        .diff((left.pid(), Position::Now), (right.pid(), Position::Now))
        .await
        .unwrap();
    assert_eq!(diff.common_messages, 2);
    let gists = |lines: &[dormouse::diff::MessageSummary]| {
        lines
            .iter()
            .map(|line| line.summary.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        gists(&diff.messages.left),
        ["left", "after one|after one|left"]
    );
    assert_eq!(
        gists(&diff.messages.right),
        ["right", "after one|after one|right"]
    );
    assert!(
        diff.descriptors.is_empty() && diff.phase.left == "idle",
        "{diff}"
    );
    kernel.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_branch_of_a_branch_knows_its_processes_by_the_first_numbers() {
    let (requests, folder) = (Requests::default(), tempfile::tempdir().unwrap());
    let kernel = open(folder.path(), &requests).build().await.unwrap();
    let process = kernel
        .start(program(&kernel, TOOLS))
        .input("go")
        .await
        .unwrap();
    check_end(&within(process.wait()).await.unwrap(), "the swarm");
    // The writer has seen the list and is about to write: it stands behind the reply that asks for
    // it.
    let facts = kernel.log(Pid(2)).await.unwrap();
    let replied: Vec<_> = facts
        .iter()
        .filter(|line| line.name == "model_replied")
        .map(|line| line.number)
        .collect();
    let first = within(kernel.branch(Pid(2), replied[1]).stopped().into_future())
        .await
        .unwrap();
    let rows_then = rows(&kernel).await;
    let members = |root: Pid, rows: &BTreeMap<Pid, ProcessRow>| -> Vec<u64> {
        rows.values()
            .filter(|row| row.pid == root || row.parent == Some(root))
            .map(|row| row.local_id().0)
            .collect()
    };
    let root = root_of(&kernel, first.pid()).await;
    assert_eq!(members(root.pid(), &rows_then), [1, 2, 3]);
    let second = within(kernel.branch(first.pid(), Position::Now).into_future())
        .await
        .unwrap();
    let deeper = root_of(&kernel, second.pid()).await;
    check_end(
        &within(deeper.wait()).await.unwrap(),
        "the branch of the branch",
    );
    assert_eq!(members(deeper.pid(), &rows(&kernel).await), [1, 2, 3]);
    let writer = requests.of(second.pid().0);
    assert!(
        answers(writer.last().unwrap())
            .iter()
            .any(|text| text == "<message_sent to=\"3\"/>"),
        "{writer:?}"
    );
    // Those that were born stopped have begun nothing, also in another life of the kernel.
    assert!(requests.of(first.pid().0).is_empty());
    kernel.shutdown().await.unwrap();
    let kernel = open(folder.path(), &requests).build().await.unwrap();
    within(kernel.resume_all()).await.unwrap();
    let root = kernel.process(root.pid()).await.unwrap();
    within(root.wait_for(|view: &ProcessView| view.stopped))
        .await
        .unwrap();
    assert!(requests.of(first.pid().0).is_empty());
    within(root.tree().cont()).await.unwrap();
    check_end(
        &within(root.wait()).await.unwrap(),
        "the branch that was stopped",
    );
    check_histories(&requests);
    kernel.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_checkpoint_of_a_tree_holds_all_its_processes_and_outlives_the_kernel() {
    let (requests, folder, gate) = (
        Requests::default(),
        tempfile::tempdir().unwrap(),
        Gate::default(),
    );
    let held = |gate: Gate| {
        FnModel(move |request: Request| {
            let gate = gate.clone();
            async move {
                if answers(&request).len() == 4 {
                    gate.pass().await;
                }
                Ok(swarm(&request))
            }
        })
    };
    let kernel = Kernel::open(LogStore::open(folder.path()).unwrap())
        .model("m", requests.record(held(gate.clone())));
    let kernel = kernel.build().await.unwrap();
    let process = kernel
        .start(program(&kernel, TOOLS))
        .input("go")
        .await
        .unwrap();
    gate.entered().await;
    let kept = within(process.tree().checkpoint("in the middle"))
        .await
        .unwrap();
    assert_eq!(
        (kept.id, kept.pid, kept.scope),
        (CheckpointId(1), Pid(1), Scope::Tree)
    );
    assert_eq!(
        kept.members
            .iter()
            .map(|member| member.pid.0)
            .collect::<Vec<_>>(),
        [1, 2, 3]
    );
    gate.open();
    check_end(&within(process.wait()).await.unwrap(), "the swarm");
    let alone = within(process.checkpoint("at the end")).await.unwrap();
    assert_eq!(
        (alone.id, alone.scope, alone.members.len()),
        (CheckpointId(2), Scope::Process, 1)
    );
    within(kernel.drop_checkpoint(alone.id)).await.unwrap();
    let unknown = kernel.restore(alone.id).await.unwrap_err();
    assert!(
        matches!(
            unknown,
            KernelError::Store(StoreFailure::Store(StoreError::UnknownCheckpoint(
                CheckpointId(2)
            )))
        ),
        "{unknown}"
    );
    kernel.shutdown().await.unwrap();
    let kernel = open(folder.path(), &requests).build().await.unwrap();
    assert_eq!(
        kernel.checkpoints().await.unwrap(),
        std::slice::from_ref(&kept)
    );
    let restored = within(kernel.restore(kept.id).into_future()).await.unwrap();
    check_end(&within(restored.wait()).await.unwrap(), "what was restored");
    let again = within(kernel.branch(Pid(3), kept.id).into_future())
        .await
        .unwrap();
    let root = root_of(&kernel, again.pid()).await;
    assert_eq!(
        rows(&kernel).await[&again.pid()].branched_from.unwrap().pid,
        Pid(3)
    );
    check_end(
        &within(root.wait()).await.unwrap(),
        "what was restored by another",
    );
    let outside = kernel.branch(root.pid(), kept.id).await.unwrap_err();
    assert!(
        matches!(
            outside,
            KernelError::NotFound(NotFound::InCheckpoint { .. })
        ),
        "{outside}"
    );
    let next = within(restored.checkpoint("later")).await.unwrap();
    assert_eq!(
        next.id,
        CheckpointId(3),
        "a number that was given up is not used again"
    );
    check_histories(&requests);
    kernel.shutdown().await.unwrap();
}

/// A store that is cut off between any two commits around a branch: all of it is there, or nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_branch_is_born_whole_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let requests = Requests::default();
    let kernel = open(folder.path(), &requests).build().await.unwrap();
    let process = kernel
        .start(program(&kernel, TOOLS))
        .input("go")
        .await
        .unwrap();
    check_end(&within(process.wait()).await.unwrap(), "the swarm");
    let point = kernel.log(Pid(2)).await.unwrap().len() as u64 / 2;
    kernel.shutdown().await.unwrap();
    let mut seen = Vec::new();
    for commits in 0..8 {
        let copy = copy_of(folder.path());
        let store = Faulty::crashing_after(commits, LogStore::open(copy.path()).unwrap());
        let kernel = Kernel::open(store)
            .model("m", model())
            .build()
            .await
            .unwrap();
        let made = within(kernel.branch(Pid(2), FactNumber(point)).into_future()).await;
        kernel.shutdown().await.unwrap();
        let kernel = open(copy.path(), &requests).build().await.unwrap();
        let born = rows(&kernel).await.len() - 3;
        assert_eq!(
            born,
            if made.is_ok() { 3 } else { 0 },
            "after {commits} commits"
        );
        seen.push(born);
        within(kernel.resume_all()).await.unwrap();
        if let Ok(made) = made {
            let root = root_of(&kernel, made.pid()).await;
            check_end(
                &within(root.wait()).await.unwrap(),
                &format!("a branch that crashed after {commits} commits"),
            );
        }
        kernel.shutdown().await.unwrap();
    }
    assert!(seen.contains(&0) && seen.contains(&3), "{seen:?}");
    check_histories(&requests);
}

fn copy_of(folder: &Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    copy_into(folder, copy.path());
    copy
}

fn copy_into(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            std::fs::create_dir(&to).unwrap();
            copy_into(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn contents_are_shared_by_all_branches() {
    let folder = tempfile::tempdir().unwrap();
    let kernel = Kernel::open(LogStore::open(folder.path()).unwrap())
        .model("m", model())
        .build()
        .await
        .unwrap();
    let session = kernel
        .start(program(&kernel, TOOLS))
        .session()
        .without_input()
        .await
        .unwrap();
    let large: Vec<u8> = (0..8 << 20)
        .map(|at: u32| (at.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    session.open("data", large, None).await.unwrap();
    let size = || -> u64 { folder_bytes(folder.path()) };
    let before = size();
    for _ in 0..20 {
        within(kernel.branch(session.pid(), Position::Now).into_future())
            .await
            .unwrap();
    }
    let grown = size() - before;
    assert!(
        grown < 1 << 20,
        "20 branches of 8 MiB grew the store by {grown} bytes"
    );
    kernel.shutdown().await.unwrap();
}

fn folder_bytes(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    let bytes = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => folder_bytes(&entry.path()),
        Ok(metadata) => std::os::unix::fs::MetadataExt::blocks(&metadata) * 512,
        Err(_) => 0,
    };
    entries.map(bytes).sum()
}

#[tokio::test]
async fn without_a_store_there_is_nothing_to_go_back_to() {
    let kernel = Kernel::builder().model("m", model()).build().await.unwrap();
    let session = kernel
        .start(program(&kernel, TOOLS))
        .session()
        .without_input()
        .await
        .unwrap();
    assert!(matches!(
        session.checkpoint("x").await,
        Err(KernelError::Store(StoreFailure::NoStore))
    ));
    assert!(matches!(
        kernel.checkpoints().await,
        Err(KernelError::Store(StoreFailure::NoStore))
    ));
    assert!(matches!(
        kernel.branch(session.pid(), Position::Now).await,
        Err(KernelError::Store(StoreFailure::NoStore))
    ));
    assert!(matches!(
        kernel.branch(Pid(9), Position::Now).await,
        Err(KernelError::NotFound(NotFound::Process(Pid(9))))
    ));
    kernel.shutdown().await.unwrap();
}

/// Makes a checkpoint, goes back to it whenever it can, and says at last how it was refused.
fn restless(request: &Request) -> Reply {
    let all = answers(request);
    let last = request.messages.last().unwrap();
    let is_told = last.blocks.iter().any(
        |block| matches!(block, Block::Text { text, .. } if text.starts_with("<process_restored")),
    );
    match all.last() {
        None => asks(&[("checkpoint_process", r#"{"label": "start"}"#)]),
        Some(error) if error.starts_with("<checkpoint_error") => says(error),
        Some(_) if is_told || all.len() == 1 => asks(&[("open", "{}")]),
        Some(_) => asks(&[("restore_process", r#"{"checkpoint_id": "cp:1"}"#)]),
    }
}

const RESTLESS: &str = "max_iterations = 100\n[tools]\nenabled = [\"checkpoint_process\", \
\"restore_process\", \"list_checkpoints\", \"open\", \"read_fd\"]\n[limits]\nmax_restores = 3\n";

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Nothing {}

fn large_output() -> impl dormouse::ports::Tool {
    let open = |Nothing {}: Nothing| async { Ok::<_, String>("line\n".repeat(9_000)) };
    dormouse::FnTool::new("open", "Returns much.", open).idempotent()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_that_goes_back_again_and_again_is_stopped_by_its_limit() {
    let requests = Requests::default();
    let model = FnModel(|request: Request| async move { Ok(restless(&request)) });
    let kernel = Kernel::open(MemoryStore::new())
        .model("m", requests.record(model))
        .tool(large_output());
    let kernel = kernel.build().await.unwrap();
    let process = kernel
        .start(program(&kernel, RESTLESS))
        .input("go")
        .await
        .unwrap();
    let exit = within(process.wait()).await.unwrap();
    assert!(
        exit.message
            .starts_with("<checkpoint_error type=\"too_often\">"),
        "{exit:?}"
    );
    let told = requests.all().into_iter().filter(|request| {
        request.messages.len() == 3
            && format!("{:?}", request.messages[2]).contains("process_restored")
    });
    assert_eq!(
        told.count(),
        3,
        "each time it was told once, and nothing else stood behind its checkpoint"
    );
    let opened: Vec<_> = answers(requests.all().last().unwrap());
    assert!(
        opened[1].starts_with("<fd_result fd=\"fd:4\""),
        "no number is given twice: {opened:?}"
    );
    let log = kernel.log(process.pid()).await.unwrap();
    assert_eq!(
        log.iter()
            .filter(|line| line.name == "restored" && line.summary == "cp:1")
            .count(),
        3
    );
    check_histories(&requests);
    kernel.shutdown().await.unwrap();
}

/// A store that is cut off between any two commits: the model goes back as often as it would have,
/// and comes to the same end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn going_back_survives_the_end_of_the_kernel_at_every_commit() {
    let requests = Requests::default();
    let model = || FnModel(|request: Request| async move { Ok(restless(&request)) });
    let mut commits = 0;
    loop {
        let folder = tempfile::tempdir().unwrap();
        let store = Faulty::crashing_after(commits, LogStore::open(folder.path()).unwrap());
        let kernel = Kernel::open(store)
            .model("m", requests.record(model()))
            .tool(large_output());
        let kernel = kernel.build().await.unwrap();
        let program = program(&kernel, RESTLESS);
        let started = kernel.start(program).input("go").await;
        let was_whole = match &started {
            Ok(process) => within(process.wait())
                .await
                .is_ok_and(|exit| exit.status == ExitStatus::Done),
            Err(_) => false,
        };
        drop(started);
        kernel.shutdown().await.unwrap();
        let kernel = open(folder.path(), &requests).model("m", requests.record(model()));
        let kernel = kernel.tool(large_output()).build().await.unwrap();
        for process in within(kernel.resume_all()).await.unwrap() {
            let exit = within(process.wait()).await.unwrap();
            assert!(
                exit.message.contains("too_often"),
                "after {commits} commits: {exit:?}"
            );
        }
        if let Some(info) = kernel.processes().await.unwrap().first() {
            let log = kernel.log(info.row.pid).await.unwrap();
            let times = log.iter().filter(|line| line.name == "restored").count();
            assert_eq!(times, 3, "after {commits} commits");
        }
        kernel.shutdown().await.unwrap();
        if was_whole {
            break;
        }
        commits += 1;
    }
    assert!(commits > 10, "{commits}");
    check_histories(&requests);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_host_takes_a_session_back_and_a_branch_finds_the_checkpoints_of_what_it_goes_on_from()
{
    let model = FnModel(|request: Request| async move {
        Ok(says(
            &request
                .messages
                .last()
                .unwrap()
                .blocks
                .iter()
                .map(|block| format!("{block:?}"))
                .collect::<String>(),
        ))
    });
    let requests = Requests::default();
    let kernel = Kernel::open(MemoryStore::new())
        .model("m", requests.record(model))
        .build()
        .await
        .unwrap();
    let session = kernel
        .start(program(&kernel, ""))
        .session()
        .without_input()
        .await
        .unwrap();
    turn(&session, "one").await;
    let kept = within(session.checkpoint("early")).await.unwrap();
    turn(&session, "two").await;
    let branch = within(kernel.branch(session.pid(), Position::Now).into_future())
        .await
        .unwrap();
    for process in [&session, &branch] {
        let fact = process.view().unwrap().fact;
        let answer = within(process.restore(kept.id)).await.unwrap();
        assert!(
            !answer.is_error && answer.text.contains("label=\"early\""),
            "{}",
            answer.text
        );
        let back =
            within(process.wait_for(|view: &ProcessView| view.is_idle() && view.messages == 3))
                .await
                .unwrap();
        assert!(back.fact > fact, "a journal only grows");
        turn(process, "three").await;
        let sent = requests.of(process.pid().0).pop().unwrap();
        let texts: Vec<_> = sent.messages.iter().map(|message| message.text()).collect();
        assert!(
            texts[0] == "one" && texts[2].starts_with("<process_restored") && texts[3] == "three",
            "{texts:?}"
        );
    }
    let other = kernel
        .start(program(&kernel, ""))
        .session()
        .without_input()
        .await
        .unwrap();
    assert!(matches!(
        other.restore(kept.id).await,
        Err(KernelError::NotFound(NotFound::InCheckpoint { .. }))
    ));
    check_histories(&requests);
    kernel.shutdown().await.unwrap();
}

/// A copy of a process that ended waits for input: the checkpoints of the other are its own, and
/// those of its end no place to go to.
#[tokio::test]
async fn a_copy_goes_back_to_where_the_other_lived_and_not_to_its_end() {
    let model =
        FnModel(
            |request: Request| async move { Ok(says(&request.messages.last().unwrap().text())) },
        );
    let kernel = Kernel::open(MemoryStore::new())
        .model("m", model)
        .build()
        .await
        .unwrap();
    let session = kernel
        .start(program(&kernel, ""))
        .session()
        .without_input()
        .await
        .unwrap();
    turn(&session, "one").await;
    let alive = within(session.checkpoint("alive")).await.unwrap();
    session.kill().await.unwrap();
    within(session.wait()).await.unwrap();
    let ended = within(session.tree().checkpoint("ended")).await.unwrap();
    let copy = within(kernel.copy(session.pid(), None)).await.unwrap();
    let refused = within(copy.restore(ended.id)).await.unwrap();
    assert!(
        refused.is_error && refused.text.contains("type=\"ended\""),
        "{}",
        refused.text
    );
    assert_eq!(turn(&copy, "two").await, "two", "it is as it was");
    let answer = within(copy.restore(alive.id)).await.unwrap();
    assert!(
        !answer.is_error && answer.text.contains("label=\"alive\""),
        "{}",
        answer.text
    );
    kernel.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_that_cannot_be_born_leaves_no_checkpoint() {
    let is_full = Arc::new(AtomicBool::new(false));
    let full = is_full.clone();
    let store = Faulty::new(MemoryStore::new(), move |_, operation| match operation {
        // The births, with the checkpoint that is given up by them.
        Operation::Commit { entries, .. } if entries > 1 && full.load(Ordering::SeqCst) => {
            Fate::Fail(StoreError::Io {
                doing: "append".into(),
                source: std::io::ErrorKind::StorageFull.into(),
            })
        }
        _ => Fate::Pass,
    });
    let kernel = Kernel::open(store)
        .model("m", FnModel(|_: Request| async { Ok(says("well")) }))
        .build()
        .await
        .unwrap();
    let program = program(&kernel, "");
    let process = kernel
        .start(program)
        .session()
        .without_input()
        .await
        .unwrap();
    within(process.wait_for(ProcessView::is_idle))
        .await
        .unwrap();
    is_full.store(true, Ordering::SeqCst);
    let refused = kernel.branch(process.pid(), Position::Now).await;
    assert!(
        matches!(
            refused,
            Err(KernelError::Store(StoreFailure::NotDurable(_)))
        ),
        "{refused:?}"
    );
    within(async {
        while !kernel.checkpoints().await.unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_whose_birth_is_on_its_way_is_forked_copied_and_inspected_once_it_has_arrived() {
    let (disk_works, waits) = std::sync::mpsc::channel::<()>();
    let waits = std::sync::Mutex::new(waits);
    let store = Faulty::new(MemoryStore::new(), move |_, operation| {
        if matches!(operation, Operation::Commit { .. }) {
            let _ = waits.lock().unwrap().recv();
        }
        Fate::Pass
    });
    let gate = Gate::default();
    let held = gate.clone();
    let model = FnModel(move |_| {
        let gate = held.clone();
        async move {
            gate.pass().await;
            Ok(says("done"))
        }
    });
    let kernel = Kernel::open(store).model("m", model).build().await.unwrap();
    let start = kernel.start(program(&kernel, "")).input("go").into_future();
    let started = tokio::spawn(start);
    let listed = async {
        while kernel.processes().await.unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    within(listed).await;
    let pid = Pid(1);
    let process = kernel.process(pid).await.unwrap();
    let (copied, inspected) = (kernel.clone(), kernel.clone());
    let forked = tokio::spawn(async move { process.fork().await });
    let copied = tokio::spawn(async move { copied.copy(pid, None).await });
    let inspected = tokio::spawn(async move { inspected.inspect(pid).await });
    // They have time to read what is not there yet.
    tokio::time::sleep(Duration::from_millis(100)).await;
    drop(disk_works);
    let processes = [
        within(started).await,
        within(forked).await,
        within(copied).await,
    ]
    .map(Result::unwrap);
    within(inspected).await.unwrap().unwrap();
    // A copy of one that has ended would wait for input.
    gate.open();
    for process in processes.map(Result::unwrap) {
        assert_eq!(&*within(process.wait()).await.unwrap().message, "done");
    }
}

/// Who resumes a process of a branch that then cannot be made learns that there is no such process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_for_a_branch_that_is_not_made_is_answered() {
    let is_full = Arc::new(AtomicBool::new(false));
    let (commits, goes_on) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let (full, committing, going_on) = (is_full.clone(), commits.clone(), goes_on.clone());
    let store = Faulty::new(MemoryStore::new(), move |_, operation| match operation {
        Operation::Commit { .. } if full.swap(false, Ordering::SeqCst) => {
            committing.wait();
            going_on.wait();
            Fate::Fail(disk_full())
        }
        _ => Fate::Pass,
    });
    let kernel = Kernel::open(store).build().await.unwrap();
    let start = kernel.start(program(&kernel, "")).session();
    let session = start.without_input().await.unwrap();
    is_full.store(true, Ordering::SeqCst);
    let branch = kernel.branch(session.pid(), FactNumber(0)).into_future();
    let branching = tokio::spawn(branch);
    let reached = tokio::task::spawn_blocking(move || commits.wait());
    within(reached).await.unwrap();
    let mut resuming = Box::pin(kernel.resume(Pid(2)));
    let waits = tokio::time::timeout(Duration::from_millis(50), &mut resuming).await;
    assert!(waits.is_err(), "its birth is not durable yet");
    let released = tokio::task::spawn_blocking(move || goes_on.wait());
    within(released).await.unwrap();
    let resumed = within(resuming).await;
    assert!(
        matches!(
            resumed,
            Err(KernelError::NotFound(NotFound::Process(Pid(2))))
        ),
        "{resumed:?}"
    );
    assert!(within(branching).await.unwrap().is_err());
}
