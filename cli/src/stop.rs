//! Being asked to stop.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::status::Failure;

/// Signals that ask this program to stop: Ctrl-C, a terminal that is closed, a service manager.
/// None of them may end it at once: commands run in process groups of their own, which no signal to
/// this one reaches.
pub(crate) struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl StopSignals {
    /// Hears them from now on.
    pub(crate) fn listen() -> Result<Self, Failure> {
        let listen = |kind| {
            signal(kind).map_err(|error| Failure::Run(format!("no signals can be heard: {error}")))
        };
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }

    /// The exit code that the next of them stands for.
    pub(crate) async fn next(&mut self) -> u8 {
        tokio::select! {
            _ = self.interrupt.recv() => 130,
            _ = self.terminate.recv() => 143,
            _ = self.hangup.recv() => 129,
        }
    }
}
