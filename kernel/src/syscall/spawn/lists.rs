//! Parses the lists of files and temporary files in the arguments of `spawn`.

use dormouse_proto::temp_file::TempId;
use serde_json::Value;

use super::super::Refusal;
use super::super::args::Args;
use super::super::transferred::check_list_length;

/// Parses a list of distinct texts. `what` describes an item in errors.
pub(super) fn texts(args: &Args, key: &str, what: &str) -> Result<Vec<String>, Refusal> {
    let mut texts = Vec::new();
    for item in check_list_length(key, args.list(key))? {
        match item {
            Value::String(text) if text.is_empty() => {
                return Err(format!("'{key}' holds an empty string: give {what}.").into());
            }
            Value::String(text) if texts.contains(text) => {
                return Err(format!("'{key}' names '{text}' twice.").into());
            }
            Value::String(text) => texts.push(text.clone()),
            other => {
                return Err(format!(
                    "'{key}' must be a list of strings, each {what}, and holds {other}."
                )
                .into());
            }
        }
    }
    Ok(texts)
}

/// Parses a list of distinct temporary files.
pub(super) fn temp_files(args: &Args, key: &str) -> Result<Vec<TempId>, Refusal> {
    const WHAT: &str = "the id of a temporary file";
    let mut files = Vec::new();
    for name in texts(args, key, WHAT)? {
        let file = name
            .parse()
            .map_err(|_| format!("'{name}' is not a temporary file: expected {WHAT}, temp:N."))?;
        if files.contains(&file) {
            return Err(format!("'{key}' names {file} twice.").into());
        }
        files.push(file);
    }
    Ok(files)
}
