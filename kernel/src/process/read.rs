//! Reads: what a decision has to know of the bytes of contents.
//!
//! A decision never looks at bytes: contents can be large, and on disk. If it needs them, it asks
//! for a [`Read`], which holds all that it takes to perform it. The shell performs it, at once if
//! it is small and next to the actor if it is not, and the result comes back as
//! [`Completion::Read`]. A read changes nothing: it needs no intent and waits for no fact, and one
//! that a restart cuts off is performed again.
//!
//! What is asked for, and what follows from it, is in `reading.rs`.

use std::sync::Arc;

use dormouse_proto::descriptor::{DescriptorSettings, FdError};
use dormouse_proto::id::CallId;
use dormouse_proto::temp_file::TempId;
use dormouse_proto::tool::ToolOutput;

use super::arrival::Arrival;
use super::{Completion, Input};
use crate::program::Program;
use crate::syscall::spawn::{self, PendingSpawn};
use crate::syscall::{Call, Outcome, PendingMessage, Syscall, handle, send_message};
use crate::table::Table;
use crate::table::placement::{PlacedOutput, Placement, Placer};
use dormouse_content::{Content, ReadQuota};

/// A read that a decision asked for. Cloning costs a few pointers.
#[derive(Clone, Debug)]
pub struct Read {
    pub(super) subject: Subject,
    pub(super) settings: Option<DescriptorSettings>,
    pub(super) now_ms: u64,
}

/// What is read, and what for.
#[derive(Clone, Debug)]
pub(super) enum Subject {
    /// What a call needs before it can be begun or answered.
    Call {
        call: CallId,
        purpose: Purpose,
        args: Arc<str>,
        table: Table,
        program: Program,
    },
    /// What a tool outside produced.
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
    /// Something that arrived from outside of the process.
    Arrival(Arrival),
}

/// What a call needs the bytes for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Purpose {
    /// The answer of a descriptor tool, or what it asks for.
    Tool(Syscall),
    /// Arguments of a tool outside, with handles replaced.
    Arguments,
    /// What a child is given.
    Spawn,
    /// What a message hands over.
    Message,
}

/// What a read found.
#[derive(Clone, Debug)]
pub enum Found {
    /// The outcome of a descriptor tool.
    Tool(Outcome),
    /// Arguments without handles; none if there was none.
    Arguments(Result<Option<String>, FdError>),
    /// A checked spawn, or a text for the model.
    Spawn(Result<PendingSpawn, String>),
    /// A checked message, or a text for the model.
    Message(Result<PendingMessage, String>),
    /// Where the output of a tool goes.
    Output(PlacedOutput),
    /// Where the content of a temporary file goes.
    TempFile(Placement),
}

impl Found {
    /// Whether work outside of the process is begun with it.
    pub(super) fn begins_work(&self) -> bool {
        match self {
            Self::Tool(outcome) => outcome.begins_work(),
            Self::Arguments(result) => result.is_ok(),
            Self::Spawn(result) => result.is_ok(),
            Self::Message(result) => result.is_ok(),
            Self::Output(_) | Self::TempFile(_) => false,
        }
    }
}

impl Read {
    /// The call that waits for it; none if it is of an arrival.
    #[must_use]
    pub fn call(&self) -> Option<CallId> {
        match &self.subject {
            Subject::Call { call, .. }
            | Subject::Output { call, .. }
            | Subject::TempFile { call, .. } => Some(*call),
            Subject::Arrival(_) => None,
        }
    }

    /// Whether it is the work of a descriptor tool, and not a part of what another tool does.
    #[must_use]
    pub fn is_tool(&self) -> bool {
        matches!(
            self.subject,
            Subject::Call {
                purpose: Purpose::Tool(_),
                ..
            }
        )
    }

    /// Performs it. None if the quota does not allow it: then nothing has come of it, and it can be
    /// performed again.
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
        let found = |call: &CallId, found| Input::Completed {
            call: *call,
            result: Completion::Read(found),
        };
        let input = match subject {
            Subject::Call {
                call,
                purpose,
                args,
                table,
                program,
            } => {
                let settings = &settings.unwrap_or_default();
                // They are parsed, and what they say is copied.
                quota.charge(args.len().saturating_mul(2)).ok()?;
                found(
                    call,
                    purpose.read(
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
            Subject::Output {
                call,
                output,
                source,
            } => found(call, Found::Output(placer.output(output.clone(), source))),
            Subject::TempFile {
                call,
                id,
                version,
                content,
            } => found(
                call,
                Found::TempFile(placer.temp_file((*id, *version), content)),
            ),
            Subject::Arrival(arrival) => Input::Placed(arrival.clone().place(&placer)),
        };
        // A result that was made when nothing more could be read is none.
        (!quota.is_used_up()).then_some(input)
    }
}

impl Purpose {
    fn read(self, call: &Call<'_>, program: &Program) -> Found {
        match self {
            Self::Tool(syscall) => Found::Tool(syscall(call)),
            Self::Arguments => Found::Arguments(handle::expand(call)),
            Self::Spawn => Found::Spawn(spawn::pending(program, call)),
            Self::Message => Found::Message(send_message::pending(program, call)),
        }
    }
}
