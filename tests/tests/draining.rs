//! A kernel that is drained: what is in flight comes to its end, nothing else begins, and everything
//! goes on where the store is opened again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dormouse::model::Request;
use dormouse::store::MemoryStore;
use dormouse::{FnTool, Kernel, KernelBuilder, Process, ProcessView};
use dormouse_tests::{
    FnModel, Gate, Requests, asks, check_histories, program, results, says, turn, within,
};

const TOOLS: &str = "[tools]\nenabled = [\"act\", \"receive_messages\"]\n";

/// A process acts once in its turn; its model stands at the gate before each reply.
fn builder(
    store: &Arc<MemoryStore>,
    gate: &Gate,
    requests: &Requests,
) -> (KernelBuilder, Arc<AtomicUsize>) {
    let (gate, ran) = (gate.clone(), Arc::new(AtomicUsize::new(0)));
    let runs = ran.clone();
    let model = FnModel(move |request: Request| {
        let gate = gate.clone();
        async move {
            gate.pass().await;
            Ok(match results(&request, 0).is_empty() {
                true => asks(&[("act", "{}")]),
                false => says("done"),
            })
        }
    });
    let act = FnTool::new("act", "Acts.", move |()| {
        runs.fetch_add(1, Ordering::SeqCst);
        async { Ok::<_, String>("acted".to_owned()) }
    });
    let builder = Kernel::open(store.clone()).model("m", requests.record(model));
    (builder.tool(act), ran)
}

async fn session(kernel: &Kernel) -> Process {
    let start = kernel.start(program(kernel, TOOLS)).session();
    start.without_input().await.unwrap()
}

#[tokio::test]
async fn a_drained_kernel_keeps_the_reply_in_flight_and_begins_nothing_more() {
    let (store, gate, requests) = (
        Arc::new(MemoryStore::new()),
        Gate::default(),
        Requests::default(),
    );
    let (open, ran) = builder(&store, &gate, &requests);
    let kernel = open.build().await.unwrap();
    let (busy, idle) = (session(&kernel).await, session(&kernel).await);
    within(busy.input("go")).await.unwrap();
    gate.entered().await;
    let draining = tokio::spawn(kernel.clone().drain(Duration::from_secs(3600)));
    within(busy.wait_for(|view| view.suspended)).await.unwrap();
    within(idle.wait_for(|view| view.hibernated)).await.unwrap();
    // What comes meanwhile is kept, and begins no turn.
    within(idle.input("go")).await.unwrap();
    gate.open();
    assert_eq!(within(draining).await.unwrap().unwrap(), 0);
    assert_eq!((requests.all().len(), ran.load(Ordering::SeqCst)), (1, 0));

    let (open, ran) = builder(&store, &gate, &requests);
    let kernel = open.build().await.unwrap();
    for process in within(kernel.resume_all()).await.unwrap() {
        within(process.wait_for(|view| view.is_idle() && view.messages == 4))
            .await
            .unwrap();
    }
    // The reply that had come was not asked for again.
    assert_eq!((requests.all().len(), ran.load(Ordering::SeqCst)), (4, 2));
    let process = kernel.process(busy.pid()).await.unwrap();
    turn(&process, "again").await;
    check_histories(&requests);
}

#[tokio::test]
async fn a_drain_ends_at_its_deadline_and_says_what_was_cut_off() {
    let (store, gate, requests) = (
        Arc::new(MemoryStore::new()),
        Gate::default(),
        Requests::default(),
    );
    let kernel = builder(&store, &gate, &requests).0.build().await.unwrap();
    let busy = session(&kernel).await;
    session(&kernel).await;
    within(busy.input("go")).await.unwrap();
    gate.entered().await;
    let cut_off = within(kernel.drain(Duration::from_millis(100))).await;
    assert_eq!(cut_off.unwrap(), 1);

    gate.open();
    let kernel = builder(&store, &gate, &requests).0.build().await.unwrap();
    let process = within(kernel.resume(busy.pid())).await.unwrap();
    within(process.wait_for(ProcessView::is_idle))
        .await
        .unwrap();
    assert_eq!(process.view().unwrap().messages, 4);
}

#[tokio::test]
async fn a_call_that_waits_for_messages_does_not_hold_up_a_drain() {
    let (store, gate, requests) = (
        Arc::new(MemoryStore::new()),
        Gate::default(),
        Requests::default(),
    );
    let kernel = builder(&store, &gate, &requests).0.build().await.unwrap();
    let process = session(&kernel).await;
    let waiting = process.clone();
    let call = tokio::spawn(async move {
        let args = r#"{"timeout_ms": 3600000}"#;
        waiting.call("receive_messages", args).await
    });
    within(process.wait_for(|view| view.status().word() == "acting"))
        .await
        .unwrap();
    assert_eq!(
        within(kernel.drain(Duration::from_secs(3600)))
            .await
            .unwrap(),
        0
    );
    assert!(within(call).await.unwrap().is_err());
}
