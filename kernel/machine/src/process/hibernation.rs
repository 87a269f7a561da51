//! Decides whether a process can be hibernated (unloaded from memory until its next input arrives).
//! A process can be hibernated only if it has nothing to do before that input.

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
    /// A model summarizes a descriptor of the process.
    Summary,
    /// The process has a wall-time limit, at which it must be in memory to end.
    Deadline,
}

impl State {
    /// Why the process cannot be hibernated; `None` if it can. A stopped process can be hibernated
    /// in the middle of its turn, since it starts nothing. A process with background children can
    /// be hibernated, since the end of a child wakes it.
    #[must_use]
    pub fn busy_reason(&self) -> Option<BusyReason> {
        let is_stopped = self.is_stopped();
        match self.phase {
            Phase::Ended { .. } => Some(BusyReason::Ended),
            Phase::Thinking { .. } | Phase::Ready { .. } | Phase::Acting { .. } if !is_stopped => {
                Some(BusyReason::Turn)
            }
            _ if !self.mailbox.is_empty() || self.pending_reads.has_arrivals() => {
                Some(BusyReason::Mail)
            }
            _ if self.pending_reads.has_summaries() => Some(BusyReason::Summary),
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
            Self::Summary => "one of its descriptors is being summarized",
            Self::Deadline => "it must be awake when its wall time is over (budget.wall_time)",
        })
    }
}
