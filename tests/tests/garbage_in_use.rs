//! Collections of garbage between the read of a past state and the commit that refers to its
//! contents.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use dormouse::checkpoint::Checkpoint;
use dormouse::ports::SweepMode;
use dormouse::retention::{CheckpointRules, HistoryRule, Retention};
use dormouse::store::MemoryStore;
use dormouse::{Kernel, Process};
use dormouse_tests::faulty::{Fate, Faulty, Operation};
use dormouse_tests::{FnModel, program, says, turn, within};
use serde_json::json;
use tokio::sync::Semaphore;

const PROGRAM: &str = "[tools]\nenabled = [\"read_fd\", \"restore_process\"]\n";

/// Ways to go back to a checkpoint, or to the fact where it was made.
#[derive(Clone, Copy, Debug)]
enum WayBack {
    Restore,
    Tool,
    Copy,
    Branch,
}

impl WayBack {
    const ALL: [Self; 4] = [Self::Restore, Self::Tool, Self::Copy, Self::Branch];

    /// Returns the process that is in the state of the checkpoint.
    async fn go(self, kernel: Kernel, process: Process, to: Checkpoint) -> Process {
        let at = to.position_of(process.pid()).unwrap();
        match self {
            Self::Restore => {
                process.restore(to.id).await.unwrap();
                process
            }
            Self::Tool => {
                let args = json!({ "checkpoint_id": to.id.to_string() }).to_string();
                let answer = process.call("restore_process", args).await.unwrap();
                assert!(!answer.is_error, "{answer:?}");
                process
            }
            Self::Copy => kernel.copy(process.pid(), Some(at)).await.unwrap(),
            Self::Branch => kernel.branch(process.pid(), at).await.unwrap(),
        }
    }
}

/// Once armed, stands still before the first commit after a journal was read.
struct BeforeCommit {
    armed: AtomicBool,
    has_read: AtomicBool,
    reached: Semaphore,
    released: Mutex<mpsc::Receiver<()>>,
}

impl BeforeCommit {
    fn new(released: mpsc::Receiver<()>) -> Self {
        Self {
            armed: AtomicBool::new(false),
            has_read: AtomicBool::new(false),
            reached: Semaphore::new(0),
            released: Mutex::new(released),
        }
    }

    fn watch(&self, operation: Operation) {
        match operation {
            Operation::Journal => {
                let is_armed = self.armed.swap(false, Ordering::SeqCst);
                self.has_read.fetch_or(is_armed, Ordering::SeqCst);
            }
            Operation::Commit { entries: 1.., .. }
                if self.has_read.swap(false, Ordering::SeqCst) =>
            {
                self.reached.add_permits(1);
                let _ = self.released.lock().unwrap().recv();
            }
            _ => {}
        }
    }
}

fn text() -> String {
    (0..1_500).map(|line| format!("line {line:04}\n")).collect()
}

async fn check_read(process: &Process) {
    let args = r#"{"fd": "fd:1", "start_line": 1000, "end_line": 1000}"#;
    let answer = within(process.call("read_fd", args)).await.unwrap();
    assert!(answer.text.contains("line 0999"), "{answer:?}");
}

/// Only the part of the history that the collection would delete refers to the content.
#[tokio::test]
async fn a_history_is_not_shortened_between_its_read_and_the_commit_of_what_was_read() {
    for way in WayBack::ALL {
        let (release, released) = mpsc::channel();
        let before_commit = Arc::new(BeforeCommit::new(released));
        let watching = before_commit.clone();
        let store = Faulty::new(MemoryStore::new(), move |_, operation| {
            watching.watch(operation);
            Fate::Pass
        });
        let kernel = Kernel::open(store)
            .model("m", FnModel(|_| async { Ok(says("ok")) }))
            .snapshot_after_facts(1)
            .resident_bytes_limit(1)
            .build()
            .await
            .unwrap();
        let process = kernel
            .start(program(&kernel, PROGRAM))
            .session()
            .without_input()
            .await
            .unwrap();
        let empty = process.checkpoint("empty").await.unwrap();
        within(process.open("it", text(), None)).await.unwrap();
        let with_content = process.checkpoint("with content").await.unwrap();
        within(process.restore(empty.id)).await.unwrap();
        for round in 0..6 {
            turn(&process, &format!("say {round}")).await;
        }
        process.checkpoint("last").await.unwrap();
        let retention = || Retention {
            checkpoints: CheckpointRules {
                last: Some(1),
                ..CheckpointRules::default()
            },
            history: HistoryRule::FromOldestCheckpoint,
            ..Retention::default()
        };

        before_commit.armed.store(true, Ordering::SeqCst);
        let going = tokio::spawn(way.go(kernel.clone(), process.clone(), with_content));
        within(before_commit.reached.acquire())
            .await
            .unwrap()
            .forget();
        let report = within(kernel.collect_garbage(retention(), SweepMode::Free))
            .await
            .unwrap();
        release.send(()).unwrap();
        assert!(
            report.deletions.histories.is_empty(),
            "{way:?}: the history is in use: {report:?}"
        );
        let back = within(going).await.unwrap();
        check_read(&back).await;

        let report = within(kernel.collect_garbage(retention(), SweepMode::Free))
            .await
            .unwrap();
        assert!(
            report.deletions.histories.contains_key(&process.pid()),
            "{way:?}: the history is in use no more: {report:?}"
        );
        check_read(&back).await;
        within(kernel.shutdown()).await.unwrap();
    }
}
