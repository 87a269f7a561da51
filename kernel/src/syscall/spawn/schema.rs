//! What a model is told of `spawn`: the linked programs by name, and only what its own program can give to a child.

use dormouse_proto::shown::ShownText;
use dormouse_proto::tool::ToolSpec;
use serde_json::{Value, json};

use super::super::handed::{list_schema, schema};
use super::{FDS, FILES, TEMP_FILES, shares_files};
use crate::program::Program;

/// `spawn` as a process of `program` has it.
#[must_use]
pub fn spec(program: &Program) -> ToolSpec {
    let schema = json!({
        "type": "object",
        "properties": properties(program),
        "required": ["program_name", "query"],
        "additionalProperties": false
    });
    let entry = |name: &str, description: &str| {
        let description = ShownText::outside(&format!("program:{name}"), description);
        format!("\n- {name}: {description}")
    };
    let list: String = program.linked().map(|(name, description, _)| entry(name, description)).collect();
    ToolSpec {
        name: "spawn".into(),
        description: format!(
            "Starts a fresh process of a linked program and returns its last message. With wait=false you get its pid at \
             once and go on; its last message comes to you by itself. Programs:{list}"
        )
        .into(),
        schema: schema.to_string().into(),
    }
}

fn properties(program: &Program) -> Value {
    let names: Vec<_> = program.linked().map(|(name, ..)| name).collect();
    let mut properties = json!({
        "program_name": { "type": "string", "enum": names, "description": "The linked program." },
        "query": { "type": "string", "description": "What it is to do. It knows nothing else of this conversation." },
        "wait": { "type": "boolean", "description": "Whether to wait for its end; true if left out." }
    });
    let text = || json!({ "type": "string" });
    properties[FILES] = list_schema(text(), "Files whose content stands in its system prompt.");
    if program.descriptors().is_some() {
        properties[FDS] = schema(
            "Descriptors that it gets: their content in its system prompt, and the same ids in its table. A part of one is \
             named as \"fd:1 lines 10-40\", or by an object.",
        );
    }
    if shares_files(program) {
        let what = "Temporary files, such as temp:1, whose newest version stands in its system prompt.";
        properties[TEMP_FILES] = list_schema(text(), what);
    }
    properties
}
