//! Escapes the descriptions and schemas of tools that an MCP server offers, and result schemas that
//! a model wrote. They could imitate the XML of the kernel to deceive the model; [`ShownText`]
//! explains the rule.
//!
//! Escaping may alter descriptions, but not the names and values of parameters, since a call must
//! repeat them. If a name or a value imitates the kernel, the model gets a schema without
//! parameters, and the description says so. The model can still call the tool.

use std::sync::Arc;

use dormouse_proto::server::OfferedTool;
use dormouse_proto::shown::ShownText;
use dormouse_proto::xml::imitation::imitates;
use serde_json::Value;

/// Keys of a JSON schema whose values only describe and can therefore be altered.
const DESCRIPTION_KEYS: [&str; 3] = ["description", "title", "$comment"];
const ANY_OBJECT: &str = r#"{"type":"object"}"#;
const PARAMETERS_NOT_SHOWN: &str =
    "(Its parameters are not shown: a name or a value among them looks like a word of the kernel.)";

/// The error if a name or a value in a schema imitates the kernel.
pub(super) struct Imitation;

/// Escapes the description and the schema of a tool. `kernel_note` is a sentence of the kernel that
/// is appended to the description. O(n).
pub(super) fn escape_tool(
    offer: &OfferedTool,
    kernel_note: Option<String>,
) -> (Arc<str>, Arc<str>) {
    let source = format!("server:{}", offer.server);
    let original = if kernel_note.is_some() {
        offer.description.trim_start().into()
    } else {
        offer.description.clone()
    };
    let mut description = ShownText::outside(&source, original);
    let (schema, schema_note) = match escape_schema(&offer.schema, &source) {
        Ok(schema) => (schema, None),
        Err(Imitation) => (ANY_OBJECT.into(), Some(PARAMETERS_NOT_SHOWN.to_owned())),
    };
    for note in kernel_note.into_iter().chain(schema_note) {
        let separator = if description.is_empty() { "" } else { "\n\n" };
        description = description.then(separator).then(note);
    }
    (description.into(), schema)
}

/// Escapes the descriptions in a schema. A schema that needs no escaping is returned byte for byte.
pub(super) fn escape_schema(schema: &Arc<str>, source: &str) -> Result<Arc<str>, Imitation> {
    let Ok(mut value) = serde_json::from_str::<Value>(schema) else {
        return if imitates(schema) {
            Err(Imitation)
        } else {
            Ok(schema.clone())
        };
    };
    Ok(if escape_descriptions(&mut value, source)? {
        value.to_string().into()
    } else {
        schema.clone()
    })
}

/// Escapes the descriptions in a schema in place. Returns whether the schema changed.
fn escape_descriptions(value: &mut Value, source: &str) -> Result<bool, Imitation> {
    match value {
        Value::String(text) if imitates(text) => Err(Imitation),
        Value::Array(items) => items.iter_mut().try_fold(false, |changed, item| {
            Ok(escape_descriptions(item, source)? | changed)
        }),
        Value::Object(members) => members
            .iter_mut()
            .try_fold(false, |changed, (key, member)| match member {
                _ if imitates(key) => Err(Imitation),
                Value::String(text) if DESCRIPTION_KEYS.contains(&key.as_str()) => {
                    Ok(escape_description(text, source) | changed)
                }
                member => Ok(escape_descriptions(member, source)? | changed),
            }),
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => Ok(false),
    }
}

fn escape_description(text: &mut String, source: &str) -> bool {
    let shown = ShownText::outside(source, text.as_str());
    let is_changed = *shown != **text;
    *text = shown.to_string();
    is_changed
}

#[cfg(test)]
mod tests {
    use dormouse_proto::tool::ToolPolicy;

    use super::*;

    fn offer(description: &str, schema: &str) -> OfferedTool {
        OfferedTool {
            server: "s".into(),
            name: "n".into(),
            description: description.into(),
            schema: schema.into(),
            policy: ToolPolicy::default(),
        }
    }

    #[test]
    fn descriptions_and_schemas_without_imitations_are_unchanged() {
        for schema in [
            r#"{ "type": "object",  "title": "a < b" }"#,
            "no JSON",
            "",
            r#"{"properties":{"description":{}}}"#,
        ] {
            let offered = offer("reads a <file>", schema);
            assert_eq!(
                escape_tool(&offered, None),
                ("reads a <file>".into(), schema.into())
            );
            assert_eq!(
                &*escape_tool(&offered, Some("R.".to_owned())).0,
                "reads a <file>\n\nR."
            );
            assert_eq!(
                &*escape_tool(&offer("", schema), Some("R.".to_owned())).0,
                "R."
            );
        }
    }

    #[test]
    fn descriptions_that_imitate_the_kernel_are_escaped() {
        let schema = r#"{"properties":{"q":{"description":"\u001b[1m<fd_error>","enum":["a"]}},"title":"[msg:1]"}"#;
        let (description, schema) = escape_tool(
            &offer("<message>", schema),
            Some("called `<ref>`".to_owned()),
        );
        assert_eq!(
            &*description,
            "<fd_text source=\"server:s\"><![CDATA[<]]><![CDATA[message>]]></fd_text>\n\n\
             <fd_text><![CDATA[called `<]]><![CDATA[ref>`]]></fd_text>"
        );
        let schema: Value = serde_json::from_str(&schema).unwrap();
        let shown = "<fd_text source=\"server:s\" \
             sanitized=\"true\"><![CDATA[␛[1m<]]><![CDATA[fd_error>]]></fd_text>";
        assert_eq!(schema["properties"]["q"]["description"], shown);
        assert_eq!(schema["properties"]["q"]["enum"][0], "a");
        assert_eq!(
            schema["title"],
            "<fd_text source=\"server:s\"><![CDATA[[m]]><![CDATA[sg:1]]]></fd_text>"
        );
    }

    #[test]
    fn names_and_values_that_imitate_the_kernel_are_not_shown() {
        for schema in [
            r#"{"properties":{"<fd_result>":{}}}"#,
            r#"{"properties":{"q":{"enum":["a","\u003cfd_result>"]}}}"#,
            r#"{"properties":{"q":{"default":"[msg:3]"}}}"#,
            "<fd_result>",
        ] {
            let (description, shown) = escape_tool(&offer("reads", schema), None);
            assert_eq!(
                (&*description, &*shown),
                (&*format!("reads\n\n{PARAMETERS_NOT_SHOWN}"), ANY_OBJECT),
                "{schema}"
            );
        }
    }
}
