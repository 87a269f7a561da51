//! `[mcp]`: which tool servers there are, and `[tools.mcp]`: which of their tools a model may call.
//!
//! Servers stand in the program, or in a file of their own as other clients keep it (`mcpServers`,
//! JSON). Both are read into the same [`Server`]. No remark shows a value: it may be a secret.

use toml::de::DeValue;

use super::amount::read_amount;
use super::reader::{Node, Reader};
use super::tools::{MOST_TOOLS, ToolEntry, entries};
use super::{At, Remark, parse_duration_ms};
use crate::command::CommandLimits;
use crate::server::{DEFAULT_CONNECT_MS, Server, ServerCommand, ServerValue, Transport};
use crate::tool::ToolPolicy;

/// The most servers of one program.
const MOST_SERVERS: usize = 64;
/// The most variables or headers of one server.
const MOST_VALUES: usize = 256;
/// Accepted for `type`: what each kind of transport is called.
pub(super) const TYPES: [(&str, Kind); 5] = [
    ("stdio", Kind::Stdio),
    ("http", Kind::Http),
    ("streamable-http", Kind::Http),
    ("streamable_http", Kind::Http),
    ("streamableHttp", Kind::Http),
];

/// What `type` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Stdio,
    Http,
}

/// `[mcp]` as written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct McpSection {
    /// A file that names servers.
    pub config_path: Option<At<String>>,
    /// `[mcp.servers.NAME]`, in the order written.
    pub servers: Vec<At<Server>>,
}

/// An entry of `[tools.mcp]`: what is used of one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerTools {
    /// The server.
    pub server: At<String>,
    /// Its tools.
    pub selection: ServerSelection,
    /// What the names of its tools begin with, where that is not `SERVER__`; may be empty.
    pub prefix: Option<At<String>>,
}

/// Which tools of a server are used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerSelection {
    /// All that it offers when a process is born.
    All,
    /// These.
    Named(Vec<ToolEntry>),
}

pub(super) fn read(root: &mut Reader<'_>) -> McpSection {
    let Some(mut section) = root.section("mcp") else {
        return McpSection::default();
    };
    let config_path = section.text("config_path");
    let servers = servers(&mut section);
    section.finish();
    McpSection {
        config_path,
        servers,
    }
}

fn servers(section: &mut Reader<'_>) -> Vec<At<Server>> {
    let Some(node) = section.get("servers") else {
        return Vec::new();
    };
    let count = node.get_ref().as_table().map_or(0, |table| table.len());
    if !section.is_within("servers", node, count, MOST_SERVERS) {
        return Vec::new();
    }
    let Some(mut table) = section.section("servers") else {
        return Vec::new();
    };
    let mut servers = Vec::new();
    for (name, node) in table.entries() {
        match node.get_ref() {
            DeValue::Table(inner) => {
                let reader = table.inner(&name.value, inner, name.span.clone());
                servers.extend(server(&name, reader).map(|value| At {
                    value,
                    span: name.span,
                }));
            }
            _ => table.wrong_type(&name.value, node, "a table with `command` or `url`"),
        }
    }
    servers
}

fn server(name: &At<String>, mut section: Reader<'_>) -> Option<Server> {
    let kind = section.word("type", &TYPES).map(|kind| kind.value);
    let (command, url) = (section.text("command"), section.text("url"));
    let args = section
        .texts("args")
        .into_iter()
        .map(|argument| argument.value)
        .collect();
    let (env, headers) = (values(&mut section, "env"), values(&mut section, "headers"));
    let cwd = section.text("cwd").map(|cwd| cwd.value);
    let optional = section.flag("optional").is_some_and(|flag| flag.value);
    let connect_ms = read_amount(&mut section, "connect_timeout", parse_duration_ms, 1_000);
    let deadline_ms = read_amount(&mut section, "deadline", parse_duration_ms, 1_000);
    let text = |text: Option<At<String>>| text.map(|text| text.value);
    let transport = transport(kind, (text(command), args, env, cwd), (text(url), headers));
    let transport = transport.map_err(|why| {
        let message = format!("the server `{}` {why}", super::shorten(&name.value));
        section.remark(Remark::error(name.span.clone(), message, "this server").help(VALID));
    });
    section.finish();
    Some(Server {
        optional,
        ..named(&name.value, transport.ok()?, connect_ms, deadline_ms)
    })
}

