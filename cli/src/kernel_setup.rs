//! Builds a kernel from the flags of a command: its store, host permissions, models and prices.
//!
//! Commands that write open the store through [`KernelSetup`]; commands that only show something
//! open it read-only (`read_only`), so they also work while another program writes it.
//! Without permission flags the kernel can reach nothing outside of itself.

use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use dormouse::host::{self, LocalHost};
use dormouse::mcp::McpClient;
use dormouse::mcp::login::Logins;
use dormouse::models::prices;
use dormouse::program::Program;
use dormouse::{Kernel, KernelBuilder, KernelError};

use crate::args::{RunFlags, Store};
use crate::control_api::{self, Listen};
use crate::failure::Failure;
use crate::mcp_login::logins_folder;
use crate::models::Models;
use crate::permissions::Permissions;
use crate::server_questions::QUESTIONS_EXPIRE;
use crate::store_key::{Key, store_options};
use crate::{findings, terminal};

/// How long a process rests in memory in a run that waits for alarms.
const RESTS_IN_MEMORY: Duration = Duration::from_secs(10);

/// The flags that a kernel is built from.
pub(crate) struct KernelSetup<'a> {
    store: Option<&'a Path>,
    key: &'a Key,
    permissions: Option<&'a Permissions>,
    models: Option<&'a Models>,
    /// Permissions that follow from other arguments, such as the servers that the user named.
    implied: host::Permissions,
    tool_servers: McpClient,
    /// How long a process rests in memory before it hibernates; `None` for ever.
    hibernate_after: Option<Duration>,
    is_unattended: bool,
    is_detached: bool,
    /// Whether tool servers may ask the user: an `EventPrinter` of the kernel answers or declines.
    takes_server_questions: bool,
    /// How the control API of the kernel is served; `None` for a command that runs no processes.
    control: Option<&'a Listen>,
}

impl<'a> KernelSetup<'a> {
    /// A kernel without permissions. Without a store, its processes live in memory only.
    pub(crate) fn new(store: Option<&'a Path>, key: &'a Key) -> Self {
        Self {
            store,
            key,
            permissions: None,
            models: None,
            implied: host::Permissions::none(),
            tool_servers: McpClient::default(),
            hibernate_after: None,
            is_unattended: false,
            is_detached: false,
            takes_server_questions: false,
            control: None,
        }
    }

    /// A kernel on a store that the command line must name.
    pub(crate) fn on(store: &'a Store) -> Self {
        Self::new(Some(&store.folder), &store.key)
    }

    pub(crate) fn permissions(self, permissions: &'a Permissions) -> Self {
        Self {
            permissions: Some(permissions),
            ..self
        }
    }

    /// Permits `implied` in addition to what the flags permit.
    pub(crate) fn implied(self, implied: host::Permissions) -> Self {
        Self { implied, ..self }
    }

    /// Reaches tool servers by this client.
    pub(crate) fn tool_servers(self, tool_servers: McpClient) -> Self {
        Self {
            tool_servers,
            ..self
        }
    }

    pub(crate) fn models(self, models: &'a Models) -> Self {
        Self {
            models: Some(models),
            ..self
        }
    }

    /// Uses the permissions and models of a command that runs processes.
    pub(crate) fn run_flags(self, flags: &'a RunFlags) -> Self {
        let setup = self.permissions(&flags.permissions).models(&flags.models);
        Self {
            // A run that waits for alarms may have many sleepers.
            hibernate_after: flags.wait.then_some(RESTS_IN_MEMORY),
            is_unattended: flags.unattended,
            is_detached: flags.detach,
            control: Some(&flags.listen),
            ..setup.server_questions()
        }
    }

    /// Lets tool servers ask the user. The command has to spawn an `EventPrinter`.
    pub(crate) fn server_questions(self) -> Self {
        Self {
            takes_server_questions: true,
            ..self
        }
    }

    /// Builds the kernel on a store that must exist.
    pub(crate) async fn open_existing(self) -> Result<Kernel, Failure> {
        if let Some(store) = self.store {
            require_store(store)?;
        }
        self.build().await
    }

    /// Builds the kernel, and creates the store if it is absent.
    pub(crate) async fn build(self) -> Result<Kernel, Failure> {
        let (store, control) = (self.store, self.control);
        let (builder, unconfined) = self.builder_and_confinement()?;
        let kernel = builder.build().await?;
        if let Some(listen) = control {
            let opened = control_api::open(&kernel, store, unconfined.as_deref(), listen).await;
            if let Err(failure) = opened {
                kernel.shutdown().await?;
                return Err(failure);
            }
        }
        Ok(kernel)
    }

    /// The builder of the kernel. Each provider uses the key that the environment holds for it,
    /// unless a program is permitted to name another.
    pub(crate) fn builder(self) -> Result<KernelBuilder, Failure> {
        Ok(self.builder_and_confinement()?.0)
    }

