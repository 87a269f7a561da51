//! Failures, told apart by what helps against them.

use std::time::{Duration, SystemTime};

use dormouse_proto::model::{ModelError, ModelErrorKind};
use reqwest::StatusCode;
use reqwest::header::HeaderMap;
use serde::Deserialize;

use super::decode::{beginning, excerpt};

/// `error` of an error body.
#[derive(Debug, Default, Deserialize)]
pub(super) struct ErrorBody {
    #[serde(default)]
    r#type: String,
    #[serde(default)]
    message: String,
}

#[derive(Deserialize)]
struct Envelope {
    error: ErrorBody,
}

/// How providers and compatible servers say that a conversation is too long.
const TOO_LONG: [&str; 5] =
    ["prompt is too long", "exceed context limit", "exceeds the available context", "context window", "context length"];

/// The failure that an answer with this status is.
pub(super) fn in_answer(status: StatusCode, headers: &HeaderMap, body: &str) -> ModelError {
    let error = serde_json::from_str(body).map(|envelope: Envelope| envelope.error);
    let error = error.unwrap_or_else(|_| ErrorBody { r#type: String::new(), message: beginning(body.trim()) });
    let kind = advised(headers, of_status(status, &error));
    let mut failure = ModelError::new(kind, format!("status {}: {}", status.as_u16(), worded(&error)));
    failure.retry_after = retry_after(headers).filter(|_| failure.is_transient());
    failure
}

/// The failure that a compatible server reports in mid-stream without an envelope: a bare error object.
pub(super) fn bare(data: &str) -> Option<ModelError> {
    let error: ErrorBody = serde_json::from_str(data).ok()?;
    error.r#type.ends_with("_error").then(|| in_body(&error))
}

/// The failure that a provider reports where a reply was expected.
pub(super) fn in_body(error: &ErrorBody) -> ModelError {
    let kind = match error.r#type.as_str() {
        "overloaded_error" | "rate_limit_error" => ModelErrorKind::Overloaded,
        "authentication_error" | "permission_error" => ModelErrorKind::Authentication,
        "invalid_request_error" | "not_found_error" | "billing_error" => refusal(error),
        "request_too_large" | "exceed_context_size_error" => ModelErrorKind::ContextOverflow,
        _ => ModelErrorKind::Transport,
    };
    ModelError::new(kind, worded(error))
}

fn of_status(status: StatusCode, error: &ErrorBody) -> ModelErrorKind {
    match status.as_u16() {
        401 | 403 => ModelErrorKind::Authentication,
        429 | 529 | 503 => ModelErrorKind::Overloaded,
        408 | 409 | 500.. => match refusal(error) {
            // Some servers report a context overflow as a failure of their own.
            ModelErrorKind::ContextOverflow => ModelErrorKind::ContextOverflow,
            _ => ModelErrorKind::Transport,
        },
        413 => ModelErrorKind::ContextOverflow,
        _ => refusal(error),
    }
}

fn refusal(error: &ErrorBody) -> ModelErrorKind {
    let message = error.message.to_lowercase();
    let too_long = error.r#type == "exceed_context_size_error" || TOO_LONG.iter().any(|words| message.contains(words));
    if too_long { ModelErrorKind::ContextOverflow } else { ModelErrorKind::InvalidRequest }
}

/// What the provider advises outweighs what the status suggests.
fn advised(headers: &HeaderMap, kind: ModelErrorKind) -> ModelErrorKind {
    let transient = ModelError::new(kind, "").is_transient();
    match headers.get("x-should-retry").map(|value| value.as_bytes()) {
        Some(b"false") if transient => ModelErrorKind::Unavailable,
        Some(b"true") if !transient => ModelErrorKind::Transport,
        _ => kind,
    }
}

/// What a provider explains, as long as an explanation: it goes into the journal, and a body may have many megabytes.
fn worded(error: &ErrorBody) -> String {
    const LONGEST_CHARS: usize = 2_000;
    let worded = match (error.r#type.as_str(), error.message.as_str()) {
        ("", "") => "no explanation was given".to_owned(),
        ("", message) => message.to_owned(),
        (kind, message) => format!("{kind}: {message}"),
    };
    excerpt(&worded, LONGEST_CHARS)
}

/// `text` without `secret`, and without its beginning where an excerpt was cut in the middle of it.
pub(super) fn without(text: &str, secret: &str) -> String {
    /// What is shorter tells nothing: every key begins with `sk-`.
    const SHORTEST: usize = 4;
    let beginnings = (SHORTEST..secret.len()).rev().filter_map(|end| secret.get(..end));
    beginnings.fold(text.replace(secret, "[key]"), |text, beginning| text.replace(&format!("{beginning}…"), "[key]…"))
}

/// How long the provider asks to wait: in milliseconds, in seconds, or until a date.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    let scaled = |text: &str, unit: f64| Duration::try_from_secs_f64(text.parse::<f64>().ok()? * unit).ok();
    let date = |text: &str| {
        let date = httpdate::parse_http_date(text).ok()?;
        Some(date.duration_since(SystemTime::now()).unwrap_or(Duration::ZERO))
    };
    let after_ms = text("retry-after-ms").and_then(|ms| scaled(ms, 1e-3));
    after_ms.or_else(|| text("retry-after").and_then(|after| scaled(after, 1.0).or_else(|| date(after))))
}

