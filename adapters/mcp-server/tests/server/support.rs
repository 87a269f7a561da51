//! A kernel with a few tools, and a client that speaks the protocol line by line.

use std::collections::VecDeque;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dormouse_actors::handle::{FnTool, Kernel};
use dormouse_actors::ports::{Host, NoHost, OutputSink};
use dormouse_mcp_server::{
    FileExport, McpServer, ProcessLifetime, ProxySettings, ServeError, Upstream, proxy_program,
};
use dormouse_proto::tool::Progress;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinHandle;

/// How long anything may take that must happen. Debug builds on busy machines are slow.
const PATIENCE: Duration = Duration::from_secs(60);

#[track_caller]
pub(super) fn within<F: Future>(future: F) -> impl Future<Output = F::Output> {
    let caller = Location::caller();
    async move {
        let end = tokio::time::timeout(PATIENCE, future).await;
        end.unwrap_or_else(|_| panic!("what {caller} waits for did not happen within {PATIENCE:?}"))
    }
}

/// A text that differs everywhere and needs escaping, of so many bytes.
pub(super) fn large(bytes: usize) -> String {
    let mut text = String::with_capacity(bytes + 64);
    let mut number = 0_u64;
    while text.len() < bytes {
        text.push_str(&format!(
            "line {number}: <tag a=\"{}\"> & ü € ]]>\n",
            number.wrapping_mul(0x9E37_79B9) % 1_000_003
        ));
        number += 1;
    }
    text
}

#[derive(Deserialize, JsonSchema)]
struct Echo {
    /// What is said back.
    text: String,
}

#[derive(Deserialize, JsonSchema)]
struct Large {
    /// How many bytes.
    bytes: u32,
}

#[derive(Deserialize, JsonSchema)]
struct Linger {}

#[derive(Deserialize, JsonSchema)]
struct Steps {}

/// Calls of the tool `linger`: each is held until a permit comes, and counted when it is dropped.
#[derive(Clone)]
pub(super) struct Held {
    pub(super) open: Arc<Semaphore>,
    pub(super) entered: Arc<Semaphore>,
    pub(super) left: Arc<Semaphore>,
    pub(super) running: Arc<AtomicUsize>,
}

struct Leaving(Held);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
        self.0.left.add_permits(1);
    }
}

impl Held {
    fn new() -> Self {
        let none = || Arc::new(Semaphore::new(0));
        Self {
            open: none(),
            entered: none(),
            left: none(),
            running: Arc::default(),
        }
    }

    async fn pass(self) -> Result<&'static str, &'static str> {
        self.running.fetch_add(1, Ordering::SeqCst);
        let leaving = Leaving(self.clone());
        self.entered.add_permits(1);
        self.open.acquire().await.map_err(|_| "closed")?.forget();
        drop(leaving);
        Ok("passed")
    }

    pub(super) async fn entered(&self, calls: u32) {
        within(self.entered.acquire_many(calls))
            .await
            .unwrap()
            .forget();
    }

    pub(super) async fn left(&self, calls: u32) {
        within(self.left.acquire_many(calls))
            .await
            .unwrap()
            .forget();
    }
}

/// A server of `echo`, `large`, `linger` and `steps`.
pub(super) async fn server() -> (McpServer, Kernel, Held) {
    server_on(NoHost, FileExport::Disabled).await
}

