//! Tests of the classification of failures.

use serde_json::json;

use super::super::excerpt::redact_secret;
use super::*;

fn answer(status: u16, body: &Value) -> ModelError {
    from_response(
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
            from_event(&event.to_string()).map(|error| error.kind),
            kind,
            "{event}"
        );
    }
    let limited = from_error_object(&json!({"code": 429, "message": "slow"}));
    assert!(
        limited.message.contains("429") && limited.message.contains("slow"),
        "{limited}"
    );
}

#[test]
fn a_body_without_an_error_object_is_quoted() {
    let error = from_response(
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
        let error = from_response(StatusCode::BAD_GATEWAY, &HeaderMap::new(), &body);
        assert!(
            error.message.len() < 3_000 && error.message.contains("sk-ant"),
            "{error}"
        );
        let shown = redact_secret(&error.message, key);
        assert!(
            !shown.contains("sk-a") && shown.ends_with("[key]…"),
            "{shown}"
        );
    }
    assert_eq!(
        redact_secret(&format!("a {key} b sk-… c"), key),
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
        let error = from_response(StatusCode::from_u16(status).unwrap(), &headers, "");
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
        from_event(&body.to_string()).unwrap().retry_after,
        Some(Duration::from_millis(7_500))
    );
    let said = |code: &str| json!({"error": {"code": code, "message": "Please try again in 11.054s. Visit x."}});
    let limited = said("rate_limit_exceeded");
    assert_eq!(
        from_event(&limited.to_string()).unwrap().retry_after,
        Some(Duration::from_millis(11_054))
    );
    assert_eq!(
        answer(429, &limited).retry_after,
        Some(Duration::from_millis(11_054))
    );
    assert_eq!(
        from_event(&said("server_error").to_string())
            .unwrap()
            .retry_after,
        None,
        "only a limit has an end"
    );
    let mut headers = HeaderMap::new();
    headers.insert("retry-after", "3".parse().unwrap());
    let answered = from_response(
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
