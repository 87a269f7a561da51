//! Amounts with units: durations and sizes, as people write them.
//!
//! `program.rs` says what `Value`, `Reader` and `Rules` are.

use std::ops::RangeInclusive;

use serde_json::{Value as Json, json};
use toml::de::DeValue;

use super::reader::integer;
use super::{Diagnostic, Node, Reader, Rules, Value, shorten};
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

/// The valid amounts, in the unit in which they are stored.
type Range = RangeInclusive<u64>;

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
    parse_duration_in(text, &(1..=DAY_MS))
}

fn parse_duration_in(text: &str, range_ms: &Range) -> Result<u64, ParseAmountError> {
    let amount = parse_number_with_unit(text, &DURATIONS)
        .ok_or_else(|| ParseAmountError::Duration(shorten(text)))?;
    check_range(text, amount, range_ms, &DURATIONS)
}

/// A size in bytes, from 1 byte to a gigabyte: `64MB`, `512KiB`, or a number of bytes.
///
/// # Errors
/// [`ParseAmountError`], which says what is valid.
pub fn parse_bytes(text: &str) -> Result<u64, ParseAmountError> {
    parse_bytes_in(text, &(1..=MAX_CONTENT_BYTES))
}

fn parse_bytes_in(text: &str, range: &Range) -> Result<u64, ParseAmountError> {
    let amount = parse_number_with_unit(text, &SIZES)
        .ok_or_else(|| ParseAmountError::Size(shorten(text)))?;
    check_range(text, amount, range, &SIZES)
}

impl Value for Duration {
    const EXPECTED: &'static str = "a duration";

    fn read(table: &mut Reader<'_>, key: &str, node: Node<'_>, rules: &Rules) -> Option<Self> {
        let range_ms = duration_range_ms(rules);
        let parse = |text: &str| parse_duration_in(text, &range_ms);
        let text = match node.get_ref() {
            DeValue::Float(number) => Some(number.as_str().to_owned()),
            _ => scalar_text(node),
        };
        read_amount(table, key, node, text, rules.expected::<Self>(), parse).map(Self)
    }

    fn schema(rules: &Rules) -> Json {
        let (min_ms, max_ms) = duration_range_ms(rules).into_inner();
        let text = json!({ "type": "string", "pattern": unit_pattern(&DURATIONS) });
        #[expect(clippy::cast_precision_loss, reason = "limits are far below 2^52")]
        let min_seconds = min_ms as f64 / 1_000.0;
        let number =
            json!({ "type": "number", "minimum": min_seconds, "maximum": max_ms.div_ceil(1_000) });
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
        let (min, max) = (*rules.range.start(), *rules.range.end());
        let parse = |text: &str| parse_bytes_in(text, &(min.max(1)..=max));
        let expected = rules.expected::<Self>();
        read_amount(table, key, node, scalar_text(node), expected, parse).map(Self)
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

/// The durations that a key allows.
fn duration_range_ms(rules: &Rules) -> Range {
    let max_ms = match *rules.range.end() {
        u64::MAX => DAY_MS,
        max_ms => max_ms,
    };
    (*rules.range.start()).max(1)..=max_ms
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
        let wrong = Diagnostic::error(node.span(), message, "not a valid amount");
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
    range: &Range,
    units: &[(&str, u64)],
) -> Result<u64, ParseAmountError> {
    let (min, max) = (*range.start(), *range.end());
    #[expect(clippy::cast_precision_loss, reason = "limits are far below 2^52")]
    let is_valid = (min as f64..=max as f64).contains(&amount);
    if !is_valid {
        let [min, max] = [min, max].map(|amount| format_with_unit(amount, units));
        let valid = format!("valid: {min} to {max}");
        return Err(ParseAmountError::OutOfRange(shorten(text), valid));
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
    fn an_amount_below_the_range_of_its_key_is_refused() {
        let range = 60_000..=DAY_MS;
        assert_eq!(parse_duration_in("1m", &range), Ok(60_000));
        let error = parse_duration_in("59s", &range).unwrap_err();
        assert_eq!(error.valid(), "valid: 1m to 1d");
        let rules = Rules {
            range,
            ..Rules::ANY
        };
        assert_eq!(Duration::schema(&rules)["anyOf"][1]["minimum"], json!(60.0));
        assert!(parse_bytes_in("1kB", &(1_024..=4_096)).is_err());
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
