//! The tools of a program: which there are, under which names.
//!
//! Every tool has one name that the model calls it by, and no two share it.

use std::collections::BTreeMap;

use dormouse_proto::command::Command;
use dormouse_proto::program::{Diagnostic, Diagnostics, Named, Span, ToolEntry, nearest, shorten};
use dormouse_proto::tool::Access;

use super::parameters;
use crate::syscall;

/// What a valid name is.
pub(super) const VALID_NAME: &str = "valid: 1 to 64 of A-Z, a-z, 0-9, _ and -";

/// Tools of the reference implementation that the host has or has not: a program that enables one
/// runs without it where it has not.
const ELSEWHERE: [&str; 4] = ["calculator", "list_dir", "read_file", "write_stderr"];

/// A tool that a program uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolChoice {
    /// The tool: built in, declared as a command, or registered by the host.
    pub name: String,
    /// The name that the model calls it by, if not its own.
    pub alias: Option<String>,
    /// What the model is told of it, if not the tool's own description.
    pub description: Option<String>,
    /// What a process must be allowed to do to call it, if not what the tool says.
    pub access: Option<Access>,
    /// What the model is told of its parameters, if not the tool's own descriptions; in the order
    /// written.
    pub parameters: Vec<Named<String>>,
}

impl ToolChoice {
    pub(crate) fn plain(name: String) -> Self {
        Self {
            name,
            alias: None,
            description: None,
            access: None,
            parameters: Vec::new(),
        }
    }

    pub(super) fn of(entry: &ToolEntry) -> Self {
        Self {
            name: entry.name.value.clone(),
            alias: entry.alias.as_ref().map(|alias| alias.value.clone()),
            description: entry.description.clone(),
            access: entry.access,
            parameters: entry.parameters.clone(),
        }
    }

    /// The name that the model calls it by.
    #[must_use]
    pub fn called(&self) -> &str {
        self.alias.as_deref().unwrap_or(&self.name)
    }
}

/// Whether this can be the name of a tool or of a linked program.
pub(crate) fn is_tool_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

/// The tools in the order written, each once, and then the commands that are not listed.
pub(super) fn check(
    written: &[ToolEntry],
    commands: &[Command],
    host_tools: &[&str],
    diagnostics: &mut Diagnostics,
) -> Vec<ToolChoice> {
    let declared = commands.iter().map(|command| command.name.as_str());
    let own = syscall::names().map(|name| -> &str { name });
    let known: Vec<&str> = own
        .chain(declared)
        .chain(host_tools.iter().copied())
        .collect();
    let mut choices = Choices {
        known: &known,
        commands,
        seen: BTreeMap::new(),
        aliases: BTreeMap::new(),
        list: Vec::new(),
    };
    for entry in written {
        choices.add(entry, diagnostics);
    }
    let mut list = choices.list;
    for command in commands {
        if !list.iter().any(|choice| choice.name == command.name) {
            list.push(ToolChoice::plain(command.name.clone()));
        }
    }
    list
}

struct Choices<'a> {
    /// The name of every tool that there is.
    known: &'a [&'a str],
    commands: &'a [Command],
    seen: BTreeMap<&'a str, &'a ToolEntry>,
    aliases: BTreeMap<&'a str, Span>,
    list: Vec<ToolChoice>,
}

impl<'a> Choices<'a> {
    fn add(&mut self, entry: &'a ToolEntry, diagnostics: &mut Diagnostics) {
        let name = entry.name.value.as_str();
        if !self.known.contains(&name) {
            return diagnostics.push(unknown(entry, self.known));
        }
        if let Some(first) = self.seen.insert(name, entry) {
            return diagnostics.push(repeated(first, entry));
        }
        let alias = entry.alias.as_ref().filter(|alias| alias.value != name);
        if let Some(alias) = alias
            && let Err(diagnostic) = self.take_alias(&alias.value, &alias.span)
        {
            diagnostics.push(diagnostic);
        }
        parameters::check(entry, self.commands, diagnostics);
        self.list.push(ToolChoice {
            alias: alias.map(|alias| alias.value.clone()),
            ..ToolChoice::of(entry)
        });
    }

    fn take_alias(&mut self, alias: &'a str, span: &Span) -> Result<(), Diagnostic> {
        if !is_tool_name(alias) {
            return Err(Diagnostic::error(
                span.clone(),
                "the alias is not valid",
                "not such a name",
            )
            .help(VALID_NAME));
        }
        let help = "choose a name that no tool has";
        if self.known.contains(&alias) {
            let message = format!("the alias `{alias}` is the name of another tool");
            return Err(Diagnostic::error(span.clone(), message, "taken").help(help));
        }
        match self.aliases.insert(alias, span.clone()) {
            None => Ok(()),
            Some(first) => {
                let diagnostic = Diagnostic::error(
                    span.clone(),
                    format!("two tools have the alias `{alias}`"),
                    "taken",
                );
                Err(diagnostic.label(first, "first given here").help(help))
            }
        }
    }
}

fn repeated(first: &ToolEntry, second: &ToolEntry) -> Diagnostic {
    let name = shorten(&first.name.value);
    let alias = |entry: &ToolEntry| entry.alias.as_ref().map(|alias| alias.value.clone());
    let described = |entry: &ToolEntry| -> Vec<_> {
        entry
            .parameters
            .iter()
            .map(|p| (p.name.value.clone(), p.value.clone()))
            .collect()
    };
    let told = |entry: &ToolEntry| {
        (
            alias(entry),
            entry.description.clone(),
            entry.access,
            described(entry),
        )
    };
    let is_same = told(first) == told(second);
    let diagnostic = if is_same {
        Diagnostic::warning(
            second.span.clone(),
            format!("`{name}` is enabled twice"),
            "has no effect",
        )
    } else {
        Diagnostic::error(
            second.span.clone(),
            format!("`{name}` is enabled twice, differently"),
            "and again here",
        )
    };
    diagnostic
        .label(first.span.clone(), "first enabled here")
        .help("keep one of them")
}

fn unknown(entry: &ToolEntry, known: &[&str]) -> Diagnostic {
    let name = entry.name.value.as_str();
    let place = entry.name.span.clone();
    let known: Vec<_> = known
        .iter()
        .copied()
        .filter(|name| is_tool_name(name))
        .collect();
    let list = format!("available tools: {}", known.join(", "));
    if ELSEWHERE.contains(&name) {
        let message = format!("the tool `{name}` is not available here");
        let help = format!(
            "declare it as a command ([[tools.command]]) or register it in the host; {list}"
        );
        return Diagnostic::warning(place, message, "the model is not given it").help(help);
    }
    let help = match nearest(name, known) {
        Some(near) => format!("did you mean `{near}`? {list}"),
        None => format!(
            "{list}. Others are declared as commands ([[tools.command]]) or registered by the host"
        ),
    };
    Diagnostic::error(
        place,
        format!("there is no tool `{}`", shorten(name)),
        "unknown tool",
    )
    .help(help)
}
