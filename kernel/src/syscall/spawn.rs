//! `spawn`: hand a task to a fresh process of a linked program.
//!
//! A call is checked here and becomes a [`PendingSpawn`]: what the child is, what it is given of its parent's descriptors,
//! and which files the shell is still to fetch for it. Nothing is read and nothing is started here.

mod descriptors;
mod lists;
mod pending;
mod schema;

use dormouse_proto::program::nearest;
use dormouse_proto::tool::Access;

pub use self::pending::{FetchError, Fetched, MAX_PRELOAD_BYTES, PendingSpawn, Preloads, ShownPreload};
pub use self::schema::spec;
use super::args::{Args, Key, Kind};
use super::{Call, Group, Handler, ProcessHandler, Spec, Tool, is_of};
use crate::process::Draft;
use crate::program::Program;

/// `spawn` as a tool.
pub const TOOL: Tool = Tool {
    name: "spawn",
    group: Group::Processes,
    access: Access::Admin,
    spec: Spec::Of(spec),
    example: None,
    may_repeat: super::always,
    handler: Handler::Process(ProcessHandler(Draft::spawn)),
};

const FDS: &str = "additional_preload_fds";
const FILES: &str = "additional_preload_files";
const TEMP_FILES: &str = "additional_preload_temp_files";

const KEYS: [Key; 5] = [
    ("program_name", Kind::Text),
    ("program", Kind::Text),
    ("query", Kind::Text),
    ("wait", Kind::Flag),
    (FILES, Kind::List),
];
const FD_KEYS: [Key; 1] = [(FDS, Kind::List)];
const TEMP_FILE_KEYS: [Key; 1] = [(TEMP_FILES, Kind::List)];
const ALL_KEYS: &[&[Key]] = &[&KEYS, &FD_KEYS, &TEMP_FILE_KEYS];

/// The parameters that a process of `program` has: none of what it could not name.
fn keys(program: &Program) -> &'static [&'static [Key]] {
    match (program.descriptors().is_some(), shares_files(program)) {
        (true, true) => ALL_KEYS,
        (true, false) => &[&KEYS, &FD_KEYS],
        (false, true) => &[&KEYS, &TEMP_FILE_KEYS],
        (false, false) => &[&KEYS],
    }
}

/// Whether processes of `program` know of temporary files.
fn shares_files(program: &Program) -> bool {
    program.tools().iter().any(|tool| is_of(Group::TempFiles, &tool.name))
}

/// A call by a process of `program`, checked.
///
/// # Errors
/// A text for the model: other arguments, an unknown program or descriptor, and what there is.
pub fn pending(program: &Program, call: &Call<'_>) -> Result<PendingSpawn, String> {
    let args = Args::parse(TOOL.name, call.args, keys(program)).map_err(|error| error.message)?;
    let child = linked(&args, program)?;
    let query = args.required_text("query", "what the process is to do").map_err(|error| error.message)?.to_owned();
    let descriptors = descriptors::preloads(&args, call, &child)?;
    let files = lists::texts(&args, FILES, "a path")?;
    let temp_files = lists::temp_files(&args, TEMP_FILES)?;
    pending::check_size(descriptors.iter().map(|(.., shown)| shown))?;
    Ok(PendingSpawn { program: child, query, descriptors, files, temp_files })
}

/// Whether the call waits for the child's end. Of a call that was checked before.
#[must_use]
pub fn waits(args: &str) -> bool {
    let args = Args::parse(TOOL.name, args, ALL_KEYS);
    args.ok().and_then(|args| args.flag("wait")).unwrap_or(true)
}

/// The program that the call names. Of a call that was checked before.
#[must_use]
pub fn program_name(args: &str) -> Option<String> {
    let args = Args::parse(TOOL.name, args, ALL_KEYS).ok()?;
    args.text("program_name").or(args.text("program")).map(str::to_owned)
}

fn linked(args: &Args, program: &Program) -> Result<Program, String> {
    let name = match (args.text("program_name"), args.text("program")) {
        (Some(_), Some(_)) => return Err("'program_name' and 'program' are the same parameter: give one.".to_owned()),
        (name, other) => name.or(other),
    };
    let names: Vec<_> = program.linked().map(|(name, ..)| name.to_owned()).collect();
    let known = || match names.len() {
        0 => "This program links none.".to_owned(),
        _ => format!("The programs are: {}", names.join(", ")),
    };
    let Some(name) = name else { return Err(format!("Parameter 'program_name' is missing. {}", known())) };
    program.linked_program(name).ok_or_else(|| {
        let near = nearest(name, names.iter().map(String::as_str));
        let hint = near.map(|near| format!(" Did you mean '{near}'?")).unwrap_or_default();
        format!("There is no linked program '{name}'.{hint} {}", known())
    })
}

#[cfg(test)]
mod tests;
