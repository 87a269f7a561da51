//! `dormouse mcp login` and `logout`: the user grants access to a tool server by OAuth, in a
//! browser on this machine or on another one.

mod callback;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use dormouse::Kernel;
use dormouse::mcp::login::{LoginError, LoginOptions, Logins};
use dormouse::program::parse_servers;
use dormouse::server::{CaFile, Server, Transport};
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
///
/// With `--device`, for machines without a browser, prints an address and a code to enter there, on
/// any other machine.
#[derive(Debug, Args)]
pub(crate) struct Login {
    #[command(flatten)]
    server: ServerArgs,
    /// Log in with a code that is entered in a browser on another machine, if the authorization
    /// server offers that.
    #[arg(long, conflicts_with = "port")]
    device: bool,
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

/// Where a server is, and the authorities that may have issued its certificate.
struct ServerAddress {
    url: String,
    ca_file: Option<CaFile>,
}

impl ServerArgs {
    /// The address of the server.
    async fn address(&self) -> Result<ServerAddress, Failure> {
        let servers = match (&self.config, &self.program) {
            (Some(path), _) => servers_of_file(path)?,
            (None, Some(path)) => servers_of_program(path).await?,
            (None, None) if self.server.contains("://") => {
                return Ok(ServerAddress {
                    url: self.server.clone(),
                    ca_file: None,
                });
            }
            (None, None) => {
                return Err(Failure::Usage(
                    "name the URL of the server, or the file that declares it: --config FILE, or \
                     --program FILE"
                        .to_owned(),
                ));
            }
        };
        let urls = servers.iter().filter_map(|server| match &server.transport {
            Transport::Http { url, ca_file, .. } => Some((&*server.name, url, ca_file)),
            Transport::Stdio(_) => None,
        });
        let found = urls.clone().find(|(name, ..)| *name == self.server);
        let (_, url, ca_file) = found.ok_or_else(|| {
            let names: Vec<_> = urls.map(|(name, ..)| name).collect();
            let server = &self.server;
            Failure::Usage(format!(
                "no server with a url has the name {server:?}. Those there are: {}",
                names.join(", ")
            ))
        })?;
        let ca_file = ca_file.clone().map(read_ca_file).transpose()?;
        let url = url.clone();
        Ok(ServerAddress { url, ca_file })
    }
}

/// Reads the file of certificate authorities that a file of servers names. For a program, the
/// authorities were read with it. A relative path starts in the working directory, as for
/// `dormouse mcp`.
fn read_ca_file(file: CaFile) -> Result<CaFile, Failure> {
    if !file.pem.is_empty() {
        return Ok(file);
    }
    let path = Path::new(&file.path);
    let pem = std::fs::read_to_string(path).map_err(|error| file_failure(path, &error))?;
    Ok(CaFile {
        pem: pem.into(),
        ..file
    })
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

/// Logs in, once the user has granted access.
pub(crate) async fn login(args: &Login) -> Result<ExitCode, Failure> {
    let ServerAddress { url, ca_file } = args.server.address().await?;
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
        ca_file,
    };
    if args.device {
        log_in_on_device(&url, options).await?;
    } else {
        log_in_with_browser(&url, options, args.port).await?;
    }
    writeln!(terminal::stdout(), "Logged in to {url}.")?;
    Ok(ExitCode::SUCCESS)
}

/// Waits until the user has entered a code on any machine.
async fn log_in_on_device(url: &str, options: LoginOptions) -> Result<(), Failure> {
    let pending = logins()?.begin_on_device(url, options).await?;
    let (address, code) = (pending.address(), pending.user_code());
    let mut out = terminal::stdout();
    writeln!(
        out,
        "Open this address in a browser on any machine, and enter the code {code}:\n\n{address}\n"
    )?;
    if let Some(address) = pending.address_with_code() {
        writeln!(out, "This address has the code in it:\n\n{address}\n")?;
    }
    out.flush()?;
    Ok(pending.finish().await?)
}

/// Waits until the user has granted access in a browser, which then comes to `port`.
async fn log_in_with_browser(url: &str, options: LoginOptions, port: u16) -> Result<(), Failure> {
    let callback = Callback::listen(port).await?;
    let pending = logins()?
        .begin(url, &callback.redirect_uri(), options)
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
    Ok(pending.finish(&redirected).await?)
}

/// Forgets a login.
pub(crate) async fn logout(args: &Logout) -> Result<ExitCode, Failure> {
    let ServerAddress { url, .. } = args.server.address().await?;
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
            LoginError::Url(_) | LoginError::Certificates(_) => Self::Usage(error.to_string()),
            LoginError::Refused(_) | LoginError::Store(_) => {
                Self::Run(format!("no login: {error}"))
            }
        }
    }
}
