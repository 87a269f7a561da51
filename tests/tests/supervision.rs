//! Processes whose actors fault: restarted from their journals after a pause, given up when they
//! fault too often, and reported to their parents like any other end. Time is virtual.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use dormouse::command::Command;
use dormouse::file::{FileError, FileErrorKind, FileWrite};
use dormouse::model::Request;
use dormouse::ports::{Host, NoHost, StoreError, Tool};
use dormouse::process::ExitStatus;
use dormouse::store::MemoryStore;
use dormouse::{Kernel, KernelError, Process, ProcessError, ProcessView};
use dormouse_tests::faulty::{Fate, Faulty, Operation};
use dormouse_tests::{FnModel, Requests, asks, check_histories, program, results, says};
use futures_util::future::{BoxFuture, FutureExt};

const TOOLS: &str = "max_iterations = 100\n[tools]\nenabled = [\"fork\", { name = \"fd_to_file\", \
access = \"read\" }]\n";
const WRITE: &str = r#"{"fd": "fd:1", "file_path": "out.txt"}"#;

/// A host that writes nowhere, and panics in the process's own actor where it is told to, by the
/// number of the write.
struct Faulting {
    faults: fn(usize) -> bool,
    asked: Arc<AtomicUsize>,
}

impl Host for Faulting {
    fn command(&self, command: &Command) -> Arc<dyn Tool> {
        NoHost.command(command)
    }

    fn write(&self, _write: FileWrite) -> BoxFuture<'static, Result<(), FileError>> {
        let number = self.asked.fetch_add(1, Ordering::SeqCst);
        assert!(!(self.faults)(number), "no such luck");
        std::future::ready(Ok(())).boxed()
    }

    fn read(&self, path: &Path) -> Result<Bytes, FileError> {
        Err(FileError {
            kind: FileErrorKind::FileNotFound,
            message: path.display().to_string(),
        })
    }
}

async fn kernel(
    model: impl dormouse::ports::Model,
    faults: fn(usize) -> bool,
) -> (Kernel, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let host = Faulting {
        faults,
        asked: asked.clone(),
    };
    let kernel = Kernel::open(MemoryStore::default())
        .host(host)
        .model("m", model)
        .build()
        .await
        .unwrap();
    (kernel, asked)
}

/// A session that holds `fd:1`.
async fn session(kernel: &Kernel) -> Process {
    let process = kernel
        .start(program(kernel, TOOLS))
        .session()
        .without_input()
        .await
        .unwrap();
    process.open("log", "one\n", None).await.unwrap();
    process
}

