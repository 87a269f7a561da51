//! Joins calls whose arguments arrive in pieces, which a request asks for with
//! `streamFunctionCallArguments`.
//!
//! The first part names the function. Each further part has pieces of arguments: the path of a
//! value, such as `$.rooms[0].name`, and the value or, for a string, a part of it. The last part
//! says no `willContinue`. What is stored and sent back is one part with all arguments.
//!
//! Pieces come from outside: one that contradicts an earlier one, or that skips elements of a list,
//! is refused.

mod json_path;

use std::collections::HashSet;

use dormouse_proto::model::ModelError;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use self::json_path::Step;
use crate::wire::excerpt::{beginning, malformed, malformed_in};
use crate::wire::json_fields::{Fields, MAX_FIELDS, to_raw};

const CALL: &str = "functionCall";
/// The fields of a call whose arguments arrive in pieces.
const PIECES: &str = "partialArgs";
const CONTINUES: &str = "willContinue";

/// What becomes of a call whose last piece did not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IncompleteCall {
    /// The reply was truncated, so its calls are not run. The pieces that arrived are kept.
    Kept,
    /// The reply claims to be complete.
    Refused,
}

/// The parts of a reply, in which each call is one part.
///
/// # Errors
/// [`Malformed`](dormouse_proto::model::ModelErrorKind::Malformed) for pieces that cannot be
/// joined.
pub(super) fn join(
    parts: &[String],
    incomplete: IncompleteCall,
) -> Result<Vec<String>, ModelError> {
    let mut joined = Vec::with_capacity(parts.len());
    let mut open: Option<PartialCall> = None;
    for json in parts {
        // A name that only a text contains costs no more than the time to look closer.
        let may_be_piece = open.is_some() || json.contains(PIECES) || json.contains(CONTINUES);
        let Some((part, call)) = may_be_piece.then(|| call_of(json)).flatten() else {
            joined.push(json.clone());
            continue;
        };
        let mut partial = match open.take() {
            Some(partial) => partial.continued_by(&part, &call)?,
            None => PartialCall::begun_by(part, &call),
        };
        partial.add_pieces(&call)?;
        match is_true(&call, CONTINUES) {
            true => open = Some(partial),
            false => joined.push(partial.finish()),
        }
    }
    match (open, incomplete) {
        (Some(partial), IncompleteCall::Kept) => joined.push(partial.finish()),
        (Some(_), IncompleteCall::Refused) => {
            return Err(malformed("the last piece of a call's arguments is missing"));
        }
        (None, _) => {}
    }
    Ok(joined)
}

/// A part, and the call that it is; none if it is no call.
fn call_of(json: &str) -> Option<(Fields, Fields)> {
    let part: Fields = serde_json::from_str(json).ok()?;
    let call = serde_json::from_str(part.get(CALL)?.get()).ok()?;
    Some((part, call))
}

fn is_true(fields: &Fields, name: &str) -> bool {
    fields.get(name).is_some_and(|value| value.get() == "true")
}

/// A call of which further pieces may arrive.
struct PartialCall {
    part: Fields,
    call: Fields,
    args: Value,
    /// Paths of the strings that later pieces may continue.
    open_strings: HashSet<String>,
}

impl PartialCall {
    fn begun_by(part: Fields, call: &Fields) -> Self {
        let args = call.get("args").map(RawValue::get);
        let args = args.and_then(|args| serde_json::from_str(args).ok());
        let mut own = call.clone();
        own.retain(|name| name != PIECES && name != CONTINUES);
        Self {
            part,
            call: own,
            args: Value::Object(args.unwrap_or_default()),
            open_strings: HashSet::new(),
        }
    }

    /// The call, which a further part continues. Fields that only the further part has, such as a
    /// thought signature, are added.
    fn continued_by(mut self, part: &Fields, call: &Fields) -> Result<Self, ModelError> {
        let name = call.text("name").filter(|name| !name.is_empty());
        if name.is_some() && name != self.call.text("name") {
            return Err(malformed(
                "a call begins before the last piece of the call before it",
            ));
        }
        let further = part.iter().filter(|(name, _)| *name != CALL);
        add_missing(&mut self.part, further);
        let known = ["name", "args", PIECES, CONTINUES];
        let further = call.iter().filter(|(name, _)| !known.contains(name));
        add_missing(&mut self.call, further);
        Ok(self)
    }

