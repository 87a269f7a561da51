//! Removes the nulls by which a model leaves out parameters of a strict tool.
//!
//! The provider of a strict tool makes the arguments valid against a strict schema, and a strict
//! schema of OpenAI requires every parameter. A parameter that is optional in the tool's own schema
//! is therefore sent as one that may be null ([`schema`](super::schema)), and the model writes null
//! to leave it out. The tool must not see that null, which its own schema does not permit.

use dormouse_proto::message::Block;
use dormouse_proto::model::{Reply, Request};
use serde_json::Value;

/// The reply without the nulls that stand for absent parameters of strict tools. The provider's own
/// form of a call (its `raw`) is kept, because the provider must get back what it sent. Costs a
/// pass over the arguments of strict tools.
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
        if remove_nulls(&mut value, &[&schema], &schema) {
            *args = value.to_string().into();
        }
    }
    reply
}

/// The most schemas that are looked at for one value. Where there are more, its nulls stay.
const MAX_SCHEMAS: usize = 64;

/// Removes the placeholders in a value that `schemas` describe, and in the objects and lists in it.
/// Returns whether there were any. `root` is the schema of the tool. The depth of the recursion is
/// bounded, because the value was parsed.
fn remove_nulls(value: &mut Value, schemas: &[&Value], root: &Value) -> bool {
    if !value.is_object() && !value.is_array() {
        return false;
    }
    let schemas = with_parts(schemas, root);
    match value {
        Value::Array(items) => {
            let mut has_removed = false;
            for (index, item) in items.iter_mut().enumerate() {
                let item_schemas = schemas.iter().filter_map(|schema| {
                    let at_index = schema["prefixItems"].get(index);
                    at_index.or_else(|| schema.get("items"))
                });
                has_removed |= remove_nulls(item, &item_schemas.collect::<Vec<_>>(), root);
            }
            has_removed
        }
        Value::Object(fields) => {
            let count = fields.len();
            fields.retain(|name, field| !field.is_null() || !is_placeholder(name, &schemas, root));
            let mut has_removed = fields.len() < count;
            for (name, field) in fields {
                let property_schemas = schemas
                    .iter()
                    .filter_map(|schema| schema["properties"].get(name));
                has_removed |= remove_nulls(field, &property_schemas.collect::<Vec<_>>(), root);
            }
            has_removed
        }
        _ => false,
    }
}

/// The schemas with all that apply to the same value: what they refer to, their parts (`allOf`) and
/// their alternatives (`anyOf`, `oneOf`). Empty if there are more than [`MAX_SCHEMAS`].
fn with_parts<'a>(schemas: &[&'a Value], root: &'a Value) -> Vec<&'a Value> {
    let mut found: Vec<&Value> = Vec::new();
    let mut next = schemas.to_vec();
    while let Some(schema) = next.pop() {
        // A schema may refer to itself.
        if found.iter().any(|known| std::ptr::eq(*known, schema)) {
            continue;
        }
        if found.len() == MAX_SCHEMAS {
            return Vec::new();
        }
        found.push(schema);
        next.extend(referenced(schema, root));
        for keyword in ["allOf", "anyOf", "oneOf"] {
            next.extend(schema[keyword].as_array().into_iter().flatten());
        }
    }
    found
}

/// The schema that `schema` refers to.
fn referenced<'a>(schema: &Value, root: &'a Value) -> Option<&'a Value> {
    root.pointer(schema["$ref"].as_str()?.strip_prefix('#')?)
}

/// Whether null stands for the absence of the property `name` of an object that `schemas` describe:
/// one of them has the property as an optional one, and none permits null for it.
fn is_placeholder(name: &str, schemas: &[&Value], root: &Value) -> bool {
    let mut is_optional = false;
    for schema in schemas {
        let Some(property) = schema["properties"].get(name) else {
            continue;
        };
        if takes_null(property, root, &mut { MAX_SCHEMAS }) {
            return false;
        }
        let required = schema["required"].as_array();
        is_optional |= !required.is_some_and(|names| names.iter().any(|other| other == name));
    }
    is_optional
}

