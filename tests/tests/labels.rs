//! Budgets of labels, in whole kernels: all trees with a label share one, no call begins after it is
//! used up, and what is counted is what the journals say, over restarts and failures of the store.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use dormouse::checkpoint::Scope;
use dormouse::id::Pid;
use dormouse::label::{Label, LabelBudget, LabelRecord};
use dormouse::model::{Reply, Request, Usage};
use dormouse::ports::{Batch, Model, Store, WriteOp};
use dormouse::record::codec;
use dormouse::store::{LogStore, MemoryStore};
use dormouse::{
    Amount, Budget, Event, Kernel, KernelBuilder, KernelError, LabelStatus, Process, ProcessView,
    Recovery,
};
use dormouse_tests::faulty::{Fate, Faulty, Operation, disk_full};
use dormouse_tests::{
    FnModel, Gate, Requests, asks, check_histories, events_until, program, says, within,
};
use tokio::time::sleep;

const TOOLS: &str = "max_iterations = 100\n[tools]\nenabled = [\"fork\", \"read_fd\"]\n";
const MOMENT: Duration = Duration::from_millis(20);

fn label(text: &str) -> Label {
    text.parse().unwrap()
}

fn tokens(output_tokens: u64) -> Budget {
    Budget::default().with(Amount::OutputTokens, Some(output_tokens))
}

fn per_month(output_tokens: u64) -> LabelBudget {
    LabelBudget::per_month(tokens(output_tokens))
}

fn using(reply: Reply, output_tokens: u64) -> Reply {
    let usage = Usage {
        output_tokens,
        ..Usage::default()
    };
    Reply { usage, ..reply }
}

/// Says how often it was asked.
fn counter(output_tokens: u64) -> impl Model {
    FnModel(move |request: Request| async move {
        let text = format!("reply {}", request.messages.len().div_ceil(2));
        Ok(using(says(&text), output_tokens))
    })
}

