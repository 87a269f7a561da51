//! The tools of the kernel, one file per tool: arguments, schema, behaviour and tests.
//!
//! A descriptor tool ([`Syscall`]) is a function of the descriptor table and the arguments:
//! repeated after a restart it has the same outcome. It reads contents within its quota and
//! therefore runs as a read, never inside of a decision (`process/read.rs`). It never changes the
//! table, never touches a file and never calls a model; its [`Outcome`] says what to open, annotate
//! or write, or what to ask a model or the tree's temporary files. A mistake of the model is
//! answered to the model. The result is an [`Answer`], which is never wrapped in a descriptor
//! again.

pub mod append_temp_file;
mod args;
pub mod checkpoint;
pub mod checkpoint_process;
pub mod create_temp_file;
pub mod delete_fd_section;
pub mod delete_temp_file;
pub mod diff_fd;
pub mod fd_to_file;
pub mod fork;
mod form;
pub mod get_fd_section;
pub mod goto;
pub mod handle;
mod instructions;
pub mod list_checkpoints;
pub mod list_fd_sections;
pub mod list_fds;
pub mod list_processes;
pub mod mark_fd_section;
mod parameter;
mod part;
pub mod read_fd;
pub mod read_temp_file;
pub mod receive_messages;
pub mod rename_fd;
pub mod restore_process;
pub mod search_fd;
mod selection;
pub mod send_message;
pub mod spawn;
pub mod summarize_fd;
pub(crate) mod temp_file;
pub(crate) mod transferred;
pub mod wait;
mod window;
pub mod write_temp_file;

use std::borrow::Cow;

use dormouse_proto::descriptor::view::{self, Written};
use dormouse_proto::descriptor::{DescriptorSettings, FdError};
use dormouse_proto::file::{FileError, FileWrite};
use dormouse_proto::id::{CallId, FdId};
use dormouse_proto::record::{Annotation, Entry};
use dormouse_proto::tool::{Access, Answer, ToolSpec};
use serde_json::Value;

pub use delete_fd_section::delete_fd_section;
pub use fd_to_file::fd_to_file;
pub use get_fd_section::get_fd_section;
pub use instructions::{HANDLES, MESSAGES, REFERENCES, instructions};
pub use list_fd_sections::list_fd_sections;
pub use list_fds::list_fds;
pub use mark_fd_section::mark_fd_section;
pub use parameter::Parameter;
pub use read_fd::read_fd;
pub use rename_fd::rename_fd;
pub use search_fd::search_fd;
pub use send_message::{Envelope, PendingMessage, PlacedDescriptor, PlacedEnvelope};
pub use summarize_fd::{PendingSummary, Summarized, summarize_fd};
pub use temp_file::PendingTempFile;
pub use transferred::TransferredDescriptor;

use self::parameter::OfferedParameters;
use crate::process::Draft;
use crate::program::Program;
use crate::table::{NewDescriptor, Table, View, default_view};
use dormouse_content::{Content, ReadQuota, Unreadable};

/// A call of a descriptor tool.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// Descriptor table of the caller.
    pub table: &'a Table,
    /// Arguments as JSON text.
    pub args: &'a str,
    /// Descriptor settings of the caller's program.
    pub settings: &'a DescriptorSettings,
    /// The time: milliseconds since the epoch, UTC.
    pub now_ms: u64,
    /// Quota for the bytes that are read.
    pub quota: &'a ReadQuota,
}

impl<'a> Call<'a> {
    /// A call without a read limit, for hosts and tests.
    #[must_use]
    pub fn unbounded(
        table: &'a Table,
        args: &'a str,
        settings: &'a DescriptorSettings,
        now_ms: u64,
    ) -> Self {
        Self {
            table,
            args,
            settings,
            now_ms,
            quota: ReadQuota::unlimited(),
        }
    }

    /// A descriptor in its default form.
    pub(crate) fn default_view(
        &self,
        entry: Cow<'a, Entry<Content>>,
    ) -> Result<View<'a>, Unreadable> {
        default_view(entry, self.settings, self.quota)
    }
}

