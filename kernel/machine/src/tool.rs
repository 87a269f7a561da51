//! The interface of a tool of the kernel: its definition, its calls and their outcomes.
//!
//! A descriptor tool ([`Syscall`]) is a function of the descriptor table and the arguments. If a
//! call is repeated after a restart, it therefore has the same outcome. A call reads contents up to
//! a quota, and runs as a *read*: outside of the decisions of the machine (`process/read.rs`). The
//! call never changes the table, accesses a file or calls a model; its [`Outcome`] states which of
//! these the process has to do. An invalid call is answered with an error that the model reads. The
//! [`Answer`](dormouse_proto::tool::Answer) always enters the context of the model and never
//! becomes a descriptor.
//!
//! A process tool ([`ProcessHandler`]) names an operation of the machine and provides the functions
//! that read the arguments of its calls. The machine performs the operation.
//!
//! This crate contains no tool: a [`ToolSet`] lists the tools of a kernel.

pub mod argument;
mod outcome;
pub mod parameter;

use std::borrow::Cow;
use std::sync::Arc;

use dormouse_proto::alarm::AlarmId;
use dormouse_proto::descriptor::{DescriptorSettings, FdError};
use dormouse_proto::id::CheckpointId;
use dormouse_proto::record::Entry;
use dormouse_proto::tool::{Access, ToolSpec};
use serde_json::{Map, Value};

pub use self::outcome::{
    MAX_SUMMARY_CHARS, Outcome, PendingSummary, PendingTempFile, PendingWrite, Refusal, Summarized,
};
pub use self::parameter::Parameter;

