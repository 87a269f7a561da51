//! Command tools: programs of the host that a program file declares as tools.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::tool::{ToolPolicy, ToolSpec};

/// A command tool, checked. No shell is involved: each element of `argv` is one argument, whatever
/// the model writes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    /// The name that the model calls it by.
    pub name: String,
    /// What it does.
    pub description: String,
    /// The program and its arguments. An element may hold `{parameter}`; one that is exactly
    /// `{parameter}` of a parameter which is neither given nor has a default is left out.
    pub argv: Vec<String>,
    /// The parameters that the model may give.
    pub parameters: Vec<Parameter>,
    /// Names of environment variables that are handed on, beyond the few that every command gets.
    pub env: Vec<String>,
    /// How it is run.
    pub policy: ToolPolicy,
    /// What one run of it may use of the machine.
    pub limits: CommandLimits,
}

/// What one run of a command, or of a tool server that is a program, may use of the machine. The
/// operating system holds it to that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CommandLimits {
    /// Memory that one of its processes may write to, in bytes.
    pub memory_bytes: u64,
    /// Processes that run at the same time, the command included.
    pub processes: u32,
    /// The size of a file that it writes, in bytes.
    pub file_bytes: u64,
    /// Files that one of its processes holds open.
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
    /// What a model is told of it: the parameters as a JSON schema.
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
    /// Its name.
    pub name: String,
    /// Its type.
    pub kind: ParameterKind,
    /// What it means.
    pub description: String,
    /// Its value where the model gives none; without one it must be given, unless it is optional.
    pub default: Option<String>,
    /// Whether it may be left out.
    pub optional: bool,
    /// The values it may take; empty: any of its type.
    pub choices: Vec<String>,
}

impl Parameter {
    /// Whether a call must give it.
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
    /// Text. A value that begins with `-` is refused where the whole argument is the parameter, so
    /// that it cannot pose as an option.
    String,
    /// A whole number.
    Integer,
    /// A number.
    Number,
    /// `true` or `false`.
    Boolean,
}
