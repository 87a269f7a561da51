//! Builds a kernel from the command line.

use std::io::ErrorKind;
use std::path::Path;

use dormouse::host::{self, LocalHost};
use dormouse::mcp::McpClient;
use dormouse::models::prices;
use dormouse::program::Program;
use dormouse::{Kernel, KernelBuilder, KernelError};

use crate::args::{RunFlags, Store};
use crate::key::Key;
use crate::models::Models;
use crate::permissions::Permissions;
use crate::status::Failure;
use crate::{findings, key, terminal};

/// The parts that a kernel is built from.
pub(crate) struct Composition<'a> {
    store: Option<&'a Path>,
    key: &'a Key,
    permissions: Option<&'a Permissions>,
    models: Option<&'a Models>,
    /// Permissions that follow from other arguments, such as the servers that the user named.
    implied: host::Permissions,
}

impl<'a> Composition<'a> {
    /// Permits nothing, and records nothing.
    pub(crate) fn of(store: Option<&'a Path>, key: &'a Key) -> Self {
        Self {
            store,
            key,
            permissions: None,
            models: None,
            implied: host::Permissions::none(),
        }
    }

    /// On a store that the command line has to name.
    pub(crate) fn on(store: &'a Store) -> Self {
        Self::of(Some(&store.folder), &store.key)
    }

    pub(crate) fn permissions(self, permissions: &'a Permissions) -> Self {
        Self {
            permissions: Some(permissions),
            ..self
        }
    }

    /// Permits this as well.
    pub(crate) fn implied(self, implied: host::Permissions) -> Self {
        Self { implied, ..self }
    }

    pub(crate) fn models(self, models: &'a Models) -> Self {
        Self {
            models: Some(models),
            ..self
        }
    }

    /// With the permissions and models of a command that runs processes.
    pub(crate) fn run_flags(self, flags: &'a RunFlags) -> Self {
        self.permissions(&flags.permissions).models(&flags.models)
    }

    /// The kernel on a store that must exist.
    pub(crate) async fn existing(&self) -> Result<Kernel, Failure> {
        self.store.map_or(Ok(()), check_store)?;
        self.kernel().await
    }

    /// The kernel, running.
    pub(crate) async fn kernel(&self) -> Result<Kernel, Failure> {
        Ok(self.builder()?.build().await?)
    }

    /// The builder of the kernel. Each provider uses the key that the environment holds for it,
    /// unless a program is permitted to name another.
    pub(crate) fn builder(&self) -> Result<KernelBuilder, Failure> {
        let directory = std::env::current_dir();
        let directory =
            directory.map_err(|error| Failure::Usage(format!("no working directory: {error}")))?;
        let host = LocalHost::new(self.host_permissions(), &directory).map_err(|error| {
            let hint = match error.kind() {
                ErrorKind::NotFound => ". A folder of --allow-read must exist",
                _ => "",
            };
            Failure::Usage(format!("the permissions cannot be given: {error}{hint}"))
        })?;
        if let Some(lacks) = host.lacks() {
            terminal::tell(&format!("warning: {lacks}"));
        }
        let no_flags = Models::default();
        let models = self.models.unwrap_or(&no_flags);
        let builder = Kernel::builder()
            .host(host)
            .tool_servers(McpClient::default());
        let mut builder = models
            .providers()?
            .into_iter()
            .fold(builder, |builder, (name, provider)| {
                builder.provider(name, provider)
            });
        builder = builder.prices(prices()).prices(models.prices()?);
        if let Some(path) = self.store {
            builder = builder.store(
                key::options(self.key)?
                    .open(path)
                    .map_err(KernelError::from)?,
            );
        }
        Ok(builder)
    }

    /// What is permitted, with the key file and the recording sealed. The kernel seals its store by
    /// itself.
    fn host_permissions(&self) -> host::Permissions {
        let implied = self.implied.clone();
        let permissions = match self.permissions {
            Some(flags) => flags.added_to(implied),
            None => implied,
        };
        let recording = self.models.and_then(|models| models.record.as_deref());
        let sealed = [self.key.key_file.as_deref(), recording];
        sealed
            .into_iter()
            .flatten()
            .fold(permissions, |given, path| given.seal(path))
    }
}

/// A kernel on a store that must exist, opened read-only: it shows the store at one moment.
pub(crate) async fn reading(store: &Path, key: &Key) -> Result<Kernel, Failure> {
    check_store(store)?;
    let store = key::options(key)?
        .read_only(store)
        .map_err(KernelError::from)?;
    Ok(Kernel::open(store).build().await?)
}

/// Refuses a folder that is not a store, before a store is created there.
pub(crate) fn check_store(path: &Path) -> Result<(), Failure> {
    look_for_store(path)?;
    if ["HEAD", "HEAD2"]
        .iter()
        .any(|file| path.join(file).is_file())
    {
        return Ok(());
    }
    let path = path.display();
    let why = format!(
        "the store {path} has lost its HEAD. dormouse fsck --store {path} says what can be done"
    );
    Err(Failure::Store(why))
}

/// Refuses a folder in which there is neither a log nor a HEAD, and one that may not be looked
/// into.
pub(crate) fn look_for_store(path: &Path) -> Result<(), Failure> {
    for part in ["log", "HEAD", "HEAD2"] {
        match path.join(part).metadata() {
            Ok(_) => return may_be_read(path),
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
            Err(error) => return Err(unreadable(path, &error)),
        }
    }
    let path = path.display();
    Err(Failure::Usage(format!(
        "{path} is not a store: name a folder that was given to run with --store"
    )))
}

/// A store is for its owner alone: whoever else opens it is told so.
fn may_be_read(path: &Path) -> Result<(), Failure> {
    for part in ["HEAD", "HEAD2", "log"] {
        match std::fs::File::open(path.join(part)) {
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                return Err(unreadable(path, &error));
            }
            _ => {}
        }
    }
    Ok(())
}

fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    let path = path.display();
    Failure::Store(format!(
        "the store {path} cannot be read: {error}. Only the user who made a store can open it, or \
         whoever the operating system lets"
    ))
}

/// Compiles a program. Warnings go to standard error; errors point into the file.
pub(crate) fn load(kernel: &Kernel, path: &Path) -> Result<Program, Failure> {
    let compiled = kernel
        .load(path)
        .map_err(|errors| Failure::Program(errors.errors().to_vec()))?;
    findings::show(&compiled.warnings);
    Ok(compiled.program)
}
