//! A store that has lost the record of a birth, or of a checkpoint: nobody takes it for one that was
//! never made.

use std::fs;
use std::future::pending;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dormouse::host::{LocalHost, Permissions};
use dormouse::id::{CheckpointId, Pid};
use dormouse::mail::Reach;
use dormouse::model::Request;
use dormouse::process::ExitStatus;
use dormouse::store::LogStore;
use dormouse::{FnTool, Kernel, KernelError, NotFound};
use dormouse_tests::{FnModel, asks, program, results, says, within};

const PARENT: &str = "[model]\nname = \"m\"\nprovider = \"scripted\"\n[tools]\nenabled = [{ name = \
\"fork\", access = \"write\" }, \"spawn\", \"work\"]\n[linked_programs]\nworker = { path = \
\"worker.toml\", description = \"Works.\" }\n";
const WORKER: &str =
    "[model]\nname = \"m\"\nprovider = \"scripted\"\n[tools]\nenabled = [\"work\"]\n";

/// A parent makes a child by a call, as does its child, down to the process `worker`, which works
/// once.
#[derive(Clone, Copy, Debug)]
struct Family {
    call: (&'static str, &'static str),
    worker: u64,
    /// What the birth of the worker alone holds.
    birth: &'static [u8],
}

/// A kernel in which the worker thinks for good once it has worked, unless it `goes_on`.
async fn kernel(folder: &Path, family: Family, worked: &Arc<AtomicUsize>, goes_on: bool) -> Kernel {
    let model = FnModel(move |request: Request| async move {
        let answers = results(&request, 0);
        let has_worked = answers.iter().any(|(text, _)| text.contains("worked"));
        let is_born = answers
            .iter()
            .all(|(text, _)| text.starts_with("You are child"));
        match request.pid.0 {
            pid if pid < family.worker && is_born => Ok(asks(&[family.call])),
            pid if pid < family.worker => Ok(says("done")),
            _ if !has_worked => Ok(asks(&[("work", "{}")])),
            _ if goes_on => Ok(says("I worked")),
            _ => pending().await,
        }
    });
    let counted = worked.clone();
    let work = FnTool::new("work", "Works.", move |()| {
        counted.fetch_add(1, Ordering::SeqCst);
        async { Ok::<_, String>("worked") }
    });
    let host = LocalHost::new(Permissions::none(), ".").unwrap();
    Kernel::open(LogStore::open(folder).unwrap())
        .host(host)
        .model("m", model)
        .tool(work)
        .build()
        .await
        .unwrap()
}