/// Whether a schema permits null: each of its keywords has to. Looks at `schemas_left` schemas at
/// most, and assumes that all others permit null.
fn takes_null(schema: &Value, root: &Value, schemas_left: &mut usize) -> bool {
    if let Value::Bool(takes_all) = schema {
        return *takes_all;
    }
    if *schemas_left == 0 {
        return true;
    }
    *schemas_left -= 1;
    let is_of_type = match &schema["type"] {
        Value::String(kind) => kind == "null",
        Value::Array(kinds) => kinds.iter().any(|kind| kind == "null"),
        _ => true,
    };
    let is_among_values = schema.get("const").is_none_or(Value::is_null)
        && schema["enum"]
            .as_array()
            .is_none_or(|values| values.contains(&Value::Null));
    let list = |keyword: &str| schema[keyword].as_array().filter(|list| !list.is_empty());
    let mut takes_null = |schema: &Value| takes_null(schema, root, schemas_left);
    is_of_type
        && is_among_values
        && referenced(schema, root).is_none_or(&mut takes_null)
        && list("allOf").is_none_or(|parts| parts.iter().all(&mut takes_null))
        && ["anyOf", "oneOf"].into_iter().all(|keyword| {
            list(keyword).is_none_or(|alternatives| alternatives.iter().any(&mut takes_null))
        })
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
        assert!(remove_nulls(&mut args, &[&schema], &schema));
        let expected = json!({
            "must": null, "nullable": null, "any": null, "or_null": null, "list": [{}, {"inner": 3}],
        });
        assert_eq!(args, expected);
        assert!(!remove_nulls(&mut args, &[&schema], &schema));
    }

    /// Cases: the schema of the property `p`, and whether null stands for its absence.
    #[test]
    fn null_is_a_placeholder_unless_every_keyword_of_the_property_permits_it() {
        let definitions = json!({
            "text": {"type": "string"},
            "alias": {"$ref": "#/$defs/text"},
            "nullable": {"type": ["string", "null"]},
            "itself": {"$ref": "#/$defs/itself"},
        });
        for (property, is_removed) in [
            (json!({"$ref": "#/$defs/alias"}), true),
            (json!({"$ref": "#/$defs/nullable"}), false),
            (json!({"$ref": "#/$defs/itself"}), false),
            (json!({"$ref": "#/$defs/absent"}), false),
            (
                json!({"anyOf": [{"$ref": "#/$defs/alias"}, {"type": "integer"}]}),
                true,
            ),
            (
                json!({"oneOf": [{"$ref": "#/$defs/alias"}, {"$ref": "#/$defs/nullable"}]}),
                false,
            ),
            (json!({"anyOf": [{"anyOf": [{"type": "string"}]}]}), true),
            (json!({"const": "x"}), true),
            (json!({"const": null}), false),
            (
                json!({"allOf": [{"$ref": "#/$defs/text"}, {"description": "d"}]}),
                true,
            ),
            (
                json!({"allOf": [{"$ref": "#/$defs/nullable"}, {"description": "d"}]}),
                false,
            ),
            (json!({"type": ["string", "null"], "enum": ["x"]}), true),
            (
                json!({"type": ["string", "null"], "enum": ["x", null]}),
                false,
            ),
            (
                json!({"type": ["string", "null"], "allOf": [{"type": "string"}]}),
                true,
            ),
            (json!(true), false),
            (json!(false), true),
        ] {
            let schema = json!({"properties": {"p": property}, "$defs": definitions});
            let mut args = json!({"p": null});
            let has_removed = remove_nulls(&mut args, &[&schema], &schema);
            assert_eq!(has_removed, is_removed, "{schema}");
            assert_eq!(args.get("p").is_none(), is_removed, "{schema}");
        }
    }

    /// Cases: the schema of the argument `a`, its value, and what is left of the value.
    #[test]
    fn placeholders_are_removed_wherever_a_strict_schema_has_them() {
        let node = json!({"type": "object", "properties": {
            "n": {"type": "integer"}, "next": {"$ref": "#/$defs/node"},
        }});
        let requires_n = json!({"required": ["n"], "properties": {"n": {"type": "integer"}}});
        let takes_null = json!({"properties": {"n": {"type": ["integer", "null"]}}});
        for (schema, value, left) in [
            (
                json!({"$ref": "#/$defs/node"}),
                json!({"n": null, "next": {"n": null, "next": null}}),
                json!({"next": {}}),
            ),
            (json!({"allOf": [node]}), json!({"n": null}), json!({})),
            (
                json!({"anyOf": [{"type": "string"}, {"$ref": "#/$defs/node"}]}),
                json!({"n": null}),
                json!({}),
            ),
            (
                json!({"oneOf": [requires_n, node]}),
                json!({"n": null}),
                json!({}),
            ),
            (
                json!({"oneOf": [requires_n]}),
                json!({"n": null}),
                json!({"n": null}),
            ),
            (
                json!({"oneOf": [takes_null, node]}),
                json!({"n": null}),
                json!({"n": null}),
            ),
            (
                json!({"prefixItems": [{"type": "null"}], "items": node}),
                json!([null, {"n": null}]),
                json!([null, {}]),
            ),
            (
                json!({"prefixItems": [node]}),
                json!([{"n": null}, {"n": null}]),
                json!([{}, {"n": null}]),
            ),
        ] {
            let schema = json!({"properties": {"a": schema}, "$defs": {"node": node}});
            let mut args = json!({"a": value});
            remove_nulls(&mut args, &[&schema], &schema);
            assert_eq!(args["a"], left, "{schema}");
        }
    }

    /// Schemas that refer to each other many times cost no more than the limit.
    #[test]
    fn a_schema_of_many_references_is_looked_at_in_bounded_time() {
        let mut definitions = serde_json::Map::new();
        for level in 0..60 {
            let next = json!({"$ref": format!("#/$defs/{}", level + 1)});
            definitions.insert(level.to_string(), json!({"allOf": [next, next]}));
        }
        let many: Vec<_> = (0..100).map(|n| json!({"minimum": n})).collect();
        let schema = json!({
            "properties": {
                "deep": {"$ref": "#/$defs/0"},
                "wide": {"anyOf": many, "properties": {"n": {"type": "integer"}}},
            },
            "$defs": definitions,
        });
        let mut args = json!({"deep": null, "wide": {"n": null}});
        assert!(!remove_nulls(&mut args, &[&schema], &schema));
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
