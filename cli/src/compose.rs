//! Putting a kernel together from what the command line says.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use dormouse::Price;
use dormouse::host::{LocalHost, Permissions};
use dormouse::mcp::McpClient;
use dormouse::models::anthropic::Messages;
use dormouse::models::chat::Completions;
use dormouse::models::gemini::GenerateContent;
use dormouse::models::responses::Responses;
use dormouse::models::{Recorder, Replayer, ScriptedProvider, ServerProvider, prices};
use dormouse::ports::Provider;
use dormouse::program::{Program, read_prices};
use dormouse::{Kernel, KernelBuilder, KernelError};

use crate::args;
use crate::export::{Patterns, unusable};
use crate::status::Failure;
use crate::{findings, key, terminal};

/// A provider, by the word that programs name it with.
type Named = (&'static str, Arc<dyn Provider>);

/// What a kernel of the command line is made of.
pub(crate) struct Composition<'a> {
    store: Option<&'a Path>,
    key: &'a args::Key,
    permissions: Option<&'a args::Permissions>,
    models: Option<&'a args::Models>,
    /// What is permitted beside, since the user named what needs it.
    implied: Permissions,
}

impl<'a> Composition<'a> {
    /// Permits nothing, and records nothing.
    pub(crate) fn of(store: Option<&'a Path>, key: &'a args::Key) -> Self {
        Self { store, key, permissions: None, models: None, implied: Permissions::none() }
    }

    /// On a store that the command line has to name.
    pub(crate) fn on(store: &'a args::Store) -> Self {
        Self::of(Some(&store.folder), &store.key)
    }

    pub(crate) fn permissions(self, permissions: &'a args::Permissions) -> Self {
        Self { permissions: Some(permissions), ..self }
    }

    /// Permits this as well.
    pub(crate) fn implied(self, implied: Permissions) -> Self {
        Self { implied, ..self }
    }

    pub(crate) fn models(self, models: &'a args::Models) -> Self {
        Self { models: Some(models), ..self }
    }

    /// The kernel on a store that must be there.
    pub(crate) async fn existing(&self) -> Result<Kernel, Failure> {
        self.store.map_or(Ok(()), check_store)?;
        self.kernel().await
    }

    /// A kernel to look into a store that must be there: where another program writes it, as it is at this moment, and nothing
    /// can be done in it.
    pub(crate) async fn to_look(&self) -> Result<Kernel, Failure> {
        let Some(path) = self.store else { return self.existing().await };
        match self.existing().await {
            Err(Failure::InUse(why)) => {
                terminal::tell(&format!("{why}\nThis is what it holds at this moment."));
                reading(path, self.key).await
            }
            other => other,
        }
    }

    /// The kernel, running.
    pub(crate) async fn kernel(&self) -> Result<Kernel, Failure> {
        Ok(self.builder()?.build().await?)
    }

    /// The kernel, about to be built. Each provider uses the key that the environment holds for it, unless a program may name
    /// another.
    pub(crate) fn builder(&self) -> Result<KernelBuilder, Failure> {
        let directory = std::env::current_dir();
        let directory = directory.map_err(|error| Failure::Usage(format!("no working directory: {error}")))?;
        let host = LocalHost::new(self.sealed(self.permitted()), &directory).map_err(|error| {
            Failure::Usage(format!("the permissions cannot be given: {error}. A permitted folder must be there"))
        })?;
        if let Some(lacks) = host.lacks() {
            terminal::tell(&format!("warning: {lacks}"));
        }
        let builder = Kernel::builder().host(host).tool_servers(McpClient::default());
        let builder =
            self.providers()?.into_iter().fold(builder, |builder, (name, provider)| builder.provider(name, provider));
        let mut builder = builder.prices(prices()).prices(self.own_prices()?);
        if let Some(path) = self.store {
            builder = builder.store(key::options(self.key)?.open(path).map_err(KernelError::Store)?);
        }
        Ok(builder)
    }

