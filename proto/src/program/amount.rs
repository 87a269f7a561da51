//! Amounts with units: durations and sizes, as people write them.

use serde_json::{Value as Json, json};
use toml::de::DeValue;

use super::reader::integer;
use super::{Diagnostic, Node, Reader, Rules, Value};
use crate::descriptor::MAX_CONTENT_BYTES;

/// A day in milliseconds: the longest duration, unless the key allows more.
const DAY_MS: u64 = 24 * 60 * 60 * 1_000;
/// The longest duration of keys that allow more than a day: ten years.
pub(crate) const MAX_LONG_DURATION_MS: u64 = 3_650 * DAY_MS;
const DURATIONS: [(&str, u64); 6] = [
    ("d", DAY_MS),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1_000),
    ("", 1_000),
    ("ms", 1),
];
const SIZES: [(&str, u64); 11] = [
    ("TB", 1_000_000_000_000),
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("kB", 1_000),
    ("KB", 1_000),
    ("B", 1),
    ("", 1),
];

/// A duration in milliseconds: a text with a unit, or a number of seconds. At least 1 ms.
#[derive(Clone, Copy)]
pub(crate) struct Duration(pub(crate) u64);

/// A size in bytes: a text with a unit, or a number of bytes. At least 1 byte.
#[derive(Clone, Copy)]
pub(crate) struct Size(pub(crate) u64);

/// A text that is not a valid amount.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseAmountError {
    /// Not a number and a unit of time.
    #[error("{0:?} is not a duration")]
    Duration(String),
    /// Not a number and a unit of size.
    #[error("{0:?} is not a size")]
    Size(String),
    /// Not an amount of money.
    #[error("{0:?} is not an amount of money")]
    Money(String),
    /// Out of range; the second text is the valid range.
    #[error("{0} is out of range")]
    OutOfRange(String, String),
}

impl ParseAmountError {
    /// What is valid.
    #[must_use]
    pub fn valid(&self) -> &str {
        match self {
            Self::Duration(_) => {
                "valid: \"30s\", \"500ms\", \"2m\", \"1h\", \"1d\", or a number of seconds"
            }
            Self::Size(_) => "valid: \"64MB\", \"512KiB\", or a number of bytes",
            Self::Money(_) => "valid: \"2.50\", with up to nine digits behind the point",
            Self::OutOfRange(_, valid) => valid,
        }
    }
}

/// A duration in milliseconds, from 1 ms to a day: `30s`, `500ms`, `1.5m`, `1h`, or a number of
/// seconds.
///
/// # Errors
/// [`ParseAmountError`], which says what is valid.
pub fn parse_duration_ms(text: &str) -> Result<u64, ParseAmountError> {
    parse_duration_to(text, DAY_MS)
}

fn parse_duration_to(text: &str, max_ms: u64) -> Result<u64, ParseAmountError> {
    let amount = parse_number_with_unit(text, &DURATIONS)
        .ok_or_else(|| ParseAmountError::Duration(shorten_amount(text)))?;
    check_range(text, amount, max_ms, "1ms", &DURATIONS)
}

/// A size in bytes, from 1 byte to a gigabyte: `64MB`, `512KiB`, or a number of bytes.
///
/// # Errors
/// [`ParseAmountError`], which says what is valid.
pub fn parse_bytes(text: &str) -> Result<u64, ParseAmountError> {
    parse_bytes_to(text, MAX_CONTENT_BYTES)
}

fn parse_bytes_to(text: &str, max: u64) -> Result<u64, ParseAmountError> {
    let amount = parse_number_with_unit(text, &SIZES)
        .ok_or_else(|| ParseAmountError::Size(shorten_amount(text)))?;
    check_range(text, amount, max, "1 byte", &SIZES)
}

impl Value for Duration {
    const EXPECTED: &'static str = "a duration";

    fn read(table: &mut Reader<'_>, key: &str, node: Node<'_>, rules: &Rules) -> Option<Self> {
        let max_ms = max_duration_ms(rules);
        let parse = |text: &str| parse_duration_to(text, max_ms);
        let text = match node.get_ref() {
            DeValue::Float(number) => Some(number.as_str().to_owned()),
            _ => scalar_text(node),
        };
        read_amount(table, key, node, text, Self::EXPECTED, parse).map(Self)
    }

    fn schema(rules: &Rules) -> Json {
        let max_ms = max_duration_ms(rules);
        let text = json!({ "type": "string", "pattern": unit_pattern(&DURATIONS) });
        let number =
            json!({ "type": "number", "minimum": 0.001, "maximum": max_ms.div_ceil(1_000) });
        let max = format_with_unit(max_ms, &DURATIONS);
        let units = format!(
            "A number of seconds, or a text such as `500ms`, `30s`, `2m`, `1h` or `1d`; up to {max}."
        );
        json!({ "title": "duration", "description": units, "anyOf": [text, number] })
    }

    fn show(&self) -> Option<Json> {
        Some(json!(format_with_unit(self.0, &DURATIONS)))
    }
}

impl Value for Size {
    const EXPECTED: &'static str = "a number of bytes";

    fn read(table: &mut Reader<'_>, key: &str, node: Node<'_>, rules: &Rules) -> Option<Self> {
        let parse = |text: &str| parse_bytes_to(text, *rules.range.end());
        read_amount(table, key, node, scalar_text(node), Self::EXPECTED, parse).map(Self)
    }

