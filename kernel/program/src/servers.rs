//! Checks the tool servers of a program: that they are declared, and that the names that
//! the program gives to their tools are unique.
//!
//! `[mcp.servers]`, or the JSON file that `config_path` of `[mcp]` names, declares servers.
//! `[tools.mcp]` says which of them the program uses, and which of their tools.
//!
//! The tools that a server offers are not known at compile time: they are listed when a process is
//! created.

use std::sync::Arc;

use dormouse_proto::command::CommandLimits;
use dormouse_proto::program::{
    DeclaredServers, Diagnostic, Diagnostics, McpSection, Named, SelectedMcpTools, ServerSelection,
    ToolEntry, UnsupportedServer, WithSpan, listed, parse_servers, shorten, suggestion,
};
use dormouse_proto::server::{CaFile, Server, Transport};

use super::ca_file;
use super::compile::Compilation;
use super::kernel_tool::{self, KernelTool};
use super::tools::{EnabledTool, VALID_NAME, is_tool_name, replace_invalid_chars};

/// The longest prefix of tool names, in bytes. It leaves room for the tool's own name.
const MAX_PREFIX_BYTES: usize = 32;

/// The longest name of a tool, in bytes.
const MAX_NAME_BYTES: usize = 64;
/// The longest number at the end of a name, with its `_`.
const MAX_NUMBER_BYTES: usize = 11;

/// A tool server that a program uses, with the selected tools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnabledServer {
    /// The server.
    pub server: Arc<Server>,
    /// Its tools.
    pub served: ServedTools,
    /// The prefix of its tools' names, unless the program renames a tool; may be empty.
    pub prefix: String,
}

/// The tools of a server that a process is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServedTools {
    /// All that the server offers when the process is created.
    All,
    /// These, by their names at the server.
    Named(Vec<EnabledTool>),
}

impl ServedTools {
    /// The tools that the program names.
    #[must_use]
    pub fn named(&self) -> &[EnabledTool] {
        match self {
            Self::All => &[],
            Self::Named(tools) => tools,
        }
    }
}

impl EnabledServer {
    /// Whether a tool of the server may have this name. If the program lists the tools, their names
    /// are known, except that the name of another tool may be in the way: then a tool gets the name
    /// of its server as a prefix, and a number if that is taken as well.
    pub(super) fn may_provide(&self, name: &str) -> bool {
        let ServedTools::Named(tools) = &self.served else {
            return name.starts_with(&self.prefix);
        };
        let may_be_called = |tool: &str| {
            let short = replace_invalid_chars(&format!("{}{tool}", self.prefix));
            let qualified = replace_invalid_chars(&format!("{}__{tool}", self.server.name));
            is_cut_from(name, &short)
                || is_cut_from(name, &qualified)
                || name.rsplit_once('_').is_some_and(|(start, number)| {
                    number.parse::<u32>().is_ok() && is_cut_from(start, &qualified)
                })
        };
        tools.iter().any(|tool| match &tool.alias {
            Some(alias) => alias == name,
            None => may_be_called(&tool.name),
        })
    }
}

/// Whether a name is this one, or its beginning: a name that is too long for a tool is cut off, and
/// leaves room for a number.
fn is_cut_from(name: &str, whole: &str) -> bool {
    let is_cut = name.len() >= MAX_NAME_BYTES - MAX_NUMBER_BYTES && whole.starts_with(name);
    name == whole || is_cut
}

/// The servers that are used, in the order written.
pub(super) fn check(
    section: McpSection,
    used: &[Named<SelectedMcpTools>],
    limits: CommandLimits,
    tools: &[EnabledTool],
    compilation: &mut Compilation<'_>,
) -> Vec<EnabledServer> {
    let (declared, unsupported) = declared_servers(section, used, limits, compilation);
    let kernel = compilation.kernel;
    let mut aliases: Vec<&str> = tools.iter().map(EnabledTool::called).collect();
    let mut enabled = Vec::new();
    for Named { name, value: tools } in used {
        let diagnostics = &mut compilation.diagnostics;
        let prefix = match &tools.prefix {
            Some(prefix) => check_prefix(prefix, diagnostics),
            None => format!("{}__", name.value),
        };
        let served = match &tools.selection {
            ServerSelection::All => ServedTools::All,
            ServerSelection::Named(entries) => {
                ServedTools::Named(check_tools(entries, &mut aliases, kernel, diagnostics))
            }
        };
        match declared.iter().find(|server| *server.name == *name.value) {
            Some(server) => enabled.push(EnabledServer {
                server: with_ca_file(server, name, compilation),
                served,
                prefix,
            }),
            None => compilation.diagnostics.push(
                unsupported_error(name, &unsupported)
                    .unwrap_or_else(|| undeclared_error(name, &declared)),
            ),
        }
    }
    enabled
}

/// The server with the text of its `ca_file`, if it names one. `name` is where the program uses it.
fn with_ca_file(
    server: &Arc<Server>,
    name: &WithSpan<String>,
    compilation: &mut Compilation<'_>,
) -> Arc<Server> {
    let mut server = Arc::clone(server);
    if let Transport::Http {
        ca_file: Some(CaFile { path, .. }),
        ..
    } = &server.transport
    {
        let path = WithSpan {
            value: path.clone(),
            span: name.span.clone(),
        };
        let read = ca_file::read(&path, compilation);
        if let Transport::Http { ca_file, .. } = &mut Arc::make_mut(&mut server).transport {
            *ca_file = read;
        }
    }
    server
}

