//! Classifies the failures of model calls by their remedy: retry, another model, or a correction.
//!
//! Providers use different words for the same failure, and compatible servers mix them. So there is
//! one table of words for all providers.

use std::time::Duration;

use dormouse_proto::model::{ModelError, ModelErrorKind as Kind};
use reqwest::StatusCode;
use reqwest::header::HeaderMap;
use serde_json::Value;

use super::excerpt::{beginning, excerpt};
use super::retry_after;

/// The error that a provider reports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProviderError {
    /// The words that classify it: a type, a code, a status, reasons.
    words: Vec<String>,
    /// The HTTP status that the body mentions.
    status: Option<StatusCode>,
    message: String,
    retry_after: Option<Duration>,
}

impl ProviderError {
    /// The error in an object `error`, of any provider.
    pub(crate) fn of(error: &Value) -> Self {
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
            details().find_map(|detail| retry_after::seconds(detail["retryDelay"].as_str()?));
        Self {
            words: words.filter(|word| !word.is_empty()).collect(),
            status: status_of(&error["code"]),
            message: text(&error["message"]).unwrap_or_default(),
            retry_after: delay,
        }
    }

    /// The error in a body: in an envelope, in a list of one, or bare. None if the body is not an
    /// error.
    fn in_body(body: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(body).ok()?;
        let value = value.get(0).unwrap_or(&value);
        let found = ["error", "detail"]
            .iter()
            .find_map(|name| value.get(*name).filter(|error| !error.is_null()));
        let provider_error = Self::of(found.unwrap_or(value));
        Some(provider_error).filter(|provider_error| *provider_error != Self::default())
    }

    fn has_word(&self, word: &str) -> bool {
        self.words.iter().any(|found| found == word)
    }

    /// The explanation of the provider, shortened: it is stored in the journal, and a body may have
    /// many megabytes.
    fn format_explanation(&self) -> String {
        const MAX_CHARS: usize = 2_000;
        let worded = match (self.words.first(), self.message.as_str()) {
            (None, "") => "no explanation was given".to_owned(),
            (None, message) => message.to_owned(),
            (Some(_), message) => format!("{}: {message}", self.words.join(", ")),
        };
        excerpt(&worded, MAX_CHARS)
    }

    /// The delay that the message of the provider mentions, if a retry after a delay can succeed.
    fn delay_in_message(&self, kind: Kind) -> Option<Duration> {
        (kind == Kind::Overloaded)
            .then(|| retry_after::in_words(&self.message))
            .flatten()
    }

    /// The kind of failure that the words mean, without the status.
    fn kind(&self) -> Option<Kind> {
        let message = self.message.to_lowercase();
        let has = |phrases: &[&str]| phrases.iter().any(|phrase| message.contains(phrase));
        // Some servers report this as a failure of their own, so it is asked first.
        if has(&TOO_LONG) {
            return Some(Kind::ContextOverflow);
        }
        if has(&REFUSED) {
            return Some(Kind::ContentRefused);
        }
        WORDS
            .iter()
            .find(|(word, _)| self.has_word(word))
            .map(|(_, kind)| *kind)
    }
}

/// The HTTP status in a code: some servers answer with 200, and report the real status in the body.
fn status_of(code: &Value) -> Option<StatusCode> {
    let code = code.as_u64().or_else(|| code.as_str()?.parse().ok())?;
    StatusCode::from_u16(code.try_into().ok()?)
        .ok()
        .filter(|status| status.is_client_error() || status.is_server_error())
}

/// The words of providers for a conversation that is too long.
const TOO_LONG: [&str; 8] = [
    "prompt is too long",
    "exceed context limit",
    "exceeds the available context",
    "context window",
    "context length",
    "input token count",
    "exceeds the maximum number of tokens",
    "maximum prompt length",
];

/// The words of providers for a refused request.
const REFUSED: [&str; 6] = [
    "content filtering policy",
    "content management policy",
    "usage policy",
    "usage policies",
    "flagged as potentially violating",
    "safety system",
];

