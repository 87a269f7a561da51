//! Checks the parts of a program that have the syntax of its provider's API: the tools that the
//! provider runs (`[[tools.server]]`), and the *form* in which the program's own tools are
//! presented (`strict`, `input_format` and `provider_fields`).
//!
//! The tables are sent unchanged, so only their outline is checked: what each format requires of a
//! tool, and that the tool is not one that the kernel presents itself. The syntax is that of the
//! provider of the program's first model. If a cloud serves that model, it is the syntax of the
//! company that made the model (the *maker*).

use std::collections::BTreeMap;
use std::sync::Arc;

use dormouse_proto::command::Command;
use dormouse_proto::program::{
    Diagnostic, Diagnostics, ModelSection, Provider, ServerSelection, ServerTool, ToolEntry,
    ToolsSection, WithSpan, shorten,
};
use dormouse_proto::provider_tools::{ProviderTools, ToolForm};
use serde_json::{Map, Value};

use super::servers::{EnabledServer, ServedTools};
use super::tools::EnabledTool;

/// Where a tool of the program belongs.
const OWN_TOOLS: &str = "tools of the program belong into [tools] enabled or [[tools.command]]";

/// The tools of a program that its provider does not run.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnTools<'a> {
    pub(super) tools: &'a [EnabledTool],
    pub(super) commands: &'a [Command],
    pub(super) servers: &'a [EnabledServer],
}

impl OwnTools<'_> {
    /// The form of each tool that the program lists and presents in a form of its own, by the name
    /// that the model calls it by.
    fn forms(self) -> BTreeMap<String, ToolForm> {
        let own = self
            .tools
            .iter()
            .map(|tool| (tool.called().to_owned(), tool));
        let served = self.servers.iter().flat_map(|server| {
            let named: &[EnabledTool] = match &server.served {
                ServedTools::All => &[],
                ServedTools::Named(tools) => tools,
            };
            named.iter().map(|tool| {
                let given = tool.alias.clone();
                let given = given.unwrap_or_else(|| format!("{}{}", server.prefix, tool.name));
                (given, tool)
            })
        });
        own.chain(served)
            .filter(|(_, tool)| tool.form != ToolForm::default())
            .map(|(name, tool)| (name, tool.form.clone()))
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
    let provider = provider_of(model);
    let maker = provider.maker();
    for table in &section.server {
        let name = table.value.0.get("name").and_then(Value::as_str);
        let wrong = outline_error(maker, table).or_else(|| {
            let taken = own.tools.iter().find(|tool| Some(tool.called()) == name)?;
            let message = format!("`{}` is also the name of another tool", taken.called());
            let help = "a model cannot call two tools by one name: give the other an `alias`";
            Some(table.error(message, "taken").help(help))
        });
        wrong.into_iter().for_each(|wrong| diagnostics.push(wrong));
    }
    warn_of_fallbacks(section, model, &provider, diagnostics);
    let served = section.served.iter().flat_map(|served| {
        let named: &[ToolEntry] = match &served.value.selection {
            ServerSelection::All => &[],
            ServerSelection::Named(entries) => entries,
        };
        named
    });
    for entry in section.enabled.iter().chain(served) {
        check_form(entry, maker, own.commands, diagnostics);
    }
    ProviderTools {
        server: section
            .server
            .iter()
            .map(|table| table.value.0.clone())
            .collect(),
        forms: own.forms(),
    }
}

/// What is sent to a model of another provider than that of the first model: strictness, which all
/// formats have, and nothing in the first provider's syntax.
pub(super) fn for_other_providers(tools: &ProviderTools) -> Arc<ProviderTools> {
    let strict = tools.forms.iter().filter(|(_, form)| form.strict);
    let strict_only = |(name, _): (&String, &ToolForm)| {
        let form = ToolForm {
            strict: true,
            ..ToolForm::default()
        };
        (name.clone(), form)
    };
    Arc::new(ProviderTools {
        server: Vec::new(),
        forms: strict.map(strict_only).collect::<BTreeMap<_, _>>(),
    })
}

/// The provider whose syntax the tables have: that of the first model; for a cloud, the maker.
fn provider_of(model: &ModelSection) -> Provider {
    let provider = model.model.provider.as_ref();
    provider
        .map(|provider| provider.value.maker().clone())
        .unwrap_or_default()
}

/// The error of a table that does not describe a tool of the provider.
fn outline_error(provider: &Provider, written: &WithSpan<ServerTool>) -> Option<Diagnostic> {
    let table = &written.value.0;
    let error = |message: String, help: &str| {
        Some(
            written
                .error(message, "not such a tool")
                .help(help.to_owned()),
        )
    };
    let example = match provider {
        Provider::Anthropic => "type = \"web_search_20250305\", name = \"web_search\"",
        Provider::OpenAi => "type = \"web_search\"",
        Provider::OpenAiChat => {
            "type = …; what a server takes at the top of the request, such as \
             `web_search_options = {}`, belongs into [parameters]"
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

fn warn_of_fallbacks(
    section: &ToolsSection,
    model: &ModelSection,
    provider: &Provider,
    diagnostics: &mut Diagnostics,
) {
    let Some(first) = section.server.first() else {
        return;
    };
    let fallbacks = model.fallbacks.iter().map(|fallback| &fallback.model);
    let mut others = fallbacks.filter_map(|fallback| fallback.provider.as_ref());
    if let Some(other) = others.find(|other| other.value.maker() != provider) {
        let message = format!(
            "the fallback at {} is asked without the provider's tools",
            other.value.word()
        );
        let warning = Diagnostic::warning(other.span.clone(), message, "another provider");
        diagnostics.push(warning.label(first.span.clone(), "in the words of the first model"));
    }
}

/// Reports a form that the provider's format does not have.
fn check_form(
    entry: &ToolEntry,
    provider: &Provider,
    commands: &[Command],
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
            Some((message, help))
        }
        _ if !format.value.get("type").is_some_and(Value::is_string) => Some((
            "the `input_format` has no `type`".to_owned(),
            "such as { type = \"grammar\", syntax = \"lark\", definition = \"start: …\" }",
        )),
        _ => commands
            .iter()
            .find(|command| command.name == entry.name.value)
            .filter(|command| {
                !matches!(&command.parameters[..], [only] if only.name == ToolForm::INPUT)
            })
            .map(|command| {
                (
                    format!("`{}` takes more than a text", shorten(&command.name)),
                    "a tool with an `input_format` has one parameter: the string `input`",
                )
            }),
    };
    if let Some((message, help)) = wrong {
        diagnostics.push(format.error(message, "not for this tool").help(help));
    }
}

#[cfg(test)]
mod tests;
