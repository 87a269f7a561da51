//! Finds the end of the turn that handles an input, from the facts of a journal.
//!
//! An input waits in the mailbox until a turn begins, and each turn begins with the whole mailbox.
//! The result depends only on facts, so it is the same for a running process and for the journal of
//! a process that was loaded again.

use std::sync::Arc;

use dormouse_proto::id::FactNumber;
use dormouse_proto::message::{Block, Role, text_of};
use dormouse_proto::process::{Exit, ExitStatus};
use dormouse_proto::record::{CallFact, Caller, ContentRef, Fact, TurnFact};

use super::State;

/// How the turn with an input ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TurnEnd {
    /// The turn ended, and the process continues.
    Turn(Exit),
    /// The process ended.
    Process,
}

/// Whether an input still waits or is part of a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InputProgress {
    /// In the mailbox.
    Waiting,
    /// In the conversation.
    InTurn {
        /// The result of the turn, as JSON text, once it is submitted.
        result: Option<Arc<str>>,
    },
}

impl InputProgress {
    /// Applies a fact that follows the fact that queued the input. Returns the end of the turn with
    /// this input if the fact ends that turn. `last_reply` returns the last reply of the model
    /// before the fact.
    pub fn apply<C: Clone>(
        &mut self,
        fact: &Fact<C>,
        last_reply: impl FnOnce() -> Arc<str>,
    ) -> Option<TurnEnd> {
        let Self::InTurn { result } = self else {
            return match fact {
                Fact::Exited { .. } => Some(TurnEnd::Process),
                Fact::Turn(TurnFact::Began) => {
                    *self = Self::InTurn { result: None };
                    None
                }
                _ => None,
            };
        };
        let done = |result: &mut Option<Arc<str>>, last_reply| match result.take() {
            Some(result) => Exit::with_result(result),
            None => Exit::new(ExitStatus::Done, last_reply),
        };
        let exit = match fact {
            Fact::Exited { .. } => return Some(TurnEnd::Process),
            Fact::Turn(TurnFact::ResultSubmitted { value }) => {
                *result = Some(value.clone());
                return None;
            }
            Fact::Turn(TurnFact::Ended {
                status: ExitStatus::Done,
                reason: None,
            }) => done(result, last_reply()),
            Fact::Turn(TurnFact::Ended { status, reason }) => {
                Exit::new(*status, reason.clone().unwrap_or_else(last_reply))
            }
            // A task that is done and has mail begins the next turn at once.
            Fact::Turn(TurnFact::Began) => done(result, last_reply()),
            Fact::Turn(TurnFact::WentTo {
                by: Caller::Host, ..
            })
            | Fact::WentToCompacted {
                by: Caller::Host, ..
            }
            | Fact::Restored {
                by: Caller::Host, ..
            } => Exit::new(
                ExitStatus::Interrupted,
                "the host took the conversation back before this turn was done",
            ),
            _ => return None,
        };
        Some(TurnEnd::Turn(exit))
    }
}

/// A search for the end of the turn with an input, in facts that were read from a journal.
pub struct TurnSearch {
    next: FactNumber,
    progress: InputProgress,
    last_reply: Arc<str>,
}

impl TurnSearch {
    /// A search in the facts after `queued`, the one that queued the input.
    pub fn new(queued: FactNumber) -> Self {
        Self {
            next: queued.plus(1),
            progress: InputProgress::Waiting,
            last_reply: Arc::default(),
        }
    }

    /// The number of the next fact to apply.
    pub fn next(&self) -> FactNumber {
        self.next
    }

    /// Applies the fact with the number [`next`](Self::next). Returns the end of the turn if the
    /// fact ends it.
    pub fn apply(&mut self, fact: &Fact<ContentRef>) -> Option<TurnEnd> {
        self.next = self.next.plus(1);
        if let Fact::Call(CallFact::ModelReplied { blocks, .. }) = fact {
            self.last_reply = text_of(blocks).into();
        }
        self.progress.apply(fact, || self.last_reply.clone())
    }
}

impl State {
    /// The text of the model's last reply; empty if there is none. Shares the text of a reply with
    /// one text block.
    pub fn last_reply(&self) -> Arc<str> {
        let mut replies = self.messages.iter().rev();
        let last = replies.find(|message| message.role == Role::Assistant);
        let mut texts = last
            .iter()
            .flat_map(|message| &message.blocks)
            .filter_map(|block| match block {
                Block::Text { text, .. } => Some(text),
                _ => None,
            });
        match (texts.next(), texts.next(), last) {
            (Some(text), None, _) => Arc::clone(text),
            (Some(_), Some(_), Some(message)) => message.text().into(),
            _ => Arc::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use dormouse_proto::id::CallId;
    use dormouse_proto::message::Block;
    use dormouse_proto::model::{StopReason, Usage};

    use super::*;

    const BEGAN: Fact<ContentRef> = Fact::Turn(TurnFact::Began);

    fn replied(text: &str) -> Fact<ContentRef> {
        Fact::Call(CallFact::ModelReplied {
            call: CallId { epoch: 0, seq: 1 },
            blocks: vec![Block::text(text)],
            stop: StopReason::EndTurn,
            usage: Usage::default(),
        })
    }

    fn ended(reason: Option<&str>) -> Fact<ContentRef> {
        Fact::Turn(TurnFact::Ended {
            status: ExitStatus::Done,
            reason: reason.map(Into::into),
        })
    }

    fn submitted() -> Fact<ContentRef> {
        Fact::Turn(TurnFact::ResultSubmitted {
            value: "[7]".into(),
        })
    }

    fn done(message: &str) -> TurnEnd {
        TurnEnd::Turn(Exit::new(ExitStatus::Done, message))
    }

    #[test]
    fn the_search_ends_with_the_turn_that_contains_the_input() {
        let exited = Fact::Exited {
            exit: Exit::new(ExitStatus::Killed, "killed"),
        };
        let cases = [
            // The turn that was running when the input arrived is not the turn with the input.
            (
                vec![ended(None), BEGAN, replied("mine"), ended(None)],
                4,
                done("mine"),
            ),
            (
                vec![BEGAN, replied("no"), ended(Some("limit"))],
                3,
                done("limit"),
            ),
            // A task with mail begins its next turn without a fact that ends this one.
            (vec![BEGAN, replied("mine"), BEGAN], 3, done("mine")),
            (
                vec![BEGAN, replied("I submit"), submitted(), ended(None)],
                4,
                TurnEnd::Turn(Exit::with_result("[7]")),
            ),
            (
                vec![BEGAN, submitted(), BEGAN],
                3,
                TurnEnd::Turn(Exit::with_result("[7]")),
            ),
            (
                vec![submitted(), BEGAN, replied("text"), ended(None)],
                4,
                done("text"),
            ),
            (vec![BEGAN, exited.clone(), BEGAN], 2, TurnEnd::Process),
            (vec![exited, BEGAN], 1, TurnEnd::Process),
        ];
        for (facts, end_at, expected) in cases {
            let mut search = TurnSearch::new(FactNumber(7));
            let end = facts.iter().find_map(|fact| search.apply(fact));
            assert_eq!((end, search.next().0), (Some(expected), 8 + end_at));
        }
        let mut search = TurnSearch::new(FactNumber(7));
        assert_eq!(search.apply(&BEGAN), None);
        assert_eq!(search.apply(&replied("mine")), None, "the turn goes on");
    }
}
