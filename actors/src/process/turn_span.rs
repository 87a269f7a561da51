//! The span of the current turn, which is the parent of the spans of its calls.

use dormouse_kernel::process::Fact;
use dormouse_proto::process::Exit;
use dormouse_proto::record::{Caller, Phase, TurnFact};
use tracing::Span;

use super::RunningProcess;
use crate::spans;

impl RunningProcess {
    /// Ends and begins the span of the turn according to `facts`, which are already part of the
    /// state. A process that is created or loaded in the middle of a turn begins a span when it
    /// handles its first input.
    pub(super) fn trace_turn(&mut self, facts: &[Fact]) {
        for fact in facts {
            match fact {
                Fact::Turn(
                    TurnFact::Began
                    | TurnFact::WentTo {
                        by: Caller::Host, ..
                    },
                )
                | Fact::WentToCompacted {
                    by: Caller::Host, ..
                } => self.turn_span = Some(spans::turn_span(self.pid, &self.state, self.root)),
                // If the restored process is in a turn, the code below begins a new span.
                Fact::Restored {
                    by: Caller::Host, ..
                } => self.turn_span = None,
                Fact::Turn(TurnFact::Ended { status, .. })
                | Fact::Exited {
                    exit: Exit { status, .. },
                } => {
                    self.turn_span
                        .take()
                        .iter()
                        .for_each(|turn| spans::record_turn_end(turn, *status));
                }
                _ => {}
            }
        }
        let is_in_turn = match self.state.phase() {
            Phase::Thinking { .. }
            | Phase::Ready { .. }
            | Phase::Acting {
                caller: Caller::Model,
                ..
            } => true,
            Phase::Idle
            | Phase::Acting {
                caller: Caller::Host,
                ..
            }
            | Phase::Ended { .. } => false,
        };
        if is_in_turn && self.turn_span.is_none() {
            self.turn_span = Some(spans::turn_span(self.pid, &self.state, self.root));
        }
    }

    /// The parent of the spans of calls; no span if the host makes a call between turns.
    pub(super) fn turn_span(&self) -> Span {
        self.turn_span.clone().unwrap_or_else(Span::none)
    }
}
