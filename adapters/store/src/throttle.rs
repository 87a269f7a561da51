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
pub(crate) struct Throttle(Option<Arc<ThrottleFn>>);

type ThrottleFn = dyn Fn(u64) -> ControlFlow<()> + Send + Sync;

impl Throttle {
    /// Calls `wait` before each read.
    pub(crate) fn new(wait: impl Fn(u64) -> ControlFlow<()> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(wait)))
    }

    /// Waits until this many bytes may be read.
    ///
    /// # Errors
    /// Of kind `Interrupted` if reading is cancelled.
    pub(crate) fn wait(&self, bytes: u64) -> io::Result<()> {
        match self
            .0
            .as_ref()
            .map_or(ControlFlow::Continue(()), |wait| wait(bytes))
        {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(io::Error::new(
                io::ErrorKind::Interrupted,
                "the caller cancelled the reading",
            )),
        }
    }
}

impl fmt::Debug for Throttle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() {
            "Throttle(limited)"
        } else {
            "Throttle(unbounded)"
        })
    }
}
