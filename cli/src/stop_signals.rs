//! The signals that ask this program to stop: Ctrl-C, a closed terminal, a service manager.

use dormouse::KernelError;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::Failure;

/// Receives SIGINT, SIGTERM and SIGHUP. None of them may end the program at once: commands run in
/// process groups of their own, which a signal to this program does not reach, so they would stay
/// behind.
pub(crate) struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl StopSignals {
    /// Replaces the default handling of the signals from now on.
    pub(crate) fn listen() -> Result<Self, Failure> {
        let listen = |kind| {
            signal(kind)
                .map_err(|error| Failure::Run(format!("signals cannot be received: {error}")))
        };
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }

    /// Waits for the next signal, and returns its exit code by the convention of shells: 128 plus
    /// the number of the signal.
    pub(crate) async fn next(&mut self) -> u8 {
        tokio::select! {
            _ = self.interrupt.recv() => 130,
            _ = self.terminate.recv() => 143,
            _ = self.hangup.recv() => 129,
        }
    }
}

/// Exits with the code of a signal, or with 3 if the shutdown failed. A blocking read of standard
/// input cannot be cancelled: the program exits without waiting for it.
pub(crate) fn exit_at_once(code: u8, closed: Result<(), KernelError>) -> ! {
    let Err(error) = closed else {
        std::process::exit(code.into());
    };
    Failure::from(error).print();
    std::process::exit(3);
}
