//! The fence (FENCE-1) in whole kernels: what a process did beyond a point that it went back to is
//! not done again unasked. The two attacks of ACRFence (arXiv 2603.20625) are here, each without the
//! fence and with it, and the losing branch of Atomix (arXiv 2602.14849).

use std::future::IntoFuture;
use std::io::Cursor;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dormouse::checkpoint::Scope;
use dormouse::effect::{EffectPolicy, RepeatRule};
use dormouse::export::Member;
use dormouse::id::{CheckpointId, Pid, ProcessCallId};
use dormouse::model::Request;
use dormouse::ports::{Model, SweepMode, Tool};
use dormouse::record::{EffectLog, HoldReason, codec};
use dormouse::retention::{HistoryRule, Retention};
use dormouse::store::LogStore;
use dormouse::{FnTool, HeldCall, Kernel, KernelBuilder, Process, Recovery, Verdict};
use dormouse_proto::message::Block;
use dormouse_tests::forge::export as forge;
use dormouse_tests::{FnModel, asks, program, says, turn, within};
use serde_json::Value;

const TRANSFER: &str = "[tools]\nenabled = [\"transfer\", \"redeem\"]\n";

/// How often each tool ran.
#[derive(Clone, Default)]
struct Bank {
    transfers: Arc<AtomicUsize>,
    redeemed: Arc<AtomicUsize>,
}

impl Bank {
    fn transfers(&self) -> usize {
        self.transfers.load(Ordering::SeqCst)
    }
}

