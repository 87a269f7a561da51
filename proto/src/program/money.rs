//! Amounts of money: decimals, read exactly, as integers of a *nano*, a billionth of the currency
//! unit.
//!
//! `program.rs` says what `Value`, `Reader` and `Rules` are.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};
use toml::de::DeValue;

use super::amount::scalar_text;
use super::{Diagnostic, Named, Node, ParseAmountError, Reader, Rules, Value, shorten};
use crate::budget::{NANOS_PER_UNIT, money};

/// The largest amount of money that a program may set, in nanos.
pub(crate) const MAX_NANOS: u64 = 1_000_000_000 * NANOS_PER_UNIT;
/// Digits after the decimal point: a nano is the smallest amount of money.
const DECIMALS: usize = 9;

/// An amount of money in nanos: a number, or a text that is one.
#[derive(Clone, Copy)]
pub(crate) struct Money(pub(crate) u64);

impl Value for Money {
    const EXPECTED: &'static str = "an amount of money";

    fn read(table: &mut Reader<'_>, key: &str, node: Node<'_>, rules: &Rules) -> Option<Self> {
        let text = match node.get_ref() {
            DeValue::Float(number) => Some(number.as_str().to_owned()),
            _ => scalar_text(node),
        };
        let Some(text) = text else {
            table.report_wrong_type(key, node, rules.expected::<Self>());
            return None;
        };
        let (min, max) = (*rules.range.start(), *rules.range.end());
        let valid = format!(
            "{} to {} with up to {DECIMALS} digits behind the point and no exponent, such as \
             \"2.50\"",
            money(min),
            money(max)
        );
        let nanos = parse_nanos(&text);
        match nanos {
            None => {
                let (path, text) = (table.path_of(key), shorten(&text));
                let message = format!("`{path}` cannot be `{text}`: that is no amount of money");
                let wrong = Diagnostic::error(node.span(), message, "not an amount of money");
                table.report(wrong.help(format!("valid: {valid}")));
            }
            Some(nanos) if !rules.range.contains(&nanos) => {
                table.report_out_of_range(key, node, &valid);
            }
            Some(_) => {}
        }
        nanos.filter(|nanos| rules.range.contains(nanos)).map(Self)
    }

    fn schema(rules: &Rules) -> Json {
        let text = json!({ "type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?$" });
        let [min, max] = [rules.range.start(), rules.range.end()].map(|nanos| in_units(*nanos));
        let number = json!({ "type": "number", "minimum": min, "maximum": max });
        let digits = format!("A decimal with up to {DECIMALS} digits behind the point.");
        json!({ "title": "money", "description": digits, "anyOf": [text, number] })
    }
}

/// What one call of each tool costs, in nanos.
pub(crate) struct CallPrices(pub(crate) BTreeMap<String, u64>);

impl Value for CallPrices {
    const EXPECTED: &'static str = "a table of tools, and what one call of each costs";

    fn read(table: &mut Reader<'_>, key: &str, node: Node<'_>, rules: &Rules) -> Option<Self> {
        let rules = Rules {
            expected: Some(Self::EXPECTED),
            ..rules.clone()
        };
        let prices: Vec<Named<Money>> = Vec::read(table, key, node, &rules)?;
        let price = |Named {
                         name,
                         value: Money(nanos),
                     }| (name.value, nanos);
        Some(Self(prices.into_iter().map(price).collect()))
    }

    fn schema(rules: &Rules) -> Json {
        Vec::<Named<Money>>::schema(rules)
    }
}

/// An amount of money, in nanos: `2.50`, with up to nine digits behind the point.
///
/// # Errors
/// [`ParseAmountError::Money`].
pub fn parse_money(text: &str) -> Result<u64, ParseAmountError> {
    parse_nanos(text)
        .filter(|nanos| (1..=MAX_NANOS).contains(nanos))
        .ok_or_else(|| ParseAmountError::Money(shorten(text)))
}

/// An amount in currency units, as a JSON number: exact for whole units, else the nearest float.
fn in_units(nanos: u64) -> Json {
    if nanos.is_multiple_of(NANOS_PER_UNIT) {
        return json!(nanos / NANOS_PER_UNIT);
    }
    #[expect(
        clippy::cast_precision_loss,
        reason = "an editor compares floats; the reader compares nanos"
    )]
    let (nanos, unit) = (nanos as f64, NANOS_PER_UNIT as f64);
    json!(nanos / unit)
}

/// Parses a plain decimal and returns nanos, without rounding. `None` for any other text.
fn parse_nanos(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let is_plain = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !is_plain(whole) || !is_plain(part) || text.ends_with('.') {
        return None;
    }
    let part = part.trim_end_matches('0');
    if part.len() > DECIMALS {
        return None;
    }
    let nanos: u64 = format!("{part:0<DECIMALS$}").parse().ok()?;
    whole
        .parse::<u64>()
        .ok()?
        .checked_mul(NANOS_PER_UNIT)?
        .checked_add(nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_has_the_range_of_the_key() {
        let bounds = |range| {
            let schema = Money::schema(&Rules {
                range,
                ..Rules::ANY
            });
            let number = schema["anyOf"][1].clone();
            (number["minimum"].clone(), number["maximum"].clone())
        };
        assert_eq!(bounds(0..=MAX_NANOS), (json!(0), json!(1_000_000_000)));
        let (min, max) = bounds(1..=NANOS_PER_UNIT / 4);
        assert!(min.as_f64().unwrap() > 0.0, "{min}");
        assert_eq!(max, json!(0.25));
    }

    #[test]
    fn money_is_read_exactly_or_not_at_all() {
        let cases = [
            ("2.50", 2_500_000_000),
            ("3", 3 * NANOS_PER_UNIT),
            ("0.000000001", 1),
            ("0.1000000000000", NANOS_PER_UNIT / 10),
        ];
        for (text, nanos) in cases {
            assert_eq!(parse_nanos(text), Some(nanos), "{text}");
        }
        for text in [
            "",
            ".",
            "1.",
            ".5",
            "-1",
            "+1",
            "1e3",
            "1_000",
            "inf",
            "nan",
            "$2",
            "0.0000000001",
            "1.2.3",
            "٣",
        ] {
            assert_eq!(parse_nanos(text), None, "{text}");
        }
        assert_eq!(parse_nanos("99999999999999999999"), None);
    }
}
