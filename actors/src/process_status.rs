//! The status of a process: what it does, what it waits for, or what holds it up.

use dormouse_proto::process::ExitStatus;

/// The status of a process. What holds a process up comes before what it waits for, whether it is
/// loaded or hibernates: `Paused` before `Stopped`, `Suspended`, `Asking`, `Asleep` and
/// `Hibernated`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProcessStatus {
    /// Not loaded since the kernel was opened, or since the process had to stop.
    Held,
    /// About to run: it is being loaded, or messages wait for it.
    Starting,
    /// It waits for input.
    Idle,
    /// It waits for children in the background.
    Waiting,
    /// Nothing is pending until an alarm is due. The process may be loaded.
    Asleep,
    /// It waits for its model.
    Thinking,
    /// It waits for tools.
    Acting,
    /// Its calls wait for a person.
    Asking,
    /// It is paused at a limit of its budget.
    Paused,
    /// A signal stopped it.
    Stopped,
    /// A process above it is paused, or a label of its tree has used up its budget.
    Suspended,
    /// Not loaded, and nothing is pending until an input arrives.
    Hibernated,
    /// It has ended.
    Ended(ExitStatus),
}

impl ProcessStatus {
    /// The status word, as listings show it: of an ended process, that of its exit.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Starting => "starting",
            Self::Idle => "idle",
            Self::Waiting => "waiting",
            Self::Asleep => "asleep",
            Self::Thinking => "thinking",
            Self::Acting => "acting",
            Self::Asking => "asking",
            Self::Paused => "paused",
            Self::Stopped => "stopped",
            Self::Suspended => "suspended",
            Self::Hibernated => "hibernated",
            Self::Ended(status) => status.word(),
        }
    }
}
