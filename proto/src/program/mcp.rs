//! The tables `[mcp]`, which declares the tool servers of a program, and `[tools.mcp]`, which
//! selects the tools of these servers that the model may call.
//!
//! Servers are declared in the program, or in a separate JSON file in the format of other MCP
//! clients (`mcpServers`, parsed by `mcp_file.rs`). Both are parsed into the same [`Server`]. No
//! diagnostic shows a value, since it may be a secret. `program.rs` says what `Section`, `Value`
//! and `Reader` are.

use serde_json::{Value as Json, json};
use toml::de::DeValue;

use super::tools::{MAX_TOOLS, ToolEntry};
use super::{
    Diagnostic, Duration, Keyword, Named, Node, Reader, Rules, Section, Value, WithSpan, shorten,
};
use crate::command::CommandLimits;
use crate::server::{
    CaFile, DEFAULT_CONNECT_MS, DEFAULT_MAX_DURATION_MS, Server, ServerCommand, ServerValue,
    Transport,
};
use crate::tool::ToolPolicy;

/// The most variables or headers of one server.
const MAX_VALUES: usize = 256;
/// The help of a diagnostic about an invalid declaration of a server.
pub(super) const VALID_SERVER: &str = "a server is a program (command = \"…\", args, env, cwd) or a \
machine (url = \"http://…\", headers)";

/// `[mcp]` as written.
#[derive(Clone, Debug, PartialEq, Eq, Section)]
pub struct McpSection {
    /// A JSON file that names servers, as other clients keep it (`mcpServers`). A server of this
    /// program takes the place of one of the same name.
    pub config_path: Option<WithSpan<String>>,
    /// The servers, by the name that `[tools.mcp]` calls them by: programs that are started
    /// (`command`), or machines (`url`).
    #[key(with = Servers, max_items = 64)]
    pub servers: Vec<Named<Server>>,
}

/// `[mcp.servers.NAME]` as written.
#[derive(Section)]
#[section(expected = "a table with `command` or `url`")]
pub(super) struct ServerSection {
    /// How the server is reached; it otherwise follows from `command` or `url`.
    #[key(name = "type")]
    pub(super) kind: Option<TransportKind>,
    /// The program that is the server. The user has to permit it.
    pub(super) command: Option<String>,
    /// The address of the machine that is the server, `http://` or `https://`.
    pub(super) url: Option<String>,
    /// The arguments of the program. `${env:NAME}` and `${input:ID}` stand for variables of the
    /// host.
    pub(super) args: Vec<String>,
    /// Variables of the program's environment, beyond the few that every command gets. `${NAME}` in
    /// a value stands for a variable of the host, `${NAME:-other}` for `other` where it is not set.
    /// `${env:NAME}` is the same, and `${input:ID}` the variable `INPUT_ID`.
    #[key(max_items = MAX_VALUES)]
    pub(super) env: Vec<Named<String>>,
    /// Headers that every request carries. Variables of the host stand in them as in `env`.
    #[key(max_items = MAX_VALUES)]
    pub(super) headers: Vec<Named<String>>,
    /// The file with the certificates (PEM) of the authorities that may have issued the certificate
    /// of a `url`, in addition to those that every client trusts. A relative path starts in the
    /// folder of the program file.
    pub(super) ca_file: Option<String>,
    /// A file with further variables of the program's environment, a `NAME=value` in each line. The
    /// user has to permit reading it. `env` takes precedence.
    pub(super) env_file: Option<String>,
    /// The working directory of the program, if not the kernel's.
    pub(super) cwd: Option<String>,
    /// Whether a process starts without the tools of the server if the server cannot be reached;
    /// otherwise the process does not start.
    pub(super) optional: bool,
    /// The time after which a server that does not answer counts as unreachable.
    #[key(with = Duration, default = DEFAULT_CONNECT_MS)]
    pub(super) connect_timeout: u64,
    /// The time after which a call of a tool is abandoned, if the server neither answers nor
    /// reports progress.
    #[key(with = Duration, default = ToolPolicy::default().deadline_ms)]
    pub(super) deadline: u64,
    /// The time after which a call of a tool is abandoned, even if the server reports progress. At
    /// least `deadline`.
    #[key(with = Duration, default = DEFAULT_MAX_DURATION_MS)]
    pub(super) max_duration: u64,
    /// Whether all trees of processes use one connection to the server; otherwise each tree, such
    /// as a session of `dormouse mcp`, has its own. By default they share it in `dormouse run`, and
    /// do not in `dormouse mcp`.
    pub(super) shared: Option<bool>,
}

/// How a server is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Keyword)]
pub(super) enum TransportKind {
    /// A program.
    Stdio,
    /// A machine.
    #[word("http", "streamable-http", "streamable_http", "streamableHttp")]
    Http,
}

