//! A JSON object whose fields keep their order and their exact text.

use std::fmt;

use dormouse_proto::model::ModelError;
use dormouse_proto::provider_tools::ToolForm;
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use super::excerpt::invalid;

/// The most fields of an object: far more than a block has. Lookups are linear, so without a limit
/// a hostile server could block a thread for hours with one event.
pub(crate) const MAX_FIELDS: usize = 256;

/// The fields of an object in their original order. Numbers, escapes and inner spaces are
/// unchanged.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fields(Vec<(String, Box<RawValue>)>);

impl Fields {
    /// The JSON text of a field.
    pub(crate) fn get(&self, name: &str) -> Option<&RawValue> {
        self.0
            .iter()
            .find(|(field, _)| field == name)
            .map(|(_, value)| &**value)
    }

    /// The value of a field that is a string.
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        as_string(self.get(name)?)
    }

    /// An object whose only field is this `type`.
    pub(crate) fn of_type(kind: &str) -> Self {
        Self::default().with("type", kind)
    }

    /// Appends a field. Its name must be new.
    pub(crate) fn with(mut self, name: &str, value: &(impl Serialize + ?Sized)) -> Self {
        self.0.push((name.to_owned(), to_raw(value)));
        self
    }

    /// Appends a field if there is a value.
    pub(crate) fn with_some(self, name: &str, value: Option<&(impl Serialize + ?Sized)>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }

    /// Replaces a field in place, or appends it.
    pub(crate) fn set(&mut self, name: &str, value: Box<RawValue>) {
        match self.0.iter_mut().find(|(field, _)| field == name) {
            Some((_, old)) => *old = value,
            None => self.0.push((name.to_owned(), value)),
        }
    }

    /// Keeps the fields whose names `is_kept` accepts.
    pub(crate) fn retain(&mut self, is_kept: impl Fn(&str) -> bool) {
        self.0.retain(|(name, _)| is_kept(name));
    }

    /// The number of fields.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The fields in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &RawValue)> {
        self.0.iter().map(|(name, value)| (name.as_str(), &**value))
    }

    /// The object as JSON text.
    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("raw values and string keys always serialize")
    }

    /// The object as JSON text, with a list as its last field, up to the first element of that.
    pub(crate) fn to_json_up_to_list(&self, name: &str) -> String {
        let json = self.to_json();
        let open = json
            .strip_suffix('}')
            .expect("an object ends with its brace");
        let comma = if self.0.is_empty() { "" } else { "," };
        format!("{open}{comma}\"{name}\":[")
    }
}

/// The field `type` of an object.
pub(crate) fn type_of(json: &str) -> Option<String> {
    serde_json::from_str::<Fields>(json).ok()?.text("type")
}

/// The value as a string; none if it has another type.
pub(crate) fn as_string(value: &RawValue) -> Option<String> {
    serde_json::from_str(value.get()).ok()
}

/// The value as JSON text.
pub(crate) fn to_raw(value: &(impl Serialize + ?Sized)) -> Box<RawValue> {
    serde_json::value::to_raw_value(value)
        .expect("strings and lists of JSON values always serialize")
}

/// A JSON text as a raw value, unchanged.
///
/// # Errors
/// The text is not JSON. `what` describes it in the error.
pub(crate) fn verbatim(
    json: &str,
    what: impl FnOnce() -> String,
) -> Result<Box<RawValue>, ModelError> {
    RawValue::from_string(json.to_owned())
        .map_err(|error| invalid(format!("{} is no JSON: {error}", what())))
}

/// The arguments of a tool use as a JSON object. Arguments that are not an object (an error of the
/// model, or a truncated reply) become an empty object.
pub(crate) fn object_or_empty(args: &str) -> Box<RawValue> {
    let value = RawValue::from_string(args.trim().to_owned())
        .ok()
        .filter(|value| value.get().starts_with('{'));
    value.unwrap_or_else(|| to_raw(&serde_json::Map::new()))
}

/// The arguments of a tool that takes a text: an object whose only field is that text.
pub(crate) fn input_args(input: &str) -> String {
    Fields::default().with(ToolForm::INPUT, input).to_json()
}

/// Whether the arguments of a tool use are a JSON object. After a truncated reply or an error of
/// the model they may not be, and servers refuse such arguments in the next request. An object may
/// have any number of fields.
pub(crate) fn is_object(args: &str) -> bool {
    args.trim_start().starts_with('{') && serde_json::from_str::<IgnoredAny>(args).is_ok()
}

impl Serialize for Fields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FieldsVisitor;
        impl<'de> Visitor<'de> for FieldsVisitor {
            type Value = Fields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut fields = Fields::default();
                while let Some(entry) = map.next_entry()? {
                    if fields.0.len() == MAX_FIELDS {
                        return Err(serde::de::Error::custom(format_args!(
                            "more than {MAX_FIELDS} fields"
                        )));
                    }
                    fields.0.push(entry);
                }
                Ok(fields)
            }
        }
        deserializer.deserialize_map(FieldsVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_with_any_number_of_fields_are_an_object() {
        let fields: Vec<_> = (0..=MAX_FIELDS)
            .map(|at| format!("\"f{at}\":{at}"))
            .collect();
        let many = format!(" {{{}}}\n", fields.join(","));
        for (args, expected) in [
            (many.as_str(), true),
            ("{}", true),
            ("{\"a\":", false),
            ("{} {}", false),
            ("[1]", false),
            ("", false),
        ] {
            assert_eq!(is_object(args), expected, "{args}");
        }
    }
}
