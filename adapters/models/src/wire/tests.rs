//! Calls against a server that is a listener with one prepared answer.

use std::sync::Mutex;
use std::time::Duration;

use dormouse_actors::ports::Model;
use dormouse_proto::message::{Block, Message, text_of};
use dormouse_proto::model::{Delta, ModelErrorKind, Request};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::Anthropic;
use crate::anthropic::Messages;
use crate::chat::Completions;
use crate::gemini::GenerateContent;
use crate::responses::Responses;
use dormouse_proto::model::{ModelError, Reply};

mod failing_well;

const EVENTS: &str = concat!(
    "event: message_start\ndata: \
     {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":3}}}\n\n",
    ": a comment\n\n",
    "event: ping\ndata:\n\n",
    "event: content_block_start\ndata: \
     {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n",
    "event: content_block_delta\ndata: \
     {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"h\u{e9}\"}}\n\n",
    "event: message_delta\ndata: \
     {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":2}}\n\n",
    "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
);

/// What the server does after its answer.
#[derive(Clone, Copy)]
enum Then {
    Close,
    Hang,
}

/// Serves one answer, in pieces of `piece` bytes, and gives back what it was asked.
async fn serve(
    answer: Vec<u8>,
    piece: usize,
    then: Then,
) -> (String, tokio::task::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let served = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        let asked = read_request(&mut socket).await;
        for piece in answer.chunks(piece) {
            socket.write_all(piece).await.unwrap();
            tokio::task::yield_now().await;
        }
        if matches!(then, Then::Hang) {
            std::future::pending::<()>().await;
        }
        asked
    });
    (url, served)
}

/// Reads one request, whose length is known.
async fn read_request(socket: &mut TcpStream) -> String {
    let mut asked = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&asked).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let mut lengths = head.lines().filter_map(|line| {
                line.to_lowercase()
                    .strip_prefix("content-length: ")?
                    .parse()
                    .ok()
            });
            if body.len() >= lengths.next_back().expect("the length is known") {
                return text;
            }
        }
        assert_ne!(
            socket.read_buf(&mut asked).await.unwrap(),
            0,
            "the request ended early"
        );
    }
}

/// Serves `head`, and then `byte` once in every `pause`, without end.
async fn drip(head: &'static str, byte: &'static [u8], pause: Duration) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        read_request(&mut socket).await;
        socket.write_all(head.as_bytes()).await.unwrap();
        while socket.write_all(byte).await.is_ok() {
            tokio::time::sleep(pause).await;
        }
    });
    url
}

fn answer(status: &str, kind: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\ncontent-type: {kind}\r\nconnection: close\r\n\r\n{body}")
        .into_bytes()
}

fn request() -> Request {
    Request {
        pid: dormouse_proto::id::Pid(1),
        program: "p".into(),
        model: "m".into(),
        system: "".into(),
        tools: [].into(),
        messages: vec![Message::user("hi").into()],
        parameters: std::sync::Arc::default(),
        forked_at: Vec::new(),
        provider_tools: Default::default(),
        media: Default::default(),
    }
}

fn builder(url: &str) -> Builder<Messages> {
    Anthropic::builder()
        .base_url(url)
        .api_key("sk-canary")
        .idle_timeout(Duration::from_millis(300))
}

#[tokio::test]
async fn a_stream_is_read_however_it_is_cut_into_packets() {
    for piece in [1, 7, 100_000] {
        let (url, served) = serve(
            answer("200 OK", "text/event-stream; charset=utf-8", EVENTS),
            piece,
            Then::Close,
        )
        .await;
        let deltas = Mutex::new(Vec::new());
        let model = builder(&url).build().unwrap();
        let reply = model
            .call(request(), &|delta| deltas.lock().unwrap().push(delta))
            .await
            .unwrap();
        assert_eq!(
            (text_of(&reply.blocks), reply.usage.output_tokens),
            ("hé".to_owned(), 2)
        );
        assert_eq!(*deltas.lock().unwrap(), [Delta::Text("hé".into())]);
        let asked = served.await.unwrap();
        for header in [
            "POST /v1/messages ",
            "x-api-key: sk-canary",
            "anthropic-version: 2023-06-01",
            concat!("user-agent: dormouse/", env!("CARGO_PKG_VERSION"), "\r\n"),
            "\"stream\":true",
        ] {
            assert!(asked.contains(header), "{header} is not in {asked}");
        }
    }
}

