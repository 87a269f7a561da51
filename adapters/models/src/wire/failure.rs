//! Classifies the failures of model calls by their remedy: retry, another model, or a correction.
//!
//! Providers use different words for the same failure, and compatible servers mix them. Therefore
//! one table holds the words of all providers.

use std::time::Duration;

use dormouse_http::advice_on_certificate;
use dormouse_proto::model::{ModelError, ModelErrorKind as Kind};
use dormouse_proto::text::truncate;
use reqwest::header::{HeaderMap, LOCATION};
use reqwest::{StatusCode, Url};
use serde_json::Value;

use super::excerpt::beginning;
use super::exchange::without_secrets;
use super::retry_after;

/// The error that a provider reports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProviderError {
    /// The words that classify the error: a type, a code, a status, reasons.
    words: Vec<String>,
    /// The HTTP status that the body mentions.
    status: Option<StatusCode>,
    message: String,
    retry_after: Option<Duration>,
}

impl ProviderError {
    /// Parses an `error` object of any provider.
    pub(crate) fn parse(error: &Value) -> Self {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        if let Some(message) = text(error) {
            return Self {
                message,
                ..Self::default()
            };
        }
        let details = || error["details"].as_array().into_iter().flatten();
        let words = ["type", "code", "status"]
            .iter()
            .filter_map(|name| text(&error[*name]));
        let words = words.chain(details().filter_map(|detail| text(&detail["reason"])));
        let words = words.chain(text(&error["innererror"]["code"]));
        let delay =
            details().find_map(|detail| retry_after::parse_seconds(detail["retryDelay"].as_str()?));
        Self {
            words: words.filter(|word| !word.is_empty()).collect(),
            status: parse_status(&error["code"]),
            message: text(&error["message"]).unwrap_or_default(),
            retry_after: delay,
        }
    }

    /// Finds the error in a body: in a field `error` or `detail`, in a list with one element, or as
    /// the body itself. None if the body is not an error.
    fn find_in_body(body: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(body).ok()?;
        let value = value.get(0).unwrap_or(&value);
        let found = ["error", "detail"]
            .iter()
            .find_map(|name| value.get(*name).filter(|error| !error.is_null()));
        let provider_error = Self::parse(found.unwrap_or(value));
        Some(provider_error).filter(|provider_error| *provider_error != Self::default())
    }

    fn has_word(&self, word: &str) -> bool {
        self.words.iter().any(|found| found == word)
    }

    /// The explanation of the provider, shortened, since it is stored in the journal and a body may
    /// have many megabytes.
    fn format_explanation(&self) -> String {
        const MAX_CHARS: usize = 2_000;
        let explanation = match (self.words.first(), self.message.as_str()) {
            (None, "") => "no explanation was given".to_owned(),
            (None, message) => message.to_owned(),
            (Some(_), message) => format!("{}: {message}", self.words.join(", ")),
        };
        truncate(&explanation, MAX_CHARS)
    }

    /// The delay that the message of the provider mentions, if a retry after a delay can succeed.
    fn delay_in_message(&self, kind: Kind) -> Option<Duration> {
        (kind == Kind::Overloaded)
            .then(|| retry_after::find_in_sentence(&self.message))
            .flatten()
    }

    /// The kind of failure that the words mean, without the status.
    fn kind(&self) -> Option<Kind> {
        let message = self.message.to_lowercase();
        let contains_any = |phrases: &[&str]| phrases.iter().any(|phrase| message.contains(phrase));
        // Some servers report a conversation that is too long with the words of a server error, so
        // this is checked first.
        if contains_any(&TOO_LONG_PHRASES) {
            return Some(Kind::ContextOverflow);
        }
        if contains_any(&REFUSED_PHRASES) {
            return Some(Kind::ContentRefused);
        }
        WORDS
            .iter()
            .find(|(word, _)| self.has_word(word))
            .map(|(_, kind)| *kind)
    }
}

/// Parses the HTTP status in a code, since some servers answer with 200 and report the real status
/// in the body.
fn parse_status(code: &Value) -> Option<StatusCode> {
    let code = code.as_u64().or_else(|| code.as_str()?.parse().ok())?;
    StatusCode::from_u16(code.try_into().ok()?)
        .ok()
        .filter(|status| status.is_client_error() || status.is_server_error())
}