/// What a server is declared by.
pub(super) const VALID: &str = "a server is a program (command = \"…\", args, env, cwd) or a \
machine (url = \"http://…\", headers)";

/// A server that must be there.
pub(super) fn named(
    name: &str,
    transport: Transport,
    connect_ms: Option<u64>,
    deadline_ms: Option<u64>,
) -> Server {
    Server {
        name: name.into(),
        transport,
        optional: false,
        connect_ms: connect_ms.unwrap_or(DEFAULT_CONNECT_MS),
        deadline_ms: deadline_ms.unwrap_or(ToolPolicy::default().deadline_ms),
    }
}

type Program = (
    Option<String>,
    Vec<String>,
    Vec<(String, ServerValue)>,
    Option<String>,
);
type Machine = (Option<String>, Vec<(String, ServerValue)>);

/// How a server is reached that is declared so.
pub(super) fn transport(
    kind: Option<Kind>,
    (command, args, env, cwd): Program,
    (url, headers): Machine,
) -> Result<Transport, &'static str> {
    match (kind, command, url) {
        (_, Some(_), Some(_)) => Err("has both a command and a url"),
        (Some(Kind::Stdio) | None, Some(program), None) if !program.trim().is_empty() => {
            Ok(Transport::Stdio(ServerCommand {
                program,
                args,
                env,
                cwd,
                limits: CommandLimits::default(),
            }))
        }
        (Some(Kind::Http) | None, None, Some(url)) => {
            match url.starts_with("http://") || url.starts_with("https://") {
                true => Ok(Transport::Http { url, headers }),
                false => Err("has a url that is neither http nor https"),
            }
        }
        (Some(Kind::Stdio), None, _) => Err("is of type stdio and has no command"),
        (Some(Kind::Http), _, None) => Err("is of type http and has no url"),
        (_, Some(_), None) => Err("has an empty command"),
        (None, None, None) => Err("has neither a command nor a url"),
    }
}

/// A table of texts, which are not shown.
fn values(section: &mut Reader<'_>, key: &'static str) -> Vec<(String, ServerValue)> {
    let Some(node) = section.get(key) else {
        return Vec::new();
    };
    let count = node.get_ref().as_table().map_or(0, |table| table.len());
    if !section.is_within(key, node, count, MOST_VALUES) {
        return Vec::new();
    }
    let Some(mut table) = section.section(key) else {
        return Vec::new();
    };
    let mut values = Vec::new();
    for (name, node) in table.entries() {
        let text = table.as_text(&name.value, node);
        values.extend(text.map(|text| (name.value, ServerValue::new(text.value))));
    }
    values
}

/// `[tools.mcp]`.
pub(super) fn read_selections(tools: &mut Reader<'_>) -> Vec<ServerTools> {
    let Some(mut section) = tools.section("mcp") else {
        return Vec::new();
    };
    let mut selected = Vec::new();
    for (server, node) in section.entries() {
        match node.get_ref() {
            DeValue::Table(table) => {
                let mut inner = section.inner(&server.value, table, node.span());
                let prefix = inner.text("prefix");
                let selection = match inner.get("tools") {
                    Some(tools) => selection(&mut inner, "tools", tools),
                    None => Some(ServerSelection::All),
                };
                inner.finish();
                selected.extend(selection.map(|selection| ServerTools {
                    server,
                    selection,
                    prefix,
                }));
            }
            _ => {
                let selection = selection(&mut section, &server.value, node);
                selected.extend(selection.map(|selection| ServerTools {
                    server,
                    selection,
                    prefix: None,
                }));
            }
        }
    }
    selected
}

fn selection(section: &mut Reader<'_>, key: &str, node: Node<'_>) -> Option<ServerSelection> {
    match node.get_ref() {
        DeValue::String(word) if *word == "all" => Some(ServerSelection::All),
        DeValue::Array(list) if section.is_within(key, node, list.len(), MOST_TOOLS) => {
            Some(ServerSelection::Named(entries(section, key, list)))
        }
        DeValue::Array(_) => None,
        _ => {
            section.wrong_type(
                key,
                node,
                "\"all\", a list of tools, or a table of `tools` and `prefix`",
            );
            None
        }
    }
}
