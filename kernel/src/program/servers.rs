//! The tool servers of a program: that those it uses are declared, and that their tools have names
//! of their own.
//!
//! What a server offers is not known here: it is asked when a process is born.

use std::sync::Arc;

use dormouse_proto::command::CommandLimits;
use dormouse_proto::program::{
    At, Diagnostic, Diagnostics, McpSection, Named, ServerSelection, ServerTools, ToolEntry,
    nearest, parse_servers, shorten,
};
use dormouse_proto::server::{Server, Transport};

use super::compile::Reading;
use super::path;
use super::tools::{ToolChoice, VALID_NAME, is_tool_name};
use crate::syscall;

/// The longest beginning of names, in bytes: enough is left for what follows.
const LONGEST_PREFIX: usize = 32;

/// A tool server that a program uses, and what of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerChoice {
    /// The server.
    pub server: Arc<Server>,
    /// Its tools.
    pub served: Served,
    /// What the names of its tools begin with, where the program gives them no other; may be empty.
    pub prefix: String,
}

/// Which tools of a server a process is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Served {
    /// All that it offers when the process is born.
    All,
    /// These, by the names that the server calls them by.
    Named(Vec<ToolChoice>),
}

impl ServerChoice {
    /// Whether a tool of the server may be given under this name.
    pub(super) fn may_give(&self, name: &str) -> bool {
        let aliased = |choices: &[ToolChoice]| {
            choices
                .iter()
                .any(|choice| choice.alias.as_deref() == Some(name))
        };
        name.starts_with(&self.prefix)
            || matches!(&self.served, Served::Named(choices) if aliased(choices))
    }
}

/// The servers that are used, in the order written.
pub(super) fn check(
    key: &str,
    (section, used): (McpSection, Vec<Named<ServerTools>>),
    limits: CommandLimits,
    tools: &[ToolChoice],
    reading: &mut Reading<'_>,
    diagnostics: &mut Diagnostics,
) -> Vec<ServerChoice> {
    let declared = declared(key, section, &used, limits, reading, diagnostics);
    let mut aliases: Vec<&str> = tools.iter().map(ToolChoice::called).collect();
    let mut choices = Vec::new();
    for Named {
        name: At { value: name, span },
        value,
    } in &used
    {
        let prefix = value.prefix.as_ref().map_or_else(
            || format!("{name}__"),
            |prefix| checked(prefix, diagnostics),
        );
        let served = match &value.selection {
            ServerSelection::All => Served::All,
            ServerSelection::Named(entries) => {
                Served::Named(named(entries, &mut aliases, diagnostics))
            }
        };
        match declared.iter().find(|server| *server.name == **name) {
            Some(server) => choices.push(ServerChoice {
                server: server.clone(),
                served,
                prefix,
            }),
            None => {
                diagnostics.push(undeclared(name, &declared).label(span.clone(), "not declared"))
            }
        }
    }
    choices
}

fn checked(At { value, span }: &At<String>, diagnostics: &mut Diagnostics) -> String {
    if !value.is_empty() && (value.len() > LONGEST_PREFIX || !is_tool_name(value)) {
        let diagnostic =
            Diagnostic::error(span.clone(), "the prefix is not valid", "not such a prefix");
        let help = format!("valid: up to {LONGEST_PREFIX} of A-Z, a-z, 0-9, _ and -, or nothing");
        diagnostics.push(diagnostic.help(help));
    }
    value.clone()
}

/// A server that is a program is held to the limits of the program that declares it.
fn limited(mut server: Server, limits: CommandLimits) -> Server {
    if let Transport::Stdio(command) = &mut server.transport {
        command.limits = limits;
    }
    server
}

/// Those of the file, and those of the program, which take the place of others of their name.
fn declared(
    key: &str,
    McpSection {
        config_path,
        servers,
    }: McpSection,
    used: &[Named<ServerTools>],
    limits: CommandLimits,
    reading: &mut Reading<'_>,
    diagnostics: &mut Diagnostics,
) -> Vec<Arc<Server>> {
    let mut declared = Vec::new();
    if let Some(written) = config_path {
        let text = reading.named_text(path::beside(key, &written.value), &written);
        let servers = text.and_then(|(name, text)| {
            let wrong = |why| {
                let message = format!("the servers of `{name}` cannot be read: {why}");
                Diagnostic::error(written.span.clone(), message, "named here")
            };
            parse_servers(&text).map_err(wrong)
        });
        match servers {
            Ok(servers) => declared.extend(
                servers
                    .into_iter()
                    .map(|server| Arc::new(limited(server, limits))),
            ),
            Err(diagnostic) => diagnostics.push(diagnostic),
        }
    }
    for Named {
        name,
        value: server,
    } in servers
    {
        if !used.iter().any(|used| used.name.value == name.value) {
            let server_name = shorten(&server.name);
            let diagnostic = Diagnostic::warning(
                name.span,
                format!("no tool of the server `{server_name}` is used"),
                "has no effect",
            );
            diagnostics.push(diagnostic.help(format!(
                "choose its tools: [tools.mcp] {server_name} = \"all\""
            )));
        }
        declared.retain(|known: &Arc<Server>| known.name != server.name);
        declared.push(Arc::new(limited(server, limits)));
    }
    declared
}

fn named<'a>(
    entries: &'a [ToolEntry],
    taken: &mut Vec<&'a str>,
    diagnostics: &mut Diagnostics,
) -> Vec<ToolChoice> {
    let mut choices: Vec<ToolChoice> = Vec::new();
    for entry in entries {
        let name = &entry.name.value;
        if choices.iter().any(|choice| choice.name == *name) {
            let message = format!("`{}` is listed twice", shorten(name));
            diagnostics.push(
                Diagnostic::error(entry.span.clone(), message, "and again here")
                    .help("keep one of them"),
            );
            continue;
        }
        if let Some(At { value: alias, span }) = &entry.alias {
            let wrong = match alias.as_str() {
                alias if !is_tool_name(alias) => {
                    Some(("the alias is not valid".to_owned(), VALID_NAME))
                }
                alias if taken.contains(&alias) || syscall::tool(alias).is_some() => Some((
                    format!("the alias `{alias}` is the name of another tool"),
                    "choose a name that no tool has",
                )),
                _ => None,
            };
            taken.push(alias);
            if let Some((message, help)) = wrong {
                diagnostics.push(Diagnostic::error(span.clone(), message, "this alias").help(help));
            }
        }
        choices.push(ToolChoice::of(entry));
    }
    choices
}

fn undeclared(name: &str, declared: &[Arc<Server>]) -> Diagnostic {
    let known: Vec<&str> = declared.iter().map(|server| &*server.name).collect();
    let list = if known.is_empty() {
        "none".to_owned()
    } else {
        known.join(", ")
    };
    let help = match nearest(name, known) {
        Some(near) => format!("did you mean `{near}`? declared servers: {list}"),
        None => format!(
            "declare it: [mcp.servers.{}] command = \"…\" (or url = \"…\"), or in the file that \
             [mcp] config_path names; declared servers: {list}",
            shorten(name)
        ),
    };
    Diagnostic::general(format!(
        "the tool server `{}` is not declared",
        shorten(name)
    ))
    .help(help)
}