/// A failure below the protocol, before an answer had come whole.
pub(super) fn in_transport(error: reqwest::Error) -> ModelError {
    let what = match () {
        () if error.is_connect() => "no connection",
        () if error.is_timeout() => "nothing came for too long",
        () => "the connection failed",
    };
    // The address may hold credentials; the kernel knows which model it asked.
    ModelError::new(ModelErrorKind::Transport, format!("{what}: {}", chain(&error.without_url())))
}

/// An error and everything that caused it, in one line.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn a_status_tells_what_helps() {
        use ModelErrorKind as Kind;
        let overflow = "prompt is too long: 208310 tokens > 200000 maximum";
        let llama = "request (1200 tokens) exceeds the available context size (512 tokens), try increasing it";
        let cases = [
            (400, "invalid_request_error", "messages: at least one", Kind::InvalidRequest),
            (400, "invalid_request_error", overflow, Kind::ContextOverflow),
            (
                400,
                "invalid_request_error",
                "input length and `max_tokens` exceed context limit: 1",
                Kind::ContextOverflow,
            ),
            (400, "exceed_context_size_error", "full", Kind::ContextOverflow),
            (400, "invalid_request_error", llama, Kind::ContextOverflow),
            (500, "server_error", "the request exceeds the available context size", Kind::ContextOverflow),
            (401, "authentication_error", "invalid x-api-key", Kind::Authentication),
            (403, "permission_error", "no", Kind::Authentication),
            (404, "not_found_error", "model: x", Kind::InvalidRequest),
            (408, "timeout", "", Kind::Transport),
            (409, "conflict", "", Kind::Transport),
            (413, "request_too_large", "", Kind::ContextOverflow),
            (429, "rate_limit_error", "slow down", Kind::Overloaded),
            (500, "api_error", "Internal", Kind::Transport),
            (502, "", "", Kind::Transport),
            (529, "overloaded_error", "Overloaded", Kind::Overloaded),
        ];
        for (status, kind, message, expected) in cases {
            let body = serde_json::json!({"type": "error", "error": {"type": kind, "message": message}}).to_string();
            let error = in_answer(StatusCode::from_u16(status).unwrap(), &HeaderMap::new(), &body);
            assert_eq!(error.kind, expected, "{status} {message}");
            assert!(error.message.contains(message) && error.message.contains(&status.to_string()), "{error}");
        }
    }

    #[test]
    fn a_body_that_is_no_error_body_is_shown() {
        let error = in_answer(StatusCode::BAD_GATEWAY, &HeaderMap::new(), "<html>nginx</html>");
        assert_eq!((error.kind, error.message.contains("nginx")), (ModelErrorKind::Transport, true));
    }

    #[test]
    fn an_explanation_without_end_is_cut_and_a_key_that_was_cut_is_taken_out() {
        let key = "sk-ant-canary-0123456789";
        for (at, kind) in [(190, "text/html"), (1_990, "json")] {
            let said = format!("{}{key}{}", "x".repeat(at), "y".repeat(1 << 20));
            let body = match kind {
                "json" => serde_json::json!({"error": {"type": "", "message": said}}).to_string(),
                _ => said,
            };
            let error = in_answer(StatusCode::BAD_GATEWAY, &HeaderMap::new(), &body);
            assert!(error.message.len() < 3_000 && error.message.contains("sk-ant"), "{error}");
            let shown = without(&error.message, key);
            assert!(!shown.contains("sk-a") && shown.ends_with("[key]…"), "{shown}");
        }
        assert_eq!(without(&format!("a {key} b sk-… c"), key), "a [key] b sk-… c");
    }

    #[test]
    fn the_wait_is_read_in_every_form() {
        let later = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(90));
        type Pairs = &'static [(&'static str, &'static str)];
        let cases: [(Pairs, Option<u64>); 9] = [
            (&[], None),
            (&[("retry-after", "7")], Some(7_000)),
            (&[("retry-after", "0.5")], Some(500)),
            (&[("retry-after-ms", "250"), ("retry-after", "7")], Some(250)),
            (&[("retry-after-ms", "soon"), ("retry-after", "7")], Some(7_000)),
            (&[("retry-after", "-1")], None),
            (&[("retry-after", "inf")], None),
            (&[("retry-after", "Wed, 21 Oct 2015 07:28:00 GMT")], Some(0)),
            (&[("retry-after", "later")], None),
        ];
        for (pairs, ms) in cases {
            let error = in_answer(StatusCode::TOO_MANY_REQUESTS, &headers(pairs), "");
            assert_eq!(error.retry_after, ms.map(Duration::from_millis), "{pairs:?}");
        }
        let error = in_answer(StatusCode::TOO_MANY_REQUESTS, &headers(&[("retry-after", &later)]), "");
        assert!(error.retry_after.unwrap().as_secs().abs_diff(89) <= 1);
    }

    #[test]
    fn the_provider_decides_whether_to_try_again() {
        let cases = [(529, "false", false), (429, "true", true), (400, "true", true), (400, "false", false)];
        for (status, advice, transient) in cases {
            let headers = headers(&[("x-should-retry", advice), ("retry-after", "1")]);
            let error = in_answer(StatusCode::from_u16(status).unwrap(), &headers, "");
            assert_eq!(error.is_transient(), transient, "{status} {advice}");
            assert_eq!(error.retry_after.is_some(), transient, "{status} {advice}");
        }
    }
}
