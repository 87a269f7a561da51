//! What must not be lost to what passes: a kernel without a tool, a parent that ended first, an
//! earlier host's calls.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};

use dormouse::id::Pid;
use dormouse::model::Request;
use dormouse::ports::{Batch, Store, WriteOp};
use dormouse::process::ExitStatus;
use dormouse::store::{LogStore, MemoryStore};
use dormouse::{FnTool, Kernel, KernelBuilder, KernelError, StoreFailure};
use dormouse_tests::faulty::{Fate, Faulty, Operation};
use dormouse_tests::{FnModel, Gate, Requests, asks, program, results, says, turn, within};

const TOOL: &str = "[tools]\nenabled = [\"tool\", \"read_fd\", \"list\"]\n[[tools.command]]\nname \
= \"list\"\ndescription = \"Lists.\"\nargv = [\"ls\"]\n";

fn open(folder: &Path) -> KernelBuilder {
    Kernel::open(LogStore::open(folder).unwrap())
}

/// Calls `tool` once, then says what came of it.
fn once() -> impl dormouse::ports::Model {
    FnModel(|request: Request| async move {
        Ok(match request.messages.len() {
            1 => asks(&[("tool", "{}")]),
            _ => says(&format!("{:?}", results(&request, 0))),
        })
    })
}

