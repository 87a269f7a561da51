//! The connections to authorization servers: those of every HTTP client in Dormouse, encrypted,
//! with bounded answers, and without redirects.

use std::time::Duration;

use futures_util::StreamExt;
use reqwest::Url;
use rmcp::transport::auth::{
    OAuthHttpClient, OAuthHttpClientError, OAuthHttpClientFuture, OAuthHttpRequest,
};

/// The largest answer of an authorization server.
const MAX_BODY_BYTES: usize = 1 << 20;
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// Sends the requests of OAuth.
pub(super) struct OAuthHttp;

impl OAuthHttpClient for OAuthHttp {
    fn execute(&self, request: OAuthHttpRequest) -> OAuthHttpClientFuture<'_> {
        Box::pin(execute(request))
    }
}

async fn execute(
    request: OAuthHttpRequest,
) -> Result<http::Response<Vec<u8>>, OAuthHttpClientError> {
    let url = Url::parse(&request.request.uri().to_string())?;
    if dormouse_http::is_unencrypted(&url) {
        return Err("the authorization server has no https:// address".into());
    }
    let timeout = request.timeout.unwrap_or(DEFAULT_TIMEOUT);
    let client = dormouse_http::client(&url, None)?
        .timeout(timeout)
        .build()?;
    // An address may hold a code or a token.
    let request =
        reqwest::Request::try_from(request.request).map_err(reqwest::Error::without_url)?;
    let response = client.execute(request).await;
    let response = response.map_err(reqwest::Error::without_url)?;
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
