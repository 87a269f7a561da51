//! Signs requests with credentials of AWS (Signature Version 4). A [`Signer`] is what adds the
//! headers that authenticate each request of a client.

use aws_credential_types::Credentials;
use aws_sigv4::http_request::{SignableBody, SignableRequest, SigningSettings, sign};
use aws_sigv4::sign::v4::SigningParams;
use dormouse_proto::model::{ModelError, ModelErrorKind};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use sha2::{Digest, Sha256};

use super::REGION_HELP;
use crate::wire::cloud_name::checked;
use crate::wire::failure::error_chain;
use crate::wire::{Body, Signer, UnsignedRequest};

/// The name of the service in signatures.
const SERVICE: &str = "bedrock";

/// An access key of AWS, and the token of its session if it is a temporary one. It has no debug
/// output.
#[derive(Clone)]
pub struct AwsCredentials {
    access_key_id: String,
    secret_access_key: String,
    session_token: Option<String>,
}

impl AwsCredentials {
    /// The credentials with these parts.
    #[must_use]
    pub fn new(
        access_key_id: impl Into<String>,
        secret_access_key: impl Into<String>,
        session_token: Option<String>,
    ) -> Self {
        Self {
            access_key_id: access_key_id.into(),
            secret_access_key: secret_access_key.into(),
            session_token,
        }
    }

    /// The credentials in the usual variables; `None` if there are none.
    pub(super) fn from_variables(variable: &dyn Fn(&str) -> Option<String>) -> Option<Self> {
        let trimmed = |name: &str| variable(name).map(|value| value.trim().to_owned());
        Some(Self::new(
            trimmed("AWS_ACCESS_KEY_ID")?,
            trimmed("AWS_SECRET_ACCESS_KEY")?,
            trimmed("AWS_SESSION_TOKEN"),
        ))
    }

    fn sign_now(&self, request: UnsignedRequest<'_>) -> Result<HeaderMap, ModelError> {
        let region = checked("region", request.region, &[], REGION_HELP)?;
        let credentials = Credentials::new(
            &self.access_key_id,
            &self.secret_access_key,
            self.session_token.clone(),
            None,
            "environment",
        );
        let identity = credentials.into();
        let parameters = SigningParams::builder()
            .identity(&identity)
            .region(region)
            .name(SERVICE)
            .time(request.now)
            .settings(SigningSettings::default())
            .build()
            .map_err(|error| unsigned(&error))?
            .into();
        let signable = SignableRequest::new(
            "POST",
            request.url.as_str(),
            std::iter::once(("content-type", "application/json")),
            SignableBody::Precomputed(sha256_hex(request.body)),
        );
        let signable = signable.map_err(|error| unsigned(&error))?;
        let signed = sign(signable, &parameters).map_err(|error| unsigned(&error))?;
        let (instructions, _) = signed.into_parts();
        let headers = instructions.headers().map(|(name, value)| {
            let mut value = HeaderValue::from_str(value).map_err(|error| unsigned(&error))?;
            value.set_sensitive(name != "x-amz-date");
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|error| unsigned(&error))?;
            Ok((name, value))
        });
        headers.collect()
    }
}

impl Signer for AwsCredentials {
    fn signs_for_this_machine(&self) -> bool {
        true
    }

    fn secrets(&self) -> Vec<String> {
        let token = self.session_token.iter().cloned();
        std::iter::once(self.secret_access_key.clone())
            .chain(token)
            .collect()
    }

    fn sign<'a>(
        &'a self,
        request: UnsignedRequest<'a>,
    ) -> BoxFuture<'a, Result<HeaderMap, ModelError>> {
        std::future::ready(self.sign_now(request)).boxed()
    }
}

fn sha256_hex(body: &Body) -> String {
    let mut hash = Sha256::new();
    body.pieces().for_each(|piece| hash.update(piece));
    hash.finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn unsigned(error: &(dyn std::error::Error + 'static)) -> ModelError {
    let message = format!("the request cannot be signed: {}", error_chain(error));
    ModelError::new(ModelErrorKind::Authentication, message)
}
