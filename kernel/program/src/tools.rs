//! Checks the tools of a program and their names.
//!
//! The model calls each tool by one name, and no two tools have the same name.

use std::collections::BTreeMap;

use dormouse_proto::command::Command;
use dormouse_proto::program::{
    Diagnostic, Diagnostics, Named, Span, ToolEntry, WithSpan, shorten, suggestion,
};
use dormouse_proto::provider_tools::ToolForm;
use dormouse_proto::tool::Access;

use super::kernel_tool::{KernelTool, KnownTools};
use super::parameters;

/// The rule for valid names, for errors.
pub(super) const VALID_NAME: &str = "valid: 1 to 64 of A-Z, a-z, 0-9, _ and -";

/// Tools that a host may leave out. A program that enables one of them on a host without it gets a
/// warning and runs without the tool.
const OPTIONAL_HOST_TOOLS: [&str; 4] = ["calculator", "list_dir", "read_file", "write_stderr"];

/// A tool that a program uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnabledTool {
    /// The tool: built in, declared as a command, or registered by the host.
    pub name: String,
    /// The name for the model, if it differs from the tool's own.
    pub alias: Option<String>,
    /// The description for the model, if it differs from the tool's own.
    pub description: Option<String>,
    /// The access that a process needs to call it, if it differs from the tool's own.
    pub access: Option<Access>,
    /// The descriptions of parameters for the model that differ from the tool's own, in the order
    /// written.
    pub parameters: Vec<Named<String>>,
    /// How the tool is presented to the provider.
    pub form: ToolForm,
}

impl EnabledTool {
    /// A tool without changes.
    #[must_use]
    pub fn plain(name: String) -> Self {
        Self {
            name,
            alias: None,
            description: None,
            access: None,
            parameters: Vec::new(),
            form: ToolForm::default(),
        }
    }

    pub(super) fn from_entry(entry: &ToolEntry) -> Self {
        Self {
            name: entry.name.value.clone(),
            alias: entry.alias.as_ref().map(|alias| alias.value.clone()),
            description: entry.description.clone(),
            access: entry.access,
            parameters: entry.parameters.clone(),
            form: ToolForm {
                strict: entry.strict.as_ref().is_some_and(|strict| strict.value),
                strict_if_expressible: false,
                input_format: entry
                    .input_format
                    .as_ref()
                    .map(|format| format.value.clone()),
                fields: entry.provider_fields.clone(),
            },
        }
    }

    /// The name that the model calls it by.
    #[must_use]
    pub fn called(&self) -> &str {
        self.alias.as_deref().unwrap_or(&self.name)
    }
}

/// Whether a text can be the name of a tool or of a linked program.
pub fn is_tool_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

/// Replaces every character that providers do not accept in a tool name by `_`.
#[must_use]
pub fn replace_invalid_chars(name: &str) -> String {
    name.chars()
        .map(|c| match c {
            '_' | '-' => c,
            c if c.is_ascii_alphanumeric() => c,
            _ => '_',
        })
        .collect()
}

/// The tools in the order written, each once, followed by the commands that are not listed.
pub(super) fn check(
    written: &[ToolEntry],
    commands: &[Command],
    known: KnownTools<'_>,
    diagnostics: &mut Diagnostics,
) -> Vec<EnabledTool> {
    let declared = commands.iter().map(|command| command.name.as_str());
    let kernel_names = known.kernel.iter().map(|tool| tool.name);
    let names = kernel_names
        .chain(declared)
        .chain(known.host.iter().copied());
    let mut check = ToolCheck {
        known: names.collect(),
        commands,
        kernel: known.kernel,
        seen: BTreeMap::new(),
        aliases: BTreeMap::new(),
        list: Vec::new(),
        diagnostics,
    };
    for entry in written {
        check.add(entry);
    }
    let mut list = check.list;
    for command in commands {
        if !list.iter().any(|tool| tool.name == command.name) {
            list.push(EnabledTool::plain(command.name.clone()));
        }
    }
    list
}

