//! Command tools: programs of the host that a program file declares as tools.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value, json};

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

    /// The arguments of a call as the command takes them: in the types of its parameters, without
    /// nulls, and with the defaults of parameters that are not given. O(n).
    #[must_use]
    pub fn canonical_arguments(&self, args: &Map<String, Value>) -> Map<String, Value> {
        let given = args.iter().filter(|(_, value)| !value.is_null());
        let mut taken: Map<_, _> = given
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        for parameter in &self.parameters {
            let text = match taken.get(&parameter.name) {
                Some(Value::String(text)) => Some(text),
                Some(_) => None,
                None => parameter.default.as_ref(),
            };
            if let Some(value) = text.map(|text| parameter.typed(text)) {
                taken.insert(parameter.name.clone(), value);
            }
        }
        taken
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
            schema["default"] = self.typed(default);
        }
        if !self.choices.is_empty() {
            let choices = self.choices.iter().map(|choice| self.typed(choice));
            schema["enum"] = choices.collect();
        }
        schema
    }

    /// The value of the parameter's type that a text stands for; the text itself if it stands for
    /// none.
    #[must_use]
    pub fn typed(&self, text: &str) -> Value {
        let typed = match self.kind {
            ParameterKind::String => None,
            ParameterKind::Integer => integer(text),
            ParameterKind::Number => integer(text).or_else(|| {
                let number = text.parse::<f64>().ok().and_then(Number::from_f64);
                number.map(Value::Number)
            }),
            ParameterKind::Boolean => text.parse::<bool>().ok().map(Value::Bool),
        };
        typed.unwrap_or_else(|| text.into())
    }
}

/// An integer of up to 64 bits.
fn integer(text: &str) -> Option<Value> {
    let signed = text.parse::<i64>().ok().map(Value::from);
    signed.or_else(|| text.parse::<u64>().ok().map(Value::from))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn parameter(kind: ParameterKind, default: &str, choices: &[&str]) -> Parameter {
        Parameter {
            name: "p".to_owned(),
            kind,
            description: String::new(),
            default: Some(default.to_owned()),
            optional: false,
            choices: choices.iter().map(|choice| (*choice).to_owned()).collect(),
        }
    }

    /// A value that a schema lists has the type that the schema names, so that it is valid.
    #[test]
    fn a_schema_has_defaults_and_choices_of_the_type() {
        let cases = [
            (
                ParameterKind::String,
                "1",
                &["1", "2"][..],
                json!("1"),
                json!(["1", "2"]),
            ),
            (
                ParameterKind::Integer,
                "10",
                &["10", "-5"],
                json!(10),
                json!([10, -5]),
            ),
            (
                ParameterKind::Number,
                "1.50",
                &["1.50", "2"],
                json!(1.5),
                json!([1.5, 2]),
            ),
            (
                ParameterKind::Boolean,
                "true",
                &["true"],
                json!(true),
                json!([true]),
            ),
        ];
        for (kind, default, choices, typed_default, typed_choices) in cases {
            let schema = parameter(kind, default, choices).to_schema();
            assert_eq!(schema["default"], typed_default, "{kind:?}");
            assert_eq!(schema["enum"], typed_choices, "{kind:?}");
        }
    }

    #[test]
    fn a_call_has_the_types_and_defaults_that_the_command_takes() {
        let command = Command {
            name: "c".to_owned(),
            description: String::new(),
            argv: vec!["c".to_owned(), "{p}".to_owned()],
            parameters: vec![parameter(ParameterKind::Integer, "10", &[])],
            env: Vec::new(),
            policy: ToolPolicy::default(),
            limits: CommandLimits {
                memory_bytes: 1,
                processes: 1,
                file_bytes: 1,
                open_files: 1,
            },
        };
        let cases = [
            (json!({}), json!({ "p": 10 })),
            (json!({ "p": null }), json!({ "p": 10 })),
            (json!({ "p": "007" }), json!({ "p": 7 })),
            (json!({ "p": 7, "q": "7" }), json!({ "p": 7, "q": "7" })),
            (json!({ "p": "many" }), json!({ "p": "many" })),
        ];
        for (args, expected) in cases {
            let object = args.as_object().unwrap();
            assert_eq!(
                Value::from(command.canonical_arguments(object)),
                expected,
                "{args}"
            );
        }
    }
}
