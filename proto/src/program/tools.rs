//! The table `[tools]`: the tools that a model may call.

use super::{CommandSection, Named, Section, ServerTools, Span, WithSpan};
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
    /// Programs of the host as tools. They are started without a shell, and the user has to permit
    /// each program.
    #[key(name = "command", max_items = MAX_TOOLS)]
    pub commands: Vec<CommandSection>,
    /// The tools of servers, by the name of the server: `"all"`, a list of tools, or a table of
    /// `tools` and `prefix`.
    #[key(name = "mcp")]
    pub served: Vec<Named<ServerTools>>,
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
