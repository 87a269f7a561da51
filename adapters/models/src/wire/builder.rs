//! Builds a [`Client`]. What a format needs to reach its provider (addresses, headers, variables of
//! the environment) is the [`Service`] of its codec. A [`Signer`] authenticates requests to a cloud
//! where no key in a header does.

use std::sync::Arc;
use std::time::Duration;

use dormouse_http::{CaCertificates, CertificateError};
use dormouse_proto::model::{ModelError, ModelErrorKind};
use dormouse_proto::program::CacheTtl;
use dormouse_proto::server::CaFile;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use super::address::{Address, is_azure_openai};
use super::client::Client;
use super::codec::{Codec, Delivery, Service};
use super::excerpt::invalid;
use super::failure::error_chain;
use super::signing::{CloudLocation, Signer};

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
    cache_ttl: Option<CacheTtl>,
    connect_timeout: Duration,
    idle_timeout: Option<Duration>,
    reply_cap_bytes: u64,
    headers: Vec<Header>,
    ca_file: Option<CaFile>,
    location: CloudLocation,
}

/// A header that every request carries. It may hold a secret, so it has no debug output.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Header {
    pub(crate) name: String,
    pub(crate) value: String,
    /// Whether the value is removed from errors and never sent in clear text to another machine.
    pub(crate) is_secret: bool,
}

#[derive(Clone)]
enum Key {
    /// Not configured: only a server on this machine is called without a key.
    Missing,
    /// The server needs no key.
    NotNeeded,
    Set(Credential),
    /// Each request is signed.
    Signer(Arc<dyn Signer>),
}

/// What authenticates a request. It has no debug output.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) enum Credential {
    /// A key, in the header of the format.
    ApiKey(String),
    /// A token, sent as `Authorization: Bearer` whatever the format is.
    Token(String),
}

impl Credential {
    /// The value of the variable `name`: a token, if the provider's own clients send that variable
    /// as one.
    pub(crate) fn of_variable(service: &Service, name: &str, value: String) -> Self {
        let value = value.trim().to_owned();
        if service.token_variable == Some(name) {
            Self::Token(value)
        } else {
            Self::ApiKey(value)
        }
    }

    fn secret(&self) -> &str {
        match self {
            Self::ApiKey(secret) | Self::Token(secret) => secret,
        }
    }
}