impl ServerSection {
    /// Builds the server of this declaration. The error is a phrase that follows the server's name.
    pub(super) fn build(self, name: &str) -> Result<Server, &'static str> {
        Ok(Server {
            name: name.into(),
            optional: self.optional,
            connect_ms: self.connect_timeout,
            deadline_ms: self.deadline,
            max_duration_ms: self.max_duration.max(self.deadline),
            shared: self.shared,
            transport: self.build_transport()?,
        })
    }

    fn build_transport(self) -> Result<Transport, &'static str> {
        if self.ca_file.is_some() && self.url.is_none() {
            return Err("has a ca_file, which is for a url");
        }
        match (self.kind, self.command, self.url) {
            (_, Some(_), Some(_)) => Err("has both a command and a url"),
            (Some(TransportKind::Stdio) | None, Some(program), None)
                if !program.trim().is_empty() =>
            {
                Ok(Transport::Stdio(ServerCommand {
                    program,
                    args: self.args.into_iter().map(ServerValue::argument).collect(),
                    env: to_server_values(self.env),
                    env_file: self.env_file,
                    cwd: self.cwd,
                    limits: CommandLimits::default(),
                }))
            }
            (Some(TransportKind::Http) | None, None, Some(url)) => {
                if !url.starts_with("http://") && !url.starts_with("https://") {
                    return Err("has a url that is neither http nor https");
                }
                let headers = to_server_values(self.headers);
                headers.iter().try_for_each(check_header)?;
                Ok(Transport::Http {
                    url,
                    headers,
                    ca_file: self.ca_file.map(CaFile::unread),
                })
            }
            (Some(TransportKind::Stdio), None, _) => Err("is of type stdio and has no command"),
            (Some(TransportKind::Http), _, None) => Err("is of type http and has no url"),
            (_, Some(_), None) => Err("has an empty command"),
            (None, None, None) => Err("has neither a command nor a url"),
        }
    }
}

/// Checks that a header can be sent. A value with variables is checked when it is filled in.
fn check_header((name, value): &(String, ServerValue)) -> Result<(), &'static str> {
    // A token, by RFC 9110.
    let is_name_char =
        |char: char| char.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(char);
    if name.is_empty() || !name.chars().all(is_name_char) {
        return Err("has a header with an invalid name: letters, digits, `-`, `_` and `.`");
    }
    let is_sendable = |value: &str| value.chars().all(|char| !char.is_ascii_control());
    match value.literal() {
        Some(value) if !is_sendable(value) => {
            Err("has a header whose value has a line end or another control character")
        }
        _ => Ok(()),
    }
}

fn to_server_values(written: Vec<Named<String>>) -> Vec<(String, ServerValue)> {
    let value = |Named { name, value }: Named<String>| (name.value, ServerValue::new(value));
    written.into_iter().map(value).collect()
}

/// The servers of a program. An invalid declaration is reported and left out.
struct Servers(Vec<Named<Server>>);

impl Value for Servers {
    const EXPECTED: &'static str = Vec::<Named<ServerSection>>::EXPECTED;

    fn read(table: &mut Reader<'_>, key: &str, node: Node<'_>, rules: &Rules) -> Option<Self> {
        let sections = Vec::<Named<ServerSection>>::read(table, key, node, rules)?;
        let mut servers = Vec::new();
        for Named { name, value } in sections {
            match value.build(&name.value) {
                Ok(value) => servers.push(Named { name, value }),
                Err(why) => {
                    let message = format!("the server `{}` {why}", shorten(&name.value));
                    let wrong = Diagnostic::error(name.span, message, "this server");
                    table.report(wrong.help(VALID_SERVER));
                }
            }
        }
        Some(Self(servers))
    }

    fn schema(rules: &Rules) -> Json {
        Vec::<Named<ServerSection>>::schema(rules)
    }
}

/// The tools of one server that a program uses: an entry of `[tools.mcp]`.
#[derive(Clone, Debug, PartialEq, Eq, Section)]
#[section(
    shorthand = selection,
    check = SelectedMcpTools::drop_invalid,
    expected = "\"all\", a list of tools, or a table of `tools` and `prefix`"
)]
pub struct SelectedMcpTools {
    /// The text that the names of its tools begin with, up to 32 characters; may be empty. If it is
    /// not given, it is the name of the server and `__`.
    pub prefix: Option<WithSpan<String>>,
    /// Which of its tools are used: `"all"` that it offers when a process is born, or a list as in
    /// `[tools] enabled`.
    #[key(name = "tools")]
    pub selection: ServerSelection,
}

impl SelectedMcpTools {
    /// Drops an entry whose selection is invalid, which was reported: it must not count as all
    /// tools.
    fn drop_invalid(self, table: &mut Reader<'_>) -> Option<Self> {
        let is_all = |tools: Node<'_>| tools.get_ref().as_str() == Some("all");
        let is_named = self.selection != ServerSelection::All;
        (is_named || table.node("tools").is_none_or(is_all)).then_some(self)
    }
}

/// The tools of a server that a program uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ServerSelection {
    /// All that it offers when a process is born.
    #[default]
    All,
    /// These.
    Named(Vec<ToolEntry>),
}

impl Value for ServerSelection {
    const EXPECTED: &'static str = "\"all\", a list of tools, or a table of `tools` and `prefix`";

    fn read(table: &mut Reader<'_>, key: &str, node: Node<'_>, rules: &Rules) -> Option<Self> {
        match node.get_ref() {
            DeValue::String(word) if *word == "all" => Some(Self::All),
            DeValue::Array(_) => Vec::read(table, key, node, &Self::entry_rules()).map(Self::Named),
            _ => {
                table.report_wrong_type(key, node, rules.expected::<Self>());
                None
            }
        }
    }

    fn schema(_rules: &Rules) -> Json {
        json!({ "anyOf": [{ "const": "all" }, Vec::<ToolEntry>::schema(&Self::entry_rules())] })
    }

    fn show(&self) -> Option<Json> {
        (*self == Self::All).then(|| json!("all"))
    }
}

impl ServerSelection {
    fn entry_rules() -> Rules {
        Rules {
            max_items: Some(MAX_TOOLS),
            ..Rules::ANY
        }
    }
}