    fn add_pieces(&mut self, call: &Fields) -> Result<(), ModelError> {
        let Some(pieces) = call.get(PIECES).map(RawValue::get) else {
            return Ok(());
        };
        let pieces: Option<Vec<Fields>> = serde_json::from_str(pieces)
            .map_err(|error| malformed_in("piece of arguments", pieces, &error))?;
        let mut pieces = pieces.into_iter().flatten();
        pieces.try_for_each(|piece| {
            self.add_piece(&piece).map_err(|why| {
                let piece = piece.to_json();
                malformed(format!("a piece of arguments {why}: {}", beginning(&piece)))
            })
        })
    }

    fn add_piece(&mut self, piece: &Fields) -> Result<(), &'static str> {
        let path = piece.text("jsonPath").ok_or("has no path")?;
        let value = value_of(piece)?;
        let (slot, is_new) = slot(&mut self.args, &json_path::parse(&path)?)?;
        match (&mut *slot, value) {
            (slot, Some(value)) if is_new => *slot = value,
            // A text may begin, and go on, with nothing.
            (slot, None) if is_new => *slot = Value::String(String::new()),
            (Value::String(text), more) if self.open_strings.remove(&path) => match more {
                Some(Value::String(more)) => text.push_str(&more),
                Some(_) => return Err("continues a text with another type"),
                None => {}
            },
            _ => return Err("gives a value that an earlier one has given"),
        }
        if is_true(piece, CONTINUES) {
            if !slot.is_string() {
                return Err("continues a value that is no text");
            }
            self.open_strings.insert(path);
        }
        Ok(())
    }

    fn finish(mut self) -> String {
        self.call.set("args", to_raw(&self.args));
        self.part.set(CALL, to_raw(&self.call));
        self.part.to_json()
    }
}

/// Adds the fields that `to` does not have.
fn add_missing<'a>(to: &mut Fields, fields: impl Iterator<Item = (&'a str, &'a RawValue)>) {
    for (name, value) in fields {
        if to.get(name).is_none() && to.len() < MAX_FIELDS {
            to.set(name, value.to_owned());
        }
    }
}

/// The value of a piece; none if it has none.
fn value_of(piece: &Fields) -> Result<Option<Value>, &'static str> {
    if piece.get("nullValue").is_some() {
        return Ok(Some(Value::Null));
    }
    for (name, is_valid) in [
        ("stringValue", Value::is_string as fn(&Value) -> bool),
        ("numberValue", Value::is_number),
        ("boolValue", Value::is_boolean),
    ] {
        let value = piece.get(name).map(RawValue::get);
        let value = value.map(|json| serde_json::from_str(json).unwrap_or_default());
        if let Some(value) = value {
            return Some(value)
                .filter(is_valid)
                .map(Some)
                .ok_or("has a value of another type");
        }
    }
    Ok(None)
}

/// The value at a path, and whether it is new. Lists grow by one element at a time: a piece must
/// not make a list of any length.
fn slot<'a>(args: &'a mut Value, steps: &[Step]) -> Result<(&'a mut Value, bool), &'static str> {
    let mut current = args;
    let mut is_new = false;
    for (number, step) in (1..).zip(steps) {
        let empty = match steps.get(number) {
            Some(Step::Name(_)) => Value::Object(Map::new()),
            Some(Step::Index(_)) => Value::Array(Vec::new()),
            None => Value::Null,
        };
        current = match (current, step) {
            (Value::Object(fields), Step::Name(name)) => {
                is_new = !fields.contains_key(name);
                fields.entry(name.as_str()).or_insert(empty)
            }
            (Value::Array(items), Step::Index(index)) => {
                is_new = *index == items.len();
                if is_new {
                    items.push(empty);
                }
                items.get_mut(*index).ok_or("skips elements of a list")?
            }
            _ => return Err("contradicts an earlier one"),
        };
    }
    Ok((current, is_new))
}

#[cfg(test)]
mod tests;
