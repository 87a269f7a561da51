//! PAUSE-1: nothing begins in a process that is paused at a limit before the limit is raised, and
//! nothing begins below it once that is told there. Who begins to run below a paused process is told
//! first.

use dormouse_kernel::process::{Effect, Fact};
use dormouse_proto::budget::Change;
use dormouse_proto::record::{CallFact, ControlFact, TurnFact};

use super::{Held, ensure};
use crate::process::Running;
use crate::world::World;

/// What holds a process up, beside its machine.
#[derive(Default)]
pub(super) struct Holds {
    is_paused: bool,
    is_suspended: bool,
}

impl Holds {
    /// A life begins: what its journal says.
    pub(super) fn begin(&mut self, state: &dormouse_kernel::process::State) {
        self.is_paused = state.paused().is_some();
        self.is_suspended = state.is_suspended();
    }
}

impl World {
    /// `running` is the process after a step with these facts and effects.
    pub(super) fn pause_1(
        &mut self,
        running: &Running,
        facts: &[Fact],
        effects: &[Effect],
    ) -> Held {
        let pid = running.pid();
        let Some(ledger) = self.ledgers.get_mut(&pid) else {
            return Ok(());
        };
        let holds = &mut ledger.holds;
        let mut begun = None;
        for fact in facts {
            match fact {
                Fact::Budget(Change::Paused { .. }) => holds.is_paused = true,
                Fact::Budget(Change::Unpaused) => holds.is_paused = false,
                Fact::Control(ControlFact::Suspended) => holds.is_suspended = true,
                Fact::Control(ControlFact::Released) => holds.is_suspended = false,
                Fact::Exited { .. } => *holds = Holds::default(),
                _ if begins(fact) => {
                    let is_held = holds.is_paused || holds.is_suspended;
                    if is_held || running.begins_below_paused {
                        begun = Some(fact.name());
                    }
                }
                _ => {}
            }
        }
        ensure(begun.is_none(), "PAUSE-1", || {
            format!("{pid} is held up by a limit, and has {begun:?}")
        })?;
        let is_held = holds.is_paused || holds.is_suspended;
        let started = effects.iter().find(|effect| starts(effect));
        ensure(!is_held || started.is_none(), "PAUSE-1", || {
            let names: Vec<_> = facts.iter().map(Fact::name).collect();
            format!("{pid} is held up by a limit, and starts {started:?} with {names:?}")
        })
    }
}

fn begins(fact: &Fact) -> bool {
    matches!(
        fact,
        Fact::Turn(TurnFact::Began)
            | Fact::Call(CallFact::ModelCalled { .. } | CallFact::ToolCalled { .. })
    )
}

fn starts(effect: &Effect) -> bool {
    matches!(
        effect,
        Effect::StartWork { .. } | Effect::Summarize { .. } | Effect::StartChildren { .. }
    )
}
