//! `dormouse mcp`: the tools of a program, and those that read descriptors, for any client of the
//! Model Context Protocol.
//!
//! Standard output carries the protocol and nothing else. With `--http` it carries the URL in its
//! first line and, if a token was drawn, the client's configuration in its second.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use dormouse::host;
use dormouse_mcp_server::{Hosts, HttpSettings, Keeping, McpServer, ServeError, Token};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::compose::{Composition, load};
use crate::export::unusable;
use crate::front::Front;
use crate::key::Key;
use crate::permissions::Permissions;
use crate::status::Failure;
use crate::stop::StopSignals;
use crate::terminal;

/// `dormouse mcp`
///
/// Over standard input and output, until the input ends; with --http, until it is stopped. What is
/// too large for a context comes back as a descriptor, which the client reads page by page. No
/// model is asked.
#[derive(Debug, Args)]
pub(crate) struct Mcp {
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
    /// Serve over HTTP at this address. The first line of output is the URL, the second a client's
    /// configuration with the token, which is drawn anew at each start; requests without it are
    /// refused. Without an address: any free port of this machine, for this machine alone.
    #[arg(long, value_name = "ADDRESS:PORT", num_args = 0..=1, require_equals = true, default_missing_value = "127.0.0.1:0")]
    pub(crate) http: Option<SocketAddr>,
    /// Serve web pages of these origins too, not only those of this machine:
    /// https://app.example:443.
    #[arg(long, value_name = "ORIGIN,…", value_delimiter = ',', requires = "http", value_parser = origin)]
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
    #[arg(long, value_name = "AGE", default_value = "1h", value_parser = crate::gc::age, requires = "http")]
    pub(crate) idle: u64,
    /// Keep descriptors in this folder, and continue with them at the next start. All sessions
    /// share them.
    #[arg(long, value_name = "DIR")]
    pub(crate) store: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) key: Key,
    #[command(flatten)]
    pub(crate) permissions: Permissions,
}

/// With a store, contents beyond so many bytes are read from it.
const RESIDENT_BYTES: u64 = 256 << 20;

/// A token that can be guessed protects nothing.
const LEAST_TOKEN_CHARS: usize = 16;

/// Serves until the input ends, or a signal stops the program. The commands of its tools end with
/// it.
pub(crate) async fn mcp(args: Mcp) -> Result<ExitCode, Failure> {
    let over = args
        .http
        .map(|address| Ok::<_, Failure>((address, http(address, &args)?)))
        .transpose()?;
    let front = front(&args)?;
    let composition =
        Composition::of(args.store.as_deref(), &args.key).permissions(&args.permissions);
    let implied = front
        .as_ref()
        .map_or_else(host::Permissions::none, Front::permissions);
    let composition = composition.implied(
        args.token_env
            .iter()
            .fold(implied, host::Permissions::withhold_env),
    );
    let kernel = composition
        .builder()?
        .resident_bytes_limit(RESIDENT_BYTES)
        .build()
        .await?;
    let program = match (&front, &args.program) {
        (Some(front), _) => front.program(&kernel, &args)?,
        (None, Some(program)) => load(&kernel, program)?,
        (None, None) => {
            return Err(Failure::Usage(
                "name a program, --config FILE, or -- COMMAND".to_owned(),
            ));
        }
    };
    let keeping = if args.store.is_some() {
        Keeping::Kept
    } else {
        Keeping::PerSession
    };
    let server = McpServer::new(kernel.clone(), program, keeping);
    let mut stop = StopSignals::listen()?;
    let mut code = None;
    let stopped = async { code = Some(stop.next().await) };
    let served = match over {
        None => over_pipe(&server, stopped).await,
        Some((address, http)) => over_http(&server, address, http, stopped).await,
    };
    server.end().await;
    kernel.shutdown().await;
    match (served, code) {
        (Err(failure), _) => Err(failure),
        // A read of standard input cannot be given up: the task that waits for it goes down with
        // the program.
        (Ok(()), Some(code)) => std::process::exit(code.into()),
        (Ok(()), None) => Ok(ExitCode::SUCCESS),
    }
}

