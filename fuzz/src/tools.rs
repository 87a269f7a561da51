//! The descriptor tools, and calls of them that are often valid: each key is one of the tool's
//! schema, each value mostly of its type.

use std::sync::LazyLock;

use arbitrary::Arbitrary;
use dormouse_kernel::syscall::{Handler, Syscall, TOOLS, Tool};
use serde_json::{Map, Value, json};

/// Every tool that takes a table and arguments, with the schema of these.
static ALL: LazyLock<Vec<(Syscall, Value)>> = LazyLock::new(|| {
    let of = |tool: &Tool| match tool.handler {
        Handler::Table(syscall) => Some((syscall, tool.schema())),
        Handler::Process(_) => None,
    };
    TOOLS.iter().filter_map(of).collect()
});

/// The tool of this number; any number is one's.
#[must_use]
pub fn tool(number: u8) -> Syscall {
    ALL[usize::from(number) % ALL.len()].0
}

/// A call of a descriptor tool.
#[derive(Arbitrary, Debug)]
pub struct Call<'a> {
    tool: u8,
    fd: u8,
    given: Vec<(u8, Given<'a>)>,
}

/// A value, to be made one of the type that its key has.
#[derive(Arbitrary, Debug)]
enum Given<'a> {
    Small(u8),
    Wide(i64),
    Quoted(u16),
    Text(&'a str),
    Listed(u8),
    Null,
}

const FDS: [&str; 8] = [
    "fd:1", "fd-2", "*", "fd:4", "the log", "fd:6", "ref:plan", "fd:9",
];

/// Texts that calls are made of, in addition to those that the fuzzer generates.
const TEXTS: [&str; 10] = [
    "out.txt",
    "line",
    "char",
    "a",
    "😀",
    "\\w+",
    "(?s).",
    "<fd_error>",
    "temp:1",
    "the log",
];

impl Call<'_> {
    /// The tool that is called.
    #[must_use]
    pub fn tool(&self) -> Syscall {
        tool(self.tool)
    }

    /// The arguments as a model would write them.
    #[must_use]
    pub fn arguments(&self) -> String {
        let (_, schema) = &ALL[usize::from(self.tool) % ALL.len()];
        let properties: Vec<_> = schema["properties"]
            .as_object()
            .expect("it has properties")
            .iter()
            .collect();
        let fd = FDS[usize::from(self.fd) % FDS.len()];
        let takes_fd = schema["properties"].get("fd").is_some();
        let mut arguments: Map<_, _> = takes_fd
            .then(|| ("fd".to_owned(), json!(fd)))
            .into_iter()
            .collect();
        for required in schema["required"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
        {
            arguments.entry(required).or_insert_with(|| json!("a"));
        }
        for (key, given) in &self.given {
            let (key, property) = properties[usize::from(*key) % properties.len()];
            arguments.insert(key.clone(), given.value(property));
        }
        Value::Object(arguments).to_string()
    }
}

impl Given<'_> {
    fn value(&self, property: &Value) -> Value {
        match (self, property["type"].as_str()) {
            (Self::Small(number), Some("boolean")) => json!(number % 2 == 0),
            (Self::Quoted(number), Some("boolean")) => json!((number % 2 == 0).to_string()),
            (Self::Small(number) | Self::Listed(number), Some("string")) => {
                listed(property, (*number).into())
            }
            (Self::Small(number) | Self::Listed(number), _) => json!(number),
            (Self::Wide(number), _) => json!(number),
            (Self::Quoted(number), _) => json!(number.to_string()),
            (Self::Text(text), _) => json!(text),
            (Self::Null, _) => Value::Null,
        }
    }
}

fn listed(property: &Value, at: usize) -> Value {
    match property["enum"].as_array() {
        Some(words) => words[at % words.len()].clone(),
        None => json!(TEXTS[at % TEXTS.len()]),
    }
}
