//! Constructors for variants of [`StoreError`], the error type of the store port.

use std::io;

use dormouse_actors::ports::StoreError;

/// Converts an error of the operating system. `doing` names the failed operation as a verb with its
/// object: `.map_err(io("sync the log"))`.
pub(crate) fn io(doing: impl Into<String>) -> impl FnOnce(io::Error) -> StoreError {
    move |source| StoreError::Io {
        doing: doing.into(),
        source,
    }
}

/// The error for bytes that differ from those that were written, or are missing.
pub(crate) fn damaged(what: impl Into<String>) -> StoreError {
    StoreError::Damaged { what: what.into() }
}

/// The error for a commit that violates the contract of the store port. None of its records is
/// written.
pub(crate) fn refused(why: impl Into<String>) -> StoreError {
    StoreError::Refused { why: why.into() }
}
