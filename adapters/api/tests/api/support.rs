//! A kernel on a store on disk, and its API on a port of this machine.

use std::path::Path;
use std::time::Duration;

use dormouse::models::Scripted;
use dormouse::program::Program;
use dormouse::store::LogStore;
use dormouse::{FnTool, Kernel, Process};
use dormouse_api::{ControlApi, Hosts, Scope, TcpSettings, Token, Tokens};
use reqwest::{Client, Method, RequestBuilder, StatusCode};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use tempfile::TempDir;
use tokio::net::TcpSocket;
use tokio::task::JoinHandle;

pub(crate) const LOOK: &str = "look-look-look-look";
pub(crate) const SPEAK: &str = "speak-speak-speak-sp";
pub(crate) const CONTROL: &str = "control-control-cont";

/// Turns for every test: `ask` holds a call, `question` asks one, `big` opens a descriptor, `many N`
/// writes many facts, `hang` never ends; anything else is repeated.
const SCRIPT: &str = r#"
[[turn]]
when.prompt = "^ask$"
when.round = 0
calls = [{ tool = "deploy", args = { host = "live" } }]
[[turn]]
when.prompt = "^question$"
when.round = 0
calls = [{ tool = "ask_user", args = { question = "Which?", choices = ["left", "right"] } }]
[[turn]]
when.prompt = "^big$"
when.round = 0
calls = [{ tool = "big", args = {} }]
[[turn]]
when.prompt = "^hang$"
when.round = 0
calls = [{ tool = "hang", args = {} }]
[[turn]]
when.prompt = "^many$"
when.holds = "round < 20"
calls = [{ tool = "echo", args = { text = "again" } }]
[[turn]]
when.prompt = "^fork$"
when.round = 0
calls = [{ tool = "fork", args = { prompts = ["one", "two"] } }]
[[turn]]
text = "You said: {{ prompt }}"
"#;

const PROGRAM: &str = r#"
[model]
name = "scripted"
provider = "scripted"
[tools]
enabled = ["deploy", "ask_user", "big", "hang", "echo", "read_fd", "fork"]
ask = ["deploy"]
[prompt]
system = "You are a test."
"#;

#[derive(Deserialize, JsonSchema)]
struct Deploy {
    host: String,
}

#[derive(Deserialize, JsonSchema)]
struct Echo {
    text: String,
}

#[derive(Deserialize, JsonSchema)]
struct Nothing {}

