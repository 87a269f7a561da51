//! The recordings, file by file.

use std::path::{Path, PathBuf};

use serde_json::Value;

/// The format of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Anthropic,
    Responses,
    Chat,
    Gemini,
}

/// A request and its answer.
pub(crate) struct Interaction {
    /// The file, and its number there.
    pub(crate) name: String,
    /// None for what is no request to a model.
    pub(crate) format: Option<Format>,
    path: String,
    pub(crate) asked: Value,
    status: u64,
    pub(crate) answer: Answer,
}

pub(crate) enum Answer {
    Whole(Value),
    Events(Vec<Value>),
    Nothing,
}

impl Interaction {
    /// Whether the answer is a reply of a model, and not a failure or a count.
    pub(crate) fn is_reply(&self) -> bool {
        let counts = ["count_tokens", "input_tokens", ":countTokens", "/compact"];
        self.status == 200 && !counts.iter().any(|end| self.path.ends_with(end))
    }
}

/// The interactions of each file; none where there are no recordings.
pub(crate) fn files() -> Option<Vec<Vec<Interaction>>> {
    let next_to = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared");
    let shared = std::env::var("DORMOUSE_SHARED").unwrap_or_else(|_| next_to.to_owned());
    let folders = std::fs::read_dir(PathBuf::from(shared).join("data/wire")).ok()?;
    let mut files: Vec<_> = folders
        .filter_map(|folder| std::fs::read_dir(folder.ok()?.path()).ok())
        .flatten()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ext| ext == "yaml"))
        .collect();
    files.sort();
    let files: Vec<_> = files.iter().map(|file| interactions(file)).collect();
    Some(files).filter(|files| !files.is_empty())
}

fn interactions(file: &Path) -> Vec<Interaction> {
    let text = std::fs::read_to_string(file).unwrap();
    let recording: Value = serde_yaml_ng::from_str(&text).unwrap();
    let stem = file.file_stem().unwrap().to_string_lossy();
    let list = recording["interactions"].as_array().unwrap().iter();
    list.enumerate()
        .map(|(number, written)| read(format!("{stem}[{number}]"), written))
        .collect()
}

fn read(name: String, written: &Value) -> Interaction {
    let (request, response) = (&written["request"], &written["response"]);
    let uri = request["uri"].as_str().unwrap_or_default();
    let path = uri.split(['?', '#']).next().unwrap_or_default().to_owned();
    let is_post = request["method"]
        .as_str()
        .is_some_and(|method| method.eq_ignore_ascii_case("post"));
    let answer = match (
        &response["parsed_body"],
        response["body"]["string"].as_str(),
    ) {
        (Value::Null, None) => Answer::Nothing,
        (Value::Null, Some(text)) => match serde_json::from_str(text) {
            Ok(whole) => Answer::Whole(whole),
            Err(_) => Answer::Events(
                text.lines()
                    .filter_map(|line| serde_json::from_str(line.strip_prefix("data:")?).ok())
                    .collect(),
            ),
        },
        (whole, _) => Answer::Whole(whole.clone()),
    };
    Interaction {
        name,
        format: format_of(&path).filter(|_| is_post),
        path,
        asked: request["parsed_body"].clone(),
        status: response["status"]["code"].as_u64().unwrap_or_default(),
        answer,
    }
}

fn format_of(path: &str) -> Option<Format> {
    let is_one_of = |ends: &[&str]| ends.iter().any(|end| path.ends_with(end));
    if is_one_of(&["/messages", "/messages/count_tokens", "/invoke"]) {
        Some(Format::Anthropic)
    } else if is_one_of(&["/responses", "/responses/input_tokens"]) {
        Some(Format::Responses)
    } else if is_one_of(&["/chat/completions"]) {
        Some(Format::Chat)
    } else if is_one_of(&[":generateContent", ":streamGenerateContent"]) {
        Some(Format::Gemini)
    } else {
        None
    }
}
