//! Recordings of real runs: [`Recorder`] writes the requests and replies of models to a file,
//! [`Replayer`] serves them again, offline.
//!
//! A recording is a text file in which each line is a JSON object. The first line identifies the
//! format and its version: `{"dormouse_recording":1}`. The other lines are parts, numbered from 0,
//! and calls, which refer to parts by their numbers:
//!
//! ```text
//! {"part":"You are an auditor."}
//! {"call":{"request":[0,1,2,5,6],"reply":{"blocks":[…],"stop":"EndTurn","usage":{…}}}}
//! {"call":{"request":[0,1,2,5],"error":{"kind":"overloaded","message":"…","retry_after_ms":7000}}}
//! ```
//!
//! A request is the list of its parts: program and model, the system prompt, the tools, the
//! parameters, the media, then each message. A part that occurs in many requests is written once,
//! so a recording is as long as its conversations. No part contains a pid, a key or an address;
//! secrets in texts can be masked, as in an export. Calls with equal requests are distinguished by
//! their order. A call that is given up, by an interrupt or at its deadline, has no outcome and is
//! not recorded: a replay of the run ends at it.

mod record;
mod replay;

use std::sync::Arc;
use std::time::Duration;

use dormouse_kernel::export::{Redact, mask_text};
use dormouse_proto::model::{ModelError, ModelErrorKind, Reply, Request};
use dormouse_proto::provider_tools::ProviderTools;
use dormouse_proto::record::masked::Masked;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

pub use self::record::Recorder;
pub use self::replay::{ReplayError, Replayer};

/// The version of the format.
const VERSION: u32 = 1;
/// The parts of a request before its messages, in words for errors.
const LEADING_PARTS: [&str; 5] = [
    "the model and the program",
    "the system prompt",
    "the tools",
    "the parameters",
    "the media",
];

/// Masks secrets in a recording.
type Redaction = Arc<dyn Redact>;

/// A line of a recording: exactly one field is set.
#[derive(Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Line {
    #[serde(skip_serializing_if = "Option::is_none")]
    dormouse_recording: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    part: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    call: Option<Call>,
}

/// A call: the numbers of the parts of its request, and the outcome.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Call {
    request: Vec<usize>,
    #[serde(flatten)]
    outcome: End,
}

/// How a call ended.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum End {
    Reply(Reply),
    Error(Failure),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Failure {
    kind: String,
    message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
}

impl From<&Result<Reply, ModelError>> for End {
    fn from(outcome: &Result<Reply, ModelError>) -> Self {
        match outcome {
            Ok(reply) => Self::Reply(reply.clone()),
            Err(ModelError {
                kind,
                message,
                retry_after,
            }) => Self::Error(Failure {
                kind: kind.word().to_owned(),
                message: message.clone(),
                retry_after_ms: retry_after.map(|after| after.as_millis() as u64),
            }),
        }
    }
}

impl From<End> for Result<Reply, ModelError> {
    fn from(outcome: End) -> Self {
        match outcome {
            End::Reply(reply) => Ok(reply),
            End::Error(Failure {
                kind,
                message,
                retry_after_ms,
            }) => {
                // A later version wrote an unknown kind.
                let kind = ModelErrorKind::ALL
                    .into_iter()
                    .find(|known| known.word() == kind);
                let retry_after = retry_after_ms.map(Duration::from_millis);
                Err(ModelError {
                    kind: kind.unwrap_or(ModelErrorKind::Unavailable),
                    message,
                    retry_after,
                })
            }
        }
    }
}

/// The program that makes a call, and the model that it calls.
#[derive(Serialize)]
struct ModelAndProgram<'a> {
    model: &'a str,
    program: &'a str,
}

/// The parts of a request as JSON texts, [`LEADING_PARTS`] first. O(n) in the conversation.
fn parts(request: &Request, redact: Option<&Redaction>) -> Result<Vec<String>, serde_json::Error> {
    let Request {
        pid: _,
        program,
        model,
        system,
        tools,
        provider_tools,
        messages,
        forked_at: _,
        parameters,
        media,
    } = request;
    let media: Vec<_> = media
        .iter()
        .map(|(fd, bytes)| (fd.to_string(), blake3::hash(bytes).to_string()))
        .collect();
    let leading_parts = [
        json(&ModelAndProgram { model, program }, redact)?,
        json(system, redact)?,
        match **provider_tools == ProviderTools::default() {
            true => json(tools, redact)?,
            false => json(&(tools, provider_tools), redact)?,
        },
        json(parameters, redact)?,
        json(&media, redact)?,
    ];
    leading_parts
        .into_iter()
        .map(Ok)
        .chain(messages.iter().map(|message| json(message, redact)))
        .collect()
}

/// A value as JSON, with secrets masked.
///
/// # Errors
/// Masking gives two keys of an object the same name.
fn json(value: &impl Serialize, redact: Option<&Redaction>) -> Result<String, serde_json::Error> {
    match redact {
        Some(redact) => serde_json::to_string(&Masked::new(value, &|text: &str| {
            mask_text(&**redact, text)
        })),
        None => serde_json::to_string(value),
    }
}

/// Describes part `at` of a request.
fn part_name(at: usize) -> String {
    LEADING_PARTS.get(at).map_or_else(
        || format!("message {}", at + 1 - LEADING_PARTS.len()),
        |name| (*name).to_owned(),
    )
}

#[cfg(test)]
mod tests;
