//! The models that a program names, and how each is called.

use dormouse_proto::program::{CacheTtl, Provider};
use dormouse_proto::server::{CaFile, ServerValue};

/// A model and how it is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelChoice {
    /// The model's name at its provider.
    pub name: String,
    /// The provider that serves it.
    pub provider: Provider,
    /// The number of replies after which a turn ends.
    pub max_iterations: u32,
    /// The script of a scripted model, by its name in the bundle. Every call of a scripted model
    /// without a script fails.
    pub script: Option<String>,
    /// The server that is called instead of the provider's own.
    pub base_url: Option<String>,
    /// The project of a cloud, instead of the one that the environment names.
    pub project_id: Option<String>,
    /// The region of a cloud, instead of the one that the environment names.
    pub region: Option<String>,
    /// The environment variable that holds the key, instead of the provider's own.
    pub api_key_env: Option<String>,
    /// Headers that every request to the server carries.
    pub headers: Vec<(String, ServerValue)>,
    /// The authorities that may have issued the server's certificate, in addition to those that
    /// every client trusts.
    pub ca_file: Option<CaFile>,
    /// The longest time for one reply, in milliseconds; `None` for the kernel's default.
    pub timeout_ms: Option<u64>,
    /// The longest time in which the server sends nothing, in milliseconds.
    pub idle_timeout_ms: Option<u64>,
    /// The most tokens in a minute of all calls at this server with this key.
    pub tokens_per_minute: Option<u64>,
    /// The cache lifetime that requests ask the provider for; `None` if they do not ask for
    /// caching.
    pub cache_ttl: Option<CacheTtl>,
    /// The number of successive failures after which the next model is called, if there is one.
    /// `None` for the kernel's maximum number of attempts.
    pub failures: Option<u32>,
}

impl ModelChoice {
    /// Whether this model and `other` are called at the same server with the same key.
    #[must_use]
    pub fn is_at_the_server_of(&self, other: &Self) -> bool {
        let Self {
            provider,
            base_url,
            api_key_env,
            ..
        } = self;
        (provider, base_url, api_key_env) == (&other.provider, &other.base_url, &other.api_key_env)
    }
}

/// The script of a scripted model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Script<'a> {
    /// The name of its file in the bundle.
    pub name: &'a str,
    /// Its text.
    pub text: &'a str,
}
