use std::sync::{Arc, Mutex};

use dormouse_actors::ports::Model;
use dormouse_proto::message::{Message, text_of};
use dormouse_proto::server_tool::{Output, server_blocks};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::anthropic::Messages;
use crate::responses::Responses;
use crate::testing::request;
use crate::wire::{Delivery, Purpose, encode};

const KEY: &str = "sk-canary";

/// A provider: how it answers each path. Gives back the heads of all requests.
async fn provider(
    answers: impl Fn(&str) -> (u16, &'static str, Vec<u8>) + Send + 'static,
) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let heads = Arc::new(Mutex::new(Vec::new()));
    let asked = heads.clone();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let mut bytes = Vec::new();
            // The answer may come before the body of the request was read, which is short.
            while !bytes.windows(4).any(|end| end == b"\r\n\r\n") {
                assert_ne!(socket.read_buf(&mut bytes).await.unwrap(), 0);
            }
            let text = String::from_utf8_lossy(&bytes);
            let (head, sent) = text.split_once("\r\n\r\n").unwrap();
            let length = head.to_lowercase();
            let length = length.split("content-length: ").nth(1);
            let length = length.map_or(0, |rest| rest.lines().next().unwrap().parse().unwrap());
            let mut rest = vec![0; length - sent.len()];
            let head = head.to_owned();
            socket.read_exact(&mut rest).await.unwrap();
            let path = head.split(' ').nth(1).unwrap().to_owned();
            asked.lock().unwrap().push(head);
            let (status, kind, body) = answers(&path);
            let head = format!(
                "HTTP/1.1 {status} Played\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\
                 connection: close\r\n\r\n",
                body.len()
            );
            socket.write_all(head.as_bytes()).await.unwrap();
            // The client hangs up once a file is too long.
            let _ = socket.write_all(&body).await;
        }
    });
    (url, heads)
}

async fn call<C: Codec>(url: &str) -> Reply {
    let client = Client::<C>::builder()
        .base_url(url)
        .api_key(KEY)
        .header("anthropic-beta", "code-execution-2025-08-25")
        .delivery(Delivery::Whole)
        .build()
        .unwrap();
    let request = request(vec![Message::user("plot")], json!({}));
    client.call(request, &|_| ()).await.unwrap()
}

/// What the adapter blocks of a reply hold.
fn files(reply: &Reply) -> Vec<Output> {
    let blocks = reply
        .blocks
        .iter()
        .filter(|block| Raw::adapter_block_in(block).is_some());
    let found = blocks.flat_map(server_blocks);
    found.filter_map(|found| found.output).collect()
}

/// A reply of Anthropic's with a result that names these files.
fn naming(ids: &[&str]) -> Vec<u8> {
    let outputs: Vec<_> = ids
        .iter()
        .map(|id| json!({"type": "bash_code_execution_output", "file_id": id}))
        .collect();
    let result = json!({"type": "bash_code_execution_result", "stdout": "", "content": outputs});
    let content = json!([
        {"type": "bash_code_execution_tool_result", "tool_use_id": "s", "content": result},
        {"type": "text", "text": "Done."},
    ]);
    json!({"content": content, "stop_reason": "end_turn"})
        .to_string()
        .into_bytes()
}

