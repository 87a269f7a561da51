//! HIST-1 and FORK-2 in the bytes that leave the machine, for every wire format: each request of a
//! process begins with its last one, what forked processes send begins with what their parent sent,
//! and a kernel that comes back sends what it would have sent. A provider's cache sees these bytes.
//!
//! One long run: parallel tools, descriptors, a fork, a turn that goes back, a call that is in
//! flight when the kernel ends.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod formats;
mod server;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use dormouse_actors::handle::{Kernel, Process};
use dormouse_actors::ports::Model;
use dormouse_models::anthropic::Messages;
use dormouse_models::chat::Completions;
use dormouse_models::gemini::GenerateContent;
use dormouse_models::responses::Responses;
use dormouse_models::wire::{Client, Codec, Delivery};
use dormouse_proto::message::Message;
use dormouse_proto::model::{Delta, ModelError, Reply, Request};
use dormouse_store::LogStore;
use futures_util::future::BoxFuture;

use self::formats::Format;
use self::server::{Captured, Server};

const PATIENCE: Duration = Duration::from_secs(20);

fn program(format: &Format) -> String {
    format!(
        r#"
[model]
name = "gemini-claude-gpt"
provider = "{}"
[prompt]
system = "You look at <things> and \"say\" so."
[parameters]
temperature = 0.5
max_tokens = 4096
[tools]
enabled = ["fork", "read_fd", "goto"]
[file_descriptor]
max_direct_output_chars = 200
default_page_size = 100
[limits]
max_fork_children = 4
"#,
        format.word
    )
}

/// A model whose requests are kept: whether they share their messages is seen by address.
struct Watched<C> {
    client: Client<C>,
    messages: Arc<Mutex<Vec<Vec<Arc<Message>>>>>,
}

impl<C: Codec> Model for Watched<C> {
    fn call<'a>(
        &'a self,
        request: Request,
        deltas: &'a (dyn Fn(Delta) + Send + Sync),
    ) -> BoxFuture<'a, Result<Reply, ModelError>> {
        self.messages.lock().unwrap().push(request.messages.clone());
        self.client.call(request, deltas)
    }
}

async fn at_rest(process: &Process, messages: usize) {
    let rests = process.wait_for(|view| view.is_idle() && view.messages >= messages);
    tokio::time::timeout(PATIENCE, rests)
        .await
        .expect("the turn ends")
        .unwrap();
}

async fn check<C: Codec>(format: Format) {
    let server = Server::start(format).await;
    let messages = Arc::new(Mutex::new(Vec::new()));
    let folder = tempfile::tempdir().unwrap();
    let open = || {
        let client = Client::<C>::builder()
            .base_url(&server.url)
            .delivery(Delivery::Whole)
            .build()
            .unwrap();
        let store = LogStore::open(folder.path()).unwrap();
        Kernel::open(store).model(
            "gemini-claude-gpt",
            Watched {
                client,
                messages: messages.clone(),
            },
        )
    };
    let kernel = open().build().await.unwrap();
    let loaded = kernel.parse(program(&format)).unwrap().program;
    let root = kernel
        .start(loaded)
        .session()
        .input("Look at \u{e9}verything.\n".repeat(50))
        .await
        .unwrap();
    at_rest(&root, 6).await;
    let before = server.captured();
    check_forks(&format, &before);
    check_shared(&messages.lock().unwrap());

    root.input("And then?").await.unwrap();
    at_rest(&root, 8).await;
    root.goto("msg:4", "Look again.").await.unwrap();
    at_rest(&root, 6).await;
    let gone_back = server.captured().pop().unwrap();
    let start = common(&gone_back, &before[1]);
    assert!(
        start > history(&format, &before[1]).len() - 1,
        "going back begins with what was sent before"
    );

    root.input("hang").await.unwrap();
    let in_flight = tokio::time::timeout(PATIENCE, server.hung())
        .await
        .expect("the call is made");
    assert!(
        in_flight.starts_with(history(&format, &gone_back)),
        "HIST-1"
    );
    tokio::time::timeout(PATIENCE, kernel.shutdown())
        .await
        .expect("the kernel ends with a call in flight")
        .unwrap();

    server.answer_all();
    let kernel = open().build().await.unwrap();
    let pid = root.pid();
    kernel.resume_all().await.unwrap();
    let root = kernel.process(pid).await.unwrap();
    at_rest(&root, 8).await;
    assert_eq!(
        server.captured().last(),
        Some(&in_flight),
        "what was in flight is asked again in the same bytes"
    );
    root.input("Go on.").await.unwrap();
    at_rest(&root, 10).await;
    assert!(
        server
            .captured()
            .last()
            .unwrap()
            .starts_with(history(&format, &in_flight)),
        "HIST-1 after a restart"
    );
}

/// A request up to the bracket that closes its messages.
fn history<'a>(format: &Format, body: &'a str) -> &'a str {
    body.strip_suffix(format.tail)
        .unwrap_or_else(|| panic!("{body} ends otherwise"))
}

fn common(a: &str, b: &str) -> usize {
    a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count()
}

