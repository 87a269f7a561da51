//! Writes the requests and replies of models to a file, in the format that the head of
//! `recording.rs` describes: a *part* is the system prompt, the tools or one message of a request,
//! and is written once.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use dormouse_actors::ports::{Model, Provider, ProviderRequest};
use dormouse_kernel::export::Redact;
use dormouse_proto::model::{Delta, ModelError, Reply, Request, TokenCount};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::value::RawValue;

use super::{Call, End, Line, Redaction, VERSION, json, parts};

/// Writes a recording. Clones share the file: every model and provider that is wrapped by a
/// recorder writes into it.
///
/// When a call ends, its lines are written with one write, without a sync. If the file cannot be
/// written any more, the run continues, and [`Recorder::failure`] says why the recording ends.
///
/// ```no_run
/// use dormouse_models::{Anthropic, Recorder};
///
/// let recorder = Recorder::create("run.jsonl")?;
/// let model = recorder.model(Anthropic::from_env()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Recorder {
    redact: Option<Redaction>,
    file_state: Arc<Mutex<RecordingFile>>,
}

struct RecordingFile {
    file: File,
    /// The number of each part that was written, by its hash.
    parts: HashMap<blake3::Hash, usize>,
    failure: Option<String>,
}

impl Recorder {
    /// Creates a recording. Only its owner can read the file, since conversations are private.
    ///
    /// # Errors
    /// A file of this name exists, or none can be created.
    pub fn create(path: impl AsRef<Path>) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file_state = RecordingFile {
            file: options.open(path)?,
            parts: HashMap::new(),
            failure: None,
        };
        file_state.write(&[Line {
            dormouse_recording: Some(VERSION),
            ..Line::default()
        }])?;
        Ok(Self {
            redact: None,
            file_state: Arc::new(Mutex::new(file_state)),
        })
    }

    /// Masks secrets in all requests and replies from here on.
    #[must_use]
    pub fn redact(self, redact: impl Redact + 'static) -> Self {
        Self {
            redact: Some(Arc::new(redact)),
            ..self
        }
    }

    /// Wraps a model, so that its calls are recorded.
    #[must_use]
    pub fn model(&self, model: impl Model) -> impl Model {
        RecordedModel {
            recorder: self.clone(),
            inner: Arc::new(model) as Arc<dyn Model>,
        }
    }

    /// Wraps a provider, so that the calls of its models are recorded.
    #[must_use]
    pub fn provider(&self, provider: impl Provider) -> impl Provider {
        RecordedProvider {
            recorder: self.clone(),
            inner: provider,
        }
    }

    /// Why the recording ended before the run, if it did.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        self.file_state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .failure
            .clone()
    }

    /// Writes a call. Costs a pass over the conversation, and a write of its new parts.
    fn record_call(&self, request: &Request, outcome: &Result<Reply, ModelError>) {
        let parts = parts(request, self.redact.as_ref());
        let outcome = json(&End::from(outcome), self.redact.as_ref())
            .and_then(|outcome| serde_json::from_str(&outcome));
        let mut file_state = self
            .file_state
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if file_state.failure.is_some() {
            return;
        }
        let encoded = parts
            .and_then(|parts| Ok((parts, outcome?)))
            .map_err(io::Error::from);
        if let Err(error) =
            encoded.and_then(|(parts, outcome)| file_state.append_call(parts, outcome))
        {
            tracing::error!(%error, "the recording ends here");
            file_state.failure = Some(error.to_string());
        }
    }
}

impl RecordingFile {
    fn append_call(&mut self, parts: Vec<String>, outcome: End) -> io::Result<()> {
        let (mut lines, mut request) = (Vec::new(), Vec::with_capacity(parts.len()));
        for part in parts {
            let next = self.parts.len();
            let number = *self
                .parts
                .entry(blake3::hash(part.as_bytes()))
                .or_insert(next);
            if number == next {
                lines.push(Line {
                    part: Some(RawValue::from_string(part)?),
                    ..Line::default()
                });
            }
            request.push(number);
        }
        lines.push(Line {
            call: Some(Call { request, outcome }),
            ..Line::default()
        });
        self.write(&lines)
    }

    fn write(&mut self, lines: &[Line]) -> io::Result<()> {
        let mut text = Vec::new();
        for line in lines {
            serde_json::to_writer(&mut text, line)?;
            text.push(b'\n');
        }
        self.file.write_all(&text)
    }
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recorder")
            .field("failure", &self.failure())
            .finish_non_exhaustive()
    }
}

struct RecordedModel {
    recorder: Recorder,
    inner: Arc<dyn Model>,
}

impl Model for RecordedModel {
    fn call<'a>(
        &'a self,
        request: Request,
        deltas: &'a (dyn Fn(Delta) + Send + Sync),
    ) -> BoxFuture<'a, Result<Reply, ModelError>> {
        async move {
            let outcome = self.inner.call(request.clone(), deltas).await;
            self.recorder.record_call(&request, &outcome);
            outcome
        }
        .boxed()
    }

    fn count_tokens<'a>(
        &'a self,
        request: &Request,
    ) -> BoxFuture<'a, Result<TokenCount, ModelError>> {
        self.inner.count_tokens(request)
    }
}

struct RecordedProvider<P> {
    recorder: Recorder,
    inner: P,
}

impl<P: Provider> Provider for RecordedProvider<P> {
    fn model(&self, request: ProviderRequest<'_>) -> Result<Arc<dyn Model>, ModelError> {
        let inner = self.inner.model(request)?;
        Ok(Arc::new(RecordedModel {
            recorder: self.recorder.clone(),
            inner,
        }))
    }
}
