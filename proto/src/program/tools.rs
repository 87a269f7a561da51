//! The table `[tools]`: the tools that a model may call.
//!
//! `program.rs` says what `Section`, `Value` and `Reader` are.

use serde_json::{Map, Value as Json};

use super::{
    AskEntry, CommandSection, Duration, EffectsSection, MAX_LONG_DURATION_MS, Named, Node, Reader,
    Rules, Section, SelectedMcpTools, Span, Value, WithSpan,
};
use crate::tool::Access;

/// The most tools that a program may enable, and the most that it may declare.
pub(super) const MAX_TOOLS: usize = 256;

/// `[tools]` as written.
#[derive(Clone, Debug, PartialEq, Eq, Section)]
pub struct ToolsSection {
    /// The built-in tools, tools of the host and commands of this program that the model may call.
    /// Each is a name, or a table that changes how the tool is presented. A declared command need
    /// not be listed.
    #[key(alias = "builtin", max_items = MAX_TOOLS)]
    pub enabled: Vec<ToolEntry>,
    /// The calls of the model that a person has to approve before they begin: `"write"` for every
    /// tool that needs write access or more (also `"read"`, `"admin"`), the name of a tool, or a
    /// table of `tool` and `when`. The host and its tools are not asked about. A child has the
    /// rules of its own program.
    #[key(max_items = MAX_TOOLS)]
    pub ask: Vec<AskEntry>,
    /// The time after which a call that nobody has approved or answered is refused. If it is not
    /// given, such a call waits without limit.
    #[key(name = "ask_expires", with = Duration, range = 1..=MAX_LONG_DURATION_MS)]
    pub ask_expires_ms: Option<u64>,
    /// What happens to calls that repeat an effect beyond a point that the process went back to, by
    /// a branch, a restore or `goto`: a policy, or a table of `policy` and `tool`.
    pub effects: EffectsSection,
    /// Limits of single tools: `[tools.limits.NAME]`, by the name of the tool.
    #[key(max_items = MAX_TOOLS)]
    pub limits: Vec<Named<ToolLimits>>,
    /// Programs of the host as tools. They are started without a shell, and the user has to permit
    /// each program.
    #[key(name = "command", max_items = MAX_TOOLS)]
    pub commands: Vec<CommandSection>,
    /// The tools of servers, by the name of the server: `"all"`, a list of tools, or a table of
    /// `tools` and `prefix`.
    #[key(name = "mcp")]
    pub tool_servers: Vec<Named<SelectedMcpTools>>,
    /// Tools that the provider of the model runs itself, such as a web search. Each table is sent
    /// as it is, in the provider's own words: `type = "web_search_20250305", name = "web_search"`
    /// (anthropic), `type = "web_search"` (openai), `google_search = {}` (gemini). A fallback at
    /// another provider is asked without them.
    #[key(name = "server", max_items = MAX_TOOLS)]
    pub provider_tools: Vec<WithSpan<ServerTool>>,
}

/// `[tools.limits.NAME]`: limits of one tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Section)]
#[section(expected = "a table of `max_calls`")]
pub struct ToolLimits {
    /// The most calls of the tool that the model of one process may make, over all turns. A further
    /// one is answered with an error, and does not begin. Calls that never began do not count, and
    /// no return to an earlier point takes a count back.
    #[key(range = 1..=1_000_000_000)]
    pub max_calls: Option<u32>,
}

/// A tool that the provider runs, in the provider's syntax.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerTool(pub Map<String, Json>);

impl Value for ServerTool {
    const EXPECTED: &'static str = "a table: `[[tools.server]]`";
    const LIST: &'static str = "a list of tables: `[[tools.server]]`";

    fn read(table: &mut Reader<'_>, key: &str, node: Node<'_>, rules: &Rules) -> Option<Self> {
        if node.get_ref().as_table().is_none() {
            table.report_wrong_type(key, node, rules.expected::<Self>());
            return None;
        }
        Map::read(table, key, node, rules).map(Self)
    }

    fn schema(rules: &Rules) -> Json {
        <Map<String, Json>>::schema(rules)
    }
}

/// An entry of `enabled`: a name, or a table.
#[derive(Clone, Debug, PartialEq, Eq, Section)]
#[section(
    shorthand = name,
    check = ToolEntry::drop_unnamed,
    expected = "a tool's name, or a table with `name`",
    list = "a list of tools"
)]
pub struct ToolEntry {
    /// The name of the tool.
    #[key(required)]
    pub name: WithSpan<String>,
    /// The name that the model calls the tool by, in place of its own: 1 to 64 of A-Z, a-z, 0-9, _
    /// and -.
    pub alias: Option<WithSpan<String>>,
    /// The description for the model, in place of the tool's own.
    pub description: Option<String>,
    /// The access that a process needs to call the tool, in place of the tool's own.
    pub access: Option<Access>,
    /// Descriptions of parameters, by the name of the parameter, in place of the tool's own.
    #[key(name = "param_descriptions")]
    pub parameters: Vec<Named<String>>,
    /// Whether the provider has to make the arguments valid against the tool's schema (anthropic,
    /// openai, openai-chat).
    pub strict: Option<WithSpan<bool>>,
    /// The format of the text that the tool takes, such as a grammar, in the provider's syntax
    /// (openai, openai-chat): `{ type = "grammar", syntax = "lark", definition = "…" }`. The tool's
    /// only parameter is the string `input`.
    pub input_format: Option<WithSpan<Map<String, Json>>>,
    /// Further fields of the tool in requests, in the provider's syntax, such as
    /// `defer_loading = true`.
    pub provider_fields: Map<String, Json>,
    /// The place of the whole entry.
    #[key(span)]
    pub span: Span,
}

impl ToolEntry {
    /// Drops an entry without a name, which was reported.
    fn drop_unnamed(self, _: &mut super::Reader<'_>) -> Option<Self> {
        (!self.name.value.is_empty()).then_some(self)
    }
}
