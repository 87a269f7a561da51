//! Pure decisions: no runtime, no clock, no files, no randomness.

pub mod program;
