//! The table `[parameters]`, which requests pass to the model's provider unchanged, as JSON.
//!
//! `program.rs` says what `Value`, `Reader` and `Node` are.

use serde_json::{Map, Number, Value as Json, json};
use toml::de::DeValue;

use super::reader::integer;
use super::{Diagnostic, Node, Reader, Rules, Value};

impl Value for Map<String, Json> {
    const EXPECTED: &'static str = "a table";

    fn read(table: &mut Reader<'_>, key: &str, node: Node<'_>, rules: &Rules) -> Option<Self> {
        let DeValue::Table(inner) = node.get_ref() else {
            table.report_wrong_type(key, node, rules.expected::<Self>());
            return None;
        };
        Some(to_object(&mut table.nested(key, inner, node.span())))
    }

    fn schema(_rules: &Rules) -> Json {
        json!({ "type": "object" })
    }
}

fn to_object(table: &mut Reader<'_>) -> Map<String, Json> {
    let entries = table.entries().into_iter();
    let entries = entries.filter_map(|(key, node)| {
        let value = to_json(table, &key.value, node)?;
        Some((key.value, value))
    });
    entries.collect()
}

/// Converts a value to JSON. A value that JSON does not have is reported. The parser has bounded
/// the nesting, so the recursion is bounded too.
pub(super) fn to_json(table: &mut Reader<'_>, key: &str, node: Node<'_>) -> Option<Json> {
    match node.get_ref() {
        DeValue::String(text) => Some(json!(text)),
        DeValue::Boolean(flag) => Some(json!(flag)),
        DeValue::Integer(number) => {
            let json = integer(number).and_then(Number::from_i128);
            checked_number(table, key, node, json, "whole numbers of up to 64 bits")
        }
        DeValue::Float(number) => {
            let json = number.as_str().parse().ok().and_then(Number::from_f64);
            checked_number(table, key, node, json, "finite numbers")
        }
        DeValue::Datetime(_) => {
            let path = table.path_of(key);
            let message = format!("`{path}` is a date, which the provider's JSON cannot carry");
            let date = Diagnostic::error(node.span(), message, "a date");
            table.report(date.help("write it as a string, in quotes"));
            None
        }
        DeValue::Array(list) => {
            let items = list.iter().filter_map(|item| to_json(table, key, item));
            Some(Json::Array(items.collect()))
        }
        DeValue::Table(inner) => Some(Json::Object(to_object(&mut table.nested(
            key,
            inner,
            node.span(),
        )))),
    }
}

fn checked_number(
    table: &mut Reader<'_>,
    key: &str,
    node: Node<'_>,
    number: Option<Number>,
    valid: &str,
) -> Option<Json> {
    if number.is_none() {
        table.report_out_of_range(key, node, valid);
    }
    number.map(Json::Number)
}
