//! When a process is at rest: it has nothing to do before somebody speaks to it, and can be only
//! its journal until then.
//!
//! What keeps it awake: a turn (unless the process is stopped), mail, or a limit of wall time that
//! it must be awake for. The process actor adds what only it knows, calls in flight and facts on
//! their way.

use std::fmt;

use dormouse_proto::record::Phase;

use super::State;

/// Why a process is not at rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unrest {
    /// It has ended.
    Ended,
    /// It is in the middle of a turn, or of a call of the host.
    Turn,
    /// Messages wait for it, or are being read.
    Mail,
    /// It is to be woken when its wall time is over.
    Deadline,
}

impl State {
    /// Why the process is not at rest, if it is not. One that was stopped rests in the middle of
    /// its turn: nothing begins before it is continued. Children that no call waits for are no
    /// reason: their end wakes it.
    #[must_use]
    pub fn unrest(&self) -> Option<Unrest> {
        let is_halted = self.is_stopped();
        match self.phase {
            Phase::Ended { .. } => Some(Unrest::Ended),
            Phase::Thinking { .. } | Phase::Ready { .. } | Phase::Acting { .. } if !is_halted => {
                Some(Unrest::Turn)
            }
            _ if !self.mailbox.is_empty() || self.reading.has_arrivals() => Some(Unrest::Mail),
            _ if self.budget.deadline_ms().is_some() => Some(Unrest::Deadline),
            _ => None,
        }
    }
}

impl fmt::Display for Unrest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ended => "it has ended",
            Self::Turn => "it is in the middle of a turn",
            Self::Mail => "messages wait for it",
            Self::Deadline => "it must be awake when its wall time is over (budget.wall_time)",
        })
    }
}
