//! Prepares the JSON schemas of tools for requests.
//!
//! A tool is *strict* if the provider has to make the model's arguments valid against the schema. A
//! provider takes only schemas of a restricted kind for that: here a schema is changed into that
//! kind, `strict_schema.rs` says for which schemas this is possible, and `strict_args.rs` removes the
//! nulls that the change lets into arguments.

use dormouse_proto::model::ModelError;
use dormouse_proto::provider_tools::ToolForm;
use dormouse_proto::tool::ToolSpec;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::excerpt::invalid;
use super::json_fields::{Fields, to_raw, verbatim};
pub(crate) use super::strict_schema::StrictDialect;
use super::strict_schema::is_expressible;

/// The schema of a tool's arguments, as it is sent. It is unchanged, with one exception: an object
/// schema without `properties` gets empty ones, since some providers otherwise refuse the whole
/// request.
///
/// # Errors
/// [`InvalidRequest`](dormouse_proto::model::ModelErrorKind::InvalidRequest) if the schema is not
/// JSON.
pub(crate) fn for_request(spec: &ToolSpec) -> Result<Box<RawValue>, ModelError> {
    let original = verbatim(&spec.schema, || {
        format!("the schema of the tool '{}'", spec.name)
    })?;
    let Ok(mut fields) = serde_json::from_str::<Fields>(original.get()) else {
        return Ok(original);
    };
    if fields.len() == 0 {
        fields = Fields::of_type("object");
    }
    let lacks_properties =
        fields.text("type").as_deref() == Some("object") && fields.get("properties").is_none();
    Ok(if lacks_properties {
        to_raw(&fields.with("properties", &Fields::default()))
    } else {
        original
    })
}

/// The schema of a strict tool of Anthropic: no object takes other properties than its own, which
/// the provider requires to be said.
pub(crate) fn without_other_properties(spec: &ToolSpec) -> Result<Box<RawValue>, ModelError> {
    strict(spec, Optional::LeftOut)
}

/// The schema of a strict tool of OpenAI: as [`without_other_properties`], and each property has to
/// be given. A property that need not be given may be null, which counts as absent.
pub(crate) fn with_all_required(spec: &ToolSpec) -> Result<Box<RawValue>, ModelError> {
    strict(spec, Optional::Null)
}

/// Whether a tool is sent as a strict one.
pub(crate) fn is_strict(spec: &ToolSpec, form: Option<&ToolForm>, dialect: StrictDialect) -> bool {
    form.is_some_and(|form| {
        form.strict || form.strict_if_expressible && is_expressible(&spec.schema, dialect)
    })
}

/// How a strict schema says that a property need not be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Optional {
    LeftOut,
    Null,
}

fn strict(spec: &ToolSpec, optional: Optional) -> Result<Box<RawValue>, ModelError> {
    let schema = for_request(spec)?;
    let mut value: Value = serde_json::from_str(schema.get()).unwrap_or_default();
    make_strict(&mut value, optional);
    Ok(to_raw(&value))
}

/// Goes through every schema within a schema. Its nesting is bounded, since it was parsed.
fn make_strict(schema: &mut Value, optional: Optional) {
    let Value::Object(fields) = schema else {
        return;
    };
    for keyword in ["anyOf", "oneOf", "allOf", "prefixItems"] {
        let list = fields.get_mut(keyword).and_then(Value::as_array_mut);
        list.into_iter()
            .flatten()
            .for_each(|inner| make_strict(inner, optional));
    }
    for keyword in ["$defs", "definitions"] {
        let table = fields.get_mut(keyword).and_then(Value::as_object_mut);
        table
            .into_iter()
            .flatten()
            .for_each(|(_, inner)| make_strict(inner, optional));
    }
    if let Some(items) = fields.get_mut("items") {
        make_strict(items, optional);
    }
    let required: Vec<String> = fields
        .get("required")
        .and_then(|names| serde_json::from_value(names.clone()).ok())
        .unwrap_or_default();
    let Some(properties) = fields.get_mut("properties").and_then(Value::as_object_mut) else {
        return;
    };
    for (name, property) in properties.iter_mut() {
        make_strict(property, optional);
        if optional == Optional::Null && !required.contains(name) {
            allow_null(property);
        }
    }
    let names: Vec<_> = properties.keys().cloned().collect();
    if optional == Optional::Null {
        fields.insert("required".to_owned(), json!(names));
    }
    fields.insert("additionalProperties".to_owned(), json!(false));
}

