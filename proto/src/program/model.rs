//! `[model]`: who answers.

use std::sync::Arc;

use super::reader::Reader;
use super::{At, Remark, Span};

const DEFAULT_MAX_ITERATIONS: u32 = 10;
const MOST_ITERATIONS: u64 = 1_000_000;
const MOST_FALLBACKS: usize = 16;
const MOST_FAILURES: u64 = 100;
const PROVIDERS: [(&str, Provider); 5] = [
    ("anthropic", Provider::Anthropic),
    ("openai", Provider::OpenAi),
    ("openai-chat", Provider::OpenAiChat),
    ("gemini", Provider::Gemini),
    ("scripted", Provider::Scripted),
];
/// What only a model behind a server has.
const OF_SERVERS: [&str; 3] = ["base_url", "api_key_env", "disable_automatic_caching"];

/// Who serves a model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Provider {
    /// The Anthropic Messages API.
    Anthropic,
    /// The OpenAI Responses API.
    OpenAi,
    /// OpenAI's chat completions, and the many servers that speak them.
    OpenAiChat,
    /// The Gemini API.
    Gemini,
    /// A script that is part of the program: offline and deterministic.
    #[default]
    Scripted,
    /// One that the embedder registered with the kernel, by this word.
    Custom(Arc<str>),
}

impl Provider {
    /// The format in which its models are asked, and that the blocks of their replies are kept in.
    /// A script has none: it reads what everybody understands.
    #[must_use]
    pub fn wire_format(&self) -> Option<&str> {
        match self {
            Self::Anthropic => Some("anthropic"),
            Self::OpenAi => Some("openai-responses"),
            Self::OpenAiChat => Some("openai-chat"),
            Self::Gemini => Some("gemini"),
            Self::Scripted => None,
            Self::Custom(word) => Some(word),
        }
    }

    /// The words of those that every kernel knows.
    pub fn words() -> impl Iterator<Item = &'static str> {
        PROVIDERS.iter().map(|(word, _)| *word)
    }

    /// The word for it in a program file.
    #[must_use]
    pub fn word(&self) -> &str {
        match self {
            Self::Anthropic => "anthropic",
            Self::OpenAi => "openai",
            Self::OpenAiChat => "openai-chat",
            Self::Gemini => "gemini",
            Self::Scripted => "scripted",
            Self::Custom(word) => word,
        }
    }
}

/// A model as written: who serves it, and how it is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelEntry {
    /// The model's name at its provider. A scripted model needs none and is then called `scripted`.
    pub name: String,
    /// Who serves it. Whether one of another word is registered is not known here.
    pub provider: Provider,
    /// Where that is said.
    pub provider_span: Span,
    /// The script of a scripted model.
    pub script: Option<At<String>>,
    /// The server that is asked instead of the provider's own.
    pub base_url: Option<String>,
    /// The environment variable that holds the key, instead of the provider's own.
    pub api_key_env: Option<String>,
    /// Whether the provider is asked to keep what it has read.
    pub automatic_caching: bool,
}

/// `[model]` as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelSection {
    /// The model.
    pub model: ModelEntry,
    /// After so many replies a turn ends.
    pub max_iterations: u32,
    /// How the program is called in listings; `[demo]` may say it too, and is asked first.
    pub display_name: Option<String>,
    /// `[[model.fallback]]`: who is asked when the one before fails.
    pub fallbacks: Vec<FallbackSection>,
}

/// `[[model.fallback]]` as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FallbackSection {
    /// The model.
    pub model: ModelEntry,
    /// It is asked after so many failures of the one before, one behind the other; else after as
    /// many as the kernel tries.
    pub after: Option<u32>,
}

impl Default for ModelEntry {
    fn default() -> Self {
        Self {
            name: Provider::Scripted.word().to_owned(),
            provider: Provider::Scripted,
            provider_span: 0..0,
            script: None,
            base_url: None,
            api_key_env: None,
            automatic_caching: true,
        }
    }
}

impl Default for ModelSection {
    fn default() -> Self {
        let (model, fallbacks) = (ModelEntry::default(), Vec::new());
        Self {
            model,
            max_iterations: DEFAULT_MAX_ITERATIONS,
            display_name: None,
            fallbacks,
        }
    }
}

pub(super) fn read(root: &mut Reader<'_>) -> ModelSection {
    let span = root.span();
    if root.get("model").is_none() {
        let remark = Remark::error(
            span.start..span.start,
            "`[model]` is missing",
            "a program needs a model",
        );
        let words: Vec<_> = Provider::words().collect();
        let words = words.join(", ");
        root.remark(remark.help(format!(
            "add [model] with `name` and `provider`; providers: {words}"
        )));
    }
    let Some(mut section) = root.section("model") else {
        return ModelSection::default();
    };
    let model = entry(&mut section);
    let max_iterations = section.number("max_iterations", 1..=MOST_ITERATIONS);
    let max_iterations = max_iterations
        .and_then(|n| u32::try_from(n.value).ok())
        .unwrap_or(DEFAULT_MAX_ITERATIONS);
    let display_name = section.text("display_name").map(|name| name.value);
    let fallbacks = fallbacks(&mut section);
    section.finish();
    ModelSection {
        model,
        max_iterations,
        display_name,
        fallbacks,
    }
}