/// The implementation of a descriptor tool.
pub type Syscall = fn(&Call<'_>) -> Outcome;

/// A tool of the kernel. Each is defined as `TOOL` in a file of its own and listed in [`TOOLS`].
#[derive(Clone, Copy, Debug)]
pub struct Tool {
    /// Name of the tool.
    pub name: &'static str,
    /// Group of the tool.
    pub group: Group,
    /// Access level that a caller needs.
    pub access: Access,
    /// Description for the model.
    pub description: &'static str,
    /// Parameters in the order in which the model reads them.
    pub parameters: &'static [Parameter],
    /// Adapts description and schema to the program of a process.
    pub adapt: Option<Adapt>,
    /// Example call with its purpose, for the instructions on descriptors.
    pub example: Option<&'static str>,
    /// Whether a call with these arguments can be repeated after a restart, since executing it
    /// twice has the effect of executing it once.
    pub may_repeat: fn(&str) -> bool,
    /// What the tool does.
    pub handler: Handler,
}

/// Groups of tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Descriptors. Enabling one of these tools enables descriptors.
    Descriptors,
    /// Processes: creates them, restores them, or sends messages between them.
    Processes,
    /// Temporary files of a process tree. These tools work without descriptors and enable nothing.
    TempFiles,
}

/// Adapts the specification of a tool to a program.
pub type Adapt = fn(&Program, &mut SpecDraft);

/// The specification of a tool while it is adapted.
#[derive(Clone, Debug)]
pub struct SpecDraft {
    /// What the tool does.
    pub(crate) description: String,
    /// JSON schema of the arguments.
    pub(crate) schema: Value,
}

/// What a tool does.
#[derive(Clone, Copy, Debug)]
pub enum Handler {
    /// A function of the descriptor table. Runs as a read, outside of the process actor.
    Table(Syscall),
    /// A function of the process. Runs within the decision.
    Process(ProcessHandler),
}

/// The implementation of a process tool.
#[derive(Clone, Copy, Debug)]
pub struct ProcessHandler(pub(crate) fn(&mut Draft, CallId));

impl Tool {
    /// The specification for a model of `program`. Costs some microseconds, once per process.
    #[must_use]
    pub fn spec(&self, program: &Program) -> ToolSpec {
        let schema = parameter::schema(self.parameters, OfferedParameters::for_program(program));
        let mut draft = SpecDraft {
            description: self.description.to_owned(),
            schema,
        };
        if let Some(adapt) = self.adapt {
            adapt(program, &mut draft);
        }
        let SpecDraft {
            description,
            schema,
        } = draft;
        ToolSpec {
            name: self.name.into(),
            description: description.into(),
            schema: schema.to_string().into(),
        }
    }

    /// JSON schema of all arguments that the tool accepts in any program.
    #[must_use]
    pub fn schema(&self) -> Value {
        parameter::schema(self.parameters, OfferedParameters::ALL)
    }

    /// Names of the parameters.
    pub fn parameter_names(&self) -> impl Iterator<Item = &'static str> {
        parameter::names(self.parameters, OfferedParameters::ALL)
    }

    /// Calls a descriptor tool; `None` for a process tool.
    #[must_use]
    pub fn call(&self, call: &Call<'_>) -> Option<Outcome> {
        match self.handler {
            Handler::Table(syscall) => Some(syscall(call)),
            Handler::Process(_) => None,
        }
    }
}

/// `may_repeat` of tools that have no side effect, or whose side effects are identified by their
/// call: children are found by their origin, a repeated message is delivered once, and a second
/// checkpoint does no harm.
fn always(_args: &str) -> bool {
    true
}

/// Tools are identified by their name.
impl PartialEq for Tool {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Tool {}

/// All tools of the kernel, in listing order.
pub static TOOLS: &[Tool] = &[
    read_fd::TOOL,
    search_fd::TOOL,
    diff_fd::TOOL,
    fd_to_file::TOOL,
    summarize_fd::TOOL,
    list_fds::TOOL,
    rename_fd::TOOL,
    mark_fd_section::TOOL,
    get_fd_section::TOOL,
    list_fd_sections::TOOL,
    delete_fd_section::TOOL,
    fork::TOOL,
    spawn::TOOL,
    goto::TOOL,
    checkpoint_process::TOOL,
    restore_process::TOOL,
    list_checkpoints::TOOL,
    send_message::TOOL,
    receive_messages::TOOL,
    wait::TOOL,
    list_processes::TOOL,
    create_temp_file::TOOL,
    read_temp_file::TOOL,
    write_temp_file::TOOL,
    append_temp_file::TOOL,
    delete_temp_file::TOOL,
];

/// The kernel tool of this name.
#[must_use]
pub fn tool(name: &str) -> Option<&'static Tool> {
    TOOLS.iter().find(|tool| tool.name == name)
}

/// Names of all kernel tools, in listing order.
pub fn names() -> impl Iterator<Item = &'static str> {
    TOOLS.iter().map(|tool| tool.name)
}

/// Names of the tools of a group, in listing order.
pub fn names_of(group: Group) -> impl Iterator<Item = &'static str> {
    TOOLS
        .iter()
        .filter(move |tool| tool.group == group)
        .map(|tool| tool.name)
}

