//! `dormouse mcp --http`: the listener, the token of its clients, and what is printed for them.

use std::io::Write;
use std::net::SocketAddr;
use std::time::Duration;

use dormouse_mcp_server::{Hosts, HttpSettings, McpServer, Token};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use super::Mcp;
use crate::failure::Failure;
use crate::terminal;

/// A shorter token could be guessed.
const MIN_TOKEN_CHARS: usize = 16;

/// How clients are admitted over HTTP.
pub(super) struct HttpSetup {
    settings: HttpSettings,
    /// The secret of a token that was generated for this start, to be printed for clients.
    generated_secret: Option<String>,
}

/// Prints the URL and the configuration for a client, and serves until `stopped` resolves.
pub(super) async fn serve_http(
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

/// Checks the flags that decide who is admitted.
pub(super) fn http_setup(address: SocketAddr, args: &Mcp) -> Result<HttpSetup, Failure> {
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
pub(crate) fn parse_origin(text: &str) -> anyhow::Result<String> {
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
