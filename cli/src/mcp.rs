//! `dormouse mcp`: serves the tools of a program, and the tools that read descriptors, to any
//! client of the Model Context Protocol.
//!
//! Standard output carries the protocol and nothing else. With `--http` it carries the URL in its
//! first line and, if a token was generated, the client's configuration in its second.

mod http;
mod kept;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use dormouse::mcp::McpClient;
use dormouse::{Durability, host};
use dormouse_mcp_server::{DescriptorTools, McpServer, ProcessLifetime, ServeError};

pub(crate) use self::http::parse_origin;
use self::http::{http_setup, serve_http};
use self::kept::{
    cache_folder_or_warn, collect_ended, create_temporary_store, open_kept_outputs,
    open_known_lists,
};
use crate::failure::{Failure, file_failure};
use crate::kernel_setup::{KernelSetup, load_program};
use crate::mcp_install::{Install, install};
use crate::mcp_login::{Login, Logout, login, logout};
use crate::permissions::Permissions;
use crate::proxied_servers::{ProxiedServers, ServerDefaults};
use crate::stop_signals::{StopSignals, exit_at_once};
use crate::store_key::Key;

/// `dormouse mcp`
///
/// Over standard input and output, until the input ends; with --http, until it is stopped. What is
/// too large for a context comes back as a descriptor, which the client reads page by page. No
/// model is asked.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    override_usage = "dormouse mcp [OPTIONS] -- <COMMAND>...\n       dormouse mcp [OPTIONS] --config \
                      <FILE>\n       dormouse mcp [OPTIONS] <PROGRAM>\n       dormouse mcp \
                      install|login|logout"
)]
pub(crate) struct Mcp {
    #[command(subcommand)]
    pub(crate) command: Option<McpCommand>,
    /// The program file whose tools are served.
    #[arg(conflicts_with_all = ["config", "server"])]
    pub(crate) program: Option<PathBuf>,
    /// Serve the tools of the servers in this file, in the form that other clients use:
    /// {"mcpServers": {…}}. Naming the file permits the commands, machines and variables that it
    /// names.
    #[arg(long, value_name = "FILE", conflicts_with = "server")]
    pub(crate) config: Option<PathBuf>,
    /// Serve the tools of this server, a command that speaks the protocol over its standard
    /// streams.
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) server: Vec<String>,
    /// Make outputs of more characters descriptors, with --config or a COMMAND.
    #[arg(long, value_name = "CHARS", default_value_t = 8000, conflicts_with = "program", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) threshold: u32,
    /// Characters per page, with --config or a COMMAND.
    #[arg(long, value_name = "CHARS", default_value_t = 4000, conflicts_with = "program", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) page_size: u32,
    /// Which tools for descriptors are added, with --config or a COMMAND: all, or read_fd,
    /// search_fd and list_fds in a few words. Clients send their descriptions with every request.
    #[arg(long, value_enum, default_value_t = ToolSet::Full, value_name = "SET", conflicts_with = "program")]
    pub(crate) descriptor_tools: ToolSet,
    /// End a call of a server when it has neither answered nor reported progress for this long,
    /// unless its entry has a "deadline": 30s, 5m. Two minutes by default.
    #[arg(long, value_name = "AGE", value_parser = crate::gc::parse_age, conflicts_with = "program")]
    pub(crate) deadline: Option<u64>,
    /// End a call of a server after this long even if it reports progress, unless its entry has a
    /// "max_duration". An hour by default.
    #[arg(long, value_name = "AGE", value_parser = crate::gc::parse_age, conflicts_with = "program")]
    pub(crate) max_duration: Option<u64>,
    /// Take the value of ${input:ID} in --config, for which an editor asks its user, from this
    /// environment variable. By default that is INPUT_ID.
    #[arg(long, value_name = "ID=NAME", value_parser = parse_input, requires = "config")]
    pub(crate) input: Vec<(String, String)>,
    /// Wait this long, when a client connects, for servers whose tools are not known from an
    /// earlier start. A server that takes longer is left out until it is ready; clients are
    /// notified then.
    #[arg(long, value_name = "AGE", default_value = "5s", value_parser = crate::gc::parse_age)]
    pub(crate) start_wait: u64,
    /// Let all sessions use one instance of each server: for servers that keep no state. Otherwise
    /// each session has its own, and none sees what another did there. The key "shared" of an entry
    /// decides for one server.
    #[arg(long)]
    pub(crate) share_servers: bool,
    /// Serve over HTTP at this address. The first line of output is the URL, the second a client's
    /// configuration with the token, which is generated anew at each start; requests without it are
    /// refused. Without an address: any free port of this machine, for this machine alone.
    #[arg(long, value_name = "ADDRESS:PORT", num_args = 0..=1, require_equals = true, default_missing_value = "127.0.0.1:0")]
    pub(crate) http: Option<SocketAddr>,
    /// Serve web pages of these origins too, not only those of this machine:
    /// https://app.example:443.
    #[arg(long, value_name = "ORIGIN,…", value_delimiter = ',', requires = "http", value_parser = parse_origin)]
    pub(crate) allow_origin: Vec<String>,
    /// Serve other machines too. Any client that has the token may call every tool, and the token
    /// travels unencrypted: put a server that speaks TLS in front.
    #[arg(long, requires_all = ["http", "token_env"])]
    pub(crate) allow_remote: bool,
    /// Require the token that this environment variable holds, as `Authorization: Bearer …`,
    /// instead of drawing one.
    #[arg(long, value_name = "NAME", requires = "http")]
    pub(crate) token_env: Option<String>,
    /// Ask for no token: every program and every user of this machine may call every tool.
    #[arg(long, requires = "http", conflicts_with_all = ["allow_remote", "token_env"])]
    pub(crate) no_token: bool,
    /// The most sessions at once.
    #[arg(long, value_name = "N", default_value_t = 64, requires = "http", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) max_sessions: u16,
    /// End a session that has been silent for this long: 15m, 12h, 1d.
    #[arg(long, value_name = "AGE", default_value = "1h", value_parser = crate::gc::parse_age, requires = "http")]
    pub(crate) idle: u64,
    /// Let clients read an output for this long after its session has ended, by a name that cannot
    /// be guessed: 30m, 12h. 0s keeps none.
    #[arg(long, value_name = "AGE", default_value = "1h", value_parser = crate::gc::parse_age, conflicts_with = "store")]
    pub(crate) keep_outputs: u64,
    /// Keep descriptors in this folder, and continue with them at the next start. All sessions
    /// share them.
    #[arg(long, value_name = "DIR")]
    pub(crate) store: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) key: Key,
    #[command(flatten)]
    pub(crate) permissions: Permissions,
}

