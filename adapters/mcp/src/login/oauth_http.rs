//! The HTTP client for authorization servers. It is configured as every HTTP client in Dormouse
//! (`dormouse_http`), follows no redirect, and bounds answers; over a network it takes encrypted
//! addresses only. The authorities that a server's declaration names are trusted for its
//! authorization server too.

use std::time::Duration;

use dormouse_http::{CaCertificates, CertificateError};
use dormouse_proto::server::CaFile;
use futures_util::StreamExt;
use reqwest::Url;
use rmcp::transport::auth::{
    OAuthHttpClient, OAuthHttpClientError, OAuthHttpClientFuture, OAuthHttpRequest,
};

/// The largest answer of an authorization server.
const MAX_BODY_BYTES: usize = 1 << 20;
pub(super) const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// Sends the requests of OAuth.
#[derive(Clone)]
pub(super) struct OAuthHttp {
    certificates: Option<CaCertificates>,
}

impl OAuthHttp {
    /// A client that also trusts the authorities of this file.
    ///
    /// # Errors
    /// The file holds no certificates that can be used.
    pub(super) fn trusting(ca_file: Option<&CaFile>) -> Result<Self, CertificateError> {
        let certificates = ca_file
            .map(|file| CaCertificates::parse(file.pem.as_bytes(), &file.path))
            .transpose()?;
        Ok(Self { certificates })
    }

    /// Sends one request. Follows no redirect.
    ///
    /// # Errors
    /// The authorization server cannot be reached, or its answer is too long. No text has the
    /// address, which may hold a code or a token.
    pub(super) async fn send(
        &self,
        request: http::Request<Vec<u8>>,
        timeout: Duration,
    ) -> Result<http::Response<Vec<u8>>, OAuthHttpClientError> {
        let url = Url::parse(&request.uri().to_string())?;
        if dormouse_http::is_unencrypted(&url) {
            return Err("the authorization server has no https:// address".into());
        }
        let client = dormouse_http::client(&url, self.certificates.as_ref())?
            .timeout(timeout)
            .build()?;
        let request = reqwest::Request::try_from(request).map_err(reqwest::Error::without_url)?;
        let response = client.execute(request).await;
        bounded(response.map_err(reqwest::Error::without_url)?).await
    }
}

impl OAuthHttpClient for OAuthHttp {
    fn execute(&self, request: OAuthHttpRequest) -> OAuthHttpClientFuture<'_> {
        let timeout = request.timeout.unwrap_or(DEFAULT_TIMEOUT);
        Box::pin(self.send(request.request, timeout))
    }
}

/// The answer with its body, which has at most [`MAX_BODY_BYTES`].
async fn bounded(
    response: reqwest::Response,
) -> Result<http::Response<Vec<u8>>, OAuthHttpClientError> {
    let mut answer = http::Response::builder().status(response.status());
    if let Some(headers) = answer.headers_mut() {
        headers.clone_from(response.headers());
    }
    let mut body = Vec::new();
    let mut chunks = response.bytes_stream();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(reqwest::Error::without_url)?;
        if body.len() + chunk.len() > MAX_BODY_BYTES {
            return Err(format!("the answer is longer than {MAX_BODY_BYTES} bytes").into());
        }
        body.extend_from_slice(&chunk);
    }
    Ok(answer.body(body)?)
}