/// The process forks; its child writes a file, and says what it was answered.
fn writing_child(
    request: Request,
) -> std::future::Ready<Result<dormouse::model::Reply, dormouse::model::ModelError>> {
    let answers = results(&request, 0);
    let reply = match (request.pid.0, &answers[..]) {
        (1, []) if request.messages.len() > 1 => says("that was all"),
        (1, []) => asks(&[("fork", r#"{"prompts": ["write"]}"#)]),
        (1, [(answer, _)]) => says(answer),
        (_, [(answer, _)]) if answer.contains("You are child") => asks(&[("fd_to_file", WRITE)]),
        (_, answers) => says(answers.first().map_or("heard", |(answer, _)| answer)),
    };
    std::future::ready(Ok(reply))
}

async fn answer_to_the_fork(faults: fn(usize) -> bool) -> (String, usize, Requests) {
    let requests = Requests::default();
    let (kernel, asked) = kernel(requests.record(FnModel(writing_child)), faults).await;
    let process = session(&kernel).await;
    process.input("go").await.unwrap();
    process
        .wait_for(|view| view.is_idle() && view.messages == 4)
        .await
        .unwrap();
    // What was said last stands in the request of the next turn.
    process.input("and").await.unwrap();
    process
        .wait_for(|view| view.is_idle() && view.messages >= 6)
        .await
        .unwrap();
    let said = requests.of(1).last().unwrap().messages[3].text();
    assert!(!said.is_empty());
    let left = kernel.processes().await.unwrap();
    assert_eq!(left[0].status.word(), "idle", "the parent lives on");
    (said, asked.load(Ordering::SeqCst), requests)
}

#[tokio::test(start_paused = true)]
async fn a_process_that_faults_goes_on_from_its_journal() {
    let faults: [fn(usize) -> bool; 3] = [|_| false, |number| number < 1, |number| number < 3];
    for (faults, writes) in faults.into_iter().zip([1, 2, 4]) {
        let (said, asked, requests) = answer_to_the_fork(faults).await;
        assert!(
            said.contains("status=\"done\"") && said.contains("success=\"true\""),
            "{said}"
        );
        assert_eq!(
            asked, writes,
            "a write that may be repeated is, after each fault"
        );
        check_histories(&requests);
    }
}

#[tokio::test(start_paused = true)]
async fn a_process_that_faults_too_often_is_given_up_and_its_parent_reads_why() {
    let (said, asked, requests) = answer_to_the_fork(|_| true).await;
    assert!(
        said.contains("status=\"faulted\"") && said.contains("it faulted 4 times"),
        "{said}"
    );
    assert!(said.contains("no such luck"), "{said}");
    assert_eq!(asked, 4);
    check_histories(&requests);
}

#[tokio::test(start_paused = true)]
async fn faults_that_are_far_apart_are_no_reason_to_give_up() {
    for (pause_s, turns) in [(601, 8), (0, 3)] {
        let model = FnModel(|request: Request| {
            std::future::ready(Ok(match results(&request, 0).first() {
                None => asks(&[("fd_to_file", WRITE)]),
                Some((answer, _)) => says(answer),
            }))
        });
        // Each write faults once, and is then done.
        let (kernel, asked) = kernel(model, |number| number % 2 == 0).await;
        let process = session(&kernel).await;
        for turn in 1..=turns {
            process.input("go").await.unwrap();
            process
                .wait_for(|view| view.is_idle() && view.messages == 4 * turn)
                .await
                .unwrap();
            tokio::time::sleep(Duration::from_secs(pause_s)).await;
        }
        assert_eq!(asked.load(Ordering::SeqCst), 2 * turns);
        if pause_s == 0 {
            process.input("go").await.unwrap();
            let exit = process.wait().await.unwrap();
            assert_eq!(exit.status, ExitStatus::Faulted, "{exit:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_said_to_a_process_while_it_is_restarted_is_not_lost() {
    let requests = Requests::default();
    let (kernel, asked) =
        kernel(requests.record(FnModel(writing_child)), |number| number < 3).await;
    let process = session(&kernel).await;
    process.input("go").await.unwrap();
    while asked.load(Ordering::SeqCst) == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let child = kernel.process(dormouse::id::Pid(2)).await.unwrap();
    // What a faulting actor had not taken yet was not acknowledged: whoever said it says it again.
    while let Err(error) = child.input("more").await {
        assert!(
            matches!(error, KernelError::Process(ProcessError::Unanswered(_))),
            "{error}"
        );
    }
    let exit = child.wait().await.unwrap();
    assert_eq!(exit.status, ExitStatus::Done);
    let heard = requests
        .of(2)
        .last()
        .unwrap()
        .messages
        .last()
        .unwrap()
        .text();
    assert!(heard.contains("more"), "{heard}");
    process.wait_for(ProcessView::is_idle).await.unwrap();
    check_histories(&requests);
}

/// The store fails while a process waits for its restart: it is held, and not loaded again.
#[tokio::test(start_paused = true)]
async fn a_process_that_is_stopped_before_its_restart_stays_held() {
    let (is_gone, reads) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
    );
    let (gone, read) = (is_gone.clone(), reads.clone());
    let store = Faulty::new(MemoryStore::new(), move |_, operation| match operation {
        Operation::Commit { .. } if gone.load(Ordering::SeqCst) => {
            Fate::Fail(StoreError::Failed("the disk is gone".to_owned()))
        }
        Operation::Journal => {
            read.fetch_add(1, Ordering::SeqCst);
            Fate::Pass
        }
        _ => Fate::Pass,
    });
    let asked = Arc::new(AtomicUsize::new(0));
    let host = Faulting {
        faults: |_| true,
        asked: asked.clone(),
    };
    let model = FnModel(|_: Request| std::future::ready(Ok(asks(&[("fd_to_file", WRITE)]))));
    let kernel = Kernel::open(store)
        .host(host)
        .model("m", model)
        .build()
        .await
        .unwrap();
    let (faulting, other) = (session(&kernel).await, session(&kernel).await);
    faulting.input("go").await.unwrap();
    while asked.load(Ordering::SeqCst) == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    is_gone.store(true, Ordering::SeqCst);
    assert!(other.input("go").await.is_err(), "it is not durable");
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(reads.load(Ordering::SeqCst), 0, "it is not loaded again");
    let listed = kernel.processes().await.unwrap();
    assert!(listed.iter().all(|info| info.status.word() == "held"));
}
