//! Prepares the JSON schemas of tools for requests.

use dormouse_proto::model::ModelError;
use dormouse_proto::tool::ToolSpec;
use serde_json::value::RawValue;

use super::json_fields::{Fields, to_raw, verbatim};

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
            assert_eq!(for_request(&spec).unwrap().get(), expected);
        }
    }
}
