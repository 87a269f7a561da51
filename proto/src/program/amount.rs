//! Amounts with units: durations and sizes, as people write them.

use toml::de::DeValue;

use super::Remark;
use super::reader::{Reader, integer};
use crate::descriptor::MAX_CONTENT_BYTES;

/// The longest deadline: a day.
const MOST_MS: u64 = 24 * 60 * 60 * 1_000;
/// The largest size of one thing in memory.
const MOST_BYTES: u64 = MAX_CONTENT_BYTES;
const DURATIONS: [(&str, u64); 5] = [
    ("ms", 1),
    ("s", 1_000),
    ("m", 60_000),
    ("h", 3_600_000),
    ("", 1_000),
];
/// The largest size of many things together: a terabyte.
const MOST_TOTAL_BYTES: u64 = 1_000_000_000_000;
const SIZES: [(&str, u64); 11] = [
    ("B", 1),
    ("kB", 1_000),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("TiB", 1 << 40),
    ("", 1),
];

/// A text that is no such amount.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseAmountError {
    /// Not a number and a unit of time.
    #[error("{0:?} is not a duration")]
    Duration(String),
    /// Not a number and a unit of size.
    #[error("{0:?} is not a size")]
    Size(String),
    /// Zero, or more than makes sense.
    #[error("{0} is out of range")]
    OutOfRange(String, &'static str),
}

impl ParseAmountError {
    /// What is valid.
    #[must_use]
    pub fn valid(&self) -> &'static str {
        match self {
            Self::Duration(_) => {
                "valid: \"30s\", \"500ms\", \"2m\", \"1h\", or a number of seconds"
            }
            Self::Size(_) => "valid: \"64MB\", \"512KiB\", or a number of bytes",
            Self::OutOfRange(_, valid) => valid,
        }
    }
}

/// An amount: a number of whole units, or a text with a unit.
pub(super) fn read_amount(
    section: &mut Reader<'_>,
    key: &'static str,
    parse: fn(&str) -> Result<u64, ParseAmountError>,
    unit: u64,
) -> Option<u64> {
    let node = section.get(key)?;
    let text = match node.get_ref() {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(number) => {
            integer(number).map_or_else(|| number.to_string(), |number| number.to_string())
        }
        DeValue::Float(number) if unit > 1 => number.as_str().to_owned(),
        _ => {
            section.wrong_type(
                key,
                node,
                if unit > 1 {
                    "a duration"
                } else {
                    "a number of bytes"
                },
            );
            return None;
        }
    };
    parse(&text)
        .map_err(|error| {
            let message = format!("`{}`: {error}", section.path_of(key));
            section.remark(
                Remark::error(node.span(), message, "not such an amount").help(error.valid()),
            );
        })
        .ok()
}

/// A duration in milliseconds, from 1 ms to a day: `30s`, `500ms`, `1.5m`, `1h`, or a number of
/// seconds.
///
/// # Errors
/// [`ParseAmountError`], which says what is valid.
pub fn parse_duration_ms(text: &str) -> Result<u64, ParseAmountError> {
    let amount = number_with_unit(text, &DURATIONS)
        .ok_or_else(|| ParseAmountError::Duration(shorten(text)))?;
    within(text, amount, MOST_MS, "valid: 1ms to 24h")
}

/// A size in bytes, from 1 byte to a gigabyte: `64MB`, `512KiB`, or a number of bytes.
///
/// # Errors
/// [`ParseAmountError`], which says what is valid.
pub fn parse_bytes(text: &str) -> Result<u64, ParseAmountError> {
    let amount =
        number_with_unit(text, &SIZES).ok_or_else(|| ParseAmountError::Size(shorten(text)))?;
    within(text, amount, MOST_BYTES, "valid: 1 byte to 1GB")
}

/// A size of many things together, from 1 byte to a terabyte: `2GB`, `512MiB`, or a number of
/// bytes.
pub(super) fn parse_total_bytes(text: &str) -> Result<u64, ParseAmountError> {
    let amount =
        number_with_unit(text, &SIZES).ok_or_else(|| ParseAmountError::Size(shorten(text)))?;
    within(text, amount, MOST_TOTAL_BYTES, "valid: 1 byte to 1TB")
}

fn number_with_unit(text: &str, units: &[(&str, u64)]) -> Option<f64> {
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

fn within(
    text: &str,
    amount: f64,
    most: u64,
    valid: &'static str,
) -> Result<u64, ParseAmountError> {
    #[expect(clippy::cast_precision_loss, reason = "limits are far below 2^52")]
    let is_valid = (1.0..=most as f64).contains(&amount);
    if !is_valid {
        return Err(ParseAmountError::OutOfRange(shorten(text), valid));
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked: from 1 up to the limit"
    )]
    Ok(amount.round() as u64)
}

fn shorten(text: &str) -> String {
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
