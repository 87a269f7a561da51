//! `[tools] effects`: the policy of a program for calls that repeat an effect.

use dormouse_proto::effect::{EffectPolicy, RepeatRule};
use dormouse_proto::program::{Diagnostics, EffectsSection};

use super::ask::check_is_enabled;
use super::servers::EnabledServer;
use super::tools::EnabledTool;

/// What a program says about calls that repeat an effect.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct EffectRules {
    /// The policy for all tools.
    pub(super) policy: Option<EffectPolicy>,
    tools: Vec<(String, RepeatRule)>,
}

impl EffectRules {
    /// The rule for a tool: the first one that has the name by which the model calls it, or the
    /// name by which the program refers to it.
    pub(super) fn rule(&self, called: &str, name: &str) -> Option<&RepeatRule> {
        let mut rules = self.tools.iter();
        let found = rules.find(|(tool, _)| tool == called || tool == name);
        found.map(|(_, rule)| rule)
    }
}

/// Checks that the rules name tools of the program.
pub(super) fn check(
    section: &EffectsSection,
    tools: &[EnabledTool],
    servers: &[EnabledServer],
    diagnostics: &mut Diagnostics,
) -> EffectRules {
    for entry in &section.tools {
        check_is_enabled("tools.effects", &entry.name, (tools, servers), diagnostics);
    }
    let rules = section.tools.iter();
    EffectRules {
        policy: section.policy,
        tools: rules
            .map(|entry| (entry.name.value.clone(), entry.rule.clone()))
            .collect(),
    }
}
