//! Builds a [`Client`].

use std::sync::Arc;
use std::time::Duration;

use dormouse_proto::model::{ModelError, ModelErrorKind};
use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use super::client::Client;
use super::codec::{Caching, Codec, Delivery, Version};
use super::excerpt::invalid;
use super::failure::error_chain;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const REPLY_CAP_BYTES: u64 = 64 << 20;
/// The default idle timeout of a reply that is not streamed: the server sends nothing while the
/// model writes.
const WHOLE_IDLE_TIMEOUT: Duration = Duration::from_secs(600);
/// The default idle timeout of a stream. Providers send events more often than that.
const STREAM_IDLE_TIMEOUT: Duration = Duration::from_secs(300);

/// Builds the client of a model.
#[derive(Clone)]
pub struct Builder<C> {
    key: Key,
    base_url: Option<String>,
    codec: C,
    delivery: Delivery,
    caching: Caching,
    connect_timeout: Duration,
    idle_timeout: Option<Duration>,
    reply_cap_bytes: u64,
    headers: Vec<Header>,
}

/// A header that every request carries.
#[derive(Clone)]
struct Header {
    name: String,
    value: String,
    is_secret: bool,
}

#[derive(Clone)]
enum Key {
    /// Not configured: only a server on this machine is called without a key.
    Missing,
    /// The server needs no key.
    NotNeeded,
    Set(String),
}

impl<C: Codec> Default for Builder<C> {
    fn default() -> Self {
        Self {
            key: Key::Missing,
            base_url: None,
            codec: C::default(),
            delivery: Delivery::default(),
            caching: Caching::default(),
            connect_timeout: CONNECT_TIMEOUT,
            idle_timeout: None,
            reply_cap_bytes: REPLY_CAP_BYTES,
            headers: Vec::new(),
        }
    }
}

impl<C> std::fmt::Debug for Builder<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder")
            .field("delivery", &self.delivery)
            .finish_non_exhaustive()
    }
}

impl<C: Codec> Builder<C> {
    /// A builder with the key from the environment, and with the server if the environment names
    /// one.
    #[must_use]
    pub fn from_env() -> Self {
        let non_empty_variable = |name: &&str| {
            std::env::var(name)
                .ok()
                .filter(|value| !value.trim().is_empty())
        };
        let key = C::SERVICE.key_variables.iter().find_map(non_empty_variable);
        let builder = Self {
            base_url: non_empty_variable(&C::SERVICE.url_variable),
            ..Self::default()
        };
        key.into_iter().fold(builder, Self::api_key)
    }

    /// Sets the key. A server on this machine needs none.
    #[must_use]
    pub fn api_key(self, key: impl Into<String>) -> Self {
        Self {
            key: Key::Set(key.into().trim().to_owned()),
            ..self
        }
    }

    /// Sends no key, wherever the server is.
    #[must_use]
    pub fn without_api_key(self) -> Self {
        Self {
            key: Key::NotNeeded,
            ..self
        }
    }

    /// Sets the server; the default is the provider's own.
    #[must_use]
    pub fn base_url(self, url: impl Into<String>) -> Self {
        Self {
            base_url: Some(url.into()),
            ..self
        }
    }

    /// Sets how replies are delivered; the default is a stream.
    #[must_use]
    pub fn delivery(self, delivery: Delivery) -> Self {
        Self { delivery, ..self }
    }

    /// Sets whether the provider is asked to cache. The default is [`Caching::Automatic`].
    #[must_use]
    pub fn caching(self, caching: Caching) -> Self {
        Self { caching, ..self }
    }

    /// Sets the timeout for connecting; the default is 10 seconds.
    #[must_use]
    pub fn connect_timeout(self, timeout: Duration) -> Self {
        Self {
            connect_timeout: timeout,
            ..self
        }
    }

    /// Sets the longest time without a byte. The default is 300 seconds for a stream, and 600
    /// seconds for a complete reply, since the server sends nothing while the model writes.
    #[must_use]
    pub fn idle_timeout(self, timeout: Duration) -> Self {
        Self {
            idle_timeout: Some(timeout),
            ..self
        }
    }

    /// Sets the largest reply on the wire, in bytes; the default is 64 MiB.
    #[must_use]
    pub fn reply_cap_bytes(self, cap_bytes: u64) -> Self {
        Self {
            reply_cap_bytes: cap_bytes,
            ..self
        }
    }

    /// Adds a header that every request carries, or replaces one that the format sets.
    #[must_use]
    pub fn header(self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.with_header(name.into(), value.into(), false)
    }

