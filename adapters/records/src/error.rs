//! Constructors for the port's errors.

use dormouse_actors::ports::StoreError;

/// What was read back is not what was written.
pub(crate) fn damaged(what: impl Into<String>) -> StoreError {
    StoreError::Damaged { what: what.into() }
}

/// The commit violates a rule. Nothing of it is written.
pub(crate) fn refused(why: impl Into<String>) -> StoreError {
    StoreError::Refused { why: why.into() }
}
