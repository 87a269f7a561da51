//! `explore`: tries several ways at the same time, each in a child that does nothing outside of
//! itself, and takes over the best one.
//!
//! The children are speculative (`kernel/machine/src/process/speculation.rs`): a child ends at its
//! first call that acts outside of it or writes a temporary file, and proposes that call to the
//! parent. `exploring.rs` of the machine has them judged and names the winner in the answer.

use dormouse_proto::tool::Access;
use serde_json::{Value, json};

use super::args::Args;
use super::parameter::ItemType;
use super::{Group, Handler, Parameter, ProcessHandler, Refusal, SpecDraft, Tool, fork, spawn};
use crate::process::Judge;
use crate::program::{Program, ValueSchema};

/// `explore` as a tool.
pub const TOOL: Tool = Tool {
    name: "explore",
    group: Group::Processes,
    access: Access::Admin,
    description: DESCRIPTION,
    parameters: &PARAMETERS,
    adapt: Some(adapt),
    example: None,
    may_repeat: super::always_repeatable,
    handler: Handler::Process(ProcessHandler::Explore {
        prompts,
        count: fork::count,
        judge,
    }),
};

const JUDGE: &str = "judge";
/// The keys of `judge`.
const SCHEMA: &str = "schema";
const PROGRAM: &str = "program";

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
        "Which child may win: {\"schema\": …}, a JSON Schema that accepts the arguments of the call \
         that the child proposes, or its answer as JSON; or {\"program\": …}, a linked program that \
         judges. The first child that passes wins. Without it, the first child that is done wins.",
    ),
];

const DESCRIPTION: &str = "Tries several ways at the same time: one child process per prompt, each \
with a copy of this conversation and of all descriptors. A child reads as it likes and changes \
nothing: at its first call that would change something it ends, and proposes that call. You get \
what the winner said or proposes, and why the others lost. Nothing that a child proposes is done \
until you call it yourself.";

/// Limits the number of prompts to what the program permits, and lists what can judge.
fn adapt(program: &Program, draft: &mut SpecDraft) {
    fork::bound_prompts(program, draft);
    let mut judges = json!({ SCHEMA: { "type": "object", "description": "A JSON Schema." } });
    let names: Vec<_> = judging_programs(program).collect();
    if !names.is_empty() {
        judges[PROGRAM] = json!({
            "type": "string",
            "enum": names,
            "description": "A linked program: it reads a child as JSON, and passes it or not."
        });
    }
    draft.schema["properties"][JUDGE]["properties"] = judges;
}

/// The names of the linked programs that can judge.
fn judging_programs(program: &Program) -> impl Iterator<Item = &str> {
    let linked = program.linked();
    linked.filter_map(|(name, _, linked)| linked.result().schema.is_some().then_some(name))
}

/// Parses the prompts of a call.
///
/// # Errors
/// As [`fork::prompts`].
pub fn prompts(args: &str, max_children: u32) -> Result<Vec<String>, Refusal> {
    fork::prompts_of(&Args::parse(&TOOL, args)?, max_children)
}

/// Parses what judges, if anything does.
///
/// # Errors
/// The arguments are invalid, the schema is none, or the program is not linked or cannot judge.
pub fn judge(program: &Program, args: &str) -> Result<Option<Judge>, Refusal> {
    let args = Args::parse(&TOOL, args)?;
    let Some(judge) = args.object(JUDGE) else {
        return Ok(None);
    };
    let mut keys = judge.iter();
    let judge = match (keys.next(), keys.next()) {
        (Some((key, schema)), None) if key == SCHEMA => parse_schema(schema),
        (Some((key, Value::String(name))), None) if key == PROGRAM => find_judge(program, name),
        _ => Err(format!(
            "Nothing was started: '{JUDGE}' must be {{\"{SCHEMA}\": …}} with a JSON Schema, or \
             {{\"{PROGRAM}\": …}} with the name of a linked program."
        )
        .into()),
    };
    judge.map(Some)
}

