//! What a node can be asked about the processes of a shard: calls, replies and failures, which are
//! the same for a kernel of this program and, as JSON, for one of another node.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use dormouse::checkpoint::{Checkpoint, Scope};
use dormouse::id::{CallId, CheckpointId, FactNumber, Pid};
use dormouse::mail::PeerMessage;
use dormouse::ports::{StoreError, SweepMode};
use dormouse::process::{Exit, ProcessRow};
use dormouse::record::codec;
use dormouse::retention::Retention;
use dormouse::user_input::{InputPart, UserInput};
use dormouse::{Budget, LogLine, Paused, ProcessView, Verdict};
use dormouse_postgres::ObjectCollection;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::copies::ImportCall;
use crate::error::{ClusterError, Refusal};
use crate::garbage::ShardCollection;

/// How long a node lets a remote caller wait for the end of a process before it is asked again. A
/// caller notices a machine that has vanished after somewhat more than this.
pub(crate) const WAIT_AT_MOST: Duration = Duration::from_secs(20);

/// A call for the processes of one shard.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Call {
    Start(Box<StartCall>),
    Input {
        pid: Pid,
        parts: Vec<Part>,
        request: Arc<str>,
    },
    Wait {
        pid: Pid,
    },
    Signal {
        pid: Pid,
        signal: Signal,
        scope: Scope,
    },
    Checkpoint {
        pid: Pid,
        label: Arc<str>,
        scope: Scope,
    },
    Branch {
        pid: Pid,
        at: ClusterPosition,
        is_stopped: bool,
    },
    Info {
        pid: Pid,
    },
    /// The rows of a process and of all below it.
    Tree {
        pid: Pid,
    },
    Raise {
        pid: Pid,
        by: Budget,
    },
    Verdict {
        pid: Pid,
        call: CallId,
        verdict: Verdict,
    },
    Inspect {
        pid: Pid,
    },
    Log {
        pid: Pid,
    },
    Processes {
        after: Option<Pid>,
        limit: usize,
    },
    /// A message of a process of another shard: an encoded `PeerMessage`.
    Deliver {
        message: Blob,
    },
    /// Makes a copy of a tree, held.
    Import(Box<ImportCall>),
    /// Runs a copy that has become the tree.
    ResumeCopy {
        pids: Vec<Pid>,
    },
    /// The export of a tree.
    Export {
        pid: Pid,
    },
    /// A garbage collection. Asked for again with the same id until it is done.
    Collect {
        request: Arc<str>,
        what: CollectCall,
    },
}

/// What a node is to collect.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CollectCall {
    /// The shard that is called.
    Shard {
        retention: Retention,
        mode: SweepMode,
    },
    /// The objects of all shards that are at least so old.
    Objects { grace: Duration },
}

/// A process to be started.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct StartCall {
    /// The id of the request, which a label of the tree holds.
    pub(crate) request: Arc<str>,
    /// Whether an earlier attempt may have started it.
    pub(crate) may_have_begun: bool,
    pub(crate) entry: String,
    pub(crate) files: Vec<(String, Blob)>,
    pub(crate) input: FirstInput,
    pub(crate) is_session: bool,
    pub(crate) name: Option<Arc<str>>,
    pub(crate) labels: Vec<(String, String)>,
}

/// The first input of a process.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FirstInput {
    /// The `user` prompt of the program, if it has one.
    OfProgram,
    /// None.
    Nothing,
    Parts(Vec<Part>),
}

/// A part of an input.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Part {
    bytes: Blob,
    source: Arc<str>,
    is_typed: bool,
}

/// Signals to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Signal {
    /// Ends the current turn.
    Interrupt,
    /// Begins nothing more.
    Stop,
    /// Continues after a stop.
    Continue,
    /// Ends the process.
    Kill,
}

/// A position that a branch begins at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClusterPosition {
    /// The present.
    Now,
    /// After the commit that holds this fact.
    Fact(FactNumber),
    /// A checkpoint of the shard of the process.
    Checkpoint(CheckpointId),
}

/// A row of the process tables of a cluster.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClusterProcessInfo {
    /// The identity, the origin and the exit of the process.
    pub row: ProcessRow,
    /// The status word, as listings show it.
    pub status: String,
    /// The number of its last durable fact, if it is loaded.
    pub fact: Option<FactNumber>,
    /// Whether nothing happens in it until an input arrives, an alarm is due or a person decides.
    pub rests: bool,
}

