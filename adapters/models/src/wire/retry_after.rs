//! Parses the delay that a provider requests before the next attempt, from headers and error texts.

use std::time::{Duration, SystemTime};

use reqwest::header::HeaderMap;

/// The delay that the headers `retry-after-ms` and `retry-after` request: in milliseconds, in
/// seconds, or until a date.
pub(super) fn requested_delay(headers: &HeaderMap) -> Option<Duration> {
    let scaled =
        |text: &str, unit: f64| Duration::try_from_secs_f64(text.parse::<f64>().ok()? * unit).ok();
    let date = |text: &str| {
        let date = httpdate::parse_http_date(text).ok()?;
        Some(
            date.duration_since(SystemTime::now())
                .unwrap_or(Duration::ZERO),
        )
    };
    let after_ms = header_text(headers, "retry-after-ms").and_then(|ms| scaled(ms, 1e-3));
    after_ms.or_else(|| {
        header_text(headers, "retry-after")
            .and_then(|text| scaled(text, 1.0).or_else(|| date(text)))
    })
}

/// The time until the exhausted rate limits, of requests and of tokens, are reset: the longer of
/// the two.
pub(super) fn rate_limit_reset(headers: &HeaderMap) -> Option<Duration> {
    let resets = ["requests", "tokens"].into_iter().filter_map(|kind| {
        let is_exhausted =
            header_text(headers, &format!("x-ratelimit-remaining-{kind}")) == Some("0");
        is_exhausted
            .then(|| parse_duration(header_text(headers, &format!("x-ratelimit-reset-{kind}"))?))
            .flatten()
    });
    resets.max()
}

/// Parses `7s` or `0.5s`.
pub(super) fn parse_seconds(text: &str) -> Option<Duration> {
    Duration::try_from_secs_f64(text.trim().strip_suffix('s')?.parse().ok()?).ok()
}

/// Finds the delay that a sentence mentions: `Please try again in 1m2.5s.`,
/// `Please retry after 20 seconds.`
pub(super) fn find_in_sentence(sentence: &str) -> Option<Duration> {
    const PHRASES: [&str; 3] = ["try again in ", "retry in ", "retry after "];
    let sentence = sentence.to_lowercase();
    let rest = PHRASES
        .iter()
        .find_map(|phrase| Some(sentence.split_once(phrase)?.1))?;
    let mut words = rest
        .split_whitespace()
        .map(|word| word.trim_end_matches(['.', ',', ';', ':', '!', ')']));
    let (amount, unit) = (words.next()?, words.next().unwrap_or_default());
    parse_duration(amount).or_else(|| parse_duration(&format!("{amount}{}", unit_symbol(unit)?)))
}

/// The symbol of a unit of time that a sentence writes as a word.
fn unit_symbol(unit: &str) -> Option<&'static str> {
    Some(match unit {
        "ms" | "millisecond" | "milliseconds" => "ms",
        "s" | "second" | "seconds" => "s",
        "minute" | "minutes" => "m",
        "hour" | "hours" => "h",
        _ => return None,
    })
}

/// Parses `6m0s`, `1.5s`, `20ms` or `1h2m3s` as the sum of its parts. None if the sum is zero.
fn parse_duration(mut text: &str) -> Option<Duration> {
    let mut sum = Duration::ZERO;
    while !text.is_empty() {
        let (number, rest) = text.split_at(text.find(|c: char| !c.is_ascii_digit() && c != '.')?);
        let (unit, rest) = rest.split_at(
            rest.find(|c: char| !c.is_ascii_alphabetic())
                .unwrap_or(rest.len()),
        );
        let unit = match unit {
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3_600.0,
            _ => return None,
        };
        sum =
            sum.checked_add(Duration::try_from_secs_f64(number.parse::<f64>().ok()? * unit).ok()?)?;
        text = rest;
    }
    Some(sum).filter(|sum| !sum.is_zero())
}

