//! What must not get into a store: a key in the environment of the kernel is in no byte of it, whatever its processes do.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use dormouse::Kernel;
use dormouse::host::{LocalHost, Permissions};
use dormouse::models::Scripted;
use dormouse::store::LogStore;
use dormouse_tests::{program, within};

const STORE: &str = "DORMOUSE_TEST_STORE";
const CANARY: &str = "sk-canary-5f1e0c77";

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

fn seen(folder: &Path, what: &str) -> bool {
    let has = |path: &PathBuf| fs::read(path).unwrap().windows(what.len()).any(|bytes| bytes == what.as_bytes());
    files(folder).iter().any(has)
}

#[test]
fn a_key_in_the_environment_is_in_no_byte_of_the_store() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "work_with_a_key_in_the_environment", "--ignored"])
        .env(STORE, &store)
        .env("ANTHROPIC_API_KEY", CANARY)
        .status()
        .unwrap();
    assert!(status.success());
    assert!(seen(&store, "what the command said"), "what was kept can be found");
    assert!(!seen(&store, CANARY), "the key was kept");
}

#[tokio::test]
#[ignore = "runs in a process of its own, started by the test above"]
async fn work_with_a_key_in_the_environment() {
    let Ok(store) = std::env::var(STORE) else { return };
    let folder = tempfile::tempdir().unwrap();
    let host = LocalHost::new(Permissions::none().allow_run("env").allow_run("printf"), folder.path()).unwrap();
    // An image after every fact.
    let builder = Kernel::open(LogStore::open(store).unwrap()).model("m", Scripted::silent()).snapshot_after(1);
    let kernel = builder.host(host).build().await.unwrap();
    let program = program(
        &kernel,
        r#"
        [tools]
        enabled = ["read_fd", "create_temp_file", "append_temp_file", "read_temp_file"]
        [file_descriptor]
        max_direct_output_chars = 10
        default_page_size = 500
        [[tools.command]]
        name = "environment"
        description = "Shows it."
        argv = ["env"]
        [[tools.command]]
        name = "say"
        description = "Says it."
        argv = ["printf", "what the command said"]
        "#,
    );
    let process = kernel.start(program).without_input().session().await.unwrap();
    let calls = [
        ("environment", "{}"),
        ("say", "{}"),
        ("create_temp_file", r#"{"content": "begun"}"#),
        ("append_temp_file", r#"{"temp_file_id": "temp:1", "content": "more"}"#),
        ("read_temp_file", r#"{"temp_file_id": "temp:1"}"#),
    ];
    for (tool, args) in calls {
        let answer = within(process.call(tool, args)).await.unwrap();
        assert!(!answer.is_error, "{tool}: {answer:?}");
    }
    within(kernel.shutdown()).await;
}