#[tokio::test]
async fn headers_are_sent_and_a_secret_one_is_not_shown() {
    let quoting =
        r#"{"error":{"type":"invalid_request_error","message":"no gateway for s3cret-9"}}"#;
    let (url, served) = serve(
        answer("400 Bad Request", "application/json", quoting),
        100_000,
        Then::Close,
    )
    .await;
    let model = builder(&url)
        .header("anthropic-beta", "context-management-2025-06-27")
        .header("Anthropic-Version", "2024-01-01")
        .header("User-Agent", "mine/1")
        .secret_header("x-gateway", "s3cret-9")
        .build()
        .unwrap();
    let error = model.call(request(), &|_| ()).await.unwrap_err();
    assert!(error.message.contains("no gateway for [key]"), "{error}");
    let asked = served.await.unwrap();
    for header in [
        "anthropic-beta: context-management-2025-06-27\r\n",
        "user-agent: mine/1\r\n",
        "anthropic-version: 2024-01-01\r\n",
        "x-gateway: s3cret-9\r\n",
    ] {
        assert!(asked.contains(header), "{header} is not in {asked}");
    }
    assert!(!asked.contains("2023-06-01"), "{asked}");
    let far = |builder: Builder<Messages>| {
        let builder = builder.base_url("http://models.example").without_api_key();
        builder.build().is_ok()
    };
    assert!(far(Anthropic::builder().header("x-plain", "1")));
    assert!(!far(
        Anthropic::builder().secret_header("x-gateway", "s3cret-9")
    ));
    assert!(
        Anthropic::builder()
            .api_key("k")
            .header("a b", "1")
            .build()
            .is_err()
    );
}

#[tokio::test]
async fn a_complete_reply_does_not_wait_for_the_connection_to_end() {
    let (url, _served) = serve(
        answer("200 OK", "text/event-stream", EVENTS),
        100_000,
        Then::Hang,
    )
    .await;
    assert!(
        builder(&url)
            .build()
            .unwrap()
            .call(request(), &|_| ())
            .await
            .is_ok()
    );
}

/// What a reply costs is paid by then, so it is read however carelessly it is framed.
#[tokio::test]
async fn a_stream_without_its_type_or_its_last_blank_line_is_read() {
    let untyped = format!("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n\u{feff}\n{EVENTS}");
    let split = EVENTS.replace(
        "h\u{e9}\"}}\n\n",
        concat!(
            "h\\ud83d\"}}\n\nevent: content_block_delta\ndata: ",
            "{\"type\":\"content_block_delta\",\"index\":0,",
            "\"delta\":{\"type\":\"text_delta\",\"text\":\"\\ude00\"}}\n\n"
        ),
    );
    let cases = [
        (untyped.into_bytes(), "h\u{e9}"),
        (answer("200 OK", "text/plain", EVENTS), "h\u{e9}"),
        (
            answer("200 OK", "text/event-stream", EVENTS.trim_end()),
            "h\u{e9}",
        ),
        (answer("200 OK", "", EVENTS.trim_end()), "h\u{e9}"),
        (answer("200 OK", "text/event-stream", &split), "h\u{1f600}"),
    ];
    for (answer, text) in cases {
        let shown = String::from_utf8_lossy(&answer).into_owned();
        let (url, _served) = serve(answer, 3, Then::Close).await;
        let deltas = Mutex::new(String::new());
        let watch = |delta| {
            if let Delta::Text(text) = delta {
                deltas.lock().unwrap().push_str(&text);
            }
        };
        let model = builder(&url).build().unwrap();
        let reply = model.call(request(), &watch).await;
        let reply = reply.unwrap_or_else(|error| panic!("{error} after {shown}"));
        assert_eq!(text_of(&reply.blocks), text);
        assert_eq!(*deltas.lock().unwrap(), text);
    }
}

#[tokio::test]
async fn a_complete_reply_is_accepted_although_a_stream_was_requested() {
    let whole = r#"{"type":"message","content":[{"type":"text","text":"x"}],"stop_reason":"end_turn","usage":{}}"#;
    let marked = format!("\u{feff}{whole}");
    for (delivery, whole) in [
        (Delivery::Whole, whole),
        (Delivery::Stream, whole),
        (Delivery::Whole, marked.as_str()),
    ] {
        let (url, _served) =
            serve(answer("200 OK", "application/json", whole), 5, Then::Close).await;
        let reply = builder(&url)
            .delivery(delivery)
            .build()
            .unwrap()
            .call(request(), &|_| ())
            .await
            .unwrap();
        assert!(matches!(&reply.blocks[..], [Block::Text { .. }]));
    }
}

