//! `dormouse mcp`: serves the tools of a program, and the tools that read descriptors, to any
//! client of the Model Context Protocol.
//!
//! Standard output carries the protocol and nothing else. With `--http` it carries the URL in its
//! first line and, if a token was generated, the client's configuration in its second.

use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use dormouse::host;
use dormouse::mcp::McpClient;
use dormouse::ports::SweepMode;
use dormouse::retention::{EndedRule, Retention};
use dormouse::{Durability, Kernel};
use dormouse_mcp_server::{
    DescriptorTools, Hosts, HttpSettings, KeepLimits, KeptOutputs, McpServer, ProcessLifetime,
    ServeError, Token,
};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::failure::{Failure, file_failure};
use crate::kernel_setup::{KernelSetup, load_program};
use crate::mcp_install::{Install, install};
use crate::permissions::Permissions;
use crate::proxied_servers::{ProxiedServers, ServerDefaults};
use crate::stop_signals::{StopSignals, exit_at_once};
use crate::store_key::Key;
use crate::temporary_store::{TemporaryStore, cache_folder};
use crate::terminal;

/// `dormouse mcp`
///
/// Over standard input and output, until the input ends; with --http, until it is stopped. What is
/// too large for a context comes back as a descriptor, which the client reads page by page. No
/// model is asked.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
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
    /// Which tools for descriptors are added, with --config or a COMMAND: all, or read_fd, search_fd
    /// and list_fds in a few words. Clients send their descriptions with every request.
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
    /// Let clients read an output for this long after its session has ended, by a name that cannot be
    /// guessed: 30m, 12h. 0s keeps none.
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
    Install(Install),
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

/// How often the space of sessions that have ended is freed in a temporary store.
const COLLECTION_INTERVAL: Duration = Duration::from_secs(60);

/// A shorter token could be guessed.
const MIN_TOKEN_CHARS: usize = 16;

