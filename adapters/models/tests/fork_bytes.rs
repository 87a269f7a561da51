//! FORK-2 in the bytes that leave the machine: what forked processes send begins with what their parent sent last.
//!
//! The server is a listener that keeps every body and answers from a list. A provider's cache sees these bytes.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::{Arc, Mutex};

use dormouse_actors::handle::Kernel;
use dormouse_models::Anthropic;
use dormouse_models::anthropic::Delivery;
use dormouse_proto::process::ExitStatus;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const PROGRAM: &str = r#"
[model]
name = "claude"
provider = "anthropic"
[prompt]
system = "You look at <things> and \"say\" so."
[parameters]
temperature = 0.5
[tools]
enabled = ["fork", "read_fd", "goto"]
[limits]
max_fork_children = 4
"#;

/// The end of a body: what stands behind the messages.
const TAIL: &str = "],\"max_tokens\":4096}";

/// Reads one request; its body.
async fn body(socket: &mut TcpStream) -> String {
    let mut read = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&read).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length =
                head.to_lowercase().lines().find_map(|line| Some(line.strip_prefix("content-length: ")?.to_owned()));
            if body.len() >= length.unwrap().parse().unwrap() {
                return body.to_owned();
            }
        }
        assert_ne!(socket.read_buf(&mut read).await.unwrap(), 0, "the request ended early");
    }
}

/// What the model says to a body: it forks once, and each child says that it is done.
fn reply(body: &str) -> Value {
    let body: Value = serde_json::from_str(body).unwrap();
    let messages = body["messages"].as_array().unwrap();
    let (content, stop) = match messages.len() {
        1 => {
            let input = json!({"prompts": ["a", "b", "c"]});
            let thinking = json!({"type": "thinking", "thinking": "split", "signature": "c2lnbmVk"});
            let uses = ["t1", "t2"].map(|id| match id {
                "t1" => json!({"type": "tool_use", "id": id, "name": "fork", "input": input}),
                _ => json!({"type": "tool_use", "id": id, "name": "read_fd", "input": {"fd": "fd:1"}}),
            });
            (json!([thinking, {"type": "text", "text": "I split."}, uses[0], uses[1]]), "tool_use")
        }
        _ => (json!([{"type": "text", "text": "done"}]), "end_turn"),
    };
    json!({"type": "message", "role": "assistant", "content": content, "stop_reason": stop, "usage": {"input_tokens": 1, "output_tokens": 1}})
}

/// Every body that was sent, in order, and where to send them.
async fn server() -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let sent = Arc::new(Mutex::new(Vec::new()));
    let kept = sent.clone();
    tokio::spawn(async move {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            let kept = kept.clone();
            tokio::spawn(async move {
                let body = body(&mut socket).await;
                let answer = reply(&body).to_string();
                kept.lock().unwrap().push(body);
                let head =
                    format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}", answer.len());
                socket.write_all(format!("{head}\r\nconnection: close\r\n\r\n{answer}").as_bytes()).await.unwrap();
            });
        }
    });
    (url, sent)
}

#[tokio::test]
async fn what_forked_children_send_begins_with_the_bytes_that_their_parent_sent() {
    let (url, sent) = server().await;
    let model = Anthropic::builder().base_url(url).api_key("none").delivery(Delivery::Whole).build().unwrap();
    let kernel = Kernel::builder().model("claude", model).build().await.unwrap();
    let program = kernel.parse(PROGRAM).unwrap().program;
    let process = kernel.start(program).input("Look at \u{e9}verything.\n".repeat(50)).await.unwrap();
    let exit = process.wait().await.unwrap();
    assert_eq!((exit.status, &*exit.message), (ExitStatus::Done, "done"));
    let sent = sent.lock().unwrap().clone();
    let [first, children @ .., last] = &sent[..] else { panic!("{} requests", sent.len()) };
    assert_eq!(children.len(), 3);
    let history = first.strip_suffix(TAIL).unwrap();
    assert!(last.starts_with(history), "HIST-1");
    let shared = |a: &str, b: &str| a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
    for child in children {
        assert!(child.starts_with(history), "FORK-2");
        // The reply that forked belongs to what is shared, its thinking with its signature too: only the answer differs.
        assert!(child[..shared(child, last)].contains("c2lnbmVk"), "{child}");
        assert!(shared(child, &children[0]) > shared(child, first), "siblings share more than their parent had sent");
    }
}