fn parse_schema(schema: &Value) -> Result<Judge, Refusal> {
    let parsed = ValueSchema::parse(schema.clone());
    parsed.map(Judge::Schema).map_err(|error| {
        format!("Nothing was started: '{JUDGE}' has a schema that is not valid. {error}.").into()
    })
}

fn find_judge(program: &Program, name: &str) -> Result<Judge, Refusal> {
    let judge = spawn::linked_program(program, name)?;
    if judge.result().schema.is_some() {
        return Ok(Judge::Program(judge));
    }
    let names: Vec<_> = judging_programs(program).collect();
    let others = match names.len() {
        0 => "No linked program has one: judge by a schema".to_owned(),
        _ => format!("Programs that have one: {}", names.join(", ")),
    };
    Err(format!(
        "Nothing was started: the program '{name}' cannot judge, since it has no [result] schema \
         for {{\"pass\": true}}. {others}."
    )
    .into())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use bytes::Bytes;

    use super::*;
    use crate::program::compile;

    const MODEL: &str = "[model]\nname = \"m\"\nprovider = \"scripted\"\n";

    fn linking() -> Program {
        let mut read = |path: &Path| {
            let text = match path.file_name().and_then(|name| name.to_str()) {
                Some("p.toml") => format!(
                    "{MODEL}[tools]\nenabled = [\"explore\", \"spawn\"]\n[linked_programs]\n\
                     critic = \"critic.toml\"\nplain = \"plain.toml\"\n"
                ),
                Some("critic.toml") => {
                    format!("{MODEL}[result]\nschema = {{ type = \"object\" }}\n")
                }
                _ => MODEL.to_owned(),
            };
            Ok(Bytes::from(text))
        };
        let compiled = compile(Path::new("p.toml"), &mut read, &[]);
        compiled.unwrap_or_else(|error| panic!("{error:?}")).program
    }

    #[test]
    fn prompts_and_a_judge_are_read() {
        let program = linking();
        let args = r#"{"prompts": ["a", "b"], "judge": {"schema": {"type": "integer"}}}"#;
        assert_eq!(prompts(args, 2), Ok(vec!["a".into(), "b".into()]));
        assert_eq!(fork::count(args), 2);
        let Ok(Some(Judge::Schema(schema))) = judge(&program, args) else {
            panic!("it is a schema")
        };
        assert!(schema.check(&7.into()).is_ok() && schema.check(&"x".into()).is_err());
        assert_eq!(judge(&program, r#"{"prompts": ["a"]}"#), Ok(None));
        let critic = judge(
            &program,
            r#"{"prompts": ["a"], "judge": {"program": "critic"}}"#,
        );
        assert!(
            matches!(&critic, Ok(Some(Judge::Program(judge))) if judge.name() == "critic"),
            "{critic:?}"
        );
        assert!(prompts(r#"{"prompts": []}"#, 2).is_err());
    }

    #[test]
    fn a_judge_that_cannot_judge_is_refused() {
        let program = linking();
        let refused = [
            (r#"{"schema": {"type": 7}}"#, "schema that is not valid"),
            (
                r#"{"program": "plain"}"#,
                "no [result] schema for {\"pass\": true}. Programs that have one: critic.",
            ),
            (r#"{"program": "critik"}"#, "Did you mean 'critic'?"),
            (r#"{"type": "integer"}"#, "must be {\"schema\": …}"),
            (
                r#"{"schema": {}, "program": "critic"}"#,
                "must be {\"schema\": …}",
            ),
            ("{}", "must be {\"schema\": …}"),
        ];
        for (given, why) in refused {
            let args = format!(r#"{{"prompts": ["a"], "judge": {given}}}"#);
            let error = judge(&program, &args).unwrap_err().to_string();
            assert!(error.contains(why), "{given}: {error}");
        }
    }

    #[test]
    fn the_model_reads_which_programs_can_judge() {
        let spec = TOOL.spec(&linking(), &crate::syscall::TOOL_SET);
        let schema: Value = serde_json::from_str(&spec.schema).unwrap();
        let program = &schema["properties"][JUDGE]["properties"][PROGRAM];
        assert_eq!(program["enum"], json!(["critic"]), "{schema}");
    }
}
