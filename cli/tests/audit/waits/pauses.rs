//! What the facts of a process say about its pauses at a limit.

use dormouse::Fact;
use dormouse::record::CallFact;
use serde_json::Value;

/// The pauses of a process, and the raises that ended them.
#[derive(Debug, Default)]
pub(crate) struct Pauses {
    pub(crate) paused: usize,
    pub(crate) raised: usize,
    pub(crate) ended: usize,
    /// What was used at the pause that has not ended, and the limit.
    at: Option<(u64, u64)>,
}

impl Pauses {
    /// Those of one process. Nothing begins in a process that is paused.
    pub(crate) fn of(facts: impl Iterator<Item = Fact>) -> Self {
        let mut pauses = Self::default();
        for fact in facts {
            match fact {
                Fact::Budget(change) => pauses.count(&serde_json::to_value(change).unwrap()),
                Fact::Call(CallFact::ModelCalled { .. } | CallFact::ToolCalled { .. }) => {
                    assert!(pauses.at.is_none(), "{fact:?} in {pauses:?}");
                }
                _ => {}
            }
        }
        pauses
    }

    /// A change of the account, in the words of its stored form.
    fn count(&mut self, change: &Value) {
        if let Some(paused) = change.get("Paused") {
            let amount = |name: &str| paused["at"][name].as_u64().unwrap();
            self.paused += 1;
            self.at = Some((amount("used"), amount("limit")));
        } else if change.get("Raised").is_some() {
            self.raised += 1;
        } else if *change == "Unpaused" {
            self.ended += 1;
            self.at = None;
        }
    }

    /// By how much the limit has to be raised, so that this much is left.
    pub(crate) fn missing(&self, left: u64) -> Option<u64> {
        self.at.map(|(used, limit)| used - limit + left)
    }
}
