//! Contents that are not in memory: over the limit, and after a store was opened again.

use std::path::Path;

use dormouse::models::Scripted;
use dormouse::store::LogStore;
use dormouse::{Kernel, KernelBuilder, Process};
use dormouse_tests::{program, within};

const TOOLS: &str = "[tools]\nenabled = [\"read_fd\", \"search_fd\"]\n";
const LIMIT_BYTES: u64 = 400_000;
const CONTENTS: usize = 40;

fn open(folder: &Path) -> KernelBuilder {
    Kernel::open(LogStore::open(folder).unwrap()).model("m", Scripted::without_script())
}

/// Some 100 KB, none like another.
fn text(number: usize) -> String {
    (0..2_000)
        .map(|line| format!("content {number:03}, line {line:05} and what it says, é\n"))
        .collect()
}

async fn answer(process: &Process, tool: &str, args: String) -> String {
    let answer = within(process.call(tool, args.replace('\'', "\"")))
        .await
        .unwrap();
    assert!(!answer.is_error, "{}", answer.text);
    answer.text.to_string()
}

/// Reads a page from the middle, and searches all of it.
async fn check(process: &Process, number: usize) {
    let fd = format!("fd:{}", number + 1);
    let page = answer(
        process,
        "read_fd",
        format!("{{'fd':'{fd}','start_line':1000,'end_line':1001}}"),
    )
    .await;
    assert!(
        page.contains(&format!("content {number:03}, line 00999")),
        "{page}"
    );
    let found = answer(
        process,
        "search_fd",
        format!("{{'fd':'{fd}','query':'line 01999'}}"),
    )
    .await;
    assert!(
        found.contains("matches=\"1\"") && found.contains("line=\"2000\""),
        "{found}"
    );
}

async fn session_with_contents(kernel: &Kernel) -> Process {
    let process = kernel
        .start(program(kernel, TOOLS))
        .session()
        .without_input()
        .await
        .unwrap();
    for number in 0..CONTENTS {
        within(process.open("test", text(number), None))
            .await
            .unwrap();
    }
    process
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_times_the_limit_is_live_and_every_answer_is_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let kernel = open(folder.path())
        .resident_bytes_limit(LIMIT_BYTES)
        .build()
        .await
        .unwrap();
    let process = session_with_contents(&kernel).await;
    let settled = || async {
        // The ledger is looked through after a commit was acknowledged.
        while kernel.resident_bytes() > LIMIT_BYTES {
            tokio::task::yield_now().await;
        }
    };
    within(settled()).await;
    for number in 0..CONTENTS {
        check(&process, number).await;
    }
    within(settled()).await;
    within(kernel.shutdown()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restored_process_has_its_contents_and_none_of_them_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let kernel = open(folder.path()).build().await.unwrap();
    let process = session_with_contents(&kernel).await;
    let pid = process.pid();
    within(kernel.shutdown()).await.unwrap();

    let kernel = open(folder.path()).build().await.unwrap();
    let process = within(kernel.resume(pid)).await.unwrap();
    assert_eq!(
        kernel.resident_bytes(),
        0,
        "nothing is read before somebody asks"
    );
    for number in [0, CONTENTS / 2, CONTENTS - 1] {
        check(&process, number).await;
    }
    assert_eq!(kernel.resident_bytes(), 0, "it is served from the store");
    let view = within(kernel.inspect(pid)).await.unwrap();
    within(kernel.shutdown()).await.unwrap();
    let listed = view.list_descriptors();
    assert_eq!(
        (listed.len(), listed[1].bytes, listed[1].chars),
        (CONTENTS, text(1).len() as u64, None),
        "it was closed"
    );
    drop(LogStore::open(folder.path()).expect("contents that are held keep no store open"));
}
