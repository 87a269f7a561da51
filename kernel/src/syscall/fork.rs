//! `fork`: go on as several processes, each with its own prompt.

use super::{Group, Handler, ProcessHandler, Spec, Tool};
use crate::process::Draft;
use dormouse_proto::tool::{Access, ToolSpec};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;

/// `fork` as a tool.
pub const TOOL: Tool = Tool {
    name: "fork",
    group: Group::Processes,
    access: Access::Admin,
    spec: Spec::Of(|program| spec(program.limits().max_fork_children)),
    example: None,
    may_repeat: super::always,
    handler: Handler::Process(ProcessHandler(Draft::fork)),
};

/// What a model is told of it.
#[must_use]
pub fn spec(max_children: u32) -> ToolSpec {
    let schema = json!({
        "type": "object",
        "properties": {
            "prompts": {
                "type": "array",
                "items": { "type": "string" },
                "minItems": 1,
                "maxItems": max_children,
                "description": "What each child is to do. It knows everything that you know."
            }
        },
        "required": ["prompts"],
        "additionalProperties": false
    });
    ToolSpec {
        name: TOOL.name.into(),
        description: "Splits the work: one child process per prompt, each with a copy of this conversation and of all \
                      descriptors. The children work in parallel; you get the last message of each."
            .into(),
        schema: schema.to_string().into(),
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Arguments {
    prompts: Vec<String>,
}

/// The prompts of a call.
///
/// # Errors
/// A text for the model where there are none, more than `max_children`, or other arguments.
pub fn prompts(args: &str, max_children: u32) -> Result<Vec<String>, String> {
    let expected = "fork takes {\"prompts\": [\"…\", …]}: one text for each child";
    let Arguments { prompts } = serde_json::from_str(args).map_err(|error| format!("{expected} ({error})."))?;
    match prompts.len() {
        0 => Err(format!("{expected}, and at least one.")),
        count if count > max_children as usize => Err(format!(
            "{count} children asked for: one call makes at most {max_children}. Give each child more to do."
        )),
        _ => Ok(prompts),
    }
}

/// How many children a call made whose arguments were taken. Asked for at the end of each of them, so that no prompt is read.
#[must_use]
pub fn count(args: &str) -> usize {
    #[derive(Deserialize)]
    struct Counted {
        prompts: Vec<IgnoredAny>,
    }
    serde_json::from_str::<Counted>(args).map_or(1, |counted| counted.prompts.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_are_counted_and_typed() {
        assert_eq!(prompts(r#"{"prompts": ["a", "b"]}"#, 2), Ok(vec!["a".into(), "b".into()]));
        let refused = [
            (r#"{"prompts": []}"#, "at least one"),
            (r#"{"prompts": ["a", "b", "c"]}"#, "at most 2"),
            (r#"{"prompts": "a"}"#, "expected a sequence"),
            (r#"{"prompt": ["a"]}"#, "unknown field"),
            ("[", "EOF"),
        ];
        for (args, reason) in refused {
            let message = prompts(args, 2).unwrap_err();
            assert!(message.contains(reason), "{args}: {message}");
        }
    }
}
