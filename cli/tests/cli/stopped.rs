//! A tree that was stopped continues only if the user names it.

use std::fs;
use std::path::Path;

use dormouse::id::{FactNumber, Pid};
use dormouse::store::LogStore;
use dormouse::{Kernel, Process, models::Scripted};

use crate::dormouse::{Ran, dormouse, succeeds};

const PROGRAM: &str = "[model]\nname = \"m\"\nprovider = \"scripted\"\nscript = \
\"s.toml\"\n[tools]\nenabled = [\"fork\"]\n";

const SCRIPT: &str = r#"
[[turn]]
when = { prompt = "^go", round = 0 }
calls = [{ tool = "fork", args = { prompts = ["one", "two"] } }]
[[turn]]
text = "All is done."
"#;

/// A branch from the middle of the tree of process 1: behind the commit that holds this fact of a
/// process. It was killed before it was continued, or when only its root had been. The pid of its
/// root.
fn killed_branch(folder: &Path, (pid, at): (Pid, FactNumber), only_root: bool) -> Pid {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let store = LogStore::open(folder.join("s")).unwrap();
        let kernel = Kernel::open(store)
            .model("m", Scripted::without_script())
            .build()
            .await
            .unwrap();
        let branch = kernel.branch(pid, at).stopped().await.unwrap().pid();
        let infos = kernel.processes().await.unwrap();
        let root = infos
            .iter()
            .find(|info| info.row.pid == branch)
            .unwrap()
            .row
            .parent
            .unwrap_or(branch);
        if only_root {
            kernel.process(root).await.unwrap().cont().await.unwrap();
        }
        kernel.shutdown().await.unwrap();
        root
    })
}

#[test]
fn a_branch_that_was_killed_before_it_was_continued_is_named_and_can_be_resumed() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("p.toml"), PROGRAM).unwrap();
    fs::write(folder.path().join("s.toml"), SCRIPT).unwrap();
    succeeds(folder.path(), "run p.toml --input go --store s");
    let branch = killed_branch(folder.path(), (Pid(1), FactNumber(4)), false);
    let Ran { code, out, err } = dormouse(folder.path(), "resume --store s");
    let line = format!(
        "process {branch}, p, stays stopped. Continue it by dormouse resume {branch} --store s\n"
    );
    assert!(
        code == 0 && out.is_empty() && err.contains(&line),
        "{out}{err}"
    );
    assert!(
        err.contains(&format!("process {branch} is stopped\n")),
        "{err}"
    );
    let json = dormouse(folder.path(), "resume --store s --json").json_lines();
    assert!(
        json.iter()
            .any(|line| line["event"] == "result" && line["status"] == "stopped"),
        "{json:?}"
    );
    assert_eq!(
        succeeds(folder.path(), &format!("resume {branch} --store s")),
        "All is done.\n"
    );
    assert!(!succeeds(folder.path(), "ps --store s").contains("stopped"));
}

/// Its root waits for children that are stopped still: no command could be meant by that.
#[test]
fn a_branch_that_was_killed_when_only_its_root_had_been_continued_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("p.toml"), PROGRAM).unwrap();
    fs::write(folder.path().join("s.toml"), SCRIPT).unwrap();
    succeeds(folder.path(), "run p.toml --input go --store s");
    // At the birth of a child its parent waits for it.
    let branch = killed_branch(folder.path(), (Pid(2), FactNumber(0)), true);
    let Ran { code, out, err } = dormouse(folder.path(), "resume --store s");
    assert!(
        code == 0 && out.contains("All is done."),
        "{branch}: {code}: {out}{err}"
    );
}

/// What a host does with process 1, which is not resumed.
fn with_process_1<T>(folder: &Path, act: impl AsyncFnOnce(&Kernel, &Process) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let store = LogStore::open(folder.join("s")).unwrap();
        let kernel = Kernel::open(store)
            .model("m", Scripted::without_script())
            .build()
            .await
            .unwrap();
        let process = kernel.process(Pid(1)).await.unwrap();
        let result = act(&kernel, &process).await;
        drop(process);
        kernel.shutdown().await.unwrap();
        result
    })
}

async fn stop(kernel: &Kernel, process: &Process) {
    kernel.resume(process.pid()).await.unwrap();
    process.tree().stop().await.unwrap();
}

async fn is_stopped(kernel: &Kernel, process: &Process) -> bool {
    kernel.inspect(process.pid()).await.unwrap().stopped
}

#[test]
fn a_stopped_tree_that_sleeps_continues_if_it_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let program = PROGRAM.replace("\"fork\"", "\"wake_at\"");
    fs::write(folder.path().join("p.toml"), program).unwrap();
    let script = "[[turn]]\nwhen.round = 0\ncalls = [{ tool = \"wake_at\", args = { in = \"12h\", \
                  note = \"later\" } }]\n[[turn]]\ntext = \"I sleep.\"\n";
    fs::write(folder.path().join("s.toml"), script).unwrap();
    let ran = dormouse(folder.path(), "run p.toml --input go --store s");
    assert_eq!(ran.code, 5, "{ran:?}");
    with_process_1(folder.path(), stop);
    assert!(with_process_1(folder.path(), is_stopped));
    // Without its name it stays as it is.
    let ran = dormouse(folder.path(), "resume --store s");
    assert!(
        ran.err
            .contains("stays stopped. Continue it by dormouse resume 1"),
        "{ran:?}"
    );
    assert!(with_process_1(folder.path(), is_stopped));
    let ran = dormouse(folder.path(), "resume 1 --store s");
    assert!(
        ran.code == 5 && ran.err.contains("process 1 is asleep until"),
        "{ran:?}"
    );
    assert!(!with_process_1(folder.path(), is_stopped));
}
