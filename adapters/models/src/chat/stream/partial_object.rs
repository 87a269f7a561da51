//! A JSON object that arrives in parts, over several events. If a field is a text in one event and
//! a list of parts in another, the text becomes a part of the list, so nothing is lost.

use dormouse_proto::model::ModelError;
use serde_json::value::RawValue;

use crate::wire::excerpt::malformed;
use crate::wire::json_fields::{Fields, MAX_FIELDS, as_string, to_raw};

/// An object whose fields are still arriving, in the order of their first parts.
#[derive(Clone, Debug, Default)]
pub(super) struct PartialObject(Vec<(String, FieldValue)>);

#[derive(Clone, Debug)]
enum FieldValue {
    Text(String),
    List {
        parts: Vec<Box<RawValue>>,
        /// The text that arrived after these parts.
        text: String,
    },
    Other(Box<RawValue>),
}

impl FieldValue {
    fn parse(value: &RawValue) -> Self {
        match (as_string(value), serde_json::from_str(value.get())) {
            (Some(text), _) => Self::Text(text),
            (None, Ok(parts)) => Self::List {
                parts,
                text: String::new(),
            },
            (None, Err(_)) => Self::Other(value.to_owned()),
        }
    }

    fn to_json(&self) -> Box<RawValue> {
        match self {
            Self::Text(text) => to_raw(text),
            Self::List { parts, text } => to_raw(
                &parts
                    .iter()
                    .cloned()
                    .chain(text_part(text))
                    .collect::<Vec<_>>(),
            ),
            Self::Other(json) => json.clone(),
        }
    }
}

/// A text as a part of a list; none if it is empty.
fn text_part(text: &str) -> Option<Box<RawValue>> {
    (!text.is_empty()).then(|| to_raw(&Fields::of_type("text").with("text", text)))
}

impl PartialObject {
    /// The text of a field so far; empty if it is absent or not a text.
    pub(super) fn text(&self, name: &str) -> &str {
        let current = self.0.iter().find(|(field, _)| field == name);
        current.map_or("", |(_, current)| {
            if let FieldValue::Text(text) = current {
                text
            } else {
                ""
            }
        })
    }

    /// Whether a field is absent, or an empty text.
    pub(super) fn is_empty(&self, name: &str) -> bool {
        let is_filled =
            |current: &FieldValue| !matches!(current, FieldValue::Text(text) if text.is_empty());
        let mut fields = self.0.iter();
        !fields.any(|(field, current)| field == name && is_filled(current))
    }

    /// Sets a field, or replaces its value.
    pub(super) fn replace(&mut self, name: &str, value: &RawValue) -> Result<(), ModelError> {
        match self.0.iter_mut().find(|(field, _)| field == name) {
            Some((_, current)) => *current = FieldValue::parse(value),
            None => self.extend(name, value)?,
        }
        Ok(())
    }

    /// Appends a text or a list to a field; any other value replaces the field.
    ///
    /// # Errors
    /// The object gets too many fields.
    pub(super) fn extend(&mut self, name: &str, value: &RawValue) -> Result<(), ModelError> {
        let added = FieldValue::parse(value);
        let Some((_, current)) = self.0.iter_mut().find(|(field, _)| field == name) else {
            self.0.push((name.to_owned(), added));
            return match self.0.len() {
                0..=MAX_FIELDS => Ok(()),
                _ => Err(malformed(format!(
                    "the reply grows beyond {MAX_FIELDS} fields"
                ))),
            };
        };
        match (current, added) {
            (FieldValue::Text(text), FieldValue::Text(added)) => text.push_str(&added),
            (FieldValue::List { text, .. }, FieldValue::Text(added)) => text.push_str(&added),
            (FieldValue::List { parts, text }, FieldValue::List { parts: added, .. }) => {
                parts.extend(text_part(&std::mem::take(text)));
                parts.extend(added);
            }
            (current, FieldValue::List { parts: added, .. }) => {
                let before = if let FieldValue::Text(text) = current {
                    text_part(text)
                } else {
                    None
                };
                *current = FieldValue::List {
                    parts: before.into_iter().chain(added).collect(),
                    text: String::new(),
                };
            }
            (current, added) => *current = added,
        }
        Ok(())
    }

    pub(super) fn finish(self) -> Fields {
        self.0
            .iter()
            .fold(Fields::default(), |fields, (name, current)| {
                fields.with(name, &current.to_json())
            })
    }
}