/// The servers that the command line names, if it names no program.
fn front(args: &Mcp) -> Result<Option<Front>, Failure> {
    if let Some(path) = &args.config {
        let text = std::fs::read_to_string(path).map_err(|error| unusable(path, &error))?;
        let front = Front::parse(text)
            .map_err(|why| Failure::Usage(format!("{}: {why}", path.display())))?;
        return Ok(Some(front));
    }
    let Some((command, arguments)) = args.server.split_first() else {
        return Ok(None);
    };
    let command = if command.contains('/') {
        std::path::absolute(command)?
    } else {
        command.into()
    };
    Front::command(&command, arguments)
        .map(Some)
        .map_err(Failure::Usage)
}

#[expect(
    clippy::disallowed_methods,
    reason = "what goes there is the protocol, to its last byte"
)]
async fn over_pipe(server: &McpServer, stopped: impl Future<Output = ()>) -> Result<(), Failure> {
    Ok(server
        .serve_pipe(tokio::io::stdin(), tokio::io::stdout(), stopped)
        .await?)
}

/// How to serve over HTTP.
struct Http {
    settings: HttpSettings,
    /// The secret of a token that was drawn for this start, to be printed for clients.
    drawn_secret: Option<String>,
}

async fn over_http(
    server: &McpServer,
    address: SocketAddr,
    Http {
        settings,
        drawn_secret,
    }: Http,
    stopped: impl Future<Output = ()>,
) -> Result<(), Failure> {
    let listening = async {
        let listener = TcpListener::bind(address).await?;
        let at = listener.local_addr()?;
        Ok((listener, at))
    };
    let cannot =
        |error: std::io::Error| Failure::Usage(format!("nothing can listen at {address}: {error}"));
    let (listener, at) = listening.await.map_err(cannot)?;
    let url = format!("http://{at}/mcp");
    let mut out = terminal::stdout();
    writeln!(out, "{url}")?;
    if let Some(secret) = drawn_secret {
        writeln!(out, "{}", terminal::json(&client_entry(&url, &secret)))?;
    }
    out.flush()?;
    Ok(server.serve_http(listener, settings, stopped).await?)
}

/// A client's configuration, in the form that most clients of this protocol use.
fn client_entry(url: &str, secret: &str) -> Value {
    let headers = json!({ "Authorization": format!("Bearer {secret}") });
    json!({ "mcpServers": { "dormouse": { "url": url, "headers": headers } } })
}

fn http(address: SocketAddr, args: &Mcp) -> Result<Http, Failure> {
    if !address.ip().is_loopback() && !args.allow_remote {
        return Err(Failure::Usage(format!(
            "{address} can be reached from other machines. Say so with --allow-remote and \
             --token-env NAME, or serve at 127.0.0.1"
        )));
    }
    let hosts = if args.allow_remote {
        Hosts::Any
    } else {
        Hosts::Loopback
    };
    let (token, drawn_secret) = match &args.token_env {
        Some(name) => (Some(token(name)?), None),
        None if args.no_token => (None, None),
        None => {
            let drawn = Token::draw()
                .map_err(|error| Failure::Run(format!("no token can be drawn: {error}")));
            let (token, secret) = drawn?;
            (Some(token), Some(secret))
        }
    };
    let (max_sessions, idle) = (
        usize::from(args.max_sessions),
        Duration::from_millis(args.idle),
    );
    let settings = HttpSettings {
        hosts,
        origins: args.allow_origin.clone(),
        token,
        max_sessions,
        idle,
    };
    Ok(Http {
        settings,
        drawn_secret,
    })
}

/// An origin as browsers write it.
///
/// # Errors
/// Where it is none.
fn origin(text: &str) -> Result<String, String> {
    let text = text.trim_end_matches('/').to_ascii_lowercase();
    let place = ["http://", "https://"]
        .iter()
        .find_map(|scheme| text.strip_prefix(scheme));
    match place
        .is_some_and(|place| !place.is_empty() && !place.contains(['/', '?', '#', '@', '*', ' ']))
    {
        true => Ok(text),
        false => Err(
            "an origin is http:// or https://, a machine, and its port where that is not 80 or 443"
                .to_owned(),
        ),
    }
}

fn token(name: &str) -> Result<Token, Failure> {
    let secret = std::env::var(name)
        .map_err(|_| Failure::Usage(format!("{name} holds no token: set it, as text")))?;
    if secret.chars().count() < LEAST_TOKEN_CHARS {
        return Err(Failure::Usage(format!(
            "the token in {name} is too short: {LEAST_TOKEN_CHARS} characters at least. `openssl \
             rand -hex 32` makes one"
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
