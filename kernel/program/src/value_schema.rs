//! Value schemas: JSON Schemas that the result of a model or the answer of a person has to satisfy.
//! The only module that uses the crate `jsonschema`.
//!
//! A schema is text of a program or of a model, and so is a value. Both may be hostile:
//!
//! * A schema refers only to itself. Nothing is retrieved, neither from the network nor from a
//!   file.
//! * Patterns are matched in linear time. Their compiled size is limited.
//! * A reference that leads back to its own value is refused. What a check costs is counted before
//!   the check (`cost.rs`), so that it takes bounded time and stack.

mod cost;
mod subschemas;

use std::fmt;
use std::sync::Arc;

use dormouse_proto::text::truncate;
use jsonschema::{PatternOptions, Validator};
use serde_json::{Map, Value, json};

use self::cost::Affordable;
use self::subschemas::Subschema;

/// The largest result schema, in bytes of JSON text. Each request to a model contains it.
pub const MAX_SCHEMA_BYTES: usize = 64 << 10;

/// The name of the argument that holds a result.
pub const VALUE: &str = "value";

/// The largest compiled pattern, in bytes.
const MAX_PATTERN_BYTES: usize = 1 << 20;
/// How many violations a check reports.
const MAX_VIOLATIONS: usize = 8;
/// The longest description of a violation, in characters.
const MAX_MESSAGE_CHARS: usize = 300;
/// The versions of JSON Schema that a schema may name.
const DRAFTS: [&str; 4] = [
    "https://json-schema.org/draft/2020-12/schema",
    "https://json-schema.org/draft/2019-09/schema",
    "http://json-schema.org/draft-07/schema#",
    "http://json-schema.org/draft-06/schema#",
];
/// The names of types.
const TYPES: [&str; 7] = [
    "array", "boolean", "integer", "null", "number", "object", "string",
];
/// Keywords that change what a reference means.
const REFUSED_KEYWORDS: [&str; 7] = [
    "$id",
    "$anchor",
    "$dynamicRef",
    "$dynamicAnchor",
    "$recursiveRef",
    "$recursiveAnchor",
    "$vocabulary",
];

/// A checked JSON Schema. Cloning costs a pointer; two are equal if their JSON is.
#[derive(Clone)]
pub struct ValueSchema(Arc<Compiled>);

struct Compiled {
    schema: Value,
    validator: Validator,
}

/// Why a JSON value is no valid result schema.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{message}. {help}", place(.at))]
pub struct SchemaError {
    /// JSON pointer to the place in the schema.
    pub at: String,
    /// What is wrong there.
    pub message: String,
    /// What is valid.
    pub help: String,
}

/// A part of a value that the schema does not accept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// JSON pointer to the part; empty for the whole value.
    pub at: String,
    /// What is wrong with the part. The part itself is not quoted.
    pub message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", place(&self.at), self.message)
    }
}

/// A JSON pointer as the beginning of a sentence; nothing for the whole value.
fn place(at: &str) -> String {
    if at.is_empty() {
        String::new()
    } else {
        format!("{at}: ")
    }
}

impl ValueSchema {
    /// Checks and compiles a schema. O(n), and the compilation of its patterns.
    ///
    /// # Errors
    /// [`SchemaError`]: the first mistake, with its place.
    pub fn parse(mut schema: Value) -> Result<Self, SchemaError> {
        // The schema's own address has no meaning here, since only the schema itself refers to it.
        if let Some(fields) = schema.as_object_mut() {
            fields.shift_remove("$id");
        }
        check_size(&schema)?;
        Self::compile(schema)
    }

    /// Checks and compiles the schema of the arguments of a tool, which
    /// [`to_parameters`](Self::to_parameters) made of a result schema. O(n), as `parse`.
    ///
    /// # Errors
    /// [`SchemaError`]: the first mistake, with its place.
    pub fn parse_arguments(schema: Value) -> Result<Self, SchemaError> {
        Self::compile(schema)
    }

    fn compile(schema: Value) -> Result<Self, SchemaError> {
        for subschema in subschemas::all_subschemas(&schema)? {
            check_keywords(&subschema)?;
            cost::check_references(&schema, &subschema)?;
        }
        let patterns = PatternOptions::regex().size_limit(MAX_PATTERN_BYTES);
        let validator = jsonschema::options()
            .offline()
            .with_pattern_options(patterns)
            .should_validate_formats(true)
            .build(&schema);
        let validator = validator.map_err(|error| SchemaError {
            at: error.instance_path().to_string(),
            message: truncate(&error.to_string(), MAX_MESSAGE_CHARS),
            help: HELP.to_owned(),
        })?;
        Ok(Self(Arc::new(Compiled { schema, validator })))
    }

    /// The schema as JSON.
    #[must_use]
    pub fn json(&self) -> &Value {
        &self.0.schema
    }

    /// Checks a value. The time is bounded, whatever schema and value are.
    ///
    /// # Errors
    /// The first violations, at least one.
    pub fn check(&self, value: &Value) -> Result<(), Vec<Violation>> {
        let Compiled { schema, validator } = &*self.0;
        let affordable = cost::affordable(schema, value).map_err(|violation| vec![violation])?;
        if validator.is_valid(value) {
            return Ok(());
        }
        Err(match affordable {
            Affordable::Violations => self.find_violations(value),
            Affordable::Verdict => vec![Violation {
                at: String::new(),
                message: "the schema does not accept the value. Where cannot be said, since too \
                          many alternatives of the schema apply to parts of it: compare each part \
                          with the schema"
                    .to_owned(),
            }],
        })
    }

