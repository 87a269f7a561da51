//! Tests with a server over HTTP.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use dormouse_actors::ports::{
    OffersTo, ServerAnswer, ServerClient, ServerRequestError, ToolServers,
};
use dormouse_host::{LocalHost, Permissions};
use dormouse_mcp::McpClient;
use dormouse_proto::id::Pid;
use dormouse_proto::server::{CaFile, Server, ServerValue, Transport};
use dormouse_tests::within;
use futures_util::future::{BoxFuture, FutureExt};
use serde_json::{Value, json};

use crate::support::{Fixture, host, script_path, server};
use crate::tls::Authority;

/// `server.py` as an HTTP server. Dropping this kills it.
struct HttpServer {
    child: Child,
    port: u16,
}

impl HttpServer {
    fn start() -> Self {
        let mut child = Command::new("python3")
            .arg(script_path())
            .arg("http")
            .stdout(Stdio::piped())
            .spawn()
            .expect("python3 runs");
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        Self {
            child,
            port: line.trim().parse().unwrap(),
        }
    }

    fn fixture(&self, path: &str, token: &str) -> Fixture {
        let url = format!("http://127.0.0.1:{}/{path}", self.port);
        self.fixture_at(url, None, token)
    }

    fn fixture_at(&self, url: String, ca_file: Option<CaFile>, token: &str) -> Fixture {
        let headers = vec![(
            "Authorization".to_owned(),
            ServerValue::new(format!("Bearer {token}")),
        )];
        let server = Server {
            connect_ms: 5_000,
            shared: None,
            ..server(Transport::Http {
                url,
                headers,
                ca_file,
            })
        };
        let folder = tempfile::tempdir().unwrap();
        Fixture {
            client: McpClient::default(),
            host: host(folder.path()),
            server: Arc::new(server),
            folder,
        }
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn tools_of_an_http_server_are_offered_and_called() {
    let http_server = HttpServer::start();
    let fixture = http_server.fixture("mcp", "s3cret");
    let offers = fixture.offers().await.unwrap();
    assert!(
        offers.iter().any(|offer| &*offer.name == "stuck"),
        "{offers:?}"
    );
    assert_eq!(fixture.call("echo", "far").await.unwrap(), "echo: far");
    assert_eq!(
        fixture.call("huge", "2000000").await.unwrap().len(),
        2_000_000
    );
}

#[tokio::test]
async fn a_server_behind_tls_is_used_if_its_authority_is_named() {
    let http_server = HttpServer::start();
    let target = ([127, 0, 0, 1], http_server.port).into();
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let url = format!("https://{}/mcp", ours.serve("127.0.0.1", target).await);
    let fixture = |pem: Option<&str>| {
        let ca_file = pem.map(|pem| CaFile {
            path: "ca.pem".to_owned(),
            pem: pem.into(),
        });
        http_server.fixture_at(url.clone(), ca_file, "s3cret")
    };
    let right = fixture(Some(&ours.pem));
    assert_eq!(right.call("echo", "far").await.unwrap(), "echo: far");
    let cases = [
        (None, "No authority that is trusted"),
        (Some(theirs.pem.as_str()), "No authority that is trusted"),
        (Some("nothing"), "ca.pem holds no certificate"),
    ];
    for (pem, expected) in cases {
        let error = fixture(pem).offers().await.unwrap_err();
        assert!(error.contains(expected), "{error}");
        assert!(!error.contains("s3cret"), "{error}");
    }
}

#[tokio::test]
async fn a_fault_of_an_http_server_is_an_error_without_secrets() {
    let http_server = HttpServer::start();
    let fixture = http_server.fixture("mcp", "s3cret");
    for tool in ["die", "junk"] {
        let error = fixture.call(tool, "").await.unwrap_err();
        assert!(error.contains("Effect unknown"), "{tool}: {error}");
        assert!(
            !error.contains("s3cret") && !error.contains("127.0.0.1"),
            "{tool}: {error}"
        );
        assert_eq!(
            fixture.call("echo", tool).await.unwrap(),
            format!("echo: {tool}")
        );
    }
    let error = fixture.call("huge", "17000000").await.unwrap_err();
    assert!(error.contains("exceeded"), "{error}");
    let cancelled =
        tokio::time::timeout(Duration::from_millis(200), fixture.call("never", "")).await;
    assert!(cancelled.is_err());
    assert_eq!(fixture.call("echo", "after").await.unwrap(), "echo: after");
}

#[tokio::test]
async fn a_flood_of_messages_from_an_http_server_ends_the_session_with_the_reason() {
    let http_server = HttpServer::start();
    let fixture = http_server.fixture("mcp", "s3cret");
    for (message, expected) in [
        ("ping", "asked without reading its answers"),
        ("changed", "messages that nobody asked for"),
        ("progress", "messages that nobody asked for"),
    ] {
        let error = fixture.call("endless", message).await.unwrap_err();
        assert!(
            error.contains(expected) && error.contains("Effect unknown"),
            "{message}: {error}"
        );
        assert_eq!(fixture.call("echo", "again").await.unwrap(), "echo: again");
    }
}

#[tokio::test]
async fn after_an_expired_session_the_next_call_uses_a_new_one() {
    let http_server = HttpServer::start();
    let fixture = http_server.fixture("mcp", "s3cret");
    // By the protocol, a server answers 404 for an unknown session and executes nothing. Some
    // servers answer with another status.
    for (unknown, expected) in [
        ("404", "did not carry out the call"),
        ("400", "Effect unknown"),
    ] {
        assert_eq!(
            fixture.call("forget", unknown).await.unwrap(),
            format!("forget: {unknown}")
        );
        let error = fixture.call("echo", "lost").await.unwrap_err();
        assert!(error.contains(expected), "{unknown}: {error}");
        assert_eq!(
            fixture.call("echo", unknown).await.unwrap(),
            format!("echo: {unknown}")
        );
    }
}

#[tokio::test]
async fn many_slow_calls_keep_their_session_when_one_call_is_cancelled() {
    let http_server = HttpServer::start();
    let fixture = http_server.fixture("mcp", "s3cret");
    let slow = futures_util::future::join_all((0..40).map(|_| fixture.call("hold", "")));
    let others = async {
        let cancelled =
            tokio::time::timeout(Duration::from_millis(500), fixture.call("never", "")).await;
        assert!(cancelled.is_err());
        assert_eq!(
            fixture.call("release", "all").await.unwrap(),
            "release: all"
        );
    };
    let (slow, ()) = tokio::join!(slow, others);
    assert!(
        slow.iter().all(|answer| answer.as_deref() == Ok("hold: ")),
        "{slow:?}"
    );
}

#[tokio::test]
async fn a_server_that_refuses_redirects_or_does_not_listen_is_an_error() {
    let http_server = HttpServer::start();
    for (path, token) in [("mcp", "wr0ng"), ("elsewhere", "s3cret")] {
        let error = http_server.fixture(path, token).offers().await.unwrap_err();
        assert!(
            !error.contains(token) && !error.contains("127.0.0.1"),
            "{path}: {error}"
        );
    }
    let fixture = http_server.fixture("mcp", "s3cret");
    let fixture = Fixture {
        host: Arc::new(LocalHost::new(Permissions::none(), ".").unwrap()),
        ..fixture
    };
    let error = fixture.offers().await.unwrap_err();
    assert!(
        error.contains(&format!("--allow-net=127.0.0.1:{}", http_server.port)),
        "{error}"
    );
    let fixture = http_server.fixture("mcp", "s3cret");
    drop(http_server);
    let error = fixture.offers().await.unwrap_err();
    assert!(error.contains("no connection could be made"), "{error}");
}

/// A client whose requests have a token.
struct WithToken;

impl ServerClient for WithToken {
    fn capabilities(&self) -> Value {
        json!({})
    }

    fn header(&self, name: &str) -> Option<String> {
        (name == "Authorization").then(|| "Bearer s3cret".to_owned())
    }

    fn request(&self, _: &Arc<str>, method: &str, _: Value) -> BoxFuture<'static, ServerAnswer> {
        std::future::ready(Err(ServerRequestError::unknown_method(method))).boxed()
    }

    fn notify(&self, _: &Arc<str>, _: &str, _: Value) {}
}

#[tokio::test]
async fn a_token_of_the_client_is_passed_on_if_the_declaration_says_so() {
    let http_server = HttpServer::start();
    let mut fixture = http_server.fixture("mcp", "");
    let mut server = Server::clone(&fixture.server);
    let Transport::Http { headers, .. } = &mut server.transport else {
        panic!()
    };
    headers[0].1 = ServerValue::new("${client:Authorization}");
    fixture.server = Arc::new(server);
    fixture.client = McpClient::default().connection_per_tree();
    let error = fixture.offers().await.unwrap_err();
    assert!(
        error.contains("its header Authorization: the request by which the client began")
            && error.contains("has no header Authorization"),
        "{error}"
    );
    let client: Arc<dyn ServerClient> = Arc::new(WithToken);
    let to = OffersTo::NewTree(Arc::downgrade(&client));
    within(fixture.client.offers(&fixture.host, &fixture.server, to))
        .await
        .unwrap();
    fixture.client.serve_client(Pid(1), Arc::downgrade(&client));
    assert_eq!(fixture.call("echo", "mine").await.unwrap(), "echo: mine");
}
