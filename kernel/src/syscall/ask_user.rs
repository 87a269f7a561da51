//! `ask_user`: asks the person a question.
//!
//! The call is held until the person answers it (`dormouse_machine::process::held`).

use dormouse_machine::process::Question;
use dormouse_program::ValueSchema;
use dormouse_proto::tool::Access;
use serde_json::Value;

use super::args::Args;
use super::parameter::ItemType;
use super::transferred::check_list_length;
use super::{Group, Handler, Parameter, ProcessHandler, Refusal, Tool};

/// `ask_user` as a tool.
pub const TOOL: Tool = Tool {
    name: "ask_user",
    group: Group::Processes,
    access: Access::Read,
    description: DESCRIPTION,
    parameters: &PARAMETERS,
    adapt: None,
    example: None,
    may_repeat: super::always_repeatable,
    handler: Handler::Process(ProcessHandler::AskUser(question)),
};

const CHOICES: &str = "choices";
const SCHEMA: &str = "schema";
const PARAMETERS: [Parameter; 3] = [
    Parameter::text("question", "What you want to know.").required(),
    Parameter::list(
        ItemType::Texts,
        CHOICES,
        "The answers to choose from, if there are only some.",
    ),
    Parameter::object(
        SCHEMA,
        "A JSON Schema that the answer has to match, if it is more than a text.",
    ),
];

const DESCRIPTION: &str = "Asks the user a question, and returns the answer. It may take long until \
the user answers. Ask only what you cannot find out.";

/// Parses the arguments of a call.
///
/// # Errors
/// The arguments are invalid. The text states what is valid.
pub fn question(args: &str) -> Result<Question, Refusal> {
    let args = Args::parse(&TOOL, args)?;
    let text = args.required_text("question", "what you want to know")?;
    let choices = check_list_length(CHOICES, args.list(CHOICES))?;
    let choices = choices
        .iter()
        .map(choice)
        .collect::<Result<Vec<_>, Refusal>>()?;
    let schema = args
        .object(SCHEMA)
        .map(|schema| ValueSchema::parse(Value::Object(schema.clone())))
        .transpose()
        .map_err(|error| format!("Parameter 'schema': {error}."))?;
    if !choices.is_empty() && schema.is_some() {
        return Err("Give 'choices' or 'schema', not both.".into());
    }
    Ok(Question {
        text: text.to_owned(),
        choices,
        schema,
    })
}

fn choice(item: &Value) -> Result<String, Refusal> {
    match item.as_str() {
        Some(text) if !text.is_empty() => Ok(text.to_owned()),
        _ => Err(format!(
            "'{CHOICES}' must be a list of texts, such as [\"yes\", \"no\"], and holds {item}."
        )
        .into()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_question_has_choices_or_a_schema_or_neither() {
        let free = question(r#"{"question": "Why?"}"#).unwrap();
        assert_eq!((free.choices.len(), free.schema), (0, None));
        let choices = question(r#"{"question": "Which?", "choices": ["a", "b"]}"#).unwrap();
        assert_eq!(choices.choices, ["a", "b"]);
        let schema = question(r#"{"question": "Where?", "schema": {"type": "object"}}"#).unwrap();
        assert_eq!(schema.schema.unwrap().json(), &json!({ "type": "object" }));
        for invalid in [
            "{}",
            r#"{"question": ""}"#,
            r#"{"question": "?", "choices": [1]}"#,
            r#"{"question": "?", "choices": [""]}"#,
            r#"{"question": "?", "choices": ["a"], "schema": {}}"#,
            r#"{"question": "?", "schema": {"type": "nothing"}}"#,
            r#"{"question": "?", "schema": {"$ref": "file:///etc/passwd"}}"#,
            r#"{"question": "?", "schema": 7}"#,
        ] {
            assert!(question(invalid).is_err(), "{invalid}");
        }
    }

    #[test]
    fn an_answer_is_checked_and_the_error_says_what_is_valid() {
        let choices = question(r#"{"question": "Which?", "choices": ["a", "b"]}"#).unwrap();
        let schema = question(
            r#"{"question": "Where?", "schema": {"type": "object", "required": ["host"],
                "properties": {"port": {"type": "integer"}}}}"#,
        )
        .unwrap();
        let free = question(r#"{"question": "Why?"}"#).unwrap();
        assert_eq!(choices.check(&json!("b")), Ok(()));
        assert_eq!(schema.check(&json!({ "host": "h", "port": 1 })), Ok(()));
        assert_eq!(free.check(&json!(null)), Ok(()));
        let cases = [
            (&choices, json!("c"), "\"a\", \"b\""),
            (&choices, json!(["a"]), "none of the choices"),
            (&schema, json!({ "port": 1 }), "host"),
            (&schema, json!({ "host": "h", "port": "1" }), "/port"),
        ];
        for (question, value, part) in cases {
            let error = question.check(&value).unwrap_err().to_string();
            assert!(error.contains(part), "{value}: {error}");
        }
    }
}
