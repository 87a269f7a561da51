//! Alarms.

use dormouse_kernel::schedule::format_time;
use dormouse_proto::alarm::Alarm;
use dormouse_proto::id::Pid;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An open alarm, as `dormouse alarms --json` prints it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AlarmView {
    /// The process.
    pub pid: u64,
    /// The alarm, such as `alarm:2`.
    pub alarm: String,
    /// When it is due, as a date and a time, UTC.
    pub due: String,
    /// When it is due: milliseconds since the epoch, UTC.
    pub due_ms: u64,
    /// The cron expression by which it repeats.
    pub cron: Option<String>,
    /// The time zone of the cron expression.
    pub zone: Option<String>,
    /// What happens to times that pass while nothing can run.
    pub missed: String,
    /// What the process is told.
    pub note: String,
}

impl AlarmView {
    /// The alarm of a process.
    #[must_use]
    pub fn new(pid: Pid, alarm: &Alarm) -> Self {
        let repeat = alarm.repeat.as_ref();
        Self {
            pid: pid.0,
            alarm: alarm.id.to_string(),
            due: format_time(alarm.due_ms),
            due_ms: alarm.due_ms,
            cron: repeat.map(|repeat| repeat.cron.to_string()),
            zone: repeat.map(|repeat| repeat.zone.to_string()),
            missed: alarm.missed.word().to_owned(),
            note: alarm.note.to_string(),
        }
    }
}
