//! Reads: access to content bytes on behalf of a decision.
//!
//! A decision never looks at bytes, since contents can be large and on disk. It returns a [`Read`]
//! instead, which holds everything that is needed to perform it. The shell performs a small read at
//! once and any other read outside of the process actor; the result comes back as an [`Input`]. A
//! read has no side effect: no fact is journalled before it, and it is repeated after a restart.
//!
//! `pending_reads.rs` requests reads and handles their results.

use std::sync::Arc;

use dormouse_proto::descriptor::{DescriptorSettings, FdError};
use dormouse_proto::id::{CallId, Pid};
use dormouse_proto::model::Reply;
use dormouse_proto::process::Exit;
use dormouse_proto::temp_file::TempId;
use dormouse_proto::tool::ToolOutput;
use imbl::OrdMap;

use super::arrival::Arrival;
use super::children::PlacedExit;
use super::exploring::why_it_loses;
use super::spawn::{NewChild, SpawnBirth};
use super::tools::source_of_output;
use super::{Completion, Input, Judge, PendingMessage, PendingSpawn, PlacedReply};
use crate::table::Table;
use crate::table::placement::{PlacedOutput, Placement, Placer};
use crate::tool::{Call, CheckMessage, CheckSpawn, ExpandHandles, Outcome, Refusal, Syscall};
use dormouse_content::{Content, ReadQuota};
use dormouse_program::Program;

/// A read that a decision requested. Cloning costs a few pointers.
#[derive(Clone, Debug)]
pub struct Read {
    pub(super) subject: ReadSubject,
    pub(super) settings: Option<DescriptorSettings>,
    pub(super) now_ms: u64,
}

/// The bytes that a read accesses, with all inputs of the computation on them.
#[derive(Clone, Debug)]
pub(super) enum ReadSubject {
    /// Bytes that a call needs before it can start or be answered.
    Call {
        call: CallId,
        purpose: ReadPurpose,
        args: Arc<str>,
        table: Table,
        program: Program,
    },
    /// A reply of the model, in which something may become a descriptor.
    Reply {
        call: CallId,
        reply: Arc<Reply>,
        marks_references: bool,
    },
    /// The output of a tool that runs outside of the machine.
    Output {
        call: CallId,
        output: ToolOutput,
        tool: Arc<str>,
        args: Arc<str>,
    },
    /// The last messages of the children of a call, by index.
    EndedChildren {
        call: CallId,
        tool: &'static str,
        /// How many children there are. The processes that judged them follow in `ended`.
        children: u32,
        ended: OrdMap<u32, (Pid, Exit)>,
        /// Judges the children of an exploration.
        judge: Option<Judge>,
    },
    /// What the system prompt and the mailbox of a spawned child are made of.
    Birth { call: CallId, birth: SpawnBirth },
    /// The content of a temporary file.
    TempFile {
        call: CallId,
        id: TempId,
        version: u64,
        content: Content,
    },
    /// An arrival (`arrival.rs`), such as input of the host. It counts as a read for no call.
    Arrival(Arrival),
}

/// Why a call needs bytes.
#[derive(Clone, Copy, Debug)]
pub(super) enum ReadPurpose {
    /// To execute a descriptor tool.
    Tool(Syscall),
    /// To expand the handles in the arguments of an external tool.
    Arguments(ExpandHandles),
    /// To check a spawn and render its preloads.
    Spawn(CheckSpawn),
    /// To check a message and extract the descriptors that it transfers.
    Message(CheckMessage),
}

/// The result of a read.
#[derive(Clone, Debug)]
pub enum ReadResult {
    /// Outcome of a descriptor tool.
    Tool(Outcome),
    /// Expanded arguments; `None` if they contained no handle.
    Arguments(Result<Option<String>, FdError>),
    /// A checked spawn.
    Spawn(Result<PendingSpawn, Refusal>),
    /// A checked message.
    Message(Result<PendingMessage, Refusal>),
    /// Placement of the output of a tool.
    Output(PlacedOutput),
    /// Placement of the last messages of the children of a call.
    EndedChildren(Vec<PlacedExit>),
    /// A spawned child with its image.
    Birth(Result<NewChild, Refusal>),
    /// Placement of the content of a temporary file.
    TempFile(Placement),
}

impl ReadResult {
    /// Whether the result starts work outside of the process.
    pub(super) fn starts_work(&self) -> bool {
        match self {
            Self::Tool(outcome) => outcome.starts_work(),
            Self::Arguments(result) => result.is_ok(),
            Self::Spawn(result) => result.is_ok(),
            Self::Message(result) => result.is_ok(),
            Self::Birth(result) => result.is_ok(),
            Self::Output(_) | Self::EndedChildren(_) | Self::TempFile(_) => false,
        }
    }
}

