//! Checks the parts of a program that have the syntax of its provider's API: the tools that the
//! provider runs (`[[tools.server]]`), and the *form* in which the program's own tools are
//! presented (`strict`, `input_format` and `provider_fields`).
//!
//! The tables are sent unchanged. Two things are checked: the keys that each format requires, and
//! that the type or key of the table itself declares no function, since the kernel declares those.
//! The syntax is that of the provider of the program's first model. If a cloud serves that model, it is the syntax of the company that
//! made the model (the *maker*).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dormouse_proto::command::Command;
use dormouse_proto::program::{
    Diagnostic, Diagnostics, ModelSection, Provider, ServerSelection, ServerTool, ToolEntry,
    ToolsSection, WithSpan, shorten,
};
use dormouse_proto::provider_tools::{ProviderTools, ToolForm};
use serde_json::{Map, Value};

use super::kernel_tool::{self, KernelTool};
use super::servers::EnabledServer;
use super::tools::EnabledTool;

/// Where a tool of the program belongs.
const OWN_TOOLS: &str = "tools of the program belong in [tools] enabled or [[tools.command]]";

/// The tools of a program that its provider does not run.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnTools<'a> {
    pub(super) tools: &'a [EnabledTool],
    pub(super) kernel: &'a [KernelTool],
    pub(super) commands: &'a [Command],
    pub(super) servers: &'a [EnabledServer],
}

impl<'a> OwnTools<'a> {
    /// The names that are known now. Other served tools get their names when a process is created,
    /// and then names of tools of the provider are avoided.
    fn names(self) -> impl Iterator<Item = &'a str> {
        let served = self
            .servers
            .iter()
            .flat_map(|server| server.served.named().iter());
        let aliases = served.filter_map(|tool| tool.alias.as_deref());
        self.tools.iter().map(EnabledTool::called).chain(aliases)
    }

    /// Whether a tool of the kernel or a command of the program is known to take more than one text,
    /// which a tool with an `input_format` takes.
    fn takes_more_than_input(self, name: &str) -> bool {
        let is_input =
            |parameters: &mut dyn Iterator<Item = &str>| parameters.eq([ToolForm::INPUT]);
        let command = self.commands.iter().find(|command| command.name == name);
        match command {
            Some(command) => {
                let names = command.parameters.iter();
                !is_input(&mut names.map(|parameter| parameter.name.as_str()))
            }
            None => kernel_tool::find(self.kernel, name)
                .is_some_and(|tool| !is_input(&mut tool.parameters.iter().copied())),
        }
    }

    /// The form of each tool of the kernel, of the host and of the program that has one of its own,
    /// by the name by which the model calls the tool. For the tools of tool servers, see
    /// [`Program::served_form`](super::Program::served_form).
    fn forms(self) -> BTreeMap<String, ToolForm> {
        self.tools
            .iter()
            .filter(|tool| tool.form != ToolForm::default())
            .map(|tool| (tool.called().to_owned(), tool.form.clone()))
            .collect()
    }
}

/// Checks the tables, and collects what requests contain of them.
pub(super) fn check(
    section: &ToolsSection,
    model: &ModelSection,
    own: OwnTools<'_>,
    diagnostics: &mut Diagnostics,
) -> ProviderTools {
    let maker = maker_of(model);
    let mut names: BTreeSet<&str> = own.names().collect();
    for table in &section.provider_tools {
        let name = provider_tool_name(&table.value.0);
        let wrong = syntax_error(&maker, table).or_else(|| {
            let taken = name.filter(|name| names.contains(name))?;
            let message = format!("`{}` is also the name of another tool", shorten(taken));
            let help = "a model cannot call two tools by one name: give the other an `alias`, or \
                        list a tool of the provider once";
            Some(table.error(message, "taken").help(help))
        });
        wrong.into_iter().for_each(|wrong| diagnostics.push(wrong));
        names.extend(name);
    }
    warn_of_fallbacks(section, model, &maker, diagnostics);
    for entry in &section.enabled {
        let takes_more = own.takes_more_than_input(&entry.name.value);
        check_form(entry, &maker, takes_more, diagnostics);
    }
    for entry in served_entries(section) {
        // What it takes is known when its server is asked for its tools.
        check_form(entry, &maker, false, diagnostics);
    }
    ProviderTools {
        server: section
            .provider_tools
            .iter()
            .map(|table| table.value.0.clone())
            .collect(),
        forms: own.forms(),
    }
}

/// What is sent to a model of another maker than that of the first model: only `strict` is kept,
/// which each format expresses or ignores. All else has the syntax of the first model's provider.
pub(super) fn for_other_makers(tools: &ProviderTools) -> Arc<ProviderTools> {
    let forms = tools.forms.iter();
    let strict = forms.filter_map(|(name, form)| Some((name.clone(), strict_only(form)?)));
    Arc::new(ProviderTools {
        server: Vec::new(),
        forms: strict.collect::<BTreeMap<_, _>>(),
    })
}

/// The part of a form that may be sent to any maker: the flag `strict`, which a format without it
/// ignores. `None` if the form has none.
pub(super) fn strict_only(form: &ToolForm) -> Option<ToolForm> {
    form.strict.then(|| ToolForm {
        strict: true,
        ..ToolForm::default()
    })
}

/// The name by which the model calls a tool of the provider, if its table states it.
pub(super) fn provider_tool_name(table: &Map<String, Value>) -> Option<&str> {
    table.get("name").and_then(Value::as_str)
}

/// The maker of the first model, whose syntax the tables have.
fn maker_of(model: &ModelSection) -> Provider {
    let provider = model.model.provider.as_ref();
    provider
        .map(|provider| provider.value.maker().clone())
        .unwrap_or_default()
}

