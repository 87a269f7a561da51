//! Constructors for the port's errors.

use std::io;

use dormouse_actors::ports::StoreError;

/// An operation that the operating system refused: `.map_err(io("sync the log"))`.
pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> StoreError {
    move |source| StoreError::Io {
        doing: doing.into(),
        source,
    }
}

/// What was read back is not what was written.
pub(crate) fn damaged(what: impl Into<String>) -> StoreError {
    StoreError::Damaged { what: what.into() }
}

/// A commit that violates the port's contract. Nothing of it is written.
pub(crate) fn refused(why: impl Into<String>) -> StoreError {
    StoreError::Refused { why: why.into() }
}
