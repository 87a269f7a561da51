//! What a call asked and what came back, for the text of its error.

use std::sync::{Arc, Mutex, PoisonError};

use dormouse_proto::model::{ModelError, ModelErrorKind};
use dormouse_proto::text::truncate;
use futures_util::StreamExt;
use reqwest::header::{CONTENT_TYPE, HeaderMap};
use reqwest::{Response, StatusCode, Url};

use super::body::BodyStream;
use super::excerpt::redact_secret;

/// How much of a body an error shows.
const SHOWN_CHARS: usize = 120;
/// That many characters have at most this length.
const KEPT_BYTES: usize = 4 * SHOWN_CHARS;

/// A request and the beginning of its response.
pub(super) struct Exchange {
    /// The address without user, password and query, which may be secret.
    address: String,
    response: Option<ResponseHead>,
    /// The secrets of this request, which its error may not show.
    secrets: Vec<String>,
    /// The first bytes of the body.
    beginning: Arc<Mutex<Vec<u8>>>,
}

struct ResponseHead {
    status: StatusCode,
    content_type: String,
}

impl Exchange {
    /// A request to `url` that has no response yet.
    pub(super) fn new(url: &Url) -> Self {
        Self {
            address: without_secrets(url.clone()),
            response: None,
            secrets: Vec::new(),
            beginning: Arc::default(),
        }
    }

    /// Notes the values of sensitive headers.
    pub(super) fn record_secrets(&mut self, headers: &HeaderMap) {
        let sensitive = headers.values().filter(|value| value.is_sensitive());
        self.secrets.extend(sensitive.flat_map(|value| {
            let value = value.to_str().unwrap_or_default();
            // A server may quote the token without the word before it.
            [value, value.trim_start_matches("Bearer ")].map(str::to_owned)
        }));
    }

    /// Notes the head of the response.
    pub(super) fn record_head(&mut self, response: &Response) {
        let content_type = response.headers().get(CONTENT_TYPE);
        let content_type = content_type.map(|kind| String::from_utf8_lossy(kind.as_bytes()));
        let content_type = content_type.filter(|kind| !kind.trim().is_empty());
        self.response = Some(ResponseHead {
            status: response.status(),
            content_type: content_type.map_or_else(
                || "no content type".to_owned(),
                |kind| truncate(kind.trim(), 80),
            ),
        });
    }

    /// The same body, whose first bytes are noted as they are read.
    pub(super) fn record_beginning(&self, body_stream: BodyStream) -> BodyStream {
        let beginning = self.beginning.clone();
        Box::pin(body_stream.inspect(move |chunk| {
            let Ok(chunk) = chunk else { return };
            let mut beginning = beginning.lock().unwrap_or_else(PoisonError::into_inner);
            let room = KEPT_BYTES.saturating_sub(beginning.len());
            beginning.extend_from_slice(&chunk[..chunk.len().min(room)]);
        }))
    }

    /// The error with what was asked, what came and, if a reply cannot be read, what to do.
    pub(super) fn explain(&self, mut error: ModelError) -> ModelError {
        // The message for another status begins with it, and shows the body.
        let reply = self.response.as_ref();
        let reply = reply.filter(|response| response.status.is_success());
        let came = reply.map(|response| {
            let ResponseHead {
                status,
                content_type,
            } = response;
            format!(
                ": status {}, {content_type}, {}",
                status.as_u16(),
                self.shown_beginning()
            )
        });
        let advice = match error.kind {
            ModelErrorKind::Malformed => {
                ". If it always does so, `base_url` and `provider` do not belong together, or a \
                 gateway between changes replies"
            }
            _ => "",
        };
        error.message = format!(
            "{} (POST {}{}){advice}",
            error.message,
            self.address,
            came.unwrap_or_default()
        );
        for secret in &self.secrets {
            error.message = redact_secret(&error.message, secret);
        }
        error
    }

    fn shown_beginning(&self) -> String {
        let beginning = self
            .beginning
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&beginning);
        if text.trim().is_empty() {
            return "an empty body".to_owned();
        }
        format!("body: {:?}", truncate(text.trim(), SHOWN_CHARS))
    }
}

/// An address without user, password, query and fragment.
pub(super) fn without_secrets(mut url: Url) -> String {
    // These fail only for addresses that have no machine.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_query(None);
    url.set_fragment(None);
    url.to_string()
}
