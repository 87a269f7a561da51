//! The tool servers that the command line of `dormouse mcp` names.
//!
//! `dormouse mcp` builds two things of them: a program whose tools are those of the servers, and
//! the permissions that the user implied by naming the servers.

use std::collections::BTreeMap;
use std::path::Path;

use dormouse::Kernel;
use dormouse::host::{Permissions, ServerEnvironment, parse_env_file};
use dormouse::program::{Program, bundle_name, parse_servers};
use dormouse::server::{Server, ServerCommand, ServerValue, Transport};
use dormouse_mcp_server::{FileExport, ProxiedTools, ProxySettings, proxy_program};
use serde_json::{Value, json};

use crate::failure::{Failure, file_failure};
use crate::mcp::Mcp;
use crate::terminal;

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
    pub(crate) fn parse(declaration: &str) -> anyhow::Result<Self> {
        let declared = parse_servers(declaration)?;
        if declared.servers.is_empty() {
            let unsupported = declared.unsupported.first();
            let why = unsupported.map_or("it names no server that is enabled", |one| &one.advice);
            anyhow::bail!("{why}");
        }
        for server in declared.unsupported {
            terminal::print_stderr(&format!("warning: {}", server.advice));
        }
        Ok(Self {
            declaration: declaration.to_owned(),
            servers: declared.servers,
            environment: ServerEnvironment::Declared,
        })
    }

    /// One server, named by the command that starts it. It gets the whole environment of this
    /// program, as it would if the user started it in a shell.
    ///
    /// # Errors
    /// What is wrong with the command.
    pub(crate) fn from_command(
        command: &Path,
        arguments: &[String],
        defaults: &ServerDefaults,
    ) -> anyhow::Result<Self> {
        let server =
            json!({ "mcpServers": { "server": { "command": command, "args": arguments } } });
        Ok(Self {
            environment: ServerEnvironment::All,
            ..Self::parse(&defaults.apply_to(server.to_string()))?
        })
    }

    /// The permissions that the servers need: to run their commands, to connect to their machines,
    /// and to read the variables that their entries use. Their commands run unconfined, as they
    /// would if the user started them in a shell.
    pub(crate) fn permissions(&self) -> Permissions {
        let mut permissions = Permissions::none().server_environment(self.environment);
        for server in &self.servers {
            let values = match &server.transport {
                Transport::Stdio(ServerCommand {
                    program,
                    args,
                    env,
                    env_file,
                    ..
                }) => {
                    let program = permission_name(program);
                    for variable in args.iter().flat_map(ServerValue::variables) {
                        permissions = permissions.allow_env(variable);
                    }
                    if let Some(file) = env_file {
                        permissions = permit_env_file(permissions, Path::new(file));
                    }
                    permissions = permissions.allow_run(&program).allow_unconfined(&program);
                    // An unconfined program gets only variables that are permitted by name.
                    for (name, _) in env {
                        permissions = permissions.allow_env(name);
                    }
                    env
                }
                Transport::Http { url, headers, .. } => {
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

    /// The files of certificates that the servers name. Relative paths start in the working
    /// directory.
    fn ca_files(&self) -> impl Iterator<Item = &str> {
        self.servers
            .iter()
            .filter_map(|server| match &server.transport {
                Transport::Http { ca_file, .. } => Some(ca_file.as_ref()?.path.as_str()),
                Transport::Stdio(_) => None,
            })
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
            descriptor_tools: args.descriptor_tools.into(),
        };
        let names = self
            .servers
            .iter()
            .map(|server| server.name.to_string())
            .collect();
        let proxied = ProxiedTools {
            tools: Vec::new(),
            servers: Some((SERVERS_FILE.to_owned(), names)),
        };
        let program = proxy_program(settings, &proxied);
        let mut sources = BTreeMap::from([
            (PROGRAM_FILE.to_owned(), program.into()),
            (SERVERS_FILE.to_owned(), self.declaration.clone().into()),
        ]);
        for path in self.ca_files() {
            let pem = std::fs::read(path).map_err(|error| file_failure(Path::new(path), &error))?;
            let name = bundle_name(PROGRAM_FILE, path).unwrap_or_else(|| path.to_owned());
            sources.insert(name, pem.into());
        }
        let compiled = kernel
            .compile(PROGRAM_FILE, &sources)
            .map_err(|errors| Failure::Program(errors.errors().to_vec()))?;
        Ok(compiled.program)
    }
}

/// Permits to read a file of variables, and each of its variables. A file that cannot be read is an
/// error when the server is started.
fn permit_env_file(permissions: Permissions, file: &Path) -> Permissions {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let folder = file.parent().filter(|folder| *folder != Path::new(""));
    parse_env_file(&text).into_iter().fold(
        permissions.allow_read(folder.unwrap_or(Path::new("."))),
        |permissions, (name, _)| permissions.allow_env(name),
    )
}

/// What the command line says of all servers.
pub(crate) struct ServerDefaults {
    /// Keys for entries that do not have them, with their values.
    keys: Vec<(&'static str, String)>,
    /// The ids of the inputs (`${input:ID}`), each with the environment variable that has its
    /// value.
    inputs: Vec<(String, String)>,
}

impl ServerDefaults {
    pub(crate) fn of(args: &Mcp) -> Self {
        let keys = [
            ("deadline", args.deadline),
            ("max_duration", args.max_duration),
        ];
        let keys = keys
            .into_iter()
            .filter_map(|(key, ms)| Some((key, format!("{}ms", ms?))));
        Self {
            keys: keys.collect(),
            inputs: args.input.clone(),
        }
    }

    /// The declaration with these defaults. Of several servers, each is optional unless its entry
    /// says otherwise. A declaration that is not valid stays as it is.
    pub(crate) fn apply_to(&self, mut declaration: String) -> String {
        for (id, variable) in &self.inputs {
            let input = format!("${{input:{id}}}");
            declaration = declaration.replace(&input, &format!("${{env:{variable}}}"));
        }
        let Ok(mut parsed) = serde_json::from_str::<Value>(&declaration) else {
            return declaration;
        };
        for servers in ["mcpServers", "servers"] {
            let Some(servers) = parsed.get_mut(servers).and_then(Value::as_object_mut) else {
                continue;
            };
            // Without its only server, a proxy has nothing to serve.
            let has_several = servers.len() > 1;
            for entry in servers.values_mut().filter_map(Value::as_object_mut) {
                if has_several {
                    entry.entry("optional").or_insert(Value::Bool(true));
                }
                for (key, value) in &self.keys {
                    entry.entry(*key).or_insert_with(|| value.as_str().into());
                }
            }
        }
        parsed.to_string()
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