fn check_forks(format: &Format, sent: &Captured) {
    let (children, own): (Vec<_>, Vec<_>) = sent
        .iter()
        .partition(|body| server::prompt_of(body).is_some());
    assert_eq!((own.len(), children.len()), (3, 6), "{sent:#?}");
    for pair in own.windows(2) {
        assert!(pair[1].starts_with(history(format, pair[0])), "HIST-1");
    }
    for prompt in server::PROMPTS {
        let of_one: Vec<_> = children
            .iter()
            .filter(|body| server::prompt_of(body) == Some(prompt))
            .collect();
        let [first, second] = of_one[..] else {
            panic!("{} requests of {prompt}", of_one.len())
        };
        assert!(first.starts_with(history(format, own[1])), "FORK-2");
        assert!(second.starts_with(history(format, first)), "HIST-1");
        // The reply that forked belongs to what is shared, its thinking with its signature too:
        // only the answer differs.
        assert!(
            first[..common(first, own[2])].contains("c2lnbmVkMQ"),
            "{first}"
        );
    }
}

/// Messages are shared between the requests of a process, and with its forks: so they are not
/// encoded anew for each. What was decided last, a reply and its answers, is shared from the next
/// request on.
fn check_shared(requests: &[Vec<Arc<Message>>]) {
    let same = |a: &[Arc<Message>], b: &[Arc<Message>]| {
        a.iter()
            .zip(b)
            .take_while(|(a, b)| Arc::ptr_eq(a, b))
            .count()
    };
    let forked = &requests[2..];
    assert_eq!(
        forked.len(),
        7,
        "two requests of each child, and one of their parent"
    );
    for request in forked {
        assert!(
            same(request, &forked[0]) >= 3,
            "a fork shares the messages of its parent"
        );
    }
    let ends: Vec<_> = forked.iter().filter(|request| request.len() == 7).collect();
    for request in &ends {
        assert_eq!(
            same(request, ends[0]).min(4),
            4,
            "children share the reply that forked"
        );
        let first = forked
            .iter()
            .find(|first| first.len() == 5 && Arc::ptr_eq(&first[4], &request[4]));
        assert!(
            first.is_some_and(|first| same(first, request) == 5),
            "a process shares what it sent before"
        );
    }
    assert_eq!(ends.len(), 3);
}

/// In the middle of calls, the provider says that the conversation is too long. What is sent after
/// the compaction is valid for the format: it has no thinking that is bound to what is gone, no
/// call without its answer, and the system prompt and tools in the same bytes.
async fn check_compaction<C: Codec>(format: Format) {
    let server = Server::start(format).await;
    let client = Client::<C>::builder()
        .base_url(&server.url)
        .delivery(Delivery::Whole)
        .build()
        .unwrap();
    let folder = tempfile::tempdir().unwrap();
    let kernel = Kernel::open(LogStore::open(folder.path()).unwrap())
        .model("gemini-claude-gpt", client)
        .build()
        .await
        .unwrap();
    let text = format!("{}[context]\nkeep_messages = 2\n", program(&format));
    let loaded = kernel.parse(text).unwrap().program;
    let input = format!("{}\n{}", server::FULL, "Look at it.\n".repeat(500));
    let root = kernel.start(loaded).session().input(input).await.unwrap();
    at_rest(&root, 4).await;
    let sent = server.captured();
    let [_, refused, compacted, ..] = &sent[..] else {
        panic!("{sent:#?}")
    };
    let head = refused.find(&format!("\"{}\":[", format.messages));
    assert!(head.is_some_and(|head| common(refused, compacted) > head));
    assert!(compacted.contains("compacted_messages fd="), "{compacted}");
    let is_signed = |body: &str| body.contains("c2lnbmVk");
    // What a chat server says of its reasoning is bound to nothing.
    assert!(is_signed(refused) && (format.word == "openai-chat" || !is_signed(compacted)));
    for body in &sent[2..] {
        let parsed: serde_json::Value = serde_json::from_str(body).unwrap();
        let messages = parsed[format.messages].to_string();
        let (call, answer) = format.call_and_answer;
        assert_eq!(
            messages.matches(call).count(),
            messages.matches(answer).count(),
            "{body}"
        );
    }
    for pair in sent[2..].windows(2) {
        assert!(pair[1].starts_with(history(&format, &pair[0])), "HIST-1");
    }
}

#[tokio::test]
async fn a_compacted_conversation_is_valid_at_anthropic() {
    check_compaction::<Messages>(formats::ANTHROPIC).await;
}

#[tokio::test]
async fn a_compacted_conversation_is_valid_in_responses() {
    check_compaction::<Responses>(formats::RESPONSES).await;
}

#[tokio::test]
async fn a_compacted_conversation_is_valid_in_chat_completions() {
    check_compaction::<Completions>(formats::CHAT).await;
}

#[tokio::test]
async fn a_compacted_conversation_is_valid_at_gemini() {
    check_compaction::<GenerateContent>(formats::GEMINI).await;
}

#[tokio::test]
async fn requests_begin_with_those_before_them_at_anthropic() {
    check::<Messages>(formats::ANTHROPIC).await;
}

#[tokio::test]
async fn requests_begin_with_those_before_them_in_responses() {
    check::<Responses>(formats::RESPONSES).await;
}

#[tokio::test]
async fn requests_begin_with_those_before_them_in_chat_completions() {
    check::<Completions>(formats::CHAT).await;
}

#[tokio::test]
async fn requests_begin_with_those_before_them_at_gemini() {
    check::<GenerateContent>(formats::GEMINI).await;
}