    fn find_violations(&self, value: &Value) -> Vec<Violation> {
        let errors = self.0.validator.iter_errors(value).take(MAX_VIOLATIONS);
        let violations = errors.map(|error| Violation {
            at: error.instance_path().to_string(),
            message: truncate(&error.masked().to_string(), MAX_MESSAGE_CHARS),
        });
        violations.collect()
    }

    /// The schema of the arguments of a tool that takes a result: an object whose only property is
    /// [`VALUE`]. Definitions move to the top, where references find them. O(n).
    #[must_use]
    pub fn to_parameters(&self) -> Value {
        let mut value = self.0.schema.clone();
        move_references(&mut value);
        let mut parameters = Map::new();
        let keys_of_root = ["$schema", "$defs", "definitions"];
        for key in keys_of_root {
            let moved = value.as_object_mut().and_then(|own| own.shift_remove(key));
            parameters.extend(moved.map(|moved| (key.to_owned(), moved)));
        }
        let properties = Map::from_iter([(VALUE.to_owned(), value)]);
        parameters.insert("type".to_owned(), json!("object"));
        parameters.insert("properties".to_owned(), properties.into());
        parameters.insert("required".to_owned(), json!([VALUE]));
        parameters.insert("additionalProperties".to_owned(), json!(false));
        parameters.into()
    }
}

impl PartialEq for ValueSchema {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.schema == other.0.schema
    }
}

impl Eq for ValueSchema {}

impl fmt::Debug for ValueSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ValueSchema({})", self.0.schema)
    }
}

const HELP: &str = "Valid: a JSON Schema of draft 2020-12, 2019-09, 7 or 6 that refers only to \
itself, such as {\"type\": \"object\", \"properties\": {\"name\": {\"type\": \"string\"}}, \
\"required\": [\"name\"]}";

fn schema_error(at: &str, message: impl Into<String>, help: impl Into<String>) -> SchemaError {
    SchemaError {
        at: at.to_owned(),
        message: message.into(),
        help: help.into(),
    }
}

fn check_size(schema: &Value) -> Result<(), SchemaError> {
    if !schema.is_object() {
        return Err(schema_error("", "the schema is not an object", HELP));
    }
    let bytes = schema.to_string().len();
    if bytes <= MAX_SCHEMA_BYTES {
        return Ok(());
    }
    let message =
        format!("the schema has {bytes} bytes, more than the maximum of {MAX_SCHEMA_BYTES}");
    Err(schema_error("", message, "Leave out what only describes"))
}

/// Checks the keywords that the validator would accept, although they have no effect or another
/// one here.
fn check_keywords(Subschema { at, fields }: &Subschema<'_>) -> Result<(), SchemaError> {
    let refused = REFUSED_KEYWORDS
        .iter()
        .find(|key| fields.contains_key(**key));
    if let Some(key) = refused {
        let help = "Put the schema into \"$defs\" and refer to it: {\"$ref\": \"#/$defs/NAME\"}";
        return Err(schema_error(at, format!("`{key}` is not supported"), help));
    }
    let draft = fields.get("$schema");
    let is_known = |draft: &Value| {
        let name = draft.as_str().unwrap_or_default().trim_end_matches('#');
        at.is_empty()
            && DRAFTS
                .iter()
                .any(|known| known.trim_end_matches('#') == name)
    };
    if draft.is_some_and(|draft| !is_known(draft)) {
        let help = format!("Valid at the top of the schema: {}", DRAFTS.join(", "));
        return Err(schema_error(at, "`$schema` is no known version", help));
    }
    let named = match fields.get("type") {
        Some(Value::Array(names)) => names.as_slice(),
        Some(name) => std::slice::from_ref(name),
        None => &[],
    };
    let is_type = |name: &&Value| name.as_str().is_some_and(|name| TYPES.contains(&name));
    match named.iter().find(|name| !is_type(name)) {
        Some(wrong) => {
            let message = format!(
                "{} is no type",
                truncate(&wrong.to_string(), MAX_MESSAGE_CHARS)
            );
            let help = format!("Valid types: {}", TYPES.join(", "));
            Err(schema_error(&format!("{at}/type"), message, help))
        }
        None => Ok(()),
    }
}

/// Lets the references of a schema find their targets when the schema becomes the property
/// [`VALUE`] of another. Definitions keep their places. Recursion is bounded, since the schema was
/// parsed.
fn move_references(schema: &mut Value) {
    let Some(fields) = schema.as_object_mut() else {
        return;
    };
    for (key, part) in fields {
        match (key.as_str(), part) {
            ("$ref", Value::String(target)) => {
                let stays = ["#/$defs/", "#/definitions/"];
                if !stays.iter().any(|start| target.starts_with(start)) {
                    *target = format!("#/properties/{VALUE}{}", target.trim_start_matches('#'));
                }
            }
            (key, Value::Object(named)) if subschemas::holds_named_schemas(key) => {
                named.values_mut().for_each(move_references)
            }
            (key, _) if subschemas::holds_plain_values(key) => {}
            (_, Value::Array(items)) => items.iter_mut().for_each(move_references),
            (_, inner) => move_references(inner),
        }
    }
}

#[cfg(test)]
mod tests;
