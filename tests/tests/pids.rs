//! Kernels that number their processes within ranges of their own, so that no two of them have a pid
//! in common.

use std::future::IntoFuture;
use std::io::Cursor;
use std::ops::RangeInclusive;
use std::sync::Arc;

use dormouse::checkpoint::Scope;
use dormouse::id::Pid;
use dormouse::model::{ModelError, Reply, Request};
use dormouse::store::MemoryStore;
use dormouse::{Kernel, KernelError, Process, ProcessView, StartError, StoreFailure};
use dormouse_tests::{FnModel, asks, program, results, says, turn, within};

const TOOLS: &str = "max_iterations = 50\n[tools]\nenabled = [\"fork\", \"send_message\"]\n";

fn range(shard: u64) -> RangeInclusive<Pid> {
    Pid((shard << 40) + 1)..=Pid((shard + 1) << 40)
}

/// A process that is told to fork forks once; everything else is done at once.
fn forks(request: Request) -> std::future::Ready<Result<Reply, ModelError>> {
    let said = request.messages.last().map(|message| message.text());
    let is_told =
        results(&request, 0).is_empty() && said.is_some_and(|said| said.ends_with("fork"));
    std::future::ready(Ok(match is_told {
        true => asks(&[("fork", r#"{"prompts": ["work"]}"#)]),
        false => says("done"),
    }))
}

async fn open(store: &Arc<MemoryStore>, pids: RangeInclusive<Pid>) -> Result<Kernel, KernelError> {
    let builder = Kernel::open(store.clone()).pids(pids);
    builder.model("m", FnModel(forks)).build().await
}

async fn session(kernel: &Kernel) -> Result<Process, KernelError> {
    kernel
        .start(program(kernel, TOOLS))
        .session()
        .without_input()
        .await
}

async fn pids(kernel: &Kernel) -> Vec<u64> {
    let processes = kernel.processes().await.unwrap();
    processes.iter().map(|info| info.row.pid.0).collect()
}

#[tokio::test]
async fn a_kernel_numbers_on_within_its_range_and_refuses_a_store_of_another() {
    let store = Arc::new(MemoryStore::new());
    let first = range(5).start().0;
    let kernel = open(&store, range(5)).await.unwrap();
    let process = session(&kernel).await.unwrap();
    turn(&process, "fork").await;
    assert_eq!(pids(&kernel).await, [first, first + 1]);
    kernel.shutdown().await.unwrap();

    let error = open(&store, range(4)).await.unwrap_err();
    assert!(
        matches!(
            error,
            KernelError::Store(StoreFailure::PidOutOfRange { pid, .. }) if pid.0 == first
        ),
        "{error}"
    );
    let kernel = open(&store, range(5)).await.unwrap();
    session(&kernel).await.unwrap();
    assert_eq!(pids(&kernel).await, [first, first + 1, first + 2]);
    kernel.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_kernel_whose_pids_are_used_up_starts_nothing_and_says_why() {
    let store = Arc::new(MemoryStore::new());
    let kernel = open(&store, Pid(7)..=Pid(8)).await.unwrap();
    let process = session(&kernel).await.unwrap();
    session(&kernel).await.unwrap();
    let error = session(&kernel).await.unwrap_err();
    assert!(
        matches!(
            error,
            KernelError::Start(StartError::NoPidLeft { last: Pid(8) })
        ),
        "{error}"
    );
    // The parent waits for children that it cannot have, and is held, as when the disk is full.
    process.input("fork").await.unwrap();
    let error = within(process.wait()).await.unwrap_err();
    assert!(error.to_string().contains("no pid is left"), "{error}");
}

/// A child that was made after an import has a pid below those of the store that the tree came from,
/// and is known by it in its tree.
#[tokio::test]
async fn a_tree_of_higher_pids_lives_on_in_a_kernel_of_lower_ones() {
    let source = open(&Arc::new(MemoryStore::new()), range(9)).await.unwrap();
    let exported = session(&source).await.unwrap();
    turn(&exported, "fork").await;
    let export = source.export(exported.pid(), Scope::Tree);
    let (file, _) = within(export.write(Vec::new())).await.unwrap();

    let kernel = open(&Arc::new(MemoryStore::new()), range(2)).await.unwrap();
    let import = kernel.import(Cursor::new(file)).into_future();
    let process = within(import).await.unwrap().process;
    turn(&process, "fork").await;
    let first = range(2).start().0;
    assert_eq!(pids(&kernel).await, [first, first + 1, first + 2]);
    let old_child = range(9).start().0 + 1;
    for (to, is_known) in [
        (first + 2, true),
        (old_child, true),
        (old_child + 1, false),
        (range(3).start().0, false),
    ] {
        let args = format!(r#"{{"to": {to}, "text": "go on"}}"#);
        // The end of a child that was opened again begins a turn, in which no other one is opened.
        let answer = loop {
            let sent = process.call("send_message", args.clone());
            let answer = within(sent).await.unwrap();
            if !answer.text.contains("in the middle of a turn") {
                break answer;
            }
            let is_idle = |view: &ProcessView| view.is_idle();
            within(process.wait_for(is_idle)).await.unwrap();
        };
        assert_eq!(!answer.is_error, is_known, "{to}: {}", answer.text);
    }

    // It can go on from there to a third kernel, and back to where it came from.
    for range in [range(4), range(9)] {
        let export = kernel.export(process.pid(), Scope::Tree);
        let (file, _) = within(export.write(Vec::new())).await.unwrap();
        let next = open(&Arc::new(MemoryStore::new()), range.clone()).await;
        let import = next.unwrap().import(Cursor::new(file)).from_peer();
        let imported = within(import.into_future()).await.unwrap().process;
        assert!(range.contains(&imported.pid()));
        turn(&imported, "fork").await;
    }
}
