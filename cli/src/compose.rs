//! Putting a kernel together from what the command line says.

use std::path::Path;

use dormouse::host::{LocalHost, Permissions};
use dormouse::models::{AnthropicProvider, ScriptedProvider};
use dormouse::program::{Finding, Program};
use dormouse::{Kernel, KernelError};
use std::io::Write;

use crate::args;
use crate::key;
use crate::status::Failure;

/// What a kernel of the command line is made of.
pub(crate) struct Composition<'a> {
    pub(crate) store: Option<&'a Path>,
    pub(crate) key: &'a args::Key,
    pub(crate) permissions: &'a args::Permissions,
}

impl Composition<'_> {
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
                // Where standard error is gone there is nobody to tell.
                let _ = writeln!(std::io::stderr(), "{why}\nThis is what it holds at this moment.");
                reading(path, self.key).await
            }
            other => other,
        }
    }

    /// The kernel, running. Models: `scripted`, and `anthropic` with the key that ANTHROPIC_API_KEY holds.
    pub(crate) async fn kernel(&self) -> Result<Kernel, Failure> {
        let directory = std::env::current_dir();
        let directory = directory.map_err(|error| Failure::Usage(format!("no working directory: {error}")))?;
        let host = LocalHost::new(self.permissions(), &directory).map_err(|error| {
            Failure::Usage(format!("the permissions cannot be given: {error}. A permitted folder must be there"))
        })?;
        let mut builder = Kernel::builder()
            .host(host)
            .provider("scripted", ScriptedProvider)
            .provider("anthropic", AnthropicProvider::default());
        if let Some(path) = self.store {
            builder = builder.store(key::options(self.key)?.open(path).map_err(KernelError::Store)?);
        }
        Ok(builder.build().await?)
    }

    fn permissions(&self) -> Permissions {
        let args::Permissions { allow_run, allow_env, allow_read, allow_write } = self.permissions;
        let permissions = allow_run.iter().fold(Permissions::none(), |given, name| given.allow_run(name));
        let permissions = allow_env.iter().fold(permissions, |given, name| given.allow_env(name));
        let permissions = allow_read.iter().fold(permissions, |given, root| given.allow_read(root));
        let permissions = allow_write.iter().fold(permissions, |given, root| given.allow_write(root));
        // A folder that is permitted may hold the store, as in README's first command.
        self.store.into_iter().fold(permissions, |given, store| given.seal(store))
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
    let compiled = kernel.load(path).map_err(|errors| Failure::Usage(rendered(errors.errors())))?;
    // Where standard error is gone there is nobody to warn.
    let _ = write!(std::io::stderr(), "{}", rendered(&compiled.warnings));
    Ok(compiled.program)
}

/// Findings with the place in the file that they point to.
fn rendered(findings: &[Finding]) -> String {
    findings.iter().map(|finding| format!("{:?}\n", miette::Report::new(finding.clone()))).collect()
}
