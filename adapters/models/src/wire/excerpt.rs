//! Builds errors, and shortens the texts in them.

use dormouse_proto::model::{ModelError, ModelErrorKind};

/// The error for a response that violates the protocol.
pub(crate) fn malformed(message: impl Into<String>) -> ModelError {
    ModelError::new(ModelErrorKind::Malformed, message)
}

pub(crate) fn malformed_in(what: &str, json: &str, error: &serde_json::Error) -> ModelError {
    malformed(format!(
        "the {what} cannot be read: {error} in {}",
        beginning(json)
    ))
}

/// The error for a request that the provider would not accept.
pub(crate) fn invalid(message: impl Into<String>) -> ModelError {
    ModelError::new(ModelErrorKind::InvalidRequest, message)
}

/// The beginning of a text that may be long.
pub(crate) fn beginning(text: &str) -> String {
    excerpt(text, 200)
}

/// The first characters of a text, and `…` where there are more.
pub(crate) fn excerpt(text: &str, longest_chars: usize) -> String {
    let mut shown: String = text.chars().take(longest_chars).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}

/// `text` without `secret`, and without its beginning where an excerpt was cut in the middle of it.
pub(crate) fn without(text: &str, secret: &str) -> String {
    /// A shorter beginning reveals nothing: every key begins with `sk-`.
    const SHORTEST: usize = 4;
    let beginnings = (SHORTEST..secret.len())
        .rev()
        .filter_map(|end| secret.get(..end));
    beginnings.fold(text.replace(secret, "[key]"), |text, beginning| {
        text.replace(&format!("{beginning}…"), "[key]…")
    })
}
