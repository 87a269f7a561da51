//! `[[tools.command]]`: programs of the host as tools.

use toml::de::DeValue;

use super::amount::read_amount;
use super::reader::{Node, Reader, integer};
use super::tools::ACCESS;
use super::{At, Remark, Span, parse_bytes, parse_duration_ms};
use crate::command::{Parameter, ParameterKind};
use crate::tool::ToolPolicy;

const KINDS: [(&str, ParameterKind); 4] = [
    ("string", ParameterKind::String),
    ("integer", ParameterKind::Integer),
    ("number", ParameterKind::Number),
    ("boolean", ParameterKind::Boolean),
];

const MOST_PARAMETERS: usize = 64;

/// A command as it is written. Whether its placeholders and names fit together is checked when it
/// is compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandSection {
    /// The name that the model calls it by.
    pub name: At<String>,
    /// What it does.
    pub description: String,
    /// The program and its arguments, with placeholders; none: it is missing or no list, which has
    /// been remarked on.
    pub argv: Option<Vec<At<String>>>,
    /// The parameters, in the order written.
    pub parameters: Vec<ParameterSection>,
    /// Names of environment variables that are handed on.
    pub env: Vec<At<String>>,
    /// How it is run.
    pub policy: ToolPolicy,
    /// The place of the whole declaration.
    pub span: Span,
}

/// A parameter of a command as it is written: its default and its choices are of its type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParameterSection {
    /// The place of its name.
    pub span: Span,
    /// The parameter.
    pub parameter: Parameter,
}

pub(super) fn read(mut section: Reader<'_>) -> CommandSection {
    let command = CommandSection {
        name: section.required_text("name"),
        description: section.required_text("description").value,
        argv: argv(&mut section),
        parameters: parameters(&mut section),
        env: section.texts("env"),
        policy: policy(&mut section),
        span: section.span(),
    };
    section.finish();
    command
}

fn argv(section: &mut Reader<'_>) -> Option<Vec<At<String>>> {
    let Some(node) = section.get("argv") else {
        section.required_text("argv");
        return None;
    };
    let arguments = section.texts("argv");
    node.get_ref().is_array().then_some(arguments)
}

fn policy(section: &mut Reader<'_>) -> ToolPolicy {
    let default = ToolPolicy::default();
    ToolPolicy {
        access: section
            .word("access", &ACCESS)
            .map_or(default.access, |access| access.value),
        idempotent: section
            .flag("idempotent")
            .map_or(default.idempotent, |flag| flag.value),
        deadline_ms: read_amount(section, "deadline", parse_duration_ms, 1_000)
            .unwrap_or(default.deadline_ms),
        output_cap_bytes: read_amount(section, "output_cap", parse_bytes, 1)
            .unwrap_or(default.output_cap_bytes),
    }
}

fn parameters(section: &mut Reader<'_>) -> Vec<ParameterSection> {
    let mut parameters = Vec::new();
    let Some(node) = section.get("parameters") else {
        return parameters;
    };
    let count = node.get_ref().as_table().map_or(0, |table| table.len());
    if !section.is_within("parameters", node, count, MOST_PARAMETERS) {
        return parameters;
    }
    let Some(mut table) = section.section("parameters") else {
        return parameters;
    };
    for (name, node) in table.entries() {
        match node.get_ref() {
            DeValue::Table(inner) => {
                let reader = table.inner(&name.value, inner, node.span());
                parameters.push(parameter(name, reader));
            }
            _ => table.wrong_type(&name.value, node, "a table with `type` and `description`"),
        }
    }
    parameters
}

fn parameter(name: At<String>, mut section: Reader<'_>) -> ParameterSection {
    let kind = kind(&mut section);
    let description = section
        .text("description")
        .map(|text| text.value)
        .unwrap_or_default();
    let optional = section.flag("optional").is_some_and(|flag| flag.value);
    let default = section
        .get("default")
        .and_then(|node| scalar(&mut section, "default", kind, node));
    let choices = choices(&mut section, kind);
    if let Some(default) = &default
        && !choices.is_empty()
        && !choices.contains(&default.value)
    {
        let message = format!("`{}` is none of the choices", section.path_of("default"));
        let remark = Remark::error(default.span.clone(), message, "not a choice");
        section.remark(remark.help(format!("choices: {}", choices.join(", "))));
    }
    section.finish();
    let default = default.map(|default| default.value);
    ParameterSection {
        span: name.span,
        parameter: Parameter {
            name: name.value,
            kind,
            description,
            default,
            optional,
            choices,
        },
    }
}

fn kind(section: &mut Reader<'_>) -> ParameterKind {
    if section.get("type").is_none() {
        section.required_text("type");
    }
    section
        .word("type", &KINDS)
        .map_or(ParameterKind::String, |kind| kind.value)
}

fn choices(section: &mut Reader<'_>, kind: ParameterKind) -> Vec<String> {
    let Some(node) = section.get("choices") else {
        return Vec::new();
    };
    let Some(list) = node.get_ref().as_array() else {
        section.wrong_type("choices", node, "a list");
        return Vec::new();
    };
    if list.is_empty() {
        let message = format!(
            "`{}` is empty: nothing could be chosen",
            section.path_of("choices")
        );
        section.remark(
            Remark::error(node.span(), message, "no choices")
                .help("leave the key out: any value is valid"),
        );
    }
    let values = list
        .iter()
        .filter_map(|item| scalar(section, "choices", kind, item));
    values.map(|choice| choice.value).collect()
}

/// A value of the parameter's type, as the text that stands in the argument.
fn scalar(
    section: &mut Reader<'_>,
    key: &str,
    kind: ParameterKind,
    node: Node<'_>,
) -> Option<At<String>> {
    let value = match (kind, node.get_ref()) {
        (ParameterKind::String, DeValue::String(text)) => text.to_string(),
        (ParameterKind::Boolean, DeValue::Boolean(flag)) => flag.to_string(),
        (ParameterKind::Integer | ParameterKind::Number, DeValue::Integer(number)) => {
            match integer(number) {
                Some(number) => number.to_string(),
                None => {
                    section.out_of_range(key, node, "whole numbers of up to 64 bits");
                    return None;
                }
            }
        }
        (ParameterKind::Number, DeValue::Float(number)) if is_finite(number.as_str()) => {
            number.as_str().to_owned()
        }
        _ => {
            section.wrong_type(key, node, &format!("{}, the parameter's type", word(kind)));
            return None;
        }
    };
    Some(At {
        value,
        span: node.span(),
    })
}

fn is_finite(number: &str) -> bool {
    number.parse::<f64>().is_ok_and(f64::is_finite)
}

fn word(kind: ParameterKind) -> &'static str {
    match kind {
        ParameterKind::String => "a string",
        ParameterKind::Integer => "an integer",
        ParameterKind::Number => "a number",
        ParameterKind::Boolean => "a boolean",
    }
}
