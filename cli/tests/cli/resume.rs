//! What `resume` and `ps` make of trees that cannot run, or are not complete.

use std::fs;
use std::path::Path;

use dormouse::id::{FactNumber, Pid};
use dormouse::store::LogStore;
use dormouse::{FnTool, Kernel, models::Scripted};

use crate::dormouse::{Ran, dormouse, succeeds};

const PROGRAM: &str = "[model]\nname = \"m\"\nprovider = \"scripted\"\nscript = \
\"s.toml\"\n[tools]\nenabled = [\"fork\"]\n";

const SCRIPT: &str = r#"
[[turn]]
when = { prompt = "^begin", round = 0 }
calls = [{ tool = "fork", args = { prompts = ["one", "two"] } }]
[[turn]]
text = "All is done."
"#;

const INPUT: &str = "begin-the-survey";

/// A store with a tree of three processes that have ended.
fn run_tree(folder: &Path) {
    fs::write(folder.join("p.toml"), PROGRAM).unwrap();
    fs::write(folder.join("s.toml"), SCRIPT).unwrap();
    succeeds(folder, &format!("run p.toml --input {INPUT} --store s"));
}

/// Does something in a kernel on the store, which has a tool that the program has not.
fn in_kernel(folder: &Path, act: impl AsyncFnOnce(&Kernel)) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let tool = FnTool::new("other", "Of another host.", |()| async {
            Ok::<_, String>("done")
        });
        let kernel = Kernel::open(LogStore::open(folder.join("s")).unwrap())
            .model("m", Scripted::without_script())
            .tool(tool)
            .build()
            .await
            .unwrap();
        act(&kernel).await;
        kernel.shutdown().await.unwrap();
    });
}

#[test]
fn ps_lists_a_process_whose_parent_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    run_tree(folder.path());
    let pids = || {
        let Ran { code, out, err } = dormouse(folder.path(), "ps --store s --json");
        let lines = out.lines().map(|line| serde_json::from_str(line).unwrap());
        let pids = lines.filter_map(|line: serde_json::Value| line["pid"].as_u64());
        (code, pids.collect::<Vec<_>>(), err)
    };
    assert_eq!(pids().1, [1, 2, 3]);
    // The first place is in the birth of the parent. Those of the children repeat it.
    let path = folder.path().join("s/log/00000001.seg");
    let mut log = fs::read(&path).unwrap();
    let at = log
        .windows(INPUT.len())
        .position(|bytes| bytes == INPUT.as_bytes())
        .unwrap();
    log[at] ^= 1;
    fs::write(&path, log).unwrap();
    fs::remove_dir_all(folder.path().join("s/index")).unwrap();
    let (code, pids, err) = pids();
    assert_eq!((code, pids), (3, vec![2, 3]), "{err}");
}

#[test]
fn branches_that_nobody_judges_are_no_loss() {
    let folder = tempfile::tempdir().unwrap();
    run_tree(folder.path());
    in_kernel(folder.path(), async |kernel| {
        let branch = kernel.branch(Pid(1), FactNumber(1));
        branch.speculative().stopped().await.unwrap();
    });
    let Ran { code, err, .. } = dormouse(folder.path(), "resume --store s");
    assert!(
        code == 2
            && err.contains("nobody judges it")
            && err.contains("name the branches to resume"),
        "{code}: {err}"
    );
}

#[test]
fn a_process_that_cannot_be_loaded_does_not_keep_the_others() {
    let folder = tempfile::tempdir().unwrap();
    in_kernel(folder.path(), async |kernel| {
        for tools in ["[tools]\nenabled = [\"other\"]\n", ""] {
            let text = format!("[model]\nname = \"m\"\nprovider = \"scripted\"\n{tools}");
            let program = kernel.parse(text).unwrap().program;
            let start = kernel.start(program).session().without_input();
            start.await.unwrap();
        }
    });
    let Ran { code, err, .. } = dormouse(folder.path(), "resume --store s");
    assert!(
        code == 3
            && err.contains("process 1 is not resumed: ")
            && err.contains("process 2 waits for input"),
        "{code}: {err}"
    );
}

/// The message waits for the person as well, since the turn that would read it has not begun.
#[test]
fn a_branch_whose_call_waits_for_a_person_ends_though_it_has_an_input() {
    let folder = tempfile::tempdir().unwrap();
    let program = "[model]\nname = 'm'\nprovider = 'scripted'\nscript = 's.toml'\n\
         [[tools.command]]\nname = 'publish'\ndescription = 'Publishes.'\nargv = ['echo', 'done']\n\
         access = 'write'\n";
    fs::write(folder.path().join("p.toml"), program).unwrap();
    let script =
        "[[turn]]\nwhen.round = 0\ncalls = [{ tool = 'publish' }]\n[[turn]]\ntext = 'done'\n";
    fs::write(folder.path().join("s.toml"), script).unwrap();
    let flags = "--store s --allow-run=echo";
    succeeds(folder.path(), &format!("run p.toml --input begin {flags}"));
    // After the first call of the model: the branch repeats the call of the tool.
    let line = format!("branch 1@2 --input briefly --effects ask {flags}");
    let ran = dormouse(folder.path(), &line);
    assert_eq!(ran.code, 4, "{ran:?}");
    assert!(ran.err.contains("ran before as"), "{ran:?}");
}
