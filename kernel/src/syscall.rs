//! The tools of the kernel, one file per tool: arguments, schema, behaviour and tests.
//!
//! The type [`Tool`] is defined in [`dormouse_machine::tool`]; this module defines the tools and
//! passes them to the machine as [`TOOL_SET`]. A tool that acts on its process, such as `fork`, is
//! an operation of the machine (`dormouse_machine::process`): its file here describes the tool and
//! parses its arguments.
//!
//! A descriptor tool gets a [`Call`], which holds the descriptor table and the arguments, and
//! returns an [`Outcome`]: an answer, or what the process has to do first. The functions of
//! `dormouse_proto::descriptor::view` write the XML of the answers. The tools share these modules:
//!
//! * `args` checks the arguments against the parameters of the tool.
//! * `form` selects whether a call sees JSON as it is or reformatted. The result is a `View`: a
//!   descriptor in that form.
//! * `selection` finds the part of a content that a call asks for, and what of it fits an answer.
//! * `part` resolves texts such as `fd:3 lines 10-40`, `transferred` lists of them.
//! * `window` selects the items of a list that one answer shows.
//! * `temp_file` holds what the tools for temporary files have in common.

pub mod append_temp_file;
mod args;
pub mod ask_user;
pub mod cancel_alarm;
pub mod checkpoint_process;
pub mod create_temp_file;
pub mod delete_fd_section;
pub mod delete_temp_file;
pub mod diff_fd;
pub mod explore;
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
pub mod submit_result;
pub mod summarize_fd;
pub(crate) mod temp_file;
pub(crate) mod transferred;
pub mod wait;
pub mod wake_at;
mod window;
pub mod write_temp_file;

pub use dormouse_machine::process::{
    Envelope, PendingMessage, PlacedDescriptor, PlacedEnvelope, TransferredDescriptor,
};
pub use dormouse_machine::tool::{
    Call, Group, Handler, Outcome, Parameter, PendingSummary, PendingTempFile, PendingWrite,
    ProcessHandler, Refusal, SpecAdapter, SpecDraft, Summarized, Syscall, Tool, ToolSet,
};

pub use delete_fd_section::delete_fd_section;
pub use fd_to_file::fd_to_file;
pub use get_fd_section::get_fd_section;
pub use instructions::{HANDLES, MESSAGES, REFERENCES, instructions};
pub use list_fd_sections::list_fd_sections;
pub use list_fds::list_fds;
pub use mark_fd_section::mark_fd_section;
pub use read_fd::read_fd;
pub use rename_fd::rename_fd;
pub use search_fd::search_fd;
pub use summarize_fd::summarize_fd;

use dormouse_machine::tool::parameter;

/// The value of `may_repeat` for tools whose calls may run again after a restart. Such a tool has
/// no side effect, or its side effects are identified by the call: children are found by their
/// origin, a repeated message is delivered once, and a second checkpoint does no harm.
fn always_repeatable(_args: &str) -> bool {
    true
}

/// Other names of a parameter that takes a descriptor.
const DESCRIPTOR_NAMES: [&str; 4] = ["fd_id", "file_descriptor", "descriptor", "descriptor_id"];

/// Accepted as well in tools that have no other parameter of these names. `name` and `path` are
/// among them, since a descriptor can also be named by its label or its path.
const FD_NAMES: [&str; 9] = [
    "fd_id",
    "file_descriptor",
    "descriptor",
    "descriptor_id",
    "id",
    "name",
    "path",
    "file_path",
    "file",
];

/// Other names of a section's id.
const SECTION_NAMES: [&str; 7] = [
    "name",
    "id",
    "section",
    "section_id",
    "section_name",
    "label",
    "ref",
];

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
    explore::TOOL,
    spawn::TOOL,
    goto::TOOL,
    checkpoint_process::TOOL,
    restore_process::TOOL,
    list_checkpoints::TOOL,
    send_message::TOOL,
    receive_messages::TOOL,
    wait::TOOL,
    list_processes::TOOL,
    ask_user::TOOL,
    submit_result::TOOL,
    wake_at::TOOL,
    cancel_alarm::TOOL,
    create_temp_file::TOOL,
    read_temp_file::TOOL,
    write_temp_file::TOOL,
    append_temp_file::TOOL,
    delete_temp_file::TOOL,
];

/// The tools, as the machine receives them.
pub static TOOL_SET: ToolSet = ToolSet {
    tools: TOOLS,
    expand_handles: handle::expand,
    instructions: instructions::for_process,
};

/// The kernel tool of this name.
#[must_use]
pub fn tool(name: &str) -> Option<&'static Tool> {
    TOOL_SET.find(name)
}

/// Names of all kernel tools, in listing order.
pub fn names() -> impl Iterator<Item = &'static str> {
    TOOL_SET.names()
}

/// Names of the tools of a group, in listing order.
pub fn names_of(group: Group) -> impl Iterator<Item = &'static str> {
    TOOLS
        .iter()
        .filter(move |tool| tool.group == group)
        .map(|tool| tool.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tool_names_are_unique_and_each_descriptor_tool_has_an_example() {
        let names: std::collections::BTreeSet<_> = names().collect();
        assert_eq!(names.len(), TOOLS.len());
        for tool in TOOLS {
            let is_shown = tool
                .example
                .is_some_and(|example| example.starts_with(&format!("{}(", tool.name)));
            assert_eq!(is_shown, tool.group == Group::Descriptors, "{}", tool.name);
        }
    }

    /// JSON parsers keep the last of two equal keys, or refuse the object.
    #[test]
    fn parameter_names_are_unique_and_each_has_a_description() {
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
