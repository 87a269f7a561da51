//! Logs in to servers that ask for OAuth, as the protocol prescribes: the user grants access in a
//! browser, on this machine or with a code on another one, and the token is kept for later
//! sessions.
//!
//! * A token is sent to the server of its login alone, whose URL is part of the request for it
//!   (RFC 8707), and refreshed at the authorization server of its login.
//! * Tokens never travel unencrypted over a network, and appear in no error and no log.
//! * Nothing is discovered when a token is used: what the login found is kept with it, so that no
//!   server can lead a later session elsewhere.

mod device;
mod oauth_http;
mod stored_login;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use dormouse_http::CertificateError;
use dormouse_proto::server::CaFile;
use reqwest::Url;
use rmcp::transport::auth::{
    AuthError, AuthorizationCallback, AuthorizationManager, AuthorizationMetadata, CredentialStore,
    InMemoryCredentialStore, OAuthClientConfig,
};

pub use self::device::DeviceLogin;
use self::oauth_http::OAuthHttp;
use self::stored_login::{LoginFile, StoredLogin};

/// The logins of a user: a folder with a file for each server, which only this user can read.
#[derive(Clone, Debug)]
pub struct Logins {
    folder: PathBuf,
}

/// How this program is known to the authorization server.
#[derive(Clone, Debug, Default)]
pub struct LoginOptions {
    /// The id that the authorization server has given to this program, with its secret if it has
    /// one. `None`: this program registers itself.
    pub client: Option<(String, Option<String>)>,
    /// What access is asked for. If it is empty, what the server says.
    pub scopes: Vec<String>,
    /// Authorities that may have issued the certificates of the server and of its authorization
    /// server, next to those of the system.
    pub ca_file: Option<CaFile>,
}

