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
    let descriptors =
        asked.additional_preload_fds.iter().map(|name| preload(name, &linked, table)).collect::<Result<_, _>>()?;
    Ok(Arguments { program: linked, query: asked.query, descriptors })
}

/// A message goes by its number in the conversation of its process: where the other process counts its own so as well, the
/// same id would mean two of them.
fn preload(name: &str, linked: &Program, table: &Table) -> Result<(FdId, Entry<Content>), String> {
    let known = || table.iter().map(|(id, _)| id.to_string()).collect::<Vec<_>>().join(", ");
    match table.resolve(name) {
        Ok((id @ FdId::Message { .. }, _)) if linked.message_references() => Err(format!(
            "{id} cannot be preloaded, since program '{}' has messages of its own under such names. Make it a descriptor \
             first: read_fd with fd=\"{id}\", read_all=true and extract_to_new_fd=true.",
            linked.name()
        )),
        Ok((id, entry)) => Ok((id, entry.into_owned())),
        Err(_) => Err(format!("There is no descriptor '{name}' to preload. The descriptors are: {}", known())),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use bytes::Bytes;
    use dormouse_proto::message::Message;

    use super::*;
    use crate::program::compile;

    const MODEL: &str = "[model]\nname = \"m\"\nprovider = \"scripted\"\n";

    /// A program that links another, which has its own messages as descriptors or not.
    fn linking(references_messages: bool) -> Program {
        let main = "[tools]\nenabled = [\"spawn\", \"read_fd\"]\n[linked_programs]\nhelper = \"helper.toml\"\n";
        let helper = format!(
            "[tools]\nenabled = [\"read_fd\"]\n[file_descriptor]\nreference_messages = {references_messages}\n"
        );
        let mut files = |path: &Path| {
            let text = if path.ends_with("helper.toml") { helper.as_str() } else { main };
            Ok(Bytes::from(format!("{MODEL}{text}")))
        };
        compile(Path::new("main.toml"), &mut files, &[]).unwrap_or_else(|errors| panic!("{errors:?}")).program
    }

    #[test]
    fn a_message_is_preloaded_only_where_its_number_is_not_that_of_another() {
        let mut table = Table::new();
        table.insert(table.next_id(), Entry::new(Content::new("one"), 8, "tool:t", 0));
        table.refer_to([Arc::new(Message::user("said"))].into_iter().collect(), 8);
        let asked = |fd: &str, references_messages| {
            let args = json!({ "program_name": "helper", "query": "look", "additional_preload_fds": [fd] });
            let arguments = arguments(&args.to_string(), &linking(references_messages), &table);
            arguments.map(|found| found.descriptors[0].0.to_string())
        };
        assert_eq!(asked("fd-1", true), Ok("fd:1".to_owned()));
        assert_eq!(asked("msg:1", false), Ok("msg:1".to_owned()));
        let refused = asked("msg:1", true).unwrap_err();
        assert!(refused.contains("has messages of its own") && refused.contains("extract_to_new_fd"), "{refused}");
        assert!(asked("fd:2", true).unwrap_err().contains("There is no descriptor 'fd:2'"));
    }
}
