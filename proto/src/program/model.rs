//! The table `[model]`: the model that a process calls, its provider and its fallbacks.
//!
//! `program.rs` says what `Section`, `Value` and `Reader` are.

use std::sync::Arc;

use serde_json::{Value as Json, json};

use super::base_url::check_base_url;
use super::{
    Diagnostic, Duration, Keyword, Named, Node, Reader, Rules, Section, Value, WithSpan, shorten,
};

const PROVIDERS: [(&str, Provider); 8] = [
    ("anthropic", Provider::Anthropic),
    ("openai", Provider::OpenAi),
    ("openai-chat", Provider::OpenAiChat),
    ("gemini", Provider::Gemini),
    ("anthropic_bedrock", Provider::AnthropicBedrock),
    ("anthropic_vertex", Provider::AnthropicVertex),
    ("gemini_vertex", Provider::GeminiVertex),
    ("scripted", Provider::Scripted),
];
/// The keys that are valid only for a model that is called over the network.
const SERVER_KEYS: [&str; 7] = [
    "base_url",
    "api_key_env",
    "headers",
    "ca_file",
    "idle_timeout",
    "cache_ttl",
    "disable_automatic_caching",
];
/// The most headers of a model.
const MAX_HEADERS: usize = 32;
/// Headers that the HTTP transport sets itself, in lower case.
const TRANSPORT_HEADERS: [&str; 8] = [
    "accept-encoding",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "transfer-encoding",
];

/// The API that serves a model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Provider {
    /// The Anthropic Messages API.
    Anthropic,
    /// The OpenAI Responses API.
    OpenAi,
    /// The OpenAI Chat Completions API, which many other servers offer as well.
    OpenAiChat,
    /// The Gemini API.
    Gemini,
    /// The Anthropic Messages API at Amazon Bedrock.
    AnthropicBedrock,
    /// The Anthropic Messages API at Google Vertex AI.
    AnthropicVertex,
    /// The Gemini API at Google Vertex AI.
    GeminiVertex,
    /// A script that is part of the program: offline and deterministic.
    #[default]
    Scripted,
    /// A provider that the embedder registered with the kernel under this name.
    Custom(Arc<str>),
}

impl Provider {
    /// The wire format of its models, in which the blocks of their replies are kept. `None` for a
    /// script, which reads any format.
    #[must_use]
    pub fn wire_format(&self) -> Option<&str> {
        match self.maker() {
            Self::OpenAi => Some("openai-responses"),
            Self::Scripted => None,
            other => Some(other.word()),
        }
    }

    /// The provider that made the models. A cloud serves them in their maker's format.
    #[must_use]
    pub fn maker(&self) -> &Self {
        match self {
            Self::AnthropicBedrock | Self::AnthropicVertex => &Self::Anthropic,
            Self::GeminiVertex => &Self::Gemini,
            other => other,
        }
    }

    /// The feature of the crate `dormouse` that contains the provider; `None` if it needs none of
    /// its own.
    #[must_use]
    pub fn feature(&self) -> Option<&'static str> {
        match self {
            Self::AnthropicBedrock => Some("bedrock"),
            Self::AnthropicVertex | Self::GeminiVertex => Some("vertex"),
            Self::Anthropic
            | Self::OpenAi
            | Self::OpenAiChat
            | Self::Gemini
            | Self::Scripted
            | Self::Custom(_) => None,
        }
    }

    /// Whether the provider is a cloud, with regions.
    fn is_cloud(&self) -> bool {
        self.feature().is_some()
    }

    /// The names of the built-in providers.
    pub fn words() -> impl Iterator<Item = &'static str> {
        PROVIDERS.iter().map(|(word, _)| *word)
    }

    /// The name of this provider in a program file.
    #[must_use]
    pub fn word(&self) -> &str {
        let known = PROVIDERS.iter().find(|(_, provider)| provider == self);
        match self {
            Self::Custom(word) => word,
            _ => {
                known
                    .expect("every provider but a custom one is in the table")
                    .0
            }
        }
    }
}

