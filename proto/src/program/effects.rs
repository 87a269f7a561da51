//! `[tools] effects`: what happens to calls that repeat an effect beyond a point that the process
//! went back to. The module `effect` of this crate says what that means.

use super::tools::MAX_TOOLS;
use super::{Reader, Section, WithSpan};
use crate::effect::{EffectPolicy, RepeatRule};

/// `effects` as written: a policy, or a table.
#[derive(Clone, Debug, PartialEq, Eq, Section)]
#[section(
    shorthand = policy,
    expected = "`recorded`, `ask`, `run`, `refuse`, or a table of `policy` and `tool`"
)]
pub struct EffectsSection {
    /// What happens to a call that repeats what was done beyond a point that the process went back
    /// to, by a branch, a restore or `goto`: `recorded` gives the recorded answer, `ask` waits for
    /// a person, `run` runs the call anew, `refuse` answers with an error. If it is not given,
    /// calls that may be repeated run, and about others a person is asked, or, where nobody can
    /// answer, the recorded answer is given.
    pub policy: Option<EffectPolicy>,
    /// Rules for single tools: `[[tools.effects.tool]]`.
    #[key(name = "tool", max_items = MAX_TOOLS)]
    pub tools: Vec<ToolEffects>,
}

/// The rule for one tool.
#[derive(Clone, Debug, PartialEq, Eq, Section)]
#[section(
    check = ToolEffects::drop_unnamed,
    expected = "a table with `name`",
    list = "a list of tables: `[[tools.effects.tool]]`"
)]
pub struct ToolEffects {
    /// The name of the tool: a tool of the kernel, a command, a tool of the host or of a server.
    #[key(required)]
    pub name: WithSpan<String>,
    /// How repeated calls are recognised, and what happens to them.
    #[key(flatten)]
    pub rule: RepeatRule,
}

impl ToolEffects {
    /// Drops a rule without a tool, which was reported.
    fn drop_unnamed(self, _: &mut Reader<'_>) -> Option<Self> {
        (!self.name.value.is_empty()).then_some(self)
    }
}

#[cfg(test)]
mod tests {
    use crate::program::parse;

    #[test]
    fn a_shorthand_of_a_wrong_type_is_told_what_is_valid() {
        for (written, expected) in [
            (
                "effects = 5",
                "`recorded`, `ask`, `run`, `refuse`, or a table",
            ),
            (
                "effects = true",
                "`recorded`, `ask`, `run`, `refuse`, or a table",
            ),
        ] {
            let text = format!("[model]\nname = 'm'\nprovider = 'scripted'\n[tools]\n{written}");
            let found = format!("{:?}", parse(&text).diagnostics);
            assert!(found.contains(expected), "{written}: {found}");
        }
    }
}
