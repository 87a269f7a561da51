//! The conditions under which a turn of a script gives the reply: the keys `when.…`, which the head
//! of `scripted.rs` explains. All conditions of the turn must hold.

use minijinja::Value;
use regex::Regex;
use serde::Deserialize;
use toml::Spanned;

use super::captures::compile;
use super::error::{ScriptError, ScriptText};
use super::history::History;
use super::render::{self, RenderError};

/// `[turn.when]` as the script file contains it.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WhenEntry {
    matches: Option<Spanned<String>>,
    contains: Option<String>,
    tool: Option<String>,
    program: Option<String>,
    prompt: Option<Spanned<String>>,
    round: Option<usize>,
    holds: Option<Spanned<String>>,
}

/// One checked condition.
#[derive(Debug)]
enum Condition {
    Program(String),
    Round(usize),
    Tool(String),
    Contains(String),
    Matches(Regex),
    Prompt(Regex),
    Holds(String),
}

/// The checked conditions of a turn, cheap ones first.
#[derive(Debug)]
pub(crate) struct Conditions(Vec<Condition>);

impl Conditions {
    /// Checks the conditions of a turn.
    ///
    /// # Errors
    /// If a pattern is not a regular expression, or `holds` is not an expression.
    pub(crate) fn check(when: WhenEntry, text: &ScriptText<'_>) -> Result<Self, ScriptError> {
        let WhenEntry {
            matches,
            contains,
            tool,
            program,
            prompt,
            round,
            holds,
        } = when;
        let pattern =
            |pattern: Option<Spanned<String>>| pattern.map(|p| compile(&p, text)).transpose();
        if let Some(holds) = &holds {
            render::check_expression(holds, text)?;
        }
        let conditions = [
            program.map(Condition::Program),
            round.map(Condition::Round),
            tool.map(Condition::Tool),
            contains.map(Condition::Contains),
            pattern(matches)?.map(Condition::Matches),
            pattern(prompt)?.map(Condition::Prompt),
            holds.map(|holds| Condition::Holds(holds.into_inner())),
        ];
        Ok(Self(conditions.into_iter().flatten().collect()))
    }

    /// Whether all conditions hold.
    ///
    /// # Errors
    /// The expression of `holds` cannot be evaluated: it names a variable without a value, or
    /// compares values of different types.
    pub(crate) fn hold(
        &self,
        history: &History<'_>,
        last: &str,
        variables: &Value,
    ) -> Result<bool, RenderError> {
        for condition in &self.0 {
            if !condition.holds(history, last, variables)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl Condition {
    fn holds(
        &self,
        history: &History<'_>,
        last: &str,
        variables: &Value,
    ) -> Result<bool, RenderError> {
        Ok(match self {
            Self::Program(name) => history.program() == name,
            Self::Round(round) => history.round() == *round,
            Self::Tool(name) => history.answered_tools().any(|tool| tool == name),
            Self::Contains(text) => last.contains(text),
            Self::Matches(pattern) => pattern.is_match(last),
            Self::Prompt(pattern) => pattern.is_match(history.prompt()),
            Self::Holds(expression) => render::is_true(expression, variables)?,
        })
    }
}

impl std::fmt::Display for Conditions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() {
            return f.write_str("always");
        }
        for (index, condition) in self.0.iter().enumerate() {
            let and = if index == 0 { "" } else { ", " };
            match condition {
                Condition::Program(name) => write!(f, "{and}program = {name:?}")?,
                Condition::Round(round) => write!(f, "{and}round = {round}")?,
                Condition::Tool(name) => write!(f, "{and}tool = {name:?}")?,
                Condition::Contains(text) => write!(f, "{and}contains = {text:?}")?,
                Condition::Matches(pattern) => write!(f, "{and}matches = '{pattern}'")?,
                Condition::Prompt(pattern) => write!(f, "{and}prompt = '{pattern}'")?,
                Condition::Holds(expression) => write!(f, "{and}holds = '{expression}'")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scripted::testing::{answer, request, said, used};

    fn holds(when: &str) -> Result<bool, RenderError> {
        let conditions = Conditions::check(
            toml::from_str(when).unwrap(),
            &ScriptText {
                name: "t",
                text: when,
            },
        )
        .unwrap();
        let request = request(vec![
            said("audit a"),
            used("u", "grep", "{}"),
            answer("u", "<r pages=\"3\"/>"),
        ]);
        let history = History::of(&request);
        conditions.hold(
            &history,
            &history.last(),
            &Value::from_serialize(serde_json::json!({"pages": "3"})),
        )
    }

    #[test]
    fn conditions_are_evaluated_against_the_conversation() {
        let cases = [
            ("", true),
            ("program = 'auditor'", true),
            ("program = 'editor'", false),
            ("round = 1", true),
            ("round = 0", false),
            ("tool = 'grep'", true),
            ("tool = 'ls'", false),
            ("contains = 'pages='", true),
            ("contains = 'audit'", false),
            ("matches = 'pages=\"\\d\"'", true),
            ("matches = '^audit'", false),
            ("prompt = '^audit'", true),
            ("prompt = 'pages'", false),
            ("holds = 'pages | int > 2'", true),
            ("holds = 'pages | int > 3'", false),
            ("holds = 'absent is defined'", false),
            ("tool = 'grep'\nround = 0", false),
        ];
        for (when, expected) in cases {
            assert_eq!(holds(when), Ok(expected), "{when}");
        }
    }

    #[test]
    fn a_condition_that_cannot_be_computed_is_an_error() {
        let error = holds("holds = 'absent > 1'").unwrap_err().to_string();
        assert!(
            error.contains("absent > 1") && error.contains("pages"),
            "{error}"
        );
    }
}
