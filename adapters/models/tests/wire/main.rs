//! Recorded traffic of the providers: every reply decodes, its blocks go back as they came, a
//! stream gives what the whole form of the same reply would give, wherever it is cut the result is
//! that reply or an error, and what we send is what was accepted: address, headers and body, with
//! their ids and their order. `--nocapture` shows a table.
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
mod asks;
mod chat;
mod check;
#[cfg(any(feature = "bedrock", feature = "vertex"))]
mod clouds;
mod compare;
mod counts;
mod failures;
mod gemini;
mod reader;
mod responses;
mod shape;
#[path = "../../../../tests/skip.rs"]
mod skip;
