//! `spawn`: hand a task to a fresh process of a linked program.

use dormouse_proto::id::FdId;
use dormouse_proto::record::Entry;
use dormouse_proto::tool::{Access, ToolSpec};
use serde::Deserialize;
use serde_json::json;

use crate::content::Content;
use crate::program::Program;
use crate::table::Table;

/// What a process needs to call it.
pub const ACCESS: Access = Access::Admin;

/// What a model is told of it: the linked programs by name, and descriptors only where there are any.
#[must_use]
pub fn spec(program: &Program) -> ToolSpec {
    let names: Vec<_> = program.linked().map(|(name, ..)| name).collect();
    let mut properties = json!({
        "program_name": { "type": "string", "enum": names, "description": "The linked program." },
        "query": { "type": "string", "description": "What it is to do. It knows nothing else of this conversation." }
    });
    if program.descriptors().is_some() {
        properties["additional_preload_fds"] = json!({
            "type": "array",
            "items": { "type": "string" },
            "description": "Descriptors that it gets: their content in its system prompt, and the same ids in its table."
        });
    }
    let schema = json!({
        "type": "object",
        "properties": properties,
        "required": ["program_name", "query"],
        "additionalProperties": false
    });
    let list: String = program.linked().map(|(name, description, _)| format!("\n- {name}: {description}")).collect();
    ToolSpec {
        name: "spawn".into(),
        description: format!(
            "Starts a fresh process of a linked program and waits for its last message. Programs:{list}"
        )
        .into(),
        schema: schema.to_string().into(),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asked {
    program_name: String,
    query: String,
    #[serde(default)]
    additional_preload_fds: Vec<String>,
}

/// A checked call.
#[derive(Clone, Debug)]
pub struct Arguments {
    /// The program to run.
    pub program: Program,
    /// What is said to it.
    pub query: String,
    /// What it starts with, under the ids of its parent.
    pub descriptors: Vec<(FdId, Entry<Content>)>,
}

/// The arguments of a call by a process of `program` that holds `table`.
///
/// # Errors
/// A text for the model: other arguments, an unknown program or descriptor, and what there is.
pub fn arguments(args: &str, program: &Program, table: &Table) -> Result<Arguments, String> {
    let asked: Asked = serde_json::from_str(args)
        .map_err(|error| format!("spawn takes program_name, query and additional_preload_fds ({error})."))?;
    let names = || program.linked().map(|(name, ..)| name).collect::<Vec<_>>().join(", ");
    let linked = program
        .linked_program(&asked.program_name)
        .ok_or_else(|| format!("There is no linked program '{}'. The programs are: {}", asked.program_name, names()))?;
    let descriptors = asked.additional_preload_fds.iter().map(|name| preload(name, table)).collect::<Result<_, _>>()?;
    Ok(Arguments { program: linked, query: asked.query, descriptors })
}

fn preload(name: &str, table: &Table) -> Result<(FdId, Entry<Content>), String> {
    let known = || table.iter().map(|(id, _)| id.to_string()).collect::<Vec<_>>().join(", ");
    let found = table.resolve(name).map(|(id, entry)| (id, entry.into_owned()));
    found.map_err(|_| format!("There is no descriptor '{name}' to preload. The descriptors are: {}", known()))
}
