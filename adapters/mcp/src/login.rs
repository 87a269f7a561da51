//! Logs in to servers that ask for OAuth, as the protocol prescribes: the user grants access in a
//! browser, and the token is kept for later sessions.
//!
//! * A token is sent to the server of its login alone, whose URL is part of the request for it
//!   (RFC 8707), and refreshed at the authorization server of its login.
//! * Tokens never travel unencrypted over a network, and appear in no error and no log.
//! * Nothing is discovered when a token is used: what the login found is kept with it, so that no
//!   server can lead a later session elsewhere.

mod oauth_http;
mod stored_login;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use reqwest::Url;
use rmcp::transport::auth::{
    AuthError, AuthorizationCallback, AuthorizationManager, OAuthClientConfig,
};

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
    /// The login cannot be kept.
    #[error("the login cannot be kept: {0}")]
    Store(#[from] io::Error),
}

impl From<AuthError> for LoginError {
    fn from(error: AuthError) -> Self {
        Self::Refused(error.to_string())
    }
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
        let parsed = Url::parse(url)
            .ok()
            .filter(|url| matches!(url.scheme(), "http" | "https"))
            .filter(|url| !dormouse_http::is_unencrypted(url));
        let parsed = parsed.ok_or_else(|| LoginError::Url(url.to_owned()))?;
        let mut manager =
            AuthorizationManager::new_with_oauth_http_client(parsed, Arc::new(OAuthHttp)).await?;
        let found = manager.resolve_metadata().await?;
        if !found.source.is_discovered() {
            return Err(LoginError::Refused(
                "the server publishes no authorization server, so that there is nothing to log in \
                 to. If it needs a token, put it into its headers"
                    .to_owned(),
            ));
        }
        manager.set_metadata(found.metadata.clone());
        let mut scopes = options.scopes;
        if scopes.is_empty() {
            scopes = manager.select_initial_scopes(&[]).await;
        }
        let scopes: Vec<&str> = scopes.iter().map(String::as_str).collect();
        let client = match options.client {
            None => {
                manager
                    .register_client("Dormouse", redirect_uri, &scopes)
                    .await?
            }
            Some((id, secret)) => {
                let client = OAuthClientConfig::new(id, redirect_uri);
                match secret {
                    Some(secret) => client.with_client_secret(secret),
                    None => client,
                }
            }
        };
        manager.configure_client(client.clone())?;
        let address = manager.get_authorization_url(&scopes).await?;
        let login = StoredLogin {
            url: url.to_owned(),
            resource: resource_of(&address).unwrap_or_else(|| url.to_owned()),
            metadata: found.metadata,
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

    /// Forgets the login for this URL; false if there is none.
    ///
    /// # Errors
    /// The file cannot be deleted.
    pub fn remove(&self, url: &str) -> io::Result<bool> {
        LoginFile::of(&self.folder, url).remove()
    }

    /// The manager of the token for this URL; `None` if there is no login.
    ///
    /// # Errors
    /// A text for the user, without a token.
    pub(crate) async fn manager(&self, url: &str) -> Result<Option<AuthorizationManager>, String> {
        let file = LoginFile::of(&self.folder, url);
        let read = file.clone();
        let login = tokio::task::spawn_blocking(move || read.read()).await;
        let login = login
            .map_err(|error| error.to_string())?
            .map_err(|error| format!("its login cannot be read: {error}."))?;
        let Some(login) = login else {
            return Ok(None);
        };
        let manager = manager_of(login, file).await;
        manager
            .map(Some)
            .map_err(|error| format!("its login cannot be used: {error}."))
    }
}

async fn manager_of(
    login: StoredLogin,
    file: LoginFile,
) -> Result<AuthorizationManager, AuthError> {
    let mut manager = AuthorizationManager::new_with_oauth_http_client(
        login.resource.as_str(),
        Arc::new(OAuthHttp),
    )
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

    /// Finishes the login with the address to which the browser was redirected, and keeps it.
    ///
    /// # Errors
    /// [`LoginError`]: the user refused, the address belongs to another login, or the authorization
    /// server gives no token.
    pub async fn finish(mut self, redirected: &str) -> Result<(), LoginError> {
        if let Some(refusal) = refusal_of(redirected) {
            return Err(LoginError::Refused(refusal));
        }
        let AuthorizationCallback {
            code,
            csrf_token,
            issuer,
            ..
        } = AuthorizationCallback::from_redirect_url(redirected)?;
        let Self { login, file, .. } = self;
        let begun = file.clone();
        let write = move || begun.create_folder().and_then(|()| begun.write(&login));
        tokio::task::spawn_blocking(write)
            .await
            .map_err(io::Error::other)??;
        self.manager.set_credential_store(file.clone());
        let token = self
            .manager
            .exchange_code_for_token_with_issuer(&code, &csrf_token, issuer.as_deref())
            .await;
        if let Err(error) = token {
            // Without a token, the file would only say that there is no login.
            let _ = file.remove();
            return Err(error.into());
        }
        Ok(())
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
    let why = description.map_or_else(String::new, |description| format!(": {description}"));
    let why: String = why.chars().filter(|char| !char.is_control()).collect();
    Some(format!("the authorization server refused ({error}){why}"))
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
