//! The rules of `[tools] ask`: which calls a person has to approve.
//!
//! `program.rs` says what `Section`, `Value` and `Reader` are.

use serde_json::{Value as Json, json};

use super::parameters::to_json;
use super::{Diagnostic, Node, Reader, Rules, Section, Span, Value, WithSpan};

/// A rule of `ask`: an access level, the name of a tool, or a table.
#[derive(Clone, Debug, PartialEq, Eq, Section)]
#[section(
    shorthand = tool,
    check = AskEntry::drop_unnamed,
    expected = "an access level, the name of a tool, or a table with `tool`",
    list = "a list of rules"
)]
pub struct AskEntry {
    /// `read`, `write` or `admin` for every tool that needs this access or more, or the name of a
    /// tool.
    #[key(required)]
    pub tool: WithSpan<String>,
    /// Which calls of the tool are asked about; all of them if it is not given.
    pub when: Option<AskCondition>,
    /// The place of the whole rule.
    #[key(span)]
    pub span: Span,
}

impl AskEntry {
    /// Drops a rule without a tool, which was reported.
    fn drop_unnamed(self, _: &mut Reader<'_>) -> Option<Self> {
        (!self.tool.value.is_empty()).then_some(self)
    }
}

/// A condition on one argument of a call. A call whose arguments are not JSON, or whose argument
/// names a descriptor to be expanded, meets every condition.
#[derive(Clone, Debug, PartialEq, Eq, Section)]
#[section(
    check = AskCondition::check_test,
    expected = "a table of `argument` and one of `matches` and `equals`"
)]
pub struct AskCondition {
    /// The argument: its name, or a JSON pointer such as `/options/force`.
    #[key(required)]
    pub argument: WithSpan<String>,
    /// A regular expression that is found in the argument: in its text if it is a string, and
    /// otherwise in its JSON.
    pub matches: Option<WithSpan<String>>,
    /// The value that the argument has.
    pub equals: Option<ExactValue>,
    /// The place of the condition.
    #[key(span)]
    pub span: Span,
}

impl AskCondition {
    /// Reports a condition that has no test, or two.
    fn check_test(self, table: &mut Reader<'_>) -> Option<Self> {
        if self.matches.is_some() == self.equals.is_some() {
            let message = "a condition has one of `matches` and `equals`";
            let wrong = Diagnostic::error(self.span.clone(), message, "this condition");
            table.report(
                wrong.help("for example { argument = \"command\", matches = \"rm|git push\" }"),
            );
        }
        Some(self)
    }
}

/// A value that an argument is compared with, as JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExactValue(pub Json);

impl Value for ExactValue {
    const EXPECTED: &'static str = "a value";

    fn read(table: &mut Reader<'_>, key: &str, node: Node<'_>, _rules: &Rules) -> Option<Self> {
        to_json(table, key, node).map(Self)
    }

    fn schema(_rules: &Rules) -> Json {
        json!({ "title": "any value" })
    }
}
