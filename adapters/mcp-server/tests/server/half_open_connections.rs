//! Connections that stay open without a complete, admitted request do not keep out a client that
//! has the token.

use std::time::{Duration, Instant};

use dormouse_mcp_server::{HttpSettings, Token};
use futures_util::StreamExt as _;
use futures_util::future::join_all;
use reqwest::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::http_client::{Client, RunningServer, message};
use super::support::{call_result, server, within};

const SECRET: &str = "open sesame, call_result Ali Baba";

/// The bytes that such connections send: nothing; a part of the headers; a request that is refused;
/// a request that is refused before its body has arrived.
const PARTIAL_REQUESTS: [&str; 4] = [
    "",
    "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Long: aaaa",
    "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n",
    "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer guessed\r\nContent-Length: \
     100\r\n\r\n{",
];

fn settings() -> HttpSettings {
    HttpSettings {
        token: Some(Token::new(SECRET)),
        ..HttpSettings::default()
    }
}

/// Opens a connection and sends `text`.
async fn connect_and_send(address: &str, text: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    stream
}

/// Raises the limit of open files, since both ends of all connections are in this process.
fn allow_many_connections() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            ..limit
        },
    )
    .unwrap();
}

/// Measures how long it takes until a new client is served.
async fn time_to_serve(served: &RunningServer) -> Duration {
    let began = Instant::now();
    let client = Client::new(served.url.clone(), SECRET);
    let session = client.session().await;
    assert_eq!(
        client
            .call(&session, "echo", json!({"text": "here"}))
            .await
            .0,
        "here"
    );
    began.elapsed()
}

#[tokio::test(flavor = "multi_thread")]
async fn half_open_connections_delay_no_client_and_end_no_stream() {
    allow_many_connections();
    let (server, _kernel, held) = server().await;
    let served = RunningServer::with_token(&server, settings(), SECRET).await;
    let session = served.session().await;
    let mut stream = within(served.request(Method::GET, Some(&session)).send())
        .await
        .unwrap()
        .bytes_stream();
    let call = served.begin_linger(&session);
    held.entered(1).await;
    let address = served.address();
    // A busy machine takes longer, also without these connections.
    let max_time = (time_to_serve(&served).await * 10).max(Duration::from_secs(2));
    let mut connections_open = Vec::new();
    for connections in [600, 2_000] {
        // A request of the last kind is left out: its connection is closed at once.
        let requests = PARTIAL_REQUESTS[..3].iter().cycle().take(connections);
        connections_open
            .extend(join_all(requests.map(|text| connect_and_send(&address, text))).await);
        let took = time_to_serve(&served).await;
        assert!(
            took < max_time,
            "{connections} connections delayed a client by {took:?}"
        );
        eprintln!("{connections} half-open connections: a new client was served in {took:?}");
    }
    held.open.add_permits(1);
    let answer = within(call).await.unwrap().unwrap();
    assert_eq!(call_result(&message(answer, 9).await).0, "passed");
    // The stream may have sent events at its beginning, and has not ended.
    let quiet = async { while stream.next().await.expect("the stream has ended").is_ok() {} };
    assert!(
        tokio::time::timeout(Duration::from_millis(200), quiet)
            .await
            .is_err(),
        "the stream was cut"
    );
    drop(connections_open);
    served.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_incomplete_request_is_closed_after_a_deadline() {
    let (server, _kernel, _held) = server().await;
    let served = RunningServer::with_token(&server, settings(), SECRET).await;
    let address = served.address();
    let head =
        format!("POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {SECRET}\r\n");
    let slow = format!("{head}Content-Length: 100\r\n\r\n{{");
    let ends = PARTIAL_REQUESTS
        .into_iter()
        .chain([slow.as_str()])
        .map(|text| async {
            let (mut stream, began, mut answer) = (
                connect_and_send(&address, text).await,
                Instant::now(),
                String::new(),
            );
            // Whether it is closed or reset does not matter.
            let _ = within(stream.read_to_string(&mut answer)).await;
            (began.elapsed(), answer)
        });
    let ends = join_all(ends).await;
    for (took, answer) in &ends {
        assert!(*took < Duration::from_secs(30), "{took:?}: {answer}");
    }
    assert!(ends[4].1.starts_with("HTTP/1.1 408"), "{}", ends[4].1);
    served.session().await;
    served.end().await;
}

/// Clients keep idle connections for some seconds, and send the next request on them.
#[tokio::test(flavor = "multi_thread")]
async fn an_idle_connection_takes_a_request_after_longer_than_clients_keep_one() {
    let (server, _kernel, _held) = server().await;
    let served = RunningServer::with_token(&server, settings(), SECRET).await;
    let request = "POST /elsewhere HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 0\r\n\r\n";
    let mut stream = connect_and_send(&served.address(), request).await;
    let mut answer = [0; 1024];
    for pause in [7, 0] {
        let length = within(stream.read(&mut answer)).await.unwrap();
        assert!(
            answer[..length].starts_with(b"HTTP/1.1 4"),
            "{length} bytes"
        );
        tokio::time::sleep(Duration::from_secs(pause)).await;
        if pause > 0 {
            stream.write_all(request.as_bytes()).await.unwrap();
        }
    }
    served.end().await;
}
