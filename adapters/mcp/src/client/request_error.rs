//! The errors of requests to a server, and their texts for a model. The texts are bounded, and
//! never show an address or a header.

use std::error::Error;

use dormouse_actors::ports::ToolError;
use rmcp::model::ErrorData;
use rmcp::service::{ClientInitializeError, ServiceError};
use rmcp::transport::streamable_http_client::StreamableHttpError;
use serde_json::Value;

use super::liveness::CallEnd;
use super::protocol_handler::truncate_text;
use super::unsolicited::CloseReason;

/// Why a request has no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum RequestError {
    /// The server answered with an error of the protocol.
    #[error("the server refused: {} (code {code})", truncate_text(message))]
    Refused {
        code: i32,
        message: String,
        data: Option<Value>,
    },
    /// The server closed the connection. Whether it executed the request is unknown.
    #[error("the server ended or closed its connection before it answered")]
    Disconnected,
    /// This client closed the connection, for the reason in the error. Whether the server executed
    /// the request is unknown.
    #[error("the connection was ended, since the server {0}")]
    Closed(&'static str),
    /// The request did not reach the server, or its answer got lost.
    #[error("the connection failed: {0}")]
    ConnectionFailed(String),
    /// The request was certainly not executed: no connection could be made, or the server asks for
    /// authorization.
    #[error("{0}")]
    NotExecuted(String),
    /// The server does not know the session any more, for example after a restart. By the protocol
    /// it refuses every request in that session.
    #[error("the server knows the session no more")]
    SessionExpired,
    /// The result is not of the type that belongs to the request.
    #[error("the server answered with something else than was asked for")]
    UnexpectedResult,
    /// The server did not answer in time.
    #[error("the server did not answer within {0} ms")]
    TimedOut(u64),
    /// The server neither answered nor reported progress for this many milliseconds.
    #[error(
        "the server neither answered nor reported progress for {0} ms (the `deadline` of the \
         server)"
    )]
    Idle(u64),
}

impl RequestError {
    /// The outcome of the call, for its effect on the liveness of the session.
    pub(super) fn call_end(&self) -> CallEnd {
        match self {
            Self::Refused { .. } | Self::UnexpectedResult => CallEnd::Answered,
            Self::Disconnected
            | Self::Closed(_)
            | Self::ConnectionFailed(_)
            | Self::NotExecuted(_) => CallEnd::Broken,
            Self::TimedOut(_) | Self::Idle(_) => CallEnd::Cancelled,
            Self::SessionExpired => CallEnd::SessionExpired,
        }
    }

    /// Replaces a disconnection by its reason, if this client closed the connection.
    pub(super) fn or_closed(self, close_reason: &CloseReason) -> Self {
        match (self, close_reason.get()) {
            (Self::Disconnected, Some(why)) => Self::Closed(why),
            (error, _) => error,
        }
    }

    /// The text for the model whose call failed.
    pub(super) fn call_error(&self, server: &str, tool: &str) -> ToolError {
        let text = match self {
            Self::Refused { code, message, .. } => {
                let why = truncate_text(message);
                format!("{tool}: the tool server `{server}` refused the call: {why} (code {code})")
            }
            Self::Idle(_) => format!(
                "{tool}: {self}. Effect unknown: the call was cancelled, and may have been carried \
                 out. Look what was done, then decide."
            ),
            Self::Disconnected
            | Self::Closed(_)
            | Self::ConnectionFailed(_)
            | Self::TimedOut(_) => format!(
                "{tool}: {self}. Effect unknown: the call may have been carried out, and was not \
                 repeated. Look what was done, then decide."
            ),
            Self::SessionExpired => {
                format!(
                    "{tool}: {self}, and did not carry out the call. The session is begun anew: \
                     call again."
                )
            }
            Self::NotExecuted(why) => {
                format!("{tool}: the tool server `{server}` did not carry out the call: {why}.")
            }
            Self::UnexpectedResult => format!("{tool}: {self}."),
        };
        text.into()
    }
}

impl From<ErrorData> for RequestError {
    fn from(error: ErrorData) -> Self {
        Self::Refused {
            code: error.code.0,
            message: error.message.into_owned(),
            data: error.data,
        }
    }
}

impl From<ServiceError> for RequestError {
    fn from(error: ServiceError) -> Self {
        match error {
            ServiceError::McpError(error) => error.into(),
            ServiceError::TransportClosed => Self::Disconnected,
            ServiceError::UnexpectedResponse => Self::UnexpectedResult,
            ServiceError::Timeout { timeout } => {
                Self::TimedOut(u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX))
            }
            ServiceError::TransportSend(error) if is_session_expired(&*error.error) => {
                Self::SessionExpired
            }
            ServiceError::TransportSend(error) if was_never_executed(&*error.error) => {
                Self::NotExecuted(describe_transport(&*error.error))
            }
            ServiceError::TransportSend(error) => {
                Self::ConnectionFailed(describe_transport(&*error.error))
            }
            other => Self::ConnectionFailed(error_chain(&other)),
        }
    }
}