pub(super) async fn server_on(host: impl Host, files: FileExport) -> (McpServer, Kernel, Held) {
    let held = Held::new();
    let gate = held.clone();
    let kernel = Kernel::builder()
        .host(host)
        .tool(FnTool::new(
            "echo",
            "Says it back.",
            |Echo { text }: Echo| async move {
                if text == "fail" {
                    Err("it failed")
                } else {
                    Ok(text)
                }
            },
        ))
        .tool(FnTool::new(
            "large",
            "Returns much.",
            |Large { bytes }: Large| async move { Ok::<_, String>(large(bytes as usize)) },
        ))
        .tool(FnTool::streaming(
            "steps",
            "Says how far it is.",
            |Steps {}: Steps, out: OutputSink| async move {
                for done in [1.0, 1.0, 2.0] {
                    out.report_progress(Progress {
                        done,
                        total: Some(2.0),
                        message: "".into(),
                    });
                    // The latest is what counts, and each shall be that for a while.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                Ok::<_, String>(())
            },
        ))
        .tool(
            FnTool::new("linger", "Lingers.", move |Linger {}: Linger| {
                gate.clone().pass()
            })
            .idempotent(),
        )
        .build()
        .await
        .unwrap();
    let settings = ProxySettings {
        threshold_chars: 8000,
        page_chars: 50_000,
        files,
    };
    let tools = ["echo", "large", "linger", "steps"]
        .map(str::to_owned)
        .into();
    let upstream = Upstream {
        tools,
        ..Upstream::default()
    };
    let program = kernel
        .parse(proxy_program(settings, &upstream))
        .unwrap()
        .program;
    (
        McpServer::new(kernel.clone(), program, ProcessLifetime::PerSession),
        kernel,
        held,
    )
}

/// The client at the other end of a pipe.
pub(super) struct Client {
    lines: BufReader<ReadHalf<DuplexStream>>,
    input: Option<WriteHalf<DuplexStream>>,
    last: u64,
    early: VecDeque<Value>,
    _stop: oneshot::Sender<()>,
    pub(super) served: JoinHandle<Result<(), ServeError>>,
}

impl Client {
    /// One that has said nothing yet.
    pub(super) fn new(server: &McpServer) -> Self {
        let (here, there) = tokio::io::duplex(1 << 16);
        let (there_in, there_out) = tokio::io::split(there);
        let (stop, stopped) = oneshot::channel();
        let server = server.clone();
        let served = tokio::spawn(async move {
            let until = async { drop(stopped.await) };
            server.serve_pipe(there_in, there_out, until).await
        });
        let (lines, input) = tokio::io::split(here);
        let lines = BufReader::new(lines);
        Self {
            lines,
            input: Some(input),
            last: 0,
            early: VecDeque::new(),
            _stop: stop,
            served,
        }
    }

    /// One that has begun.
    pub(super) async fn begun(server: &McpServer) -> Self {
        let mut client = Self::new(server);
        client.ask("initialize", hello("2025-11-25")).await;
        client.tell("notifications/initialized", json!({})).await;
        client
    }

    pub(super) async fn write(&mut self, line: &str) {
        let input = self.input.as_mut().unwrap();
        within(input.write_all(format!("{line}\n").as_bytes()))
            .await
            .unwrap();
    }

    pub(super) async fn tell(&mut self, method: &str, params: Value) {
        self.write(&json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string())
            .await;
    }

    /// Sends a request, and says by which number it goes.
    pub(super) async fn send(&mut self, method: &str, params: Value) -> u64 {
        self.last += 1;
        let id = self.last;
        self.write(
            &json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string(),
        )
        .await;
        id
    }

    pub(super) async fn line(&mut self) -> Option<Value> {
        let mut line = String::new();
        let read = within(self.lines.read_line(&mut line)).await.unwrap();
        (read > 0).then(|| serde_json::from_str(&line).unwrap())
    }

    /// What came for that number, whatever comes before it.
    pub(super) async fn answer(&mut self, id: u64) -> Value {
        if let Some(at) = self.early.iter().position(|message| message["id"] == id) {
            return self.early.remove(at).unwrap();
        }
        loop {
            let message = self.line().await.unwrap();
            if message["id"] == id {
                return message;
            }
            self.early.push_back(message);
        }
    }

    pub(super) async fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params).await;
        self.answer(id).await
    }

    /// The text of a call's answer, and whether it is an error.
    pub(super) async fn call(&mut self, tool: &str, args: Value) -> (String, bool) {
        said(
            &self
                .ask("tools/call", json!({"name": tool, "arguments": args}))
                .await,
        )
    }

    /// The client has no more to say.
    pub(super) async fn hang_up(&mut self) {
        within(self.input.take().unwrap().shutdown()).await.unwrap();
    }
}

pub(super) fn hello(version: &str) -> Value {
    json!({"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}})
}

pub(super) fn said(answer: &Value) -> (String, bool) {
    let result = &answer["result"];
    let text = result["content"][0]["text"]
        .as_str()
        .unwrap_or_else(|| panic!("no text in {answer}"));
    (text.to_owned(), result["isError"] == true)
}

/// The text of an `fd_content`, exactly, and how many pages there are.
pub(super) fn page_of(xml: &str) -> (String, u64) {
    let parsed =
        roxmltree::Document::parse(xml).unwrap_or_else(|error| panic!("{error}: {xml:.300}"));
    let root = parsed.root_element();
    assert_eq!(root.tag_name().name(), "fd_content", "{xml:.300}");
    let text = root.children().filter_map(|node| node.text()).collect();
    (text, root.attribute("pages").unwrap().parse().unwrap())
}
