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
use dormouse_proto::id::CallId;
use dormouse_proto::temp_file::TempId;
use dormouse_proto::tool::ToolOutput;

use super::arrival::Arrival;
use super::{Completion, Input, PendingMessage, PendingSpawn};
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
    /// The output of a tool that runs outside of the machine.
    Output {
        call: CallId,
        output: ToolOutput,
        source: String,
    },
    /// The content of a temporary file.
    TempFile {
        call: CallId,
        id: TempId,
        version: u64,
        content: Content,
    },
    /// Input from outside of the process.
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
            Self::Output(_) | Self::TempFile(_) => false,
        }
    }
}

impl Read {
    /// The call that waits for the read; `None` for an arrival.
    #[must_use]
    pub fn call(&self) -> Option<CallId> {
        match &self.subject {
            ReadSubject::Call { call, .. }
            | ReadSubject::Output { call, .. }
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
        let input = match subject {
            ReadSubject::Call {
                call,
                purpose,
                args,
                table,
                program,
            } => {
                let settings = &settings.unwrap_or_default();
                // Arguments are parsed and their values copied, hence twice their length.
                quota.charge(args.len().saturating_mul(2)).ok()?;
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
            ReadSubject::Output {
                call,
                output,
                source,
            } => completed(
                call,
                ReadResult::Output(placer.output(output.clone(), source)),
            ),
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
