//! Kernels whose processes write to each other: who may write to whom, what travels, and that each
//! message is heard once, wherever either kernel is cut off.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use dormouse::id::{FdId, Pid};
use dormouse::mail::{PeerMessage, Reach};
use dormouse::message::Block;
use dormouse::model::{ModelError, Reply, Request};
use dormouse::ports::{PeerError, Peers, Store, StoreError};
use dormouse::record::codec;
use dormouse::store::MemoryStore;
use dormouse::tool::Answer;
use dormouse::{Kernel, KernelError, NotFound, Process, ProcessView};
use dormouse_tests::faulty::{Fate, Faulty, Operation};
use dormouse_tests::{
    FnModel, Requests, asks, check_histories, program, results, says, turn, within,
};
use futures_util::future::{BoxFuture, FutureExt};
use serde_json::json;

const TOOLS: &str = "max_iterations = 50\n[tools]\nenabled = [\"send_message\", \"read_fd\"]\n";

fn range(shard: u64) -> RangeInclusive<Pid> {
    Pid((shard << 40) + 1)..=Pid((shard + 1) << 40)
}

fn shard(pid: Pid) -> u64 {
    (pid.0 - 1) >> 40
}

/// Carries messages between the kernels of one program, each with the pids of one shard.
#[derive(Clone, Default)]
struct Post(Arc<Mutex<BTreeMap<u64, Kernel>>>);

/// The post as one kernel sees it.
struct Office {
    post: Post,
    own: u64,
}

impl Peers for Office {
    fn owns(&self, pid: Pid) -> bool {
        shard(pid) != self.own
    }

    fn send(&self, message: PeerMessage) -> BoxFuture<'static, Result<Answer, PeerError>> {
        let kernel = self.post.0.lock().unwrap().get(&shard(message.to)).cloned();
        async move {
            let kernel = kernel.ok_or_else(|| PeerError("its store is not open".to_owned()))?;
            // As on the way to another machine.
            let bytes = codec::encode(&message).unwrap();
            let message = codec::decode(&bytes).unwrap();
            let answer = kernel.deliver(message).await;
            answer.map_err(|error| PeerError(error.to_string()))
        }
        .boxed()
    }
}

/// A process that is told a tool and its arguments calls it, and says what it was answered.
fn obedient(request: Request) -> std::future::Ready<Result<Reply, ModelError>> {
    let said = request.messages.last().map(|message| message.text());
    let said = said.unwrap_or_default();
    let answers = results(&request, 0);
    let task = said
        .split_once(' ')
        .filter(|(_, args)| args.starts_with('{'));
    std::future::ready(Ok(match (&answers[..], task) {
        ([(answer, _)], _) => says(answer),
        (_, Some((tool, args))) => asks(&[(tool, args)]),
        _ => says("heard"),
    }))
}

impl Post {
    /// Opens the store of a shard, whose kernel gets mail from now on.
    async fn open(
        &self,
        shard: u64,
        store: impl Store,
        reach: Reach,
        requests: &Requests,
    ) -> Kernel {
        let office = Office {
            post: self.clone(),
            own: shard,
        };
        let builder = Kernel::open(store)
            .pids(range(shard))
            .reach(reach)
            .peers(office);
        let model = requests.record(FnModel(obedient));
        let kernel = builder.model("m", model).build().await.unwrap();
        self.0.lock().unwrap().insert(shard, kernel.clone());
        kernel
    }
}

async fn session(kernel: &Kernel) -> Process {
    let start = kernel.start(program(kernel, TOOLS)).session();
    start.without_input().await.unwrap()
}

async fn send(process: &Process, args: serde_json::Value) -> Answer {
    within(process.call("send_message", args.to_string()))
        .await
        .unwrap()
}

/// The messages of other processes in a conversation.
fn told(request: &Request) -> Vec<String> {
    let blocks = request.messages.iter().flat_map(|message| &message.blocks);
    let text = |block: &Block| match block {
        Block::Text { text, .. } => text.to_string(),
        _ => String::new(),
    };
    let texts = blocks.map(text);
    texts
        .filter(|text| text.contains("<process_message "))
        .collect()
}

