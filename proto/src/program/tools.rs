//! `[tools]`: what a model may call.

use toml::de::{DeArray, DeValue};

use super::command::{self, CommandSection};
use super::mcp::{self, ServerTools};
use super::reader::{Node, Reader};
use super::{At, Span};
use crate::tool::Access;

/// The most tools that a program may enable, and the most that it may declare.
pub(super) const MOST_TOOLS: usize = 256;

/// The words for levels of access.
pub(super) const ACCESS: [(&str, Access); 3] = [
    ("read", Access::Read),
    ("write", Access::Write),
    ("admin", Access::Admin),
];

/// An entry of `enabled`: a name, or a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolEntry {
    /// The tool.
    pub name: At<String>,
    /// The name that the model calls it by, if not its own.
    pub alias: Option<At<String>>,
    /// What the model is told of it, if not the tool's own description.
    pub description: Option<String>,
    /// What a process must be allowed to do to call it, if not what the tool says.
    pub access: Option<Access>,
    /// What the model is told of its parameters, if not the tool's own descriptions; in the order
    /// written.
    pub parameters: Vec<DescribedParameter>,
    /// The place of the whole entry.
    pub span: Span,
}

/// An entry of `param_descriptions`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribedParameter {
    /// The parameter.
    pub name: At<String>,
    /// What the model is told of it.
    pub description: String,
}

/// `[tools]` as written.
#[derive(Default)]
pub(super) struct ToolsSection {
    pub(super) enabled: Vec<ToolEntry>,
    pub(super) commands: Vec<CommandSection>,
    pub(super) served: Vec<ServerTools>,
}

pub(super) fn read(root: &mut Reader<'_>) -> ToolsSection {
    let Some(mut section) = root.section("tools") else {
        return ToolsSection::default();
    };
    let key = section.either("enabled", "builtin");
    let enabled = enabled(&mut section, key);
    let commands = commands(&mut section);
    let served = mcp::read_selections(&mut section);
    section.finish();
    ToolsSection {
        enabled,
        commands,
        served,
    }
}

fn enabled(section: &mut Reader<'_>, key: &'static str) -> Vec<ToolEntry> {
    let Some(node) = section.get(key) else {
        return Vec::new();
    };
    match node.get_ref() {
        DeValue::Array(list) if section.is_within(key, node, list.len(), MOST_TOOLS) => {
            entries(section, key, list)
        }
        DeValue::Array(_) => Vec::new(),
        _ => {
            section.wrong_type(key, node, "a list of tools");
            Vec::new()
        }
    }
}

/// The entries of a list of tools that is the value of `key`.
pub(super) fn entries(section: &mut Reader<'_>, key: &str, list: &DeArray<'_>) -> Vec<ToolEntry> {
    list.iter()
        .filter_map(|item| entry(section, key, item))
        .collect()
}

fn entry(section: &mut Reader<'_>, key: &str, node: Node<'_>) -> Option<ToolEntry> {
    let span = node.span();
    match node.get_ref() {
        DeValue::String(name) => {
            let name = At {
                value: name.to_string(),
                span: span.clone(),
            };
            Some(ToolEntry {
                name,
                alias: None,
                description: None,
                access: None,
                parameters: Vec::new(),
                span,
            })
        }
        DeValue::Table(table) => {
            let mut tool = section.inner(key, table, span.clone());
            let entry = ToolEntry {
                name: tool.required_text("name"),
                alias: tool.text("alias"),
                description: tool.text("description").map(|text| text.value),
                access: tool.word("access", &ACCESS).map(|access| access.value),
                parameters: described(&mut tool),
                span,
            };
            tool.finish();
            (!entry.name.value.is_empty()).then_some(entry)
        }
        _ => {
            section.wrong_type(key, node, "a tool's name, or a table with `name`");
            None
        }
    }
}

fn described(tool: &mut Reader<'_>) -> Vec<DescribedParameter> {
    let Some(mut section) = tool.section("param_descriptions") else {
        return Vec::new();
    };
    let mut described = Vec::new();
    for (name, node) in section.entries() {
        let text = section.as_text(&name.value, node);
        described.extend(text.map(|text| DescribedParameter {
            name,
            description: text.value,
        }));
    }
    described
}

fn commands(section: &mut Reader<'_>) -> Vec<CommandSection> {
    let Some(node) = section.get("command") else {
        return Vec::new();
    };
    let Some(list) = node.get_ref().as_array() else {
        section.wrong_type("command", node, "a list of tables: `[[tools.command]]`");
        return Vec::new();
    };
    let mut commands = Vec::new();
    if !section.is_within("command", node, list.len(), MOST_TOOLS) {
        return commands;
    }
    for item in list.iter() {
        match item.get_ref() {
            DeValue::Table(table) => {
                commands.push(command::read(section.inner("command", table, item.span())))
            }
            _ => section.wrong_type("command", item, "a table: `[[tools.command]]`"),
        }
    }
    commands
}