fn gated(gate: &Gate) -> impl dormouse::ports::Tool {
    let gate = gate.clone();
    let tool = FnTool::new("tool", "Waits.", move |()| {
        let gate = gate.clone();
        async move {
            gate.pass().await;
            Ok::<_, String>("done")
        }
    });
    tool.idempotent()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kernel_that_lacks_a_tool_leaves_the_process_to_one_that_has_it() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::default();
    let kernel = open(folder.path())
        .model("m", once())
        .tool(gated(&gate))
        .build()
        .await
        .unwrap();
    let started = kernel
        .start(program(&kernel, TOOL))
        .input("go")
        .await
        .unwrap();
    within(gate.entered()).await;
    let pid = started.pid();
    within(kernel.shutdown()).await.unwrap();

    let kernel = open(folder.path())
        .model("m", once())
        .build()
        .await
        .unwrap();
    assert_eq!(
        within(kernel.inspect(pid)).await.unwrap().status().word(),
        "acting",
        "it can be looked at all the same"
    );
    let error = within(kernel.resume(pid)).await.unwrap_err();
    assert!(
        matches!(&error, KernelError::Store(StoreFailure::Load(_)))
            && error.to_string().contains("tool"),
        "{error}"
    );
    let row = kernel.processes().await.unwrap().remove(0);
    assert_eq!(
        (row.status.word(), row.row.exit),
        ("held", None),
        "it is not ended by what this kernel lacks"
    );
    within(kernel.shutdown()).await.unwrap();

    let opened = Gate::default();
    opened.open();
    let kernel = open(folder.path())
        .model("m", once())
        .tool(gated(&opened))
        .build()
        .await
        .unwrap();
    let exit = within(kernel.resume(pid).await.unwrap().wait())
        .await
        .unwrap();
    assert_eq!(
        (exit.status, &*exit.message),
        (ExitStatus::Done, r#"[("done", false)]"#)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn children_do_not_outlive_a_parent_that_was_killed_in_an_earlier_life() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::default();
    let hold = gate.clone();
    let model = move || {
        let hold = hold.clone();
        FnModel(move |request: Request| {
            let hold = hold.clone();
            async move {
                if request.messages.len() == 1 {
                    return Ok(asks(&[("fork", r#"{"prompts": ["a", "b"]}"#)]));
                }
                hold.pass().await;
                Ok(says("a child speaks"))
            }
        })
    };
    // The journals as a crash leaves them between the end of a parent and those of its children.
    let kernel = open(folder.path())
        .model("m", model())
        .build()
        .await
        .unwrap();
    let fork = "[tools]\nenabled = [\"fork\"]\n[limits]\nfork_release = \"all\"\n";
    let parent = kernel
        .start(program(&kernel, fork))
        .input("go")
        .await
        .unwrap();
    within(gate.entered()).await;
    within(gate.entered()).await;
    let pid = parent.pid();
    within(kernel.shutdown()).await.unwrap();
    let store = LogStore::open(folder.path()).unwrap();
    let owner = store.claim().unwrap();
    let exit = dormouse::process::Exit::new(ExitStatus::Killed, "killed");
    store
        .commit(
            owner,
            Batch::durable(&[WriteOp::ProcessEnded { pid, exit }], 0),
        )
        .unwrap();
    drop(store);

    let requests = Requests::default();
    let kernel = open(folder.path())
        .model("m", requests.record(model()))
        .build()
        .await
        .unwrap();
    for child in within(kernel.resume_all()).await.unwrap() {
        assert_eq!(
            within(child.wait()).await.unwrap().status,
            ExitStatus::Killed
        );
    }
    assert!(requests.all().is_empty(), "nobody asked a model");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_of_an_earlier_host_is_not_taken_for_one_of_this() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::default();
    let slow = gated(&gate);
    let kernel = open(folder.path())
        .model("m", once())
        .tool(slow)
        .build()
        .await
        .unwrap();
    let session = kernel
        .start(program(&kernel, TOOL))
        .session()
        .without_input()
        .await
        .unwrap();
    let pid = session.pid();
    let unanswered = tokio::spawn(async move { session.call("tool", "{}").await });
    within(gate.entered()).await;
    within(kernel.shutdown()).await.unwrap();
    assert!(within(unanswered).await.unwrap().is_err());

    let later = Gate::default();
    let kernel = open(folder.path())
        .model("m", once())
        .tool(gated(&later))
        .build()
        .await
        .unwrap();
    let session = kernel.resume(pid).await.unwrap();
    within(later.entered()).await;
    let beside = tokio::spawn({
        let session = session.clone();
        async move { session.call("tool", "{}").await }
    });
    within(later.entered()).await;
    later.open();
    assert_eq!(&*within(beside).await.unwrap().unwrap().text, "done");
    within(session.wait_for(|view| view.status().word() == "idle"))
        .await
        .unwrap();
    assert_eq!(
        &*within(session.call("tool", "{}")).await.unwrap().text,
        "done"
    );
}

#[tokio::test]
async fn a_content_opened_with_pages_of_nothing_does_not_poison_its_process() {
    let folder = tempfile::tempdir().unwrap();
    let kernel = open(folder.path())
        .model("m", once())
        .snapshot_after_facts(1)
        .build()
        .await
        .unwrap();
    let rest = "[tools]\nenabled = [\"read_fd\"]\n";
    let session = kernel
        .start(program(&kernel, rest))
        .session()
        .without_input()
        .await
        .unwrap();
    session.open("a", "abc", Some(0)).await.unwrap();
    let pid = session.pid();
    within(kernel.shutdown()).await.unwrap();
    let kernel = open(folder.path())
        .model("m", once())
        .build()
        .await
        .unwrap();
    let session = kernel.resume(pid).await.unwrap();
    let answer = session
        .call("read_fd", r#"{"fd": "fd:1", "read_all": true}"#)
        .await
        .unwrap();
    assert!(answer.text.ends_with(">abc</fd_content>"), "{answer:?}");
}

#[tokio::test]
async fn a_process_may_be_told_something_by_another() {
    let model =
        FnModel(
            |request: Request| async move { Ok(says(&request.messages.last().unwrap().text())) },
        );
    let kernel = Kernel::builder().model("m", model).build().await.unwrap();
    let session = kernel
        .start(program(&kernel, ""))
        .session()
        .without_input()
        .await
        .unwrap();
    assert_eq!(turn(&session, "hello").await, "hello");
    let mut events = session.events();
    session.message(Pid(7), "from afar").await.unwrap();
    let outcome = within(async {
        loop {
            use futures_util::StreamExt;
            if let Some(dormouse::Event::TurnEnded { outcome, .. }) = events.next().await
                && outcome.message.contains("afar")
            {
                return outcome;
            }
        }
    });
    assert_eq!(
        &*outcome.await.message,
        "<process_message from=\"7\">\n  <message>from afar</message>\n</process_message>"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_stops_a_process_by_name_and_it_goes_on_when_there_is_room() {
    for commits in 1..8 {
        let room = Arc::new(AtomicUsize::new(commits));
        let store = Faulty::full_after(room.clone(), MemoryStore::new());
        let gate = Gate::default();
        gate.open();
        let kernel = Kernel::open(store)
            .model("m", once())
            .tool(gated(&gate))
            .build()
            .await
            .unwrap();
        let process = kernel
            .start(program(&kernel, TOOL))
            .input("go")
            .await
            .unwrap();
        if let Err(held) = within(process.wait()).await {
            assert!(held.to_string().contains("append"), "{commits}: {held}");
            room.store(1000, Ordering::SeqCst);
            let process = within(kernel.resume(process.pid())).await.unwrap();
            let exit = within(process.wait()).await.unwrap();
            assert_eq!(
                (exit.status, &*exit.message),
                (ExitStatus::Done, r#"[("done", false)]"#),
                "{commits}"
            );
        }
        let other = kernel.start(program(&kernel, TOOL)).input("go").await;
        assert!(
            other.is_ok() || room.load(Ordering::SeqCst) == 0,
            "{commits}: the kernel lives"
        );
    }
}

/// An earlier owner may commit until the store is claimed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_earlier_owner_commits_before_the_claim_is_listed() {
    let inner = Arc::new(MemoryStore::new());
    let earlier = Kernel::open(inner.clone()).build().await.unwrap();
    let (claims, goes_on) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    let (claiming, going_on) = (claims.clone(), goes_on.clone());
    let store = Faulty::new(inner, move |_, operation| {
        if operation == Operation::Claim {
            claiming.wait();
            going_on.wait();
        }
        Fate::Pass
    });
    let start = async {
        tokio::task::spawn_blocking(move || claims.wait())
            .await
            .unwrap();
        let start = earlier.start(program(&earlier, "")).session();
        let session = start.without_input().await.unwrap();
        tokio::task::spawn_blocking(move || goes_on.wait())
            .await
            .unwrap();
        session.pid()
    };
    let (kernel, pid) = tokio::join!(within(Kernel::open(store).build()), within(start));
    let listed = kernel.unwrap().processes().await.unwrap();
    let listed: Vec<_> = listed.iter().map(|info| info.row.pid).collect();
    assert_eq!(listed, [pid]);
}

/// A panic in the store is the answer for who waits for the process, which can be resumed again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_whose_journal_panics_stays_held() {
    let inner = Arc::new(MemoryStore::new());
    let kernel = Kernel::open(inner.clone()).build().await.unwrap();
    let start = kernel.start(program(&kernel, "")).session();
    let pid = start.without_input().await.unwrap().pid();
    within(kernel.shutdown()).await.unwrap();
    let is_broken = AtomicBool::new(true);
    let store = Faulty::new(inner, move |_, operation| match operation {
        Operation::Journal if is_broken.swap(false, Ordering::SeqCst) => {
            panic!("the index is broken")
        }
        _ => Fate::Pass,
    });
    let kernel = Kernel::open(store).build().await.unwrap();
    let error = within(kernel.resume(pid)).await.unwrap_err();
    assert!(error.to_string().contains("the index is broken"), "{error}");
    within(kernel.resume(pid)).await.unwrap();
}