/// Why there is no login. No text has a token.
#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    /// The URL is invalid, or its connection would not be encrypted.
    #[error("{0} is no https:// address of a server")]
    Url(String),
    /// The server or its authorization server refused, or does not support OAuth.
    #[error("{0}")]
    Refused(String),
    /// The file of authorities cannot be used.
    #[error(transparent)]
    Certificates(#[from] CertificateError),
    /// The login cannot be kept.
    #[error("the login cannot be kept: {0}")]
    Store(#[from] io::Error),
}

impl From<AuthError> for LoginError {
    fn from(error: AuthError) -> Self {
        Self::Refused(error.to_string())
    }
}

/// Why the login of a server is not used. No text has a token.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UnusableLogin {
    /// The file of the login cannot be read.
    #[error("its login cannot be read: {0}.")]
    Unreadable(#[from] io::Error),
    /// The file of authorities cannot be used.
    #[error("{0}.")]
    Certificates(#[from] CertificateError),
    /// What the login found cannot be used.
    #[error("its login cannot be used: {0}.")]
    Invalid(#[from] AuthError),
}

/// A login that waits for the user.
pub struct PendingLogin {
    manager: AuthorizationManager,
    address: String,
    login: StoredLogin,
    file: LoginFile,
}

impl Logins {
    /// The logins in this folder. The first login creates it, for this user alone.
    #[must_use]
    pub fn in_folder(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
        }
    }

    /// Begins a login: finds the authorization server, and registers this program there unless
    /// `options` has its id. `redirect_uri` is where the browser goes after the user has decided.
    ///
    /// # Errors
    /// [`LoginError`].
    pub async fn begin(
        &self,
        url: &str,
        redirect_uri: &str,
        options: LoginOptions,
    ) -> Result<PendingLogin, LoginError> {
        let Discovered {
            mut manager,
            metadata,
            scopes,
            ..
        } = discover(url, &options).await?;
        let scopes: Vec<&str> = scopes.iter().map(String::as_str).collect();
        let client = match options.client {
            None => {
                manager
                    .register_client("Dormouse", redirect_uri, &scopes)
                    .await?
            }
            Some((id, secret)) => client_config(id, secret, redirect_uri),
        };
        manager.configure_client(client.clone())?;
        let address = manager.get_authorization_url(&scopes).await?;
        let login = StoredLogin {
            url: url.to_owned(),
            resource: resource_of(&address).unwrap_or_else(|| url.to_owned()),
            metadata,
            client_id: client.client_id,
            client_secret: client.client_secret,
            redirect_uri: client.redirect_uri,
            credentials: None,
        };
        let file = LoginFile::of(&self.folder, url);
        Ok(PendingLogin {
            manager,
            address,
            login,
            file,
        })
    }

    /// Begins a login on a machine without a browser, by a code that the user enters elsewhere
    /// (RFC 8628). Registers this program as [`begin`](Self::begin) does.
    ///
    /// # Errors
    /// [`LoginError`], also if the authorization server does not offer such logins.
    pub async fn begin_on_device(
        &self,
        url: &str,
        options: LoginOptions,
    ) -> Result<DeviceLogin, LoginError> {
        let Discovered {
            mut manager,
            metadata,
            scopes,
            http,
        } = discover(url, &options).await?;
        let (client_id, client_secret) = match options.client {
            Some(client) => client,
            None => device::register(&http, &metadata, &scopes).await?,
        };
        // The manager knows how requests name the server, and shows it only in this address.
        manager.configure_client(client_config(client_id.clone(), None, url))?;
        let address = manager.get_authorization_url(&[]).await.ok();
        let resource = address.as_deref().and_then(resource_of);
        let login = StoredLogin {
            url: url.to_owned(),
            resource: resource.unwrap_or_else(|| url.to_owned()),
            metadata,
            client_id,
            client_secret,
            redirect_uri: url.to_owned(),
            credentials: None,
        };
        let file = LoginFile::of(&self.folder, url);
        DeviceLogin::begin(http, login, file, scopes).await
    }

    /// Forgets the login for this URL; false if there is none.
    ///
    /// # Errors
    /// The file cannot be deleted.
    pub fn remove(&self, url: &str) -> io::Result<bool> {
        LoginFile::of(&self.folder, url).remove()
    }

    /// The manager of the token for this URL, by which the protocol library adds the token to
    /// requests and refreshes it; `None` if there is no login. `ca_file` names further authorities
    /// for the authorization server.
    ///
    /// # Errors
    /// [`UnusableLogin`].
    pub(crate) async fn manager(
        &self,
        url: &str,
        ca_file: Option<&CaFile>,
    ) -> Result<Option<AuthorizationManager>, UnusableLogin> {
        let file = LoginFile::of(&self.folder, url);
        let read = file.clone();
        let login = tokio::task::spawn_blocking(move || read.read()).await;
        let Some(login) = login.map_err(io::Error::other)?? else {
            return Ok(None);
        };
        let http = OAuthHttp::trusting(ca_file)?;
        Ok(Some(manager_of(login, file, http).await?))
    }
}

/// What a login begins with.
struct Discovered {
    manager: AuthorizationManager,
    metadata: AuthorizationMetadata,
    /// What access is asked for.
    scopes: Vec<String>,
    http: OAuthHttp,
}

/// Finds the authorization server of a server.
async fn discover(url: &str, options: &LoginOptions) -> Result<Discovered, LoginError> {
    let parsed = Url::parse(url)
        .ok()
        .filter(|url| matches!(url.scheme(), "http" | "https"))
        .filter(|url| !dormouse_http::is_unencrypted(url));
    let parsed = parsed.ok_or_else(|| LoginError::Url(url.to_owned()))?;
    let http = OAuthHttp::trusting(options.ca_file.as_ref())?;
    let client = Arc::new(http.clone());
    let mut manager = AuthorizationManager::new_with_oauth_http_client(parsed, client).await?;
    let found = manager.resolve_metadata().await?;
    if !found.source.is_discovered() {
        return Err(LoginError::Refused(
            "the server publishes no authorization server, so that there is nothing to log in \
             to. If it needs a token, put it into its headers"
                .to_owned(),
        ));
    }
    manager.set_metadata(found.metadata.clone());
    let mut scopes = options.scopes.clone();
    if scopes.is_empty() {
        scopes = manager.select_initial_scopes(&[]).await;
    }
    Ok(Discovered {
        manager,
        metadata: found.metadata,
        scopes,
        http,
    })
}

fn client_config(id: String, secret: Option<String>, redirect_uri: &str) -> OAuthClientConfig {
    let client = OAuthClientConfig::new(id, redirect_uri);
    match secret {
        Some(secret) => client.with_client_secret(secret),
        None => client,
    }
}

async fn manager_of(
    login: StoredLogin,
    file: LoginFile,
    http: OAuthHttp,
) -> Result<AuthorizationManager, AuthError> {
    let mut manager =
        AuthorizationManager::new_with_oauth_http_client(login.resource.as_str(), Arc::new(http))
            .await?;
    manager.set_metadata(login.metadata);
    manager.set_credential_store(file);
    let mut client = OAuthClientConfig::new(login.client_id, login.redirect_uri);
    client.client_secret = login.client_secret;
    manager.configure_client(client)?;
    Ok(manager)
}

impl PendingLogin {
    /// The address that the user has to open in a browser.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Finishes the login with the address to which the browser was redirected, and keeps it in
    /// place of an earlier one.
    ///
    /// # Errors
    /// [`LoginError`]: the user refused, the address belongs to another login, or the authorization
    /// server gives no token. An earlier login is kept.
    pub async fn finish(self, redirected: &str) -> Result<(), LoginError> {
        if let Some(refusal) = refusal_of(redirected) {
            return Err(LoginError::Refused(refusal));
        }
        let AuthorizationCallback {
            code,
            csrf_token,
            issuer,
            ..
        } = AuthorizationCallback::from_redirect_url(redirected)?;
        let Self {
            mut manager,
            mut login,
            file,
            ..
        } = self;
        // The file of an earlier login is replaced only once there is a token.
        let received = InMemoryCredentialStore::new();
        manager.set_credential_store(received.clone());
        manager
            .exchange_code_for_token_with_issuer(&code, &csrf_token, issuer.as_deref())
            .await?;
        login.credentials = received.load().await?;
        Ok(file.keep(login).await?)
    }
}

impl std::fmt::Debug for PendingLogin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PendingLogin").finish_non_exhaustive()
    }
}

