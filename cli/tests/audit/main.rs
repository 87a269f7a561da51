//! The audit of `examples/audit`, run as a user runs it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::print_stdout, clippy::disallowed_macros, reason = "a test prints its seed")]

mod crash;
mod failure;
mod report;
mod stop;
mod support;
