//! How fast a store is read, and whether reading goes on.
//!
//! This crate has no clock and does not sleep: it asks before each read, and the caller answers
//! when it is time.

use std::fmt;
use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;

/// What is asked before bytes of a store are read.
#[derive(Clone, Default)]
pub(crate) struct Pace(Option<Arc<Ask>>);

type Ask = dyn Fn(u64) -> ControlFlow<()> + Send + Sync;

impl Pace {
    /// One that asks this.
    pub(crate) fn of(ask: impl Fn(u64) -> ControlFlow<()> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(ask)))
    }

    /// Asks to read so many bytes, and waits for the answer.
    ///
    /// # Errors
    /// Of kind `Interrupted` if reading is to end.
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