/// Whether `name` is a tool of the group.
#[must_use]
pub fn is_of(group: Group, name: &str) -> bool {
    tool(name).is_some_and(|tool| tool.group == group)
}

/// The outcome of a descriptor tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The call is answered.
    Answer(Answer),
    /// A descriptor is opened, and the answer announces it.
    Opened(Box<NewDescriptor>),
    /// A descriptor gets a note, and the call is answered.
    Annotated {
        /// Id of the descriptor.
        id: FdId,
        /// The note.
        note: Annotation,
        /// The answer.
        answer: Answer,
    },
    /// The host writes a file; the answer depends on the result.
    Write(PendingWrite),
    /// A model writes a summary; note and answer depend on its reply.
    Summarize(PendingSummary),
    /// An operation on the temporary files of the tree; the answer depends on its result.
    TempFile(PendingTempFile),
}

impl Outcome {
    /// The answer, if it is known already.
    #[must_use]
    pub fn answer(&self) -> Option<&Answer> {
        match self {
            Self::Answer(answer) | Self::Annotated { answer, .. } => Some(answer),
            Self::Opened(_) | Self::Write(_) | Self::Summarize(_) | Self::TempFile(_) => None,
        }
    }

    /// Whether the outcome starts work outside of the process.
    #[must_use]
    pub fn begins_work(&self) -> bool {
        match self {
            Self::Answer(_) | Self::Opened(_) | Self::Annotated { .. } => false,
            Self::Write(_) | Self::Summarize(_) | Self::TempFile(_) => true,
        }
    }
}

impl From<Result<Self, FdError>> for Outcome {
    fn from(result: Result<Self, FdError>) -> Self {
        result.unwrap_or_else(|error| Self::Answer(error.answer()))
    }
}

/// Why a call of a tool is refused, in words for the model: what is wrong, what is valid, what to
/// try.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refusal(String);

impl From<String> for Refusal {
    fn from(message: String) -> Self {
        Self(message)
    }
}

impl From<&str> for Refusal {
    fn from(message: &str) -> Self {
        Self(message.to_owned())
    }
}

/// The message alone: only tools about descriptors answer with the kind of the error.
impl From<FdError> for Refusal {
    fn from(error: FdError) -> Self {
        Self(error.message)
    }
}

impl From<Refusal> for Answer {
    fn from(refusal: Refusal) -> Self {
        Self::failed(refusal.0)
    }
}

/// A file write that the host is asked for. The same arguments and table yield the same write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingWrite {
    /// The write.
    pub write: FileWrite,
    /// The descriptor, as the model named it.
    asked_fd: String,
    /// Id of the descriptor.
    fd: FdId,
    /// Number of lines that are written.
    lines: u64,
    /// Whether JSON is reformatted; `None` if the question did not arise.
    pretty: Option<bool>,
}

impl PendingWrite {
    /// The answer for the result of the write.
    #[must_use]
    pub fn answer(&self, result: Result<(), FileError>) -> Answer {
        match result {
            Ok(()) => view::write(&self.fd, self.written()),
            Err(FileError { kind, message }) => FdError {
                kind: kind.into(),
                fd: Some(self.asked_fd.clone()),
                message,
            }
            .answer(),
        }
    }

    fn written(&self) -> Written<'_> {
        let FileWrite {
            path, bytes, mode, ..
        } = &self.write;
        Written {
            file_path: path,
            mode: mode.word(),
            bytes: bytes.len() as u64,
            lines: self.lines,
            pretty: self.pretty,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_that_of_one_tool_and_each_descriptor_tool_is_shown_by_an_example() {
        let names: std::collections::BTreeSet<_> = names().collect();
        assert_eq!(names.len(), TOOLS.len());
        for tool in TOOLS {
            let is_shown = tool
                .example
                .is_some_and(|example| example.starts_with(&format!("{}(", tool.name)));
            assert_eq!(is_shown, tool.group == Group::Descriptors, "{}", tool.name);
        }
    }

    /// JSON readers keep the last of two, or refuse both.
    #[test]
    fn each_parameter_has_a_name_of_its_own_and_says_what_it_is() {
        for tool in TOOLS {
            let names: std::collections::BTreeSet<_> = tool.parameter_names().collect();
            assert_eq!(names.len(), tool.parameter_names().count(), "{}", tool.name);
            let schema = tool.schema();
            for name in names {
                let description = schema["properties"][name]["description"].as_str().unwrap();
                assert!(
                    description.len() > 8,
                    "{name} of {}: {description}",
                    tool.name
                );
            }
        }
    }
}
