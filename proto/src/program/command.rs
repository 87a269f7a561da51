//! `[[tools.command]]`: programs of the host as tools.
//!
//! `program.rs` says what `Section`, `Value` and `Reader` are.

use serde_json::{Value as Json, json};
use toml::de::DeValue;

use super::reader::integer;
use super::{Diagnostic, Keyword, Named, Node, Reader, Rules, Section, Span, Value, WithSpan};
use crate::command::{Parameter, ParameterKind};
use crate::tool::ToolPolicy;

/// A command as it is written. Whether its placeholders and names fit together is checked when it
/// is compiled.
#[derive(Clone, Debug, PartialEq, Eq, Section)]
#[section(
    expected = "a table: `[[tools.command]]`",
    list = "a list of tables: `[[tools.command]]`"
)]
pub struct CommandSection {
    /// The name that the model calls the command by: 1 to 64 of A-Z, a-z, 0-9, _ and -.
    #[key(required)]
    pub name: WithSpan<String>,
    /// What the command does and when to use it, for the model.
    #[key(required)]
    pub description: String,
    /// The program and its arguments. `{NAME}` in an argument stands for the value of the parameter
    /// of that name; the program itself must not hold one.
    #[key(required)]
    pub argv: Option<Vec<WithSpan<String>>>,
    /// The parameters that the model may give, by name. Each must be used in `argv`.
    #[key(max_items = 64)]
    pub parameters: Vec<Named<Parameter>>,
    /// Names of environment variables that are handed on, beyond the few that every command gets.
    /// The user has to permit each.
    pub env: Vec<WithSpan<String>>,
    /// How it is run.
    #[key(flatten)]
    pub policy: ToolPolicy,
    /// The place of the whole declaration.
    #[key(span)]
    pub span: Span,
}

impl Parameter {
    /// Checks that the choices are not empty and that the default is one of them.
    pub(crate) fn check_choices(self, table: &mut Reader<'_>) -> Option<Self> {
        if let Some(default) = &self.default
            && !self.choices.is_empty()
            && !self.choices.contains(default)
        {
            let message = format!("`{}` is not one of the choices", table.path_of("default"));
            let span = table.span_of("default").unwrap_or_default();
            let wrong = Diagnostic::error(span, message, "not a choice");
            table.report(wrong.help(format!("choices: {}", self.choices.join(", "))));
        }
        if let Some(node) = table.node("choices")
            && node
                .get_ref()
                .as_array()
                .is_some_and(|list| list.is_empty())
        {
            let path = table.path_of("choices");
            let message = format!("`{path}` is empty: nothing could be chosen");
            let empty = Diagnostic::error(node.span(), message, "no choices");
            table.report(empty.help("leave the key out: any value is valid"));
        }
        Some(self)
    }
}

/// The text of a value whose type is named by the key `type` of the same table.
pub(crate) struct Scalar(pub(crate) String);

/// A list of such values.
pub(crate) struct Scalars(pub(crate) Vec<String>);

impl Value for Scalar {
    const EXPECTED: &'static str = "a value of the parameter's type";

    fn read(table: &mut Reader<'_>, key: &str, node: Node<'_>, _rules: &Rules) -> Option<Self> {
        let kind = table.node("type").and_then(|word| word.get_ref().as_str());
        let kind = kind.and_then(ParameterKind::from_word).unwrap_or_default();
        let text = match (kind, node.get_ref()) {
            (ParameterKind::String, DeValue::String(text)) => text.to_string(),
            (ParameterKind::Boolean, DeValue::Boolean(flag)) => flag.to_string(),
            (ParameterKind::Integer | ParameterKind::Number, DeValue::Integer(number)) => {
                let Some(number) = integer(number) else {
                    table.report_out_of_range(key, node, "whole numbers of up to 64 bits");
                    return None;
                };
                number.to_string()
            }
            (ParameterKind::Number, DeValue::Float(number)) if is_finite(number.as_str()) => {
                number.as_str().to_owned()
            }
            _ => {
                let expected = format!("{}, the parameter's type", parameter_type_phrase(kind));
                table.report_wrong_type(key, node, &expected);
                return None;
            }
        };
        Some(Self(text))
    }

    fn schema(_rules: &Rules) -> Json {
        json!({ "type": ["string", "number", "boolean"] })
    }
}

impl Value for Scalars {
    const EXPECTED: &'static str = Scalar::LIST;

    fn read(table: &mut Reader<'_>, key: &str, node: Node<'_>, rules: &Rules) -> Option<Self> {
        let list: Vec<Scalar> = Vec::read(table, key, node, rules)?;
        Some(Self(list.into_iter().map(|Scalar(text)| text).collect()))
    }

    fn schema(rules: &Rules) -> Json {
        Vec::<Scalar>::schema(rules)
    }
}

fn is_finite(number: &str) -> bool {
    number.parse::<f64>().is_ok_and(f64::is_finite)
}

fn parameter_type_phrase(kind: ParameterKind) -> &'static str {
    match kind {
        ParameterKind::String => "a string",
        ParameterKind::Integer => "an integer",
        ParameterKind::Number => "a number",
        ParameterKind::Boolean => "a boolean",
    }
}
