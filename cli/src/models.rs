//! The flags that choose which models answer, and the providers and prices that they select.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use dormouse::Price;
use dormouse::models::anthropic::Messages;
use dormouse::models::chat::Completions;
use dormouse::models::gemini::GenerateContent;
use dormouse::models::responses::Responses;
use dormouse::models::{Recorder, Replayer, ScriptedProvider, ServerProvider};
use dormouse::ports::Provider;
use dormouse::program::read_prices;

use crate::export::RedactPatterns;
use crate::failure::{Failure, file_failure};

/// A provider, after the name by which programs select it.
type NamedProvider = (&'static str, Arc<dyn Provider>);

/// Which models answer, and what they cost. A recorded run can be repeated offline, and attached to
/// a bug report.
#[derive(Debug, Default, Args)]
pub(crate) struct Models {
    /// Write all model requests and replies to a new file, which only its owner can read.
    #[arg(long, value_name = "FILE", conflicts_with = "replay")]
    pub(crate) record: Option<PathBuf>,
    /// Call no model, and answer from this recording. A request that is not in it fails, with the
    /// first byte that differs.
    #[arg(long, value_name = "FILE")]
    pub(crate) replay: Option<PathBuf>,
    /// Mask matches in the recording, and in the requests that are compared with it; may be given
    /// several times.
    #[arg(long, value_name = "REGEX")]
    pub(crate) redact: Vec<regex::bytes::Regex>,
    /// A TOML file with [prices], as in a program, for models that the program itself does not
    /// price. It takes precedence over the built-in table.
    #[arg(long, value_name = "FILE")]
    pub(crate) prices: Option<PathBuf>,
}

impl Models {
    /// Whether no flag was given.
    pub(crate) fn is_empty(&self) -> bool {
        let Self {
            record,
            replay,
            redact,
            prices,
        } = self;
        record.is_none() && replay.is_none() && redact.is_empty() && prices.is_none()
    }

    /// The providers that programs can name. With `--record`, each real provider is wrapped by a
    /// recorder; with `--replay`, a replayer replaces every provider.
    pub(crate) fn providers(&self) -> Result<Vec<NamedProvider>, Failure> {
        let real: Vec<NamedProvider> = vec![
            ("scripted", Arc::new(ScriptedProvider)),
            ("anthropic", Arc::new(ServerProvider::<Messages>::default())),
            ("openai", Arc::new(ServerProvider::<Responses>::default())),
            (
                "openai-chat",
                Arc::new(ServerProvider::<Completions>::default()),
            ),
            (
                "gemini",
                Arc::new(ServerProvider::<GenerateContent>::default()),
            ),
            #[cfg(feature = "bedrock")]
            (
                "anthropic_bedrock",
                Arc::new(ServerProvider::<dormouse::models::bedrock::BedrockMessages>::default()),
            ),
            #[cfg(feature = "vertex")]
            (
                "anthropic_vertex",
                Arc::new(ServerProvider::<dormouse::models::vertex::VertexMessages>::default()),
            ),
            #[cfg(feature = "vertex")]
            (
                "gemini_vertex",
                Arc::new(ServerProvider::<
                    dormouse::models::vertex::VertexGenerateContent,
                >::default()),
            ),
        ];
        let redact = RedactPatterns(self.redact.clone());
        match (&self.record, &self.replay) {
            (Some(path), _) => {
                let recorder = Recorder::create(path)
                    .map_err(|error| file_failure(path, &error))?
                    .redact(redact);
                let mut recorded: Vec<NamedProvider> = Vec::new();
                for (name, provider) in real {
                    recorded.push((name, Arc::new(recorder.provider(provider))));
                }
                Ok(recorded)
            }
            (None, Some(path)) => {
                let replayer = Replayer::load(path)
                    .map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))?;
                let replayer: Arc<dyn Provider> = Arc::new(replayer.redact(redact));
                Ok(real
                    .into_iter()
                    .map(|(name, _)| (name, replayer.clone()))
                    .collect())
            }
            (None, None) => Ok(real),
        }
    }

    /// The prices of `--prices`; empty without that flag.
    pub(crate) fn prices(&self) -> Result<BTreeMap<String, Price>, Failure> {
        let Some(path) = &self.prices else {
            return Ok(BTreeMap::new());
        };
        let text = std::fs::read_to_string(path).map_err(|error| file_failure(path, &error))?;
        read_prices(&path.display().to_string(), &text)
            .map_err(|errors| Failure::Program(errors.errors().to_vec()))
    }
}
