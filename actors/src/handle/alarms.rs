//! Alarms of a process, as the host sees them: a process gets the note of an alarm as a message
//! when the time of the alarm comes. The machine decides which alarms are due
//! (`kernel/machine/src/process/alarms.rs`); the supervisor wakes the process for them
//! (`supervisor/wake_times.rs`).

use std::sync::Arc;
use std::time::SystemTime;

use dormouse_kernel::process::{AlarmRequest, HostRequest, Image, Input};
use dormouse_kernel::schedule::{Schedule, ScheduleError, When};
use dormouse_proto::alarm::{Alarm, AlarmId, MAX_NOTE_CHARS, MissedPolicy};
use dormouse_proto::id::Pid;
use dormouse_proto::user_input::UserInput;

use super::kernel::Kernel;
use super::process::Process;
use crate::clock::{ms_since_epoch, now_ms};
use crate::error::{KernelError, NotFound, StartError};
use crate::supervisor::RunMessage;

/// When a process that is born asleep gets its input.
#[derive(Clone, Debug)]
pub(super) enum FirstAlarm {
    /// Once.
    At(SystemTime),
    /// At each time of a cron expression, in a time zone.
    Every(String, String),
}

impl FirstAlarm {
    /// Gives the alarm to a new process, with its input as the note.
    ///
    /// # Errors
    /// [`StartError::Schedule`], [`StartError::NoteTooLong`], [`StartError::NoteNotText`].
    pub(super) fn set_in(
        self,
        image: &mut Image,
        input: Option<&UserInput>,
        missed: MissedPolicy,
    ) -> Result<(), StartError> {
        let when = match self {
            Self::At(time) => When::At(ms_since_epoch(time)),
            Self::Every(cron, zone) => When::Each(Schedule::parse(&cron, &zone)?.into()),
        };
        let request = AlarmRequest {
            when,
            note: note_of(input)?,
            missed,
        };
        image.alarms_set += 1;
        let id = AlarmId(image.alarms_set);
        image.alarms.push(request.alarm(id, now_ms())?);
        Ok(())
    }
}

/// The text of an input, as the note of an alarm.
fn note_of(input: Option<&UserInput>) -> Result<Arc<str>, StartError> {
    let parts = input.map(|input| &input.parts[..]).unwrap_or_default();
    let mut texts = Vec::new();
    for (part, content) in (1..).zip(parts) {
        let text = std::str::from_utf8(&content.bytes);
        texts.push(text.map_err(|_| StartError::NoteNotText { part })?);
    }
    let note = texts.join("\n\n");
    match note.chars().count() {
        0..=MAX_NOTE_CHARS => Ok(note.into()),
        chars => Err(StartError::NoteTooLong { chars }),
    }
}

impl From<ScheduleError> for StartError {
    fn from(error: ScheduleError) -> Self {
        Self::Schedule(error.to_string())
    }
}

impl Process {
    /// The open alarms of the process, by number. A process that is not loaded stays so: its
    /// journal is read.
    ///
    /// # Errors
    /// [`StoreFailure::Load`](crate::StoreFailure::Load), [`KernelError::Closed`].
    pub async fn alarms(&self) -> Result<Vec<Alarm>, KernelError> {
        // The last view of a hibernated process is still right: its alarms change only once it
        // wakes.
        match self.view() {
            Some(view) => Ok(view.alarms),
            None => Ok(self.kernel.inspect(self.pid()).await?.alarms),
        }
    }

    /// Cancels an alarm. A task that has ended its turn and waits for nothing else ends. The change
    /// is durable when this returns.
    ///
    /// # Errors
    /// [`NotFound::Alarm`], [`ProcessError::Busy`](crate::ProcessError::Busy),
    /// [`ProcessError::Ended`](crate::ProcessError::Ended).
    pub async fn cancel_alarm(&self, id: AlarmId) -> Result<(), KernelError> {
        let answer = self
            .request_answer(|request_id| Input::Host {
                request_id,
                request: HostRequest::CancelAlarm(id),
            })
            .await?;
        if answer.is_error {
            return Err(NotFound::Alarm {
                pid: self.pid(),
                id,
            }
            .into());
        }
        Ok(())
    }
}

impl Kernel {
    /// Runs these processes of the store again, in this order and a few at a time, without waiting
    /// for them. One that only waits for its next alarm or for a person is not loaded before that.
    /// One that runs or has ended is left unchanged.
    ///
    /// # Errors
    /// [`KernelError::Closed`].
    pub fn resume_lazily(&self, pids: impl IntoIterator<Item = Pid>) -> Result<(), KernelError> {
        let pids = pids.into_iter().collect();
        self.cast(RunMessage::Recover { pids })
    }
}
