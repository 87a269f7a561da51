//! What recorded models wanted of their tools for reading, searching and editing.
//!
//! The recordings are no part of the project. They are looked for in `$DORMOUSE_SHARED/data`, or in
//! a folder `shared` next to the folder of the project. Only what a call was for is taken from
//! them: ranges of lines, texts that were searched for, names of files, and texts that were
//! written.

use std::path::{Path, PathBuf};

use regex::Regex;
use serde_json::Value;

use super::Intent;

/// The longest text that a search of the test uses.
const MAX_QUERY_CHARS: usize = 60;

/// The wishes of all recordings, without repetition. `None` without recordings.
pub(super) fn intents() -> Option<Vec<Intent>> {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared");
    let shared = std::env::var("DORMOUSE_SHARED").unwrap_or_else(|_| beside.to_owned());
    let data = PathBuf::from(shared).join("data");
    let mut found = Vec::new();
    for folder in ["swe-agent", "swe-smith"] {
        for file in files(&data.join(folder), "traj") {
            let text = std::fs::read_to_string(&file).unwrap();
            let run: Value = serde_json::from_str(&text).unwrap();
            of_run(&run, &mut found);
        }
    }
    for folder in ["anthropic", "google", "openai"] {
        for file in files(&data.join("wire").join(folder), "yaml") {
            of_traffic(&std::fs::read_to_string(&file).unwrap(), &mut found);
        }
    }
    found.sort();
    found.dedup();
    Some(found).filter(|found| !found.is_empty())
}

fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let mut files: Vec<_> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .collect();
    files.sort();
    files
}

/// Calls of functions, and actions that are command lines.
fn of_run(run: &Value, found: &mut Vec<Intent>) {
    for message in run["history"].as_array().into_iter().flatten() {
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            let function = &call["function"];
            let arguments = match &function["arguments"] {
                Value::String(text) => serde_json::from_str(text).unwrap_or_default(),
                other => other.clone(),
            };
            of_call(
                function["name"].as_str().unwrap_or_default(),
                &arguments,
                found,
            );
        }
    }
    for step in run["trajectory"].as_array().into_iter().flatten() {
        of_command(step["action"].as_str().unwrap_or_default(), found);
    }
}

fn of_call(name: &str, arguments: &Value, found: &mut Vec<Intent>) {
    let text = |key: &str| arguments[key].as_str().map(str::to_owned);
    match name {
        "bash" => of_command(&text("command").unwrap_or_default(), found),
        "open" => found.push(match arguments["line_number"].as_u64() {
            Some(first) => Intent::ReadFrom { first },
            None => Intent::ReadAll,
        }),
        "edit" if arguments["start_line"].is_u64() => found.push(Intent::Mark {
            first: arguments["start_line"].as_u64().unwrap(),
            last: arguments["end_line"].as_u64().unwrap(),
        }),
        "insert" => found.extend(text("text").map(|text| Intent::Keep { text })),
        "find_file" => found.extend(text("file_name").map(Intent::search)),
        "edit" => found.extend(text("search").map(Intent::search)),
        "str_replace_editor" => {
            let range = arguments["view_range"].as_array();
            let line = |at: usize| range.and_then(|range| range[at].as_u64());
            found.extend(match (text("command").as_deref(), line(0), line(1)) {
                (Some("view"), Some(first), Some(last)) => Some(Intent::ReadLines { first, last }),
                (Some("view"), ..) => Some(Intent::ReadAll),
                (Some("create"), ..) => text("file_text").map(|text| Intent::Keep { text }),
                _ => text("old_str").map(Intent::search),
            });
            found.extend(text("path").map(|path| Intent::Export { path }));
        }
        _ => {}
    }
}

/// The parts of a command line that read, search or edit.
fn of_command(command: &str, found: &mut Vec<Intent>) {
    let pattern = |text: &str| Regex::new(text).unwrap();
    let number = |text: &str| text.parse().unwrap();
    let limit = pattern(r"\|\s*head -n? ?(\d+)").captures(command);
    for captures in pattern(r#"grep(?: -{1,2}[\w-]+(?:="[^"]*")?)* (?:"([^"]+)"|([\w.]+))"#)
        .captures_iter(command)
    {
        let query = captures.get(1).or(captures.get(2)).unwrap().as_str();
        match &limit {
            Some(limit) => found.push(Intent::SearchSome {
                query: query.to_owned(),
                most: number(&limit[1]),
            }),
            None => found.push(Intent::search(query.to_owned())),
        }
    }
    if let Some(open) = pattern(r"^open \S+ (\d+)").captures(command) {
        found.push(Intent::ReadFrom {
            first: number(&open[1]),
        });
    }
    if let Some(edit) = pattern(r"^edit (\d+):(\d+)").captures(command) {
        let (first, last) = (number(&edit[1]), number(&edit[2]));
        found.push(Intent::Mark { first, last });
    }
    if let Some(file) = pattern(r"^(?:open|create|cat) (\S+)").captures(command) {
        found.push(Intent::Export {
            path: file[1].trim_matches('"').to_owned(),
        });
    }
    if let Some(file) = pattern(r"^find_file (\S+)").captures(command) {
        found.push(Intent::search(file[1].trim_matches('"').to_owned()));
    }
}

/// The texts in arguments of recorded calls, which are searched for.
fn of_traffic(traffic: &str, found: &mut Vec<Intent>) {
    let arguments = Regex::new(r"(?m)arguments: '(\{[^']*\})'").unwrap();
    for captures in arguments.captures_iter(traffic) {
        let Ok(Value::Object(arguments)) = serde_json::from_str(&captures[1]) else {
            continue;
        };
        let texts = arguments.values().filter_map(Value::as_str);
        found.extend(texts.map(|text| Intent::search(text.to_owned())));
    }
}

impl Intent {
    /// A search for the first line of a text that has more than spaces.
    fn search(text: String) -> Self {
        let line = text.lines().find(|line| !line.trim().is_empty());
        let query = line.unwrap_or("x").trim().chars().take(MAX_QUERY_CHARS);
        Self::Search {
            query: query.collect(),
        }
    }
}
