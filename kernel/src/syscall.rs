//! Tools of the kernel, one file per tool: its arguments, its schema, its behaviour, its tests.
//!
//! A syscall is a function of the table and the arguments: called again after a restart it gives the same outcome. It reads contents,
//! as far as its quota allows, so that it is called beside a decision and never within one (`process/read.rs`). It never changes the
//! table, never touches a file and never asks a model: it says what to open, to note, to write, or to ask of a model or of the tree's
//! files. A mistake of the model is an answer to it. What a syscall answers is an [`Answer`], which nothing puts into a descriptor again.

pub mod append_temp_file;
mod args;
pub mod checkpoint;
pub mod checkpoint_process;
pub mod create_temp_file;
pub mod delete_fd_section;
pub mod delete_temp_file;
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

use dormouse_proto::descriptor::view::{self, Extent, Served, Written};
use dormouse_proto::descriptor::{DescriptorSettings, FdError};
use dormouse_proto::file::{FileError, FileWrite};
use dormouse_proto::id::FdId;
use dormouse_proto::record::{Entry, Note};
use dormouse_proto::tool::{Access, Answer, ToolSpec};

pub use delete_fd_section::delete_fd_section;
pub use fd_to_file::fd_to_file;
pub use get_fd_section::get_fd_section;
pub use handed::Handed;
pub use instructions::{HANDLES, MESSAGES, REFERENCES, instructions};
pub use list_fd_sections::list_fd_sections;
pub use list_fds::list_fds;
pub use mark_fd_section::mark_fd_section;
pub use read_fd::read_fd;
pub use rename_fd::rename_fd;
pub use search_fd::search_fd;
pub use send_message::{Letter, PendingMessage, PlacedDescriptor, PlacedLetter};
pub use summarize_fd::{PendingSummary, Summarized, summarize_fd};
pub use temp_file::{PendingTempFile, TEMP_FILE_TOOLS};

use crate::content::{Content, ReadQuota, Unreadable};
use crate::table::{Table, View, served};

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
    pub fn unbounded(table: &'a Table, args: &'a str, settings: &'a DescriptorSettings, now_ms: u64) -> Self {
        Self { table, args, settings, now_ms, quota: ReadQuota::unlimited() }
    }

    /// A descriptor of the table in the form that is shown unless another is asked for.
    pub(crate) fn served(&self, entry: Cow<'a, Entry<Content>>) -> Result<View<'a>, Unreadable> {
        served(entry, self.settings, self.quota)
    }
}

/// What such a tool does.
pub type Syscall = fn(&Call<'_>) -> Outcome;

/// A tool of the kernel that works on descriptors, or asks for something on behalf of its caller.
#[derive(Clone, Copy, Debug)]
pub struct Tool {
    /// Its name.
    pub name: &'static str,
    /// What a process must be allowed to do to call it.
    pub access: Access,
    /// What a model is told of it.
    pub description: &'static str,
    /// JSON schema of the arguments, as JSON text.
    pub schema: &'static str,
    /// What it does.
    pub call: Syscall,
    /// Whether a call with these arguments that may have been made can be made again, since twice is the same as once.
    pub may_repeat: fn(&str) -> bool,
}

impl Tool {
    /// The tool as a model is told of it.
    #[must_use]
    pub fn spec(&self) -> ToolSpec {
        ToolSpec { name: self.name.into(), description: self.description.into(), schema: self.schema.into() }
    }
}

/// Of a tool that changes nothing outside, or whose changes are known by their call.
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

/// The descriptor tools. Their names are those of [`DESCRIPTOR_TOOLS`](dormouse_proto::program::DESCRIPTOR_TOOLS).
pub const TOOLS: [Tool; 10] = [
    read_fd::TOOL,
    search_fd::TOOL,
    fd_to_file::TOOL,
    summarize_fd::TOOL,
    list_fds::TOOL,
    rename_fd::TOOL,
    mark_fd_section::TOOL,
    get_fd_section::TOOL,
    list_fd_sections::TOOL,
    delete_fd_section::TOOL,
];

/// What comes of a descriptor tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The caller reads this, and that is all.
    Answer(Answer),
    /// A descriptor is opened, and the caller reads its name.
    Opened(Extracted),
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
    /// A model is asked for a summary; what is noted and what the caller reads depends on what it says.
    Summarize(PendingSummary),
    /// The files of the process's tree are asked for something; what the caller reads depends on what comes of it.
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
    pub fn begins_something(&self) -> bool {
        match self {
            Self::Answer(_) | Self::Opened(_) | Self::Noted { .. } => false,
            Self::Write(_) | Self::Summarize(_) | Self::TempFile(_) => true,
        }
    }
}

/// A part of a content that becomes a descriptor of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extracted {
    /// The descriptor to be. Which number it has is known when it is opened.
    pub entry: Entry<Content>,
    from: FdId,
    served: Served,
    lines: (u64, u64),
    extent: Extent,
}

impl Extracted {
    /// What the caller reads once it is opened as `id`.
    #[must_use]
    pub fn answer(&self, id: &FdId) -> Answer {
        view::extraction(&self.from, id, &self.served, self.lines, self.extent)
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
            Err(FileError { kind, message }) => {
                FdError { kind: kind.into(), fd: Some(self.asked_fd.clone()), message }.answer()
            }
        }
    }

    fn written(&self) -> Written<'_> {
        let FileWrite { path, bytes, mode, .. } = &self.write;
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
    use dormouse_proto::program::DESCRIPTOR_TOOLS;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn the_tools_are_those_that_a_program_may_enable() {
        assert_eq!(TOOLS.map(|tool| tool.name), DESCRIPTOR_TOOLS);
    }

    #[test]
    fn each_schema_is_json_and_names_what_the_parser_accepts() {
        for tool in TOOLS.iter().chain(&TEMP_FILE_TOOLS) {
            let schema: Value = serde_json::from_str(tool.schema).unwrap();
            assert_eq!(schema["additionalProperties"], false, "{}", tool.name);
            let properties = schema["properties"].as_object().unwrap();
            assert_eq!(tool.schema.matches("\n    \"").count(), properties.len(), "{}: a property twice", tool.name);
            for (name, property) in properties {
                let value = match property["type"].as_str().unwrap() {
                    "integer" => json!(1),
                    "boolean" => json!(true),
                    _ => json!("x"),
                };
                let mut args = json!({});
                if schema["properties"]["fd"].is_object() {
                    args["fd"] = "fd:9".into();
                }
                args[name] = value;
                let outcome =
                    (tool.call)(&Call::unbounded(&Table::new(), &args.to_string(), &DescriptorSettings::default(), 0));
                let text = outcome.answer().map(|answer| answer.text.to_string()).unwrap_or_default();
                assert!(!text.contains("Unknown parameter") && !text.contains("must be a"), "{args}: {text}");
            }
        }
    }

    /// JSON readers keep the last of two, or refuse both.
    #[test]
    fn no_schema_declares_a_parameter_twice() {
        for tool in TOOLS.iter().chain(&TEMP_FILE_TOOLS) {
            let schema: Value = serde_json::from_str(tool.schema).unwrap();
            for name in schema["properties"].as_object().unwrap().keys() {
                let declared = tool.schema.matches(&format!("\n    \"{name}\": {{")).count();
                assert_eq!(declared, 1, "{name} of {}", tool.name);
            }
        }
    }
}
