//! Recorded traffic of the providers: every reply decodes, its blocks go back as they came, a
//! stream gives what the whole form of the same reply would give, and what we send has the shape of
//! what was accepted.
//!
//! The recordings are no part of the project. They are looked for in `$DORMOUSE_SHARED/data/wire`,
//! or in `../shared` beside the workspace; where there are none the tests say that they are
//! skipped.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(
    clippy::print_stderr,
    reason = "what was looked at is part of the result"
)]

mod anthropic;
mod chat;
mod check;
mod gemini;
mod reader;
mod responses;
mod shape;
#[path = "../../../../tests/skip.rs"]
mod skip;
