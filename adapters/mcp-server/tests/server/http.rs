//! Tests of sessions over HTTP, with a client that sends raw messages of the protocol.

use std::time::Duration;

use dormouse_actors::handle::Kernel;
use dormouse_mcp_server::{Hosts, HttpSettings, ServeError, Token};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::http_client::{RunningServer, message};
use super::support::{call_result, initialize_params, large, parse_page, server, within};

/// The number of living processes.
async fn count_living(kernel: &Kernel) -> usize {
    kernel
        .processes()
        .await
        .unwrap()
        .iter()
        .filter(|info| info.row.exit.is_none())
        .count()
}

/// Waits for the end of all processes.
async fn wait_until_all_ended(kernel: &Kernel) {
    for info in kernel.processes().await.unwrap() {
        within(kernel.process(info.row.pid).await.unwrap().wait())
            .await
            .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_can_call_tools_read_every_page_and_end() {
    let (server, kernel, _held) = server().await;
    let served = RunningServer::new(&server, HttpSettings::default()).await;
    let session = served.session().await;
    let (preview, _) = served
        .call(&session, "large", json!({"bytes": 1_000_000}))
        .await;
    assert!(
        preview.starts_with("<fd_result fd=\"fd:1\""),
        "{preview:.300}"
    );
    let (mut all, pages) = parse_page(
        &served
            .call(&session, "read_fd", json!({"fd": "fd:1", "page": 1}))
            .await
            .0,
    );
    for page in 2..=pages {
        all.push_str(
            &parse_page(
                &served
                    .call(&session, "read_fd", json!({"fd": "fd:1", "page": page}))
                    .await
                    .0,
            )
            .0,
        );
    }
    assert!(all == large(1_000_000));
    assert_eq!(
        served
            .status(served.request(Method::DELETE, Some(&session)))
            .await,
        StatusCode::NO_CONTENT
    );
    wait_until_all_ended(&kernel).await;
    let late = served.post(Some(&session), 2, "tools/list", json!({}));
    assert_eq!(served.status(late).await, StatusCode::NOT_FOUND);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_share_no_descriptors_and_all_end_with_the_server() {
    let (server, kernel, _held) = server().await;
    let served = RunningServer::new(&server, HttpSettings::default()).await;
    let (one, other) = (served.session().await, served.session().await);
    served.call(&one, "large", json!({"bytes": 20_000})).await;
    let (text, is_error) = served
        .call(&other, "read_fd", json!({"fd": "fd:1", "page": 1}))
        .await;
    assert!(is_error && text.contains("not_found"), "{text}");
    served.end().await;
    server.end().await;
    wait_until_all_ended(&kernel).await;
    assert_eq!(count_living(&kernel).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_over_http_is_cancelled_by_a_notification() {
    let (server, _kernel, held) = server().await;
    let served = RunningServer::new(&server, HttpSettings::default()).await;
    let session = served.session().await;
    let call = served.begin_linger(&session);
    held.entered(1).await;
    let params = json!({"requestId": 9});
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params});
    let notification = served.request(Method::POST, Some(&session)).json(&cancel);
    assert_eq!(served.status(notification).await, StatusCode::ACCEPTED);
    held.left(1).await;
    assert_eq!(
        served
            .call(&session, "echo", json!({"text": "here"}))
            .await
            .0,
        "here"
    );
    call.abort();
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_origins_and_host_names_are_refused() {
    let (server, kernel, _held) = server().await;
    let settings = HttpSettings {
        origins: vec!["https://app.example:443".to_owned()],
        ..HttpSettings::default()
    };
    let served = RunningServer::new(&server, settings).await;
    let begin = || served.post(None, 1, "initialize", initialize_params("2025-11-25"));
    for origin in [
        "https://evil.example",
        "null",
        "",
        "http://localhost.evil.example",
        "http://localhost:x.evil.example",
        "http://localhost:80.evil.example",
        "http://localhost:80@evil.example",
        "http://localhost:",
        "http://localhost:99999",
        "http://[::1]:1:2",
        "http://localhost/",
        "ftp://localhost",
        "https://app.example:8443",
    ] {
        assert_eq!(
            served.status(begin().header("origin", origin)).await,
            StatusCode::FORBIDDEN,
            "{origin}"
        );
    }
    let two = || {
        begin()
            .header("origin", "http://localhost")
            .header("origin", "https://evil.example")
    };
    assert_eq!(
        served.status(two()).await,
        StatusCode::FORBIDDEN,
        "each origin header is checked"
    );
    for host in ["evil.example", "127.0.0.1.evil.example:80"] {
        assert_eq!(
            served.status(begin().header("host", host)).await,
            StatusCode::FORBIDDEN,
            "{host}"
        );
    }
    assert_eq!(
        count_living(&kernel).await,
        0,
        "a refused request starts no process"
    );
    for origin in [
        "http://localhost:5173",
        "https://localhost",
        "http://127.0.0.1:65535",
        "http://[::1]:80",
        "https://app.example",
    ] {
        assert_eq!(
            served.status(begin().header("origin", origin)).await,
            StatusCode::OK,
            "{origin}"
        );
    }
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_without_the_token_are_refused() {
    let (server, _kernel, _held) = server().await;
    let settings = HttpSettings {
        hosts: Hosts::Any,
        token: Some(Token::new("sesame")),
        ..HttpSettings::default()
    };
    let served = RunningServer::new(&server, settings).await;
    let begin = || {
        served
            .post(None, 1, "initialize", initialize_params("2025-11-25"))
            .header("host", "dormouse.example")
    };
    assert_eq!(served.status(begin()).await, StatusCode::UNAUTHORIZED);
    assert_eq!(
        served.status(begin().bearer_auth("open")).await,
        StatusCode::UNAUTHORIZED
    );
    assert_eq!(
        served.status(begin().bearer_auth("sesame")).await,
        StatusCode::OK
    );
    served.end().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let open = HttpSettings {
        hosts: Hosts::Any,
        ..HttpSettings::default()
    };
    let refused = server
        .serve_http(listener, open, std::future::pending())
        .await;
    assert!(matches!(refused, Err(ServeError::Settings(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_over_the_limit_are_refused_until_one_ends() {
    let (server, kernel, _held) = server().await;
    let served = RunningServer::new(
        &server,
        HttpSettings {
            max_sessions: 3,
            ..HttpSettings::default()
        },
    )
    .await;
    let first = served.session().await;
    served.session().await;
    served.session().await;
    for _ in 0..20 {
        let refused = served.begin().await;
        assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert!(refused.headers().contains_key("retry-after"));
    }
    assert_eq!(count_living(&kernel).await, 3);
    assert_eq!(
        served.call(&first, "echo", json!({"text": "here"})).await.0,
        "here"
    );
    assert!(
        served
            .status(served.request(Method::DELETE, Some(&first)))
            .await
            .is_success()
    );
    let first = kernel
        .process(kernel.processes().await.unwrap()[0].row.pid)
        .await
        .unwrap();
    within(first.wait()).await.unwrap();
    within(async {
        // The slot of the session is freed shortly after its process has ended.
        while served.begin().await.status() != StatusCode::OK {
            tokio::task::yield_now().await;
        }
    })
    .await;
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_session_ends() {
    let (server, kernel, _held) = server().await;
    let settings = HttpSettings {
        idle: Duration::from_millis(200),
        ..HttpSettings::default()
    };
    let served = RunningServer::new(&server, settings).await;
    // The client sends nothing after the first request.
    let session = served.begin().await.headers()["mcp-session-id"]
        .to_str()
        .unwrap()
        .to_owned();
    wait_until_all_ended(&kernel).await;
    let late = || served.post(Some(&session), 2, "tools/list", json!({}));
    within(async {
        while served.status(late()).await != StatusCode::NOT_FOUND {
            tokio::task::yield_now().await;
        }
    })
    .await;
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_requests_are_refused_and_the_session_continues() {
    let (server, _kernel, _held) = server().await;
    let served = RunningServer::new(&server, HttpSettings::default()).await;
    let session = served.session().await;
    let elsewhere = served.http.get(served.url.replace("/mcp", "/other"));
    assert_eq!(served.status(elsewhere).await, StatusCode::NOT_FOUND);
    let bad = served
        .request(Method::POST, Some(&session))
        .header("content-type", "application/json")
        .body("{");
    assert!(served.status(bad).await.is_client_error());
    let unknown_session = served.post(Some("nobody"), 2, "tools/list", json!({}));
    assert_eq!(served.status(unknown_session).await, StatusCode::NOT_FOUND);
    let no_session = served.post(None, 2, "tools/list", json!({}));
    assert!(served.status(no_session).await.is_client_error());
    let unknown_version = served
        .post(Some(&session), 2, "tools/list", json!({}))
        .header("mcp-protocol-version", "1999-01-01");
    assert_eq!(
        served.status(unknown_version).await,
        StatusCode::BAD_REQUEST
    );
    assert_eq!(
        served
            .call(&session, "echo", json!({"text": "here"}))
            .await
            .0,
        "here"
    );
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_outside_of_a_session_has_a_process_of_its_own() {
    let (server, kernel, _held) = server().await;
    let served = RunningServer::new(&server, HttpSettings::default()).await;
    let call = |id, tool: &str, args: Value| {
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let params = json!({"name": tool, "arguments": args, "_meta": meta});
        let request = served
            .post(None, id, "tools/call", params)
            .header("mcp-protocol-version", "2026-07-28");
        let request = request
            .header("mcp-method", "tools/call")
            .header("mcp-name", tool);
        async move { message(within(request.send()).await.unwrap(), id).await }
    };
    let preview = call(1, "large", json!({"bytes": 20_000})).await;
    assert!(call_result(&preview).0.contains("fd=\"fd:1\""), "{preview}");
    let page = call(2, "read_fd", json!({"fd": "fd:1", "page": 1})).await;
    assert!(call_result(&page).0.contains("not_found"), "{page}");
    served.end().await;
    server.end().await;
    assert_eq!(count_living(&kernel).await, 0);
}
