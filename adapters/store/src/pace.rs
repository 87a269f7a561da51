//! Throttles the reading of a store, and cancels it.
//!
//! This crate has no clock and does not sleep: it calls a function of the caller before each read,
//! and the caller returns when the read may start.

use std::fmt;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;

/// Called before bytes of a store are read.
#[derive(Clone, Default)]
pub(crate) struct Pace(Option<Arc<Ask>>);

type Ask = dyn Fn(u64) -> ControlFlow<()> + Send + Sync;

impl Pace {
    /// Calls `ask` before each read.
    pub(crate) fn of(ask: impl Fn(u64) -> ControlFlow<()> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(ask)))
    }

    /// Waits until this many bytes may be read.
    ///
    /// # Errors
    /// Of kind `Interrupted` if reading is cancelled.
    pub(crate) fn ask(&self, bytes: u64) -> io::Result<()> {
        match self
            .0
            .as_ref()
            .map_or(ControlFlow::Continue(()), |ask| ask(bytes))
        {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(io::Error::new(
                io::ErrorKind::Interrupted,
                "the caller broke it off",
            )),
        }
    }
}

impl fmt::Debug for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() {
            "Pace(asked)"
        } else {
            "Pace(unbounded)"
        })
    }
}
