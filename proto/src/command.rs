//! Command tools: programs of the host that a program file declares as tools.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

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

/// Resource limits for one run of a command, or for a tool server that is a program. The operating
/// system enforces them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CommandLimits {
    /// Writable memory of one of its processes, in bytes.
    pub memory_bytes: u64,
    /// Simultaneous processes, including the command itself.
    pub processes: u32,
    /// Size of a file that it writes, in bytes.
    pub file_bytes: u64,
    /// Open files of one of its processes.
    pub open_files: u32,
}

impl Default for CommandLimits {
    fn default() -> Self {
        Self {
            memory_bytes: 8_000_000_000,
            processes: 1_000,
            file_bytes: 16_000_000_000,
            open_files: 4_096,
        }
    }
}

impl Command {
    /// The specification for the model, with the parameters as a JSON schema.
    #[must_use]
    pub fn spec(&self) -> ToolSpec {
        let properties: Map<_, _> = self
            .parameters
            .iter()
            .map(|p| (p.name.clone(), p.schema()))
            .collect();
        let required: Vec<_> = self
            .parameters
            .iter()
            .filter(|p| p.is_required())
            .map(|p| &p.name)
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parameter {
    /// Name of the parameter.
    pub name: String,
    /// Type of the value.
    pub kind: ParameterKind,
    /// Description for the model.
    pub description: String,
    /// Default value; a parameter without one is required unless it is optional.
    pub default: Option<String>,
    /// Whether it may be omitted.
    pub optional: bool,
    /// Permitted values; empty: any value of the type.
    pub choices: Vec<String>,
}

impl Parameter {
    /// Whether a call must provide a value.
    #[must_use]
    pub fn is_required(&self) -> bool {
        self.default.is_none() && !self.optional
    }

    fn schema(&self) -> Value {
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ParameterKind {
    /// Text. A value that begins with `-` is refused if the parameter is the whole argument, so
    /// that it cannot act as an option.
    String,
    /// A whole number.
    Integer,
    /// A number.
    Number,
    /// `true` or `false`.
    Boolean,
}
