//! What the base URL of a model may be: the address to which the paths of requests are appended.

/// The ends of the addresses to which requests are sent. A base URL is the part before them.
const ENDPOINTS: [&str; 6] = [
    "/messages/count_tokens",
    "/messages",
    "/chat/completions",
    "/responses/input_tokens",
    "/responses",
    "/completions",
];
/// The operations of Gemini, after the name of a model and a colon.
const OPERATIONS: [&str; 3] = ["generateContent", "streamGenerateContent", "countTokens"];

/// Why a text cannot be the base URL of a model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BaseUrlError {
    /// It is not the address of a server. Credentials are refused too, since a program file is no
    /// place for them, and so is every query but `api-version`.
    #[error("is not the address of a server")]
    NoAddress,
    /// It ends with the path that the client appends.
    #[error("ends in the path of a request")]
    Endpoint {
        /// The address without that path.
        base: String,
    },
    /// It is a deployment of Azure, without the version of the API.
    #[error("names a deployment of Azure without the version of its API")]
    NoApiVersion {
        /// The address with a version.
        example: String,
    },
}

impl BaseUrlError {
    /// What to write instead.
    #[must_use]
    pub fn help(&self) -> String {
        match self {
            Self::NoAddress => "write https://host or http://host:port, with a path where the \
                                server has one, and no query but ?api-version=…"
                .to_owned(),
            Self::Endpoint { base } => format!("the path is appended to it: write {base}"),
            Self::NoApiVersion { example } => format!("write {example}, or another version"),
        }
    }
}

/// Checks the base URL of a model. Whether the server exists is only known when it is called.
///
/// ```
/// use dormouse_proto::program::{BaseUrlError, check_base_url};
///
/// assert_eq!(check_base_url("https://models.example/v1"), Ok(()));
/// let base = "https://models.example/v1".to_owned();
/// let endpoint = check_base_url("https://models.example/v1/chat/completions");
/// assert_eq!(endpoint, Err(BaseUrlError::Endpoint { base }));
/// ```
///
/// # Errors
/// [`BaseUrlError`], which says what to write instead.
pub fn check_base_url(text: &str) -> Result<(), BaseUrlError> {
    let (address, query) = match text.split_once('?') {
        Some((address, query)) => (address, Some(query)),
        None => (text, None),
    };
    if !is_address(address) || query.is_some_and(|query| !is_api_version(query)) {
        return Err(BaseUrlError::NoAddress);
    }
    let trimmed = address.trim_end_matches('/');
    if let Some(base) = without_endpoint(trimmed) {
        let query = query.map(|query| format!("?{query}")).unwrap_or_default();
        let base = format!("{base}{query}");
        return Err(BaseUrlError::Endpoint { base });
    }
    if query.is_none() && is_azure_deployment(trimmed) {
        let example = format!("{trimmed}?api-version=2024-10-21");
        return Err(BaseUrlError::NoApiVersion { example });
    }
    Ok(())
}

fn is_address(text: &str) -> bool {
    let address = text
        .strip_prefix("https://")
        .or_else(|| text.strip_prefix("http://"));
    let is_wrong = |c: char| c.is_whitespace() || matches!(c, '@' | '#' | '\\');
    address.is_some_and(|address| !address.is_empty() && !address.contains(is_wrong))
}

/// Whether a query is the version of an API of Azure and nothing else: another query could hold a
/// secret, and errors show addresses.
fn is_api_version(query: &str) -> bool {
    let version = query.strip_prefix("api-version=").unwrap_or_default();
    let is_valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
    !version.is_empty() && version.chars().all(is_valid)
}

/// The address without the path of a request at its end, if it has one.
fn without_endpoint(address: &str) -> Option<&str> {
    let base = ENDPOINTS
        .iter()
        .find_map(|endpoint| address.strip_suffix(endpoint));
    let operation = || {
        let (model, operation) = address.rsplit_once(':')?;
        OPERATIONS.contains(&operation).then_some(())?;
        let (base, _) = model.split_once("/models/")?;
        Some(base)
    };
    base.or_else(operation)
}

fn is_azure_deployment(address: &str) -> bool {
    let path = address.split_once("://").map_or(address, |(_, rest)| rest);
    let Some((host, path)) = path.split_once('/') else {
        return false;
    };
    host.ends_with(".azure.com") && path.starts_with("openai/deployments/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_url_that_ends_in_the_path_of_a_request_is_refused_with_the_right_one() {
        let cases = [
            ("https://h/v1/messages", "https://h/v1"),
            ("https://h/v1/messages/", "https://h/v1"),
            ("https://h/v1/messages/count_tokens", "https://h/v1"),
            ("https://h/v1/chat/completions", "https://h/v1"),
            ("https://h/v1/completions", "https://h/v1"),
            ("http://localhost:1/responses", "http://localhost:1"),
            (
                "https://h/v1beta/models/gemini-3:generateContent",
                "https://h/v1beta",
            ),
            (
                "https://h/v1beta/models/g:streamGenerateContent",
                "https://h/v1beta",
            ),
            (
                "https://n.openai.azure.com/openai/deployments/d/chat/completions?api-version=2024-10-21",
                "https://n.openai.azure.com/openai/deployments/d?api-version=2024-10-21",
            ),
        ];
        for (written, base) in cases {
            let base = base.to_owned();
            let found = check_base_url(written);
            assert_eq!(found, Err(BaseUrlError::Endpoint { base: base.clone() }));
            assert_eq!(check_base_url(&base), Ok(()), "what is named is valid");
        }
    }

    #[test]
    fn an_address_holds_no_credentials_and_no_query_but_a_version() {
        let valid = [
            "https://h",
            "http://h:1/",
            "https://h/messages-api",
            "https://h/v1/",
            "https://n.openai.azure.com/openai/v1/",
            "https://gateway.example/d?api-version=preview",
        ];
        for text in valid {
            assert_eq!(check_base_url(text), Ok(()), "{text}");
        }
        let invalid = [
            "h",
            "ftp://h",
            "https://",
            "https://u:p@h",
            "https://h?key=x",
            "https://h?api-version=",
            "https://h?api-version=1&key=x",
            "https://h#x",
            "https://h x",
        ];
        for text in invalid {
            assert_eq!(check_base_url(text), Err(BaseUrlError::NoAddress), "{text}");
        }
        let url = "https://n.openai.azure.com/openai/deployments/d";
        assert!(matches!(
            check_base_url(url),
            Err(BaseUrlError::NoApiVersion { .. })
        ));
    }
}
