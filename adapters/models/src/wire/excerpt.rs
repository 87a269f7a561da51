//! Builds errors, and shortens the texts in them.

use dormouse_proto::model::{ModelError, ModelErrorKind};
use dormouse_proto::text::truncate;

/// The error for a response that violates the protocol.
pub(crate) fn malformed(message: impl Into<String>) -> ModelError {
    ModelError::new(ModelErrorKind::Malformed, message)
}

/// Checks that a reply has at most `max` of `what`, since a hostile server may send any number.
pub(crate) fn check_count(count: usize, max: usize, what: &str) -> Result<(), ModelError> {
    if count > max {
        return Err(malformed(format!("the reply has more than {max} {what}")));
    }
    Ok(())
}

/// The error for a part of a response, named by `what`, whose JSON does not parse.
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

/// The first 200 characters of a text, and `…` where there are more.
pub(crate) fn beginning(text: &str) -> String {
    truncate(text, 200)
}

/// `text` with `secret` replaced. If an excerpt ends within the secret, the part of the secret
/// before the `…` is replaced too.
pub(crate) fn redact_secret(text: &str, secret: &str) -> String {
    /// A shorter beginning reveals nothing, since many keys begin with `sk-`.
    const MIN_BEGINNING_BYTES: usize = 4;
    // A header value this short is not a secret, and may occur in ordinary words of the error.
    if secret.len() < MIN_BEGINNING_BYTES {
        return text.to_owned();
    }
    let beginnings = (MIN_BEGINNING_BYTES..secret.len())
        .rev()
        .filter_map(|end| secret.get(..end));
    beginnings.fold(text.replace(secret, "[key]"), |text, beginning| {
        text.replace(&format!("{beginning}…"), "[key]…")
    })
}
