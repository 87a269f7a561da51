//! How an [`Anthropic`] model is put together.

use std::net::IpAddr;
use std::time::Duration;

use dormouse_proto::model::{ModelError, ModelErrorKind};
use reqwest::header::{HeaderMap, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Client, Url};
use rustls::{ClientConfig, RootCertStore};

use super::{Anthropic, Caching, Delivery, STREAM_IDLE, WHOLE_IDLE};

const BASE_URL: &str = "https://api.anthropic.com";
/// The version of the API that encoder and decoder are written for.
const VERSION: &str = "2023-06-01";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const REPLY_CAP_BYTES: u64 = 64 << 20;

/// Puts an [`Anthropic`] model together.
#[derive(Clone)]
pub struct Builder {
    key: Option<String>,
    base_url: String,
    delivery: Delivery,
    caching: Caching,
    connect_timeout: Duration,
    idle_timeout: Option<Duration>,
    reply_cap_bytes: u64,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            key: None,
            base_url: BASE_URL.to_owned(),
            delivery: Delivery::default(),
            caching: Caching::default(),
            connect_timeout: CONNECT_TIMEOUT,
            idle_timeout: None,
            reply_cap_bytes: REPLY_CAP_BYTES,
        }
    }
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder").field("delivery", &self.delivery).finish_non_exhaustive()
    }
}

impl Builder {
    /// The key. A server on this machine needs none.
    #[must_use]
    pub fn api_key(self, key: impl Into<String>) -> Self {
        Self { key: Some(key.into().trim().to_owned()), ..self }
    }

    /// The server, without `/v1`; `https://api.anthropic.com` by default.
    #[must_use]
    pub fn base_url(self, url: impl Into<String>) -> Self {
        Self { base_url: url.into(), ..self }
    }

    /// How replies are asked for; as a stream by default.
    #[must_use]
    pub fn delivery(self, delivery: Delivery) -> Self {
        Self { delivery, ..self }
    }

    /// Whether the provider is asked to cache; it is by default.
    #[must_use]
    pub fn caching(self, caching: Caching) -> Self {
        Self { caching, ..self }
    }

    /// How long a connection may take; 10 seconds by default.
    #[must_use]
    pub fn connect_timeout(self, timeout: Duration) -> Self {
        Self { connect_timeout: timeout, ..self }
    }

    /// How long nothing may come; 300 seconds by default for a stream, 600 for a reply that comes whole, since a server
    /// is silent while it makes one.
    #[must_use]
    pub fn idle_timeout(self, timeout: Duration) -> Self {
        Self { idle_timeout: Some(timeout), ..self }
    }

    /// How many bytes a reply may have on the wire; 64 MiB by default.
    #[must_use]
    pub fn reply_cap_bytes(self, cap_bytes: u64) -> Self {
        Self { reply_cap_bytes: cap_bytes, ..self }
    }

    /// The model. Connects to nothing yet.
    ///
    /// # Errors
    /// [`ModelErrorKind::Authentication`] where a key is needed and missing or cannot be sent,
    /// [`ModelErrorKind::InvalidRequest`] where the address is none.
    pub fn build(self) -> Result<Anthropic, ModelError> {
        let url = self.url()?;
        let local = is_local(&url);
        if self.key.is_none() && !local {
            return Err(ModelError::new(
                ModelErrorKind::Authentication,
                "no API key: set ANTHROPIC_API_KEY, or name a server on this machine in ANTHROPIC_BASE_URL",
            ));
        }
        if self.key.is_some() && url.scheme() == "http" && !local {
            return Err(invalid("the key would travel in clear text: name an https:// address".into()));
        }
        let idle = self.idle_timeout.unwrap_or(match self.delivery {
            Delivery::Stream => STREAM_IDLE,
            Delivery::Whole => WHOLE_IDLE,
        });
        let mut http = Client::builder()
            .tls_backend_preconfigured(tls())
            .default_headers(self.headers()?)
            .redirect(Policy::none())
            .connect_timeout(self.connect_timeout)
            .read_timeout(idle);
        if local {
            // A proxy of the environment stands for the outside, not for this machine.
            http = http.no_proxy();
        }
        let http = http.build().map_err(|error| invalid(format!("no HTTP client: {}", super::error::chain(&error))))?;
        let Self { key, delivery, caching, reply_cap_bytes, .. } = self;
        Ok(Anthropic { http, url, key, delivery, caching, reply_cap_bytes })
    }

    fn url(&self) -> Result<Url, ModelError> {
        let base = self.base_url.trim().trim_end_matches('/').trim_end_matches("/v1");
        let url = Url::parse(&format!("{base}/v1/messages")).ok();
        let url = url.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        url.ok_or_else(|| {
            invalid("the base URL is no address of a server: expected https://host or http://host:port".into())
        })
    }

    fn headers(&self) -> Result<HeaderMap, ModelError> {
        let mut headers = HeaderMap::new();
        headers.insert("anthropic-version", HeaderValue::from_static(VERSION));
        if let Some(key) = &self.key {
            let unfit =
                |_| ModelError::new(ModelErrorKind::Authentication, "the API key holds characters that no key has");
            let mut key = HeaderValue::from_str(key).map_err(unfit)?;
            key.set_sensitive(true);
            headers.insert("x-api-key", key);
        }
        Ok(headers)
    }
}

fn is_local(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// TLS on ring, with the trust anchors that are compiled in. Given to the client as a value: no provider is installed
/// for the whole program, which is the embedder's to choose.
fn tls() -> ClientConfig {
    let roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring offers the default versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config
}

fn invalid(message: String) -> ModelError {
    ModelError::new(ModelErrorKind::InvalidRequest, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_needed_where_the_server_is_not_this_machine() {
        use ModelErrorKind as Kind;
        let cases = [
            ("https://api.anthropic.com", None, Err(Kind::Authentication)),
            ("https://api.anthropic.com", Some("k"), Ok("https://api.anthropic.com/v1/messages")),
            ("https://api.anthropic.com", Some("k\n k"), Err(Kind::Authentication)),
            ("https://proxy.example/v1/", Some("k"), Ok("https://proxy.example/v1/messages")),
            ("http://proxy.example", Some("k"), Err(Kind::InvalidRequest)),
            ("http://127.0.0.1:80/", None, Ok("http://127.0.0.1/v1/messages")),
            ("http://[::1]:9/proxy/", None, Ok("http://[::1]:9/proxy/v1/messages")),
            ("http://localhost:9", None, Ok("http://localhost:9/v1/messages")),
            ("http://127.0.0.1.example.com", None, Err(Kind::Authentication)),
            ("file:///etc", Some("k"), Err(Kind::InvalidRequest)),
            ("api.anthropic.com", Some("k"), Err(Kind::InvalidRequest)),
        ];
        for (url, key, expected) in cases {
            let builder = Builder { key: key.map(str::to_owned), ..Builder::default() };
            let built = builder.base_url(url).build().map(|model| model.url.to_string()).map_err(|error| error.kind);
            assert_eq!(built, expected.map(str::to_owned), "{url}");
        }
    }

    #[test]
    fn the_key_stands_in_no_debug_output() {
        let builder = Builder::default().api_key("sk-canary").base_url("http://u:sk-canary@127.0.0.1:1/sk-canary");
        let model = builder.clone().build().unwrap();
        assert!(!format!("{builder:?} {model:?} {:?}", model.http).contains("sk-canary"));
    }
}