impl<C: Codec> Default for Builder<C> {
    fn default() -> Self {
        Self {
            key: Key::Missing,
            base_url: None,
            codec: C::default(),
            delivery: Delivery::default(),
            cache_ttl: Some(CacheTtl::default()),
            connect_timeout: CONNECT_TIMEOUT,
            idle_timeout: None,
            reply_cap_bytes: REPLY_CAP_BYTES,
            headers: Vec::new(),
            ca_file: None,
            location: CloudLocation::default(),
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
        Self::from_variables(|name| std::env::var(name).ok())
    }

    /// As [`from_env`](Self::from_env), with the values of `variable`.
    pub(crate) fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Self {
        let non_empty = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
        let service = C::SERVICE;
        let names = service.key_variables.iter().copied();
        let credential = names.chain(service.token_variable).find_map(|name| {
            let value = non_empty(name)?;
            Some(Credential::of_variable(&service, name, value))
        });
        let signer = || C::signer(&non_empty).map(Key::Signer);
        Self {
            base_url: non_empty(service.url_variable),
            key: credential
                .map(Key::Set)
                .or_else(signer)
                .unwrap_or(Key::Missing),
            ..Self::default().location_from(&variable)
        }
    }

    /// Sets the project and the region that the environment names.
    pub(crate) fn location_from(self, variable: &dyn Fn(&str) -> Option<String>) -> Self {
        let first = |names: &[&str]| {
            let mut values = names.iter().filter_map(|name| variable(name));
            values
                .find(|value| !value.trim().is_empty())
                .map(|value| value.trim().to_owned())
        };
        let location = CloudLocation {
            project: first(C::PROJECT_VARIABLES),
            region: first(C::REGION_VARIABLES),
        };
        Self { location, ..self }
    }

    /// Sets the project and the region of a cloud. What `location` leaves open stays as it is.
    #[must_use]
    pub fn location(self, location: CloudLocation) -> Self {
        let location = CloudLocation {
            project: location.project.or(self.location.project),
            region: location.region.or(self.location.region),
        };
        Self { location, ..self }
    }

    /// Sets what signs each request, in place of a key.
    #[must_use]
    pub fn signer(self, signer: impl Signer + 'static) -> Self {
        Self {
            key: Key::Signer(Arc::new(signer)),
            ..self
        }
    }

    /// Sets the key. A server on this machine needs none. A blank key counts as none.
    #[must_use]
    pub fn api_key(self, key: impl Into<String>) -> Self {
        self.credential(Credential::ApiKey(key.into().trim().to_owned()))
    }

    /// Sets a token, which is sent as `Authorization: Bearer` in place of a key. A blank token
    /// counts as none.
    #[must_use]
    pub fn auth_token(self, token: impl Into<String>) -> Self {
        self.credential(Credential::Token(token.into().trim().to_owned()))
    }

    pub(crate) fn credential(self, credential: Credential) -> Self {
        let key = match credential.secret().trim() {
            "" => Key::Missing,
            _ => Key::Set(credential),
        };
        Self { key, ..self }
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

    /// Sets how long the provider is asked to keep the cached part of a prompt, if its format has
    /// such a setting. `None` requests no caching, for servers that refuse such a request. The
    /// default is five minutes.
    #[must_use]
    pub fn cache_ttl(self, cache_ttl: Option<CacheTtl>) -> Self {
        Self { cache_ttl, ..self }
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
        self.headers([Header {
            name: name.into(),
            value: value.into(),
            is_secret: false,
        }])
    }

    /// As [`header`](Self::header), with a secret value. The value is removed from errors that
    /// quote it, and is never sent in clear text to another machine.
    #[must_use]
    pub fn secret_header(self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers([Header {
            name: name.into(),
            value: value.into(),
            is_secret: true,
        }])
    }

    pub(crate) fn headers(mut self, headers: impl IntoIterator<Item = Header>) -> Self {
        self.headers.extend(headers);
        self
    }

    /// Sets the authorities that may have issued the server's certificate, in addition to those
    /// that every client trusts.
    #[must_use]
    pub fn ca_file(self, ca_file: Option<CaFile>) -> Self {
        Self { ca_file, ..self }
    }

    /// Builds the client. It does not connect yet.
    ///
    /// # Errors
    /// [`ModelErrorKind::Authentication`] if a required key is missing or a key cannot be sent,
    /// [`ModelErrorKind::InvalidRequest`] if the address is not valid, or if a file of certificates
    /// cannot be used.
    pub fn build(self) -> Result<Client<C>, ModelError> {
        let codec = self.codec.in_location(&self.location);
        let base_url = match self.base_url {
            Some(url) => url.into(),
            None => codec.base_url()?,
        };
        let address = Address::parse(&base_url, C::SERVICE.version)?;
        let url = address.url();
        let mut signer = None;
        let key = match &self.key {
            Key::Set(key) => Some(key),
            Key::Signer(with) => {
                if with.signs_for_this_machine() || !dormouse_http::is_local(url) {
                    signer = Some(with.clone());
                }
                None
            }
            Key::Missing if !dormouse_http::is_local(url) => return Err(missing_key::<C>()),
            Key::Missing | Key::NotNeeded => None,
        };
        let secret_headers = self.headers.iter().filter(|header| header.is_secret);
        let secrets: Arc<[String]> = key
            .map(|key| key.secret().to_owned())
            .into_iter()
            .chain(secret_headers.map(|header| header.value.clone()))
            .chain(signer.iter().flat_map(|signer| signer.secrets()))
            .filter(|secret| !secret.is_empty())
            .collect();
        if (signer.is_some() || !secrets.is_empty()) && dormouse_http::is_unencrypted(url) {
            return Err(invalid(
                "the key, or a secret header, would travel in clear text: name an https:// address",
            ));
        }
        let idle_timeout = self.idle_timeout.unwrap_or(match self.delivery {
            Delivery::Stream => STREAM_IDLE_TIMEOUT,
            Delivery::Whole => WHOLE_IDLE_TIMEOUT,
        });
        let unusable = |error: CertificateError| invalid(error.to_string());
        let certificates = self
            .ca_file
            .map(|file| CaCertificates::parse(file.pem.as_bytes(), &file.path))
            .transpose()
            .map_err(unusable)?;
        let http = dormouse_http::client(url, certificates.as_ref())
            .map_err(unusable)?
            .default_headers(headers::<C>(&address, key, &self.headers)?)
            .connect_timeout(self.connect_timeout)
            .read_timeout(idle_timeout);
        let http = http
            .build()
            .map_err(|error| invalid(format!("no HTTP client: {}", error_chain(&error))))?;
        let codec = codec.for_host(address.host());
        let Self {
            delivery,
            cache_ttl,
            reply_cap_bytes,
            location,
            ..
        } = self;
        Ok(Client {
            http,
            address,
            secrets,
            signer,
            location,
            codec,
            delivery,
            cache_ttl,
            reply_cap_bytes,
            cache: Arc::default(),
        })
    }
}

fn missing_key<C: Codec>() -> ModelError {
    let names = C::SERVICE.key_variables.iter().copied();
    let names: Vec<_> = names
        .chain(C::SERVICE.token_variable)
        .chain(C::FURTHER_CREDENTIALS)
        .collect();
    let names = names.join(" or ");
    let message = format!(
        "no API key: set {names}, or name a server on this machine in {}",
        C::SERVICE.url_variable
    );
    ModelError::new(ModelErrorKind::Authentication, message)
}

fn headers<C: Codec>(
    address: &Address,
    key: Option<&Credential>,
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
        let (name, value) = key_header(&C::SERVICE, address, key);
        let mut value = HeaderValue::from_str(&value).map_err(|_| {
            let message = "the API key holds characters that no key has";
            ModelError::new(ModelErrorKind::Authentication, message)
        })?;
        value.set_sensitive(true);
        headers.insert(HeaderName::from_static(name), value);
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

/// The header that carries the key, and its value.
fn key_header(service: &Service, address: &Address, key: &Credential) -> (&'static str, String) {
    match key {
        Credential::Token(token) => ("authorization", format!("Bearer {token}")),
        Credential::ApiKey(key) if is_azure_openai(address.host()) => ("api-key", key.clone()),
        Credential::ApiKey(key) => (service.key_header, format!("{}{key}", service.key_scheme)),
    }
}

#[cfg(test)]
mod tests;
