//! A kernel that may have lost its store to another owner: it begins nothing, ends what runs, and
//! says why.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use dormouse::host::{LocalHost, Permissions};
use dormouse::model::Request;
use dormouse::models::Scripted;
use dormouse::ports::{Lease, Store as _, StoreError};
use dormouse::store::MemoryStore;
use dormouse::{CloseReason, FnTool, Kernel, KernelError, Process, ProcessError, StoreFailure};
use dormouse_tests::faulty::{Fate, Faulty, Operation};
use dormouse_tests::{FnModel, asks, program, within};

use crate::commands::{COMMANDS, gone, pids};

#[derive(Clone)]
struct Flag(Arc<AtomicBool>);

impl Flag {
    fn new(is_set: bool) -> Self {
        Self(Arc::new(AtomicBool::new(is_set)))
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    fn set(&self, is_set: bool) {
        self.0.store(is_set, Ordering::SeqCst);
    }
}

/// A lease that is held while the flag is set.
impl Lease for Flag {
    fn is_held(&self) -> bool {
        self.is_set()
    }
}

async fn session(kernel: &Kernel) -> Result<Process, KernelError> {
    let start = kernel.start(program(kernel, "[tools]\nenabled = [\"act\"]\n"));
    start.session().without_input().await
}

async fn held_by(process: &Process) -> String {
    match within(process.wait()).await {
        Err(KernelError::Process(ProcessError::Held { reason, .. })) => reason.to_string(),
        other => panic!("{other:?}"),
    }
}

/// The lease is lost in the commit of the facts that a call follows from: of the model, then of a
/// tool.
#[tokio::test]
async fn what_follows_from_a_commit_does_not_begin_after_the_lease_is_lost() {
    for of_tool in [false, true] {
        let (held, is_doomed) = (Flag::new(true), Flag::new(false));
        let (lease, dooms) = (held.clone(), is_doomed.clone());
        let store = Faulty::new(MemoryStore::new(), move |_, operation| {
            if matches!(operation, Operation::Commit { .. }) && dooms.is_set() {
                lease.set(false);
            }
            Fate::Pass
        });
        let (asked, ran) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (asks_for, runs) = (asked.clone(), ran.clone());
        let doomed = is_doomed.clone();
        let model = FnModel(move |_: Request| {
            asks_for.fetch_add(1, Ordering::SeqCst);
            doomed.set(of_tool);
            std::future::ready(Ok(asks(&[("act", "{}")])))
        });
        let act = FnTool::new("act", "Acts.", move |()| {
            runs.fetch_add(1, Ordering::SeqCst);
            async { Ok::<_, String>("done".to_owned()) }
        });
        let builder = Kernel::open(store).lease(held).model("m", model).tool(act);
        let kernel = builder.build().await.unwrap();
        let process = session(&kernel).await.unwrap();
        is_doomed.set(!of_tool);
        // The input itself may be durable.
        let _ = within(process.input("go")).await;
        let reason = within(kernel.closed()).await;
        assert!(matches!(reason, CloseReason::LeaseLost), "{reason}");
        assert!(held_by(&process).await.contains("lease"));

        let refused = session(&kernel).await;
        assert!(
            matches!(refused, Err(KernelError::LeaseLost)),
            "{refused:?}"
        );
        let resumed = within(kernel.resume(process.pid())).await.unwrap();
        assert!(held_by(&resumed).await.contains("lease"));
        assert!(within(process.input("more")).await.is_err());
        let calls = (asked.load(Ordering::SeqCst), ran.load(Ordering::SeqCst));
        assert_eq!(calls, (usize::from(of_tool), 0));
        within(kernel.shutdown()).await.unwrap();
    }
}

#[tokio::test]
async fn a_command_ends_when_the_lease_is_lost_or_another_owner_has_claimed_the_store() {
    for by_lease in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let permissions = Permissions::none().allow_run("sh").allow_write(".");
        let host = LocalHost::new(permissions, folder.path()).unwrap();
        let (store, held) = (Arc::new(MemoryStore::new()), Flag::new(true));
        let script = "[[turn]]\ncalls = [{ tool = \"hang\" }]\n";
        let kernel = Kernel::open(store.clone())
            .lease(held.clone())
            .host(host)
            .model("m", Scripted::parse(script, "s").unwrap())
            .build()
            .await
            .unwrap();
        let text = COMMANDS.replace("deadline = \"300ms\"", "deadline = \"1h\"");
        let start = kernel.start(program(&kernel, &text)).input("go");
        let process = start.await.unwrap();
        let begun = async {
            while pids(folder.path()).len() < 2 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        within(begun).await;
        let closed = kernel.closed();
        if by_lease {
            held.set(false);
        } else {
            store.claim().unwrap();
            let start = kernel.start(program(&kernel, "")).session();
            let refused = within(start.without_input()).await.unwrap_err();
            assert!(
                matches!(refused, KernelError::Store(StoreFailure::NotDurable(_))),
                "{refused}"
            );
        }
        match (by_lease, within(closed).await) {
            (true, CloseReason::LeaseLost) => {}
            (false, CloseReason::Store(error)) => {
                assert!(matches!(*error, StoreError::Stale { .. }), "{error}");
            }
            (_, reason) => panic!("{reason}"),
        }
        gone(&pids(folder.path())).await;
        let reason = held_by(&process).await;
        assert!(
            reason.contains("lease") || reason.contains("newer owner"),
            "{reason}"
        );
        within(kernel.shutdown()).await.unwrap();
    }
}

#[tokio::test]
async fn a_shutdown_closes_a_kernel() {
    let kernel = Kernel::builder()
        .lease(Flag::new(true))
        .build()
        .await
        .unwrap();
    let closed = [kernel.closed(), kernel.closed()];
    within(kernel.clone().shutdown()).await.unwrap();
    for closed in closed {
        let reason = within(closed).await;
        assert!(matches!(reason, CloseReason::ShutDown), "{reason}");
    }
    assert!(matches!(
        within(kernel.closed()).await,
        CloseReason::ShutDown
    ));
}
