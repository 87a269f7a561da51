//! The shape of a request: which fields it has, and of which types.

use std::collections::BTreeSet;

use serde_json::Value;

/// Fields whose content is not the format's: schemas, arguments, what a program says.
const OPAQUE: [&str; 7] = [
    "input_schema",
    "parameters",
    "parametersJsonSchema",
    "args",
    "arguments",
    "response",
    "additionalProperties",
];

/// The shapes of a value: a path and a type for each field. Elements of a list are told apart by
/// their `type` or `role`.
pub(crate) fn shapes(value: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    gather(value, String::new(), &mut found);
    found
}

fn gather(value: &Value, path: String, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                let path = format!("{path}.{}", canonical(name));
                match OPAQUE.contains(&name.as_str()) || name == "parameters_json_schema" {
                    true => drop(found.insert(format!("{path}: {}", kind(field)))),
                    false => gather(field, path, found),
                }
            }
        }
        Value::Array(elements) => {
            for element in elements {
                let word = element["type"]
                    .as_str()
                    .or(element["role"].as_str())
                    .unwrap_or_default();
                gather(element, format!("{path}[{word}]"), found);
            }
        }
        leaf => drop(found.insert(format!("{path}: {}", kind(leaf)))),
    }
}

/// Google's servers take either spelling.
fn canonical(name: &str) -> String {
    let mut parts = name.split('_');
    let first = parts.next().unwrap_or_default().to_owned();
    if !name.contains("json_schema") && !matches!(name, "function_declarations" | "tool_type") {
        return name.to_owned();
    }
    parts.fold(first, |name, part| {
        name + &part[..1].to_uppercase() + &part[1..]
    })
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "list",
        Value::Object(_) => "object",
    }
}
