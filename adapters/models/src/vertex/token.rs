//! Tokens of Google Cloud, from wherever its own tools find them.
//!
//! A token in `GOOGLE_OAUTH_ACCESS_TOKEN` is sent as any other key: `wire/builder.rs` reads it, and
//! nothing here is used. Otherwise [`GoogleTokens`] is the [`Signer`] of the client: what adds the
//! headers that authenticate each request. Here that is a bearer token, and no signature.

use std::sync::Arc;

use dormouse_proto::model::{ModelError, ModelErrorKind};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use gcp_auth::TokenProvider;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use tokio::sync::OnceCell;

use crate::wire::failure::error_chain;
use crate::wire::{Signer, UnsignedRequest};

/// What a token permits.
const SCOPES: [&str; 1] = ["https://www.googleapis.com/auth/cloud-platform"];

/// The variable that names the key of a service account.
const ACCOUNT_VARIABLE: &str = "GOOGLE_APPLICATION_CREDENTIALS";

/// Finds the source of tokens with the first request. The source keeps a token until it expires.
pub(super) struct GoogleTokens {
    /// Whether the environment names a service account.
    has_account: bool,
    source: OnceCell<Arc<dyn TokenProvider>>,
}

impl GoogleTokens {
    pub(super) fn new(variable: &dyn Fn(&str) -> Option<String>) -> Self {
        Self {
            has_account: variable(ACCOUNT_VARIABLE).is_some(),
            source: OnceCell::new(),
        }
    }

    async fn header(&self) -> Result<HeaderMap, ModelError> {
        let source = self.source.get_or_try_init(gcp_auth::provider).await;
        let source = source.map_err(|error| no_token(&error))?;
        let token = source.token(&SCOPES).await;
        let token = token.map_err(|error| no_token(&error))?;
        bearer(token.as_str())
    }
}

fn bearer(token: &str) -> Result<HeaderMap, ModelError> {
    let mut value = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| {
        no_token(&gcp_auth::Error::Str(
            "the token cannot be sent in a header",
        ))
    })?;
    value.set_sensitive(true);
    Ok(HeaderMap::from_iter([(AUTHORIZATION, value)]))
}

impl Signer for GoogleTokens {
    // A server on this machine, such as a test server, may need no token: it gets one only if the
    // environment names a service account.
    fn signs_for_this_machine(&self) -> bool {
        self.has_account
    }

    fn secrets(&self) -> Vec<String> {
        Vec::new()
    }

    fn sign<'a>(
        &'a self,
        _request: UnsignedRequest<'a>,
    ) -> BoxFuture<'a, Result<HeaderMap, ModelError>> {
        self.header().boxed()
    }
}

fn no_token(error: &gcp_auth::Error) -> ModelError {
    let message = format!(
        "no token of Google Cloud: {}. Set GOOGLE_OAUTH_ACCESS_TOKEN, or \
         GOOGLE_APPLICATION_CREDENTIALS to the key of a service account, or run `gcloud auth \
         application-default login`",
        error_chain(error)
    );
    ModelError::new(ModelErrorKind::Authentication, message)
}
