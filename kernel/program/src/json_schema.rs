//! JSON Schema: checks schemas and values. The only module that uses `boon`.
//!
//! A schema may come from a model. No reference leaves the schema: nothing is read from a file or
//! an address. Patterns run in linear time.

use std::error::Error;

use boon::{Compiler, Schemas, UrlLoader, ValidationError};
use serde_json::Value;

/// The address that a schema is compiled under. It is never loaded.
const SCHEMA_URL: &str = "schema:value";
/// The longest schema, in bytes of its JSON.
pub const MAX_SCHEMA_BYTES: usize = 64 << 10;
/// The most errors that are told about a value.
const MAX_ERRORS: usize = 8;

/// Why a schema cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// The schema is too large.
    #[error("the schema has {0} bytes of JSON; up to {MAX_SCHEMA_BYTES} are valid")]
    TooLarge(usize),
    /// It is not a JSON Schema.
    #[error("this is not a JSON Schema: {0}")]
    Invalid(String),
}

/// A value that its schema does not allow.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", errors.join("; "))]
pub struct InvalidValue {
    /// What is wrong, each with the place in the value.
    errors: Vec<String>,
}

/// A compiled JSON Schema.
pub struct JsonSchema {
    schemas: Schemas,
    index: boon::SchemaIndex,
}

impl JsonSchema {
    /// Compiles a schema: draft 2020-12, unless its `$schema` names an earlier one. O(schema).
    ///
    /// # Errors
    /// [`SchemaError`].
    pub fn compile(schema: &Value) -> Result<Self, SchemaError> {
        let bytes = schema.to_string().len();
        if bytes > MAX_SCHEMA_BYTES {
            return Err(SchemaError::TooLarge(bytes));
        }
        let invalid = |error: boon::CompileError| SchemaError::Invalid(format!("{error:#}"));
        let mut schemas = Schemas::new();
        let mut compiler = Compiler::new();
        compiler.use_loader(Box::new(NoLoader));
        compiler
            .add_resource(SCHEMA_URL, schema.clone())
            .map_err(invalid)?;
        let index = compiler
            .compile(SCHEMA_URL, &mut schemas)
            .map_err(invalid)?;
        Ok(Self { schemas, index })
    }

    /// Checks a value.
    ///
    /// # Errors
    /// [`InvalidValue`], with the first eight errors.
    pub fn check(&self, value: &Value) -> Result<(), InvalidValue> {
        self.schemas.validate(value, self.index).map_err(|error| {
            let mut errors = Vec::new();
            collect_errors(&error, &mut errors);
            InvalidValue { errors }
        })
    }
}

/// Collects the errors without causes of their own: these say what is wrong.
fn collect_errors(error: &ValidationError<'_, '_>, errors: &mut Vec<String>) {
    if errors.len() == MAX_ERRORS {
        return;
    }
    if error.causes.is_empty() {
        let place = error.instance_location.to_string();
        let place = if place.is_empty() {
            "the value"
        } else {
            &place
        };
        return errors.push(format!("at {place}: {}", error.kind));
    }
    error
        .causes
        .iter()
        .for_each(|cause| collect_errors(cause, errors));
}

/// Refuses to load anything.
struct NoLoader;

impl UrlLoader for NoLoader {
    fn load(&self, url: &str) -> Result<Value, Box<dyn Error>> {
        Err(
            format!("a schema refers to nothing outside of itself, and this one refers to {url}")
                .into(),
        )
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_checked_and_each_error_says_where() {
        let schema = json!({
            "type": "object",
            "properties": { "port": { "type": "integer", "minimum": 1 }, "host": { "pattern": "^[a-z]+$" } },
            "required": ["port"],
        });
        let schema = JsonSchema::compile(&schema).unwrap();
        assert_eq!(schema.check(&json!({ "port": 80, "host": "a" })), Ok(()));
        let cases = [
            (json!({}), "port"),
            (json!({ "port": 0 }), "/port"),
            (json!({ "port": 1, "host": "A" }), "/host"),
            (json!("80"), "the value"),
        ];
        for (value, place) in cases {
            let error = schema.check(&value).unwrap_err().to_string();
            assert!(error.contains(place), "{value}: {error}");
        }
    }

    #[test]
    fn a_schema_reads_no_file_and_no_address_and_is_bounded() {
        let outside = [
            json!({ "$ref": "file:///etc/passwd" }),
            json!({ "$ref": "http://localhost/x.json" }),
            json!({ "$ref": "other.json" }),
        ];
        for schema in outside {
            let error = JsonSchema::compile(&schema).err().unwrap();
            assert!(
                matches!(error, SchemaError::Invalid(_)),
                "{schema}: {error}"
            );
        }
        for invalid in [
            json!({ "type": "no-type" }),
            json!(7),
            json!({ "pattern": "(" }),
        ] {
            assert!(JsonSchema::compile(&invalid).is_err(), "{invalid}");
        }
        let large = json!({ "title": "x".repeat(MAX_SCHEMA_BYTES) });
        assert!(matches!(
            JsonSchema::compile(&large),
            Err(SchemaError::TooLarge(_))
        ));
        let recursive = json!({ "$ref": "#" });
        let compiled = JsonSchema::compile(&recursive);
        assert!(compiled.is_err() || compiled.unwrap().check(&json!(1)).is_err());
    }
}
