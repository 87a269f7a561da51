//! Checks `[result]` and compiles its schema.

use dormouse_proto::program::{Diagnostic, ResultSection, SchemaSource, Span, ToolEntry};
use serde_json::Value;

use super::compile::Compilation;
use super::value_schema::{SchemaError, ValueSchema};

/// The name of the kernel's tool that submits a result.
const SUBMIT_RESULT: &str = "submit_result";

/// The typed result that a program asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResultChoice {
    /// The schema of the result; `None` if a process ends with a text, unless its parent asks for a
    /// result.
    pub schema: Option<ValueSchema>,
    /// How many attempts a model has in a turn.
    pub attempts: u32,
    /// Whether the provider has to make the result valid, if it can.
    pub strict: bool,
}

/// Compiles the schema. Reports a schema that is not valid at its place.
pub(super) fn check(
    section: &ResultSection,
    enabled: &[ToolEntry],
    compilation: &mut Compilation<'_>,
) -> ResultChoice {
    let schema = match &section.schema {
        Some(source) => compile(source, compilation),
        None => {
            warn_of_tool_without_schema(enabled, compilation);
            None
        }
    };
    ResultChoice {
        schema,
        attempts: section.attempts,
        strict: section.strict,
    }
}

fn compile(source: &SchemaSource, compilation: &mut Compilation<'_>) -> Option<ValueSchema> {
    let parsed = match source {
        SchemaSource::Inline { schema, .. } => {
            let schema = Value::Object(schema.clone());
            ValueSchema::parse(schema).map_err(|error| in_schema(source, "`result.schema`", &error))
        }
        SchemaSource::File(path) => {
            let (name, text) = compilation.read_named_text(path)?;
            match serde_json::from_str(&text) {
                Ok(schema) => {
                    ValueSchema::parse(schema).map_err(|error| in_schema(source, &name, &error))
                }
                Err(error) => {
                    let wrong = path.error(format!("{name} is not JSON: {error}"), "named here");
                    Err(wrong.help("name a file that holds a JSON Schema"))
                }
            }
        }
    };
    parsed
        .map_err(|diagnostic| compilation.diagnostics.push(diagnostic))
        .ok()
}

fn in_schema(source: &SchemaSource, named: &str, error: &SchemaError) -> Diagnostic {
    let SchemaError { at, message, help } = error;
    let place = if at.is_empty() {
        String::new()
    } else {
        format!(" at {at}")
    };
    let message = format!("{named} is not valid{place}: {message}");
    let span: Span = source.span_at(at);
    Diagnostic::error(span, message, "in this schema").help(help.clone())
}

fn warn_of_tool_without_schema(enabled: &[ToolEntry], compilation: &mut Compilation<'_>) {
    let mut tools = enabled.iter();
    if let Some(tool) = tools.find(|tool| tool.name.value == SUBMIT_RESULT) {
        let message = "`submit_result` is enabled, but no result is asked for";
        let warning = Diagnostic::warning(tool.span.clone(), message, "not given to the model");
        let help = "add a schema: `[result] schema = { type = \"object\", … }`. A process that is \
                    spawned with `result_schema` gets the tool without being told here";
        compilation.diagnostics.push(warning.help(help));
    }
}