#[tokio::test]
async fn processes_of_two_kernels_write_to_each_other_and_hand_over_what_they_found() {
    let (post, requests) = (Post::default(), Requests::default());
    let first = post
        .open(1, MemoryStore::new(), Reach::Everyone, &requests)
        .await;
    // Of this one, only those that were written to may write to others.
    let second = post
        .open(2, MemoryStore::new(), Reach::Tree, &requests)
        .await;
    let (sender, inbox) = (session(&first).await, session(&second).await);
    let stranger = session(&second).await;
    sender.open("log", "one\ntwo\nthree\n", None).await.unwrap();
    let to_inbox = json!({ "to": inbox.pid().0, "text": "here", "fds": ["fd:1 lines 2-2"] });
    let to_sender = json!({ "to": sender.pid().0, "text": "thanks" });

    // The reach of the receiver's kernel counts, and that of the sender's.
    let refused = send(&sender, to_inbox.clone()).await;
    assert!(
        refused.is_error && refused.text.contains("in the tree"),
        "{refused:?}"
    );
    let refused = send(&inbox, to_sender.clone()).await;
    assert!(
        refused.is_error && refused.text.contains("in the tree"),
        "{refused:?}"
    );

    let named = second
        .start(program(&second, TOOLS))
        .session()
        .name("inbox");
    let inbox = named.without_input().await.unwrap();
    let to_inbox = json!({ "to": inbox.pid().0, "text": "here", "fds": ["fd:1 lines 2-2"] });
    let sent = send(&sender, to_inbox).await;
    assert!(
        !sent.is_error && sent.text.contains("message_sent"),
        "{sent:?}"
    );
    let view = within(inbox.wait_for(|view| view.is_idle() && view.messages == 2)).await;
    let content = view.unwrap().content(&FdId::Fd(1)).unwrap();
    assert_eq!(&*content.unlimited_reader().text().unwrap(), "two\n");

    assert!(
        !send(&inbox, to_sender.clone()).await.is_error,
        "it answers"
    );
    assert!(send(&stranger, to_sender).await.is_error);
    let told = |pid: Pid| told(requests.of(pid.0).last().unwrap());
    within(sender.wait_for(|view| view.is_idle() && view.messages == 2))
        .await
        .unwrap();
    assert_eq!((told(inbox.pid()).len(), told(sender.pid()).len()), (1, 1));
    let from = format!("from=\"{}\"", inbox.pid());
    assert!(
        told(sender.pid())[0].contains(&from),
        "{:?}",
        told(sender.pid())
    );
    check_histories(&requests);
}

#[tokio::test]
async fn what_cannot_be_delivered_is_refused_with_a_reason() {
    let (post, requests) = (Post::default(), Requests::default());
    let first = post
        .open(1, MemoryStore::new(), Reach::Everyone, &requests)
        .await;
    let second = post
        .open(2, MemoryStore::new(), Reach::Everyone, &requests)
        .await;
    let (sender, inbox) = (session(&first).await, session(&second).await);
    let ended = session(&second).await;
    ended.kill().await.unwrap();
    let isolated = session(&second).await;
    second.isolate([isolated.pid()]).unwrap();
    let large = vec![b'x'; 5 << 20];
    sender.open("large", large, None).await.unwrap();
    for (to, fds, part) in [
        (range(2).end().0, json!([]), "There is no process"),
        (ended.pid().0, json!([]), "has ended"),
        (isolated.pid().0, json!([]), "the user has not resumed it"),
        (inbox.pid().0, json!(["fd:1"]), "at most 4194304 bytes"),
    ] {
        let args = json!({ "to": to, "text": "hear", "fds": fds });
        let answer = send(&sender, args).await;
        assert!(
            answer.is_error && answer.text.contains(part),
            "{part}: {answer:?}"
        );
    }
    let message = PeerMessage {
        from: inbox.pid(),
        to: inbox.pid(),
        call: dormouse::id::CallId { epoch: 0, seq: 1 },
        acked_below: 1,
        is_answer: false,
        program: "p".into(),
        text: "lost".into(),
        descriptors: Vec::new(),
    };
    let lost = within(first.deliver(message)).await.unwrap_err();
    assert!(
        matches!(lost, KernelError::NotFound(NotFound::Process(pid)) if pid == inbox.pid()),
        "{lost}"
    );
}

#[tokio::test]
async fn a_message_waits_until_the_store_of_its_receiver_is_opened_or_its_call_is_cancelled() {
    let (post, requests) = (Post::default(), Requests::default());
    let store = Arc::new(MemoryStore::new());
    let first = post
        .open(1, MemoryStore::new(), Reach::Everyone, &requests)
        .await;
    let second = post
        .open(2, store.clone(), Reach::Everyone, &requests)
        .await;
    let (sender, inbox) = (session(&first).await, session(&second).await.pid());
    within(second.shutdown()).await.unwrap();
    let args = json!({ "to": inbox.0, "text": "hear" }).to_string();
    let cancelled = sender.call_until("send_message", args.clone(), std::future::ready(()));
    assert!(within(cancelled).await.unwrap().is_error);
    let (sent, second) = tokio::join!(
        within(sender.call("send_message", args)),
        post.open(2, store.clone(), Reach::Everyone, &requests)
    );
    assert!(!sent.unwrap().is_error);
    let inbox = second.process(inbox).await.unwrap();
    within(inbox.wait_for(|view| view.is_idle() && view.messages >= 2))
        .await
        .unwrap();
}