/// Flips a bit in the last place where this stands: in the birth of a child, or in a checkpoint.
fn flip(folder: &Path, text: &[u8]) {
    let path = folder.join("log/00000001.seg");
    let mut log = fs::read(&path).unwrap();
    let at = log
        .windows(text.len())
        .rposition(|bytes| bytes == text)
        .unwrap();
    log[at] ^= 1;
    fs::write(path, log).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_child_whose_birth_is_lost_is_not_made_again() {
    let fork = ("fork", r#"{"prompts": ["look around"]}"#);
    let spawn = (
        "spawn",
        r#"{"program": "worker", "query": "look about you"}"#,
    );
    for family in [
        Family {
            call: fork,
            worker: 2,
            birth: b"a fork of process 1",
        },
        Family {
            call: fork,
            worker: 3,
            birth: b"a fork of process 2",
        },
        Family {
            call: spawn,
            worker: 2,
            birth: b"look about you",
        },
    ] {
        let folder = tempfile::tempdir().unwrap();
        let worked = Arc::new(AtomicUsize::new(0));
        let first = kernel(folder.path(), family, &worked, false).await;
        let programs = tempfile::tempdir().unwrap();
        for (file, text) in [("parent.toml", PARENT), ("worker.toml", WORKER)] {
            fs::write(programs.path().join(file), text).unwrap();
        }
        let program = first
            .load(programs.path().join("parent.toml"))
            .unwrap()
            .program;
        let parent = first.start(program).input("go").await.unwrap();
        let child = loop {
            match first.process(Pid(family.worker)).await {
                Ok(child) => break child,
                Err(_) => tokio::task::yield_now().await,
            }
        };
        within(child.wait_for(|view| view.output_totals.produced_chars > 0))
            .await
            .unwrap();
        drop((parent, child));
        within(first.shutdown()).await.unwrap();
        assert_eq!(worked.load(Ordering::SeqCst), 1);

        flip(folder.path(), family.birth);
        fs::remove_dir_all(folder.path().join("index")).unwrap();
        let damaged = kernel(folder.path(), family, &worked, true).await;
        assert!(!damaged.losses().is_empty(), "{family:?}");
        let unknown = damaged.process(Pid(family.worker)).await.err();
        assert!(
            matches!(
                unknown,
                Some(KernelError::NotFound(NotFound::MayBeLost { .. }))
            ),
            "{unknown:?}"
        );
        within(damaged.resume_all()).await.unwrap();
        let held = within(damaged.process(Pid(1)).await.unwrap().wait())
            .await
            .unwrap_err();
        // Who waits for the process above all others is told, however deep the child was.
        assert!(
            held.to_string().contains("may have made a child"),
            "{held:?}"
        );
        within(damaged.shutdown()).await.unwrap();
        assert_eq!(
            worked.load(Ordering::SeqCst),
            1,
            "{family:?}: what the child did is not done again"
        );

        flip(
            folder.path(),
            &[&[family.birth[0] ^ 1], &family.birth[1..]].concat(),
        );
        let whole = kernel(folder.path(), family, &worked, true).await;
        assert_eq!(whole.losses(), [] as [String; 0]);
        within(whole.resume_all()).await.unwrap();
        let exit = within(whole.process(Pid(1)).await.unwrap().wait())
            .await
            .unwrap();
        assert_eq!(
            (exit.status, worked.load(Ordering::SeqCst)),
            (ExitStatus::Done, 1),
            "{exit:?}"
        );
        within(whole.shutdown()).await.unwrap();
    }
}

/// The parent is lost, and its child is not. Nobody resumed the child, so a message of another tree
/// does not wake it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_child_whose_parent_is_lost_can_be_isolated() {
    const INPUT: &str = "begin the survey";
    let folder = tempfile::tempdir().unwrap();
    let open = async || {
        let model = FnModel(|request: Request| async move {
            match request.pid.0 {
                1 if results(&request, 0).is_empty() => {
                    Ok(asks(&[("fork", r#"{"prompts": ["look around"]}"#)]))
                }
                _ => pending().await,
            }
        });
        Kernel::open(LogStore::open(folder.path()).unwrap())
            .reach(Reach::Everyone)
            .model("m", model)
            .build()
            .await
            .unwrap()
    };
    let kernel = open().await;
    let tools = "[tools]\nenabled = [\"fork\", \"send_message\", \"receive_messages\"]\n";
    let program = program(&kernel, tools);
    kernel.start(program.clone()).input(INPUT).await.unwrap();
    while kernel.process(Pid(2)).await.is_err() {
        tokio::task::yield_now().await;
    }
    let sender = kernel
        .start(program)
        .session()
        .without_input()
        .await
        .unwrap();
    assert_eq!(sender.pid(), Pid(3));
    within(kernel.shutdown()).await.unwrap();

    // The first place is in the birth of the parent. That of the child repeats it.
    let path = folder.path().join("log/00000001.seg");
    let mut log = fs::read(&path).unwrap();
    let at = log
        .windows(INPUT.len())
        .position(|bytes| bytes == INPUT.as_bytes())
        .unwrap();
    log[at] ^= 1;
    fs::write(&path, log).unwrap();
    fs::remove_dir_all(folder.path().join("index")).unwrap();

    let kernel = open().await;
    let listed = kernel.processes().await.unwrap();
    let rows: Vec<_> = listed
        .iter()
        .map(|info| (info.row.pid, info.row.parent))
        .collect();
    assert_eq!(rows, [(Pid(2), Some(Pid(1))), (Pid(3), None)]);
    kernel.isolate([Pid(2)]).unwrap();
    let sender = kernel.resume(Pid(3)).await.unwrap();
    let send = async || {
        let args = r#"{"to": "2", "text": "wake up"}"#;
        within(sender.call("send_message", args)).await.unwrap()
    };
    let refused = send().await;
    assert!(
        refused.is_error && refused.text.contains("the user has not resumed it"),
        "{}",
        refused.text
    );
    assert_eq!(kernel.processes().await.unwrap()[0].status.word(), "held");
    kernel.resume(Pid(2)).await.unwrap();
    let sent = send().await;
    assert!(!sent.is_error, "{}", sent.text);
    within(kernel.shutdown()).await.unwrap();
}

/// The host and the tool say the same of a checkpoint that may be lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_checkpoint_is_told_as_one_where_a_process_returns_to_it() {
    const LABEL: &str = "before the survey";
    const LOST: &str = "may be among what is lost";
    let folder = tempfile::tempdir().unwrap();
    let open = async || {
        let model = FnModel(|_: Request| async { Ok(says("done")) });
        Kernel::open(LogStore::open(folder.path()).unwrap())
            .model("m", model)
            .build()
            .await
            .unwrap()
    };
    let kernel = open().await;
    let program = program(&kernel, "[tools]\nenabled = [\"restore_process\"]\n");
    for _ in 0..2 {
        let start = kernel.start(program.clone()).session();
        start.without_input().await.unwrap();
    }
    let marked = kernel.process(Pid(1)).await.unwrap();
    let made = within(marked.checkpoint(LABEL)).await.unwrap();
    assert_eq!(made.id, CheckpointId(1));
    drop(marked);
    within(kernel.shutdown()).await.unwrap();

    flip(folder.path(), LABEL.as_bytes());
    fs::remove_dir_all(folder.path().join("index")).unwrap();
    let damaged = open().await;
    assert!(damaged.checkpoints().await.unwrap().is_empty());
    let marked = damaged.process(Pid(1)).await.unwrap();
    let error = within(marked.restore(made.id)).await.unwrap_err();
    assert!(error.to_string().contains(LOST), "{error}");
    let other = damaged.resume(Pid(2)).await.unwrap();
    let args = r#"{"checkpoint_id": "cp:1"}"#;
    let answer = within(other.call("restore_process", args)).await.unwrap();
    assert!(
        answer.is_error && answer.text.contains(LOST),
        "{}",
        answer.text
    );
    within(damaged.shutdown()).await.unwrap();
}