impl Value for Provider {
    const EXPECTED: &'static str = String::EXPECTED;

    fn read(table: &mut Reader<'_>, key: &str, node: Node<'_>, rules: &Rules) -> Option<Self> {
        let word = String::read(table, key, node, &rules.of_word::<Self>())?;
        let known = PROVIDERS.iter().find(|(known, _)| *known == word);
        let known = known.map(|(_, provider)| provider.clone());
        if known == Some(Self::Scripted) {
            SERVER_KEYS
                .iter()
                .for_each(|key| refuse_server_key(key, table));
        }
        Some(known.unwrap_or_else(|| Self::Custom(word.into())))
    }

    fn schema(_rules: &Rules) -> Json {
        let words: Vec<_> = Self::words().collect();
        json!({ "anyOf": [{ "enum": words }, { "type": "string" }] })
    }
}

/// The keys of a model and of its provider, as they are written.
#[derive(Clone, Debug, PartialEq, Eq, Section)]
#[section(check = ModelEntry::check_keys)]
pub struct ModelEntry {
    /// The provider that serves the model: one of the words, or the name of a provider that the
    /// host registered. `scripted` answers from `script`, offline and deterministically.
    #[key(required)]
    pub provider: Option<WithSpan<Provider>>,
    /// The name of the model at its provider. Required, unless the provider is `scripted`.
    #[key(default = Provider::Scripted.word().to_owned())]
    pub name: String,
    /// The file with the script of a scripted model; a model without one stays silent. A relative
    /// path starts in the folder of the program file.
    pub script: Option<WithSpan<String>>,
    /// The server that is called instead of the provider's own: `https://host` or
    /// `http://host:port`, with a path where the server has one, up to the path of a request
    /// (`/chat/completions`), and `?api-version=…` for a deployment of Azure.
    pub base_url: Option<WithSpan<String>>,
    /// The project that pays for a model at Vertex AI, instead of the one that the environment
    /// names (`GOOGLE_CLOUD_PROJECT`).
    pub project_id: Option<String>,
    /// The region of a model at Bedrock or Vertex AI, such as `eu-central-1` or `global`, instead
    /// of the one that the environment names (`AWS_REGION`, `CLOUD_ML_REGION`).
    pub region: Option<String>,
    /// The environment variable that holds the key, instead of the provider's own. The user has to
    /// permit it.
    pub api_key_env: Option<WithSpan<String>>,
    /// Headers that every request to the server carries, such as `anthropic-beta`. `${NAME}` in a
    /// value stands for a variable of the host, which the user has to permit, `${NAME:-other}` for
    /// `other` where it is not set.
    #[key(max_items = MAX_HEADERS)]
    pub headers: Vec<Named<String>>,
    /// The file with the certificates (PEM) of the authorities that may have issued the certificate
    /// of `base_url`, in addition to those that every client trusts. A relative path starts in the
    /// folder of the program file.
    pub ca_file: Option<WithSpan<String>>,
    /// The longest time for one reply, however steadily it is streamed, instead of the host's (ten
    /// minutes, unless the host sets another).
    #[key(name = "timeout", with = Duration)]
    pub timeout_ms: Option<u64>,
    /// The longest time in which the server sends nothing, instead of five minutes.
    #[key(name = "idle_timeout", with = Duration)]
    pub idle_timeout_ms: Option<u64>,
    /// The most tokens in a minute that all processes of the kernel together use at this provider, with
    /// this `base_url` and this key: input, cached or not, and output. A call waits until the calls of
    /// the last minute leave room for it, as estimated. Other programs may have other limits.
    #[key(range = 1..=1_000_000_000_000)]
    pub tokens_per_minute: Option<u64>,
    /// How long the provider keeps what it caches, if its format lets requests say so (Anthropic).
    /// Writing to the cache of an hour costs more.
    pub cache_ttl: CacheTtl,
    /// Whether to leave out the request that the provider caches the conversation.
    pub disable_automatic_caching: bool,
}