    /// As [`header`](Self::header), with a secret value. The value is removed from errors that
    /// quote it, and is never sent in clear text to another machine.
    #[must_use]
    pub fn secret_header(self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.with_header(name.into(), value.into(), true)
    }

    fn with_header(mut self, name: String, value: String, is_secret: bool) -> Self {
        self.headers.push(Header {
            name,
            value,
            is_secret,
        });
        self
    }

    /// Builds the client. It does not connect yet.
    ///
    /// # Errors
    /// [`ModelErrorKind::Authentication`] if a required key is missing or a key cannot be sent,
    /// [`ModelErrorKind::InvalidRequest`] if the address is not valid.
    pub fn build(self) -> Result<Client<C>, ModelError> {
        let (base, url) = self.versioned_base_url()?;
        let key = match &self.key {
            Key::Set(key) => Some(key.clone()),
            Key::Missing if !dormouse_http::is_local(&url) => return Err(missing_key::<C>()),
            Key::Missing | Key::NotNeeded => None,
        };
        let secret_headers = self.headers.iter().filter(|header| header.is_secret);
        let secrets: Arc<[String]> = key
            .iter()
            .cloned()
            .chain(secret_headers.map(|header| header.value.clone()))
            .filter(|secret| !secret.is_empty())
            .collect();
        if !secrets.is_empty() && dormouse_http::is_unencrypted(&url) {
            return Err(invalid(
                "the key would travel in clear text: name an https:// address",
            ));
        }
        let idle_timeout = self.idle_timeout.unwrap_or(match self.delivery {
            Delivery::Stream => STREAM_IDLE_TIMEOUT,
            Delivery::Whole => WHOLE_IDLE_TIMEOUT,
        });
        let http = dormouse_http::client(&url)
            .default_headers(headers::<C>(key.as_deref(), &self.headers)?)
            .connect_timeout(self.connect_timeout)
            .read_timeout(idle_timeout);
        let http = http
            .build()
            .map_err(|error| invalid(format!("no HTTP client: {}", error_chain(&error))))?;
        let codec = self.codec.for_host(url.host_str().unwrap_or_default());
        let Self {
            delivery,
            caching,
            reply_cap_bytes,
            ..
        } = self;
        Ok(Client {
            http,
            base: base.into(),
            secrets,
            codec,
            delivery,
            caching,
            reply_cap_bytes,
            cache: Arc::default(),
        })
    }

    /// The base URL with the version of the API, to which paths are appended.
    fn versioned_base_url(&self) -> Result<(String, Url), ModelError> {
        let address = self
            .base_url
            .as_deref()
            .unwrap_or(C::SERVICE.base_url)
            .trim()
            .trim_end_matches('/');
        let parsed = parse_url(address)?;
        let base = match C::SERVICE.version {
            Version::Always(version) => format!("{}{version}", address.trim_end_matches(version)),
            Version::IfNoPath(version) if parsed.path() == "/" => format!("{address}{version}"),
            Version::IfNoPath(_) => address.to_owned(),
        };
        let url = parse_url(&base)?;
        Ok((base, url))
    }
}

/// The host and the port that an address names.
///
/// # Errors
/// [`ModelErrorKind::InvalidRequest`] if `address` is not the address of a server.
pub(crate) fn host_and_port(address: &str) -> Result<(String, u16), ModelError> {
    let url = parse_url(address.trim())?;
    let host = url.host_str().unwrap_or_default().to_owned();
    Ok((
        host,
        url.port_or_known_default()
            .expect("http and https have ports"),
    ))
}

fn parse_url(address: &str) -> Result<Url, ModelError> {
    let url = Url::parse(address).ok();
    let has_only_path = |url: &Url| url.query().is_none() && url.fragment().is_none();
    let url = url.filter(|url| {
        matches!(url.scheme(), "http" | "https") && url.has_host() && has_only_path(url)
    });
    url.ok_or_else(|| {
        invalid("the base URL is no address of a server: expected https://host or http://host:port")
    })
}

fn missing_key<C: Codec>() -> ModelError {
    let names = C::SERVICE.key_variables.join(" or ");
    let message = format!(
        "no API key: set {names}, or name a server on this machine in {}",
        C::SERVICE.url_variable
    );
    ModelError::new(ModelErrorKind::Authentication, message)
}