/// A store that is cut off from its disk with this commit, which is done or not.
fn cut_off(store: Arc<MemoryStore>, last_commit: usize, is_done: bool) -> impl Store {
    let commits = AtomicUsize::new(0);
    Faulty::new(store, move |_, operation| {
        let Operation::Commit { entries: 1.., .. } = operation else {
            return Fate::Pass;
        };
        let lost = || StoreError::Failed("the power is gone".to_owned());
        match commits.fetch_add(1, Ordering::SeqCst) + 1 {
            commit if commit < last_commit => Fate::Pass,
            commit if commit == last_commit && is_done => Fate::Unheard(lost()),
            _ => Fate::Fail(lost()),
        }
    })
}

/// Resolves when a session has come so far; never for one that had to stop.
async fn rests_with(process: &Process, messages: u64) {
    let has_come = |view: &ProcessView| view.is_idle() && view.messages as u64 == messages;
    if process.wait_for(has_come).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// The message is sent from shard 1 to shard 2, and the kernel of one of them is cut off.
async fn is_heard_once(cut: u64, last_commit: usize, is_done: bool) -> bool {
    let case = format!("kernel {cut} at commit {last_commit}, done: {is_done}");
    let (post, requests) = (Post::default(), Requests::default());
    let stores = [1, 2].map(|shard| (shard, Arc::new(MemoryStore::new())));
    let mut pids = Vec::new();
    for (shard, store) in &stores {
        let kernel = post
            .open(*shard, store.clone(), Reach::Everyone, &requests)
            .await;
        pids.push(session(&kernel).await.pid());
        within(kernel.shutdown()).await.unwrap();
    }
    let mut kernels = BTreeMap::new();
    for (shard, store) in &stores {
        let kernel = match *shard == cut {
            true => {
                let store = cut_off(store.clone(), last_commit, is_done);
                post.open(*shard, store, Reach::Everyone, &requests).await
            }
            false => {
                post.open(*shard, store.clone(), Reach::Everyone, &requests)
                    .await
            }
        };
        kernels.insert(*shard, kernel);
    }
    let mut sender = kernels[&1].process(pids[0]).await.unwrap();
    let mut inbox = kernels[&2].process(pids[1]).await.unwrap();
    let task = format!(
        "send_message {}",
        json!({ "to": pids[1].0, "text": "hear" })
    );
    let input = within(sender.input(task.as_str())).await;
    let closed = kernels[&cut].closed();
    let is_whole = tokio::select! {
        _ = within(async { tokio::join!(rests_with(&sender, 4), rests_with(&inbox, 2)) }) => true,
        _ = closed => false,
    };
    // What follows needs a store that is not cut off.
    let (_, store) = &stores[cut as usize - 1];
    let _ = within(kernels[&cut].clone().shutdown()).await;
    let kernel = post
        .open(cut, store.clone(), Reach::Everyone, &requests)
        .await;
    within(kernel.resume_all()).await.unwrap();
    let process = kernel.process(pids[cut as usize - 1]).await.unwrap();
    match cut {
        1 => sender = process,
        _ => inbox = process,
    }
    // The input was not made durable, and the sender said so.
    let has_begun = within(sender.wait_for(|_| true)).await.unwrap().messages > 0;
    if input.is_err() && !has_begun {
        within(sender.input(task.as_str())).await.unwrap();
    }
    within(async { tokio::join!(rests_with(&sender, 4), rests_with(&inbox, 2)) }).await;
    turn(&inbox, "look").await;
    turn(&sender, "look").await;
    let heard = told(requests.of(pids[1].0).last().unwrap());
    assert_eq!(heard.len(), 1, "{case}: {heard:?}");
    let answered = requests.of(pids[0].0).last().unwrap().messages[3].text();
    assert!(answered.contains("message_sent"), "{case}: {answered}");
    check_histories(&requests);
    is_whole
}

#[tokio::test]
async fn wherever_either_kernel_is_cut_off_a_message_is_heard_once() {
    for cut in [1, 2] {
        for is_done in [false, true] {
            let mut cut_offs = 0;
            while !is_heard_once(cut, cut_offs + 1, is_done).await {
                cut_offs += 1;
            }
            assert!(cut_offs >= 2, "kernel {cut} was cut off {cut_offs} times");
        }
    }
}
