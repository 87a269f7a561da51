//! Models behind TLS whose certificates an authority of one's own has issued: a real handshake,
//! with the right authority and with wrong ones.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;

use dormouse_actors::ports::Model;
use dormouse_models::Anthropic;
use dormouse_proto::id::Pid;
use dormouse_proto::message::{Message, text_of};
use dormouse_proto::model::{ModelError, ModelErrorKind, Reply, Request};
use dormouse_proto::server::CaFile;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::tls::Authority;

#[path = "../../../tests/tls.rs"]
mod tls;

const REPLY: &str = r#"{"type":"message","content":[{"type":"text","text":"hello"}],"stop_reason":"end_turn","usage":{}}"#;

/// A server that gives one reply to every request.
async fn plain_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let mut request = Vec::new();
            while !request.ends_with(b"}") && socket.read_buf(&mut request).await.unwrap() > 0 {}
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close";
            let answer = format!("{head}\r\n\r\n{REPLY}");
            socket.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    address
}

fn request() -> Request {
    Request {
        pid: Pid(1),
        program: "p".into(),
        model: "m".into(),
        system: "".into(),
        tools: [].into(),
        messages: vec![Message::user("hi").into()],
        provider_tools: Arc::default(),
        parameters: Arc::default(),
        forked_at: Vec::new(),
        media: BTreeMap::new(),
    }
}

fn ca_file(pem: &str) -> CaFile {
    CaFile {
        path: "ca.pem".to_owned(),
        pem: pem.into(),
    }
}

async fn call(url: &str, ca_file: Option<CaFile>) -> Result<Reply, ModelError> {
    let builder = Anthropic::builder().base_url(url).ca_file(ca_file);
    builder.build()?.call(request(), &|_| ()).await
}

#[tokio::test]
async fn only_a_server_whose_authority_is_named_is_asked() {
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let target = plain_server().await;
    let url = format!("https://{}", ours.serve("127.0.0.1", target).await);

    let both = format!("{}\n{}", theirs.pem, ours.pem);
    for pem in [ours.pem.as_str(), &both] {
        let reply = call(&url, Some(ca_file(pem))).await.unwrap();
        assert_eq!(text_of(&reply.blocks), "hello");
    }
    for wrong in [Some(ca_file(&theirs.pem)), None] {
        let error = call(&url, wrong).await.unwrap_err();
        assert_eq!(error.kind, ModelErrorKind::Unavailable, "{error}");
        assert!(error.message.contains("UnknownIssuer"), "{error}");
        assert!(error.message.contains("`ca_file`"), "{error}");
    }
    let other_name = format!("https://{}", ours.serve("other.example", target).await);
    let error = call(&other_name, Some(ca_file(&ours.pem))).await;
    let error = error.unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::Unavailable, "{error}");
    assert!(error.message.contains("look at its names"), "{error}");
}

#[tokio::test]
async fn a_file_without_a_usable_certificate_is_refused_before_anything_is_sent() {
    let bytes_of =
        |text: &str| format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n");
    let good = Authority::new("ours").pem;
    let cases = [
        ("no certificate", "ca.pem holds no certificate in PEM"),
        (&bytes_of("!!!"), "the certificate 1 of ca.pem"),
        (
            &format!("{good}{}", bytes_of("aGVsbG8=")),
            "the certificate 2 of ca.pem",
        ),
    ];
    for (pem, expected) in cases {
        let error = call("https://127.0.0.1:1", Some(ca_file(pem))).await;
        let error = error.unwrap_err();
        assert_eq!(error.kind, ModelErrorKind::InvalidRequest, "{error}");
        assert!(error.message.contains(expected), "{error}");
    }
}

/// Runs [`call_as_the_environment_says`] in a process whose environment names a file.
async fn call_with_variable(url: &str, file: &std::path::Path) -> (bool, String) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([
            "--exact",
            "call_as_the_environment_says",
            "--ignored",
            "--nocapture",
        ])
        .env("SSL_CERT_FILE", file)
        .env("TEST_URL", url);
    let output = tokio::task::spawn_blocking(move || command.output().unwrap());
    let output = output.await.unwrap();
    let shown = [output.stdout, output.stderr].concat();
    (
        output.status.success(),
        String::from_utf8_lossy(&shown).into_owned(),
    )
}

#[tokio::test]
#[ignore = "the test below runs it in a process of its own, with another environment"]
async fn call_as_the_environment_says() {
    let url = std::env::var("TEST_URL").expect("the test below sets it");
    let reply = call(&url, None)
        .await
        .unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(text_of(&reply.blocks), "hello");
}

#[tokio::test]
async fn the_file_that_the_environment_names_holds_the_authorities() {
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let url = format!(
        "https://{}",
        ours.serve("127.0.0.1", plain_server().await).await
    );
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let right = write("right.pem", &ours.pem);
    let (succeeded, shown) = call_with_variable(&url, &right).await;
    assert!(succeeded, "{shown}");

    let cases = [
        (write("wrong.pem", &theirs.pem), "UnknownIssuer"),
        (
            write("empty.pem", ""),
            "SSL_CERT_FILE names, holds no certificate",
        ),
        (folder.path().join("absent.pem"), "cannot be read"),
    ];
    for (file, expected) in cases {
        let (succeeded, shown) = call_with_variable(&url, &file).await;
        assert!(!succeeded && shown.contains(expected), "{file:?}: {shown}");
    }
}
