//! The tool servers that the command line of `dormouse mcp` names.
//!
//! `dormouse mcp` builds two things of them: a program whose tools are those of the servers, and
//! the permissions that the user implied by naming the servers.

use std::collections::BTreeMap;
use std::path::Path;

use dormouse::Kernel;
use dormouse::host::{Permissions, ServerEnvironment};
use dormouse::program::{Program, parse_servers};
use dormouse::server::{Server, ServerCommand, Transport};
use dormouse_mcp_server::{FileExport, ProxySettings, Upstream, proxy_program};
use serde_json::json;

use crate::failure::Failure;
use crate::mcp::Mcp;

/// The names of the two files that the program consists of. They exist in memory only.
const PROGRAM_FILE: &str = "servers.toml";
const SERVERS_FILE: &str = "servers.json";

/// Servers whose tools are served to clients.
pub(crate) struct ProxiedServers {
    /// The declaration of the servers: `{"mcpServers": {…}}`.
    declaration: String,
    servers: Vec<Server>,
    environment: ServerEnvironment,
}

impl ProxiedServers {
    /// The servers of a configuration file in the form that other clients use. The environment of
    /// such a server holds only the variables that its entry declares.
    ///
    /// # Errors
    /// What is wrong with the file.
    pub(crate) fn parse(declaration: String) -> anyhow::Result<Self> {
        let servers = parse_servers(&declaration)?;
        if servers.is_empty() {
            anyhow::bail!("it names no server that is enabled");
        }
        Ok(Self {
            declaration,
            servers,
            environment: ServerEnvironment::Declared,
        })
    }

    /// One server, named by the command that starts it. It gets the whole environment of this
    /// program, as it would if the user started it in a shell.
    ///
    /// # Errors
    /// What is wrong with the command.
    pub(crate) fn from_command(command: &Path, arguments: &[String]) -> anyhow::Result<Self> {
        let server =
            json!({ "mcpServers": { "server": { "command": command, "args": arguments } } });
        Ok(Self {
            environment: ServerEnvironment::All,
            ..Self::parse(server.to_string())?
        })
    }

    /// The permissions that the servers need: to run their commands, to connect to their machines,
    /// and to read the variables that their entries use. Their commands run unconfined, as they
    /// would if the user started them in a shell.
    pub(crate) fn permissions(&self) -> Permissions {
        let mut permissions = Permissions::none().server_environment(self.environment);
        for server in &self.servers {
            let values = match &server.transport {
                Transport::Stdio(ServerCommand { program, env, .. }) => {
                    let program = permission_name(program);
                    permissions = permissions.allow_run(&program).allow_unconfined(&program);
                    env
                }
                Transport::Http { url, headers } => {
                    if let Some(machine) = machine_of(url) {
                        permissions = permissions.allow_net(machine);
                    }
                    headers
                }
            };
            for (_, value) in values {
                for variable in value.variables() {
                    permissions = permissions.allow_env(variable);
                }
            }
        }
        permissions
    }

    /// The program whose tools are those of the servers.
    pub(crate) fn program(&self, kernel: &Kernel, args: &Mcp) -> Result<Program, Failure> {
        let files = if args.permissions.allow_write.is_empty() {
            FileExport::Disabled
        } else {
            FileExport::Enabled
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
            servers: Some((SERVERS_FILE.to_owned(), names)),
        };
        let program = proxy_program(settings, &upstream);
        let sources = BTreeMap::from([
            (PROGRAM_FILE.to_owned(), program.into()),
            (SERVERS_FILE.to_owned(), self.declaration.clone().into()),
        ]);
        let compiled = kernel
            .compile(PROGRAM_FILE, &sources)
            .map_err(|errors| Failure::Program(errors.errors().to_vec()))?;
        Ok(compiled.program)
    }
}

/// A command in the form that a permission needs: a path becomes absolute, a name stays a name.
fn permission_name(program: &str) -> String {
    if program.contains('/')
        && let Ok(path) = std::path::absolute(program)
    {
        return path.to_string_lossy().into_owned();
    }
    program.to_owned()
}

/// The machine of a URL, with the port if the URL names one.
fn machine_of(url: &str) -> Option<String> {
    let (_, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    // Credentials come before the machine.
    let machine = authority.rsplit('@').next()?;
    (!machine.is_empty()).then(|| machine.to_owned())
}
