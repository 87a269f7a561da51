//! Replays a recording: answers requests with the recorded replies, offline. The head of
//! `recording.rs` describes the format: a request is the list of its *parts* (the system prompt, the
//! tools, each message), and equal parts have one number.

use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use dormouse_actors::ports::{Model, Provider, ProviderRequest};
use dormouse_kernel::export::Redact;
use dormouse_proto::message::Block;
use dormouse_proto::model::{Delta, ModelError, ModelErrorKind, Reply, Request};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::{Call, End, Line, Redaction, VERSION, part_name, parts};

/// How much of a difference an error shows, in characters on each side.
const SHOWN_CHARS: usize = 40;

/// Serves a recording, as a model and as a provider. Clones share their position in the recording.
///
/// A request gets the reply that the same request got. If it was recorded several times, the
/// replies are served in their order, and then the last one again. A request that was not recorded
/// fails, and the error names the first byte that differs from the most similar recorded request.
/// Nothing is ever sent to a server.
#[derive(Clone)]
pub struct Replayer {
    redact: Option<Redaction>,
    recording: Arc<Recording>,
}

struct Recording {
    /// The parts, by their numbers.
    parts: Vec<Arc<str>>,
    /// The number of each part.
    numbers: HashMap<Arc<str>, usize>,
    /// The requests, in the order in which their calls ended.
    requests: Vec<Vec<usize>>,
    outcomes: Mutex<HashMap<Vec<usize>, VecDeque<End>>>,
}

/// Why a recording cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The file cannot be read.
    #[error("the recording cannot be read: {0}")]
    Read(#[from] std::io::Error),
    /// The file is not a recording.
    #[error("this is no recording: its first line has to be {{\"dormouse_recording\":{VERSION}}}")]
    NotARecording,
    /// A later version of this program wrote the file.
    #[error(
        "the recording has version {0}, and this program reads version {VERSION}: use the program \
         that made it"
    )]
    Version(u32),
    /// A line is damaged.
    #[error("line {line} of the recording is damaged: {why}")]
    Damaged {
        /// The number of the line, from 1.
        line: usize,
        /// What is wrong.
        why: String,
    },
}

impl Replayer {
    /// Reads a recording. An incomplete last line, as a crash leaves it, is ignored.
    ///
    /// # Errors
    /// [`ReplayError`].
    pub fn load(path: impl AsRef<Path>) -> Result<Self, ReplayError> {
        Self::parse(&std::fs::read_to_string(path)?)
    }

    /// Parses a recording.
    ///
    /// # Errors
    /// [`ReplayError`].
    pub fn parse(text: &str) -> Result<Self, ReplayError> {
        Ok(Self {
            redact: None,
            recording: Arc::new(Recording::parse(text)?),
        })
    }

    /// Masks requests before they are compared, as the recorded ones were.
    #[must_use]
    pub fn redact(self, redact: impl Redact + 'static) -> Self {
        Self {
            redact: Some(Arc::new(redact)),
            ..self
        }
    }

    fn recorded_reply(&self, request: &Request) -> Result<Reply, ModelError> {
        let unavailable = |why| ModelError::new(ModelErrorKind::Unavailable, why);
        let parts = parts(request, self.redact.as_ref());
        let parts = parts
            .map_err(|error| unavailable(format!("the request cannot be compared: {error}")))?;
        self.recording
            .next_outcome(&parts)
            .ok_or_else(|| unavailable(self.recording.difference(&parts)))?
            .into()
    }
}

impl Recording {
    fn parse(text: &str) -> Result<Self, ReplayError> {
        // A line without a line feed is incomplete.
        let complete_lines = text.rfind('\n').map_or("", |end| &text[..end]);
        let mut lines = complete_lines.lines().enumerate();
        let first = lines
            .next()
            .and_then(|(_, line)| serde_json::from_str::<Line>(line).ok());
        match first.and_then(|line| line.dormouse_recording) {
            Some(VERSION) => {}
            Some(other) => return Err(ReplayError::Version(other)),
            None => return Err(ReplayError::NotARecording),
        }
        let (mut parts, mut requests) = (Vec::<Arc<str>>::new(), Vec::new());
        let mut outcomes = HashMap::<_, VecDeque<_>>::new();
        for (at, line) in lines {
            let damaged = |why: String| ReplayError::Damaged { line: at + 1, why };
            match serde_json::from_str(line).map_err(|error| damaged(error.to_string()))? {
                Line {
                    part: Some(part),
                    call: None,
                    ..
                } => parts.push(Arc::from(part.get())),
                Line {
                    call: Some(Call { request, outcome }),
                    part: None,
                    ..
                } => {
                    if let Some(unknown) = request.iter().find(|number| **number >= parts.len()) {
                        return Err(damaged(format!(
                            "it names part {unknown}, which was not written before it"
                        )));
                    }
                    requests.push(request.clone());
                    outcomes.entry(request).or_default().push_back(outcome);
                }
                _ => return Err(damaged("it has to hold one part or one call".to_owned())),
            }
        }
        let numbers = parts
            .iter()
            .cloned()
            .enumerate()
            .map(|(number, part)| (part, number))
            .collect();
        Ok(Self {
            parts,
            numbers,
            requests,
            outcomes: Mutex::new(outcomes),
        })
    }