#[tokio::test]
async fn failures_have_a_kind_and_do_not_contain_the_key() {
    use ModelErrorKind as Kind;
    let half = &EVENTS[..EVENTS.len() / 2];
    let quoting = r#"{"error":{"type":"authentication_error","message":"invalid key sk-canary"}}"#;
    let promised =
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 9999\r\n\r\n";
    let cases = [
        (
            answer("200 OK", "text/event-stream", half),
            Then::Close,
            Kind::CutStream,
        ),
        (
            format!("{promised}{half}").into_bytes(),
            Then::Close,
            Kind::CutStream,
        ),
        (
            answer("200 OK", "text/event-stream", half),
            Then::Hang,
            Kind::CutStream,
        ),
        (
            answer("200 OK", "text/event-stream", "data: {oops\n\n"),
            Then::Close,
            Kind::Malformed,
        ),
        (
            answer("200 OK", "text/html", "<html>hello</html>"),
            Then::Close,
            Kind::Transport,
        ),
        (
            answer("200 OK", "application/json", " \n"),
            Then::Close,
            Kind::Transport,
        ),
        (
            answer("200 OK", "text/plain", "hello"),
            Then::Close,
            Kind::Malformed,
        ),
        (
            answer("200 OK", "text/plain", "error: the upstream is down"),
            Then::Close,
            Kind::Malformed,
        ),
        (answer("200 OK", "", half), Then::Close, Kind::CutStream),
        (
            answer(
                "200 OK",
                "text/event-stream",
                &"data: {\"type\":\"ping\"}\n\n".repeat(99),
            ),
            Then::Close,
            Kind::Malformed,
        ),
        (
            answer("401 Unauthorized", "application/json", quoting),
            Then::Close,
            Kind::Authentication,
        ),
        (
            answer(
                "307 Temporary Redirect\r\nlocation: http://127.0.0.1:1/",
                "text/plain",
                "",
            ),
            Then::Close,
            Kind::InvalidRequest,
        ),
        (vec![], Then::Hang, Kind::Transport),
        (vec![], Then::Close, Kind::Transport),
    ];
    for (answer, then, kind) in cases {
        let shown = String::from_utf8_lossy(&answer).into_owned();
        let (url, _served) = serve(answer, 100_000, then).await;
        let model = builder(&url).reply_cap_bytes(2000).build().unwrap();
        let error = model.call(request(), &|_| ()).await.unwrap_err();
        assert_eq!(error.kind, kind, "{error} after {shown}");
        assert!(!error.to_string().contains("canary"), "{error}");
    }
}

#[tokio::test]
async fn an_unreachable_server_is_a_transport_error() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let error = builder(&url)
        .build()
        .unwrap()
        .call(request(), &|_| ())
        .await
        .unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::Transport);
    assert!(error.message.contains("no connection"), "{error}");
}

const STREAM: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";

async fn fails<C: Codec>(url: String, cap_bytes: u64, expected: ModelErrorKind) {
    let builder = Client::<C>::builder().base_url(url).api_key("sk-canary");
    let model = builder
        .idle_timeout(Duration::from_secs(2))
        .reply_cap_bytes(cap_bytes)
        .build()
        .unwrap();
    let error = model.call(request(), &|_| ()).await.unwrap_err();
    assert_eq!(error.kind, expected, "{}: {error}", C::FORMAT);
    assert!(
        !error.to_string().contains("canary") && error.message.len() < 3_000,
        "{error}"
    );
}

/// What no server may do, whatever its format.
async fn withstands<C: Codec>() {
    use ModelErrorKind as Kind;
    let second = Duration::from_secs(1);
    // A byte a second is never idle: the cap ends it. One in five seconds is.
    fails::<C>(drip(STREAM, b":", second).await, 50, Kind::Malformed).await;
    fails::<C>(drip(STREAM, b":", 5 * second).await, 50, Kind::CutStream).await;
    fails::<C>(
        drip(STREAM, &[b'x'; 1 << 16], Duration::ZERO).await,
        1 << 20,
        Kind::Malformed,
    )
    .await;
    let whole = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n";
    fails::<C>(
        drip(whole, &[b'['; 1 << 16], Duration::ZERO).await,
        1 << 20,
        Kind::Malformed,
    )
    .await;
    // Of a failure the status counts, and its explanation for as long as it is worth.
    let refused = "HTTP/1.1 429 Too Many Requests\r\nconnection: close\r\n\r\n";
    fails::<C>(drip(refused, b"x", second).await, 1 << 20, Kind::Overloaded).await;
    fails::<C>(
        drip(refused, b"sk-canary", Duration::ZERO).await,
        1 << 20,
        Kind::Overloaded,
    )
    .await;
    let quoting = format!(
        "{{\"error\":{{\"message\":\"{}sk-canary\"}}}}",
        "x".repeat(1_995)
    );
    let (url, _served) = serve(
        answer("401 Unauthorized", "application/json", &quoting),
        100_000,
        Then::Close,
    )
    .await;
    fails::<C>(url, 1 << 20, Kind::Authentication).await;
    let redirect = "307 Temporary Redirect\r\nlocation: http://127.0.0.1:1/";
    let (url, _served) = serve(answer(redirect, "text/plain", ""), 100_000, Then::Close).await;
    fails::<C>(url, 1 << 20, Kind::InvalidRequest).await;
    let (url, _served) = serve(
        answer("200 OK", "text/html", "<html>hello</html>"),
        100_000,
        Then::Close,
    )
    .await;
    fails::<C>(url, 1 << 20, Kind::Transport).await;
    let fields: String = (0..100_000).map(|n| format!("\"k{n}\":1,")).collect();
    let event = format!("data: {{\"type\":\"response.completed\",{fields}\"choices\":[]}}\n\n");
    let (url, _served) = serve(
        answer("200 OK", "text/event-stream", &event),
        100_000,
        Then::Close,
    )
    .await;
    let model = Client::<C>::builder()
        .base_url(url)
        .api_key("sk-canary")
        .build()
        .unwrap();
    assert!(
        model.call(request(), &|_| ()).await.is_err(),
        "{}: endless fields are no reply",
        C::FORMAT
    );
}

