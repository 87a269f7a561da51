//! Lists the commands, addresses, files and variables that a program uses outside the kernel, so
//! that a user can decide whether to run it.
//!
//! The list is derived from the program's files alone. This module does not check whether a
//! requirement is permitted or exists on this machine.

use dormouse_proto::command::{Command, CommandLimits};
use dormouse_proto::program::EnvironmentChoice;
use dormouse_proto::server::{CaFile, Server, ServerCommand, ServerValue, Transport};
use dormouse_proto::tool::Access;
use url::Url;

use super::library::Program;
use super::model_choice::ModelChoice;

/// The tools of the kernel and of the host that use files of the host.
const FILE_TOOLS: [(&str, FileUse); 3] = [
    ("fd_to_file", FileUse::Write),
    ("read_file", FileUse::Read),
    ("list_dir", FileUse::Read),
];

/// The longest value of a variable that is listed, in characters. Longer values are left out.
const MAX_VALUE_CHARS: usize = 80;

/// A resource that a program needs from the machine that runs it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Requirement {
    /// The program, by its file name in the bundle.
    pub program: String,
    /// The part of the program that needs the resource.
    pub needed_by: NeededBy,
    /// The resource.
    pub resource: Resource,
}

/// The part of a program that needs a resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NeededBy {
    /// The model of this name.
    Model(String),
    /// The declared command of this name, which processes with this access may call.
    Command(String, Access),
    /// The tool of this name, which uses files.
    Tool(String),
    /// The tool server of this name.
    Server(String),
    /// The `[env_info]` that a process is given at its birth.
    Environment,
}

/// A resource of the machine, another machine, or a setting of what is started.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    /// A program to start: its name or path, and its arguments as declared.
    Command(Vec<String>),
    /// A machine to connect to.
    Address {
        /// The address without user name, password and query, which may be secret.
        url: String,
        /// The machine and the port, if the address is valid.
        endpoint: Option<(String, u16)>,
    },
    /// An environment variable to read, by name.
    Variable(String),
    /// The certificate authorities that a connection trusts, by their file in the bundle.
    Authorities(String),
    /// Files, in the permitted folders.
    Files(FileUse),
    /// A variable that is set for a server.
    SetVariable {
        /// Its name.
        name: String,
        /// Its value, if that is short and holds no variable of the host.
        value: Option<String>,
    },
    /// The working directory of a server, as declared.
    Folder(String),
    /// The limits of a command or server, if the program changes them.
    Limits(CommandLimits),
}

/// How files are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileUse {
    /// Files are read, or folders listed.
    Read,
    /// Files are written.
    Write,
}

impl Program {
    /// The requirements of this program and of all programs that it links, directly or not; each
    /// once, in the order of the files. A provider without a `base_url` is not listed, since it
    /// needs no permission. Preloaded files are not listed: the files of `[preload]` are part of
    /// the bundle, and a model names others only when it calls `spawn`.
    #[must_use]
    pub fn requirements(&self) -> Vec<Requirement> {
        let mut all = Vec::new();
        for program in self.reachable_programs() {
            for (needed_by, resource) in program.own_requirements() {
                let requirement = Requirement {
                    program: program.key().to_owned(),
                    needed_by,
                    resource,
                };
                if !all.contains(&requirement) {
                    all.push(requirement);
                }
            }
        }
        all
    }

    /// This program and all programs that it links, directly or not.
    fn reachable_programs(&self) -> Vec<Self> {
        let mut found = vec![self.clone()];
        let mut next = 0;
        while let Some(program) = found.get(next).cloned() {
            for (_, _, linked) in program.linked() {
                if !found.contains(&linked) {
                    found.push(linked);
                }
            }
            next += 1;
        }
        found
    }

    fn own_requirements(&self) -> Vec<(NeededBy, Resource)> {
        let models = self.models().iter().flat_map(model_requirements);
        let commands = self.commands().iter().flat_map(command_requirements);
        let servers = self
            .servers()
            .iter()
            .flat_map(|choice| server_requirements(&choice.server));
        let environment = environment_requirements(self.environment());
        models
            .chain(commands)
            .chain(servers)
            .chain(self.file_tools())
            .chain(environment)
            .collect()
    }

    /// The enabled built-in tools that use files. A declared command of the same name replaces such
    /// a tool.
    fn file_tools(&self) -> impl Iterator<Item = (NeededBy, Resource)> {
        let is_enabled = |name: &str| self.tools().iter().any(|tool| tool.name == name);
        let is_replaced = |name: &str| self.commands().iter().any(|command| command.name == name);
        let enabled = FILE_TOOLS
            .iter()
            .filter(move |(name, _)| is_enabled(name) && !is_replaced(name));
        enabled.map(|(name, file_use)| {
            (
                NeededBy::Tool((*name).to_owned()),
                Resource::Files(*file_use),
            )
        })
    }
}

fn command_requirements(command: &Command) -> impl Iterator<Item = (NeededBy, Resource)> {
    let variables = command.env.iter().cloned().map(Resource::Variable);
    let needed_by = NeededBy::Command(command.name.clone(), command.policy.access);
    let resources = std::iter::once(Resource::Command(command.argv.clone()))
        .chain(variables)
        .chain(changed_limits(command.limits));
    resources.map(move |resource| (needed_by.clone(), resource))
}

