//! Conversion of a JSON value to the type of its parameter.
//!
//! Models send numbers, booleans and lists as strings as well. What has one meaning is accepted.

use serde_json::{Map, Value};

use super::parameter::ParameterKind;

/// The value of an argument, converted to the type of its parameter.
#[derive(Debug)]
pub enum Arg {
    /// A text.
    Text(String),
    /// An integer beyond 64 bits is clamped; it is out of every valid range anyway.
    Integer(i64),
    /// `true` or `false`.
    Flag(bool),
    /// A list.
    List(Vec<Value>),
    /// The first and the last number. The last is `None` for a range without an end.
    Range(i64, Option<i64>),
    /// An object.
    Object(Map<String, Value>),
}

impl Arg {
    /// The value as JSON, in the one spelling that all values with its meaning have.
    pub(super) fn into_json(self) -> Value {
        match self {
            Self::Text(text) => text.into(),
            Self::Integer(number) => number.into(),
            Self::Flag(flag) => flag.into(),
            Self::List(items) => items.into(),
            Self::Range(first, None) => format!("{first}-").into(),
            Self::Range(first, Some(last)) => format!("{first}-{last}").into(),
            Self::Object(fields) => fields.into(),
        }
    }
}

/// Converts a value to the type of its parameter. `None` if it has another type.
#[must_use]
pub fn convert(value: &Value, kind: ParameterKind) -> Option<Arg> {
    match (kind, value) {
        (ParameterKind::Text | ParameterKind::Word, Value::String(text)) => {
            Some(Arg::Text(text.clone()))
        }
        (ParameterKind::Word, Value::Number(number)) => Some(Arg::Text(number.to_string())),
        (ParameterKind::Integer, value) => integer(value).map(Arg::Integer),
        (ParameterKind::Flag, Value::Bool(flag)) => Some(Arg::Flag(*flag)),
        // Models also write the words as in Python: True, False.
        (ParameterKind::Flag, Value::String(text)) => {
            text.to_ascii_lowercase().parse().ok().map(Arg::Flag)
        }
        (ParameterKind::List(_), Value::Array(items)) => Some(Arg::List(items.clone())),
        (ParameterKind::List(_), Value::String(text)) => {
            serde_json::from_str(text).ok().map(Arg::List)
        }
        (ParameterKind::Object, Value::Object(fields)) => Some(Arg::Object(fields.clone())),
        (ParameterKind::Object, Value::String(text)) => {
            serde_json::from_str(text).ok().map(Arg::Object)
        }
        (ParameterKind::Range, value) => range(value).map(|(first, last)| Arg::Range(first, last)),
        _ => None,
    }
}

fn integer(value: &Value) -> Option<i64> {
    match value {
        Value::Number(number) => to_integer(number),
        Value::String(text) => parse_decimal(text),
        _ => None,
    }
}

/// Converts `[10, 40]`, `"10-40"` and `"[10, 40]"`. A range without an end is `[10]`, `[10, -1]`,
/// `[10, null]` or `"10-"`; a number alone is a range of one.
fn range(value: &Value) -> Option<(i64, Option<i64>)> {
    match value {
        Value::Array(items) => match items.as_slice() {
            [first] | [first, Value::Null] => Some((integer(first)?, None)),
            [first, last] => {
                let last = integer(last)?;
                Some((integer(first)?, (last != -1).then_some(last)))
            }
            _ => None,
        },
        Value::String(text) => match serde_json::from_str(text) {
            Ok(value @ Value::Array(_)) => range(&value),
            _ => range_text(text.trim()),
        },
        value => integer(value).map(|only| (only, Some(only))),
    }
}

fn range_text(text: &str) -> Option<(i64, Option<i64>)> {
    let number = |text: &str| parse_decimal(text.trim());
    match text.split_once(['-', ':']) {
        Some((first, "")) => Some((number(first)?, None)),
        Some((first, last)) => Some((number(first)?, Some(number(last)?))),
        None => number(text).map(|only| (only, Some(only))),
    }
}

/// Converts a JSON number to an integer. `2.0` is accepted, since JSON has only one number type.
/// The conversion saturates.
fn to_integer(number: &serde_json::Number) -> Option<i64> {
    let whole = |float: f64| (float.fract() == 0.0).then_some(float as i64);
    number.as_i64().or_else(|| number.as_f64().and_then(whole))
}

fn parse_decimal(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_decimal = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let limit = if digits.len() < text.len() {
        i64::MIN
    } else {
        i64::MAX
    };
    is_decimal.then(|| text.parse().unwrap_or(limit))
}