#[tokio::test]
async fn files_of_anthropic_are_fetched_with_their_names_once_each() {
    let (url, heads) = provider(|path| match path {
        "/v1/messages" => (
            200,
            "application/json",
            naming(&["file_1", "file_1", "file_2"]),
        ),
        "/v1/files/file_1" => {
            let described = json!({"filename": "plot.png", "mime_type": "image/png"});
            (200, "application/json", described.to_string().into_bytes())
        }
        "/v1/files/file_1/content" => (200, "application/octet-stream", b"png".to_vec()),
        "/v1/files/file_2/content" => (200, "text/csv", b"a,b".to_vec()),
        _ => (404, "text/plain", b"no".to_vec()),
    })
    .await;
    let reply = call::<Messages>(&url).await;
    let found: Vec<_> = files(&reply)
        .into_iter()
        .flat_map(|output| output.media)
        .collect();
    let shown: Vec<_> = found
        .iter()
        .map(|file| {
            (
                file.name.as_deref().unwrap(),
                &*file.media_type,
                &*file.base64,
            )
        })
        .collect();
    // The second one is not described.
    let expected = [
        ("plot.png", "image/png", "cG5n"),
        ("file_2", "text/csv", "YSxi"),
    ];
    assert_eq!(shown, expected);
    let heads = heads.lock().unwrap().join("\n").to_lowercase();
    assert_eq!(heads.matches("get /v1/files/file_1/content").count(), 1);
    assert_eq!(
        heads
            .matches("anthropic-beta: files-api-2025-04-14")
            .count(),
        4
    );
    assert_eq!(heads.matches("anthropic-beta: code").count(), 1, "{heads}");
    assert_eq!(heads.matches(KEY).count(), 5, "the same key");
    assert_eq!(text_of(&reply.blocks), "Done.");
    let said = crate::testing::message(dormouse_proto::message::Role::Assistant, reply.blocks);
    let purpose = Purpose::Reply(Delivery::Whole);
    let body = encode(&Messages, &request(vec![said], json!({})), purpose, None).unwrap();
    assert!(
        !body.contains("plot.png"),
        "an adapter block is not sent: {body}"
    );
}

#[tokio::test]
async fn files_in_containers_of_openai_are_fetched() {
    let (url, _) = provider(|path| match path {
        "/v1/responses" => {
            let citation = |file: &str| {
                json!({"type": "container_file_citation", "container_id": "cntr_1", "file_id": file,
                    "filename": "a.csv", "start_index": 0, "end_index": 1})
            };
            let text = json!({"type": "output_text", "text": "Done.",
                "annotations": [citation("cfile_1"), citation("../../../v1/x")]});
            let item = json!({"type": "message", "role": "assistant", "content": [text]});
            let reply = json!({"status": "completed", "output": [item]});
            (200, "application/json", reply.to_string().into_bytes())
        }
        "/v1/containers/cntr_1/files/cfile_1/content" => (200, "text/csv", b"a,b".to_vec()),
        other => panic!("{other} was asked for"),
    })
    .await;
    let reply = call::<Responses>(&url).await;
    let [first, second] = &files(&reply)[..] else {
        panic!("two files: {reply:?}")
    };
    assert_eq!(first.media[0].name.as_deref(), Some("a.csv"));
    assert_eq!(first.media[0].base64, "YSxi");
    let missing = "a.csv (../../../v1/x) is at the provider and could not be fetched: its id is \
                   not valid";
    assert_eq!(second.missing, [missing]);
}

#[tokio::test]
async fn a_file_that_cannot_be_fetched_is_no_failure() {
    let ids: Vec<_> = (0..20).map(|number| format!("f{number}")).collect();
    let (url, _) = provider(move |path| match path {
        "/v1/messages" => {
            let ids: Vec<_> = ids.iter().map(String::as_str).collect();
            (200, "application/json", naming(&ids))
        }
        "/v1/files/f0/content" => (200, "text/plain", vec![b'x'; MAX_BYTES as usize + 1]),
        "/v1/files/f1/content" => (302, "text/plain", Vec::new()),
        "/v1/files/f2/content" => (200, "text/plain", b"here".to_vec()),
        _ => (404, "text/plain", KEY.as_bytes().to_vec()),
    })
    .await;
    let reply = call::<Messages>(&url).await;
    let files = files(&reply);
    assert_eq!(files.len(), 20);
    assert_eq!(files[2].media[0].base64, "aGVyZQ==");
    for (number, why) in [
        (0, "it has more than 16777216 bytes"),
        (1, "status 302"),
        (3, "status 404"),
        (16, "more than 16 files"),
    ] {
        let missing = &files[number].missing[0];
        let expected = format!("f{number} is at the provider and could not be fetched: ");
        assert!(
            missing.starts_with(&expected) && missing.contains(why),
            "{missing}"
        );
        assert!(!missing.contains(KEY));
    }
}
