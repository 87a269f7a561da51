//! The builder of a client, and which servers are on this machine.

use std::net::IpAddr;
use std::sync::Arc;

use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder, Url};
use rustls::{ClientConfig, RootCertStore};

use crate::trust::{self, CaCertificates, CertificateError};

/// The builder of a client for the server at `url`, whose certificate may also be issued by an
/// authority of `further`. Use the client for no other server, because `url` decides whether a
/// proxy is used. Costs a copy of the root certificates, some microseconds.
///
/// # Errors
/// [`CertificateError`] if the environment names a file of certificates that cannot be used.
pub fn client(
    url: &Url,
    further: Option<&CaCertificates>,
) -> Result<ClientBuilder, CertificateError> {
    let builder = Client::builder()
        .tls_backend_preconfigured(tls_config(trust::roots(further)?))
        .user_agent(concat!("dormouse/", env!("CARGO_PKG_VERSION")))
        .redirect(Policy::none());
    // The proxy variables of the environment apply to other machines only.
    Ok(if is_local(url) {
        builder.no_proxy()
    } else {
        builder
    })
}

/// Whether the server at `url` is on this machine.
#[must_use]
pub fn is_local(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host
        .trim_start_matches('[')
        .trim_end_matches(']')
        .parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// Whether a request to the server at `url` travels over a network without encryption, so that
/// others can read its secrets.
#[must_use]
pub fn is_unencrypted(url: &Url) -> bool {
    url.scheme() == "http" && !is_local(url)
}

/// The TLS configuration. It is passed to the client as a value, since the default provider of the
/// whole program is the choice of the embedder.
fn tls_config(roots: RootCertStore) -> ClientConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring offers the default versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_http_to_another_machine_is_unencrypted() {
        for (url, is_local_url, is_unencrypted_url) in [
            ("http://localhost:1", true, false),
            ("http://127.8.0.1/x", true, false),
            ("https://[::1]:9", true, false),
            ("http://localhost.example.com", false, true),
            ("http://127.0.0.1.example.com", false, true),
            ("http://192.168.0.1", false, true),
            ("https://example.com", false, false),
        ] {
            let parsed = Url::parse(url).expect("it is an address");
            assert_eq!(
                (is_local(&parsed), is_unencrypted(&parsed)),
                (is_local_url, is_unencrypted_url),
                "{url}"
            );
        }
    }
}
