//! The table `[context]`: what happens when a conversation fills the context of the model.
//!
//! `program.rs` says what `Section`, `Value` and `Reader` are.

use serde_json::{Value as Json, json};
use toml::de::DeValue;

use super::{Diagnostic, Keyword, Node, Reader, Rules, Section, Value, shorten};

/// `[context]`: when older messages leave the conversation, and how they are summarized. Nothing is
/// lost: their text becomes a descriptor (`history:1`, `history:2` …).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Section)]
pub struct ContextSection {
    /// Whether a full context is compacted. With `false`, a turn whose conversation is too long for
    /// the model ends as `model_failed`.
    #[key(default = true)]
    pub enabled: bool,
    /// The tokens of the model's context. Without this key, the conversation is compacted when the
    /// provider refuses it as too long; with it, also before that.
    #[key(range = 1..=1_000_000_000)]
    pub window: Option<u64>,
    /// The share of the window from which on the conversation is compacted before the next call of
    /// the model: once the last request and its reply together have more tokens.
    #[key(name = "compact_at", with = Share, default = 800, range = 10..=1_000)]
    pub compact_at_thousandths: u64,
    /// The newest messages that stay in the conversation, at the least. Fewer stay if the provider
    /// refuses the conversation even then.
    #[key(default = 6, range = 1..=1_000)]
    pub keep_messages: u32,
    /// Who summarizes the messages that leave the conversation.
    pub summary: SummaryMethod,
    /// The most characters of a summary.
    #[key(default = 4000, range = 200..=100_000)]
    pub max_summary_chars: u32,
}

impl ContextSection {
    /// The tokens of a request and its reply beyond which the conversation is compacted; `None` if
    /// only the provider decides that.
    #[must_use]
    pub fn compaction_threshold(&self) -> Option<u64> {
        let window = self.window.filter(|_| self.enabled)?;
        Some(window.saturating_mul(self.compact_at_thousandths) / 1_000)
    }
}

/// Who summarizes messages that leave the conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Keyword)]
pub enum SummaryMethod {
    /// The kernel, without a model: the first and last words of each message, the tools that it
    /// calls and the descriptors that it opens.
    #[default]
    Excerpts,
    /// The summary model of the program. If its call fails, the kernel does it.
    Model,
}

/// A share in thousandths: a number from 0 to 1 with up to three decimals.
#[derive(Clone, Copy)]
pub(crate) struct Share(pub(crate) u64);

impl Value for Share {
    const EXPECTED: &'static str = "a number";

    fn read(table: &mut Reader<'_>, key: &str, node: Node<'_>, rules: &Rules) -> Option<Self> {
        let text = match node.get_ref() {
            DeValue::Float(number) => number.as_str().to_owned(),
            DeValue::Integer(number) => number.to_string(),
            _ => {
                table.report_wrong_type(key, node, rules.expected::<Self>());
                return None;
            }
        };
        let share = parse_thousandths(&text).filter(|share| rules.range.contains(share));
        if share.is_none() {
            let message = format!("`{}` cannot be `{}`", table.path_of(key), shorten(&text));
            let wrong = Diagnostic::error(node.span(), message, "not a valid share");
            let (min, max) = (*rules.range.start(), *rules.range.end());
            table.report(wrong.help(format!(
                "valid: {} to {}, with up to three decimals, such as 0.8",
                as_fraction(min),
                as_fraction(max)
            )));
        }
        share.map(Self)
    }

    fn schema(rules: &Rules) -> Json {
        let (min, max) = (*rules.range.start(), *rules.range.end());
        json!({ "type": "number", "minimum": as_fraction(min), "maximum": as_fraction(max) })
    }

    fn show(&self) -> Option<Json> {
        Some(json!(as_fraction(self.0)))
    }
}

/// Thousandths as a fraction of 1. Below 2^53 of them, this is the float nearest to the decimal.
#[expect(
    clippy::cast_precision_loss,
    reason = "a share is at most 1,000 thousandths"
)]
fn as_fraction(thousandths: u64) -> f64 {
    thousandths as f64 / 1_000.0
}

/// Parses a plain decimal without rounding. `None` for any other text.
fn parse_thousandths(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
    let is_plain =
        |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let digits = part.trim_end_matches('0');
    if !is_plain(whole) || !is_plain(part) || digits.len() > 3 {
        return None;
    }
    let part: u64 = format!("{digits:0<3}").parse().ok()?;
    whole
        .parse::<u64>()
        .ok()?
        .checked_mul(1_000)?
        .checked_add(part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::parse;

    fn context(text: &str) -> Result<ContextSection, String> {
        let text = format!("[model]\nname = 'm'\nprovider = 'scripted'\n[context]\n{text}");
        let parsed = parse(&text);
        match parsed.diagnostics.has_errors() {
            true => Err(format!("{:?}", parsed.diagnostics)),
            false => Ok(parsed.file.context),
        }
    }

    #[test]
    fn the_threshold_is_a_share_of_the_window() {
        let cases = [
            ("", None),
            ("window = 200000", Some(160_000)),
            ("window = 1000\ncompact_at = 0.505", Some(505)),
            ("window = 1000\ncompact_at = 1", Some(1_000)),
            ("window = 1000\ncompact_at = 0.80000", Some(800)),
            ("window = 1000\nenabled = false", None),
        ];
        for (text, threshold) in cases {
            let section = context(text).unwrap_or_else(|errors| panic!("{text}: {errors}"));
            assert_eq!(section.compaction_threshold(), threshold, "{text}");
        }
        let default = ContextSection::default();
        assert_eq!(context(""), Ok(default));
        assert!(default.enabled && default.summary == SummaryMethod::Excerpts);
    }

    #[test]
    fn what_is_no_share_or_count_is_refused() {
        for text in [
            "compact_at = 0.009",
            "compact_at = 1.001",
            "compact_at = 2",
            "compact_at = -0.5",
            "compact_at = 0.1234",
            "compact_at = nan",
            "compact_at = 5e-1",
            "compact_at = '80%'",
            "window = 0",
            "keep_messages = 0",
            "max_summary_chars = 199",
            "summary = 'none'",
        ] {
            assert!(context(text).is_err(), "{text}");
        }
    }
}
