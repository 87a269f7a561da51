//! The durability settings, and which records require a sync under each of them.
//!
//! Under every setting, facts reach the log in order before any effect that follows from them. If a
//! power loss loses data, it loses the end of the log, for all processes alike; everything before
//! that end is complete and consistent.

use dormouse_kernel::labels::LabelChange;
use dormouse_kernel::process::Fact;
use dormouse_proto::budget::Change;
use dormouse_proto::record::{
    CallFact, ChildFact, ControlFact, DescriptorFact, MailFact, TurnFact,
};

use crate::checkpoint::LogRecord;
use crate::ports::SyncLevel;

/// When facts must be on the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Before any effect that follows from them. Neither a kill nor a power loss loses an
    /// acknowledged fact, and a call that must not be repeated never is. Costs one fdatasync for
    /// all processes that wait.
    #[default]
    EveryFact,
    /// When something happens on which others depend; after one second at the latest:
    ///
    /// * A turn ends or is interrupted, or a process is created, ends or is opened again.
    /// * The host sends input, replaces tools, sets an effect policy, or returns a process to an
    ///   earlier position; a process goes back itself.
    /// * A call is held, or a person answers it; an alarm is set, fires or is cancelled.
    /// * A process is stopped, paused, raised, continued, suspended, released or chosen.
    /// * A checkpoint is made or dropped, or the budget of a label is set.
    ///
    /// Until then the operating system has the facts. A kill loses nothing. A power loss can lose the
    /// facts of unfinished turns, so that a tool that ran in one of them may run again. It can also
    /// lose what belongs to no turn and is not listed: the calls that the host makes
    /// ([`Process::call`](crate::handle::Process::call)), and notes on descriptors.
    EveryTurn,
    /// In the background, after one second at the latest. Until then the operating system has the
    /// facts. A kill loses nothing. A power loss can lose the last second, acknowledged or not:
    /// tools may run again, and input of the host must be sent again.
    Relaxed,
}

impl Durability {
    /// How durable a commit of these records must be before it is acknowledged; `None` without
    /// records.
    pub(crate) fn sync_level<'a>(
        self,
        records: impl IntoIterator<Item = &'a LogRecord>,
    ) -> Option<SyncLevel> {
        let levels = records.into_iter().map(|record| match self {
            // A snapshot only makes loading faster; its facts have their own sync. A content is
            // needed only once a record that refers to it is durable.
            _ if matches!(record, LogRecord::Snapshot { .. } | LogRecord::Content(_)) => {
                SyncLevel::Written
            }
            Self::EveryFact => SyncLevel::Synced,
            Self::EveryTurn if is_synced_every_turn(record) => SyncLevel::Synced,
            Self::EveryTurn | Self::Relaxed => SyncLevel::Written,
        });
        levels.max()
    }
}

/// Whether [`Durability::EveryTurn`] syncs this record, because something outside of the current
/// turn depends on it.
fn is_synced_every_turn(record: &LogRecord) -> bool {
    match record {
        LogRecord::Created { .. }
        | LogRecord::Ended { .. }
        | LogRecord::Reopened { .. }
        | LogRecord::Checkpoint { .. }
        | LogRecord::CheckpointDropped { .. }
        | LogRecord::Label(LabelChange::BudgetSet { .. })
        | LogRecord::VerdictGiven => true,
        LogRecord::Snapshot { .. }
        | LogRecord::Waiting { .. }
        | LogRecord::TempFile { .. }
        | LogRecord::Label(LabelChange::Used { .. })
        | LogRecord::Content(_) => false,
        LogRecord::Facts { facts, .. } => facts.iter().any(|fact| match fact {
            Fact::Mail(MailFact::Queued { .. })
            | Fact::Turn(
                TurnFact::Ended { .. } | TurnFact::WentTo { .. } | TurnFact::Interrupted { .. },
            )
            | Fact::Exited { .. }
            | Fact::Reopened { .. }
            | Fact::Child(ChildFact::Reopened { .. })
            | Fact::Restored { .. }
            | Fact::WentToCompacted { .. }
            | Fact::ToolsReplaced { .. }
            | Fact::Call(
                CallFact::Held { .. }
                | CallFact::Approved { .. }
                | CallFact::EffectPolicySet { .. },
            )
            | Fact::Alarm(_)
            | Fact::Budget(Change::Paused { .. } | Change::Raised { .. } | Change::Unpaused)
            | Fact::Control(
                ControlFact::Stopped
                | ControlFact::Continued
                | ControlFact::Suspended
                | ControlFact::Released
                | ControlFact::SpeculationEnded,
            ) => true,
            Fact::Mail(MailFact::Received { .. } | MailFact::Taken { .. })
            | Fact::Noted { .. }
            | Fact::Compacted { .. }
            | Fact::Turn(
                TurnFact::Began
                | TurnFact::ResultSubmitted { .. }
                | TurnFact::ResultRefused
                | TurnFact::ResultRequested { .. },
            )
            | Fact::Descriptor(DescriptorFact::Opened { .. } | DescriptorFact::Annotated { .. })
            | Fact::Call(
                CallFact::ModelCalled { .. }
                | CallFact::ModelReplied { .. }
                | CallFact::ModelSwitched { .. }
                | CallFact::HostCalled { .. }
                | CallFact::ToolCalled { .. }
                | CallFact::ToolReturned { .. }
                | CallFact::Recalled { .. },
            )
            | Fact::Child(
                ChildFact::Ended { .. }
                | ChildFact::Started { .. }
                | ChildFact::Reported { .. }
                | ChildFact::ReportedAgain { .. },
            )
            | Fact::Control(ControlFact::StoppedWithoutCalls)
            | Fact::Budget(_) => false,
        }),
    }
}
