//! A store that has lost the record of a birth: nobody takes the child for one that was never made.

use std::fs;
use std::future::pending;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dormouse::host::{LocalHost, Permissions};
use dormouse::id::Pid;
use dormouse::model::Request;
use dormouse::process::ExitStatus;
use dormouse::store::LogStore;
use dormouse::{FnTool, Kernel, KernelError};
use dormouse_tests::{FnModel, asks, results, says, within};

const PARENT: &str = "[model]\nname = \"m\"\nprovider = \"scripted\"\n[tools]\nenabled = [\"fork\", \"spawn\", \"work\"]\n\
                      [linked_programs]\nworker = { path = \"worker.toml\", description = \"Works.\" }\n";
const WORKER: &str = "[model]\nname = \"m\"\nprovider = \"scripted\"\n[tools]\nenabled = [\"work\"]\n";

/// A parent makes a child by this call; the child works, once, and thinks on until `goes_on`.
async fn kernel(folder: &Path, call: (&'static str, &'static str), worked: &Arc<AtomicUsize>, goes_on: bool) -> Kernel {
    let model = FnModel(move |request: Request| async move {
        let has_worked = results(&request, 0).iter().any(|(text, _)| text.contains("worked"));
        match request.pid.0 {
            1 if results(&request, 0).is_empty() => Ok(asks(&[call])),
            1 => Ok(says("done")),
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
    Kernel::open(LogStore::open(folder).unwrap()).host(host).model("m", model).tool(work).build().await.unwrap()
}

/// Flips a bit in the last place where this stands: in the birth of a child.
fn flip(folder: &Path, text: &[u8]) {
    let path = folder.join("log/00000001.seg");
    let mut log = fs::read(&path).unwrap();
    let at = log.windows(text.len()).rposition(|bytes| bytes == text).unwrap();
    log[at] ^= 1;
    fs::write(path, log).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_child_whose_birth_is_lost_is_not_made_again() {
    let ways: [((&str, &str), &[u8]); 2] = [
        (("fork", r#"{"prompts": ["look around"]}"#), b"You are child 1"),
        (("spawn", r#"{"program": "worker", "query": "look about you"}"#), b"look about you"),
    ];
    for (call, said) in ways {
        let folder = tempfile::tempdir().unwrap();
        let worked = Arc::new(AtomicUsize::new(0));
        let first = kernel(folder.path(), call, &worked, false).await;
        let programs = tempfile::tempdir().unwrap();
        for (file, text) in [("parent.toml", PARENT), ("worker.toml", WORKER)] {
            fs::write(programs.path().join(file), text).unwrap();
        }
        let program = first.load(programs.path().join("parent.toml")).unwrap().program;
        let parent = first.start(program).input("go").await.unwrap();
        let child = loop {
            match first.process(Pid(2)).await {
                Ok(child) => break child,
                Err(_) => tokio::task::yield_now().await,
            }
        };
        within(child.wait_for(|view| view.tally.produced_chars > 0)).await.unwrap();
        drop((parent, child));
        within(first.shutdown()).await;
        assert_eq!(worked.load(Ordering::SeqCst), 1);

        flip(folder.path(), said);
        fs::remove_dir_all(folder.path().join("index")).unwrap();
        let damaged = kernel(folder.path(), call, &worked, true).await;
        assert!(!damaged.lost().is_empty(), "{call:?}");
        let unknown = damaged.process(Pid(2)).await.err();
        assert!(matches!(unknown, Some(KernelError::MayBeLost { .. })), "{unknown:?}");
        within(damaged.resume_all()).await.unwrap();
        let held = within(damaged.process(Pid(1)).await.unwrap().wait()).await.unwrap();
        assert!(held.message.contains("may have made a child"), "{held:?}");
        within(damaged.shutdown()).await;
        assert_eq!(worked.load(Ordering::SeqCst), 1, "{call:?}: what the child did is not done again");

        flip(folder.path(), &[&[said[0] ^ 1], &said[1..]].concat());
        let whole = kernel(folder.path(), call, &worked, true).await;
        assert_eq!(whole.lost(), [] as [String; 0]);
        within(whole.resume_all()).await.unwrap();
        let exit = within(whole.process(Pid(1)).await.unwrap().wait()).await.unwrap();
        assert_eq!((exit.status, worked.load(Ordering::SeqCst)), (ExitStatus::Done, 1), "{exit:?}");
        within(whole.shutdown()).await;
    }
}