/// Always calls a tool that is answered at once.
fn busy(output_tokens: u64) -> impl Model {
    FnModel(move |_: Request| async move {
        // Other calls may come in between.
        tokio::task::yield_now().await;
        Ok(using(
            asks(&[("read_fd", r#"{"fd": "fd:9"}"#)]),
            output_tokens,
        ))
    })
}

fn open(folder: &Path) -> KernelBuilder {
    Kernel::open(LogStore::open(folder).unwrap())
}

async fn session(kernel: &Kernel, value: &str) -> Process {
    let start = kernel.start(program(kernel, TOOLS)).session();
    start.without_input().label("user", value).await.unwrap()
}

async fn suspended(process: &Process) -> ProcessView {
    within(process.wait_for(|view: &ProcessView| view.suspended))
        .await
        .unwrap()
}

fn status(kernel: &Kernel, of: &str) -> LabelStatus {
    let label = label(of);
    let mut statuses = kernel.labels().into_iter();
    statuses.find(|status| status.label == label).unwrap()
}

/// What all processes of a store have used, as their journals say. None may be a copy.
async fn used_in_journals(kernel: &Kernel) -> u64 {
    let mut used = 0;
    for info in kernel.processes().await.unwrap() {
        used += kernel
            .inspect(info.row.pid)
            .await
            .unwrap()
            .usage
            .output_tokens;
    }
    used
}

#[tokio::test]
async fn trees_with_a_label_share_its_budget_and_go_on_after_a_raise() {
    let kernel = Kernel::builder()
        .model("m", counter(60))
        .build()
        .await
        .unwrap();
    let anna = label("user=anna");
    kernel
        .set_label_budget(anna.clone(), per_month(100))
        .await
        .unwrap();
    let events = kernel.events();
    let (first, second) = (
        session(&kernel, "anna").await,
        session(&kernel, "anna").await,
    );
    let other = session(&kernel, "ben").await;
    for process in [&first, &second] {
        let turn = within(process.turn("one")).await.unwrap();
        assert_eq!(&*turn.message, "reply 1");
    }
    assert_eq!(status(&kernel, "user=anna").spent.output_tokens, 120);
    for process in [&first, &second] {
        process.input("two").await.unwrap();
        let view = suspended(process).await;
        assert_eq!((view.status().word(), view.rests), ("suspended", true));
    }
    let turn = within(other.turn("one")).await.unwrap();
    assert_eq!(&*turn.message, "reply 1", "another label has no part in it");
    let refused = first.call("read_fd", "{}").await.unwrap();
    assert!(
        refused.text.contains("a label of its tree"),
        "{}",
        refused.text
    );

    kernel
        .set_label_budget(anna.clone(), per_month(110))
        .await
        .unwrap();
    sleep(MOMENT).await;
    assert!(first.view().unwrap().suspended, "it is still used up");
    kernel
        .set_label_budget(anna.clone(), per_month(1_000))
        .await
        .unwrap();
    for process in [&first, &second] {
        let replied = |view: &ProcessView| view.messages == 4 && view.is_idle();
        within(process.wait_for(replied)).await.unwrap();
    }
    assert_eq!(status(&kernel, "user=anna").spent.output_tokens, 240);
    let is_last =
        |event: &Event| matches!(event, Event::TurnEnded { pid, .. } if *pid == second.pid());
    let mut reached = Vec::new();
    for event in events_until(events, is_last).await {
        if let Event::LabelReached { pid, label, .. } = event {
            reached.push((pid, label));
        }
    }
    reached.sort();
    assert!(
        reached.iter().all(|(_, label)| *label == anna),
        "{reached:?}"
    );
    kernel.remove_label_budget(anna).await.unwrap();
    assert_eq!(kernel.labels(), []);
}

#[tokio::test]
async fn no_call_follows_the_reply_that_uses_a_budget_up() {
    let requests = Requests::default();
    let kernel = Kernel::builder()
        .model("m", requests.record(busy(10)))
        .build()
        .await
        .unwrap();
    let anna = label("user=anna");
    kernel
        .set_label_budget(anna.clone(), per_month(100))
        .await
        .unwrap();
    let start = || {
        let start = kernel.start(program(&kernel, TOOLS)).input("go");
        start.label("user", "anna").label("project", "x")
    };
    let first = start().await.unwrap();
    suspended(&first).await;
    assert_eq!(
        requests.all().len(),
        10,
        "each used ten of a hundred tokens"
    );
    kernel
        .set_label_budget(anna.clone(), per_month(300))
        .await
        .unwrap();
    let mut trees = vec![first];
    for _ in 0..3 {
        trees.push(start().await.unwrap());
    }
    for tree in &trees {
        suspended(tree).await;
    }
    let calls = requests.all().len();
    assert!((30..=33).contains(&calls), "those in flight end: {calls}");
    let spent = status(&kernel, "user=anna").spent.output_tokens;
    assert_eq!(spent, 10 * calls as u64);
    sleep(MOMENT).await;
    assert_eq!(requests.all().len(), calls);
    check_histories(&requests);
}

#[tokio::test]
async fn a_label_is_counted_over_restarts_and_its_next_period_lets_trees_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let anna = label("user=anna");
    let kernel = open(folder.path())
        .model("m", counter(60))
        .build()
        .await
        .unwrap();
    kernel
        .set_label_budget(anna.clone(), per_month(100))
        .await
        .unwrap();
    let process = session(&kernel, "anna").await;
    within(process.turn("one")).await.unwrap();
    kernel.shutdown().await.unwrap();

    let kernel = open(folder.path())
        .model("m", counter(60))
        .recovery(Recovery::Resume)
        .build()
        .await
        .unwrap();
    assert_eq!(status(&kernel, "user=anna").spent.output_tokens, 60);
    let process = kernel.process(Pid(1)).await.unwrap();
    let turn = within(process.turn("two")).await.unwrap();
    assert_eq!(&*turn.message, "reply 2");
    process.input("three").await.unwrap();
    suspended(&process).await;
    let spent = status(&kernel, "user=anna").spent.output_tokens;
    assert_eq!(spent, used_in_journals(&kernel).await);
    kernel.shutdown().await.unwrap();

    let requests = Requests::default();
    let kernel = open(folder.path())
        .model("m", requests.record(counter(60)))
        .recovery(Recovery::Resume)
        .build()
        .await
        .unwrap();
    let process = kernel.process(Pid(1)).await.unwrap();
    suspended(&process).await;
    sleep(MOMENT).await;
    assert_eq!(requests.all().len(), 0, "it is used up after a restart too");
    kernel.shutdown().await.unwrap();

    // The record is of an earlier month.
    let store = LogStore::open(folder.path()).unwrap();
    let (number, record) = store.labels().unwrap().remove(0);
    let mut record: LabelRecord = codec::decode(&record).unwrap();
    record.since_ms -= 40 * 24 * 60 * 60 * 1_000;
    let record = codec::encode(&record).unwrap();
    let op = WriteOp::Label { number, record };
    let owner = store.claim().unwrap();
    store.commit(owner, Batch::durable(&[op], 0)).unwrap();
    drop(store);
    let kernel = open(folder.path())
        .model("m", counter(60))
        .recovery(Recovery::Resume)
        .build()
        .await
        .unwrap();
    let process = kernel.process(Pid(1)).await.unwrap();
    let replied = |view: &ProcessView| view.messages == 6 && view.is_idle();
    within(process.wait_for(replied)).await.unwrap();
    let now = status(&kernel, "user=anna");
    assert_eq!(
        now.spent.output_tokens, 60,
        "the new period has its own count"
    );
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let now_ms = now_ms.as_millis() as u64;
    assert!(now.since_ms <= now_ms && now_ms < now.until_ms, "{now:?}");
    kernel.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_call_in_flight_counts_once_it_is_answered() {
    let gate = Gate::default();
    let holding = gate.clone();
    let model = FnModel(move |request: Request| {
        let gate = holding.clone();
        async move {
            if request.messages.last().unwrap().text().contains("hold") {
                gate.pass().await;
            }
            Ok(using(says("done"), 60))
        }
    });
    let kernel = Kernel::builder().model("m", model).build().await.unwrap();
    kernel
        .set_label_budget(label("user=anna"), per_month(50))
        .await
        .unwrap();
    let (slow, quick) = (
        session(&kernel, "anna").await,
        session(&kernel, "anna").await,
    );
    slow.input("hold").await.unwrap();
    within(gate.entered()).await;
    within(quick.turn("now")).await.unwrap();
    gate.open();
    within(slow.wait_for(|view: &ProcessView| view.messages == 2))
        .await
        .unwrap();
    assert_eq!(status(&kernel, "user=anna").spent.output_tokens, 120);
    quick.input("again").await.unwrap();
    suspended(&quick).await;
}

/// Each commit fails once, or is done and fails: what is counted is what the journals say.
#[tokio::test]
async fn a_failed_commit_neither_loses_nor_doubles_an_amount() {
    for at in 1..40 {
        for is_done in [false, true] {
            failing_at(at, is_done).await;
        }
    }
}

async fn failing_at(at: usize, is_done: bool) {
    let store = Arc::new(MemoryStore::new());
    let commits = AtomicUsize::new(0);
    let failing = Faulty::new(store.clone(), move |_, operation| match operation {
        Operation::Commit { .. } if commits.fetch_add(1, Ordering::SeqCst) + 1 == at => {
            match is_done {
                true => Fate::Unheard(disk_full()),
                false => Fate::Fail(disk_full()),
            }
        }
        _ => Fate::Pass,
    });
    let kernel = Kernel::open(failing)
        .model("m", busy(10))
        .build()
        .await
        .unwrap();
    let set = kernel.set_label_budget(label("user=anna"), per_month(150));
    let is_set = within(set).await.is_ok();
    for _ in 0..2 {
        let start = kernel.start(program(&kernel, TOOLS)).input("go");
        let Ok(process) = start.label("user", "anna").await else {
            continue;
        };
        let rests = process.wait_for(|view: &ProcessView| view.suspended);
        tokio::select! {
            _ = within(rests) => {}
            // The store has failed.
            _ = within(process.wait()) => {}
        }
    }
    for process in kernel.resume_all().await.unwrap() {
        if is_set {
            suspended(&process).await;
        }
    }
    let used = used_in_journals(&kernel).await;
    let found = kernel
        .labels()
        .first()
        .map(|status| status.spent.output_tokens);
    if is_set {
        assert_eq!(found, Some(used), "commit {at} failed, done: {is_done}");
        assert!((150..=160).contains(&used), "commit {at}: {used}");
    }
    kernel.shutdown().await.unwrap();
    let again = Kernel::open(store)
        .model("m", busy(10))
        .build()
        .await
        .unwrap();
    let stored = again
        .labels()
        .first()
        .map(|status| status.spent.output_tokens);
    if is_set {
        assert_eq!(stored, Some(used), "commit {at}, done: {is_done}");
    }
}

#[tokio::test]
async fn children_copies_and_branches_have_the_labels_of_their_tree_and_imports_none() {
    let model = FnModel(|request: Request| async move {
        let forks = request.messages.len() == 1;
        let reply = match forks {
            true => asks(&[("fork", r#"{"prompts": ["a", "b"]}"#)]),
            false => says("done"),
        };
        Ok(using(reply, 10))
    });
    let folder = tempfile::tempdir().unwrap();
    let kernel = open(folder.path()).model("m", model).build().await.unwrap();
    kernel
        .set_label_budget(label("user=anna"), per_month(1_000))
        .await
        .unwrap();
    let root = session(&kernel, "anna").await;
    within(root.turn("go")).await.unwrap();
    let spent = || status(&kernel, "user=anna").spent.output_tokens;
    assert_eq!(spent(), 40, "the root was asked twice, each child once");
    let copy = root.fork().await.unwrap();
    within(copy.turn("more")).await.unwrap();
    assert_eq!(spent(), 50);
    let branch = within(
        kernel
            .branch(root.pid(), root.view().unwrap().fact)
            .into_future(),
    );
    let branch = branch.await.unwrap();
    within(branch.turn("more")).await.unwrap();
    assert_eq!(spent(), 60);

    let mut file = Vec::new();
    let export = kernel.export(root.pid(), Scope::Tree);
    (file, _) = within(export.write(file)).await.unwrap();
    let imported = within(kernel.import(Cursor::new(file)).into_future())
        .await
        .unwrap();
    within(imported.process.turn("more")).await.unwrap();
    assert_eq!(spent(), 60);
    let rows = kernel.processes().await.unwrap();
    let labels: BTreeMap<Pid, usize> = rows
        .iter()
        .filter(|info| info.row.parent.is_none())
        .map(|info| (info.row.pid, info.row.labels.len()))
        .collect();
    for (pid, expected) in [
        (root.pid(), 1),
        (copy.pid(), 1),
        (branch.pid(), 1),
        (imported.process.pid(), 0),
    ] {
        assert_eq!(labels[&pid], expected, "{pid}");
    }
}

#[tokio::test]
async fn what_is_no_label_and_what_cannot_be_limited_is_refused() {
    let kernel = Kernel::builder()
        .model("m", counter(1))
        .build()
        .await
        .unwrap();
    for (key, value, what) in [
        ("us er", "anna", "key of a label"),
        ("user", "", "value of a label"),
    ] {
        let start = kernel.start(program(&kernel, TOOLS)).label(key, value);
        let error = start.await.unwrap_err();
        assert!(matches!(error, KernelError::Label(_)), "{error}");
        assert!(error.to_string().contains(what), "{error}");
    }
    let twice = kernel.start(program(&kernel, TOOLS)).label("user", "anna");
    let error = twice.label("user", "ben").await.unwrap_err();
    assert!(error.to_string().contains("two values"), "{error}");
    let processes = Budget::default().with(Amount::Processes, Some(3));
    let budget = LabelBudget::per_day(processes);
    let error = kernel.set_label_budget(label("user=anna"), budget).await;
    let error = error.unwrap_err().to_string();
    assert!(error.contains("cannot limit processes"), "{error}");
    assert_eq!(kernel.processes().await.unwrap().len(), 0);
}