fn headers<C: Codec>(
    key: Option<&str>,
    further_headers: &[Header],
) -> Result<HeaderMap, ModelError> {
    let mut headers = HeaderMap::new();
    for (name, value) in C::SERVICE.headers {
        headers.insert(
            HeaderName::from_static(name),
            HeaderValue::from_static(value),
        );
    }
    if let Some(key) = key {
        let invalid_header = |_| {
            ModelError::new(
                ModelErrorKind::Authentication,
                "the API key holds characters that no key has",
            )
        };
        let mut value = HeaderValue::from_str(&format!("{}{key}", C::SERVICE.key_scheme))
            .map_err(invalid_header)?;
        value.set_sensitive(true);
        headers.insert(HeaderName::from_static(C::SERVICE.key_header), value);
    }
    for header in further_headers {
        let invalid_header = || invalid(format!("the header {} cannot be sent", header.name));
        let name = HeaderName::from_bytes(header.name.as_bytes()).map_err(|_| invalid_header())?;
        let mut value = HeaderValue::from_str(&header.value).map_err(|_| invalid_header())?;
        value.set_sensitive(header.is_secret);
        headers.insert(name, value);
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Anthropic;

    fn check<C: Codec>(url: &str, key: Option<&str>, expected: Result<&str, ModelErrorKind>) {
        let builder = key
            .into_iter()
            .fold(Client::<C>::builder(), Builder::api_key);
        let built = builder
            .base_url(url)
            .build()
            .map(|model| model.base.to_string())
            .map_err(|error| error.kind);
        assert_eq!(built, expected.map(str::to_owned), "{url}");
    }

    #[test]
    fn a_key_is_required_unless_the_server_is_this_machine() {
        use ModelErrorKind as Kind;
        let cases = [
            ("https://api.anthropic.com", None, Err(Kind::Authentication)),
            (
                "https://api.anthropic.com",
                Some("k"),
                Ok("https://api.anthropic.com/v1"),
            ),
            (
                "https://api.anthropic.com",
                Some("k\n k"),
                Err(Kind::Authentication),
            ),
            (
                "https://proxy.example/v1/",
                Some("k"),
                Ok("https://proxy.example/v1"),
            ),
            ("http://proxy.example", Some("k"), Err(Kind::InvalidRequest)),
            ("http://127.0.0.1:80/", None, Ok("http://127.0.0.1:80/v1")),
            ("http://[::1]:9/proxy/", None, Ok("http://[::1]:9/proxy/v1")),
            ("http://localhost:9", None, Ok("http://localhost:9/v1")),
            (
                "http://127.0.0.1.example.com",
                None,
                Err(Kind::Authentication),
            ),
            ("file:///etc", Some("k"), Err(Kind::InvalidRequest)),
            (
                "https://host?to=elsewhere",
                Some("k"),
                Err(Kind::InvalidRequest),
            ),
            ("api.anthropic.com", Some("k"), Err(Kind::InvalidRequest)),
        ];
        for (url, key, expected) in cases {
            check::<crate::anthropic::Messages>(url, key, expected);
        }
        let open = Anthropic::builder()
            .base_url("http://models.example")
            .without_api_key()
            .build();
        assert!(open.is_ok_and(|model| model.secrets.is_empty()));
    }

    #[test]
    fn the_api_version_is_appended_to_an_address_without_it() {
        let chat = check::<crate::chat::Completions>;
        chat(
            "https://api.openai.com",
            Some("k"),
            Ok("https://api.openai.com/v1"),
        );
        chat(
            "https://openrouter.example/api/v1/",
            Some("k"),
            Ok("https://openrouter.example/api/v1"),
        );
        chat(
            "https://other.example/api/paas/v4",
            Some("k"),
            Ok("https://other.example/api/paas/v4"),
        );
        check::<crate::responses::Responses>(
            "http://localhost:4000",
            None,
            Ok("http://localhost:4000/v1"),
        );
        check::<crate::gemini::GenerateContent>(
            "http://localhost:1",
            None,
            Ok("http://localhost:1/v1beta"),
        );
        check::<crate::gemini::GenerateContent>(
            "http://localhost:1/v1beta",
            None,
            Ok("http://localhost:1/v1beta"),
        );
    }

    #[test]
    fn debug_output_does_not_contain_the_key() {
        fn shown<C: Codec>() -> String {
            let builder = Client::<C>::builder().api_key("sk-canary");
            let builder = builder.base_url("http://u:sk-canary@127.0.0.1:1/sk-canary");
            let model = builder.clone().build().unwrap();
            format!("{builder:?} {model:?} {:?}", model.http)
        }
        let shown = [
            shown::<crate::anthropic::Messages>(),
            shown::<crate::chat::Completions>(),
            shown::<crate::responses::Responses>(),
            shown::<crate::gemini::GenerateContent>(),
        ];
        assert!(!shown.concat().contains("sk-canary"), "{shown:?}");
        assert!(shown.iter().all(|shown| shown.contains("127.0.0.1")));
    }
}
