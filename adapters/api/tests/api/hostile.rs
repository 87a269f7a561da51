//! Attacks by TCP: other programs, web pages of other origins, rebound names, greedy clients.

use std::time::{Duration, Instant};

use dormouse_api::{ControlApi, Hosts, ServeError, TcpSettings, Tokens};
use reqwest::{Method, StatusCode};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::support::*;

/// Sends raw bytes, and returns all that comes back until the end of the connection.
async fn raw(world: &World, request: &str) -> String {
    let mut stream = TcpStream::connect(&world.address).await.unwrap();
    // The server may refuse before it has read everything.
    let _ = stream.write_all(request.as_bytes()).await;
    let mut answer = Vec::new();
    let _ = within(stream.read_to_end(&mut answer)).await;
    String::from_utf8_lossy(&answer).into_owned()
}

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or("none")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_another_origin_or_a_rebound_name_gets_nothing() {
    let world = World::new().await;
    let port = world.address.rsplit_once(':').unwrap().1.to_owned();
    let get = |host: &str, more: &str| {
        format!(
            "GET /v1/processes HTTP/1.1\r\n{host}Authorization: Bearer {CONTROL}\r\n{more}Connection: \
             close\r\n\r\n"
        )
    };
    let local = format!("Host: 127.0.0.1:{port}\r\n");
    for (host, more, expected) in [
        (local.clone(), String::new(), "200"),
        (format!("Host: localhost:{port}\r\n"), String::new(), "200"),
        ("Host: [::1]:1\r\n".to_owned(), String::new(), "200"),
        (
            format!("Host: evil.example:{port}\r\n"),
            String::new(),
            "403",
        ),
        (
            "Host: 127.0.0.1.evil.example\r\n".to_owned(),
            String::new(),
            "403",
        ),
        (
            "Host: localhost@evil.example\r\n".to_owned(),
            String::new(),
            "403",
        ),
        (
            "Host: 127.0.0.1\r\nHost: evil.example\r\n".to_owned(),
            String::new(),
            "403",
        ),
        (String::new(), String::new(), "403"),
        (
            local.clone(),
            format!("Origin: http://127.0.0.1:{port}\r\n"),
            "200",
        ),
        (
            local.clone(),
            "Origin: https://allowed.example\r\n".to_owned(),
            "200",
        ),
        (
            local.clone(),
            "Origin: http://127.0.0.1:1\r\n".to_owned(),
            "403",
        ),
        (
            local.clone(),
            "Origin: http://localhost:3000\r\n".to_owned(),
            "403",
        ),
        (
            local.clone(),
            "Origin: https://evil.example\r\n".to_owned(),
            "403",
        ),
        (local.clone(), "Origin: null\r\n".to_owned(), "403"),
        (
            local.clone(),
            "Origin: https://allowed.example\r\nOrigin: https://evil.example\r\n".to_owned(),
            "403",
        ),
    ] {
        let answer = raw(&world, &get(&host, &more)).await;
        assert_eq!(status(&answer), expected, "{host:?} {more:?}: {answer}");
        // No page of another origin may read what is answered.
        assert!(
            !answer.to_lowercase().contains("access-control-allow"),
            "{answer}"
        );
        assert!(
            answer.contains("x-content-type-options: nosniff"),
            "{answer}"
        );
        assert!(answer.contains("cache-control: no-store"), "{answer}");
    }
    // What a browser asks before it sends a body of JSON.
    let preflight = format!(
        "OPTIONS /v1/processes HTTP/1.1\r\n{local}Origin: https://evil.example\r\n\
         Access-Control-Request-Method: POST\r\nConnection: close\r\n\r\n"
    );
    assert_eq!(status(&raw(&world, &preflight).await), "403");
    // What it sends without asking: a body that is not said to be JSON.
    let body = r#"{"program":"p"}"#;
    let simple = format!(
        "POST /v1/processes HTTP/1.1\r\n{local}Authorization: Bearer {CONTROL}\r\nContent-Type: \
         text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    let answer = raw(&world, &simple).await;
    assert_eq!(status(&answer), "400");
    assert!(answer.contains("application/json"), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_right_token_nothing_is_told_not_even_what_exists() {
    let world = World::new().await;
    world.session("hello").await;
    let mut bodies = Vec::new();
    for path in [
        "/v1/processes",
        "/v1/processes/1",
        "/v1/openapi.json",
        "/v1/events",
        "/v1/x",
        "/",
    ] {
        for authorization in [
            None,
            Some("Bearer ".to_owned()),
            Some("Bearer look".to_owned()),
            Some(format!("Bearer {LOOK}x")),
            Some(format!("Basic {LOOK}")),
            Some(LOOK.to_owned()),
        ] {
            let url = format!("http://{}{path}?token={LOOK}", world.address);
            let mut request = world.client.get(url);
            if let Some(authorization) = authorization {
                request = request.header("Authorization", authorization);
            }
            let response = within(request.send()).await.unwrap();
            assert_eq!(response.status(), StatusCode::UNAUTHORIZED, "{path}");
            assert_eq!(response.headers()["www-authenticate"], "Bearer");
            bodies.push(response.text().await.unwrap());
        }
    }
    bodies.dedup();
    assert_eq!(bodies.len(), 1, "{bodies:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_headers_and_numbers_have_bounds() {
    let world = World::new().await;
    let pid = world.session("hello").await.pid().0;
    let path = format!("/v1/processes/{pid}/input");
    // More than there may be, of a length that is not announced. The answer may get lost, since the
    // server does not read the rest; what was sent has no effect.
    let mut large = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {CONTROL}\r\nContent-Type: \
         application/json\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    );
    let chunk = "x".repeat(1 << 20);
    large += "a\r\n{\"text\":\" \r\n";
    (0..17).for_each(|_| large += &format!("100000\r\n{chunk}\r\n"));
    large += "2\r\n\"}\r\n0\r\n\r\n";
    let answer = raw(&world, &large).await;
    assert!(["413", "none"].contains(&status(&answer)), "{answer}");
    let path_of_conversation = format!("/v1/processes/{pid}/conversation");
    assert_eq!(world.get(&path_of_conversation).await["total"], 2);
    // A length that is announced and never sent is refused at once.
    let announced = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {CONTROL}\r\nContent-Type: \
         application/json\r\nContent-Length: 99999999999\r\nConnection: close\r\n\r\n"
    );
    let start = Instant::now();
    assert_eq!(status(&raw(&world, &announced).await), "413");
    assert!(start.elapsed() < Duration::from_secs(10));
    let header = format!(
        "GET /v1/kernel HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n",
        "x".repeat(200 << 10)
    );
    assert_eq!(status(&raw(&world, &header).await), "431");
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let request = world
        .request(Method::POST, &path, CONTROL)
        .header("content-type", "application/json")
        .body(deep);
    assert_eq!(error_of(world.send(request).await).0, 400);
    for pid in [
        "0",
        "99",
        "18446744073709551615",
        "1.0",
        "1e3",
        "%00",
        "..%2f..",
        "１",
    ] {
        let (status, ..) = world.get_error(&format!("/v1/processes/{pid}")).await;
        assert!([400, 404].contains(&status), "{pid}: {status}");
    }
    for call in ["0.99", "x", "1", "4294967296.1", "0.1%2F..", "-1.0"] {
        let path = format!("/v1/processes/{pid}/calls/{call}/verdict");
        let (status, ..) = world
            .post_error(&path, json!({ "verdict": "approve" }))
            .await;
        assert!([400, 404, 409].contains(&status), "{call}: {status}");
    }
    assert_eq!(world.get("/v1/kernel").await["processes"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_idle_connections_keep_nobody_out() {
    let world = World::new().await;
    let mut idle = Vec::new();
    for number in 0..1000 {
        let mut stream = TcpStream::connect(&world.address).await.unwrap();
        if number % 2 == 0 {
            // Half a request.
            let _ = stream
                .write_all(b"GET /v1/kernel HTTP/1.1\r\nHost: loc")
                .await;
        }
        idle.push(stream);
    }
    let start = Instant::now();
    for _ in 0..20 {
        assert_eq!(world.get("/v1/kernel").await["running"], true);
    }
    assert!(
        start.elapsed() < Duration::from_secs(5),
        "{:?}",
        start.elapsed()
    );
    // The oldest had to go.
    let mut byte = [0];
    let read = within(idle[0].read(&mut byte)).await;
    assert!(matches!(read, Ok(0) | Err(_)), "{read:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_have_a_bound_and_leave_room_for_answers() {
    let world = World::new().await;
    let mut streams = Vec::new();
    let refused = loop {
        let request = world.request(Method::GET, "/v1/events", LOOK);
        let response = within(request.send()).await.unwrap();
        if response.status() != StatusCode::OK {
            break response;
        }
        streams.push(response);
        assert!(streams.len() < 300, "streams have no bound");
    };
    assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(refused.headers().contains_key("retry-after"));
    drop(refused);
    assert_eq!(world.get("/v1/kernel").await["running"], true);
    // A stream that ends makes room.
    streams.truncate(streams.len() / 2);
    within(async {
        loop {
            let request = world.request(Method::GET, "/v1/events", LOOK);
            if request.send().await.unwrap().status() == StatusCode::OK {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_served_without_a_token_and_nothing_after_the_kernel() {
    let world = World::new().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let settings = TcpSettings {
        hosts: Hosts::Loopback,
        origins: Vec::new(),
        tokens: Tokens::none(),
    };
    let api = ControlApi::new(world.kernel.clone());
    let refused = within(api.serve_tcp(listener, settings, std::future::pending())).await;
    assert!(
        matches!(refused, Err(ServeError::Settings(_))),
        "{refused:?}"
    );

    let request = world.request(Method::GET, "/v1/events", LOOK);
    let stream = within(request.send()).await.unwrap();
    world.kernel.clone().shutdown().await.unwrap();
    // The stream ends, and the port is closed.
    within(stream.bytes()).await.ok();
    within(async {
        while TcpStream::connect(&world.address).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}
