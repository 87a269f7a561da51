//! Constructors for variants of [`StoreError`], the error type of the store port.

use dormouse_actors::ports::StoreError;

/// The error for bytes that differ from those that were written, or are missing.
pub(crate) fn damaged(what: impl Into<String>) -> StoreError {
    StoreError::Damaged { what: what.into() }
}

/// The error for a commit that violates a rule. None of its records is written.
pub(crate) fn refused(why: impl Into<String>) -> StoreError {
    StoreError::Refused { why: why.into() }
}
