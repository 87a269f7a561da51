//! A listener that keeps every body and answers by a script, in whatever format.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use crate::formats::{Format, Part};

pub(crate) type Captured = Vec<String>;

pub(crate) struct Server {
    pub(crate) url: String,
    inner: Arc<Inner>,
}

struct Inner {
    format: Format,
    sent: Mutex<Captured>,
    hung: Notify,
    hangs: Mutex<bool>,
    /// Whether the next conversation that has [`FULL`] and a reply is too long.
    is_full: Mutex<bool>,
}

/// What makes a conversation too long, once.
pub(crate) const FULL: &str = "more than fits";

impl Server {
    pub(crate) async fn start(format: Format) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let inner = Arc::new(Inner {
            format,
            sent: Mutex::default(),
            hung: Notify::new(),
            hangs: Mutex::new(true),
            is_full: Mutex::new(true),
        });
        let served = inner.clone();
        tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                tokio::spawn(serve(served.clone(), socket));
            }
        });
        Self { url, inner }
    }

    /// Every body that came, in order.
    pub(crate) fn captured(&self) -> Captured {
        self.inner.sent.lock().unwrap().clone()
    }

    /// The body of a call that is not answered.
    pub(crate) async fn hung(&self) -> String {
        self.inner.hung.notified().await;
        self.captured().pop().unwrap()
    }

    /// Hangs no more.
    pub(crate) fn answer_all(&self) {
        *self.inner.hangs.lock().unwrap() = false;
    }
}

async fn serve(inner: Arc<Inner>, mut socket: TcpStream) {
    let body = body(&mut socket).await;
    let parsed: Value = serde_json::from_str(&body).unwrap();
    let replies = inner.format.replies(&parsed);
    inner.sent.lock().unwrap().push(body.clone());
    if last_words(&inner.format, &parsed).contains("hang") && *inner.hangs.lock().unwrap() {
        inner.hung.notify_one();
        std::future::pending::<()>().await;
    }
    let is_full =
        replies > 0 && body.contains(FULL) && std::mem::take(&mut *inner.is_full.lock().unwrap());
    let (status, answer) = match is_full {
        true => ("400 Bad Request", (inner.format.too_long)()),
        false => (
            "200 OK",
            (inner.format.reply)(replies, &script(replies, &body)),
        ),
    };
    let answer = answer.to_string();
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}",
        answer.len()
    );
    // Who was shut down reads no answer.
    let _ = socket
        .write_all(format!("{head}\r\nconnection: close\r\n\r\n{answer}").as_bytes())
        .await;
}

fn last_words(format: &Format, body: &Value) -> String {
    body[format.messages]
        .as_array()
        .unwrap()
        .last()
        .unwrap()
        .to_string()
}

pub(crate) const PROMPTS: [&str; 3] = ["prompt-a", "prompt-b", "prompt-c"];

/// The prompt of the child that sent this: it reads it, beside the call that names all of them.
pub(crate) fn prompt_of(body: &str) -> Option<&'static str> {
    PROMPTS
        .into_iter()
        .find(|prompt| body.matches(prompt).count() > 1)
}

/// What the model says: it reads, forks, and is done; each child reads, and is done.
fn script(replies: usize, body: &str) -> Vec<Part> {
    let page = |page: u32| Part::Use("read_fd", json!({"fd": "fd:1", "page": page}));
    match replies {
        0 => vec![Part::Say("I look."), page(2), page(3)],
        1 if !body.contains(FULL) => {
            vec![
                Part::Say("I split."),
                Part::Use("fork", json!({"prompts": PROMPTS})),
                page(4),
            ]
        }
        2 if prompt_of(body).is_some() => vec![page(5)],
        _ => vec![Part::Say("done")],
    }
}

/// Reads one request; its body.
async fn body(socket: &mut TcpStream) -> String {
    let mut read = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&read).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .to_lowercase()
                .lines()
                .find_map(|line| Some(line.strip_prefix("content-length: ")?.to_owned()));
            if body.len() >= length.expect("the length is known").parse().unwrap() {
                return body.to_owned();
            }
        }
        assert_ne!(
            socket.read_buf(&mut read).await.unwrap(),
            0,
            "the request ended early"
        );
    }
}
