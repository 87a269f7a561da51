//! Failures that were recorded, served again.

use dormouse_actors::ports::Model;
use dormouse_models::wire::{Client, Codec};
use dormouse_proto::message::Message;
use dormouse_proto::model::ModelErrorKind;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::check::request;

/// A failure, served again as it was recorded, is told by kind and with the provider's words.
pub(crate) async fn refused<C: Codec>(name: &str, status: u16, body: &Value) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let answer = format!(
        "HTTP/1.1 {status} Recorded\r\ncontent-type: application/json\r\nconnection: \
         close\r\n\r\n{body}"
    );
    tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        let mut asked = Vec::new();
        while !asked.ends_with(b"}") {
            assert_ne!(
                socket.read_buf(&mut asked).await.unwrap(),
                0,
                "the request ended early"
            );
        }
        socket.write_all(answer.as_bytes()).await.unwrap();
    });
    let model = Client::<C>::builder().base_url(url).build().unwrap();
    let error = model
        .call(request(vec![Message::user("hi")], &[]), &|_| ())
        .await
        .unwrap_err();
    assert_eq!(
        error.kind,
        ModelErrorKind::InvalidRequest,
        "{name}: {error}"
    );
    let said = body["error"]["message"].as_str().unwrap();
    assert!(
        error.message.contains(&said[..said.len().min(100)]),
        "{name}: {error}"
    );
}