/// The state of the check of a program's tools.
struct ToolCheck<'a> {
    /// The names of all tools that can be enabled.
    known: Vec<&'a str>,
    commands: &'a [Command],
    kernel: &'a [KernelTool],
    seen: BTreeMap<&'a str, &'a ToolEntry>,
    aliases: BTreeMap<&'a str, Span>,
    list: Vec<EnabledTool>,
    diagnostics: &'a mut Diagnostics,
}

impl<'a> ToolCheck<'a> {
    fn add(&mut self, entry: &'a ToolEntry) {
        let name = entry.name.value.as_str();
        if !self.known.contains(&name) {
            return self
                .diagnostics
                .push(unknown_tool(&entry.name, &self.known));
        }
        if let Some(first) = self.seen.insert(name, entry) {
            return self.diagnostics.push(repeated_tool(first, entry));
        }
        let alias = entry.alias.as_ref().filter(|alias| alias.value != name);
        if let Some(wrong) = alias.and_then(|alias| self.check_alias(alias)) {
            self.diagnostics.push(wrong);
        }
        parameters::check(entry, self.commands, self.kernel, self.diagnostics);
        self.list.push(EnabledTool {
            alias: alias.map(|alias| alias.value.clone()),
            ..EnabledTool::from_entry(entry)
        });
    }

    /// Returns an error if the alias is invalid or taken. A valid alias is then taken.
    fn check_alias(&mut self, written: &'a WithSpan<String>) -> Option<Diagnostic> {
        let alias = written.value.as_str();
        let wrong = if !is_tool_name(alias) {
            let invalid = written.error("the alias is not valid", "not a valid name");
            return Some(invalid.help(VALID_NAME));
        } else if self.known.contains(&alias) {
            let message = format!("the alias `{alias}` is the name of another tool");
            written.error(message, "taken")
        } else {
            let first = self.aliases.insert(alias, written.span.clone())?;
            let duplicate = written.error(format!("two tools have the alias `{alias}`"), "taken");
            duplicate.label(first, "first given here")
        };
        Some(wrong.help("choose a name that no tool has"))
    }
}

fn repeated_tool(first: &ToolEntry, second: &ToolEntry) -> Diagnostic {
    let without_spans = |entry: &ToolEntry| {
        let mut tool = EnabledTool::from_entry(entry);
        let parameters = tool.parameters.iter_mut();
        parameters.for_each(|parameter| parameter.name.span = 0..0);
        tool
    };
    let (name, place) = (shorten(&first.name.value), second.span.clone());
    let duplicate = if without_spans(first) == without_spans(second) {
        let message = format!("`{name}` is enabled twice");
        Diagnostic::warning(place, message, "has no effect")
    } else {
        let message = format!("`{name}` is enabled twice, differently");
        Diagnostic::error(place, message, "and again here")
    };
    let duplicate = duplicate.label(first.span.clone(), "first enabled here");
    duplicate.help("keep one of them")
}

fn unknown_tool(written: &WithSpan<String>, known: &[&str]) -> Diagnostic {
    let name = written.value.as_str();
    let known = known.iter().copied().filter(|name| is_tool_name(name));
    let known: Vec<_> = known.collect();
    let list = format!("available tools: {}", known.join(", "));
    if OPTIONAL_HOST_TOOLS.contains(&name) {
        let message = format!("the tool `{name}` is not available here");
        let label = "the model is not given it";
        return Diagnostic::warning(written.span.clone(), message, label).help(format!(
            "declare it as a command ([[tools.command]]) or register it in the host; {list}"
        ));
    }
    let others = "Others are declared as commands ([[tools.command]]) or registered by the host";
    let help = suggestion(name, &known, &list).unwrap_or_else(|| format!("{list}. {others}"));
    let message = format!("there is no tool `{}`", shorten(name));
    written.error(message, "unknown tool").help(help)
}
