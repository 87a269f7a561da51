//! `spawn`: starts a new process of a linked program.
//!
//! A call is checked here and becomes a [`PendingSpawn`]: the program, the descriptors of the
//! parent that the child gets, and the files that the shell has to fetch. This module reads no file
//! and starts nothing.

mod descriptors;
mod lists;

use dormouse_proto::program::nearest;
use dormouse_proto::shown::ShownText;
use dormouse_proto::tool::Access;
use serde_json::json;

use super::args::Args;
use super::parameter::ItemType;
use super::{Call, Group, Handler, Parameter, ProcessHandler, Refusal, SpecDraft, Tool};
use crate::process::{PendingSpawn, check_preload_size};
use crate::program::{Program, ValueSchema};

/// `spawn` as a tool.
pub const TOOL: Tool = Tool {
    name: "spawn",
    group: Group::Processes,
    access: Access::Admin,
    description: DESCRIPTION,
    parameters: &PARAMETERS,
    adapt: Some(list_programs),
    example: None,
    may_repeat: super::always_repeatable,
    handler: Handler::Process(ProcessHandler::Spawn {
        check: pending,
        waits,
        program_name,
    }),
};

const FDS: &str = "additional_preload_fds";
const FILES: &str = "additional_preload_files";
const TEMP_FILES: &str = "additional_preload_temp_files";
const RESULT_SCHEMA: &str = "result_schema";

const PARAMETERS: [Parameter; 7] = [
    Parameter::text("program_name", "The linked program.")
        .required()
        .also(&["program"]),
    Parameter::text(
        "query",
        "What it is to do. It knows nothing else of this conversation.",
    )
    .required()
    .also(&["prompt", "task", "message"]),
    Parameter::flag("wait", "Whether to wait for its end; true if left out."),
    Parameter::list(
        ItemType::Texts,
        FILES,
        "Files whose content stands in its system prompt; of a long one a preview, and the file is a \
         descriptor in its table.",
    ),
    Parameter::list(
        ItemType::Descriptors,
        FDS,
        "Descriptors that it gets, under the same ids in its table. Its system prompt shows their \
         content, or a preview of what is long. A part, named as \"fd:1 lines 10-40\" or by an \
         object, is shown in full.",
    )
    .with_descriptors(),
    Parameter::list(
        ItemType::Texts,
        TEMP_FILES,
        "Temporary files, such as temp:1, whose newest version stands in its system prompt.",
    )
    .with_temp_files(),
    Parameter::object(
        RESULT_SCHEMA,
        "A JSON Schema. The process then ends with a value that it accepts, in place of a text.",
    ),
];

const DESCRIPTION: &str = "Starts a fresh process of a linked program and returns its last \
message. With wait=false you get its pid at once and go on; its last message comes to you by \
itself.";

/// Adds the linked programs to the specification.
fn list_programs(program: &Program, draft: &mut SpecDraft) {
    let names: Vec<_> = program.linked().map(|(name, ..)| name).collect();
    if names.is_empty() {
        draft.description += " No program is linked.";
        return;
    }
    let program_name = &mut draft.schema["properties"]["program_name"];
    *program_name =
        json!({ "type": "string", "enum": names, "description": program_name["description"] });
    draft.description += " Programs:";
    for (name, description, _) in program.linked() {
        let description = ShownText::outside(&format!("program:{name}"), description);
        draft.description += &format!("\n- {name}: {description}");
    }
}

/// Checks a call by a process of `program`.
///
/// # Errors
/// The arguments are invalid, or a program or descriptor is unknown. The text states what is valid.
pub fn pending(program: &Program, call: &Call<'_>) -> Result<PendingSpawn, Refusal> {
    let args = Args::parse_for_program(&TOOL, program, call.args)?;
    let child = find_program(&args, program)?;
    let query = args
        .required_text("query", "what the process is to do")?
        .to_owned();
    let descriptors = descriptors::preloads(&args, call, &child)?;
    let files = lists::texts(&args, FILES, "a path")?;
    let temp_files = lists::temp_files(&args, TEMP_FILES)?;
    check_preload_size(descriptors.iter().map(|(.., shown)| shown))?;
    let result_schema = parse_result_schema(&args)?;
    Ok(PendingSpawn {
        program: child,
        query,
        descriptors,
        files,
        temp_files,
        result_schema,
    })
}

fn parse_result_schema(args: &Args) -> Result<Option<ValueSchema>, Refusal> {
    let Some(schema) = args.object(RESULT_SCHEMA) else {
        return Ok(None);
    };
    let parsed = ValueSchema::parse(schema.clone().into());
    parsed.map(Some).map_err(|error| {
        format!("Nothing was started: '{RESULT_SCHEMA}' is not valid. {error}.").into()
    })
}

/// Whether a checked call waits for the end of the child.
#[must_use]
pub fn waits(args: &str) -> bool {
    let args = Args::parse(&TOOL, args);
    args.ok().and_then(|args| args.flag("wait")).unwrap_or(true)
}

/// The program that a checked call names.
#[must_use]
pub fn program_name(args: &str) -> Option<String> {
    let args = Args::parse(&TOOL, args).ok()?;
    args.text("program_name").map(str::to_owned)
}

fn find_program(args: &Args, program: &Program) -> Result<Program, Refusal> {
    match args.text("program_name") {
        Some(name) => linked_program(program, name),
        None => Err(format!(
            "Parameter 'program_name' is missing. {}",
            known_programs(program)
        )
        .into()),
    }
}

/// The sentence of an error that lists the linked programs.
fn known_programs(program: &Program) -> String {
    let names: Vec<_> = program.linked().map(|(name, ..)| name.to_owned()).collect();
    match names.len() {
        0 => "This program links none.".to_owned(),
        _ => format!("The programs are: {}", names.join(", ")),
    }
}

/// The linked program that a model names.
///
/// # Errors
/// There is none of this name. The text says which there are.
pub(super) fn linked_program(program: &Program, name: &str) -> Result<Program, Refusal> {
    program.linked_program(name).ok_or_else(|| {
        let names: Vec<_> = program.linked().map(|(name, ..)| name.to_owned()).collect();
        let suggestion = nearest(name, names.iter().map(String::as_str));
        let hint = suggestion
            .map(|near| format!(" Did you mean '{near}'?"))
            .unwrap_or_default();
        format!(
            "There is no linked program '{name}'.{hint} {}",
            known_programs(program)
        )
        .into()
    })
}

#[cfg(test)]
mod tests;
