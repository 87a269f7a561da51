//! What still comes in, field by field. Nothing is lost where a field comes as a text here and as a
//! list of parts there: then the text is a part.

use dormouse_proto::model::ModelError;
use serde_json::value::RawValue;

use crate::wire::excerpt::malformed;
use crate::wire::fields::{Fields, MOST_FIELDS, raw, string};

/// An object whose fields still come in, in the order of their first parts.
#[derive(Debug, Default)]
pub(super) struct Growing(Vec<(String, Part)>);

#[derive(Debug)]
enum Part {
    Text(String),
    List {
        parts: Vec<Box<RawValue>>,
        /// What has come of a text behind them.
        text: String,
    },
    Other(Box<RawValue>),
}

impl Part {
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

/// A text as a part of a list; none where it says nothing.
fn text_part(text: &str) -> Option<Box<RawValue>> {
    (!text.is_empty()).then(|| raw(&Fields::of_type("text").with("text", text)))
}

impl Growing {
    /// What has come of a text.
    pub(super) fn text(&self, name: &str) -> &str {
        let part = self.0.iter().find(|(known, _)| known == name);
        part.map_or("", |(_, part)| {
            if let Part::Text(text) = part {
                text
            } else {
                ""
            }
        })
    }

    pub(super) fn replace(&mut self, name: &str, value: &RawValue) -> Result<(), ModelError> {
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some((_, part)) => *part = Part::of(value),
            None => self.extend(name, value)?,
        }
        Ok(())
    }

    pub(super) fn extend(&mut self, name: &str, value: &RawValue) -> Result<(), ModelError> {
        let more = Part::of(value);
        let Some((_, part)) = self.0.iter_mut().find(|(known, _)| known == name) else {
            self.0.push((name.to_owned(), more));
            return match self.0.len() {
                0..=MOST_FIELDS => Ok(()),
                _ => Err(malformed(format!(
                    "the reply grows beyond {MOST_FIELDS} fields"
                ))),
            };
        };
        match (part, more) {
            (Part::Text(text), Part::Text(more)) => text.push_str(&more),
            (Part::List { text, .. }, Part::Text(more)) => text.push_str(&more),
            (Part::List { parts, text }, Part::List { parts: more, .. }) => {
                parts.extend(text_part(&std::mem::take(text)));
                parts.extend(more);
            }
            (part, Part::List { parts: more, .. }) => {
                let before = if let Part::Text(text) = part {
                    text_part(text)
                } else {
                    None
                };
                *part = Part::List {
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