/// Serves until the input ends, or until a signal stops the program. The commands of the tools end
/// with it.
pub(crate) async fn mcp(args: Mcp) -> Result<ExitCode, Failure> {
    if let Some(McpCommand::Install(args)) = &args.command {
        return install(args);
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
    let tool_servers = if args.share_servers {
        McpClient::default()
    } else {
        McpClient::default().connection_per_tree()
    };
    let builder = KernelSetup::new(args.store.as_deref(), &args.key)
        .permissions(&args.permissions)
        .implied(implied)
        .tool_servers(tool_servers)
        .builder()?
        .resident_bytes_limit(RESIDENT_BYTES);
    let cache = match args.store {
        Some(_) => None,
        None => cache_folder_or_warn(),
    };
    let temporary_store = match &cache {
        Some(cache) => Some(create_temporary_store(cache)?),
        None => None,
    };
    let kernel = match &temporary_store {
        // What is lost with the machine is not needed after it either.
        Some(store) => builder.store(store.open()?).durability(Durability::Relaxed),
        None => builder,
    };
    let kernel = kernel.build().await?;
    let program = match (&servers, &args.program) {
        (Some(servers), _) => servers.program(&kernel, &args)?,
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

/// The folder for what is kept outside of a store. Without one, all outputs are in memory.
fn cache_folder_or_warn() -> Option<PathBuf> {
    let folder = cache_folder();
    if folder.is_none() {
        terminal::print_stderr(
            "warning: neither HOME nor XDG_CACHE_HOME is set: outputs stay in memory, and none \
             outlives its session",
        );
    }
    folder
}

fn create_temporary_store(cache: &Path) -> Result<TemporaryStore, Failure> {
    let parent = cache.join("temporary");
    TemporaryStore::create(&parent).map_err(|error| {
        Failure::Usage(format!(
            "{} cannot be used: {error}. Name another folder by XDG_CACHE_HOME, or --store",
            parent.display()
        ))
    })
}

/// The folder of outputs that outlive their session. If it cannot be used, none does.
fn open_kept_outputs(cache: Option<&Path>, age_ms: u64) -> Option<KeptOutputs> {
    if age_ms == 0 {
        return None;
    }
    let limits = KeepLimits {
        age: Duration::from_millis(age_ms),
        ..KeepLimits::default()
    };
    let folder = cache?.join("outputs");
    KeptOutputs::open(&folder, limits)
        .inspect_err(|error| {
            let folder = folder.display();
            terminal::print_stderr(&format!("warning: no output is kept in {folder}: {error}"));
        })
        .ok()
}

/// Frees the space of sessions that have ended, again and again.
async fn collect_ended(kernel: Kernel) {
    let retention = Retention {
        ended: EndedRule::ForMs(0),
        ..Retention::default()
    };
    loop {
        tokio::time::sleep(COLLECTION_INTERVAL).await;
        // What was not freed is tried again next time.
        if let Err(error) = kernel
            .collect_garbage(retention.clone(), SweepMode::Free)
            .await
        {
            terminal::print_stderr(&format!(
                "warning: the space of ended sessions is not free yet: {error}"
            ));
        }
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

struct HttpSetup {
    settings: HttpSettings,
    /// The secret of a token that was generated for this start, to be printed for clients.
    generated_secret: Option<String>,
}

async fn serve_http(
    server: &McpServer,
    address: SocketAddr,
    setup: HttpSetup,
    stopped: impl Future<Output = ()>,
) -> Result<(), Failure> {
    let cannot_listen =
        |error: std::io::Error| Failure::Usage(format!("cannot listen at {address}: {error}"));
    let listener = TcpListener::bind(address).await.map_err(cannot_listen)?;
    // The port is known only now if the system chose it.
    let bound = listener.local_addr().map_err(cannot_listen)?;
    let url = format!("http://{bound}/mcp");
    let mut out = terminal::stdout();
    writeln!(out, "{url}")?;
    if let Some(secret) = setup.generated_secret {
        let configuration = client_configuration(&url, &secret);
        writeln!(out, "{}", terminal::escaped_json(&configuration))?;
    }
    out.flush()?;
    Ok(server.serve_http(listener, setup.settings, stopped).await?)
}

/// A client's configuration, in the form that most clients of this protocol use.
fn client_configuration(url: &str, secret: &str) -> Value {
    let headers = json!({ "Authorization": format!("Bearer {secret}") });
    json!({ "mcpServers": { "dormouse": { "url": url, "headers": headers } } })
}

fn http_setup(address: SocketAddr, args: &Mcp) -> Result<HttpSetup, Failure> {
    if !address.ip().is_loopback() && !args.allow_remote {
        return Err(Failure::Usage(format!(
            "{address} can be reached from other machines. Permit that with --allow-remote and \
             --token-env NAME, or serve at 127.0.0.1"
        )));
    }
    let hosts = if args.allow_remote {
        Hosts::Any
    } else {
        Hosts::Loopback
    };
    let mut token = None;
    let mut generated_secret = None;
    if let Some(variable) = &args.token_env {
        token = Some(read_token(variable)?);
    } else if !args.no_token {
        let (generated, secret) = Token::generate()
            .map_err(|error| Failure::Run(format!("a token cannot be generated: {error}")))?;
        token = Some(generated);
        generated_secret = Some(secret);
    }
    let settings = HttpSettings {
        hosts,
        origins: args.allow_origin.clone(),
        token,
        max_sessions: usize::from(args.max_sessions),
        idle: Duration::from_millis(args.idle),
    };
    Ok(HttpSetup {
        settings,
        generated_secret,
    })
}

/// Parses an origin as browsers write it.
///
/// # Errors
/// Says what an origin is.
fn parse_origin(text: &str) -> anyhow::Result<String> {
    let text = text.trim_end_matches('/').to_ascii_lowercase();
    let machine = text
        .strip_prefix("http://")
        .or_else(|| text.strip_prefix("https://"));
    let is_origin = machine.is_some_and(|machine| {
        !machine.is_empty() && !machine.contains(['/', '?', '#', '@', '*', ' '])
    });
    if !is_origin {
        anyhow::bail!(
            "an origin is http:// or https://, a machine, and its port unless that is 80 or 443"
        );
    }
    Ok(text)
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

fn read_token(name: &str) -> Result<Token, Failure> {
    let secret = std::env::var(name).map_err(|_| {
        Failure::Usage(format!(
            "the variable {name} holds no token: set it to a text"
        ))
    })?;
    if secret.chars().count() < MIN_TOKEN_CHARS {
        return Err(Failure::Usage(format!(
            "the token in {name} is too short: it needs at least {MIN_TOKEN_CHARS} characters. \
             `openssl rand -hex 32` makes one"
        )));
    }
    Ok(Token::new(&secret))
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
