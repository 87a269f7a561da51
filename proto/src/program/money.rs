//! Amounts of money: decimals, read exactly.

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
            table.report_wrong_type(key, node, Self::EXPECTED);
            return None;
        };
        let nanos = parse_nanos(&text).filter(|nanos| rules.range.contains(nanos));
        if nanos.is_none() {
            let message = format!("`{}` is not such an amount of money", table.path_of(key));
            let wrong = Diagnostic::error(node.span(), message, "not such an amount");
            table.report(wrong.help(format!(
                "valid: {} to {} with up to {DECIMALS} digits behind the point, such as \"2.50\"",
                money(*rules.range.start()),
                money(*rules.range.end())
            )));
        }
        nanos.map(Self)
    }

    fn schema(rules: &Rules) -> Json {
        let text = json!({ "type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?$" });
        let max = rules.range.end() / NANOS_PER_UNIT;
        let number = json!({ "type": "number", "minimum": 0, "maximum": max });
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