    /// The next recorded outcome of the same request; the last one is repeated.
    fn next_outcome(&self, parts: &[String]) -> Option<End> {
        let request: Vec<_> = parts
            .iter()
            .map(|part| self.numbers.get(part.as_str()).copied())
            .collect::<Option<_>>()?;
        let mut outcomes = self.outcomes.lock().unwrap_or_else(PoisonError::into_inner);
        let outcomes = outcomes.get_mut(&request)?;
        if outcomes.len() > 1 {
            outcomes.pop_front()
        } else {
            outcomes.front().cloned()
        }
    }

    /// Describes how a request differs from the most similar recorded one.
    fn difference(&self, parts: &[String]) -> String {
        let first_difference = |request: &&Vec<usize>| self.first_difference(request, parts);
        // Of equally similar requests, the first one is named, since two runs begin to differ at
        // the first difference.
        let nearest = self
            .requests
            .iter()
            .enumerate()
            .rev()
            .max_by_key(|(_, request)| first_difference(request));
        let Some((at, request)) = nearest else {
            return "the recording holds no call".to_owned();
        };
        let (part, byte) = self.first_difference(request, parts);
        let before: usize = parts[..part].iter().map(String::len).sum();
        let recorded = request.get(part).map_or("", |number| &self.parts[*number]);
        let requested = parts.get(part).map_or("", String::as_str);
        format!(
            "the recording holds no such request. Its call {} is nearest: it differs at byte {}, \
             byte {byte} of {}: recorded {}, asked {}",
            at + 1,
            before + byte,
            part_name(part),
            excerpt_around(recorded, byte),
            excerpt_around(requested, byte)
        )
    }

    /// The first part that differs, and the first byte in it that differs.
    fn first_difference(&self, request: &[usize], parts: &[String]) -> (usize, usize) {
        let recorded = || request.iter().map(|number| &*self.parts[*number]);
        let same = recorded()
            .zip(parts)
            .take_while(|(recorded, requested)| recorded == requested)
            .count();
        let (recorded, requested) = (
            recorded().nth(same).unwrap_or(""),
            parts.get(same).map_or("", String::as_str),
        );
        (
            same,
            recorded
                .bytes()
                .zip(requested.bytes())
                .take_while(|(recorded, requested)| recorded == requested)
                .count(),
        )
    }
}

/// The text around a byte.
fn excerpt_around(text: &str, byte: usize) -> String {
    if text.is_empty() {
        return "nothing".to_owned();
    }
    let at = text.floor_char_boundary(byte.min(text.len()));
    let before: Vec<_> = text[..at].chars().rev().take(SHOWN_CHARS).collect();
    let shown: String = before
        .into_iter()
        .rev()
        .chain(text[at..].chars().take(SHOWN_CHARS))
        .collect();
    format!("«{shown}»")
}

impl Model for Replayer {
    fn call<'a>(
        &'a self,
        request: Request,
        deltas: &'a (dyn Fn(Delta) + Send + Sync),
    ) -> BoxFuture<'a, Result<Reply, ModelError>> {
        async move {
            let reply = self.recorded_reply(&request)?;
            for block in &reply.blocks {
                match block {
                    Block::Text { text, .. } => deltas(Delta::Text(text.to_string())),
                    Block::ToolUse { name, .. } => deltas(Delta::ToolUse(name.to_string())),
                    Block::ToolResult { .. } | Block::Media { .. } | Block::Opaque(_) => {}
                }
            }
            Ok(reply)
        }
        .boxed()
    }
}

impl Provider for Replayer {
    fn model(&self, _request: ProviderRequest<'_>) -> Result<Arc<dyn Model>, ModelError> {
        Ok(Arc::new(self.clone()))
    }
}

impl std::fmt::Debug for Replayer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (calls, parts) = (self.recording.requests.len(), self.recording.parts.len());
        f.debug_struct("Replayer")
            .field("calls", &calls)
            .field("parts", &parts)
            .finish_non_exhaustive()
    }
}
