//! The audit of `examples/audit`, run as a user runs it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(
    clippy::print_stdout,
    clippy::disallowed_macros,
    reason = "a test prints its seed"
)]

mod crash;
mod failure;
mod kills;
mod labels;
mod races;
mod readers;
mod report;
#[expect(
    clippy::disallowed_methods,
    reason = "a test that is left out says so past the harness"
)]
#[path = "../../../tests/skip.rs"]
mod skip;
mod stop;
mod support;
mod waits;
