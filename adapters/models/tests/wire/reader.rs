//! The recordings, whatever provider they are of.

use std::collections::BTreeMap;
use std::path::PathBuf;

use futures_util::{StreamExt, stream};
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
struct Recording {
    interactions: Vec<Written>,
}

#[derive(Deserialize)]
struct Written {
    request: Asked,
    response: Answered,
}

#[derive(Deserialize)]
struct Asked {
    method: String,
    uri: String,
    #[serde(default)]
    headers: BTreeMap<String, Vec<String>>,
    parsed_body: Option<Value>,
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
    string: Option<String>,
}

/// A request and its answer.
pub(crate) struct Interaction {
    /// The file, and its number there.
    pub(crate) name: String,
    pub(crate) method: String,
    pub(crate) host: String,
    /// Without a query.
    pub(crate) path: String,
    /// The query with its `?`; may be empty.
    pub(crate) query: String,
    /// By names in lower case.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) asked: Value,
    pub(crate) status: u16,
    pub(crate) answer: Answer,
}

pub(crate) enum Answer {
    Whole(Value),
    Events(String),
    Nothing,
}

/// What the folder of recordings holds.
pub(crate) struct Corpus {
    pub(crate) interactions: Vec<Interaction>,
    /// Files that are no recordings, and why.
    pub(crate) foreign: Vec<String>,
}

/// Every interaction of every recording; none where there is no folder, or an empty one.
pub(crate) fn corpus() -> Option<Corpus> {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared");
    let shared = std::env::var("DORMOUSE_SHARED").unwrap_or_else(|_| beside.to_owned());
    let folders = std::fs::read_dir(PathBuf::from(shared).join("data/wire")).ok()?;
    let mut files: Vec<_> = folders
        .filter_map(|folder| std::fs::read_dir(folder.ok()?.path()).ok())
        .flatten()
        .map(|entry| entry.expect("a folder can be listed").path())
        .filter(|path| path.extension().is_some_and(|ext| ext == "yaml"))
        .collect();
    files.sort();
    let mut corpus = Corpus {
        interactions: Vec::new(),
        foreign: Vec::new(),
    };
    for file in &files {
        match in_file(file) {
            Ok(interactions) => corpus.interactions.extend(interactions),
            Err(why) => corpus.foreign.push(format!("{}: {why}", file.display())),
        }
    }
    Some(corpus).filter(|_| !files.is_empty())
}

fn in_file(file: &PathBuf) -> Result<Vec<Interaction>, String> {
    let text = std::fs::read_to_string(file).map_err(|error| error.to_string())?;
    let recording: Recording = serde_yaml_ng::from_str(&text).map_err(|error| error.to_string())?;
    let stem = file.file_stem().unwrap().to_string_lossy().into_owned();
    let interactions = recording.interactions.into_iter().enumerate();
    Ok(interactions
        .map(|(n, written)| read(format!("{stem}[{n}]"), written))
        .collect())
}

fn read(name: String, Written { request, response }: Written) -> Interaction {
    let address = request.uri.split(['?', '#']).next().unwrap_or_default();
    let (_, rest) = address.split_once("://").unwrap_or(("", address));
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let text = response.body.and_then(|body| body.string);
    let answer = match (response.parsed_body, text) {
        (Some(body), _) => Answer::Whole(body),
        (None, Some(text)) => match serde_json::from_str(&text) {
            Ok(body) => Answer::Whole(body),
            Err(_) => Answer::Events(text),
        },
        (None, None) => Answer::Nothing,
    };
    Interaction {
        name,
        method: request.method.to_uppercase(),
        host: host.to_owned(),
        path: format!("/{path}"),
        query: request.uri[address.len()..].to_owned(),
        headers: request
            .headers
            .into_iter()
            .map(|(name, values)| (name.to_lowercase(), values.join(", ")))
            .collect(),
        asked: request.parsed_body.unwrap_or_default(),
        status: response.status.code,
        answer,
    }
}

/// The data of events, read as a client does: in pieces that end anywhere.
pub(crate) async fn datas(events: &str) -> Vec<String> {
    let pieces: Vec<Result<_, std::io::Error>> = events
        .as_bytes()
        .chunks(13)
        .map(|piece| Ok(bytes::Bytes::copy_from_slice(piece)))
        .collect();
    let events = sse_stream::SseByteStream::new(stream::iter(pieces));
    let datas =
        events.filter_map(async |event| event.expect("recorded events are well formed").data);
    datas
        .filter(|data| std::future::ready(!data.is_empty()))
        .collect()
        .await
}

/// The data of events, read by other means: line by line.
pub(crate) fn lines(events: &str) -> Vec<Value> {
    events
        .lines()
        .filter_map(|line| serde_json::from_str(line.strip_prefix("data:")?).ok())
        .collect()
}
