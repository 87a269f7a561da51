//! Where the world makes the mistakes of a [`Defect`] that concern the facts of a process.

use dormouse_content::Content;
use dormouse_kernel::process::{Fact, Image, Input, State, evolve};
use dormouse_proto::budget::Change;
use dormouse_proto::id::{FdId, Pid};
use dormouse_proto::record::{AlarmFact, CallFact, DescriptorFact, Entry};
use dormouse_proto::tool::Answer;

use crate::defect::Defect;
use crate::process::Running;
use crate::world::World;

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
        if self.defect != Some(Defect::ForgetsWhatItHeard)
            || !matches!(input, Input::Message { .. })
        {
            return None;
        }
        let image = Image {
            receipts: Vec::new(),
            ..state.image()
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