/// What `dormouse mcp` does other than to serve.
#[derive(Debug, Subcommand)]
pub(crate) enum McpCommand {
    /// Add a server, behind `dormouse mcp`, to the configuration of editors and coding agents.
    Install(Install),
    /// Log in to a server that asks for OAuth.
    Login(Login),
    /// Delete the token of a server.
    Logout(Logout),
}

/// The tools for descriptors that a proxy adds.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum ToolSet {
    /// All of them.
    Full,
    /// Three, described in a few words.
    Lean,
}

impl From<ToolSet> for DescriptorTools {
    fn from(set: ToolSet) -> Self {
        match set {
            ToolSet::Full => Self::Full,
            ToolSet::Lean => Self::Lean,
        }
    }
}

/// At most this many bytes of contents stay in memory; the rest is read from the store.
const RESIDENT_BYTES: u64 = 64 << 20;

/// The failure for a program that does not exist: perhaps the command of a server without its `--`.
fn no_such_program(path: &Path) -> Failure {
    let path = path.display();
    Failure::Usage(format!(
        "there is no program file {path}. A command is written behind --: dormouse mcp -- {path} …"
    ))
}

/// Serves until the input ends, or until a signal stops the program. The commands of the tools end
/// with it.
pub(crate) async fn mcp(args: Mcp) -> Result<ExitCode, Failure> {
    match &args.command {
        Some(McpCommand::Install(args)) => return install(args),
        Some(McpCommand::Login(args)) => return login(args).await,
        Some(McpCommand::Logout(args)) => return logout(args).await,
        None => {}
    }
    // The flags are checked before anything is opened.
    let http = match args.http {
        Some(address) => Some((address, http_setup(address, &args)?)),
        None => None,
    };
    let servers = proxied_servers(&args)?;
    let mut implied = match &servers {
        Some(servers) => servers.permissions(),
        None => host::Permissions::none(),
    };
    if let Some(name) = &args.token_env {
        implied = implied.withhold_env(name);
    }
    let cache = cache_folder_or_warn();
    let patience = Duration::from_millis(args.start_wait);
    let mut tool_servers =
        McpClient::default().start_when_called(open_known_lists(cache.as_deref()), patience);
    if !args.share_servers {
        tool_servers = tool_servers.connection_per_tree();
    }
    let builder = KernelSetup::new(args.store.as_deref(), &args.key)
        .permissions(&args.permissions)
        .implied(implied)
        .tool_servers(tool_servers)
        .builder()?
        .resident_bytes_limit(RESIDENT_BYTES);
    let cache = cache.filter(|_| args.store.is_none());
    let temporary_store = match &cache {
        Some(cache) => Some(create_temporary_store(cache)?),
        None => None,
    };
    let kernel = match &temporary_store {
        // A temporary store need not survive a loss of power, so no commit waits for the disk.
        Some(store) => builder.store(store.open()?).durability(Durability::Relaxed),
        None => builder,
    };
    let kernel = kernel.build().await?;
    let program = match (&servers, &args.program) {
        (Some(servers), _) => servers.program(&kernel, &args)?,
        (None, Some(program)) if !program.exists() => return Err(no_such_program(program)),
        (None, Some(program)) => load_program(&kernel, program)?,
        (None, None) => {
            return Err(Failure::Usage(
                "name a program, --config FILE, or -- COMMAND".to_owned(),
            ));
        }
    };
    let lifetime = if args.store.is_some() {
        ProcessLifetime::Persistent
    } else {
        ProcessLifetime::PerSession
    };
    let mut server = McpServer::new(kernel.clone(), program, lifetime)
        .descriptor_tools(args.descriptor_tools.into());
    if let Some(kept_outputs) = open_kept_outputs(cache.as_deref(), args.keep_outputs) {
        server = server.keep_outputs(kept_outputs);
    }
    let collecting = temporary_store
        .is_some()
        .then(|| tokio::spawn(collect_ended(kernel.clone())));
    let mut stop = StopSignals::listen()?;
    let mut stop_code = None;
    let stopped = async { stop_code = Some(stop.next().await) };
    let served = match http {
        None => serve_pipe(&server, stopped).await,
        Some((address, setup)) => serve_http(&server, address, setup, stopped).await,
    };
    server.end().await;
    if let Some(collecting) = collecting {
        collecting.abort();
    }
    let closed = kernel.shutdown().await;
    // Before the program exits at once, which would not delete it.
    drop(temporary_store);
    served?;
    match stop_code {
        Some(code) => exit_at_once(code, closed),
        None => Ok(closed.map(|()| ExitCode::SUCCESS)?),
    }
}

