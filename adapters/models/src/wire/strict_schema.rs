//! Whether the strict mode of a provider, in which it makes the model's arguments valid against the
//! schema, can express a schema after that was made strict ([`schema`](super::schema)). A provider
//! refuses a request with a strict schema that it cannot express.
//!
//! What a provider accepts has grown over time. Keywords are listed here that all its models with
//! strict tools accept, and a schema with any other keyword is not expressible.

use serde_json::{Map, Value};

/// A kind of strict schemas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StrictDialect {
    Anthropic,
    OpenAi,
}

/// The deepest nesting of objects.
const MAX_NESTING: usize = 8;
/// The most schemas within a schema.
const MAX_SCHEMAS: usize = 400;

/// Keywords that both dialects accept.
const COMMON_KEYWORDS: [&str; 10] = [
    "type",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "enum",
    "const",
    "anyOf",
    "$ref",
    "description",
];
const OPENAI_KEYWORDS: [&str; 9] = [
    "pattern",
    "format",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minItems",
    "maxItems",
];
const FORMATS: [&str; 8] = [
    "date-time",
    "time",
    "date",
    "duration",
    "email",
    "hostname",
    "ipv4",
    "uuid",
];

/// Whether the strict mode of the dialect can express the schema of a tool, given as JSON text.
pub(crate) fn is_expressible(schema: &str, dialect: StrictDialect) -> bool {
    let Ok(root) = serde_json::from_str::<Value>(schema) else {
        return false;
    };
    let Some(fields) = root.as_object() else {
        return false;
    };
    let mut walk = Walk {
        dialect,
        schemas: 0,
    };
    let definitions = fields.get("$defs").and_then(Value::as_object);
    let mut definitions = definitions.into_iter().flat_map(Map::values);
    let refers_to_itself = dialect == StrictDialect::Anthropic && is_recursive(&root);
    root["type"] == "object"
        && !refers_to_itself
        && definitions.all(|schema| walk.accepts(schema, 1))
        && walk.accepts_fields(fields, &["$defs"], 1)
}

struct Walk {
    dialect: StrictDialect,
    schemas: usize,
}

impl Walk {
    fn accepts(&mut self, schema: &Value, level: usize) -> bool {
        match schema.as_object() {
            Some(fields) => self.accepts_fields(fields, &[], level),
            None => false,
        }
    }

    fn accepts_fields(
        &mut self,
        fields: &Map<String, Value>,
        further_keywords: &[&str],
        level: usize,
    ) -> bool {
        self.schemas += 1;
        let is_known = |keyword: &String| {
            let keyword = keyword.as_str();
            COMMON_KEYWORDS.contains(&keyword)
                || further_keywords.contains(&keyword)
                || self.dialect == StrictDialect::OpenAi && OPENAI_KEYWORDS.contains(&keyword)
        };
        let format = fields.get("format");
        let has_kind = ["type", "anyOf", "$ref", "enum", "const"];
        self.schemas <= MAX_SCHEMAS
            && level <= MAX_NESTING
            && fields.keys().all(is_known)
            && has_kind.iter().any(|keyword| fields.contains_key(*keyword))
            && format.is_none_or(|format| FORMATS.iter().any(|known| format == known))
            && self.accepts_object(fields, level)
            && fields
                .get("items")
                .is_none_or(|items| self.accepts(items, level + 1))
            && self.accepts_alternatives(fields, level)
    }

    /// An object has the properties that it lists and no other, as a strict schema says.
    fn accepts_object(&mut self, fields: &Map<String, Value>, level: usize) -> bool {
        let properties = fields.get("properties").and_then(Value::as_object);
        let is_object = match fields.get("type") {
            Some(Value::Array(types)) => types.contains(&Value::from("object")),
            kind => kind.is_some_and(|kind| kind == "object"),
        };
        match properties {
            Some(properties) => {
                let open = fields.get("additionalProperties");
                open.is_none_or(|open| *open == Value::Bool(false))
                    && properties
                        .values()
                        .all(|property| self.accepts(property, level + 1))
            }
            None => !is_object && !fields.contains_key("additionalProperties"),
        }
    }

