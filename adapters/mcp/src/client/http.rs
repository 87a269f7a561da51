//! Servers that are machines: streamable HTTP, where the host permits the connection. No redirection is followed, since it would
//! lead elsewhere than what was permitted, headers and all.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use dormouse_actors::ports::Host;
use dormouse_proto::server::ServerValue;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Client, Url};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rustls::{ClientConfig, RootCertStore};

/// A transport to the machine at `url`.
///
/// # Errors
/// A text: what is wrong with the declaration, or not permitted. No value of it is shown.
pub(super) fn transport(
    host: &dyn Host,
    url: &str,
    headers: &[(String, ServerValue)],
    (connect, most_bytes): (Duration, usize),
) -> Result<StreamableHttpClientTransport<Client>, String> {
    let parsed = Url::parse(url).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    let parsed = parsed.ok_or("its url is none: expected http://machine:port/path.")?;
    let (Some(machine), Some(port)) = (parsed.host_str(), parsed.port_or_known_default()) else {
        return Err("its url names no machine.".to_owned());
    };
    host.connect(machine, port)?;
    let local = is_local(machine);
    if parsed.scheme() == "http" && !headers.is_empty() && !local {
        return Err("its headers would travel in clear text: name an https:// address.".to_owned());
    }
    let mut client = Client::builder()
        .tls_backend_preconfigured(tls())
        .default_headers(filled(host, headers)?)
        .redirect(Policy::none())
        .connect_timeout(connect);
    if local {
        // A proxy of the environment stands for the outside, not for this machine.
        client = client.no_proxy();
    }
    let client = client.build().map_err(|_| "no HTTP client can be made.".to_owned())?;
    let mut config = StreamableHttpClientTransportConfig::with_uri(url);
    config.max_sse_event_size = most_bytes;
    // A call is made once: what a session that expired may have done is not done again by the transport.
    config.reinit_on_expired_session = false;
    Ok(StreamableHttpClientTransport::with_client(client, config))
}

fn filled(host: &dyn Host, headers: &[(String, ServerValue)]) -> Result<HeaderMap, String> {
    let mut filled = HeaderMap::new();
    for (name, value) in headers {
        let value =
            value.filled(|variable| host.variable(variable)).map_err(|why| format!("its header {name}: {why}"))?;
        let unfit = || format!("its header {name} is none that can be sent.");
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| unfit())?;
        let mut value = HeaderValue::from_str(&value).map_err(|_| unfit())?;
        value.set_sensitive(true);
        filled.insert(name, value);
    }
    Ok(filled)
}

fn is_local(machine: &str) -> bool {
    let address = machine.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    machine == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// TLS on ring, with the trust anchors that are compiled in. Given to the client as a value: no provider is installed for the
/// whole program, which is the embedder's to choose.
fn tls() -> ClientConfig {
    let roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring offers the default versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config
}
