//! The arguments of strict tools. A strict schema of OpenAI requires every parameter, so a model
//! writes null for one that it leaves out. The tool behind it, whose own schema has no null there,
//! must not see that.

use dormouse_proto::message::Block;
use dormouse_proto::model::{Reply, Request};
use serde_json::Value;

/// The reply without the nulls that stand for absent parameters of strict tools. The original form
/// of a call is kept, so that the provider gets back what it sent. Costs a pass over the arguments
/// of strict tools.
pub(crate) fn without_placeholder_nulls(request: &Request, mut reply: Reply) -> Reply {
    for block in &mut reply.blocks {
        let Block::ToolUse { name, args, .. } = block else {
            continue;
        };
        let form = request.provider_tools.form(name);
        if !form.is_some_and(|form| form.strict || form.strict_if_expressible) {
            continue;
        }
        let spec = request.tools.iter().find(|tool| tool.name == *name);
        let schema = spec.and_then(|spec| serde_json::from_str(&spec.schema).ok());
        let (Some(schema), Ok(mut value)) = (schema, serde_json::from_str(args)) else {
            continue;
        };
        if remove_nulls(&mut value, &schema, &schema) {
            *args = value.to_string().into();
        }
    }
    reply
}

/// Removes optional properties that are null where the schema takes no null, in nested objects and
/// lists too. Whether any was removed. Recursion is bounded, since the value was parsed.
fn remove_nulls(value: &mut Value, schema: &Value, root: &Value) -> bool {
    let schema = resolved(schema, root);
    match value {
        Value::Array(items) => items.iter_mut().fold(false, |removed, item| {
            remove_nulls(item, &schema["items"], root) | removed
        }),
        Value::Object(fields) => {
            let required = schema["required"].as_array();
            let is_required =
                |name: &str| required.is_some_and(|names| names.iter().any(|other| other == name));
            let before = fields.len();
            fields.retain(|name, field| {
                let property = resolved(&schema["properties"][name], root);
                !field.is_null() || is_required(name) || takes_null(property)
            });
            let removed = fields.len() < before;
            fields.iter_mut().fold(removed, |removed, (name, field)| {
                remove_nulls(field, &schema["properties"][name], root) | removed
            })
        }
        _ => false,
    }
}

/// The schema that a schema refers to; itself without a reference.
fn resolved<'a>(schema: &'a Value, root: &'a Value) -> &'a Value {
    let target = schema["$ref"]
        .as_str()
        .and_then(|target| target.strip_prefix('#'));
    target
        .and_then(|pointer| root.pointer(pointer))
        .unwrap_or(schema)
}

/// Whether a property may be null: unless its type, its values or its alternatives exclude null.
fn takes_null(property: &Value) -> bool {
    let alternatives = ["anyOf", "oneOf"].map(|keyword| property[keyword].as_array());
    match (&property["type"], property["enum"].as_array()) {
        (Value::String(kind), _) => kind == "null",
        (Value::Array(kinds), _) => kinds.iter().any(|kind| kind == "null"),
        (_, Some(values)) => values.contains(&Value::Null),
        _ => alternatives
            .iter()
            .flatten()
            .all(|schemas| schemas.iter().any(takes_null)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dormouse_proto::id::Pid;
    use dormouse_proto::message::Raw;
    use dormouse_proto::model::{StopReason, Usage};
    use dormouse_proto::provider_tools::{ProviderTools, ToolForm};
    use dormouse_proto::tool::ToolSpec;
    use serde_json::json;
    use std::sync::Arc;

    #[test]
    fn only_nulls_that_the_schema_of_the_tool_does_not_take_are_removed() {
        let schema = json!({
            "type": "object", "required": ["must"],
            "properties": {
                "must": {"type": "string"},
                "may": {"type": "string"},
                "nullable": {"type": ["string", "null"]},
                "any": {"description": "of any type"},
                "one_of": {"enum": ["x", "y"]},
                "either": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
                "or_null": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                "referred": {"$ref": "#/$defs/text"},
                "list": {"type": "array", "items": {
                    "$ref": "#/$defs/item",
                }},
            },
            "$defs": {
                "text": {"type": "string"},
                "item": {"type": "object", "properties": {"inner": {"type": "integer"}}},
            },
        });
        let mut args = json!({
            "must": null, "may": null, "nullable": null, "any": null,
            "one_of": null, "either": null, "or_null": null, "referred": null,
            "list": [{"inner": null}, {"inner": 3}],
        });
        assert!(remove_nulls(&mut args, &schema, &schema));
        let expected = json!({
            "must": null, "nullable": null, "any": null, "or_null": null, "list": [{}, {"inner": 3}],
        });
        assert_eq!(args, expected);
        assert!(!remove_nulls(&mut args, &schema, &schema));
    }

    #[test]
    fn calls_of_strict_tools_lose_placeholder_nulls_and_keep_their_original_form() {
        let call = |name: &str| Block::ToolUse {
            id: name.into(),
            name: name.into(),
            args: r#"{"text": "x", "case": null}"#.into(),
            raw: Some(Raw::new(
                "f",
                r#"{"arguments":"{\"text\": \"x\", \"case\": null}"}"#,
            )),
        };
        let spec = |name: &str| {
            ToolSpec {
            name: name.into(),
            description: "".into(),
            schema: r#"{"type":"object","properties":{"text":{"type":"string"},"case":{"type":"boolean"}},"required":["text"]}"#.into(),
        }
        };
        let form = ToolForm {
            strict: true,
            ..ToolForm::default()
        };
        let request = Request {
            pid: Pid(1),
            program: "p".into(),
            model: "m".into(),
            system: "".into(),
            tools: [spec("strict"), spec("plain")].into(),
            provider_tools: Arc::new(ProviderTools {
                forms: [("strict".to_owned(), form)].into(),
                ..ProviderTools::default()
            }),
            messages: Vec::new(),
            parameters: Arc::default(),
            forked_at: Vec::new(),
            media: Default::default(),
        };
        let reply = Reply {
            blocks: vec![call("strict"), call("plain")],
            stop: StopReason::ToolUse,
            usage: Usage::default(),
        };
        let blocks = without_placeholder_nulls(&request, reply).blocks;
        let Block::ToolUse { args, raw, .. } = &blocks[0] else {
            panic!("it is a call")
        };
        assert_eq!(&**args, r#"{"text":"x"}"#);
        assert!(raw.as_ref().is_some_and(|raw| raw.json.contains("null")));
        assert_eq!(blocks[1], call("plain"));
    }
}
