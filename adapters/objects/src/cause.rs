//! Why a request failed, in words that contain no credentials.
//!
//! What a server answers at length, and what a client was configured with, can contain credentials.
//! So of an answer only the status and the code are shown, and in other errors the queries of
//! addresses are left out, and long words masked.

use std::error::Error as StdError;
use std::fmt;
use std::io;

use object_store::Error;
use object_store::client::{HttpError, HttpErrorKind};

use crate::credentials::NoCredentials;

/// Why a request failed.
pub(crate) struct Cause {
    pub(crate) reason: Reason,
    /// The innermost error, as it may be shown.
    root: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The server answered so. The status is 0 if the client reports none.
    Answer { status: u16, code: String },
    /// The server did not answer in time.
    Timeout,
    /// There was no connection to the server.
    NoConnection,
    /// The connection ended, or what came was not HTTP.
    Interrupted,
    /// There are no credentials.
    NoCredentials,
    /// The operating system refused.
    System(io::ErrorKind),
    /// The outermost error, as it may be shown.
    Other(String),
}

impl Reason {
    pub(crate) fn kind(&self) -> io::ErrorKind {
        match self {
            Self::Timeout => io::ErrorKind::TimedOut,
            Self::NoConnection => io::ErrorKind::NotConnected,
            Self::Interrupted => io::ErrorKind::ConnectionAborted,
            Self::NoCredentials => io::ErrorKind::PermissionDenied,
            Self::System(kind) => *kind,
            Self::Answer { .. } | Self::Other(_) => io::ErrorKind::Other,
        }
    }
}

impl Cause {
    pub(crate) fn of(error: &Error) -> Self {
        let mut reason = Reason::Other(masked(&error.to_string()));
        let mut root: &(dyn StdError + 'static) = error;
        loop {
            if let Some(answer) = read_answer(&root.to_string()) {
                reason = answer;
                break;
            }
            if let Some(http) = root.downcast_ref::<HttpError>() {
                reason = match http.kind() {
                    HttpErrorKind::Timeout => Reason::Timeout,
                    HttpErrorKind::Connect => Reason::NoConnection,
                    _ => Reason::Interrupted,
                };
            }
            match root.source() {
                Some(source) => root = source,
                None => break,
            }
        }
        if root.is::<NoCredentials>() {
            reason = Reason::NoCredentials;
        }
        if let (Reason::Other(_), Some(system)) = (&reason, root.downcast_ref::<io::Error>()) {
            reason = Reason::System(system.kind());
        }
        let root = masked(&root.to_string());
        Self { reason, root }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let root = &self.root;
        match &self.reason {
            Reason::Answer { status: 0, code } => write!(f, "the server answered {code}"),
            Reason::Answer { status, code } if code.is_empty() => {
                write!(f, "the server answered {status}")
            }
            Reason::Answer { status, code } => write!(f, "the server answered {status} ({code})"),
            Reason::Timeout => write!(f, "the server did not answer in time"),
            Reason::NoConnection => write!(f, "no connection to the server: {root}"),
            Reason::Interrupted => write!(f, "the connection to the server failed: {root}"),
            Reason::NoCredentials | Reason::System(_) => write!(f, "{root}"),
            Reason::Other(outer) => write!(f, "{outer}"),
        }
    }
}

/// The status and the code of an answer, if the text is the client's report of one. The client has
/// no type for that which others can use.
fn read_answer(text: &str) -> Option<Reason> {
    let (status, body) =
        if let Some(answer) = text.strip_prefix("Server returned non-2xx status code: ") {
            answer.split_once(": ").unwrap_or((answer, ""))
        } else {
            ("0", text.strip_prefix("Server returned error response: ")?)
        };
    let status = status
        .split(' ')
        .next()
        .and_then(|status| status.parse().ok());
    let code = body
        .split_once("<Code>")
        .and_then(|(_, rest)| rest.split_once("</Code>"))
        .map(|(code, _)| code)
        .filter(|code| code.len() < 60 && code.chars().all(|c| c.is_ascii_alphabetic()));
    Some(Reason::Answer {
        status: status.unwrap_or(0),
        code: code.unwrap_or_default().to_owned(),
    })
}

/// The longest word that is shown: a key or a token is longer.
const LONGEST_WORD: usize = 19;

/// A text without queries of addresses, and without words that could be a key or a token.
fn masked(text: &str) -> String {
    let is_in_word = |c: char| c.is_ascii_alphanumeric() || "+=_-%".contains(c);
    let mut shown = String::new();
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|c| !is_in_word(c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        shown.push_str(if end > LONGEST_WORD { "…" } else { word });
        let next = after.find(is_in_word).unwrap_or(after.len());
        let (between, after) = after.split_at(next);
        shown.push_str(between);
        rest = if between.ends_with('?') {
            after.trim_start_matches(|c: char| !c.is_whitespace())
        } else {
            after
        };
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_be_a_secret_is_masked() {
        for (text, shown) in [
            ("no such host", "no such host"),
            (
                "GET http://h/a/b?sig=abc&x=1 failed",
                "GET http://h/a/b? failed",
            ),
            ("key wJalrXUtnFEMIK7MDENGbPxRfiCY!", "key …!"),
            ("", ""),
        ] {
            assert_eq!(masked(text), shown);
        }
    }

    #[test]
    fn of_an_answer_only_the_status_and_the_code_are_kept() {
        let answer = |status, code: &str| {
            let code = code.to_owned();
            Some(Reason::Answer { status, code })
        };
        for (text, expected) in [
            (
                "Server returned non-2xx status code: 403 Forbidden: <Error>\
                 <Code>SignatureDoesNotMatch</Code><AWSAccessKeyId>secret</AWSAccessKeyId></Error>",
                answer(403, "SignatureDoesNotMatch"),
            ),
            (
                "Server returned non-2xx status code: 503 Service Unavailable: secret",
                answer(503, ""),
            ),
            (
                "Server returned non-2xx status code: 400 Bad Request: <Code>a secret</Code>",
                answer(400, ""),
            ),
            (
                "Server returned error response: <Code>SlowDown</Code>",
                answer(0, "SlowDown"),
            ),
            ("secret", None),
        ] {
            assert_eq!(read_answer(text), expected, "{text}");
        }
    }
}