/// How long a provider keeps a cached part of a prompt after its last use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Keyword)]
pub enum CacheTtl {
    /// Five minutes.
    #[default]
    #[word("5m")]
    FiveMinutes,
    /// One hour.
    #[word("1h")]
    OneHour,
}

impl CacheTtl {
    /// The lifetime in a request with these `[parameters]`, which may ask for another one in the
    /// provider's syntax: `cache_control = { type = "ephemeral", ttl = "1h" }`. The longer one
    /// applies to the whole request, since a provider refuses a breakpoint of an hour after one of
    /// five minutes.
    #[must_use]
    pub fn in_request(self, parameters: &serde_json::Map<String, Json>) -> Self {
        let cache_control = parameters.get("cache_control");
        let ttl = cache_control.and_then(|control| control.get("ttl")?.as_str());
        self.max(ttl.and_then(Self::from_word).unwrap_or_default())
    }
}

/// `[model]` as written.
#[derive(Clone, Debug, PartialEq, Eq, Section)]
pub struct ModelSection {
    /// The model.
    #[key(flatten)]
    pub model: ModelEntry,
    /// The number of replies of the model after which a turn ends.
    #[key(default = 10, range = 1..=1_000_000)]
    pub max_iterations: u32,
    /// The name of the program in listings, if `[demo]` gives none.
    pub display_name: Option<String>,
    /// Models that are called, in order, when the one before fails.
    #[key(name = "fallback", max_items = 16)]
    pub fallbacks: Vec<FallbackSection>,
}

/// `[[model.fallback]]` as written.
#[derive(Clone, Debug, PartialEq, Eq, Section)]
#[section(
    expected = "a table: `[[model.fallback]]`",
    list = "a list of tables: `[[model.fallback]]`"
)]
pub struct FallbackSection {
    /// The model.
    #[key(flatten)]
    pub model: ModelEntry,
    /// The number of successive failures of the model before after which this one is asked;
    /// otherwise as many as the kernel tries.
    #[key(range = 1..=100)]
    pub after: Option<u32>,
}

impl ModelEntry {
    /// Checks the keys that are required or valid for some providers only.
    fn check_keys(self, table: &mut Reader<'_>) -> Option<Self> {
        let provider = self.provider.as_ref().map(|provider| &provider.value);
        if provider != Some(&Provider::Scripted) {
            self.check_name(table);
        }
        if let (Some(script), Some(provider)) = (&self.script, provider)
            && *provider != Provider::Scripted
        {
            let label = format!("has no meaning for {:?}", provider.word());
            table.report(script.error("`model.script` is for the provider \"scripted\"", label));
        }
        if let Some(url) = &self.base_url
            && let Err(error) = check_base_url(&url.value)
        {
            let message = format!("`model.base_url` {error}");
            table.report(url.error(message, "not a valid address").help(error.help()));
        }
        // A program cannot decide whom to believe that they are the provider: the user's key goes
        // there.
        if let Some(file) = self.ca_file.as_ref().filter(|_| self.base_url.is_none()) {
            let message = "`model.ca_file` is for the server that `base_url` names";
            let error = file.error(message, "there is no base_url");
            let help = "the authorities of the provider's own server are the user's choice: the \
                        environment variable SSL_CERT_FILE";
            table.report(error.help(help));
        }
        if let Some(name) = self
            .api_key_env
            .as_ref()
            .filter(|name| !is_variable_name(&name.value))
        {
            // The key itself may have been written in place of the variable's name, so it is not
            // repeated.
            let message = "`model.api_key_env` is not the name of an environment variable";
            let example = "name the variable that holds the key, such as \"OPENROUTER_API_KEY\"";
            let help = format!("{example}, never the key");
            table.report(name.error(message, "not a valid name").help(help));
        }
        self.headers
            .iter()
            .for_each(|header| check_header(header, table));
        if let Some(provider) = provider {
            self.check_cloud_keys(provider, table);
            self.check_unused_keys(provider, table);
        }
        Some(self)
    }

