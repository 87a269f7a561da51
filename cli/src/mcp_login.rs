//! `dormouse mcp login` and `logout`: the user grants access to a tool server in a browser, by
//! OAuth.

mod callback;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use dormouse::Kernel;
use dormouse::mcp::login::{LoginError, LoginOptions, Logins};
use dormouse::program::parse_servers;
use dormouse::server::{Server, Transport};
use std::io::Write;

use self::callback::Callback;
use crate::failure::{Failure, file_failure};
use crate::kernel_setup::load_program;
use crate::temporary_store::user_folder;
use crate::terminal;

/// `dormouse mcp login`
///
/// Logs in to a server that asks for OAuth. Prints the address that grants access in a browser. The
/// token is kept for this user alone, is refreshed when it expires, and goes to this server only:
/// in `dormouse mcp`, and in programs that may connect to its machine.
#[derive(Debug, Args)]
pub(crate) struct Login {
    #[command(flatten)]
    server: ServerArgs,
    /// Wait for the browser at this port; otherwise at any that is free. A client that was
    /// registered by hand may permit only one.
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// The id that this program was given by hand. Otherwise it registers itself.
    #[arg(long, value_name = "ID")]
    client_id: Option<String>,
    /// The environment variable that holds the secret of this client.
    #[arg(long, value_name = "NAME", requires = "client_id")]
    client_secret_env: Option<String>,
    /// Ask for this access. Otherwise for what the server says.
    #[arg(long, value_name = "SCOPE,…", value_delimiter = ',')]
    scope: Vec<String>,
}

/// `dormouse mcp logout`
///
/// Deletes the token of a server. What was granted can be withdrawn at the server itself.
#[derive(Debug, Args)]
pub(crate) struct Logout {
    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Args)]
struct ServerArgs {
    /// The URL of the server, or its name in --config or --program.
    #[arg(value_name = "SERVER")]
    server: String,
    /// The file that declares the server, in the form that other clients use.
    #[arg(long, value_name = "FILE", conflicts_with = "program")]
    config: Option<PathBuf>,
    /// The program that declares the server.
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
}

impl ServerArgs {
    /// The URL of the server.
    async fn url(&self) -> Result<String, Failure> {
        let servers = match (&self.config, &self.program) {
            (Some(path), _) => servers_of_file(path)?,
            (None, Some(path)) => servers_of_program(path).await?,
            (None, None) if self.server.contains("://") => return Ok(self.server.clone()),
            (None, None) => {
                return Err(Failure::Usage(
                    "name the URL of the server, or the file that declares it: --config FILE, or \
                     --program FILE"
                        .to_owned(),
                ));
            }
        };
        let urls = servers.iter().filter_map(|server| match &server.transport {
            Transport::Http { url, .. } => Some((&*server.name, url)),
            Transport::Stdio(_) => None,
        });
        let found = urls.clone().find(|(name, _)| *name == self.server);
        found.map(|(_, url)| url.clone()).ok_or_else(|| {
            let names: Vec<_> = urls.map(|(name, _)| name).collect();
            let server = &self.server;
            Failure::Usage(format!(
                "no server with a url has the name {server:?}. Those there are: {}",
                names.join(", ")
            ))
        })
    }
}

fn servers_of_file(path: &Path) -> Result<Vec<Server>, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| file_failure(path, &error))?;
    let declared = parse_servers(&text)
        .map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))?;
    Ok(declared.servers)
}

async fn servers_of_program(path: &Path) -> Result<Vec<Server>, Failure> {
    let kernel = Kernel::builder().build().await?;
    let program = load_program(&kernel, path)?;
    let servers = program.servers().iter();
    Ok(servers.map(|enabled| (*enabled.server).clone()).collect())
}

/// The folder of the logins: `$XDG_STATE_HOME/dormouse/logins`, or
/// `~/.local/state/dormouse/logins`. `None` if the environment names no home.
pub(crate) fn logins_folder() -> Option<PathBuf> {
    Some(user_folder("XDG_STATE_HOME", ".local/state")?.join("logins"))
}

fn logins() -> Result<Logins, Failure> {
    let folder = logins_folder().ok_or_else(|| {
        Failure::Usage("neither HOME nor XDG_STATE_HOME says where logins are kept".to_owned())
    })?;
    Ok(Logins::in_folder(folder))
}

/// Logs in, once the user has granted access in a browser.
pub(crate) async fn login(args: &Login) -> Result<ExitCode, Failure> {
    let url = args.server.url().await?;
    let client_secret = match &args.client_secret_env {
        None => None,
        Some(name) => Some(std::env::var(name).map_err(|_| {
            Failure::Usage(format!(
                "the variable {name} holds no secret: set it to one"
            ))
        })?),
    };
    let options = LoginOptions {
        client: args.client_id.clone().map(|id| (id, client_secret)),
        scopes: args.scope.clone(),
    };
    let callback = Callback::listen(args.port).await?;
    let pending = logins()?
        .begin(&url, &callback.redirect_uri(), options)
        .await?;
    let mut out = terminal::stdout();
    writeln!(
        out,
        "Open this address in a browser, and grant access:\n\n{}\n",
        pending.address()
    )?;
    writeln!(
        out,
        "If the browser is on another machine, paste the address here that it goes to then."
    )?;
    out.flush()?;
    let redirected = callback.redirected_address().await?;
    pending.finish(&redirected).await?;
    writeln!(out, "Logged in to {url}.")?;
    Ok(ExitCode::SUCCESS)
}

/// Forgets a login.
pub(crate) async fn logout(args: &Logout) -> Result<ExitCode, Failure> {
    let url = args.server.url().await?;
    let is_removed = logins()?.remove(&url).map_err(LoginError::from)?;
    if !is_removed {
        return Err(Failure::Usage(format!("there is no login to {url}")));
    }
    writeln!(terminal::stdout(), "Logged out of {url}.")?;
    Ok(ExitCode::SUCCESS)
}

impl From<LoginError> for Failure {
    fn from(error: LoginError) -> Self {
        match error {
            LoginError::Url(_) => Self::Usage(error.to_string()),
            LoginError::Refused(_) | LoginError::Store(_) => {
                Self::Run(format!("no login: {error}"))
            }
        }
    }
}
