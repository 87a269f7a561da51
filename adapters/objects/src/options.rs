//! What opens an object store: an address and limits, and no credentials.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// The address of an object store, and how it is used. Contains no credentials: they come from the
/// environment or from files, as the tools of the cloud read them (see the crate's documentation).
#[derive(Clone)]
pub struct ObjectOptions {
    pub(crate) url: String,
    pub(crate) endpoint: Option<String>,
    pub(crate) plain_http: PlainHttp,
    pub(crate) cache: Option<CacheOptions>,
    pub(crate) request_timeout: Duration,
    pub(crate) retry_for: Duration,
}

/// To which servers requests may travel without encryption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlainHttp {
    Loopback,
    Anywhere,
}

/// The cache on the local disk.
#[derive(Clone, Debug)]
pub(crate) struct CacheOptions {
    pub(crate) folder: PathBuf,
    pub(crate) max_bytes: u64,
}

impl ObjectOptions {
    /// The store at `url`: `s3://BUCKET/PREFIX`, `gs://BUCKET/PREFIX`, `az://CONTAINER/PREFIX` or
    /// `file:///FOLDER`. The prefix may be absent. It is taken as it is written: nothing in it is
    /// percent-decoded, as in the tools of the clouds. The folder of a `file` address is decoded,
    /// and is created if it is absent.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            endpoint: None,
            plain_http: PlainHttp::Loopback,
            cache: None,
            request_timeout: Duration::from_secs(60),
            retry_for: Duration::from_secs(60),
        }
    }

    /// The address of a compatible server, such as `https://minio.example.com`, instead of that of
    /// the cloud or of the environment (`AWS_ENDPOINT_URL_S3`, for example).
    #[must_use]
    pub fn endpoint(mut self, url: impl Into<String>) -> Self {
        self.endpoint = Some(url.into());
        self
    }

    /// Permits an endpoint on another machine to be reached without encryption. The network can
    /// then read and change contents. Without this, `http` addresses are permitted only on this
    /// machine.
    #[must_use]
    pub fn allow_http(mut self) -> Self {
        self.plain_http = PlainHttp::Anywhere;
        self
    }

    /// Keeps up to `max_bytes` of what was read in this folder, which is created if it is absent.
    /// Several programs may share a folder. Without a cache, only the last blocks that were read
    /// are kept, in memory.
    #[must_use]
    pub fn cache(mut self, folder: impl Into<PathBuf>, max_bytes: u64) -> Self {
        let folder = folder.into();
        self.cache = Some(CacheOptions { folder, max_bytes });
        self
    }

    /// How long one request may take, with the transfer of at most 16 MiB. 60 seconds by default.
    #[must_use]
    pub fn request_timeout(mut self, timeout: Duration) -> Self {
        self.request_timeout = timeout;
        self
    }

    /// For how long a request that failed is made again, after waits that double up to 5 seconds.
    /// 60 seconds by default. A read fails at the latest one request after that, and a write
    /// after twice that time.
    #[must_use]
    pub fn retry_for(mut self, duration: Duration) -> Self {
        self.retry_for = duration;
        self
    }
}

impl fmt::Debug for ObjectOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectOptions")
            .field("url", &without_credentials(&self.url))
            .field(
                "endpoint",
                &self.endpoint.as_deref().map(without_credentials),
            )
            .field("plain_http", &self.plain_http)
            .field("cache", &self.cache)
            .field("request_timeout", &self.request_timeout)
            .field("retry_for", &self.retry_for)
            .finish()
    }
}

/// An address as it may be shown: without a user, a password and a query, which an address must not
/// contain and may contain by mistake.
pub(crate) fn without_credentials(url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or_default();
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = authority.rsplit('@').next().unwrap_or_default();
    let separator = if scheme.is_empty() { "" } else { "://" };
    format!("{scheme}{separator}{host}{path}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_in_an_address_are_not_shown() {
        for (url, shown) in [
            ("s3://bucket/prefix", "s3://bucket/prefix"),
            ("s3://key:secret@bucket/prefix", "s3://bucket/prefix"),
            ("https://host:1/path?sig=secret", "https://host:1/path"),
            ("s3://bucket/a@b", "s3://bucket/a@b"),
            ("key:secret@host", "host"),
        ] {
            assert_eq!(without_credentials(url), shown);
        }
        let options = ObjectOptions::new("s3://key:secret@bucket/a").endpoint("http://u:secret@h");
        assert!(!format!("{options:?}").contains("secret"));
    }
}
