//! A kernel with a few tools, and a client that speaks the protocol line by line.

use std::collections::VecDeque;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dormouse_actors::handle::{FnTool, Kernel};
use dormouse_actors::ports::{Host, NoHost, OutputSink};
use dormouse_mcp_server::{
    DescriptorTools, FileExport, McpServer, ProcessLifetime, ProxiedTools, ProxySettings,
    ServeError, proxy_program,
};
use dormouse_proto::tool::Progress;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinHandle;

/// The timeout of every wait. Debug builds on busy machines are slow.
const TIMEOUT: Duration = Duration::from_secs(60);

#[track_caller]
pub(super) fn within<F: Future>(future: F) -> impl Future<Output = F::Output> {
    let caller = Location::caller();
    async move {
        let end = tokio::time::timeout(TIMEOUT, future).await;
        end.unwrap_or_else(|_| panic!("the wait at {caller} took longer than {TIMEOUT:?}"))
    }
}

/// A text of at least `bytes` bytes with unique lines, which needs escaping in XML.
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
    /// The text to return.
    text: String,
}

#[derive(Deserialize, JsonSchema)]
struct Large {
    /// The number of bytes.
    bytes: u32,
}

#[derive(Deserialize, JsonSchema)]
struct Linger {}

#[derive(Deserialize, JsonSchema)]
struct Steps {}

/// Blocks calls of the tool `linger`: each call waits for a permit of `open`. Counts the calls that
/// began, that ended, and that run.
#[derive(Clone)]
pub(super) struct CallGate {
    pub(super) open: Arc<Semaphore>,
    pub(super) entered: Arc<Semaphore>,
    pub(super) left: Arc<Semaphore>,
    pub(super) running: Arc<AtomicUsize>,
}

/// Counts a call as ended when it is dropped.
struct EndGuard(CallGate);

impl Drop for EndGuard {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
        self.0.left.add_permits(1);
    }
}

impl CallGate {
    fn new() -> Self {
        let no_permits = || Arc::new(Semaphore::new(0));
        Self {
            open: no_permits(),
            entered: no_permits(),
            left: no_permits(),
            running: Arc::default(),
        }
    }

    async fn pass(self) -> Result<&'static str, &'static str> {
        self.running.fetch_add(1, Ordering::SeqCst);
        let end_guard = EndGuard(self.clone());
        self.entered.add_permits(1);
        self.open.acquire().await.map_err(|_| "closed")?.forget();
        drop(end_guard);
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

/// A server of `echo`, `large`, `linger`, `overrun` and `steps`.
pub(super) async fn server() -> (McpServer, Kernel, CallGate) {
    server_on(NoHost, FileExport::Disabled).await
}

pub(super) async fn server_on(host: impl Host, files: FileExport) -> (McpServer, Kernel, CallGate) {
    let held = CallGate::new();
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
                    // Only the latest progress is forwarded, so each value stays for a while.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                Ok::<_, String>(())
            },
        ))
        .tool(FnTool::streaming(
            "overrun",
            "Fails after the server that has it has answered.",
            |Steps {}: Steps, out: OutputSink| async move {
                out.report_server_result(|| json!({"content": [{"type": "text", "text": "done"}]}));
                Err::<(), _>("its output is too large")
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
        descriptor_tools: DescriptorTools::Full,
    };
    let tools = ["echo", "large", "linger", "overrun", "steps"]
        .map(str::to_owned)
        .into();
    let proxied = ProxiedTools {
        tools,
        ..ProxiedTools::default()
    };
    let program = kernel
        .parse(proxy_program(settings, &proxied))
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
    kept: VecDeque<Value>,
    _stop: oneshot::Sender<()>,
    pub(super) served: JoinHandle<Result<(), ServeError>>,
}

impl Client {
    /// A client that has sent nothing yet.
    pub(super) fn new(server: &McpServer) -> Self {
        let (client_end, server_end) = tokio::io::duplex(1 << 16);
        let (server_input, server_output) = tokio::io::split(server_end);
        let (stop, stopped) = oneshot::channel();
        let server = server.clone();
        let served = tokio::spawn(async move {
            let until = async { drop(stopped.await) };
            server.serve_pipe(server_input, server_output, until).await
        });
        let (lines, input) = tokio::io::split(client_end);
        let lines = BufReader::new(lines);
        Self {
            lines,
            input: Some(input),
            last: 0,
            kept: VecDeque::new(),
            _stop: stop,
            served,
        }
    }

    /// A client after the handshake.
    pub(super) async fn initialized(server: &McpServer) -> Self {
        let mut client = Self::new(server);
        client
            .request("initialize", initialize_params("2025-11-25"))
            .await;
        client.notify("notifications/initialized", json!({})).await;
        client
    }

    pub(super) async fn write(&mut self, line: &str) {
        let input = self.input.as_mut().unwrap();
        within(input.write_all(format!("{line}\n").as_bytes()))
            .await
            .unwrap();
    }

    /// Sends a notification.
    pub(super) async fn notify(&mut self, method: &str, params: Value) {
        self.write(&json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string())
            .await;
    }

    /// Sends a request, and returns its id.
    pub(super) async fn send(&mut self, method: &str, params: Value) -> u64 {
        self.last += 1;
        let id = self.last;
        self.write(
            &json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string(),
        )
        .await;
        id
    }

    /// Reads the next message; `None` at the end of the output.
    pub(super) async fn read_message(&mut self) -> Option<Value> {
        let mut line = String::new();
        let read = within(self.lines.read_line(&mut line)).await.unwrap();
        (read > 0).then(|| serde_json::from_str(&line).unwrap())
    }

    /// Waits for the answer to request `id`. Keeps the messages that arrive before it.
    pub(super) async fn answer(&mut self, id: u64) -> Value {
        if let Some(at) = self.kept.iter().position(|message| message["id"] == id) {
            return self.kept.remove(at).unwrap();
        }
        loop {
            let message = self.read_message().await.unwrap();
            if message["id"] == id {
                return message;
            }
            self.kept.push_back(message);
        }
    }

    /// Sends a request and waits for its answer.
    pub(super) async fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params).await;
        self.answer(id).await
    }

    /// Calls a tool. Returns the text of the answer, and whether it is an error.
    pub(super) async fn call(&mut self, tool: &str, args: Value) -> (String, bool) {
        call_result(
            &self
                .request("tools/call", json!({"name": tool, "arguments": args}))
                .await,
        )
    }

    /// Closes the input of the server.
    pub(super) async fn close_input(&mut self) {
        within(self.input.take().unwrap().shutdown()).await.unwrap();
    }
}

/// The parameters of an `initialize` request.
pub(super) fn initialize_params(version: &str) -> Value {
    json!({"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}})
}

/// The text of an answer to a call, and whether it is an error.
pub(super) fn call_result(answer: &Value) -> (String, bool) {
    let result = &answer["result"];
    let text = result["content"][0]["text"]
        .as_str()
        .unwrap_or_else(|| panic!("no text in {answer}"));
    (text.to_owned(), result["isError"] == true)
}

/// The exact text of an `fd_content` element, and the number of pages.
pub(super) fn parse_page(xml: &str) -> (String, u64) {
    let parsed =
        roxmltree::Document::parse(xml).unwrap_or_else(|error| panic!("{error}: {xml:.300}"));
    let root = parsed.root_element();
    assert_eq!(root.tag_name().name(), "fd_content", "{xml:.300}");
    let text = root.children().filter_map(|node| node.text()).collect();
    (text, root.attribute("pages").unwrap().parse().unwrap())
}