    /// Who stands behind `provider` in a program: the models themselves, or what records or replays them.
    fn providers(&self) -> Result<Vec<Named>, Failure> {
        let real: [Named; 5] = [
            ("scripted", Arc::new(ScriptedProvider)),
            ("anthropic", Arc::new(ServerProvider::<Messages>::default())),
            ("openai", Arc::new(ServerProvider::<Responses>::default())),
            ("openai-chat", Arc::new(ServerProvider::<Completions>::default())),
            ("gemini", Arc::new(ServerProvider::<GenerateContent>::default())),
        ];
        let Some(recording) = self.models else { return Ok(real.into()) };
        let redact = Patterns(recording.redact.clone());
        match (&recording.record, &recording.replay) {
            (Some(path), _) => {
                let recorder = Recorder::create(path).map_err(|error| unusable(path, &error))?.redact(redact);
                let record = |provider| Arc::new(recorder.provider(provider)) as Arc<dyn Provider>;
                Ok(real.into_iter().map(|(name, provider)| (name, record(provider))).collect())
            }
            (None, Some(path)) => {
                let replayer = Replayer::load(path);
                let replayer = replayer.map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))?;
                let replayer: Arc<dyn Provider> = Arc::new(replayer.redact(redact));
                Ok(real.into_iter().map(|(name, _)| (name, replayer.clone())).collect())
            }
            (None, None) => Ok(real.into()),
        }
    }

    /// What the user says that models cost.
    fn own_prices(&self) -> Result<BTreeMap<String, Price>, Failure> {
        let Some(path) = self.models.and_then(|models| models.prices.as_deref()) else { return Ok(BTreeMap::new()) };
        let text = std::fs::read_to_string(path).map_err(|error| unusable(path, &error))?;
        let read = read_prices(&path.display().to_string(), &text);
        read.map_err(|errors| Failure::Program(errors.errors().to_vec()))
    }

    fn permitted(&self) -> Permissions {
        let Some(given) = self.permissions else { return self.implied.clone() };
        let args::Permissions { allow_run, allow_env, allow_net, allow_read, allow_write, allow_unconfined } = given;
        let permissions = allow_run.iter().fold(self.implied.clone(), |given, name| given.allow_run(name));
        let permissions = match allow_unconfined.as_deref() {
            None => permissions,
            Some([]) => permissions.allow_without_confinement(),
            Some(named) => named.iter().fold(permissions, |given, name| given.allow_unconfined(name)),
        };
        let permissions = allow_env.iter().fold(permissions, |given, name| given.allow_env(name));
        let permissions = match allow_net.as_deref() {
            None => permissions,
            Some([]) => permissions.allow_any_net(),
            Some(named) => named.iter().fold(permissions, |given, machine| given.allow_net(machine)),
        };
        let permissions = allow_read.iter().fold(permissions, |given, root| given.allow_read(root));
        allow_write.iter().fold(permissions, |given, root| given.allow_write(root))
    }

    /// The kernel seals its store by itself; of these files it does not know.
    fn sealed(&self, permissions: Permissions) -> Permissions {
        let recording = self.models.and_then(|models| models.record.as_deref());
        let secret = [self.key.key_file.as_deref(), recording];
        secret.into_iter().flatten().fold(permissions, |given, path| given.seal(path))
    }
}

/// A kernel on a store that must be there, which it only reads: it shows one moment, and nothing in it is changed.
pub(crate) async fn reading(store: &Path, key: &args::Key) -> Result<Kernel, Failure> {
    check_store(store)?;
    let store = key::options(key)?.read_only(store).map_err(KernelError::Store)?;
    Ok(Kernel::open(store).build().await?)
}

/// Refuses a folder that is not a store, before one is made there.
pub(crate) fn check_store(path: &Path) -> Result<(), Failure> {
    if path.join("HEAD").is_file() {
        return Ok(());
    }
    let is_headless = path.join("log").is_dir();
    let path = path.display();
    Err(Failure::Usage(if is_headless {
        format!("the store {path} has lost its HEAD. dormouse fsck --store {path} says what can be done")
    } else {
        format!("{path} is not a store: name a folder that was given to run with --store")
    }))
}

/// Compiles a program. Warnings go to standard error; errors point into the file.
pub(crate) fn load(kernel: &Kernel, path: &Path) -> Result<Program, Failure> {
    let compiled = kernel.load(path).map_err(|errors| Failure::Program(errors.errors().to_vec()))?;
    findings::show(&compiled.warnings);
    Ok(compiled.program)
}