    /// In a strict schema of OpenAI, null stands for an absent property. In an alternative, it
    /// could not be told from a null that is meant.
    fn accepts_alternatives(&mut self, fields: &Map<String, Value>, level: usize) -> bool {
        let alternatives = fields.get("anyOf").and_then(Value::as_array);
        let dialect = self.dialect;
        let requires_all = |alternative: &Value| {
            let properties = alternative["properties"].as_object();
            let count = properties.map_or(0, Map::len);
            let required = alternative["required"].as_array().map_or(0, Vec::len);
            dialect == StrictDialect::Anthropic
                || required == count && alternative.get("$ref").is_none()
        };
        alternatives
            .into_iter()
            .flatten()
            .all(|alternative| requires_all(alternative) && self.accepts(alternative, level))
    }
}

/// Whether a definition refers to itself, directly or by others, or the schema to its root.
fn is_recursive(root: &Value) -> bool {
    let definitions = root["$defs"].as_object();
    let names = definitions.into_iter().flat_map(Map::keys);
    let mut unfinished: Vec<(&str, Vec<String>)> = names
        .map(|name| (name.as_str(), references(&root["$defs"][name])))
        .collect();
    // Definitions that refer only to finished ones are finished; those of a cycle never are.
    loop {
        let open: Vec<_> = unfinished
            .iter()
            .map(|(name, _)| format!("#/$defs/{name}"))
            .collect();
        let before = unfinished.len();
        unfinished.retain(|(_, targets)| targets.iter().any(|target| open.contains(target)));
        if unfinished.len() == before {
            break;
        }
    }
    let leaves_definitions = |target: &String| !target.starts_with("#/$defs/");
    !unfinished.is_empty() || references(root).iter().any(leaves_definitions)
}

fn references(schema: &Value) -> Vec<String> {
    match schema {
        Value::Object(fields) => {
            let own = fields
                .get("$ref")
                .and_then(Value::as_str)
                .map(str::to_owned);
            let inner = fields.values().flat_map(references);
            own.into_iter().chain(inner).collect()
        }
        Value::Array(items) => items.iter().flat_map(references).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn dialects(value: Value, definitions: Value) -> (bool, bool) {
        let schema = json!({
            "type": "object", "properties": {"value": value}, "required": ["value"],
            "additionalProperties": false, "$defs": definitions,
        });
        let schema = schema.to_string();
        let accepts = |dialect| is_expressible(&schema, dialect);
        (
            accepts(StrictDialect::OpenAi),
            accepts(StrictDialect::Anthropic),
        )
    }

    #[test]
    fn a_schema_is_expressible_if_the_dialect_has_all_of_its_keywords() {
        let (both, openai, anthropic, none) =
            ((true, true), (true, false), (false, true), (false, false));
        let object = |property: Value| json!({"type": "object", "properties": {"a": property}, "required": ["a"]});
        let optional = json!({"type": "object", "properties": {"a": {"type": "string"}}});
        let cases = [
            (object(json!({"type": "string", "description": "d"})), both),
            (optional.clone(), both),
            (json!({"type": ["string", "null"]}), both),
            (json!({"enum": ["x", 1]}), both),
            (
                json!({"type": "array", "items": object(json!({"const": 3}))}),
                both,
            ),
            (
                json!({"anyOf": [object(json!({"type": "null"})), {"type": "null"}]}),
                both,
            ),
            (json!({"$ref": "#/$defs/size"}), both),
            (json!({"type": "integer", "minimum": 1}), openai),
            (json!({"type": "string", "format": "date"}), openai),
            (json!({"$ref": "#/$defs/node"}), openai),
            (json!({"anyOf": [optional, {"type": "null"}]}), anthropic),
            (json!({"type": "string", "format": "color"}), none),
            (json!({"type": "object"}), none),
            (
                json!({"type": "object", "additionalProperties": {"type": "string"}}),
                none,
            ),
            (
                json!({"type": "object", "properties": {}, "additionalProperties": true}),
                none,
            ),
            (json!({"oneOf": [{"type": "string"}]}), none),
            (json!({"type": "string", "maxLength": 5}), none),
            (json!({"description": "anything"}), none),
            (json!(true), none),
            (
                (0..10).fold(json!({"type": "null"}), |inner, _| object(inner)),
                none,
            ),
        ];
        for (value, expected) in cases {
            let is_recursive = value.to_string().contains("node");
            let definitions = match is_recursive {
                true => json!({"node": {
                    "type": "object", "required": ["next"],
                    "properties": {"next": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
                }}),
                false => json!({"size": {"type": "integer"}}),
            };
            assert_eq!(dialects(value.clone(), definitions), expected, "{value}");
        }
    }
}
