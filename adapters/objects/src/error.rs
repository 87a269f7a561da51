//! Errors of object stores as errors of the store port.
//!
//! The text says the operation, the key, the reason and what to try. It never contains what a server
//! answered at length or a client was configured with, because both can contain credentials: of an
//! answer only the status and the code are shown, and long words of other errors are masked.

use std::error::Error as StdError;
use std::io;

use dormouse_actors::ports::StoreError;
use object_store::Error;
use object_store::client::{HttpError, HttpErrorKind};

/// The error for options that cannot be used.
pub(crate) fn invalid_options(why: String) -> StoreError {
    StoreError::Io {
        doing: "open the object store".to_owned(),
        source: io::Error::new(io::ErrorKind::InvalidInput, why),
    }
}

/// The error for a request that failed: `doing` says what to which key and where.
pub(crate) fn request_failed(doing: String, error: &Error) -> StoreError {
    let (kind, why) = explain(error);
    StoreError::Io {
        doing,
        source: io::Error::new(kind, why),
    }
}

/// The error for something that the store contains and that nobody wrote so.
pub(crate) fn damaged(what: String) -> StoreError {
    StoreError::Damaged { what }
}

/// Whether the same request may succeed later.
pub(crate) fn is_transient(error: &Error) -> bool {
    matches!(
        error,
        Error::Generic { .. } | Error::JoinError { .. } | Error::AlreadyExists { .. }
    )
}

/// Whether the store has no object of this key. A bucket that is absent is another error.
pub(crate) fn is_missing_object(error: &Error) -> bool {
    let is_bucket = || {
        let (_, cause) = cause(error);
        ["NoSuchBucket", "ContainerNotFound"]
            .iter()
            .any(|code| cause.contains(code))
    };
    matches!(error, Error::NotFound { .. }) && !is_bucket()
}

/// Whether the requested range begins after the end of the object.
pub(crate) fn is_outside_of_object(error: &Error) -> bool {
    let (_, cause) = cause(error);
    matches!(error, Error::Generic { .. })
        && (cause.contains("answered 416") || cause.contains("Requested range was invalid"))
}

fn explain(error: &Error) -> (io::ErrorKind, String) {
    let (cause_kind, cause) = cause(error);
    let (kind, advice) = match error {
        Error::NotFound { .. } => (
            io::ErrorKind::NotFound,
            "Create the bucket, or correct its name and the endpoint",
        ),
        Error::PermissionDenied { .. } => (
            io::ErrorKind::PermissionDenied,
            "Check the credentials in the environment or the files of the cloud's tools, their \
             permission to get, put, list and delete objects here, and the clock",
        ),
        Error::Unauthenticated { .. } => (
            io::ErrorKind::PermissionDenied,
            "Put credentials into the environment or the files of the cloud's tools",
        ),
        Error::NotSupported { .. } | Error::NotImplemented { .. } => (
            io::ErrorKind::Unsupported,
            "Use a store that offers conditional writes (If-None-Match)",
        ),
        _ => match cause_kind {
            io::ErrorKind::StorageFull => (cause_kind, "Free space on the disk"),
            io::ErrorKind::PermissionDenied => (cause_kind, "Check the rights of the folder"),
            _ => (
                cause_kind,
                "Try again; if that fails, check the network, the endpoint and the region",
            ),
        },
    };
    (kind, format!("{cause}. {advice}"))
}

/// Why a request failed, without anything secret.
fn cause(error: &Error) -> (io::ErrorKind, String) {
    let mut kind = io::ErrorKind::Other;
    let mut cause: Option<&(dyn StdError + 'static)> = Some(error);
    let mut root: &(dyn StdError + 'static) = error;
    let mut is_http = false;
    while let Some(error) = cause {
        if let Some(answer) = answer(&error.to_string()) {
            return (kind, answer);
        }
        if let Some(http) = error.downcast_ref::<HttpError>() {
            is_http = true;
            kind = match http.kind() {
                HttpErrorKind::Timeout => io::ErrorKind::TimedOut,
                HttpErrorKind::Connect => io::ErrorKind::NotConnected,
                _ => io::ErrorKind::ConnectionAborted,
            };
        }
        root = error;
        cause = error.source();
    }
    if let Some(os) = root.downcast_ref::<io::Error>().filter(|_| !is_http) {
        kind = os.kind();
    }
    match kind {
        io::ErrorKind::TimedOut if is_http => (kind, "the server did not answer in time".into()),
        io::ErrorKind::NotConnected => (
            kind,
            format!("no connection to the server: {}", masked(&root.to_string())),
        ),
        io::ErrorKind::Other => (kind, masked(&error.to_string())),
        _ => (kind, masked(&root.to_string())),
    }
}

/// The status and the code of an answer, if the text is the client's report of one.
fn answer(text: &str) -> Option<String> {
    let (status, body) =
        if let Some(rest) = text.strip_prefix("Server returned non-2xx status code: ") {
            rest.split_once(": ").unwrap_or((rest, ""))
        } else {
            (
                "an error",
                text.strip_prefix("Server returned error response: ")?,
            )
        };
    let code = body
        .split_once("<Code>")
        .and_then(|(_, rest)| rest.split_once("</Code>"))
        .map(|(code, _)| code)
        .filter(|code| code.len() < 60 && code.chars().all(|c| c.is_ascii_alphabetic()));
    let code = code.map_or(String::new(), |code| format!(" ({code})"));
    Some(format!("the server answered {}{code}", masked(status)))
}

/// A text without queries of addresses, and without words that could be a key or a token.
fn masked(text: &str) -> String {
    let is_word = |c: char| c.is_ascii_alphanumeric() || "+=_-%".contains(c);
    let mut shown = String::new();
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !is_word(c)).unwrap_or(rest.len());
        let (word, other) = rest.split_at(end);
        shown.push_str(if word.len() < 20 { word } else { "…" });
        let next = other.find(is_word).unwrap_or(other.len());
        let (between, after) = other.split_at(next);
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
    fn of_an_answer_only_the_status_and_the_code_are_shown() {
        let body = "Server returned non-2xx status code: 403 Forbidden: <Error><Code>SignatureDoesNotMatch</Code>\
                    <AWSAccessKeyId>secret</AWSAccessKeyId></Error>";
        let shown = "the server answered 403 Forbidden (SignatureDoesNotMatch)";
        assert_eq!(answer(body).as_deref(), Some(shown));
        let error = "Server returned error response: <Code>SlowDown</Code>";
        assert_eq!(
            answer(error).as_deref(),
            Some("the server answered an error (SlowDown)")
        );
        assert_eq!(answer("other"), None);
    }
}