/// Describes why a session did not begin.
pub(super) fn describe_handshake(
    error: &ClientInitializeError,
    close_reason: &CloseReason,
) -> String {
    match error {
        ClientInitializeError::ConnectionClosed(_) if close_reason.get().is_some() => {
            format!("{}.", RequestError::Disconnected.or_closed(close_reason))
        }
        ClientInitializeError::ConnectionClosed(_) => {
            "it ended or closed its connection before it was ready.".to_owned()
        }
        ClientInitializeError::TransportError { error, .. } => {
            format!("{}.", describe_transport(&*error.error))
        }
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => {
            describe_handshake(fallback, close_reason)
        }
        other => format!("{}.", error_chain(other)),
    }
}

/// Whether the server answered, as the protocol prescribes, that it does not know the session.
fn is_session_expired(error: &(dyn Error + Send + Sync + 'static)) -> bool {
    matches!(
        error.downcast_ref(),
        Some(StreamableHttpError::<reqwest::Error>::SessionExpired)
    )
}

/// Whether the server has certainly not executed the request.
fn was_never_executed(error: &(dyn Error + Send + Sync + 'static)) -> bool {
    match error.downcast_ref::<StreamableHttpError<reqwest::Error>>() {
        Some(StreamableHttpError::Client(error)) => error.is_connect(),
        Some(
            StreamableHttpError::AuthRequired(_)
            | StreamableHttpError::InsufficientScope(_)
            | StreamableHttpError::Auth(_),
        ) => true,
        _ => false,
    }
}

/// Describes a failure of the transport. Of a response, only the status is shown: the rest may
/// repeat secrets of the request.
fn describe_transport(error: &(dyn Error + Send + Sync + 'static)) -> String {
    match error.downcast_ref::<StreamableHttpError<reqwest::Error>>() {
        Some(StreamableHttpError::Client(error)) => describe_http(error),
        Some(StreamableHttpError::UnexpectedServerResponse(text)) => match text.split_once(':') {
            Some((status, _)) => truncate_text(status),
            None => truncate_text(text),
        },
        Some(StreamableHttpError::AuthRequired(_) | StreamableHttpError::InsufficientScope(_)) => {
            "it asks for authorization: log in with `dormouse mcp login`, or put a token into its \
             headers"
                .to_owned()
        }
        // The text of the library may repeat what the authorization server wrote.
        Some(StreamableHttpError::Auth(_)) => {
            "the token of its login can be neither read nor refreshed".to_owned()
        }
        _ => error_chain(error),
    }
}

/// An error with its causes, without addresses, which may hold secrets.
fn error_chain(error: &(dyn Error + 'static)) -> String {
    let mut messages: Vec<String> = Vec::new();
    let mut next = Some(error);
    while let Some(error) = next.filter(|_| messages.len() < 6) {
        let message = remove_addresses(&error.to_string());
        if !messages.iter().any(|known| known.contains(&message)) {
            messages.push(message);
        }
        next = error.source();
    }
    truncate_text(&messages.join(": "))
}

/// Describes a failure of HTTP without the address.
fn describe_http(error: &reqwest::Error) -> String {
    match error {
        error if error.is_connect() => match dormouse_http::advice_on_certificate(error) {
            None => "no connection could be made".to_owned(),
            Some(advice) => format!("no connection could be made: {advice}"),
        },
        error if error.is_timeout() => "it took too long".to_owned(),
        error => error.status().map_or_else(
            || "HTTP failed".to_owned(),
            |status| format!("HTTP {status}"),
        ),
    }
}

/// The text with every address in it replaced.
fn remove_addresses(text: &str) -> String {
    let replace = |word: &str| {
        if word.contains("://") {
            "(its address)".to_owned()
        } else {
            word.to_owned()
        }
    };
    text.split(' ').map(replace).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use std::any::TypeId;

    use rmcp::transport::DynamicTransportError;
    use rmcp::transport::streamable_http_client::AuthRequiredError;

    use super::*;

    type HttpError = StreamableHttpError<reqwest::Error>;

    #[tokio::test]
    async fn the_effect_of_a_request_that_was_not_executed_is_known() {
        let url = reqwest::Url::parse("http://127.0.0.1:1/").unwrap();
        let client = dormouse_http::client(&url, None).unwrap().build().unwrap();
        let unreachable = client.get(url).send().await.unwrap_err();
        let unauthorized = AuthRequiredError::new("Bearer".to_owned());
        let cases = [
            (HttpError::AuthRequired(unauthorized), "did not carry out"),
            (HttpError::Client(unreachable), "did not carry out"),
            (HttpError::UnexpectedEndOfStream, "Effect unknown"),
        ];
        for (error, expected) in cases {
            let error = DynamicTransportError::from_parts("http", TypeId::of::<()>(), error.into());
            let error = RequestError::from(ServiceError::TransportSend(error));
            let text = error.call_error("s", "t").to_string();
            assert!(text.contains(expected), "{text}");
            assert_eq!(error.call_end(), CallEnd::Broken, "the server is pinged");
        }
    }

    #[test]
    fn an_address_is_not_shown() {
        let shown = remove_addresses(
            "error sending request for url (http://u:s3cret@h/mcp?key=s3cret) now",
        );
        assert_eq!(shown, "error sending request for url (its address) now");
    }
}