/// The state of a process, in numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ClusterProcessView {
    /// The last durable fact.
    pub fact: FactNumber,
    /// The number of messages in its conversation.
    pub messages: usize,
    /// The number of descriptors in its table.
    pub descriptors: usize,
    /// Characters that its tools returned.
    pub produced_chars: u64,
    /// The part of these characters that entered its context.
    pub entered_chars: u64,
}

impl From<&ProcessView> for ClusterProcessView {
    fn from(view: &ProcessView) -> Self {
        Self {
            fact: view.fact,
            messages: view.messages,
            descriptors: view.descriptors,
            produced_chars: view.output_totals.produced_chars,
            entered_chars: view.output_totals.entered_chars,
        }
    }
}

/// A fact of the journal of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ClusterFact {
    /// Its number.
    pub number: FactNumber,
    /// Its name, such as `turn_began`; `born` for the birth.
    pub name: String,
    /// A summary of one line.
    pub summary: String,
}

impl From<LogLine> for ClusterFact {
    fn from(line: LogLine) -> Self {
        Self {
            number: line.number,
            name: line.name.to_owned(),
            summary: line.summary,
        }
    }
}

/// The reply to a call.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reply {
    Done,
    Process(Pid),
    /// `None` if the process has not ended yet.
    Exit(Option<Exit>),
    Checkpoint(Checkpoint),
    Info(Box<ClusterProcessInfo>),
    /// The limit that the process is still paused at.
    Raised(Option<Paused>),
    View(ClusterProcessView),
    Log(Vec<ClusterFact>),
    Processes(Vec<ClusterProcessInfo>),
    /// An encoded `Answer`.
    Answer(Blob),
    /// The old and the new pid of each process.
    Imported(Vec<(Pid, Pid)>),
    Export(Blob),
    /// The collection is not done yet.
    Collecting,
    Collected {
        deleted: ShardCollection,
        unreadable: Vec<String>,
    },
    /// `None` if the node has no object store.
    CollectedObjects(Option<ObjectCollection>),
}

/// Why a call has no reply.
#[derive(Clone, Debug, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CallError {
    /// The shard is held by another node, or by none. Nothing was done.
    #[error("{0}")]
    NotOwner(String),
    /// The kernel stopped, or the connection was lost: it may have been done.
    #[error("{0}")]
    Interrupted(String),
    /// An earlier attempt may have been done, and nothing shows whether it was.
    #[error("{0}")]
    Unknown(String),
    /// The process has moved to another shard. Nothing was done.
    #[error("the process has moved, and is process {to} now")]
    Moved { to: Pid },
    /// It was refused. Nothing was done.
    #[error("{message}")]
    Refused { kind: Refusal, message: String },
    /// The node does not accept the token. Nothing was done.
    #[error("the token is wrong")]
    WrongToken,
}

