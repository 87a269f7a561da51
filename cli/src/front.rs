//! What `dormouse mcp` makes of servers that the command line names: a program whose tools are
//! theirs, and the permissions that naming them implies.

use std::collections::BTreeMap;
use std::path::Path;

use dormouse::Kernel;
use dormouse::host::{Permissions, ServerEnvironment};
use dormouse::program::{Program, parse_servers};
use dormouse::server::{Server, ServerCommand, Transport};
use dormouse_mcp_server::{Files, ProxySettings, Upstream, proxy_program};
use serde_json::json;

use crate::mcp::Mcp;
use crate::status::Failure;

/// The names of the two files that the program is made of.
const PROGRAM: &str = "servers.toml";
const SERVERS: &str = "servers.json";

/// Servers to stand in front of.
pub(crate) struct Front {
    text: String,
    servers: Vec<Server>,
    environment: ServerEnvironment,
}

impl Front {
    /// Takes them from text, as other clients keep it: such servers know what their entries say.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn parse(text: String) -> Result<Self, String> {
        let servers = parse_servers(&text)?;
        match servers.is_empty() {
            true => Err("it names no server that is enabled".to_owned()),
            false => Ok(Self {
                text,
                servers,
                environment: ServerEnvironment::Declared,
            }),
        }
    }

    /// One server, by the command that the user would start it with: it knows what such a command
    /// knows.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn command(command: &Path, arguments: &[String]) -> Result<Self, String> {
        let server =
            json!({ "mcpServers": { "server": { "command": command, "args": arguments } } });
        Ok(Self {
            environment: ServerEnvironment::All,
            ..Self::parse(server.to_string())?
        })
    }

    /// What the servers need to be reached: their commands, machines and variables, which the user
    /// named with them. Their commands run as the user would run them, unconfined.
    pub(crate) fn permissions(&self) -> Permissions {
        let told = Permissions::none().server_environment(self.environment);
        self.servers
            .iter()
            .fold(told, |given, server| match &server.transport {
                Transport::Stdio(ServerCommand { program, env, .. }) => {
                    let variables = env.iter().flat_map(|(_, value)| value.variables());
                    let given = given
                        .allow_run(named(program))
                        .allow_unconfined(named(program));
                    variables.fold(given, Permissions::allow_env)
                }
                Transport::Http { url, headers } => {
                    let variables = headers.iter().flat_map(|(_, value)| value.variables());
                    let given = machine(url).into_iter().fold(given, Permissions::allow_net);
                    variables.fold(given, Permissions::allow_env)
                }
            })
    }

    /// The program whose tools are those of the servers.
    pub(crate) fn program(&self, kernel: &Kernel, args: &Mcp) -> Result<Program, Failure> {
        let files = if args.permissions.allow_write.is_empty() {
            Files::Untouched
        } else {
            Files::Written
        };
        let settings = ProxySettings {
            threshold_chars: args.threshold,
            page_chars: args.page_size,
            files,
        };
        let names = self
            .servers
            .iter()
            .map(|server| server.name.to_string())
            .collect();
        let upstream = Upstream {
            tools: Vec::new(),
            servers: Some((SERVERS.to_owned(), names)),
        };
        let files = BTreeMap::from([
            (
                PROGRAM.to_owned(),
                proxy_program(settings, &upstream).into(),
            ),
            (SERVERS.to_owned(), self.text.clone().into()),
        ]);
        let compiled = kernel.compile(PROGRAM, &files);
        Ok(compiled
            .map_err(|errors| Failure::Program(errors.errors().to_vec()))?
            .program)
    }
}

/// A command as a permission names it: one by a path is permitted by its full path.
fn named(program: &str) -> String {
    let full = program
        .contains('/')
        .then(|| std::path::absolute(program).ok())
        .flatten();
    full.map_or_else(
        || program.to_owned(),
        |path| path.to_string_lossy().into_owned(),
    )
}

/// The machine of an address, with its port where one is written.
fn machine(url: &str) -> Option<String> {
    let rest = url.split_once("://")?.1;
    let authority = rest.split(['/', '?', '#']).next()?;
    let place = authority.rsplit('@').next()?;
    (!place.is_empty()).then(|| place.to_owned())
}
