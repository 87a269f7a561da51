//! `explore`: tries several ways at the same time, each in a child that does nothing outside of
//! itself, and takes over the best one.
//!
//! The children are speculative (`kernel/machine/src/process/speculation.rs`): a child ends at its
//! first call that acts outside of it or writes a temporary file, and proposes that call to the
//! parent. `explore.rs` of the machine starts the children and names the winner in the answer.

use dormouse_proto::tool::Access;

use super::args::Args;
use super::fork;
use super::parameter::ItemType;
use super::{Group, Handler, Parameter, ProcessHandler, Refusal, SpecDraft, Tool};
use crate::program::{Program, ValueSchema};

/// `explore` as a tool.
pub const TOOL: Tool = Tool {
    name: "explore",
    group: Group::Processes,
    access: Access::Admin,
    description: DESCRIPTION,
    parameters: &PARAMETERS,
    adapt: Some(bound_prompts),
    example: None,
    may_repeat: super::always_repeatable,
    handler: Handler::Process(ProcessHandler::Explore {
        prompts,
        count: fork::count,
        judge,
    }),
};

const JUDGE: &str = "judge";

const PARAMETERS: [Parameter; 2] = [
    Parameter::list(
        ItemType::Texts,
        fork::PROMPTS,
        "The ways to try, one for each child. A child knows everything that you know.",
    )
    .required()
    .also(&["tasks", "queries", "messages"]),
    Parameter::object(
        JUDGE,
        "A JSON Schema: a child may win if it accepts the child's answer, as JSON, or the arguments \
         of the call that the child proposes. Without it, the first child that is done wins.",
    )
    .also(&["schema", "result_schema"]),
];

const DESCRIPTION: &str = "Tries several ways at the same time: one child process per prompt, each \
with a copy of this conversation and of all descriptors. A child reads as it likes and changes \
nothing: at its first call that would change something it ends, and proposes that call. You get \
what the winner said or proposes, and why the others lost. Nothing that a child proposes is done \
until you call it yourself.";

/// Limits the number of prompts to what the program permits.
fn bound_prompts(program: &Program, draft: &mut SpecDraft) {
    fork::bound_prompts(program, draft);
}

/// Parses the prompts of a call.
///
/// # Errors
/// As [`fork::prompts`].
pub fn prompts(args: &str, max_children: u32) -> Result<Vec<String>, Refusal> {
    fork::prompts_of(&Args::parse(&TOOL, args)?, max_children)
}

/// Parses the schema that judges, if there is one.
///
/// # Errors
/// The arguments are invalid, or the schema is none.
pub fn judge(args: &str) -> Result<Option<ValueSchema>, Refusal> {
    let args = Args::parse(&TOOL, args)?;
    let Some(schema) = args.object(JUDGE) else {
        return Ok(None);
    };
    let parsed = ValueSchema::parse(schema.clone().into());
    parsed
        .map(Some)
        .map_err(|error| format!("Nothing was started: '{JUDGE}' is not valid. {error}.").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_and_a_schema_are_read() {
        let args = r#"{"prompts": ["a", "b"], "judge": {"type": "integer"}}"#;
        assert_eq!(prompts(args, 2), Ok(vec!["a".into(), "b".into()]));
        assert_eq!(fork::count(args), 2);
        let schema = judge(args).unwrap().unwrap();
        assert!(schema.check(&7.into()).is_ok() && schema.check(&"x".into()).is_err());
        assert_eq!(judge(r#"{"prompts": ["a"]}"#), Ok(None));
        let invalid = judge(r#"{"prompts": ["a"], "judge": {"type": 7}}"#).unwrap_err();
        assert!(invalid.to_string().contains("'judge' is not valid"));
        assert!(prompts(r#"{"prompts": []}"#, 2).is_err());
    }
}
