//! `fork`: continues as several processes, each with its own prompt.

use std::collections::BTreeMap;

use dormouse_proto::tool::Access;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::args::Args;
use super::parameter::ItemType;
use super::{Group, Handler, Parameter, ProcessHandler, Refusal, SpecDraft, Tool};
use crate::program::Program;

/// `fork` as a tool.
pub const TOOL: Tool = Tool {
    name: "fork",
    group: Group::Processes,
    access: Access::Admin,
    description: DESCRIPTION,
    parameters: &PARAMETERS,
    adapt: Some(bound_prompts),
    example: None,
    may_repeat: super::always_repeatable,
    handler: Handler::Process(ProcessHandler::Fork { prompts, count }),
};

pub(super) const PROMPTS: &str = "prompts";

const PARAMETERS: [Parameter; 1] = [Parameter::list(
    ItemType::Texts,
    PROMPTS,
    "What each child is to do. It knows everything that you know.",
)
.required()
.also(&["tasks", "queries", "messages"])];

const DESCRIPTION: &str = "Splits the work: one child process per prompt, each with a copy of this \
conversation and of all descriptors. The children work in parallel; you get the last message of \
each.";

/// Limits the number of prompts to what the program permits.
pub(super) fn bound_prompts(program: &Program, draft: &mut SpecDraft) {
    let prompts = &mut draft.schema["properties"][PROMPTS];
    prompts["minItems"] = 1.into();
    prompts["maxItems"] = program.limits().max_fork_children.into();
}

/// Parses the prompts of a call.
///
/// # Errors
/// The arguments are invalid, or have no prompts or more than `max_children`.
pub fn prompts(args: &str, max_children: u32) -> Result<Vec<String>, Refusal> {
    prompts_of(&Args::parse(&TOOL, args)?, max_children)
}

/// The prompts of a call whose arguments were parsed.
pub(super) fn prompts_of(args: &Args, max_children: u32) -> Result<Vec<String>, Refusal> {
    let items = args.list(PROMPTS);
    if items.is_empty() {
        return Err(args
            .missing_error(
                PROMPTS,
                "a list of texts, one for each child, and at least one",
            )
            .into());
    }
    if items.len() > max_children as usize {
        return Err(format!(
            "{} children asked for: one call makes at most {max_children}. Give each child more to \
             do.",
            items.len()
        )
        .into());
    }
    let text = |item: &Value| match item {
        Value::String(text) if text.trim().is_empty() => {
            Err(format!("'{PROMPTS}' holds an empty text: say what each child is to do.").into())
        }
        Value::String(text) => Ok(text.clone()),
        other => Err(format!(
            "'{PROMPTS}' must be a list of texts, one for each child, and holds {other}."
        )
        .into()),
    };
    items.iter().map(text).collect()
}

/// A value of an argument, without its parts.
#[derive(Deserialize)]
#[serde(untagged)]
enum Given {
    List(Vec<IgnoredAny>),
    Other(IgnoredAny),
}

/// Number of children of a checked call, of `fork` or `explore`. The function is called whenever a
/// child ends, so it does not copy the prompts.
#[must_use]
pub fn count(args: &str) -> usize {
    // As in the check of the call, the last of duplicate keys counts.
    let given = serde_json::from_str::<BTreeMap<String, Given>>(args).ok();
    let in_own_form = given.and_then(|given| match given.get(PROMPTS) {
        Some(Given::List(items)) => Some(items.len()),
        Some(Given::Other(_)) | None => None,
    });
    let in_another_form = || Some(Args::parse(&TOOL, args).ok()?.list(PROMPTS).len());
    in_own_form.or_else(in_another_form).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_are_counted_and_typed() {
        assert_eq!(
            prompts(r#"{"prompts": ["a", "b"]}"#, 2),
            Ok(vec!["a".into(), "b".into()])
        );
        let twice = r#"{"prompts": ["x"], "prompts": ["a", "b"]}"#;
        assert_eq!(
            prompts(twice, 2).map(|prompts| prompts.len()),
            Ok(count(twice))
        );
        let refused = [
            ("{}", "'prompts' is missing"),
            (r#"{"prompts": []}"#, "at least one"),
            (r#"{"prompts": ["a", "b", "c"]}"#, "at most 2"),
            (r#"{"prompts": "a"}"#, "'prompts' must be a list, not \"a\""),
            (
                r#"{"prompts": ["a", 1]}"#,
                "one for each child, and holds 1",
            ),
            (r#"{"prompt": ["a"]}"#, "Did you mean 'prompts'?"),
            ("[", "EOF"),
        ];
        for (args, reason) in refused {
            let message = prompts(args, 2).unwrap_err().to_string();
            assert!(message.contains(reason), "{args}: {message}");
        }
    }
}