fn environment_requirements(
    environment: &EnvironmentChoice,
) -> impl Iterator<Item = (NeededBy, Resource)> {
    let commands = environment
        .commands
        .iter()
        .filter_map(|command| command.argv.clone())
        .map(Resource::Command);
    let variables = environment
        .env_vars
        .iter()
        .map(|variable| Resource::Variable(variable.name.clone()));
    commands
        .chain(variables)
        .map(|resource| (NeededBy::Environment, resource))
}

fn model_requirements(model: &ModelChoice) -> impl Iterator<Item = (NeededBy, Resource)> {
    let address = model.base_url.as_deref().map(parse_address);
    let key = model.api_key_env.clone().map(Resource::Variable);
    let authorities = model.ca_file.iter().map(authorities);
    let needed_by = NeededBy::Model(model.name.clone());
    let header_variables = model
        .headers
        .iter()
        .flat_map(|(_, value)| value.variables())
        .map(Resource::Variable);
    address
        .into_iter()
        .chain(key)
        .chain(header_variables)
        .chain(authorities)
        .map(move |resource| (needed_by.clone(), resource))
}

fn server_requirements(server: &Server) -> impl Iterator<Item = (NeededBy, Resource)> {
    let (target, values, settings) = match &server.transport {
        Transport::Stdio(command) => {
            let arguments = command
                .args
                .iter()
                .map(|argument| argument.written().to_owned());
            let argv = std::iter::once(command.program.clone()).chain(arguments);
            (
                Resource::Command(argv.collect()),
                &command.env,
                server_settings(command),
            )
        }
        Transport::Http {
            url,
            headers,
            ca_file,
        } => (
            parse_address(url),
            headers,
            ca_file.iter().map(authorities).collect(),
        ),
    };
    let variables: Vec<_> = values
        .iter()
        .map(|(_, value)| value)
        .chain(server_arguments(server))
        .flat_map(ServerValue::variables)
        .collect();
    let needed_by = NeededBy::Server(server.name.to_string());
    let resources = std::iter::once(target)
        .chain(variables.into_iter().map(Resource::Variable))
        .chain(settings);
    resources.map(move |resource| (needed_by.clone(), resource))
}

fn authorities(file: &CaFile) -> Resource {
    Resource::Authorities(file.path.clone())
}

/// The arguments of a server that is started as a command.
fn server_arguments(server: &Server) -> &[ServerValue] {
    match &server.transport {
        Transport::Stdio(command) => &command.args,
        Transport::Http { .. } => &[],
    }
}

/// The variables, the folder and the limits with which a server is started as a command.
fn server_settings(command: &ServerCommand) -> Vec<Resource> {
    let is_short = |value: &&str| value.chars().nth(MAX_VALUE_CHARS).is_none();
    let variables = command
        .env
        .iter()
        .map(|(name, value)| Resource::SetVariable {
            name: name.clone(),
            value: value.literal().filter(is_short).map(str::to_owned),
        });
    let file = command.env_file.as_ref();
    variables
        .chain(file.map(|_| Resource::Files(FileUse::Read)))
        .chain(command.cwd.clone().map(Resource::Folder))
        .chain(changed_limits(command.limits))
        .collect()
}

fn changed_limits(limits: CommandLimits) -> Option<Resource> {
    (limits != CommandLimits::default()).then_some(Resource::Limits(limits))
}

/// An address, parsed as the kernel's HTTP clients parse it.
fn parse_address(written: &str) -> Resource {
    // `user:secret@host` without a scheme is parsed as an address of the scheme `user`.
    let parsed = Url::parse(written.trim()).ok();
    let Some(mut url) = parsed.filter(|url| !url.cannot_be_a_base()) else {
        return Resource::Address {
            url: without_secrets(written),
            endpoint: None,
        };
    };
    let endpoint = url
        .host_str()
        .map(str::to_owned)
        .zip(url.port_or_known_default());
    // These fail only for addresses that cannot have a user name or password.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.set_query(None);
    url.set_fragment(None);
    Resource::Address {
        url: url.to_string(),
        endpoint,
    }
}

/// An address that cannot be parsed, without what may be its user name, password or query.
fn without_secrets(written: &str) -> String {
    let head = written.split(['?', '#']).next().unwrap_or_default();
    let query = &written[head.len()..];
    // A query may contain an `@`, and a password a `?` or `#`.
    let whole = match query.contains('@') && ends_in_password(head) {
        true => written,
        false => head,
    };
    let (before, rest) = whole.rsplit_once('@').unwrap_or(("", whole));
    let shown = rest.split(['?', '#']).next().unwrap_or_default();
    let is_scheme = |text: &&str| {
        let mut chars = text.chars();
        chars.all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
    };
    let scheme = before.split_once("://").map(|(scheme, _)| scheme);
    match scheme.filter(is_scheme) {
        Some(scheme) => format!("{scheme}://{shown}"),
        None => shown.to_owned(),
    }
}

/// Whether the beginning of an address, up to a `?` or `#`, may end within a password: no `@` follows
/// its user name, and what follows its colon is no port.
fn ends_in_password(head: &str) -> bool {
    let rest = head.split_once("://").map_or(head, |(_, rest)| rest);
    let authority = rest.split(['/', '\\']).next().unwrap_or_default();
    let after_colon = authority.rsplit_once(':').map(|(_, after)| after);
    !head.contains('@')
        && after_colon.is_some_and(|after| !after.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests;
