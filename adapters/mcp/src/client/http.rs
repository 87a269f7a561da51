//! The transport to a server on another machine: streamable HTTP, if the host permits the
//! connection. Headers are those of the server's declaration, whose values may name variables of
//! the host, or headers by which the downstream client (the MCP client that the kernel itself
//! serves) began its session.

use std::sync::Weak;
use std::time::Duration;

use dormouse_actors::ports::{Host, HostError, ToolError};
use dormouse_http::{CaCertificates, CertificateError};
use dormouse_proto::server::{CaFile, Server, ServerValue, client_header};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, Url};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::auth::AuthClient;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;

use super::downstream_requests::DownstreamClient;
use super::session::SessionSettings;

/// The most requests to one server at once. Further requests wait.
const MAX_CONCURRENT_REQUESTS: usize = 256;

/// A transport to a server over HTTP.
pub(super) enum HttpTransport {
    /// With the headers of its declaration.
    Declared(StreamableHttpClientTransport<Client>),
    /// With the token of a login too.
    LoggedIn(StreamableHttpClientTransport<AuthClient<Client>>),
}

/// Where a server is reached over HTTP, as its declaration says.
pub(super) struct HttpAddress<'a> {
    pub(super) url: &'a str,
    pub(super) headers: &'a [(String, ServerValue)],
    /// Authorities that may have issued the server's certificate, next to those of the system.
    pub(super) ca_file: Option<&'a CaFile>,
}

/// Creates a transport to a server. If there is a login for its URL and no header `Authorization`,
/// the token of the login is sent.
///
/// # Errors
/// A text that says what is wrong with the declaration, or what is not permitted. It shows no value
/// of the declaration.
pub(super) async fn transport(
    host: &dyn Host,
    server: &Server,
    HttpAddress {
        url,
        headers,
        ca_file,
    }: HttpAddress<'_>,
    settings: &SessionSettings,
) -> Result<HttpTransport, ToolError> {
    let parsed = Url::parse(url)
        .ok()
        .filter(|url| matches!(url.scheme(), "http" | "https"));
    let parsed = parsed.ok_or("its url is invalid: expected http://machine:port/path.")?;
    let (Some(machine), Some(port)) = (parsed.host_str(), parsed.port_or_known_default()) else {
        return Err("its url names no machine.".into());
    };
    host.connect(machine, port)?;
    if !headers.is_empty() && dormouse_http::is_unencrypted(&parsed) {
        return Err("its headers would travel in clear text: name an https:// address.".into());
    }
    let unusable = |error: CertificateError| format!("{error}.");
    let certificates = ca_file
        .map(|file| CaCertificates::parse(file.pem.as_bytes(), &file.path))
        .transpose()
        .map_err(unusable)?;
    let client = dormouse_http::client(&parsed, certificates.as_ref())
        .map_err(unusable)?
        .default_headers(fill_headers(host, headers, &settings.client)?)
        .connect_timeout(Duration::from_millis(server.connect_ms));
    let client = client.build().map_err(|_| "no HTTP client can be made.")?;
    let mut config = StreamableHttpClientTransportConfig::with_uri(url);
    config.max_sse_event_size = settings.max_message_bytes;
    config.max_concurrent_requests = MAX_CONCURRENT_REQUESTS;
    // A call is made once: the transport must not repeat a request whose session expired.
    config.reinit_on_expired_session = false;
    let is_authorization = |(name, _): &(String, ServerValue)| {
        name.eq_ignore_ascii_case(reqwest::header::AUTHORIZATION.as_str())
    };
    let login = match &settings.logins {
        Some(logins) if !headers.iter().any(is_authorization) => {
            let manager = logins.manager(url, ca_file).await;
            manager.map_err(|error| error.to_string())?
        }
        _ => None,
    };
    Ok(match login {
        None => HttpTransport::Declared(StreamableHttpClientTransport::with_client(client, config)),
        Some(login) => HttpTransport::LoggedIn(StreamableHttpClientTransport::with_client(
            AuthClient::new(client, login),
            config,
        )),
    })
}

/// Replaces the variables in the header values, and the headers of the downstream client.
fn fill_headers(
    host: &dyn Host,
    headers: &[(String, ServerValue)],
    client: &DownstreamClient,
) -> Result<HeaderMap, ToolError> {
    let client = client.as_ref().and_then(Weak::upgrade);
    let find = |reference: &str| match client_header(reference) {
        None => host.variable(reference),
        Some(header) => match client.as_ref().and_then(|client| client.header(header)) {
            Some(value) => Ok(Some(value)),
            None => Err(HostError::Refused(format!(
                "the request by which the client began its session has no header {header}"
            ))),
        },
    };
    let mut filled = HeaderMap::new();
    for (name, value) in headers {
        let value = value
            .substitute_variables(find)
            .map_err(|why| format!("its header {name}: {why}"))?;
        let invalid_header =
            || format!("its header {name} has a name or a value that cannot be sent.");
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| invalid_header())?;
        let mut value = HeaderValue::from_str(&value).map_err(|_| invalid_header())?;
        value.set_sensitive(true);
        filled.insert(name, value);
    }
    Ok(filled)
}