#[tokio::test(start_paused = true)]
async fn hostile_servers_cause_only_errors_in_every_format() {
    withstands::<Messages>().await;
    withstands::<Completions>().await;
    withstands::<Responses>().await;
    withstands::<GenerateContent>().await;
}

/// Asks once, and gives back what was sent.
async fn sent<C: Codec>(key: Option<&str>) -> String {
    let (url, served) = serve(
        answer("400 Bad Request", "text/plain", ""),
        100_000,
        Then::Close,
    )
    .await;
    let builder = key
        .into_iter()
        .fold(Client::<C>::builder(), Builder::api_key);
    builder
        .base_url(url)
        .build()
        .unwrap()
        .call(request(), &|_| ())
        .await
        .unwrap_err();
    served.await.unwrap()
}

#[tokio::test]
async fn each_format_has_its_path_and_its_header_for_the_key() {
    let cases = [
        (
            sent::<Messages>(Some("k1")).await,
            "POST /v1/messages ",
            "x-api-key: k1",
        ),
        (
            sent::<Completions>(Some("k1")).await,
            "POST /v1/chat/completions ",
            "authorization: Bearer k1",
        ),
        (
            sent::<Responses>(Some("k1")).await,
            "POST /v1/responses ",
            "authorization: Bearer k1",
        ),
        (
            sent::<GenerateContent>(Some("k1")).await,
            "POST /v1beta/models/m:streamGenerateContent?alt=sse ",
            "x-goog-api-key: k1",
        ),
    ];
    for (sent, path, header) in cases {
        assert!(
            sent.starts_with(path) && sent.contains(header) && !sent.contains("chunked"),
            "{sent}"
        );
    }
    let keyless = [
        sent::<Messages>(None).await,
        sent::<Completions>(None).await,
        sent::<GenerateContent>(None).await,
    ];
    assert!(
        !keyless.concat().contains("-key:") && !keyless.concat().contains("authorization"),
        "{keyless:?}"
    );
}

#[tokio::test]
async fn tokens_are_counted_by_the_server_or_estimated() {
    use dormouse_proto::model::TokenCount;
    async fn count<C: Codec>(status: &str, body: &str) -> Result<TokenCount, ModelErrorKind> {
        let (url, _served) = serve(
            answer(status, "application/json", body),
            100_000,
            Then::Close,
        )
        .await;
        let model = Client::<C>::builder()
            .base_url(url)
            .api_key("k")
            .build()
            .unwrap();
        model
            .count_tokens(&request())
            .await
            .map_err(|error| error.kind)
    }
    let tokens = r#"{"input_tokens":7}"#;
    assert_eq!(
        count::<Messages>("200 OK", tokens).await,
        Ok(TokenCount::Counted(7))
    );
    assert_eq!(
        count::<Responses>("200 OK", tokens).await,
        Ok(TokenCount::Counted(7))
    );
    assert_eq!(
        count::<GenerateContent>("200 OK", r#"{"totalTokens":7}"#).await,
        Ok(TokenCount::Counted(7))
    );
    let estimated = Ok(TokenCount::Estimated(request().estimated_tokens()));
    assert_eq!(count::<Messages>("404 Not Found", "{}").await, estimated);
    assert_eq!(
        count::<Messages>("401 Unauthorized", "{}").await,
        Err(ModelErrorKind::Authentication)
    );
    assert_eq!(
        count::<Messages>("200 OK", "{}").await,
        Err(ModelErrorKind::Malformed)
    );
    let nobody = Client::<Completions>::builder()
        .base_url("http://127.0.0.1:1")
        .build()
        .unwrap();
    assert_eq!(
        nobody
            .count_tokens(&request())
            .await
            .map_err(|error| error.kind),
        estimated,
        "nobody is asked"
    );
}