    /// Checks the keys that say where a cloud serves the model.
    fn check_cloud_keys(&self, provider: &Provider, table: &mut Reader<'_>) {
        for key in ["project_id", "region"] {
            let has_use = match key {
                "region" => provider.is_cloud(),
                _ => provider.feature() == Some("vertex"),
            };
            if let Some(span) = table.span_of(key).filter(|_| !has_use) {
                let message = format!("`model.{key}` is for models of a cloud");
                let label = format!("has no effect for {:?}", provider.word());
                table.report(Diagnostic::warning(span, message, label));
            }
        }
        let is_beta =
            |header: &&Named<String>| header.name.value.eq_ignore_ascii_case("anthropic-beta");
        if *provider == Provider::AnthropicBedrock
            && let Some(header) = self.headers.iter().find(is_beta)
        {
            let message = "Bedrock reads `anthropic-beta` from the body, not from a header";
            let error = Diagnostic::error(header.name.span.clone(), message, "not read there");
            let help = "write [parameters] anthropic_beta = [\"…\"]";
            table.report(error.help(help));
        }
    }

    /// Warns of keys that change nothing.
    fn check_unused_keys(&self, provider: &Provider, table: &mut Reader<'_>) {
        let has_cache_ttl = match provider {
            Provider::Custom(_) => true,
            known => known.wire_format() == Provider::Anthropic.wire_format(),
        };
        if let Some(span) = table.span_of("cache_ttl").filter(|_| !has_cache_ttl)
            && *provider != Provider::Scripted
        {
            let message = "`model.cache_ttl` is for models of Anthropic";
            let label = format!("has no effect for {:?}", provider.word());
            let help = "the formats of other providers do not let requests say how long";
            table.report(Diagnostic::warning(span, message, label).help(help));
        }
        if let (Some(idle), Some(whole)) = (self.idle_timeout_ms, self.timeout_ms)
            && idle >= whole
            && let Some(span) = table.span_of("idle_timeout")
        {
            let message = "`model.idle_timeout` is not shorter than `model.timeout`";
            let label = "has no effect: the whole reply may not take longer";
            table.report(Diagnostic::warning(span, message, label));
        }
    }

    fn check_name(&self, table: &mut Reader<'_>) {
        match table.span_of("name") {
            None => table.report_missing("name", None),
            Some(place) if self.name.trim().is_empty() => table.report_empty("name", place),
            Some(_) => {}
        }
    }
}

/// Reports a header that cannot be sent, or that only the transport may set.
fn check_header(header: &Named<String>, table: &mut Reader<'_>) {
    let name = header.name.value.to_ascii_lowercase();
    let is_sendable = !name.is_empty()
        && name
            .chars()
            .all(|char| char.is_ascii_alphanumeric() || matches!(char, '-' | '_' | '.'));
    let wrong = if !is_sendable {
        "is not the name of a header: letters, digits, `-`, `_` and `.`"
    } else if TRANSPORT_HEADERS.contains(&name.as_str()) {
        "is set by the transport"
    } else if !header
        .value
        .chars()
        .all(|char| char.is_ascii_graphic() || char == ' ')
    {
        "has a value with characters that are no printable ASCII"
    } else {
        return;
    };
    let message = format!("the header `{}` {wrong}", shorten(&header.name.value));
    table.report(Diagnostic::error(
        header.name.span.clone(),
        message,
        "this header",
    ));
}

/// Reports a key that configures a server, for a provider without a server.
fn refuse_server_key(key: &str, table: &mut Reader<'_>) {
    if let Some(span) = table.span_of(key) {
        let message = format!("`model.{key}` is for models behind a server");
        let label = "has no meaning for \"scripted\"";
        table.report(Diagnostic::error(span, message, label));
    }
}

fn is_variable_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}