/// Lets a property also be null.
fn allow_null(property: &mut Value) {
    // The schema `true` takes everything already.
    if !property.is_object() {
        return;
    }
    match property.get_mut("type") {
        Some(Value::String(kind)) if kind == "null" => {}
        Some(Value::String(kind)) => property["type"] = json!([kind, "null"]),
        Some(Value::Array(kinds)) if kinds.contains(&json!("null")) => {}
        Some(Value::Array(kinds)) => kinds.push(json!("null")),
        _ => *property = json!({ "anyOf": [property.take(), { "type": "null" }] }),
    }
    if let Some(words) = property.get_mut("enum").and_then(Value::as_array_mut)
        && !words.contains(&Value::Null)
    {
        words.push(Value::Null);
    }
}

/// Checks that a tool with an input format takes one text.
///
/// # Errors
/// [`InvalidRequest`](dormouse_proto::model::ModelErrorKind::InvalidRequest) if it takes something
/// else.
pub(crate) fn check_input_only(spec: &ToolSpec) -> Result<(), ModelError> {
    let schema: Value = serde_json::from_str(&spec.schema).unwrap_or_default();
    if ToolForm::takes_only_input(&schema) {
        return Ok(());
    }
    Err(invalid(format!(
        "the tool '{}' has an `input_format`, and takes more than a text: its only parameter has \
         to be the string `{}`",
        spec.name,
        ToolForm::INPUT
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strict_schemas_take_no_other_properties_and_optional_ones_may_be_null() {
        let written = json!({
            "type": "object", "required": ["a"],
            "properties": {
                "a": {"type": "object", "properties": {"n": {"type": ["integer", "string"]}}},
                "b": {"type": "string", "enum": ["x"]},
                "c": {"anyOf": [{"type": "object", "properties": {}}]},
                "d": {"type": "array", "items": {"type": "object", "properties": {"e": true}}},
            },
        });
        let spec = ToolSpec {
            name: "t".into(),
            description: "".into(),
            schema: written.to_string().into(),
        };
        let sent = |schema: Box<RawValue>| serde_json::from_str::<Value>(schema.get()).unwrap();
        let mut expected = written;
        for object in [
            "",
            "/properties/a",
            "/properties/c/anyOf/0",
            "/properties/d/items",
        ] {
            expected.pointer_mut(object).unwrap()["additionalProperties"] = json!(false);
        }
        assert_eq!(sent(without_other_properties(&spec).unwrap()), expected);
        let all = sent(with_all_required(&spec).unwrap());
        assert_eq!(all["required"], json!(["a", "b", "c", "d"]));
        let properties = &all["properties"];
        assert_eq!(
            properties["a"]["type"], "object",
            "what is required may not be null"
        );
        let inner = &properties["a"]["properties"]["n"]["type"];
        assert_eq!(*inner, json!(["integer", "string", "null"]));
        let b = json!({"type": ["string", "null"], "enum": ["x", null]});
        assert_eq!(properties["b"], b);
        assert_eq!(properties["c"]["anyOf"][1], json!({"type": "null"}));
        assert_eq!(properties["d"]["type"], json!(["array", "null"]));
    }

    #[test]
    fn an_object_schema_gets_properties_and_other_schemas_are_unchanged() {
        for (written, sent) in [
            (
                r#"{"type":"object"}"#,
                r#"{"type":"object","properties":{}}"#,
            ),
            (
                r#"{"title": "T", "type":"object", "additionalProperties": false}"#,
                r#"{"title":"T","type":"object","additionalProperties":false,"properties":{}}"#,
            ),
            ("{}", r#"{"type":"object","properties":{}}"#),
            (
                r#"{"type": "object", "properties": {"n": {"minimum": 1.0}}}"#,
                "",
            ),
            (r#"{"type":"string"}"#, ""),
            (r#"{"anyOf": []}"#, ""),
        ] {
            let spec = ToolSpec {
                name: "t".into(),
                description: "".into(),
                schema: written.into(),
            };
            let expected = if sent.is_empty() { written } else { sent };
            assert_eq!(for_request(&spec).unwrap().get(), expected);
        }
    }
}