    fn schema(rules: &Rules) -> Json {
        let text = json!({ "type": "string", "pattern": unit_pattern(&SIZES) });
        let max = format_with_unit(*rules.range.end(), &SIZES);
        let units =
            format!("A number of bytes, or a text such as `64MB` or `512KiB`; up to {max}.");
        json!({ "title": "size", "description": units, "anyOf": [text, u64::schema(rules)] })
    }

    fn show(&self) -> Option<Json> {
        Some(json!(format_with_unit(self.0, &SIZES)))
    }
}

/// The longest duration that a key allows.
fn max_duration_ms(rules: &Rules) -> u64 {
    match *rules.range.end() {
        u64::MAX => DAY_MS,
        max_ms => max_ms,
    }
}

/// A whole number or a text, as text.
pub(super) fn scalar_text(node: Node<'_>) -> Option<String> {
    match node.get_ref() {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) => {
            let value = integer(number);
            Some(value.map_or_else(|| number.to_string(), |value| value.to_string()))
        }
        _ => None,
    }
}

fn read_amount(
    table: &mut Reader<'_>,
    key: &str,
    node: Node<'_>,
    text: Option<String>,
    expected: &str,
    parse: impl Fn(&str) -> Result<u64, ParseAmountError>,
) -> Option<u64> {
    let Some(text) = text else {
        table.report_wrong_type(key, node, expected);
        return None;
    };
    let parsed = parse(&text);
    if let Err(error) = &parsed {
        let message = format!("`{}`: {error}", table.path_of(key));
        let wrong = Diagnostic::error(node.span(), message, "not such an amount");
        table.report(wrong.help(error.valid()));
    }
    parsed.ok()
}

fn parse_number_with_unit(text: &str, units: &[(&str, u64)]) -> Option<f64> {
    let text = text.trim();
    let end = text
        .find(|c: char| c.is_ascii_alphabetic())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let (_, factor) = units.iter().find(|(word, _)| *word == unit)?;
    let number = number.trim_end();
    let is_plain = number
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.' || byte == b'-');
    let number: f64 = is_plain.then(|| number.parse().ok())??;
    #[expect(
        clippy::cast_precision_loss,
        reason = "units are powers of ten or two below 2^52"
    )]
    Some(number * *factor as f64)
}

fn check_range(
    text: &str,
    amount: f64,
    max: u64,
    min: &str,
    units: &[(&str, u64)],
) -> Result<u64, ParseAmountError> {
    #[expect(clippy::cast_precision_loss, reason = "limits are far below 2^52")]
    let is_valid = (1.0..=max as f64).contains(&amount);
    if !is_valid {
        let valid = format!("valid: {min} to {}", format_with_unit(max, units));
        return Err(ParseAmountError::OutOfRange(shorten_amount(text), valid));
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked: from 1 up to the limit"
    )]
    Ok(amount.round() as u64)
}

/// The amount in the largest unit that divides it: `256MiB`.
fn format_with_unit(amount: u64, units: &[(&str, u64)]) -> String {
    let mut divisors = units
        .iter()
        .filter(|(_, factor)| amount.is_multiple_of(*factor));
    let (unit, factor) = divisors.next().expect("one unit of each kind is 1");
    format!("{}{unit}", amount / factor)
}

fn unit_pattern(units: &[(&str, u64)]) -> String {
    let words: Vec<_> = units.iter().map(|(word, _)| *word).collect();
    format!(r"^\s*[0-9.]+\s*({})\s*$", words.join("|"))
}

fn shorten_amount(text: &str) -> String {
    text.chars().take(32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_as_people_write_them() {
        let durations = [
            ("30s", 30_000),
            ("500ms", 500),
            ("2m", 120_000),
            ("1.5 h", 5_400_000),
            ("1d", 86_400_000),
            ("7", 7_000),
        ];
        for (text, ms) in durations {
            assert_eq!(parse_duration_ms(text), Ok(ms), "{text}");
        }
        let sizes = [
            ("64MB", 64_000_000),
            ("1KiB", 1_024),
            ("2 kB", 2_000),
            ("17", 17),
            ("1GB", 1_000_000_000),
        ];
        for (text, bytes) in sizes {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn anything_else_is_refused_with_what_is_valid() {
        for text in [
            "",
            "s",
            "30 parsecs",
            "1e9s",
            "--1s",
            "1..2s",
            "inf",
            "nan",
            "٣s",
            "1s1s",
        ] {
            let error = parse_duration_ms(text).unwrap_err();
            assert!(
                matches!(error, ParseAmountError::Duration(_)),
                "{text}: {error}"
            );
            assert!(error.valid().contains("30s"));
        }
        for text in ["0", "-1s", "25h", "0.1ms", "99999999999999999999999h"] {
            let error = parse_duration_ms(text).unwrap_err();
            assert!(
                matches!(error, ParseAmountError::OutOfRange(..)),
                "{text}: {error}"
            );
        }
        for text in ["0", "2GB", "1001MB"] {
            assert!(
                matches!(parse_bytes(text), Err(ParseAmountError::OutOfRange(..))),
                "{text}"
            );
        }
        assert!(matches!(
            parse_bytes("64 megs"),
            Err(ParseAmountError::Size(_))
        ));
    }
}