/// Returns the prefix. An invalid prefix is also reported.
fn check_prefix(prefix: &WithSpan<String>, diagnostics: &mut Diagnostics) -> String {
    let WithSpan { value, .. } = prefix;
    if !value.is_empty() && (value.len() > MAX_PREFIX_BYTES || !is_tool_name(value)) {
        let invalid = prefix.error("the prefix is not valid", "not a valid prefix");
        let help = format!("valid: up to {MAX_PREFIX_BYTES} of A-Z, a-z, 0-9, _ and -, or nothing");
        diagnostics.push(invalid.help(help));
    }
    value.clone()
}

/// The servers of the file that `config_path` names, and those of the program, which replace
/// servers of the same name. A server that runs as a command is subject to the limits of the
/// program that declares it. Also returns the servers that are not supported.
fn declared_servers(
    section: McpSection,
    used: &[Named<SelectedMcpTools>],
    limits: CommandLimits,
    compilation: &mut Compilation<'_>,
) -> (Vec<Arc<Server>>, Vec<UnsupportedServer>) {
    let DeclaredServers {
        servers: mut declared,
        unsupported,
    } = match &section.config_path {
        Some(path) => read_servers_file(path, compilation),
        None => DeclaredServers::default(),
    };
    for Named {
        name,
        value: server,
    } in section.servers
    {
        if !used.iter().any(|used| used.name.value == name.value) {
            let shown = shorten(&name.value);
            let message = format!("no tool of the server `{shown}` is used");
            let warning = Diagnostic::warning(name.span, message, "has no effect");
            let help = format!("choose its tools: [tools.mcp] {shown} = \"all\"");
            compilation.diagnostics.push(warning.help(help));
        }
        declared.retain(|known| known.name != server.name);
        declared.push(server);
    }
    for server in &mut declared {
        if let Transport::Stdio(command) = &mut server.transport {
            command.limits = limits;
        }
    }
    (declared.into_iter().map(Arc::new).collect(), unsupported)
}

fn read_servers_file(
    path: &WithSpan<String>,
    compilation: &mut Compilation<'_>,
) -> DeclaredServers {
    let Some((name, text)) = compilation.read_named_text(path) else {
        return DeclaredServers::default();
    };
    parse_servers(&text).unwrap_or_else(|error| {
        let message = format!("the servers of `{name}` cannot be read: {error}");
        compilation
            .diagnostics
            .push(path.error(message, "named here"));
        DeclaredServers::default()
    })
}

/// The error for the use of a server that is not supported; `None` for any other server.
fn unsupported_error(
    name: &WithSpan<String>,
    unsupported: &[UnsupportedServer],
) -> Option<Diagnostic> {
    let server = unsupported
        .iter()
        .find(|server| server.name == *name.value)?;
    let message = format!("the tool server `{}` cannot be used", shorten(&name.value));
    let error = name.error(message, "not supported");
    Some(error.help(server.advice.clone()))
}

/// The listed tools. Reports repeated tools, and aliases that are invalid or taken.
fn check_tools<'a>(
    entries: &'a [ToolEntry],
    used_names: &mut Vec<&'a str>,
    kernel: &[KernelTool],
    diagnostics: &mut Diagnostics,
) -> Vec<EnabledTool> {
    let mut enabled: Vec<EnabledTool> = Vec::new();
    for entry in entries {
        let name = &entry.name.value;
        if enabled.iter().any(|tool| tool.name == *name) {
            let message = format!("`{}` is listed twice", shorten(name));
            let duplicate = Diagnostic::error(entry.span.clone(), message, "and again here");
            diagnostics.push(duplicate.help("keep one of them"));
            continue;
        }
        if let Some(written) = &entry.alias {
            let alias = written.value.as_str();
            if !is_tool_name(alias) {
                let invalid = written.error("the alias is not valid", "this alias");
                diagnostics.push(invalid.help(VALID_NAME));
            } else if used_names.contains(&alias) || kernel_tool::find(kernel, alias).is_some() {
                let message = format!("the alias `{alias}` is the name of another tool");
                let help = "choose a name that no tool has";
                diagnostics.push(written.error(message, "this alias").help(help));
            }
            used_names.push(alias);
        }
        enabled.push(EnabledTool::from_entry(entry));
    }
    enabled
}

fn undeclared_error(name: &WithSpan<String>, declared: &[Arc<Server>]) -> Diagnostic {
    let known: Vec<&str> = declared.iter().map(|server| &*server.name).collect();
    let list = format!("declared servers: {}", listed(&known));
    let shown = shorten(&name.value);
    let help = suggestion(&name.value, &known, &list).unwrap_or_else(|| {
        format!(
            "declare it: [mcp.servers.{shown}] command = \"…\" (or url = \"…\"), or in the file \
             that [mcp] config_path names; {list}"
        )
    });
    let message = format!("the tool server `{shown}` is not declared");
    name.error(message, "not declared").help(help)
}