    /// The builder, and why commands may run unconfined, if they may.
    fn builder_and_confinement(self) -> Result<(KernelBuilder, Option<String>), Failure> {
        if self.is_detached {
            return Err(Failure::Usage(
                "--detach is for clusters: here the processes run in this command, and end with it"
                    .to_owned(),
            ));
        }
        let directory = std::env::current_dir()
            .map_err(|error| Failure::Usage(format!("no working directory: {error}")))?;
        let host = LocalHost::new(self.host_permissions(), &directory).map_err(|error| {
            let hint = match error.kind() {
                ErrorKind::NotFound => ". A folder of --allow-read must exist",
                _ => "",
            };
            Failure::Usage(format!("the permissions cannot be granted: {error}{hint}"))
        })?;
        if let Some(missing) = host.missing_confinement() {
            terminal::print_stderr(&format!("warning: {missing}"));
        }
        let unconfined = host.unconfined_reason();
        let tool_servers = with_logins(self.tool_servers);
        let mut builder = Kernel::builder().host(host).tool_servers(tool_servers);
        let no_flags = Models::default();
        let models = self.models.unwrap_or(&no_flags);
        for (name, provider) in models.providers()? {
            builder = builder.provider(name, provider);
        }
        // The table of --prices comes second, so that it overrides the built-in one.
        builder = builder.prices(prices()).prices(models.prices()?);
        if let Some(path) = self.store {
            let store = store_options(self.key)?
                .open(path)
                .map_err(KernelError::from)?;
            builder = builder.store(store);
        }
        if let Some(hibernate_after) = self.hibernate_after {
            builder = builder.hibernate_after(hibernate_after);
        }
        if self.is_unattended {
            builder = builder.unattended();
        }
        if self.takes_server_questions {
            builder = builder.server_questions(QUESTIONS_EXPIRE);
        }
        Ok((builder, unconfined))
    }

    /// What is permitted. Programs can never reach the key file and the recording; the kernel
    /// protects its store by itself.
    fn host_permissions(&self) -> host::Permissions {
        let mut permissions = self.implied.clone();
        if let Some(flags) = self.permissions {
            permissions = flags.added_to(permissions);
        }
        if let Some(key_file) = &self.key.key_file {
            permissions = permissions.seal(key_file);
        }
        if let Some(logins) = logins_folder() {
            permissions = permissions.seal(logins);
        }
        if let Some(recording) = self.models.and_then(|models| models.record.as_ref()) {
            permissions = permissions.seal(recording);
        }
        permissions
    }
}

/// A client of tool servers that has the logins of this user.
pub(crate) fn with_logins(tool_servers: McpClient) -> McpClient {
    match logins_folder() {
        Some(folder) => tool_servers.logins(Logins::in_folder(folder)),
        None => tool_servers,
    }
}

/// Refuses a folder that is not a store, before anything would create a store there.
pub(crate) fn require_store(path: &Path) -> Result<(), Failure> {
    require_store_files(path)?;
    let has_head = path.join("HEAD").is_file() || path.join("HEAD2").is_file();
    if has_head {
        return Ok(());
    }
    let path = path.display();
    Err(Failure::Store(format!(
        "the store {path} has lost its HEAD. dormouse fsck --store {path} says what can be done"
    )))
}

/// Refuses a folder that holds neither a log nor a HEAD, and one that this user may not read.
pub(crate) fn require_store_files(path: &Path) -> Result<(), Failure> {
    for part in ["log", "HEAD", "HEAD2"] {
        match path.join(part).metadata() {
            Ok(_) => return require_readable(path),
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
            Err(error) => return Err(unreadable_store(path, &error)),
        }
    }
    let path = path.display();
    Err(Failure::Usage(format!(
        "{path} is not a store: name a folder that was given to run with --store"
    )))
}

/// Refuses a store of another user with an error that says so: only its owner can read a store.
fn require_readable(path: &Path) -> Result<(), Failure> {
    for part in ["HEAD", "HEAD2", "log"] {
        if let Err(error) = std::fs::File::open(path.join(part))
            && error.kind() == ErrorKind::PermissionDenied
        {
            return Err(unreadable_store(path, &error));
        }
    }
    Ok(())
}

fn unreadable_store(path: &Path, error: &std::io::Error) -> Failure {
    let path = path.display();
    Failure::Store(format!(
        "the store {path} cannot be read: {error}. Only the user who created a store can open it, \
         and users whom the operating system lets read every file"
    ))
}

/// Compiles a program. Warnings go to standard error; errors point into the file.
pub(crate) fn load_program(kernel: &Kernel, path: &Path) -> Result<Program, Failure> {
    let compiled = kernel
        .load(path)
        .map_err(|errors| Failure::Program(errors.errors().to_vec()))?;
    findings::show(&compiled.warnings);
    Ok(compiled.program)
}