impl Call {
    /// The name of what is asked, for messages.
    pub(crate) fn what(&self) -> &'static str {
        match self {
            Self::Start(_) => "start",
            Self::Input { .. } => "input",
            Self::Wait { .. } => "wait",
            Self::Signal { .. } => "signal",
            Self::Checkpoint { .. } => "checkpoint",
            Self::Branch { .. } => "branch",
            Self::Info { .. }
            | Self::Tree { .. }
            | Self::Inspect { .. }
            | Self::Log { .. }
            | Self::Processes { .. } => "listing",
            Self::Raise { .. } => "raise of limits",
            Self::Verdict { .. } => "verdict",
            Self::Deliver { .. } => "message",
            Self::Import(_) => "import",
            Self::ResumeCopy { .. } => "resumption",
            Self::Export { .. } => "export",
            Self::Collect { .. } => "garbage collection",
        }
    }

    /// Whether the call may be made again when it may have been done. An interruption could end a
    /// later turn; a second checkpoint, branch or raise would be another one, and a second verdict
    /// is refused.
    pub(crate) fn may_be_repeated(&self) -> bool {
        match self {
            Self::Signal { signal, .. } => *signal != Signal::Interrupt,
            Self::Checkpoint { .. }
            | Self::Branch { .. }
            | Self::Raise { .. }
            | Self::Verdict { .. }
            | Self::Import(_) => false,
            Self::Start(_)
            | Self::Input { .. }
            | Self::Wait { .. }
            | Self::Info { .. }
            | Self::Tree { .. }
            | Self::Inspect { .. }
            | Self::Log { .. }
            | Self::Processes { .. }
            | Self::ResumeCopy { .. }
            | Self::Export { .. }
            | Self::Collect { .. }
            | Self::Deliver { .. } => true,
        }
    }

    /// The process that is asked, if it is one, and may have moved.
    pub(crate) fn pid(&self) -> Option<Pid> {
        match self {
            Self::Input { pid, .. }
            | Self::Wait { pid }
            | Self::Signal { pid, .. }
            | Self::Checkpoint { pid, .. }
            | Self::Branch { pid, .. }
            | Self::Info { pid }
            | Self::Tree { pid }
            | Self::Inspect { pid }
            | Self::Log { pid }
            | Self::Raise { pid, .. }
            | Self::Verdict { pid, .. }
            | Self::Export { pid } => Some(*pid),
            Self::Deliver { message } => {
                let message: Option<PeerMessage> = codec::decode(&message.0).ok();
                message.map(|message| message.to)
            }
            Self::Start(_)
            | Self::Processes { .. }
            | Self::Import(_)
            | Self::ResumeCopy { .. }
            | Self::Collect { .. } => None,
        }
    }

    /// The same call for the process where it has gone.
    pub(crate) fn readdressed(mut self, to: Pid) -> Self {
        match &mut self {
            Self::Input { pid, .. }
            | Self::Wait { pid }
            | Self::Signal { pid, .. }
            | Self::Checkpoint { pid, .. }
            | Self::Branch { pid, .. }
            | Self::Info { pid }
            | Self::Tree { pid }
            | Self::Inspect { pid }
            | Self::Log { pid }
            | Self::Raise { pid, .. }
            | Self::Verdict { pid, .. }
            | Self::Export { pid } => *pid = to,
            Self::Deliver { message } => {
                let moved = codec::decode(&message.0)
                    .and_then(|message| codec::encode(&PeerMessage { to, ..message }));
                if let Ok(moved) = moved {
                    *message = Blob(moved.into());
                }
            }
            Self::Start(_)
            | Self::Processes { .. }
            | Self::Import(_)
            | Self::ResumeCopy { .. }
            | Self::Collect { .. } => {}
        }
        self
    }
}

impl CallError {
    pub(crate) fn refused(kind: Refusal, message: impl Into<String>) -> Self {
        let message = message.into();
        Self::Refused { kind, message }
    }
}

impl From<StoreError> for CallError {
    fn from(error: StoreError) -> Self {
        Self::Interrupted(error.to_string())
    }
}

/// The error of a call that is not made again.
pub(crate) fn final_error(call: &Call, error: CallError) -> ClusterError {
    match error {
        CallError::Refused { kind, message } => ClusterError::Refused { kind, message },
        error => ClusterError::OutcomeUnknown {
            what: call.what(),
            why: error.to_string(),
        },
    }
}

pub(crate) fn parts_of(input: UserInput) -> Vec<Part> {
    let part = |part: InputPart| Part {
        bytes: Blob(part.bytes),
        source: part.source,
        is_typed: part.is_typed,
    };
    input.parts.into_iter().map(part).collect()
}

pub(crate) fn input_of(parts: Vec<Part>) -> UserInput {
    let part = |part: Part| InputPart {
        bytes: part.bytes.0,
        source: part.source,
        is_typed: part.is_typed,
    };
    UserInput {
        parts: parts.into_iter().map(part).collect(),
    }
}

/// Bytes, as base64 in JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Blob(pub(crate) Bytes);

impl Serialize for Blob {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Blob {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = STANDARD.decode(text);
        let bytes = bytes.map_err(serde::de::Error::custom)?;
        Ok(Self(bytes.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_and_replies_travel_as_json() {
        let call = Call::Input {
            pid: Pid(7),
            parts: parts_of([InputPart::text("hä"), InputPart::new("file:x", vec![0xFF])].into()),
            request: "r".into(),
        };
        let json = serde_json::to_string(&call).unwrap();
        let Call::Input { parts, .. } = serde_json::from_str(&json).unwrap() else {
            panic!("{json}");
        };
        let input = input_of(parts);
        assert_eq!(&input.parts[1].bytes[..], [0xFF]);
        assert!(input.parts[0].is_typed && !input.parts[1].is_typed);
        let exit = Exit::new(dormouse::process::ExitStatus::Done, "fine");
        let json = serde_json::to_string(&Reply::Exit(Some(exit.clone()))).unwrap();
        let Reply::Exit(read) = serde_json::from_str(&json).unwrap() else {
            panic!("{json}");
        };
        assert_eq!(read, Some(exit));
    }
}