/// The phrases of providers for a conversation that is too long.
const TOO_LONG_PHRASES: [&str; 9] = [
    "input is too long",
    "prompt is too long",
    "exceed context limit",
    "exceeds the available context",
    "context window",
    "context length",
    "input token count",
    "exceeds the maximum number of tokens",
    "maximum prompt length",
];

/// The phrases of providers for a refused request.
const REFUSED_PHRASES: [&str; 6] = [
    "content filtering policy",
    "content management policy",
    "usage policy",
    "usage policies",
    "flagged as potentially violating",
    "safety system",
];

/// The words of providers, the most specific first, since one body may contain several.
const WORDS: [(&str, Kind); 40] = [
    ("exceed_context_size_error", Kind::ContextOverflow),
    ("context_length_exceeded", Kind::ContextOverflow),
    ("request_too_large", Kind::ContextOverflow),
    ("string_above_max_length", Kind::ContextOverflow),
    ("content_policy_violation", Kind::ContentRefused),
    ("content_filter", Kind::ContentRefused),
    ("ResponsibleAIPolicyViolation", Kind::ContentRefused),
    ("invalid_prompt", Kind::ContentRefused),
    ("image_content_policy_violation", Kind::ContentRefused),
    ("API_KEY_INVALID", Kind::Authentication),
    ("invalid_api_key", Kind::Authentication),
    // The paid quota is used up: waiting does not help.
    ("insufficient_quota", Kind::Unavailable),
    ("billing_error", Kind::Unavailable),
    ("billing_hard_limit_reached", Kind::Unavailable),
    ("billing_not_active", Kind::Unavailable),
    ("overloaded_error", Kind::Overloaded),
    ("rate_limit_error", Kind::Overloaded),
    ("rate_limit_exceeded", Kind::Overloaded),
    ("RESOURCE_EXHAUSTED", Kind::Overloaded),
    ("UNAVAILABLE", Kind::Overloaded),
    ("slow_down", Kind::Overloaded),
    ("server_is_overloaded", Kind::Overloaded),
    ("authentication_error", Kind::Authentication),
    ("permission_error", Kind::Authentication),
    ("UNAUTHENTICATED", Kind::Authentication),
    ("PERMISSION_DENIED", Kind::Authentication),
    ("throttlingException", Kind::Overloaded),
    ("serviceUnavailableException", Kind::Overloaded),
    ("validationException", Kind::InvalidRequest),
    ("server_error", Kind::Transport),
    ("api_error", Kind::Transport),
    ("timeout_error", Kind::Transport),
    ("vector_store_timeout", Kind::Transport),
    ("INTERNAL", Kind::Transport),
    ("DEADLINE_EXCEEDED", Kind::Transport),
    ("invalid_request_error", Kind::InvalidRequest),
    ("not_found_error", Kind::InvalidRequest),
    ("INVALID_ARGUMENT", Kind::InvalidRequest),
    ("NOT_FOUND", Kind::InvalidRequest),
    ("FAILED_PRECONDITION", Kind::InvalidRequest),
];

/// The failure that an error response reports.
pub(crate) fn from_response(status: StatusCode, headers: &HeaderMap, body: &str) -> ModelError {
    let provider_error = ProviderError::find_in_body(body);
    let provider_error = provider_error.unwrap_or_else(|| ProviderError {
        message: beginning(body.trim()),
        ..ProviderError::default()
    });
    let kind = apply_retry_header(headers, kind_of_status(status, &provider_error));
    let mut failure = ModelError::new(
        kind,
        format!(
            "status {}: {}",
            status.as_u16(),
            provider_error.format_explanation()
        ),
    );
    let hint = || {
        retry_after::requested_delay(headers)
            .or(provider_error.retry_after)
            .or_else(|| retry_after::rate_limit_reset(headers))
    };
    failure.retry_after = failure
        .is_transient()
        .then(hint)
        .flatten()
        .or_else(|| provider_error.delay_in_message(kind));
    failure
}

/// The failure of a request to `url` that the server sends elsewhere.
pub(crate) fn from_redirect(status: StatusCode, url: &Url, headers: &HeaderMap) -> ModelError {
    let location = headers.get(LOCATION).and_then(|to| to.to_str().ok());
    let target = location.and_then(|to| url.join(to).ok());
    let target = target.map_or_else(
        || "no address".to_owned(),
        |target| truncate(&without_secrets(target), 200),
    );
    let message = format!(
        "status {}: the server redirects to {target}. Redirects are not followed, since they would \
         take the key to another server: if that is the right one, name it in `base_url`",
        status.as_u16()
    );
    ModelError::new(Kind::InvalidRequest, message)
}

