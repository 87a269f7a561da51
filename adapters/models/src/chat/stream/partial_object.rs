//! A JSON object that arrives in parts. If a field arrives as a text in one event and as a list of
//! parts in another, the text becomes a part of the list, so nothing is lost.

use dormouse_proto::model::ModelError;
use serde_json::value::RawValue;

use crate::wire::excerpt::malformed;
use crate::wire::json_fields::{Fields, MAX_FIELDS, raw, string};

/// An object whose fields are still arriving, in the order of their first parts.
#[derive(Debug, Default)]
pub(super) struct PartialObject(Vec<(String, FieldValue)>);

#[derive(Debug)]
enum FieldValue {
    Text(String),
    List {
        parts: Vec<Box<RawValue>>,
        /// The text so far after these parts.
        text: String,
    },
    Other(Box<RawValue>),
}

impl FieldValue {
    fn of(value: &RawValue) -> Self {
        match (string(value), serde_json::from_str(value.get())) {
            (Some(text), _) => Self::Text(text),
            (None, Ok(parts)) => Self::List {
                parts,
                text: String::new(),
            },
            (None, Err(_)) => Self::Other(value.to_owned()),
        }
    }

    fn json(&self) -> Box<RawValue> {
        match self {
            Self::Text(text) => raw(text),
            Self::List { parts, text } => raw(&parts
                .iter()
                .cloned()
                .chain(text_part(text))
                .collect::<Vec<_>>()),
            Self::Other(json) => json.clone(),
        }
    }
}

/// A text as a part of a list; none if it is empty.
fn text_part(text: &str) -> Option<Box<RawValue>> {
    (!text.is_empty()).then(|| raw(&Fields::of_type("text").with("text", text)))
}

impl PartialObject {
    /// The text of a field so far; empty if it is absent or not a text.
    pub(super) fn text(&self, name: &str) -> &str {
        let part = self.0.iter().find(|(known, _)| known == name);
        part.map_or("", |(_, part)| {
            if let FieldValue::Text(text) = part {
                text
            } else {
                ""
            }
        })
    }

    pub(super) fn replace(&mut self, name: &str, value: &RawValue) -> Result<(), ModelError> {
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some((_, part)) => *part = FieldValue::of(value),
            None => self.extend(name, value)?,
        }
        Ok(())
    }

    pub(super) fn extend(&mut self, name: &str, value: &RawValue) -> Result<(), ModelError> {
        let more = FieldValue::of(value);
        let Some((_, part)) = self.0.iter_mut().find(|(known, _)| known == name) else {
            self.0.push((name.to_owned(), more));
            return match self.0.len() {
                0..=MAX_FIELDS => Ok(()),
                _ => Err(malformed(format!(
                    "the reply grows beyond {MAX_FIELDS} fields"
                ))),
            };
        };
        match (part, more) {
            (FieldValue::Text(text), FieldValue::Text(more)) => text.push_str(&more),
            (FieldValue::List { text, .. }, FieldValue::Text(more)) => text.push_str(&more),
            (FieldValue::List { parts, text }, FieldValue::List { parts: more, .. }) => {
                parts.extend(text_part(&std::mem::take(text)));
                parts.extend(more);
            }
            (part, FieldValue::List { parts: more, .. }) => {
                let before = if let FieldValue::Text(text) = part {
                    text_part(text)
                } else {
                    None
                };
                *part = FieldValue::List {
                    parts: before.into_iter().chain(more).collect(),
                    text: String::new(),
                };
            }
            (part, more) => *part = more,
        }
        Ok(())
    }

    pub(super) fn finish(self) -> Fields {
        self.0
            .iter()
            .fold(Fields::default(), |fields, (name, part)| {
                fields.with(name, &part.json())
            })
    }
}
