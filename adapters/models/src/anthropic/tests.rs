//! Calls against a server that is a listener with one prepared answer.

use std::sync::Mutex;

use dormouse_proto::message::{Block, Message, text_of};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;

const EVENTS: &str = concat!(
    "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":3}}}\n\n",
    ": a comment\n\n",
    "event: ping\ndata:\n\n",
    "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n",
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"h\u{e9}\"}}\n\n",
    "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":2}}\n\n",
    "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
);

/// What the server does after its answer.
#[derive(Clone, Copy)]
enum Then {
    Close,
    Hang,
}

/// Serves one answer, in pieces of `piece` bytes, and gives back what it was asked.
async fn serve(answer: Vec<u8>, piece: usize, then: Then) -> (String, tokio::task::JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let served = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut asked = Vec::new();
        while !asked.ends_with(b"\"max_tokens\":4096}") {
            assert_ne!(socket.read_buf(&mut asked).await.unwrap(), 0, "the request ended early");
        }
        for piece in answer.chunks(piece) {
            socket.write_all(piece).await.unwrap();
            tokio::task::yield_now().await;
        }
        if matches!(then, Then::Hang) {
            std::future::pending::<()>().await;
        }
        String::from_utf8(asked).unwrap()
    });
    (url, served)
}

fn answer(status: &str, kind: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\ncontent-type: {kind}\r\nconnection: close\r\n\r\n{body}").into_bytes()
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
    }
}

fn builder(url: &str) -> Builder {
    Anthropic::builder().base_url(url).api_key("sk-canary").idle_timeout(Duration::from_millis(300))
}

#[tokio::test]
async fn a_stream_is_read_however_it_is_cut_into_packets() {
    for piece in [1, 7, 100_000] {
        let (url, served) =
            serve(answer("200 OK", "text/event-stream; charset=utf-8", EVENTS), piece, Then::Close).await;
        let deltas = Mutex::new(Vec::new());
        let model = builder(&url).build().unwrap();
        let reply = model.call(request(), &|delta| deltas.lock().unwrap().push(delta)).await.unwrap();
        assert_eq!((text_of(&reply.blocks), reply.usage.output_tokens), ("hé".to_owned(), 2));
        assert_eq!(*deltas.lock().unwrap(), [Delta::Text("hé".into())]);
        let asked = served.await.unwrap();
        for header in ["POST /v1/messages ", "x-api-key: sk-canary", "anthropic-version: 2023-06-01", "\"stream\":true"]
        {
            assert!(asked.contains(header), "{header} is not in {asked}");
        }
    }
}

#[tokio::test]
async fn a_complete_reply_does_not_wait_for_the_connection_to_end() {
    let (url, _served) = serve(answer("200 OK", "text/event-stream", EVENTS), 100_000, Then::Hang).await;
    assert!(builder(&url).build().unwrap().call(request(), &|_| ()).await.is_ok());
}

#[tokio::test]
async fn a_reply_that_comes_whole_is_taken_whatever_was_asked_for() {
    let whole = r#"{"type":"message","content":[{"type":"text","text":"x"}],"stop_reason":"end_turn","usage":{}}"#;
    for delivery in [Delivery::Whole, Delivery::Stream] {
        let (url, _served) = serve(answer("200 OK", "application/json", whole), 5, Then::Close).await;
        let reply = builder(&url).delivery(delivery).build().unwrap().call(request(), &|_| ()).await.unwrap();
        assert!(matches!(&reply.blocks[..], [Block::Text { .. }]));
    }
}

#[tokio::test]
async fn failures_come_by_kind_and_without_the_key() {
    use ModelErrorKind as Kind;
    let half = &EVENTS[..EVENTS.len() / 2];
    let quoting = r#"{"error":{"type":"authentication_error","message":"invalid key sk-canary"}}"#;
    let promised = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 9999\r\n\r\n";
    let cases = [
        (answer("200 OK", "text/event-stream", half), Then::Close, Kind::CutStream),
        (format!("{promised}{half}").into_bytes(), Then::Close, Kind::CutStream),
        (answer("200 OK", "text/event-stream", half), Then::Hang, Kind::CutStream),
        (answer("200 OK", "text/event-stream", "data: {oops\n\n"), Then::Close, Kind::Malformed),
        (answer("200 OK", "text/html", "<html>hello</html>"), Then::Close, Kind::Malformed),
        (
            answer("200 OK", "text/event-stream", &"data: {\"type\":\"ping\"}\n\n".repeat(99)),
            Then::Close,
            Kind::Malformed,
        ),
        (answer("401 Unauthorized", "application/json", quoting), Then::Close, Kind::Authentication),
        (
            answer("307 Temporary Redirect\r\nlocation: http://127.0.0.1:1/", "text/plain", ""),
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
        assert!(!error.to_string().contains("canary") && !error.to_string().contains("127.0.0.1"), "{error}");
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_is_a_transport_error() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let error = builder(&url).build().unwrap().call(request(), &|_| ()).await.unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::Transport);
    assert!(error.message.contains("no connection"), "{error}");
}
