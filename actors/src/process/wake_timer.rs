//! The timer of a loaded process, which sends it an input when its wall time is used up or a held
//! call expires. It is cancelled when the actor ends. Alarms that a model or the host sets are
//! another thing: `supervisor/wake_times.rs` wakes a process for them.

use std::time::Duration;

use dormouse_kernel::process::Input;
use ractor::ActorRef;
use tokio::task::JoinHandle;

use super::{Delivery, ProcessMessage};
use crate::clock::now_ms;

/// A running timer. Dropping it cancels it.
pub(super) struct WakeTimer(JoinHandle<()>);

impl WakeTimer {
    /// Sends [`Input::TimeUp`] to the process at `at_ms` (milliseconds since the epoch, UTC), at
    /// once if that time has passed.
    pub(super) fn at(at_ms: u64, process: ActorRef<ProcessMessage>) -> Self {
        let pause = Duration::from_millis(at_ms.saturating_sub(now_ms()));
        Self(tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            // If the process has stopped, no wake-up is needed.
            let _ = process.cast(ProcessMessage::Input(Box::new(Delivery::internal(
                Input::TimeUp { at_ms },
            ))));
        }))
    }
}

impl Drop for WakeTimer {
    fn drop(&mut self) {
        self.0.abort();
    }
}
