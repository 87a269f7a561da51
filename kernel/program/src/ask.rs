//! The rules of `[tools] ask`: which calls of the model a person has to approve.

use std::sync::Arc;

use dormouse_proto::program::{
    AskCondition, AskEntry, Diagnostic, Diagnostics, WithSpan, listed, shorten, suggestion,
};
use dormouse_proto::tool::Access;
use regex::Regex;
use serde_json::Value;

use super::servers::EnabledServer;
use super::tools::EnabledTool;

/// A rule that says which calls of the model a person has to approve.
#[derive(Clone, Debug)]
pub struct AskRule {
    subject: Subject,
    condition: Option<Condition>,
    text: Arc<str>,
}

/// The tools that a rule is about.
#[derive(Clone, Debug)]
enum Subject {
    /// Every tool that needs this access or more.
    Access(Access),
    /// The tool of this name.
    Tool(String),
}

/// A condition on one argument of a call.
#[derive(Clone, Debug)]
struct Condition {
    argument: String,
    test: Test,
}

#[derive(Clone, Debug)]
enum Test {
    Matches(Regex),
    Equals(Value),
}

/// A call of the model, as the rules see it.
#[derive(Clone, Copy, Debug)]
pub struct AskedCall<'a> {
    /// The name by which the model calls the tool.
    pub called: &'a str,
    /// The name by which the program refers to the tool.
    pub name: &'a str,
    /// The access that the tool needs.
    pub access: Access,
    /// The arguments in each form in which they are judged: as they are written, and as the tool
    /// takes them. Empty if they are not JSON.
    pub args: &'a [Value],
    /// Whether handles in the arguments are replaced by the content of descriptors.
    pub expands_handles: bool,
}

impl AskRule {
    /// Whether the rule matches a call. O(arguments), and the regular expression runs in linear
    /// time.
    #[must_use]
    pub fn matches(&self, call: &AskedCall<'_>) -> bool {
        let is_subject = match &self.subject {
            Subject::Access(access) => call.access >= *access,
            Subject::Tool(tool) => tool == call.called || tool == call.name,
        };
        is_subject
            && self
                .condition
                .as_ref()
                .is_none_or(|condition| condition.is_met(call))
    }

    /// The rule, as people read it.
    #[must_use]
    pub fn text(&self) -> &Arc<str> {
        &self.text
    }
}

impl Condition {
    /// Whether a call meets the condition, in any form of its arguments. A call that cannot be
    /// judged meets it: if its arguments are not JSON, or the argument names a descriptor, whose
    /// content is not known here.
    fn is_met(&self, call: &AskedCall<'_>) -> bool {
        let mut forms = call.args.iter();
        call.args.is_empty() || forms.any(|args| self.is_met_by(args, call.expands_handles))
    }

    fn is_met_by(&self, args: &Value, expands_handles: bool) -> bool {
        let found = match self.argument.starts_with('/') {
            true => args.pointer(&self.argument),
            false => args.get(&self.argument),
        };
        let Some(value) = found else {
            return false;
        };
        if expands_handles && value.to_string().contains("{{") {
            return true;
        }
        match (&self.test, value) {
            (Test::Matches(pattern), Value::String(text)) => pattern.is_match(text),
            (Test::Matches(pattern), value) => pattern.is_match(&value.to_string()),
            (Test::Equals(expected), value) => may_be_taken_as(value, expected),
        }
    }
}

/// Whether a tool may take a value for the expected one: many tools take numbers, booleans and
/// lists that are written as strings, and numbers as words.
fn may_be_taken_as(value: &Value, expected: &Value) -> bool {
    match (value, expected) {
        _ if value == expected => true,
        (Value::String(text), Value::Bool(_)) => {
            text.trim().eq_ignore_ascii_case(&expected.to_string())
        }
        (Value::String(text), Value::Number(number)) => {
            let written = text.trim().parse::<f64>().ok();
            written.is_some() && written == number.as_f64()
        }
        (Value::String(text), Value::Array(_) | Value::Object(_)) => {
            serde_json::from_str::<Value>(text).is_ok_and(|written| written == *expected)
        }
        (Value::Number(written), Value::Number(number)) => written.as_f64() == number.as_f64(),
        (Value::Number(_) | Value::Bool(_), Value::String(text)) => {
            let written = value.to_string();
            *text == written
        }
        _ => false,
    }
}