fn fallbacks(section: &mut Reader<'_>) -> Vec<FallbackSection> {
    let Some(node) = section.get("fallback") else {
        return Vec::new();
    };
    let Some(list) = node.get_ref().as_array() else {
        section.wrong_type("fallback", node, "a list of tables: `[[model.fallback]]`");
        return Vec::new();
    };
    if !section.is_within("fallback", node, list.len(), MOST_FALLBACKS) {
        return Vec::new();
    }
    let mut fallbacks = Vec::new();
    for item in list.iter() {
        let Some(table) = item.get_ref().as_table() else {
            section.wrong_type("fallback", item, "a table: `[[model.fallback]]`");
            continue;
        };
        let mut fallback = section.inner("fallback", table, item.span());
        let model = entry(&mut fallback);
        let after = fallback
            .number("after", 1..=MOST_FAILURES)
            .and_then(|after| u32::try_from(after.value).ok());
        fallback.finish();
        fallbacks.push(FallbackSection { model, after });
    }
    fallbacks
}

/// What `[model]` and `[[model.fallback]]` have in common.
fn entry(section: &mut Reader<'_>) -> ModelEntry {
    let (provider, provider_span) =
        provider(section).map_or((None, 0..0), |At { value, span }| (Some(value), span));
    let name = match provider {
        Some(Provider::Scripted) => section
            .text("name")
            .map_or_else(|| "scripted".to_owned(), |name| name.value),
        _ => section.required_text("name").value,
    };
    let script = section.text("script");
    match (&script, &provider) {
        (Some(script), Some(provider)) if *provider != Provider::Scripted => {
            let message = "`model.script` is for the provider \"scripted\"";
            let label = format!("has no meaning for {:?}", provider.word());
            section.remark(Remark::error(script.span.clone(), message, label));
        }
        _ => {}
    }
    if provider == Some(Provider::Scripted) {
        OF_SERVERS
            .into_iter()
            .for_each(|key| without_server(section, key));
    }
    let base_url = base_url(section);
    let api_key_env = api_key_env(section);
    let automatic_caching = section
        .flag("disable_automatic_caching")
        .is_none_or(|disabled| !disabled.value);
    ["project_id", "region"]
        .into_iter()
        .for_each(|key| section.without_effect(key));
    ModelEntry {
        name,
        provider: provider.unwrap_or_default(),
        provider_span,
        script,
        base_url,
        api_key_env,
        automatic_caching,
    }
}

/// Remarks on a key that says how a server is asked, where there is none.
fn without_server(section: &mut Reader<'_>, key: &'static str) {
    if let Some(node) = section.get(key) {
        let message = format!("`model.{key}` is for models behind a server");
        section.remark(Remark::error(
            node.span(),
            message,
            "has no meaning for \"scripted\"",
        ));
    }
}

/// The address of a server. Whether it is one is seen when it is asked; here only what it must not
/// hold is refused: a program is no place for credentials.
fn base_url(section: &mut Reader<'_>) -> Option<String> {
    let At { value, span } = section.text("base_url")?;
    let address = value
        .strip_prefix("https://")
        .or_else(|| value.strip_prefix("http://"));
    let is_one = address.is_some_and(|address| {
        !address.is_empty()
            && !address.contains(|c: char| c.is_whitespace() || matches!(c, '@' | '?' | '#' | '\\'))
    });
    if !is_one {
        let message = "`model.base_url` is no address of a server";
        let remark = Remark::error(span, message, "not such an address");
        section.remark(
            remark.help(
                "write https://host or http://host:port, with a path where the server has one",
            ),
        );
    }
    Some(value).filter(|_| is_one)
}

/// The name of a variable. A key that was written in its place is not repeated.
fn api_key_env(section: &mut Reader<'_>) -> Option<String> {
    let At { value, span } = section.text("api_key_env")?;
    let is_one = value.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && value.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if !is_one {
        let message = "`model.api_key_env` is no name of an environment variable";
        let remark = Remark::error(span, message, "not such a name");
        section.remark(remark.help(
            "name the variable that holds the key, such as \"OPENROUTER_API_KEY\", never the key",
        ));
    }
    Some(value).filter(|_| is_one)
}

fn provider(section: &mut Reader<'_>) -> Option<At<Provider>> {
    if section.get("provider").is_none() {
        section.required_text("provider");
        return None;
    }
    let At { value, span } = section.text("provider")?;
    let known = PROVIDERS.iter().find(|(word, _)| *word == value);
    let provider = known.map(|(_, provider)| provider.clone());
    let value = provider.unwrap_or_else(|| Provider::Custom(value.into()));
    Some(At { value, span })
}
