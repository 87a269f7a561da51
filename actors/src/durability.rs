//! What has to survive what before a kernel goes on: the three settings, and which of them asks for
//! the disk when.
//!
//! In each of them facts are in the log, in order, before anything is done because of them, so that
//! what is lost, if something is, is the end of what all processes did: everything before it is
//! there, and fits together.

use dormouse_kernel::process::Fact;
use dormouse_proto::record::{
    CallFact, ChildFact, ControlFact, DescriptorFact, MailFact, TurnFact,
};

use crate::checkpoint::Durable;
use crate::ports::SyncLevel;

/// When facts have to be on the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Before anything is done because of them. Loses nothing that was acknowledged, neither to a
    /// kill nor to a loss of power, and a call that may not be repeated never is. One fdatasync for
    /// all processes that wait.
    #[default]
    EveryFact,
    /// When a turn ends, when a process is born or ends, when the host said something, when a
    /// checkpoint is made, and after a second at the latest; before that the operating system has
    /// them. A kill loses nothing. A loss of power can lose what turns that were going on did
    /// since: a tool that ran then may run again.
    EveryTurn,
    /// After a second at the latest, in the background; before that the operating system has them.
    /// A kill loses nothing. A loss of power can lose the last second, acknowledged or not: tools
    /// may run again, and what the host said then has to be said again.
    Relaxed,
}

impl Durability {
    /// How far a commit of these must have come before anyone hears of it; none where there is
    /// nothing to commit.
    pub(crate) fn until<'a>(
        self,
        entries: impl IntoIterator<Item = &'a Durable>,
    ) -> Option<SyncLevel> {
        let each = entries.into_iter().map(|entry| match self {
            // It only saves the reading of facts, which are durable without it; or is nothing
            // before what refers to it is durable.
            _ if matches!(entry, Durable::Snapshot { .. } | Durable::Content(_)) => {
                SyncLevel::Written
            }
            Self::EveryFact => SyncLevel::Synced,
            Self::EveryTurn if ends_something(entry) => SyncLevel::Synced,
            Self::EveryTurn | Self::Relaxed => SyncLevel::Written,
        });
        each.max()
    }
}

/// Whether somebody relies on it who is not part of a turn.
fn ends_something(durable: &Durable) -> bool {
    match durable {
        Durable::Born { .. }
        | Durable::Ended { .. }
        | Durable::Checkpoint { .. }
        | Durable::CheckpointDropped { .. } => true,
        Durable::Snapshot { .. } | Durable::TempFile { .. } | Durable::Content(_) => false,
        Durable::Facts { facts, .. } => facts.iter().any(|fact| match fact {
            Fact::Mail(MailFact::Queued { .. })
            | Fact::Turn(
                TurnFact::Ended { .. } | TurnFact::WentTo { .. } | TurnFact::Interrupted { .. },
            )
            | Fact::Exited { .. }
            | Fact::Restored { .. }
            | Fact::Control(ControlFact::Stopped | ControlFact::Continued) => true,
            Fact::Mail(MailFact::Received { .. } | MailFact::Taken { .. })
            | Fact::Turn(TurnFact::Began)
            | Fact::Descriptor(DescriptorFact::Opened { .. } | DescriptorFact::Noted { .. })
            | Fact::Call(
                CallFact::ModelCalled { .. }
                | CallFact::ModelReplied { .. }
                | CallFact::ModelSwitched { .. }
                | CallFact::HostCalled { .. }
                | CallFact::ToolCalled { .. }
                | CallFact::ToolReturned { .. },
            )
            | Fact::Child(
                ChildFact::Ended { .. } | ChildFact::Started { .. } | ChildFact::Reported { .. },
            )
            | Fact::Control(ControlFact::Frozen)
            | Fact::Budget(_) => false,
        }),
    }
}
