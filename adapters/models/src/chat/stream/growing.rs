//! What still comes in, field by field.

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
    List(Vec<Box<RawValue>>),
    Other(Box<RawValue>),
}

impl Part {
    fn of(value: &RawValue) -> Self {
        match (string(value), serde_json::from_str(value.get())) {
            (Some(text), _) => Self::Text(text),
            (None, Ok(list)) => Self::List(list),
            (None, Err(_)) => Self::Other(value.to_owned()),
        }
    }

    fn json(&self) -> Box<RawValue> {
        match self {
            Self::Text(text) => raw(text),
            Self::List(list) => raw(list),
            Self::Other(json) => json.clone(),
        }
    }
}

impl Growing {
    /// What has come of a text.
    pub(super) fn text(&self, name: &str) -> &str {
        let part = self.0.iter().find(|(known, _)| known == name);
        part.map_or("", |(_, part)| if let Part::Text(text) = part { text } else { "" })
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
                _ => Err(malformed(format!("the reply grows beyond {MOST_FIELDS} fields"))),
            };
        };
        match (part, more) {
            (Part::Text(text), Part::Text(more)) => text.push_str(&more),
            (Part::List(list), Part::List(more)) => list.extend(more),
            (part, more) => *part = more,
        }
        Ok(())
    }

    pub(super) fn finish(self) -> Fields {
        self.0.iter().fold(Fields::default(), |fields, (name, part)| fields.with(name, &part.json()))
    }
}
