//! `dormouse mcp`: the tools of a program, and those that read descriptors, for any client of the Model Context Protocol.
//!
//! Over standard output goes the protocol and nothing else. With `--http`, it is the URL, and behind it, where a token was drawn, what
//! a client has to be configured with: one line each.

use std::io::Write;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use dormouse::host::Permissions;
use dormouse_mcp_server::{Hosts, HttpSettings, Keeping, McpServer, ServeError, Token};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::args::Mcp;
use crate::compose::{Composition, load};
use crate::export::unusable;
use crate::front::Front;
use crate::status::Failure;
use crate::stop::StopSignals;
use crate::terminal;

/// With a store, contents beyond so many bytes are read from it.
const RESIDENT_BYTES: u64 = 256 << 20;

/// A token that can be guessed protects nothing.
const LEAST_TOKEN_CHARS: usize = 16;

/// Serves until the input ends, or the program is told to stop. What its tools run ends with it.
pub(crate) async fn mcp(args: Mcp) -> Result<ExitCode, Failure> {
    let http = args.http.map(|address| Ok::<_, Failure>((address, door(address, &args)?))).transpose()?;
    let front = front(&args)?;
    let composition = Composition::of(args.store.as_deref(), &args.key).permissions(&args.permissions);
    let implied = front.as_ref().map_or_else(Permissions::none, Front::permissions);
    let composition = composition.implied(args.token_env.iter().fold(implied, Permissions::withhold_env));
    let kernel = composition.builder()?.resident_bytes_limit(RESIDENT_BYTES).build().await?;
    let program = match (&front, &args.program) {
        (Some(front), _) => front.program(&kernel, &args)?,
        (None, Some(program)) => load(&kernel, program)?,
        (None, None) => return Err(Failure::Usage("name a program, --config FILE, or -- COMMAND".to_owned())),
    };
    let keeping = if args.store.is_some() { Keeping::Kept } else { Keeping::PerSession };
    let server = McpServer::new(kernel.clone(), program, keeping);
    let mut stop = StopSignals::listen()?;
    let mut code = None;
    let stopped = async { code = Some(stop.next().await) };
    let served = match http {
        None => over_pipe(&server, stopped).await,
        Some((address, door)) => over_http(&server, address, door, stopped).await,
    };
    server.end().await;
    kernel.shutdown().await;
    match (served, code) {
        (Err(failure), _) => Err(failure),
        // A read of standard input cannot be given up: the task that waits for it goes down with the program.
        (Ok(()), Some(code)) => std::process::exit(code.into()),
        (Ok(()), None) => Ok(ExitCode::SUCCESS),
    }
}

/// The servers that the command line names, if it names no program.
fn front(args: &Mcp) -> Result<Option<Front>, Failure> {
    if let Some(path) = &args.config {
        let text = std::fs::read_to_string(path).map_err(|error| unusable(path, &error))?;
        let front = Front::parse(text).map_err(|why| Failure::Usage(format!("{}: {why}", path.display())))?;
        return Ok(Some(front));
    }
    let Some((command, arguments)) = args.server.split_first() else { return Ok(None) };
    let command = if command.contains('/') { std::path::absolute(command)? } else { command.into() };
    Front::command(&command, arguments).map(Some).map_err(Failure::Usage)
}

#[expect(clippy::disallowed_methods, reason = "what goes there is the protocol, to its last byte")]
async fn over_pipe(server: &McpServer, stopped: impl Future<Output = ()>) -> Result<(), Failure> {
    Ok(server.serve_pipe(tokio::io::stdin(), tokio::io::stdout(), stopped).await?)
}

/// Who is let in.
struct Door {
    settings: HttpSettings,
    /// The token that was drawn, if one was: clients have to be told.
    drawn: Option<String>,
}

async fn over_http(
    server: &McpServer,
    address: SocketAddr,
    Door { settings, drawn }: Door,
    stopped: impl Future<Output = ()>,
) -> Result<(), Failure> {
    let listening = async {
        let listener = TcpListener::bind(address).await?;
        let at = listener.local_addr()?;
        Ok((listener, at))
    };
    let cannot = |error: std::io::Error| Failure::Usage(format!("nothing can listen at {address}: {error}"));
    let (listener, at) = listening.await.map_err(cannot)?;
    let url = format!("http://{at}/mcp");
    let mut out = terminal::stdout();
    writeln!(out, "{url}")?;
    if let Some(secret) = drawn {
        writeln!(out, "{}", terminal::json(&client_entry(&url, &secret)))?;
    }
    out.flush()?;
    Ok(server.serve_http(listener, settings, stopped).await?)
}

/// What a client is configured with, in the words that clients of this protocol keep.
fn client_entry(url: &str, secret: &str) -> Value {
    let headers = json!({ "Authorization": format!("Bearer {secret}") });
    json!({ "mcpServers": { "dormouse": { "url": url, "headers": headers } } })
}

fn door(address: SocketAddr, args: &Mcp) -> Result<Door, Failure> {
    if !address.ip().is_loopback() && !args.allow_remote {
        return Err(Failure::Usage(format!(
            "{address} can be reached from other machines. Say so with --allow-remote and --token-env NAME, or serve at \
             127.0.0.1"
        )));
    }
    let hosts = if args.allow_remote { Hosts::Any } else { Hosts::Loopback };
    let (token, drawn) = match &args.token_env {
        Some(name) => (Some(token(name)?), None),
        None if args.no_token => (None, None),
        None => {
            let drawn = Token::draw().map_err(|error| Failure::Run(format!("no token can be drawn: {error}")))?;
            (Some(drawn.0), Some(drawn.1))
        }
    };
    let (max_sessions, idle) = (usize::from(args.max_sessions), Duration::from_millis(args.idle));
    let settings = HttpSettings { hosts, origins: args.allow_origin.clone(), token, max_sessions, idle };
    Ok(Door { settings, drawn })
}

/// An origin as browsers write it.
///
/// # Errors
/// Where it is none.
pub(crate) fn origin(text: &str) -> Result<String, String> {
    let text = text.trim_end_matches('/').to_ascii_lowercase();
    let place = ["http://", "https://"].iter().find_map(|scheme| text.strip_prefix(scheme));
    match place.is_some_and(|place| !place.is_empty() && !place.contains(['/', '?', '#', '@', '*', ' '])) {
        true => Ok(text),
        false => {
            Err("an origin is http:// or https://, a machine, and its port where that is not 80 or 443".to_owned())
        }
    }
}

fn token(name: &str) -> Result<Token, Failure> {
    let secret = std::env::var(name).map_err(|_| Failure::Usage(format!("{name} holds no token: set it, as text")))?;
    if secret.chars().count() < LEAST_TOKEN_CHARS {
        return Err(Failure::Usage(format!(
            "the token in {name} is too short: {LEAST_TOKEN_CHARS} characters at least. `openssl rand -hex 32` makes one"
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
