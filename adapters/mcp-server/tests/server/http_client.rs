//! A client over HTTP that sends raw messages of the protocol, and a server for it.

use dormouse_mcp_server::{HttpSettings, McpServer, ServeError};
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::support::{call_result, initialize_params, within};

/// An HTTP client of a server, with its own connections.
pub(super) struct Client {
    pub(super) url: String,
    pub(super) http: reqwest::Client,
}

/// A server that runs in a task, and a client of it.
pub(super) struct RunningServer {
    client: Client,
    stop: oneshot::Sender<()>,
    serving: JoinHandle<Result<(), ServeError>>,
}

impl std::ops::Deref for RunningServer {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl RunningServer {
    pub(super) async fn new(server: &McpServer, settings: HttpSettings) -> Self {
        Self::with_token(server, settings, "").await
    }

    pub(super) async fn with_token(
        server: &McpServer,
        settings: HttpSettings,
        token: &str,
    ) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = Client::new(
            format!("http://{}/mcp", listener.local_addr().unwrap()),
            token,
        );
        let (stop, stopped) = oneshot::channel();
        let server = server.clone();
        let serving = tokio::spawn(async move {
            server
                .serve_http(listener, settings, async { drop(stopped.await) })
                .await
        });
        Self {
            client,
            stop,
            serving,
        }
    }

    pub(super) async fn end(self) {
        drop(self.stop);
        within(self.serving).await.unwrap().unwrap();
    }
}

impl Client {
    /// The host and port of the server.
    pub(super) fn address(&self) -> String {
        let address = self.url.strip_prefix("http://").unwrap();
        address.strip_suffix("/mcp").unwrap().to_owned()
    }

    /// Calls the tool `linger` as request 9, without waiting for its end.
    pub(super) fn begin_linger(&self, session: &str) -> JoinHandle<reqwest::Result<Response>> {
        let arguments = json!({"name": "linger", "arguments": {}});
        tokio::spawn(self.post(Some(session), 9, "tools/call", arguments).send())
    }

    pub(super) fn new(url: String, token: &str) -> Self {
        let authorization =
            (!token.is_empty()).then(|| ("authorization", format!("Bearer {token}")));
        let headers = authorization
            .into_iter()
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        let http = reqwest::Client::builder()
            .no_proxy()
            .default_headers(headers.collect());
        Self {
            url,
            http: http.build().unwrap(),
        }
    }

    pub(super) fn request(&self, method: Method, session: Option<&str>) -> RequestBuilder {
        let request = self
            .http
            .request(method, &self.url)
            .header("accept", "application/json, text/event-stream");
        session.into_iter().fold(request, |request, session| {
            request.header("mcp-session-id", session)
        })
    }

    pub(super) fn post(
        &self,
        session: Option<&str>,
        id: u64,
        method: &str,
        params: Value,
    ) -> RequestBuilder {
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.request(Method::POST, session).json(&message)
    }

    pub(super) async fn begin(&self) -> Response {
        within(
            self.post(None, 1, "initialize", initialize_params("2025-11-25"))
                .send(),
        )
        .await
        .unwrap()
    }

    /// Starts a session, and returns its id.
    pub(super) async fn session(&self) -> String {
        let begun = self.begin().await;
        assert_eq!(begun.status(), StatusCode::OK);
        let session = begun.headers()["mcp-session-id"]
            .to_str()
            .unwrap()
            .to_owned();
        assert_eq!(
            message(begun, 1).await["result"]["serverInfo"]["name"],
            "dormouse"
        );
        let notification = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        let response = within(
            self.request(Method::POST, Some(&session))
                .json(&notification)
                .send(),
        )
        .await
        .unwrap();
        assert_eq!(response.status(), StatusCode::ACCEPTED);
        session
    }

    pub(super) async fn call(&self, session: &str, tool: &str, args: Value) -> (String, bool) {
        let params = json!({"name": tool, "arguments": args});
        let answer = within(self.post(Some(session), 7, "tools/call", params).send())
            .await
            .unwrap();
        assert_eq!(answer.status(), StatusCode::OK);
        call_result(&message(answer, 7).await)
    }

    pub(super) async fn status(&self, request: RequestBuilder) -> StatusCode {
        within(request.send()).await.unwrap().status()
    }
}

/// The answer to request `id` in a stream of events.
pub(super) async fn message(response: Response, id: u64) -> Value {
    let text = within(response.text()).await.unwrap();
    let events = text
        .lines()
        .filter_map(|line| line.strip_prefix("data:"))
        .map(str::trim)
        .filter(|data| !data.is_empty());
    let mut messages = events.map(|data| serde_json::from_str::<Value>(data).unwrap());
    messages
        .find(|message| message["id"] == id)
        .unwrap_or_else(|| panic!("no answer in {text}"))
}
