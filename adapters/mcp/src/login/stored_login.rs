//! The file of one login. It is replaced as a whole, and locked while a token is refreshed, since
//! an authorization server may take each refresh token only once. The protocol library, which
//! refreshes tokens, reads and writes them through its trait [`CredentialStore`].

use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use async_trait::async_trait;
use rmcp::transport::auth::{
    AuthError, AuthorizationMetadata, CredentialRefreshGuard, CredentialStore, StoredCredentials,
};
use serde::{Deserialize, Serialize};

/// What a login found, and its tokens.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct StoredLogin {
    /// The URL of the server, for people who look into the file.
    pub(super) url: String,
    /// The server, as requests for tokens name it.
    pub(super) resource: String,
    pub(super) metadata: AuthorizationMetadata,
    pub(super) client_id: String,
    pub(super) client_secret: Option<String>,
    pub(super) redirect_uri: String,
    pub(super) credentials: Option<StoredCredentials>,
}

/// The file of the login for one URL.
#[derive(Clone, Debug)]
pub(super) struct LoginFile {
    folder: PathBuf,
    name: String,
}

impl LoginFile {
    pub(super) fn of(folder: &Path, url: &str) -> Self {
        let hash = blake3::hash(url.as_bytes()).to_hex();
        Self {
            folder: folder.to_owned(),
            name: format!("{hash}.json"),
        }
    }

    /// Replaces the login with one that has its token. The first one creates the folder.
    pub(super) async fn keep(self, login: StoredLogin) -> io::Result<()> {
        let write = move || self.create_folder().and_then(|()| self.write(&login));
        tokio::task::spawn_blocking(write)
            .await
            .unwrap_or_else(|error| Err(io::Error::other(error)))
    }

    /// Creates the folder if it is absent, for this user alone.
    fn create_folder(&self) -> io::Result<()> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.folder)
    }

    fn path(&self) -> PathBuf {
        self.folder.join(&self.name)
    }

    /// Reads the login; `None` if there is none.
    pub(super) fn read(&self) -> io::Result<Option<StoredLogin>> {
        match fs::read(self.path()) {
            Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Replaces the login. Only this user can read the file.
    fn write(&self, login: &StoredLogin) -> io::Result<()> {
        let mut file = tempfile::NamedTempFile::new_in(&self.folder)?;
        file.write_all(&serde_json::to_vec(login)?)?;
        // A refresh token that was used is worth nothing, so the new one must not be lost.
        file.as_file().sync_all()?;
        file.persist(self.path())?;
        Ok(())
    }

    /// Deletes the login; false if there is none.
    pub(super) fn remove(&self) -> io::Result<bool> {
        match fs::remove_file(self.path()) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn replace_credentials(&self, credentials: Option<StoredCredentials>) -> io::Result<()> {
        // A login that was forgotten meanwhile stays forgotten.
        match self.read()? {
            None => Ok(()),
            Some(login) => self.write(&StoredLogin {
                credentials,
                ..login
            }),
        }
    }

    fn lock(&self) -> io::Result<File> {
        let path = self.folder.join(format!("{}.lock", self.name));
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path)?;
        file.lock()?;
        Ok(file)
    }

    /// Runs an operation on a thread that may block.
    async fn run<T: Send + 'static>(
        &self,
        operation: impl FnOnce(&Self) -> io::Result<T> + Send + 'static,
    ) -> Result<T, AuthError> {
        let file = self.clone();
        let done = tokio::task::spawn_blocking(move || operation(&file)).await;
        done.unwrap_or_else(|error| Err(io::Error::other(error)))
            .map_err(|error| AuthError::CredentialStoreError(error.to_string()))
    }
}

#[async_trait]
impl CredentialStore for LoginFile {
    async fn load(&self) -> Result<Option<StoredCredentials>, AuthError> {
        let login = self.run(Self::read).await?;
        Ok(login.and_then(|login| login.credentials))
    }

    async fn save(&self, credentials: StoredCredentials) -> Result<(), AuthError> {
        self.run(|file| file.replace_credentials(Some(credentials)))
            .await
    }

    async fn clear(&self) -> Result<(), AuthError> {
        self.run(|file| file.replace_credentials(None)).await
    }

    async fn acquire_refresh_guard(&self) -> Result<Option<CredentialRefreshGuard>, AuthError> {
        let lock = self.run(Self::lock).await?;
        Ok(Some(CredentialRefreshGuard::new(lock)))
    }
}