/// A model that does what the user says: `pay` transfers money, under another request id each time,
/// and `redeem` uses a token. It says what the tool answered.
fn teller() -> impl Model {
    let requests = Arc::new(AtomicUsize::new(0));
    FnModel(move |request: Request| {
        let number = requests.fetch_add(1, Ordering::SeqCst);
        async move {
            let last = request.messages.last().unwrap();
            let text = last.blocks.iter().find_map(|block| match block {
                Block::ToolResult { text, .. } => Some(format!("heard: {text}")),
                Block::Text { text, .. } if text.contains("pay") => Some("pay".to_owned()),
                Block::Text { text, .. } if text.contains("redeem") => Some("redeem".to_owned()),
                _ => None,
            });
            let transfer = format!(r#"{{"to": "bob", "sum": 10, "request": "r{number}"}}"#);
            Ok(match text.as_deref() {
                Some("pay") => asks(&[("transfer", &transfer)]),
                Some("redeem") => asks(&[("redeem", r#"{"token": "one-time-7"}"#)]),
                Some(heard) => says(heard),
                None => says("ready"),
            })
        }
    })
}

/// Transfers money each time that it is called; the request id is volatile.
fn transfer(bank: &Bank) -> impl Tool + use<> {
    let runs = bank.transfers.clone();
    let run = move |args: Value| {
        let number = runs.fetch_add(1, Ordering::SeqCst) + 1;
        async move { Ok::<_, String>(format!("transfer {number}: {}", args["sum"])) }
    };
    FnTool::new("transfer", "Transfers money.", run).repeat_rule(RepeatRule {
        volatile: vec!["request".to_owned()],
        ..RepeatRule::default()
    })
}

/// Grants access for a token, and does not check whether the token was used: what ACRFence calls
/// the resurrection of authority.
fn redeem(bank: &Bank) -> impl Tool + use<> {
    let runs = bank.redeemed.clone();
    let run = move |_: Value| {
        runs.fetch_add(1, Ordering::SeqCst);
        async move { Ok::<_, String>("granted") }
    };
    FnTool::new("redeem", "Uses a one-time token.", run)
}

fn open(folder: &Path, bank: &Bank) -> KernelBuilder {
    Kernel::open(LogStore::open(folder).unwrap())
        .model("m", teller())
        .tool(transfer(bank))
        .tool(redeem(bank))
        .recovery(Recovery::Resume)
}

/// A session that was marked, and did `order` after that.
async fn marked(kernel: &Kernel, rest: &str, order: &str) -> (Process, CheckpointId) {
    let program = program(kernel, rest);
    let session = kernel.start(program).session().without_input();
    let session = within(session.into_future()).await.unwrap();
    assert_eq!(turn(&session, "hello").await, "ready");
    let checkpoint = within(session.checkpoint("before")).await.unwrap();
    assert!(turn(&session, order).await.starts_with("heard: "));
    (session, checkpoint.id)
}

/// Waits until the kernel holds one call.
async fn held(kernel: &Kernel) -> HeldCall {
    let one = async {
        loop {
            let mut pending = kernel.pending().await.unwrap();
            assert_eq!(pending.unreadable, []);
            if let Some(call) = pending.calls.pop() {
                return call;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    within(one).await
}

async fn restored(kernel: &Kernel, at: CheckpointId, policy: Option<EffectPolicy>) -> Process {
    let mut branch = kernel.restore(at);
    if let Some(policy) = policy {
        branch = branch.effects(policy);
    }
    within(branch.into_future()).await.unwrap()
}

/// Attack 1: a run is restored to before a payment, and its model pays again under a new id.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_payment_is_made_twice_without_the_fence_and_once_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let bank = Bank::default();
    let kernel = open(folder.path(), &bank).build().await.unwrap();
    let (session, before) = marked(&kernel, TRANSFER, "pay").await;
    assert_eq!(bank.transfers(), 1);

    let unfenced = restored(&kernel, before, Some(EffectPolicy::Run)).await;
    assert_eq!(turn(&unfenced, "pay").await, "heard: transfer 2: 10");
    assert_eq!(bank.transfers(), 2, "without the fence");

    let recorded = restored(&kernel, before, Some(EffectPolicy::Recorded)).await;
    let heard = turn(&recorded, "pay").await;
    assert!(heard.starts_with("heard: <recorded_answer ") && heard.ends_with("transfer 1: 10"));
    let refused = restored(&kernel, before, Some(EffectPolicy::Refuse)).await;
    assert!(turn(&refused, "pay").await.contains("Not run: "));

    // In place, and by `goto`, the same.
    session
        .set_effect_policy(Some(EffectPolicy::Recorded))
        .await
        .unwrap();
    within(session.restore(before)).await.unwrap();
    let heard = turn(&session, "pay").await;
    assert!(heard.contains("<recorded_answer "), "{heard}");
    within(session.goto("msg:2", "please pay")).await.unwrap();
    within(session.wait_for(|view| view.rests)).await.unwrap();
    let conversation = within(kernel.conversation(session.pid(), dormouse::Position::Now));
    let messages = conversation.await.unwrap().messages;
    let last = format!("{:?}", messages.last());
    assert!(last.contains("recorded_answer"), "{last}");
    assert_eq!(bank.transfers(), 2, "with the fence");
}

/// By default a person is asked. The question survives a kill, hibernation and a collection of
/// garbage that gives up the history, and so do the effects of the origin.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_fence_survives_restarts_hibernation_and_garbage_collection() {
    let folder = tempfile::tempdir().unwrap();
    let bank = Bank::default();
    let kernel = open(folder.path(), &bank).build().await.unwrap();
    let (session, before) = marked(&kernel, TRANSFER, "pay").await;
    let retention = Retention {
        history: HistoryRule::FromOldestCheckpoint,
        ..Retention::default()
    };
    within(session.hibernate()).await.unwrap();
    within(kernel.collect_garbage(retention.clone(), SweepMode::Free))
        .await
        .unwrap();
    let branch = restored(&kernel, before, None).await;
    within(branch.input("pay")).await.unwrap();
    let call = held(&kernel).await;
    assert_eq!(call.id.pid, branch.pid());
    let HoldReason::Repeats {
        effect: Some(effect),
    } = &call.reason
    else {
        panic!("{call:?}")
    };
    assert_eq!(effect.answer.as_deref(), Some("transfer 1: 10"));
    within(branch.hibernate()).await.unwrap();
    assert_eq!(held(&kernel).await, call);
    // As after a kill: nothing is shut down.
    let copy = tempfile::tempdir().unwrap();
    dormouse_tests::copy_folder(folder.path(), copy.path(), &["LOCK"]).unwrap();
    drop((session, branch));
    kernel.shutdown().await.unwrap();

    for (store, recalls) in [(folder.path(), true), (copy.path(), false)] {
        let kernel = open(store, &bank).build().await.unwrap();
        assert_eq!(held(&kernel).await, call);
        within(kernel.collect_garbage(retention.clone(), SweepMode::Free))
            .await
            .unwrap();
        let branch = kernel.process(call.id.pid).await.unwrap();
        let paid_before = bank.transfers();
        match recalls {
            true => within(kernel.recall(call.id)).await.unwrap(),
            false => within(kernel.approve(call.id)).await.unwrap(),
        }
        within(branch.wait_for(|view| view.rests)).await.unwrap();
        let again = kernel.record_verdict(call.id, Verdict::Recall).await;
        assert!(again.is_err(), "answered once");
        let paid = bank.transfers() - paid_before;
        assert_eq!(paid, usize::from(!recalls), "a person said so, or not");
        kernel.shutdown().await.unwrap();
    }
}

/// Attack 2: a token is used once, the run is restored to before that, and the token is used again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_one_time_token_is_used_again_without_the_fence_and_not_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let bank = Bank::default();
    let kernel = open(folder.path(), &bank)
        .unattended()
        .build()
        .await
        .unwrap();
    let (_, before) = marked(&kernel, TRANSFER, "redeem").await;
    let uses = || bank.redeemed.load(Ordering::SeqCst);
    let unfenced = restored(&kernel, before, Some(EffectPolicy::Run)).await;
    assert_eq!(turn(&unfenced, "redeem").await, "heard: granted");
    assert_eq!(uses(), 2, "without the fence");
    // Where nobody answers, the recorded answer is the default.
    let fenced = restored(&kernel, before, None).await;
    assert!(turn(&fenced, "redeem").await.contains("<recorded_answer "));
    let refused = restored(&kernel, before, Some(EffectPolicy::Refuse)).await;
    assert!(turn(&refused, "redeem").await.contains("Not run: "));
    assert_eq!(uses(), 2, "with the fence");
}

/// Attack 2 with an approval in place of a token: what a person approved beyond the point does not
/// let the repeated call pass, not even an approval that is recorded for a branch at rest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_approval_that_was_used_beyond_the_point_is_not_used_again() {
    let folder = tempfile::tempdir().unwrap();
    let bank = Bank::default();
    let kernel = open(folder.path(), &bank).build().await.unwrap();
    let program = program(&kernel, &format!("{TRANSFER}ask = [\"transfer\"]\n"));
    let process = within(kernel.start(program).input("pay").into_future())
        .await
        .unwrap();
    let call = held(&kernel).await;
    let at = kernel.inspect(process.pid()).await.unwrap().fact;
    within(kernel.approve(call.id)).await.unwrap();
    within(process.wait()).await.unwrap();
    assert_eq!(bank.transfers(), 1);

    let branch = within(kernel.branch(process.pid(), at).into_future())
        .await
        .unwrap();
    let asked = held(&kernel).await;
    assert!(
        matches!(asked.reason, HoldReason::Repeats { .. }),
        "{asked:?}"
    );
    let original = ProcessCallId {
        pid: process.pid(),
        call: asked.id.call,
    };
    assert!(kernel.approve(original).await.is_err());
    within(kernel.recall(asked.id)).await.unwrap();
    let exit = within(branch.wait()).await.unwrap();
    assert!(exit.message.contains("<recorded_answer "), "{exit:?}");
    assert_eq!(bank.transfers(), 1);
}

/// What a process did travels with its exports.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_import_knows_what_its_origin_did_beyond_the_point() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let bank = Bank::default();
    let kernel = open(folders[0].path(), &bank).build().await.unwrap();
    let (session, before) = marked(&kernel, TRANSFER, "pay").await;
    let export = kernel.export(session.pid(), Scope::Process);
    let (file, _) = within(export.at(before).write(Vec::new())).await.unwrap();
    let other = open(folders[1].path(), &bank)
        .unattended()
        .build()
        .await
        .unwrap();
    let import = || other.import(Cursor::new(file.clone()));
    let imported = within(import().into_future()).await.unwrap();
    let heard = turn(&imported.process, "pay").await;
    assert!(heard.contains("<recorded_answer "), "{heard}");
    let refusing = import().effects(EffectPolicy::Refuse);
    let refusing = within(refusing.into_future()).await.unwrap().process;
    turn(&refusing, "pay").await;
    assert_eq!(bank.transfers(), 1);
    let repeating = import().effects(EffectPolicy::Run);
    let repeating = within(repeating.into_future()).await.unwrap().process;
    turn(&repeating, "pay").await;
    assert_eq!(bank.transfers(), 2);
}

/// An export as a version without the log of effects wrote it.
fn without_effect_log(file: &[u8]) -> Vec<u8> {
    let mut records = forge::records(file);
    for record in records.iter_mut().filter(|record| record.kind == 2) {
        let mut member: Member = codec::decode(&record.payload).unwrap();
        member.image.effects = EffectLog::default();
        record.payload = codec::encode(&member).unwrap();
    }
    forge::file(&records)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_import_without_a_log_of_effects_asks_about_each_call_that_could_be_one() {
    let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let bank = Bank::default();
    let kernel = open(folders[0].path(), &bank).build().await.unwrap();
    let (session, before) = marked(&kernel, TRANSFER, "pay").await;
    let export = kernel.export(session.pid(), Scope::Process);
    let (file, _) = within(export.at(before).write(Vec::new())).await.unwrap();
    let file = without_effect_log(&file);

    let attended = open(folders[1].path(), &bank).build().await.unwrap();
    let import = attended.import(Cursor::new(file.clone()));
    let imported = within(import.into_future()).await.unwrap().process;
    for order in ["redeem", "pay"] {
        within(imported.input(order)).await.unwrap();
        let call = held(&attended).await;
        assert_eq!(call.reason, HoldReason::Repeats { effect: None }, "{order}");
        within(attended.refuse(call.id, "it may have run"))
            .await
            .unwrap();
        within(imported.wait_for(|view| view.is_idle()))
            .await
            .unwrap();
    }

    let alone = open(folders[2].path(), &bank).unattended();
    let alone = alone.build().await.unwrap();
    let import = || alone.import(Cursor::new(file.clone()));
    let imported = within(import().into_future()).await.unwrap().process;
    let heard = turn(&imported, "pay").await;
    assert!(heard.contains("Not run: "), "{heard}");
    assert_eq!(
        (bank.transfers(), bank.redeemed.load(Ordering::SeqCst)),
        (1, 0)
    );
    // A host that knows better names its policy.
    let repeating = import().effects(EffectPolicy::Run);
    let repeating = within(repeating.into_future()).await.unwrap().process;
    turn(&repeating, "pay").await;
    assert_eq!(bank.transfers(), 2);
}

/// A copy that is made to compare names its policy, as a branch does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_of_the_past_follows_the_policy_that_it_is_made_with() {
    let folder = tempfile::tempdir().unwrap();
    let bank = Bank::default();
    let kernel = open(folder.path(), &bank).build().await.unwrap();
    let (session, before) = marked(&kernel, TRANSFER, "pay").await;
    let before = kernel.checkpoint(before).await.unwrap().members[0].at;
    let copy = || kernel.copy(session.pid(), Some(before));
    let recorded = within(copy().effects(EffectPolicy::Recorded).into_future());
    let heard = turn(&recorded.await.unwrap(), "pay").await;
    assert!(heard.contains("<recorded_answer "), "{heard}");
    assert_eq!(bank.transfers(), 1);
    let repeating = within(copy().effects(EffectPolicy::Run).into_future());
    turn(&repeating.await.unwrap(), "pay").await;
    assert_eq!(bank.transfers(), 2);
}

/// Atomix: what a branch did that lost remains, and is listed by effect.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_effects_of_a_branch_that_was_given_up_are_listed() {
    let folder = tempfile::tempdir().unwrap();
    let bank = Bank::default();
    let kernel = open(folder.path(), &bank).build().await.unwrap();
    let (session, before) = marked(&kernel, TRANSFER, "pay").await;
    let loser = restored(&kernel, before, Some(EffectPolicy::Run)).await;
    turn(&loser, "redeem").await;
    let middle = kernel.inspect(loser.pid()).await.unwrap().fact;
    turn(&loser, "pay").await;
    within(loser.kill()).await.unwrap();
    within(loser.wait()).await.unwrap();

    let listed = |pid: Pid, since| within(kernel.effects(pid, since));
    let done = listed(loser.pid(), None).await.unwrap();
    let tools: Vec<_> = done.effects.iter().map(|effect| &*effect.tool).collect();
    assert_eq!((tools, done.dropped), (vec!["redeem", "transfer"], 0));
    let token = &done.effects[0];
    assert_eq!(
        (&*token.args, token.answer.as_deref(), token.access.word()),
        (r#"{"token": "one-time-7"}"#, Some("granted"), "write")
    );
    let fact = token.fact.expect("it is retained");
    let log = kernel.log(loser.pid()).await.unwrap();
    let line = log.iter().find(|line| line.number == fact).unwrap();
    assert_eq!(line.name, "tool_called");
    let since = listed(loser.pid(), Some(middle.into())).await.unwrap();
    assert_eq!(since.effects, done.effects[1..]);
    let original = listed(session.pid(), None).await.unwrap();
    assert_eq!(original.effects.len(), 1, "its own, and none of the branch");
}