/// The server that the token is asked for, as the authorization request names it.
fn resource_of(address: &str) -> Option<String> {
    query_value(address, "resource")
}

/// Why the authorization server gave no code, in its words.
fn refusal_of(redirected: &str) -> Option<String> {
    let error = query_value(redirected, "error")?;
    let description = query_value(redirected, "error_description");
    Some(refusal(&error, description.as_deref()))
}

/// The text of an error of the authorization server.
fn refusal(error: &str, description: Option<&str>) -> String {
    let why = description.map_or_else(String::new, |description| format!(": {description}"));
    let refusal = format!("the authorization server refused ({error}){why}");
    refusal.chars().filter(|char| !char.is_control()).collect()
}

fn query_value(url: &str, key: &str) -> Option<String> {
    let url = Url::parse(url).ok()?;
    let mut pairs = url.query_pairs();
    pairs
        .find(|(name, _)| name == key)
        .map(|(_, value)| value.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_told_in_the_words_of_the_authorization_server() {
        let refused =
            "http://127.0.0.1:1/callback?error=access_denied&error_description=not+you&state=s";
        assert_eq!(
            refusal_of(refused).as_deref(),
            Some("the authorization server refused (access_denied): not you")
        );
        assert_eq!(
            refusal_of("http://127.0.0.1:1/callback?code=c&state=s"),
            None
        );
    }

    #[tokio::test]
    async fn a_token_is_not_asked_for_without_encryption() {
        let folder = tempfile::tempdir().unwrap();
        let logins = Logins::in_folder(folder.path());
        for url in [
            "http://tickets.example/mcp",
            "ftp://tickets.example",
            "tickets",
        ] {
            let begun = logins
                .begin(url, "http://127.0.0.1:1/callback", LoginOptions::default())
                .await;
            assert!(matches!(begun, Err(LoginError::Url(_))), "{url}");
        }
    }
}