use self::argument::Arg;
use self::parameter::OfferedParameters;
use crate::process::{
    AlarmRequest, CheckpointError, GotoArguments, GotoError, Judge, PendingMessage, PendingSpawn,
    Question, WaitArguments,
};
use crate::table::{Table, View, in_default_form};
use dormouse_content::{Content, ReadQuota, Unreadable};
use dormouse_program::Program;

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
    /// Creates a call without a read limit, for hosts and tests.
    #[must_use]
    pub fn unlimited(
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

    /// Returns a descriptor in its default form (see [`in_default_form`]).
    ///
    /// # Errors
    /// [`Unreadable`] if the content cannot be read.
    pub fn in_default_form(&self, entry: Cow<'a, Entry<Content>>) -> Result<View<'a>, Unreadable> {
        in_default_form(entry, self.settings, self.quota)
    }
}

/// The implementation of a descriptor tool.
pub type Syscall = fn(&Call<'_>) -> Outcome;

/// A tool of the kernel.
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
    pub adapt: Option<SpecAdapter>,
    /// Example call with its purpose, for the instructions on descriptors.
    pub example: Option<&'static str>,
    /// Whether a call with these arguments can be repeated after a restart, since executing it
    /// twice has the effect of executing it once.
    pub may_repeat: fn(&str) -> bool,
    /// Implementation of the tool.
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
pub type SpecAdapter = fn(&Program, &mut SpecDraft);

/// The specification of a tool while it is adapted.
#[derive(Clone, Debug)]
pub struct SpecDraft {
    /// Description for the model.
    pub description: String,
    /// JSON schema of the arguments.
    pub schema: Value,
}

/// The implementation of a tool.
#[derive(Clone, Copy, Debug)]
pub enum Handler {
    /// A function of the descriptor table. Runs as a read, outside of the process actor.
    Table(Syscall),
    /// An operation of the machine. Runs within the decision.
    Process(ProcessHandler),
}

/// The operation of a process tool, with the functions that read the arguments of its calls. An
/// error text is for the model.
#[derive(Clone, Copy, Debug)]
pub enum ProcessHandler {
    /// Continue as several processes.
    Fork {
        /// Reads the prompt of each child: at least one, at most the given number.
        prompts: fn(&str, u32) -> Result<Vec<String>, Refusal>,
        /// Number of children of a checked call. Called whenever a child ends.
        count: fn(&str) -> usize,
    },
    /// Continue as several speculative processes, and take over what the best one proposes.
    Explore {
        /// Reads the prompt of each child, as for `Fork`.
        prompts: fn(&str, u32) -> Result<Vec<String>, Refusal>,
        /// Number of children of a checked call. Called whenever a child ends.
        count: fn(&str) -> usize,
        /// Reads what judges. Called whenever a child ends.
        judge: ParseJudge,
    },
    /// Start a process of a linked program.
    Spawn {
        /// Checks a call. Runs as a read.
        check: CheckSpawn,
        /// Whether a checked call waits for the end of the child.
        waits: fn(&str) -> bool,
        /// The program that a checked call names.
        program_name: fn(&str) -> Option<String>,
    },
    /// Go back in the conversation.
    Goto(fn(&str) -> Result<GotoArguments, GotoError>),
    /// Make a checkpoint with a label, which may be empty.
    MakeCheckpoint(fn(&str) -> Result<Arc<str>, CheckpointError>),
    /// Restore the process to a checkpoint.
    Restore(fn(&str) -> Result<CheckpointId, CheckpointError>),
    /// List the checkpoints.
    ListCheckpoints(fn(&str) -> Result<(), CheckpointError>),
    /// Send a message. The function checks a call and runs as a read.
    SendMessage(CheckMessage),
    /// Show messages that have arrived. If there are none, wait for one; the function reads the
    /// timeout in milliseconds.
    ReceiveMessages(fn(&str) -> Result<u64, Refusal>),
    /// Wait for background children.
    Wait(fn(&str) -> Result<WaitArguments, Refusal>),
    /// List the processes to which the caller can send messages.
    ListProcesses(fn(&str) -> Result<(), Refusal>),
    /// Ask the person a question.
    AskUser(fn(&str) -> Result<Question, Refusal>),
    /// End the turn with a result. The result schema of the process is that of the argument.
    SubmitResult,
    /// Set an alarm.
    WakeAt(fn(&str) -> Result<AlarmRequest, Refusal>),
    /// Cancel an alarm.
    CancelAlarm(fn(&str) -> Result<AlarmId, Refusal>),
}

/// Checks a call of `spawn` by a process of this program.
pub type CheckSpawn = fn(&Program, &Call<'_>) -> Result<PendingSpawn, Refusal>;

/// Reads what judges the children of an exploration by a process of this program; `None` if the first
/// child that is done wins.
pub type ParseJudge = fn(&Program, &str) -> Result<Option<Judge>, Refusal>;

/// Checks a call of `send_message` by a process of this program.
pub type CheckMessage = fn(&Program, &Call<'_>) -> Result<PendingMessage, Refusal>;

impl Tool {
    /// The specification of the tool for the model of a process of `program`. `tools` are all tools
    /// of the kernel. Takes some microseconds, once per process.
    #[must_use]
    pub fn spec(&self, program: &Program, tools: &ToolSet) -> ToolSpec {
        let schema = parameter::schema(self.parameters, tools.offered_parameters(program));
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

    /// The arguments of a call as the tool takes them: by the names of its parameters, in their
    /// types, and without nulls. What the tool refuses is left as it is written. O(n).
    #[must_use]
    pub fn canonical_arguments(&self, args: &Map<String, Value>) -> Map<String, Value> {
        let given = args.iter().filter(|(_, value)| !value.is_null());
        let taken = given.map(|(key, value)| {
            let found = parameter::find(self.parameters, OfferedParameters::ALL, key);
            let Some(parameter) = found else {
                return (key.clone(), value.clone());
            };
            let converted = argument::convert(value, parameter.kind).map(Arg::into_json);
            let value = converted.unwrap_or_else(|| value.clone());
            (parameter.name.to_owned(), value)
        });
        taken.collect()
    }

    /// The name of the parameter that a key of a call means; the key itself if there is none.
    pub(crate) fn canonical_name<'a>(&self, key: &'a str) -> &'a str {
        parameter::find(self.parameters, OfferedParameters::ALL, key)
            .map_or(key, |parameter| parameter.name)
    }

    /// Calls a descriptor tool; `None` for a process tool.
    #[must_use]
    pub fn call(&self, call: &Call<'_>) -> Option<Outcome> {
        match self.handler {
            Handler::Table(syscall) => Some(syscall(call)),
            Handler::Process(_) => None,
        }
    }

    /// Whether the tool submits the result of a process.
    pub(crate) fn submits_result(&self) -> bool {
        matches!(self.handler, Handler::Process(ProcessHandler::SubmitResult))
    }

    /// Whether calls of the tool create children.
    pub(crate) fn makes_children(&self) -> bool {
        matches!(
            self.handler,
            Handler::Process(
                ProcessHandler::Fork { .. }
                    | ProcessHandler::Explore { .. }
                    | ProcessHandler::Spawn { .. }
            )
        )
    }
}

/// Tools are identified by their name.
impl PartialEq for Tool {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Tool {}

/// The tools of a kernel, with the functions that concern all of them.
#[derive(Clone, Copy, Debug)]
pub struct ToolSet {
    /// The tools, in listing order.
    pub tools: &'static [Tool],
    /// Replaces the handles in the arguments of a tool that runs outside of the machine. A handle,
    /// such as `{{fd:1}}`, represents the content of a descriptor. Runs as a read.
    pub expand_handles: ExpandHandles,
    /// Writes the instructions on descriptors in the system prompt of a process.
    pub instructions: Instructions,
}

/// Whether arguments may contain a handle. O(n).
#[must_use]
pub fn may_hold_handle(args: &str) -> bool {
    args.contains("{{")
}

/// Replaces the handles in the arguments of a call. Returns `None` if there are none.
pub type ExpandHandles = fn(&Call<'_>) -> Result<Option<String>, FdError>;

/// Writes the instructions for a process of a program that has descriptors. The arguments are the
/// program, the names of the process's kernel tools, and for each renamed tool a pair of its
/// original name and the name that the model sees.
pub type Instructions = fn(&Program, &[&'static str], &[(&str, &str)]) -> String;

impl ToolSet {
    /// The tool of this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&'static Tool> {
        self.tools.iter().find(|tool| tool.name == name)
    }

    /// Names of all tools, in listing order.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.tools.iter().map(|tool| tool.name)
    }

    /// Which conditional parameters the tools have in `program`.
    #[must_use]
    pub fn offered_parameters(&self, program: &Program) -> OfferedParameters {
        let is_for_temp_files = |name: &str| {
            self.find(name)
                .is_some_and(|tool| tool.group == Group::TempFiles)
        };
        OfferedParameters {
            descriptors: program.descriptors().is_some(),
            temp_files: program
                .tools()
                .iter()
                .any(|choice| is_for_temp_files(&choice.name)),
        }
    }
}

/// Two sets are equal if they have the same tools.
impl PartialEq for ToolSet {
    fn eq(&self, other: &Self) -> bool {
        self.tools == other.tools
    }
}

impl Eq for ToolSet {}
