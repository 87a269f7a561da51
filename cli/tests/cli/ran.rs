//! What the program printed, and its exit code.

use std::process::Output;

use serde_json::Value;

/// What the program printed, and its exit code.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Self {
            code: output.status.code().unwrap(),
            out: text(output.stdout),
            err: text(output.stderr),
        }
    }
}

impl Ran {
    /// Standard output as JSON, one object a line.
    pub(crate) fn json_lines(&self) -> Vec<Value> {
        let lines = self.out.lines().map(|line| {
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
        });
        lines.collect()
    }
}
