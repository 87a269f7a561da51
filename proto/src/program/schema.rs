//! The JSON Schema of program files, for completion and checks in editors.

use serde_json::{Map, Value as Json, json};

use super::{Key, ProgramFile, Section, Value};

/// The JSON Schema (draft 7) of a program file. It accepts every file that [`parse`] accepts
/// without an error, and refuses unknown keys and wrong types as [`parse`] does. Checks that
/// concern several keys or other files are left to the compiler.
///
/// [`parse`]: super::parse
#[must_use]
pub fn schema() -> Json {
    let table = TableSchema::of::<ProgramFile>();
    json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Program of the Dormouse kernel",
        "type": "object",
        "required": ["model"],
        "properties": table["properties"],
        "additionalProperties": false,
    })
}

/// The schema of one table, key by key.
pub(crate) struct TableSchema {
    properties: Map<String, Json>,
    required: Vec<Json>,
    /// The schema of keys that are not listed.
    rest: Json,
}

impl TableSchema {
    pub(super) fn of<S: Section>() -> Json {
        let mut table = Self {
            properties: Map::new(),
            required: Vec::new(),
            rest: json!(false),
        };
        S::describe(&mut table);
        let Self {
            properties,
            required,
            rest,
        } = table;
        let mut schema = json!({ "type": "object", "properties": properties });
        if !required.is_empty() {
            schema["required"] = Json::Array(required);
        }
        schema["additionalProperties"] = rest;
        schema
    }

    /// Adds a key, with the type of its value and its value in an empty table.
    pub(crate) fn key<T: Value>(&mut self, key: &Key, default: Option<T>) {
        let mut schema = T::schema(&key.rules);
        if let Some(default) = default.as_ref().and_then(T::show) {
            schema["default"] = default;
        }
        if key.rules.is_required {
            self.required.push(json!(key.name));
        }
        self.add(key.name, key.doc, schema.clone());
        if let Some(alias) = key.alias {
            schema["deprecated"] = json!(true);
            self.add(alias, &format!("Another name for `{}`.", key.name), schema);
        }
    }

    /// Adds keys that have no effect.
    pub(crate) fn ignore(&mut self, names: &[&str]) {
        let doc = "Has no effect; accepted in programs for the reference implementation.";
        for name in names {
            self.add(name, doc, json!({ "deprecated": true }));
        }
    }

    /// Accepts all other keys, with texts as values.
    pub(crate) fn other_keys(&mut self, doc: &str) {
        self.rest = json!({ "type": "string", "description": doc });
    }

    /// Adds a property with the schema of its type. The key's description precedes the type's.
    fn add(&mut self, name: &str, doc: &str, mut schema: Json) {
        let type_description = schema["description"].as_str().unwrap_or_default();
        let description = format!("{doc} {type_description}");
        schema["description"] = json!(description.trim());
        self.properties.insert(name.to_owned(), schema);
    }
}
