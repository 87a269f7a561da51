//! Tools of the kernel, one file per tool: its arguments, its schema, its behaviour, its tests.
//!
//! A syscall is a function of the table and the arguments: called again after a restart it gives
//! the same outcome. It reads contents, as far as its quota allows, so that it is called as a read
//! and never within a decision (`process/read.rs`). It never changes the table, never touches a
//! file and never asks a model: it says what to open, to note, to write, or to ask of a model or of
//! the tree's files. A mistake of the model is an answer to it. What a syscall answers is an
//! [`Answer`], which nothing puts into a descriptor again.

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
pub(crate) mod handed;
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
pub mod wait;
mod window;
pub mod write_temp_file;

use std::borrow::Cow;

use dormouse_proto::descriptor::view::{self, Written};
use dormouse_proto::descriptor::{DescriptorSettings, FdError};
use dormouse_proto::file::{FileError, FileWrite};
use dormouse_proto::id::{CallId, FdId};
use dormouse_proto::record::{Entry, Note};
use dormouse_proto::tool::{Access, Answer, ToolSpec};
use serde_json::Value;

pub use delete_fd_section::delete_fd_section;
pub use fd_to_file::fd_to_file;
pub use get_fd_section::get_fd_section;
pub use handed::Handed;
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

use self::parameter::Offered;
use crate::process::Draft;
use crate::program::Program;
use crate::table::{NewDescriptor, Table, View, served};
use dormouse_content::{Content, ReadQuota, Unreadable};

/// A call of a tool that is a function of its caller's table.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The table.
    pub table: &'a Table,
    /// The arguments: JSON text.
    pub args: &'a str,
    /// What the caller's program says of descriptors.
    pub settings: &'a DescriptorSettings,
    /// The time: milliseconds since the epoch, UTC.
    pub now_ms: u64,
    /// How much of the contents may be read.
    pub quota: &'a ReadQuota,
}

impl<'a> Call<'a> {
    /// A call that may read everything, as a host or a test makes it.
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

    /// A descriptor of the table in the form that is shown unless another is asked for.
    pub(crate) fn served(&self, entry: Cow<'a, Entry<Content>>) -> Result<View<'a>, Unreadable> {
        served(entry, self.settings, self.quota)
    }
}

/// What a tool does that is a function of its caller's table.
pub type Syscall = fn(&Call<'_>) -> Outcome;

/// A tool of the kernel. Each has a file of its own, which defines it as `TOOL`, and a line in
/// [`TOOLS`].
#[derive(Clone, Copy, Debug)]
pub struct Tool {
    /// Its name.
    pub name: &'static str,
    /// What it works on.
    pub group: Group,
    /// What a process must be allowed to do to call it.
    pub access: Access,
    /// What it does, for a model.
    pub description: &'static str,
    /// Its parameters, in the order in which a model reads of them.
    pub parameters: &'static [Parameter],
    /// Adapts that to the program of a process.
    pub adapt: Option<Adapt>,
    /// How the instructions on descriptors show it: a call, and what it is for.
    pub example: Option<&'static str>,
    /// Whether a call with these arguments that may have been made can be made again, since twice
    /// is the same as once.
    pub may_repeat: fn(&str) -> bool,
    /// What it does.
    pub handler: Handler,
}

/// What a tool works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Descriptors. One of these tools switches the descriptor system on.
    Descriptors,
    /// Processes: makes them, takes one back, or lets them speak to each other.
    Processes,
    /// The temporary files of a tree of processes. These tools need no descriptors and switch
    /// nothing on.
    TempFiles,
}

/// Adapts what a model reads of a tool to the program of its process.
pub type Adapt = fn(&Program, &mut SpecDraft);

/// What a model reads of a tool, before it is written down.
#[derive(Clone, Debug)]
pub struct SpecDraft {
    /// What it does.
    pub(crate) description: String,
    /// JSON schema of the arguments.
    pub(crate) schema: Value,
}

/// What a tool does.
#[derive(Clone, Copy, Debug)]
pub enum Handler {
    /// A function of the caller's table. It is performed as a read, next to the process.
    Table(Syscall),
    /// A change of the caller's process, which is decided at once.
    Process(ProcessHandler),
}

/// What a tool does with the process that calls it.
#[derive(Clone, Copy, Debug)]
pub struct ProcessHandler(pub(crate) fn(&mut Draft, CallId));

impl Tool {
    /// The tool as a model of a process of `program` reads of it. Costs some microseconds, once
    /// in the life of a process.
    #[must_use]
    pub fn spec(&self, program: &Program) -> ToolSpec {
        let schema = parameter::schema(self.parameters, Offered::by(program));
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

    /// JSON schema of all arguments that it takes in any program.
    #[must_use]
    pub fn schema(&self) -> Value {
        parameter::schema(self.parameters, Offered::ALL)
    }

    /// The names of its parameters.
    pub fn parameter_names(&self) -> impl Iterator<Item = &'static str> {
        parameter::names(self.parameters, Offered::ALL)
    }