fn header_text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok().map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    type Pairs = &'static [(&'static str, &'static str)];

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
            .collect()
    }

    #[test]
    fn delays_are_parsed_in_every_form() {
        let later = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(90));
        let cases: [(Pairs, Option<u64>); 9] = [
            (&[], None),
            (&[("retry-after", "7")], Some(7_000)),
            (&[("retry-after", "0.5")], Some(500)),
            (
                &[("retry-after-ms", "250"), ("retry-after", "7")],
                Some(250),
            ),
            (
                &[("retry-after-ms", "soon"), ("retry-after", "7")],
                Some(7_000),
            ),
            (&[("retry-after", "-1")], None),
            (&[("retry-after", "inf")], None),
            (&[("retry-after", "Wed, 21 Oct 2015 07:28:00 GMT")], Some(0)),
            (&[("retry-after", "later")], None),
        ];
        for (pairs, ms) in cases {
            assert_eq!(
                requested_delay(&headers(pairs)),
                ms.map(Duration::from_millis),
                "{pairs:?}"
            );
        }
        assert!(
            requested_delay(&headers(&[("retry-after", &later)]))
                .unwrap()
                .as_secs()
                .abs_diff(89)
                <= 1
        );
    }

    #[test]
    fn a_delay_is_found_in_a_sentence() {
        let cases = [
            (
                "Rate limit reached for gpt-5 on tokens per min (TPM): Limit 1. Please try again \
                 in 11.054s. Visit x.",
                11_054,
            ),
            ("Please try again in 6ms.", 6),
            ("Please try again in 1m2s", 62_000),
            ("Please try again in 7m33.6s, or pay", 453_600),
            ("Please retry in 2.5s.", 2_500),
            ("Please retry after 20 seconds.", 20_000),
            ("Try again in 1 minute!", 60_000),
        ];
        for (sentence, ms) in cases {
            assert_eq!(
                find_in_sentence(sentence),
                Some(Duration::from_millis(ms)),
                "{sentence}"
            );
        }
        let without_delay = [
            "",
            "try again later",
            "try again in ",
            "try again in 3 apples",
            "retry after é",
            "try again in 5",
        ];
        assert!(
            without_delay
                .into_iter()
                .all(|sentence| find_in_sentence(sentence).is_none())
        );
    }

    #[test]
    fn an_exhausted_rate_limit_reports_its_reset() {
        let cases: [(Pairs, Option<u64>); 8] = [
            (
                &[
                    ("x-ratelimit-remaining-requests", "0"),
                    ("x-ratelimit-reset-requests", "1s"),
                ],
                Some(1_000),
            ),
            (
                &[
                    ("x-ratelimit-remaining-tokens", "0"),
                    ("x-ratelimit-reset-tokens", "6m0s"),
                ],
                Some(360_000),
            ),
            (
                &[
                    ("x-ratelimit-remaining-tokens", "0"),
                    ("x-ratelimit-reset-tokens", "20ms"),
                ],
                Some(20),
            ),
            (
                &[
                    ("x-ratelimit-remaining-tokens", "0"),
                    ("x-ratelimit-reset-tokens", "1h0m1.5s"),
                ],
                Some(3_601_500),
            ),
            (
                &[
                    ("x-ratelimit-remaining-tokens", "9"),
                    ("x-ratelimit-reset-tokens", "1s"),
                ],
                None,
            ),
            (
                &[
                    ("x-ratelimit-remaining-tokens", "0"),
                    ("x-ratelimit-reset-tokens", "0s"),
                ],
                None,
            ),
            (
                &[
                    ("x-ratelimit-remaining-tokens", "0"),
                    ("x-ratelimit-reset-tokens", "soon"),
                ],
                None,
            ),
            (
                &[
                    ("x-ratelimit-remaining-tokens", "0"),
                    ("x-ratelimit-reset-tokens", "99999999999999999999h"),
                ],
                None,
            ),
        ];
        for (pairs, ms) in cases {
            assert_eq!(
                rate_limit_reset(&headers(pairs)),
                ms.map(Duration::from_millis),
                "{pairs:?}"
            );
        }
    }
}
