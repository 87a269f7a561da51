//! Prepares the JSON schemas of tools for requests.

use dormouse_proto::model::ModelError;
use dormouse_proto::tool::ToolSpec;
use serde_json::value::RawValue;

use super::json_fields::{Fields, kept, raw};

/// The schema of a tool's arguments. It is sent as it was written, with one exception: an object
/// schema without `properties` gets empty ones, since some providers refuse the whole request
/// otherwise.
///
/// # Errors
/// [`InvalidRequest`](dormouse_proto::model::ModelErrorKind::InvalidRequest) where it is no JSON.
pub(crate) fn of(spec: &ToolSpec) -> Result<Box<RawValue>, ModelError> {
    let written = kept(&spec.schema, || {
        format!("the schema of the tool '{}'", spec.name)
    })?;
    let Ok(mut fields) = serde_json::from_str::<Fields>(written.get()) else {
        return Ok(written);
    };
    if fields.len() == 0 {
        fields = Fields::of_type("object");
    }
    let lacks =
        fields.text("type").as_deref() == Some("object") && fields.get("properties").is_none();
    Ok(if lacks {
        raw(&fields.with("properties", &Fields::default()))
    } else {
        written
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
            assert_eq!(of(&spec).unwrap().get(), expected);
        }
    }
}
