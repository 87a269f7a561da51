//! Recorded traffic of the provider: every reply decodes, its blocks go back as they came, and a stream gives what the
//! whole form of the same reply would give.
//!
//! The recordings are no part of the project. They are looked for in `$DORMOUSE_SHARED/data/wire/anthropic`, or in
//! `../shared` beside the workspace; where there are none the test says that it is skipped.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::Arc;

use dormouse_models::anthropic::{Caching, Delivery, StreamDecoder, decode_message, encode_request};
use dormouse_proto::id::Pid;
use dormouse_proto::message::{Block, Message, Role};
use dormouse_proto::model::{Delta, Reply, Request};
use futures_util::{StreamExt, stream};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
struct Recording {
    interactions: Vec<Interaction>,
}

#[derive(Deserialize)]
struct Interaction {
    request: Asked,
    response: Answered,
}

#[derive(Deserialize)]
struct Asked {
    uri: String,
}

#[derive(Deserialize)]
struct Answered {
    status: Status,
    parsed_body: Option<Value>,
    body: Option<Text>,
}

#[derive(Deserialize)]
struct Status {
    code: u16,
}

#[derive(Deserialize)]
struct Text {
    string: String,
}

#[derive(Default)]
struct Counts {
    whole: usize,
    streamed: usize,
    blocks: usize,
    out_of_scope: Vec<String>,
}

fn recordings() -> Option<Vec<PathBuf>> {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared");
    let shared = std::env::var("DORMOUSE_SHARED").unwrap_or_else(|_| beside.to_owned());
    let folder = PathBuf::from(shared).join("data/wire/anthropic");
    let files = std::fs::read_dir(&folder).ok()?.map(|entry| entry.expect("the folder can be listed").path());
    let mut files: Vec<_> = files.filter(|path| path.extension().is_some_and(|ext| ext == "yaml")).collect();
    files.sort();
    Some(files).filter(|files| !files.is_empty())
}

#[tokio::test]
#[expect(clippy::print_stderr, reason = "what was looked at is part of the result")]
async fn recorded_replies_decode_and_go_back_as_they_came() {
    let Some(files) = recordings() else {
        eprintln!("skipped: no recordings; name their folder in DORMOUSE_SHARED");
        return;
    };
    let mut counts = Counts::default();
    for file in &files {
        let text = std::fs::read_to_string(file).unwrap();
        let recording: Recording = serde_yaml_ng::from_str(&text).unwrap_or_else(|error| panic!("{file:?}: {error}"));
        for (index, interaction) in recording.interactions.iter().enumerate() {
            let name = format!("{}[{index}]", file.file_stem().unwrap().to_string_lossy());
            check(&name, interaction, &mut counts).await;
        }
    }
    assert!(counts.whole > 0 && counts.streamed > 0, "both forms are recorded");
    eprintln!(
        "{} recordings: {} whole replies, {} streams, {} blocks; {} out of scope:\n  {}",
        files.len(),
        counts.whole,
        counts.streamed,
        counts.blocks,
        counts.out_of_scope.len(),
        counts.out_of_scope.join("\n  ")
    );
}

async fn check(name: &str, interaction: &Interaction, counts: &mut Counts) {
    let Interaction { request, response } = interaction;
    if let Some(why) = out_of_scope(request, response) {
        counts.out_of_scope.push(format!("{name}: {why}"));
    } else if let Some(body) = &response.parsed_body {
        let reply = decode_message(&body.to_string()).unwrap_or_else(|error| panic!("{name}: {error}"));
        goes_back(name, &reply, &body["content"]);
        counts.whole += 1;
        counts.blocks += reply.blocks.len();
    } else if let Some(body) = &response.body {
        let reply = streamed(name, &body.string).await;
        let whole = rebuilt(&body.string);
        assert_eq!(without_raw(&reply), without_raw(&decode_message(&whole.to_string()).unwrap()), "{name}");
        goes_back(name, &reply, &whole["content"]);
        counts.streamed += 1;
        counts.blocks += reply.blocks.len();
    }
}

fn out_of_scope(request: &Asked, response: &Answered) -> Option<String> {
    let path = request.uri.split(['?', '#']).next().unwrap_or_default();
    if !path.ends_with("/v1/messages") && !path.ends_with("/invoke") {
        return Some(format!("no message call: {path}"));
    }
    (response.status.code != 200)
        .then(|| format!("an error of status {}, see the cases of errors", response.status.code))
}