    /// Calls a tool that is a function of its caller's table; none of one that acts on a process.
    #[must_use]
    pub fn call(&self, call: &Call<'_>) -> Option<Outcome> {
        match self.handler {
            Handler::Table(syscall) => Some(syscall(call)),
            Handler::Process(_) => None,
        }
    }
}

/// Of a tool that changes nothing outside, or whose changes are known by their call. Children are
/// kept by their origin, so that a second call finds those of the first; a message is heard once,
/// however often it is sent; a second checkpoint does no harm.
fn always(_args: &str) -> bool {
    true
}

/// There is one tool of a name.
impl PartialEq for Tool {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Tool {}

/// The tools of the kernel, in the order in which they are listed.
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

/// The tool of the kernel that has this name.
#[must_use]
pub fn tool(name: &str) -> Option<&'static Tool> {
    TOOLS.iter().find(|tool| tool.name == name)
}

/// The names of all tools of the kernel, in order.
pub fn names() -> impl Iterator<Item = &'static str> {
    TOOLS.iter().map(|tool| tool.name)
}

/// The names of those of a group, in order.
pub fn names_of(group: Group) -> impl Iterator<Item = &'static str> {
    TOOLS
        .iter()
        .filter(move |tool| tool.group == group)
        .map(|tool| tool.name)
}

/// Whether this is the name of a tool of that group.
#[must_use]
pub fn is_of(group: Group, name: &str) -> bool {
    tool(name).is_some_and(|tool| tool.group == group)
}

/// What comes of a descriptor tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The caller reads this, and that is all.
    Answer(Answer),
    /// A descriptor is opened, and the caller reads its name.
    Opened(Box<NewDescriptor>),
    /// Something is noted of a descriptor, then the caller reads this.
    Noted {
        /// The descriptor.
        id: FdId,
        /// What is noted.
        note: Note,
        /// What the caller reads.
        answer: Answer,
    },
    /// The host is asked to write a file; what the caller reads depends on what comes of it.
    Write(PendingWrite),
    /// A model is asked for a summary; what is noted and what the caller reads depends on what it
    /// says.
    Summarize(PendingSummary),
    /// The files of the process's tree are asked for something; what the caller reads depends on
    /// what comes of it.
    TempFile(PendingTempFile),
}

impl Outcome {
    /// What the caller reads, where that is known already.
    #[must_use]
    pub fn answer(&self) -> Option<&Answer> {
        match self {
            Self::Answer(answer) | Self::Noted { answer, .. } => Some(answer),
            Self::Opened(_) | Self::Write(_) | Self::Summarize(_) | Self::TempFile(_) => None,
        }
    }

    /// Whether something outside of the process is asked for.
    #[must_use]
    pub fn begins_work(&self) -> bool {
        match self {
            Self::Answer(_) | Self::Opened(_) | Self::Noted { .. } => false,
            Self::Write(_) | Self::Summarize(_) | Self::TempFile(_) => true,
        }
    }
}

impl From<Result<Self, FdError>> for Outcome {
    fn from(result: Result<Self, FdError>) -> Self {
        result.unwrap_or_else(|error| Self::Answer(error.answer()))
    }
}

/// A write that the host is asked for. The same arguments and table give the same one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingWrite {
    /// What the host is asked for.
    pub write: FileWrite,
    /// The descriptor that it comes from, as the model wrote it.
    asked_fd: String,
    /// The same by its name.
    fd: FdId,
    /// Lines that are written.
    lines: u64,
    /// Whether they are JSON reformatted; none where nobody thought of that.
    pretty: Option<bool>,
}

impl PendingWrite {
    /// What the caller reads when the host has tried.
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