/// The words of providers, the most specific first, since one body may contain several.
const WORDS: [(&str, Kind); 37] = [
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

/// The failure that a response with this status reports.
pub(crate) fn in_answer(status: StatusCode, headers: &HeaderMap, body: &str) -> ModelError {
    let provider_error = ProviderError::in_body(body);
    let provider_error = provider_error.unwrap_or_else(|| ProviderError {
        message: beginning(body.trim()),
        ..ProviderError::default()
    });
    let kind = apply_advice(headers, of_status(status, &provider_error));
    let mut failure = ModelError::new(
        kind,
        format!(
            "status {}: {}",
            status.as_u16(),
            provider_error.format_explanation()
        ),
    );
    let hint = || {
        retry_after::after(headers)
            .or(provider_error.retry_after)
            .or_else(|| retry_after::reset(headers))
    };
    failure.retry_after = failure
        .is_transient()
        .then(hint)
        .flatten()
        .or_else(|| provider_error.delay_in_message(kind));
    failure
}

/// The failure that a provider reports where a reply was expected: in an object `error`, or bare.
pub(crate) fn in_body(error: &Value) -> ModelError {
    let provider_error = ProviderError::of(error);
    let by_status = || {
        provider_error
            .status
            .map(|status| of_status(status, &provider_error))
    };
    let kind = provider_error
        .kind()
        .or_else(by_status)
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

/// The failure that an event of a stream reports: in an envelope, or as a bare object of a known
/// type.
pub(crate) fn in_event(data: &str) -> Option<ModelError> {
    let value: Value = serde_json::from_str(data).ok()?;
    let value = value.get(0).unwrap_or(&value);
    if let Some(error) = value.get("error").filter(|error| !error.is_null()) {
        return Some(in_body(error));
    }
    value["type"]
        .as_str()
        .filter(|kind| kind.ends_with("_error"))
        .map(|_| in_body(value))
}

fn of_status(status: StatusCode, provider_error: &ProviderError) -> Kind {
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
        408 | 409 | 500.. => match reported_kind {
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

/// Applies the advice of the provider, which takes precedence over the status.
fn apply_advice(headers: &HeaderMap, kind: Kind) -> Kind {
    let transient = ModelError::new(kind, "").is_transient();
    match headers.get("x-should-retry").map(|value| value.as_bytes()) {
        Some(b"false") if transient => Kind::Unavailable,
        Some(b"true") if !transient => Kind::Transport,
        _ => kind,
    }
}

/// A failure of the transport, before the response was complete.
pub(crate) fn in_transport(error: reqwest::Error) -> ModelError {
    let what = match () {
        () if error.is_connect() => "no connection",
        () if error.is_timeout() => "nothing came for too long",
        () => "the connection failed",
    };
    // The address may hold credentials; the kernel knows which model it asked.
    ModelError::new(
        Kind::Transport,
        format!("{what}: {}", chain(&error.without_url())),
    )
}

/// The stream ended before the reply did.
pub(crate) fn cut(message: impl Into<String>) -> ModelError {
    ModelError::new(Kind::CutStream, message)
}

/// The provider reports that sampling failed. The same request may succeed.
pub(crate) fn sampling_failed(word: &str, why: &str) -> ModelError {
    let message = excerpt(
        &format!("the model stopped as '{}': {why}", beginning(word)),
        700,
    );
    cut(message.trim_end_matches([':', ' ']))
}

/// An error and all its causes, in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::excerpt::without;
    use super::*;

    fn answer(status: u16, body: &Value) -> ModelError {
        in_answer(
            StatusCode::from_u16(status).unwrap(),
            &HeaderMap::new(),
            &body.to_string(),
        )
    }

    #[test]
    fn a_status_determines_the_kind_of_failure() {
        let overflow = "prompt is too long: 208310 tokens > 200000 maximum";
        let llama = "request (1200 tokens) exceeds the available context size (512 tokens), try \
             increasing it";
        let limits = "input length and `max_tokens` exceed context limit: 1";
        let cases = [
            (
                400,
                "invalid_request_error",
                "messages: at least one",
                Kind::InvalidRequest,
            ),
            (
                400,
                "invalid_request_error",
                overflow,
                Kind::ContextOverflow,
            ),
            (400, "invalid_request_error", limits, Kind::ContextOverflow),
            (
                400,
                "exceed_context_size_error",
                "full",
                Kind::ContextOverflow,
            ),
            (400, "invalid_request_error", llama, Kind::ContextOverflow),
            (
                400,
                "invalid_request_error",
                "Output blocked by content filtering policy",
                Kind::ContentRefused,
            ),
            (
                500,
                "server_error",
                "the request exceeds the available context size",
                Kind::ContextOverflow,
            ),
            (
                401,
                "authentication_error",
                "invalid x-api-key",
                Kind::Authentication,
            ),
            (403, "permission_error", "no", Kind::Authentication),
            (402, "billing_error", "paid", Kind::Unavailable),
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
            let error = answer(
                status,
                &json!({"type": "error", "error": {"type": kind, "message": message}}),
            );
            assert_eq!(error.kind, expected, "{status} {message}");
            assert!(
                error.message.contains(message) && error.message.contains(&status.to_string()),
                "{error}"
            );
        }
    }

    #[test]
    fn the_error_words_of_every_provider_are_classified() {
        let openai = |kind: &str, code: Value, message: &str| json!({"error": {"type": kind, "code": code, "message": message, "param": null}});
        let gemini = |code: u16, status: &str, message: &str| json!({"error": {"code": code, "status": status, "message": message}});
        let bad_key = json!({"error": {"code": 400, "status": "INVALID_ARGUMENT", "message": "API \
             key not valid.",
            "details": [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}]}});
        let filtered = json!({"error": {"code": "content_filter", "message": "The response was \
             filtered", "status": 400,
            "innererror": {"code": "ResponsibleAIPolicyViolation"}}});
        let long = "This model's maximum context length is 8192 tokens. However, your messages \
             resulted in 9000 tokens.";
        let too_many = "The input token count (1200000) exceeds the maximum number of tokens \
             allowed (1048576).";
        let cases = [
            (
                400,
                openai(
                    "invalid_request_error",
                    json!("context_length_exceeded"),
                    long,
                ),
                Kind::ContextOverflow,
            ),
            (
                400,
                openai(
                    "invalid_request_error",
                    json!("invalid_prompt"),
                    "Invalid prompt",
                ),
                Kind::ContentRefused,
            ),
            (
                400,
                openai(
                    "invalid_request_error",
                    Value::Null,
                    "Unsupported parameter",
                ),
                Kind::InvalidRequest,
            ),
            (
                401,
                openai(
                    "invalid_request_error",
                    json!("invalid_api_key"),
                    "Incorrect API key",
                ),
                Kind::Authentication,
            ),
            (
                404,
                openai(
                    "invalid_request_error",
                    json!("model_not_found"),
                    "no model",
                ),
                Kind::InvalidRequest,
            ),
            (
                429,
                openai(
                    "requests",
                    json!("rate_limit_exceeded"),
                    "Rate limit reached",
                ),
                Kind::Overloaded,
            ),
            (
                429,
                openai(
                    "insufficient_quota",
                    json!("insufficient_quota"),
                    "You exceeded",
                ),
                Kind::Unavailable,
            ),
            (
                503,
                openai("server_error", Value::Null, "overloaded"),
                Kind::Overloaded,
            ),
            (400, filtered, Kind::ContentRefused),
            (400, bad_key, Kind::Authentication),
            (
                400,
                gemini(400, "INVALID_ARGUMENT", too_many),
                Kind::ContextOverflow,
            ),
            (
                403,
                gemini(403, "PERMISSION_DENIED", "no"),
                Kind::Authentication,
            ),
            (
                404,
                gemini(404, "NOT_FOUND", "no such model"),
                Kind::InvalidRequest,
            ),
            (
                429,
                gemini(429, "RESOURCE_EXHAUSTED", "quota"),
                Kind::Overloaded,
            ),
            (500, gemini(500, "INTERNAL", "oops"), Kind::Transport),
            (
                503,
                gemini(503, "UNAVAILABLE", "The model is overloaded."),
                Kind::Overloaded,
            ),
            (
                503,
                json!([gemini(503, "UNAVAILABLE", "in a list")]),
                Kind::Overloaded,
            ),
            (
                404,
                json!({"error": "model 'x' not found"}),
                Kind::InvalidRequest,
            ),
            (
                422,
                json!({"detail": "messages: field required"}),
                Kind::InvalidRequest,
            ),
        ];
        for (status, body, expected) in cases {
            let error = answer(status, &body);
            assert_eq!(error.kind, expected, "{body}");
            assert!(!error.message.contains("no explanation"), "{error}");
        }
    }

    #[test]
    fn a_failure_within_a_stream_is_classified_by_its_words() {
        let cases = [
            (
                json!({"error": {"code": "rate_limit_exceeded", "message": "slow"}}),
                Some(Kind::Overloaded),
            ),
            (
                json!({"error": {"code": 503, "status": "UNAVAILABLE", "message": "later"}}),
                Some(Kind::Overloaded),
            ),
            (
                json!({"error": {"message": "of no kind"}}),
                Some(Kind::Transport),
            ),
            (
                json!({"error": {"code": 400, "message": "no such parameter"}}),
                Some(Kind::InvalidRequest),
            ),
            (
                json!({"error": {"code": 401, "message": "no user"}}),
                Some(Kind::Authentication),
            ),
            (
                json!({"error": {"code": 402, "message": "no credits"}}),
                Some(Kind::Unavailable),
            ),
            (
                json!({"error": {"code": 403, "message": "no"}}),
                Some(Kind::Authentication),
            ),
            (
                json!({"error": {"code": 429, "message": "Provider returned error"}}),
                Some(Kind::Overloaded),
            ),
            (
                json!({"error": {"code": "429", "message": "in quotes"}}),
                Some(Kind::Overloaded),
            ),
            (
                json!({"error": {"code": 502, "message": "down"}}),
                Some(Kind::Transport),
            ),
            (
                json!({"error": {"code": 400, "type": "server_error", "message": "a word decides"}}),
                Some(Kind::Transport),
            ),
            (
                json!({"error": {"code": 200, "message": "no failure's"}}),
                Some(Kind::Transport),
            ),
            (
                json!({"error": {"code": 1302, "message": "no status"}}),
                Some(Kind::Transport),
            ),
            (
                json!({"error": {"code": -1, "message": "no code"}}),
                Some(Kind::Transport),
            ),
            (
                json!({"code": 500, "message": "does not parse", "type": "server_error"}),
                Some(Kind::Transport),
            ),
            (json!({"error": null, "id": "x"}), None),
            (
                json!({"code": 500, "message": "of no kind", "type": "thing"}),
                None,
            ),
        ];
        for (event, kind) in cases {
            assert_eq!(
                in_event(&event.to_string()).map(|error| error.kind),
                kind,
                "{event}"
            );
        }
        let limited = in_body(&json!({"code": 429, "message": "slow"}));
        assert!(
            limited.message.contains("429") && limited.message.contains("slow"),
            "{limited}"
        );
    }

    #[test]
    fn a_body_without_an_error_object_is_quoted() {
        let error = in_answer(
            StatusCode::BAD_GATEWAY,
            &HeaderMap::new(),
            "<html>nginx</html>",
        );
        assert_eq!(
            (error.kind, error.message.contains("nginx")),
            (Kind::Transport, true)
        );
    }

    #[test]
    fn a_long_explanation_is_cut_and_a_cut_key_is_removed() {
        let key = "sk-ant-canary-0123456789";
        for (at, kind) in [(190, "text/html"), (1_990, "json")] {
            let said = format!("{}{key}{}", "x".repeat(at), "y".repeat(1 << 20));
            let body = match kind {
                "json" => json!({"error": {"type": "", "message": said}}).to_string(),
                _ => said,
            };
            let error = in_answer(StatusCode::BAD_GATEWAY, &HeaderMap::new(), &body);
            assert!(
                error.message.len() < 3_000 && error.message.contains("sk-ant"),
                "{error}"
            );
            let shown = without(&error.message, key);
            assert!(
                !shown.contains("sk-a") && shown.ends_with("[key]…"),
                "{shown}"
            );
        }
        assert_eq!(
            without(&format!("a {key} b sk-… c"), key),
            "a [key] b sk-… c"
        );
    }

    #[test]
    fn the_provider_decides_whether_to_try_again() {
        let cases = [
            (529, "false", false),
            (429, "true", true),
            (400, "true", true),
            (400, "false", false),
        ];
        for (status, advice, transient) in cases {
            let mut headers = HeaderMap::new();
            headers.insert("x-should-retry", advice.parse().unwrap());
            headers.insert("retry-after", "1".parse().unwrap());
            let error = in_answer(StatusCode::from_u16(status).unwrap(), &headers, "");
            assert_eq!(error.is_transient(), transient, "{status} {advice}");
            assert_eq!(error.retry_after.is_some(), transient, "{status} {advice}");
        }
    }

    #[test]
    fn a_delay_in_the_body_is_used() {
        let body = json!({"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "quota", "details": [
            {"@type": "type.googleapis.com/google.rpc.QuotaFailure"},
            {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "7.5s"}]}});
        assert_eq!(
            answer(429, &body).retry_after,
            Some(Duration::from_millis(7_500))
        );
        assert_eq!(
            in_event(&body.to_string()).unwrap().retry_after,
            Some(Duration::from_millis(7_500))
        );
        let said = |code: &str| json!({"error": {"code": code, "message": "Please try again in 11.054s. Visit x."}});
        let limited = said("rate_limit_exceeded");
        assert_eq!(
            in_event(&limited.to_string()).unwrap().retry_after,
            Some(Duration::from_millis(11_054))
        );
        assert_eq!(
            answer(429, &limited).retry_after,
            Some(Duration::from_millis(11_054))
        );
        assert_eq!(
            in_event(&said("server_error").to_string())
                .unwrap()
                .retry_after,
            None,
            "only a limit has an end"
        );
        let mut headers = HeaderMap::new();
        headers.insert("retry-after", "3".parse().unwrap());
        let answered = in_answer(
            StatusCode::TOO_MANY_REQUESTS,
            &headers,
            &limited.to_string(),
        );
        assert_eq!(
            answered.retry_after,
            Some(Duration::from_secs(3)),
            "what is told to programs counts"
        );
    }
}
