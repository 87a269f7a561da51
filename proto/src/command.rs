//! Command tools: programs of the host that a program file declares as tools.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::program::{Keyword, Scalar, Scalars, Section, Size};
use crate::tool::{ToolPolicy, ToolSpec};

/// A checked command tool. No shell is involved: each element of `argv` becomes one argument,
/// whatever the model writes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    /// Name for the model.
    pub name: String,
    /// Description for the model.
    pub description: String,
    /// Program and arguments. An element may contain `{parameter}`; an element that is exactly
    /// `{parameter}` is omitted if the parameter has neither a value nor a default.
    pub argv: Vec<String>,
    /// Parameters for the model.
    pub parameters: Vec<Parameter>,
    /// Environment variables that are passed on, in addition to the few that every command gets.
    pub env: Vec<String>,
    /// Access, idempotence and limits of its calls.
    pub policy: ToolPolicy,
    /// Resource limits of one run.
    pub limits: CommandLimits,
}

/// The resource limits of one run of a command, or of a tool server that is a program. The
/// operating system enforces them.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Section,
)]
pub struct CommandLimits {
    /// The memory that one process of a command, or of a tool server, may write to.
    #[key(name = "command_memory", with = Size, default = 8_000_000_000, range = 1..=TERABYTE)]
    pub memory_bytes: u64,
    /// The most processes of a command that run at the same time, the command included.
    #[key(name = "command_processes", default = 1_000, range = 1..=100_000, last)]
    pub processes: u32,
    /// The size of the largest file that a command may write.
    #[key(name = "command_file_size", with = Size, default = 16_000_000_000, range = 1..=TERABYTE)]
    pub file_bytes: u64,
    /// The most files that one process of a command may hold open.
    #[key(name = "command_open_files", default = 4_096, range = 1..=1_000_000, last)]
    pub open_files: u32,
}

const TERABYTE: u64 = 1_000_000_000_000;

impl Command {
    /// The specification for the model, with the parameters as a JSON schema.
    #[must_use]
    pub fn spec(&self) -> ToolSpec {
        let properties: Map<_, _> = self
            .parameters
            .iter()
            .map(|parameter| (parameter.name.clone(), parameter.to_schema()))
            .collect();
        let required: Vec<_> = self
            .parameters
            .iter()
            .filter(|parameter| parameter.is_required())
            .map(|parameter| &parameter.name)
            .collect();
        let schema = json!({
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": false,
        });
        ToolSpec {
            name: self.name.as_str().into(),
            description: self.description.as_str().into(),
            schema: schema.to_string().into(),
        }
    }
}

/// A parameter of a command tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Section)]
#[section(check = Parameter::check_choices, expected = "a table with `type` and `description`")]
pub struct Parameter {
    /// Its name.
    #[key(skip)]
    pub name: String,
    /// The type of the value.
    #[key(name = "type", required)]
    pub kind: ParameterKind,
    /// What the parameter means, for the model.
    pub description: String,
    /// The value if the model gives none, of the parameter's type. A parameter that has no default
    /// and is not `optional` must be given.
    #[key(with = Scalar, last)]
    pub default: Option<String>,
    /// Whether the model may leave the parameter out. An argument that is exactly its placeholder
    /// is then left out too.
    pub optional: bool,
    /// The valid values, of the parameter's type; if the key is not given, any value is valid.
    #[key(with = Scalars, last)]
    pub choices: Vec<String>,
}

impl Parameter {
    /// Whether a call must provide a value.
    #[must_use]
    pub fn is_required(&self) -> bool {
        self.default.is_none() && !self.optional
    }

    fn to_schema(&self) -> Value {
        let mut schema = json!({ "type": self.kind, "description": self.description });
        if let Some(default) = &self.default {
            schema["default"] = json!(default);
        }
        if !self.choices.is_empty() {
            schema["enum"] = json!(self.choices);
        }
        schema
    }
}

/// Types of parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, Keyword)]
#[serde(rename_all = "lowercase")]
pub enum ParameterKind {
    /// Text. A value that begins with `-` is refused where the whole argument is the parameter, so
    /// that it cannot pose as an option.
    #[default]
    String,
    /// A whole number.
    Integer,
    /// A number.
    Number,
    /// `true` or `false`.
    Boolean,
}