/// The tool servers that the command line names; none if it names a program.
fn proxied_servers(args: &Mcp) -> Result<Option<ProxiedServers>, Failure> {
    if let Some(path) = &args.config {
        let text = std::fs::read_to_string(path).map_err(|error| file_failure(path, &error))?;
        let servers = ProxiedServers::parse(&ServerDefaults::of(args).apply_to(text))
            .map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))?;
        return Ok(Some(servers));
    }
    let Some((command, arguments)) = args.server.split_first() else {
        return Ok(None);
    };
    let command = if command.contains('/') {
        std::path::absolute(command)?
    } else {
        command.into()
    };
    let servers = ProxiedServers::from_command(&command, arguments, &ServerDefaults::of(args))
        .map_err(|error| Failure::Usage(error.to_string()))?;
    Ok(Some(servers))
}

#[expect(
    clippy::disallowed_methods,
    reason = "the streams carry the protocol, whose bytes must not be changed"
)]
async fn serve_pipe(server: &McpServer, stopped: impl Future<Output = ()>) -> Result<(), Failure> {
    Ok(server
        .serve_pipe(tokio::io::stdin(), tokio::io::stdout(), stopped)
        .await?)
}

/// Parses the id of an input and the variable that has its value.
///
/// # Errors
/// Says what is expected.
fn parse_input(text: &str) -> anyhow::Result<(String, String)> {
    match text.split_once('=') {
        Some((id, name)) if !id.is_empty() && !name.is_empty() => {
            Ok((id.to_owned(), name.to_owned()))
        }
        _ => anyhow::bail!("name the input and an environment variable, as in api-key=API_KEY"),
    }
}

impl From<ServeError> for Failure {
    fn from(error: ServeError) -> Self {
        match error {
            ServeError::Process(error) => error.into(),
            ServeError::Settings(why) => Self::Usage(why),
            ServeError::Listener(_) | ServeError::Session(_) => Self::Run(error.to_string()),
        }
    }
}
