//! `[budget]` and `[prices]`: what a process and all below it may use, and what models cost.

use toml::de::DeValue;

use super::amount::{parse_duration_ms, parse_total_bytes, read_amount};
use super::reader::{Node, Reader, integer};
use super::{At, Remark, Span};
use crate::budget::{Budget, NANOS, Price};

/// The most tokens that make sense.
const MOST_TOKENS: u64 = 1_000_000_000_000_000;
/// The most processes of one tree.
const MOST_PROCESSES: u64 = 1_000_000;
/// The deepest tree.
const MOST_DEPTH: u64 = 64;
/// The most money, in whole units.
const MOST_UNITS: u64 = 1_000_000_000;
/// The most models that one program may price.
const MOST_PRICES: usize = 256;
/// Digits behind the point: a nano is the smallest amount of money.
const DECIMALS: usize = 9;

/// `[budget]` as written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BudgetSection {
    /// The limits.
    pub limits: Budget,
    /// Where `cost` stands.
    pub cost_at: Option<Span>,
}

/// An entry of `[prices]`: a model's name at its provider, and what it costs.
pub type PriceEntry = (At<String>, Price);

pub(super) fn read_budget(root: &mut Reader<'_>) -> BudgetSection {
    let Some(mut section) = root.section("budget") else {
        return BudgetSection::default();
    };
    let mut number = |key, most| section.number(key, 1..=most).map(|number| number.value);
    let counts = [
        number("input_tokens", MOST_TOKENS),
        number("output_tokens", MOST_TOKENS),
    ];
    let [processes, depth] = [
        number("processes", MOST_PROCESSES),
        number("depth", MOST_DEPTH),
    ];
    let cost = money(&mut section, "cost", 1);
    let limits = Budget {
        input_tokens: counts[0],
        output_tokens: counts[1],
        cost_nanos: cost.as_ref().map(|cost| cost.value),
        wall_time_ms: read_amount(&mut section, "wall_time", parse_duration_ms, 1_000),
        processes,
        depth,
        resident_bytes: read_amount(&mut section, "resident_bytes", parse_total_bytes, 1),
    };
    section.finish();
    BudgetSection {
        limits,
        cost_at: cost.map(|cost| cost.span),
    }
}

pub(super) fn read_prices(root: &mut Reader<'_>) -> Vec<PriceEntry> {
    let mut prices = Vec::new();
    let Some(node) = root.get("prices") else {
        return prices;
    };
    let count = node.get_ref().as_table().map_or(0, |table| table.len());
    if !root.is_within("prices", node, count, MOST_PRICES) {
        return prices;
    }
    let Some(mut section) = root.section("prices") else {
        return prices;
    };
    for (model, node) in section.entries() {
        let DeValue::Table(table) = node.get_ref() else {
            section.wrong_type(
                &model.value,
                node,
                "a table of `input`, `output`, `cache_read` and `cache_write`",
            );
            continue;
        };
        let mut entry = section.inner(&model.value, table, node.span());
        if let Some(price) = price(&mut entry) {
            prices.push((model, price));
        }
        entry.finish();
    }
    prices
}

/// What is not said of the cache costs what other input does.
fn price(entry: &mut Reader<'_>) -> Option<Price> {
    let mut of = |key| money(entry, key, 0).map(|price| price.value);
    let [input, output, cache_read, cache_write] =
        ["input", "output", "cache_read", "cache_write"].map(&mut of);
    for key in ["input", "output"] {
        if entry.get(key).is_none() {
            let message = format!("`{}` is missing", entry.path_of(key));
            let remark = Remark::error(entry.span(), message, format!("needs `{key}`"));
            entry
                .remark(remark.help(
                    "what a million tokens cost, for example `input = 3.0`, `output = 15.0`",
                ));
        }
    }
    let (input, output) = (input?, output?);
    Some(Price {
        input,
        output,
        cache_read: cache_read.unwrap_or(input),
        cache_write: cache_write.unwrap_or(input),
    })
}

/// An amount of money, from `least` nanos on: a number, or a text that is one.
fn money(section: &mut Reader<'_>, key: &'static str, least: u64) -> Option<At<u64>> {
    let node = section.get(key)?;
    let text = match node.get_ref() {
        DeValue::String(text) => text.to_string(),
        DeValue::Integer(number) => {
            integer(number).map_or_else(|| number.to_string(), |number| number.to_string())
        }
        DeValue::Float(number) => number.as_str().to_owned(),
        _ => {
            section.wrong_type(key, node, "an amount of money");
            return None;
        }
    };
    match parse_nanos(&text).filter(|nanos| (least..=MOST_UNITS * NANOS).contains(nanos)) {
        Some(value) => Some(At {
            value,
            span: node.span(),
        }),
        None => {
            no_money(section, key, node, least);
            None
        }
    }
}

fn no_money(section: &mut Reader<'_>, key: &str, node: Node<'_>, least: u64) {
    let message = format!("`{}` is not such an amount of money", section.path_of(key));
    let least = if least == 0 { "0" } else { "0.000000001" };
    let help = format!(
        "valid: {least} to {MOST_UNITS} with up to {DECIMALS} digits behind the point, such as \
         \"2.50\""
    );
    section.remark(Remark::error(node.span(), message, "not such an amount").help(help));
}

/// A plain decimal in nanos, exactly; none for anything else.
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
        .checked_mul(NANOS)?
        .checked_add(nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_is_read_exactly_or_not_at_all() {
        let cases = [
            ("2.50", 2_500_000_000),
            ("3", 3 * NANOS),
            ("0.000000001", 1),
            ("0.1000000000000", NANOS / 10),
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
