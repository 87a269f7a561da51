//! Where the world makes the mistakes of a [`Defect`] that concern the facts of a process.

use dormouse_content::Content;
use dormouse_kernel::process::{Fact, Image, Input, Signal, State, evolve};
use dormouse_kernel::program::Program;
use dormouse_proto::budget::{Change, Pausing};
use dormouse_proto::id::{FdId, Pid};
use dormouse_proto::record::{
    AlarmFact, CallFact, DescriptorFact, EffectPlace, Entry, Gate, Phase, Speculation,
};
use dormouse_proto::tool::Answer;

use crate::defect::Defect;
use crate::host::RAISE;
use crate::process::Running;
use crate::programs::needs_approval;
use crate::world::World;

/// Whether a held call that nobody approved counts as approved from now on.
fn approve_all(program: &Program, image: &mut Image) -> bool {
    let Phase::Acting { pending_calls, .. } = &mut image.phase else {
        return false;
    };
    let mut has_approved = false;
    for pending_call in pending_calls {
        if let Some(Gate::Held(hold)) = &pending_call.gate
            && needs_approval(program, &pending_call.tool)
        {
            let hold = hold.clone();
            pending_call.gate = Some(Gate::Approved { hold, edit: None });
            has_approved = true;
        }
    }
    has_approved
}

impl World {
    /// The facts of a decision, as the world was told to have them.
    pub(crate) fn tampered(&mut self, before: &State, mut facts: Vec<Fact>) -> Vec<Fact> {
        match self.defect {
            Some(Defect::AppliesCompletionsTwice) => {
                let at = facts
                    .iter()
                    .position(|fact| matches!(fact, Fact::Call(CallFact::ToolReturned { .. })));
                if let Some(at) = at {
                    facts.insert(at, facts[at].clone());
                }
            }
            Some(Defect::GivesANumberAgain) => {
                for fact in &mut facts {
                    if let Fact::Descriptor(DescriptorFact::Opened {
                        id: FdId::Fd(number @ 2..),
                        ..
                    }) = fact
                    {
                        *number -= 1;
                    }
                }
            }
            Some(Defect::WritesAnswersUnescaped) => {
                for fact in &mut facts {
                    if let Fact::Call(CallFact::ToolReturned { answer, .. }) = fact
                        && answer.text.starts_with("<fd_content")
                    {
                        *answer = Answer {
                            text: answer
                                .text
                                .replace("</fd_content>", "<&</fd_content>")
                                .into(),
                            ..answer.clone()
                        };
                    }
                }
            }
            Some(Defect::ForgetsAReservation) => {
                facts.retain(|fact| !matches!(fact, Fact::Budget(Change::Reserved { .. })));
            }
            Some(Defect::LosesACompactedMessage) => {
                for fact in &mut facts {
                    if let Fact::Compacted { entry, .. } = fact {
                        let text = entry
                            .content
                            .unlimited_reader()
                            .text()
                            .expect("it is in memory");
                        let rest = text.find("\n\n## ").map_or("", |at| &text[at..]);
                        entry.content = Content::new(rest.to_owned());
                    }
                }
            }
            Some(Defect::ForgetsThatAnAlarmFired) => {
                for fact in &mut facts {
                    if let Fact::Alarm(AlarmFact::Fired { id, next_ms, .. }) = fact {
                        let alarm = before.alarms().find(|alarm| alarm.id == *id);
                        *next_ms = alarm.map(|alarm| alarm.due_ms);
                    }
                }
            }
            Some(Defect::MixesUpTables) => facts.extend(self.foreign_descriptor(before, &facts)),
            _ => {}
        }
        facts
    }

    /// The state that an input is decided on, where that is not the process's own.
    pub(crate) fn tampered_state(&self, state: &State, input: &Input) -> Option<State> {
        let image = match (self.defect?, input) {
            // Reads that are pending are no part of an image, and would be lost in a turn.
            (Defect::ForgetsWhatItHeard, Input::Message { .. })
                if state.phase().pending_calls().is_empty() =>
            {
                Image {
                    receipts: Vec::new(),
                    ..state.image()
                }
            }
            (Defect::TakesHeldForApproved, Input::Signal(Signal::Resume)) => {
                let mut image = state.image();
                if !approve_all(state.program(), &mut image) {
                    return None;
                }
                image
            }
            (Defect::ForgetsItsPause, Input::Signal(Signal::Resume))
                if state.paused().is_some() =>
            {
                let mut image = state.image();
                image.pausing = Pausing::default();
                // Somebody has to have raised something, or it is paused again at once.
                image.budget.limits = image.budget.limits.raised_by(&RAISE);
                image
            }
            (Defect::ForgetsWhatLiesBeyond, Input::Completed { .. })
                if state.effects().can_be_repeated()
                    && matches!(state.phase(), Phase::Thinking { .. }) =>
            {
                let mut image = state.image();
                for effect in &mut image.effects.effects {
                    if effect.place == EffectPlace::Beyond {
                        effect.place = EffectPlace::DoneAgain;
                    }
                }
                image
            }
            (Defect::ForgetsThatItIsSpeculative, Input::Completed { .. })
                if state.speculation() != Speculation::None
                    && matches!(state.phase(), Phase::Thinking { .. }) =>
            {
                Image {
                    speculation: Speculation::None,
                    ..state.image()
                }
            }
            _ => return None,
        };
        State::from_image(
            state.pid(),
            state.program().clone(),
            self.programs.around.clone(),
            image,
        )
        .ok()
    }

    fn foreign_descriptor(&self, state: &State, facts: &[Fact]) -> Option<Fact> {
        let mut others = self
            .running
            .values()
            .filter(|other| other.root != state.pid() && other.pid() != state.pid());
        let (_, entry) = others.find_map(|other| other.state.table().iter().next())?;
        let opened = facts.iter().filter(|fact| {
            matches!(
                fact,
                Fact::Descriptor(DescriptorFact::Opened {
                    id: FdId::Fd(_),
                    ..
                })
            )
        });
        let id = FdId::Fd(state.table().next_fd() + opened.count() as u32);
        Some(Fact::Descriptor(DescriptorFact::Opened {
            id,
            entry: entry.clone(),
        }))
    }

    pub(crate) fn leak(&mut self, child: Pid, facts: &[Fact]) {
        let parent = self.supervisor.table.row(child).and_then(|row| row.parent);
        let Some(parent) = parent.and_then(|parent| self.running.get_mut(&parent)) else {
            return;
        };
        for fact in facts
            .iter()
            .filter(|fact| matches!(fact, Fact::Descriptor(DescriptorFact::Opened { .. })))
        {
            evolve(&mut parent.state, fact);
        }
    }

    pub(crate) fn change_a_content(&self, running: &mut Running) {
        let mut image = running.state.image();
        if let Some((id, entry)) = image.table.get_min().cloned() {
            let content = Content::new(format!(
                "{} changed",
                entry
                    .content
                    .unlimited_reader()
                    .text()
                    .expect("it is in memory")
            ));
            image.table.insert(id, Entry { content, ..entry });
            let program = running.state.program().clone();
            if let Ok(state) =
                State::from_image(running.pid(), program, self.programs.around.clone(), image)
            {
                running.state = state;
            }
        }
    }
}