/// A kernel, its API, and a client.
pub(crate) struct World {
    pub(crate) kernel: Kernel,
    pub(crate) address: String,
    pub(crate) client: Client,
    pub(crate) folder: TempDir,
    _server: JoinHandle<()>,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::in_folder(tempfile::tempdir().unwrap()).await
    }

    /// Opens the store in a folder, and runs nothing that it holds.
    pub(crate) async fn in_folder(folder: TempDir) -> Self {
        let store = LogStore::open(store_path(&folder)).unwrap();
        let kernel = builder(Kernel::open(store)).build().await.unwrap();
        Self::of(kernel, folder).await
    }

    /// Opens the store of a folder for reading only.
    pub(crate) async fn at_rest(folder: TempDir) -> Self {
        let store = LogStore::read_only(store_path(&folder)).unwrap();
        let kernel = Kernel::open(store).build().await.unwrap();
        Self::of(kernel, folder).await
    }

    async fn of(kernel: Kernel, folder: TempDir) -> Self {
        let (address, server) = serve(&kernel, settings()).await;
        Self {
            kernel,
            address,
            client: client(),
            folder,
            _server: server,
        }
    }

    /// Shuts the kernel down, and keeps the store.
    pub(crate) async fn close(self) -> TempDir {
        self.kernel.shutdown().await.unwrap();
        self.folder
    }

    pub(crate) fn program(&self) -> Program {
        self.kernel.parse(PROGRAM).unwrap().program
    }

    /// A session that did one turn with this input.
    pub(crate) async fn session(&self, input: &str) -> Process {
        let process = self
            .kernel
            .start(self.program())
            .without_input()
            .session()
            .await
            .unwrap();
        within(process.turn(input)).await.unwrap();
        process
    }

    /// A task that was started with this input, and runs on.
    pub(crate) async fn task(&self, input: &str) -> Process {
        self.kernel
            .start(self.program())
            .input(input)
            .await
            .unwrap()
    }

    pub(crate) fn request(&self, method: Method, path: &str, token: &str) -> RequestBuilder {
        let url = format!("http://{}{path}", self.address);
        self.client.request(method, url).bearer_auth(token)
    }

    /// The status and the body of an answer.
    pub(crate) async fn send(&self, request: RequestBuilder) -> (StatusCode, Value) {
        let response = within(request.send()).await.unwrap();
        let status = response.status();
        let text = within(response.text()).await.unwrap();
        let body = serde_json::from_str(&text);
        (
            status,
            body.unwrap_or_else(|_| panic!("{status}: not JSON: {text}")),
        )
    }

    /// The body of an answer to a GET, which has to be a success.
    pub(crate) async fn get(&self, path: &str) -> Value {
        let (status, body) = self.send(self.request(Method::GET, path, LOOK)).await;
        assert_eq!(status, StatusCode::OK, "{path}: {body}");
        body
    }

    /// The status, the kind and the message of an error.
    pub(crate) async fn get_error(&self, path: &str) -> (u16, String, String) {
        let answer = self.send(self.request(Method::GET, path, LOOK)).await;
        error_of(answer)
    }

    /// The body of an answer to a POST, which has to be a success.
    pub(crate) async fn post(&self, path: &str, body: Value) -> Value {
        let request = self.request(Method::POST, path, CONTROL).json(&body);
        let (status, answer) = self.send(request).await;
        assert_eq!(status, StatusCode::OK, "{path} {body}: {answer}");
        answer
    }

    pub(crate) async fn post_error(&self, path: &str, body: Value) -> (u16, String, String) {
        let request = self.request(Method::POST, path, CONTROL).json(&body);
        error_of(self.send(request).await)
    }

    /// Waits until `condition` holds for the body of a GET.
    pub(crate) async fn wait_for(&self, path: &str, condition: impl Fn(&Value) -> bool) -> Value {
        within(async {
            loop {
                let body = self.get(path).await;
                if condition(&body) {
                    return body;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await
    }
}

pub(crate) fn error_of((status, body): (StatusCode, Value)) -> (u16, String, String) {
    let text = |key: &str| {
        let text = body["error"][key].as_str();
        text.unwrap_or_else(|| panic!("{status}: no error: {body}"))
            .to_owned()
    };
    (status.as_u16(), text("kind"), text("message"))
}

/// The folder of the store in the folder of a test.
pub(crate) fn store_path(folder: &TempDir) -> std::path::PathBuf {
    let path: &Path = folder.path();
    path.join("store")
}

pub(crate) fn builder(builder: dormouse::KernelBuilder) -> dormouse::KernelBuilder {
    let big: String = (1..=5000).map(|n| format!("line {n} of many\n")).collect();
    builder
        .model("scripted", Scripted::parse(SCRIPT, "scripted").unwrap())
        .tool(FnTool::new(
            "deploy",
            "Deploys.",
            |Deploy { host }| async move { Ok::<_, String>(format!("deployed to {host}")) },
        ))
        .tool(FnTool::new(
            "echo",
            "Repeats.",
            |Echo { text }| async move { Ok::<_, String>(text) },
        ))
        .tool(FnTool::new("big", "A large output.", move |Nothing {}| {
            let big = big.clone();
            async move { Ok::<_, String>(big) }
        }))
        .tool(FnTool::new(
            "hang",
            "Never ends.",
            |Nothing {}| async move {
                std::future::pending::<()>().await;
                Ok::<_, String>(String::new())
            },
        ))
}

/// A token for each scope.
pub(crate) fn settings() -> TcpSettings {
    TcpSettings {
        hosts: Hosts::Loopback,
        origins: vec!["https://allowed.example".to_owned()],
        tokens: Tokens::none()
            .with(Token::new(LOOK), Scope::Look)
            .with(Token::new(SPEAK), Scope::Speak)
            .with(Token::new(CONTROL), Scope::Control),
    }
}

pub(crate) async fn serve(kernel: &Kernel, settings: TcpSettings) -> (String, JoinHandle<()>) {
    // The buffers of the system hold little, so that a slow reader is one.
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_send_buffer_size(16 << 10).unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1024).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let api = ControlApi::new(kernel.clone());
    let server = tokio::spawn(async move {
        api.serve_tcp(listener, settings, std::future::pending())
            .await
            .unwrap();
    });
    (address, server)
}

pub(crate) fn client() -> Client {
    // The second call in a program is refused, which is no matter: the first one holds.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::builder().no_proxy().build().unwrap()
}

/// What comes of a future that has to end soon.
pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), future)
        .await
        .expect("it ends in time")
}