/// Sends the reply back as the next turn of a conversation and compares what goes over the wire with what came.
fn goes_back(name: &str, reply: &Reply, content: &Value) {
    let request = Request {
        pid: Pid(1),
        program: "p".into(),
        model: "m".into(),
        system: "".into(),
        tools: [].into(),
        messages: vec![Arc::new(Message { role: Role::Assistant, blocks: reply.blocks.clone() })],
        parameters: Arc::default(),
    };
    let body = encode_request(&request, Delivery::Whole, Caching::Off).unwrap();
    let sent: Value = serde_json::from_str(&body).unwrap();
    let sent = sent["messages"].get(0).map_or(json!([]), |message| message["content"].clone());
    let blank = |block: &&Value| block["type"] == "text" && block["text"].as_str().is_some_and(|t| t.trim().is_empty());
    let came: Vec<&Value> = content.as_array().unwrap().iter().filter(|block| !blank(block)).collect();
    assert_eq!(sent.as_array().unwrap().iter().collect::<Vec<_>>(), came, "{name}");
    for block in &reply.blocks {
        if let Block::ToolUse { args, raw, .. } = block {
            let raw: Value = serde_json::from_str(&raw.as_ref().unwrap().json).unwrap();
            assert_eq!(serde_json::from_str::<Value>(args).unwrap(), raw["input"], "{name}");
        }
    }
}

fn without_raw(reply: &Reply) -> (Vec<String>, String) {
    let words = |block: &Block| match block {
        Block::Text { text, .. } => format!("text {text}"),
        Block::ToolUse { id, name, args, .. } => {
            format!("use {id} {name} {}", serde_json::from_str::<Value>(args).unwrap())
        }
        Block::Opaque(raw) => format!("opaque {}", serde_json::from_str::<Value>(&raw.json).unwrap()["type"]),
        Block::ToolResult { .. } => "result".to_owned(),
    };
    (reply.blocks.iter().map(words).collect(), format!("{:?} {:?}", reply.stop, reply.usage))
}

async fn streamed(name: &str, events: &str) -> Reply {
    let deltas = RefCell::new(Vec::new());
    let mut decoder = StreamDecoder::default();
    for data in datas(events).await {
        decoder.feed(&data, &|delta| deltas.borrow_mut().push(delta)).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    let reply = decoder.finish().unwrap_or_else(|error| panic!("{name}: {error}"));
    let told: String =
        deltas.borrow().iter().filter_map(|d| if let Delta::Text(t) = d { Some(t.as_str()) } else { None }).collect();
    let begun = first_texts(&datas(events).await);
    assert_eq!(begun + &told, dormouse_proto::message::text_of(&reply.blocks), "{name}: what was told is what came");
    reply
}

/// Text that stood in a block from its start and so came in no delta.
fn first_texts(datas: &[String]) -> String {
    let parsed = datas.iter().filter_map(|data| serde_json::from_str::<Value>(data).ok());
    parsed.filter_map(|event| Some(event["content_block"]["text"].as_str()?.to_owned())).collect()
}

async fn datas(events: &str) -> Vec<String> {
    let pieces: Vec<Result<_, std::io::Error>> =
        events.as_bytes().chunks(13).map(|piece| Ok(bytes::Bytes::copy_from_slice(piece))).collect();
    let events = sse_stream::SseByteStream::new(stream::iter(pieces));
    events.filter_map(async |event| event.expect("recorded events are well formed").data).collect().await
}

/// The whole form of a streamed reply, put together by other means than the decoder's: on JSON values, line by line.
fn rebuilt(events: &str) -> Value {
    let mut message = json!({});
    let mut inputs: std::collections::BTreeMap<usize, String> = Default::default();
    for event in events.lines().filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data:")?).ok()) {
        let index = event["index"].as_u64().map(|index| usize::try_from(index).unwrap());
        match event["type"].as_str().unwrap() {
            "message_start" => message = event["message"].clone(),
            "content_block_start" => message["content"].as_array_mut().unwrap().push(event["content_block"].clone()),
            "content_block_delta" => {
                let block = &mut message["content"][index.unwrap()];
                let delta = &event["delta"];
                let grow = |field: &mut Value, by: &Value| {
                    *field = json!(field.as_str().unwrap_or("").to_owned() + by.as_str().unwrap())
                };
                match delta["type"].as_str().unwrap() {
                    "text_delta" => grow(&mut block["text"], &delta["text"]),
                    "thinking_delta" => grow(&mut block["thinking"], &delta["thinking"]),
                    "signature_delta" => block["signature"] = delta["signature"].clone(),
                    "input_json_delta" => {
                        *inputs.entry(index.unwrap()).or_default() += delta["partial_json"].as_str().unwrap()
                    }
                    "citations_delta" => block["citations"].as_array_mut().unwrap().push(delta["citation"].clone()),
                    other => panic!("a delta that this test does not know: {other}"),
                }
            }
            "message_delta" => {
                message["stop_reason"] = event["delta"]["stop_reason"].clone();
                for (name, count) in event["usage"].as_object().unwrap() {
                    message["usage"][name] = count.clone();
                }
            }
            _ => {}
        }
    }
    for (index, input) in inputs.into_iter().filter(|(_, input)| !input.is_empty()) {
        message["content"][index]["input"] = serde_json::from_str(&input).unwrap();
    }
    message
}