/// The error of a table that does not describe a tool of the provider.
fn syntax_error(provider: &Provider, written: &WithSpan<ServerTool>) -> Option<Diagnostic> {
    let table = &written.value.0;
    let error = |message: String, help: &str| {
        Some(
            written
                .error(message, "not a tool of the provider")
                .help(help.to_owned()),
        )
    };
    let example = match provider {
        Provider::Anthropic => "type = \"web_search_20250305\", name = \"web_search\"",
        Provider::OpenAi => "type = \"web_search\"",
        Provider::OpenAiChat => {
            "type = …; what a server takes at the top of the request, such as \
             `web_search_options = {}`, belongs in [parameters]"
        }
        Provider::Gemini => "google_search = {}",
        _ => "type = \"web_search\"",
    };
    let help = format!(
        "write the tool as {} expects it: {example}",
        provider.word()
    );
    if table.is_empty() {
        return error("a tool of the provider names nothing".to_owned(), &help);
    }
    let kind = table.get("type");
    match provider {
        Provider::Gemini if kind.is_some() => error(
            "a tool of gemini has no `type`: its key names it".to_owned(),
            &help,
        ),
        Provider::Gemini if names_functions(table) => {
            error("functions are declared by the kernel".to_owned(), OWN_TOOLS)
        }
        Provider::Gemini => {
            let wrong = table.iter().find(|(_, value)| !value.is_object())?;
            let message = format!("`{}` of a tool of gemini is not a table", shorten(wrong.0));
            error(message, &help)
        }
        Provider::Anthropic | Provider::OpenAi | Provider::OpenAiChat => {
            match kind.and_then(Value::as_str) {
                None => error("a tool of the provider has no `type`".to_owned(), &help),
                Some(own @ ("function" | "custom")) => error(
                    format!("a tool of the type `{own}` is not the provider's"),
                    OWN_TOOLS,
                ),
                Some(kind) => {
                    let needs_name = *provider == Provider::Anthropic && kind != "mcp_toolset";
                    let has_name = table.get("name").is_some_and(Value::is_string);
                    if !needs_name || has_name {
                        return None;
                    }
                    error("a tool of anthropic has no `name`".to_owned(), &help)
                }
            }
        }
        _ => None,
    }
}

fn names_functions(table: &Map<String, Value>) -> bool {
    ["functionDeclarations", "function_declarations"]
        .iter()
        .any(|key| table.contains_key(*key))
}

/// Reports what each fallback at another maker is called without.
fn warn_of_fallbacks(
    section: &ToolsSection,
    model: &ModelSection,
    maker: &Provider,
    diagnostics: &mut Diagnostics,
) {
    let tools = section.provider_tools.first();
    let tools = tools.map(|table| (&table.span, "the provider's tools"));
    let has_words =
        |entry: &&ToolEntry| entry.input_format.is_some() || !entry.provider_fields.is_empty();
    let mut forms = section.enabled.iter().chain(served_entries(section));
    let form = forms
        .find(has_words)
        .map(|entry| (&entry.span, "`input_format` and `provider_fields` of tools"));
    let fallbacks = model.fallbacks.iter().map(|fallback| &fallback.model);
    let others = fallbacks.filter_map(|fallback| fallback.provider.as_ref());
    for other in others.filter(|other| other.value.maker() != maker) {
        for (span, missing) in tools.into_iter().chain(form) {
            let message = format!(
                "the fallback at {} is called without {missing}",
                other.value.word()
            );
            let warning = Diagnostic::warning(other.span.clone(), message, "another provider");
            diagnostics
                .push(warning.label(span.clone(), "written for the provider of the first model"));
        }
    }
}

/// The entries of the tools of tool servers that the program lists by name.
fn served_entries(section: &ToolsSection) -> impl Iterator<Item = &ToolEntry> {
    section.tool_servers.iter().flat_map(|served| {
        let named: &[ToolEntry] = match &served.value.selection {
            ServerSelection::All => &[],
            ServerSelection::Named(entries) => entries,
        };
        named
    })
}

/// Reports a form that the provider's format does not have.
fn check_form(
    entry: &ToolEntry,
    provider: &Provider,
    takes_more_than_input: bool,
    diagnostics: &mut Diagnostics,
) {
    if let (Some(strict), Provider::Gemini) = (&entry.strict, provider)
        && strict.value
    {
        let wrong = strict.error("gemini has no strict tools", "not in its format");
        diagnostics.push(wrong.help(
            "for all tools: `toolConfig = { functionCallingConfig = { mode = \"VALIDATED\" } }` in \
             [parameters]",
        ));
    }
    let Some(format) = &entry.input_format else {
        return;
    };
    let wrong = match provider {
        Provider::Anthropic | Provider::Gemini => {
            let message = format!("{} has no `input_format`", provider.word());
            let help = "the formats openai and openai-chat have it; `strict = true` makes arguments \
                        valid against the schema";
            Some((message, "not in its format", help))
        }
        _ if !format.value.get("type").is_some_and(Value::is_string) => Some((
            "the `input_format` has no `type`".to_owned(),
            "needs `type`",
            "such as { type = \"grammar\", syntax = \"lark\", definition = \"start: …\" }",
        )),
        _ if takes_more_than_input => Some((
            format!("`{}` takes more than a text", shorten(&entry.name.value)),
            "not for this tool",
            "a tool with an `input_format` has one parameter: the string `input`",
        )),
        _ => None,
    };
    if let Some((message, label, help)) = wrong {
        diagnostics.push(format.error(message, label).help(help));
    }
}

#[cfg(test)]
mod tests;
