//! Whether a process can be hibernated: it has nothing to do until the next input, so that its
//! journal is enough.

use std::fmt;

use dormouse_proto::record::Phase;

use super::State;

/// Why a process cannot be hibernated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BusyReason {
    /// The process has ended.
    Ended,
    /// The process is in the middle of a turn or of a host call.
    Turn,
    /// Messages are in the mailbox or being read.
    Mail,
    /// The process has to be awake at its wall-time limit.
    Deadline,
}

impl State {
    /// Why the process cannot be hibernated, if it cannot. A stopped process can be hibernated in
    /// the middle of its turn, since it starts nothing. Background children are no obstacle: their
    /// end wakes the process.
    #[must_use]
    pub fn busy_reason(&self) -> Option<BusyReason> {
        let is_halted = self.is_stopped();
        match self.phase {
            Phase::Ended { .. } => Some(BusyReason::Ended),
            Phase::Thinking { .. } | Phase::Ready { .. } | Phase::Acting { .. } if !is_halted => {
                Some(BusyReason::Turn)
            }
            _ if !self.mailbox.is_empty() || self.pending_reads.has_arrivals() => {
                Some(BusyReason::Mail)
            }
            _ if self.budget.deadline_ms().is_some() => Some(BusyReason::Deadline),
            _ => None,
        }
    }
}

impl fmt::Display for BusyReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ended => "it has ended",
            Self::Turn => "it is in the middle of a turn",
            Self::Mail => "messages wait for it",
            Self::Deadline => "it must be awake when its wall time is over (budget.wall_time)",
        })
    }
}
