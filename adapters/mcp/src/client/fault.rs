//! What goes wrong between us and a server, as texts for a model. They are bounded, and show no
//! address and no header.

use std::error::Error;

use rmcp::model::ErrorData;
use rmcp::service::{ClientInitializeError, ServiceError};
use rmcp::transport::streamable_http_client::StreamableHttpError;

use super::inbound::Left;
use super::manners::shortened;
use super::trust::CallEnd;

/// Why nothing came of a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Fault {
    /// The server answered with an error of the protocol.
    #[error("the server refused: {0}")]
    Refused(String),
    /// The connection ended: whether the server did what was asked is unknown.
    #[error("the server ended or closed its connection before it answered")]
    Gone,
    /// We ended the connection because of what the server did: whether it did what was asked is
    /// unknown.
    #[error("the connection was ended, since the server {0}")]
    Left(&'static str),
    /// The request may not have reached it, or its answer got lost.
    #[error("the connection failed: {0}")]
    Broken(String),
    /// The server knows the session no more, as after a restart: by the protocol it refuses all
    /// that is asked in it.
    #[error("the server knows the session no more")]
    Forgotten,
    /// It answered with something else than was asked for.
    #[error("the server answered with something else than was asked for")]
    Strange,
    /// It took too long.
    #[error("the server did not answer within {0} ms")]
    Late(u64),
}

impl Fault {
    /// What it says of the session.
    pub(super) fn call_end(&self) -> CallEnd {
        match self {
            Self::Refused(_) | Self::Strange => CallEnd::Answered,
            Self::Gone | Self::Left(_) | Self::Broken(_) => CallEnd::Broken,
            Self::Late(_) => CallEnd::GivenUp,
            Self::Forgotten => CallEnd::Forgotten,
        }
    }

    /// The same, where a connection that ended was ended by us.
    pub(super) fn or_left(self, left: &Left) -> Self {
        match (self, left.why()) {
            (Self::Gone, Some(why)) => Self::Left(why),
            (fault, _) => fault,
        }
    }

    /// The text for the model whose call came to this.
    pub(super) fn of_call(&self, server: &str, tool: &str) -> String {
        match self {
            Self::Refused(why) => {
                format!("{tool}: the tool server `{server}` refused the call: {why}")
            }
            Self::Gone | Self::Left(_) | Self::Broken(_) | Self::Late(_) => format!(
                "{tool}: {self}. Effect unknown: the call may have been carried out, and was not \
                 repeated. Look what was done, then decide."
            ),
            Self::Forgotten => {
                format!(
                    "{tool}: {self}, and did not carry out the call. The session is begun anew: \
                     call again."
                )
            }
            Self::Strange => format!("{tool}: {self}."),
        }
    }
}

impl From<ErrorData> for Fault {
    fn from(error: ErrorData) -> Self {
        Self::Refused(format!(
            "{} (code {})",
            shortened(&error.message),
            error.code.0
        ))
    }
}

impl From<ServiceError> for Fault {
    fn from(error: ServiceError) -> Self {
        match error {
            ServiceError::McpError(error) => error.into(),
            ServiceError::TransportClosed => Self::Gone,
            ServiceError::UnexpectedResponse => Self::Strange,
            ServiceError::Timeout { timeout } => {
                Self::Late(u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX))
            }
            ServiceError::TransportSend(error) if is_forgotten(&*error.error) => Self::Forgotten,
            ServiceError::TransportSend(error) => Self::Broken(transport_words(&*error.error)),
            other => Self::Broken(chain(&other)),
        }
    }
}

/// Why a session did not begin, as a text.
pub(super) fn of_beginning(error: &ClientInitializeError, left: &Left) -> String {
    match error {
        ClientInitializeError::ConnectionClosed(_) if left.why().is_some() => {
            format!("{}.", Fault::Gone.or_left(left))
        }
        ClientInitializeError::ConnectionClosed(_) => {
            "it ended or closed its connection before it was ready.".to_owned()
        }
        ClientInitializeError::TransportError { error, .. } => {
            format!("{}.", transport_words(&*error.error))
        }
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => {
            of_beginning(fallback, left)
        }
        other => format!("{}.", chain(other)),
    }
}

/// Whether the request was answered with what says, by the protocol, that its session is none.
fn is_forgotten(error: &(dyn Error + Send + Sync + 'static)) -> bool {
    matches!(
        error.downcast_ref(),
        Some(StreamableHttpError::<reqwest::Error>::SessionExpired)
    )
}

/// What went wrong on the way, in short. What a machine says beside its status is not shown: it may
/// repeat what it was sent.
fn transport_words(error: &(dyn Error + Send + Sync + 'static)) -> String {
    match error.downcast_ref::<StreamableHttpError<reqwest::Error>>() {
        Some(StreamableHttpError::Client(error)) => http_words(error),
        Some(StreamableHttpError::UnexpectedServerResponse(said)) => match said.split_once(':') {
            Some((status, _)) => shortened(status),
            None => shortened(said),
        },
        Some(StreamableHttpError::AuthRequired(_) | StreamableHttpError::InsufficientScope(_)) => {
            "it asks for another authorization".to_owned()
        }
        _ => chain(error),
    }
}

/// An error with its causes, without addresses: they may hold secrets.
fn chain(error: &(dyn Error + 'static)) -> String {
    let mut said: Vec<String> = Vec::new();
    let mut next = Some(error);
    while let Some(error) = next.filter(|_| said.len() < 6) {
        let words = without_addresses(&error.to_string());
        if !said.iter().any(|known| known.contains(&words)) {
            said.push(words);
        }
        next = error.source();
    }
    shortened(&said.join(": "))
}

fn http_words(error: &reqwest::Error) -> String {
    match error {
        error if error.is_connect() => "no connection could be made".to_owned(),
        error if error.is_timeout() => "it took too long".to_owned(),
        error => error.status().map_or_else(
            || "HTTP failed".to_owned(),
            |status| format!("HTTP {status}"),
        ),
    }
}

/// The text with every address in it replaced.
fn without_addresses(text: &str) -> String {
    let word = |word: &str| {
        if word.contains("://") {
            "(its address)".to_owned()
        } else {
            word.to_owned()
        }
    };
    text.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_not_shown() {
        let shown = without_addresses(
            "error sending request for url (http://u:s3cret@h/mcp?key=s3cret) now",
        );
        assert_eq!(shown, "error sending request for url (its address) now");
    }
}