/// Checks the rules against the tools of the program.
pub(super) fn check(
    entries: &[AskEntry],
    tools: &[EnabledTool],
    servers: &[EnabledServer],
    diagnostics: &mut Diagnostics,
) -> Vec<AskRule> {
    let mut rules = Vec::new();
    for entry in entries {
        let name = entry.tool.value.as_str();
        let subject = match access_level(name) {
            Some(access) => Subject::Access(access),
            None => Subject::Tool(name.to_owned()),
        };
        if matches!(subject, Subject::Tool(_)) && !is_enabled(name, tools, servers) {
            diagnostics.push(unknown_tool_error(entry, tools));
        }
        let condition = match &entry.when {
            Some(when) => match check_condition(when, diagnostics) {
                Some(condition) => Some(condition),
                None => continue,
            },
            None => None,
        };
        let text = rule_text(name, condition.as_ref());
        rules.push(AskRule {
            subject,
            condition,
            text,
        });
    }
    rules
}

fn access_level(word: &str) -> Option<Access> {
    let levels = [Access::Read, Access::Write, Access::Admin];
    levels.into_iter().find(|access| access.word() == word)
}

/// Reports a name in a section that is not one of a tool which the model may have.
pub(super) fn check_is_enabled(
    section: &str,
    name: &WithSpan<String>,
    (tools, servers): (&[EnabledTool], &[EnabledServer]),
    diagnostics: &mut Diagnostics,
) {
    if is_enabled(&name.value, tools, servers) {
        return;
    }
    let known: Vec<_> = tools.iter().map(EnabledTool::called).collect();
    let list = format!("valid: {}", listed(&known));
    let message = format!(
        "`{section}` names `{}`, which the model cannot call",
        shorten(&name.value)
    );
    let help = suggestion(&name.value, &known, &list).unwrap_or(list);
    let wrong = name.error(message, "no tool of this program");
    diagnostics.push(wrong.help(help));
}

/// Whether the model may have a tool of this name. The tools of a server are not known yet.
fn is_enabled(name: &str, tools: &[EnabledTool], servers: &[EnabledServer]) -> bool {
    let is_named = |tool: &EnabledTool| tool.name == name || tool.called() == name;
    tools.iter().any(is_named) || servers.iter().any(|server| server.may_provide(name))
}

fn unknown_tool_error(entry: &AskEntry, tools: &[EnabledTool]) -> Diagnostic {
    let mut known: Vec<_> = tools.iter().map(EnabledTool::called).collect();
    known.extend(["read", "write", "admin"]);
    let list = format!("valid: {}", listed(&known));
    let name = &entry.tool.value;
    let message = format!(
        "`tools.ask` names `{}`, which the model cannot call",
        shorten(name)
    );
    let help = suggestion(name, &known, &list).unwrap_or(list);
    entry
        .tool
        .error(
            message,
            "neither a tool of this program nor an access level",
        )
        .help(help)
}

/// The condition; `None` if it is invalid, which is reported here or was reported before.
fn check_condition(when: &AskCondition, diagnostics: &mut Diagnostics) -> Option<Condition> {
    let test = match (&when.matches, &when.equals) {
        (Some(pattern), None) => match Regex::new(&pattern.value) {
            Ok(regex) => Test::Matches(regex),
            Err(error) => {
                let message = "`matches` is not a regular expression";
                let help = error.to_string();
                diagnostics.push(pattern.error(message, "not a pattern").help(help));
                return None;
            }
        },
        (None, Some(value)) => Test::Equals(value.0.clone()),
        _ => return None,
    };
    Some(Condition {
        argument: when.argument.value.clone(),
        test,
    })
}

fn rule_text(name: &str, condition: Option<&Condition>) -> Arc<str> {
    match condition {
        None => name.into(),
        Some(Condition {
            argument,
            test: Test::Matches(pattern),
        }) => format!("{name} when {argument} matches /{pattern}/").into(),
        Some(Condition {
            argument,
            test: Test::Equals(value),
        }) => format!("{name} when {argument} is {value}").into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_value_in_another_spelling_equals_the_one_of_a_rule() {
        let cases = [
            (json!(true), json!(true), true),
            (json!("True"), json!(true), true),
            (json!("false"), json!(true), false),
            (json!(1), json!(true), false),
            (json!("5"), json!(5), true),
            (json!("005"), json!(5), true),
            (json!(5.0), json!(5), true),
            (json!("5.5"), json!(5), false),
            (json!("five"), json!(5), false),
            (json!("[\"a\"]"), json!(["a"]), true),
            (json!("[\"b\"]"), json!(["a"]), false),
            (json!(5), json!("5"), true),
            (json!("a"), json!("A"), false),
            (json!(null), json!("null"), false),
        ];
        for (value, expected, is_equal) in cases {
            let is_taken = may_be_taken_as(&value, &expected);
            assert_eq!(is_taken, is_equal, "{value} for {expected}");
        }
    }
}
