//! `[model]`: who answers.

use super::reader::Reader;
use super::{At, Remark};

const DEFAULT_MAX_ITERATIONS: u32 = 10;
const MOST_ITERATIONS: u64 = 1_000_000;
const PROVIDERS: [(&str, Provider); 2] = [("anthropic", Provider::Anthropic), ("scripted", Provider::Scripted)];

/// Who serves a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Provider {
    /// The Anthropic Messages API.
    Anthropic,
    /// A script that is part of the program: offline and deterministic.
    #[default]
    Scripted,
}

impl Provider {
    /// The word for it in a program file.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::Scripted => "scripted",
        }
    }
}

/// `[model]` as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelSection {
    /// The model's name at its provider. A scripted model needs none and is then called `scripted`.
    pub name: String,
    /// Who serves it.
    pub provider: Provider,
    /// After so many replies a turn ends.
    pub max_iterations: u32,
    /// The script of a scripted model.
    pub script: Option<At<String>>,
    /// How the program is called in listings; `[demo]` may say it too, and is asked first.
    pub display_name: Option<String>,
}

impl Default for ModelSection {
    fn default() -> Self {
        let name = Provider::Scripted.word().to_owned();
        let (provider, max_iterations) = (Provider::Scripted, DEFAULT_MAX_ITERATIONS);
        Self { name, provider, max_iterations, script: None, display_name: None }
    }
}

pub(super) fn read(root: &mut Reader<'_>) -> ModelSection {
    let span = root.span();
    if root.get("model").is_none() {
        let remark = Remark::error(span.start..span.start, "`[model]` is missing", "a program needs a model");
        root.remark(remark.help("add [model] with `name` and `provider`; providers: anthropic, scripted"));
    }
    let Some(mut section) = root.section("model") else { return ModelSection::default() };
    let provider = provider(&mut section);
    let name = match provider {
        Some(Provider::Scripted) => section.text("name").map_or_else(|| "scripted".to_owned(), |name| name.value),
        _ => section.required_text("name").value,
    };
    let max_iterations = section.number("max_iterations", 1..=MOST_ITERATIONS);
    let max_iterations = max_iterations.and_then(|n| u32::try_from(n.value).ok()).unwrap_or(DEFAULT_MAX_ITERATIONS);
    let display_name = section.text("display_name").map(|name| name.value);
    let script = section.text("script");
    if let (Some(script), Some(Provider::Anthropic)) = (&script, provider) {
        let message = "`model.script` is for the provider \"scripted\"";
        section.remark(Remark::error(script.span.clone(), message, "has no meaning for \"anthropic\""));
    }
    for key in ["disable_automatic_caching", "project_id", "region"] {
        section.without_effect(key);
    }
    section.finish();
    ModelSection { name, provider: provider.unwrap_or_default(), max_iterations, script, display_name }
}

fn provider(section: &mut Reader<'_>) -> Option<Provider> {
    if section.get("provider").is_none() {
        section.required_text("provider");
        return None;
    }
    section.word("provider", &PROVIDERS).map(|provider| provider.value)
}