impl Read {
    /// The call that waits for the read; `None` for an arrival.
    #[must_use]
    pub fn call(&self) -> Option<CallId> {
        match &self.subject {
            ReadSubject::Call { call, .. }
            | ReadSubject::Reply { call, .. }
            | ReadSubject::Output { call, .. }
            | ReadSubject::EndedChildren { call, .. }
            | ReadSubject::Birth { call, .. }
            | ReadSubject::TempFile { call, .. } => Some(*call),
            ReadSubject::Arrival(_) => None,
        }
    }

    /// Whether the read executes a descriptor tool, rather than a step of another tool.
    #[must_use]
    pub fn is_tool(&self) -> bool {
        matches!(
            self.subject,
            ReadSubject::Call {
                purpose: ReadPurpose::Tool(_),
                ..
            }
        )
    }

    /// Whether the read is of a reply of the model.
    #[must_use]
    pub fn is_reply(&self) -> bool {
        matches!(self.subject, ReadSubject::Reply { .. })
    }

    /// Performs the read. Returns `None` if the quota does not allow it; the read can then be
    /// performed again with another quota.
    #[must_use]
    pub fn perform(&self, quota: &ReadQuota) -> Option<Input> {
        let Self {
            subject,
            settings,
            now_ms,
        } = self;
        let placer = Placer {
            settings: settings.as_ref(),
            now_ms: *now_ms,
            quota,
        };
        let completed = |call: &CallId, result| Input::Completed {
            call: *call,
            result: Completion::Read(result),
        };
        // Arguments are parsed and their values copied, hence twice their length.
        let charge_arguments = |args: &str| quota.charge(args.len().saturating_mul(2)).ok();
        let input = match subject {
            ReadSubject::Call {
                call,
                purpose,
                args,
                table,
                program,
            } => {
                let settings = &settings.unwrap_or_default();
                charge_arguments(args)?;
                completed(
                    call,
                    purpose.execute(
                        &Call {
                            table,
                            args,
                            settings,
                            now_ms: *now_ms,
                            quota,
                        },
                        program,
                    ),
                )
            }
            ReadSubject::Reply {
                call,
                reply,
                marks_references,
            } => Input::Completed {
                call: *call,
                result: Completion::Reply(Box::new(
                    PlacedReply::new(reply, *marks_references, &placer).ok()?,
                )),
            },
            ReadSubject::Output {
                call,
                output,
                tool,
                args,
            } => {
                charge_arguments(args)?;
                let source = source_of_output(tool, args);
                completed(
                    call,
                    ReadResult::Output(placer.output(output.clone(), &source)),
                )
            }
            ReadSubject::EndedChildren {
                call,
                tool,
                children,
                ended,
                judge,
            } => {
                let placed = ended.iter().take_while(|(index, _)| *index < children);
                let placed = placed.map(|(index, (child, exit))| {
                    let verdict = ended.get(&children.saturating_add(*index));
                    let verdict = verdict.map(|(_, verdict)| verdict);
                    // Only the children of an exploration can lose.
                    let why = match *tool {
                        "explore" => why_it_loses(exit, judge.as_ref(), verdict),
                        _ => None,
                    };
                    PlacedExit::new((*index, *child), exit, (tool, why), &placer)
                });
                completed(call, ReadResult::EndedChildren(placed.collect()))
            }
            ReadSubject::Birth { call, birth } => {
                completed(call, ReadResult::Birth(birth.image(*now_ms, quota).ok()?))
            }
            ReadSubject::TempFile {
                call,
                id,
                version,
                content,
            } => completed(
                call,
                ReadResult::TempFile(placer.temp_file((*id, *version), content)),
            ),
            ReadSubject::Arrival(arrival) => Input::Placed(arrival.clone().place(&placer)),
        };
        // If the quota ran out during the computation, the result may be based on a failed read.
        (!quota.is_used_up()).then_some(input)
    }
}

impl ReadPurpose {
    fn execute(self, call: &Call<'_>, program: &Program) -> ReadResult {
        match self {
            Self::Tool(syscall) => ReadResult::Tool(syscall(call)),
            Self::Arguments(expand) => ReadResult::Arguments(expand(call)),
            Self::Spawn(check) => ReadResult::Spawn(check(program, call)),
            Self::Message(check) => ReadResult::Message(check(program, call)),
        }
    }
}
