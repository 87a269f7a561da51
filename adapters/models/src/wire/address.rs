//! The address of a server, to which the paths of requests are appended.

use std::sync::Arc;

use dormouse_proto::model::ModelError;
use dormouse_proto::program::{BaseUrlError, check_base_url};
use reqwest::Url;

use super::codec::Version;
use super::excerpt::invalid;

/// The hosts of Azure that speak the formats of OpenAI.
const AZURE_DOMAINS: [&str; 2] = [".openai.azure.com", ".cognitiveservices.azure.com"];

/// A base URL, and the query that every request carries.
#[derive(Clone)]
pub(crate) struct Address {
    /// The URL without a `/` at its end.
    base: Arc<str>,
    /// `api-version=…`, at Azure.
    query: Option<Arc<str>>,
    url: Url,
}

impl Address {
    /// Parses the address that a program or a variable names, and appends the version of the API.
    ///
    /// # Errors
    /// [`InvalidRequest`](dormouse_proto::model::ModelErrorKind::InvalidRequest) if `text` is not a
    /// base URL.
    pub(super) fn parse(text: &str, version: Version) -> Result<Self, ModelError> {
        let text = text.trim();
        let url = parse_url(text)?;
        let (address, query) = match text.split_once('?') {
            Some((address, query)) => (address, Some(query.into())),
            None => (text, None),
        };
        let address = address.trim_end_matches('/');
        let base = match version {
            Version::Always(version) => format!("{}{version}", address.trim_end_matches(version)),
            Version::IfNoPath(version) if url.path() == "/" => format!("{address}{version}"),
            Version::IfNoPath(_) => address.to_owned(),
        };
        Ok(Self {
            base: base.into(),
            query,
            url,
        })
    }

    /// The address of a request, whose path may have a query of its own.
    ///
    /// # Errors
    /// The path is not valid: it contains the name of the model.
    pub(super) fn join(&self, path: &str) -> Result<Url, ModelError> {
        let query = self.query.as_ref().map(|query| {
            let separator = if path.contains('?') { '&' } else { '?' };
            format!("{separator}{query}")
        });
        let url = format!("{}{path}{}", self.base, query.unwrap_or_default());
        Url::parse(&url).map_err(|_| invalid("the model's name is no path"))
    }

    /// The URL of the server.
    pub(super) fn url(&self) -> &Url {
        &self.url
    }

    /// The host of the server.
    pub(super) fn host(&self) -> &str {
        self.url.host_str().unwrap_or_default()
    }

    #[cfg(test)]
    pub(super) fn base(&self) -> &str {
        &self.base
    }
}

/// Whether `host` is a server of Azure that speaks the formats of OpenAI. It takes a key in the
/// header `api-key`.
pub(crate) fn is_azure_openai(host: &str) -> bool {
    AZURE_DOMAINS.iter().any(|domain| host.ends_with(domain))
}

/// The host and the port that an address names.
///
/// # Errors
/// [`InvalidRequest`](dormouse_proto::model::ModelErrorKind::InvalidRequest) if `address` is not a
/// base URL.
pub(crate) fn host_and_port(address: &str) -> Result<(String, u16), ModelError> {
    let url = parse_url(address.trim())?;
    let host = url.host_str().unwrap_or_default().to_owned();
    let port = url.port_or_known_default();
    Ok((host, port.expect("http and https have ports")))
}

fn parse_url(address: &str) -> Result<Url, ModelError> {
    let url = Url::parse(address)
        .ok()
        .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    let url = url.ok_or_else(|| refused(&BaseUrlError::NoAddress))?;
    // A variable of the environment may hold credentials, which a program may not. An error must
    // not show them.
    let mut shown = url.clone();
    if shown.set_username("").is_err() || shown.set_password(None).is_err() {
        return Err(refused(&BaseUrlError::NoAddress));
    }
    check_base_url(shown.as_str()).map_err(|error| refused(&error))?;
    Ok(url)
}

fn refused(error: &BaseUrlError) -> ModelError {
    invalid(format!("the base URL {error}: {}", error.help()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_query_of_azure_follows_the_path_of_each_request() {
        let azure = "https://n.openai.azure.com/openai/deployments/d/?api-version=2024-10-21";
        let address = Address::parse(azure, Version::IfNoPath("/v1")).unwrap();
        assert_eq!(
            address.join("/chat/completions").unwrap().as_str(),
            "https://n.openai.azure.com/openai/deployments/d/chat/completions?api-version=2024-10-21"
        );
        assert_eq!(
            address.join("/m:g?alt=sse").unwrap().query(),
            Some("alt=sse&api-version=2024-10-21")
        );
        let newer = "https://n.openai.azure.com/openai/v1/";
        let address = Address::parse(newer, Version::IfNoPath("/v1")).unwrap();
        assert_eq!(
            address.join("/responses").unwrap().as_str(),
            "https://n.openai.azure.com/openai/v1/responses"
        );
        assert!(is_azure_openai(address.host()) && !is_azure_openai("n.openai.azure.com.example"));
    }

    #[test]
    fn a_variable_that_names_an_endpoint_is_refused_like_the_key_of_a_program() {
        let error = Address::parse("https://h/v1/messages", Version::Always("/v1")).err();
        let message = error.map(|error| error.message).unwrap_or_default();
        assert!(message.ends_with("write https://h/v1"), "{message}");
    }
}
