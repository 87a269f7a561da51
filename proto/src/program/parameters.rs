//! `[parameters]`: passed to the model's provider as they stand, as JSON.

use serde_json::{Map, Number, Value};
use toml::de::DeValue;

use super::Remark;
use super::reader::{Node, Reader, integer};

pub(super) fn read(root: &mut Reader<'_>) -> Map<String, Value> {
    let Some(mut section) = root.section("parameters") else {
        return Map::new();
    };
    object(&mut section)
}

fn object(section: &mut Reader<'_>) -> Map<String, Value> {
    let entries = section.entries();
    entries
        .into_iter()
        .filter_map(|(key, node)| Some((key.value.clone(), value(section, &key.value, node)?)))
        .collect()
}

/// The value as JSON; remarked on where JSON has none. The depth is bounded by the parser.
fn value(section: &mut Reader<'_>, key: &str, node: Node<'_>) -> Option<Value> {
    match node.get_ref() {
        DeValue::String(text) => Some(Value::String(text.to_string())),
        DeValue::Boolean(flag) => Some(Value::Bool(*flag)),
        DeValue::Integer(number) => {
            let json = integer(number).and_then(Number::from_i128);
            orelse_remark(
                section,
                key,
                node,
                json.map(Value::Number),
                "whole numbers of up to 64 bits",
            )
        }
        DeValue::Float(number) => {
            let json = number.as_str().parse().ok().and_then(Number::from_f64);
            orelse_remark(
                section,
                key,
                node,
                json.map(Value::Number),
                "finite numbers",
            )
        }
        DeValue::Datetime(_) => {
            let message = format!(
                "`{}` is a date, which the provider's JSON cannot carry",
                section.path_of(key)
            );
            section.remark(
                Remark::error(node.span(), message, "a date")
                    .help("write it as a string, in quotes"),
            );
            None
        }
        DeValue::Array(list) => Some(Value::Array(
            list.iter()
                .filter_map(|item| value(section, key, item))
                .collect(),
        )),
        DeValue::Table(table) => Some(Value::Object(object(&mut section.inner(
            key,
            table,
            node.span(),
        )))),
    }
}

fn orelse_remark(
    section: &mut Reader<'_>,
    key: &str,
    node: Node<'_>,
    json: Option<Value>,
    valid: &str,
) -> Option<Value> {
    if json.is_none() {
        section.out_of_range(key, node, valid);
    }
    json
}