/// The failure that an `error` object in place of a reply reports.
pub(crate) fn from_error_object(error: &Value) -> ModelError {
    let provider_error = ProviderError::parse(error);
    let kind_by_status = || {
        provider_error
            .status
            .map(|status| kind_of_status(status, &provider_error))
    };
    let kind = provider_error
        .kind()
        .or_else(kind_by_status)
        .unwrap_or(Kind::Transport);
    let status = provider_error
        .status
        .map(|status| format!("status {}: ", status.as_u16()))
        .unwrap_or_default();
    let mut failure = ModelError::new(
        kind,
        format!("{status}{}", provider_error.format_explanation()),
    );
    let hint = provider_error
        .retry_after
        .filter(|_| failure.is_transient());
    failure.retry_after = hint.or_else(|| provider_error.delay_in_message(kind));
    failure
}

/// The failure that an event of a stream reports: in a field `error`, or as the event itself if its
/// type ends with `_error`.
pub(crate) fn from_event(data: &str) -> Option<ModelError> {
    let value: Value = serde_json::from_str(data).ok()?;
    let value = value.get(0).unwrap_or(&value);
    if let Some(error) = value.get("error").filter(|error| !error.is_null()) {
        return Some(from_error_object(error));
    }
    value["type"]
        .as_str()
        .filter(|kind| kind.ends_with("_error"))
        .map(|_| from_error_object(value))
}

fn kind_of_status(status: StatusCode, provider_error: &ProviderError) -> Kind {
    let reported_kind = provider_error.kind();
    match status.as_u16() {
        401 => Kind::Authentication,
        403 => reported_kind
            .filter(|kind| *kind == Kind::ContentRefused)
            .unwrap_or(Kind::Authentication),
        402 => Kind::Unavailable,
        429 => reported_kind
            .filter(|kind| *kind == Kind::Unavailable)
            .unwrap_or(Kind::Overloaded),
        529 | 503 => Kind::Overloaded,
        413 => Kind::ContextOverflow,
        // 424: the model failed, at Bedrock.
        408 | 409 | 424 | 500.. => match reported_kind {
            Some(kind @ (Kind::ContextOverflow | Kind::Overloaded | Kind::ContentRefused)) => kind,
            _ => Kind::Transport,
        },
        _ => match reported_kind {
            Some(
                kind @ (Kind::ContextOverflow
                | Kind::ContentRefused
                | Kind::Authentication
                | Kind::Unavailable),
            ) => kind,
            _ => Kind::InvalidRequest,
        },
    }
}

/// Applies the header `x-should-retry`, which takes precedence over the status.
fn apply_retry_header(headers: &HeaderMap, kind: Kind) -> Kind {
    let transient = ModelError::new(kind, "").is_transient();
    match headers.get("x-should-retry").map(|value| value.as_bytes()) {
        Some(b"false") if transient => Kind::Unavailable,
        Some(b"true") if !transient => Kind::Transport,
        _ => kind,
    }
}

/// A failure of the transport, before the response was complete.
pub(crate) fn from_transport(error: reqwest::Error) -> ModelError {
    let what = match () {
        () if error.is_connect() => "no connection",
        () if error.is_timeout() => {
            "nothing came for too long: `idle_timeout` in `[model]` allows a longer silence"
        }
        () => "the connection failed",
    };
    // A certificate that is not valid now is not valid a second later.
    let (kind, advice) = match advice_on_certificate(&error) {
        None => (Kind::Transport, String::new()),
        Some(advice) => (Kind::Unavailable, format!(". {advice}")),
    };
    // The address is left out, since it may hold credentials.
    ModelError::new(
        kind,
        format!("{what}: {}{advice}", error_chain(&error.without_url())),
    )
}

/// The failure of a stream that ended before its reply was complete.
pub(crate) fn cut_stream(message: impl Into<String>) -> ModelError {
    ModelError::new(Kind::CutStream, message)
}

/// The failure of a reply whose sampling failed, as the provider reports. A repeated request may
/// succeed.
pub(crate) fn sampling_failed(word: &str, why: &str) -> ModelError {
    let message = truncate(
        &format!("the model stopped as '{}': {why}", beginning(word)),
        700,
    );
    cut_stream(message.trim_end_matches([':', ' ']))
}

/// An error and all its causes, in one line.
pub(crate) fn error_chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

#[cfg(test)]
mod tests;
