//! `[tools.limits]`: the limits of single tools.

use dormouse_proto::program::{Diagnostics, Named, ToolLimits};

use super::ask::check_is_enabled;
use super::servers::EnabledServer;
use super::tools::EnabledTool;

/// The limits of single tools, by their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LimitsOfTools(Vec<(String, ToolLimits)>);

impl LimitsOfTools {
    /// The most calls of a tool: of the first entry that has the name by which the model calls it,
    /// or the name by which the program refers to it.
    pub(super) fn max_calls(&self, called: &str, name: &str) -> Option<u32> {
        let mut limits = self.0.iter();
        let found = limits.find(|(tool, _)| tool == called || tool == name);
        found.and_then(|(_, limits)| limits.max_calls)
    }
}

/// Checks that the limits name tools of the program.
pub(super) fn check(
    section: &[Named<ToolLimits>],
    tools: &[EnabledTool],
    servers: &[EnabledServer],
    diagnostics: &mut Diagnostics,
) -> LimitsOfTools {
    for entry in section {
        check_is_enabled("tools.limits", &entry.name, (tools, servers), diagnostics);
    }
    let limits = section.iter();
    LimitsOfTools(
        limits
            .map(|entry| (entry.name.value.clone(), entry.value))
            .collect(),
    )
}
